"""Pictures of avatars: drawn once by a process of their own, kept by content."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest

from avatar_server.avatars import AvatarSpec, VoiceSpec, find_avatars
from avatar_server.gateway.draw_preview import main as draw
from avatar_server.gateway.previews import Kind, Previews, folder_hash, media_type
from tests.gateway.support import eventually

DRAWER = """
import pathlib, sys
out = pathlib.Path(sys.argv[2])
calls = out.parent.parent / "calls"
calls.write_text((calls.read_text() if calls.exists() else "") + "x")
(out / "picture").write_bytes(b"\\x89PNG....")
(out / "preview").write_bytes(b"....ftypisom")
"""


def avatar_in(folder: Path) -> AvatarSpec:
    folder.mkdir(exist_ok=True)
    (folder / "avatar.yaml").write_text("title: A\n", encoding="utf-8")
    return AvatarSpec(name="ana", title="Ana", voice=VoiceSpec(name="v"), folder=folder)


def drawn(avatar: AvatarSpec, cache: Path, program: str = DRAWER) -> Previews:
    async def scenario() -> Previews:
        previews = Previews({avatar.name: avatar}, cache)
        previews.command = (sys.executable, "-c", program)
        assert previews.get("ana", Kind.PICTURE) is None
        previews.start()
        task = previews._task
        assert task is not None
        await eventually(task.done, "drawing ends")
        await previews.stop()
        return previews

    return asyncio.run(scenario())


def test_pictures_are_drawn_once_and_again_when_the_avatar_changes(tmp_path: Path) -> None:
    avatar, cache = avatar_in(tmp_path / "ana"), tmp_path / "cache"
    first = drawn(avatar, cache)
    picture = first.get("ana", Kind.PICTURE)
    assert picture is not None
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert first.get("nobody", Kind.PICTURE) is None
    drawn(avatar, cache)
    assert (tmp_path / "calls").read_text() == "x"
    (avatar.folder / "art.svg").write_text("<svg/>", encoding="utf-8")
    again = drawn(avatar, cache)
    assert (tmp_path / "calls").read_text() == "xx"
    assert again.get("ana", Kind.PREVIEW) is not None
    assert not picture.exists(), "pictures of earlier versions are deleted"


def test_an_avatar_that_cannot_be_drawn_has_no_picture(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    avatar = avatar_in(tmp_path / "ana")
    with caplog.at_level(logging.INFO):
        previews = drawn(avatar, tmp_path / "cache", "import sys; sys.exit('no rig')")
    assert previews.get("ana", Kind.PICTURE) is None
    assert "no rig" in caplog.text
    assert "ana could not be drawn" in caplog.text


def test_the_hash_changes_with_content_and_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    first = folder_hash(tmp_path)
    assert folder_hash(tmp_path) == first
    (tmp_path / "a").rename(tmp_path / "b")
    second = folder_hash(tmp_path)
    (tmp_path / "b").write_bytes(b"2")
    assert len({first, second, folder_hash(tmp_path)}) == 3


def test_pictures_and_films_are_told_by_their_first_bytes() -> None:
    assert media_type(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert media_type(b"RIFF\0\0\0\0WEBPVP8 ") == "image/webp"
    assert media_type(b"\0\0\0\x20ftypisom") == "video/mp4"
    with pytest.raises(ValueError, match="PNG"):
        media_type(b"<svg/>")


def test_a_shipped_avatar_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.nice", lambda increment: 0)
    folder = next(iter(find_avatars().values())).folder
    assert draw([str(folder), str(tmp_path)]) == 0
    assert media_type((tmp_path / "picture").read_bytes()).startswith("image/")
    assert media_type((tmp_path / "preview").read_bytes()).startswith(("image/", "video/"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["picture", "preview"]


def test_a_folder_that_is_no_avatar_is_told_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.nice", lambda increment: 0)
    (tmp_path / "nobody").mkdir()
    assert draw([str(tmp_path / "nobody"), str(tmp_path)]) == 1
    assert "nobody" in capsys.readouterr().err
