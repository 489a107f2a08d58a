"""Made-up runs of the load test."""

from __future__ import annotations

from avatar_server.loadtest.record import RunRecord
from avatar_server.loadtest.results import Connection, Finished, Joined, Turn
from avatar_server.loadtest.usage import UsageSample

START = 1_000.0


def connection(
    seconds: float, *, start: float = START, without: tuple[int, ...] = (), late: float = 0.0
) -> Connection:
    """Steady pictures and sound from 1 s before `start` on; pictures `without` are left out."""
    frames = [n for n in range(int(30 * (seconds + 2))) if n not in without]
    blocks = range(int(50 * (seconds + 2)))
    return Connection(
        shown=[start - 1 + n / 30 + late for n in frames],
        pts=[3_000 * n for n in frames],
        audio_pts=[960 * n for n in blocks],
        audio_arrived=[start - 1 + n / 50 for n in blocks],
        offsets_ms=[12.0] * 10,
        octets=100_000,
        packets_lost=0,
    )


def viewer(session: int, *connections: Connection, lag_ms: float = 1.0) -> Finished:
    return Finished(
        session=session,
        viewer=0,
        connections=list(connections),
        lags=[(START + n / 20, lag_ms) for n in range(40)],
        events=[],
    )


def turn(session: int, at: float, latency_ms: float | None, **more: object) -> Turn:
    """Words of 1 s that begin `at` s after the start, answered after `latency_ms`."""
    ended = START + at + 1.0
    made = Turn(session=session, text="How are you?", said_at=START + at, ended_at=ended)
    if latency_ms is not None:
        made.answered_at = ended + latency_ms / 1e3
    made.stages_ms = {"stt": (-100.0, 250.0), "tts": (250.0, 600.0)}
    for name, value in more.items():
        setattr(made, name, value)
    return made


def record(sessions: int = 2, seconds: float = 10.0) -> RunRecord:
    """A run in which nothing went wrong."""
    made = RunRecord(sessions, 1, sessions, start=START, end=START + seconds)
    for number in range(sessions):
        made.joined[number] = Joined(
            session=number, id=f"id{number}", avatar="theo", at=START - 5, took_s=1.0
        )
        made.finished.append(viewer(number, connection(seconds)))
        made.turns += [turn(number, 1.0, 700.0), turn(number, 5.0, 900.0)]
    made.usage = [
        UsageSample(
            at=START + second,
            run={"gateway": 10.0, "inference": 400.0, "load viewers": 50.0, "load conductor": 20.0}
            | {f"avatar {n + 1}": 200.0 for n in range(sessions)},
            wait={"gateway": 1.0, "inference": 90.0},
            busy=0.6,
            foreign=5.0,
        )
        for second in range(1, int(seconds) + 1)
    ]
    return made
