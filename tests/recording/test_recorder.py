"""What is in the files that the recorder writes, also where something goes wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest

from avatar_server.protocol import events
from avatar_server.protocol.messages import StageSpan, TurnTrace
from avatar_server.recording import files
from avatar_server.recording.recorder import MOST_WAITING, Recorder
from tests.recording.talk import (
    FPS,
    RATE,
    SUBJECT,
    Film,
    Told,
    beep,
    channels,
    feed,
    luma,
    only,
    recorder,
    video,
)


def talk(number: int, to: Recorder) -> None:
    """A viewer who beeps half a second after the avatar, and an answer at second 2."""
    at = number / FPS
    if number % 3 == 0:
        for piece in range(5):
            begin = round(at * 16_000) + piece * 320
            t = np.arange(begin, begin + 320)
            tone = np.sin(2 * np.pi * 300 * t / 16_000) * 9_000
            heard = (tone * ((t + 8_000) % 16_000 < 1_600)).astype(np.int16)
            to.viewer_sound("v1", (begin + 320) / 16_000, heard)
    if number == 30:
        to.said(at, events.Heard(turn=1, text="What is your name?", final=True))
    if number == 90:
        to.said(at, events.Caption(turn=1, clause=0, text="I am Theo.", spoken="I"))
    if number == 120:
        to.said(at, events.TurnDone(turn=1, voice_to_voice_ms=900.0, stages_ms={}))
        spans = [StageSpan(stage="stt", start=0.1, end=0.3)]
        to.turn(
            1.0,
            TurnTrace(
                session="abc123", turn=1, kind="speech", viewer="v1", voice_to_voice_ms=900.0,
                stages=spans, viewer_text="What is your name?", reply_text="I am Theo.",
            ),
        )  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings") / "all"
    writing = recorder(folder)
    writing.viewer("v1", True)
    film = Film(first=440)
    film.next()
    feed(writing, film, 0.3)  # without the keyframe that they refer to: left out
    feed(writing, film, 6.0, each=lambda number, to: talk(number - 450, _Moved(to)))
    writing.close(5.0)
    film.close()
    return only(folder)


class _Moved:
    """The talk's own times are those of the film's 15th second on."""

    def __init__(self, to: Recorder) -> None:
        self._to = to

    def viewer_sound(self, viewer: str, at: float, pcm: np.ndarray) -> None:  # type: ignore[type-arg]
        self._to.viewer_sound(viewer, at + 15, pcm)

    def said(self, at: float, event: events.Event) -> None:
        self._to.said(at + 15, event)

    def turn(self, at: float, trace: TurnTrace) -> None:
        self._to.turn(at + 15, trace)


def test_the_movie_has_the_pictures_the_sound_and_the_captions(recorded: Path) -> None:
    with av.open(str(recorded / files.MOVIE)) as movie:
        kinds = [(s.type, s.codec_context.name) for s in movie.streams]
        assert kinds == [("video", "h264"), ("audio", "aac"), ("subtitle", "mov_text")]
        assert movie.duration == pytest.approx(6_000_000, abs=50_000)
    assert len(luma(recorded / files.MOVIE)) == 180
    with av.open(str(recorded / files.MOVIE)) as movie:
        lines = [
            subtitle.ass.decode().rsplit(",,", 1)[-1]
            for packet in movie.demux(subtitles=0)
            for subtitle in packet.decode()
        ]
    assert lines == ["Viewer: What is your name?", "Theo: I am Theo."]


def test_a_beep_is_heard_within_a_frame_of_its_flash_throughout(recorded: Path) -> None:
    pictures = luma(recorded / files.MOVIE)
    flashes = [
        at for (_, before), (at, now) in pairwise(pictures)
        if now > 150 > before
    ]  # fmt: skip
    left = np.abs(channels(recorded / files.MOVIE)[0])
    beeps = onsets(left)[1:]  # the first one began with the file
    assert len(flashes) == len(beeps) == 5
    for flash, sound in zip(flashes, beeps, strict=True):
        assert abs(flash - sound) < 1 / FPS / 2


def test_the_viewer_is_on_the_other_side_and_in_time(recorded: Path) -> None:
    right = onsets(np.abs(channels(recorded / files.MOVIE)[1]))
    assert len(right) == 6
    assert [at % 1.0 for at in right] == pytest.approx([0.5] * 6, abs=0.02)


def onsets(sound: np.ndarray) -> list[float]:  # type: ignore[type-arg]
    """Where sound begins after at least 0.2 s of quiet, in seconds."""
    loud = np.flatnonzero(sound > 0.05)
    first = np.concatenate([[0], np.flatnonzero(np.diff(loud) > RATE // 5) + 1])
    return [float(at) for at in loud[first] / RATE]


def test_captions_lie_beside_it_for_browsers(recorded: Path) -> None:
    assert (recorded / files.CAPTIONS).read_text() == (
        "WEBVTT\n\n"
        "00:00:01.000 --> 00:00:03.000\n<v Viewer>What is your name?\n\n"
        "00:00:03.000 --> 00:00:04.000\n<v Theo>I am Theo.\n\n"
    )


def test_the_turn_log_has_who_when_what_and_the_stages(recorded: Path) -> None:
    (line,) = (recorded / files.TURNS).read_text().splitlines()
    turn = json.loads(line)
    assert turn["who"] == "v1"
    assert turn["at_s"] == 1.0
    assert turn["time"] == "2023-11-14T22:13:36Z"
    assert (turn["viewer_text"], turn["reply_text"]) == ("What is your name?", "I am Theo.")
    assert turn["stages_ms"] == {"stt": [100.0, 300.0]}


def test_nobody_else_may_read_it_and_what_it_is_stands_beside_it(recorded: Path) -> None:
    for folder in (recorded, recorded.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in recorded.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(file.name for file in recorded.iterdir()) == sorted(files.FILES)
    about = files.read_about(recorded)
    assert about is not None
    assert (about.session, about.avatar, about.viewers) == ("abc123", "theo", 1)
    assert about.ended is not None
    assert about.duration_s == pytest.approx(6.0, abs=0.05)
    assert (about.width, about.height, about.dropped) == (320, 180, {})
    assert files.is_name(recorded.name)
    assert recorded.name.startswith("20231114T221335Z-abc123-")


def test_what_viewers_say_is_left_out_where_it_may_not_be_kept(tmp_path: Path) -> None:
    subject = dataclasses.replace(SUBJECT, viewer_sound=False, viewer_text=False)
    writing = recorder(tmp_path, subject=subject)
    feed(writing, Film(), 6.0, each=talk)
    writing.close(5.0)
    folder = only(tmp_path)
    left, right = np.abs(channels(folder / files.MOVIE))
    assert left.max() > 0.1
    assert right.max() < 0.001
    for name in (files.CAPTIONS, files.TURNS):
        text = (folder / name).read_text()
        assert "Theo" in text
        assert "your name" not in text


def test_a_killed_process_leaves_a_file_that_plays(tmp_path: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from tests.recording.talk import Film, feed, recorder
        writing = recorder(Path(sys.argv[1]))
        feed(writing, Film(), 8.0)
        while writing._items: time.sleep(0.05)
        time.sleep(0.5)
        print("written", flush=True)
        time.sleep(60)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"written\n"
    folder = only(tmp_path)
    assert files.is_claimed(folder)
    os.kill(child.pid, signal.SIGKILL)
    child.wait(10)
    assert not files.is_claimed(folder)
    pictures = luma(folder / files.MOVIE)
    assert len(pictures) > (8.0 - 2.5) * FPS
    assert [round(at * FPS) for at, _ in pictures] == list(range(len(pictures)))
    assert channels(folder / files.MOVIE).shape[1] > (8.0 - 2.5) * RATE
    about = files.read_about(folder)
    assert about is not None
    assert about.ended is None


def test_another_size_begins_another_file_and_the_talk_goes_on_in_it(tmp_path: Path) -> None:
    writing = recorder(tmp_path)
    small, large = Film(), Film(video(640, 360), first=30)
    feed(writing, small, 1.0)
    feed_first(writing, large)
    feed(writing, large, 1.0)
    writing.close(5.0)
    sizes = []
    for folder in sorted(tmp_path.iterdir()):
        with av.open(str(folder / files.MOVIE)) as movie:
            stream = movie.streams.video[0]
            sizes.append((stream.width, stream.height))
    assert sizes == [(320, 180), (640, 360)]


def feed_first(to: Recorder, film: Film) -> None:
    to.picture(film.next(keyframe=True))


def test_a_long_talk_goes_on_in_further_files_each_from_a_keyframe(tmp_path: Path) -> None:
    told = Told()
    writing = recorder(tmp_path, told, part_minutes=0.05)
    film = Film()
    feed(writing, film, 4.0)
    while not told.keyframes:
        time.sleep(0.02)
    feed_first(writing, film)
    feed(writing, film, 2.0)
    writing.close(5.0)
    folders = sorted(tmp_path.iterdir())
    assert [len(luma(folder / files.MOVIE)) for folder in folders] == [120, 61]


def test_a_missing_picture_holds_the_last_one_until_a_keyframe_that_is_asked_for(
    tmp_path: Path,
) -> None:
    told = Told()
    writing = recorder(tmp_path, told)
    film = Film()
    feed(writing, film, 1.0)
    film.next()  # lost
    feed(writing, film, 1.0)
    feed_first(writing, film)
    feed(writing, film, 1.0)
    writing.close(5.0)
    assert told.keyframes == 1
    numbers = [round(at * FPS) for at, _ in luma(only(tmp_path) / files.MOVIE)]
    assert numbers == [*range(30), *range(61, 92)]


def test_what_cannot_be_written_in_time_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("avatar_server.recording.recorder._WRITE_EVERY_S", 60.0)
    writing = recorder(tmp_path)
    for number in range(MOST_WAITING + 50):
        writing.avatar_sound(number * 960, beep(number * 960, 960))
    assert writing.stats().dropped == {"sound": 50}
    assert len(writing._items) == MOST_WAITING
    writing.close(5.0)


def test_a_full_disk_ends_the_recording_with_a_reason_and_leaves_what_there_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    writing = recorder(tmp_path, told, keep_free_gb=1.0)
    film = Film()
    feed(writing, film, 3.0)
    while writing._items:
        time.sleep(0.02)

    class Usage:
        free = 200_000_000

    monkeypatch.setattr("avatar_server.recording.recorder.shutil.disk_usage", lambda _: Usage)
    writing._look_at = 0.0
    feed(writing, film, 0.5)
    assert told.failed.wait(10)
    assert "recording.keep_free_gb" in told.failures[0]
    feed(writing, film, 0.5)  # taken by nobody, and no error
    writing.close(5.0)
    about = files.read_about(only(tmp_path))
    assert about is not None
    assert "0.2 GB left" in about.stopped_because
    assert len(luma(only(tmp_path) / files.MOVIE)) > 80


def test_an_error_of_the_disk_is_told_in_words(tmp_path: Path) -> None:
    told = Told()
    writing = recorder(tmp_path, told)
    film = Film()
    feed(writing, film, 1.0)
    while writing._items or writing._part is None:
        time.sleep(0.02)
    full = os.open("/dev/full", os.O_RDWR)
    for file in writing._part._open:
        os.dup2(full, file.fileno())
    os.close(full)
    feed(writing, film, 2.5)
    assert told.failed.wait(10)
    assert told.failures == ["it cannot be written: No space left on device"]
    writing.close(5.0)


def test_a_folder_that_cannot_be_made_is_told_and_a_later_talk_tries_again(tmp_path: Path) -> None:
    told = Told()
    (tmp_path / "file").write_text("in the way")
    writing = recorder(tmp_path / "file" / "recordings", told)
    film = Film()
    feed(writing, film, 0.2)
    assert told.failed.wait(10)
    assert "Not a directory" in told.failures[0]
    (tmp_path / "file").unlink()
    writing.restart()
    feed_first(writing, film)
    feed(writing, film, 0.5)
    writing.close(5.0)
    assert len(luma(only(tmp_path / "file" / "recordings") / files.MOVIE)) == 16
