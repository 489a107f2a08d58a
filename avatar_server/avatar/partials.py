"""Partial transcripts: what a viewer is saying, while they still say it."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.inference_client import Inference, JobEvent
from avatar_server.avatar.turn_taking import SAMPLE_RATE_HZ
from avatar_server.protocol.messages import Transcribe, Transcript

_MIN_SAMPLES = SAMPLE_RATE_HZ
# Recognition of less than a second is a guess.


class Partials:
    """Asks for one partial transcript after another, at most one at a time.

    Best effort: a job that inference refuses, or answers after the pause began, is forgotten.
    """

    def __init__(
        self,
        session: str,
        inference: Inference,
        interval_s: float,
        show: Callable[[str], None],
    ) -> None:
        """`interval_s`: from one question to the next; 0 for none. `show` gets each text."""
        self._session, self._inference = session, inference
        self._interval_s, self._show = interval_s, show
        self.allowed = True
        """False while the machine has more urgent things to do."""
        self._prefix = secrets.token_hex(3)
        self._count = 0
        self._job: str | None = None
        self._asked_at = 0.0

    def due(self, now: float, samples: int) -> bool:
        """Whether to ask at `now` (s), with `samples` of the utterance at hand."""
        return (
            self.allowed
            and self._interval_s > 0
            and self._job is None
            and samples >= _MIN_SAMPLES
            and now - self._asked_at >= self._interval_s
            and self._inference.available
        )

    def ask(self, pcm: NDArray[np.int16], now: float) -> None:
        """Recognise the utterance so far (16 kHz)."""
        self._count += 1
        self._asked_at = now
        job = self._job = f"partial-{self._prefix}-{self._count}"
        message = Transcribe(session=self._session, job=job, purpose="partial", pcm=pcm.tobytes())
        self._inference.submit(message, lambda event: self._on_event(job, event))

    def cancel(self) -> None:
        """The viewer pauses or is gone."""
        if self._job is not None:
            self._inference.cancel(self._job)
            self._job = None

    def _on_event(self, job: str, event: JobEvent) -> None:
        if job != self._job:
            return
        self._job = None
        if isinstance(event, Transcript) and event.text.strip():
            self._show(event.text)
