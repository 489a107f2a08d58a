from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from avatar_server.avatar import history
from avatar_server.avatar.history import History
from avatar_server.protocol.messages import HistoryItem


def pairs(items: History) -> list[tuple[str, str]]:
    return [(item.role, item.text) for item in items]


def test_a_reply_heard_to_its_end_is_kept_whole() -> None:
    items = history.with_reply(history.with_user((), " When? "), "At nine.")
    assert pairs(items) == [("user", "When?"), ("assistant", "At nine.")]


def test_an_interrupted_reply_keeps_the_words_heard_and_a_mark() -> None:
    items = history.with_reply(history.with_user((), "When?"), "At nine,", interrupted=True)
    assert pairs(items)[-1] == ("assistant", "At nine —")


def test_a_reply_of_which_nothing_was_heard_leaves_the_question_open() -> None:
    items = history.with_reply(history.with_user((), "When?"), "  ", interrupted=True)
    assert pairs(items) == [("user", "When?")]
    assert history.unanswered(items) == "When?"
    assert history.without_unanswered(items) == ()


def test_what_was_said_without_an_answer_is_joined() -> None:
    items = history.with_user(history.with_user((), "When does it"), "open?")
    assert pairs(items) == [("user", "When does it open?")]


def test_a_reply_that_is_taken_up_again_is_one_reply() -> None:
    items = history.with_reply(history.with_user((), "When?"), "At", interrupted=True)
    items = history.with_reply(items, "nine o'clock.")
    assert pairs(items)[-1] == ("assistant", "At — nine o'clock.")


def test_a_single_text_beyond_the_bound_keeps_its_end() -> None:
    items = history.bounded([HistoryItem(role="user", text="a" * 50 + "b" * 50)], max_chars=50)
    assert pairs(items) == [("user", "b" * 50)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["user", "reply", "cut"]), st.text(max_size=40).map(lambda t: t * 20)
    ),
    max_size=40,
)


@settings(max_examples=50, deadline=None)
@given(STEPS)
def test_history_is_bounded_and_alternates_whatever_is_said(steps: list[tuple[str, str]]) -> None:
    items: History = ()
    for kind, text in steps:
        if kind == "user":
            items = history.with_user(items, text)
        else:
            items = history.with_reply(items, text, interrupted=kind == "cut")
        assert len(items) <= history.MAX_ITEMS
        assert sum(len(item.text) for item in items) <= history.MAX_CHARS
        roles = [item.role for item in items]
        assert all(a != b for a, b in pairwise(roles))


def test_the_beginning_stays_for_many_turns_so_that_a_model_need_not_read_it_anew() -> None:
    talk: history.History = ()
    beginnings = set()
    for turn in range(400):
        talk = history.with_user(talk, f"question {turn}")
        talk = history.with_reply(talk, f"answer {turn}")
        beginnings.add(talk[0].text)
        assert talk[0].role == "user"
        assert len(talk) <= history.MAX_ITEMS
    assert len(beginnings) <= 1 + 2 * 400 // history.BLOCK_ITEMS
