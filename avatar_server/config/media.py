"""Settings of pictures, sound and WebRTC."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr, model_validator

from avatar_server.config.base import Section
from avatar_server.config.network import AddressList, IceServer, PortRange, check_accounts


class LowVideoSettings(Section):
    """The smaller picture, encoded only while some viewer's link does not carry the full one."""

    enabled: bool = True
    """Whether viewers are moved to it."""
    scale: float = Field(default=0.5, ge=0.25, le=1.0)
    """Its width and height as a share of the full picture's."""
    crf: float = Field(default=26.0, ge=0, le=51)
    """As `video.crf`, and never better than it."""


class VideoSettings(Section):
    """The encodes of a session, which its viewers share."""

    width: int = Field(default=1280, ge=160, le=3840, multiple_of=16)
    """Pixels."""
    height: int = Field(default=720, ge=120, le=2160, multiple_of=4)
    """Pixels."""
    fps: int = Field(default=30, ge=1, le=60)
    """Frames a second."""
    encoder: Literal["auto", "libx264", "h264_nvenc"] = "auto"
    """Of H.264: `auto` takes NVENC where a GPU has it (L4, L40S, RTX; not A100 and H100), else
    libx264 on the CPU. With `h264_nvenc` the server does not start without one."""
    preset: Literal["ultrafast", "superfast", "veryfast", "faster", "fast", "medium"] = "ultrafast"
    """x264 preset: slower presets need fewer bits and more CPU. A 1280x720 frame of a speaking
    avatar on one core, at the default `crf`: ultrafast 1.5 ms and 450 kbit/s, superfast 2.0 ms
    and 240 kbit/s; one cannot be told from the other by eye."""
    crf: float = Field(default=25.0, ge=0, le=51)
    """Quality: x264's constant rate factor, lower is better and larger. While the rate is below
    the cap it is the quantiser itself."""
    bitrate_bps: int = Field(default=1_000_000, ge=100_000)
    """A viewer whose link is reported to carry so much is given the full picture without delay."""
    min_bitrate_bps: int = Field(default=300_000, ge=50_000)
    """Cap of the smaller picture."""
    max_bitrate_bps: int = Field(default=2_500_000, ge=100_000)
    """Cap of the full picture."""
    low: LowVideoSettings = LowVideoSettings()
    keyframe_min_interval_ms: int = Field(default=500, ge=0)
    """At most one keyframe in this time, however many viewers ask."""
    keyframe_interval_s: float = Field(default=10.0, gt=0)
    """A keyframe at least this often."""


class AudioSettings(Section):
    """The one Opus encode of a session."""

    bitrate_bps: int = Field(default=48_000, ge=6_000, le=256_000)
    """Of the Opus stream."""
    fec: bool = True
    """In-band forward error correction, both ways: a lost packet is made from the next one."""
    expected_loss_percent: int = Field(default=10, ge=0, le=100)
    """The share of lost packets that the redundancy sent to viewers prepares for."""


class MediaSettings(Section):
    """WebRTC."""

    video: VideoSettings = VideoSettings()
    audio: AudioSettings = AudioSettings()
    ice_servers: list[IceServer] = Field(default=[])
    """None are needed where browser and server reach each other directly."""
    turn_secret: SecretStr | None = Field(default=None, min_length=1)
    """Shared with the TURN servers that have no fixed account (coturn: `static-auth-secret`): each
    viewer gets an account of its own that ends by itself. Best given in the environment, as
    AVATAR_SERVER_MEDIA__TURN_SECRET."""
    turn_lifetime_s: int = Field(default=14_400, ge=60)
    """How long such an account can be used; a page that reconnects gets a new one."""
    udp_ports: PortRange = None
    """UDP ports of media, for firewalls: `50000-50100`. One port a viewer on each address, for all
    sessions together; none: any port of the system."""
    public_address: AddressList = ""
    """Where viewers reach this machine if not at its own addresses (1:1 NAT, a cloud's public IP):
    `203.0.113.7`, several separated by commas. They take the place of the local addresses in what
    viewers are told; ports stay the same, so forward those of `udp_ports`. Where each public
    address has a local one of its own: `203.0.113.7/10.0.0.7`."""
    viewer_timeout_s: float = Field(default=5.0, gt=1)
    """A viewer from whom nothing came for this long is gone."""

    @model_validator(mode="after")
    def _accounts(self) -> MediaSettings:
        check_accounts(self.ice_servers, self.turn_secret)
        return self
