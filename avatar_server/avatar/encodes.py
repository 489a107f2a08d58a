"""The session's video encodes: one for each kind of picture that some viewer takes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

import cv2

from avatar_server.avatar.encoder import EncoderError, H264Encoder, VideoEncoder, Vp8Encoder
from avatar_server.avatar.pacing import VIDEO_CLOCK_HZ, KeyframePolicy
from avatar_server.avatar.packets import EncodedVideo, Encoding
from avatar_server.config import VideoSettings
from renderers.contract import I420Frame

logger = logging.getLogger(__name__)

_HELD_FRAMES = 3
"""So many unchanged frames in a row are repeated at once: a head that drifts is drawn anew every
second or third frame, and encoding the ones between costs nearly as much as a changed one."""
_REFINING_FRAMES = 8
"""Unchanged frames after those that are encoded, in which what motion blurred becomes sharp."""


class Encodes:
    """Encodes each picture as often as it is wanted, and no more. Used on the video thread.

    `request_keyframe` and `configure` may be called from any thread.
    """

    def __init__(self, settings: VideoSettings) -> None:
        self._settings = settings
        self._encoders: dict[Encoding, VideoEncoder] = {}
        self._policies: dict[Encoding, KeyframePolicy] = {}
        self._requests: deque[tuple[Encoding, bool]] = deque()
        self._gentle: dict[Encoding, bool] = {}
        self._reconfigured: deque[VideoSettings] = deque()
        self._smaller = I420Frame.empty(*low_size(settings))
        self.failed = 0
        """Pictures that an encoder could not encode."""

    def request_keyframe(self, encodings: Iterable[Encoding], gentle: bool = False) -> None:
        """The next picture of these is to be a keyframe, as far as the least interval allows.

        `gentle`: a small one, where nobody has asked for another.
        """
        self._requests.extend((encoding, gentle) for encoding in encodings)

    def configure(self, settings: VideoSettings) -> None:
        """Use another preset, quality and cap, each encode from its next keyframe on."""
        self._reconfigured.append(settings)

    def encode(
        self, frame: I420Frame, wanted: frozenset[Encoding], timestamp: int, unchanged: int
    ) -> list[EncodedVideo]:
        """The picture in all `wanted` encodings, keyframes first.

        `unchanged`: how many pictures before it, up to its own, were the same.
        """
        self.keep(wanted)
        self._take_requests()
        media_time = timestamp / VIDEO_CLOCK_HZ
        keyframes = {each: self._policy(each).take(media_time) for each in wanted}
        made = []
        # A viewer who is moved can begin with a keyframe only if it was not sent this picture yet.
        for encoding in sorted(wanted, key=lambda each: not keyframes[each]):
            try:
                encoded = self._encode(encoding, frame, timestamp, keyframes[encoding], unchanged)
            except EncoderError:
                # One picture lost; the encoder opens itself again with the next, on a keyframe.
                logger.exception("a frame could not be encoded")
                self.failed += 1
                continue
            if encoded.payloads:
                made.append(encoded)
        return made

    def keep(self, wanted: frozenset[Encoding]) -> None:
        """Close the encoders that nobody needs any more."""
        for encoding in [each for each in self._encoders if each not in wanted]:
            self._encoders.pop(encoding).close()

    def _take_requests(self) -> None:
        while self._reconfigured:
            self._settings = self._reconfigured.popleft()
            self.request_keyframe(self._encoders)
        while self._requests:
            encoding, gentle = self._requests.popleft()
            self._gentle[encoding] = gentle and self._gentle.get(encoding, True)
            self._policy(encoding).request()

    def _policy(self, encoding: Encoding) -> KeyframePolicy:
        policy = self._policies.get(encoding)
        if policy is None:
            settings = self._settings
            policy = self._policies[encoding] = KeyframePolicy(
                settings.keyframe_min_interval_ms / 1000, settings.keyframe_interval_s
            )
        return policy

    def _encode(
        self, encoding: Encoding, frame: I420Frame, timestamp: int, keyframe: bool, unchanged: int
    ) -> EncodedVideo:
        encoder = self._encoders.get(encoding)
        if encoder is None:
            settings = layer_settings(self._settings, encoding)
            kind = H264Encoder if encoding.codec == "h264" else Vp8Encoder
            encoder = self._encoders[encoding] = kind(settings, encoding.layer)
            self._policy(encoding).made(timestamp / VIDEO_CLOCK_HZ)
            keyframe = True
        elif keyframe:
            encoder.configure(layer_settings(self._settings, encoding))
        elif is_repeat(unchanged) and (repeated := encoder.repeat(timestamp)) is not None:
            return repeated
        if encoding.layer == "low":
            shrink(frame, self._smaller)
            frame = self._smaller
        gentle = keyframe and self._gentle.pop(encoding, False)
        return encoder.encode(frame, timestamp, keyframe, gentle)


def is_repeat(unchanged: int) -> bool:
    """Whether the frame that is the `unchanged`-th like its predecessor is sent as a repetition."""
    return 0 < unchanged <= _HELD_FRAMES or unchanged > _HELD_FRAMES + _REFINING_FRAMES


def layer_settings(settings: VideoSettings, encoding: Encoding) -> VideoSettings:
    """The settings of one encode."""
    if encoding.layer == "full":
        return settings
    cap = min(settings.min_bitrate_bps, settings.max_bitrate_bps)
    # Where the full picture is made worse, the smaller one is not left better.
    crf = max(settings.low.crf, settings.crf)
    return settings.model_copy(update={"crf": crf, "max_bitrate_bps": cap})


def low_size(settings: VideoSettings) -> tuple[int, int]:
    """Width and height of the smaller picture, divisible by 4 as an I420 frame's have to be."""
    scale = settings.low.scale
    return 4 * round(settings.width * scale / 4), 4 * round(settings.height * scale / 4)


def shrink(frame: I420Frame, smaller: I420Frame) -> None:
    """Draw `frame` into `smaller`, whatever size that has."""
    for source, target in (
        (frame.y, smaller.y),
        (frame.u, smaller.u),
        (frame.v, smaller.v),
    ):
        size = (target.shape[1], target.shape[0])
        cv2.resize(source, size, dst=target, interpolation=cv2.INTER_AREA)
