"""The pictures under a neural face: a photograph, or a clip that goes round."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from renderers.contract import I420Frame, Rect
from renderers.neural.manifest import FaceBox, Manifest, NeuralError
from renderers.warp import i420_to_rgb, rgb_to_i420

Pixels = NDArray[np.uint8]

MAX_FRAMES = 600
"""Of a clip: 830 MB of the cache at 720p, mapped into memory once for all sessions."""
LEAST_FACE_PX = 48
_EDITION = 1
"""To be raised when what is kept changes its form."""
_PREFIX = "clip-"


class Base:
    """The frames of an avatar, and where the face is in each of them."""

    def __init__(
        self, manifest: Manifest, size: tuple[int, int], cache: Path | None = None
    ) -> None:
        """`size` (width, height) is the video's: pictures are scaled to cover it, and what is too
        much is cut off evenly. A clip is decoded once and kept in `cache`. Raises `NeuralError`.
        """
        self.size = size
        self._loop = manifest.loop
        if manifest.picture is not None:
            self.source, self.fps = manifest.picture, 1.0
            rgb = _read(manifest.picture)
            self._shape = (rgb.shape[1], rgb.shape[0])
            self._planes = _i420(rgb, size)[None]
        else:
            assert manifest.clip is not None
            self.source = manifest.clip
            self._planes, self._shape, self.fps = _clip(
                manifest.clip, manifest.clip_fps, size, cache
            )
        given = manifest.face if isinstance(manifest.face, list) else [manifest.face]
        if len(given) not in (1, len(self._planes)):
            raise NeuralError(
                f"{self.source}: there are {len(given)} face boxes for {len(self._planes)} pictures"
            )
        boxes = _alike([_placed(self.source, box, self._shape, size) for box in given], size)
        self._boxes = boxes if len(boxes) > 1 else boxes * len(self._planes)

    def __len__(self) -> int:
        return len(self._planes)

    def index(self, time_s: float) -> int:
        """Which of the frames is seen at this media time."""
        count = len(self._planes)
        at = math.floor(time_s * self.fps + 1e-6)
        if self._loop == "restart" or count < 3:
            return at % count
        at %= 2 * count - 2
        return at if at < count else 2 * count - 2 - at

    def frame(self, index: int) -> I420Frame:
        """One of them; not to be written to."""
        return I420Frame(self._planes[index], *self.size)

    def box(self, index: int) -> Rect:
        """The face in it: even numbers."""
        return self._boxes[index]

    def faces(self, size: int) -> list[Pixels]:
        """The faces of all of them, scaled to RGB (size, size, 3)."""
        return [self._face(index, size) for index in range(len(self._planes))]

    def _face(self, index: int, size: int) -> Pixels:
        box = self._boxes[index]
        whole = self.frame(index)
        part = I420Frame.empty(_up(box.width), _up(box.height))
        for plane, target, scale in (
            (whole.y, part.y, 1),
            (whole.u, part.u, 2),
            (whole.v, part.v, 2),
        ):
            x, y, wide, high = (side // scale for side in box)
            target[:] = 128
            target[:high, :wide] = plane[y : y + high, x : x + wide]
        rgb = i420_to_rgb(part)[: box.height, : box.width]
        return np.asarray(cv2.resize(rgb, (size, size), interpolation=cv2.INTER_AREA), np.uint8)


def _up(side: int) -> int:
    return -(-side // 4) * 4


def _placed(source: Path, box: FaceBox, shape: tuple[int, int], size: tuple[int, int]) -> Rect:
    """A box of the file's picture, where it is in the video."""
    if box.x + box.width > shape[0] + 0.5 or box.y + box.height > shape[1] + 0.5:
        raise NeuralError(
            f"{source}: the face box ends at {box.x + box.width:g}, {box.y + box.height:g}, but "
            f"the picture is {shape[0]}x{shape[1]}"
        )
    scale, left, top = _cover(shape, size)
    x, y = max(0.0, box.x * scale - left), max(0.0, box.y * scale - top)
    right = min(float(size[0]), (box.x + box.width) * scale - left)
    bottom = min(float(size[1]), (box.y + box.height) * scale - top)
    even = Rect(*(2 * round(v / 2) for v in (x, y, right - x, bottom - y)))
    if min(even.width, even.height) < LEAST_FACE_PX:
        raise NeuralError(
            f"{source}: the face is {max(0, even.width)}x{max(0, even.height)} pixels in a video "
            f"of {size[0]}x{size[1]}; at least {LEAST_FACE_PX} are needed"
        )
    return even


def _alike(boxes: list[Rect], size: tuple[int, int]) -> list[Rect]:
    """Boxes of one size about the same centres: one that grows and shrinks makes the face swim."""
    width, height = (2 * round(float(np.median([b[i] for b in boxes])) / 2) for i in (2, 3))
    alike = []
    for box in boxes:
        x = 2 * round((box.x + (box.width - width) / 2) / 2)
        y = 2 * round((box.y + (box.height - height) / 2) / 2)
        x, y = max(0, min(x, size[0] - width)), max(0, min(y, size[1] - height))
        alike.append(Rect(x, y, width, height))
    return alike


def _cover(shape: tuple[int, int], size: tuple[int, int]) -> tuple[float, float, float]:
    """Scale, and what is cut off on the left and at the top, for a picture to cover the video."""
    scale = max(size[0] / shape[0], size[1] / shape[1])
    return scale, (shape[0] * scale - size[0]) / 2, (shape[1] * scale - size[1]) / 2


def _i420(rgb: Pixels, size: tuple[int, int]) -> Pixels:
    height, width = rgb.shape[:2]
    if (width, height) != size:
        scale, left, top = _cover((width, height), size)
        move = np.array([[scale, 0, -left], [0, scale, -top]], np.float64)
        if scale < 1:
            small = (max(1, round(width * scale)), max(1, round(height * scale)))
            rgb = np.asarray(cv2.resize(rgb, small, interpolation=cv2.INTER_AREA), np.uint8)
            move[0, 0] = move[1, 1] = 1.0
        rgb = np.asarray(
            cv2.warpAffine(rgb, move, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        )
    frame = I420Frame.empty(*size)
    planes = rgb_to_i420(rgb.astype(np.float32))
    frame.y[:], frame.u[:], frame.v[:] = planes
    return frame.data


def _read(path: Path) -> Pixels:
    data = np.fromfile(path, np.uint8) if path.is_file() else np.zeros(0, np.uint8)
    bgr = cv2.imdecode(data, cv2.IMREAD_COLOR) if data.size else None
    if bgr is None:
        raise NeuralError(f"{path}: not a picture that can be read (JPEG, PNG or WebP)")
    return np.ascontiguousarray(bgr[..., ::-1])


# --- clips ------------------------------------------------------------------------------------


def _clip(
    path: Path, fps: float, size: tuple[int, int], cache: Path | None
) -> tuple[Pixels, tuple[int, int], float]:
    """All frames as I420 (count, height * 3 / 2, width), the pictures' own size, and the rate."""
    kept = None if cache is None else cache / f"{_PREFIX}{_fingerprint(path, size)}.npy"
    if kept is not None:
        with contextlib.suppress(OSError, ValueError):
            return _kept(kept, size)
    frames: list[Pixels] = []
    shape = (0, 0)
    pictures, rate = _film(path) if path.is_file() else (_folder(path), fps)
    for rgb in pictures:
        now = (rgb.shape[1], rgb.shape[0])
        if frames and now != shape:
            raise NeuralError(f"{path}: picture {len(frames) + 1} is {now}, those before {shape}")
        shape = now
        frames.append(_i420(rgb, size))
        if len(frames) > MAX_FRAMES:
            raise NeuralError(f"{path}: a clip has at most {MAX_FRAMES} pictures; cut it shorter")
    if not frames:
        raise NeuralError(f"{path}: there are no pictures in it")
    planes = np.stack(frames)
    if kept is not None:
        with contextlib.suppress(OSError, ValueError):
            _keep(kept, planes, shape, rate)
            return _kept(kept, size)
    return planes, shape, rate


def _film(path: Path) -> tuple[Iterator[Pixels], float]:
    try:
        container = av.open(str(path))
        stream: Any = container.streams.video[0]
        rate = float(stream.average_rate or 25)
    except (av.error.FFmpegError, OSError, IndexError) as error:
        raise NeuralError(f"{path}: not a film that can be read: {error}") from error

    def pictures() -> Iterator[Pixels]:
        try:
            with container:
                for picture in container.decode(stream):
                    yield picture.to_ndarray(format="rgb24")
        except av.error.FFmpegError as error:
            raise NeuralError(f"{path}: the film is damaged: {error}") from error

    return pictures(), rate


def _folder(path: Path) -> Iterator[Pixels]:
    suffixes = {".png", ".jpg", ".jpeg", ".webp"}
    for file in sorted(f for f in path.iterdir() if f.suffix.lower() in suffixes):
        yield _read(file)


def _fingerprint(path: Path, size: tuple[int, int]) -> str:
    digest = hashlib.sha256(f"{_EDITION}:{size}".encode())
    files = [path] if path.is_file() else sorted(f for f in path.iterdir() if f.is_file())
    for file in files:
        status = file.stat()
        digest.update(f"{file}:{status.st_size}:{status.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]


def _keep(path: Path, planes: Pixels, shape: tuple[int, int], rate: float) -> None:
    """All or nothing: another process may be loading it, or this one may be killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = np.zeros((1, *planes.shape[1:]), np.uint8)
    head.reshape(-1)[:24] = np.array([*shape, rate], "<f8").view(np.uint8)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, np.concatenate([head, planes]), allow_pickle=False)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _kept(path: Path, size: tuple[int, int]) -> tuple[Pixels, tuple[int, int], float]:
    table = np.load(path, mmap_mode="r", allow_pickle=False)
    if table.ndim != 3 or table.shape[1:] != (size[1] * 3 // 2, size[0]):
        raise ValueError("not the frames of a clip")
    width, height, rate = np.array(table[0].reshape(-1)[:24]).view("<f8").tolist()
    os.utime(path)
    return np.asarray(table)[1:], (int(width), int(height)), float(rate)
