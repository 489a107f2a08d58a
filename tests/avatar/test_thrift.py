"""What a session does at each overload level."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from avatar_server.avatar.thrift import Thrift
from avatar_server.capacity.overload import OverloadLevel
from avatar_server.config import VideoSettings


@dataclass
class Pictures:
    now: dict[str, Any] = field(default_factory=dict)
    calls: int = 0

    def set_quality(self, **given: Any) -> None:
        self.calls += 1
        self.now.update(given)


@dataclass
class Talk:
    state: str = "idle"
    partials: bool = True
    brief: bool = False

    def economise(self, *, partials: bool, brief: bool) -> None:
        self.partials, self.brief = partials, brief


def session(**video: Any) -> tuple[Thrift, Pictures, Talk]:
    pictures, talk = Pictures(), Talk()
    return Thrift(VideoSettings(**video), pictures, talk), pictures, talk


def test_each_level_adds_its_measure_and_all_come_back() -> None:
    thrift, pictures, talk = session(preset="superfast", crf=24)
    thrift.set_level(1, "no partial transcripts")
    assert (talk.partials, talk.brief, pictures.calls) == (False, False, 0)
    thrift.set_level(2)
    assert pictures.now == {"fps": 15}
    thrift.set_level(3)
    assert pictures.now == {"fps": 15, "preset": "ultrafast", "crf": 30}
    thrift.set_level(4)
    assert talk.brief
    thrift.set_level(0)
    assert (talk.partials, talk.brief) == (True, False)
    assert pictures.now == {"fps": 30, "preset": "superfast", "crf": 24}


def test_only_an_avatar_that_nobody_talks_with_is_drawn_half_as_often() -> None:
    thrift, pictures, talk = session()
    talk.state = "speaking"
    thrift.set_level(2)
    assert pictures.now == {}
    talk.state = "idle"
    thrift.tick()
    assert pictures.now == {"fps": 15}
    for state in ("hearing", "thinking", "speaking"):
        talk.state = "idle"
        thrift.tick()
        talk.state = state
        thrift.tick()
        assert pictures.now == {"fps": 30}


def test_nothing_is_set_twice() -> None:
    thrift, pictures, _ = session()
    thrift.set_level(3)
    calls = pictures.calls
    for _ in range(5):
        thrift.set_level(3)
        thrift.tick()
    assert pictures.calls == calls


def test_a_rate_that_cannot_be_halved_stays() -> None:
    thrift, pictures, _ = session(fps=25)
    thrift.set_level(2)
    assert pictures.now == {}


def test_a_level_of_a_newer_gateway_is_taken_for_the_highest_known() -> None:
    thrift, _, talk = session()
    thrift.set_level(99)
    assert thrift.level is OverloadLevel.NO_NEW_SESSIONS
    assert talk.brief
    thrift.set_level(-3)
    assert thrift.level is OverloadLevel.NONE
