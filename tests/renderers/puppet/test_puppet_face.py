from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from renderers.contract import VISEMES, I420Frame, Pose, Viseme
from renderers.preview import viseme_pose
from renderers.puppet import PuppetRenderer

Draw = Callable[[Pose], NDArray[np.uint8]]

THEO = Path(__file__).parents[3] / "assets" / "avatars" / "theo"

LOOK_ALIKES = (Viseme.TH, Viseme.DD, Viseme.NN, Viseme.KK)


human_colours = pytest.mark.parametrize("renderer", [THEO], indirect=True, ids=["theo"])


def difference(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Mean absolute difference over the tenth of the pixels that differ most."""
    gap = np.abs(one.astype(np.int16) - other.astype(np.int16)).max(axis=-1).ravel()
    return float(np.sort(gap)[-gap.size // 10 :].mean())


def openness_px(picture: NDArray[np.uint8]) -> int:
    """From the upper lip's lower edge to the gloss of the lower lip, at the middle of the mouth.

    For faces of human colours. The edge is the first dark or tooth-white row; the gloss the
    brightest row below that is not tooth-white. Closed lips have some 5 px of lip between the two.
    """
    height, width = picture.shape[:2]
    middle = picture[:, width // 2 - 8 : width // 2 + 8].astype(np.float32).mean(axis=1)
    red, green, brightness = middle[:, 0], middle[:, 1], middle.mean(axis=1)
    tooth = (green > 130) & (red - green < 50)
    rows = np.arange(height)
    mouth = (rows > height // 4) & (rows < height * 9 // 10)
    edge = np.flatnonzero(((brightness < 70) | tooth) & mouth)
    first = int(edge[0]) if edge.size else int(np.where(mouth, brightness, 255).argmin())
    below = (rows > first + 2) & (rows < first + 56) & ~tooth
    return int(np.where(below, brightness, 0).argmax()) - first


def test_every_viseme_can_be_told_from_every_other(mouth: Draw) -> None:
    pictures = {viseme: mouth(viseme_pose(viseme)) for viseme in VISEMES}
    for one, other in itertools.combinations(VISEMES, 2):
        assert difference(pictures[one], pictures[other]) > 12, (one.name, other.name)


def test_the_tongue_tells_th_dd_nn_and_kk_apart(mouth: Draw) -> None:
    pictures = {viseme: mouth(viseme_pose(viseme)) for viseme in LOOK_ALIKES}
    for one, other in itertools.combinations(LOOK_ALIKES, 2):
        assert difference(pictures[one], pictures[other]) > 25, (one.name, other.name)


@human_colours
def test_pp_closes_the_lips_whatever_jaw_and_smile_do(mouth: Draw) -> None:
    for fields in ({}, {"smile": 1.0}, {"jaw": 0.3}):
        pose = Pose(**fields)  # type: ignore[arg-type]
        pose.visemes[Viseme.PP] = 1.0
        assert openness_px(mouth(pose)) <= 8, fields


@human_colours
def test_ou_shows_no_teeth(mouth: Draw) -> None:
    picture = mouth(viseme_pose(Viseme.OU)).astype(np.int16)
    white = (picture[..., 1] > 170) & (picture[..., 0] - picture[..., 1] < 40)
    assert white.sum() < 12


@human_colours
def test_the_mouth_opens_with_the_jaw(mouth: Draw) -> None:
    opened = [openness_px(mouth(Pose(jaw=jaw))) for jaw in np.linspace(0, 1, 9)]
    assert opened == sorted(opened)
    assert opened[0] <= 8
    assert opened[-1] >= 24


@human_colours
def test_aa_opens_with_its_weight(mouth: Draw) -> None:
    opened = []
    for weight in np.linspace(0, 1, 7):
        pose = Pose()
        pose.visemes[Viseme.AA] = weight
        opened.append(openness_px(mouth(pose)))
    assert opened == sorted(opened)
    assert opened[-1] >= 30


def test_a_wider_open_mouth_shows_more_of_its_dark_inside(mouth: Draw) -> None:
    def dark(jaw: float) -> int:
        picture = mouth(Pose(jaw=jaw))
        quarter = picture.shape[1] // 4  # Beside the chin there may be dark hair.
        return int((picture[:, quarter:-quarter].max(axis=-1) < 70).sum())

    shown = [dark(jaw) for jaw in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert shown == sorted(shown)
    assert shown[-1] > shown[0] + 300


FIELDS: dict[str, tuple[float, ...]] = {
    "jaw": (1.0,),
    "blink_left": (1.0,),
    "blink_right": (1.0,),
    "squint": (1.0,),
    "gaze_x": (-1.0, 1.0),
    "gaze_y": (-1.0, 1.0),
    "brow_left": (-1.0, 1.0),
    "brow_right": (-1.0, 1.0),
    "brow_inner": (-1.0, 1.0),
    "yaw": (-12.0, 12.0),
    "pitch": (-8.0, 8.0),
    "roll": (-8.0, 8.0),
    "breath": (1.0,),
    "sway_x": (-1.0, 1.0),
    "smile": (1.0,),
    "frown": (1.0,),
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_the_pose_is_seen(luma: Draw, name: str) -> None:
    rest = luma(Pose()).astype(np.int16)
    for value in FIELDS[name]:
        fields: dict[str, Any] = {name: value}
        moved = np.abs(luma(Pose(**fields)).astype(np.int16) - rest) > 12
        assert moved.sum() > 150, value


def test_a_wink_closes_one_eye(renderer: PuppetRenderer, luma: Draw) -> None:
    rest, wink = luma(Pose()).astype(np.int16), luma(Pose(blink_left=1.0)).astype(np.int16)
    changed = {}
    for side in ("left", "right"):
        box = getattr(renderer._rig.eyes, side).box
        view = np.s_[box.y : box.y + box.height, box.x : box.x + box.width]
        changed[side] = int((np.abs(wink[view] - rest[view]) > 12).sum())
    assert changed["left"] > 800
    assert changed["right"] == 0


@pytest.mark.parametrize(
    ("fields", "axis", "sign"),
    [
        ({"yaw": 8.0}, 0, 1),
        ({"yaw": -8.0}, 0, -1),
        ({"pitch": 6.0}, 1, -1),
        ({"pitch": -6.0}, 1, 1),
        ({"roll": 6.0}, 0, 1),
    ],
)
def test_the_eyes_move_as_the_contract_says(
    renderer: PuppetRenderer, luma: Draw, fields: dict[str, Any], axis: int, sign: int
) -> None:
    box = renderer._rig.eyes.left.box
    view = np.s_[box.y - 40 : box.y + box.height + 40, box.x - 40 : box.x + box.width + 40]
    rest, turned = (luma(pose)[view].astype(np.float64) for pose in (Pose(), Pose(**fields)))
    rest, turned = (picture - picture.mean() for picture in (rest, turned))
    correlation = np.fft.ifft2(np.fft.fft2(turned) * np.conj(np.fft.fft2(rest))).real
    row, column = np.unravel_index(correlation.argmax(), correlation.shape)
    shift = (column, row)[axis]
    size = correlation.shape[1 - axis]
    shift = shift - size if shift > size // 2 else shift
    assert shift * sign >= 4


def test_the_border_of_the_picture_never_moves(renderer: PuppetRenderer, luma: Draw) -> None:
    rest = luma(Pose())
    for pose in (
        Pose(yaw=12.0, pitch=8.0, roll=8.0, sway_x=1.0, breath=1.0),
        Pose(yaw=-12.0, pitch=-8.0, roll=-8.0, sway_x=-1.0),
    ):
        picture = luma(pose)
        for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
            assert np.array_equal(picture[edge], rest[edge])


def test_turning_joins_the_still_background_without_a_seam(renderer: PuppetRenderer) -> None:
    rest, turned = I420Frame.empty(*renderer.size), I420Frame.empty(*renderer.size)
    renderer.draw(Pose(), rest)
    region = renderer.draw(Pose(yaw=12.0, roll=8.0), turned)
    for x in (region.x, region.x + region.width):
        if 0 < x < renderer.size[0]:
            seams = [np.diff(f.y[:, x - 1 : x + 1].astype(np.int16)) for f in (rest, turned)]
            assert np.abs(seams[1] - seams[0]).max() <= 3


def test_no_part_of_a_turned_head_folds_over(renderer: PuppetRenderer) -> None:
    """Neighbouring points of the sampling map keep their order at the limits of every angle."""
    frame = I420Frame.empty(*renderer.size)
    for yaw, pitch, roll in itertools.product((-12.0, 0.0, 12.0), (-8.0, 0.0, 8.0), (-8.0, 8.0)):
        renderer.draw(Pose(yaw=yaw, pitch=pitch, roll=roll, jaw=1.0), frame)
        source = renderer._stage._mixer.source
        along_x = np.gradient(source, axis=2) / 8
        along_y = np.gradient(source, axis=1) / 8
        area = along_x[0] * along_y[1] - along_x[1] * along_y[0]
        assert area[2:-2, 2:-2].min() > 0, (yaw, pitch, roll)


def test_a_frame_of_another_size_is_refused(renderer: PuppetRenderer) -> None:
    with pytest.raises(ValueError, match="640x360"):
        renderer.draw(Pose(), I420Frame.empty(640, 360))


def test_light_follows_the_head(renderer: PuppetRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turned from the lamp at the viewer's left a face is darker than without its light, turned to
    the lamp or lifted it is brighter, and looking ahead it is as it was drawn."""

    def brightness(pose: Pose) -> float:
        frame = I420Frame.empty(*renderer.size)
        renderer.draw(Pose(yaw=-pose.yaw, pitch=-pose.pitch, roll=8.0), frame)
        renderer.draw(pose, frame)
        return float(frame.y[340:400, 560:720].mean())

    poses = [Pose(), Pose(yaw=10.0), Pose(yaw=-10.0), Pose(pitch=8.0)]
    lit = [brightness(pose) for pose in poses]
    monkeypatch.setattr(renderer._stage, "_light", None)
    renderer._stage._sampler.light(None)
    ahead, away, towards, lifted = (
        one - brightness(pose) for one, pose in zip(lit, poses, strict=True)
    )
    assert abs(ahead) < 0.5
    assert away < -1.5
    assert towards > 1.5
    assert lifted > 1.5
