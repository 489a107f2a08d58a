"""Films, strips and the gallery of avatars."""

from __future__ import annotations

import os
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from avatar_server.avatars import AvatarSpec, VoiceSpec, find_avatars
from avatar_server.bench.clip import StandIn
from avatar_server.cli import app
from avatar_server.config import VideoSettings
from avatar_server.inference.tts.phonemes import Phone
from avatar_server.inference.tts.timeline import TimedPhone
from avatar_server.inference.tts.whole import WholeClause
from avatar_server.preview import gallery
from avatar_server.preview.film import write_film
from avatar_server.preview.gallery import MAX_BYTES, draw_gallery
from avatar_server.preview.performance import performance
from avatar_server.preview.strip import draw_strip, moments_of, sounds
from avatar_server.preview.voice import Said, Speech
from avatar_server.protocol.messages import Word
from renderers import Attitude, Pose, Viseme, VisemeSpan
from renderers.motion import Animator

RATE = 48_000


def speech(start: float = 0.4) -> Speech:
    """ "Mama", 440 Hz while it sounds."""
    tone = (8_000 * np.sin(2 * np.pi * 440 * np.arange(round(0.8 * RATE)) / RATE)).astype(np.int16)
    spans = [
        VisemeSpan(Viseme.PP, 0.0, 0.1),
        VisemeSpan(Viseme.AA, 0.1, 0.4),
        VisemeSpan(Viseme.PP, 0.4, 0.5),
        VisemeSpan(Viseme.AA, 0.5, 0.7),
        VisemeSpan(Viseme.SIL, 0.7, 0.8),
    ]
    phones = [TimedPhone(Phone("m", 0), 0.0, 0.1)]
    clause = WholeClause(tone, [Word(text="Mama", start=0.0, end=0.7)], spans, phones)
    pcm = np.concatenate([np.zeros(round(start * RATE), np.int16), tone])
    return Speech("Mama.", "a voice", pcm, [Said(start, clause, "Mama.")])


def test_a_performance_is_that_of_a_session_with_the_same_seed() -> None:
    animator = Animator(seed=5)
    for at, pose in performance(None, seconds=2.0, fps=30, seed=5):
        animator.set_attitude(Attitude.IDLE, at)
        expected = animator.pose(at)
        assert (pose.yaw, pose.blink_left, pose.gaze_x) == (
            expected.yaw,
            expected.blink_left,
            expected.gaze_x,
        )


def test_a_performance_says_its_speech_and_rests_before_and_after() -> None:
    shown = [(m.at, m.pose.jaw) for m in performance(speech(), seconds=2.0, fps=30, seed=1)]
    assert max(jaw for at, jaw in shown if 0.4 <= at <= 1.1) > 0.3
    assert max(jaw for at, jaw in shown if at < 0.2 or at > 1.5) < 0.05


def test_a_film_has_a_frame_for_each_moment_and_the_sound_where_it_belongs(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    said = speech()
    moments = performance(said, seconds=1.5, fps=30, seed=1)
    write_film(path, StandIn(320, 180), moments, said.pcm, fps=30)
    with av.open(str(path)) as film:
        video, audio = film.streams.video[0], film.streams.audio[0]
        assert (video.codec_context.name, audio.codec_context.name) == ("h264", "aac")
        frames = [frame.pts * frame.time_base for frame in film.decode(video)]
    assert len(frames) == 45
    assert float(frames[-1]) == pytest.approx(44 / 30, abs=1e-3)
    with av.open(str(path)) as film:
        parts = list(film.decode(film.streams.audio[0]))
    sound = np.concatenate([part.to_ndarray()[0] for part in parts])
    loud = np.flatnonzero(np.abs(sound) > 0.1) / RATE + float(parts[0].pts * parts[0].time_base)
    assert loud[0] == pytest.approx(0.4, abs=0.03)
    assert loud[-1] == pytest.approx(1.2, abs=0.03)
    assert [p.name for p in tmp_path.iterdir()] == ["film.mp4"]


def test_a_film_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    class Broken(StandIn):
        def draw(self, pose: Pose, frame: object) -> None:  # type: ignore[override]
            raise ValueError("torn")

    moments = performance(None, seconds=1.0, fps=30, seed=1)
    with pytest.raises(ValueError, match="torn"):
        write_film(tmp_path / "film.mp4", Broken(320, 180), moments, None, fps=30)
    assert list(tmp_path.iterdir()) == []


def test_a_strip_shows_each_sound_with_its_word_when_it_is_seen() -> None:
    captions = sounds(speech())
    assert [(c.sound, c.word) for c in captions] == [
        ("PP", "Mama"),
        ("AA", "Mama"),
        ("PP", "Mama"),
        ("AA", "Mama"),
    ]
    assert captions[1].at == pytest.approx(0.4 + 0.25 - 0.07)
    assert len(sounds(speech(), most=2)) == 2
    moments = performance(speech(), seconds=2.0, fps=30, seed=1)
    strip = draw_strip(StandIn(320, 180), moments, captions)
    assert strip.shape == (240 + 44, 4 * 240, 3)
    idle = draw_strip(
        StandIn(320, 180), performance(None, seconds=1.0, fps=30, seed=1), moments_of(1.0, 7)
    )
    assert idle.shape == (2 * (240 + 44), 6 * 240, 3)


def test_the_gallery_has_small_pictures_of_every_avatar_and_a_page_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        gallery, "load_renderer", lambda spec, width, height: StandIn(width, height)
    )
    mia = AvatarSpec(name="mia", title="Mia", voice=VoiceSpec(name="v"), folder=tmp_path)
    noa = AvatarSpec(name="noa", title="Noa", voice=VoiceSpec(name="w"), folder=tmp_path)
    out = tmp_path / "docs" / "gallery"
    written = draw_gallery({"mia": mia, "noa": noa}, out, VideoSettings())
    pictures = [path for path in written if path.suffix == ".png"]
    page = (out / "README.md").read_text(encoding="utf-8")
    assert len(pictures) == 6
    for path in pictures:
        assert path.stat().st_size <= MAX_BYTES
        assert cv2.imread(str(path)) is not None
        assert f"({path.name})" in page
    assert "voice `v`" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nobody", "-o", "x.mp4"], "no avatar 'nobody'. There are: theo, vox"),
        (["theo", "-o", "x.avi"], "a film (.mp4) or a strip of stills (.png), not .avi"),
        (["theo", "-o", "x"], "not without an extension"),
        (["theo", "-o", "nowhere/x.mp4"], "there is no folder nowhere"),
        (["theo", "-o", "x.mp4", "--emotion", "hungry"], "no emotion 'hungry'. There are: neutral"),
        (["theo", "-o", "x.mp4", "--say", " "], "--say is empty"),
    ],
)
def test_wrong_use_is_told_before_anything_is_drawn(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["avatar", "preview", *arguments])
    assert result.exit_code == 2
    # The names of avatars that are shipped may grow.
    assert said.split(": theo")[0] in result.output.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


def test_a_gallery_of_an_avatar_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    arguments = ["avatar", "gallery", "nobody", "--out", str(tmp_path / "g")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "no avatar 'nobody'. There are: " in result.output
    assert not (tmp_path / "g").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_file_that_must_not_be_written_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.mp4"
    file.touch(mode=0o400)
    result = CliRunner().invoke(app, ["avatar", "preview", "theo", "-o", str(file)])
    assert result.exit_code == 2
    assert "no right" in result.output


def test_a_shipped_avatar_speaks_in_a_film(tmp_path: Path) -> None:
    name = next(iter(find_avatars()))
    path = tmp_path / "hi.mp4"
    arguments = ["avatar", "preview", name, "--say", "Hello!", "-o", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    with av.open(str(path)) as film:
        assert film.streams.video[0].codec_context.width == 1280
        sound = np.concatenate([f.to_ndarray()[0] for f in film.decode(film.streams.audio[0])])
    assert np.abs(sound).max() > 0.1
