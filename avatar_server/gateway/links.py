"""Routes of join links: making, listing and revoking them."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from avatar_server.gateway.access import Access
from avatar_server.gateway.control import Control
from avatar_server.gateway.problems import ProblemError, problems
from avatar_server.security import LinkError, Role, UnknownLink


class NewLink(BaseModel):
    """What a join link is to be good for."""

    model_config = ConfigDict(extra="forbid")

    role: Role = Field(default=Role.SPEAK, description="speak or watch")
    lifetime_s: float | None = Field(default=None, gt=0, description="Seconds; default: a setting.")


class LinkView(BaseModel):
    """A join link."""

    id: str | None = Field(description="To revoke it by; none where this server needs no link.")
    link: str = Field(description="The path to open; the token is in its fragment.")
    token: str | None = Field(description="None where this server needs no link.")
    role: Role
    lifetime_s: float


class GivenLink(BaseModel):
    """A join link that was given out. Its token is not kept."""

    id: str
    role: Role
    expires: float = Field(description="Unix time, seconds.")
    revoked: bool
    viewers: int = Field(description="That joined by it and are here.")


def link_path(session: str, token: str | None) -> str:
    """The page of a session. A fragment is not sent to servers, so that no log shows the token."""
    return f"/s/{session}#t={token}" if token else f"/s/{session}"


def link_routes(control: Control, access: Access) -> APIRouter:
    """`/v1/sessions/{session}/links`."""
    router = APIRouter(prefix="/v1/sessions/{session}/links", tags=["sessions"])

    @router.post(
        "",
        status_code=201,
        summary="Make a join link",
        responses=problems(
            s404="The session has ended.",
            s409="The session has as many links as it may.",
            s422="The body cannot be used.",
        ),
    )
    async def make(session: str, body: NewLink, request: Request) -> LinkView:
        control.viewers.session(session)
        security = control.settings.security
        lifetime = body.lifetime_s or security.link_lifetime_s
        if lifetime > security.most_link_lifetime_s:
            raise ProblemError(
                422,
                "too-long",
                f"A link is good for at most {security.most_link_lifetime_s:.0f} s "
                "(security.most_link_lifetime_s).",
            )
        access.links.keep([one.id for one in control.registry.sessions()])
        try:
            link, token = access.link(session, body.role, lifetime)
        except LinkError as error:
            raise ProblemError(409, "too-many-links", str(error)) from error
        access.note(request, f"link.{body.role}", session)
        return LinkView(
            id=link,
            link=link_path(session, token),
            token=token,
            role=body.role,
            lifetime_s=lifetime,
        )

    @router.get(
        "", summary="Links that were given out", responses=problems(s404="The session has ended.")
    )
    async def listing(session: str) -> list[GivenLink]:
        here = set(control.viewers.session(session).viewers)
        return [
            GivenLink(
                id=link.id,
                role=link.role,
                expires=link.expires,
                revoked=link.revoked,
                viewers=len(link.viewers & here),
            )
            for link in access.links.of(session)
        ]

    @router.delete(
        "/{link}",
        status_code=204,
        summary="Revoke a link: nobody joins by it any more, and who did is let go",
        responses=problems(s404="No such session, or no such link."),
    )
    async def revoke(session: str, link: str, request: Request) -> None:
        control.viewers.session(session)
        try:
            viewers = access.links.revoke(session, link)
        except UnknownLink as error:
            raise ProblemError(404, "unknown-link", str(error)) from error
        for viewer in viewers:
            await control.viewers.expel(session, viewer)
        access.note(request, "link.revoke", f"{session} {link}")

    return router
