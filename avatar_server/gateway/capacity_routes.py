"""`/v1/capacity`: how many sessions fit here, why not more, and how full the machine is."""

from __future__ import annotations

import math
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from avatar_server.capacity.demand import WHY, Use
from avatar_server.capacity.overload import DESCRIPTIONS
from avatar_server.gateway.control import Control
from avatar_server.protocol.costs import FrameCosts, StageCosts


class UseView(BaseModel):
    """Predicted use of one resource."""

    resource: str
    used: float | None = Field(description="null: without end.")
    bound: float = Field(description="A session fits only where `used` stays at or below this.")
    unit: str


class OverloadView(BaseModel):
    """What is saved just now."""

    level: int = Field(description="0: nothing, 5: all measures.")
    measures: list[str]
    reason: str = Field(description="What made the level rise last.")
    late_share: float = Field(description="Of frames due, of the session that has most.")
    frame_cost: float = Field(description="Of the time between frames, of the costliest session.")
    wait_ms: float = Field(description="Jobs' wait in the queues of inference, 75th percentile.")


class CapacityView(BaseModel):
    """How many sessions fit."""

    sessions: int = Field(description="That fit in all.")
    running: int
    free: int = Field(description="That would be started now.")
    binding: str = Field(description="The resource that does not do for one more.")
    reason: str = Field(description="The same in words.")
    refused_because: str = Field(description="Why none would be started now; empty: one would.")
    measured: bool = Field(description="False: only the setting counts.")
    uses_when_full: list[UseView]
    uses_now: list[UseView]
    corrections: dict[str, float] = Field(
        description="What running sessions take, as a multiple of what was measured at the start."
    )
    overload: OverloadView
    machine: dict[str, Any] | None
    frame_costs: dict[str, Any] | None
    stage_costs: dict[str, Any] | None


def capacity_view(control: Control) -> CapacityView:
    """The view of this moment."""
    keeper, running = control.capacity, len(control.registry)
    capacity, refusal = keeper.capacity(), control.refusal()
    demand, learned = keeper.admission.demand, keeper.admission.corrections
    level = keeper.overload.level
    return CapacityView(
        sessions=capacity.fits,
        running=running,
        free=0 if refusal else control.registry.free,
        binding=capacity.binding.value,
        reason=WHY[capacity.binding],
        refused_because=refusal.reason if refusal else "",
        measured=capacity.measured,
        uses_when_full=[_use(use) for use in capacity.uses],
        uses_now=[_use(use) for use in demand.uses(running, learned)] if demand else [],
        corrections={"frames": round(learned.frames, 3), "inference": round(learned.inference, 3)},
        overload=OverloadView(
            level=level,
            measures=[text for each, text in DESCRIPTIONS.items() if 0 < each <= level],
            reason=keeper.overload.reason,
            late_share=round(keeper.load.late_share, 4),
            frame_cost=round(keeper.load.frame_cost, 3),
            wait_ms=round(keeper.load.wait_ms, 1),
        ),
        machine=_plain(keeper.machine),
        frame_costs=_plain(keeper.frame_costs),
        stage_costs=_plain(keeper.stage_costs),
    )


def capacity_routes(control: Control) -> APIRouter:
    """The route."""
    router = APIRouter()

    @router.get("/v1/capacity", tags=["server"], summary="How many sessions fit, and why not more")
    async def capacity() -> CapacityView:
        return capacity_view(control)

    return router


def _use(use: Use) -> UseView:
    # JSON has no infinity.
    used = round(use.used, 3) if math.isfinite(use.used) else None
    return UseView(resource=use.resource.value, used=used, bound=round(use.bound, 3), unit=use.unit)


def _plain(value: FrameCosts | StageCosts | Any) -> dict[str, Any] | None:
    if value is None:
        return None
    return {name: getattr(value, name) for name in value.__struct_fields__}
