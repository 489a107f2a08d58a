"""Behaviour: how a face moves over time, apart from how it is drawn."""

from renderers.motion.animator import Animator
from renderers.motion.coarticulation import mouth_track
from renderers.motion.mood import EMOTIONS
from renderers.motion.mouth import LEAD_S

__all__ = ["EMOTIONS", "LEAD_S", "Animator", "mouth_track"]
