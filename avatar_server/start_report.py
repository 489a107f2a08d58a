"""What the terminal says once the server runs."""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.table import Table

from avatar_server.capacity.admission import Capacity
from avatar_server.capacity.demand import WHY, Resource
from avatar_server.config import Settings
from avatar_server.gateway.access import key_required
from avatar_server.gateway.control import Control
from avatar_server.gateway.serve import Running
from avatar_server.models import CATALOGUE, ModelEntry, default_models
from avatar_server.models.catalogue import E5_SMALL, SENTENCE_ENCODER, SILERO_VAD, SMART_TURN

# Long enough for the largest models; the report then says that they are still being loaded.
PATIENCE_S = 900.0
LOOK_EVERY_S = 0.2
MEASURING = "measuring this machine"
"""How phases begin in which nothing is loaded."""

_STAGES = {"stt": "hears with", "llm": "answers with", "tts": "speaks with"}
_BESIDE = {
    SILERO_VAD.name: "notices speech with",
    SMART_TURN.name: "notices its end with",
    SENTENCE_ENCODER.name: "finds facts with",
    E5_SMALL.name: "routes with",
}


class StartReport:
    """Called by `serve` once requests are taken; prints when the models are ready."""

    def __init__(self, console: Console, settings: Settings) -> None:
        self._console = console
        self._settings = settings

    async def __call__(self, running: Running) -> None:
        out = self._console
        out.print(f"Listening on {running.address} – loading the models …", soft_wrap=True)
        if running.public:
            self._warn_public()
        if not await self._wait(running.control):
            reason = running.control.readiness().reason
            out.print(f"Still not ready. {reason} The log above says more.", soft_wrap=True)
            return
        out.print()
        inference = running.control.models.status
        if inference is not None and inference.models:
            out.print(self.models_table(inference.models))
            out.print("More on the licences: docs/licences.md")
        out.print(self.capacity(running.control.capacity.capacity()), soft_wrap=True)
        if (recording := self._settings.recording).enabled:
            out.print(f"Conversations are recorded into {recording.path}; viewers are told.")
        out.print(f"\nOpen [bold]{running.address}[/bold]", soft_wrap=True)
        out.print("Ctrl-C ends the server.")

    def models_table(self, models: dict[str, str]) -> Table:
        """Stage, model and licence; `models` are stages and what inference says of each."""
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        named = set[str]()
        for stage, text in models.items():
            entry = self.entry_of(stage, text)
            licence = entry.licence if entry else "licence: see its publisher"
            table.add_row(_STAGES.get(stage, stage), entry.title if entry else text, licence)
            if entry:
                named.add(entry.name)
        used = default_models(self._settings)
        for name, does in _BESIDE.items():
            if name not in named and name in used:
                table.add_row(does, CATALOGUE[name].title, CATALOGUE[name].licence)
        return table

    def entry_of(self, stage: str, text: str) -> ModelEntry | None:
        """The catalogue's entry of the model that inference describes with `text`."""
        for name, entry in CATALOGUE.items():
            if name in text:
                return entry
        words = text.split()
        if words and stage == "tts":
            used = [name for name in default_models(self._settings) if name in CATALOGUE]
            found = [name for name in used if name.startswith(words[0].lower())]
            return CATALOGUE[found[0]] if found else None
        configured = {"stt": self._settings.stt.model, "llm": self._settings.llm.model}
        return CATALOGUE.get(configured.get(stage, ""))

    async def _wait(self, control: Control) -> bool:
        """Say what is measured until the models are ready; false where they are not in time."""
        ready = asyncio.create_task(control.models.wait_until_ready(PATIENCE_S))
        told = set[str]()
        try:
            while not ready.done():
                phase = control.readiness().phase
                if phase.startswith(MEASURING) and phase not in told:
                    # Lines, not one that changes: the log is written to the same terminal.
                    told.add(phase)
                    self._console.print(f"{phase.capitalize()} …", soft_wrap=True)
                await asyncio.wait([ready], timeout=LOOK_EVERY_S)
        finally:
            ready.cancel()
        return ready.result()

    def capacity(self, capacity: Capacity) -> str:
        """How many sessions run at once, and where the number comes from."""
        count = capacity.fits
        sessions = "1 session" if count == 1 else f"{count} sessions"
        if not capacity.measured:
            return (
                f"Room for {sessions} at once, by the setting sessions.max_sessions "
                "(not measured on this machine)."
            )
        if capacity.binding is Resource.LIMIT:
            why = "by the setting sessions.max_sessions; this machine has room for more"
            if self._settings.sessions.max_sessions == "auto":
                why = "the most that is planned for by itself (sessions.max_sessions)"
            return f"Room for {sessions} at once, {why}."
        return (
            f"Room for {sessions} at once, measured on this machine: with one more, "
            f"{WHY[capacity.binding]} ({capacity.binding})."
        )

    def _warn_public(self) -> None:
        if not key_required(self._settings):
            self._console.print(
                "[yellow]Other machines can reach this server, and security.require_key is never: "
                "whoever can open its address can talk to the avatars and end sessions.[/yellow]",
                soft_wrap=True,
            )
        if self._settings.http.tls_certificate is None:
            self._console.print(
                "[yellow]There is no TLS here (http.allow_plain). Browsers give the microphone "
                "only on https or on localhost, so a reverse proxy must see to it.[/yellow]",
                soft_wrap=True,
            )
