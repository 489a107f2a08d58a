"""Finding the face, and why a photograph is refused: each reason with its own sentence."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from renderers.portrait.checks import measure, remarks, the_face
from renderers.portrait.landmarks import Face, FaceFinder
from renderers.portrait.photo import PhotoError

Picture = NDArray[np.uint8]


def resized(picture: Picture, scale: float) -> Picture:
    small = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.uint8)


def blurred(picture: Picture, sigma_px: float) -> Picture:
    return np.asarray(cv2.GaussianBlur(picture, (0, 0), sigma_px), np.uint8)


def turned(face: Face, yaw: float = 0.0, pitch: float = 0.0) -> Face:
    """The mesh turned in space, in degrees."""
    a, b = math.radians(yaw), math.radians(pitch)
    about_y = np.array([[math.cos(a), 0, math.sin(a)], [0, 1, 0], [-math.sin(a), 0, math.cos(a)]])
    about_x = np.array([[1, 0, 0], [0, math.cos(b), -math.sin(b)], [0, math.sin(b), math.cos(b)]])
    middle = face.points.mean(axis=0)
    moved: NDArray[np.float32] = ((face.points - middle) @ (about_x @ about_y).T + middle).astype(
        np.float32
    )
    return Face(moved, face.score)


def test_a_photograph_from_the_front_will_do(photo: Picture, face: Face) -> None:
    assert the_face(photo, [face]) is face
    look = measure(photo, face)
    assert look.height_px == pytest.approx(201, abs=8)
    assert abs(look.yaw) < 5
    assert abs(look.pitch) < 5
    assert look.gap < 0.06


def test_the_mesh_lies_on_the_features(photo: Picture, face: Face) -> None:
    left_eye, right_eye = face.points[[33, 133], :2].mean(axis=0), face.points[[362, 263], :2]
    assert np.hypot(*(left_eye - (222, 191))) < 8
    assert np.hypot(*(right_eye.mean(axis=0) - (305, 187))) < 8
    assert np.hypot(*(face.points[13, :2] - (267, 276))) < 8


def test_a_face_is_found_in_a_corner_of_a_large_picture(photo: Picture, finder: FaceFinder) -> None:
    large = np.full((1800, 2400, 3), 120, np.uint8)
    large[1150:1750, 1850:2362] = photo
    (face,) = finder.find(large)
    assert np.hypot(*(face.points[13, :2] - (1850 + 267, 1150 + 276))) < 10


def test_a_picture_without_a_face(photo: Picture, finder: FaceFinder) -> None:
    flag = np.ascontiguousarray(photo[:, :150])
    with pytest.raises(PhotoError, match="No face was found"):
        the_face(flag, finder.find(flag))


def test_two_faces(photo: Picture, finder: FaceFinder) -> None:
    pair = np.hstack([photo, photo])
    with pytest.raises(PhotoError, match="There are 2 faces"):
        the_face(pair, finder.find(pair))


def test_a_small_face_in_the_background_is_left_out(photo: Picture, finder: FaceFinder) -> None:
    crowd = np.full((600, 900, 3), 120, np.uint8)
    crowd[:, :512] = photo
    small = resized(photo, 0.3)
    crowd[: small.shape[0], 600 : 600 + small.shape[1]] = small
    faces = finder.find(crowd)
    assert len(faces) == 2
    assert the_face(crowd, faces).height == pytest.approx(201, abs=10)


def test_a_face_that_is_too_small(photo: Picture, finder: FaceFinder) -> None:
    small = resized(photo, 0.36)
    with pytest.raises(PhotoError, match=r"too small: 7[0-9] pixels"):
        the_face(small, finder.find(small))


def test_a_blurred_face(photo: Picture, finder: FaceFinder) -> None:
    soft = blurred(photo, 5.0)
    with pytest.raises(PhotoError, match="out of focus"):
        the_face(soft, finder.find(soft))


@pytest.mark.parametrize("yaw", [-25.0, 25.0])
def test_a_face_turned_to_the_side(photo: Picture, face: Face, yaw: float) -> None:
    with pytest.raises(PhotoError, match=r"turned to the side by 2[2-9] degrees"):
        the_face(photo, [turned(face, yaw=yaw)])


@pytest.mark.parametrize(("pitch", "way"), [(-24.0, "up"), (24.0, "down")])
def test_a_face_that_looks_up_or_down(photo: Picture, face: Face, pitch: float, way: str) -> None:
    with pytest.raises(PhotoError, match=f"looks {way} by 2"):
        the_face(photo, [turned(face, pitch=pitch)])


def test_a_tilted_head_is_found_and_refused(photo: Picture, finder: FaceFinder) -> None:
    height, width = photo.shape[:2]
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), 28, 1.0)
    tilted = cv2.warpAffine(photo, matrix, (width, height), borderMode=cv2.BORDER_REPLICATE)
    rgb = np.asarray(tilted, np.uint8)
    with pytest.raises(PhotoError, match=r"tilted by (2[5-9]|3[0-3]) degrees"):
        the_face(rgb, finder.find(rgb))


def test_an_open_mouth(drawn: dict[str, Picture], finder: FaceFinder) -> None:
    the_face(drawn["rest"], finder.find(drawn["rest"]))
    with pytest.raises(PhotoError, match="The mouth is open"):
        the_face(drawn["open"], finder.find(drawn["open"]))


def test_all_reasons_are_given_at_once(photo: Picture, finder: FaceFinder) -> None:
    bad = blurred(resized(photo, 0.36), 2.0)
    with pytest.raises(PhotoError) as caught:
        the_face(bad, finder.find(bad))
    assert len(str(caught.value).splitlines()) == 2


def test_what_could_be_better_is_said(photo: Picture, face: Face) -> None:
    look = measure(photo, face)
    (soft,) = remarks(look)
    assert "a little soft" in soft
    assert remarks(look._replace(height_px=400)) == []
    (teeth,) = remarks(look._replace(height_px=400, gap=0.15))
    assert "teeth" in teeth
