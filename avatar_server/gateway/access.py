"""Who may do what: every route needs something, and one that is not listed needs an operator."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum, auto

from starlette.requests import Request

from avatar_server.clock import Clock, MonotonicClock
from avatar_server.config import Settings
from avatar_server.gateway.guards import is_loopback, too_many
from avatar_server.gateway.problems import ProblemError
from avatar_server.security import (
    ApiKeyError,
    AuditLog,
    KeyStore,
    LinkBook,
    RateLimiter,
    Role,
    Scope,
    TokenError,
    TokenSigner,
    signing_secret,
)
from avatar_server.security.keys import PREFIX

log = logging.getLogger(__name__)


class Need(Enum):
    """What a request must bring."""

    NOTHING = auto()
    READ = auto()
    """A key with any scope."""
    OPERATE = auto()
    """A key with the scope `operate`."""
    START = auto()
    """The same, or nothing where anybody may start a session."""
    VIEW = auto()
    """A link to this session, or a key with the scope `operate`."""


NEEDS: dict[tuple[str, str], Need] = {
    ("GET", "/"): Need.NOTHING,
    ("GET", "/s/{session}"): Need.NOTHING,
    ("GET", "/avatars/{name}/picture"): Need.NOTHING,
    ("GET", "/avatars/{name}/preview"): Need.NOTHING,
    ("GET", "/v1/avatars"): Need.NOTHING,
    ("GET", "/v1/status"): Need.NOTHING,
    ("GET", "/healthz"): Need.NOTHING,
    ("GET", "/readyz"): Need.NOTHING,
    ("GET", "/docs"): Need.NOTHING,
    ("GET", "/metrics"): Need.READ,
    ("GET", "/v1/capacity"): Need.READ,
    ("GET", "/v1/sessions"): Need.READ,
    ("GET", "/v1/sessions/{session}/turns"): Need.READ,
    ("GET", "/v1/sessions/{session}/logs"): Need.READ,
    ("POST", "/v1/sessions"): Need.START,
    ("GET", "/v1/sessions/{session}"): Need.VIEW,
    ("GET", "/v1/sessions/{session}/ice-servers"): Need.VIEW,
    ("POST", "/v1/sessions/{session}/viewers"): Need.VIEW,
    ("PUT", "/v1/sessions/{session}/viewers/{viewer}"): Need.VIEW,
    ("PATCH", "/v1/sessions/{session}/viewers/{viewer}"): Need.VIEW,
    ("DELETE", "/v1/sessions/{session}/viewers/{viewer}"): Need.VIEW,
    ("DELETE", "/v1/sessions/{session}"): Need.OPERATE,
    ("POST", "/v1/sessions/{session}/links"): Need.OPERATE,
    ("GET", "/v1/sessions/{session}/links"): Need.READ,
    ("DELETE", "/v1/sessions/{session}/links/{link}"): Need.OPERATE,
    ("GET", "/admin"): Need.NOTHING,
    ("GET", "/v1/processes"): Need.READ,
    ("GET", "/v1/sessions/{session}/picture"): Need.READ,
    ("GET", "/v1/logs"): Need.READ,
    ("GET", "/v1/drain"): Need.READ,
    ("POST", "/v1/drain"): Need.OPERATE,
    ("DELETE", "/v1/drain"): Need.OPERATE,
    ("POST", "/v1/reload"): Need.OPERATE,
    ("GET", "/v1/recordings"): Need.OPERATE,
    ("GET", "/v1/recordings/{recording}"): Need.OPERATE,
    ("GET", "/v1/recordings/{recording}/video"): Need.OPERATE,
    ("GET", "/v1/recordings/{recording}/captions"): Need.OPERATE,
    ("GET", "/v1/recordings/{recording}/turns"): Need.OPERATE,
    ("DELETE", "/v1/recordings/{recording}"): Need.OPERATE,
}
"""By method and route. What is missing here needs `OPERATE`: a new route is closed until listed."""

LINK_REFUSED = "This link cannot be used"
"""What the page puts above the reason."""
LOCAL = "local"
"""The actor where no key is needed."""
ANYBODY = "anybody"
"""The actor of a visitor without key or link, where that is allowed."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who made a request, and what it may do."""

    name: str
    """A key's name, `local`, `anybody`, or `link`."""
    address: str
    scope: Scope | None = None
    """Of its key; none for viewers."""
    role: Role = Role.SPEAK
    link: str = ""
    """The id of the link that a viewer came by."""


class Access:
    """Checks every request; keeps the audit log."""

    def __init__(
        self,
        settings: Settings,
        *,
        keys: KeyStore | None = None,
        audit: AuditLog | None = None,
        clock: Clock | None = None,
        token_secret: str | None = None,
    ) -> None:
        """Raises `TokenError` where links cannot be signed."""
        self._settings = settings.security
        self.required = key_required(settings)
        self.keys = keys or KeyStore()
        self._audit = audit or AuditLog()
        self.links = LinkBook()
        self._signer: TokenSigner | None = None
        if self.required:
            configured = settings.security.token_secret
            given = token_secret or (configured.get_secret_value() if configured else None)
            self._signer = TokenSigner(signing_secret(given))
        security = settings.security
        self._starts = RateLimiter(
            security.starts_per_minute, security.start_burst, clock or MonotonicClock()
        )

    @property
    def who_may_start(self) -> str:
        """`anybody`, or `operators`: whether the page can start a session by itself."""
        public = not self.required or self._settings.public_start
        return "anybody" if public else "operators"

    async def check(self, request: Request) -> None:
        """Runs before every route: leaves the `Caller` in `request.state`, or refuses."""
        route = getattr(request.scope.get("route"), "path", "")
        method = "GET" if request.method == "HEAD" else request.method
        need = NEEDS.get((method, route), Need.OPERATE)
        session = request.path_params.get("session", "")
        try:
            request.state.caller = self._caller(request, need, session)
        except ProblemError as error:
            if need in (Need.OPERATE, Need.START, Need.READ):
                self._note(request, "nobody", f"{method} {route}", session, error.code)
            raise
        if method == "POST" and need in (Need.START, Need.VIEW):
            self._limit(request)

    def _caller(self, request: Request, need: Need, session: str) -> Caller:
        address = address_of(request)
        if not self.required or need is Need.NOTHING:
            scope = None if self.required else Scope.ADMIN
            return Caller(LOCAL if not self.required else ANYBODY, address, scope)
        credential = bearer(request)
        if credential.startswith(f"{PREFIX}_"):
            return self._operator(credential, need, address)
        if need is Need.VIEW:
            return self._viewer(credential, session, address)
        if need is Need.START and self._settings.public_start:
            return Caller(ANYBODY, address)
        raise _unauthorised("This needs an API key of this server.")

    def _operator(self, credential: str, need: Need, address: str) -> Caller:
        try:
            key = self.keys.verify(credential)
        except ApiKeyError as error:
            log.error("%s", error)
            raise ProblemError(
                503, "keys-unreadable", "The server cannot read its keys; its log says why."
            ) from error
        if key is None:
            raise _unauthorised("This API key is not valid, or was revoked.")
        wanted = Scope.READ if need is Need.READ else Scope.OPERATE
        if not key.scope.covers(wanted):
            raise ProblemError(
                403, "forbidden", f"This needs a key with the scope {wanted}; it has {key.scope}."
            )
        return Caller(key.name, address, key.scope)

    def _viewer(self, credential: str, session: str, address: str) -> Caller:
        if not credential:
            raise _unauthorised("This session is open to those who have a link to it.")
        assert self._signer is not None
        try:
            token = self._signer.read(credential)
        except TokenError as error:
            raise _unauthorised(str(error), LINK_REFUSED) from error
        if token.session != session:
            raise ProblemError(
                403, "forbidden", "This link is for another session.", title=LINK_REFUSED
            )
        if self.links.is_revoked(session, token.id):
            raise revoked()
        return Caller("link", address, None, token.role, token.id)

    def _limit(self, request: Request) -> None:
        address = address_of(request)
        if is_loopback(address):
            return
        if wait := self._starts.take(address):
            raise too_many(wait)

    def link(
        self, session: str, role: Role, lifetime_s: float | None = None
    ) -> tuple[str | None, str | None]:
        """A new link's id and token; none where none is needed. Raises `TooManyLinks`."""
        if self._signer is None:
            return None, None
        lifetime_s = lifetime_s or self._settings.link_lifetime_s
        made = self.links.add(session, role, lifetime_s)
        return made.id, self._signer.sign(session, role, lifetime_s, link=made.id)

    def note(self, request: Request, action: str, target: str = "", outcome: str = "done") -> None:
        """Write to the audit log what the caller of `request` did."""
        self._note(request, caller_of(request).name, action, target, outcome)

    def _note(self, request: Request, actor: str, action: str, target: str, outcome: str) -> None:
        if self._settings.audit and self.required:
            self._audit.note(actor, address_of(request), action, target, outcome)


def key_required(settings: Settings) -> bool:
    """Whether operators need a key: always where others than this machine may reach the server."""
    choice = settings.security.require_key
    if choice != "auto":
        return choice == "always"
    return not is_loopback(settings.http.host) or bool(settings.http.trusted_proxies)


def caller_of(request: Request) -> Caller:
    """Who made this request, as `Access.check` found."""
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller


def address_of(request: Request) -> str:
    """The client's address; behind a trusted proxy, that which the proxy says."""
    return request.client.host if request.client else "unknown"


def bearer(request: Request) -> str:
    """The credential of `Authorization: Bearer …`; empty where there is none."""
    kind, _, credential = request.headers.get("authorization", "").partition(" ")
    return credential.strip() if kind.lower() == "bearer" else ""


def revoked() -> ProblemError:
    """The refusal of a link that an operator took back."""
    return _unauthorised(
        "This link was revoked. Ask whoever invited you for a new one.", LINK_REFUSED
    )


def _unauthorised(detail: str, title: str | None = None) -> ProblemError:
    headers = {"WWW-Authenticate": "Bearer"}
    return ProblemError(401, "unauthorised", detail, title=title, headers=headers)
