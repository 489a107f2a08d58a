"""The last log lines, kept in memory for `avatar-server logs`."""

from __future__ import annotations

import json
import logging
from collections import deque
from typing import Any

from avatar_server.observe.logging import JsonFormatter

LINES = 5_000


class LogRing(logging.Handler):
    """A handler that remembers the last `LINES` lines as the JSON format writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter("gateway"))
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(json.loads(self.format(record)))
        except (ValueError, TypeError):
            return

    def lines(self, session: str | None = None, last: int = 200) -> list[dict[str, Any]]:
        """The last lines, oldest first; of one session only where one is named."""
        if last <= 0:
            return []
        found = [line for line in self._lines if session is None or line.get("session") == session]
        return found[-last:]
