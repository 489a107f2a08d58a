"""Log lines: the same facts as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from avatar_server.config import ObserveSettings
from avatar_server.observe.logging import log_context, set_log_turn, setup_logging


@pytest.fixture(autouse=True)
def _restore_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


def logged(json_lines: bool, level: str = "info") -> tuple[io.StringIO, logging.Logger]:
    stream = io.StringIO()
    settings = ObserveSettings(log_json=json_lines, log_level=level)  # type: ignore[arg-type]
    setup_logging(settings, "avatar", stream=stream)
    return stream, logging.getLogger("avatar_server.test")


def test_a_text_line_has_time_level_role_message_and_fields() -> None:
    stream, log = logged(json_lines=False)
    with log_context(session="abc", turn=3):
        log.info("heard %d words", 4, extra={"ms": 12})
    line = stream.getvalue().rstrip("\n")
    assert line.split(None, 1)[1] == "info    avatar    heard 4 words session=abc turn=3 ms=12"


def test_a_json_line_has_the_same_and_is_one_line() -> None:
    stream, log = logged(json_lines=True)
    with log_context(session="abc", turn=3):
        log.warning("two\nlines", extra={"viewer": "v"})
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    entry = json.loads(lines[0])
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "warning",
        "role": "avatar",
        "logger": "avatar_server.test",
        "message": "two\nlines",
        "session": "abc",
        "turn": 3,
        "viewer": "v",
    }


def test_session_and_turn_end_with_their_context() -> None:
    stream, log = logged(json_lines=False)
    with log_context(session="outer"):
        with log_context(turn=1):
            log.info("a")
        with log_context(session="inner"):
            log.info("b")
        log.info("c")
    set_log_turn(None)
    log.info("d")
    fields = [line.split(None, 3)[3] for line in stream.getvalue().splitlines()]
    assert fields == ["a session=outer turn=1", "b session=inner", "c session=outer", "d"]


@pytest.mark.parametrize("json_lines", [True, False])
def test_an_error_comes_with_its_traceback(json_lines: bool) -> None:
    stream, log = logged(json_lines)
    try:
        raise ValueError("the reason")
    except ValueError:
        log.exception("it failed")
    text = stream.getvalue()
    assert "ValueError: the reason" in text
    assert "Traceback" in text


def test_less_important_lines_are_left_out_and_libraries_are_quieter() -> None:
    stream, log = logged(json_lines=False, level="warning")
    log.info("unimportant")
    assert stream.getvalue() == ""
    stream, log = logged(json_lines=False, level="info")
    logging.getLogger("aioice").info("a packet came")
    logging.getLogger("aioice").warning("a packet was odd")
    assert "a packet came" not in stream.getvalue()
    assert "a packet was odd" in stream.getvalue()


def test_a_terminal_that_went_away_is_no_error() -> None:
    stream, log = logged(json_lines=False)
    stream.close()
    log.info("nobody reads this")
