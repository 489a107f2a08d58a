"""The audit log."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import pytest

from avatar_server.security import AuditLog


def test_entries_are_appended_one_a_line_and_readable_by_the_owner_only(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "new" / "audit.jsonl")
    audit.note("ops", "10.0.0.1", "session.create", "theo")
    AuditLog(audit.path).note("local", "127.0.0.1", "session.end", "abc", "refused")
    lines = [json.loads(line) for line in audit.path.read_text(encoding="utf-8").splitlines()]
    assert [(line["actor"], line["action"], line["target"], line["outcome"]) for line in lines] == [
        ("ops", "session.create", "theo", "done"),
        ("local", "session.end", "abc", "refused"),
    ]
    assert stat.S_IMODE(audit.path.stat().st_mode) == 0o600


def test_a_log_that_cannot_be_written_is_told_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    audit = AuditLog(blocked / "audit.jsonl")
    with caplog.at_level(logging.ERROR):
        audit.note("ops", "10.0.0.1", "session.create")
        audit.note("ops", "10.0.0.1", "session.create")
    assert caplog.text.count("cannot be written") == 1
