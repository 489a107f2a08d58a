"""Settings of the web server and of who may use it."""

from __future__ import annotations

from pydantic import Field

from avatar_server.config.base import Section


class HttpSettings(Section):
    """The web server."""

    host: str = "127.0.0.1"
    """Address to listen on. Microphones work on localhost or over https only."""
    port: int = Field(default=8080, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    allowed_origins: list[str] = Field(default=[])
    """Origins (`https://name[:port]`) besides the server's own whose pages may use it."""
