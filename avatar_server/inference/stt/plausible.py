"""Is a transcript something a person said? Whisper invents text on silence and noise.

Pure functions over what the decoder reports, so that the rules can be tested without a model.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

MAX_COMPRESSION_RATIO = 2.4
"""Text that compresses better repeats itself (Radford et al. 2022, section 4.5)."""
MIN_MEAN_LOGPROB = -1.0
MAX_NO_SPEECH = 0.6
"""With a mean log probability below the minimum: silence (same section)."""
# Measured with tiny.en: on silence, noise, hum and music the no-speech probability is 0.78-0.98 and
# the mean log probability below -0.65; on single spoken words 0.1-0.8.
_CERTAIN_NO_SPEECH = 0.85
_HESITANT_LOGPROB = -0.6

# What subtitles say where nobody speaks: the commonest inventions on noise. Each is also a thing
# that people say, so it is dropped only where the sound hardly holds speech.
_INVENTED = frozenset(
    {
        "you",
        "thank you",
        "thanks",
        "thank you very much",
        "thanks for watching",
        "thank you for watching",
        "please subscribe",
        "bye",
        "bye bye",
        "the end",
        "so",
        "oh",
        "okay",
        "ご視聴ありがとうございました",
        "ありがとうございました",
    }
)
_NOT_WORDS = re.compile(r"[\W_]+")


def compression_ratio(text: str) -> float:
    """Bytes of `text` per byte of it compressed; 0 for none."""
    content = text.encode()
    return len(content) / len(zlib.compress(content)) if content else 0.0


def repeats_itself(ids: Sequence[int], text: str) -> bool:
    """Whether the decoder was caught in a loop: a run of tokens said at least four times over.

    Three in a row ("no, no, no") is something people say; so is a long list of short words,
    which is why the run must also be a good part of the whole.
    """
    if compression_ratio(text) > MAX_COMPRESSION_RATIO:
        return True
    count = len(ids)
    for period in range(1, count // 2 + 1):
        run = 0
        for i in range(period, count):
            run = run + 1 if ids[i] == ids[i - period] else 0
            copies = run // period + 1
            if copies >= 4 and run + period >= 8:
                return True
            # A whole long phrase said twice: the end of the sound read again.
            if copies >= 2 and period >= 6 and run + period >= 0.8 * count:
                return True
    return False


_UNITS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+(?:['’-][^\W_]+)*")
_WRITTEN_WITHOUT_SPACES = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
# Conversation runs at 2-4 words (in Japanese 6-9 characters) a second of voice, hurried speech at
# up to 5 (13). Faster than that, nobody has spoken.
_MAX_WORDS_PER_S = 5.0
_MAX_CHARACTERS_PER_S = 13.0


def without_loop(text: str, voiced_s: float) -> str:
    """`text`, or its first copy where it says one thing over and over faster than a person can.

    A decoder that does not find the end reads the sound again: its words are right and come
    several times, the last copy often unfinished. `voiced_s` is how long the voice sounded.
    """
    found = list(_UNITS.finditer(text))
    words = [match.group().lower() for match in found]
    fastest = _MAX_CHARACTERS_PER_S if _WRITTEN_WITHOUT_SPACES.search(text) else _MAX_WORDS_PER_S
    if len(words) <= fastest * max(voiced_s, 0.2):
        return text
    for period in range(1, len(words) // 2 + 1):
        if all(words[i] == words[i - period] for i in range(period, len(words))):
            return text[: _end_of_copy(text, found[period - 1].end(), found[period].start())]
    return text


def _end_of_copy(text: str, end: int, following: int) -> int:
    """Where the first copy ends: with the mark of its sentence, but not with a comma."""
    mark = text[end:following].strip()[:1]
    return text.index(mark, end) + 1 if mark and mark in ".?!。？！" else end


def is_speech(
    text: str, no_speech_probability: float, mean_logprob: float, voiced_s: float
) -> bool:
    """Whether `text` is to be believed.

    `voiced_s` is how long the voice activity detector heard speech.
    """
    words = _NOT_WORDS.sub(" ", text).strip().lower()
    if not words:
        return False
    if mean_logprob < MIN_MEAN_LOGPROB and no_speech_probability > MAX_NO_SPEECH:
        return False
    if mean_logprob < _HESITANT_LOGPROB and no_speech_probability > _CERTAIN_NO_SPEECH:
        return False
    if mean_logprob < 1.6 * MIN_MEAN_LOGPROB:
        return False
    return not (words in _INVENTED and voiced_s < 0.25 and mean_logprob < _HESITANT_LOGPROB)
