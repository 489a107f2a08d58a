"""Reading avatars and their routes anew while sessions run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, Field

from avatar_server.avatars import AvatarError, AvatarSpec
from avatar_server.config import ConfigError, Settings
from avatar_server.gateway.control import Control
from avatar_server.gateway.previews import Previews
from avatar_server.gateway.problems import ProblemError
from avatar_server.processes import plain_settings
from avatar_server.protocol.messages import RenewAvatar

Source = Callable[[], tuple[Settings, Mapping[str, AvatarSpec]]]
"""Reads configuration and avatar folders; raises `ConfigError` or `AvatarError`."""

log = logging.getLogger(__name__)


class ReloadView(BaseModel):
    """What was read anew."""

    added: list[str] = Field(description="Avatars that were not there before.")
    changed: list[str]
    removed: list[str] = Field(description="No session of them is started any more.")
    sessions_told: int = Field(description="Whose persona, facts and routes are new.")
    needs_restart: list[str] = Field(
        description="Settings that were changed, too, and count from the server's next start on."
    )


class Reloader:
    """Reads anew, and tells whom it concerns."""

    def __init__(self, control: Control, previews: Previews, source: Source | None) -> None:
        self._control, self._previews, self._source = control, previews, source
        self._one_at_a_time = asyncio.Lock()

    async def reload(self) -> ReloadView:
        """Take what is on disk now. Where it cannot be used nothing changes.

        Raises `ProblemError` 422 with what is wrong.
        """
        if self._source is None:
            raise ProblemError(501, "no-reload", "This server was started without files to read.")
        async with self._one_at_a_time:
            try:
                settings, avatars = await asyncio.to_thread(self._source)
            except (ConfigError, AvatarError) as error:
                log.error("nothing was reloaded: %s", error)
                raise ProblemError(
                    422, "bad-configuration", f"Nothing was changed: {_sentence(error)}"
                ) from error
            return await self._take(settings, avatars)

    async def _take(self, settings: Settings, avatars: Mapping[str, AvatarSpec]) -> ReloadView:
        control, before = self._control, self._control.avatars
        changed = [name for name in avatars if name in before and avatars[name] != before[name]]
        needs_restart = [
            name
            for name in changed_settings(control.settings, settings)
            if name.split(".")[0] != "avatar_dirs"
        ]
        control.renew(avatars)
        await self._previews.renew(avatars)
        told = 0
        for session in control.registry.sessions():
            if session.avatar in changed:
                spec = avatars[session.avatar]
                await control.viewers.tell(session.id, RenewAvatar(spec=spec.as_json()))
                told += 1
        view = ReloadView(
            added=sorted(set(avatars) - set(before)),
            changed=sorted(changed),
            removed=sorted(set(before) - set(avatars)),
            sessions_told=told,
            needs_restart=needs_restart,
        )
        log.info("reloaded: %s", view.model_dump_json())
        return view


def changed_settings(before: Settings, after: Settings) -> list[str]:
    """Names of the settings that differ, like `llm.model`."""
    old, new = (dict(_leaves(plain_settings(one))) for one in (before, after))
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _sentence(error: Exception) -> str:
    text = str(error).strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
