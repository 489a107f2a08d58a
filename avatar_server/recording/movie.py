"""An MP4 file that is written as a talk goes on: pictures as they were sent, sound, captions.

The file is fragmented while it grows, so that whatever kills the process leaves one that plays up
to its last second or two; closing it makes a plain one of it, in place.
"""

from __future__ import annotations

import io
import struct
from fractions import Fraction
from typing import IO

import av
import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.pacing import VIDEO_CLOCK_HZ
from avatar_server.avatar.packets import split_annexb
from avatar_server.recording.captions import Cue
from avatar_server.recording.mixer import SAMPLE_RATE_HZ

AUDIO_BITRATE_BPS = 96_000
_VIDEO_BASE = Fraction(1, VIDEO_CLOCK_HZ)
_AUDIO_BASE = Fraction(1, SAMPLE_RATE_HZ)
_TEXT_BASE = Fraction(1, 1000)
AAC_FRAME = 1_024
_NAL_SPS = 7
_MUXER = {
    # One fragment a second, however far keyframes are apart.
    "movflags": "hybrid_fragmented+default_base_moof",
    "frag_duration": "1000000",
    # Captions are rare: the other streams must not wait for them.
    "max_interleave_delta": "500000",
}
# FFmpeg's default coder takes 4.6 times the CPU (60 against 13 ms for a second of noise).
_AAC = {"aac_coder": "fast"}
# libav asks for a style even where cues are written as they are (3GPP TS 26.245).
_NO_STYLE = (
    b"[Script Info]\nScriptType: v4.00+\n\n[V4+ Styles]\nFormat: Name, Fontname, Fontsize, "
    b"PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, Italic, Underline, "
    b"StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, Alignment, "
    b"MarginL, MarginR, MarginV, Encoding\nStyle: Default,Arial,16,&Hffffff,&Hffffff,&H0,&H0,"
    b"0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,0\n\n[Events]\nFormat: Layer, Start, End, Style, "
    b"Name, MarginL, MarginR, MarginV, Effect, Text\n"
)


class Movie:
    """One file. Times are those of the file, which begins with its first picture.

    Whatever cannot be written raises `OSError` or `av.FFmpegError`. Used from one thread.
    """

    def __init__(self, file: IO[bytes], keyframe: bytes, fps: int) -> None:
        """`file` is open for reading and writing, unbuffered; `keyframe` is an IDR access unit
        (Annex B) with its parameter sets.
        """
        self.parameters = parameter_sets(keyframe)
        self._frame_ticks = VIDEO_CLOCK_HZ // fps
        self._sound: NDArray[np.int16] = np.zeros((0, 2), np.int16)
        self._samples = 0
        self._container = av.open(file, "w", format="mp4", options=dict(_MUXER))
        with av.open(io.BytesIO(keyframe), format="h264") as probe:
            like = probe.streams.video[0]
            self.width, self.height = like.width, like.height
            self._video = self._container.add_stream_from_template(like, opaque=True)
        self._video.time_base = _VIDEO_BASE
        audio = self._container.add_stream("aac", rate=SAMPLE_RATE_HZ, layout="stereo")
        audio.codec_context.bit_rate = AUDIO_BITRATE_BPS
        audio.codec_context.options = _AAC
        audio.time_base = _AUDIO_BASE
        self._audio = audio
        self._text = self._container.add_stream("mov_text")
        self._text.codec_context.subtitle_header = _NO_STYLE
        self._text.time_base = _TEXT_BASE

    def add_picture(self, access_unit: bytes, ticks: int, keyframe: bool) -> None:
        """A picture (Annex B) at `ticks` of 1/90000 s; each later than the one before."""
        packet = av.Packet(access_unit)
        packet.stream = self._video
        packet.time_base = _VIDEO_BASE
        packet.pts = packet.dts = ticks
        packet.duration = self._frame_ticks
        packet.is_keyframe = keyframe
        self._container.mux(packet)

    def add_sound(self, pcm: NDArray[np.int16]) -> None:
        """More sound: int16, shape (samples, 2), 48 kHz, without a gap from the file's start."""
        self._sound = np.concatenate([self._sound, pcm])
        whole = len(self._sound) // AAC_FRAME * AAC_FRAME
        for at in range(0, whole, AAC_FRAME):
            self._encode(self._sound[at : at + AAC_FRAME])
        self._sound = self._sound[whole:]

    def add_caption(self, cue: Cue) -> None:
        """A cue that begins no earlier than the last one ended."""
        text = f"{cue.who}: {cue.text}".encode()[:65_000]
        packet = av.Packet(struct.pack(">H", len(text)) + text)
        packet.stream = self._text
        packet.time_base = _TEXT_BASE
        packet.pts = packet.dts = round(cue.start * 1000)
        packet.duration = max(1, round((cue.end - cue.start) * 1000))
        self._container.mux(packet)

    def close(self) -> None:
        """Complete the file."""
        try:
            for packet in self._audio.encode(None):
                self._container.mux(packet)
        finally:
            self._container.close()

    def _encode(self, pcm: NDArray[np.int16]) -> None:
        planes = np.ascontiguousarray(pcm.T.astype(np.float32) / 32_768)
        frame = av.AudioFrame.from_ndarray(planes, format="fltp", layout="stereo")
        frame.sample_rate = SAMPLE_RATE_HZ
        frame.time_base = _AUDIO_BASE
        frame.pts = self._samples
        self._samples += AAC_FRAME
        for packet in self._audio.encode(frame):
            # What only primes the decoder lies before the start; leaving it out spares an edit
            # list, which not every player of fragmented files heeds.
            if packet.pts is not None and packet.pts >= 0:
                self._container.mux(packet)


def parameter_sets(access_unit: bytes) -> tuple[bytes, ...]:
    """The sequence parameter sets of an access unit: they tell the pictures' size."""
    return tuple(u for u in split_annexb(access_unit) if u and u[0] & 0x1F == _NAL_SPS)
