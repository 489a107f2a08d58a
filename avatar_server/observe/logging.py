"""Logs: one line an event, as text or JSON, with the session and turn it belongs to.

Every process logs to standard error. A child's lines are JSON, which the gateway reads and writes
again in the configured format.
Session and turn are context variables, so a line written deep inside a call still carries them.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO

from avatar_server.config import ObserveSettings

_session: ContextVar[str] = ContextVar("session", default="")
_turn: ContextVar[int | None] = ContextVar("turn", default=None)

_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "role"}


@contextmanager
def log_context(*, session: str | None = None, turn: int | None = None) -> Iterator[None]:
    """Lines logged inside, and in tasks started inside, carry this session and turn."""
    tokens = []
    if session is not None:
        tokens.append((_session, _session.set(session)))
    turn_token = _turn.set(turn) if turn is not None else None
    try:
        yield
    finally:
        if turn_token is not None:
            _turn.reset(turn_token)
        for variable, token in tokens:
            variable.reset(token)


def set_log_session(session: str) -> None:
    """All further lines of this context carry `session` (an avatar process has just one)."""
    _session.set(session)


def set_log_turn(turn: int | None) -> None:
    """All further lines of this context carry `turn`; None for none."""
    _turn.set(turn)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """What identifies the line: session, turn and whatever was passed as `extra`."""
    fields: dict[str, object] = {}
    if session := getattr(record, "session", "") or _session.get():
        fields["session"] = session
    turn = getattr(record, "turn", None)
    if turn is None:
        turn = _turn.get()
    if turn is not None:
        fields["turn"] = turn
    for key, value in vars(record).items():
        if key not in _OWN_FIELDS and key not in fields:
            fields[key] = value
    return fields


class TextFormatter(logging.Formatter):
    """`12:30:01.250 warning avatar   message session=… turn=…`."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        role = getattr(record, "role", self._role)
        line = f"{moment} {record.levelname.lower():<7} {role:<9} {record.getMessage()}"
        fields = _fields(record)
        exception = fields.pop("exception", None)
        for key, value in fields.items():
            line += f" {key}={value}"
        if record.exc_info:
            exception = self.formatException(record.exc_info)
        return f"{line}\n{exception}" if exception else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time`, `level`, `role`, `logger`, `message`, then the fields."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "role": getattr(record, "role", self._role),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["exception"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(entry, default=str, ensure_ascii=False)


class LineHandler(logging.Handler):
    """Writes to a stream; a reader that went away (a closed terminal) is no error."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._stream.write(self.format(record) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return


def setup_logging(
    settings: ObserveSettings, role: str, *, session: str = "", stream: IO[str] | None = None
) -> None:
    """Send this process's logs to `stream` (standard error), in the configured format.

    `role` names the process in each line: `gateway`, `avatar`, `inference`.
    """
    handler = LineHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(role) if settings.log_json else TextFormatter(role))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    level = getattr(logging, settings.log_level.upper())
    root.setLevel(level)
    # Libraries are quieter than we are: their "info" is one line a packet or a request.
    for name in ("aioice", "aiortc", "asyncio", "httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.getLogger("uvicorn.error").setLevel(max(level, logging.WARNING))
    if session:
        set_log_session(session)
