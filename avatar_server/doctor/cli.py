"""`avatar-server doctor`."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from avatar_server.doctor.examine import Diagnosis


def show(console: Console, diagnosis: Diagnosis) -> None:
    """What was found, what to mend, and the verdict."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in diagnosis.checks:
        mark = "[green]ok[/green]" if check.ok else "[red]no[/red]"
        table.add_row(mark, check.name, check.found)
        if not check.ok:
            table.add_row("", "", f"[yellow]{check.fix}[/yellow]")
    console.print(table)
    console.print()
    wrong = sum(not check.ok for check in diagnosis.checks)
    if wrong:
        what = "1 thing is" if wrong == 1 else f"{wrong} things are"
        console.print(f"{what} not as it should be; what to do stands below each.")
    else:
        console.print("Everything is as it should be.")
    console.print(diagnosis.room.verdict, soft_wrap=True)
    for line in diagnosis.room.advice:
        console.print(f"To change that: {line}", soft_wrap=True)


def print_json(diagnosis: Diagnosis) -> None:
    """The same for programs."""
    print(json.dumps(diagnosis.as_json(), indent=2))
