"""The reader: pieces, weights, the adapted encoder, and what it makes of context."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from avatar_server.inference.llm.retrieval import SentenceEncoder
from avatar_server.inference.llm.router import EmbeddingRouter, Turn, load_examples
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
from avatar_server.inference.llm.router.quantized import QuantizedLinear
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


def test_the_scores_are_those_of_the_network_that_was_trained(reader: JointReader) -> None:
    """As PyTorch computed them in training, in the order of the reader's labels."""
    rows = {row.id: row for row in load_examples(assets_dir() / "eval" / "routing-train.jsonl")}
    for name, trained in {
        "en-train-travel-013": [-0.28, 4.69, -1.22, -0.95, -1.6, -0.89, -0.61, 0.86, -0.51],
        "en-train-avatar-012": [-0.73, 4.26, -1.23, -1.07, -0.09, -1.02, -0.9, 1.7, -0.95],
        "ja-train-0752": [2.79, -0.6, -2.01, -1.01, -1.05, -1.81, -0.8, 2.68, -0.03],
        "ja-train-0857": [-0.9, 0.37, -2.01, -0.21, 0.47, -1.42, -1.05, 4.64, -0.1],
    }.items():
        row = rows[name]
        scores = reader.encoder.scores(*reader.sequence(row.text, row.history))
        # Eight bits are not thirty-two.
        assert np.abs(scores - trained).mean() < 0.3, (name, scores)


def test_a_matrix_in_eight_bits_gives_nearly_the_same() -> None:
    random = np.random.default_rng(0)
    matrix = random.normal(0, 0.05, (384, 96)).astype(np.float32)
    matrix[:, 3] *= 40
    matrix[:, 4] = 0
    bias = random.normal(0, 1, 96).astype(np.float32)
    x = random.normal(0, 1, (7, 384)).astype(np.float32)
    exact, near = x @ matrix + bias, QuantizedLinear(matrix, bias)(x)
    assert near.shape == exact.shape
    assert near[:, 4] == pytest.approx(exact[:, 4])
    error = np.abs(near - exact).mean(axis=0) / np.abs(x @ matrix + 1e-9).mean(axis=0)
    assert np.delete(error, 4).mean() < 0.03


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
