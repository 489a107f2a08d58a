"""Errors of tasks that nobody awaits: one kind is quiet, all others are logged."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Coroutine
from typing import Any

import pytest
from aiortc.rtcsctptransport import RTCSctpTransport

from avatar_server.avatar.loop_errors import handle_loop_error

pytestmark = pytest.mark.anyio


async def abandon(work: Coroutine[Any, Any, Any]) -> None:
    """Let a task end by its error and be collected."""
    asyncio.get_running_loop().set_exception_handler(handle_loop_error)
    task = asyncio.ensure_future(work)
    while not task.done():  # noqa: ASYNC110
        await asyncio.sleep(0)
    del task
    gc.collect()


class Closed:
    """As much of an SCTP transport as sending over a closed DTLS transport needs."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self._RTCSctpTransport__transport = self
        self._local_port = self._remote_port = 5_000
        self._remote_verification_tag = 1

    def _RTCSctpTransport__log_debug(self, *args: object) -> None: ...

    async def _send_data(self, data: bytes) -> None:
        raise self.error


def sending(error: Exception) -> Coroutine[Any, Any, None]:
    from aiortc.rtcsctptransport import CookieAckChunk

    return RTCSctpTransport._send_chunk(Closed(error), CookieAckChunk())  # type: ignore[arg-type]


async def test_sctp_that_sends_to_a_viewer_who_left_is_quiet(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await abandon(sending(ConnectionError("Cannot send encrypted data, not connected")))
    assert [r for r in caplog.records if r.levelno > logging.DEBUG] == []


async def test_another_error_of_sctp_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    await abandon(sending(ValueError("a defect")))
    assert "never retrieved" in caplog.text
    assert "a defect" in caplog.text


async def test_a_connection_error_of_another_task_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ours() -> None:
        raise ConnectionError("the gateway is gone")

    await abandon(ours())
    assert "the gateway is gone" in caplog.text


async def test_what_is_no_task_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    handle_loop_error(loop, {"message": "odd", "exception": ConnectionError("x")})
    assert "odd" in caplog.text
