"""A gateway with real processes and sockets, but fake avatars and models."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from avatar_server.avatars import AvatarSpec, VoiceSpec
from avatar_server.capacity.figures import CalibrationCache
from avatar_server.capacity.machine import Machine
from avatar_server.clock import MonotonicClock
from avatar_server.config import Settings, settings_from_values
from avatar_server.gateway.app import create_app
from avatar_server.gateway.capacity import CapacityKeeper
from avatar_server.gateway.children import ChildCommands
from avatar_server.gateway.control import Control
from avatar_server.gateway.previews import Previews

FAKES = Path(__file__).parent / "fakes"
NAMES = ("good", "crash", "never", "mute", "refuse", "stubborn")
OFFER = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n"
SDP = {"content-type": "application/sdp"}


def fake_commands(*inference_arguments: str, frames: tuple[str, ...] = ()) -> ChildCommands:
    return ChildCommands(
        avatar=(sys.executable, str(FAKES / "avatar.py")),
        inference=(sys.executable, str(FAKES / "inference.py"), *inference_arguments),
        frames=(sys.executable, str(FAKES / "frames.py"), *frames),
    )


def fake_avatars(folder: Path) -> dict[str, AvatarSpec]:
    (folder / "avatar.yaml").write_text("title: A test\n", encoding="utf-8")
    return {
        name: AvatarSpec(
            name=name, title=name.title(), voice=VoiceSpec(name="any"), folder=folder, greeting="Hi"
        )
        for name in NAMES
    }


@dataclass
class Gateway:
    control: Control
    http: httpx.AsyncClient

    async def session(self, avatar: str = "good") -> str:
        response = await self.http.post("/v1/sessions", json={"avatar": avatar})
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    async def join(self, session: str, sdp: str = OFFER) -> httpx.Response:
        return await self.http.post(f"/v1/sessions/{session}/viewers", content=sdp, headers=SDP)

    def pid(self, session: str) -> int:
        pid = self.control._keepers[session].pid
        assert pid is not None
        return pid


async def eventually(
    check: Callable[[], Awaitable[bool]] | Callable[[], bool], what: str, timeout_s: float = 15.0
) -> float:
    """Seconds until `check` holds; fails after `timeout_s`."""
    started = time.monotonic()
    while time.monotonic() - started < timeout_s:
        result = check()
        if isinstance(result, Awaitable):
            result = await result
        if result:
            return time.monotonic() - started
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {timeout_s} s: {what}")


GatewayFactory = Callable[..., Any]
SharedRunner = Callable[[Callable[[Gateway], Awaitable[None]]], None]


@asynccontextmanager
async def running_gateway(
    folder: Path,
    values: dict[str, Any] | None = None,
    *,
    inference: tuple[str, ...] = (),
    frames: tuple[str, ...] = (),
    cores: float | None = None,
    wait: bool = True,
) -> AsyncIterator[Gateway]:
    """Settings are nested values; without `warm_spares` among them there are none.

    With `cores` capacity is measured (by the fakes) for a machine that has so many; else the
    setting counts.
    """
    given = dict(values or {})
    given["sessions"] = {"warm_spares": 0, **given.get("sessions", {})}
    admission = "fixed" if cores is None else "measured"
    given["capacity"] = {"admission": admission, **given.get("capacity", {})}
    settings: Settings = settings_from_values(given)
    avatars = fake_avatars(folder)
    commands = fake_commands(*inference, frames=frames)
    clock = MonotonicClock()
    capacity = CapacityKeeper(
        settings,
        clock,
        commands.frames,
        cache=CalibrationCache(folder / "calibration"),
        machine=Machine(cpu="a fake", cores=cores or 1.0, memory_bytes=1 << 34),
    )
    control = Control(settings, avatars, commands=commands, clock=clock, capacity=capacity)
    previews = Previews(avatars, folder / "previews")
    app = create_app(control, previews)
    await control.start()
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost:8080", timeout=30
        ) as http:
            if wait:
                assert await control.models.wait_until_ready(20)
            yield Gateway(control, http)
    finally:
        await control.stop()
        await previews.stop()
