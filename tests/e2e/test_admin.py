"""The operator's page in a real browser, against a real server with fake avatars."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None and os.environ.get("CI") != "true":
    pytest.skip("no chromium on this machine", allow_module_level=True)

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

from avatar_server.security import KeyStore, Scope  # noqa: E402
from tests.gateway.serving import StartServer, serving  # noqa: E402
from tests.gateway.support import OFFER, SDP  # noqa: E402

ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartServer]:
    yield from serving(tmp_path)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on(
        "console",
        lambda message: (
            problems.append(message.text) if "Content Security Policy" in message.text else None
        ),
    )
    yield opened
    context.close()
    assert problems == []


def test_an_operator_launches_watches_and_ends_a_session(page: Page, start: StartServer) -> None:
    server = start("--sessions", "3")
    page.goto(f"{server.url}/admin")
    page.get_by_text("Ready.").wait_for()
    assert page.get_by_text("No session runs.").is_visible()
    page.locator("#avatar").select_option("good")
    page.get_by_role("button", name="Launch").click()
    card = page.locator("article.session")
    card.wait_for()
    session = httpx.get(f"{server.url}/v1/sessions").json()[0]["id"]
    httpx.post(f"{server.url}/v1/sessions/{session}/viewers", content=OFFER, headers=SDP)
    card.get_by_text("1 viewer ·").wait_for()
    page.wait_for_function(
        "() => document.querySelector('article img').src.startsWith('blob:')"
        " && document.querySelector('article img').naturalWidth > 0"
    )
    assert page.locator("#processes tr").count() >= 2
    card.get_by_role("button", name="End").click()
    page.locator("#sure").get_by_role("button", name="Yes").click()
    page.get_by_text("No session runs.").wait_for()
    assert httpx.get(f"{server.url}/v1/sessions").json() == []


def test_it_asks_for_a_key_and_shows_nothing_before(
    page: Page, start: StartServer, tmp_path: Path
) -> None:
    _, key = KeyStore(tmp_path / "data" / "api-keys.json").create("ops", Scope.OPERATE)
    server = start("--set", "security.require_key=always")
    page.goto(f"{server.url}/admin")
    page.get_by_text("This server asks for a key").wait_for()
    assert page.locator("#board").is_hidden()
    page.locator("#secret").fill("avs_000000000000_" + "x" * 43)
    page.get_by_role("button", name="Use it").click()
    page.get_by_text("not valid").wait_for()
    page.locator("#secret").fill(key)
    page.get_by_role("button", name="Use it").click()
    page.locator("#board").wait_for(state="visible")
    page.reload()
    page.locator("#board").wait_for(state="visible")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("This server asks for a key").wait_for()
    assert page.locator("#board").is_hidden()


def test_draining_is_asked_for_twice_and_can_be_taken_back(page: Page, start: StartServer) -> None:
    server = start("--sessions", "2")
    made = httpx.post(f"{server.url}/v1/sessions", json={"avatar": "good"}, timeout=30).json()
    httpx.post(f"{server.url}/v1/sessions/{made['id']}/viewers", content=OFFER, headers=SDP)
    page.goto(f"{server.url}/admin")
    page.get_by_role("button", name="Drain …").click()
    page.locator("#sure").get_by_role("button", name="Cancel").click()
    assert httpx.get(f"{server.url}/v1/drain").json()["draining"] is False
    page.get_by_role("button", name="Drain …").click()
    page.locator("#sure").get_by_role("button", name="Yes").click()
    page.get_by_text("Draining: 1 running").wait_for()
    page.get_by_role("button", name="Take sessions again").click()
    page.get_by_text("Ready.").wait_for()
    assert httpx.get(f"{server.url}/v1/drain").json()["draining"] is False


def test_it_is_readable_on_a_phone(page: Page, start: StartServer) -> None:
    server = start("--sessions", "2")
    httpx.post(f"{server.url}/v1/sessions", json={"avatar": "good"}, timeout=30)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server.url}/admin")
    page.locator("article.session").wait_for()
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert overflow <= 0
