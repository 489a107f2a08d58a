"""What is checked and changed in an SDP offer before WebRTC sees it. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from aiortc import sdp

MAX_SDP_BYTES = 65_536


class OfferError(ValueError):
    """An offer cannot be met. Becomes a problem document with this status, title and detail."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(f"{title}: {detail}")
        self.status = status
        self.title = title
        self.detail = detail


def strip_mdns(offer: str) -> str:
    """The offer without `.local` candidates, which only the browser's own network resolves.

    Their absence costs nothing: the browser's connectivity checks tell us its address. The end of
    candidates is then left out too, so that we wait for those checks.
    """
    lines = offer.splitlines()
    kept = [line for line in lines if not is_mdns_candidate(line)]
    if len(kept) < len(lines):
        kept = [line for line in kept if line.strip() != "a=end-of-candidates"]
    return "\r\n".join(kept) + "\r\n"


def is_mdns_candidate(line: str) -> bool:
    """Whether an SDP line or a trickled candidate names a `.local` host."""
    fields = line.split()
    return (
        len(fields) > 4
        and re.fullmatch(r"(a=)?candidate:\S+", fields[0]) is not None
        and fields[4].lower().rstrip(".").endswith(".local")
    )


class CheckedOffer(NamedTuple):
    """An offer that can be given to a peer connection."""

    sdp: str
    has_video: bool


def check_offer(offer: str) -> CheckedOffer:
    """The offer with what cannot be used taken out; raises `OfferError`."""
    if len(offer) > MAX_SDP_BYTES:
        raise _bad(f"the offer has {len(offer)} characters; at most {MAX_SDP_BYTES} are taken")
    if not offer.lstrip().startswith("v=0"):
        raise _bad("the body must be an SDP offer, as RTCPeerConnection.createOffer() makes it")
    cleaned = strip_mdns(offer)
    try:
        description = sdp.SessionDescription.parse(cleaned)
    except Exception as error:
        # The parser raises whatever its slip happens to be, StopIteration among others.
        raise _bad(f"the SDP cannot be read ({error or type(error).__name__})") from error
    kinds = [media.kind for media in description.media]
    if len(kinds) > 8:
        raise _bad(f"the offer has {len(kinds)} media sections; the page needs three")
    for kind, what in (
        ("audio", "an audio section, to hear the avatar"),
        ("application", "a data channel, for captions and control"),
    ):
        if kinds.count(kind) != 1:
            raise _bad(f"the offer needs {what}, exactly one; it has {kinds.count(kind)}")
    if kinds.count("video") > 1:
        raise _bad(f"the offer has {kinds.count('video')} video sections; one is used")
    _check_transport(description)
    _check_bundle(description)
    for media in description.media:
        if media.kind in ("audio", "video") and media.direction not in ("sendrecv", "recvonly"):
            raise _bad(
                f"the {media.kind} section is {media.direction}: offer it as recvonly or sendrecv"
            )
    _check_codecs(description)
    return CheckedOffer(cleaned, "video" in kinds)


def _check_transport(description: sdp.SessionDescription) -> None:
    for media in description.media:
        if media.ice is None or not media.ice.usernameFragment or not media.ice.password:
            raise _bad(f"the {media.kind} section has no ICE user name and password")
        if media.dtls is None or not media.dtls.fingerprints:
            raise _bad(f"the {media.kind} section has no DTLS fingerprint")
        if media.kind != "application" and not media.rtcp_mux:
            raise _bad(f"the {media.kind} section does not multiplex RTCP (a=rtcp-mux)")


def _check_bundle(description: sdp.SessionDescription) -> None:
    """aiortc gives sections that are bundled with one that is not there no transport at all."""
    mids = [media.rtp.muxId for media in description.media]
    if not all(mids) or len(set(mids)) < len(mids):
        raise _bad("each section needs a name of its own (a=mid)")
    for group in description.group:
        if group.semantic == "BUNDLE" and not set(group.items) <= set(mids):
            raise _bad("the BUNDLE group names a section that is not in the offer")


def _check_codecs(description: sdp.SessionDescription) -> None:
    video = set(_codec_names(description, "video"))
    video_offered = any(media.kind == "video" for media in description.media)
    audio = set(_codec_names(description, "audio"))
    if video_offered and not video & {"h264", "vp8"}:
        raise OfferError(
            406,
            "No common video codec",
            f"this server sends H.264 or VP8; the offer has {_listing(video)}. "
            "Use a browser that can decode one of them.",
        )
    if "opus" not in audio:
        raise OfferError(
            406,
            "No common audio codec",
            f"this server sends Opus; the offer has {_listing(audio)}.",
        )


def _codec_names(description: sdp.SessionDescription, kind: str) -> Iterator[str]:
    helpers = ("rtx", "red", "ulpfec", "flexfec-03", "cn", "telephone-event")
    for media in description.media:
        if media.kind == kind:
            for codec in media.rtp.codecs:
                name = codec.name.lower()
                mode = str(codec.parameters.get("packetization-mode", "0"))
                if name not in helpers and not (name == "h264" and mode != "1"):
                    yield name


def _listing(names: set[str]) -> str:
    return ", ".join(sorted(name.upper() for name in names)) or "none that can be used"


def _bad(detail: str) -> OfferError:
    return OfferError(400, "The offer cannot be used", detail)
