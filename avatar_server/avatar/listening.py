"""Listening to one viewer: sound in pieces of any size becomes voice-activity frames.

The sound of the last half minute is kept, so that an utterance can be taken out from before it was
noticed as one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.turn_taking import FRAME_SAMPLES, SAMPLE_RATE_HZ

log = logging.getLogger(__name__)

_SILENT_PEAK = 16
# -66 dBFS: a muted microphone or digital silence; the model need not be asked.
_REBASE_S = 0.5
# A gap of this length in the stream is a pause (a muted track sends nothing), not jitter.
_FOLLOW = 0.002
# Share of the clock difference taken up per piece of 20 ms: 10 s, slower than jitter, faster
# than two sound cards drift apart.


class SpeechDetector(Protocol):
    """A voice-activity model with a state of its own for one stream of sound."""

    def probability(self, frame: NDArray[np.int16]) -> float:
        """Probability of speech in the next 512 samples at 16 kHz."""
        ...

    def reset(self) -> None:
        """Forget what was heard."""
        ...


class Executor(Protocol):
    """Runs calls one after another, off the event loop."""

    def submit(self, call: Callable[[], None]) -> bool:
        """Run `call` soon; False where too much is waiting and it will not be run."""
        ...


@dataclass(frozen=True, slots=True)
class VoiceFrame:
    """A frame that ends at sample `end` of the viewer's stream, received at the moment `at`."""

    end: int
    at: float
    probability: float


class SampleRing:
    """The newest samples of a stream, addressed by their number since its beginning."""

    def __init__(self, capacity: int) -> None:
        self._data = np.zeros(capacity, np.int16)
        self._total = 0

    @property
    def total(self) -> int:
        """How many samples there were so far."""
        return self._total

    def add(self, pcm: NDArray[np.int16]) -> None:
        """Append `pcm`; the oldest samples give way."""
        capacity = len(self._data)
        kept = pcm[-capacity:]
        first = (self._total + len(pcm) - len(kept)) % capacity
        head = min(len(kept), capacity - first)
        self._data[first : first + head] = kept[:head]
        self._data[: len(kept) - head] = kept[head:]
        self._total += len(pcm)

    def take(self, start: int, end: int) -> NDArray[np.int16]:
        """Samples `start`..`end`, a copy; what has not come or is gone is left out."""
        capacity = len(self._data)
        end = min(end, self._total)
        start = max(start, self._total - capacity, 0)
        if start >= end:
            return np.zeros(0, np.int16)
        return self._data[np.arange(start, end) % capacity]


class StreamClock:
    """Maps a stream's samples to moments, without the network's jitter.

    Sound that comes early moves the mapping at once (it cannot have been recorded later than it
    came); sound that comes late moves it slowly, as clocks drift; after a gap it starts anew.
    """

    def __init__(self) -> None:
        self._base: float | None = None
        self._last = 0.0

    def arrived(self, total: int, now: float) -> None:
        """`total` samples have come by `now` (s)."""
        base = now - total / SAMPLE_RATE_HZ
        if self._base is None or base < self._base or base - self._base > _REBASE_S:
            self._base = base
        else:
            self._base += (base - self._base) * _FOLLOW

    def at(self, sample: int) -> float:
        """The moment (s) of `sample`; never before that of an earlier call."""
        self._last = max(self._last, (self._base or 0.0) + sample / SAMPLE_RATE_HZ)
        return self._last


class Listener:
    """One viewer's sound. Called on the event loop; the model runs on the executor.

    `deliver` gets each frame, in order, on the executor's thread. Frames that the executor does
    not take (the machine is overloaded) are left out: the next one takes their place in time.
    The detector is built on the executor too, at the first frame, since loading takes a while.
    """

    def __init__(
        self,
        build_detector: Callable[[], SpeechDetector],
        executor: Executor,
        deliver: Callable[[VoiceFrame], None],
        keep_s: float,
    ) -> None:
        self._build_detector = build_detector
        self._detector: SpeechDetector | None = None
        self._executor = executor
        self._deliver = deliver
        self._ring = SampleRing(round(keep_s * SAMPLE_RATE_HZ))
        self._clock = StreamClock()
        self._deaf = False
        self._framed = 0
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Frames that were not looked at because too many waited."""
        return self._dropped

    def add(self, pcm: NDArray[np.int16], now: float) -> None:
        """`pcm` (int16, mono, 16 kHz, any length) came at `now` (s)."""
        self._ring.add(pcm)
        self._clock.arrived(self._ring.total, now)
        while self._ring.total - self._framed >= FRAME_SAMPLES:
            frame = self._ring.take(self._framed, self._framed + FRAME_SAMPLES)
            self._framed += FRAME_SAMPLES
            end, at = self._framed, self._clock.at(self._framed)
            if len(frame) < FRAME_SAMPLES:
                continue
            if not self._executor.submit(partial(self._look, frame, end, at)):
                self._dropped += 1

    def take(self, start: int, end: int) -> NDArray[np.int16]:
        """Samples `start`..`end` of the stream, as far as they are kept."""
        return self._ring.take(start, end)

    def close(self) -> None:
        """Nothing more is delivered, and a megabyte of sound does not wait for the collector."""
        self._deaf = True
        self._deliver = lambda frame: None
        self._ring = SampleRing(0)

    def _look(self, frame: NDArray[np.int16], end: int, at: float) -> None:
        if self._deaf:
            return
        if self._detector is None:
            try:
                self._detector = self._build_detector()
            except Exception:
                self._deaf = True
                log.exception("no voice-activity model: this viewer can write, but is not heard")
                return
        detector = self._detector
        quiet = int(np.abs(frame.astype(np.int32)).max()) <= _SILENT_PEAK
        self._deliver(VoiceFrame(end, at, 0.0 if quiet else detector.probability(frame)))
