"""The neural renderer: a photograph or clip whose mouth a lip-sync network draws from the sound."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import I420Frame, Pose, Rect, Sound
from renderers.neural.base import Base
from renderers.neural.faces import FaceSource, LocalFaces
from renderers.neural.manifest import load_manifest
from renderers.neural.mel import WINDOW_COLUMNS, column_at, columns_of, needed
from renderers.neural.network import Device, LipSyncNetwork
from renderers.neural.paste import Paste, planes_of
from renderers.warp import Planes

HOLD_S = 0.25
"""A mouth that got no new face for so long is given up for the picture's own, which is closed:
one that stays open looks worse than one that does not move."""
WINDOW_BEFORE_S = 0.04
"""The sound of a frame begins this long before it in the data that the published networks were
trained with (Wav2Lip's `get_segmented_mels`)."""
_HEARD = -2.5
"""A column with a band above this holds sound: about -70 dBFS."""
_FADE_COLUMNS = 4
"""The drawn mouth is there in full with so many columns of sound in its window, 50 ms: the mouth
has not moved yet then, so that the change from the picture's own is not seen."""
_CHANGED = 0.02
"""Mean difference of a window from the one that was asked for, from which it is asked anew."""


class _Asked(NamedTuple):
    mel: NDArray[np.float32]
    strength: float


class _Shown(NamedTuple):
    picture: int
    number: int
    strength: float


class NeuralRenderer:
    """Draws the avatar in `folder` (`neural.yaml`). Raises `NeuralError` if it cannot be used.

    It needs the sound (`hear`) and somebody to run the network (`faces_from`, `faces_here`); until
    it has both the picture's own mouth is seen. The head moves as the clip does.
    """

    def __init__(
        self, folder: Path, *, width: int = 1280, height: int = 720, cache: Path | None = None
    ) -> None:
        cv2.setNumThreads(1)
        self.manifest = load_manifest(folder)
        self.base = Base(self.manifest, (width, height), cache)
        box = self.base.box(0)
        self._paste = Paste(box.width, box.height, self.manifest.feather)
        self._offset_s = self.manifest.lead_ms / 1e3 - WINDOW_BEFORE_S
        self._cache = cache
        self._sound: Sound | None = None
        self._faces: FaceSource | None = None
        self._fps = 30.0
        self._asked: dict[int, _Asked] = {}
        self._planes: tuple[int, Planes] | None = None
        self._shown: _Shown | None = None
        self.missed = 0
        """Frames with speech that were shown without the face drawn for them."""

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in pixels."""
        return self.base.size

    @property
    def mouth_box(self) -> Rect:
        """What speech changes of the first picture."""
        return self._paste.area(self.base.box(0))

    def hear(self, sound: Sound) -> None:
        """See `renderers.contract.SoundDriven`."""
        self._sound = sound

    def faces_from(self, source: FaceSource, fps: float) -> None:
        """Have `source` draw the faces, for frames that are shown `fps` times a second."""
        if self._faces is not None:
            self._faces.close()
        self._faces, self._fps = source, fps

    def faces_here(self, *, device: Device = "auto", threads: int = 1, fps: float = 30.0) -> None:
        """Run the network in this process, on the thread that draws. Raises `NeuralError`."""
        network = LipSyncNetwork(
            self.manifest.network,
            device=device,
            threads=threads,
            channels=self.manifest.channels,
            cache=self._cache,
        )
        self.faces_from(LocalFaces(network, self.base), fps)

    def draw(self, pose: Pose, frame: I420Frame) -> Rect:
        """Fill `frame` with `pose`; see `renderers.contract.Renderer.draw`."""
        if (frame.width, frame.height) != self.size:
            raise ValueError(f"the frame is {frame.width}x{frame.height}, the renderer {self.size}")
        number = round(pose.time_s * self._fps)
        index = self.base.index(pose.time_s)
        box = self.base.box(index)
        np.copyto(frame.data, self.base.frame(index).data)
        shown = _Shown(index, 0, 0.0)
        if (face := self._face(number)) is not None:
            drawn_for, planes, strength = face
            self._paste.lay(planes, box, strength, frame)
            shown = _Shown(index, drawn_for, strength)
        before, self._shown = self._shown, shown
        if before is None or before.picture != index:
            return Rect(0, 0, *self.size)
        return Rect(0, 0, 0, 0) if shown == before else self._paste.area(box)

    def close(self) -> None:
        """Give back the faces and their source."""
        if self._faces is not None:
            self._faces.close()
            self._faces = None
        self._asked.clear()
        self._planes = None

    # --- the mouth --------------------------------------------------------------------------

    def _face(self, number: int) -> tuple[int, Planes, float] | None:
        """The face to lay over frame `number`: what it was drawn for, its planes, its strength."""
        if self._faces is None or self._sound is None:
            return None
        self._ask(self._faces, self._sound, number)
        asked = self._asked.get(number)
        if asked is None or asked.strength <= 0:
            return None
        drawn = self._faces.take(number)
        if drawn is None or drawn.number != number:
            self.missed += 1
        if drawn is None or abs(number - drawn.number) > HOLD_S * self._fps:
            return None
        if self._planes is None or self._planes[0] != drawn.number:
            self._planes = (drawn.number, planes_of(drawn.face))
        return drawn.number, self._planes[1], asked.strength

    def _ask(self, faces: FaceSource, sound: Sound, number: int) -> None:
        """Ask for the frames ahead whose sound is new, or has changed."""
        numbers = range(number + min(1, faces.ahead), number + faces.ahead + 1)
        for old in [n for n in self._asked if not number <= n <= numbers[-1]]:
            del self._asked[old]
        first = self._column(numbers[0])
        count = self._column(numbers[-1]) + WINDOW_COLUMNS - first
        heard = sound(*needed(first, count))
        if not heard.any():
            for each in numbers:
                self._asked.pop(each, None)
            return
        columns = columns_of(heard)
        for each in numbers:
            start = self._column(each) - first
            mel = columns[:, start : start + WINDOW_COLUMNS]
            strength = min(1.0, float((mel.max(axis=0) > _HEARD).sum()) / _FADE_COLUMNS)
            before = self._asked.get(each)
            if before is None or float(np.abs(mel - before.mel).mean()) > _CHANGED:
                self._asked[each] = _Asked(mel.copy(), strength)
                if strength > 0:
                    index = self.base.index(each / self._fps)
                    left_s = (each - number) / self._fps
                    faces.ask(each, index, self._asked[each].mel, left_s)

    def _column(self, number: int) -> int:
        return column_at(number / self._fps + self._offset_s)
