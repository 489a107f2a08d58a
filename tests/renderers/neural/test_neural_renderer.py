"""The neural renderer, with a network whose result can be computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from renderers.contract import I420Frame, Pose, Rect
from renderers.neural import Base, Drawn, NeuralError, NeuralRenderer, PictureFaces, load_manifest
from renderers.sound import recorded
from renderers.testing import (
    check_conformance,
    check_determinism,
    check_dirty_rectangle,
    check_fills_whole_frame,
)
from renderers.warp import i420_to_rgb
from tests.renderers.neural.tiny_network import (
    COLOUR,
    FACE,
    loudness,
    network_bytes,
    photograph,
    write_avatar,
)

RATE = 48_000


class Voice:
    """Noise that comes and goes, as a `Sound`; seconds in `silent` are still."""

    def __init__(self, seconds: float = 8.0, silent: tuple[float, float] = (0.0, 0.0)) -> None:
        at = np.arange(round(seconds * RATE)) / RATE
        rng = np.random.default_rng(4)
        level = 6_000 * np.abs(np.sin(np.pi * at / 0.3))
        self.pcm = (rng.standard_normal(len(at)) * level).astype(np.int16)
        self.pcm[round(silent[0] * RATE) : round(silent[1] * RATE)] = 0

    def __call__(self, first: int, count: int) -> NDArray[np.int16]:
        return recorded(self.pcm)(first, count)


class Elsewhere:
    """Stands in for another process: remembers what was asked, gives what the test puts in."""

    ahead = 3

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, NDArray[np.float32]]] = []
        self.drawn: dict[int, NDArray[np.uint8]] = {}
        self.closed = False

    def ask(self, number: int, index: int, mel: NDArray[np.float32], left_s: float) -> None:
        assert 0 < left_s < 0.11
        self.asked.append((number, index, mel))

    def take(self, number: int) -> Drawn | None:
        there = [n for n in self.drawn if n <= number]
        return Drawn(max(there), self.drawn[max(there)]) if there else None

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_avatar(tmp_path_factory.mktemp("avatars") / "tester")


def speaking(folder: Path, **size: int) -> NeuralRenderer:
    renderer = NeuralRenderer(folder, **size)
    renderer.hear(Voice())
    renderer.faces_here()
    return renderer


def drawn(renderer: NeuralRenderer, time_s: float) -> tuple[I420Frame, Rect]:
    frame = I420Frame.empty(*renderer.size)
    return frame, renderer.draw(Pose(time_s=time_s), frame)


def test_it_keeps_the_contract(folder: Path) -> None:
    check_conformance(lambda: speaking(folder))


def test_the_mouth_has_the_colour_of_the_sound(folder: Path) -> None:
    renderer = speaking(folder)
    levels = []
    for time_s in (1.0, 1.1, 1.2):
        frame, _ = drawn(renderer, time_s)
        rgb = i420_to_rgb(frame)[450, 640].astype(float)
        mel = renderer._asked[round(time_s * 30)].mel
        expected = np.array(COLOUR[::-1]) * loudness(mel) * 255
        assert np.abs(rgb - expected).max() < 4
        levels.append(loudness(mel))
    assert max(levels) - min(levels) > 0.02
    renderer.close()


def test_only_the_lower_half_of_the_face_changes_and_its_edges_are_soft(tmp_path: Path) -> None:
    folder = write_avatar(tmp_path / "flat")
    cv2.imwrite(str(folder / "photo.png"), np.full((720, 1280, 3), 200, np.uint8))
    renderer = speaking(folder)
    silent, _ = drawn(NeuralRenderer(folder), 0.0)
    drawn(renderer, 1.0)
    frame, dirty = drawn(renderer, 1.1)
    assert dirty == renderer.mouth_box
    assert FACE["y"] < dirty.y < FACE["y"] + FACE["height"] / 2
    assert dirty.y + dirty.height == FACE["y"] + FACE["height"]
    difference = cv2.absdiff(frame.y, silent.y).astype(int)
    outside = difference.copy()
    outside[dirty.y : dirty.y + dirty.height, dirty.x : dirty.x + dirty.width] = 0
    assert outside.max() == 0
    assert difference[450, 640] > 20
    # From one pixel to the next the new face never comes in by more than a twentieth of it. (At
    # half the face this network has an edge of its own.)
    across, down = np.abs(np.diff(difference[450])), np.abs(np.diff(difference[400:, 640]))
    assert max(across.max(), down.max()) <= 0.05 * difference.max() + 2
    renderer.close()


def test_in_silence_the_picture_is_left_alone_and_the_network_rests(folder: Path) -> None:
    renderer = NeuralRenderer(folder)
    source = Elsewhere()
    renderer.faces_from(source, 30)
    renderer.hear(Voice(silent=(0.0, 8.0)))
    before, first = drawn(renderer, 1.0)
    after, dirty = drawn(renderer, 1.0 + 1 / 30)
    assert first == Rect(0, 0, 1280, 720)
    assert dirty.empty
    assert (before.data == after.data).all()
    assert source.asked == []
    renderer.close()
    assert source.closed


def test_the_mouth_begins_and_ends_with_the_sound_and_is_never_later(folder: Path) -> None:
    renderer = NeuralRenderer(folder)
    renderer.faces_here()
    voice = Voice(4.0)
    for pause in ((0.0, 1.0), (1.6, 4.0)):
        voice.pcm[round(pause[0] * RATE) : round(pause[1] * RATE)] = 0
    renderer.hear(voice)
    strengths = {}
    for number in range(15, 75):
        drawn(renderer, number / 30)
        asked = renderer._asked.get(number)
        strengths[number / 30] = (asked.strength, loudness(asked.mel)) if asked else (0.0, 0.0)
    seen = [at for at, (strength, _) in strengths.items() if strength > 0]
    full = [at for at, (strength, _) in strengths.items() if strength == 1]
    # From when the sound comes into the window of 200 ms until it has left it.
    assert 0.75 < seen[0] < full[0] < 1.0
    assert 1.5 < full[-1] < seen[-1] < 1.65
    # The window is centred 100 ms ahead of the frame: the loudest of it is where the sound is.
    middle = [level for at, (_, level) in strengths.items() if 1.0 < at < 1.4]
    assert min(middle) > max(level for at, (_, level) in strengths.items() if at < 0.8)
    renderer.close()


def test_faces_are_asked_for_once_each_and_ahead_of_time(folder: Path) -> None:
    renderer, source = NeuralRenderer(folder), Elsewhere()
    renderer.faces_from(source, 30)
    renderer.hear(Voice())
    for number in range(30, 40):
        drawn(renderer, number / 30)
    assert [n for n, _, _ in source.asked] == list(range(31, 43))
    assert all(mel.shape == (80, 16) for _, _, mel in source.asked)


def test_a_face_is_asked_for_anew_when_its_sound_changes(folder: Path) -> None:
    # An interruption: what was to be said is not said.
    renderer, source, voice = NeuralRenderer(folder), Elsewhere(), Voice()
    renderer.faces_from(source, 30)
    renderer.hear(voice)
    drawn(renderer, 1.0)
    voice.pcm[round(1.15 * RATE) :] = 0
    drawn(renderer, 1.0 + 1 / 30)
    assert [n for n, _, _ in source.asked] == [31, 32, 33, 32, 33, 34]
    assert source.asked[4][2].mean() < source.asked[2][2].mean() - 0.5


def test_speech_that_comes_in_late_is_asked_for_from_the_next_frame_on(folder: Path) -> None:
    renderer, source = NeuralRenderer(folder), Elsewhere()
    renderer.faces_from(source, 30)
    voice = Voice()
    unknown, voice.pcm = voice.pcm, np.zeros(0, np.int16)
    renderer.hear(voice)
    drawn(renderer, 1.0)
    voice.pcm = unknown
    drawn(renderer, 1.0 + 1 / 30)
    assert [n for n, _, _ in source.asked] == [32, 33, 34]


def test_a_face_that_is_not_there_in_time_is_the_one_before(folder: Path) -> None:
    renderer, source = NeuralRenderer(folder), Elsewhere()
    renderer.faces_from(source, 30)
    renderer.hear(Voice())
    white, black = (np.full((96, 96, 3), level, np.uint8) for level in (255, 0))
    drawn(renderer, 1.0)
    source.drawn[31] = white
    shown, _ = drawn(renderer, 31 / 30)
    assert renderer.missed == 0
    assert shown.y[450, 640] > 220
    held, dirty = drawn(renderer, 32 / 30)
    assert (held.data == shown.data).all()
    assert dirty.empty
    assert renderer.missed == 1
    source.drawn[33] = black
    fresh, _ = drawn(renderer, 33 / 30)
    assert fresh.y[450, 640] < 30
    assert renderer.missed == 1


def test_a_mouth_without_new_faces_does_not_stay_open(folder: Path) -> None:
    renderer, source = NeuralRenderer(folder), Elsewhere()
    renderer.faces_from(source, 30)
    renderer.hear(Voice())
    drawn(renderer, 1.0)
    source.drawn[31] = np.zeros((96, 96, 3), np.uint8)
    picture, _ = drawn(NeuralRenderer(folder), 0.0)
    frames = {number: drawn(renderer, number / 30)[0] for number in range(31, 45)}
    assert frames[38].y[450, 640] < 30
    assert (frames[44].data == picture.data).all()
    assert renderer.missed == 13


def test_a_network_that_draws_the_picture_itself_leaves_no_seam(folder: Path) -> None:
    renderer = NeuralRenderer(folder)
    renderer.faces_from(PictureFaces(renderer.base, 256), 30)
    renderer.hear(Voice())
    picture, _ = drawn(NeuralRenderer(folder), 0.0)
    drawn(renderer, 1.0)
    shown, _ = drawn(renderer, 31 / 30)
    assert renderer.missed == 0
    assert cv2.absdiff(shown.y, picture.y).mean() < 0.5
    smooth = cv2.absdiff(shown.y[350:500, 600:680], picture.y[350:500, 600:680])
    assert smooth.max() <= 3


# --- pictures ---------------------------------------------------------------------------------


def test_a_clip_goes_back_and_forth_or_begins_again(tmp_path: Path) -> None:
    clip = tmp_path / "frames"
    clip.mkdir()
    for n in range(5):
        cv2.imwrite(str(clip / f"{n}.png"), np.full((720, 1280, 3), 40 + 30 * n, np.uint8))
    for loop, expected in (
        ("back-and-forth", [0, 1, 2, 3, 4, 3, 2, 1, 0, 1]),
        ("restart", [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]),
    ):
        folder = write_avatar(tmp_path / loop, picture=None, clip=str(clip), clip_fps=10, loop=loop)
        renderer = NeuralRenderer(folder, cache=tmp_path / "cache")
        seen = [int(drawn(renderer, n / 10)[0].y[0, 0]) for n in range(10)]
        order = sorted(set(seen))
        assert [order.index(level) for level in seen] == expected
        _, same = drawn(renderer, 0.95)
        assert same.empty
        _, other = drawn(renderer, 1.0)
        assert other == Rect(0, 0, 1280, 720)


def test_the_face_follows_a_clips_boxes_without_changing_its_size(tmp_path: Path) -> None:
    clip = tmp_path / "frames"
    clip.mkdir()
    boxes = []
    for n in range(4):
        cv2.imwrite(str(clip / f"{n}.png"), np.full((720, 1280, 3), 90, np.uint8))
        boxes.append({"x": 400 + 20 * n, "y": 200, "width": 200 + (n % 2) * 8, "height": 240})
    folder = write_avatar(tmp_path / "a", picture=None, clip=str(clip), face=boxes, clip_fps=10)
    base = Base(load_manifest(folder), (1280, 720))
    assert len({(base.box(n).width, base.box(n).height) for n in range(4)}) == 1
    centres = [base.box(n).x + base.box(n).width / 2 for n in range(4)]
    assert np.allclose(centres, [500, 524, 540, 564], atol=2)
    for check in (check_dirty_rectangle, check_determinism, check_fills_whole_frame):
        check(lambda: speaking(folder))


def test_a_film_is_decoded_once_and_shared(tmp_path: Path) -> None:
    film = tmp_path / "clip.mp4"
    import av

    with av.open(str(film), "w") as container:
        stream: Any = container.add_stream("libx264", rate=20)
        stream.width, stream.height, stream.pix_fmt = 640, 360, "yuv420p"
        for n in range(6):
            picture = np.full((360, 640, 3), 40 * n, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode())
    face = {"x": 250, "y": 90, "width": 140, "height": 180}
    folder = write_avatar(tmp_path / "a", picture=None, clip=str(film), face=face)
    cache = tmp_path / "cache"
    first = Base(load_manifest(folder), (1280, 720), cache)
    (kept,) = cache.glob("clip-*.npy")
    stamp = kept.stat().st_ino
    second = Base(load_manifest(folder), (1280, 720), cache)
    assert kept.stat().st_ino == stamp
    assert len(first) == len(second) == 6
    assert first.fps == second.fps == 20
    assert first.box(0) == second.box(0) == Rect(500, 180, 280, 360)
    assert (first.frame(5).data == second.frame(5).data).all()
    assert first.frame(5).y.mean() > 150 > first.frame(1).y.mean()


def test_a_picture_of_another_shape_covers_the_video_and_the_face_goes_with_it(
    tmp_path: Path,
) -> None:
    folder = write_avatar(tmp_path / "a", face={"x": 800, "y": 700, "width": 400, "height": 500})
    square = np.full((2_000, 2_000, 3), 60, np.uint8)
    square[700:1_200, 800:1_200] = 220
    cv2.imwrite(str(folder / "photo.png"), square)
    base = Base(load_manifest(folder), (1280, 720))
    box = base.box(0)
    assert (box.x, box.y) == (512, 168)
    assert (box.width, box.height) == (256, 320)
    y = base.frame(0).y
    assert y[box.y + 3 : box.y + box.height - 3, box.x + 3 : box.x + box.width - 3].min() > 180
    assert y[box.y - 5, box.x] < 80
    assert (base.faces(96)[0][5:90, 5:90] > 200).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"face": None}, "face: Field required"),
        ({"face": {"x": 1_100, "y": 10, "width": 300, "height": 300}}, "ends at 1400, 310"),
        ({"face": {"x": 10, "y": 10, "width": 20, "height": 30}}, "20x30 pixels.*at least 48"),
        ({"picture": None}, "either 'picture' or 'clip'"),
        ({"picture": "lost.jpg"}, "picture: there is no .*lost.jpg"),
        ({"network": "lost.onnx"}, "network: there is no .*lost.onnx"),
        ({"picture": "lips.onnx"}, "lips.onnx: not a picture"),
        ({"picture": None, "clip": "lips.onnx"}, "lips.onnx: not a film"),
        ({"fether": 0.1}, "fether: Extra inputs"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    folder = write_avatar(tmp_path / "a", **change)
    with pytest.raises(NeuralError, match=says):
        NeuralRenderer(folder)


def test_a_manifest_that_is_missing_or_no_mapping_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NeuralError, match=r"neural\.yaml: cannot be read"):
        NeuralRenderer(tmp_path)
    (tmp_path / "neural.yaml").write_text(yaml.safe_dump(["a"]), encoding="utf-8")
    with pytest.raises(NeuralError, match="the file"):
        NeuralRenderer(tmp_path)


def test_a_network_that_cannot_be_used_is_told_when_it_is_to_run(tmp_path: Path) -> None:
    folder = write_avatar(tmp_path / "a", network_bytes(face_channels=3))
    renderer = NeuralRenderer(folder)
    with pytest.raises(NeuralError, match=r"lips\.onnx"):
        renderer.faces_here()
    # The picture is still there.
    assert drawn(renderer, 0.0)[1] == Rect(0, 0, 1280, 720)
    assert photograph().shape == (720, 1280, 3)
