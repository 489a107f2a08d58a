"""`avatar-server` with real avatars and an inference process that never says a word: no models."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))


def inference() -> None:
    """Says that it is ready, and ignores everything else."""
    import os

    import msgspec
    import zmq

    from avatar_server.protocol.messages import AskInferenceStatus, InferenceStatus, decode, encode

    bootstrap = msgspec.json.decode(sys.stdin.buffer.readline())

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=end_with_parent, daemon=True).start()
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.bind(bootstrap["inference"])
    while True:
        sender, data = socket.recv_multipart()
        if isinstance(decode(data), AskInferenceStatus):
            status = InferenceStatus(ready=True, pid=os.getpid(), phase="ready")
            socket.send_multipart([sender, encode(status)])


def main() -> None:
    from avatar_server import cli
    from avatar_server.gateway.children import ChildCommands

    cli.ensure_models = lambda settings, console: None
    cli.child_commands = lambda: ChildCommands(inference=(sys.executable, __file__, "inference"))
    cli.main()


if __name__ == "__main__":
    if sys.argv[1:] == ["inference"]:
        inference()
    else:
        main()
