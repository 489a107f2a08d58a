"""Which encoder H.264 is made by. No machine that tests run on need have NVENC."""

from __future__ import annotations

from collections.abc import Iterator

import av
import pytest
from av.video.codeccontext import VideoCodecContext

from avatar_server.avatar.encoder import EncoderError, H264Encoder, h264_coding, require_encoder
from avatar_server.avatar.encoder.h264_coding import nvenc_coding, nvenc_works, x264_coding
from avatar_server.avatar.encoder.libav import Coding, open_encoder
from avatar_server.config import VideoSettings
from renderers.contract import I420Frame

SETTINGS = VideoSettings(width=320, height=180)
FORCED = VideoSettings(encoder="h264_nvenc")


@pytest.fixture(autouse=True)
def found_anew() -> Iterator[None]:
    nvenc_works.cache_clear()
    yield
    nvenc_works.cache_clear()


class Gpu:
    """In place of libav's opening: NVENC has room for `rooms` encodes, which x264 then makes."""

    def __init__(self, rooms: int) -> None:
        self.rooms = rooms
        self.asked: list[Coding] = []

    def open(self, coding: Coding, width: int, height: int) -> VideoCodecContext:
        self.asked.append(coding)
        if coding.name == "h264_nvenc":
            if not self.rooms:
                raise EncoderError("h264_nvenc cannot be opened: no room")
            self.rooms -= 1
            coding = x264_coding(SETTINGS, False)
        return open_encoder(coding, width, height)


def encode_one(encoder: H264Encoder) -> None:
    assert encoder.encode(I420Frame.empty(320, 180), 0, True).keyframe


def test_where_nvenc_works_it_is_taken_and_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(rooms=3)
    monkeypatch.setattr(h264_coding, "open_encoder", gpu.open)
    for _ in range(2):
        encoder = H264Encoder(SETTINGS)
        encode_one(encoder)
        assert encoder.name == "h264_nvenc"
    assert [coding.name for coding in gpu.asked] == ["h264_nvenc"] * 3


def test_where_the_gpu_has_no_more_room_the_cpu_encodes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(h264_coding, "open_encoder", Gpu(rooms=1).open)
    encoder = H264Encoder(SETTINGS)
    encode_one(encoder)
    assert encoder.name == "libx264"
    assert "libx264 takes the place" in caplog.text


def test_libx264_is_taken_without_a_look_at_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(rooms=9)
    monkeypatch.setattr(h264_coding, "open_encoder", gpu.open)
    encoder = H264Encoder(SETTINGS.model_copy(update={"encoder": "libx264"}))
    encode_one(encoder)
    assert [coding.name for coding in gpu.asked] == ["libx264"]


def test_the_cap_of_nvenc_is_its_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h264_coding, "open_encoder", Gpu(rooms=9).open)
    encoder = H264Encoder(SETTINGS.model_copy(update={"max_bitrate_bps": 100_000}))
    for k in range(20):
        frame = I420Frame.empty(320, 180)
        frame.y[:, : 16 * k] = 250
        frame.y[::2] ^= k
        encoder.encode(frame, 0, True)
    assert not encoder.capped


@pytest.mark.parametrize(
    "preset", ["ultrafast", "superfast", "veryfast", "faster", "fast", "medium"]
)
def test_every_option_given_to_nvenc_is_one_it_knows(preset: str) -> None:
    # That a GPU accepts them only a GPU can show; one that is misspelt or out of range shows here.
    coding = nvenc_coding(VideoSettings.model_validate({"preset": preset}))
    supported = av.CodecContext.create("h264_nvenc", "w").supported_options
    known = {
        option.name: option for group in (supported.generic, supported.private) for option in group
    }
    for name, value in coding.options.items():
        option = known[name]
        if option.choices and not value.isdigit():
            assert value in {choice.name for choice in option.choices}, name
        elif name not in ("profile",):
            assert option.min <= float(value) <= option.max, name


@pytest.mark.skipif(nvenc_works(), reason="this machine has NVENC")
def test_without_a_gpu_auto_is_the_cpu_and_nvenc_by_force_is_refused_in_words() -> None:
    encoder = H264Encoder(SETTINGS)
    encode_one(encoder)
    assert encoder.name == "libx264"
    require_encoder(SETTINGS)
    with pytest.raises(EncoderError, match=r"h264_nvenc cannot be opened.*to auto or libx264"):
        require_encoder(FORCED)
