"""One clause of a reply: its sound as it comes in, its words, its mouth movements."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from avatar_server.avatar.pitch import CONTEXT_SAMPLES, pitch_per_10_ms
from avatar_server.protocol.messages import Word
from renderers.contract import VisemeSpan

SAMPLE_RATE_HZ = 48_000
ENERGY_SAMPLES = 480
# 10 ms: finer than a video frame, so the mouth can follow a syllable's rise.

_SECONDS_PER_CHAR = 0.065
# English speech at some 15 characters a second, for voices that report no word times.


class Clip:
    """A clause's sound, filled at one end and played at the other.

    `start` is the media position (samples at 48 kHz) of its first sample, once it is scheduled;
    each underrun moves it. Words are timed by what was played, so that no underrun can make the
    captions wrong.
    """

    def __init__(
        self,
        index: int,
        text: str,
        words: Sequence[Word],
        visemes: Sequence[VisemeSpan],
        emotion: str = "",
    ) -> None:
        self.index = index
        self.emotion = emotion
        self.text = text
        self.visemes = tuple(visemes)
        self.words = tuple(words) if words else _estimated_words(text)
        self.start: int | None = None
        self.received = 0
        self.played = 0
        self.complete = False
        self.starved = False
        self.begun = False
        self._chunks: deque[NDArray[np.int16]] = deque()
        self._unmeasured: NDArray[np.int16] = np.zeros(0, np.int16)
        self._measured = 0
        self._energies: list[NDArray[np.float32]] = []
        self._pitches: list[NDArray[np.float32]] = []
        self._before: NDArray[np.int16] = np.zeros(0, np.int16)
        self._next_word = 0
        self._ends = _word_ends(text, self.words)

    @property
    def aside(self) -> bool:
        """Whether it is a remark before the reply, and no part of it."""
        return self.index < 0

    @property
    def waiting(self) -> int:
        """Samples that were received and not yet played."""
        return self.received - self.played

    @property
    def finished(self) -> bool:
        """Whether all of it was played."""
        return self.complete and self.waiting == 0

    def add(
        self, pcm: NDArray[np.int16], pitch: NDArray[np.float32] | None = None
    ) -> tuple[int, NDArray[np.float32]]:
        """Append sound; `pitch` is that of the clause's first sound, where it is known already;
        returns the offset (samples) and energy (RMS 0..1 per 10 ms) now known."""
        if len(pcm):
            self._chunks.append(pcm)
            self.received += len(pcm)
        joined = np.concatenate([self._unmeasured, pcm])
        whole = len(joined) - len(joined) % ENERGY_SAMPLES
        energy = rms_per_10_ms(joined[:whole])
        self._energies.append(energy)
        if pitch is None or self._measured or len(pitch) * ENERGY_SAMPLES != whole:
            pitch = pitch_per_10_ms(joined[:whole], self._before)
        self._pitches.append(pitch)
        if whole:
            self._before = joined[max(0, whole - CONTEXT_SAMPLES) : whole]
        offset = self._measured
        self._measured += whole
        self._unmeasured = joined[whole:]
        return offset, energy

    def close(self) -> tuple[int, NDArray[np.float32]]:
        """No more sound comes; returns what `add` would for the last, incomplete 10 ms."""
        self.complete = True
        rest, self._unmeasured = self._unmeasured, np.zeros(0, np.int16)
        if not len(rest):
            return self._measured, np.zeros(0, np.float32)
        padded = np.zeros(ENERGY_SAMPLES, np.int16)
        padded[: len(rest)] = rest
        energy = rms_per_10_ms(padded)
        self._energies.append(energy)
        self._pitches.append(np.zeros(len(energy), np.float32))
        return self._measured, energy

    def energy(self) -> NDArray[np.float32]:
        """All the energy known so far, from the clause's first sample."""
        return np.concatenate(self._energies) if self._energies else np.zeros(0, np.float32)

    def pitch(self) -> NDArray[np.float32]:
        """All the pitch known so far (Hz per 10 ms; 0: no voice), as many values as of energy."""
        return np.concatenate(self._pitches) if self._pitches else np.zeros(0, np.float32)

    def latest_pitch(self) -> NDArray[np.float32]:
        """The pitch of what the last `add` or `close` made known."""
        return self._pitches[-1] if self._pitches else np.zeros(0, np.float32)

    def take(self, out: NDArray[np.int16]) -> int:
        """Play into `out`; returns how many samples it was given."""
        done = 0
        while done < len(out) and self._chunks:
            chunk = self._chunks[0]
            count = min(len(chunk), len(out) - done)
            out[done : done + count] = chunk[:count]
            if count == len(chunk):
                self._chunks.popleft()
            else:
                self._chunks[0] = chunk[count:]
            done += count
        self.played += done
        return done

    def peek(self, first: int, out: NDArray[np.int16]) -> None:
        """Copy what is played from `first` samples ahead of now on; the rest of `out` is left."""
        done = 0
        for chunk in self._chunks:
            if done == len(out):
                return
            if first >= len(chunk):
                first -= len(chunk)
                continue
            part = chunk[first : first + len(out) - done]
            out[done : done + len(part)] = part
            done, first = done + len(part), 0

    def words_begun(self) -> list[tuple[Word, str]]:
        """Words whose sound began since the last call, each with the clause's text up to it."""
        begun: list[tuple[Word, str]] = []
        while self._next_word < len(self.words):
            word = self.words[self._next_word]
            if word.start * SAMPLE_RATE_HZ >= self.played and not self.finished:
                break
            begun.append((word, self.text[: self._ends[self._next_word]]))
            self._next_word += 1
        return begun

    def heard(self) -> str:
        """The text whose words were heard at least by half."""
        if self.finished:
            return self.text
        end = 0
        for word, text_end in zip(self.words, self._ends, strict=True):
            if (word.start + word.end) / 2 * SAMPLE_RATE_HZ > self.played:
                break
            end = text_end
        return self.text[:end]


def rms_per_10_ms(pcm: NDArray[np.int16]) -> NDArray[np.float32]:
    """RMS of each 10 ms of 48 kHz PCM; 1.0 is a full-scale square wave."""
    windows = pcm.reshape(-1, ENERGY_SAMPLES).astype(np.float32) / 32_768
    energy: NDArray[np.float32] = np.sqrt(np.mean(windows * windows, axis=1, dtype=np.float32))
    return energy


def _estimated_words(text: str) -> tuple[Word, ...]:
    words, at = [], 0.0
    for part in text.split():
        length = (len(part) + 1) * _SECONDS_PER_CHAR
        words.append(Word(text=part, start=at, end=at + length))
        at += length
    return tuple(words)


def _word_ends(text: str, words: Sequence[Word]) -> list[int]:
    """For each word the end of the text that has been said with it, punctuation included."""
    ends: list[int] = []
    position = 0
    for number, word in enumerate(words):
        found = text.find(word.text, position) if word.text else -1
        if found >= 0:
            position = found + len(word.text)
        else:
            # Spoken and written form differ ("20" is said "twenty"): go by the share of words.
            position = max(position, round(len(text) * (number + 1) / len(words)))
        while (
            position < len(text) and not text[position].isspace() and not text[position].isalnum()
        ):
            position += 1
        ends.append(position)
    if ends:
        ends[-1] = len(text)
    return ends
