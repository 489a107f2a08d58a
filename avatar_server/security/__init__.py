"""Who may use the server: API keys, join links, rate limits, and the audit log."""

from avatar_server.security.audit import AuditEntry, AuditLog
from avatar_server.security.keys import ApiKey, ApiKeyError, KeyStore, Scope
from avatar_server.security.links import Link, LinkBook, LinkError, TooManyLinks, UnknownLink
from avatar_server.security.ratelimit import RateLimiter
from avatar_server.security.tokens import Role, TokenError, TokenSigner, ViewerToken, signing_secret

__all__ = [
    "ApiKey",
    "ApiKeyError",
    "AuditEntry",
    "AuditLog",
    "KeyStore",
    "Link",
    "LinkBook",
    "LinkError",
    "RateLimiter",
    "Role",
    "Scope",
    "TokenError",
    "TokenSigner",
    "TooManyLinks",
    "UnknownLink",
    "ViewerToken",
    "signing_secret",
]
