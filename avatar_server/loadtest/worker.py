"""A process with some viewers of one session: `python -m avatar_server.loadtest.worker`.

Reads an `Order` on standard input, then `Command`s; prints `Report`s. Its input's end is the end
of the load test: it leaves the session and exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import signal
import sys
import time
from pathlib import Path

import httpx
import msgspec

from avatar_server.loadtest.figures import av_offsets_ms, fps_by_second, freezes, intervals_ms
from avatar_server.loadtest.meter import Meter
from avatar_server.loadtest.packet_microphone import EncodedUtterance, encode_utterance
from avatar_server.loadtest.results import (
    Command,
    Connection,
    Failed,
    Finished,
    Joined,
    Order,
    Refused,
    Report,
    Second,
    Settled,
    Talked,
    Turn,
    encode_line,
)
from avatar_server.loadtest.speech import recorded
from avatar_server.loadtest.talker import LOST_AFTER_S, ConnectionLost, Talker
from avatar_server.loadtest.viewer import SyntheticViewer, ViewerError
from avatar_server.protocol import events

_LAG_EVERY_S = 0.05
_REJOIN_EVERY_S = 0.25
_REJOIN_TIMEOUT_S = 30.0
"""A session that does not take its viewers back by then has failed."""
_LIMITED_S, _LIMITED_EVERY_S = 45.0, 5.0
"""Real viewers come from many addresses: a limit on ours is no refusal."""
_NICE = -15
"""Viewers sit elsewhere: here they must note each packet when it comes, whatever the server does
with the CPU. Only where the system allows it."""


def send(report: Report) -> None:
    """Print a report."""
    sys.stdout.buffer.write(encode_line(report))
    sys.stdout.buffer.flush()


class LoadViewer:
    """One viewer over all its connections: a lost one is made again, as the page does."""

    def __init__(self, order: Order, number: int, clips: list[EncodedUtterance]) -> None:
        self.number = number
        self.meters: list[Meter] = []
        self.session = order.id
        self._order = order
        self._clips = clips
        self._speaks = number == 0
        self._choice = random.Random(f"{order.seed}/{order.session}/{number}")
        self._viewer: SyntheticViewer | None = None
        self._notes: list[tuple[float, str]] = []

    async def join(self) -> None:
        """Raises `ViewerError`."""
        meter = Meter(listen=self._speaks)
        viewer = SyntheticViewer(
            self._order.url,
            avatar=None if self.session else self._order.avatar,
            session=self.session or None,
            speak=self._speaks,
            meter=meter,
        )
        asked = time.monotonic()
        try:
            await viewer.join()
        except BaseException:
            await viewer.leave()
            raise
        self._viewer = viewer
        self.meters.append(meter)
        self.session = str(viewer.session)
        if self._speaks:
            now = time.monotonic()
            send(
                Joined(
                    session=self._order.session,
                    id=self.session,
                    avatar=self._order.avatar,
                    at=now,
                    took_s=round(now - asked, 3),
                )
            )

    async def settle(self) -> None:
        """The greeting is over."""
        if self._speaks and self._order.greets:
            await self._talker().settle()

    async def run(self, until: float) -> None:
        """Talk or watch until `until`; come back when the connection is lost."""
        while True:
            try:
                if self._speaks and self._order.talks:
                    await self._talker().talk(until)
                else:
                    await self._watch(until)
                return
            except ConnectionLost:
                self._notes.append((time.monotonic(), "connection lost"))
                if not await self._rejoin():
                    return

    def _talker(self) -> Talker:
        assert self._viewer is not None
        return Talker(
            self._viewer, self.meters[-1], self._order, self._clips, self._choice, self._tell
        )

    def _tell(self, turn: Turn) -> None:
        send(turn)

    async def _watch(self, until: float) -> None:
        while (now := time.monotonic()) < until:
            last = self.meters[-1].last_packet
            if last is not None and now - last > LOST_AFTER_S:
                raise ConnectionLost
            await asyncio.sleep(min(0.25, until - now))

    async def _rejoin(self) -> bool:
        deadline = time.monotonic() + _REJOIN_TIMEOUT_S
        await self.leave()
        why = ""
        while time.monotonic() < deadline:
            try:
                await self.join()
            except (ViewerError, httpx.HTTPError) as error:
                why = str(error)
                if isinstance(error, ViewerError) and error.status == 404:
                    break
                await asyncio.sleep(_REJOIN_EVERY_S)
                continue
            self._notes.append((time.monotonic(), "joined again"))
            return True
        self._notes.append((time.monotonic(), f"could not join again: {why}"))
        return False

    async def leave(self) -> None:
        """May be called twice."""
        viewer, self._viewer = self._viewer, None
        if viewer is not None:
            await viewer.leave()

    def second(self, lag_ms: float) -> Second:
        """The last second's figures."""
        meter = self.meters[-1]
        now = time.monotonic()
        rate = fps_by_second(meter.shown[-200:], now - 1, now)[0]
        stood = freezes(intervals_ms(meter.shown[-200:], now - 1, now), 100.0)
        states = (
            [e.state for _, e in self._viewer.events if isinstance(e, events.State)]
            if (self._viewer)
            else []
        )
        return Second(
            session=self._order.session,
            at=now,
            fps=round(rate, 1),
            state=states[-1] if states else "",
            lag_ms=round(lag_ms, 1),
            freezes=len(stood),
        )

    def finished(self, lags: list[tuple[float, float]]) -> Finished:
        """Everything that was received."""
        return Finished(
            session=self._order.session,
            viewer=self.number,
            connections=[connection(meter) for meter in self.meters],
            lags=lags,
            events=self._notes,
        )


def connection(meter: Meter) -> Connection:
    """A meter's series, rounded to 0.01 ms."""
    offsets = av_offsets_ms(meter.captured("video"), meter.captured("audio"))
    return Connection(
        shown=[round(at, 5) for at in meter.shown],
        pts=list(meter.pts),
        audio_pts=list(meter.audio_pts),
        audio_arrived=[round(at, 5) for at in meter.audio_arrived],
        offsets_ms=[round(offset, 2) for offset in offsets],
        octets=meter.octets,
        packets_lost=meter.packets_lost,
    )


class Worker:
    """The process's viewers, from order to end."""

    def __init__(self, order: Order, clips: list[EncodedUtterance]) -> None:
        self._order = order
        numbers = range(order.first, order.first + order.viewers)
        self._viewers = [LoadViewer(order, number, clips) for number in numbers]
        self._lags: list[tuple[float, float]] = []

    async def run(self, commands: asyncio.StreamReader) -> None:
        """Join, obey until told to end or the input ends, leave."""
        tasks = [asyncio.create_task(self._watch_lag())]
        try:
            joining = asyncio.create_task(self._enter(tasks))
            tasks.append(joining)
            while line := await commands.readline():
                command = msgspec.json.decode(line, type=Command)
                if command.do == "end":
                    for viewer in self._viewers:
                        send(viewer.finished(self._lags))
                    return
                tasks.append(asyncio.create_task(self._talk(command.until)))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(viewer.leave() for viewer in self._viewers))

    async def _enter(self, tasks: list[asyncio.Task[None]]) -> None:
        await self._join()
        if self._viewers and self._viewers[0].number == 0:
            tasks.append(asyncio.create_task(self._tell_seconds()))
        for viewer in self._viewers:
            with contextlib.suppress(ConnectionLost):
                await viewer.settle()
        send(Settled(session=self._order.session))

    async def _talk(self, until: float) -> None:
        await asyncio.gather(*(viewer.run(until) for viewer in self._viewers))
        send(Talked(session=self._order.session))

    async def _join(self) -> None:
        for viewer in list(self._viewers):
            viewer.session = viewer.session or self._viewers[0].session
            try:
                await self._join_patiently(viewer)
            except (ViewerError, httpx.HTTPError) as error:
                status = error.status if isinstance(error, ViewerError) else None
                message = str(error) or type(error).__name__
                send(
                    Refused(
                        session=self._order.session,
                        viewer=viewer.number,
                        status=status,
                        message=message,
                        at=time.monotonic(),
                    )
                )
                self._viewers.remove(viewer)
                if viewer.number == 0:
                    # Without the session there is nothing to watch.
                    self._viewers.clear()
                    return

    @staticmethod
    async def _join_patiently(viewer: LoadViewer) -> None:
        """Join; where the server lets one address in so often only, later."""
        deadline = time.monotonic() + _LIMITED_S
        while True:
            try:
                await viewer.join()
                return
            except ViewerError as error:
                if error.status != 429 or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_LIMITED_EVERY_S)

    async def _watch_lag(self) -> None:
        """How late this process gets the CPU: what it measures is off by as much."""
        while True:
            asked = time.monotonic()
            await asyncio.sleep(_LAG_EVERY_S)
            late = time.monotonic() - asked - _LAG_EVERY_S
            self._lags.append((round(asked, 3), round(max(0.0, late) * 1e3, 2)))

    async def _tell_seconds(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            recent = [lag for _, lag in self._lags[-20:]]
            send(self._viewers[0].second(max(recent, default=0.0)))


async def work() -> None:
    """Take the order and obey."""
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    order = msgspec.json.decode(await reader.readline(), type=Order)
    try:
        speaks = order.first == 0 and order.talks
        clips = [encode_utterance(each) for each in recorded(Path(order.speech))] if speaks else []
    except (OSError, ValueError) as error:
        send(Failed(session=order.session, message=str(error)))
        return
    gc.collect()
    gc.freeze()
    await Worker(order, clips).run(reader)


def main() -> None:
    """Entry of the process."""
    # Ctrl-C is the parent's to handle: our input ends with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    asyncio.run(work())


if __name__ == "__main__":
    main()
