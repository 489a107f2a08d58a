"""A real server seen from a real browser with a fake microphone."""

from __future__ import annotations

import os
import shutil
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from avatar_server.config import TtsSettings
from avatar_server.inference.tts import build_synthesizer
from avatar_server.loadtest.server import ServerProcess
from avatar_server.loadtest.speech import spoken
from avatar_server.models import ModelStore

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "/usr/bin/chromium"
ARTEFACTS = Path(__file__).resolve().parents[2] / "artefacts"

if not Path(CHROMIUM).exists() and os.environ.get("CI") != "true":
    pytest.skip("no chromium on this machine", allow_module_level=True)

from playwright.sync_api import Page, sync_playwright  # noqa: E402


@pytest.fixture(scope="module")
def server(model_store: ModelStore) -> Iterator[ServerProcess]:
    with ServerProcess(["--sessions", "2", "--set", "sessions.idle_timeout_s=3"]) as running:
        yield running


@pytest.fixture(scope="module")
def question(model_store: ModelStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WAV for the fake microphone: silence while the page joins, then one question."""
    synthesizer = build_synthesizer(model_store, TtsSettings(engine="piper"), 1)
    line = spoken(synthesizer, ["What is your name?"], synthesizer.voices()[0])[0]
    silence = np.zeros(48_000, np.int16)
    path = tmp_path_factory.mktemp("speech") / "question.wav"
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(48_000)
        for part in (*[silence] * 14, line.pcm, *[silence] * 40):
            out.writeframes(part.tobytes())
    return path


@pytest.fixture
def page(question: Path) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
                f"--use-file-for-fake-audio-capture={question}%noloop",
                "--autoplay-policy=no-user-gesture-required",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-first-run",
            ],
        )
        context = browser.new_context(
            # The page's content policy forbids what playwright waits with (eval).
            bypass_csp=True,
            viewport={"width": 1280, "height": 800},
            permissions=["microphone"],
        )
        yield context.new_page()
        browser.close()


_DECODED = """async () => {
    const stats = await window.avatarPage.getStats();
    const video = stats.find(s => s.type === 'inbound-rtp' && s.kind === 'video');
    const audio = stats.find(s => s.type === 'inbound-rtp' && s.kind === 'audio');
    return {
        frames: video.framesDecoded, fps: video.framesPerSecond, width: video.frameWidth,
        height: video.frameHeight, freezes: video.freezeCount, codec: video.decoderImplementation,
        audio: audio.totalAudioEnergy, at: performance.now(),
        // When what is shown and heard now was captured, by the browser's reading of our reports.
        apart: video.estimatedPlayoutTimestamp - audio.estimatedPlayoutTimestamp,
    };
}"""


def test_a_person_presses_the_button_speaks_and_is_answered_with_captions(
    server: ServerProcess, page: Page
) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(server.url)
    page.click("#talk")
    page.wait_for_function("document.querySelector('#video').videoWidth === 1280", timeout=20_000)
    # The greeting has captions; the question comes 14 s after the microphone was opened.
    page.wait_for_selector("#captions:has-text('a')", timeout=20_000)
    first: dict[str, Any] = page.evaluate(_DECODED)
    page.wait_for_function(
        "document.body.innerText.toLowerCase().includes('what is your name')", timeout=45_000
    )
    page.wait_for_function(
        "document.querySelector('#state').dataset.state === 'speaking'", timeout=20_000
    )
    page.wait_for_timeout(1_200)
    page.keyboard.press("o")
    page.wait_for_timeout(300)
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "conversation.png")
    last: dict[str, Any] = page.evaluate(_DECODED)
    rate = (last["frames"] - first["frames"]) / ((last["at"] - first["at"]) / 1_000)
    assert (last["width"], last["height"]) == (1280, 720)
    assert rate >= 25
    assert last["audio"] > first["audio"]
    assert abs(last["apart"]) < 200
    assert page.inner_text("#captions").strip()
    assert not errors


def test_the_page_is_back_by_itself_when_the_avatar_process_was_killed(
    server: ServerProcess, page: Page
) -> None:
    page.goto(server.url)
    page.click("#talk")
    page.wait_for_function("document.querySelector('#video').videoWidth === 1280", timeout=30_000)
    session = page.url.rsplit("/", 1)[1]
    pid = httpx.get(f"{server.url}/v1/sessions/{session}").json()["pid"]
    os.kill(pid, 9)
    page.wait_for_timeout(1_000)
    page.wait_for_function(
        """async () => {
            try { return (await window.avatarPage.getStats()).some(
                s => s.type === 'inbound-rtp' && s.kind === 'video' && s.framesDecoded > 30
                    && s.framesPerSecond > 0); } catch { return false; }
        }""",
        timeout=20_000,
        polling=500,
    )
    assert page.url.endswith(session)
