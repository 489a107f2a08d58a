"""Measured costs, as they pass between processes and are kept between starts."""

from __future__ import annotations

import msgspec


class FrameCosts(msgspec.Struct, kw_only=True, frozen=True):
    """What the pictures and sound of one session take: CPU time of one core.

    `render_ms` and `encode_ms` are means over the frames of a speaking avatar, `idle_frame_ms` is
    drawing and encoding together while it rests. `audio_ms_per_s` is the Opus encode of a second
    of sound.
    """

    avatar: str
    render_ms: float
    encode_ms: float
    idle_frame_ms: float
    audio_ms_per_s: float
    rss_bytes: int


class StageCosts(msgspec.Struct, kw_only=True, frozen=True):
    """What one turn's stages take, each alone on the machine. Seconds, unless said otherwise.

    CPU stages are CPU time of one core, others are wall time. `stt_s` is a typical utterance (3 s
    of speech), `endpoint_s` one end-of-turn check, `retrieve_s` deciding what is asked and
    finding facts, `tts_first_s` a clause's first sound, `tts_rtf` the time for a second of speech.
    Speeds of the language model are tokens a second of one request alone; `llm_decode_many_per_s`
    is the sum over several at once. The device of a stage is "cpu", "gpu", or "remote" (nothing
    of this machine).
    """

    stt_s: float
    stt_device: str
    endpoint_s: float
    retrieve_s: float
    llm_prefill_per_s: float
    llm_decode_per_s: float
    llm_decode_many_per_s: float
    llm_device: str
    tts_first_s: float
    tts_rtf: float
    tts_device: str
    rss_bytes: int
    face_s: float = 0.0
    """The lip-sync network's step for one face, and the share of one in a step for four; 0 where no
    avatar has such a face."""
    face_many_s: float = 0.0
    face_device: str = "cpu"
    kv_tokens: int = 0
    """Tokens that the language model's cache holds for all sessions; 0 where that is no limit."""
