"""The server under test: one of our own, or a running one; over HTTP and, where local, /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from prometheus_client.parser import text_string_to_metric_families

from avatar_server.loadtest.usage import (
    AVATAR,
    GATEWAY,
    INFERENCE,
    LOAD,
    OTHER,
    gateway_of,
    server_children,
)
from avatar_server.operate.client import credentials

_TIMEOUT_S = 10.0
"""A busy server answers within a second; one that does not by then is taken for gone."""


class LoadError(RuntimeError):
    """The load test cannot be done as asked; the message says what to change."""


@dataclass(slots=True)
class Pids:
    """Process ids on this machine; `gateway` is None where the server's processes are elsewhere."""

    gateway: int | None = None
    inference: int | None = None
    avatars: dict[str, int] = field(default_factory=dict)
    others: list[int] = field(default_factory=list)

    def named(self, numbers: dict[str, int], conductor: int, viewers: list[int]) -> dict[int, str]:
        """Names by id for `UsageMeter`; `numbers`: the number of each session's id, from 0.

        `conductor` and `viewers` are the load test's own processes.
        """
        names = dict.fromkeys(viewers, f"{LOAD} viewers") | {conductor: f"{LOAD} conductor"}
        if self.gateway is None:
            return names
        names |= dict.fromkeys(self.others, OTHER)
        for session, pid in self.avatars.items():
            number = numbers.get(session)
            names[pid] = OTHER if number is None else f"{AVATAR} {number + 1}"
        if self.inference is not None:
            names[self.inference] = INFERENCE
        names[self.gateway] = GATEWAY
        return names


class Target:
    """HTTP client of the server; use as an async context manager. Raises `LoadError`."""

    def __init__(self, url: str, gateway_pid: int | None = None) -> None:
        """`gateway_pid` where the server is our own child."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LoadError(f"{url!r} is no address of a server: write it like http://host:8080")
        self.url = url.rstrip("/")
        self._gateway_pid = gateway_pid
        self._http = httpx.AsyncClient(base_url=self.url, timeout=_TIMEOUT_S, headers=credentials())

    async def __aenter__(self) -> Target:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def get(self, path: str) -> Any:
        """JSON of a GET."""
        reply = await self._ask(path)
        try:
            return reply.json()
        except ValueError as error:
            raise LoadError(f"{self.url}{path} is not what an avatar server answers") from error

    async def get_if_there(self, path: str) -> Any:
        """As `get`; None where the server has no such page."""
        try:
            return await self.get(path)
        except LoadError:
            return None

    async def _ask(self, path: str) -> httpx.Response:
        try:
            reply = await self._http.get(path)
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise LoadError(
                f"the server at {self.url} cannot be reached ({why}): is it running there?"
            ) from error
        if reply.status_code in (401, 403):
            raise LoadError(
                f"the server at {self.url} asks for a key with the scope operate: give it in the "
                "environment, as AVATAR_SERVER_KEY"
            )
        if not reply.is_success:
            raise LoadError(f"{self.url}{path} answered {reply.status_code}: no avatar server?")
        return reply

    async def avatars(self, wanted: list[str]) -> list[dict[str, Any]]:
        """The avatars `wanted`, or all there are."""
        known = {str(avatar["name"]): avatar for avatar in await self.get("/v1/avatars")}
        if missing := [name for name in wanted if name not in known]:
            raise LoadError(
                f"the server has no avatar {missing[0]!r}; it has: {', '.join(sorted(known))}"
            )
        return [known[name] for name in (wanted or sorted(known))]

    async def pids(self) -> Pids:
        """The server's processes as of now, where they are on this machine."""
        status = await self.get("/v1/status")
        inference = status.get("inference_pid")
        gateway = self._gateway_pid
        if gateway is None and inference is not None and self._may_be_local():
            gateway = gateway_of(inference)
        if gateway is None:
            return Pids()
        sessions = await self.get("/v1/sessions")
        avatars = {s["id"]: s["pid"] for s in sessions if s.get("pid")}
        known = {gateway, inference, *avatars.values()}
        others = [pid for pid in server_children(gateway) if pid not in known]
        return Pids(gateway, inference, avatars, others)

    def _may_be_local(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    async def ready_inference(self) -> int | None:
        """The inference process's id, once it is ready."""
        try:
            status = await self.get("/v1/status")
        except LoadError:
            return None
        return status["inference_pid"] if status["ready"] else None

    async def metrics(self) -> dict[str, float]:
        """Counters and gauges by name and labels, as `name{label="value"}`."""
        text = (await self._ask("/metrics")).text
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.endswith(("_bucket", "_created")):
                    continue
                labels = ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found

    async def end_session(self, session: str) -> None:
        """End a session of ours; one that is gone already is no error."""
        with contextlib.suppress(httpx.HTTPError):
            await self._http.delete(f"/v1/sessions/{session}")


def kill(pid: int) -> None:
    """`kill -9`. Raises `LoadError` where we may not."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError as error:
        raise LoadError(f"process {pid} had ended before it could be killed") from error
    except PermissionError as error:
        raise LoadError(f"process {pid} belongs to another user: it cannot be killed") from error
