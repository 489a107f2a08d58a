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
from avatar_server.inference.llm.router.features import Context
from avatar_server.inference.llm.router.fitting import fit_head, split
from avatar_server.inference.llm.router.head import compact, fit
from avatar_server.inference.llm.router.quick import quick_route
from avatar_server.inference.llm.router.resolve import merge
from avatar_server.inference.llm.router.views import Vectors, make_views
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
    """A quarter of the training data: enough for clear cases, and fitted in a few seconds."""
    every = load_examples(assets_dir() / "eval" / "routing-train.jsonl")
    return every[::4]


@pytest.fixture(scope="module")
def router(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> EmbeddingRouter:
    """What is shipped, without the reader."""
    return EmbeddingRouter.shipped(encoder).with_routes([HOURS], tmp_path_factory.mktemp("kept"))


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
    head = fit_head(encoder, rows[::4])
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
    head = fit_head(encoder, rows[::4])
    path = tmp_path / "router" / "head.npz"
    storage.save(head, path, "abc")
    assert storage.made_from(path) == "abc"
    text = "play something by satie"
    kept, fresh = (EmbeddingRouter(encoder, h).decide(text) for h in (storage.load(path), head))
    assert kept.route == fresh.route
    assert kept.confidence == pytest.approx(fresh.confidence, abs=0.01)
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_holds_no_head_is_refused_in_words(
    encoder: Encoder, rows: list[Example], tmp_path: Path
) -> None:
    path = tmp_path / "head.npz"
    with pytest.raises(storage.HeadError, match=r"head\.npz holds no head"):
        storage.load(path)
    storage.save(fit_head(encoder, rows[::8]), path, "abc")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(storage.HeadError):
        storage.load(path)
    # An object array would be read by unpickling, which runs code.
    np.savez(path, about=np.array({"format": storage.FORMAT}, dtype=object))
    with pytest.raises(storage.HeadError, match="allow_pickle"):
        storage.load(path)


def test_a_compact_head_decides_nearly_the_same(encoder: Encoder, rows: list[Example]) -> None:
    few = rows[::2]
    vectors = Vectors(encoder)
    vectors.add([text for row in few for text in (row.text, *(t.text for t in row.history))])
    views = make_views([(row.text, Context.of(row.history)) for row in few], vectors)
    targets = [row.route + "+" * row.continuation for row in few]
    whole = fit(views, targets, np.zeros(len(few), np.intp) - 1)
    small = compact(whole, len(few) // 3)
    assert len(small.alpha) == len(few) // 3
    same = whole.scores(views).argmax(1) == small.scores(views).argmax(1)
    assert same.mean() > 0.95
    assert compact(small, 10_000) is small


def test_the_shipped_head_was_fitted_on_the_shipped_data() -> None:
    data = (assets_dir() / "eval" / "routing-train.jsonl").read_text(encoding="utf-8")
    assert storage.made_from(assets_dir() / "router" / "head.npz") == storage.fingerprint(data)


def test_routes_are_learnt_from_their_examples_and_the_background_is_encoded_once(
    encoder: Encoder, tmp_path: Path
) -> None:
    counting = CountingEncoder(encoder)
    shipped = EmbeddingRouter.shipped(counting)
    assert counting.count == 0
    router = shipped.with_routes([HOURS], tmp_path)
    first = counting.count
    assert first > len(HOURS.examples)
    shipped.with_routes([HOURS], tmp_path)
    assert counting.count == first + len(HOURS.examples)
    assert router.decide("what time are you open").route == "opening_hours"
    assert "opening_hours" not in shipped.decide("what time are you open").probabilities
    assert shipped.with_routes([Route("goodbye", "is leaving")], tmp_path) is shipped


def test_what_was_decided_before_is_the_route_of_an_earlier_turn(encoder: Encoder) -> None:
    router = EmbeddingRouter.shipped(encoder)
    lamp = asked("turn on the lamp in the kitchen")
    first = router.decide("the other one", lamp)
    assert (first.route, first.continuation) == ("command", True)
    # Alone "the other one" asks for nothing, and nothing could continue it.
    before = [Turn("user", "the other one"), Turn("assistant", "It is on.")]
    assert router.decide("make it a bit brighter", before).continuation
    assert (
        not EmbeddingRouter.shipped(encoder).decide("make it a bit brighter", before).continuation
    )


def test_earlier_turns_without_a_route_are_routed_after_those_before_them(
    encoder: Encoder,
) -> None:
    router = EmbeddingRouter.shipped(encoder)
    history = [
        *asked("turn on the lamp in the kitchen", route=None),
        *asked("the other one as well", "It is on.", route=None),
    ]
    lone = history[2:]
    assert router._routed(history)[2].route == "command"
    # Each is kept with what was said before it, and alone it asks for nothing.
    assert router._routed(lone)[0].route == "unclear"
    assert router._routed(history)[2].route == "command"


class CountingEncoder:
    """Counts what is encoded."""

    def __init__(self, inner: Encoder) -> None:
        self.inner = inner
        self.count = 0

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.count += len(texts)
        return self.inner.encode(texts)


def test_what_was_said_before_is_encoded_once(encoder: Encoder) -> None:
    counting = CountingEncoder(encoder)
    router = EmbeddingRouter.shipped(counting)
    history = asked("turn on the light in the kitchen")
    router.decide("and in the hall", history)
    before = counting.count
    router.decide("and in the bathroom", history)
    assert counting.count == before + 1


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
