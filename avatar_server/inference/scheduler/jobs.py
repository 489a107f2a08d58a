"""What the scheduler decides about."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """Hardware that engines share: at most `places` steps run on it at once."""

    name: str
    places: int


@dataclass(frozen=True, slots=True)
class Engine:
    """A model, which does one step at a time.

    `batch` jobs of the same `Job.key` may share a step. `device` names the hardware it shares
    with others; none means that its steps are too small to count. `reserved`: never waits for a
    place (frame work, which is due at the tick). `limit` bounds its queue.
    """

    name: str
    batch: int = 1
    device: str = ""
    reserved: bool = False
    limit: int = 64


@dataclass(slots=True, eq=False)
class Job:
    """Work for an engine, done in steps that cannot be interrupted.

    `stage` and `size` are what the cost model predicts a step from; steps after the first count as
    stage `<stage>.next`, size 1. `deadline` is the clock time by which the first step, and every
    further one where there is no `stream`, should be done. `stream` groups the jobs of one reply,
    whose buffered sound counts together: once something of it was made, the next piece is due
    when that sound runs dry. Jobs with the same `key` may share a step. `expires` is the time from
    which nobody wants the result, if it has not begun. `best_effort`: worth doing while nothing
    else is. `pieces` says how many steps must be done by the deadline. The scheduler fills in the
    rest.
    """

    id: str
    session: str
    engine: str
    stage: str = ""
    size: float = 1.0
    deadline: float = math.inf
    stream: str = ""
    key: str = ""
    expires: float = math.inf
    best_effort: bool = False
    pieces: int = 1
    added_at: float = 0.0
    order: int = 0
    steps: int = 0
    late: bool = False

    @property
    def started(self) -> bool:
        return self.steps > 0

    @property
    def cost_stage(self) -> str:
        """The stage that the next step counts as."""
        return f"{self.stage}.next" if self.steps else self.stage

    @property
    def cost_size(self) -> float:
        return 1.0 if self.steps else self.size


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that could run its next step now, as a policy sees it.

    `due` is when the step must be done; `work_s` is what is predicted until then, of which
    `step_s` for the next step alone. `hard`: a viewer hears this reply and would hear the gap.
    `used_s` is what the session used of the engine of late.
    """

    job: Job
    due: float
    work_s: float
    step_s: float
    hard: bool
    used_s: float
