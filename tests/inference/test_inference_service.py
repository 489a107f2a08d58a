"""What the inference process does with each message, with stand-ins for the models."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from avatar_server.clock import MonotonicClock
from avatar_server.config import Settings, settings_from_values
from avatar_server.inference.llm.engine import ChatMessage, EngineError, EngineMetrics, LlmRequest
from avatar_server.inference.loading import Models
from avatar_server.inference.service import JOBS_PER_SESSION, InferenceService
from avatar_server.inference.tts import SpeechPiece, TtsError
from avatar_server.protocol.messages import (
    AskInferenceStatus,
    Buffered,
    Cancel,
    CheckEndOfTurn,
    CloseSession,
    EndOfTurn,
    InferenceStatus,
    JobFailed,
    Message,
    OpenSession,
    Outlook,
    ReplyAudio,
    ReplyEnd,
    Respond,
    Say,
    SessionOpened,
    ToInference,
    Transcribe,
    Transcript,
    Word,
)
from tests.capacity.costs import STAGES

PIECE_SAMPLES = 4_800


class FakeVoice:
    """Each clause is two pieces, whose samples are the length of the text."""

    name = "fake"

    def __init__(self) -> None:
        self.gate: threading.Event | None = None
        self.spoken: list[str] = []

    def voices(self) -> list[str]:
        return ["plain", "other"]

    def synthesize(
        self, text: str, voice: str, speed: float, language: str
    ) -> Iterator[SpeechPiece]:
        self.spoken.append(text)
        if "broken" in text:
            raise TtsError("no such sound")
        pcm = np.full(PIECE_SAMPLES, len(text), np.int16)
        yield SpeechPiece(pcm, False, [Word(text=w, start=0.0, end=0.1) for w in text.split()], [])
        if self.gate is not None:
            self.gate.wait(10)
        yield SpeechPiece(pcm, True)


@dataclass
class FakeLlm:
    """Streams `words`; the word "fail" raises, "hang" waits for ever."""

    words: Callable[[LlmRequest], Sequence[str]]
    description: str = "fake"
    requests: list[LlmRequest] = field(default_factory=list)
    read_ahead: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)
    active: int = 0
    both: asyncio.Event = field(default_factory=asyncio.Event)

    async def stream(self, request: LlmRequest) -> AsyncGenerator[str, None]:
        self.requests.append(request)
        self.active += 1
        if self.active == 2:
            self.both.set()
        try:
            for word in self.words(request):
                await asyncio.sleep(0)
                if word == "fail":
                    raise EngineError("the model is gone")
                if word == "hang":
                    await asyncio.sleep(3600)
                yield word + " "
        finally:
            self.active -= 1

    async def prefill(self, session: str, messages: Sequence[ChatMessage]) -> None:
        self.read_ahead.append(session)

    def hold_prefill(self, held: bool) -> None:
        self.held.append(held)

    def forget(self, session: str) -> None:
        self.forgotten.append(session)

    async def warm_up(self) -> None: ...

    async def close(self) -> None: ...

    def metrics(self) -> EngineMetrics:
        return EngineMetrics()


class Lengths:
    """An encoder to which texts are alike that have the same letters."""

    def encode(self, texts: Sequence[str]) -> Any:
        rows = np.array([[t.lower().count(c) for c in "abcdefghijklmnop"] for t in texts])
        return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)).astype("f4")


class Bench:
    """A service, and what it sent to whom."""

    def __init__(
        self, words: Callable[[LlmRequest], Sequence[str]], settings: Settings | None = None
    ) -> None:
        self.sent: list[tuple[bytes, Message]] = []
        self.arrived = asyncio.Event()
        self.llm = FakeLlm(words)
        self.voice = FakeVoice()
        self.service = InferenceService(settings or Settings(), MonotonicClock(), self._send)

    def models(self) -> Models:
        def transcribe(pcm: Any, language: str | None) -> Any:
            return SimpleNamespace(
                text=f"{len(pcm)} samples", language=language or "en", no_speech_probability=0.1
            )

        return Models(
            recogniser=SimpleNamespace(transcribe=transcribe),
            end_of_turn=SimpleNamespace(probability=lambda pcm: 0.75),
            synthesizer=self.voice,  # type: ignore[arg-type]
            encoder=Lengths(),
            llm=self.llm,
            small_talk=None,
            names={"llm": "fake"},
        )

    def _send(self, peer: bytes, message: Message) -> None:
        self.sent.append((peer, message))
        self.arrived.set()

    def say(self, message: ToInference, peer: bytes = b"a") -> None:
        self.service.handle(peer, message)

    async def wait_for(self, found: Callable[[Message], bool], peer: bytes = b"a") -> Any:
        """The first message to `peer` that is as wanted, sent already or later."""
        seen = 0
        async with asyncio.timeout(10):
            while True:
                for to, message in self.sent[seen:]:
                    if to == peer and found(message):
                        return message
                seen = len(self.sent)
                self.arrived.clear()
                await self.arrived.wait()

    async def opened(self, session: str = "s", peer: bytes = b"a", **fields: Any) -> SessionOpened:
        self.say(OpenSession(session=session, avatar="theo", persona="P", **fields), peer)
        found = await self.wait_for(
            lambda m: isinstance(m, SessionOpened) and m.session == session, peer
        )
        assert isinstance(found, SessionOpened)
        return found

    async def end(self, job: str, peer: bytes = b"a") -> ReplyEnd | JobFailed:
        found: ReplyEnd | JobFailed = await self.wait_for(
            lambda m: isinstance(m, ReplyEnd | JobFailed) and m.job == job, peer
        )
        return found

    def audio(self, job: str) -> list[ReplyAudio]:
        return [m for _, m in self.sent if isinstance(m, ReplyAudio) and m.job == job]


@contextlib.asynccontextmanager
async def bench(
    words: Callable[[LlmRequest], Sequence[str]] = lambda _: ["It", "is", "a", "lamp."],
    *,
    ready: bool = True,
) -> AsyncIterator[Bench]:
    made = Bench(words)
    if ready:
        made.service.start(made.models())
    try:
        yield made
    finally:
        if made.voice.gate is not None:
            made.voice.gate.set()
        await made.service.close()


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


def test_a_reply_is_clauses_of_pieces_closed_by_its_end() -> None:
    async def test() -> None:
        words = [
            "The",
            "sky",
            "is",
            "blue.",
            "It",
            "is",
            "because",
            "of",
            "the",
            "air",
            "around",
            "us.",
        ]
        async with bench(lambda _: words) as b:
            await b.opened()
            b.say(Respond(session="s", job="1", text="Why is it blue?"))
            end = await b.end("1")
            assert isinstance(end, ReplyEnd)
            assert end.text == "The sky is blue. It is because of the air around us."
            pieces = b.audio("1")
            clauses = sorted({p.clause for p in pieces})
            assert clauses == list(range(len(clauses)))
            for clause in clauses:
                own = [p for p in pieces if p.clause == clause]
                assert [p.piece for p in own] == [0, 1]
                assert [p.last for p in own] == [False, True]
                assert own[0].text
                assert own[0].words
                assert not own[1].text
                assert len(own[0].pcm) == PIECE_SAMPLES * 2
            assert " ".join(p.text for p in pieces if p.piece == 0) == end.text
            assert {
                "queued",
                "retrieve",
                "llm_first_token",
                "llm_first_clause",
                "tts_first_piece",
                "total",
            } <= set(end.stages_ms)
            assert b.llm.read_ahead == ["s", "s"]
            assert b.service.status().jobs_done == {"reply": 1}

    run(test)


def test_the_caption_is_as_written_and_the_sound_as_spoken() -> None:
    async def test() -> None:
        async with bench() as b:
            await b.opened()
            b.say(Say(session="s", job="1", text="It costs 5 euros."))
            end = await b.end("1")
            assert isinstance(end, ReplyEnd)
            first = b.audio("1")[0]
            assert first.text == "It costs 5 euros."
            assert [w.text for w in first.words] == ["It", "costs", "five", "euros."]

    run(test)


def test_a_session_that_is_not_open_is_unknown_for_every_kind_of_job() -> None:
    async def test() -> None:
        async with bench() as b:
            jobs: list[Any] = [
                Transcribe(session="x", job="1", purpose="final", pcm=b""),
                CheckEndOfTurn(session="x", job="2", pcm=b""),
                Respond(session="x", job="3", text="Hi"),
                Say(session="x", job="4", text="Hi"),
            ]
            for job in jobs:
                b.say(job)
            assert [(m.job, m.code) for _, m in b.sent if isinstance(m, JobFailed)] == [
                (str(n), "unknown_session") for n in (1, 2, 3, 4)
            ]
            b.say(Cancel(session="x", job="1"))
            b.say(Buffered(session="x", job="1", seconds=1.0))
            b.say(CloseSession(session="x"))

    run(test)


def test_a_cancelled_reply_sends_nothing_more_and_frees_the_model() -> None:
    async def test() -> None:
        async with bench(lambda _: ["One", "two", "three", "four.", "hang"]) as b:
            await b.opened()
            b.say(Respond(session="s", job="1", text="Why is it so?"))
            await b.wait_for(lambda m: isinstance(m, ReplyAudio))
            b.say(Cancel(session="s", job="1"))
            sent = len(b.sent)
            await asyncio.sleep(0.1)
            assert len(b.sent) == sent
            assert b.llm.active == 0
            assert b.service.status().queue_depth["tts"] == 0
            b.say(Say(session="s", job="1", text="Again."))
            assert isinstance(await b.end("1"), ReplyEnd)

    run(test)


def test_cancelling_in_the_middle_of_a_step_of_speech_drops_its_sound() -> None:
    async def test() -> None:
        async with bench() as b:
            b.voice.gate = threading.Event()
            await b.opened()
            b.say(Say(session="s", job="1", text="Hello there."))
            await b.wait_for(lambda m: isinstance(m, ReplyAudio))
            b.say(Cancel(session="s", job="1"))
            sent = len(b.sent)
            b.voice.gate.set()
            b.say(Say(session="s", job="2", text="Hello."))
            await b.end("2")
            assert not [m for _, m in b.sent[sent:] if getattr(m, "job", "") == "1"]

    run(test)


def test_two_sessions_at_once_get_each_its_own() -> None:
    async def test() -> None:
        def answer(request: LlmRequest) -> list[str]:
            return ["Number", request.session, "is", "what", "you", "are."]

        async with bench(answer) as b:
            for name in ("one", "two"):
                await b.opened(name, name.encode())
            for job in range(5):
                for name in ("one", "two"):
                    b.say(Respond(session=name, job=str(job), text="Who is it?"), name.encode())
            for job in range(5):
                for name in ("one", "two"):
                    end = await b.end(str(job), name.encode())
                    assert isinstance(end, ReplyEnd)
                    assert end.text == f"Number {name} is what you are."

    run(test)


def test_a_voice_that_fails_fails_the_job_and_nothing_else() -> None:
    async def test() -> None:
        async with bench() as b:
            await b.opened()
            b.say(Say(session="s", job="1", text="This is broken."))
            end = await b.end("1")
            assert isinstance(end, JobFailed)
            assert (end.code, end.message) == ("engine", "no such sound")
            b.say(Say(session="s", job="2", text="This is fine."))
            assert isinstance(await b.end("2"), ReplyEnd)

    run(test)


def test_a_model_that_fails_before_its_first_word_fails_the_job() -> None:
    async def test() -> None:
        async with bench(lambda _: ["fail"]) as b:
            await b.opened()
            b.say(Respond(session="s", job="1", text="Why is it so?"))
            end = await b.end("1")
            assert isinstance(end, JobFailed)
            assert end.message == "the model is gone"

    run(test)


def test_a_model_that_fails_in_the_middle_ends_the_reply_with_what_was_said() -> None:
    async def test() -> None:
        async with bench(lambda _: ["It", "is", "blue", "here.", "And", "fail"]) as b:
            await b.opened()
            b.say(Respond(session="s", job="1", text="Why is it so?"))
            end = await b.end("1")
            assert isinstance(end, ReplyEnd)
            assert end.text == "It is blue here."

    run(test)


@pytest.mark.parametrize("words", [[], ["***", "##"], ["As an AI language model, no."]])
def test_a_model_with_nothing_to_say_is_excused_politely(words: list[str]) -> None:
    async def test() -> None:
        async with bench(lambda _: words) as b:
            await b.opened()
            b.say(Respond(session="s", job="1", text="Why is it so?"))
            end = await b.end("1")
            assert isinstance(end, ReplyEnd)
            assert "sorry" in end.text.lower() or "afraid" in end.text
            assert b.audio("1")[0].emotion == "apologetic"

    run(test)


def test_tags_show_on_the_face_and_are_neither_said_nor_kept() -> None:
    async def test() -> None:
        words = ["[happy]", " It", " is", " here.", " [surprised]", " It", " has", " gone!"]
        async with bench(lambda _: words) as b:
            await b.opened()
            b.say(Respond(session="s", job="1", text="Where is the lamp?"))
            end = await b.end("1")
            assert isinstance(end, ReplyEnd)
            assert end.text == "It is here. It has gone!"
            first = [m for m in b.audio("1") if m.piece == 0]
            assert [(m.text, m.emotion) for m in first] == [
                ("It is here.", "happy"),
                ("It has gone!", "surprised"),
            ]

    run(test)


def test_a_fact_is_said_without_the_model() -> None:
    async def test() -> None:
        async with bench() as b:
            await b.opened(facts=["Q: Where is the café? A: On the first floor."])
            b.say(Respond(session="s", job="1", text="where is the café"))
            end = await b.end("1")
            assert isinstance(end, ReplyEnd)
            assert end.text == "On the first floor."
            assert b.llm.requests == []

    run(test)


def test_what_is_asked_before_the_models_are_loaded_is_answered_then() -> None:
    async def test() -> None:
        async with bench(ready=False) as b:
            b.say(AskInferenceStatus(), b"gateway")
            b.say(OpenSession(session="s", avatar="theo", persona="P"))
            b.say(Say(session="s", job="1", text="Hello."))
            await asyncio.sleep(0.05)
            (status,) = [m for to, m in b.sent]
            assert isinstance(status, InferenceStatus)
            assert not status.ready
            b.service.start(b.models())
            assert isinstance(await b.end("1"), ReplyEnd)
            assert await b.wait_for(
                lambda m: isinstance(m, InferenceStatus) and m.ready, b"gateway"
            )

    run(test)


def test_speech_is_recognised_and_the_end_of_turn_judged() -> None:
    async def test() -> None:
        async with bench() as b:
            await b.opened()
            b.say(Transcribe(session="s", job="1", purpose="final", pcm=bytes(3200), language="de"))
            b.say(CheckEndOfTurn(session="s", job="2", pcm=bytes(3200)))
            heard = await b.wait_for(lambda m: isinstance(m, Transcript))
            assert (heard.job, heard.text, heard.language) == ("1", "1600 samples", "de")
            judged = await b.wait_for(lambda m: isinstance(m, EndOfTurn))
            assert (judged.job, judged.probability) == ("2", 0.75)

    run(test)


def test_half_a_sample_is_a_bad_request() -> None:
    async def test() -> None:
        async with bench() as b:
            await b.opened()
            b.say(Transcribe(session="s", job="1", purpose="final", pcm=b"abc"))
            failed = await b.end("1")
            assert isinstance(failed, JobFailed)
            assert failed.code == "bad_request"

    run(test)


def test_a_job_id_in_use_and_too_many_jobs_are_refused() -> None:
    async def test() -> None:
        async with bench(lambda _: ["hang"]) as b:
            await b.opened()
            for number in range(JOBS_PER_SESSION):
                b.say(Respond(session="s", job=f"j{number}", text="Why is it so?"))
            b.say(Respond(session="s", job="j0", text="Why is it so?"))
            b.say(Respond(session="s", job="more", text="Why is it so?"))
            codes = [(m.job, m.code) for _, m in b.sent if isinstance(m, JobFailed)]
            assert codes == [("j0", "bad_request"), ("more", "overloaded")]

    run(test)


def test_closing_a_session_or_losing_its_avatar_ends_its_jobs() -> None:
    async def test() -> None:
        async with bench(lambda _: ["hang"]) as b:
            for name in ("one", "two"):
                await b.opened(name, name.encode())
                b.say(Respond(session=name, job="1", text="Why is it so?"), name.encode())
            await b.llm.both.wait()
            b.say(CloseSession(session="one"), b"one")
            b.service.peer_gone(b"two")
            await asyncio.sleep(0.05)
            assert b.llm.active == 0
            assert b.service.status().sessions == 0
            assert b.llm.forgotten == ["one", "two"]

    run(test)


def test_opening_again_with_the_same_words_keeps_the_session_and_its_jobs() -> None:
    async def test() -> None:
        async with bench(lambda _: ["hang"]) as b:
            await b.opened()
            b.say(Respond(session="s", job="1", text="Why is it so?"))
            await asyncio.sleep(0.05)
            b.say(OpenSession(session="s", avatar="theo", persona="P"))
            assert sum(isinstance(m, SessionOpened) for _, m in b.sent) == 2
            assert b.llm.active == 1

    run(test)


def route(words: str) -> dict[str, Any]:
    return {"name": "hours", "examples": ["when open", "opening hours", "till when"], "say": words}


def test_an_avatar_that_is_changed_meanwhile_goes_on_and_has_the_new_words_next() -> None:
    async def test() -> None:
        async with bench(lambda _: ["hang"]) as b:
            await b.opened(routes=[route("At nine.")])
            first = b.service._sessions["s"].planner
            b.say(Respond(session="s", job="1", text="Why is it so?"))
            await asyncio.sleep(0.05)
            changed = OpenSession(
                session="s", avatar="theo", persona="Another", routes=[route("At ten.")]
            )
            b.say(changed)
            b.say(changed)
            async with asyncio.timeout(10):
                while b.service._sessions["s"].planner is first:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert b.llm.active == 1, "what was begun goes on"
            b.say(OpenSession(session="s", avatar="theo", persona="P", routes=[{"name": "bad!"}]))
            second = b.service._sessions["s"].planner
            await asyncio.sleep(0.1)
            assert b.service._sessions["s"].planner is second, "what cannot be used is not taken"
            assert b.llm.active == 1

    run(test)


def test_a_voice_that_cannot_be_had_is_replaced() -> None:
    async def test() -> None:
        async with bench() as b:
            assert (await b.opened(voice="none", voice_fallbacks=["nor", "other"])).voice == "other"
            assert (await b.opened("t", voice="none")).voice == "plain"

    run(test)


def test_a_reply_of_a_kind_seen_before_is_foreseen() -> None:
    async def test() -> None:
        async with bench() as b:
            await b.opened()
            b.say(Respond(session="s", job="1", text="What is this?", budget_s=0.9))
            await b.end("1")
            assert not [m for _, m in b.sent if isinstance(m, Outlook)]
            b.say(Respond(session="s", job="2", text="And what is that?", budget_s=0.9))
            await b.end("2")
            (outlook,) = [m for _, m in b.sent if isinstance(m, Outlook)]
            assert outlook.job == "2"
            assert 0 < outlook.first_sound_s < 5
            assert b.llm.requests[0].priority <= b.llm.requests[1].priority

    run(test)


def test_what_is_due_sooner_is_served_first_whoever_asked_first() -> None:
    async def test() -> None:
        async with bench() as b:
            await b.opened("calm")
            await b.opened("pressed")
            release = threading.Event()
            blocking = asyncio.create_task(
                b.service._workers["stt"].call("x", lambda: release.wait(10))
            )
            await asyncio.sleep(0.02)
            for session, budget_s in (("calm", 9.0), ("pressed", 0.1)):
                b.say(
                    Transcribe(
                        session=session,
                        job=session,
                        purpose="final",
                        pcm=bytes(32_000),
                        budget_s=budget_s,
                    )
                )
            await asyncio.sleep(0.02)
            release.set()
            await b.wait_for(lambda m: isinstance(m, Transcript) and m.job == "calm")
            order = [m.job for _, m in b.sent if isinstance(m, Transcript)]
            assert order == ["pressed", "calm"]
            await blocking

    run(test)


def test_speech_made_ahead_waits_behind_what_somebody_waits_for() -> None:
    async def test() -> None:
        async with bench() as b:
            await b.opened()
            release = threading.Event()
            blocking = asyncio.create_task(
                b.service._workers["tts"].call("x", lambda: release.wait(10))
            )
            await asyncio.sleep(0.02)
            b.say(Say(session="s", job="ahead", text="Let me think.", ahead=True))
            b.say(Say(session="s", job="now", text="Good morning."))
            await asyncio.sleep(0.02)
            release.set()
            await b.end("ahead")
            ends = [m.job for _, m in b.sent if isinstance(m, ReplyEnd)]
            assert ends == ["now", "ahead"]
            await blocking

    run(test)


@pytest.mark.parametrize("policy", ["laxity", "edf", "fifo", "fair"])
def test_every_policy_answers(policy: str) -> None:
    async def test() -> None:
        settings = settings_from_values({"scheduler": {"policy": policy}})
        b = Bench(lambda _: ["It", "is", "a", "lamp."], settings)
        b.service.start(b.models())
        try:
            await b.opened()
            b.say(Respond(session="s", job="1", text="What is this?"))
            assert isinstance(await b.end("1"), ReplyEnd)
        finally:
            await b.service.close()

    run(test)


def test_a_brief_reply_is_the_first_sentence_of_what_the_model_says() -> None:
    async def test() -> None:
        words = [
            "The",
            "sky",
            "is",
            "blue.",
            "It",
            "is",
            "because",
            "of",
            "the",
            "air.",
            "There",
            "is",
            "more.",
        ]
        async with bench(lambda _: words) as b:
            await b.opened()
            b.say(Respond(session="s", job="1", text="Why is it blue?", brief=True))
            b.say(Respond(session="s", job="2", text="Why is it blue?"))
            brief, usual = await b.end("1"), await b.end("2")
            assert isinstance(brief, ReplyEnd)
            assert isinstance(usual, ReplyEnd)
            assert brief.text == "The sky is blue."
            assert usual.text.startswith("The sky is blue. It is because of the air.")

    run(test)


def test_waits_in_the_queues_are_reported() -> None:
    async def test() -> None:
        async with bench() as b:
            assert b.service.status().wait_ms == 0.0
            await b.opened()
            models = b.service._models
            assert models is not None
            usual = models.recogniser.transcribe

            def slow(pcm: Any, language: str | None) -> Any:
                time.sleep(0.15)
                return usual(pcm, language)

            models.recogniser.transcribe = slow  # type: ignore[method-assign]
            pcm = bytes(32_000)
            for job in "123":
                b.say(Transcribe(session="s", job=job, purpose="final", pcm=pcm))
            await b.wait_for(lambda m: isinstance(m, Transcript) and m.job == "3")
            # The second waited for one, at least, and the third for two.
            assert b.service.status().wait_ms >= 145

    run(test)


def test_measured_costs_are_part_of_the_status() -> None:
    async def test() -> None:
        async with bench() as b:
            assert b.service.status().costs is None
            b.service.costs = STAGES
            assert b.service.status().costs == STAGES

    run(test)


def test_the_avatars_own_words_are_spoken_once_and_kept() -> None:
    async def test() -> None:
        async with bench(lambda _: ["It", "is", "a", "lamp."]) as b:
            await b.opened()
            await b.opened("t")
            b.say(Say(session="s", job="1", text="Good morning. How are you?"))
            await b.end("1")
            made = list(b.voice.spoken)
            b.say(Say(session="t", job="2", text="Good morning. How are you?"))
            await b.end("2")
            assert b.voice.spoken == made
            assert [m.pcm for m in b.audio("2")] == [m.pcm for m in b.audio("1")]
            assert [m.words for m in b.audio("2")] == [m.words for m in b.audio("1")]
            assert b.service.status().jobs_done["kept_speech"] == len(
                {m.clause for m in b.audio("2")}
            )
            # Another voice is made anew.
            await b.opened("u", voice="other")
            b.say(Say(session="u", job="3", text="Good morning. How are you?"))
            await b.end("3")
            assert len(b.voice.spoken) == 2 * len(made)
            # And so is the same one, higher: all of it takes less time to hear.
            await b.opened("h", pitch={"plain": 1.25, "other": 0.8})
            b.say(Say(session="h", job="4", text="Good morning. How are you?"))
            await b.end("4")
            assert len(b.voice.spoken) == 3 * len(made)
            seconds = [sum(len(m.pcm) for m in b.audio(job)) for job in "14"]
            assert seconds[1] == pytest.approx(seconds[0] / 1.25, rel=0.001)

    run(test)


def test_the_models_words_are_not_kept() -> None:
    async def test() -> None:
        async with bench(lambda _: ["It", "is", "a", "lamp."]) as b:
            await b.opened()
            for job in "12":
                b.say(Respond(session="s", job=job, text="What is that thing?", budget_s=0.9))
                await b.end(job)
            assert b.voice.spoken == ["It is a lamp."] * 2
            assert "kept_speech" not in b.service.status().jobs_done

    run(test)


def test_prompts_are_not_read_ahead_while_somebodys_words_are_recognised() -> None:
    async def test() -> None:
        async with bench(lambda _: ["It", "is", "a", "lamp."]) as b:
            await b.opened()
            pcm = bytes(32_000)
            b.say(Transcribe(session="s", job="1", purpose="partial", pcm=pcm))
            await b.wait_for(lambda m: isinstance(m, Transcript) and m.job == "1")
            assert b.llm.held == []
            b.say(Transcribe(session="s", job="2", purpose="final", pcm=pcm))
            await b.wait_for(lambda m: isinstance(m, Transcript) and m.job == "2")
            assert b.llm.held == [True, False]
            # Not during replies: with four of them there would be no time left for it.
            b.say(Respond(session="s", job="3", text="What is that thing?", budget_s=0.9))
            await b.end("3")
            assert b.llm.held == [True, False]
            b.say(Transcribe(session="s", job="4", purpose="final", pcm=pcm))
            b.say(Cancel(session="s", job="4"))
            b.say(CheckEndOfTurn(session="s", job="5", pcm=pcm))
            await b.wait_for(lambda m: isinstance(m, EndOfTurn) and m.job == "5")
            assert b.llm.held[-1] is False

    run(test)
