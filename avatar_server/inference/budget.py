"""When a stage of a turn must be done, from what the turn may take."""

from __future__ import annotations

from dataclasses import dataclass

from avatar_server.inference.scheduler import CostModel

PATH = ("stt", "route", "retrieve", "llm", "tts")
"""What happens one after the other between the viewer's last word and the first of the reply."""

TYPICAL_SIZE = {"stt": 3.0, "route": 1.0, "retrieve": 1.0, "llm": 60.0, "tts": 40.0}
"""Of a stage whose input is not known yet: seconds of speech, characters."""


@dataclass(frozen=True, slots=True)
class TurnBudget:
    """`due` is the clock time at which the reply's first sound should be there."""

    due: float

    def deadline(self, stage: str, costs: CostModel) -> float:
        """The clock time by which `stage` must be done for the later stages to be in time.

        What is kept back for each of them is what 95 % of its jobs do not exceed; so whatever an
        earlier stage leaves over is there for this one.
        """
        later = PATH[PATH.index(stage) + 1 :] if stage in PATH else ()
        return self.due - sum(costs.predict_s(name, TYPICAL_SIZE[name]) for name in later)
