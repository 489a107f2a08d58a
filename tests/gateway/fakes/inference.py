"""Stands in for the inference process: says how it is. `loading` as an argument: never ready."""

import os
import signal
import sys
import time

import zmq

from avatar_server.processes import read_bootstrap, when_parent_ends
from avatar_server.protocol.messages import AskInferenceStatus, InferenceStatus, decode, encode


def main() -> None:
    bootstrap = read_bootstrap()
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        when_parent_ends(lambda: os._exit(0))
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
    socket.bind(bootstrap.inference)
    while True:
        sender, data = socket.recv_multipart()
        assert isinstance(decode(data), AskInferenceStatus)
        socket.send_multipart([sender, encode(status)])
        if "hang" in sys.argv:
            time.sleep(3_600)


if __name__ == "__main__":
    main()
