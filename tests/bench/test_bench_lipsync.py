"""The lip-sync benchmark: it finds good lips good, and late or open ones wanting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from avatar_server.avatar.face import load_renderer
from avatar_server.avatars import find_avatars
from avatar_server.bench import lipsync
from avatar_server.bench.lipsync import bench_lipsync, print_table
from avatar_server.bench.lipsync_picture import Picture, SeenMouth
from avatar_server.bench.lipsync_sentences import ENGLISH, JAPANESE
from avatar_server.bench.utterances import LANGUAGES, Spoken, Utterance
from avatar_server.cli import app
from avatar_server.inference.tts.phonemes import Phone
from avatar_server.inference.tts.timeline import TimedPhone
from avatar_server.inference.tts.visemes import viseme_of
from renderers import Pose, Renderer, Viseme, VisemeSpan

SOUNDS = "mabafapumavatomapefobimu"
EACH_S = 0.11


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    built = load_renderer(next(iter(find_avatars().values())), 1280, 720)
    yield built
    built.close()


def utterance(late_s: float = 0.0, lips: str = SOUNDS) -> Utterance:
    """`SOUNDS` heard, `lips` shown, `late_s` behind the sound."""
    phones, visemes, energy = [], [], []
    for number, (heard, shown) in enumerate(zip(SOUNDS, lips, strict=True)):
        start = 0.05 + number * EACH_S
        phones.append(TimedPhone(Phone(heard, 0), start, start + EACH_S))
        viseme = viseme_of(shown)
        assert viseme is not None
        visemes.append(VisemeSpan(viseme, start + late_s, start + late_s + EACH_S))
        energy += [0.15 if heard in "aeiou" else 0.01] * round(EACH_S * 100)
    loud = np.array([0.0] * 5 + energy + [0.0] * 10, np.float32)
    return Utterance("", len(loud) / 100, phones, visemes, loud, loud)


def spoken(*utterances: Utterance) -> dict[str, Spoken]:
    return {"en": Spoken("a voice", "made up", list(utterances))}


def test_lips_that_do_what_is_heard_have_all_sounds_and_lead(renderer: Renderer) -> None:
    figures = bench_lipsync(spoken(*[utterance()] * 3), renderer)
    assert figures["bilabial_closed"] == figures["labiodental_shown"] == figures["rounded"] == 1.0
    drawn = figures["drawn"]
    assert drawn["bilabial_closed"] == drawn["labiodental_shown"] == drawn["rounded"] == 1.0
    assert -90 <= figures["offset_ms"]["p50"] <= figures["offset_ms"]["p95"] <= -50
    assert 0.1 < figures["max_step"] < 0.5
    assert figures["n_bilabial"] == 3 * sum(SOUNDS.count(s) for s in "pbm")
    assert figures["languages"]["en"]["bilabial_closed"] == 1.0
    print_table(figures)


def test_late_lips_are_found_late_by_as_much(renderer: Renderer) -> None:
    in_time = bench_lipsync(spoken(utterance()), renderer)["offset_ms"]["p50"]
    late = bench_lipsync(spoken(utterance(late_s=0.1)), renderer)["offset_ms"]["p50"]
    assert late - in_time == pytest.approx(100, abs=15)


def test_lips_that_do_not_close_are_found_open_in_pose_and_picture(renderer: Renderer) -> None:
    lips = SOUNDS.translate(str.maketrans("pbmfv", "tttss"))
    figures = bench_lipsync(spoken(utterance(lips=lips)), renderer)
    assert figures["bilabial_closed"] == figures["labiodental_shown"] == 0.0
    # Before the first sound the mouth rests, and looks closed.
    assert figures["drawn"]["bilabial_closed"] <= 1 / SOUNDS.count("m")
    assert figures["drawn"]["labiodental_shown"] == 0.0


def test_a_language_without_a_sound_has_no_share_of_it(renderer: Renderer) -> None:
    said = utterance()
    without = said._replace(phones=[p for p in said.phones if p.phone.symbol not in "fv"])
    figures = bench_lipsync(spoken(without), renderer)
    assert figures["labiodental_shown"] is None
    assert figures["n_labiodental"] == 0
    print_table(figures)


def test_a_mouth_is_told_from_another_in_the_picture(renderer: Renderer) -> None:
    mouth = SeenMouth(renderer)
    for wanted in Picture:
        for viseme in (Viseme.PP, Viseme.FF, Viseme.SS, Viseme.AA, Viseme.OU):
            pose = Pose(smile=0.1, yaw=5.0)
            pose.visemes[viseme] = 1.0
            assert mouth.shows(wanted, pose) is (viseme in wanted.value), (wanted, viseme)


def test_there_are_50_sentences_of_each_language_rich_in_the_sounds_that_are_looked_for() -> None:
    assert len(set(ENGLISH)) >= 50
    assert len(set(JAPANESE)) >= 50
    assert sum(text.lower().count(s) for text in ENGLISH for s in "pbm") > 200


def test_the_command_writes_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = Spoken("a voice", "made up", [utterance()])
    monkeypatch.setitem(LANGUAGES, "en", lambda progress: said)
    file = tmp_path / "lips.json"
    arguments = ["bench", "lipsync", "--language", "en", "--json", str(file)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert figures["bilabial_closed"] == 1.0
    assert set(figures["offset_ms"]) == {"p50", "p95"}
    assert {"labiodental_shown", "rounded", "max_step", "languages"} <= set(figures)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--avatar", "nobody"], "no avatar 'nobody'. There are: "),
        (["--language", "fr"], "no sentences in 'fr', only in: en, ja"),
        (["--json", "/nowhere/at/all.json"], "there is no folder"),
    ],
)
def test_wrong_use_is_told(options: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["bench", "lipsync", *options])
    assert result.exit_code == 2
    assert said in result.output


def test_closed_means_closed() -> None:
    parted = Pose(jaw=0.1)
    parted.visemes[Viseme.PP] = 0.96
    assert not lipsync._closed(parted)
    shut = Pose()
    shut.visemes[Viseme.PP] = 0.96
    assert lipsync._closed(shut)
