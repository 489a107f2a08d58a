"""The routes of an avatar: what an operator may write, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from avatar_server.avatar_routes import Argument, RouteSpec, Tool, in_language, read_routes
from avatar_server.avatars import AvatarError, load_avatar

HOURS: dict[str, Any] = {
    "name": "opening_hours",
    "description": "asks when we are open",
    "examples": ["when do you open", "opening hours", "何時まで開いていますか"],
    "say": {"en": "From nine to five.", "ja": "九時から五時までです。"},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"say": None}, "exactly one of"),
        ({"stop": True}, "exactly one of"),
        ({"examples": ["when do you open"]}, "at least 3 different examples"),
        ({"examples": ["a", "A ", "a"]}, "at least 3 different examples"),
        ({"examples": ["a", "b", "c", " "]}, "empty example"),
        ({"name": "Opening hours"}, "pattern"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_a_route_that_cannot_work_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    RouteSpec.model_validate(HOURS)
    with pytest.raises(ValidationError, match=words):
        RouteSpec.model_validate({**HOURS, **change})


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({}, "exactly one of"),
        ({"pattern": "a", "value": 1}, "exactly one of"),
        ({"pattern": "("}, "no regular expression"),
    ],
)
def test_an_argument_has_one_source(argument: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Argument.model_validate(argument)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://shop.example/x", "orders", ""])
def test_a_tool_needs_a_web_address(url: str) -> None:
    with pytest.raises(ValidationError, match="url"):
        Tool.model_validate({"url": url})


def test_arguments_are_found_in_the_words() -> None:
    number = Argument(pattern=r"order\s+(\d{2,6})")
    assert number.find("where is order 4711 please") == "4711"
    assert number.find("where is my order") is None
    size = Argument(choices=("small", "large", "大"))
    assert size.find("a large one, no, a Small one") == "small"
    assert size.find("大きいの") == "大"
    assert size.find("medium") is None
    assert Argument(value=7).find("eight") == 7


def test_two_routes_may_share_neither_name_nor_example() -> None:
    with pytest.raises(ValueError, match="two routes named"):
        read_routes([HOURS, HOURS])
    with pytest.raises(ValueError, match="example of both"):
        read_routes([HOURS, {**HOURS, "name": "other"}])


def test_words_come_in_the_viewers_language_or_in_english() -> None:
    assert in_language("Hello.", "ja") == "Hello."
    assert in_language({"en": "Hello.", "ja": "どうも。"}, "ja-JP") == "どうも。"
    assert in_language({"en": "Hello.", "ja": "どうも。"}, "fr") == "Hello."
    assert in_language({"de": "Hallo."}, "fr") == "Hallo."


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Tool.model_validate(
        {
            "url": "https://shop.example/",
            "headers": {"Authorization": "env:SHOP_KEY", "X-Absent": "env:SHOP_NONE", "X-Of": "me"},
        }
    )
    monkeypatch.setenv("SHOP_KEY", "Bearer 1")
    monkeypatch.delenv("SHOP_NONE", raising=False)
    assert tool.sent_headers() == {"Authorization": "Bearer 1", "X-Of": "me"}
    assert "Bearer 1" not in repr(tool)


def avatar(folder: Path, routes: str) -> Path:
    folder = folder / "host"
    folder.mkdir()
    (folder / "avatar.yaml").write_text(
        f"title: Host\nvoice: {{name: piper-joe}}\nroutes:\n{routes}", encoding="utf-8"
    )
    return folder


def test_routes_are_read_with_the_avatar(tmp_path: Path) -> None:
    spec = load_avatar(
        avatar(
            tmp_path,
            "  - {name: hours, examples: [when open, when closed, 何時まで], say: From nine.}\n"
            "  - {name: goodbye, say: See you!}\n",
        )
    )
    assert [(route.name, route.action) for route in spec.routes] == [
        ("hours", "say"),
        ("goodbye", "say"),
    ]


def test_a_mistake_in_a_route_names_the_avatar_and_the_route(tmp_path: Path) -> None:
    folder = avatar(tmp_path, "  - {name: hours, examples: [a, b, c], say: Hi., repeat: true}\n")
    with pytest.raises(AvatarError, match=r"(?s)avatar host.*route 'hours' needs exactly one"):
        load_avatar(folder)
