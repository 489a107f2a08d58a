"""Join links' tokens: what they are good for, and until when."""

from __future__ import annotations

import stat
from pathlib import Path

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.security import Role, TokenError, TokenSigner, signing_secret

SECRET = "s" * 40
NOW = 1_800_000_000.0


def test_a_token_says_its_session_role_and_end() -> None:
    signer = TokenSigner(SECRET)
    found = signer.read(signer.sign("abc", Role.WATCH, 60, NOW), NOW + 59)
    assert (found.session, found.role, found.expires) == ("abc", Role.WATCH, NOW + 60)


def test_it_ends_by_itself() -> None:
    signer = TokenSigner(SECRET)
    token = signer.sign("abc", Role.SPEAK, 60, NOW)
    signer.read(token, NOW + 64)
    with pytest.raises(TokenError, match="expired"):
        signer.read(token, NOW + 66)


def test_another_secret_signs_nothing_here() -> None:
    token = TokenSigner("t" * 40).sign("abc", Role.SPEAK, 60, NOW)
    with pytest.raises(TokenError, match="not valid"):
        TokenSigner(SECRET).read(token, NOW)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "else", "sub": "abc", "role": "speak", "exp": NOW + 60},
        {"sub": "abc", "role": "speak", "exp": NOW + 60},
        {"aud": "avatar-server:viewer", "role": "speak", "exp": NOW + 60},
        {"aud": "avatar-server:viewer", "sub": "abc", "role": "speak"},
        {"aud": "avatar-server:viewer", "sub": "abc", "role": "rule", "exp": NOW + 60},
        {"aud": "avatar-server:viewer", "sub": "abc", "role": ["speak"], "exp": NOW + 60},
        {"aud": "avatar-server:viewer", "sub": "abc", "role": "speak", "exp": "soon"},
    ],
)
def test_rightly_signed_but_wrong_claims_are_refused(claims: dict[str, object]) -> None:
    with pytest.raises(TokenError, match="not valid"):
        TokenSigner(SECRET).read(jwt.encode(claims, SECRET, "HS256"), NOW)


def test_an_unsigned_token_is_refused() -> None:
    claims = {"aud": "avatar-server:viewer", "sub": "abc", "role": "speak", "exp": NOW + 60}
    with pytest.raises(TokenError):
        TokenSigner(SECRET).read(jwt.encode(claims, "", "none"), NOW)


@given(st.text(max_size=200))
def test_no_text_that_was_not_signed_is_taken(text: str) -> None:
    with pytest.raises(TokenError):
        TokenSigner(SECRET).read(text, NOW)


@given(position=st.integers(0, 400), value=st.sampled_from("Aa0_-.="))
def test_no_changed_token_says_anything_else(position: int, value: str) -> None:
    signer = TokenSigner(SECRET)
    token = signer.sign("abc", Role.WATCH, 60, NOW)
    place = position % len(token)
    changed = token[:place] + value + token[place + 1 :]
    try:
        found = signer.read(changed, NOW)
    except TokenError:
        return
    # The last character of a base64 part has bits that mean nothing.
    assert (found.session, found.role) == ("abc", Role.WATCH)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(TokenError, match="32 bytes"):
        TokenSigner("short")


def test_the_secret_is_made_once_and_kept_to_oneself(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "token-secret"
    first = signing_secret(None, path)
    assert signing_secret(None, path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    TokenSigner(first)
    assert signing_secret("x" * 32, path) == "x" * 32


def test_a_place_that_cannot_be_written_is_told_with_what_to_do(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    with pytest.raises(TokenError, match="AVATAR_SERVER_SECURITY__TOKEN_SECRET"):
        signing_secret(None, blocked / "token-secret")
