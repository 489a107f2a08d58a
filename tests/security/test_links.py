"""Join links that were given out."""

from __future__ import annotations

import pytest

from avatar_server.clock import ManualClock
from avatar_server.security import LinkBook, Role, TooManyLinks, UnknownLink
from avatar_server.security.links import MOST_LINKS


def test_a_revoked_link_is_known_as_such_and_names_who_came_by_it() -> None:
    book = LinkBook()
    one, other = (book.add("s", Role.SPEAK, 60) for _ in range(2))
    book.joined("s", one.id, "v1")
    book.joined("s", other.id, "v2")
    assert book.revoke("s", one.id) == ["v1"]
    assert book.is_revoked("s", one.id)
    assert not book.is_revoked("s", other.id)
    assert not book.is_revoked("another", one.id)
    assert book.revoke("s", one.id) == []
    with pytest.raises(UnknownLink):
        book.revoke("another", one.id)


def test_links_go_with_their_time_and_their_session() -> None:
    clock = ManualClock()
    book = LinkBook(clock.now)
    book.add("s", Role.WATCH, 60)
    clock.advance(61)
    kept = book.add("s", Role.WATCH, 60)
    assert book.of("s") == [kept]
    book.add("t", Role.WATCH, 60)
    book.keep(["t"])
    assert book.of("s") == []
    assert len(book.of("t")) == 1


def test_there_is_an_end_to_links() -> None:
    clock = ManualClock()
    book = LinkBook(clock.now)
    for _ in range(MOST_LINKS):
        book.add("s", Role.WATCH, 60)
    with pytest.raises(TooManyLinks, match="1000 links"):
        book.add("s", Role.WATCH, 60)
    clock.advance(61)
    book.add("s", Role.WATCH, 60)
