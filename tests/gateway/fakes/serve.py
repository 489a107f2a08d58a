"""`avatar-server` with fake children, fake avatars and no model files; arguments as usual."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from avatar_server import cli, command_line
from tests.gateway.support import fake_avatars, fake_commands

if __name__ == "__main__":
    cli.ensure_models = lambda settings, console: None
    if "REAL_AVATARS" not in os.environ:
        command_line.find_avatars = lambda extra: fake_avatars(Path(os.environ["FAKE_AVATARS"]))
    cli.child_commands = lambda: fake_commands(
        *os.environ.get("FAKE_INFERENCE", "").split(), frames=("steady",)
    )
    cli.main()
