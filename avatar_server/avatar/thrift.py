"""Obeys the overload level: what this session does with less while the machine has too much to do.

The gateway decides (it sees all sessions); how to save is known here.
"""

from __future__ import annotations

import logging
from typing import Protocol

from avatar_server.capacity.overload import OverloadLevel
from avatar_server.config import VideoSettings

log = logging.getLogger(__name__)

COARSER_CRF = 6.0
"""Added to the constant rate factor: about half the bits, and less to encode."""
MAX_CRF = 51.0
CHEAPEST_PRESET = "ultrafast"


class Pictures(Protocol):
    """What makes the pictures: `MediaEngine`."""

    def set_quality(
        self, *, preset: str | None = None, crf: float | None = None, fps: int | None = None
    ) -> None: ...


class Talk(Protocol):
    """What leads the conversation: `Conversation`."""

    @property
    def state(self) -> str: ...

    def economise(self, *, partials: bool, brief: bool) -> None:
        """Whether to recognise unfinished speech, and whether to ask for short replies."""
        ...


class Thrift:
    """Applies a level to the pictures and the talk of one session. One event loop's.

    `tick` is to be called several times a second: an avatar that is spoken to is drawn at the
    full rate again.
    """

    def __init__(self, video: VideoSettings, pictures: Pictures, talk: Talk) -> None:
        self._video, self._pictures, self._talk = video, pictures, talk
        self._fps = video.fps
        self.level = OverloadLevel.NONE
        self.text = ""

    def set_level(self, level: int, text: str = "") -> None:
        """The gateway's word."""
        before = self.level
        self.level = OverloadLevel(min(max(level, OverloadLevel.NONE), max(OverloadLevel)))
        self.text = text
        if self.level is before:
            return
        log.info("overload level %d: %s", self.level, text or "nothing is saved")
        self._talk.economise(
            partials=self.level < OverloadLevel.NO_PARTIALS,
            brief=self.level >= OverloadLevel.SHORT_REPLIES,
        )
        cheap = self.level >= OverloadLevel.CHEAP_ENCODE
        if cheap != (before >= OverloadLevel.CHEAP_ENCODE):
            video = self._video
            self._pictures.set_quality(
                preset=CHEAPEST_PRESET if cheap else video.preset,
                crf=min(MAX_CRF, video.crf + COARSER_CRF) if cheap else video.crf,
            )
        self.tick()

    def tick(self) -> None:
        """Draw at the rate that level and state call for."""
        fps = self._video.fps
        idle = self._talk.state in ("idle", "unavailable")
        if self.level >= OverloadLevel.IDLE_HALF_RATE and idle and fps % 2 == 0:
            fps //= 2
        if fps != self._fps:
            self._fps = fps
            self._pictures.set_quality(fps=fps)
