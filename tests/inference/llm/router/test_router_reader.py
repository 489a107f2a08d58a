"""The reader: pieces, weights, the adapted encoder, and what it makes of context."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from avatar_server.inference.llm.retrieval import SentenceEncoder
from avatar_server.inference.llm.router import EmbeddingRouter, Turn
from avatar_server.inference.llm.router.joint import (
    MOST_BEFORE,
    MOST_UTTERANCE,
    OF_COMMAND,
    OF_OTHER,
    OF_UNKNOWN_ROUTE,
    QUESTION_BACK,
    REPLY,
    UTTERANCE,
    JointReader,
    told,
)
from avatar_server.inference.llm.router.pieces import Pieces
from avatar_server.inference.llm.router.transformer import AdaptedEncoder
from avatar_server.inference.llm.router.weights import Weights, WeightsError
from avatar_server.models import ModelStore
from avatar_server.paths import assets_dir

ADAPTER = assets_dir() / "router" / "adapter.npz"


@pytest.fixture(scope="module")
def weights() -> Path:
    return ModelStore().path("multilingual-e5-small")


@pytest.fixture(scope="module")
def reader(weights: Path) -> JointReader:
    return JointReader(weights, ADAPTER)


def test_a_word_is_cut_into_its_likeliest_pieces() -> None:
    known = {"": 0.0, "▁": -2.0, "▁run": -3.0, "▁r": -4.0, "un": -2.5, "n": -5.0, "ing": -1.0}
    pieces = Pieces(list(known), list(known.values()), 0)
    names = list(known)
    assert [names[i] for i in pieces.ids("running  run")] == ["▁run", "n", "ing", "▁run"]
    assert pieces.ids("") == []
    # Full-width letters are the same letters; what is unknown in a row is one piece.
    assert pieces.ids("ｒｕｎ") == pieces.ids("run")
    assert pieces.ids("run日本") == [names.index("▁run"), 0]


def test_pieces_are_those_that_the_model_was_trained_with(weights: Path) -> None:
    # As the reference tokenizer of the model gives them.
    pieces = Weights(weights).pieces
    assert pieces.ids("and tomorrow") == [136, 127773]
    assert pieces.ids("what is the weather") == [2367, 83, 70, 92949]


def test_the_encoder_finds_the_same_meaning_in_two_languages(weights: Path) -> None:
    """Weights read wrongly would give noise: the published layers alone are tried."""
    published = Weights(weights)
    encoder = AdaptedEncoder(published, ADAPTER)
    vectors = []
    for text in ("set a timer for ten minutes", "十分のタイマーをかけて", "why is the sky blue"):
        states = encoder.lower([published.start, *published.pieces.ids(text), published.end])
        mean = states.mean(axis=0)
        vectors.append(mean / np.linalg.norm(mean))
    timer, same, sky = vectors
    assert np.isfinite(timer).all()
    assert timer @ same > timer @ sky


def test_the_utterance_comes_first_and_what_was_said_before_is_bounded(
    reader: JointReader,
) -> None:
    history = [
        Turn("user", "run the tests", "command"),
        Turn("assistant", "All of them?"),
        Turn("user", "thanks " * 50, "small_talk"),
        Turn("assistant", "You are welcome. " * 50),
    ]
    ids, kinds = reader.sequence("again " * 100, history)
    assert len(ids) == len(kinds)
    assert kinds.count(UTTERANCE) == MOST_UTTERANCE + 2
    assert kinds.count(REPLY) == MOST_BEFORE + 1
    assert kinds.count(OF_OTHER) == MOST_BEFORE + 1
    assert OF_COMMAND in kinds
    _, kinds = reader.sequence("all", history[:2])
    assert QUESTION_BACK in kinds
    _, kinds = reader.sequence("all", [Turn("user", "run the tests")])
    assert OF_UNKNOWN_ROUTE in kinds


def test_of_the_turns_before_the_last_and_the_last_request_count() -> None:
    play = Turn("user", "play jazz", "command")
    nice = Turn("user", "nice", "small_talk")
    oh = Turn("user", "oh", "small_talk")
    assert told([]) == []
    assert told([play]) == [play]
    assert told([play, nice, oh]) == [oh, play]
    assert told([nice, oh]) == [oh, nice]
    assert told([nice, play]) == [play, nice]


def test_context_decides(reader: JointReader) -> None:
    alone = reader.chances("the other one", [])
    after = reader.chances(
        "the other one",
        [Turn("user", "turn on the lamp", "command"), Turn("assistant", "It is on.")],
    )
    assert sum(alone.values()) == pytest.approx(1)
    assert after["command+"] > 0.5 > alone["command+"]


def test_files_that_are_something_else_are_refused_in_words(weights: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.bin"
    other.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(WeightsError, match="holds no weights of multilingual-e5-small"):
        Weights(other)
    other.write_bytes(weights.read_bytes()[:5_000_000])
    with pytest.raises(WeightsError):
        JointReader(other, ADAPTER)
    with pytest.raises(WeightsError, match="what adapts the router"):
        JointReader(weights, tmp_path / "absent.npz")


def test_head_and_reader_together_decide_clear_cases(weights: Path) -> None:
    router = EmbeddingRouter.shipped(SentenceEncoder(), weights)
    run = [Turn("user", "run the tests", "command"), Turn("assistant", "All passed.")]
    for text, history, wanted in [
        ("this time with --watch", run, ("command", True)),
        ("今度は --watch 付けて同じの走らせて", run, ("command", True)),
        ("what is the capital of peru", run, ("question", False)),
        ("i have to go now, see you tomorrow", run, ("goodbye", False)),
        ("すみませんもう一度ゆっくり言ってください", run, ("repeat", False)),
        (
            "and tomorrow",
            [Turn("user", "will it rain today"), Turn("assistant", "No.")],
            ("question", True),
        ),
        ("おはよう", [], ("small_talk", False)),
    ]:
        decision = router.decide(text, history)
        assert (decision.route, decision.continuation) == wanted, (text, decision)
        assert sum(decision.probabilities.values()) == pytest.approx(1, abs=1e-4)
