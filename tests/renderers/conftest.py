from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from renderers.contract import I420Frame, Pose
from renderers.preview import draw_rgb
from renderers.puppet import PuppetRenderer

AVATARS = Path(__file__).parents[2] / "assets" / "avatars"

Draw = Callable[[Pose], NDArray[np.uint8]]


def puppet_folders() -> list[Path]:
    return sorted(path.parent for path in AVATARS.glob("*/rig.yaml"))


@pytest.fixture(scope="session", params=puppet_folders(), ids=lambda path: path.name)
def renderer(request: pytest.FixtureRequest) -> Iterator[PuppetRenderer]:
    renderer = PuppetRenderer(request.param)
    yield renderer
    renderer.close()


@pytest.fixture
def luma(renderer: PuppetRenderer) -> Draw:
    def draw(pose: Pose) -> NDArray[np.uint8]:
        frame = I420Frame.empty(*renderer.size)
        renderer.draw(pose, frame)
        return frame.y.copy()

    return draw


@pytest.fixture
def mouth(renderer: PuppetRenderer) -> Draw:
    """The mouth's rectangle in RGB."""
    box = renderer.mouth_box

    def draw(pose: Pose) -> NDArray[np.uint8]:
        picture = draw_rgb(renderer, pose)
        return picture[box.y : box.y + box.height, box.x : box.x + box.width].copy()

    return draw
