"""`avatar-server bench browser`: what a real browser shows of a session, and how old it is.

A headless Chromium receives the product's path, and then the usual one on aiortc, from a process
of the media benchmark that draws the time into each picture. The page reads it back from a canvas
as the picture is shown: both clocks are this machine's.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, Protocol

import numpy as np
from rich.console import Console
from rich.table import Table

from avatar_server.bench.children import BenchError, child

PATHS = ("ours", "stock-vp8", "stock-h264")
_SERVER_PATHS = {"ours": "reply", "stock-vp8": "VP8", "stock-h264": "H264"}
_CONNECT_TIMEOUT_S = 20.0
_SETTLE_S = 3.0
"""Before measuring: the browser's jitter buffer and decoder have settled by then."""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


class Between(Protocol):
    """Something between server and browser, such as a link that loses packets."""

    async def rewrite(self, answer: str) -> str:
        """The SDP answer that leads the browser to it."""
        ...

    def close(self) -> None: ...


def find_browser(browser: str | None = None) -> str:
    """The path of a Chromium; raises `BenchError` with what to install."""
    names = (browser,) if browser else ("chromium", "chromium-browser", "google-chrome")
    for name in names:
        if found := shutil.which(name):
            return found
    raise BenchError(
        f"there is no {' or '.join(names)} here: install Chromium (on Debian the package chromium) "
        "or name one with --browser"
    )


def bench_browser(
    seconds: float = 60.0,
    paths: Sequence[str] = PATHS,
    browser: str | None = None,
    between: Between | None = None,
    during: Callable[[], Awaitable[None]] | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure each of `paths` for `seconds`, one after the other.

    Per path: `fps` decoded, `frames_decoded`, `freezes` and `freeze_ms` as the browser counts
    them, `frames_dropped`, `latency_ms` {"p50", "p95", "max"} from the beginning of drawing to the
    canvas, `longest_gap_ms` between two pictures shown, `unread` pictures whose time could not be
    read, `shown`, `packets_lost`, `size`, `decoder`, and `server_cpu_ms_per_s`.

    For tests: something can be put `between` server and browser, and `during` runs beside the
    measurement of one path. Raises `BenchError` where playwright or a browser is missing, or no
    connection comes about.
    """
    unknown = [path for path in paths if path not in PATHS]
    if unknown:
        raise BenchError(f"there is no path {unknown[0]!r}: choose of {', '.join(PATHS)}")
    executable = find_browser(browser)
    try:
        import playwright.async_api  # noqa: F401
    except ImportError as error:
        raise BenchError(
            "bench browser drives the browser with playwright, which is not installed: "
            "pip install 'avatar-server[test]'"
        ) from error

    async def run() -> dict[str, Any]:
        figures = {}
        for path in paths:
            progress(f"{path}: {seconds:.0f} s")
            figures[path.replace("-", "_")] = await _measure(
                path, seconds, executable, between, during
            )
        return {"seconds": seconds, **figures}

    return asyncio.run(run())


async def _measure(
    path: str,
    seconds: float,
    executable: str,
    between: Between | None,
    during: Callable[[], Awaitable[None]] | None,
) -> dict[str, Any]:
    from playwright.async_api import Error, async_playwright

    script = files("avatar_server.bench").joinpath("browser.js").read_text("utf-8")
    async with child("media_server") as server, async_playwright() as playwright:
        await server.ask(do="start", path=_SERVER_PATHS[path], stamped=True)
        try:
            chromium = await playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        except Error as error:
            raise BenchError(f"{executable} does not start: {error.message}") from error
        try:
            page = await chromium.new_page(viewport={"width": 1280, "height": 720})
            await page.evaluate(script)
            offer = await page.evaluate("bench.offer()")
            # Names that only the browser's own host resolves, which aiortc would wait for.
            offer = re.sub(r"a=candidate:\S+ .*\.local .*\r\n", "", offer)
            answer = (await server.ask(do="offer", viewer="browser", sdp=offer))["sdp"]
            if between is not None:
                answer = await between.rewrite(answer)
            await page.evaluate("sdp => bench.answer(sdp)", answer)
            await _first_pictures(page)
            await asyncio.sleep(_SETTLE_S)
            await page.evaluate("bench.begin()")
            before = await page.evaluate("bench.counters()")
            measuring = asyncio.create_task(server.ask(do="measure", seconds=seconds))
            if during is not None:
                await during()
            measured = await measuring
            after = await page.evaluate("bench.counters()")
            seen = await page.evaluate("bench.seen()")
        finally:
            await chromium.close()
            if between is not None:
                between.close()
    return _figures(before, after, seen, measured)


async def _first_pictures(page: Any) -> None:
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            while await page.evaluate("bench.shown()") < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        raise BenchError(
            f"the browser showed no picture within {_CONNECT_TIMEOUT_S:.0f} s"
        ) from error


def _figures(
    before: dict[str, Any], after: dict[str, Any], seen: dict[str, Any], server: dict[str, Any]
) -> dict[str, Any]:
    def grown(key: str) -> Any:
        return after[key] - before[key]

    latencies = seen["latencies"] or [float("nan")]
    p50, p95 = np.percentile(latencies, (50, 95))
    return {
        "fps": round(1e3 * grown("frames_decoded") / grown("at"), 2),
        "frames_decoded": grown("frames_decoded"),
        "freezes": grown("freezes"),
        "freeze_ms": round(1e3 * grown("freeze_s"), 1),
        "frames_dropped": grown("frames_dropped"),
        "latency_ms": {
            "p50": round(float(p50), 1),
            "p95": round(float(p95), 1),
            "max": round(max(latencies), 1),
        },
        "longest_gap_ms": round(seen["longest_gap_ms"], 1),
        "shown": grown("shown"),
        "unread": seen["unread"],
        "packets_lost": grown("packets_lost"),
        "keyframes": grown("keyframes"),
        "size": [after["width"], after["height"]],
        "decoder": after["decoder"],
        "server_cpu_ms_per_s": round(server["cpu_ms_per_s"], 1),
        "server_fps": round(server["frames_per_s"], 2),
    }


def print_table(figures: dict[str, Any]) -> None:
    """The figures for a person."""
    rows = {name: figures[name] for name in figures if name != "seconds"}
    title = f"In a browser, {figures['seconds']:.0f} s each"
    table = Table("", *(name.replace("_", " ") for name in rows), title=title)
    lines: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
        ("frames/s decoded", lambda f: f"{f['fps']:.1f}"),
        ("freezes", lambda f: f"{f['freezes']} ({f['freeze_ms']:.0f} ms)"),
        ("server to canvas, p50", lambda f: f"{f['latency_ms']['p50']:.0f} ms"),
        ("server to canvas, p95", lambda f: f"{f['latency_ms']['p95']:.0f} ms"),
        ("longest gap", lambda f: f"{f['longest_gap_ms']:.0f} ms"),
        ("server's CPU a second", lambda f: f"{f['server_cpu_ms_per_s']:.0f} ms"),
    )
    for label, read in lines:
        table.add_row(label, *(read(each) for each in rows.values()))
    Console(highlight=False).print(table)
