"""How a child learns what it is, and that its parent is gone."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from avatar_server.config import settings_from_values
from avatar_server.processes import Bootstrap, bootstrap_line, plain_settings, read_bootstrap

CHILD = """
import sys, time
from avatar_server.processes import read_bootstrap, when_parent_ends
bootstrap = read_bootstrap()
when_parent_ends(lambda: print("alone", flush=True))
print(bootstrap.load_settings().http.port, flush=True)
if bootstrap.session == "wait":
    time.sleep(30)
"""


def start(session: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    settings = settings_from_values({"http": {"port": 4321}})
    assert process.stdin is not None
    process.stdin.write(
        bootstrap_line(Bootstrap(role="avatar", settings=plain_settings(settings), session=session))
    )
    process.stdin.flush()
    return process


def test_a_child_gets_its_settings_and_notices_that_its_parent_is_gone() -> None:
    with start("wait") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"4321\n"
        process.stdin.close()
        assert process.stdout.readline() == b"alone\n"
        process.kill()


def test_a_child_that_ends_before_its_parent_ends_cleanly() -> None:
    with start("") as process:
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_child_started_by_hand_says_how_it_is_started() -> None:
    with pytest.raises(SystemExit, match="avatar-server serve"):
        read_bootstrap(io.BytesIO(b""))


def test_secrets_reach_the_child_and_settings_survive_the_way() -> None:
    values = {
        "llm": {"engine": "openai", "base_url": "http://localhost:1/v1", "api_key": "s3cret"},
        "media": {
            "ice_servers": [{"urls": ["turn:t.example"], "username": "u", "credential": "word"}],
            "turn_secret": "shar3d",
            "udp_ports": "50000-50100",
            "public_address": "203.0.113.7",
        },
        "avatar_dirs": ["/somewhere"],
    }
    settings = settings_from_values(values)
    line = bootstrap_line(Bootstrap(role="inference", settings=plain_settings(settings)))
    again = read_bootstrap(io.BytesIO(line)).load_settings()
    assert again.model_dump() == settings.model_dump()
    assert again.llm.api_key is not None
    assert again.llm.api_key.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(settings)
    assert "shar3d" not in repr(settings)
