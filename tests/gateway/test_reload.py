"""Reading configuration and avatars anew, with viewers connected."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from avatar_server.avatars import AvatarSpec, find_avatars, load_avatar
from avatar_server.config import settings_from_values
from avatar_server.gateway.reload import changed_settings
from tests.gateway.serving import Server, StartServer, run_cli
from tests.gateway.support import OFFER, SDP

AVATAR = "title: {title}\nrenderer: puppet\nvoice: {{name: piper-joe}}\n"


def make(folder: Path, name: str, title: str, persona: str) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "avatar.yaml").write_text(AVATAR.format(title=title), encoding="utf-8")
    (folder / name / "persona.md").write_text(persona, encoding="utf-8")


def eventually(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def avatars(tmp_path: Path) -> Path:
    folder = tmp_path / "avatars"
    make(folder, "ann", "Ann", "You are Ann.")
    make(folder, "bob", "Bob", "You are Bob.")
    return folder


@pytest.fixture
def server(
    tmp_path: Path, avatars: Path, start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> Server:
    monkeypatch.setenv("REAL_AVATARS", "1")
    config = tmp_path / "server.yaml"
    config.write_text(f"avatar_dirs: [{avatars}]\n", encoding="utf-8")
    running: Server = start("--config", str(config), "--sessions", "3")
    return running


def titles(server: Server) -> dict[str, str]:
    found = httpx.get(f"{server.url}/v1/avatars").json()
    return {one["name"]: one["title"] for one in found if one["name"] in ("ann", "bob", "cleo")}


def watched(server: Server, avatar: str) -> str:
    made = httpx.post(f"{server.url}/v1/sessions", json={"avatar": avatar}, timeout=20)
    assert made.status_code == 201, made.text
    session = str(made.json()["id"])
    joined = httpx.post(f"{server.url}/v1/sessions/{session}/viewers", content=OFFER, headers=SDP)
    assert joined.status_code == 201, joined.text
    return session


def test_a_reload_changes_avatars_and_drops_no_viewer(
    tmp_path: Path, server: Server, avatars: Path
) -> None:
    session = watched(server, "ann")
    before = httpx.get(f"{server.url}/v1/sessions/{session}").json()
    on = ("--on", server.url)

    make(avatars, "ann", "Anna", "You are Anna.")
    make(avatars, "cleo", "Cleo", "You are Cleo.")
    (avatars / "bob" / "avatar.yaml").unlink()
    code, output = run_cli(tmp_path, "reload", *on, "--json")
    assert code == 0, output
    told = json.loads(output)
    assert told == {
        "added": ["cleo"],
        "changed": ["ann"],
        "removed": ["bob"],
        "sessions_told": 1,
        "needs_restart": [],
    }
    assert titles(server) == {"ann": "Anna", "cleo": "Cleo"}
    eventually(lambda: "now told 'You are Anna.'" in server.text(), "the running session is told")
    after = httpx.get(f"{server.url}/v1/sessions/{session}").json()
    assert (after["pid"], after["viewer_count"], after["restarts"]) == (before["pid"], 1, 0)
    assert httpx.post(f"{server.url}/v1/sessions", json={"avatar": "bob"}).status_code == 404
    watched(server, "cleo")

    # What cannot be used changes nothing, and is said.
    (avatars / "ann" / "avatar.yaml").write_text("title: [", encoding="utf-8")
    code, output = run_cli(tmp_path, "reload", *on)
    assert code == 1
    assert "Nothing was changed" in output
    assert "avatar ann" in output
    assert titles(server) == {"ann": "Anna", "cleo": "Cleo"}
    watched(server, "ann")

    config = tmp_path / "server.yaml"
    make(avatars, "ann", "Ann", "You are Ann.")
    config.write_text(f"avatar_dirs: [{avatars}]\nllm: {{max_reply_sentences: 1}}\n", "utf-8")
    code, output = run_cli(tmp_path, "reload", *on)
    assert code == 0, output
    assert "next start on: llm.max_reply_sentences." in output
    config.write_text("no_such_setting: 1\n", encoding="utf-8")
    code, output = run_cli(tmp_path, "reload", *on)
    assert code == 1
    assert "no_such_setting" in output
    assert "Traceback" not in server.text() + output


def test_sighup_reloads_too_and_mistakes_are_in_the_log(server: Server, avatars: Path) -> None:
    make(avatars, "ann", "Anna", "You are Anna.")
    os.kill(server.process.pid, signal.SIGHUP)
    eventually(lambda: titles(server)["ann"] == "Anna", "the new title")
    (avatars / "ann" / "avatar.yaml").write_text("title: [", encoding="utf-8")
    os.kill(server.process.pid, signal.SIGHUP)
    eventually(lambda: "nothing was reloaded: avatar ann" in server.text(), "the mistake")
    assert server.process.poll() is None
    assert titles(server)["ann"] == "Anna"
    assert "Traceback" not in server.text()


def test_every_shipped_avatar_reaches_its_process_as_it_was_read() -> None:
    avatars = find_avatars()
    assert len(avatars) >= 2
    for avatar in avatars.values():
        sent = json.loads(json.dumps(avatar.as_json()))
        assert AvatarSpec.model_validate(sent) == avatar


def test_routes_reach_the_process_too(tmp_path: Path) -> None:
    make(tmp_path, "ann", "Ann", "You are Ann.")
    with (tmp_path / "ann" / "avatar.yaml").open("a", encoding="utf-8") as file:
        file.write(
            "routes:\n- name: hours\n  examples: [when open, opening hours, till when]\n"
            "  tool: {url: 'https://shop.example/hours', headers: {X-Key: 'env:SHOP'}}\n"
        )
    avatar = load_avatar(tmp_path / "ann")
    assert AvatarSpec.model_validate(json.loads(json.dumps(avatar.as_json()))) == avatar


def test_settings_that_differ_are_named() -> None:
    before = settings_from_values({"llm": {"model": "a"}})
    after = settings_from_values({"llm": {"model": "b"}, "http": {"port": 9}})
    assert changed_settings(before, after) == ["http.port", "llm.model"]
    assert changed_settings(before, before) == []
