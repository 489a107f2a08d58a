"""Stands in for the process that measures frames; `broken`, `slow` or `steady` as an argument."""

import sys
import threading
import time

import msgspec

from avatar_server.protocol.costs import FrameCosts


def main() -> int:
    sys.stdin.buffer.readline()
    if "broken" in sys.argv:
        print("the rig is missing", file=sys.stderr)
        return 3
    if "slow" in sys.argv:
        # As the real one: it ends with its parent.
        threading.Event().wait(0.2)
        sys.stdin.buffer.read()
        return 1
    if "steady" in sys.argv:
        # Long enough for the terminal to say what is going on, as with the real one.
        time.sleep(0.6)
    costs = FrameCosts(
        avatar="good",
        render_ms=1.0,
        encode_ms=1.0,
        idle_frame_ms=1.0,
        audio_ms_per_s=5.0,
        rss_bytes=30_000_000,
    )
    print(msgspec.json.encode(costs).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
