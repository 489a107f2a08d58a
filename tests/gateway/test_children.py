"""A child's output in the parent's log, and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time

import pytest

from avatar_server.gateway.children import Child, parse_entry
from avatar_server.observe.logging import JsonFormatter


def outputs_of(program: str, caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    async def scenario() -> None:
        child = await Child.start([sys.executable, "-c", program], "avatar", "s1")
        await child.wait()
        await child.reap()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(scenario())
    return [record for record in caplog.records if "children" in record.name]


def test_a_line_in_our_format_keeps_its_level_and_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    record = logging.makeLogRecord({"msg": "odd", "levelno": 30, "levelname": "WARNING"})
    record.turn = 7
    line = JsonFormatter("avatar").format(record)
    (found,) = outputs_of(f"print({line!r})", caplog)
    assert found.levelno == logging.WARNING
    assert found.getMessage() == "odd"
    assert found.__dict__["role"] == "avatar"
    assert found.__dict__["turn"] == 7
    assert found.__dict__["session"] == "s1"


def test_any_other_line_passes_with_the_childs_role(caplog: pytest.LogCaptureFixture) -> None:
    program = "import sys; print('100% done {}'); print('{\"a\": 1}', file=sys.stderr)"
    found = outputs_of(program, caplog)
    assert {record.getMessage() for record in found} == {"100% done {}", '{"a": 1}'}
    assert {record.levelno for record in found} == {logging.INFO}
    assert {record.__dict__["role"] for record in found} == {"avatar"}


def test_a_traceback_is_one_error(caplog: pytest.LogCaptureFixture) -> None:
    (found,) = outputs_of("def f(): raise ValueError('broken rig')\nf()", caplog)
    assert found.levelno == logging.ERROR
    assert found.getMessage() == "ValueError: broken rig"
    assert found.__dict__["exception"].startswith("Traceback")
    assert "in f" in found.__dict__["exception"]


def test_an_end_is_known_before_the_event_loop_has_been_told() -> None:
    """Else a spare that has just died is handed out as the next session's process."""

    async def scenario() -> None:
        child = await Child.start([sys.executable, "-c", "input()"], "avatar")
        assert child.alive
        os.kill(child.pid, signal.SIGKILL)
        give_up_at = time.monotonic() + 30.0
        while child.alive and time.monotonic() < give_up_at:
            time.sleep(0.01)  # noqa: ASYNC251 - the loop must not be given way to
        assert not child.alive
        assert await child.wait() == -signal.SIGKILL
        await child.reap()

    asyncio.run(scenario())


def test_a_line_without_end_is_dropped_and_the_next_one_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = outputs_of("print('x' * 1_000_000); print('after')", caplog)
    assert "dropped" in found[0].getMessage()
    assert found[-1].getMessage() == "after"


@pytest.mark.parametrize(
    "text", ["", "{", "{}", '{"level": "loud", "message": "x"}', '{"level": []}', "[1]", "{1: 2}"]
)
def test_what_is_not_our_format_is_recognised(text: str) -> None:
    assert parse_entry(text) is None


def test_a_field_named_like_a_records_own_does_no_harm() -> None:
    entry = parse_entry('{"level": "info", "message": "m", "name": "x", "args": 1, "msg": 2}')
    assert entry == (logging.INFO, "m", {})


def test_a_child_that_ignores_requests_is_killed_with_what_it_started() -> None:
    program = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(60)\n"
    )

    async def scenario() -> float:
        child = await Child.start([sys.executable, "-c", program], "avatar")
        await asyncio.sleep(1.0)
        started = time.monotonic()
        await child.end()
        assert not child.alive
        return time.monotonic() - started

    assert asyncio.run(scenario()) < 3.0


def test_a_command_that_does_not_exist_is_an_os_error() -> None:
    async def scenario() -> None:
        with pytest.raises(OSError, match="No such file"):
            await Child.start(["/no/such/program"], "avatar")

    asyncio.run(scenario())


def test_a_child_has_its_own_process_group_but_shares_our_session() -> None:
    """Linux weighs `nice` within a session only (autogroups)."""

    async def start() -> None:
        child = await Child.start([sys.executable, "-c", "import sys; sys.stdin.read()"], "avatar")
        try:
            assert os.getpgid(child.pid) == child.pid != os.getpgrp()
            assert os.getsid(child.pid) == os.getsid(0)
        finally:
            await child.end()

    asyncio.run(start())
