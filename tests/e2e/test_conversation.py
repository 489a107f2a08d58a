"""A real server, a real WebRTC client, real models: what a viewer gets."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from avatar_server.avatar.face import load_renderer
from avatar_server.avatars import find_avatars
from avatar_server.config import TtsSettings
from avatar_server.inference.tts import build_synthesizer
from avatar_server.loadtest.received import AUDIBLE
from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.speech import Utterance, spoken
from avatar_server.loadtest.viewer import SyntheticViewer, ViewerError
from avatar_server.models import ModelStore
from avatar_server.protocol import events

Say = Callable[[str], Utterance]


@pytest.fixture(scope="module")
def say(model_store: ModelStore) -> Say:
    """Speech of a test's own, in the bundled voice."""
    synthesizer = build_synthesizer(model_store, TtsSettings(engine="piper"), 1)
    voice = synthesizer.voices()[0]
    made: dict[str, Utterance] = {}

    def line(text: str) -> Utterance:
        if text not in made:
            made[text] = spoken(synthesizer, [text], voice)[0]
        return made[text]

    return line


@pytest.fixture(scope="module")
def server(model_store: ModelStore) -> Iterator[ServerProcess]:
    with ServerProcess(["--sessions", "4", "--set", "sessions.idle_timeout_s=3"]) as running:
        yield running


@pytest.fixture(scope="module")
def avatar(server: ServerProcess) -> str:
    return str(ask(server, "/v1/avatars")[0]["name"])


def ask(server: ServerProcess, path: str) -> Any:
    return httpx.get(server.url + path, timeout=10).json()


def run(test: Coroutine[Any, Any, None], timeout_s: float = 90.0) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(test, timeout_s)

    asyncio.run(bounded())


async def until(
    condition: Callable[[], Any], timeout_s: float, what: str, every_s: float = 0.02
) -> float:
    """Wait for a condition; returns the seconds that it took."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            pytest.fail(f"{what}: not within {timeout_s} s")
        await asyncio.sleep(every_s)
    return time.monotonic() - started


def state(viewer: SyntheticViewer) -> str:
    states = [e.state for _, e in viewer.events if isinstance(e, events.State)]
    return states[-1] if states else ""


def seen(viewer: SyntheticViewer, kind: type[events.Event], since: float = 0.0) -> list[Any]:
    return [e for when, e in viewer.events if isinstance(e, kind) and when >= since]


async def settled(viewer: SyntheticViewer, timeout_s: float = 45.0) -> None:
    """The greeting, or the last reply, is over."""

    def quiet() -> bool:
        last = viewer.received.last_audible()
        return state(viewer) == "idle" and (last is None or time.monotonic() - last > 0.6)

    # The greeting is the first turn.
    await viewer.wait_for(events.TurnDone, timeout_s=timeout_s)
    await until(quiet, timeout_s, "the avatar finishes speaking")


def test_a_spoken_question_is_heard_and_answered_with_voice_and_moving_lips(
    server: ServerProcess, avatar: str, say: Say
) -> None:
    line = say("What is your name, please?")

    async def talk() -> None:
        async with SyntheticViewer(server.url, avatar=avatar) as viewer:
            await settled(viewer)
            started, _ = viewer.microphone.say(line.pcm)
            heard = await viewer.wait_for(
                events.Heard, since=started, where=lambda e: e.final, timeout_s=20
            )
            assert "name" in heard.text.lower()
            done = await viewer.wait_for(events.TurnDone, since=started, timeout_s=30)
            await settled(viewer)
            sound = viewer.received.sound_since(started + line.voiced_end)
            voiced = np.abs(sound.astype(np.int32)) >= AUDIBLE
            assert voiced.sum() > 0.3 * 48_000
            assert done.voice_to_voice_ms is not None
            assert 100 < done.voice_to_voice_ms < 10_000
            assert {"endpoint", "stt", "tts"} <= set(done.stages_ms)
            captions = seen(viewer, events.Caption, started)
            assert captions
            assert captions[-1].spoken == captions[-1].text
            turns = ask(server, f"/v1/sessions/{viewer.session}/turns")["turns"]
            assert any("name" in turn["viewer_text"].lower() for turn in turns)

    run(talk())


def test_a_viewer_whose_network_changes_hears_the_rest_of_the_answer(
    server: ServerProcess, avatar: str
) -> None:
    async def talk() -> None:
        async with SyntheticViewer(server.url, avatar=avatar) as viewer:
            await settled(viewer)
            asked = time.monotonic()
            viewer.send(events.Text(text="Tell me something about yourself."))
            await viewer.wait_for(
                events.State, since=asked, where=lambda e: e.state == "speaking", timeout_s=30
            )
            await viewer.cut()
            await asyncio.sleep(0.5)
            again = time.monotonic()
            await viewer.join()
            assert time.monotonic() - again < 5
            first = await viewer.wait_for(events.State, since=again)
            assert first.state == "speaking"
            await viewer.wait_for(events.TurnDone, since=again, timeout_s=30)
            assert len(viewer.received.sound_since(again)) > 0.3 * 48_000
            assert np.abs(viewer.received.sound_since(again).astype(np.int32)).max() > AUDIBLE
            view = ask(server, f"/v1/sessions/{viewer.session}")
            assert (view["viewer_count"], view["restarts"]) == (1, 0)
            turn = ask(server, f"/v1/sessions/{viewer.session}/turns")["turns"][-1]
            assert turn["outcome"] == "answered"

    run(talk())


def test_frames_are_720p_at_30_a_second(server: ServerProcess, avatar: str) -> None:
    sizes: set[tuple[int, int]] = set()

    async def watch() -> None:
        viewer = SyntheticViewer(
            server.url,
            avatar=avatar,
            speak=False,
            video="decode",
            on_picture=lambda frame: sizes.add((frame.width, frame.height)),
        )
        async with viewer:
            await until(lambda: viewer.received.video, 5, "a first picture")
            since = time.monotonic()
            await asyncio.sleep(4)
            assert viewer.received.frame_rate(since) == pytest.approx(30, rel=0.02)

    run(watch())
    assert sizes == {(1280, 720)}


def test_the_lips_move_with_the_voice(server: ServerProcess) -> None:
    """In what a viewer receives: what the mouth shows against the energy of the sound."""
    box = load_renderer(find_avatars()["theo"], 1280, 720).mouth_box  # type: ignore[attr-defined]
    contrast: dict[int, float] = {}

    def look(frame: Any) -> None:
        plane = frame.planes[0]
        luma = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
        mouth = luma[box.y : box.y + box.height, box.x : box.x + box.width]
        # Teeth are brighter than lips and skin, the inside of a mouth darker: both show it open.
        contrast[int(frame.pts)] = float(mouth.std())

    async def watch() -> None:
        viewer = SyntheticViewer(server.url, avatar="theo", video="decode", on_picture=look)
        async with viewer:
            await settled(viewer)
            since = time.monotonic()
            viewer.send(events.Text(text="How does your face move when you speak?"))
            await viewer.wait_for(events.TurnDone, since=since, timeout_s=40)
            await asyncio.sleep(0.5)
            first = viewer.received.first_audible_after(since)
            last = viewer.received.last_audible()
            assert first is not None
            assert last is not None
            assert last - first > 3
            moments = np.arange(first - 0.3, last + 0.3, 0.01)
            loud = [
                (p.arrived + 0.01, float(np.sqrt(np.mean(np.square(p.pcm.astype(np.float64))))))
                for p in viewer.received.audio
            ]
            energy = np.interp(moments, *np.array(loud).T)
            energy = np.convolve(np.sqrt(energy), np.ones(10) / 10, "same")
            shown = [
                (p.arrived, contrast[p.pts]) for p in viewer.received.video if p.pts in contrast
            ]
            times, openness = np.array(shown).T
            assert np.ptp(openness) > 8

            def agreement(lag: float) -> float:
                return float(np.corrcoef(np.interp(moments + lag, times, openness), energy)[0, 1])

            lags = np.arange(-0.3, 0.31, 0.01)
            agreements = [agreement(lag) for lag in lags]
            best = lags[int(np.argmax(agreements))]
            print(f"correlation {max(agreements):.2f} at a lag of {best * 1000:.0f} ms")
            assert max(agreements) > 0.35
            assert -0.080 <= best <= 0.020

    run(watch())


def test_typed_text_is_answered_too(server: ServerProcess, avatar: str) -> None:
    async def type_text() -> None:
        async with SyntheticViewer(server.url, avatar=avatar, video="none") as viewer:
            await settled(viewer)
            since = time.monotonic()
            viewer.send(events.Text(text="What is your name?"))
            await viewer.wait_for(events.Caption, since=since, timeout_s=20)
            await settled(viewer)
            assert viewer.received.first_audible_after(since) is not None

    run(type_text())


def test_speaking_over_the_avatar_stops_it_and_it_knows_what_was_heard(
    server: ServerProcess, avatar: str, say: Say
) -> None:
    # Made before: the event loop must not stand still while it runs.
    line = say("I would like to ask you about something completely different now")

    async def interrupt() -> None:
        async with SyntheticViewer(server.url, avatar=avatar, video="none") as viewer:
            await settled(viewer)
            since = time.monotonic()
            viewer.send(events.Text(text="Tell me something about yourself."))
            await viewer.wait_for(events.Caption, since=since, timeout_s=20)
            onset, ended = viewer.microphone.say(line.pcm)
            told = await viewer.wait_for(events.Interrupted, since=onset, timeout_s=10)
            await asyncio.sleep(max(0.0, onset + 0.9 - time.monotonic()))
            # Nothing is audible from 0.6 s after the viewer's first sample (150 ms to be sure that
            # it is speech, 200 ms to stop, and room for a busy machine) until they are done.
            late = [
                piece
                for piece in viewer.received.audio
                if onset + 0.6 < piece.arrived < ended
                and int(np.abs(piece.pcm.astype(np.int32)).max()) >= AUDIBLE
            ]
            timeline = [
                (round(when - onset, 2), event)
                for when, event in viewer.events
                if when > onset - 1 and not isinstance(event, events.Pong | events.Stats)
            ]
            assert not [round(piece.arrived - onset, 2) for piece in late], timeline
            full = " ".join(
                {e.clause: e.text for e in seen(viewer, events.Caption, since)}.values()
            )
            assert len(told.heard) < max(len(full), 1) or told.heard in full

    run(interrupt())


def test_noise_and_silence_never_become_a_turn(server: ServerProcess, avatar: str) -> None:
    async def rustle() -> None:
        async with SyntheticViewer(server.url, avatar=avatar, video="none") as viewer:
            await settled(viewer)
            since = time.monotonic()
            noise = np.random.default_rng(1).normal(0, 900, 3 * 48_000).astype(np.int16)
            viewer.microphone.say(noise)
            await asyncio.sleep(6)
            assert not [e for e in seen(viewer, events.Heard, since) if e.final]
            assert not seen(viewer, events.Caption, since)
            assert viewer.received.first_audible_after(since) is None

    run(rustle())


def test_two_viewers_of_a_session_get_the_same_video_packets(
    server: ServerProcess, avatar: str
) -> None:
    async def watch() -> None:
        async with (
            SyntheticViewer(server.url, avatar=avatar) as first,
            SyntheticViewer(server.url, session=first.session, speak=False) as second,
        ):
            await asyncio.sleep(3)
            a = [picture.data for picture in first.received.video][-45:]
            b = [picture.data for picture in second.received.video]
            shared = [data for data in a if data in b]
            assert len(shared) >= 40
            start = b.index(shared[0])
            assert b[start : start + len(shared)] == shared

    run(watch())


def test_a_candidate_that_cannot_be_used_ends_nobodys_session(
    server: ServerProcess, avatar: str
) -> None:
    async def watch() -> None:
        async with SyntheticViewer(server.url, avatar=avatar) as viewer:
            before = ask(server, f"/v1/sessions/{viewer.session}")["pid"]
            # Of no section: well-formed, so that the avatar's process is the one to refuse it.
            candidate = {"candidate": "candidate:1 1 udp 1 192.0.2.1 9 typ host"}
            reply = await viewer._http.patch(str(viewer._location), json=candidate)
            assert reply.status_code == 204
            seen = len(viewer.received.video)
            await until(lambda: len(viewer.received.video) > seen + 30, 10, "a second of video")
            assert ask(server, f"/v1/sessions/{viewer.session}")["pid"] == before

    run(watch())


def test_a_viewer_who_leaves_frees_the_place_at_once(server: ServerProcess, avatar: str) -> None:
    async def come_and_go() -> None:
        async with SyntheticViewer(server.url, avatar=avatar) as stays:
            async with SyntheticViewer(server.url, session=stays.session) as leaves:
                assert leaves.session == stays.session
                await until(lambda: _viewers(server, stays.session) == 2, 3, "two viewers")
            await until(lambda: _viewers(server, stays.session) == 1, 2, "one viewer", 0.1)

    run(come_and_go())


def test_a_viewer_who_vanishes_is_gone_within_ten_seconds(
    server: ServerProcess, avatar: str
) -> None:
    script = (
        "import asyncio, sys\n"
        "from avatar_server.loadtest.viewer import SyntheticViewer\n"
        "async def main():\n"
        "    async with SyntheticViewer(sys.argv[1], session=sys.argv[2], video='none'):\n"
        "        print('in', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )

    async def vanish() -> None:
        async with SyntheticViewer(server.url, avatar=avatar, video="none") as stays:
            other = subprocess.Popen(  # noqa: ASYNC220 -- it is to be killed, not awaited
                [sys.executable, "-c", script, server.url, str(stays.session)],
                stdout=subprocess.PIPE,
            )
            try:
                assert other.stdout is not None
                line = await asyncio.to_thread(other.stdout.readline)
                assert line == b"in\n"
                await until(lambda: _viewers(server, stays.session) == 2, 3, "two viewers")
                other.kill()
                await until(lambda: _viewers(server, stays.session) == 1, 10, "one viewer", 0.2)
            finally:
                other.kill()
                other.wait()

    run(vanish())


def test_a_killed_avatar_process_is_back_within_three_seconds(
    server: ServerProcess, avatar: str
) -> None:
    async def kill() -> None:
        async with SyntheticViewer(server.url, avatar=avatar, video="none") as viewer:
            session = viewer.session
            # By now the next process has been loaded ahead, as it is in a session of any length.
            await asyncio.sleep(3)
            pid = ask(server, f"/v1/sessions/{session}")["pid"]
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            again: SyntheticViewer | None = None
            while again is None:
                assert time.monotonic() - killed < 8, "no way back in"
                candidate = SyntheticViewer(server.url, session=session, video="count")
                try:
                    await candidate.join()
                    again = candidate
                except (ViewerError, httpx.HTTPError):
                    await candidate.leave()
                    await asyncio.sleep(0.1)
            back = ask(server, f"/v1/sessions/{session}")
            assert back["pid"] != pid
            assert time.monotonic() - killed < 3.0 + 2.0  # 3 s to be back, 2 s to connect
            await until(lambda: len(again.received.video) > 10, 3, "video again")
            await again.leave()

    run(kill())


def test_a_killed_inference_process_leaves_sessions_connected_and_comes_back(
    server: ServerProcess, avatar: str
) -> None:
    async def kill() -> None:
        async with SyntheticViewer(server.url, avatar=avatar) as viewer:
            await settled(viewer)
            status = ask(server, "/v1/status")
            os.kill(status["inference_pid"], signal.SIGKILL)
            killed = time.monotonic()
            viewer.send(events.Text(text="Are you there?"))
            await viewer.wait_for(events.Notice, since=killed, timeout_s=10)
            await until(lambda: ask(server, "/v1/status")["ready"], 40, "ready", 0.3)
            await asyncio.sleep(1)
            since = time.monotonic()
            viewer.send(events.Text(text="What is your name?"))
            await viewer.wait_for(events.Caption, since=since, timeout_s=20)
            frames = len([p for p in viewer.received.video if p.arrived > killed])
            lived = time.monotonic() - killed
            assert frames == pytest.approx(30 * lived, rel=0.05)

    run(kill(), 120)


def test_ctrl_c_ends_every_process_within_three_seconds_without_a_traceback(
    model_store: ModelStore,
) -> None:
    with ServerProcess() as server:
        name = ask(server, "/v1/avatars")[0]["name"]
        httpx.post(f"{server.url}/v1/sessions", json={"avatar": name}, timeout=30)
        assert server.process is not None
        children = _descendants(server.process.pid)
        assert len(children) >= 2
        took = server.stop()
        assert server.process.returncode == 0
        assert took < 3.0 + 0.5
        assert not [pid for pid in children if _alive(pid)]
        assert "Traceback" not in server.output()


def _viewers(server: ServerProcess, session: str | None) -> int:
    return int(ask(server, f"/v1/sessions/{session}")["viewer_count"])


def _descendants(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii") as stat:
                    parent = int(stat.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry), *_descendants(int(entry))]
    return found


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
