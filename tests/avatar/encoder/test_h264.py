"""The H.264 encoder: what it makes is decoded again and compared."""

from __future__ import annotations

from collections.abc import Sequence

import av
import cv2
import numpy as np
import pytest
from aiortc.codecs.h264 import h264_depayload

from avatar_server.avatar.encoder import EncoderError, H264Encoder
from avatar_server.avatar.packets import EncodedVideo, split_annexb
from avatar_server.config import VideoSettings
from renderers.contract import I420Frame

SETTINGS = VideoSettings(width=320, height=180)


def picture(shift: int, noise: int = 0) -> I420Frame:
    frame = I420Frame.empty(320, 180)
    y, x = np.mgrid[0:180, 0:320]
    frame.y[:] = (128 + 60 * np.sin((x + shift) / 17) * np.cos((y + shift / 2) / 11)).astype(
        np.uint8
    )
    if noise:
        frame.y[:] ^= np.random.default_rng(noise).integers(0, 8, frame.y.shape, np.uint8)
    return frame


def decode(frames: Sequence[EncodedVideo]) -> list[np.ndarray]:
    decoder = av.CodecContext.create("h264", "r")
    decoder.thread_count = 1
    decoder.options = {"err_detect": "explode", "flags": "low_delay"}
    pictures = []
    for frame in frames:
        stream = b"".join(map(h264_depayload, frame.payloads))
        pictures += [p.to_ndarray() for p in decoder.decode(av.Packet(stream))]
    pictures += [p.to_ndarray() for p in decoder.decode(None)]
    return pictures


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    error = np.mean((a.astype(float) - b.astype(float)) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def test_pictures_come_back_and_the_first_is_a_keyframe() -> None:
    encoder = H264Encoder(SETTINGS)
    sources = [picture(3 * k) for k in range(10)]
    frames = [encoder.encode(f, k * 3_000, False) for k, f in enumerate(sources)]
    assert [frame.keyframe for frame in frames] == [True] + [False] * 9
    assert [frame.sequence for frame in frames] == list(range(10))
    decoded = decode(frames)
    assert len(decoded) == 10
    assert min(psnr(a, b.data) for a, b in zip(decoded, sources, strict=True)) > 34


def test_a_keyframe_on_request_brings_its_parameter_sets() -> None:
    encoder = H264Encoder(SETTINGS)
    frames = [encoder.encode(picture(k), k * 3_000, k == 5) for k in range(8)]
    assert [frame.keyframe for frame in frames] == [k in (0, 5) for k in range(8)]
    stream = b"".join(map(h264_depayload, frames[5].payloads))
    units = list(split_annexb(stream))
    assert [unit[0] & 0x1F for unit in units] == [7, 8, 5]
    assert len(decode(frames[5:])) == 3


@pytest.mark.parametrize("preset", ["ultrafast", "superfast", "veryfast", "medium"])
def test_every_preset_makes_constrained_baseline(preset: str) -> None:
    encoder = H264Encoder(SETTINGS.model_copy(update={"preset": preset}))
    stream = b"".join(map(h264_depayload, encoder.encode(picture(0), 0, True).payloads))
    _, profile, constraints, level = next(split_annexb(stream))[:4]
    assert profile == 66
    assert constraints & 0x40
    assert level <= 31


def test_a_buffer_may_be_drawn_into_again_at_once() -> None:
    encoder = H264Encoder(SETTINGS)
    frame, frames, sources = I420Frame.empty(320, 180), [], []
    for k in range(6):
        frame.data[:] = picture(5 * k).data
        sources.append(frame.data.copy())
        frames.append(encoder.encode(frame, k * 3_000, False))
        frame.data[:] = 0
    assert min(psnr(a, b) for a, b in zip(decode(frames), sources, strict=True)) > 34


@pytest.mark.parametrize("repeats", [1, 3, 40])
@pytest.mark.parametrize("preset", ["ultrafast", "superfast", "medium"])
def test_a_repeated_picture_is_the_same_and_what_follows_is_whole(
    repeats: int, preset: str
) -> None:
    settings = SETTINGS.model_copy(update={"preset": preset})
    encoder, plain = H264Encoder(settings), H264Encoder(settings)
    moving = [picture(3 * k, noise=k + 1) for k in range(45)]
    frames: list[EncodedVideo] = []
    expected: list[EncodedVideo] = []
    held: list[int] = []
    for k, source in enumerate(moving):
        frames.append(encoder.encode(source, 0, k == 30))
        expected.append(plain.encode(source, 0, k == 30))
        if k in (4, 10, 33):
            for _ in range(repeats):
                repeated = encoder.repeat(0)
                assert repeated is not None
                assert repeated.size < 20
                held.append(len(frames))
                frames.append(repeated)
    assert [frame.sequence for frame in frames] == list(range(len(frames)))
    decoded, reference = decode(frames), decode(expected)
    assert len(decoded) == len(frames)
    for at in held:
        assert np.array_equal(decoded[at], decoded[at - 1])
    rest = [p for at, p in enumerate(decoded) if at not in held]
    assert all(np.array_equal(a, b) for a, b in zip(rest, reference, strict=True))


def test_before_anything_was_encoded_nothing_is_repeated() -> None:
    assert H264Encoder(SETTINGS).repeat(0) is None


def test_other_settings_take_effect_with_a_keyframe() -> None:
    encoder = H264Encoder(SETTINGS)
    before = [encoder.encode(picture(k, noise=k + 1), 0, False) for k in range(6)]
    encoder.configure(SETTINGS.model_copy(update={"crf": 45.0}))
    assert encoder.repeat(0) is None
    after = [encoder.encode(picture(k, noise=k + 1), 0, False) for k in range(6)]
    assert after[0].keyframe
    assert after[0].sequence == 6
    assert sum(f.size for f in after) < 0.5 * sum(f.size for f in before)


def test_the_cap_holds_over_a_second() -> None:
    settings = SETTINGS.model_copy(update={"max_bitrate_bps": 200_000, "crf": 5.0})
    encoder = H264Encoder(settings)
    sizes = [encoder.encode(picture(9 * k, noise=k + 1), k * 3_000, False).size for k in range(90)]
    assert 8 * sum(sizes[30:]) / 2 < 1.3 * 200_000


def test_a_size_that_cannot_be_encoded_is_told() -> None:
    encoder = H264Encoder(SETTINGS)
    with pytest.raises(EncoderError, match="x264"):
        encoder.encode(I420Frame(np.zeros((3, 2), np.uint8), 2, 0), 0, False)


def test_below_the_cap_the_quantiser_is_held_and_above_it_the_cap_is_kept_from_a_keyframe_on() -> (
    None
):
    settings = SETTINGS.model_copy(update={"max_bitrate_bps": 200_000, "crf": 25.0})
    encoder = H264Encoder(settings)
    still = [encoder.encode(picture(0), k * 3_000, False) for k in range(30)]
    assert not encoder.capped
    encoder.configure(settings.model_copy(update={"crf": 5.0}))
    moving = [encoder.encode(picture(9 * k, noise=k + 1), k * 3_000, False) for k in range(30, 60)]
    assert encoder.capped
    assert [frame.keyframe for frame in moving].count(True) == 2
    assert len(decode(still + moving)) == 60


def test_a_keyframe_at_the_same_quality_is_the_only_change_when_only_the_cap_changes() -> None:
    encoder = H264Encoder(SETTINGS)
    frames = [encoder.encode(picture(k), k * 3_000, False) for k in range(5)]
    encoder.configure(SETTINGS.model_copy(update={"max_bitrate_bps": 150_000}))
    frames += [encoder.encode(picture(k), k * 3_000, False) for k in range(5, 10)]
    assert [frame.keyframe for frame in frames] == [k in (0, 5) for k in range(10)]
    decoded = decode(frames)
    assert all(psnr(d, picture(k).data) > 34 for k, d in enumerate(decoded))


# --- a gentle beginning -----------------------------------------------------------------------


def busy(shift: int) -> I420Frame:
    """A picture that costs bits, and moves a little."""
    frame = picture(shift)
    rng = np.random.default_rng(3)
    texture = cv2.GaussianBlur(rng.integers(0, 255, (180, 320), np.uint8), (0, 0), 1.5)
    frame.y[:] = frame.y // 2 + texture // 2
    frame.y[60:120, 100 + shift : 160 + shift] = 220
    return frame


@pytest.mark.parametrize("preset", ["ultrafast", "superfast", "medium"])
def test_a_gentle_keyframe_is_small_and_what_it_lacks_comes_after_it(preset: str) -> None:
    settings = SETTINGS.model_copy(update={"preset": preset})
    sources = [busy(k) for k in range(25)]
    made = {}
    for gentle in (False, True):
        encoder = H264Encoder(settings)
        made[gentle] = [encoder.encode(f, 3_000 * k, k == 0, gentle) for k, f in enumerate(sources)]
    usual, gentle_ones = made[False], made[True]
    assert gentle_ones[0].size < 0.6 * usual[0].size
    assert sum(f.size for f in gentle_ones[:10]) < 0.8 * sum(f.size for f in usual[:10])
    # No picture of those after it is as large as what was saved.
    assert max(f.size for f in gentle_ones[1:]) < gentle_ones[0].size
    quality = [psnr(a, b.data) for a, b in zip(decode(gentle_ones), sources, strict=True)]
    target = [psnr(a, b.data) for a, b in zip(decode(usual), sources, strict=True)]
    assert quality[0] > 27
    assert quality[-1] > target[-1] - 2
    assert quality[-1] > quality[0] + 1


def test_a_gentle_keyframe_in_the_middle_goes_on_without_a_break() -> None:
    encoder = H264Encoder(SETTINGS)
    frames = [encoder.encode(busy(k), 3_000 * k, k == 10, k == 10) for k in range(40)]
    assert [frame.keyframe for frame in frames] == [k in (0, 10) for k in range(40)]
    assert frames[10].size < 0.7 * frames[0].size
    assert [frame.sequence for frame in frames] == list(range(40))
    assert len(decode(frames)) == 40


def test_a_still_picture_is_repeated_only_once_it_is_good() -> None:
    encoder = H264Encoder(SETTINGS)
    encoder.encode(busy(0), 0, True, True)
    made = 1
    while encoder.repeat(3_000 * made) is None:
        encoder.encode(busy(0), 3_000 * made, False)
        made += 1
        assert made < 30
    assert made == 17
    decoded = decode([encoder.encode(busy(0), 3_000 * 40, True, False)])
    assert psnr(decoded[0], busy(0).data) > 30
