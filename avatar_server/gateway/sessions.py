"""Routes of sessions and viewers: the operator API and WebRTC signalling."""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator

from avatar_server.clock import MonotonicClock
from avatar_server.gateway.access import Access, Caller, caller_of, revoked
from avatar_server.gateway.control import Control
from avatar_server.gateway.idempotency import Idempotency
from avatar_server.gateway.links import link_path
from avatar_server.gateway.problems import ProblemError, problems
from avatar_server.gateway.registry import Session
from avatar_server.ice_servers import ice_servers
from avatar_server.observe.trace import summarise
from avatar_server.security import LinkError, Role

SDP_TYPE = "application/sdp"
CANDIDATE = re.compile(
    r"(a=)?candidate:\S{1,32} \d{1,5} \S{1,16} \d{1,10} \S{1,255} \d{1,5} typ \S{1,16}( \S+)*",
    re.ASCII,
)
"""A candidate attribute (RFC 8839, section 5.1), as far as shows that it is one."""
_OFFER_BODY = {
    "requestBody": {"required": True, "content": {SDP_TYPE: {"schema": {"type": "string"}}}}
}
_ANSWER: dict[str, Any] = {"content": {SDP_TYPE: {}}, "description": "The SDP answer."}


class NewSession(BaseModel):
    """Which avatar to start."""

    model_config = ConfigDict(extra="forbid")

    avatar: str = Field(min_length=1, max_length=64, description="A name of /v1/avatars.")
    record: bool | None = Field(
        default=None,
        description="Whether to record it; only operators choose. None: as the server is set.",
    )


class SessionView(BaseModel):
    """A session as the API shows it."""

    id: str
    avatar: str
    state: str = Field(description="starting, running or restarting")
    page: str = Field(description="The address at which people watch it.")
    viewers: str = Field(description="The address to which viewers post their offers.")
    viewer_count: int
    always_on: bool = Field(default=False, description="It is replaced if it ends.")
    recorded: bool = Field(default=False, description="What is said in it is recorded.")
    recording_problem: str = Field(default="", description="Why it is not recorded any more.")
    restarts: int
    pid: int | None = Field(description="The avatar process on the server's machine.")
    doing: str = Field(description="What the avatar is doing, as of its last status.")
    speaker: str | None = None
    fps: float = 0.0
    bitrate_bps: float = 0.0
    render_ms: float = 0.0
    encode_ms: float = 0.0
    late_frames: int = 0


class StartedSession(SessionView):
    """A new session, and how its first viewer gets in."""

    link: str = Field(description="The address to open; holds a token where one is needed.")
    link_id: str | None = Field(description="To revoke the link by; none where none is needed.")
    token: str | None = Field(description="For `Authorization: Bearer`; none where none is needed.")


class Candidate(BaseModel):
    """A trickled ICE candidate, as RTCIceCandidate.toJSON() gives it."""

    model_config = ConfigDict(extra="ignore")

    candidate: str | None = Field(
        default="", max_length=4_096, description="Empty or null: no more will come."
    )
    sdpMid: str | None = Field(default=None, max_length=256)
    sdpMLineIndex: int | None = Field(default=None, ge=0, le=64)

    @field_validator("candidate")
    @classmethod
    def _is_candidate(cls, text: str | None) -> str | None:
        if text and not CANDIDATE.fullmatch(text.strip()):
            raise ValueError("this is no ICE candidate, as RTCIceCandidate.candidate gives it")
        return text


def session_view(session: Session) -> SessionView:
    """What the API shows of a session."""
    status = session.status
    problem = status.recording.problem if status and status.recording else ""
    return SessionView(
        id=session.id,
        avatar=session.avatar,
        state=session.state.value,
        page=f"/s/{session.id}",
        viewers=f"/v1/sessions/{session.id}/viewers",
        viewer_count=session.viewer_count,
        always_on=session.pinned,
        recorded=session.recorded,
        recording_problem=problem,
        restarts=session.restarts,
        pid=session.pid,
        doing=status.state if status else "",
        speaker=status.speaker if status else None,
        fps=status.fps if status else 0.0,
        bitrate_bps=status.bitrate_bps if status else 0.0,
        render_ms=status.render_ms if status else 0.0,
        encode_ms=status.encode_ms if status else 0.0,
        late_frames=status.late_frames if status else 0,
    )


def session_routes(control: Control, access: Access) -> APIRouter:
    """Everything under /v1/sessions."""
    router = APIRouter(prefix="/v1/sessions", tags=["sessions"])
    repeats = Idempotency[Session](MonotonicClock())

    @router.post(
        "",
        status_code=201,
        summary="Start a session",
        responses=problems(
            s401="No key, or one that is not valid.",
            s403="The caller may not choose whether it is recorded.",
            s404="No such avatar.",
            s422="The body cannot be used.",
            s503="No place is free, or the models are not ready; Retry-After says when.",
        ),
    )
    async def create(
        body: NewSession,
        request: Request,
        response: Response,
        idempotency_key: Annotated[
            str | None,
            Header(description="Repeating a request with the same key starts nothing twice."),
        ] = None,
    ) -> StartedSession:
        caller = caller_of(request)
        if body.record is not None and caller.scope is None:
            raise ProblemError(
                403, "forbidden", "Whether a conversation is recorded is for operators to choose."
            )
        key = None if idempotency_key is None else f"{caller.name}:{idempotency_key}"
        session = await repeats.once(
            key, body.model_dump_json(), lambda: control.create(body.avatar, record=body.record)
        )
        action = "session.create.recorded" if session.recorded else "session.create"
        access.note(request, action, session.id)
        response.headers["Location"] = f"/v1/sessions/{session.id}"
        access.links.keep([one.id for one in control.registry.sessions()])
        try:
            link, token = access.link(session.id, Role.SPEAK)
        except LinkError as error:
            raise ProblemError(409, "too-many-links", str(error)) from error
        view = session_view(session)
        return StartedSession(
            **view.model_dump(), link=link_path(session.id, token), token=token, link_id=link
        )

    @router.get("", summary="Sessions, oldest first, a page at a time")
    async def listing(
        response: Response,
        limit: Annotated[int, Query(ge=1, le=500, description="At most so many.")] = 100,
        after: Annotated[str, Query(description="The id that the last page ended with.")] = "",
    ) -> list[SessionView]:
        found = control.registry.sessions()
        ids = [session.id for session in found]
        # A session that has ended meanwhile is no place to go on from: begin anew.
        start = ids.index(after) + 1 if after in ids else 0
        page = found[start : start + limit]
        if start + limit < len(found):
            following = f"/v1/sessions?limit={limit}&after={page[-1].id}"
            response.headers["Link"] = f'<{following}>; rel="next"'
        return [session_view(session) for session in page]

    @router.get("/{session}", summary="One session", responses=problems(s404="It has ended."))
    async def one(session: str, request: Request) -> SessionView:
        view = session_view(control.viewers.session(session))
        if caller_of(request).scope is None:
            # It speaks of the server's disk, which is no viewer's business.
            view.recording_problem = ""
        return view

    @router.delete(
        "/{session}",
        status_code=204,
        summary="End a session",
        responses=problems(s404="It has ended."),
    )
    async def end(session: str, request: Request) -> None:
        control.end(session)
        access.note(request, "session.end", session)

    @router.get(
        "/{session}/turns",
        summary="Recent turns of a session, oldest first, and their figures",
        responses=problems(s404="It has ended."),
    )
    async def turns(session: str) -> JSONResponse:
        control.viewers.session(session)
        traces = control.traces.of_session(session)
        return JSONResponse(
            {
                "turns": [msgspec.to_builtins(msgspec.structs.asdict(trace)) for trace in traces],
                "summary": msgspec.to_builtins(summarise(traces)),
            }
        )

    @router.get(
        "/{session}/ice-servers",
        summary="STUN and TURN servers for one viewer, whose account may end by itself",
        responses=problems(s404="It has ended."),
    )
    async def servers(session: str, response: Response) -> list[dict[str, Any]]:
        control.viewers.session(session)
        response.headers["Cache-Control"] = "no-store"
        # The name is for the TURN server's log: it must not let anybody into the session.
        return ice_servers(control.settings.media, secrets.token_hex(4))

    @router.post(
        "/{session}/viewers",
        status_code=201,
        summary="Join a session: send an SDP offer, get the answer",
        response_class=Response,
        responses={
            201: _ANSWER,
            **problems(
                s400="Not an SDP offer.",
                s404="The session has ended: start a new one.",
                s413="More than 64 KiB.",
                s415="Not application/sdp.",
                s422="An offer without what is needed.",
                s503="Full, or the avatar is restarting; Retry-After says when.",
            ),
        },
        openapi_extra=_OFFER_BODY,
    )
    async def join(
        session: str,
        request: Request,
        speak: Annotated[bool, Query(description="Whether this viewer wants to talk.")] = True,
    ) -> Response:
        control.viewers.session(session)
        offer = await read_offer(request)
        may_speak = speak and caller_of(request).role is Role.SPEAK
        viewer, answer = await control.viewers.join(session, offer, may_speak)
        await admitted(caller_of(request), session, viewer)
        location = f"/v1/sessions/{session}/viewers/{viewer}"
        return Response(answer, 201, {"Location": location}, SDP_TYPE)

    async def admitted(caller: Caller, session: str, viewer: str) -> None:
        """Write down by which link a viewer came, unless that was revoked meanwhile."""
        if access.links.is_revoked(session, caller.link):
            await control.viewers.expel(session, viewer)
            raise revoked()
        access.links.joined(session, caller.link, viewer)

    @router.put(
        "/{session}/viewers/{viewer}",
        summary="Connect anew, after a change of network: the same viewer, a new SDP offer",
        response_class=Response,
        responses={
            200: _ANSWER,
            **problems(
                s404="The session or the viewer is gone: join again.",
                s503="The avatar is restarting; Retry-After says when.",
            ),
        },
        openapi_extra=_OFFER_BODY,
    )
    async def rejoin(
        session: str,
        viewer: str,
        request: Request,
        speak: Annotated[bool, Query(description="Whether this viewer wants to talk.")] = True,
    ) -> Response:
        control.viewers.require(session, viewer)
        offer = await read_offer(request)
        may_speak = speak and caller_of(request).role is Role.SPEAK
        answer = await control.viewers.rejoin(session, viewer, offer, may_speak)
        return Response(answer, 200, media_type=SDP_TYPE)

    @router.patch(
        "/{session}/viewers/{viewer}",
        status_code=204,
        summary="Add a trickled ICE candidate",
        responses=problems(
            s404="The session or the viewer is gone.", s503="The avatar is restarting: join again."
        ),
    )
    async def trickle(session: str, viewer: str, body: Candidate) -> None:
        await control.viewers.add_candidate(
            session, viewer, body.candidate or "", body.sdpMid, body.sdpMLineIndex
        )

    @router.delete(
        "/{session}/viewers/{viewer}",
        status_code=204,
        summary="Leave",
        responses=problems(s404="The session or the viewer is gone."),
    )
    async def leave(session: str, viewer: str) -> None:
        await control.viewers.leave(session, viewer)

    return router


async def read_offer(request: Request) -> str:
    """The SDP in a request's body, checked as far as needs no parser. Raises `ProblemError`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != SDP_TYPE:
        raise ProblemError(
            415,
            "wrong-type",
            f"Send the SDP offer with the content type {SDP_TYPE}, not {kind or 'none'}.",
            headers={"Accept-Post": SDP_TYPE},
        )
    try:
        text = (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProblemError(400, "bad-offer", "The SDP offer is not UTF-8 text.") from error
    if not text.lstrip().startswith("v=0"):
        raise ProblemError(400, "bad-offer", "The body is not an SDP offer: it lacks 'v=0'.")
    if "\nm=" not in text:
        raise ProblemError(
            422, "bad-offer", "The SDP offer has no media section: offer audio and video."
        )
    return text
