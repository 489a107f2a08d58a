"""Whether the server may be opened to others than this machine, and if not, what to do first."""

from __future__ import annotations

import ssl

from avatar_server.config import HttpSettings, Settings
from avatar_server.gateway.access import key_required
from avatar_server.gateway.guards import is_loopback
from avatar_server.security import ApiKeyError, KeyStore


class NotSafe(Exception):
    """The server would be open to strangers; the message says what to do."""


def check_exposure(settings: Settings, keys: KeyStore) -> None:
    """Raises `NotSafe` where others could reach the server without TLS or without keys."""
    http = settings.http
    if not is_loopback(http.host) and http.tls_certificate is None and not http.allow_plain:
        raise NotSafe(
            f"http.host is {http.host}, which others than this machine can reach, and there is no "
            "TLS. Give http.tls_certificate and http.tls_key; or, where a reverse proxy or a "
            "private network sees to it, set http.allow_plain=true."
        )
    if not key_required(settings):
        return
    try:
        entries = keys.entries()
    except ApiKeyError as error:
        raise NotSafe(str(error)) from error
    if not entries:
        raise NotSafe(
            "Operators of this server need an API key, and there is none yet. Make one: "
            "avatar-server keys create NAME --scope operate."
        )


def tls_context(http: HttpSettings) -> ssl.SSLContext | None:
    """The certificate, loaded; none where there is none. Raises `NotSafe` where it cannot be."""
    if http.tls_certificate is None or http.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2

    def no_password() -> str:
        raise NotSafe(f"The key in {http.tls_key} is encrypted. Give one that is not.")

    try:
        context.load_cert_chain(http.tls_certificate, http.tls_key, no_password)
    except FileNotFoundError as error:
        missing = [str(p) for p in (http.tls_certificate, http.tls_key) if not p.is_file()]
        raise NotSafe(f"There is no file {' and no file '.join(missing)}.") from error
    except PermissionError as error:
        raise NotSafe(
            f"{http.tls_certificate} or {http.tls_key} may not be read by this user."
        ) from error
    except (ssl.SSLError, OSError) as error:
        raise NotSafe(
            f"{http.tls_certificate} and {http.tls_key} cannot be used: {error}. Both must be PEM "
            "files, and the key must be the certificate's."
        ) from error
    return context
