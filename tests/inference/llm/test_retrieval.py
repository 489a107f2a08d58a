"""Finding facts: which questions a fact answers outright, and which only look like it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from avatar_server.avatars import find_avatars
from avatar_server.config import LlmSettings
from avatar_server.inference.llm.lexical import content_words, speaks_of_self
from avatar_server.inference.llm.retrieval import FactIndex, Found, SentenceEncoder, parse_fact
from avatar_server.inference.llm.small_talk import load_small_talk, next_answer
from avatar_server.protocol.messages import HistoryItem

FACTS = [
    "Q: How old are you? / When were you made? A: age",
    "Q: Where do you live? A: home",
    "Q: What do you like to eat? / What is your favourite food? A: food",
    "Q: Who drew you? / Who made you? A: drawn",
    "Q: When is the museum open? / What are your opening hours? A: hours",
    "Q: How much does a ticket cost? A: price",
    "Q: Where can I park? / Is there a car park? A: parking",
    "Q: How do you work? / What technology do you use? A: technology",
    "Q: Do I need a graphics card to run you? A: gpu",
    "Q: What do you do in your free time? / What are your hobbies? A: hobby",
    "Q: How do I install the server? A: install",
    "Q: Can I interrupt you? A: interrupt",
    "Q: How many people can watch at once? A: viewers",
    "The museum was founded in 1902 by a baker.",
]
SAME = [
    ("age", "how old are you now"),
    ("age", "Tell me how old you are."),
    ("home", "Tell me where you live"),
    ("food", "What's your favorite food?"),
    ("drawn", "Who created you?"),
    ("hours", "What time does the museum open?"),
    ("price", "how much are tickets"),
    ("parking", "Can I park my car nearby?"),
    ("technology", "How do you work exactly?"),
    ("gpu", "Does it need a graphics card?"),
    ("hobby", "Do you have any hobbies?"),
    ("install", "How can I install this server?"),
    ("interrupt", "May I interrupt you?"),
    ("viewers", "How many people can watch?"),
]
DIFFERENT = [
    "How old is the universe?",
    "How old is the Eiffel Tower?",
    "How old am I?",
    "Where do penguins live?",
    "Where did Napoleon live?",
    "Where can I buy bread?",
    "What do dogs like to eat?",
    "What is your favourite colour?",
    "Who painted the Mona Lisa?",
    "Who made the first computer?",
    "When is Easter?",
    "How much does an elephant weigh?",
    "How much does a car cost?",
    "How do planes work?",
    "Do I need an umbrella today?",
    "How do I install a washing machine?",
    "How many people live in China?",
    "I live in Paris.",
    "How are you?",
    "Tell me a joke.",
    "yes",
    "what",
]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder()


@pytest.fixture(scope="module")
def index(encoder: SentenceEncoder) -> FactIndex:
    return FactIndex(FACTS, encoder)


def best(index: FactIndex, encoder: SentenceEncoder, text: str) -> Found:
    return index.search(text, encoder.encode([text])[0], 1)[0]


def test_paraphrases_are_answered_and_near_misses_are_not(
    index: FactIndex, encoder: SentenceEncoder
) -> None:
    threshold = LlmSettings().fact_threshold
    answered = {}
    for expected, text in SAME:
        found = best(index, encoder, text)
        assert found.fact.answer == expected, text
        answered[text] = found.score >= threshold
    missed = [text for text, hit in answered.items() if not hit]
    assert len(missed) <= len(SAME) // 4, missed
    wrong = [
        (text, found.fact.answer, round(found.score, 2))
        for text in DIFFERENT
        if (found := best(index, encoder, text)).direct and found.score >= threshold
    ]
    assert wrong == []


def test_a_question_word_for_word_scores_at_the_top(
    index: FactIndex, encoder: SentenceEncoder
) -> None:
    assert best(index, encoder, "Where do you live?").score > 0.95


def test_a_statement_is_found_but_never_said_as_an_answer(
    index: FactIndex, encoder: SentenceEncoder
) -> None:
    found = best(index, encoder, "The museum was founded in 1902 by a baker.")
    assert found.score > 0.95
    assert not found.direct


def test_nothing_is_found_in_nothing(index: FactIndex, encoder: SentenceEncoder) -> None:
    vector = encoder.encode(["x"])[0]
    assert FactIndex([], encoder).search("hello", vector, 3) == []
    assert index.search("   ", vector, 3) == []


def test_a_fact_counts_once_however_many_ways_to_ask_it_has(
    index: FactIndex, encoder: SentenceEncoder
) -> None:
    found = index.search("How old are you?", encoder.encode(["How old are you?"])[0], 5)
    assert len({item.fact.answer for item in found}) == 5
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)


def test_questions_are_parted_by_slashes() -> None:
    fact = parse_fact("Q: What is 1/2? / How much is a half? A: It is A: 0.5.")
    assert fact.questions == ("What is 1/2?", "How much is a half?")
    assert fact.answer == "It is A: 0.5."
    assert parse_fact("A plain statement.").questions == ()


def test_a_passage_may_begin_with_the_questions_it_answers() -> None:
    fact = parse_fact("Can you see me? Do you use my camera? No, I can't. Why would I?")
    assert fact.questions == ("Can you see me?", "Do you use my camera?")
    assert fact.answer == "No, I can't. Why would I?"
    assert parse_fact("It is 5.5 m high. Why? Nobody knows.").questions == ()
    assert parse_fact("Is this a question without an answer?").questions == ()
    assert parse_fact("元気ですか？はい、元気です。").answer == "はい、元気です。"


def test_content_words_are_stems_without_function_words() -> None:
    assert content_words("What's your favorite colors?") == content_words("favourite colour")
    assert content_words("Where do you live?") == {"live"}
    assert speaks_of_self("How old am I?")
    assert not speaks_of_self("Can I interrupt you?")


def test_everyday_remarks_are_recognised_and_questions_are_not(encoder: SentenceEncoder) -> None:
    talk = load_small_talk(encoder)
    for text, start in [
        ("hello", "Hello!"),
        ("how are you doing", "I'm doing well"),
        ("thanks a lot", "You're welcome"),
        ("bye bye", "Goodbye"),
        ("tell me another joke please", "Why did"),
    ]:
        found = best(talk, encoder, text)
        assert found.score >= 0.75, text
        assert next_answer(found.fact, (), "Theo").startswith(start)
    for text in (
        "What is the capital of France?",
        "Why is the sky blue?",
        "Who wrote Hamlet?",
        "How do I make pancakes?",
        "What is a computer?",
    ):
        assert best(talk, encoder, text).score < 0.75, text


def test_answers_take_turns(encoder: SentenceEncoder) -> None:
    fact = best(load_small_talk(encoder), encoder, "Tell me a joke.").fact
    history: list[HistoryItem] = []
    told = []
    for _ in range(len(fact.answers) + 1):
        told.append(next_answer(fact, history, "Theo"))
        history.append(HistoryItem(role="assistant", text=told[-1]))
    assert set(told[:-1]) == set(fact.answers)
    assert told[-1] == told[0]


def test_searching_takes_a_vector_of_any_encoder() -> None:
    class Letters:
        def encode(self, texts: Sequence[str]) -> np.ndarray:
            rows = np.array([[t.lower().count(c) for c in "abcdefgh"] for t in texts], np.float32)
            return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)

    index = FactIndex(["Q: abc? A: first", "Q: fgh? A: second"], Letters())
    found = index.search("fgh", Letters().encode(["fgh"])[0], 1)
    assert found[0].fact.answer == "second"


@pytest.mark.parametrize("avatar", sorted(find_avatars()))
def test_all_that_the_shipped_avatars_know_answers_a_question(avatar: str) -> None:
    for passage in find_avatars()[avatar].facts:
        assert parse_fact(passage).questions, passage


@pytest.mark.parametrize("avatar", sorted(find_avatars()))
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("is my voice being recorded", "No sound is kept."),
        ("how much does this cost", "Nothing."),
        ("I have no microphone. Can I type?", "Yes. Type in the box"),
    ],
)
def test_the_shipped_avatars_answer_what_people_ask_first(
    avatar: str, asked: str, answer: str, encoder: SentenceEncoder
) -> None:
    index = FactIndex(find_avatars()[avatar].facts, encoder)
    found = index.search(asked, encoder.encode([asked])[0], 1)[0]
    assert found.fact.answer.startswith(answer)
    assert found.score >= LlmSettings().fact_threshold
