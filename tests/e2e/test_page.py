"""The page in a real browser, against a gateway that does what a test tells it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None and os.environ.get("CI") != "true":
    pytest.skip("no chromium on this machine", allow_module_level=True)

from page_gateway import AVATARS, PageGateway  # noqa: E402
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, sync_playwright  # noqa: E402

from avatar_server.protocol import events  # noqa: E402

PLAIN = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP avatar.test 127.0.0.1",
    # Without a microphone's permission a browser hides its addresses behind multicast names,
    # which need a network that carries multicast.
    "--disable-features=WebRtcHideLocalIpsWithMdns",
]
AUTOPLAY = "--autoplay-policy=no-user-gesture-required"
DEVICES = "--use-fake-device-for-media-stream"
ALLOW = "--use-fake-ui-for-media-stream"
TURN = events.TurnDone(
    turn=1,
    voice_to_voice_ms=912.0,
    stages_ms={"endpoint": (0, 310), "stt": (120, 330), "tts_first": (330, 912)},
)

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def launch(playwright: Playwright) -> Iterator[Callable[..., Browser]]:
    """Browsers by their arguments, each started once."""
    started: dict[tuple[str, ...], Browser] = {}

    def browser(*args: str) -> Browser:
        if args not in started:
            started[args] = playwright.chromium.launch(
                executable_path=CHROMIUM, args=[*PLAIN, *args]
            )
        return started[args]

    yield browser
    for browser_ in started.values():
        browser_.close()


@pytest.fixture
def gateway() -> Iterator[PageGateway]:
    running = PageGateway()
    running.start()
    yield running
    running.stop()


@pytest.fixture
def open_page(launch: Callable[..., Browser], gateway: PageGateway) -> Iterator[Open]:
    """Opens the page; at the end, no script of it may have failed or broken the CSP."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def console(kind: str, text: str) -> None:
        if "Content Security Policy" in text or (kind == "error" and "ERR_" not in text):
            faults.append(text)

    def open_(
        path: str = "/",
        *,
        args: tuple[str, ...] = (AUTOPLAY, DEVICES, ALLOW),
        host: str = "127.0.0.1",
        script: str | None = None,
        **context_options: Any,
    ) -> Page:
        context = launch(*args).new_context(**context_options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: console(message.type, message.text))
        if script:
            page.add_init_script(script)
        page.goto(f"http://{host}:{gateway.port}{path}")
        return page

    yield open_
    for context in contexts:
        context.close()
    # A refused request is part of many of these tests; Chromium logs each as an error.
    unexpected = [fault for fault in faults if "Failed to load resource" not in fault]
    assert not unexpected


def until(page: Page, expression: str, timeout_s: float = 15.0) -> None:
    """Waits until `expression` is true (`wait_for_function` needs an eval that the CSP refuses)."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        if time.monotonic() > deadline:
            seen = page.evaluate("JSON.stringify(avatarPage)")
            raise AssertionError(f"not within {timeout_s} s: {expression}; the page: {seen}")
        page.wait_for_timeout(50)


def until_notice(page: Page, code: str, timeout_s: float = 15.0) -> str:
    """Waits for a notice and gives its words."""
    until(page, f"avatarPage.notice === {code!r}", timeout_s)
    return page.inner_text("#notice")


def join(page: Page, button: str = "#talk") -> None:
    page.click(f"{button}:enabled")
    until(page, "avatarPage.connected")


# --- choosing and joining ---------------------------------------------------------------------


def test_avatars_are_shown_as_cards_with_pictures_that_arrive_late(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    page.wait_for_selector(".card[data-avatar=otto] img.moving")
    assert gateway.script.preview_misses == 0
    assert page.locator(".card strong").all_inner_texts() == [a["title"] for a in AVATARS]
    assert page.inner_text("#talk") == "Talk to Mira"
    page.click(".card[data-avatar=otto]")
    assert page.inner_text("#talk") == "Talk to Otto"
    assert "2 of 2 places free" in page.inner_text("#lobby")


def test_reduced_motion_shows_stills_only(open_page: Open) -> None:
    page = open_page(reduced_motion="reduce")
    page.wait_for_selector(".card[data-avatar=otto] img.still")
    page.wait_for_timeout(300)
    assert page.locator("img.moving").count() == 0


def test_joining_with_a_microphone_shows_the_moving_avatar_at_the_sessions_address(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    page.click(".card[data-avatar=otto]")
    join(page)
    assert page.url == f"{gateway.url}/s/s1"
    assert gateway.script.sessions == {"s1": "otto"}
    assert gateway.script.offers == [("s1", True)]
    assert gateway.viewer().sends_audio
    until(page, "document.querySelector('#video').videoWidth === 640")
    until(page, "avatarPage.media !== null && avatarPage.media.fps > 5")
    assert page.get_attribute("#state", "data-state") == "idle"
    assert page.inner_text("#state") == "Listening"
    gateway.wait_for(lambda: gateway.count(events.Ping) >= 2)


def test_joining_without_a_microphone_sends_no_sound(gateway: PageGateway, open_page: Open) -> None:
    page = open_page()
    join(page, "#talk-typing")
    assert not gateway.viewer().sends_audio
    assert page.evaluate("avatarPage.microphone") == "none"
    page.click("#mic")
    gateway.wait_for(lambda: any(v.sends_audio for v in gateway.viewers.values()))
    until(page, "avatarPage.connected && avatarPage.microphone === 'on'")
    assert len(gateway.script.returns) == len(gateway.script.offers) == 1


def test_that_it_is_recorded_is_said_before_and_shown_for_as_long_as_it_is_so(
    gateway: PageGateway, open_page: Open
) -> None:
    gateway.script.recorded = True
    speaker = open_page()
    speaker.wait_for_selector("#start-recorded")
    assert "recorded" in speaker.inner_text("#start-recorded")
    join(speaker)
    speaker.wait_for_selector("#recorded")
    assert speaker.inner_text("#recorded") == "Recorded"
    invited = open_page("/s/s1")
    invited.wait_for_selector("#invite-recorded")
    gateway.say(events.Notice(code="recording_stopped", message="It is no longer recorded."))
    speaker.wait_for_selector("#recorded", state="hidden")


def test_nothing_is_said_of_recording_where_there_is_none(open_page: Open) -> None:
    page = open_page()
    join(page)
    assert not page.is_visible("#recorded")
    assert page.locator("#start-recorded[hidden], #invite-recorded[hidden]").count() == 2


def test_a_second_viewer_opens_the_link_and_watches(gateway: PageGateway, open_page: Open) -> None:
    speaker = open_page()
    join(speaker)
    watcher = open_page("/s/s1")
    watcher.wait_for_selector("#watch")
    assert watcher.inner_text("#invite-title") == "A conversation with Mira"
    join(watcher, "#watch")
    assert gateway.script.offers == [("s1", True), ("s1", False)]
    assert not watcher.is_visible("#text")
    assert watcher.url == speaker.url


def test_a_link_to_a_session_that_ended_leads_to_the_avatars(open_page: Open) -> None:
    page = open_page("/s/nothing-here")
    assert "has ended" in until_notice(page, "ended")
    page.wait_for_selector("#talk:enabled")
    assert page.url.endswith("/")


# --- talking ----------------------------------------------------------------------------------


def test_captions_tell_spoken_words_from_those_to_come(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    join(page)
    gateway.say(
        events.Heard(turn=1, text="Who built this house?", final=True),
        events.State(state="speaking", turn=1),
        events.Caption(turn=1, clause=0, text="A clockmaker,", spoken="A clockmaker,"),
        events.Caption(turn=1, clause=1, text="long ago.", spoken="long"),
    )
    until(page, "document.querySelectorAll('.clause').length === 2")
    assert page.inner_text("#captions") == "You: Who built this house?\n\nA clockmaker, long ago."
    assert page.locator(".clause b").all_text_contents() == ["A clockmaker,", "long"]
    assert page.locator(".clause span").all_text_contents() == ["", " ago."]
    assert page.locator("#log p").all_text_contents() == [
        "You: Who built this house?",
        "A clockmaker,",
        "long ago.",
    ]
    assert page.get_attribute("#state", "data-state") == "speaking"
    gateway.say(events.Interrupted(turn=1, heard="A clockmaker, long"))
    until(page, "document.querySelector('#lines').textContent.includes('long –')")
    assert "ago" not in page.inner_text("#captions")


def test_typed_text_and_suggestions_arrive_and_stop_stops(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    join(page)
    assert page.is_disabled("#send")
    page.fill("#text", "  What is that on the wall?  ")
    page.press("#text", "Enter")
    gateway.wait_for(lambda: bool(gateway.texts()))
    assert page.input_value("#text") == ""
    assert page.inner_text("#heard") == "You: What is that on the wall?"
    gateway.say(
        events.State(state="speaking", turn=1),
        events.Caption(turn=1, clause=0, text="A map.", spoken="A"),
    )
    page.click("#stop:enabled")
    gateway.wait_for(lambda: gateway.count(events.Stop) == 1)
    assert page.inner_text("#heard") == "You: What is that on the wall?"
    page.keyboard.press("Escape")
    gateway.wait_for(lambda: gateway.count(events.Stop) == 2)
    page.evaluate("document.querySelector('.chip').click()")
    gateway.wait_for(lambda: len(gateway.texts()) == 2)
    assert gateway.texts() == ["What is that on the wall?", AVATARS[0]["suggestions"][0]]


def test_the_overlay_shows_latency_stages_and_the_figures_of_both_sides(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    join(page)
    assert not page.is_visible("#overlay")
    page.keyboard.press("o")
    gateway.say(
        TURN,
        events.TurnDone(turn=2, voice_to_voice_ms=1_100.0, stages_ms=TURN.stages_ms),
        events.TurnDone(turn=3, voice_to_voice_ms=700.0, stages_ms={"tts_first": (100, 700)}),
        events.TurnDone(turn=4, voice_to_voice_ms=None, stages_ms=TURN.stages_ms),
        events.Stats(fps=30.0, bitrate_bps=8e5, render_ms=3.14, encode_ms=4.42, viewers=1),
    )
    until(page, "document.querySelector('#fig-render').textContent === '3.1 ms'")
    assert page.inner_text("#fig-overload") == "none"
    gateway.say(
        events.Stats(
            fps=15.0,
            bitrate_bps=4e5,
            render_ms=3.0,
            encode_ms=4.0,
            viewers=1,
            overload=2,
            overload_text="idle avatars at half the frame rate",
        )
    )
    until(page, "document.querySelector('#fig-overload').textContent.startsWith('level 2: idle')")
    assert page.inner_text("#v2v-last") == "700 ms"
    assert page.inner_text("#v2v-p50") == "912 ms"
    assert page.evaluate("avatarPage.voiceToVoice") == {"lastMs": 700, "p50Ms": 912, "turns": 3}
    rows = page.locator("#stages li")
    assert rows.evaluate_all("rows => rows.map(row => row.dataset.stage)") == [
        "endpoint",
        "stt",
        "tts_first",
    ]
    assert rows.locator("em").all_inner_texts() == ["310 ms", "210 ms", "582 ms"]
    widths = rows.locator("b").evaluate_all("bars => bars.map(b => b.offsetWidth)")
    assert widths[2] > widths[0] > widths[1] > 0
    until(page, "parseFloat(document.querySelector('#fig-fps').textContent) > 5")
    until(page, "parseFloat(document.querySelector('#fig-bitrate').textContent) > 5")
    assert page.inner_text("#fig-size") == "640 × 360"
    gateway.say(
        events.Stats(
            fps=30.0, bitrate_bps=8e5, render_ms=3.1, encode_ms=4.4, viewers=1, layer="low"
        )
    )
    until(page, "document.querySelector('#fig-size').textContent === '640 × 360, for a slow link'")
    assert page.inner_text("#fig-loss").endswith("%")
    page.click("#overlay-toggle")
    assert not page.is_visible("#overlay")


def test_keys_do_not_act_while_typing(gateway: PageGateway, open_page: Open) -> None:
    page = open_page()
    join(page)
    page.click("#text")
    page.keyboard.type("moo")
    assert page.input_value("#text") == "moo"
    assert not page.is_visible("#overlay")
    assert page.evaluate("avatarPage.microphone") == "on"


def test_the_microphone_shows_its_level_and_can_be_muted(open_page: Open) -> None:
    page = open_page()
    join(page)
    # The browser's fake microphone beeps once a second.
    level = "Number(document.querySelector('#mic-level').style.getPropertyValue('--level'))"
    until(page, f"{level} > 0.2")
    page.click("#mic")
    assert page.evaluate("avatarPage.microphone") == "muted"
    assert page.get_attribute("#mic", "aria-label") == "Unmute microphone"
    until(page, f"{level} === 0")
    page.keyboard.press("m")
    assert page.evaluate("avatarPage.microphone") == "on"


def test_leaving_says_goodbye_both_ways(gateway: PageGateway, open_page: Open) -> None:
    page = open_page()
    join(page)
    viewer = gateway.viewer().id
    page.click("#leave")
    gateway.wait_for(lambda: gateway.script.deleted == [viewer])
    gateway.wait_for(lambda: gateway.count(events.Bye) == 1)
    page.wait_for_selector("#talk:enabled")
    assert page.url == f"{gateway.url}/"
    assert page.evaluate("document.querySelector('#video').srcObject") is None


def test_closing_the_tab_frees_the_place(gateway: PageGateway, open_page: Open) -> None:
    page = open_page()
    join(page)
    viewer = gateway.viewer().id
    page.goto("about:blank")
    gateway.wait_for(lambda: viewer in gateway.script.deleted)


def test_the_browsers_back_button_leaves(gateway: PageGateway, open_page: Open) -> None:
    page = open_page()
    join(page)
    page.go_back()
    page.wait_for_selector("#talk:enabled")
    gateway.wait_for(lambda: len(gateway.script.deleted) == 1)


# --- what can go wrong: microphone --------------------------------------------------------------


def test_a_refused_microphone_is_explained_and_typing_goes_on(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page(args=(AUTOPLAY, DEVICES), permissions=[])
    join(page)
    words = until_notice(page, "mic-refused")
    assert "site settings" in words
    assert "you can type" in words
    page.fill("#text", "Hello")
    page.press("#text", "Enter")
    gateway.wait_for(lambda: gateway.texts() == ["Hello"])
    # Once it is allowed, the page takes it by itself.
    page.context.grant_permissions(["microphone"])
    until(page, "avatarPage.microphone === 'on' && avatarPage.connected")
    gateway.wait_for(lambda: any(v.sends_audio for v in gateway.viewers.values()))
    until(page, "avatarPage.notice === null")


def test_a_machine_without_a_microphone_is_told_to_type(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page(args=(AUTOPLAY,), permissions=["microphone"])
    join(page)
    assert "No microphone found" in until_notice(page, "mic-none")
    page.fill("#text", "Hello")
    page.press("#text", "Enter")
    gateway.wait_for(lambda: gateway.texts() == ["Hello"])


def test_plain_http_from_another_host_is_explained_and_typing_works(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page(host="avatar.test")
    assert page.evaluate("window.isSecureContext") is False
    words = until_notice(page, "mic-insecure")
    assert "https" in words
    assert f"http://localhost:{gateway.port}" in words
    page.wait_for_selector("#talk:enabled")
    assert not page.is_visible("#talk-typing")
    join(page)
    assert page.evaluate("avatarPage.notice") is None
    page.click("#mic")
    until_notice(page, "mic-insecure")
    page.fill("#text", "Hello")
    page.press("#text", "Enter")
    gateway.wait_for(lambda: gateway.texts() == ["Hello"])


def test_the_person_may_go_on_while_the_browser_still_asks(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page(
        script="""
            const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
            const allowed = new Promise((resolve) => { window.allow = resolve; });
            navigator.mediaDevices.getUserMedia = (what) => allowed.then(() => ask(what));
        """
    )
    page.click("#talk:enabled")
    assert "May we listen?" in until_notice(page, "mic-asking")
    page.click("text=Continue without microphone >> visible=true")
    until(page, "avatarPage.connected")
    assert page.evaluate("avatarPage.microphone") == "none"
    page.evaluate("window.allow()")
    until(page, "avatarPage.microphone === 'on'")
    gateway.wait_for(lambda: any(v.sends_audio for v in gateway.viewers.values()))


def test_an_unplugged_microphone_is_replaced_and_said(open_page: Open) -> None:
    page = open_page(
        script="""
            const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
            navigator.mediaDevices.getUserMedia = async (what) => {
                if (window.none) throw new DOMException("gone", "NotFoundError");
                const stream = await ask(what);
                window.unplug = () => {
                    const [track] = stream.getTracks();
                    track.stop();
                    track.dispatchEvent(new Event("ended"));
                };
                return stream;
            };
        """
    )
    join(page)
    page.evaluate("window.unplug()")
    assert "Now listening on" in until_notice(page, "mic-changed")
    assert page.evaluate("avatarPage.microphone") == "on"
    page.evaluate("window.none = true; window.unplug()")
    assert "there is no other" in until_notice(page, "mic-none")
    assert page.get_attribute("#mic", "aria-label") == "Use microphone"
    page.evaluate("window.none = false; 0")
    page.evaluate("navigator.mediaDevices.dispatchEvent(new Event('devicechange'))")
    until_notice(page, "mic-available")
    page.click("#mic")
    until(page, "avatarPage.microphone === 'on' && avatarPage.connected")


# --- what can go wrong: server and network -------------------------------------------------------


def test_a_full_server_is_waited_for_and_joined_when_a_place_is_free(
    gateway: PageGateway, open_page: Open
) -> None:
    gateway.script.taken = 2
    page = open_page()
    page.click("#talk:enabled")
    said = until_notice(page, "full")
    assert "All places are taken" in said
    assert "the CPU would not do for one more" in said
    assert page.get_attribute("#state", "data-state") == "waiting"
    gateway.script.taken = 1
    until(page, "avatarPage.connected")
    assert page.evaluate("avatarPage.notice") is None


def test_waiting_for_a_place_can_be_cancelled(gateway: PageGateway, open_page: Open) -> None:
    gateway.script.taken = 2
    page = open_page()
    page.click("#talk:enabled")
    until_notice(page, "full")
    page.click("#notice >> text=Cancel")
    page.wait_for_selector("#talk:enabled")
    gateway.script.taken = 0
    page.wait_for_timeout(3_000)
    assert gateway.script.sessions == {}


def test_a_starting_server_shows_its_phase_and_is_joined_when_ready(
    gateway: PageGateway, open_page: Open
) -> None:
    gateway.script.ready, gateway.script.phase = False, "loading voices"
    page = open_page()
    assert "Loading voices." in until_notice(page, "starting")
    page.click("#talk:enabled")
    until(page, "avatarPage.state === 'waiting'")
    assert "Loading voices." in until_notice(page, "starting")
    gateway.script.ready = True
    until(page, "avatarPage.connected")


def test_a_server_that_is_not_there_yet_is_waited_for(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    page.wait_for_selector("#talk:enabled")
    gateway.stop()
    page.click("#talk")
    until_notice(page, "gone")
    gateway.start()
    until(page, "avatarPage.connected", 20)


def test_a_server_that_went_away_is_rejoined_in_the_same_session(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    join(page)
    gateway.stop()
    assert "Trying again by itself" in until_notice(page, "gone")
    assert page.get_attribute("#state", "data-state") == "reconnecting"
    assert page.is_disabled("#text")
    gateway.start()
    until(page, "avatarPage.connected", 20)
    until(page, "document.querySelector('#session').dataset.picture === 'true'")
    assert {session for session, _ in gateway.script.offers} == {"s1"}
    assert page.evaluate("avatarPage.notice") is None


def test_where_the_session_is_gone_a_new_one_with_the_same_avatar_is_started(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    page.click(".card[data-avatar=otto]")
    join(page)
    gateway.stop()
    until_notice(page, "gone")
    gateway.script.sessions.clear()
    gateway.start()
    until(page, "avatarPage.connected", 20)
    (session,) = gateway.script.sessions
    assert gateway.script.sessions[session] == "otto"
    assert page.url == f"{gateway.url}/s/{session}"


def test_a_watcher_of_a_session_that_ended_starts_nothing(
    gateway: PageGateway, open_page: Open
) -> None:
    gateway.script.sessions["s9"] = "mira"
    page = open_page("/s/s9")
    join(page, "#watch")
    gateway.script.sessions.clear()
    gateway.drop_viewers()
    until_notice(page, "ended")
    page.wait_for_timeout(1_000)
    assert gateway.script.sessions == {}
    page.click("#notice >> text=See all avatars")
    page.wait_for_selector("#talk:enabled")


def test_a_session_that_an_operator_stopped_is_not_started_again(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    join(page)
    gateway.script.sessions.clear()
    gateway.say(events.Notice(code="stopped", message="we close for today"))
    gateway.drop_viewers()
    assert "We close for today." in until_notice(page, "ended")
    page.wait_for_timeout(1_000)
    assert gateway.script.sessions == {}


def test_an_avatar_that_restarts_is_rejoined_after_the_servers_own_words(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    join(page)
    gateway.script.answer_offers = False
    gateway.drop_viewers()
    words = until_notice(page, "busy")
    assert "The avatar is restarting" in words
    assert "It is back in a moment." in words
    gateway.script.answer_offers = True
    until(page, "avatarPage.connected")
    assert gateway.script.offers[-1][0] == "s1"


def test_an_avatar_that_falls_silent_is_connected_to_anew(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    join(page)
    first = gateway.viewer().id
    peer = gateway.viewer().peer
    # Neither answers nor media: what a process that hangs looks like.
    gateway.hang(first)
    gateway.wait_for(lambda: gateway.script.returns == [first])
    until(page, "avatarPage.connected")
    assert gateway.viewer().peer is not peer
    assert gateway.script.deleted == []


def test_answers_that_are_late_while_media_comes_break_nothing_off(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page()
    join(page)
    gateway.script.answer_pings = False
    page.wait_for_timeout(4_500)
    assert page.evaluate("avatarPage.connected")
    assert gateway.script.returns == []


def test_a_network_path_that_dies_is_replaced_within_seconds_and_the_viewer_stays(
    gateway: PageGateway, open_page: Open
) -> None:
    gateway.script.far = True
    page = open_page()
    join(page)
    until(page, "document.querySelector('#session').dataset.picture === 'true'")
    viewer = gateway.viewer().id
    gateway.say(
        events.State(state="speaking", turn=1),
        events.Caption(turn=1, clause=0, text="Once upon a time", spoken="Once upon"),
    )
    until(page, "document.querySelectorAll('.clause').length === 1")
    gateway.script.far = False
    gateway.go_dark()
    dark = time.monotonic()
    gateway.wait_for(lambda: gateway.script.returns == [viewer])
    noticed = time.monotonic() - dark
    until(page, "avatarPage.connected")
    back = time.monotonic() - dark - noticed
    # Before the server's patience of 5 s is over, and then at once.
    assert noticed < 4.5
    assert back < 2.0
    until(page, "avatarPage.media !== null && avatarPage.media.fps > 5")
    assert page.inner_text("#captions") == "Once upon a time"
    assert len(gateway.script.offers) == 1
    assert gateway.script.deleted == []


def test_a_change_of_network_is_looked_into_at_once(gateway: PageGateway, open_page: Open) -> None:
    gateway.script.far = True
    page = open_page()
    join(page)
    until(page, "document.querySelector('#session').dataset.picture === 'true'")
    page.evaluate("dispatchEvent(new Event('online'))")
    page.wait_for_timeout(2_000)
    assert gateway.script.returns == [], "what stands is left alone"
    gateway.script.far = False
    gateway.go_dark()
    page.evaluate("dispatchEvent(new Event('online'))")
    changed = time.monotonic()
    gateway.wait_for(lambda: len(gateway.script.returns) == 1)
    assert time.monotonic() - changed < 2.2
    until(page, "avatarPage.connected")


def test_a_viewer_whom_the_server_gave_up_joins_the_same_session_anew(
    gateway: PageGateway, open_page: Open
) -> None:
    gateway.script.far = True
    page = open_page()
    join(page)
    gateway.script.far = False
    gateway.forget_viewers()
    until(page, "!avatarPage.connected")
    until(page, "avatarPage.connected")
    assert gateway.script.returns == []
    assert gateway.script.offers == [("s1", True), ("s1", True)]


# The real timeout is 15 s; the page's own clock is sped up instead of waiting for it.
IMPATIENT = """
    const later = window.setTimeout;
    window.setTimeout = (run, ms, ...rest) => later(run, ms === 15000 ? 1500 : ms, ...rest);
"""


def test_a_network_that_blocks_media_is_named_with_the_address_and_what_to_do(
    gateway: PageGateway, open_page: Open
) -> None:
    gateway.script.candidate_host = "127.0.0.254"
    page = open_page(script=IMPATIENT)
    page.click("#talk:enabled")
    words = until_notice(page, "ice-failed")
    assert "Nothing came back from 127.0.0.254:" in words
    assert "block UDP" in words
    assert "media.udp_ports" in words
    gateway.script.candidate_host = ""
    until(page, "avatarPage.connected", 20)


def test_a_server_that_names_no_address_is_told_at_once(
    gateway: PageGateway, open_page: Open
) -> None:
    gateway.script.block_media = True
    page = open_page()
    page.click("#talk:enabled")
    assert "media.public_address" in until_notice(page, "ice-failed", 5)


def test_a_server_that_names_only_its_private_address_is_told_what_to_set(
    gateway: PageGateway, open_page: Open
) -> None:
    gateway.script.candidate_host = "10.255.255.1"
    page = open_page(host="avatar.test", script=IMPATIENT)
    page.click("#talk:enabled")
    words = until_notice(page, "ice-failed")
    assert "10.255.255.1" in words
    assert "media.public_address" in words


DIAGNOSES: list[tuple[dict[str, Any], str]] = [
    ({"answer": ""}, "no-remote"),
    ({"report": []}, "no-local"),
    ({"report": [{"type": "candidate-pair", "state": "succeeded"}]}, "handshake"),
    ({"report": [{"type": "candidate-pair", "requestsReceived": 3}]}, "one-way"),
    ({}, "no-answer"),
    ({"turnErrors": [{"url": "turn:t", "errorCode": 401, "errorText": "Unauthorized"}]}, "turn"),
    ({"host": "[2001:db8::1]", "answer": "fd00::2"}, "private"),
    ({"host": "192.168.1.4", "answer": "192.168.1.5"}, "no-answer"),
    ({"host": "office", "answer": "10.0.0.1"}, "no-answer"),
    ({"host": "172.32.0.1", "answer": "172.31.0.1"}, "private"),
]


def test_causes_are_told_apart_by_what_the_browser_saw(open_page: Open) -> None:
    page = open_page()
    for given, code in DIAGNOSES:
        address = given.get("answer", "203.0.113.7")
        answer = f"v=0\r\na=candidate:1 1 udp 1 {address} 50000 typ host\r\n" if address else "v=0"
        seen = {
            "host": "avatar.example.org",
            "report": [{"type": "local-candidate", "candidateType": "host"}],
            **given,
            "answer": answer,
        }
        why = page.evaluate(
            "async (seen) => (await import('/static/js/diagnosis.js')).diagnose(seen)", seen
        )
        assert why["code"] == code, given


def test_words_of_the_server_are_shown(gateway: PageGateway, open_page: Open) -> None:
    page = open_page()
    join(page)
    gateway.say(events.Notice(code="engine", message="the avatar needs a moment"))
    assert "The avatar needs a moment." in until_notice(page, "server-engine")
    page.click("#notice-close")
    until(page, "avatarPage.notice === null")


def test_without_the_floor_one_is_told_so_and_cannot_type(
    gateway: PageGateway, open_page: Open
) -> None:
    gateway.script.can_speak = False
    page = open_page()
    join(page)
    assert "You are watching" in until_notice(page, "watching")
    assert page.is_disabled("#text")


# --- what can go wrong: browser -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("delete window.RTCPeerConnection", "unsupported-webrtc"),
        ("RTCRtpReceiver.getCapabilities = () => ({codecs: [{mimeType: 'video/VP8'}]})",
         "unsupported-h264"),
    ],
)  # fmt: skip
def test_a_browser_that_cannot_show_avatars_is_told_which_can(
    open_page: Open, script: str, code: str
) -> None:
    page = open_page(script=script)
    assert "Firefox" in until_notice(page, code)
    assert not page.is_visible("#talk")


def test_where_sound_is_blocked_a_tap_brings_it(open_page: Open) -> None:
    page = open_page(
        script="""
            const play = HTMLMediaElement.prototype.play;
            window.blocked = true;
            HTMLMediaElement.prototype.play = function () {
                if (window.blocked && !this.muted) {
                    return Promise.reject(new DOMException("no gesture", "NotAllowedError"));
                }
                return play.call(this);
            };
        """
    )
    join(page)
    page.wait_for_selector("#sound:visible")
    until(page, "document.querySelector('#session').dataset.picture === 'true'")
    page.evaluate("window.blocked = false")
    page.click("#sound")
    page.wait_for_selector("#sound", state="hidden")
    assert page.evaluate("document.querySelector('#video').muted") is False


def test_nothing_on_the_page_comes_from_elsewhere_and_everything_fits_a_phone(
    gateway: PageGateway, open_page: Open
) -> None:
    page = open_page(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    join(page)
    gateway.say(
        events.Heard(turn=1, text="A rather long question " * 6, final=True),
        events.Caption(turn=1, clause=0, text="An even longer answer, " * 12, spoken="An even"),
    )
    until(page, "document.querySelectorAll('.clause').length === 1")
    assert asked
    assert all(url.startswith(gateway.url) for url in asked)
    for selector in ("#captions", "#dock", "#leave", "#overlay-toggle", "#state"):
        box = page.locator(selector).bounding_box()
        assert box is not None
        assert box["x"] >= 0, selector
        assert box["x"] + box["width"] <= 360, selector
        assert box["y"] + box["height"] <= 740, selector
