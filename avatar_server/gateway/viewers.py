"""Viewers of sessions: joining, connecting anew, candidates, pictures, leaving."""

from __future__ import annotations

import contextlib
import secrets

from avatar_server.gateway.lifetimes import Lifetimes
from avatar_server.gateway.link import AvatarLink, Unreachable
from avatar_server.gateway.problems import ProblemError
from avatar_server.gateway.registry import (
    NotRunning,
    Registry,
    RegistryError,
    Session,
    UnknownSession,
    UnknownViewer,
)
from avatar_server.observe.metrics import Metrics
from avatar_server.protocol.messages import AddCandidate, Answer, Leave, Message, Problem

PICTURE_TIMEOUT_S = 3.0


class Viewers:
    """Passes between the routes and the avatar processes, and keeps the registry's places."""

    def __init__(
        self,
        registry: Registry,
        lifetimes: Lifetimes,
        avatars: AvatarLink,
        metrics: Metrics,
        answer_timeout_s: float,
    ) -> None:
        """`answer_timeout_s`: how long an avatar may take for the answer to an offer."""
        self._registry = registry
        self._lifetimes = lifetimes
        self._avatars = avatars
        self._metrics = metrics
        self._answer_timeout_s = answer_timeout_s

    def session(self, session: str) -> Session:
        """Raises `ProblemError` 404."""
        try:
            return self._registry.get(session)
        except UnknownSession as error:
            raise refused(error) from error

    def require(self, session: str, viewer: str) -> None:
        """Raises `ProblemError` 404 where there is no such viewer."""
        try:
            self._registry.require_viewer(session, viewer)
        except RegistryError as error:
            raise refused(error) from error

    async def join(self, session: str, sdp: str, can_speak: bool) -> tuple[str, str]:
        """(viewer id, SDP answer). Raises `ProblemError`."""
        try:
            return await self._join(session, sdp, can_speak)
        except ProblemError as error:
            self._metrics.joins_failed.labels(str(error.status_code)).inc()
            raise

    async def rejoin(self, session: str, viewer: str, sdp: str, can_speak: bool) -> str:
        """The SDP answer for a viewer that connects anew. Raises `ProblemError`."""
        try:
            self._registry.begin_return(session, viewer)
            return await self._negotiate(session, viewer, sdp, can_speak)
        except RegistryError as error:
            raise refused(error) from error
        except ProblemError as error:
            self._metrics.joins_failed.labels(str(error.status_code)).inc()
            raise

    async def add_candidate(
        self, session: str, viewer: str, candidate: str, mid: str | None, line: int | None
    ) -> None:
        """Pass a trickled candidate on. Raises `ProblemError`."""
        self.require(session, viewer)
        message = AddCandidate(
            viewer=viewer, candidate=candidate, sdp_mid=mid, sdp_m_line_index=line
        )
        try:
            await self._avatars.send(session, message)
        except Unreachable as error:
            raise _restarting("The avatar is restarting. Join again.") from error

    async def leave(self, session: str, viewer: str) -> None:
        """A viewer says goodbye. Raises `ProblemError` 404."""
        self.require(session, viewer)
        self._registry.leave(session, viewer, goodbye=True)
        await self.tell(session, Leave(viewer=viewer))

    async def expel(self, session: str, viewer: str) -> None:
        """Let a viewer go whose link was revoked; one who has left is left alone."""
        self._registry.leave(session, viewer, goodbye=True)
        await self.tell(session, Leave(viewer=viewer))

    async def picture(self, session: str) -> bytes:
        """What the session shows now as a JPEG file; empty where nobody watches.

        Raises `ProblemError`.
        """
        self.session(session)
        try:
            return await self._avatars.picture(session, PICTURE_TIMEOUT_S)
        except Unreachable as error:
            raise _restarting("The avatar does not answer just now.") from error

    async def tell(self, session: str, message: Message) -> None:
        """Send what needs no answer; a process that is not there has nothing to be told."""
        with contextlib.suppress(Unreachable):
            await self._avatars.send(session, message)

    async def _join(self, session: str, sdp: str, can_speak: bool) -> tuple[str, str]:
        viewer = secrets.token_hex(8)
        if not self._lifetimes.may_join(self.session(session)):
            raise ProblemError(
                503, "draining", "The server is being replaced. Try again soon.", retry_after_s=10
            )
        try:
            self._registry.begin_join(session, viewer)
        except RegistryError as error:
            raise refused(error) from error
        answer = await self._negotiate(session, viewer, sdp, can_speak)
        self._metrics.viewers_joined.inc()
        return viewer, answer

    async def _negotiate(self, session: str, viewer: str, sdp: str, can_speak: bool) -> str:
        """The avatar's answer for a viewer whose place is held; frees the place where it fails."""
        joined = False
        try:
            answer = await self._avatars.offer(
                session, viewer, sdp, can_speak, self._answer_timeout_s
            )
            if isinstance(answer, Problem):
                raise _from_avatar(answer)
            joined = self._registry.joined(session, viewer)
        except Unreachable as error:
            raise _restarting(f"{_sentence(error)} Try again in a second.") from error
        finally:
            if not joined:
                self._registry.leave(session, viewer)
                await self.tell(session, Leave(viewer=viewer))
        if not joined:
            raise _restarting("The avatar is restarting. Try again.")
        assert isinstance(answer, Answer)
        return answer.sdp


def refused(error: RegistryError) -> ProblemError:
    """The problem document for what the registry refuses."""
    match error:
        case UnknownSession():
            return ProblemError(404, "unknown-session", str(error))
        case UnknownViewer():
            return ProblemError(404, "unknown-viewer", str(error))
        case NotRunning():
            return _restarting(str(error))
        case _:
            return ProblemError(503, "full", str(error), retry_after_s=10)


def _restarting(detail: str) -> ProblemError:
    return ProblemError(503, "restarting", detail, retry_after_s=1)


def _from_avatar(problem: Problem) -> ProblemError:
    status = problem.status if 400 <= problem.status < 600 else 502
    retry = 1 if status == 503 else None
    code = problem.title.lower().replace(" ", "-")
    return ProblemError(status, code, problem.detail, title=problem.title, retry_after_s=retry)


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:] + "."
