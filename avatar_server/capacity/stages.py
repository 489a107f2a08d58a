"""Measures what the stages of a turn cost, with the loaded models, in the inference process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from avatar_server.config import Settings
from avatar_server.inference.host import device_of, llm_device
from avatar_server.inference.llm.engine import ChatMessage, EngineError, LlmEngine, LlmRequest
from avatar_server.inference.llm.router import LlmRouter, Turn
from avatar_server.inference.loading import Models
from avatar_server.inference.resources import rss_bytes
from avatar_server.inference.tts.contract import SAMPLE_RATE_HZ as SPEECH_RATE_HZ
from avatar_server.inference.tts.contract import TtsError
from avatar_server.protocol.costs import StageCosts
from avatar_server.resample import Resampler
from renderers.neural import LipSyncNetwork

log = logging.getLogger(__name__)

_HEARD_RATE_HZ = 16_000
_UTTERANCE = "What time do you open on Saturday morning, please?"
"""Some 3 s of speech: a typical question to an avatar."""
_CLAUSE = "We open at nine on Saturdays, and there is coffee in the hall."
_PROMPT = " ".join(f"Number {n} of the list is a thing that visitors like." for n in range(6))
_TOKENS = 24
_MANY = 4
_REPEATS = 2


@dataclass(slots=True)
class _Rates:
    """Tokens a second; 0 where the engine said nothing."""

    prefill: float = 0.0
    decode: float = 0.0
    many: float = 0.0


async def measure_stages(
    models: Models,
    settings: Settings,
    tell: Callable[[str], None] = lambda _: None,
    *,
    face: LipSyncNetwork | None = None,
) -> StageCosts:
    """Run each stage a few times. `tell` is given what is being measured, in words.

    Nothing else may use the models meanwhile. What an engine fails to do counts as free: admission
    must not stop a server whose endpoint is down for a moment.
    """
    loop = asyncio.get_running_loop()
    tell("measuring this machine: the voice")
    tts_device = device_of(settings.tts.device)
    speech, tts_first_s, tts_rtf = await loop.run_in_executor(
        None, _measure_voice, models, _clock_of(tts_device)
    )
    tell("measuring this machine: speech recognition")
    stt_device = device_of(settings.stt.device)
    stt_s, endpoint_s, retrieve_s = await loop.run_in_executor(
        None, _measure_hearing, models, speech, _clock_of(stt_device)
    )
    tell("measuring this machine: the language model")
    # The time of a remote model is nobody's here.
    decoding = llm_device(settings) or "remote"
    rates = await _measure_llm(models.llm, _clock_of(decoding), decoding)
    face_s = face_many_s = 0.0
    if face is not None:
        tell("measuring this machine: faces")
        face_s, face_many_s = await loop.run_in_executor(None, _measure_face, face)
    return StageCosts(
        stt_s=stt_s,
        stt_device=stt_device,
        endpoint_s=endpoint_s,
        retrieve_s=retrieve_s,
        llm_prefill_per_s=round(rates.prefill, 1),
        llm_decode_per_s=round(rates.decode, 1),
        llm_decode_many_per_s=round(rates.many, 1),
        llm_device=decoding,
        tts_first_s=tts_first_s,
        tts_rtf=tts_rtf,
        tts_device=tts_device,
        rss_bytes=rss_bytes(),
        face_s=face_s,
        face_many_s=face_many_s,
        face_device="gpu" if face is not None and face.device != "cpu" else "cpu",
        kv_tokens=int(getattr(models.llm, "kv_tokens", 0) or 0),
    )


def _clock_of(device: str) -> Callable[[], float]:
    # Of a library's threads, too; and other processes' work inflates CPU time little.
    return time.process_time if device == "cpu" else time.monotonic


def _measure_voice(
    models: Models, clock: Callable[[], float]
) -> tuple[NDArray[np.int16], float, float]:
    """An utterance (16 kHz), seconds to a clause's first sound, seconds for one of speech."""
    synthesizer = models.synthesizer
    voice = synthesizer.voices()[0]
    firsts, rates = list[float](), list[float]()
    speech = np.zeros(0, np.int16)
    try:
        for text in (_CLAUSE, _UTTERANCE):
            began, pieces = clock(), list[NDArray[np.int16]]()
            for piece in synthesizer.synthesize(text, voice, 1.0, "en"):
                if not pieces:
                    firsts.append(clock() - began)
                pieces.append(piece.pcm)
            speech = np.concatenate(pieces)
            rates.append((clock() - began) * SPEECH_RATE_HZ / max(1, len(speech)))
    except TtsError as error:
        log.warning("the voice could not be measured: %s", error)
    return _as_heard(speech), _least(firsts), _least(rates)


def _measure_hearing(
    models: Models, speech: NDArray[np.int16], clock: Callable[[], float]
) -> tuple[float, float, float]:
    """Seconds for recognition, one end-of-turn check, and what is asked with its facts found."""
    recognise, judge, search = list[float](), list[float](), list[float]()
    # A language model that routes is measured as one.
    router = None if isinstance(models.router, LlmRouter) else models.router
    before = [Turn("user", _CLAUSE), Turn("assistant", _UTTERANCE)]
    for _ in range(_REPEATS):
        began = clock()
        models.recogniser.transcribe(speech, None)
        recognise.append(clock() - began)
        cpu = time.process_time()
        models.end_of_turn.probability(speech[-8 * _HEARD_RATE_HZ :])
        judge.append(time.process_time() - cpu)
        cpu = time.process_time()
        if router is not None:
            router.decide(_UTTERANCE, before)
        models.encoder.encode([_UTTERANCE])
        search.append(time.process_time() - cpu)
    return _least(recognise), _least(judge), _least(search)


def _measure_face(network: LipSyncNetwork) -> tuple[float, float]:
    """Seconds of a step for one face, and for each of `_MANY` in one or more steps."""
    clock = _clock_of(network.device)
    one = network.blank()

    def took(count: int) -> float:
        began = clock()
        for first in range(0, count, network.batch):
            network.run([one] * min(network.batch, count - first))
        return clock() - began

    for count in (1, _MANY):
        took(count)  # the first of a size prepares
    repeats = range(_REPEATS)
    return _least([took(1) for _ in repeats]), _least([took(_MANY) / _MANY for _ in repeats])


async def _measure_llm(llm: LlmEngine, clock: Callable[[], float], device: str) -> _Rates:
    rates = _Rates()
    # A prompt that no cache knows yet.
    fresh = ChatMessage("system", f"{time.time_ns()} {_PROMPT}")
    chat = [fresh, ChatMessage("user", "Tell me about the list.")]
    try:
        before, began = llm.metrics(), clock()
        first = await _run(llm, "calibrate-0", chat, 1, clock)
        took, tokens = clock() - began, llm.metrics().prompt_tokens - before.prompt_tokens
        # An engine that does not count: about four characters of English are a token.
        tokens = tokens or len(_PROMPT) // 4
        rates.prefill = tokens / max(1e-4, took if device == "cpu" else first)
        before, began = llm.metrics(), clock()
        first = await _run(llm, "calibrate-0", chat, _TOKENS, clock)
        tokens = llm.metrics().reply_tokens - before.reply_tokens
        # A remote model's first word also waits for the network.
        took = clock() - began - (0.0 if device == "cpu" else first)
        rates.decode = max(1, tokens) / max(1e-4, took)
        rates.many = rates.decode
        if device == "cpu":
            # One thread decodes for all: several at once are hardly faster than one.
            return rates
        before, began = llm.metrics(), clock()
        many = [_run(llm, f"calibrate-{n}", chat, _TOKENS, clock) for n in range(_MANY)]
        await asyncio.gather(*many)
        tokens = llm.metrics().reply_tokens - before.reply_tokens
        rates.many = max(1, tokens) / max(1e-4, clock() - began)
    except EngineError as error:
        log.warning("the language model could not be measured: %s", error)
    finally:
        for number in range(_MANY):
            llm.forget(f"calibrate-{number}")
    return rates


async def _run(
    llm: LlmEngine, session: str, chat: list[ChatMessage], tokens: int, clock: Callable[[], float]
) -> float:
    """Seconds to the first piece."""
    began, first = clock(), 0.0
    request = LlmRequest(session, chat, max_tokens=tokens)
    async with aclosing(llm.stream(request)) as pieces:
        async for _ in pieces:
            first = first or clock() - began
    return first


def _as_heard(speech: NDArray[np.int16]) -> NDArray[np.int16]:
    resampler = Resampler(SPEECH_RATE_HZ, _HEARD_RATE_HZ)
    samples = speech.astype(np.float32)
    heard = np.concatenate([resampler.push(samples), resampler.flush()])
    return np.asarray(np.clip(heard, -32768, 32767), np.int16)


def _least(values: list[float]) -> float:
    """The best of a few runs: what the others took longer is other work's doing."""
    return round(min(values, default=0.0), 5)
