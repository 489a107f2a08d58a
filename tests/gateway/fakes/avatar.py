"""Stands in for the avatar process: speaks its side of the protocol, with no media.

How it behaves goes by the avatar's name: `crash` ends at once, `never` is never ready, `mute`
answers no offer, `refuse` answers with a problem, `stubborn` ignores every request to stop.
Told of an overload level, it names that as its state.
An offer with `a=hang` stops all signs of life, `a=vanish` leaves without a goodbye.
"""

import os
import signal
import sys
import threading
import time

import msgspec
import zmq

from avatar_server.protocol.messages import (
    AddCandidate,
    Answer,
    AvatarReady,
    AvatarStatus,
    Leave,
    Offer,
    Picture,
    Problem,
    RenewAvatar,
    SetOverload,
    StageSpan,
    StopAvatar,
    TakePicture,
    TurnTrace,
    decode,
    encode,
)


def main() -> None:
    # Read by hand: the product's own reader loads all settings, which costs most of a test's time.
    bootstrap = msgspec.json.decode(sys.stdin.buffer.readline())
    name, session = bootstrap["avatar"], bootstrap["session"]
    if name == "crash":
        print("the rig is missing", file=sys.stderr)
        sys.exit(3)
    if name == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        threading.Thread(target=end_with_parent, daemon=True).start()
    if name == "never":
        threading.Event().wait()
    socket = zmq.Context().socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, session.encode())
    socket.connect(bootstrap["gateway"])
    socket.send(encode(AvatarReady(session=session, pid=os.getpid())))
    socket.send(encode(a_turn(session)))
    viewers: list[str] = []
    state = "idle"
    next_status = 0.0
    while True:
        if time.monotonic() >= next_status:
            next_status = time.monotonic() + 0.5
            send_status(socket, session, viewers, state)
        if not socket.poll(100):
            continue
        message = decode(socket.recv())
        if isinstance(message, Offer) and name == "refuse":
            refusal = Problem(
                request=message.request,
                status=422,
                title="No common codec",
                detail="The offer has no codec in common with this server: offer H264 or VP8.",
            )
            socket.send(encode(refusal))
        elif isinstance(message, Offer) and name != "mute":
            if "a=hang" in message.sdp:
                threading.Event().wait()
            if message.viewer not in viewers:
                viewers.append(message.viewer)
            sdp = f"v=0\r\ns={os.getpid()}\r\na=speak:{message.can_speak}\r\n"
            socket.send(encode(Answer(request=message.request, viewer=message.viewer, sdp=sdp)))
            if "a=vanish" in message.sdp:
                viewers.remove(message.viewer)
            send_status(socket, session, viewers)
        elif isinstance(message, Leave) and message.viewer in viewers:
            viewers.remove(message.viewer)
            send_status(socket, session, viewers)
        elif isinstance(message, TakePicture):
            # Imported here: it takes longer than most tests do.
            from avatar_server.avatar.thumbnail import thumbnail_jpeg
            from renderers.contract import I420Frame

            jpeg = thumbnail_jpeg(I420Frame.empty(64, 36)) if viewers else b""
            socket.send(encode(Picture(request=message.request, jpeg=jpeg)))
        elif isinstance(message, SetOverload):
            state = f"level {message.level}"
        elif isinstance(message, RenewAvatar):
            print(f"now told {message.spec['persona']!r}", file=sys.stderr)
        elif isinstance(message, AddCandidate):
            print(f"candidate {message.candidate!r} of {message.viewer}", file=sys.stderr)
        elif isinstance(message, StopAvatar) and name != "stubborn":
            return


def end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def send_status(socket: zmq.Socket, session: str, viewers: list[str], state: str = "idle") -> None:
    status = AvatarStatus(
        session=session, state=state, viewers=len(viewers), viewer_ids=viewers, fps=30.0
    )
    socket.send(encode(status))


def a_turn(session: str) -> TurnTrace:
    return TurnTrace(
        session=session,
        turn=1,
        kind="speech",
        voice_to_voice_ms=640.0,
        stages=[StageSpan(stage="stt", start=0.1, end=0.25)],
        viewer_text="hello",
        reply_text="Hello to you.",
    )


if __name__ == "__main__":
    main()
