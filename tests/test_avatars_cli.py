"""`avatar-server avatar list`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from avatar_server.cli import app


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with a folder of avatars of its own, and none of the user's."""
    monkeypatch.setattr("avatar_server.avatars.data_dir", lambda: tmp_path / "none")
    (tmp_path / "avatars" / "mia").mkdir(parents=True)
    file = tmp_path / "own.yaml"
    file.write_text(f"avatar_dirs: ['{tmp_path / 'avatars'}']\n", encoding="utf-8")
    return file


def write_mia(config: Path, text: str) -> None:
    path = config.parent / "avatars" / "mia" / "avatar.yaml"
    path.write_text(text, encoding="utf-8")


def test_shipped_and_own_avatars_are_listed_as_json(config: Path) -> None:
    write_mia(config, "title: Mia\nvoice: {name: own-voice}\n")
    result = CliRunner().invoke(app, ["avatar", "list", "--json", "-c", str(config)])
    assert result.exit_code == 0
    listed = {entry["name"]: entry for entry in json.loads(result.stdout)["avatars"]}
    assert listed["theo"]["license"] == listed["vox"]["license"] == "Apache-2.0"
    assert listed["mia"] == {
        "name": "mia",
        "renderer": "puppet",
        "voice": "own-voice",
        "license": None,
    }


def test_the_table_says_which_voices_stand_in(config: Path) -> None:
    write_mia(config, "title: Mia\nvoice: {name: own-voice, fallbacks: [other]}\n")
    result = CliRunner().invoke(app, ["avatar", "list", "-c", str(config)])
    assert "own-voice, else other" in result.stdout


def test_the_table_says_where_no_licence_is_stated(config: Path) -> None:
    write_mia(config, "title: Mia\nvoice: {name: own-voice}\n")
    result = CliRunner().invoke(app, ["avatar", "list", "-c", str(config)])
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.splitlines() if "mia" in line]
    assert "not stated" in line


def test_a_broken_avatar_is_named_and_is_wrong_use(config: Path) -> None:
    write_mia(config, "title: Mia\n")
    result = CliRunner().invoke(app, ["avatar", "list", "--json", "-c", str(config)])
    assert result.exit_code == 2
    assert "avatar mia" in result.stderr
    assert result.stdout == ""
