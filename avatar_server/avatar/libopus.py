"""libopus itself, by ctypes: the shared library that PyAV's wheels carry, or the system's.

FFmpeg's wrapper around it cannot ask the decoder for in-band FEC, and costs as much as the encoding
itself in frames and packets of its own. The functions and constants are those of the public API
(opus.h, opus_defines.h), which has been stable since version 1.0.
"""

from __future__ import annotations

import ctypes
import logging
import weakref
from collections.abc import Iterator
from ctypes.util import find_library
from functools import cache
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

_OK = 0
_APPLICATION_VOIP = 2048
_SET_BITRATE = 4002
_SET_COMPLEXITY = 4010
_SET_INBAND_FEC = 4012
_SET_PACKET_LOSS_PERCENT = 4014
_SET_SIGNAL = 4024
_SIGNAL_VOICE = 3001
_GET_LOOKAHEAD = 4027
_LONGEST_PACKET_BYTES = 1_275
"""Of one frame of 20 ms (RFC 6716, section 3.2)."""
_LONGEST_PACKET_MS = 120


class OpusError(RuntimeError):
    """libopus refused something; the message is its own."""


def _candidates() -> Iterator[str]:
    """Where the library may be: in PyAV's wheels (Linux, Windows, macOS), or installed."""
    package = Path(av.__file__).parent
    for folder, pattern in (
        (package.parent / "av.libs", "*opus*.so*"),
        (package.parent / "av.libs", "*opus*.dll"),
        (package / ".dylibs", "*opus*.dylib"),
    ):
        yield from sorted(map(str, folder.glob(pattern)))
    installed = find_library("opus")
    if installed:
        yield installed


@cache
def load_libopus() -> ctypes.CDLL | None:
    """The library with its functions' types declared; `None`, and a line in the log, without it."""
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            _declare(library)
        except (OSError, AttributeError) as error:
            logger.debug("%s is no libopus that can be used: %s", path, error)
            continue
        return library
    logger.warning(
        "libopus was found neither beside PyAV nor on this system: sound is coded through FFmpeg, "
        "which costs more CPU and cannot use the redundancy that browsers send against loss. "
        "Install PyAV from its wheels, or the system's libopus (libopus0)"
    )
    return None


def _declare(library: ctypes.CDLL) -> None:
    integer, pointer = ctypes.c_int, ctypes.c_void_p
    for name, result, arguments in (
        ("opus_strerror", ctypes.c_char_p, (integer,)),
        ("opus_encoder_create", pointer, (integer, integer, integer, pointer)),
        ("opus_encode", integer, (pointer, pointer, integer, pointer, integer)),
        ("opus_encoder_destroy", None, (pointer,)),
        ("opus_decoder_create", pointer, (integer, integer, pointer)),
        ("opus_decode", integer, (pointer, ctypes.c_char_p, integer, pointer, integer, integer)),
        ("opus_decoder_destroy", None, (pointer,)),
        # Variadic: what follows the request is given as a ctypes value.
        ("opus_encoder_ctl", integer, (pointer, integer)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


def _library() -> ctypes.CDLL:
    library = load_libopus()
    if library is None:
        raise OpusError("libopus is not there")
    return library


def _check(library: ctypes.CDLL, code: int, doing: str) -> int:
    if code < _OK:
        raise OpusError(f"libopus could not {doing}: {library.opus_strerror(code).decode()}")
    return code


class Encoder:
    """Mono speech in blocks of 20 ms. Used by one thread at a time."""

    def __init__(
        self,
        rate_hz: int,
        bitrate_bps: int,
        *,
        complexity: int,
        fec: bool,
        expected_loss_percent: int,
    ) -> None:
        """Raises `OpusError`, also where the library is missing."""
        library = self._library = _library()
        code = ctypes.c_int()
        self._state = ctypes.c_void_p(
            library.opus_encoder_create(rate_hz, 1, _APPLICATION_VOIP, ctypes.byref(code))
        )
        _check(library, code.value, f"encode {rate_hz} Hz")
        weakref.finalize(self, library.opus_encoder_destroy, self._state)
        for request, value in (
            (_SET_BITRATE, bitrate_bps),
            (_SET_COMPLEXITY, complexity),
            (_SET_SIGNAL, _SIGNAL_VOICE),
            (_SET_INBAND_FEC, int(fec)),
            (_SET_PACKET_LOSS_PERCENT, expected_loss_percent),
        ):
            code.value = library.opus_encoder_ctl(self._state, request, ctypes.c_int(value))
            _check(library, code.value, f"set {request} to {value}")
        lookahead = ctypes.c_int()
        library.opus_encoder_ctl(self._state, _GET_LOOKAHEAD, ctypes.byref(lookahead))
        self.lookahead = lookahead.value
        """Samples by which the decoded sound is later than what went in."""
        self._pcm = np.zeros(rate_hz // 50, np.int16)
        self._packet = ctypes.create_string_buffer(_LONGEST_PACKET_BYTES)
        self._at = self._pcm.ctypes.data

    def encode(self, pcm: NDArray[np.int16]) -> bytes:
        """The packet of 20 ms (int16, one block). Raises `OpusError`."""
        # Into a buffer of our own: asking NumPy for an array's address costs more than the copy.
        self._pcm[:] = pcm
        size = self._library.opus_encode(
            self._state, self._at, len(self._pcm), self._packet, _LONGEST_PACKET_BYTES
        )
        return self._packet.raw[: _check(self._library, size, "encode a block")]


class Decoder:
    """One stream, decoded to mono at any rate of Opus (8, 12, 16, 24, 48 kHz)."""

    def __init__(self, rate_hz: int) -> None:
        """Raises `OpusError`, also where the library is missing."""
        library = self._library = _library()
        code = ctypes.c_int()
        self._state = ctypes.c_void_p(library.opus_decoder_create(rate_hz, 1, ctypes.byref(code)))
        _check(library, code.value, f"decode to {rate_hz} Hz")
        weakref.finalize(self, library.opus_decoder_destroy, self._state)
        self._step = rate_hz // 400
        self._pcm = np.zeros(rate_hz * _LONGEST_PACKET_MS // 1_000, np.int16)
        self._at = self._pcm.ctypes.data

    def decode(self, payload: bytes) -> NDArray[np.int16]:
        """A packet's sound (int16). Raises `OpusError` where it is none."""
        if not payload:
            raise OpusError("an empty packet has no sound")
        return self._decode(payload, len(self._pcm), fec=False)

    def conceal(self, samples: int) -> NDArray[np.int16]:
        """What stands in for a loss: `samples`, rounded down to 2.5 ms, and 120 ms at most."""
        return self._decode(None, samples, fec=False)

    def recover(self, samples: int, following: bytes) -> NDArray[np.int16]:
        """As `conceal`, from the redundancy in the packet after the loss as far as that goes.

        Where `following` has none, that is concealment. It is to be decoded itself afterwards.
        Raises `OpusError` where it is no packet.
        """
        return self._decode(following, samples, fec=True)

    def _decode(self, payload: bytes | None, samples: int, *, fec: bool) -> NDArray[np.int16]:
        room = min(len(self._pcm), samples) // self._step * self._step
        if not room:
            return self._pcm[:0].copy()
        size = 0 if payload is None else len(payload)
        made = self._library.opus_decode(self._state, payload, size, self._at, room, int(fec))
        return self._pcm[: _check(self._library, made, "decode a packet")].copy()
