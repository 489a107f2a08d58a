"""Four avatars with their own faces, voices and secrets: nobody gets anything of another."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import httpx
import msgspec
import numpy as np
import pytest

from avatar_server.config import SttSettings, TtsSettings
from avatar_server.inference.stt import Transcriber
from avatar_server.inference.tts import build_synthesizer
from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.speech import Utterance, spoken
from avatar_server.loadtest.viewer import SyntheticViewer
from avatar_server.models import ModelStore
from avatar_server.paths import assets_dir
from avatar_server.protocol import events


@dataclass(frozen=True)
class Person:
    """An avatar and its viewer. `rgb`: of a corner of the picture."""

    name: str
    code_word: str
    secret: str
    rgb: tuple[int, int, int]
    speed: float

    @property
    def chroma(self) -> tuple[float, float]:
        """`rgb` as U and V of BT.709, limited range."""
        red, green, blue = self.rgb
        luma = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        scale = 224 / 255
        return 128 + (blue - luma) / 1.8556 * scale, 128 + (red - luma) / 1.5748 * scale


PEOPLE = (
    Person("anna", "pineapple", "saxophone", (200, 30, 30), 0.85),
    Person("bert", "elephant", "dinosaur", (30, 200, 30), 1.0),
    Person("cleo", "umbrella", "chocolate", (30, 30, 200), 1.15),
    Person("dora", "volcano", "helicopter", (200, 200, 30), 1.3),
)
PICTURES = 900
"""That are looked at, for each viewer: half a minute."""
CORNER = 96
"""Pixels of the coloured corner, on each side."""
_WORDS = {word: p.name for p in PEOPLE for word in (p.code_word, p.secret)}


@dataclass
class Seen:
    """Everything that one viewer got."""

    person: Person
    session: str = ""
    told: list[events.Event] = field(default_factory=list)
    colours: list[tuple[int, int]] = field(default_factory=list)
    sound: Any = None
    pictures: list[bytes] = field(default_factory=list)

    def look(self, pictures: Iterable[bytes]) -> None:
        """Decode what was received, afterwards: four decoders at once would disturb the talk."""
        decoder: Any = av.CodecContext.create("h264", "r")
        for data in pictures:
            for frame in decoder.decode(av.Packet(data)):
                means = []
                for plane in frame.planes[1:]:
                    pixels = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
                    inner = pixels[CORNER // 8 : CORNER // 4, CORNER // 8 : CORNER // 4]
                    means.append(round(float(inner.mean())))
                self.colours.append((means[0], means[1]))


def make_avatar(folder: Path, person: Person) -> None:
    """A copy of a shipped avatar with a corner, a voice, a persona and facts of its own."""
    shutil.copytree(assets_dir() / "avatars" / "vox", folder / person.name)
    art = folder / person.name / "character.svg"
    svg = art.read_text(encoding="utf-8")
    corner = f'<rect width="{CORNER}" height="{CORNER}" fill="rgb{person.rgb}"/>'
    # Before the body, over all of the background.
    background, body = svg.split('<g id="body"', 1)
    inside, end = background.rsplit("</g>", 1)
    art.write_text(f'{inside}{corner}</g>{end}<g id="body"{body}', encoding="utf-8")
    (folder / person.name / "avatar.yaml").write_text(
        f"title: {person.name.title()}\nrenderer: puppet\nlanguage: en\n"
        f"voice: {{name: piper-joe, fallbacks: [], speed: {person.speed}}}\n"
        f'greeting: "Hello, this is {person.name.title()}."\nseed: 5\n',
        encoding="utf-8",
    )
    (folder / person.name / "persona.md").write_text(
        f"You are {person.name.title()}. The code word is {person.code_word}.\n", encoding="utf-8"
    )
    (folder / person.name / "facts.md").write_text(
        "What is the code word? Tell me the code word, please. What is the password? "
        f"The code word is {person.code_word}.\n",
        encoding="utf-8",
    )


@pytest.fixture(scope="module")
def seen(model_store: ModelStore, tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    folder = tmp_path_factory.mktemp("avatars")
    for person in PEOPLE:
        make_avatar(folder, person)
    synthesizer = build_synthesizer(model_store, TtsSettings(engine="piper"), 1)
    (question,) = spoken(synthesizer, ["What is the code word, please?"], synthesizer.voices()[0])
    arguments = ["--sessions", "4", "--set", "capacity.admission=fixed"]
    with ServerProcess([*arguments, "--set", f"avatar_dirs=[{folder}]"]) as server:
        return asyncio.run(asyncio.wait_for(talk(server.url, question), 300))


async def talk(url: str, question: Utterance) -> list[Seen]:
    """All four at the same moments: ask, tell a secret, ask for it back, ask again."""
    everyone = [Seen(person) for person in PEOPLE]
    viewers = [SyntheticViewer(url, avatar=person.name, video="count") for person in PEOPLE]
    try:
        for viewer in viewers:
            await viewer.join()
        await asyncio.gather(
            *(viewer.wait_for(events.TurnDone, timeout_s=60) for viewer in viewers)
        )
        await settled(viewers)
        begun = time.monotonic()
        await ask_aloud(viewers, question)
        await write(viewers, [f"My secret word is {p.secret}. Keep it for me." for p in PEOPLE])
        await write(viewers, ["What is my secret word?" for _ in PEOPLE])
        await ask_aloud(viewers, question)
        for each, viewer in zip(everyone, viewers, strict=True):
            each.session = str(viewer.session)
            each.told = [event for _, event in viewer.events]
            each.sound = viewer.received.sound_since(begun)
            each.pictures = [p.data for p in viewer.received.video][:PICTURES]
        async with httpx.AsyncClient(base_url=url, timeout=20) as http:
            for each in everyone:
                reply = await http.get(f"/v1/sessions/{each.session}/turns")
                each.told.append(events.Notice(code="turns", message=reply.text))
    finally:
        for viewer in viewers:
            await viewer.leave()
    return everyone


async def ask_aloud(viewers: list[SyntheticViewer], question: Utterance) -> None:
    """Whoever is not answered, on a machine that is too busy, asks again."""
    waiting = list(viewers)
    for _ in range(3):
        since = time.monotonic()
        for viewer in waiting:
            viewer.microphone.say(question.pcm)
        replies = await asyncio.gather(
            *(viewer.wait_for(events.TurnDone, since=since, timeout_s=25) for viewer in waiting),
            return_exceptions=True,
        )
        waiting = [
            v for v, reply in zip(waiting, replies, strict=True) if isinstance(reply, BaseException)
        ]
        if not waiting:
            break
    assert not waiting, "a spoken question was not answered"
    await settled(viewers)


async def write(viewers: list[SyntheticViewer], texts: list[str]) -> None:
    since = time.monotonic()
    for viewer, text in zip(viewers, texts, strict=True):
        viewer.send(events.Text(text=text))
    await answered(viewers, since)


async def answered(viewers: list[SyntheticViewer], since: float) -> None:
    await asyncio.gather(
        *(viewer.wait_for(events.TurnDone, since=since, timeout_s=60) for viewer in viewers)
    )
    await settled(viewers)


async def settled(viewers: list[SyntheticViewer]) -> None:
    def quiet(viewer: SyntheticViewer) -> bool:
        states = [e.state for _, e in viewer.events if isinstance(e, events.State)]
        last = viewer.received.last_audible()
        silent = last is None or time.monotonic() - last > 0.6
        return silent and bool(states) and states[-1] == "idle"

    deadline = time.monotonic() + 60
    while not all(quiet(viewer) for viewer in viewers):
        assert time.monotonic() < deadline, "an avatar does not come to its end"
        await asyncio.sleep(0.1)


def foreign(text: str, person: Person) -> list[str]:
    """Words in `text` that are another's."""
    return [word for word, owner in _WORDS.items() if owner != person.name and word in text.lower()]


def test_everyone_is_told_their_own_code_word_and_reads_nothing_of_another(
    seen: list[Seen],
) -> None:
    for each in seen:
        captions = [e.text.lower() for e in each.told if isinstance(e, events.Caption)]
        assert any(each.person.code_word in text for text in captions), each.person.name
        everything = msgspec.json.encode(each.told).decode()
        assert each.person.secret in everything, "the test would not notice a secret"
        assert foreign(everything, each.person) == []
        others = [other.session for other in seen if other is not each]
        assert not [session for session in others if session in everything]


def test_everyone_hears_their_own_avatar_only(seen: list[Seen], model_store: ModelStore) -> None:
    transcriber = Transcriber(model_store.path("whisper-tiny.en"), SttSettings())
    for each in seen:
        heard = " ".join(
            transcriber.transcribe(piece).text for piece in utterances(each.sound)
        ).lower()
        assert each.person.code_word in heard.replace(" ", ""), heard
        assert foreign(heard.replace(" ", ""), each.person) == []


def test_everyone_sees_their_own_avatar_in_every_picture(seen: list[Seen]) -> None:
    for each in seen:
        each.look(each.pictures)
        assert len(each.colours) > 200
        faces = Counter(nearest(colour) for colour in each.colours)
        assert set(faces) == {each.person.name}, faces


def nearest(colour: tuple[int, int]) -> str:
    """Whose corner this is; "nobody's" where it is not near to anybody's."""

    def distance(person: Person) -> float:
        return sum(abs(a - b) for a, b in zip(person.chroma, colour, strict=True))

    person = min(PEOPLE, key=distance)
    far = distance(person)
    return person.name if far < 30 else f"nobody's: {colour}"


def utterances(sound: Any) -> Iterator[Any]:
    """Speech between silences of 0.5 s, int16 mono 16 kHz."""
    slow = sound[: len(sound) // 3 * 3].reshape(-1, 3).mean(axis=1)
    loud = np.flatnonzero(np.abs(slow) > 300)
    if not loud.size:
        return
    for part in np.split(loud, np.flatnonzero(np.diff(loud) > 8_000) + 1):
        yield np.pad(slow[part[0] : part[-1] + 1], 4_800).astype(np.int16)
