"""Routes for whoever runs the server: draining it, and its log."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from avatar_server.gateway.access import Access
from avatar_server.gateway.control import Control
from avatar_server.gateway.logring import LINES, LogRing
from avatar_server.gateway.problems import problems
from avatar_server.gateway.process_use import process_use
from avatar_server.gateway.reload import Reloader, ReloadView

Last = Annotated[int, Query(ge=1, le=LINES, description="How many lines, the newest.")]


class DrainRequest(BaseModel):
    """How long what runs may still take."""

    model_config = ConfigDict(extra="forbid")

    deadline_s: float = Field(
        default=300.0, ge=0, le=86_400, description="Seconds; the last sessions are then ended."
    )


class ProcessView(BaseModel):
    """A process of the server."""

    role: str = Field(description="gateway, inference or avatar")
    session: str
    pid: int
    cpu_s: float = Field(description="CPU seconds since its start.")
    rss_bytes: int = Field(description="Resident memory; 0 where it is not known.")


class DrainView(BaseModel):
    """How far draining is."""

    draining: bool
    sessions: int = Field(description="That still run.")
    seconds_left: float | None = Field(description="Until the last ones are ended.")


def operation_routes(
    control: Control, access: Access, ring: LogRing | None, reloader: Reloader
) -> APIRouter:
    """`/v1/drain`, `/v1/reload` and the logs."""
    router = APIRouter(prefix="/v1", tags=["operations"])

    def view() -> DrainView:
        lifetimes = control.lifetimes
        return DrainView(
            draining=lifetimes.draining,
            sessions=len(control.registry),
            seconds_left=lifetimes.seconds_left,
        )

    @router.post(
        "/drain",
        status_code=202,
        summary="Begin nothing new, let what runs finish, then stop the server",
        responses=problems(s401="No key, or one that is not valid."),
    )
    async def drain(request: Request, body: DrainRequest | None = None) -> DrainView:
        deadline_s = (body or DrainRequest()).deadline_s
        control.lifetimes.drain(deadline_s)
        access.note(request, "drain", f"{deadline_s:g} s")
        return view()

    @router.get("/drain", summary="How far draining is")
    async def state() -> DrainView:
        return view()

    @router.delete("/drain", summary="Take new sessions again")
    async def go_on(request: Request) -> DrainView:
        control.lifetimes.go_on()
        access.note(request, "drain.cancel")
        return view()

    @router.post(
        "/reload",
        summary="Read configuration, avatars and routes anew; sessions go on",
        responses=problems(
            s422="What is on disk cannot be used: nothing was changed.",
            s501="The server was started without files to read.",
        ),
    )
    async def reload(request: Request) -> ReloadView:
        view = await reloader.reload()
        access.note(request, "reload")
        return view

    @router.get("/processes", summary="CPU time and memory of every process of the server")
    async def processes() -> list[ProcessView]:
        return [ProcessView(**dataclasses.asdict(use)) for use in process_use(control)]

    @router.get(
        "/sessions/{session}/picture",
        summary="What a session shows now, as a small JPEG file",
        response_class=Response,
        responses={
            200: {"content": {"image/jpeg": {}}, "description": "The picture."},
            204: {"description": "Nobody watches, so nothing is drawn."},
            **problems(s404="The session has ended.", s503="The avatar does not answer just now."),
        },
    )
    async def picture(session: str) -> Response:
        jpeg = await control.viewers.picture(session)
        headers = {"Cache-Control": "no-store"}
        if not jpeg:
            return Response(None, 204, headers)
        return Response(jpeg, 200, headers, "image/jpeg")

    @router.get("/logs", summary="The server's last log lines, oldest first")
    async def logs(last: Last = 200) -> list[dict[str, Any]]:
        return ring.lines(None, last) if ring else []

    @router.get(
        "/sessions/{session}/logs",
        summary="A session's last log lines, oldest first, also of one that has ended",
        responses=problems(s404="Nothing is known of such a session."),
    )
    async def session_logs(session: str, last: Last = 200) -> list[dict[str, Any]]:
        found = ring.lines(session, last) if ring else []
        if not found:
            control.viewers.session(session)
        return found

    return router
