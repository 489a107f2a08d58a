"""ASGI middleware: security headers, size limit, refusal of foreign pages, request metrics."""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from avatar_server.config import HttpSettings
from avatar_server.gateway.problems import ProblemError, problem_response
from avatar_server.observe.metrics import Metrics
from avatar_server.security import RateLimiter

MAX_BODY_BYTES = 64 * 1024
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """Whether a host name or address reaches only this machine."""
    name = host.strip("[]").lower()
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def page_url(http: HttpSettings, port: int) -> str:
    """The page's address, without a path; for "all interfaces" the one that works here."""
    everywhere = http.host in ("0.0.0.0", "::", "")
    host = "localhost" if everywhere or is_loopback(http.host) else bracketed(http.host)
    return f"{scheme_of(http)}://{host}:{port}"


def scheme_of(http: HttpSettings) -> str:
    """http or https."""
    return "http" if http.tls_certificate is None else "https"


def bracketed(host: str) -> str:
    """A host as addresses have it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def foreign_origin(
    headers: Mapping[str, str], *, loopback_only: bool, allowed: Iterable[str]
) -> str | None:
    """Why a changing request must be refused; None where it may pass.

    A page of another site can make a browser post here: its `Origin` then differs from the `Host`
    asked for. A site whose name is made to point at this machine (DNS rebinding) sends a matching
    pair, so that a server reached only on loopback also takes only loopback names. Programs other
    than browsers send no `Origin` and pass.
    """
    origin = headers.get("origin")
    if origin is None:
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return "another site"
        return None
    if origin.rstrip("/").lower() in {item.rstrip("/").lower() for item in allowed}:
        return None
    place = urlsplit(origin)
    if not place.netloc or place.netloc.lower() != headers.get("host", "").lower():
        return origin
    if loopback_only and not is_loopback(place.hostname or ""):
        return origin
    return None


class Guards:
    """Wraps the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        *,
        loopback_only: bool,
        allowed_origins: list[str],
        limiter: RateLimiter,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._loopback_only = loopback_only
        self._allowed = allowed_origins
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await problem_response(refusal)(scope, receive, send_guarded)
            else:
                await self._app(scope, _limited(receive), send_guarded)
        finally:
            # Only known routes become labels, else any address asked for would be a new series.
            route = getattr(scope.get("route"), "path", "(none)")
            self._metrics.http_requests.labels(scope["method"], route, str(status)).inc()
            self._metrics.http_s.labels(route).observe(time.perf_counter() - started)

    def _refusal(self, scope: Scope) -> ProblemError | None:
        headers = Headers(scope=scope)
        address = scope["client"][0] if scope.get("client") else ""
        # On this machine itself a load test asks more than any person.
        if not is_loopback(address) and (wait := self._limiter.take(address)):
            return too_many(wait)
        if scope["method"] not in SAFE_METHODS:
            origin = foreign_origin(
                headers, loopback_only=self._loopback_only, allowed=self._allowed
            )
            if origin is not None:
                return ProblemError(
                    403,
                    "foreign-origin",
                    f"Requests from pages of {origin} are refused. If that page is yours, name "
                    "its origin in the setting http.allowed_origins.",
                )
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > MAX_BODY_BYTES:
            return too_large()
        return None


def too_many(wait_s: float) -> ProblemError:
    """The problem of an address that asks too often."""
    seconds = max(1, math.ceil(wait_s))
    return ProblemError(
        429,
        "too-many-requests",
        f"There were too many requests from your address. Try again in {seconds} s.",
        retry_after_s=seconds,
    )


def too_large() -> ProblemError:
    """The problem of a body above `MAX_BODY_BYTES`."""
    return ProblemError(
        413, "too-large", f"The request's body may have at most {MAX_BODY_BYTES} bytes."
    )


def _limited(receive: Receive) -> Receive:
    """`receive` that raises once more than `MAX_BODY_BYTES` came (no length was announced)."""
    taken = 0

    async def limited() -> Message:
        nonlocal taken
        message = await receive()
        if message["type"] == "http.request":
            taken += len(message.get("body", b""))
            if taken > MAX_BODY_BYTES:
                raise too_large()
        return message

    return limited
