"""The server's operator API, called over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urljoin

import httpx

from avatar_server.config import HttpSettings
from avatar_server.gateway.guards import page_url

URL_VARIABLE = "AVATAR_SERVER_URL"
KEY_VARIABLE = "AVATAR_SERVER_KEY"
TIMEOUT_S = 60.0
"""Longer than an avatar takes to start."""


def credentials() -> dict[str, str]:
    """The header that carries the key of the environment; none where there is no key."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    return {"Authorization": f"Bearer {key}"} if key else {}


class CallFailed(Exception):
    """The server could not be asked, or refused; the message says what to do."""


class ServerClient:
    """One server. Every method raises `CallFailed`."""

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.url, headers=credentials(), timeout=TIMEOUT_S, transport=transport
        )

    def __enter__(self) -> ServerClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def launch(
        self, avatar: str, idempotency_key: str | None = None, record: bool | None = None
    ) -> dict[str, Any]:
        """Start a session; see `StartedSession` of the API."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        body: dict[str, Any] = {"avatar": avatar} | ({} if record is None else {"record": record})
        found: dict[str, Any] = self._call("POST", "/v1/sessions", json=body, headers=headers)
        return found

    def sessions(self) -> list[dict[str, Any]]:
        """All sessions."""
        return self._all("/v1/sessions")

    def recordings(self, session: str = "") -> list[dict[str, Any]]:
        """All recordings, or those of a session."""
        return self._all("/v1/recordings", session=session)

    def delete_recording(self, recording: str) -> None:
        """Delete a recording."""
        self._call("DELETE", f"/v1/recordings/{recording}")

    def download(self, path: str, to: Path) -> int:
        """Save what is at `path` of the server in the file `to`, which must not be there yet.

        The bytes written. Raises `OSError`, too.
        """
        with self._errors(), self._http.stream("GET", path) as response:
            if not response.is_success:
                response.read()
                raise CallFailed(_sentence(response))
            with to.open("xb") as file:
                for piece in response.iter_bytes():
                    file.write(piece)
                return file.tell()

    def _all(self, path: str, **params: str) -> list[dict[str, Any]]:
        """All of a list, over as many pages as there are."""
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            page = self._call("GET", path, params={"limit": 100, "after": after, **params})
            found += page
            if len(page) < 100:
                return found
            after = page[-1]["id"]

    def stop(self, session: str) -> None:
        """End a session."""
        self._call("DELETE", f"/v1/sessions/{session}")

    def link(self, session: str, role: str, lifetime_s: float | None) -> dict[str, Any]:
        """Make a join link."""
        body = {"role": role} | ({} if lifetime_s is None else {"lifetime_s": lifetime_s})
        found: dict[str, Any] = self._call("POST", f"/v1/sessions/{session}/links", json=body)
        return found

    def links(self, session: str) -> list[dict[str, Any]]:
        """The join links of a session that were given out."""
        found: list[dict[str, Any]] = self._call("GET", f"/v1/sessions/{session}/links")
        return found

    def revoke(self, session: str, link: str) -> None:
        """Revoke a join link."""
        self._call("DELETE", f"/v1/sessions/{session}/links/{link}")

    def logs(self, session: str | None, last: int) -> list[dict[str, Any]]:
        """The last log lines."""
        path = f"/v1/sessions/{session}/logs" if session else "/v1/logs"
        found: list[dict[str, Any]] = self._call("GET", path, params={"last": last})
        return found

    def drain(self, deadline_s: float) -> dict[str, Any]:
        """Begin draining."""
        found: dict[str, Any] = self._call("POST", "/v1/drain", json={"deadline_s": deadline_s})
        return found

    def drain_state(self) -> dict[str, Any]:
        """How far draining is."""
        found: dict[str, Any] = self._call("GET", "/v1/drain")
        return found

    def cancel_drain(self) -> dict[str, Any]:
        """Take new sessions again."""
        found: dict[str, Any] = self._call("DELETE", "/v1/drain")
        return found

    def reload(self) -> dict[str, Any]:
        """Have configuration, avatars and routes read anew."""
        found: dict[str, Any] = self._call("POST", "/v1/reload")
        return found

    def absolute(self, path: str) -> str:
        """A path of the server as an address to open."""
        return urljoin(self.url + "/", path.lstrip("/"))

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        with self._errors():
            response = self._http.request(method, path, **arguments)
        if response.is_success:
            return response.json() if response.content else None
        raise CallFailed(_sentence(response))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What fails on the way, as a sentence."""
        try:
            yield
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise CallFailed(
                f"{self.url} is no address of a server: write it like http://localhost:8080."
            ) from error
        except httpx.TimeoutException as error:
            raise CallFailed(f"{self.url} did not answer within {TIMEOUT_S:.0f} s.") from error
        except httpx.HTTPError as error:
            raise CallFailed(
                f"No server answers at {self.url} ({error}). Start one with 'avatar-server serve', "
                f"or name another with --on or {URL_VARIABLE}."
            ) from error


def _sentence(response: httpx.Response) -> str:
    try:
        detail = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"Something else than an avatar server answered: {response.status_code}."
    if response.status_code == 401:
        detail += f" Give one in {KEY_VARIABLE} (made with 'avatar-server keys create')."
    retry = response.headers.get("retry-after")
    return f"{detail} Retry after {retry} s." if retry else detail


def server_url(on: str | None, http: HttpSettings) -> str:
    """`on`, else what the environment says, else the address of the configured server."""
    if given := on or os.environ.get(URL_VARIABLE):
        return given if "://" in given else f"http://{given}"
    return page_url(http, http.port)
