"""The trained head: kernel ridge regression over several views of an utterance, in numpy.

The kernel between two utterances, with `e` the sentence embeddings, `w` and `g` the hashed words
and character n-grams, `s` the measures, and `x` the kind of the request before (none, question,
other; 1 where the two agree):

    r + w·w + g·g + s·s + x (w·w + r) + r exp(-|s - s'|² / 2),   r = exp(-|e - e'|²)

The linear parts fold into weights. What the others give is carried by `CARRIERS` of the training
rows, with weights that come nearest to those of all rows: that loses nothing that can be measured,
and makes the head small enough to be shipped. In cross-validation over topics kernel ridge was
right 2 to 4 points more often than logistic regression, a support vector machine or a small neural
network on the same views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from avatar_server.inference.llm.router.features import HASH_SIZE, FloatArray

PENALTY = 0.3
"""Ridge. From cross-validation over topics; 0.1 to 1 differ by less than half a point."""

CARRIERS = 1_200
"""Rows that carry the kernel's curved part. With 800 it loses 0.2 points, with 1,600 none."""
CARRIED_PENALTY = 3e-6
"""Ridge of the carriers' weights, for each row that they stand for."""

Marks = tuple[NDArray[np.int32], FloatArray]


@dataclass(frozen=True, slots=True)
class Views:
    """Utterances as the kernel sees them; n of each."""

    embeddings: FloatArray
    """(n, dimensions), unit length."""
    words: Sequence[Marks]
    grams: Sequence[Marks]
    measures: FloatArray
    """(n, measures), not yet scaled."""
    states: NDArray[np.int8]
    """(n,), 0 to 2: the kind of the request before."""

    def pick(self, rows: NDArray[np.intp]) -> Views:
        return Views(
            self.embeddings[rows],
            [self.words[i] for i in rows],
            [self.grams[i] for i in rows],
            self.measures[rows],
            self.states[rows],
        )

    def __len__(self) -> int:
        return len(self.states)


@dataclass(frozen=True, slots=True)
class Head:
    """Weights; `labels` are a route's name, with "+" behind it for its continuations."""

    labels: tuple[str, ...]
    temperature: float
    mean: FloatArray
    scale: FloatArray
    embeddings: FloatArray
    measures: FloatArray
    states: NDArray[np.int8]
    alpha: FloatArray
    """(rows, labels)"""
    measure_weights: FloatArray
    """(measures, labels)"""
    word_weights: FloatArray
    """(4, HASH_SIZE, labels): for any state, then one for each."""
    gram_weights: FloatArray
    """(HASH_SIZE, labels)"""

    def scores(self, views: Views) -> FloatArray:
        """(n, labels); the highest is the decision."""
        scaled = _scaled(views.measures, self.mean, self.scale)
        curved = _curved(views.embeddings, scaled, views.states, self)
        out: FloatArray = curved @ self.alpha
        out += scaled @ self.measure_weights
        for row, state in enumerate(views.states):
            places, weights = views.words[row]
            out[row] += weights @ (
                self.word_weights[0][places] + self.word_weights[1 + int(state)][places]
            )
            places, weights = views.grams[row]
            out[row] += weights @ self.gram_weights[places]
        return out

    def probabilities(self, views: Views) -> FloatArray:
        """(n, labels), rows sum to 1."""
        return softmax(self.scores(views) * self.temperature)


def softmax(scores: FloatArray) -> FloatArray:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    out: FloatArray = raised / raised.sum(axis=1, keepdims=True)
    return out


def fit(views: Views, targets: Sequence[str], folds: NDArray[np.intp]) -> Head:
    """Fit on all rows; the temperature on scores of rows held out.

    `folds` (n,) numbers the part each row is held out in; -1 is never held out. A row's further
    forms belong into its part.
    """
    labels = tuple(sorted(set(targets)))
    wanted = np.where(
        np.array(targets)[:, None] == np.array(labels)[None], np.float32(1), np.float32(-1)
    )
    held = np.zeros_like(wanted)
    for fold in range(int(folds.max(initial=-1)) + 1):
        out, kept = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        held[out] = _solve(views.pick(kept), wanted[kept], labels, 1.0).scores(views.pick(out))
    judged = folds >= 0
    temperature = _temperature(held[judged], wanted[judged] > 0) if judged.any() else 3.0
    return _solve(views, wanted, labels, temperature)


def _solve(views: Views, wanted: FloatArray, labels: tuple[str, ...], temperature: float) -> Head:
    from scipy import sparse
    from sklearn.kernel_ridge import KernelRidge

    mean = views.measures.mean(axis=0)
    scale = 1 / ((views.measures.std(axis=0) + 1e-6) * np.sqrt(views.measures.shape[1]))
    scaled = _scaled(views.measures, mean, scale)
    words, grams = (
        sparse.csr_matrix(
            (
                np.concatenate([weights for _, weights in marks]),
                np.concatenate([places for places, _ in marks]),
                np.cumsum([0, *(len(places) for places, _ in marks)]),
            ),
            shape=(len(marks), HASH_SIZE),
        )
        for marks in (views.words, views.grams)
    )
    # In place and in stretches: with 7,000 rows each such table takes 200 MB.
    kernel = _near(scaled, scaled)
    kernel += 1
    same = _same(views.states, views.states)
    kernel += same
    kernel *= _unit_near(views.embeddings, views.embeddings)
    same += 1
    for start in range(0, len(views), 512):
        part = slice(start, start + 512)
        kernel[part] += scaled[part] @ scaled.T
        kernel[part] += same[part] * (words[part] @ words.T).toarray()
        kernel[part] += (grams[part] @ grams.T).toarray()
    del same
    ridge = KernelRidge(alpha=PENALTY, kernel="precomputed").fit(kernel, wanted)
    alpha = np.asarray(ridge.dual_coef_, np.float32)
    weights = [words.T @ alpha]
    weights += [words.T @ (alpha * (views.states == state)[:, None]) for state in range(3)]
    return Head(
        labels,
        temperature,
        mean.astype(np.float32),
        scale.astype(np.float32),
        views.embeddings.astype(np.float32),
        scaled,
        views.states,
        alpha,
        scaled.T @ alpha,
        np.stack(weights).astype(np.float32),
        np.asarray(grams.T @ alpha, np.float32),
    )


def compact(head: Head, carriers: int = CARRIERS) -> Head:
    """The head with fewer rows, chosen at random; it decides nearly the same."""
    rows = len(head.alpha)
    if rows <= carriers:
        return head
    chosen = np.sort(np.random.default_rng(0).choice(rows, carriers, replace=False))
    few = replace(
        head,
        embeddings=head.embeddings[chosen],
        measures=head.measures[chosen],
        states=head.states[chosen],
        alpha=head.alpha[chosen],
    )
    wanted = np.zeros_like(head.alpha)
    kernel = np.zeros((rows, carriers), np.float32)
    for start in range(0, rows, 512):
        part = slice(start, start + 512)
        place = head.embeddings[part], head.measures[part], head.states[part]
        wanted[part] = _curved(*place, head) @ head.alpha
        kernel[part] = _curved(*place, few)
    square = (kernel.T @ kernel).astype(np.float64)
    square += CARRIED_PENALTY * rows * np.eye(carriers)
    alpha = np.linalg.solve(square, (kernel.T @ wanted).astype(np.float64))
    return replace(few, alpha=alpha.astype(np.float32))


def _curved(
    embeddings: FloatArray, scaled: FloatArray, states: NDArray[np.int8], head: Head
) -> FloatArray:
    """The kernel's part that is not linear, with each of the head's rows."""
    out = _near(scaled, head.measures)
    out += 1 + _same(states, head.states)
    out *= _unit_near(embeddings, head.embeddings)
    return out


def _same(left: NDArray[np.int8], right: NDArray[np.int8]) -> FloatArray:
    out: FloatArray = (left[:, None] == right[None]).astype(np.float32)
    return out


def _scaled(raw: FloatArray, mean: FloatArray, scale: FloatArray) -> FloatArray:
    """Of unit variance over all measures together; nothing counts more than 3 deviations."""
    limit = 3 / np.sqrt(raw.shape[1])
    out: FloatArray = np.clip((raw - mean) * scale, -limit, limit).astype(np.float32)
    return out


def _near(left: FloatArray, right: FloatArray) -> FloatArray:
    """exp(-distance² / 2)"""
    out = left @ right.T
    out -= (left * left).sum(1)[:, None] / 2
    out -= (right * right).sum(1)[None] / 2
    np.minimum(out, 0, out=out)
    result: FloatArray = np.exp(out, out=out)
    return result


def _unit_near(left: FloatArray, right: FloatArray) -> FloatArray:
    """exp(-distance²) of vectors of unit length."""
    out = left @ right.T
    out -= 1
    out *= 2
    result: FloatArray = np.exp(out, out=out)
    return result


def _temperature(scores: FloatArray, right: NDArray[np.bool_]) -> float:
    """The factor under which the softmax of the scores gives the right labels most weight.

    Guo et al., "On Calibration of Modern Neural Networks" (2017); here its inverse, found by
    search, since one number needs no gradient.
    """
    factors = np.geomspace(0.5, 20, 80)
    losses = [
        -float(np.log(softmax(scores * np.float32(factor))[right] + 1e-9).mean())
        for factor in factors
    ]
    return float(factors[int(np.argmin(losses))])
