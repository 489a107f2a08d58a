"""A real server with one place, two people in a real browser."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from avatar_server.loadtest.server import ServerProcess
from avatar_server.models import ModelStore

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "/usr/bin/chromium"

if not Path(CHROMIUM).exists() and os.environ.get("CI") != "true":
    pytest.skip("no chromium on this machine", allow_module_level=True)

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

MEASURED = "capacity.admission=measured"
SEES_THE_AVATAR = "avatarPage.connected && document.querySelector('#video').videoWidth === 1280"


@pytest.fixture(scope="module")
def server(model_store: ModelStore) -> Iterator[ServerProcess]:
    with ServerProcess(["--sessions", "1", "--set", MEASURED]) as running:
        yield running


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
                "--autoplay-policy=no-user-gesture-required",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-first-run",
            ],
        )


def person(browser: Browser, url: str) -> Page:
    """Somebody with a browser of their own, who has pressed the button."""
    context = browser.new_context(permissions=["microphone"], bypass_csp=True)
    page = context.new_page()
    page.goto(url)
    page.click("#talk:enabled")
    return page


def until(page: Page, condition: str, timeout_s: float = 40.0) -> None:
    page.wait_for_function(condition, timeout=1_000 * timeout_s)


def test_whoever_comes_to_a_full_server_is_told_why_and_joins_when_somebody_leaves(
    server: ServerProcess, browser: Browser
) -> None:
    first = person(browser, server.url)
    until(first, SEES_THE_AVATAR)

    refused = httpx.post(f"{server.url}/v1/sessions", json={"avatar": "theo"}, timeout=20)
    assert refused.status_code == 503
    assert 1 <= int(refused.headers["retry-after"]) <= 10
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert problem["resource"] == "max_sessions"
    assert "room for 1 session and all of it is in use" in problem["detail"]
    capacity = httpx.get(f"{server.url}/v1/capacity").json()
    assert capacity["measured"]
    assert (capacity["sessions"], capacity["running"], capacity["free"]) == (1, 1, 0)

    second = person(browser, server.url)
    until(second, "avatarPage.notice === 'full'")
    said = second.inner_text("#notice")
    assert "All places are taken" in said
    assert "the setting sessions.max_sessions allows no more" in said
    assert second.get_attribute("#state", "data-state") == "waiting"
    second.wait_for_timeout(2_500)
    assert not second.evaluate("avatarPage.connected")
    assert first.evaluate("avatarPage.connected"), "whoever is there is not disturbed"

    first.click("#leave")
    left_at = time.monotonic()
    until(second, SEES_THE_AVATAR)
    # The page looks again every 2 s, and a place that everybody left is given away at once.
    assert time.monotonic() - left_at < 15
    assert second.evaluate("avatarPage.notice") != "full"


@pytest.fixture
def overloaded() -> Iterator[ServerProcess]:
    """A server that takes every frame for too costly, so that all measures are in force soon."""
    marks = {"frame_cost_high": 0.002, "frame_cost_low": 0.001, "rise_s": 0, "settle_s": 0.5}
    pairs = [f"capacity.overload.{key}={value}" for key, value in marks.items()]
    arguments = ["--sessions", "3"]
    for pair in [MEASURED, "capacity.overload.enabled=true", *pairs]:
        arguments += ["--set", pair]
    with ServerProcess(arguments) as running:
        yield running


def test_an_overloaded_server_saves_on_pictures_and_not_on_sound(
    overloaded: ServerProcess, browser: Browser
) -> None:
    page = person(browser, overloaded.url)
    until(page, SEES_THE_AVATAR)
    page.keyboard.press("o")
    until(page, "document.querySelector('#fig-overload').textContent.startsWith('level 5')")
    # The greeting is over: nobody talks, and every second frame is made.
    until(page, "avatarPage.state === 'idle'")
    session = page.url.rsplit("/", 1)[1]

    def made_fps() -> float:
        view = httpx.get(f"{overloaded.url}/v1/sessions/{session}").json()
        return float(view["fps"])

    deadline = time.monotonic() + 20
    while not 12 < made_fps() < 18:
        assert time.monotonic() < deadline, made_fps()
        page.wait_for_timeout(500)

    refused = httpx.post(f"{overloaded.url}/v1/sessions", json={"avatar": "theo"}, timeout=20)
    assert refused.status_code == 503
    assert refused.json()["resource"] == "overload"
    shown = httpx.get(f"{overloaded.url}/v1/capacity").json()["overload"]
    assert shown["level"] == 5
    assert "idle avatars at half the frame rate" in shown["measures"]

    before = page.evaluate(SOUND)
    page.fill("#text", "What is your name?")
    page.keyboard.press("Enter")
    until(page, "avatarPage.state === 'speaking'")
    page.wait_for_timeout(2_000)
    assert page.evaluate(SOUND)["energy"] > before["energy"] + 0.001, "the answer is heard"
    until(page, "avatarPage.state === 'idle'")
    after = page.evaluate(SOUND)
    # What the browser had to make up (`concealedSamples`), apart from
    # the silence that it makes up between talks.
    concealed = after["concealed"] - before["concealed"]
    assert concealed / (after["samples"] - before["samples"]) < 0.02


SOUND = """async () => {
    const stats = await avatarPage.getStats();
    const audio = stats.find(s => s.type === 'inbound-rtp' && s.kind === 'audio');
    return {
        energy: audio.totalAudioEnergy, samples: audio.totalSamplesReceived,
        concealed: audio.concealedSamples - audio.silentConcealedSamples,
    };
}"""
