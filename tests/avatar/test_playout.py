from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from avatar_server.avatar.playout import (
    ClauseStarted,
    FirstAudible,
    Playout,
    ReplyFinished,
    WordSpoken,
)
from avatar_server.clock import ManualClock
from avatar_server.protocol.messages import ReplyAudio
from tests.avatar.simulation import RecordingMouth, clause_pieces

RATE = 48_000
FRAME = 960


@pytest.fixture
def mouth() -> RecordingMouth:
    return RecordingMouth()


@pytest.fixture
def playout(mouth: RecordingMouth) -> Playout:
    return Playout(mouth, clock=ManualClock())


def say(playout: Playout, *clauses: str, key: str = "r", turn: int = 1, pieces: int = 1) -> None:
    for number, text in enumerate(clauses):
        for piece in clause_pieces(key, number, text, pieces):
            playout.push(key, piece)
    playout.commit(key, turn)


def pull(playout: Playout, seconds: float) -> NDArray[np.int16]:
    frames = [playout.pull(FRAME) for _ in range(round(seconds * 50))]
    return np.concatenate(frames)


def test_without_speech_there_is_silence_and_the_clock_goes_on(playout: Playout) -> None:
    assert not pull(playout, 1.0).any()
    assert playout.position == pytest.approx(1.0)


def test_clauses_follow_each_other_without_a_gap(playout: Playout) -> None:
    say(playout, "one two three", "four five")
    sound = pull(playout, 1.5)
    assert np.abs(sound).min() > 0
    assert not pull(playout, 0.1).any()


def test_a_held_reply_is_silent_until_committed(playout: Playout, mouth: RecordingMouth) -> None:
    for piece in clause_pieces("r", 0, "one two"):
        playout.push("r", piece)
    assert not pull(playout, 0.5).any()
    assert not mouth.calls
    playout.commit("r", 7)
    assert pull(playout, 0.1).all()
    assert mouth.calls[0][:2] == ("add", pytest.approx(0.5))


def test_the_mouth_is_told_each_clause_before_it_sounds(
    playout: Playout, mouth: RecordingMouth
) -> None:
    pull(playout, 1.0)
    say(playout, "one two three", "four five")
    starts = [call[1] for call in mouth.calls if call[0] == "add"]
    assert starts == pytest.approx([1.0, 1.9])
    pull(playout, 2.0)
    started = [e for e in playout.take_events() if isinstance(e, ClauseStarted)]
    assert [e.position for e in started] == pytest.approx(starts)


def test_the_mouth_is_told_the_energy_of_every_10_ms_once(
    playout: Playout, mouth: RecordingMouth
) -> None:
    say(playout, "one two three")
    pieces = clause_pieces("r", 1, "four five six", 7)
    for piece in pieces:
        playout.push("r", piece)
    adds = [call for call in mouth.calls if call[0] == "add"]
    extends = [call for call in mouth.calls if call[0] == "extend"]
    assert len(adds[0][3]) == 90
    assert len(adds[1][3]) + sum(len(call[2]) for call in extends) == 90
    at = adds[1][1] + len(adds[1][3]) * 0.01
    for _, start, energy in extends:
        assert start == pytest.approx(at)
        at += len(energy) * 0.01
    assert float(adds[0][3][5]) == pytest.approx(8_000 / 32_768, rel=1e-3)


def test_words_are_told_as_they_begin(playout: Playout) -> None:
    say(playout, "Hello, my friend!")
    spoken = []
    for _ in range(45):
        playout.pull(FRAME)
        at = playout.position
        spoken += [(at, e) for e in playout.take_events() if isinstance(e, WordSpoken)]
    assert [e.spoken for _, e in spoken] == ["Hello,", "Hello, my", "Hello, my friend!"]
    for number, (at, _) in enumerate(spoken):
        assert 0 <= at - number * 0.3 <= 0.02 + 1e-9


def test_the_first_audible_sample_is_not_the_first_silent_one(playout: Playout) -> None:
    pcm = np.concatenate([np.zeros(12_000, np.int16), np.full(12_000, 9_000, np.int16)])
    playout.push(
        "r", ReplyAudio(job="r", clause=0, piece=0, pcm=pcm.tobytes(), last=True, text="x")
    )
    playout.commit("r", 1)
    clock = playout._clock
    for _ in range(25):
        playout.pull(FRAME)
        clock.advance(0.02)  # type: ignore[attr-defined]
    (first,) = [e for e in playout.take_events() if isinstance(e, FirstAudible)]
    assert first.at == pytest.approx(0.25)
    assert first.position == pytest.approx(0.25)


def test_a_reply_is_finished_when_it_was_played_and_no_more_comes(playout: Playout) -> None:
    say(playout, "one two", "three")
    pull(playout, 2.0)
    assert not [e for e in playout.take_events() if isinstance(e, ReplyFinished)]
    playout.end("r")
    pull(playout, 0.02)
    (finished,) = [e for e in playout.take_events() if isinstance(e, ReplyFinished)]
    assert (finished.turn, finished.heard) == (1, "one two three")


def test_an_ended_reply_finishes_in_the_pull_that_plays_its_last_sample(playout: Playout) -> None:
    say(playout, "one")
    playout.end("r")
    pull(playout, 0.3)
    assert isinstance(playout.take_events()[-1], ReplyFinished)


def test_a_reply_without_sound_finishes_too(playout: Playout) -> None:
    playout.commit("r", 3)
    playout.end("r")
    pull(playout, 0.02)
    assert playout.take_events() == [ReplyFinished(3, "", 0.0)]


def test_a_cut_fades_within_one_piece_and_tells_the_words_heard(
    playout: Playout, mouth: RecordingMouth
) -> None:
    say(playout, "one two three four", "five six")
    pull(playout, 0.7)
    cut = playout.cut(1)
    assert cut.heard == "one two"
    assert cut.rest == "three four five six"
    assert cut.audible
    sound = playout.pull(FRAME)
    fade = round(0.015 * RATE)
    assert not sound[fade:].any()
    level = np.abs(sound[:fade].astype(int))
    assert level[0] > 7_000
    assert level[-1] < 100
    assert (np.diff(level) <= 0).all()
    assert mouth.calls[-1] == ("cut", pytest.approx(0.715))
    assert not pull(playout, 1.0).any()


def test_a_word_counts_as_heard_from_its_middle_on(playout: Playout) -> None:
    say(playout, "one two three")
    pull(playout, 0.44)
    assert playout.cut(1).heard == "one"
    say(playout, "one two three", key="s", turn=2)
    pull(playout, 0.48)
    assert playout.cut(2).heard == "one two"


def test_a_cut_before_any_sound_was_heard_says_so(playout: Playout) -> None:
    say(playout, "one two")
    cut = playout.cut(1)
    assert (cut.heard, cut.rest, cut.audible) == ("", "one two", False)
    assert not pull(playout, 0.5).any()
    assert playout.cut(1).rest == ""


def test_cutting_another_turn_changes_nothing(playout: Playout) -> None:
    say(playout, "one two", turn=4)
    assert playout.cut(3).heard == ""
    assert pull(playout, 0.1).all()


def test_two_replies_never_play_at_once(playout: Playout) -> None:
    say(playout, "one two")
    with pytest.raises(RuntimeError, match="still playing"):
        playout.commit("other", 2)


def test_speech_that_runs_dry_pauses_sound_mouth_and_words_alike(
    playout: Playout, mouth: RecordingMouth
) -> None:
    pieces = clause_pieces("r", 0, "one two three four", 2)
    playout.push("r", pieces[0])
    playout.commit("r", 1)
    pull(playout, 1.0)
    playout.push("r", pieces[1])
    pull(playout, 0.6)
    assert playout.underruns == 1
    shifts = [call for call in mouth.calls if call[0] == "shift"]
    assert shifts[0][1] == pytest.approx(0.6)
    assert sum(call[2] for call in shifts) == pytest.approx(0.4)
    words = [e for e in playout.take_events() if isinstance(e, WordSpoken)]
    assert [e.spoken.split()[-1] for e in words] == ["one", "two", "three", "four"]
    assert words[2].position == pytest.approx(1.0, abs=0.021)
    assert words[3].position == pytest.approx(1.3, abs=0.021)


def test_after_running_dry_some_sound_is_gathered_first(playout: Playout) -> None:
    pieces = clause_pieces("r", 0, "one two three four", 40)
    for piece in pieces[:4]:
        playout.push("r", piece)
    playout.commit("r", 1)
    pull(playout, 0.2)
    playout.push("r", pieces[4])
    assert not playout.pull(FRAME).any()
    for piece in pieces[5:8]:
        playout.push("r", piece)
    assert playout.pull(FRAME)[300:].all()


def test_a_pause_between_clauses_is_no_underrun(playout: Playout, mouth: RecordingMouth) -> None:
    say(playout, "one")
    pull(playout, 1.0)
    for piece in clause_pieces("r", 1, "two"):
        playout.push("r", piece)
    pull(playout, 0.1)
    assert playout.underruns == 0
    assert [call[1] for call in mouth.calls if call[0] == "add"] == pytest.approx([0.0, 1.0])


def test_what_waits_is_bounded() -> None:
    playout = Playout(clock=ManualClock(), max_buffer_s=1.0)
    long = "a b c d e f"
    assert not all(playout.push("r", p) for p in clause_pieces("r", 0, long, 6))
    assert playout.waiting_s("r") <= 1.0


def test_the_oldest_of_too_many_held_replies_is_dropped(playout: Playout) -> None:
    for number in range(6):
        playout.push(str(number), clause_pieces(str(number), 0, "one")[0])
    assert [playout.waiting_s(str(n)) > 0 for n in range(6)] == [False] * 2 + [True] * 4


def test_words_without_times_are_estimated(playout: Playout) -> None:
    piece = clause_pieces("r", 0, "one two three four five")[0]
    piece.words = []
    playout.push("r", piece)
    playout.end("r")
    playout.commit("r", 1)
    pull(playout, 0.7)
    heard = [e.spoken for e in playout.take_events() if isinstance(e, WordSpoken)]
    assert heard[:2] == ["one", "one two"]
    pull(playout, 1.0)
    assert [e for e in playout.take_events() if isinstance(e, WordSpoken)][-1].spoken == (
        "one two three four five"
    )


def test_pushing_and_cutting_beside_the_audio_thread_is_safe() -> None:
    playout = Playout(RecordingMouth())
    stop = threading.Event()
    failures: list[BaseException] = []

    def audio() -> None:
        try:
            while not stop.is_set():
                assert len(playout.pull(FRAME)) == FRAME
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=audio)
    thread.start()
    try:
        for turn in range(1, 200):
            say(playout, "one two three", "four", key=str(turn), turn=turn, pieces=3)
            playout.take_events()
            playout.cut(turn)
    finally:
        stop.set()
        thread.join(10)
    assert not failures


def test_over_eight_hours_mouth_and_sound_stay_together() -> None:
    """Talk with underruns, cuts and pauses; the mouth's plan against the samples played."""
    random_ = random.Random(7)
    mouth = RecordingMouth()
    playout = Playout(mouth, clock=ManualClock())
    clause = [clause_pieces("r", number, "some words of this clause", 3) for number in range(4)]
    worst = 0.0
    clauses = turn = 0
    while playout.position < 8 * 3_600:
        turn += 1
        key = str(turn)
        playout.commit(key, turn)
        mouth.calls.clear()
        cut_after = random_.choice([None, None, random_.uniform(0.1, 4.0)])
        begun = playout.position
        for number in range(random_.randint(1, 4)):
            for piece in clause[number]:
                playout.push(key, piece)
                # Sometimes the next piece is late, by an odd number of samples.
                for _ in range(random_.choice([0, 0, 1, 3])):
                    playout.pull(random_.choice([960, 960, 4_801, 24_007]))
        playout.end(key)
        while playout._active is not None:
            playout.pull(random_.choice([960, 9_600, 48_000]))
            if cut_after and playout.position - begun > cut_after:
                playout.cut(turn)
        started = [e.position for e in playout.take_events() if isinstance(e, ClauseStarted)]
        offsets = [
            abs(plan - at) for plan, at in zip(_planned_starts(mouth), started, strict=False)
        ]
        clauses += len(offsets)
        worst = max([worst, *offsets])
        playout.pull(random_.randint(1, 48_000 * 20))
    assert clauses > 2_000
    assert playout.underruns > 500
    assert worst < 1e-6


def _planned_starts(mouth: RecordingMouth) -> list[float]:
    """When each clause's first sample sounds, from all that the mouth was told.

    Exact only if every underrun within the clauses before was told with its length.
    """
    starts: list[float] = []
    for call in mouth.calls:
        if call[0] == "add":
            starts.append(float(call[1]))  # type: ignore[arg-type]
        elif call[0] == "shift":
            after, by = float(call[1]), float(call[2])  # type: ignore[arg-type]
            starts = [start + by if start >= after - 1e-9 else start for start in starts]
    return starts


def test_the_sound_around_now_is_what_was_played_and_what_will_be(playout: Playout) -> None:
    pull(playout, 0.3)
    say(playout, "one two three", "four five", pieces=3)
    asked = {at: playout.sound(at, 9_000) for at in (12_000, 14_400, 20_001, 50_000, 100_000)}
    # Unheard-of times are silent, before the start as after the end.
    assert not playout.sound(-500, 400).any()
    assert not playout.sound(500_000, 400).any()
    played = np.concatenate([np.zeros(14_400, np.int16), pull(playout, 2.5)])
    for at, sound in asked.items():
        assert (sound == played[at : at + 9_000]).all()
        assert sound.any() or at == 100_000
    now = round(playout.position * RATE)
    assert (playout.sound(now - 24_000, 24_000) == played[now - 24_000 : now]).all()
    assert not playout.sound(now - 40_000, 10_000).any()


def test_the_sound_ahead_changes_with_what_happens(playout: Playout) -> None:
    for number, piece in enumerate(clause_pieces("r", 0, "one two three four", 3)):
        if number < 1:
            playout.push("r", piece)
    playout.commit("r", 1)
    pull(playout, 0.1)
    assert playout.sound(4_800, 4_800).all()
    now = round(playout.position * RATE)
    playout.cut(1)
    ahead = playout.sound(now, 4_800)
    assert ahead[:600].any()
    assert not ahead[1_000:].any()
    assert (ahead == pull(playout, 0.1)).all()


def test_the_sound_ahead_follows_a_pause_for_want_of_speech(playout: Playout) -> None:
    pieces = clause_pieces("r", 0, "one two three four", 4)
    playout.push("r", pieces[0])
    playout.commit("r", 1)
    pull(playout, 1.0)
    for piece in pieces[1:]:
        playout.push("r", piece)
    now = round(playout.position * RATE)
    ahead = playout.sound(now, 9_600)
    played = pull(playout, 0.2)
    assert ahead.any()
    # All but the short ramp, by which speech comes in again.
    assert (ahead[240:] == played[240:]).all()
