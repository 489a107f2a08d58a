"""The planner's predictions beside what others measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from avatar_server.capacity.planner.catalogue import (
    Measurement,
    find_gpu,
    find_model,
    measurements,
)
from avatar_server.capacity.planner.roofline import Roofline

FITTED_ENGINES = frozenset({"vllm", "other"})
"""Measurements with these had a part in fitting the constants; the rest are held against them."""


@dataclass(frozen=True)
class Check:
    """One measurement and its prediction."""

    measurement: Measurement
    quantity: str
    """`decode` or `first token`."""
    measured_ms: float
    predicted_ms: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_ms / self.measured_ms - 1

    @property
    def fitted(self) -> bool:
        """Whether the constants were fitted to it among others."""
        return self.measurement.engine in FITTED_ENGINES


def check(measurement: Measurement) -> Check:
    """The prediction for one measurement."""
    _, model, precision = find_model(f"{measurement.model}-{measurement.precision}")
    roofline = Roofline(model, precision, find_gpu(measurement.gpu))
    if measurement.decode_ms is not None:
        return Check(measurement, "decode", measurement.decode_ms, roofline.decode_ms())
    if measurement.first_token_ms is None or measurement.prompt_tokens is None:
        raise ValueError(f"a measurement without a figure: {measurement}")
    predicted = roofline.first_token_ms(measurement.prompt_tokens)
    return Check(measurement, "first token", measurement.first_token_ms, predicted)


def checks() -> list[Check]:
    """All measurements with their predictions."""
    return [check(measurement) for measurement in measurements()]


def typical_error(some: Iterable[Check]) -> float:
    """Root mean square of the logarithm of predicted over measured, as a ratio: 0.2 is 20%."""
    logs = [math.log(one.predicted_ms / one.measured_ms) for one in some]
    if not logs:
        raise ValueError("no measurement to take an error of")
    return math.exp(math.sqrt(sum(log * log for log in logs) / len(logs))) - 1
