"""Stands in for the inference process: says how it is. `loading` as an argument: never ready."""

import os
import signal
import sys
import threading
import time

import msgspec
import zmq

from avatar_server.protocol.messages import AskInferenceStatus, InferenceStatus, decode, encode


def main() -> None:
    bootstrap = msgspec.json.decode(sys.stdin.buffer.readline())
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        threading.Thread(target=end_with_parent, daemon=True).start()
    ready = "loading" not in sys.argv
    status = InferenceStatus(
        ready=ready,
        pid=os.getpid(),
        phase="ready" if ready else "loading stt",
        models={"stt": "whisper-tiny.en", "llm": "smollm2-135m-instruct"} if ready else {},
        queue_depth={"stt": 0},
        jobs_done={"stt": 3},
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
