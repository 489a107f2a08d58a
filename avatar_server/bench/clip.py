"""What the media benchmark shows: the shipped avatar speaking and swaying, or a stand-in."""

from __future__ import annotations

import logging

import av
import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.face import load_renderer
from avatar_server.avatars import AvatarError, find_avatars
from avatar_server.config import VideoSettings
from renderers import Attitude, I420Frame, Pose, Rect, Renderer, VisemeSpan
from renderers.motion import Animator

logger = logging.getLogger(__name__)

_SYLLABLE_S = 0.12
_CLAUSE_S = 3.6
_REPLY_S = 2 * _CLAUSE_S
_LISTEN_S = 7.2
"""A talk: a reply of two clauses, then as long a question. In `bench turn`'s conversations the
avatar speaks for about half of the time."""
TALK_S = _REPLY_S + _LISTEN_S
"""Seconds of one reply and one question."""
_CYCLE = (1, 10, 4, 11, 7, 13, 9, 12, 2, 14, 0)
"""Visemes in turn: open and closed mouths alternate as in speech."""


class Clip:
    """A `MediaSource`: the first shipped avatar.

    `talk`: it speaks and listens in turn, half of the time each, as in a conversation. Otherwise
    it is in the middle of an endless reply, which is harsher than any use.
    """

    def __init__(self, settings: VideoSettings, talk: bool = False) -> None:
        self._talk = talk
        self.name, self._renderer = _first_avatar(settings)
        self._animator = Animator(seed=1)
        self._animator.set_attitude(Attitude.SPEAKING, 0.0)
        self._visemes = [
            VisemeSpan(_CYCLE[i % len(_CYCLE)], i * _SYLLABLE_S, (i + 1) * _SYLLABLE_S)
            for i in range(round(_CLAUSE_S / _SYLLABLE_S))
        ]
        beat = np.arange(round(_CLAUSE_S * 100)) / 100 / _SYLLABLE_S
        self._energy = (0.12 * np.abs(np.sin(np.pi * beat))).astype(np.float32)
        self._clauses = 0
        self._pose = Pose()
        self._voice = _voice()
        self._at = 0

    def pull_audio(self, samples: int) -> NDArray[np.int16]:
        if self._talk and not self._speaks(self._at / 48_000):
            self._at += samples
            return np.zeros(samples, np.int16)
        at = np.arange(self._at, self._at + samples) % len(self._voice)
        self._at += samples
        return self._voice[at]

    def draw(self, media_time: float, frame: I420Frame) -> bool:
        if self._talk:
            attitude = Attitude.SPEAKING if self._speaks(media_time) else Attitude.LISTENING
            self._animator.set_attitude(attitude, media_time)
        while self._clauses * _CLAUSE_S <= media_time + _CLAUSE_S:
            start = self._clauses * _CLAUSE_S
            heard = not self._talk or self._speaks(start)
            if heard and start > media_time - _CLAUSE_S:
                self._animator.add_speech(start, self._visemes, self._energy)
            self._clauses += 1
        self._animator.pose(media_time, self._pose)
        return not self._renderer.draw(self._pose, frame).empty

    def close(self) -> None:
        self._renderer.close()

    @staticmethod
    def _speaks(media_time: float) -> bool:
        return media_time % TALK_S < _REPLY_S


def rgb_frames(settings: VideoSettings, count: int) -> list[NDArray[np.uint8]]:
    """The clip's first frames as RGB arrays (height, width, 3), where the usual path starts."""
    clip = Clip(settings)
    frame = I420Frame.empty(settings.width, settings.height)
    frames = []
    for index in range(count):
        clip.draw(index / settings.fps, frame)
        picture = av.VideoFrame.from_ndarray(frame.data, format="yuv420p")
        frames.append(np.asarray(picture.to_ndarray(format="rgb24"), np.uint8))
    clip.close()
    return frames


def _first_avatar(settings: VideoSettings) -> tuple[str, Renderer]:
    try:
        for spec in find_avatars().values():
            return spec.name, load_renderer(spec, settings.width, settings.height)
    except (AvatarError, ImportError, ValueError) as error:
        logger.warning("no avatar could be loaded (%s): a stand-in is drawn", error)
    return "stand-in", StandIn(settings.width, settings.height)


class StandIn:
    """A renderer for where no avatar can be loaded: a soft shape that sways over a background."""

    def __init__(self, width: int, height: int) -> None:
        self.size = (width, height)
        y, x = np.mgrid[0:height, 0:width]
        self._plate = (96 + 48 * np.sin(x / 97) * np.cos(y / 61)).astype(np.uint8)
        size = height * 3 // 4 // 4 * 4
        v, u = np.mgrid[0:size, 0:size] / size - 0.5
        texture = 14 * np.sin(u * 60) * np.sin(v * 50)
        self._head = (170 - 160 * (u * u + v * v) + texture).astype(np.uint8)

    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        frame.y[:] = self._plate
        frame.u[:] = 118
        frame.v[:] = 138
        size = len(self._head)
        left = (frame.width - size) // 2 + int(pose.yaw * 2)
        top = (frame.height - size) // 2 + int(pose.pitch * 2)
        frame.y[top : top + size, left : left + size] = self._head
        mouth = int(4 + 40 * pose.jaw)
        frame.y[top + size * 3 // 4 :, left + size // 3 : left + size * 2 // 3][:mouth] = 40
        return Rect(0, 0, frame.width, frame.height)

    def close(self) -> None:
        pass


def _voice() -> NDArray[np.int16]:
    """Two seconds of a voice-like sound: harmonics of a moving pitch in syllables."""
    t = np.arange(96_000) / 48_000
    pitch = np.cumsum(120 + 20 * np.sin(2 * np.pi * 0.5 * t)) / 48_000
    tone = sum(np.sin(2 * np.pi * k * pitch) / k for k in range(1, 25))
    level = np.abs(np.sin(np.pi * t / _SYLLABLE_S)) * 5_000
    return np.asarray(tone * level, np.int16)
