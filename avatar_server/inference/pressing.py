"""Work that what is done ahead of need makes way for: the recognition of a viewer's words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator


class Pressing:
    """Counts such work, and tells `changed` when some begins (True) and when none is left (False).

    One event loop's.
    """

    def __init__(self, changed: Callable[[bool], None]) -> None:
        self._changed = changed
        self._count = 0

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Around a piece of such work."""
        self._count += 1
        if self._count == 1:
            self._changed(True)
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._changed(False)
