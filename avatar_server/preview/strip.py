"""A strip of stills: what the face does at each sound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from avatar_server.preview.performance import Moment
from avatar_server.preview.voice import Speech
from renderers import I420Frame, Renderer, Viseme
from renderers.warp import i420_to_rgb

Picture = NDArray[Any]

COLUMNS, MOST = 6, 24
CELL_PX = 240
_CAPTION_PX = 44
_CLOSE = 0.8
"""Side of a close-up, as a share of the picture's height."""
_LEAD_S = 0.07
"""A sound is seen this much before it is heard."""


class Caption(NamedTuple):
    """A moment (s) worth showing and the two lines below it."""

    at: float
    sound: str
    word: str


def sounds(speech: Speech, most: int = MOST) -> list[Caption]:
    """The sounds of `speech` in order, `most` at most, evenly left out where there are more."""
    found = []
    for start, clause, _ in speech.clauses:
        for span in clause.visemes:
            if span.viseme == Viseme.SIL:
                continue
            middle = (span.start + span.end) / 2
            word = next((w.text for w in clause.words if w.start <= middle < w.end), "")
            found.append(Caption(start + middle - _LEAD_S, Viseme(span.viseme).name, word))
    keep = np.linspace(0, len(found) - 1, min(most, len(found))).round().astype(int)
    return [found[index] for index in keep]


def moments_of(seconds: float, count: int = 12) -> list[Caption]:
    """`count` moments of a face that says nothing, evenly over `seconds`."""
    return [Caption((k + 0.5) * seconds / count, "", "") for k in range(count)]


def draw_strip(
    renderer: Renderer, moments: Iterable[Moment], captions: Sequence[Caption]
) -> Picture:
    """The frames nearest to `captions`, as one RGB picture in rows of six."""
    frame = I420Frame.empty(*renderer.size)
    waiting = list(captions)
    cells: list[Picture] = []
    for at, pose in moments:
        # All are drawn: what a face looks like may depend a little on the frames before.
        renderer.draw(pose, frame)
        while waiting and at >= waiting[0].at:
            cells.append(_cell(frame, waiting.pop(0)))
    columns = min(COLUMNS, max(1, len(cells)))
    while len(cells) % columns:
        cells.append(np.zeros_like(cells[0]))
    rows = [np.hstack(cells[i : i + columns]) for i in range(0, len(cells), columns)]
    strip: Picture = np.vstack(rows)
    return strip


def close_up(frame: I420Frame, side: int) -> Picture:
    """The head, in the upper middle of every avatar's picture, as RGB of `side` x `side` px."""
    square = round(_CLOSE * frame.height)
    left = (frame.width - square) // 2
    picture = i420_to_rgb(frame)[:square, left : left + square]
    return np.asarray(cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA))


def _cell(frame: I420Frame, caption: Caption) -> Picture:
    small = close_up(frame, CELL_PX)
    below = np.full((_CAPTION_PX, CELL_PX, 3), 24, np.uint8)
    # OpenCV's letters are ASCII; a word in other letters is left to its sound.
    word = caption.word if caption.word.isascii() else ""
    _write(below, caption.sound or f"{caption.at:.1f} s", 18, 0.5, (255, 255, 255))
    _write(below, word, 36, 0.42, (170, 170, 170))
    return np.vstack([small, below])


def _write(
    picture: Picture, text: str, bottom: int, size: float, colour: tuple[int, int, int]
) -> None:
    font = cv2.FONT_HERSHEY_SIMPLEX
    (width, _), _ = cv2.getTextSize(text, font, size, 1)
    left = max(2, (picture.shape[1] - width) // 2)
    cv2.putText(picture, text, (left, bottom), font, size, colour, 1, cv2.LINE_AA)
