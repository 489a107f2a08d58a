"""Photographs of people, moved as portraits."""

from renderers.portrait.photo import PhotoError
from renderers.portrait.renderer import PortraitRenderer
from renderers.portrait.rig import PortraitError

__all__ = ["PhotoError", "PortraitError", "PortraitRenderer"]
