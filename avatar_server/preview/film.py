"""An avatar as an MP4 film."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ
from avatar_server.preview.performance import Moment
from renderers import I420Frame, Renderer

_AUDIO_FRAME = 1_024
_AUDIO_BITS_PER_S = 128_000


def write_film(
    path: Path,
    renderer: Renderer,
    moments: Iterable[Moment],
    pcm: NDArray[np.int16] | None,
    *,
    fps: int,
) -> None:
    """Draw `moments` (one a frame) into an MP4: H.264, and `pcm` (mono, 48 kHz) as AAC.

    Written beside `path` first, so that there is never half a film. Raises `OSError`.
    """
    partial = path.with_name(f".{path.name}.part")
    frame = I420Frame.empty(*renderer.size)
    try:
        options = {"movflags": "faststart"}
        with av.open(str(partial), "w", format="mp4", options=options) as container:
            video: Any = container.add_stream("libx264", rate=fps)
            video.width, video.height = renderer.size
            video.pix_fmt = "yuv420p"
            video.options = {"crf": "20", "preset": "medium", "threads": "1"}
            video.codec_context.color_range = 1
            video.codec_context.colorspace = 1
            audio: Any = None
            if pcm is not None:
                audio = container.add_stream("aac", rate=SAMPLE_RATE_HZ, layout="mono")
                audio.bit_rate = _AUDIO_BITS_PER_S
            written = 0
            for number, moment in enumerate(moments):
                renderer.draw(moment.pose, frame)
                picture = av.VideoFrame.from_numpy_buffer(frame.data.copy(), "yuv420p")
                picture.pts, picture.time_base = number, Fraction(1, fps)
                container.mux(video.encode(picture))
                if pcm is not None:
                    until = round((number + 1) / fps * SAMPLE_RATE_HZ)
                    written = _sound(container, audio, pcm, written, until)
            if pcm is not None:
                _sound(container, audio, pcm, written, written + _AUDIO_FRAME)
                container.mux(audio.encode())
            container.mux(video.encode())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _sound(container: Any, stream: Any, pcm: NDArray[np.int16], first: int, until: int) -> int:
    """Encode whole blocks of `pcm` (then silence) from `first` up to `until`; where it stopped."""
    while first + _AUDIO_FRAME <= until:
        block = np.zeros(_AUDIO_FRAME, np.int16)
        part = pcm[first : first + _AUDIO_FRAME]
        block[: len(part)] = part
        sound = av.AudioFrame.from_ndarray(block[None, :], format="s16", layout="mono")
        sound.sample_rate = SAMPLE_RATE_HZ
        sound.pts, sound.time_base = first, Fraction(1, SAMPLE_RATE_HZ)
        container.mux(stream.encode(sound))
        first += _AUDIO_FRAME
    return first
