"""Characters drawn as SVG, moved as a puppet."""

from renderers.puppet.renderer import PuppetRenderer
from renderers.puppet.rig import RigError

__all__ = ["PuppetRenderer", "RigError"]
