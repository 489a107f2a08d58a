"""Text on its way to speech: cut into clauses, made speakable."""

from avatar_server.inference.text.clauses import ClauseCutter, limit_sentences

__all__ = ["ClauseCutter", "limit_sentences"]
