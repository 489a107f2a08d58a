"""Recording with the real processes: what a talk leaves behind, and that a browser plays it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import av
import httpx
import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from avatar_server.config import TtsSettings
from avatar_server.inference.tts import build_synthesizer
from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.speech import Utterance, spoken
from avatar_server.loadtest.viewer import SyntheticViewer
from avatar_server.models import ModelStore
from avatar_server.protocol import events

RATE = 48_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def question(model_store: ModelStore) -> Utterance:
    synthesizer = build_synthesizer(model_store, TtsSettings(engine="piper"), 1)
    return spoken(synthesizer, ["What is your name, please?"], synthesizer.voices()[0])[0]


@pytest.fixture(scope="module")
def server(model_store: ModelStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("kept")
    settings = [f"recording.folder={folder}", "recording.keep_free_gb=0"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    with ServerProcess(["--sessions", "2", *arguments]) as running:
        running.folder = folder  # type: ignore[attr-defined]
        yield running


def launch(server: ServerProcess, **body: Any) -> dict[str, Any]:
    avatar = httpx.get(server.url + "/v1/avatars").json()[0]["name"]
    reply = httpx.post(
        server.url + "/v1/sessions", json={"avatar": avatar, **body}, timeout=40
    )  # fmt: skip
    assert reply.status_code == 201, reply.text
    return dict(reply.json())


def recordings(server: ServerProcess, session: str) -> list[dict[str, Any]]:
    return list(httpx.get(server.url + "/v1/recordings", params={"session": session}).json())


def written(server: ServerProcess, session: str) -> list[dict[str, Any]]:
    """The recordings of a session that has ended, once their process has."""
    deadline = time.monotonic() + 15
    while any(one["state"] == "recording" for one in recordings(server, session)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return recordings(server, session)


def cannot_be_deleted_yet(server: ServerProcess, session: str) -> None:
    (one,) = recordings(server, session)
    assert one["state"] == "recording"
    assert httpx.delete(f"{server.url}/v1/recordings/{one['id']}").status_code == 409


def kill(server: ServerProcess, session: str) -> None:
    os.kill(httpx.get(f"{server.url}/v1/sessions/{session}").json()["pid"], signal.SIGKILL)


def is_back(server: ServerProcess, session: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        one = httpx.get(f"{server.url}/v1/sessions/{session}").json()
        if one["state"] == "running" and one["restarts"]:
            return
        assert time.monotonic() < deadline, one
        time.sleep(0.1)


@pytest.fixture(scope="module")
def talk(server: ServerProcess, question: Utterance) -> dict[str, Any]:
    """A recorded talk: the greeting, a spoken question, its answer."""
    session = launch(server, record=True)
    assert session["recorded"]
    told: list[events.ServerEvent] = []

    async def speak() -> None:
        async with SyntheticViewer(server.url, session=session["id"]) as viewer:
            await viewer.wait_for(events.TurnDone, timeout_s=45)
            await asyncio.sleep(0.5)
            started, _ = viewer.microphone.say(question.pcm)
            await viewer.wait_for(events.TurnDone, since=started, timeout_s=40)
            await asyncio.sleep(0.5)
            await asyncio.to_thread(cannot_be_deleted_yet, server, session["id"])
            told.extend(event for _, event in viewer.events)

    asyncio.run(asyncio.wait_for(speak(), 120))
    assert httpx.delete(f"{server.url}/v1/sessions/{session['id']}").status_code == 204
    (one,) = written(server, session["id"])
    return {"told": told, "recording": one, "folder": server.folder / one["id"]}  # type: ignore[attr-defined]


def test_viewers_are_told_that_they_are_recorded(talk: dict[str, Any]) -> None:
    told = talk["told"]
    assert isinstance(told[0], events.Hello)
    assert told[0].recorded
    assert "recording" in [e.code for e in told if isinstance(e, events.Notice)]


def test_picture_and_sound_last_as_long_as_the_talk(talk: dict[str, Any]) -> None:
    one = talk["recording"]
    assert one["state"] == "complete"
    assert one["stopped_because"] == ""
    assert one["dropped"] == {}
    with av.open(str(talk["folder"] / "talk.mp4")) as movie:
        lengths = {s.type: float(s.duration * s.time_base) for s in movie.streams if s.duration}
        assert set(lengths) == {"video", "audio", "subtitle"}
        assert abs(lengths["video"] - lengths["audio"]) < 1.5
        assert one["duration_s"] == pytest.approx(lengths["video"], abs=0.1)
    with av.open(str(talk["folder"] / "talk.mp4")) as movie:
        times = [float(f.pts * f.time_base) for f in movie.decode(video=0)]
    assert len(times) > 10 * lengths["video"]
    assert max(b - a for a, b in pairwise(times)) < 2.0


def test_both_sides_are_heard_each_on_its_own_channel(
    talk: dict[str, Any], question: Utterance
) -> None:
    with av.open(str(talk["folder"] / "talk.mp4")) as movie:
        sound = np.concatenate([f.to_ndarray() for f in movie.decode(audio=0)], axis=1)
    avatar, viewer = np.abs(sound) > 0.02
    assert avatar.sum() > RATE * 0.5
    assert viewer.sum() > RATE * 0.2
    began, ended = (np.flatnonzero(viewer)[[0, -1]] / RATE).tolist()
    said_s = question.voiced_end - question.voiced_start
    assert ended - began == pytest.approx(said_s, abs=0.3)
    # The greeting was before, the answer after.
    assert avatar[: int(began * RATE)].any()
    assert avatar[int(ended * RATE) :].any()
    (turn,) = [one for one in log(talk) if one["kind"] == "speech"]
    assert turn["at_s"] == pytest.approx(ended, abs=0.3)
    answer = np.flatnonzero(avatar[int(ended * RATE) :])[0] / RATE
    # A remark may have covered the wait.
    first_ms = turn["acknowledged_ms"] or turn["voice_to_voice_ms"]
    assert answer == pytest.approx(first_ms / 1000, abs=0.35)


def log(talk: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (talk["folder"] / "turns.jsonl").open()]


def test_captions_and_turn_log_say_who_said_what(talk: dict[str, Any]) -> None:
    captions = (talk["folder"] / "captions.vtt").read_text()
    assert captions.startswith("WEBVTT\n\n")
    assert "<v Viewer>" in captions
    assert "name" in captions.lower()
    greeting, answer = log(talk)
    assert greeting["kind"] == "greeting"
    assert "name" in answer["viewer_text"].lower()
    assert answer["reply_text"]
    assert answer["who"]
    assert {"stt", "tts"} <= set(answer["stages_ms"])


def test_the_mouth_moves_when_the_voice_is_heard(talk: dict[str, Any]) -> None:
    """More of the picture changes in the seconds in which the avatar speaks."""
    with av.open(str(talk["folder"] / "talk.mp4")) as movie:
        sound = np.concatenate([f.to_ndarray() for f in movie.decode(audio=0)], axis=1)[0]
    with av.open(str(talk["folder"] / "talk.mp4")) as movie:
        before, changes = None, []
        for frame in movie.decode(video=0):
            luma = frame.to_ndarray()[: frame.height : 2, ::2].astype(np.int16)
            if before is not None:
                changes.append((float(frame.pts * frame.time_base), np.abs(luma - before).mean()))
            before = luma
    loud = np.array(
        [np.abs(sound[int(t * RATE) : int(t * RATE) + 3_200]).max() for t, _ in changes]
    )
    moved = np.array([change for _, change in changes])
    assert moved[loud > 0.05].mean() > 1.3 * moved[loud < 0.005].mean()


@pytest.mark.skipif(
    CHROMIUM is None and os.environ.get("CI") != "true", reason="no chromium on this machine"
)
def test_a_browser_plays_it_and_can_jump_about_in_it(
    server: ServerProcess, talk: dict[str, Any]
) -> None:
    one = talk["recording"]
    page_html = f"""<!doctype html><video id=v muted playsinline src="{one["video"]}">
      <track default kind=captions src="{one["captions"]}"></video>"""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        try:
            page = browser.new_page()
            # A page of the server's own origin, as an operator's tool would have.
            page.route("**/player", lambda route: route.fulfill(
                body=page_html, content_type="text/html"))  # fmt: skip
            page.goto(server.url + "/player")
            played = page.evaluate(PLAY)
        finally:
            browser.close()
    assert played["error"] is None
    with av.open(str(talk["folder"] / "talk.mp4")) as movie:
        assert played["duration"] == pytest.approx(movie.duration / 1e6, abs=0.1)
    assert (played["width"], played["height"]) == (1280, 720)
    assert played["advanced"] > 1.0
    assert played["frames"] > 10
    assert played["audioBytes"] > 0
    assert played["jumped"] == pytest.approx(played["duration"] * 0.7, abs=0.2)
    assert played["framesAfter"] > played["frames"]
    assert played["cues"] > 1


PLAY = """async () => {
  const v = document.getElementById("v");
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const until = async (check) => {
    for (let i = 0; i < 200 && !check(); i += 1) await wait(50);
  };
  await until(() => v.readyState >= 2 || v.error);
  if (v.error) return { error: v.error.message };
  await v.play();
  const begin = v.currentTime;
  await until(() => v.currentTime > begin + 1.2);
  const frames = v.getVideoPlaybackQuality().totalVideoFrames;
  const advanced = v.currentTime - begin;
  v.currentTime = v.duration * 0.7;
  await until(() => !v.seeking);
  const jumped = v.currentTime;
  await until(() => v.getVideoPlaybackQuality().totalVideoFrames > frames + 5);
  return {
    error: v.error?.message ?? null, duration: v.duration, width: v.videoWidth,
    height: v.videoHeight, advanced, frames, jumped,
    framesAfter: v.getVideoPlaybackQuality().totalVideoFrames,
    audioBytes: v.webkitAudioDecodedByteCount, cues: v.textTracks[0].cues?.length ?? 0,
  };
}"""


def test_a_killed_avatar_leaves_a_recording_that_plays_and_goes_on_in_another(
    server: ServerProcess,
) -> None:
    session = launch(server, record=True)["id"]

    async def scene() -> None:
        async with SyntheticViewer(server.url, session=session):
            await asyncio.sleep(4)
            await asyncio.to_thread(kill, server, session)
        await asyncio.to_thread(is_back, server, session)
        async with SyntheticViewer(server.url, session=session):
            await asyncio.sleep(2)

    asyncio.run(asyncio.wait_for(scene(), 60))
    httpx.delete(f"{server.url}/v1/sessions/{session}")
    first, second = written(server, session)
    assert first["state"] == "cut-off"
    assert second["state"] == "complete"
    for one, least_s in ((first, 1.5), (second, 1.0)):
        body = httpx.get(server.url + one["video"]).content
        path = server.folder / f"{one['id']}.mp4"  # type: ignore[attr-defined]
        path.write_bytes(body)
        with av.open(str(path)) as movie:
            times = [float(f.pts * f.time_base) for f in movie.decode(video=0)]
        assert times[-1] > least_s
    assert httpx.delete(f"{server.url}/v1/recordings/{first['id']}").status_code == 204
    assert [one["id"] for one in recordings(server, session)] == [second["id"]]


def test_a_session_that_is_not_recorded_leaves_nothing(server: ServerProcess) -> None:
    session = launch(server)
    assert not session["recorded"]

    async def scene() -> None:
        async with SyntheticViewer(server.url, session=session["id"]) as viewer:
            hello = await viewer.wait_for(events.Hello)
            assert not hello.recorded

    asyncio.run(asyncio.wait_for(scene(), 40))
    httpx.delete(f"{server.url}/v1/sessions/{session['id']}")
    assert recordings(server, session["id"]) == []
