"""What the terminal says once the server runs."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from avatar_server.config import Settings
from avatar_server.gateway.serve import Running
from avatar_server.models import CATALOGUE

# Long enough for the largest models; the report then says that they are still being loaded.
PATIENCE_S = 900.0

_STAGES = {"stt": "hears with", "llm": "answers with", "tts": "speaks with"}


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
        if not await running.control.wait_until_ready(PATIENCE_S):
            reason = running.control.readiness().reason
            out.print(f"Still not ready. {reason} The log above says more.", soft_wrap=True)
            return
        out.print()
        inference = running.control.inference
        if inference is not None and inference.models:
            out.print(self.models_table(inference.models))
        out.print(self.capacity())
        out.print(f"\nOpen [bold]{running.address}[/bold]", soft_wrap=True)
        out.print("Ctrl-C ends the server.")

    def models_table(self, models: dict[str, str]) -> Table:
        """Stage, model and licence."""
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for stage, name in models.items():
            entry = CATALOGUE.get(name)
            licence = entry.licence if entry else "licence: see its publisher"
            title = entry.title if entry else name
            table.add_row(_STAGES.get(stage, stage), title, licence)
        return table

    def capacity(self) -> str:
        """How many sessions run at once, and where the number comes from."""
        count = self._settings.sessions.max_sessions
        sessions = "1 session" if count == 1 else f"{count} sessions"
        return (
            f"Room for {sessions} at once, by the setting sessions.max_sessions "
            "(not measured on this machine)."
        )

    def _warn_public(self) -> None:
        self._console.print(
            "[yellow]Other machines can reach this server, and there is no authentication yet: "
            "whoever can open its address can talk to the avatars and end sessions. Browsers give "
            "the microphone only on https or on localhost, so put a TLS proxy in front.[/yellow]",
            soft_wrap=True,
        )
