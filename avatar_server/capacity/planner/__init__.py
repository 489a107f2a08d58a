"""Whether a model, a GPU and a number of sessions fit together, and whether they can converse."""

from avatar_server.capacity.planner.catalogue import (
    PRECISIONS,
    Gpu,
    LanguageModel,
    Measurement,
    PlanError,
    Precision,
    find_gpu,
    find_model,
    gpus,
    language_models,
    measurements,
)
from avatar_server.capacity.planner.plan import Plan, Workload, make_plan
from avatar_server.capacity.planner.validate import Check, checks, typical_error

__all__ = [
    "PRECISIONS",
    "Check",
    "Gpu",
    "LanguageModel",
    "Measurement",
    "Plan",
    "PlanError",
    "Precision",
    "Workload",
    "checks",
    "find_gpu",
    "find_model",
    "gpus",
    "language_models",
    "make_plan",
    "measurements",
    "typical_error",
]
