"""What the event loop does with errors of tasks that nobody awaits."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

logger = logging.getLogger(__name__)

_SCTP_FILE = "rtcsctptransport.py"


def handle_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler for `loop.set_exception_handler`.

    aiortc's SCTP sends from tasks of its own. Where the viewer's transport closes first, each of
    them ends by a `ConnectionError` that nobody retrieves: the viewer has left, and no more is to
    be said. Everything else is logged as ever.
    """
    if _is_sctp_after_goodbye(context):
        logger.debug("SCTP had something to send to a viewer who has left")
        return
    loop.default_exception_handler(context)


def _is_sctp_after_goodbye(context: dict[str, Any]) -> bool:
    task = context.get("future") or context.get("task")
    if not isinstance(context.get("exception"), ConnectionError) or not isinstance(
        task, asyncio.Task
    ):
        return False
    code = getattr(task.get_coro(), "cr_code", None)
    return str(getattr(code, "co_filename", "")).endswith(_SCTP_FILE)
