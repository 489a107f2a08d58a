"""Does a transcript repeat what the avatar itself was saying?

The page asks the browser for echo cancellation. Where that fails (loudspeakers in a room, a second
device), the avatar's voice comes back through the microphone and must not be answered.
"""

from __future__ import annotations

from difflib import SequenceMatcher

from avatar_server.avatar.short_answers import is_short_answer, words_of

_OVERLAP = 0.7
# Recognition of an echo is worse than of speech: up to three words in ten may differ.


def is_echo(transcript: str, spoken: str) -> bool:
    """Whether `transcript` is mostly words of `spoken`, in their order.

    `spoken` is what the avatar said while the utterance was recorded, and shortly before. One or
    two words are an echo only where they stand side by side in it and are no usual short answer.
    """
    heard, said = words_of(transcript), words_of(spoken)
    if not heard or not said:
        return False
    if len(heard) <= 2:
        if is_short_answer(transcript):
            return False
        return any(said[i : i + len(heard)] == heard for i in range(len(said)))
    blocks = SequenceMatcher(None, heard, said, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) >= _OVERLAP * len(heard)
