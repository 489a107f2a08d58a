"""The thread on which voice activity is looked for.

A frame costs about 0.6 ms of CPU, every 32 ms for each viewer who may speak. On the event loop,
which also carries every viewer's packets, that would add up; the model releases the interpreter
lock while it runs, so a thread takes it off.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

_MAX_WAITING = 128
# Four seconds of one viewer's frames. What is older is of no use to turn-taking.


class Worker:
    """Runs calls in order on one thread; refuses new ones while too many wait."""

    def __init__(self, name: str = "vad", max_waiting: int = _MAX_WAITING) -> None:
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(max_waiting)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], None]) -> bool:
        """Run `call` after those before it; False where the queue is full or the worker closed."""
        if self._closed:
            return False
        try:
            self._queue.put_nowait(call)
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """End the thread once the running call is done; waiting calls are dropped."""
        if self._closed:
            return
        self._closed = True
        while True:
            try:
                self._queue.get_nowait()
            except queue.Empty:
                break
        self._queue.put(None)
        # A call takes a millisecond; a thread that is stuck must not keep the process from ending.
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            try:
                call()
            except Exception:
                log.exception("voice activity failed on a frame")
