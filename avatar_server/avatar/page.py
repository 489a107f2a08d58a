"""What the viewers' pages are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from avatar_server.avatar.turn_actions import TalkState
from avatar_server.avatars import AvatarSpec
from avatar_server.protocol import events

VisibleState = Literal["idle", "hearing", "thinking", "speaking", "unavailable"]
Emit = Callable[[events.ServerEvent, str | None], None]


class Page:
    """Turns what happens into events for one viewer, or for all where none is named."""

    def __init__(self, emit: Emit, session: str, avatar: AvatarSpec) -> None:
        self.emit = emit
        self._session = session
        self._avatar = avatar
        self._shown: tuple[str, int] | None = None
        self._outage_told = False

    def hello(self, viewer: str, can_speak: bool) -> None:
        """Tell a viewer where it is, and whether it may speak."""
        self.emit(
            events.Hello(
                session=self._session,
                viewer=viewer,
                avatar=self._avatar.name,
                title=self._avatar.title,
                can_speak=can_speak,
            ),
            viewer,
        )

    def state(self, talk: TalkState, available: bool, turn: int) -> None:
        """Tell all what the avatar is doing, where that is news."""
        event = state_event(talk, available, turn)
        if (event.state, event.turn) != self._shown:
            self._shown = (event.state, event.turn)
            self.emit(event, None)

    def heard(self, turn: int, text: str, final: bool) -> None:
        """What a viewer said."""
        self.emit(events.Heard(turn=turn, text=text, final=final), None)

    def caption(self, turn: int, clause: int, text: str, spoken: str) -> None:
        """What the avatar says."""
        self.emit(events.Caption(turn=turn, clause=clause, text=text, spoken=spoken), None)

    def notice(self, code: str, message: str, viewer: str | None) -> None:
        """Something a viewer should know, in words."""
        self.emit(events.Notice(code=code, message=message), viewer)

    def outage(self) -> None:
        """Somebody waits for inference, which is gone; told once until it is back."""
        if not self._outage_told:
            self._outage_told = True
            self.notice("inference_unavailable", "I need a moment. Please stay.", None)

    def recovered(self) -> None:
        """Inference is back."""
        if self._outage_told:
            self._outage_told = False
            self.notice("inference_back", "I am back.", None)


def state_event(talk: TalkState, available: bool, turn: int) -> events.State:
    """The state as a viewer sees it: what waits for inference, while it is gone, is unavailable."""
    return events.State(state=visible_state(talk, available), turn=turn)


def visible_state(talk: TalkState, available: bool) -> VisibleState:
    """`talk`, but `unavailable` where inference is gone and nothing is being said."""
    return talk if available or talk == "speaking" else "unavailable"
