"""Whisper's token ids, from the `tokenizer.json` beside the model."""

from __future__ import annotations

from pathlib import Path

import tokenizers


class WhisperTokens:
    """The special tokens that steer the decoder, and decoding to text."""

    def __init__(self, path: Path) -> None:
        """`path` is a `tokenizer.json`. Raises `ValueError` where it is not Whisper's."""
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            # The library raises bare `Exception`.
            raise ValueError(f"cannot read the tokenizer {path}: {error}") from error
        self._start = self._id("<|startoftranscript|>")
        self._transcribe = self._id("<|transcribe|>")
        self._no_timestamps = self._id("<|notimestamps|>")
        self._end = self._id("<|endoftext|>")

    def prompt(self, language: str | None) -> list[int]:
        """Tokens before the text; `language` is none for an English-only model."""
        if language is None:
            return [self._start, self._no_timestamps]
        return [self._start, self._id(f"<|{language}|>"), self._transcribe, self._no_timestamps]

    def has_language(self, language: str) -> bool:
        return self._tokenizer.token_to_id(f"<|{language}|>") is not None

    def decode(self, ids: list[int]) -> str:
        """Text of `ids` without the special tokens."""
        return self._tokenizer.decode([i for i in ids if i < self._end]).strip()

    def _id(self, token: str) -> int:
        number = self._tokenizer.token_to_id(token)
        if number is None:
            raise ValueError(f"this is not a Whisper tokenizer: it has no token {token}")
        return int(number)
