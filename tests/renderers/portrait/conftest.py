from __future__ import annotations

from pathlib import Path

import matplotlib.cbook
import numpy as np
import pytest
from numpy.typing import NDArray

from avatar_server.models import ModelStore
from renderers.contract import Pose, Viseme
from renderers.portrait.compose import compose
from renderers.portrait.landmarks import Face, FaceFinder
from renderers.portrait.photo import read_photo
from renderers.portrait.rig import PortraitSpec, save_portrait
from renderers.preview import draw_rgb, viseme_pose
from renderers.puppet import PuppetRenderer

Picture = NDArray[np.uint8]

THEO = Path(__file__).parents[3] / "assets" / "avatars" / "theo"


@pytest.fixture(scope="session")
def hopper() -> Path:
    """An official photograph of Grace Hopper (US Navy, public domain), which comes with Matplotlib:
    one face of 200 px, from the front, with closed lips."""
    return Path(matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))


@pytest.fixture(scope="session")
def photo(hopper: Path) -> Picture:
    return read_photo(hopper)


@pytest.fixture(scope="session")
def models() -> Path:
    return ModelStore().path("face-mesh")


@pytest.fixture(scope="session")
def finder(models: Path) -> FaceFinder:
    return FaceFinder(models)


@pytest.fixture(scope="session")
def face(photo: Picture, finder: FaceFinder) -> Face:
    (face,) = finder.find(photo)
    return face


@pytest.fixture(scope="session")
def drawn() -> dict[str, Picture]:
    """A drawn head that passes for a photograph: at rest, saying "ah", and with lips apart."""
    renderer = PuppetRenderer(THEO)
    wide, apart = viseme_pose(Viseme.AA), Pose()
    wide.jaw = 1.0
    apart.visemes[Viseme.E] = 1.0
    poses = {"rest": Pose(), "open": wide, "apart": apart}
    pictures = {name: draw_rgb(renderer, pose) for name, pose in poses.items()}
    renderer.close()
    return pictures


@pytest.fixture(scope="session")
def portrait(
    tmp_path_factory: pytest.TempPathFactory, photo: Picture, face: Face, models: Path
) -> Path:
    """The folder of the photograph's portrait."""
    folder = tmp_path_factory.mktemp("portrait")
    scene = compose(photo, face, models)
    save_portrait(folder, PortraitSpec(), scene.picture, scene.points, scene.person)
    return folder


@pytest.fixture(scope="session")
def parted(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: dict[str, Picture],
    finder: FaceFinder,
    models: Path,
) -> Path:
    """The folder of a portrait whose mouth was a little open in the picture."""
    folder = tmp_path_factory.mktemp("parted")
    (face,) = finder.find(drawn["apart"])
    scene = compose(drawn["apart"], face, models)
    save_portrait(folder, PortraitSpec(mark=""), scene.picture, scene.points, scene.person)
    return folder
