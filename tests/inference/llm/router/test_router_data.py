"""The shipped routing data: whole, varied, and train apart from test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from avatar_server.inference.llm.router import DatasetError, Example, load_examples, parse_example
from avatar_server.inference.llm.router.examples import BUILTIN_NAMES, alone
from avatar_server.inference.llm.router.features import character_grams
from avatar_server.paths import assets_dir

NEAR_DUPLICATE = 0.6
"""Jaccard similarity of character trigrams; spoken fragments of two words share many."""

ROW = {
    "id": "en-1",
    "lang": "en",
    "history": [{"role": "user", "text": "run the tests", "route": "command"}],
    "text": "with coverage",
    "route": "command",
    "continuation": True,
    "resolved": "run the tests with coverage",
}


def shipped(split: str) -> list[Example]:
    return load_examples(assets_dir() / "eval" / f"routing-{split}.jsonl")


@pytest.mark.parametrize(("split", "least"), [("train", 2_000), ("test", 1_000)])
def test_the_shipped_sets_are_large_and_hold_both_languages_and_enough_continuations(
    split: str, least: int
) -> None:
    rows = shipped(split)
    assert len(rows) >= least
    for lang in ("en", "ja"):
        of_lang = [row for row in rows if row.lang == lang]
        assert len(of_lang) >= least / 2
        assert sum(row.continuation for row in of_lang) >= 0.25 * len(of_lang)
        assert {row.route for row in of_lang} == BUILTIN_NAMES


def test_some_rows_with_a_request_before_them_stand_alone() -> None:
    for split in ("train", "test"):
        fresh = [
            row
            for row in shipped(split)
            if row.route in ("question", "command") and not row.continuation and row.history
        ]
        assert len(fresh) > 100


def test_no_utterance_with_the_same_history_is_there_twice() -> None:
    for split in ("train", "test"):
        rows = shipped(split)
        assert len({(row.history, row.text) for row in rows}) == len(rows)


def test_nothing_in_the_test_set_is_nearly_in_the_training_set() -> None:
    train, test = shipped("train"), shipped("test")
    assert not {row.id for row in train} & {row.id for row in test}
    places: dict[str, int] = {}
    known = trigrams([row.text for row in train], places)
    asked = trigrams([row.text for row in test], places)
    known.resize(known.shape[0], len(places))
    asked.resize(asked.shape[0], len(places))
    shared = (asked @ known.T).toarray()
    either = np.asarray(asked.sum(1)).reshape(-1, 1) + np.asarray(known.sum(1)).reshape(1, -1)
    similarity = shared / np.maximum(either - shared, 1)
    near = [
        (test[row].text, train[int(similarity[row].argmax())].text)
        for row in np.flatnonzero(similarity.max(axis=1) >= NEAR_DUPLICATE)
    ]
    assert near == []


def trigrams(texts: list[str], places: dict[str, int]) -> sparse.csr_matrix:
    columns = [
        sorted({places.setdefault(gram, len(places)) for gram in character_grams(text, 3, 3)})
        for text in texts
    ]
    flat = [column for row in columns for column in row]
    ends = np.cumsum([0, *map(len, columns)])
    return sparse.csr_matrix(
        (np.ones(len(flat), np.float32), flat, ends), shape=(len(texts), len(places))
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"route": "chat"}, "none of"),
        ({"route": "stop"}, "never continues"),
        ({"resolved": None}, "needs 'resolved'"),
        ({"continuation": False}, "continuations only"),
        ({"continuation": "yes"}, "true or false"),
        ({"history": []}, "earlier turn"),
        ({"text": " "}, "not empty"),
        ({"history": [{"role": "system", "text": "x"}]}, "role"),
    ],
)
def test_a_row_that_breaks_the_rules_is_refused_in_words(
    change: dict[str, object], words: str
) -> None:
    parse_example(ROW)
    with pytest.raises(ValueError, match=words):
        parse_example({**ROW, **change})


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    missing = {key: value for key, value in ROW.items() if key != "route"}
    file.write_text(f"{json.dumps(ROW)}\n{json.dumps({**missing, 'id': 'en-2'})}\n")
    with pytest.raises(DatasetError, match="line 2: 'route' is missing"):
        load_examples(file)
    file.write_text(f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n")
    with pytest.raises(DatasetError, match="twice"):
        load_examples(file)
    file.write_text("\n")
    with pytest.raises(DatasetError, match="no rows"):
        load_examples(file)
    with pytest.raises(DatasetError, match="cannot read"):
        load_examples(tmp_path / "absent.jsonl")


def test_further_rows_stand_alone() -> None:
    continuing = parse_example(ROW)
    fresh = parse_example({**ROW, "continuation": False, "resolved": None, "text": "open the door"})
    whole, without = alone([continuing, fresh])
    assert (whole.text, whole.continuation, whole.history) == (ROW["resolved"], False, ())
    assert (without.text, without.history) == ("open the door", ())
