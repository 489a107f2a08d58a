"""Stands in for the inference process: says how it is. `loading` as an argument: never ready.

`busy`: its queues are long. `fragile`: it does not survive being measured. Asked to measure its
stages, it has done so, with costs of which a machine with one core carries a few sessions.
"""

import os
import signal
import sys
import threading
import time

import msgspec
import zmq

from avatar_server.protocol.costs import StageCosts
from avatar_server.protocol.messages import AskInferenceStatus, InferenceStatus, decode, encode

COSTS = StageCosts(
    stt_s=0.1,
    stt_device="cpu",
    endpoint_s=0.05,
    retrieve_s=0.002,
    llm_prefill_per_s=150.0,
    llm_decode_per_s=80.0,
    llm_decode_many_per_s=80.0,
    llm_device="cpu",
    tts_first_s=0.1,
    tts_rtf=0.1,
    tts_device="cpu",
    rss_bytes=100_000_000,
)


def main() -> None:
    bootstrap = msgspec.json.decode(sys.stdin.buffer.readline())
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        threading.Thread(target=end_with_parent, daemon=True).start()
    if bootstrap.get("measure") and "fragile" in sys.argv:
        os.kill(os.getpid(), signal.SIGABRT)
    ready = "loading" not in sys.argv
    status = InferenceStatus(
        ready=ready,
        pid=os.getpid(),
        phase="ready" if ready else "loading stt",
        models={"stt": "whisper-tiny.en", "llm": "smollm2-135m-instruct"} if ready else {},
        queue_depth={"stt": 0},
        jobs_done={"stt": 3},
        wait_ms=2_000.0 if "busy" in sys.argv else 5.0,
        costs=COSTS if bootstrap.get("measure") else None,
    )
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.bind(bootstrap["inference"])
    while True:
        sender, data = socket.recv_multipart()
        assert isinstance(decode(data), AskInferenceStatus)
        socket.send_multipart([sender, encode(status)])
        if "hang" in sys.argv:
            time.sleep(3_600)


def end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
