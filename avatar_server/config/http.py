"""Settings of the web server and of who may use it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from avatar_server.config.base import Section


class HttpSettings(Section):
    """The web server."""

    host: str = "127.0.0.1"
    """Address to listen on. Microphones work on localhost or over https only."""
    port: int = Field(default=8080, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    allowed_origins: list[str] = Field(default=[])
    """Origins (`https://name[:port]`) besides the server's own whose pages may use it."""
    tls_certificate: Path | None = None
    """PEM file with the certificate and those above it: the page is then served over https."""
    tls_key: Path | None = None
    """PEM file with the certificate's key, which must not be encrypted."""
    trusted_proxies: list[str] = Field(default=[])
    """Addresses or networks of reverse proxies whose X-Forwarded-For and -Proto are believed."""
    allow_plain: bool = False
    """Listen beyond this machine without TLS, because a reverse proxy or a private network sees to
    it. Browsers give no microphone there without https."""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> HttpSettings:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("give tls_certificate and tls_key both, or neither")
        return self
