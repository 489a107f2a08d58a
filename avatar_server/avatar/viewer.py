"""One viewer: its peer connection, data channel and microphone."""

from __future__ import annotations

import logging
import uuid
from typing import Any, Protocol

import numpy as np
from aiortc import (
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCRtpSender,
    RTCSessionDescription,
)
from aiortc.rtcrtpparameters import RTCRtpCodecCapability
from aiortc.sdp import candidate_from_sdp
from numpy.typing import NDArray

from avatar_server.avatar.fanout import Fanout
from avatar_server.avatar.ice import gather_as_configured, servers_to_use
from avatar_server.avatar.layers import LayerPolicy
from avatar_server.avatar.media import MediaEngine
from avatar_server.avatar.microphone import Microphone
from avatar_server.avatar.packets import Layer
from avatar_server.avatar.rtc_internals import (
    ask_for_fec,
    packets_received,
    replace_sender,
    take_packets,
)
from avatar_server.avatar.sender import LeanSender
from avatar_server.avatar.signalling import CheckedOffer, is_mdns_candidate
from avatar_server.avatar.sink import ViewerSink
from avatar_server.avatar.speech_decoder import recovers_losses
from avatar_server.clock import Clock
from avatar_server.config import MediaSettings
from avatar_server.protocol.events import (
    DATA_CHANNEL,
    EventError,
    Notice,
    PageEvent,
    decode_page_event,
    encode_event,
)

logger = logging.getLogger(__name__)

_MAX_BUFFERED_BYTES = 262_144
"""Events waiting in the data channel; a viewer that lets so much pile up is not reading."""


class ViewerCallbacks(Protocol):
    """What happens to a viewer, told on the event loop."""

    def joined(self, peer: Viewer) -> None: ...

    def event(self, peer: Viewer, event: PageEvent) -> None: ...

    def audio(self, peer: Viewer, pcm: NDArray[np.int16]) -> None: ...

    def lost(self, peer: Viewer, reason: str) -> None: ...


class Viewer:
    """Owns all that one viewer needs; `close` frees it."""

    def __init__(
        self,
        name: str,
        offer: CheckedOffer,
        can_speak: bool,
        settings: MediaSettings,
        engine: MediaEngine,
        fanout: Fanout,
        clock: Clock,
        callbacks: ViewerCallbacks,
    ) -> None:
        self.name = name
        self.can_speak = can_speak
        self.joined = False
        self.known = False
        """Whether the conversation has been told of this viewer: by an earlier connection too."""
        self.created = clock.now()
        self._offer = offer
        self._clock = clock
        self._callbacks = callbacks
        self._channel: RTCDataChannel | None = None
        self._microphone = Microphone()
        self._closing = False
        self._received = -1
        self._heard_at = self.created
        self._settings = settings
        # Never None: aiortc would then ask a public STUN server.
        servers = servers_to_use(settings)
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=servers))
        stream = str(uuid.uuid4())
        audio = self._connection.addTransceiver("audio", "sendrecv" if can_speak else "sendonly")
        if can_speak:
            take_packets(audio.receiver, self._on_packet)
        # On the answering side preferences count only if set before the remote description.
        audio.setCodecPreferences(_preferences("audio", "opus"))
        self._microphone_line = audio if can_speak and settings.audio.fec else None
        self._audio = replace_sender(audio, engine.timeline, clock, stream)
        self._video: LeanSender | None = None
        if offer.has_video:
            video = self._connection.addTransceiver("video", "sendonly")
            video.setCodecPreferences(_preferences("video", "h264", "vp8"))
            self._video = replace_sender(video, engine.timeline, clock, stream)
        picture = engine.video_settings
        policy = LayerPolicy(picture.bitrate_bps) if picture.low.enabled else None
        self._sink = ViewerSink(self._audio, self._video, fanout, engine.request_keyframe, policy)
        self._connection.on("datachannel", self._on_channel)
        self._connection.on("connectionstatechange", self._on_state)

    async def answer(self) -> str:
        """The SDP answer, complete with candidates. Raises `NoFreePortError`."""
        await self._connection.setRemoteDescription(RTCSessionDescription(self._offer.sdp, "offer"))
        if self._microphone_line is not None and recovers_losses():
            ask_for_fec(self._microphone_line)
        gather_as_configured(self._connection, self._settings)
        await self._connection.setLocalDescription(await self._connection.createAnswer())
        return str(self._connection.localDescription.sdp)

    async def add_candidate(
        self, candidate: str, sdp_mid: str | None, sdp_m_line_index: int | None
    ) -> None:
        """Raises `ValueError`, `IndexError` or `AssertionError` for one that cannot be read."""
        text = candidate.strip()
        if is_mdns_candidate(text):
            return
        if not text:
            await self._connection.addIceCandidate(None)
            return
        parsed = candidate_from_sdp(text.removeprefix("a=").removeprefix("candidate:"))
        parsed.sdpMid = sdp_mid
        parsed.sdpMLineIndex = sdp_m_line_index
        await self._connection.addIceCandidate(parsed)

    def send(self, text: str) -> bool:
        """Send an event; false where the viewer does not take them in."""
        channel = self._channel
        if channel is None or channel.readyState != "open":
            return True
        if channel.bufferedAmount > _MAX_BUFFERED_BYTES:
            return False
        channel.send(text)
        return True

    def silent_for(self, now: float) -> float:
        """Seconds since anything (media, report or event) came from the viewer."""
        received = packets_received(self._audio.transport)
        if received != self._received:
            self._received = received
            self._heard_at = now
        return now - self._heard_at

    def excuse(self, now: float) -> None:
        """Begin to count silence anew: nobody listened until now."""
        self._heard_at = now

    def age_ms(self) -> float:
        return (self._clock.now() - self.created) * 1e3

    @property
    def layer(self) -> Layer:
        """Which of the session's pictures it is sent."""
        return self._sink.layer

    def stats(self) -> dict[str, Any]:
        video = (self._video or self._audio).stats
        return {
            "codec": self._sink.codec,
            "layer": self._sink.layer,
            "layer_moves": self._sink.moves,
            "joined": self.joined,
            "packets": video.packets,
            "retransmitted": video.retransmitted,
            "keyframe_requests": video.keyframe_requests,
            "fraction_lost": video.fraction_lost,
            "round_trip_ms": video.round_trip_ms,
            "remb_bps": video.remb_bps,
            "overflows": self._sink.queue.overflows,
            "microphone_lost": self._microphone.lost,
        }

    def stop_media(self) -> None:
        """Nothing more is sent or told from here on."""
        self._closing = True
        self.joined = False
        self._sink.close()

    async def close(self) -> None:
        """End the connection and free sockets, tasks and threads."""
        self.stop_media()
        self._connection.remove_all_listeners()
        try:
            await self._connection.close()
        finally:
            self._microphone.close()

    def _on_state(self) -> None:
        state = self._connection.connectionState
        if self._closing:
            return
        if state == "connected":
            self._maybe_joined()
        elif state == "failed":
            self._callbacks.lost(
                self, "the connection was lost" if self.joined else "no connection could be made"
            )
        elif state == "closed":
            self._callbacks.lost(self, "the connection was closed")

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if channel.label != DATA_CHANNEL or self._channel is not None:
            logger.warning("viewer %s opened a data channel %r", self.name, channel.label[:40])
            return
        self._channel = channel
        channel.on("message", self._on_message)
        channel.on("close", self._on_channel_close)
        self._maybe_joined()

    def _maybe_joined(self) -> None:
        if (
            not self.joined
            and not self._closing
            and self._channel is not None
            and self._connection.connectionState == "connected"
        ):
            self.joined = True
            self._heard_at = self._clock.now()
            self._callbacks.joined(self)

    def _on_channel_close(self) -> None:
        if not self._closing:
            self._callbacks.lost(self, "its data channel was closed")

    def _on_message(self, data: str | bytes) -> None:
        if self._closing:
            return
        try:
            event = decode_page_event(data)
        except EventError as error:
            self.send(encode_event(Notice(code="bad-event", message=str(error)[:300])))
            return
        self._callbacks.event(self, event)

    def _on_packet(self, sequence: int, timestamp: int, payload: bytes) -> None:
        if self.joined:
            for piece in self._microphone.feed(sequence, timestamp, payload):
                self._callbacks.audio(self, piece)


def _preferences(kind: str, *names: str) -> list[RTCRtpCodecCapability]:
    """Capabilities in the order of `names`; of H.264, constrained baseline before baseline."""
    codecs = RTCRtpSender.getCapabilities(kind).codecs

    def rank(codec: RTCRtpCodecCapability) -> tuple[int, bool]:
        profile = str(codec.parameters.get("profile-level-id", ""))
        return names.index(codec.name.lower()), not profile.lower().startswith("42e0")

    chosen = sorted((codec for codec in codecs if codec.name.lower() in names), key=rank)
    return chosen + [codec for codec in codecs if codec.name.lower() == "rtx"]
