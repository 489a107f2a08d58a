"""`avatar-server avatar make`."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import cv2
import matplotlib.cbook
import numpy as np
import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from avatar_server import avatar_make_cli
from avatar_server.avatar.face import load_renderer
from avatar_server.avatars import find_avatars, load_avatar
from avatar_server.cli import app
from renderers.portrait import PortraitRenderer

RIGHT = "--i-have-the-right"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's avatars."""
    monkeypatch.setenv("AVATAR_SERVER_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "avatars"


@pytest.fixture(scope="session")
def photograph() -> Path:
    return Path(matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))


def make(photo: Path, *options: str, name: str = "grace", say: str | None = None) -> Result:
    arguments = ["avatar", "make", str(photo), "--name", name, "--voice", "piper-joe", *options]
    return CliRunner().invoke(app, arguments, input=say)


def test_an_avatar_is_made_found_and_drawn(home: Path, photograph: Path, tmp_path: Path) -> None:
    (tmp_path / "facts.md").write_text("I know a lot about compilers.\n")
    result = make(
        photograph,
        RIGHT,
        "--title",
        "Grace",
        "--facts",
        str(tmp_path / "facts.md"),
        "--license",
        "CC0-1.0",
    )
    assert result.exit_code == 0, result.output
    assert str(home / "grace") in result.stdout
    assert "a little soft" in result.stderr
    spec = find_avatars()["grace"]
    assert (spec.title, spec.renderer, spec.voice.name) == ("Grace", "portrait", "piper-joe")
    assert spec.facts == ["I know a lot about compilers."]
    assert "computer program" in spec.persona
    assert spec.consent is not None
    assert spec.consent.confirmed_on == date.today()
    assert "right to use the picture" in spec.consent.statement
    strip = cv2.imread(str(home / "grace" / "preview.png"))
    assert strip.shape == (480, 1920, 3)
    film = (home / "grace" / "preview.mp4").read_bytes()
    assert film[4:8] == b"ftyp"
    assert len(film) > 20_000
    renderer = load_renderer(spec, 1280, 720)
    assert isinstance(renderer, PortraitRenderer)
    renderer.close()
    listed = CliRunner().invoke(app, ["avatar", "list", "--json"])
    assert {
        "name": "grace",
        "renderer": "portrait",
        "voice": "piper-joe",
        "license": "CC0-1.0",
    } in json.loads(listed.stdout)["avatars"]
    # Nothing of the photograph's file itself is kept, and nothing is left of the work.
    assert {path.name for path in (home / "grace").iterdir()} == {
        "avatar.yaml",
        "portrait.yaml",
        "picture.png",
        "person.png",
        "mesh.npy",
        "persona.md",
        "facts.md",
        "preview.png",
        "preview.mp4",
    }
    assert [path.name for path in home.parent.iterdir()] == ["avatars"]

    again = make(photograph, RIGHT)
    assert again.exit_code == 2
    assert "already" in again.stderr
    assert load_avatar(home / "grace").title == "Grace"
    other = make(photograph, RIGHT, "--force", "--no-mark", "--title", "Other")
    assert other.exit_code == 0, other.output
    assert load_avatar(home / "grace").title == "Other"
    assert yaml.safe_load((home / "grace" / "portrait.yaml").read_text())["mark"] == ""
    assert [path.name for path in home.parent.iterdir()] == ["avatars"]


def test_without_the_right_nothing_is_made(home: Path, photograph: Path) -> None:
    result = make(photograph)
    assert result.exit_code == 2
    assert "--i-have-the-right" in result.stderr
    assert not home.exists()


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_a_maker_who_is_asked_may_say_no(
    home: Path, photograph: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(avatar_make_cli, "_can_ask", lambda: True)
    result = make(photograph, say=answer)
    assert result.exit_code == 2
    assert "Do you have the right to use this picture" in result.stdout
    assert "Nothing was made" in result.stderr
    assert not home.exists()


def test_a_maker_who_is_asked_may_say_yes(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next thing that is wrong is then said."""
    monkeypatch.setattr(avatar_make_cli, "_can_ask", lambda: True)
    result = make(tmp_path / "none.jpg", say="y\n")
    assert result.exit_code == 1
    assert "Cannot read" in result.stderr


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Grace Hopper", [], "use lower-case letters"),
        ("../grace", [], "use lower-case letters"),
        ("theo", [], "There is an avatar theo already"),
        ("grace", ["--voice", "darth"], "There is no voice 'darth'"),
        ("grace", ["--persona", "none.md"], "--persona: cannot read none.md"),
    ],
)
def test_wrong_use_is_said_before_anything_is_read(
    home: Path, tmp_path: Path, name: str, options: list[str], message: str
) -> None:
    result = make(tmp_path / "none.jpg", RIGHT, *options, name=name)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not home.exists()


def test_a_picture_that_will_not_do_is_refused_and_leaves_nothing(
    home: Path, tmp_path: Path
) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (300, 300, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "noise.png"), noise)
    result = make(tmp_path / "noise.png", RIGHT)
    assert result.exit_code == 1
    assert "No face was found" in result.stderr
    assert not home.exists()


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, photograph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_text("a file")
    monkeypatch.setenv("AVATAR_SERVER_DATA", str(tmp_path / "data"))
    result = make(photograph, RIGHT)
    assert result.exit_code == 2
    assert f"Cannot write to {tmp_path / 'data'}" in result.stderr
