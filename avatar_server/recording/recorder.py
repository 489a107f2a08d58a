"""The thread that writes recordings. Media threads and event loop feed it, and never wait."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import av
import numpy as np
from aiortc.codecs import depayload
from aiortc.rtcrtpparameters import RTCRtpCodecParameters
from numpy.typing import NDArray

from avatar_server.avatar.pacing import VIDEO_CLOCK_HZ
from avatar_server.avatar.packets import EncodedVideo
from avatar_server.config import RecordingSettings
from avatar_server.protocol.events import Event
from avatar_server.protocol.messages import TurnTrace
from avatar_server.recording.captions import CaptionMaker
from avatar_server.recording.part import Part, Subject

log = logging.getLogger(__name__)

MOST_WAITING = 2_000
"""Items that wait to be written: some 12 s of one viewer's talk. What comes beyond is dropped."""
_WRITE_EVERY_S = 0.2
"""The thread wakes this often, rather than for each packet: it must not ask for the interpreter's
lock more often than needed."""
_LOOK_AT_DISK_EVERY_S = 5.0
_NICE = 10
_H264 = RTCRtpCodecParameters(mimeType="video/H264", clockRate=VIDEO_CLOCK_HZ)


class _Sound(NamedTuple):
    at: int
    pcm: NDArray[np.int16]


class _Voice(NamedTuple):
    viewer: str
    at: float
    pcm: NDArray[np.int16]


class _Viewer(NamedTuple):
    name: str
    here: bool


class _Said(NamedTuple):
    at: float
    event: Event


class _Turn(NamedTuple):
    at: float
    trace: TurnTrace


class _End(NamedTuple):
    at: float


_Item = EncodedVideo | _Sound | _Voice | _Viewer | _Said | _Turn | _End


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """`written_s` is the length of what was recorded, `cpu_s` what writing it took."""

    written_s: float
    cpu_s: float
    dropped: dict[str, int]


class Recorder:
    """Writes one session's recordings, one after the other: each from a keyframe on.

    All that feeds it may be called from any thread, and returns at once. Once it has failed it
    takes nothing until `restart`.
    """

    def __init__(
        self,
        settings: RecordingSettings,
        subject: Subject,
        fps: int,
        unix_time: Callable[[float], float],
        on_keyframe_wanted: Callable[[], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """`unix_time` is that of a media time. `on_keyframe_wanted` and `on_failed` (told why, in
        a sentence) are called on the recorder's thread.
        """
        self._settings, self._subject, self._fps = settings, subject, fps
        self._unix_time = unix_time
        self._ask_keyframe, self._on_failed = on_keyframe_wanted, on_failed
        self._items: deque[_Item] = deque()
        self._closing = threading.Event()
        self._failed = False
        self._dropped: Counter[str] = Counter()
        self._part: Part | None = None
        self._captions = CaptionMaker(subject.title, viewers=subject.viewer_text)
        self._viewers: set[str] = set()
        self._expected = -1
        self._broken = self._rolling = False
        self._look_at = 0.0
        self._finished_s = 0.0
        self._cpu_s = 0.0
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    # --- from any thread ------------------------------------------------------------------------

    def picture(self, frame: EncodedVideo) -> None:
        """A picture of the H.264 encode, as it is sent."""
        self._put("pictures", frame)

    def avatar_sound(self, at: int, pcm: NDArray[np.int16]) -> None:
        """The avatar's sound (int16, mono, 48 kHz) from sample `at` of media time on."""
        self._put("sound", _Sound(at, pcm))

    def viewer_sound(self, viewer: str, at: float, pcm: NDArray[np.int16]) -> None:
        """A piece of a viewer's sound (int16, mono, 16 kHz) that came at media time `at`."""
        if self._subject.viewer_sound:
            self._put("viewer_sound", _Voice(viewer, at, pcm))

    def viewer(self, name: str, here: bool) -> None:
        """A viewer has come or gone."""
        self._put("viewers", _Viewer(name, here))

    def said(self, at: float, event: Event) -> None:
        """An event that the pages are sent."""
        self._put("captions", _Said(at, event))

    def turn(self, at: float, trace: TurnTrace) -> None:
        """A turn is over that began at media time `at`."""
        self._put("turns", _Turn(at, trace))

    def end(self, at: float) -> None:
        """The talk is over: complete its files. The next keyframe begins others."""
        self._put("ends", _End(at))

    def restart(self) -> None:
        """Try again after a failure."""
        self._failed = False

    def close(self, timeout_s: float) -> None:
        """Write what waits and complete the files. Waits for the recorder's thread for at most
        `timeout_s`; files that it is still busy with then are left as they are, playable.
        """
        self._closing.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.warning("the recording could not be completed in time; it plays all the same")
            return
        # Here rather than there: a thread that gives way may wait for long, and the process ends.
        self._work()
        if self._part is not None:
            try:
                self._complete()
            except (OSError, av.FFmpegError) as error:
                log.warning("the recording could not be completed: %s", _reason(error))

    def stats(self) -> RecorderStats:
        part = self._part
        written_s = self._finished_s + (part.length_s if part else 0.0)
        return RecorderStats(written_s, self._cpu_s, dict(self._dropped))

    def _put(self, kind: str, item: _Item) -> None:
        if self._failed or self._closing.is_set():
            return
        # An end is never left out, or the next talk would be written into the same file.
        if len(self._items) >= MOST_WAITING and not isinstance(item, _End):
            self._dropped[kind] += 1
            return
        self._items.append(item)

    # --- on the recorder's thread, and at last on that which closes -------------------------------

    def _run(self) -> None:
        _give_way()
        while not self._closing.wait(_WRITE_EVERY_S):
            self._work()
            self._cpu_s = time.thread_time()

    def _work(self) -> None:
        try:
            self._drain()
        except (OSError, av.FFmpegError) as error:
            self._fail(_reason(error))
        except Exception:
            # Whatever is wrong with a recording, the talk goes on.
            log.exception("the recorder failed")
            self._fail("the recorder made an error, which is in the log")

    def _drain(self) -> None:
        while self._items:
            self._take(self._items.popleft())
        part = self._part
        if part is None:
            return
        part.mix()
        if part.length_s > self._settings.part_minutes * 60 and not self._rolling:
            self._rolling = True
            self._ask_keyframe()
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_AT_DISK_EVERY_S
            self._check_room()

    def _take(self, item: _Item) -> None:
        part = self._part
        match item:
            case EncodedVideo():
                self._take_picture(item)
            case _Viewer(name, here):
                (self._viewers.add if here else self._viewers.discard)(name)
                if part is not None:
                    (part.viewer if here else part.viewer_gone)(name)
            case _Said(at, event):
                for cue in self._captions.take(at, event):
                    if part is not None:
                        part.caption(cue)
            case _End(at):
                if part is not None:
                    for cue in self._captions.finish(at):
                        part.caption(cue)
                    self._complete()
            case _ if part is None:
                return
            case _Sound(at, pcm):
                part.avatar_sound(at, pcm)
            case _Voice(viewer, arrived, pcm):
                part.viewer_sound(viewer, arrived, pcm)
            case _Turn(at, trace):
                part.turn(at, trace)

    def _take_picture(self, frame: EncodedVideo) -> None:
        whole, self._expected = self._expected == frame.sequence, frame.sequence + 1
        part = self._part
        if not frame.keyframe:
            if part is not None and not whole and not self._broken:
                self._broken = True
                self._ask_keyframe()
            # What refers to a picture that is missing would show rubbish: the last one stands.
            if part is not None and not self._broken:
                part.picture(access_unit(frame), frame.timestamp, False)
            return
        self._broken = False
        stream = access_unit(frame)
        if part is not None and (self._rolling or not part.fits(stream)):
            self._complete()
            part = None
        if part is None:
            part = self._begin(stream, frame.timestamp)
        part.picture(stream, frame.timestamp, True)

    def _begin(self, keyframe: bytes, ticks: int) -> Part:
        self._check_room()
        now = self._unix_time(ticks / VIDEO_CLOCK_HZ)
        parent = self._settings.path
        part = Part(parent, self._subject, keyframe, ticks, now, self._fps)
        self._part, self._rolling = part, False
        for name in self._viewers:
            part.viewer(name)
        log.info("recording begins: %s", part.folder.name)
        return part

    def _complete(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            self._finished_s += part.length_s
            part.close(self._dropped)
            log.info("recording ended after %.0f s: %s", part.length_s, part.folder.name)

    def _check_room(self) -> None:
        """Raises `OSError` where the disk is nearly full."""
        folder = self._settings.path
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        free, wanted = shutil.disk_usage(folder).free, self._settings.keep_free_gb * 1e9
        if free < wanted:
            raise _NoRoom(
                f"the disk has {free / 1e9:.1f} GB left, less than recording.keep_free_gb "
                f"({wanted / 1e9:.1f} GB)"
            )

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._items.clear()
        part, self._part = self._part, None
        if part is not None:
            self._finished_s += part.length_s
            part.close(self._dropped, reason)
        log.error("the recording has stopped, and the conversation goes on: %s", reason)
        self._on_failed(reason)


class _NoRoom(OSError):
    """A sentence in place of a system's error."""


def access_unit(frame: EncodedVideo) -> bytes:
    """The picture as it left the encoder (Annex B), put together from its RTP payloads."""
    return b"".join(depayload(_H264, payload) for payload in frame.payloads)


def _reason(error: Exception) -> str:
    if isinstance(error, _NoRoom):
        return str(error)
    if isinstance(error, OSError) and error.errno and error.strerror:
        where = f" ({error.filename})" if error.filename else ""
        return f"it cannot be written: {error.strerror}{where}"
    return f"it cannot be written: {error}"


def _give_way() -> None:
    """Drawing and sending go first on a machine that has too much to do."""
    try:
        thread = threading.get_native_id()
        nice = max(_NICE, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, nice)
    except (AttributeError, OSError):
        log.debug("the recorder keeps its priority")
