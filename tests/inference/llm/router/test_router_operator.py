"""An operator's routes: found in other words and languages, and left alone otherwise."""

from __future__ import annotations

import pytest

from avatar_server.inference.llm.retrieval import Encoder, SentenceEncoder
from avatar_server.inference.llm.router import Route, load_examples
from avatar_server.inference.llm.router.embedding import background_texts
from avatar_server.inference.llm.router.operator import Background, OperatorRoutes
from avatar_server.paths import assets_dir

ROUTES = [
    Route(
        "order_status",
        "asks where an order is",
        (
            "where is my order",
            "has my parcel been sent",
            "track my order",
            "when will my delivery arrive",
            "what's the status of order 4711",
            "my package still hasn't come",
            "注文した荷物はいつ届きますか",
            "配送状況を確認して",
        ),
    ),
    Route(
        "person",
        "wants to talk to a person",
        (
            "i want to talk to a person",
            "can i speak to a human",
            "connect me to an agent",
            "let me talk to someone",
            "transfer me to customer service",
            "人と話したい",
            "担当者につないで",
            "オペレーターお願いします",
        ),
    ),
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return SentenceEncoder()


@pytest.fixture(scope="module")
def routes(encoder: Encoder) -> OperatorRoutes:
    rows = load_examples(assets_dir() / "eval" / "routing-train.jsonl")
    return OperatorRoutes(ROUTES, encoder, Background(background_texts(rows), encoder))


def likeliest(routes: OperatorRoutes, encoder: Encoder, text: str) -> str | None:
    chances = routes.chances(text, encoder.encode([text])[0])
    assert sum(chances.values()) <= 1 + 1e-6
    name = max(chances, key=lambda name: chances[name])
    return name if chances[name] > 0.5 else None


def test_other_words_for_the_same_are_found(routes: OperatorRoutes, encoder: Encoder) -> None:
    asked = {
        "i'm still waiting for my parcel": "order_status",
        "order 8820 where is it": "order_status",
        "has it been shipped yet my order i mean": "order_status",
        "荷物まだ届かないんだけど": "order_status",
        "発送はもうされましたか": "order_status",
        "please put me through to somebody": "person",
        "i'd rather talk to a human being": "person",
        "get me an operator": "person",
        "担当の方をお願いします": "person",
        "スタッフの人と話せますか": "person",
    }
    found = {text: likeliest(routes, encoder, text) for text in asked}
    right = [text for text in asked if found[text] == asked[text]]
    assert len(right) >= len(asked) - 1, found


def test_what_is_about_something_else_is_left_alone(
    routes: OperatorRoutes, encoder: Encoder
) -> None:
    rows = load_examples(assets_dir() / "eval" / "routing-test.jsonl")
    texts = [row.text for row in rows if not row.continuation][::5]
    taken = [text for text in texts if likeliest(routes, encoder, text)]
    assert len(taken) <= 0.03 * len(texts), taken


def test_an_example_word_for_word_is_certain(routes: OperatorRoutes, encoder: Encoder) -> None:
    text = "Where is my order?"
    assert routes.chances(text, encoder.encode([text])[0])["order_status"] == 1.0


def test_a_route_without_examples_is_refused(encoder: Encoder) -> None:
    with pytest.raises(ValueError, match=r"tickets.*no examples"):
        OperatorRoutes([Route("tickets", "buys tickets")], encoder, Background(["hi"], encoder))
