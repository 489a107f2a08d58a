"""The files in `deploy/`: what they name must exist, and their times must fit together."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from avatar_server.config import SessionSettings, settings_from_values
from avatar_server.gateway.access import NEEDS
from avatar_server.observe.metrics import Metrics

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def pod() -> Any:
    return documents("kubernetes.yaml")[1]["spec"]["template"]["spec"]


def settings_in(environment: dict[str, str]) -> dict[str, Any]:
    """Nested values of `AVATAR_SERVER_A__B` variables, as the settings read them."""
    values: dict[str, Any] = {}
    for name, text in environment.items():
        if "__" not in name:
            continue
        section, _, key = name.removeprefix("AVATAR_SERVER_").lower().partition("__")
        filled = re.sub(r"\$\{(\w+)[^}]*\}", "203.0.113.7", text)
        is_json = filled.startswith(("[", "{"))
        values.setdefault(section, {})[key] = json.loads(filled) if is_json else filled
    return values


def test_everything_the_image_copies_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line


def test_the_image_serves_with_settings_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    command = json.loads(re.findall(r"^CMD (.+)$", text, re.MULTILINE)[-1])
    values: dict[str, Any] = {"http": {"host": command[command.index("--host") + 1]}}
    for pair in (command[i + 1] for i, word in enumerate(command) if word == "--set"):
        path, _, value = pair.partition("=")
        section, key = path.split(".")
        values.setdefault(section, {})[key] = yaml.safe_load(value)
    settings = settings_from_values(values)
    assert settings.media.udp_ports == "50000-50100"
    assert "50000-50100/udp" in text


def test_the_composition_sets_what_exists_and_its_ports_do_not_meet() -> None:
    services = documents("compose.yaml")[0]["services"]
    settings = settings_from_values(settings_in(services["avatars"]["environment"]))
    assert settings.media.turn_secret is not None
    assert settings.media.ice_servers[0].urls == ["turn:203.0.113.7:3478"]
    relay = {
        name: int(value)
        for name, value in (
            word.removeprefix("--").split("=")
            for word in services["turn"]["command"]
            if word.startswith(("--min-port", "--max-port"))
        )
    }
    assert settings.media.udp_ports is not None
    assert int(settings.media.udp_ports.split("-")[1]) < relay["min-port"] < relay["max-port"]
    assert "--use-auth-secret" in services["turn"]["command"]


def test_probes_ask_addresses_that_exist_and_need_no_key() -> None:
    container = pod()["containers"][0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert NEEDS["GET", path].name == "NOTHING"


def test_what_stops_the_server_waits_longer_than_the_drain() -> None:
    command = pod()["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    deadline = float(command[command.index("--deadline") + 1])
    # A turn that is going on then, and the processes' end.
    more = SessionSettings().turn_grace_s + 10
    assert pod()["terminationGracePeriodSeconds"] >= deadline + more
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(DEPLOY / "avatar-server.service")
    stop = unit["Service"]["ExecStop"].split()
    deadline = float(stop[stop.index("--deadline") + 1])
    assert int(unit["Service"]["TimeoutStopSec"]) >= deadline + more


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "avatar-server.service").read_text(encoding="utf-8")
    # The program is not installed there on the machine that tests.
    unit = tmp_path / "avatar-server.service"
    unit.write_text(re.sub(r"/opt/\S+/avatar-server", "/bin/true", text), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert str(unit) not in done.stderr + done.stdout
    assert "avatar-server.service" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_the_variables_of_the_manifest_are_settings_or_the_commands_own() -> None:
    environment = {item["name"]: "x" * 40 for item in pod()["containers"][0]["env"]}
    settings_from_values(settings_in(environment))
    assert "AVATAR_SERVER_KEY" in environment


@pytest.mark.parametrize("name", ["kubernetes.yaml", "compose.yaml"])
def test_they_are_yaml(name: str) -> None:
    assert all(isinstance(document, dict) for document in documents(name))


def test_the_dashboard_asks_for_metrics_that_are_exported() -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    exported = Metrics().render()
    text = exported if isinstance(exported, str) else exported.decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    names |= {f"{name}_bucket" for name in names}
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\bavatar_\w+", target["expr"])
    }
    assert len(asked) >= 12
    assert asked <= names, asked - names
