"""The router of the embedded tier, with the real sentence encoder and a small head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from avatar_server.inference.llm.retrieval import Encoder, SentenceEncoder
from avatar_server.inference.llm.router import (
    EmbeddingRouter,
    Example,
    Route,
    Turn,
    load_examples,
    storage,
)
from avatar_server.inference.llm.router.embedding import background_texts, fit_head, split
from avatar_server.inference.llm.router.operator import Background, OperatorRoutes
from avatar_server.inference.llm.router.quick import quick_route
from avatar_server.inference.llm.router.resolve import merge
from avatar_server.paths import assets_dir

HOURS = Route(
    "opening_hours",
    "wants to know when we are open",
    (
        "when do you open",
        "what are your opening hours",
        "how long are you open today",
        "are you open on sundays",
        "何時まで開いていますか",
    ),
)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return SentenceEncoder()


@pytest.fixture(scope="module")
def rows() -> list[Example]:
    """Half of the training data: enough for clear cases, and fitted in a few seconds."""
    every = load_examples(assets_dir() / "eval" / "routing-train.jsonl")
    return every[::2]


@pytest.fixture(scope="module")
def router(encoder: Encoder, rows: list[Example]) -> EmbeddingRouter:
    operator = OperatorRoutes([HOURS], encoder, Background(background_texts(rows), encoder))
    return EmbeddingRouter(encoder, fit_head(encoder, rows), operator=operator)


def asked(text: str, reply: str = "Done.", route: str | None = "command") -> list[Turn]:
    return [Turn("user", text, route), Turn("assistant", reply)]


def test_plain_utterances_take_their_routes(router: EmbeddingRouter) -> None:
    for text, route in [
        ("hello there nice to see you", "small_talk"),
        ("what is the tallest mountain in africa", "question"),
        ("please write an email to my landlord about the heating", "command"),
        ("goodbye see you tomorrow", "goodbye"),
        ("明日の東京の天気を教えて", "question"),
        ("アラームを7時にセットして", "command"),
        ("おはようございます", "small_talk"),
    ]:
        decision = router.decide(text)
        # A question put as an order ("tell me the weather") is either, even to people.
        assert decision.route == route or (text.startswith("明日") and decision.route == "command")
        assert not decision.continuation
        assert decision.resolved == text
        assert sum(decision.probabilities.values()) == pytest.approx(1, abs=1e-4)


def test_a_change_to_the_request_before_continues_it(router: EmbeddingRouter) -> None:
    decision = router.decide("this time with --watch", asked("run the tests", "All passed."))
    assert (decision.route, decision.continuation) == ("command", True)
    assert decision.resolved == "run the tests, this time with --watch"
    decision = router.decide("and tomorrow?", asked("will it rain today", "No.", "question"))
    assert (decision.route, decision.continuation) == ("question", True)
    decision = router.decide(
        "今度は --watch 付けて同じの走らせて", asked("テストを走らせて", "すべて通りました。")
    )
    assert decision.continuation


def test_a_chain_of_changes_builds_on_what_was_resolved(router: EmbeddingRouter) -> None:
    history = [
        *asked("run the tests", "All passed."),
        Turn("user", "with coverage", "command", "run the tests, with coverage"),
        Turn("assistant", "Coverage is ninety percent."),
    ]
    decision = router.decide("only for the parser", history)
    assert decision.resolved == "run the tests, with coverage, only for the parser"


def test_a_request_of_its_own_continues_nothing(router: EmbeddingRouter) -> None:
    decision = router.decide(
        "what is the capital of australia", asked("run the tests", "All passed.")
    )
    assert (decision.route, decision.continuation) == ("question", False)


def test_without_an_earlier_request_nothing_continues(router: EmbeddingRouter) -> None:
    for text in ("this time with --watch", "the other one", "and tomorrow"):
        assert not router.decide(text).continuation
        assert not router.decide(text, [Turn("user", "hello", "small_talk")]).continuation


def test_turns_without_a_route_are_routed(router: EmbeddingRouter) -> None:
    history = asked("turn on the light in the kitchen", route=None)
    decision = router.decide("and in the hall", history)
    assert decision.continuation
    assert decision.resolved == "turn on the light in the kitchen, in the hall"


def test_an_operators_route_is_learnt_from_its_examples(router: EmbeddingRouter) -> None:
    assert router.decide("what time are you open").route == "opening_hours"
    assert router.decide("what is the speed of light").route == "question"


def test_what_continues_an_operators_route_stays_in_it(router: EmbeddingRouter) -> None:
    history = asked("when do you open", "At nine.", "opening_hours")
    decision = router.decide("and on saturdays?", history)
    assert (decision.route, decision.continuation) == ("opening_hours", True)


def test_nothing_said_is_asked_back(router: EmbeddingRouter) -> None:
    decision = router.decide("  ")
    assert (decision.route, decision.ask_back) == ("unclear", True)


def test_low_confidence_asks_back(encoder: Encoder, rows: list[Example]) -> None:
    head = fit_head(encoder, rows[::8])
    careful = EmbeddingRouter(encoder, head, ask_back_below=1.0)
    bold = EmbeddingRouter(encoder, head, ask_back_below=0.0)
    text = "could you maybe the thing"
    assert careful.decide(text).ask_back
    assert not bold.decide(text).ask_back


def test_topics_it_was_not_fitted_on_are_mostly_right(
    encoder: Encoder, rows: list[Example]
) -> None:
    parts = split(rows, 4)
    fitted = EmbeddingRouter(
        encoder, fit_head(encoder, [r for r, part in zip(rows, parts, strict=True) if part])
    )
    held = [row for row, part in zip(rows, parts, strict=True) if not part][:150]
    right = [
        (d.route, d.continuation) == (row.route, row.continuation)
        for row in held
        for d in [fitted.decide(row.text, row.history)]
    ]
    assert np.mean(right) > 0.6


def test_the_head_is_kept_and_read_back(
    encoder: Encoder, rows: list[Example], tmp_path: Path
) -> None:
    head = fit_head(encoder, rows[::8])
    path = tmp_path / "router" / "head.npz"
    storage.save(head, path, "abc")
    again = storage.load(path, "abc")
    assert again is not None
    text = "play something by satie"
    kept, fresh = (EmbeddingRouter(encoder, h).decide(text) for h in (again, head))
    assert kept.route == fresh.route
    assert kept.confidence == pytest.approx(fresh.confidence, abs=0.01)
    assert list(path.parent.iterdir()) == [path]


def test_a_head_of_another_make_or_damaged_is_not_used(
    encoder: Encoder, rows: list[Example], tmp_path: Path
) -> None:
    path = tmp_path / "head.npz"
    assert storage.load(path, "abc") is None
    storage.save(fit_head(encoder, rows[::16]), path, "abc")
    assert storage.load(path, "other data") is None
    path.write_bytes(path.read_bytes()[:1000])
    assert storage.load(path, "abc") is None
    np.savez(path, about=np.array({"format": 1}, dtype=object))
    assert storage.load(path, "abc") is None


class CountingEncoder:
    """Counts what is encoded."""

    def __init__(self, inner: Encoder) -> None:
        self.inner = inner
        self.count = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.count += len(texts)
        return self.inner.encode(texts)


def test_ready_fits_once_and_learns_an_operators_routes_from_their_examples(
    encoder: Encoder, rows: list[Example], tmp_path: Path
) -> None:
    lines = (assets_dir() / "eval" / "routing-train.jsonl").read_text("utf-8").splitlines()
    data = tmp_path / "train.jsonl"
    data.write_text("\n".join(lines[::16]), encoding="utf-8")
    counting = CountingEncoder(encoder)
    EmbeddingRouter.ready(counting, folder=tmp_path, data=data)
    fitted = counting.count
    assert fitted > len(lines[::16])
    EmbeddingRouter.ready(counting, folder=tmp_path, data=data)
    assert counting.count == fitted
    EmbeddingRouter.ready(counting, [HOURS], folder=tmp_path, data=data)
    learnt = counting.count
    assert learnt > fitted
    router = EmbeddingRouter.ready(counting, [HOURS], folder=tmp_path, data=data)
    # The background is kept; only the examples are encoded again.
    assert counting.count == learnt + len(HOURS.examples)
    assert router.decide("what time are you open").route == "opening_hours"


def test_a_route_needs_a_plain_name() -> None:
    with pytest.raises(ValueError, match="underscores"):
        Route("opening hours", "")


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("Stop!", "stop"),
        ("never mind", "stop"),
        ("やめて", "stop"),
        ("Pardon?", "repeat"),
        ("もう一回言って。", "repeat"),
        ("stop the music", None),
        ("can you repeat that exercise tomorrow", None),
    ],
)
def test_set_phrases_need_no_deciding(text: str, route: str | None) -> None:
    assert quick_route(text) == route


@pytest.mark.parametrize(
    ("request_text", "change", "whole"),
    [
        ("Run the tests.", "this time with --watch", "Run the tests, this time with --watch"),
        ("will it rain today?", "and tomorrow?", "will it rain today, tomorrow?"),
        ("snooze the alarm", "again", "snooze the alarm"),
        ("order the phone", "yes please", "order the phone"),
        ("find a hotel", "um okay under a hundred", "find a hotel, under a hundred"),
        ("玄関の電気つけて", "子供部屋も", "玄関の電気つけて、子供部屋も"),
        ("続きを読んで", "はい", "続きを読んで"),
    ],
)
def test_a_change_is_put_beside_the_request(request_text: str, change: str, whole: str) -> None:
    assert merge(request_text, change) == whole
