"""When a session's recording runs, and what viewers are told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avatar_server.avatar.fanout import Fanout
from avatar_server.config import RecordingSettings
from avatar_server.protocol import events
from avatar_server.recording import session as module
from avatar_server.recording.session import SessionRecording
from tests.avatar.media_client import Calls
from tests.recording.talk import FPS, SUBJECT, Film, only


class Scene:
    """A session without media: viewers come and go, pictures are published by hand."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.told: list[tuple[str, str | None]] = []
        self.fanout = Fanout(asyncio.get_running_loop())
        values = {"folder": folder, "keep_free_gb": 0.0, **settings}
        self.recording = SessionRecording(
            RecordingSettings(**values), SUBJECT, FPS, self.fanout, self.tell
        )
        self.viewers = self.recording.handler(Calls())
        self.film = Film()

    def tell(self, event: events.ServerEvent, viewer: str | None) -> None:
        assert isinstance(event, events.Notice)
        self.told.append((event.code, viewer))

    def hello(self) -> bool:
        """Whether a viewer who is greeted now is told that this is recorded."""
        hello = events.Hello(session="s", viewer="v", avatar="a", title="A", can_speak=True)
        self.recording.event(hello)
        return hello.recorded

    async def play(self, pictures: int = 15) -> None:
        for number in range(pictures):
            self.fanout.publish(self.film.next(keyframe=number == 0))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.4)


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 30))


def test_it_runs_while_somebody_is_there_and_each_viewer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COME_BACK_S", 0.2)

    async def scene() -> None:
        made = Scene(tmp_path)
        assert not made.hello()
        assert made.fanout.encodings == frozenset()
        made.viewers.on_join("a", True)
        assert made.hello()
        assert made.told == [("recording", "a")]
        await made.play()
        made.viewers.on_leave("a", "left", True)
        await asyncio.sleep(0.1)
        made.viewers.on_join("b", True)
        await asyncio.sleep(0.3)
        assert made.recording.running, "somebody came before the time was over"
        made.viewers.on_leave("b", "left", True)
        await asyncio.sleep(0.6)
        assert not made.recording.running
        assert made.fanout.encodings == frozenset(), "nothing is drawn for nobody"
        only(tmp_path)
        made.viewers.on_join("c", True)
        await made.play()
        await made.recording.close()
        assert made.told == [("recording", name) for name in "abc"]

    run(scene)
    assert len(list(tmp_path.iterdir())) == 2


def test_after_a_failure_nobody_is_recorded_who_was_told_otherwise(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(tmp_path, keep_free_gb=1e9)
        made.viewers.on_join("a", True)
        await made.play()
        assert made.told == [("recording", "a"), ("recording_stopped", None)]
        assert "keep_free_gb" in made.recording.status().problem
        made.viewers.on_join("b", True)
        assert not made.hello()
        assert not made.recording.running
        made.viewers.on_leave("a", "left", True)
        made.viewers.on_leave("b", "left", True)
        made.viewers.on_join("c", True)
        assert made.hello(), "with the next talk it is tried again"
        assert made.recording.status().problem == ""
        await made.recording.close()

    run(scene)


def test_a_viewers_sound_reaches_conversation_and_recording_alike(tmp_path: Path) -> None:
    async def scene() -> None:
        calls = Calls()
        made = Scene(tmp_path)
        handler = made.recording.handler(calls)
        handler.on_join("a", True)
        handler.on_audio("a", np.ones(320, np.int16))
        handler.on_return("a", True)
        handler.on_leave("a", "left", False)
        assert len(calls.audio) == 1
        assert calls.joined == calls.returned == [("a", True)]
        assert calls.left == [("a", "left")]
        await made.recording.close()

    run(scene)
