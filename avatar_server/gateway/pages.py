"""Routes of the pages, the avatars' pictures, and the server's state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

import avatar_server
from avatar_server.avatars import AvatarSpec
from avatar_server.gateway.access import Access
from avatar_server.gateway.control import Control
from avatar_server.gateway.guards import is_loopback
from avatar_server.gateway.previews import Kind, Previews, media_type
from avatar_server.gateway.problems import ProblemError, problems

STATIC_DIR = Path(__file__).resolve().parent / "static"
PAGE_METHODS = ["GET", "HEAD"]
_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"image/png": {}, "image/jpeg": {}, "image/webp": {}},
        "description": "The picture.",
    },
    **problems(s404="No such avatar, or not drawn yet: Retry-After says when."),
}
_METRICS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "As text."}
}


class AvatarView(BaseModel):
    """An avatar as the page's picker shows it."""

    name: str = Field(description="For POST /v1/sessions.")
    title: str
    description: str
    language: str
    greeting: str
    suggestions: list[str] = Field(description="What a viewer might say first.")
    picture: str = Field(description="The address of a still picture.")
    preview: str = Field(description="The address of a short looping animation.")


class PlacesView(BaseModel):
    """How many sessions there are, and may be."""

    running: int
    max: int
    free: int


class StatusView(BaseModel):
    """What the page needs to know before it joins."""

    version: str
    ready: bool
    reason: str = Field(description="Why no session is started, as a sentence.")
    phase: str
    sessions: PlacesView
    full_because: str
    models: dict[str, str]
    inference_pid: int | None = Field(description="Only on a server that needs no keys.")
    start: str = Field(description="Who may start a session: anybody or operators.")
    recorded: bool = Field(description="Whether what is started without a word is recorded.")
    secure_hint: str | None = Field(description="Why this address gets no microphone.")


class HealthView(BaseModel):
    """The gateway answers."""

    status: str
    version: str


class ReadyView(BaseModel):
    """Whether a new session would be taken."""

    ready: bool
    reason: str
    free_sessions: int


class PageFiles(StaticFiles):
    """Static files that a browser asks about again, so that an update is seen at once."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.setdefault("Cache-Control", "no-cache")
        return response

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            return await super().get_response(path, scope)
        except ValueError as error:  # a NUL byte in the path
            raise ProblemError(404, "not-found", "There is no such file.") from error


def page_routes(control: Control, previews: Previews, access: Access) -> APIRouter:
    """Pages, pictures, `/v1/avatars`, `/v1/status`, health and metrics."""
    router = APIRouter()

    def index() -> FileResponse:
        page = STATIC_DIR / "index.html"
        if not page.is_file():
            raise ProblemError(
                404, "no-page", "This installation has no page; the API is described at /docs."
            )
        return FileResponse(page, headers={"Cache-Control": "no-cache"})

    @router.api_route("/", methods=PAGE_METHODS, include_in_schema=False)
    async def start_page() -> FileResponse:
        return index()

    @router.api_route("/admin", methods=PAGE_METHODS, include_in_schema=False)
    async def admin_page() -> FileResponse:
        # The page holds nothing: what it shows it asks for with the operator's key.
        return FileResponse(
            STATIC_DIR / "admin" / "index.html", headers={"Cache-Control": "no-cache"}
        )

    @router.api_route("/s/{session}", methods=PAGE_METHODS, include_in_schema=False)
    async def session_page(session: str) -> FileResponse:
        return index()

    def picture(name: str, kind: Kind) -> FileResponse:
        if name not in control.avatars:
            raise ProblemError(404, "unknown-avatar", f"There is no avatar {name!r}.")
        path = previews.get(name, kind)
        if path is None:
            raise ProblemError(
                404,
                "not-drawn-yet",
                "This picture is still being drawn. Try again in a few seconds.",
                retry_after_s=3,
                headers={"Cache-Control": "no-store"},
            )
        with path.open("rb") as file:
            kind_of_picture = media_type(file.read(16))
        return FileResponse(path, media_type=kind_of_picture, headers={"Cache-Control": "no-cache"})

    @router.get(
        "/avatars/{name}/picture",
        tags=["avatars"],
        summary="Still picture",
        response_class=FileResponse,
        responses=_PICTURE,
    )
    async def still(name: str) -> FileResponse:
        return picture(name, Kind.PICTURE)

    @router.get(
        "/avatars/{name}/preview",
        tags=["avatars"],
        summary="Short looping animation",
        response_class=FileResponse,
        responses=_PICTURE,
    )
    async def animation(name: str) -> FileResponse:
        return picture(name, Kind.PREVIEW)

    @router.get("/v1/avatars", tags=["avatars"], summary="The avatars that can be started")
    async def avatars() -> list[AvatarView]:
        return [avatar_view(avatar) for _, avatar in sorted(control.avatars.items())]

    @router.get("/v1/status", tags=["server"], summary="Whether and what the server can do now")
    async def status(request: Request) -> StatusView:
        return status_view(control, request, access)

    @router.get("/healthz", tags=["server"], summary="The gateway answers")
    async def healthz() -> HealthView:
        return HealthView(status="ok", version=avatar_server.__version__)

    @router.get(
        "/readyz",
        tags=["server"],
        summary="200 while a new session would be taken",
        response_model=ReadyView,
        responses={503: {"model": ReadyView, "description": "None would; `reason` says why."}},
    )
    async def readyz() -> JSONResponse:
        readiness = control.readiness()
        refusal = control.refusal()
        free = 0 if refusal else control.registry.free
        ready = readiness.ready and free > 0
        reason = readiness.reason or (refusal.reason if refusal else "")
        body = {"ready": ready, "reason": reason, "free_sessions": free if readiness.ready else 0}
        headers = {} if ready else {"Retry-After": "3"}
        return JSONResponse(body, 200 if ready else 503, headers)

    @router.get(
        "/metrics",
        tags=["server"],
        summary="Prometheus metrics",
        response_class=PlainTextResponse,
        responses=_METRICS,
    )
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(
            control.metrics.render(), headers={"Content-Type": control.metrics.content_type}
        )

    return router


def avatar_view(avatar: AvatarSpec) -> AvatarView:
    """The view of one avatar."""
    return AvatarView(
        name=avatar.name,
        title=avatar.title,
        description=avatar.description,
        language=avatar.language,
        greeting=avatar.greeting,
        suggestions=avatar.suggestions,
        picture=f"/avatars/{avatar.name}/picture",
        preview=f"/avatars/{avatar.name}/preview",
    )


def status_view(control: Control, request: Request, access: Access) -> StatusView:
    """The view of this moment."""
    readiness = control.readiness()
    refusal = control.refusal()
    models = control.models.status
    return StatusView(
        version=avatar_server.__version__,
        ready=readiness.ready,
        reason=readiness.reason,
        phase=readiness.phase,
        sessions=PlacesView(
            running=len(control.registry),
            max=control.capacity.places(),
            free=0 if refusal else control.registry.free,
        ),
        full_because=refusal.reason if refusal else "",
        models=dict(models.models) if models else {},
        # Process ids are for whoever tests on this machine, not for visitors.
        inference_pid=models.pid if models and not access.required else None,
        start=access.who_may_start,
        recorded=control.settings.recording.enabled,
        secure_hint=secure_hint(request),
    )


def secure_hint(request: Request) -> str | None:
    """What to do where the browser will give this address no microphone; None where it will."""
    # Behind a trusted proxy the scheme is the one that the browser used (http.trusted_proxies).
    if request.url.scheme == "https" or is_loopback(request.url.hostname or ""):
        return None
    return (
        "Browsers give the microphone only to pages on https or on localhost. Open this page "
        "over https, or on the server's own machine; typing works here too."
    )
