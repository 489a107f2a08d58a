"""Measures what one session's pictures and sound cost here. A process of its own, for seconds.

`python -m avatar_server.capacity.frames` with a `Bootstrap` line on standard input; prints one
JSON object (`FrameCosts`). Times are CPU times of the measuring thread, so that other work on the
machine inflates them little.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.encoder import H264Encoder, OpusEncoder
from avatar_server.avatar.encodes import is_repeat
from avatar_server.avatar.face import load_renderer
from avatar_server.avatar.pacing import AUDIO_BLOCK, AUDIO_RATE_HZ
from avatar_server.avatars import AvatarError, AvatarSpec, find_avatars
from avatar_server.config import AudioSettings, Settings, VideoSettings
from avatar_server.inference.resources import rss_bytes
from avatar_server.processes import read_bootstrap, when_parent_ends
from avatar_server.protocol.costs import FrameCosts
from renderers import Attitude, I420Frame, Pose, Renderer, VisemeSpan
from renderers.motion import Animator
from renderers.neural import NeuralRenderer, PictureFaces
from renderers.sound import recorded

_MAX_AVATARS = 3
"""The costliest of so many counts; more would make the first start wait."""
_WARM_FRAMES = 15
_SPEAKING_FRAMES = 75
_IDLE_FRAMES = 60
_AUDIO_BLOCKS = 50
_SYLLABLE_S = 0.12
_SYLLABLES = 40
_MOUTHS = (1, 10, 4, 11, 7, 13, 9, 12, 2, 14, 0)
"""Visemes in turn: open and closed mouths alternate as in speech."""

Clock = Callable[[], float]


def measure_frames(
    settings: Settings, avatars: Iterable[AvatarSpec], clock: Clock = time.thread_time
) -> FrameCosts:
    """The costs of the costliest of `avatars`; raises `AvatarError` where none can be drawn."""
    audio_ms_per_s = measure_audio(settings.media.audio, clock)
    worst: FrameCosts | None = None
    problem = "there is no avatar"
    for spec in sample(avatars):
        video = settings.media.video
        try:
            renderer = load_renderer(spec, video.width, video.height)
        except (AvatarError, ValueError, OSError) as error:
            problem = str(error)
            continue
        try:
            costs = measure_avatar(spec.name, renderer, video, audio_ms_per_s, clock)
        finally:
            renderer.close()
        if worst is None or _frame_ms(costs) > _frame_ms(worst):
            worst = costs
    if worst is None:
        raise AvatarError(f"no avatar can be measured: {problem}")
    return worst


def sample(avatars: Iterable[AvatarSpec]) -> list[AvatarSpec]:
    """Those that are measured: one for each renderer first."""
    all_of_them = list(avatars)
    firsts = {spec.renderer: spec for spec in reversed(all_of_them)}.values()
    chosen = [spec for spec in all_of_them if spec in firsts]
    others = [spec for spec in all_of_them if spec not in firsts]
    return [*chosen, *others][:_MAX_AVATARS]


def measure_avatar(
    name: str,
    renderer: Renderer,
    video: VideoSettings,
    audio_ms_per_s: float = 0.0,
    clock: Clock = time.thread_time,
) -> FrameCosts:
    """One avatar, first resting, then in the middle of a reply."""
    animator, pose = Animator(seed=1), Pose()
    frame = I420Frame.empty(video.width, video.height)
    encoder = H264Encoder(video)
    drawing = encoding = idle = 0.0
    unchanged = 0
    speaks_from = _WARM_FRAMES + _IDLE_FRAMES
    if isinstance(renderer, NeuralRenderer):
        # What the network takes is measured where it runs.
        renderer.faces_from(PictureFaces(renderer.base), video.fps)
        silent = round(speaks_from / video.fps * AUDIO_RATE_HZ)
        voice = np.concatenate([np.zeros(silent, np.int16), _voice(_SYLLABLES * _SYLLABLE_S)])
        renderer.hear(recorded(voice))
    animator.set_attitude(Attitude.IDLE, 0.0)
    for index in range(speaks_from + _WARM_FRAMES + _SPEAKING_FRAMES):
        at = index / video.fps
        if index == speaks_from:
            animator.set_attitude(Attitude.SPEAKING, at)
            _speak(animator, at)
        began = clock()
        animator.pose(at, pose)
        unchanged = unchanged + 1 if renderer.draw(pose, frame).empty else 0
        drawn = clock()
        timestamp = index * 90_000 // video.fps
        still = is_repeat(unchanged) and encoder.repeat(timestamp) is not None
        if not still:
            encoder.encode(frame, timestamp, index == 0)
        encoded = clock()
        if _WARM_FRAMES <= index < speaks_from:
            idle += encoded - began
        elif index >= speaks_from + _WARM_FRAMES:
            drawing += drawn - began
            encoding += encoded - drawn
    encoder.close()
    return FrameCosts(
        avatar=name,
        render_ms=round(1e3 * drawing / _SPEAKING_FRAMES, 3),
        encode_ms=round(1e3 * encoding / _SPEAKING_FRAMES, 3),
        idle_frame_ms=round(1e3 * idle / _IDLE_FRAMES, 3),
        audio_ms_per_s=audio_ms_per_s,
        rss_bytes=rss_bytes(),
    )


def measure_audio(settings: AudioSettings, clock: Clock = time.thread_time) -> float:
    """CPU milliseconds for a second of Opus."""
    encoder = OpusEncoder(settings)
    voice = _voice(AUDIO_BLOCK * _AUDIO_BLOCKS / AUDIO_RATE_HZ)
    began = clock()
    for number in range(_AUDIO_BLOCKS):
        encoder.encode(voice[number * AUDIO_BLOCK : (number + 1) * AUDIO_BLOCK], number)
    seconds = AUDIO_BLOCK * _AUDIO_BLOCKS / AUDIO_RATE_HZ
    return round(1e3 * (clock() - began) / seconds, 3)


def _voice(seconds: float) -> NDArray[np.int16]:
    """Something like syllables, 48 kHz."""
    at = np.arange(round(seconds * AUDIO_RATE_HZ)) / AUDIO_RATE_HZ
    tone = sum(np.sin(2 * np.pi * 130 * k * at) / k for k in range(1, 20))
    return np.asarray(4_000 * tone * np.abs(np.sin(np.pi * at / _SYLLABLE_S)), np.int16)


def _speak(animator: Animator, at: float) -> None:
    visemes = [
        VisemeSpan(_MOUTHS[i % len(_MOUTHS)], i * _SYLLABLE_S, (i + 1) * _SYLLABLE_S)
        for i in range(_SYLLABLES)
    ]
    beat = np.arange(round(_SYLLABLES * _SYLLABLE_S * 100)) / 100 / _SYLLABLE_S
    energy = (0.12 * np.abs(np.sin(np.pi * beat))).astype(np.float32)
    animator.add_speech(at, visemes, energy)


def _frame_ms(costs: FrameCosts) -> float:
    return costs.render_ms + costs.encode_ms


def main() -> int:
    """Entry of the process; the exit code."""
    bootstrap = read_bootstrap()
    when_parent_ends(lambda: os._exit(1))
    settings = bootstrap.load_settings()
    try:
        avatars = find_avatars([Path(folder) for folder in settings.avatar_dirs])
        costs = measure_frames(settings, avatars.values())
    except AvatarError as error:
        print(error, file=sys.stderr)
        return 1
    print(msgspec.json.encode(costs).decode(), flush=True)
    return 0


if __name__ == "__main__":
    # Not by the interpreter's end: a thread still waits for the parent.
    code = main()
    sys.stdout.flush()
    os._exit(code)
