"""All checks together, and the verdict in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from avatar_server.config import Settings
from avatar_server.doctor import hardware, network, software
from avatar_server.doctor.check import Check, guarded
from avatar_server.doctor.room import Room, room


@dataclass(frozen=True)
class Diagnosis:
    """What was found, and how many sessions that makes."""

    checks: list[Check]
    room: Room

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """As `doctor --json` writes it."""
        return {
            "checks": [
                {"name": one.name, "ok": one.ok, "found": one.found, "fix": one.fix}
                for one in self.checks
            ],
            "sessions": self.room.sessions,
            "binding": self.room.binding,
            "verdict": self.room.verdict,
            "advice": self.room.advice,
        }


def examine(settings: Settings, *, measure: bool = True) -> Diagnosis:
    """Every check, for this configuration on this machine; some seconds.

    Without `measure` only what an earlier start measured is used.
    """
    gpus = hardware.nvidia_gpus()
    looks: dict[str, Callable[[], Iterable[Check]]] = {
        "python": software.python,
        "cpu": hardware.cpu,
        "memory": hardware.memory,
        "gpu": lambda: hardware.gpu(settings, gpus),
        "graphics": hardware.drawing,
        "codecs": software.codecs,
        "models": lambda: software.models(settings),
        "avatars": lambda: software.avatars(settings),
        "files": software.files,
        "recordings": lambda: software.recordings(settings),
        "clock": software.clock,
        "priority": lambda: software.priority(settings),
        "http port": lambda: network.http_port(settings),
        "udp ports": lambda: network.udp_ports(settings),
        "addresses": lambda: network.addresses(settings),
        "stun and turn": lambda: network.ice_servers(settings),
    }
    checks = [check for name, look in looks.items() for check in guarded(name, look)]
    return Diagnosis(checks, room(settings, measure=measure))
