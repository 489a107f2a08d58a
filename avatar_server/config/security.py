"""Settings of who may use the server."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from avatar_server.config.base import Section


class SecuritySettings(Section):
    """Keys of operators, links of viewers, and limits."""

    require_key: Literal["auto", "always", "never"] = "auto"
    """Whether operators need an API key: `auto` asks for one unless the server listens on this
    machine only."""
    public_start: bool = False
    """Where keys are required: whether anybody who opens the page may start a session and talk.
    Without it a viewer needs a join link."""
    token_secret: SecretStr | None = Field(default=None, min_length=32)
    """Signs join links; best given in the environment, as AVATAR_SERVER_SECURITY__TOKEN_SECRET.
    None: one is made and kept in the user's data folder."""
    link_lifetime_s: float = Field(default=86_400.0, ge=60)
    """How long a join link is good unless the one who makes it says otherwise."""
    most_link_lifetime_s: float = Field(default=2_592_000.0, ge=60)
    """The longest that may be asked for."""
    requests_per_minute: float = Field(default=600.0, gt=0)
    """Of one address, in the long run."""
    request_burst: int = Field(default=200, ge=1)
    """Of one address, at once."""
    starts_per_minute: float = Field(default=12.0, gt=0)
    """Sessions that one address may start, and offers that it may make, in the long run."""
    start_burst: int = Field(default=12, ge=1)
    """The same, at once."""
    audit: bool = True
    """Write what operators do, and what was refused to them, to the audit log."""
