"""API keys: what is kept of them, and who gets in."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avatar_server.security import ApiKeyError, KeyStore, Scope


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.json")


def test_a_key_opens_and_its_text_is_kept_nowhere(store: KeyStore) -> None:
    key, text = store.create("ops laptop", Scope.OPERATE, now=1_000.0)
    assert store.verify(text) == key
    assert (key.name, key.scope, key.created) == ("ops laptop", Scope.OPERATE, 1_000.0)
    secret = text.split("_", 2)[2]
    assert secret not in store.path.read_text(encoding="utf-8")
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_two_keys_of_the_same_secret_would_look_different(store: KeyStore) -> None:
    first, _ = store.create("a", Scope.READ)
    second, _ = store.create("b", Scope.READ)
    assert first.salt != second.salt
    assert first.digest != second.digest


def test_a_changed_or_cut_text_opens_nothing(store: KeyStore) -> None:
    _, text = store.create("a", Scope.ADMIN)
    last = "A" if text[-1] != "A" else "B"
    for wrong in (text[:-1] + last, text[:-1], text + "A", text.upper(), "", "avs_", " " + text):
        assert store.verify(wrong) is None, wrong


@given(st.text(max_size=90))
def test_no_other_text_opens(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        store = KeyStore(Path(folder) / "keys.json")
        store.create("a", Scope.ADMIN)
        assert store.verify(text) is None


def test_a_revoked_key_is_refused_at_once_by_a_store_that_runs(store: KeyStore) -> None:
    running = KeyStore(store.path)
    _, text = store.create("a", Scope.READ)
    assert running.verify(text) is not None
    store.revoke("a")
    assert running.verify(text) is None
    _, again = store.create("a", Scope.READ)
    assert running.verify(again) is not None


def test_revoking_by_id_leaves_the_others(store: KeyStore) -> None:
    first, _ = store.create("a", Scope.READ)
    _, other = store.create("b", Scope.READ)
    assert store.revoke(first.id) == first
    assert [key.name for key in store.entries()] == ["b"]
    assert store.verify(other) is not None
    with pytest.raises(ApiKeyError, match="There are: b"):
        store.revoke("a")


@pytest.mark.parametrize("name", ["", "x" * 65, "line\nbreak", "emoji🙂", "semi;colon"])
def test_names_that_would_spoil_the_audit_log_are_refused(store: KeyStore, name: str) -> None:
    with pytest.raises(ApiKeyError, match="name has 1 to 64"):
        store.create(name, Scope.READ)


def test_a_name_is_given_once(store: KeyStore) -> None:
    store.create("a", Scope.READ)
    with pytest.raises(ApiKeyError, match="already"):
        store.create("a", Scope.ADMIN)
    assert len(store.entries()) == 1


def test_a_damaged_file_lets_nobody_in_and_says_what_to_do(store: KeyStore) -> None:
    _, text = store.create("a", Scope.READ)
    store.path.write_text("not json", encoding="utf-8")
    with pytest.raises(ApiKeyError, match="avatar-server keys create"):
        store.verify(text)


def test_scopes_include_the_smaller_ones() -> None:
    assert Scope.ADMIN.covers(Scope.OPERATE)
    assert Scope.OPERATE.covers(Scope.READ)
    assert Scope.READ.covers(Scope.READ)
    assert not Scope.READ.covers(Scope.OPERATE)
    assert not Scope.OPERATE.covers(Scope.ADMIN)
