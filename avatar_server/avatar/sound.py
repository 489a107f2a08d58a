"""The session's sound: pulled, encoded once and handed to all viewers, block by block.

A thread that wakes for each block of 20 ms finds its caches cold and pays for that three times what
Opus takes, and so does the event loop after it. So the thread that makes pictures, awake anyway,
takes the sound up to its next frame along, and the sound's own thread sleeps. Where pictures do
not come, which the event loop sees without waking for it, that thread makes what is due by itself:
sound never waits for a picture.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.encoder import OpusEncoder
from avatar_server.avatar.fanout import Fanout
from avatar_server.avatar.pacing import AUDIO_BLOCK, AUDIO_RATE_HZ, AudioPacer
from avatar_server.avatar.packets import EncodedAudio, EncodedVideo
from avatar_server.clock import Clock

logger = logging.getLogger(__name__)

_MAX_AHEAD_S = 0.04
"""How long before it is due sound may be made: what was made can no longer be cut."""
_GRACE_S = 0.005
"""How long before it is due a block is made with the pictures, which take some time themselves."""
_LOOK_UP_S = 0.25
"""How often the sound's own thread looks up while pictures take the sound along."""
_TELL_STALL_S = 10.0
"""Stalls come in crowds: one line in the log for all of them in this time."""
_PULL_AT_ONCE = 50


class SoundSource(Protocol):
    """Where sound comes from."""

    def pull_audio(self, samples: int) -> NDArray[np.int16]:
        """The next `samples` of mono 48 kHz sound, int16. Called in order, by one thread at a time.

        Media time goes on whatever happens: what could not be sent in time is pulled and dropped.
        """
        ...


class Sound:
    """Makes each block once, whichever thread comes for it. Times are media time in seconds."""

    def __init__(
        self, source: SoundSource, encoder: OpusEncoder, fanout: Fanout, clock: Clock
    ) -> None:
        self._source = source
        self._encoder = encoder
        self._fanout = fanout
        self._clock = clock
        self._pacer = AudioPacer()
        self._lock = threading.Lock()
        self._taken_along = False
        self._wake = threading.Event()
        self._skipped = 0
        self._told_stall_at = float("-inf")

    @property
    def skipped_ms(self) -> int:
        """Sound that was left out since the thread did not get to run."""
        return self._skipped * 1000 // AUDIO_RATE_HZ

    def send_ahead(self, frame_time: float, period_s: float, video: Sequence[EncodedVideo]) -> None:
        """Hand on a frame's pictures with the sound up to the next frame, all in one.

        At low frame rates that would be more than may be made ahead, and none is.
        """
        ahead = period_s + _GRACE_S
        taken_along = ahead <= _MAX_AHEAD_S
        # Under the lock: packets made earlier must be published earlier.
        with self._lock:
            made = self._make(frame_time + ahead) if taken_along else []
            self._fanout.publish(*made, *video)
            self._taken_along = taken_along

    def hurry(self) -> None:
        """Pictures do not come (now): the sound's own thread takes over. Of any thread."""
        self._taken_along = False
        self._wake.set()

    def run(
        self,
        media_time: Callable[[], float],
        stopped: Callable[[], bool],
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """The sound's own thread, until `stopped`; call `hurry` then. `wait` (s) is for tests."""
        wait = wait or self._wake.wait
        while not stopped():
            self._wake.clear()
            with self._lock:
                self._fanout.publish(*self._make(media_time()))
            due_in = self._pacer.due() - media_time()
            wait(max(due_in, _LOOK_UP_S) if self._taken_along else max(0.0, due_in))

    def _make(self, until: float) -> list[EncodedAudio]:
        """The packets of the blocks due by `until`."""
        packets = []
        while (tick := self._pacer.take(until)) is not None:
            if tick.skipped:
                self._discard(tick.skipped)
            pcm = self._source.pull_audio(AUDIO_BLOCK)
            if self._fanout.viewers:
                packet = self._encoder.encode(pcm, tick.number)
                if packet is not None:
                    packets.append(packet)
        return packets

    def _discard(self, blocks: int) -> None:
        self._skipped += blocks * AUDIO_BLOCK
        now = self._clock.now()
        if now - self._told_stall_at > _TELL_STALL_S:
            self._told_stall_at = now
            logger.warning(
                "the audio thread did not get to run for %d ms, which are left out (%d ms so far): "
                "this machine has too much to do",
                blocks * 20,
                self.skipped_ms,
            )
        while blocks > 0:
            step = min(blocks, _PULL_AT_ONCE)
            self._source.pull_audio(step * AUDIO_BLOCK)
            blocks -= step
