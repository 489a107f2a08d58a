"""What is asked of the model, and what is said without it."""

from __future__ import annotations

import pytest

from avatar_server.config import LlmSettings
from avatar_server.inference.llm.manner import fallback
from avatar_server.inference.llm.responder import (
    ITEMS_DROPPED,
    MAX_VIEWER_CHARS,
    Direct,
    Generate,
    Responder,
)
from avatar_server.inference.llm.retrieval import FactIndex, SentenceEncoder
from avatar_server.inference.llm.small_talk import load_small_talk
from avatar_server.protocol.messages import HistoryItem

PERSONA = "You are Theo, a museum guide with a dry sense of humour."
FACTS = [
    "Q: How old are you? A: I was drawn this year.",
    "The museum café sells apple cake and coffee.",
]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder()


@pytest.fixture(scope="module")
def responder(encoder: SentenceEncoder) -> Responder:
    return make(encoder)


def make(encoder: SentenceEncoder, **options: object) -> Responder:
    settings = LlmSettings(**options)  # type: ignore[arg-type]
    return Responder(
        PERSONA,
        FactIndex(FACTS, encoder),
        encoder,
        settings,
        name="Theo",
        small_talk=load_small_talk(encoder),
    )


def turns(count: int, length: int = 40) -> list[HistoryItem]:
    items = []
    for number in range(count):
        items.append(HistoryItem(role="user", text=f"question {number} ".ljust(length, "x")))
        items.append(HistoryItem(role="assistant", text=f"answer {number} ".ljust(length, "y")))
    return items


def generated(plan: Direct | Generate) -> Generate:
    assert isinstance(plan, Generate), plan
    return plan


def test_a_fact_that_answers_the_question_is_said_word_for_word(responder: Responder) -> None:
    assert responder.plan("how old are you", []) == Direct("I was drawn this year.")


def test_a_related_fact_goes_into_the_last_message_and_nowhere_else(responder: Responder) -> None:
    history = turns(2)
    plan = generated(responder.plan("Which cake does the museum café have?", history))
    assert "apple cake" in plan.messages[-1].content
    assert plan.messages[-1].content.endswith("Which cake does the museum café have?")
    assert not any("apple cake" in message.content for message in plan.messages[:-1])
    assert list(plan.messages[:-1]) == responder.prefix(history)


def test_an_unrelated_question_carries_no_fact(responder: Responder) -> None:
    plan = generated(responder.plan("Why is the sky blue?", []))
    assert plan.messages[-1].content == "Why is the sky blue?"


def test_the_prompt_of_the_next_turn_begins_with_that_of_this_one(responder: Responder) -> None:
    history = turns(3)
    now = responder.prefix(history)
    later = responder.prefix([*history, *turns(1)])
    assert later[: len(now)] == now


def test_old_turns_are_dropped_in_blocks_and_the_persona_never(encoder: SentenceEncoder) -> None:
    responder = make(encoder, context_tokens=1_024, max_reply_tokens=80)
    history: list[HistoryItem] = []
    kept_before = 0
    changes = 0
    for turn in turns(60, 80):
        history.append(turn)
        prompt = responder.prefix(history)
        assert PERSONA in prompt[0].content
        assert sum(len(message.content) for message in prompt) < 1_024 * 4
        kept = len(prompt)
        changes += kept < kept_before
        kept_before = kept
    assert 1 <= changes <= len(history) // ITEMS_DROPPED
    assert prompt[-1].content == history[-1].text
    assert prompt[1].role == "user"


def test_history_that_nobody_heard_is_left_out(responder: Responder) -> None:
    history = [HistoryItem(role="user", text="Hm?"), HistoryItem(role="assistant", text=" ")]
    assert responder.prefix(history)[-1].content == "Hm?"


def test_a_very_long_text_is_cut(responder: Responder) -> None:
    plan = generated(responder.plan("why is the sky blue and " * 500, []))
    assert len(plan.messages[-1].content) <= MAX_VIEWER_CHARS


@pytest.mark.parametrize("text", ["", "   ", "?!", "asdfghjkl"])
def test_nonsense_gets_a_polite_question_back(responder: Responder, text: str) -> None:
    plan = responder.plan(text, [])
    assert isinstance(plan, Direct)
    assert "again" in plan.text


def test_another_one_means_another_of_what_was_asked_before(responder: Responder) -> None:
    first = responder.plan("Tell me a joke.", [])
    assert isinstance(first, Direct)
    history = [
        HistoryItem(role="user", text="Tell me a joke."),
        HistoryItem(role="assistant", text=first.text),
    ]
    second = responder.plan("Another one, please.", history)
    assert isinstance(second, Direct)
    assert second.text != first.text
    assert second.text != responder.fallback(1)


def test_another_one_of_nothing_ends(responder: Responder) -> None:
    history = [HistoryItem(role="user", text="More!")] * 3
    assert isinstance(responder.plan("More!", history), Direct)


def test_what_was_said_is_repeated(responder: Responder) -> None:
    history = [
        HistoryItem(role="user", text="Why?"),
        HistoryItem(role="assistant", text="Because of the air."),
    ]
    said = Direct("I said: Because of the air.", own=False)
    assert responder.plan("What did you say?", history) == said
    assert isinstance(responder.plan("What did you say?", []), Direct)


def test_an_avatar_without_facts_or_small_talk_asks_the_model(encoder: SentenceEncoder) -> None:
    responder = Responder("", FactIndex([], encoder), encoder, LlmSettings())
    assert generated(responder.plan("Hello!", [])).messages[-1].content == "Hello!"


def test_fallbacks_vary_and_know_the_language() -> None:
    assert len({fallback("en", turn) for turn in range(6)}) == 3
    assert fallback("ja-JP", 0) != fallback("en", 0)
    assert fallback("xx", 0) == fallback("en", 0)
