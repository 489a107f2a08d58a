"""How H.264 is asked for: of x264, and of NVENC where a GPU has it."""

from __future__ import annotations

import logging
from functools import cache
from typing import Literal

from av.video.codeccontext import VideoCodecContext

from avatar_server.avatar.encoder.base import EncoderError
from avatar_server.avatar.encoder.libav import Coding, open_encoder
from avatar_server.config import VideoSettings

logger = logging.getLogger(__name__)

H264Name = Literal["libx264", "h264_nvenc"]

_MIN_QUANTISER = 10
"""Below it nothing is gained that 8 bits can show."""
_MAX_QUANTISER = 51
_GENTLE_STEPS = ((0, 0, 9), (1, 4, 8), (5, 8, 6), (9, 12, 4), (13, 16, 2))
"""First and last picture, and what is added to the quantiser: a keyframe of 19 instead of 43 kB (a
1280x720 head), and 45 instead of 104 kB in the first half second, at 41 instead of 45 dB."""
GENTLE_PICTURES = _GENTLE_STEPS[-1][1] + 1
"""After so many pictures the quality is the usual one."""
_NVENC_PRESETS = {
    "ultrafast": "p1",
    "superfast": "p2",
    "veryfast": "p3",
    "faster": "p4",
    "fast": "p5",
    "medium": "p6",
}
_NEVER = 2**31 - 1
"""Keyframes come only when asked for: the session decides, not the encoder."""


def x264_coding(settings: VideoSettings, capped: bool, gentle: bool = False) -> Coding:
    """x264 as constrained baseline without delay.

    Not `capped`, the quantiser is held: x264's rate control looks over every picture in half size
    before it codes it, which is a fifth of the whole cost at the fastest preset (1.9 against
    1.5 ms), for the same bits and the same quality. `capped`, that look is needed: constant quality
    (CRF) with a rate buffer (VBV) of half a second at the cap, which lets a keyframe be several
    times larger than the frames around it.

    `gentle`, and not `capped`: the first picture is small, and those after it make it good.
    """
    cap = settings.max_bitrate_bps
    quantiser = max(_MIN_QUANTISER, round(settings.crf))
    parameters = {
        "keyint": "infinite",
        "scenecut": "0",
        # Parameter sets before every IDR, so that a viewer can begin there.
        "repeat-headers": "1",
        # More references cost time and buy nothing on a talking head.
        "ref": "1",
        "force-cfr": "1",
    }
    options = {
        "preset": settings.preset,
        "tune": "zerolatency",
        # As an option: libav's own profile field does not reach x264's.
        "profile": "baseline",
        "forced-idr": "1",
    }
    if capped:
        # Without a floor a still picture is refined for ever: 4 times the bits, unseen.
        parameters["qpmin"] = str(quantiser)
        options |= {"crf": f"{settings.crf:g}", "maxrate": str(cap), "bufsize": str(cap // 2)}
    else:
        options["qp"] = str(quantiser)
        if gentle:
            steps = ((a, b, min(_MAX_QUANTISER, quantiser + more)) for a, b, more in _GENTLE_STEPS)
            parameters["zones"] = "/".join(f"{a},{b},q={step}" for a, b, step in steps)
            # x264 holds all quantisers to the greatest of I-, P- and B-pictures'. There are no
            # B-pictures: this ratio allows 18 more.
            parameters["pbratio"] = "8"
    options["x264-params"] = ":".join(f"{key}={value}" for key, value in parameters.items())
    return Coding("libx264", options, settings.fps)


def nvenc_coding(settings: VideoSettings) -> Coding:
    """NVENC as constrained baseline without delay, constant quality under the cap."""
    options = {
        "preset": _NVENC_PRESETS[settings.preset],
        "tune": "ull",
        "profile": "baseline",
        "rc": "vbr",
        "cq": f"{max(1.0, settings.crf):g}",
        "maxrate": str(settings.max_bitrate_bps),
        "bufsize": str(settings.max_bitrate_bps // 2),
        "zerolatency": "1",
        "delay": "0",
        "forced-idr": "1",
        "no-scenecut": "1",
        "bf": "0",
    }
    return Coding(
        "h264_nvenc",
        options,
        settings.fps,
        # Nought: what the quality needs, not what a bitrate would spend.
        bit_rate=0,
        gop_size=_NEVER,
        advice=(
            "It needs an NVIDIA GPU with NVENC (A100 and H100 have none), its driver, and in a "
            "container the capability 'video'. Set media.video.encoder to auto or libx264"
        ),
    )


@cache
def nvenc_works() -> bool:
    """Whether NVENC can be opened here, found by trying, once per process."""
    try:
        open_encoder(nvenc_coding(VideoSettings()), 640, 360)
    except EncoderError as error:
        logger.debug("no NVENC: %s", error)
        return False
    return True


def require_encoder(settings: VideoSettings) -> None:
    """Raises `EncoderError`, with what to do, where the encoder that is insisted on is not here."""
    if settings.encoder == "h264_nvenc":
        open_encoder(nvenc_coding(settings), settings.width, settings.height)


def open_h264(
    settings: VideoSettings, width: int, height: int, capped: bool, gentle: bool = False
) -> tuple[VideoCodecContext, H264Name]:
    """An H.264 encoder as `settings.encoder` says. Raises `EncoderError`.

    With `auto` NVENC is taken where it works; should the GPU have no more room for one (some allow
    only so many at once), libx264 encodes this session.
    """
    if settings.encoder == "h264_nvenc" or (settings.encoder == "auto" and nvenc_works()):
        try:
            return open_encoder(nvenc_coding(settings), width, height), "h264_nvenc"
        except EncoderError as error:
            if settings.encoder != "auto":
                raise
            logger.warning("libx264 takes the place of NVENC for this encode: %s", error)
    return open_encoder(x264_coding(settings, capped, gentle), width, height), "libx264"
