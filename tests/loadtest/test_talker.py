"""How a viewer's turn is put together from what it heard and what the server tells of it."""

from __future__ import annotations

import pytest

from avatar_server.loadtest.talker import take_over
from avatar_server.protocol.events import TurnDone
from tests.loadtest.records import turn


def test_the_servers_account_is_added_to_the_turn() -> None:
    said = turn(0, 1.0, 800.0)
    take_over(
        said,
        TurnDone(
            turn=3,
            voice_to_voice_ms=780.0,
            stages_ms={"stt": (0.0, 300.0)},
            ledger_ms={"stt": (300.0, 250.0)},
            overran="stt",
        ),
    )
    assert said.voice_to_voice_ms == pytest.approx(800.0)
    assert said.first_sound_ms == pytest.approx(800.0)
    assert said.server_voice_to_voice_ms == 780.0
    assert (said.ledger_ms, said.overran) == ({"stt": (300.0, 250.0)}, "stt")


def test_an_acknowledgement_is_not_taken_for_the_answer() -> None:
    said = turn(0, 1.0, 1_000.0)
    take_over(
        said, TurnDone(turn=3, voice_to_voice_ms=2_400.0, stages_ms={}, acknowledged_ms=950.0)
    )
    assert said.first_sound_ms == pytest.approx(1_000.0)
    assert said.voice_to_voice_ms == pytest.approx(1_000.0 + 1_450.0)


def test_an_acknowledgement_without_an_answer_is_no_answer() -> None:
    said = turn(0, 1.0, 1_000.0)
    take_over(said, TurnDone(turn=3, voice_to_voice_ms=None, stages_ms={}, acknowledged_ms=950.0))
    assert said.voice_to_voice_ms is None
    assert said.answered_at is None
