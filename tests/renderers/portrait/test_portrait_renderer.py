"""What a portrait shows: closed lips, teeth, lids, and a background that stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from renderers.contract import I420Frame, Pose, Rect, Viseme
from renderers.portrait import PortraitError, PortraitRenderer
from renderers.portrait.geometry import eyes_of, head_of, lips_of
from renderers.preview import draw_rgb, viseme_pose
from renderers.testing import CHECKS, MakeRenderer, extreme_poses, varied_poses

Picture = NDArray[np.uint8]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("art")


@pytest.fixture(scope="module")
def renderer(portrait: Path) -> Iterator[PortraitRenderer]:
    renderer = PortraitRenderer(portrait)
    yield renderer
    renderer.close()


@pytest.fixture(scope="module")
def points(portrait: Path) -> NDArray[np.float32]:
    return np.asarray(np.load(portrait / "mesh.npy"), np.float32)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_portrait_keeps_the_contract(
    check: Callable[[MakeRenderer], None], portrait: Path, kept: Path
) -> None:
    # In a quarter of the pixels, for a quarter of the time.
    check(lambda: PortraitRenderer(portrait, width=640, height=360, cache=kept))


def luma(renderer: PortraitRenderer, pose: Pose) -> Picture:
    frame = I420Frame.empty(*renderer.size)
    renderer.draw(pose, frame)
    return frame.y.copy()


def along_mouth(picture: Picture, points: NDArray[np.float32], share: float = 0.5) -> Picture:
    """The pixels from above the lips to below them, in the middle `share` of the mouth: each column
    of the result runs down the face."""
    lips = lips_of(points)
    s = np.linspace(-share, share, 41) * lips.half
    t = np.arange(-0.45 * abs(lips.nose), 0.5 * lips.chin)
    x, y = lips.axes.back(s[None, :], t[:, None])
    found = cv2.remap(picture, x.astype(np.float32), y.astype(np.float32), cv2.INTER_LINEAR)
    return np.asarray(found)


def test_at_rest_it_is_the_photograph(renderer: PortraitRenderer, portrait: Path) -> None:
    """Sharp lips and open eyes, not redrawn ones."""
    picture = np.asarray(cv2.imread(str(portrait / "picture.png")))[..., ::-1].astype(int)
    shown = draw_rgb(renderer, Pose()).astype(int)
    box = renderer.mouth_box
    part = np.s_[box.y : box.y + box.height, box.x : box.x + box.width]
    assert np.abs(picture[part] - shown[part]).mean() < 4.0


def test_what_is_outside_the_region_never_changes(renderer: PortraitRenderer) -> None:
    rest = luma(renderer, Pose())
    region = renderer.region
    outside = np.ones(rest.shape, bool)
    outside[region.y : region.y + region.height, region.x : region.x + region.width] = False
    assert outside.mean() > 0.3
    for pose in (*varied_poses(12), *extreme_poses()):
        assert np.array_equal(luma(renderer, pose)[outside], rest[outside])


def test_the_region_ends_softly(renderer: PortraitRenderer) -> None:
    """Its rim shows what it shows at rest, however far the head is turned."""
    rest = luma(renderer, Pose())
    x, y, width, height = renderer.region
    for pose in (Pose(yaw=30.0), Pose(roll=30.0, sway_x=1.0), Pose(pitch=-30.0, breath=1.0)):
        shown = luma(renderer, pose)
        for rim in (np.s_[y : y + height, x], np.s_[y : y + height, x + width - 1]):
            assert np.array_equal(shown[rim], rest[rim])


@pytest.mark.parametrize("viseme", [Viseme.AA, Viseme.OH, Viseme.E])
def test_beside_the_jaw_the_background_stays(
    renderer: PortraitRenderer, points: NDArray[np.float32], viseme: Viseme
) -> None:
    pose = viseme_pose(viseme)
    pose.jaw = 1.0
    moved = np.abs(luma(renderer, pose).astype(int) - luma(renderer, Pose())) > 3
    head = head_of(points)
    ys, xs = np.nonzero(moved)
    s, t = head.axes.along(xs.astype(np.float32), ys.astype(np.float32))
    assert np.abs(s).max() < 0.54 * head.width
    # Nose and eyes are pinned.
    assert t.min() > 0.08 * head.height


DARK = 47
"""Luma of the inside of a mouth. The line between this photograph's lips is hardly as dark."""


def opened(renderer: PortraitRenderer, pose: Pose, points: NDArray[np.float32]) -> NDArray[np.int_]:
    """How many pixels of dark each of 41 columns shows, from corner to corner."""
    return np.asarray((along_mouth(luma(renderer, pose), points, 1.0) < DARK).sum(axis=0))


def test_lips_are_closed_for_p_b_and_m(
    renderer: PortraitRenderer, points: NDArray[np.float32]
) -> None:
    """Nothing dark opens; saying "ah" it does."""
    rest, pressed, wide = (
        opened(renderer, pose, points)
        for pose in (Pose(), viseme_pose(Viseme.PP), viseme_pose(Viseme.AA))
    )
    assert (pressed <= rest + 1).all()
    assert np.median(wide) >= 5
    line = along_mouth(luma(renderer, Pose()), points, 0.8).astype(int).min(axis=0)
    closed = along_mouth(luma(renderer, viseme_pose(Viseme.PP)), points, 0.8).astype(int)
    assert (closed.min(axis=0) >= line - 12).all()


def test_closing_for_p_b_and_m_wins_over_an_open_jaw(
    renderer: PortraitRenderer, points: NDArray[np.float32]
) -> None:
    line = along_mouth(luma(renderer, Pose()), points).astype(int).min(axis=0)
    pose = viseme_pose(Viseme.PP)
    pose.jaw = 0.15
    pressed = along_mouth(luma(renderer, pose), points).astype(int)
    assert (pressed.min(axis=0) >= line - 16).mean() > 0.9


def mouth_colours(renderer: PortraitRenderer, pose: Pose, points: NDArray[np.float32]) -> Picture:
    picture = draw_rgb(renderer, pose)
    return np.stack([along_mouth(picture[..., c].copy(), points, 0.35) for c in range(3)], axis=-1)


def pale(colours: Picture) -> int:
    """Pixels of teeth: bright, and much less red than skin and lips."""
    red, green, blue = (colours[..., c].astype(int) for c in range(3))
    return int(((green > 120) & (red - blue < 55)).sum())


def test_teeth_show_where_a_sound_needs_them(
    renderer: PortraitRenderer, points: NDArray[np.float32]
) -> None:
    shown = {
        viseme: pale(mouth_colours(renderer, viseme_pose(viseme), points))
        for viseme in (Viseme.PP, Viseme.FF, Viseme.SS, Viseme.E, Viseme.OU)
    }
    assert shown[Viseme.PP] == 0
    assert shown[Viseme.FF] > 20
    assert shown[Viseme.E] > shown[Viseme.FF]
    assert shown[Viseme.SS] > 20
    assert shown[Viseme.OU] < shown[Viseme.FF] / 2


def test_o_and_u_are_rounder_than_a(
    renderer: PortraitRenderer, points: NDArray[np.float32]
) -> None:
    """Dark opens over less of the mouth's width."""
    wide, oh, ou = (
        int((opened(renderer, viseme_pose(viseme), points) >= 3).sum())
        for viseme in (Viseme.AA, Viseme.OH, Viseme.OU)
    )
    assert wide > oh >= ou > 0
    assert ou < 0.85 * wide


def test_a_blink_covers_the_eye_and_does_not_squeeze_it(
    renderer: PortraitRenderer, points: NDArray[np.float32]
) -> None:
    rest, shut = luma(renderer, Pose()), luma(renderer, Pose(blink_left=1.0, blink_right=1.0))
    for eye in eyes_of(points):
        x, y = (round(value) for value in eye.axes.origin)
        iris = np.s_[y - 7 : y + 3, x - 6 : x + 6]
        assert shut[iris].mean() > rest[iris].mean() + 30
        # The brow, and the skin well below the eye, stay.
        brow = np.s_[y + round(eye.brow) - 14 : y + round(eye.brow) - 4, x - 20 : x + 20]
        assert np.abs(shut[brow].astype(int) - rest[brow]).mean() < 2.0


def test_one_eye_blinks_alone(renderer: PortraitRenderer, points: NDArray[np.float32]) -> None:
    rest, wink = luma(renderer, Pose()), luma(renderer, Pose(blink_left=1.0))
    middle = round(head_of(points).axes.origin[0])
    moved = np.abs(rest.astype(int) - wink) > 3
    assert moved[:, : middle - 10].sum() > 300
    assert moved[:, middle + 10 :].sum() == 0


def test_a_turn_moves_the_nose_more_than_the_outline(
    renderer: PortraitRenderer, points: NDArray[np.float32]
) -> None:
    rest, turned = luma(renderer, Pose()), luma(renderer, Pose(yaw=12.0))

    def shift_at(index: int) -> float:
        """How far a patch around a point of the mesh went, to the right."""
        x, y = (round(float(value)) for value in points[index, :2])
        patch = rest[y - 18 : y + 18, x - 18 : x + 18]
        around = turned[y - 24 : y + 24, x - 48 : x + 48]
        match = cv2.matchTemplate(around, patch, cv2.TM_CCOEFF_NORMED)
        return float(cv2.minMaxLoc(match)[3][0] - 30)

    assert 6 <= shift_at(4) <= 22
    assert abs(shift_at(93)) <= 8
    assert abs(shift_at(323)) <= 8


def test_a_mouth_that_was_apart_rests_closed(parted: Path) -> None:
    renderer = PortraitRenderer(parted)
    mesh = np.asarray(np.load(parted / "mesh.npy"), np.float32)
    assert lips_of(mesh).parted > 5
    picture = np.asarray(cv2.imread(str(parted / "picture.png")))[..., ::-1]
    shown = draw_rgb(renderer, Pose())
    before, after = (
        pale(np.stack([along_mouth(p[..., c].copy(), mesh, 0.4) for c in range(3)], axis=-1))
        for p in (picture, shown)
    )
    assert before > 100
    assert after < 0.5 * before
    renderer.close()


def test_the_mark_is_drawn_and_can_be_left_out(portrait: Path, tmp_path: Path) -> None:
    plain = copied(portrait, tmp_path, mark="")
    marked, bare = PortraitRenderer(portrait), PortraitRenderer(plain)
    differ = luma(marked, Pose()) != luma(bare, Pose())
    ys, xs = np.nonzero(differ)
    assert len(ys) > 500
    assert ys.min() > 0.9 * 720
    assert xs.max() < 0.2 * 1280
    # A screen of 16:10 filled with the picture shows 1152 of 1280 columns.
    assert xs.min() >= (1280 - 1152) / 2
    region = marked.region
    assert not differ[region.y : region.y + region.height, region.x : region.x + region.width].any()
    marked.close()
    bare.close()


def copied(portrait: Path, tmp_path: Path, **spec: object) -> Path:
    folder = tmp_path / "portrait"
    folder.mkdir()
    for path in portrait.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    if spec:
        (folder / "portrait.yaml").write_text(yaml.safe_dump(spec))
    return folder


@pytest.mark.parametrize("size", [(640, 360), (1920, 1080)])
def test_other_sizes_show_the_same(
    renderer: PortraitRenderer, portrait: Path, size: tuple[int, int]
) -> None:
    other = PortraitRenderer(portrait, width=size[0], height=size[1])
    for pose in (Pose(), viseme_pose(Viseme.AA), Pose(blink_left=1.0, yaw=6.0)):
        small = cv2.resize(draw_rgb(other, pose), (640, 360), interpolation=cv2.INTER_AREA)
        same = cv2.resize(draw_rgb(renderer, pose), (640, 360), interpolation=cv2.INTER_AREA)
        assert np.abs(small.astype(int) - same).mean() < 3.0
    other.close()


def test_a_size_of_another_shape_is_refused(portrait: Path) -> None:
    with pytest.raises(PortraitError, match="set a video size of the same shape"):
        PortraitRenderer(portrait, width=960, height=720)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("portrait.yaml", None, "cannot read .*portrait.yaml"),
        ("portrait.yaml", b"mark: [1]", "mark"),
        ("portrait.yaml", b"marks: no", "marks"),
        ("mesh.npy", b"not a mesh", "mesh|allow_pickle|pickle"),
        ("picture.png", b"not a picture", "picture.png is not a picture"),
        ("person.png", None, "cannot read .*person.png"),
    ],
)
def test_a_damaged_folder_is_named(
    portrait: Path, tmp_path: Path, file: str, content: bytes | None, message: str
) -> None:
    folder = copied(portrait, tmp_path)
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(PortraitError, match=message):
        PortraitRenderer(folder)


def test_a_mesh_of_other_points_is_refused(portrait: Path, tmp_path: Path) -> None:
    folder = copied(portrait, tmp_path)
    np.save(folder / "mesh.npy", np.zeros((5, 3), np.float32))
    with pytest.raises(PortraitError, match="not a mesh of 468 points"):
        PortraitRenderer(folder)


def test_movement_can_be_made_smaller(portrait: Path, tmp_path: Path) -> None:
    still = PortraitRenderer(copied(portrait, tmp_path, movement=0.0))
    frame = I420Frame.empty(*still.size)
    still.draw(Pose(), frame)
    rest = frame.data.copy()
    assert still.draw(Pose(yaw=10.0, roll=5.0, sway_x=1.0, breath=1.0), frame) == Rect(0, 0, 0, 0)
    assert np.array_equal(frame.data, rest)
    still.close()
