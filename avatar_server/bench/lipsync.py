"""`avatar-server bench lipsync`: whether the mouth does what is heard, and when.

Sentences are spoken by the product's own voices, whose models say when each phoneme sounds. The
animator of a session moves a face to them at 30 frames a second, and its poses are held against the
phonemes; for some of them the picture is, too. Each sound counts as shown where one frame at least
shows it, from `EARLIEST_S` before the sound begins to the sound's end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from avatar_server.avatar.face import load_renderer
from avatar_server.avatars import AvatarSpec
from avatar_server.bench.lipsync_picture import Picture, SeenMouth
from avatar_server.bench.utterances import LANGUAGES, Spoken, Utterance
from avatar_server.config import VideoSettings
from renderers import Attitude, Pose, Renderer, Viseme
from renderers.motion import Animator
from renderers.motion.articulation import aperture, rounding

FPS = 30
EARLIEST_S = 0.10
"""A viewer takes lips that are this early as in time (ITU-R BT.1359: sound may be 125 ms late)."""

BILABIAL = frozenset("pbmɓ")
LABIODENTAL = frozenset("fvɱʋ")
ROUNDED = frozenset("uʊwyoɔɒøœOQWYβɸʍ")
"""Rounded sounds; letters are Kokoro's diphthongs. Japanese ɯ is compressed, and not among them."""

CLOSED_WEIGHT, CLOSED_APERTURE = 0.95, 0.02
ON_TEETH_WEIGHT, ON_TEETH_APERTURE = 0.85, 0.12
ROUNDED_ENOUGH = 0.45
_MARGIN_S = 0.6
_LAGS_MS = range(-150, 151, 5)
"""Further off is another syllable: in Japanese one follows the other in some 130 ms."""
_GRID_S = 0.005
_SMOOTHING_S = 0.06
"""Loudness is averaged over about a sound's length: lips do not follow the pulses of the voice."""
_DRAWN_EACH = 40
"""Sounds of a kind that are looked at in the picture."""


@dataclass(slots=True)
class _Counts:
    """Sounds of each kind, as (shown or not); what was seen in the picture; timing."""

    closed: list[bool] = field(default_factory=list)
    on_teeth: list[bool] = field(default_factory=list)
    rounded: list[bool] = field(default_factory=list)
    drawn_closed: list[bool] = field(default_factory=list)
    drawn_on_teeth: list[bool] = field(default_factory=list)
    drawn_rounded: list[bool] = field(default_factory=list)
    offsets_ms: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)


def bench_avatar(
    spec: AvatarSpec,
    video: VideoSettings,
    languages: Sequence[str],
    *,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Speak the sentences of `languages` (keys of `LANGUAGES`) and measure `spec`'s mouth.

    Raises `AvatarError`, `TtsError` and `ModelError`.
    """
    renderer = load_renderer(spec, video.width, video.height)
    try:
        spoken = {language: LANGUAGES[language](progress) for language in dict.fromkeys(languages)}
        return {"avatar": spec.name, **bench_lipsync(spoken, renderer, seed=spec.seed)}
    finally:
        renderer.close()


def bench_lipsync(
    spoken: Mapping[str, Spoken], renderer: Renderer, *, seed: int = 1
) -> dict[str, Any]:
    """The figures over the sentences of all languages (`spoken`, by language), and of each."""
    mouth = SeenMouth(renderer)
    by_language = {}
    counts = []
    for language, each in spoken.items():
        counted = _count(each.utterances, mouth, seed)
        counts.append(counted)
        by_language[language] = {
            **_figures(counted),
            "sentences": len(each.utterances),
            "speech_s": round(sum(u.seconds for u in each.utterances), 1),
            "voice": each.voice,
            "timings": each.source,
        }
    return {
        **_figures(_merged(counts)),
        "offset_sign": "negative: the mouth moves before the sound",
        "fps": FPS,
        "languages": by_language,
    }


def print_table(figures: Mapping[str, Any]) -> None:
    """The figures for people."""
    table = Table("", *figures["languages"], "all", title="Lip sync")
    columns = [*figures["languages"].values(), figures]

    def row(name: str, cell: Callable[[Mapping[str, Any]], str]) -> None:
        table.add_row(name, *(cell(column) for column in columns))

    row("p, b, m: lips closed", lambda c: _percent(c["bilabial_closed"], c["n_bilabial"]))
    row("  in the picture", lambda c: _percent(c["drawn"]["bilabial_closed"], None))
    row("f, v: lip on teeth", lambda c: _percent(c["labiodental_shown"], c["n_labiodental"]))
    row("  in the picture", lambda c: _percent(c["drawn"]["labiodental_shown"], None))
    row("rounded sounds: rounded", lambda c: _percent(c["rounded"], c["n_rounded"]))
    row("  in the picture", lambda c: _percent(c["drawn"]["rounded"], None))
    row("mouth against loudness, ms", lambda c: _pair(c["offset_ms"]))
    row("largest step of a frame", lambda c: f"{c['max_step']:.2f}")
    Console(highlight=False).print(table)


def _percent(share: float | None, count: int | None) -> str:
    if share is None:
        return "none"
    return f"{100 * share:.1f}%" + (f" of {count}" if count is not None else "")


def _pair(quantiles: Mapping[str, float]) -> str:
    return f"{quantiles['p50']:.0f} / {quantiles['p95']:.0f}"


def _count(spoken: Sequence[Utterance], mouth: SeenMouth, seed: int) -> _Counts:
    counts = _Counts()
    for number, utterance in enumerate(spoken):
        # Sentences begin anywhere between two frames.
        start = 1.0 + (number * 0.618 % 1.0) / FPS
        times, poses = _perform(utterance, start, seed + number)
        openness = np.array([aperture(pose) for pose in poses])
        counts.steps.append(float(np.abs(np.diff(openness)).max()))
        counts.offsets_ms.append(_offset_ms(times - start, openness, utterance))
        for phone in utterance.phones:
            begin, end = start + phone.start - EARLIEST_S, start + phone.end
            shown = [p for t, p in zip(times, poses, strict=True) if begin <= t <= end]
            symbol = phone.phone.symbol
            if symbol in BILABIAL:
                counts.closed.append(any(_closed(pose) for pose in shown))
                if len(counts.drawn_closed) < _DRAWN_EACH:
                    counts.drawn_closed.append(mouth.shows(Picture.CLOSED, _best(shown, Viseme.PP)))
            elif symbol in LABIODENTAL:
                counts.on_teeth.append(any(_on_teeth(pose) for pose in shown))
                if len(counts.drawn_on_teeth) < _DRAWN_EACH:
                    pose = _best(shown, Viseme.FF)
                    counts.drawn_on_teeth.append(mouth.shows(Picture.ON_TEETH, pose))
            elif symbol in ROUNDED:
                counts.rounded.append(any(rounding(p) >= ROUNDED_ENOUGH for p in shown))
                if len(counts.drawn_rounded) < _DRAWN_EACH:
                    counts.drawn_rounded.append(
                        mouth.shows(Picture.ROUNDED, max(shown, key=rounding))
                    )
    return counts


def _perform(
    utterance: Utterance, start: float, seed: int
) -> tuple[NDArray[np.float64], list[Pose]]:
    animator = Animator(seed=seed)
    animator.set_attitude(Attitude.SPEAKING, 0.0)
    animator.add_speech(start, utterance.visemes, utterance.energy)
    frames = round((start + utterance.seconds + _MARGIN_S) * FPS)
    times = np.arange(frames) / FPS
    return times, [animator.pose(float(t)) for t in times]


def _closed(pose: Pose) -> bool:
    return (
        float(pose.visemes[Viseme.PP]) >= CLOSED_WEIGHT and aperture(pose) <= CLOSED_APERTURE
    ) or aperture(pose) <= 0.005


def _on_teeth(pose: Pose) -> bool:
    return float(pose.visemes[Viseme.FF]) >= ON_TEETH_WEIGHT and aperture(pose) <= ON_TEETH_APERTURE


def _best(poses: Sequence[Pose], viseme: Viseme) -> Pose:
    return max(poses, key=lambda pose: float(pose.visemes[viseme]))


def _offset_ms(
    times: NDArray[np.float64], openness: NDArray[np.float64], utterance: Utterance
) -> float:
    """By how much the mouth is late: where its opening and closing goes best with the loudness's
    rise and fall (cross-correlation of their rates of change)."""
    loud = _loudness(utterance)
    grid = np.arange(-0.3, utterance.seconds + 0.3, _GRID_S)
    level = np.interp(grid, (np.arange(loud.size) + 0.5) / 100, loud, left=0.0, right=0.0)
    scores = []
    for lag in _LAGS_MS:
        shifted = np.interp(grid + lag / 1_000, times, openness)
        scores.append(float(np.corrcoef(np.gradient(level), np.gradient(shifted))[0, 1]))
    return float(_LAGS_MS[int(np.argmax(scores))])


def _loudness(utterance: Utterance) -> NDArray[np.float64]:
    width = max(1, round(_SMOOTHING_S * 100))
    window = np.hanning(width + 2)[1:-1]
    return np.convolve(utterance.vowel_energy, window / window.sum(), mode="same")


def _merged(counts: Sequence[_Counts]) -> _Counts:
    names = _Counts.__slots__
    return _Counts(
        **{
            name: list(itertools.chain.from_iterable(getattr(each, name) for each in counts))
            for name in names
        }
    )


def _figures(counts: _Counts) -> dict[str, Any]:
    return {
        "bilabial_closed": _share(counts.closed),
        "labiodental_shown": _share(counts.on_teeth),
        "rounded": _share(counts.rounded),
        "offset_ms": _quantiles(counts.offsets_ms),
        "max_step": round(max(counts.steps, default=0.0), 3),
        "n_bilabial": len(counts.closed),
        "n_labiodental": len(counts.on_teeth),
        "n_rounded": len(counts.rounded),
        "drawn": {
            "bilabial_closed": _share(counts.drawn_closed),
            "labiodental_shown": _share(counts.drawn_on_teeth),
            "rounded": _share(counts.drawn_rounded),
            "n": sum(map(len, (counts.drawn_closed, counts.drawn_on_teeth, counts.drawn_rounded))),
        },
    }


def _share(shown: Sequence[bool]) -> float | None:
    """None where there is no such sound: Japanese has neither f nor v."""
    return round(sum(shown) / len(shown), 4) if shown else None


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    return {f"p{at}": round(float(np.percentile(values, at)), 1) for at in (50, 95)}
