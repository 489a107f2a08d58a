"""Short remarks that cover the wait for a late answer ("Let me think."), made ahead.

They are no answers: what was said so is kept out of the history and out of the latency of the
turn, and the answer follows as soon as it is there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from avatar_server.avatar.clip import SAMPLE_RATE_HZ
from avatar_server.avatar.inference_client import Inference, JobEvent
from avatar_server.protocol.messages import JobFailed, ReplyAudio, ReplyEnd, Say

log = logging.getLogger(__name__)

_MAX_S = 2.5
# A longer remark would hold up the answer that it is to cover the wait for.
_PAUSE_S = 0.3
# Between the remark's end and the answer, or they run into one another.
_TRUST = 0.65
# Of a foreseen wait: answers are often sooner there than was foreseen, and then wait for the end.

DEFAULTS = {
    "en": ["Let me think.", "Hmm, one moment.", "Let me see."],
    "de": ["Einen Moment.", "Lass mich überlegen."],
    "es": ["Un momento.", "Déjame pensar."],
    "fr": ["Un instant.", "Laissez-moi réfléchir."],
    "it": ["Un momento.", "Fammi pensare."],
}
"""For avatars that have none of their own, by language."""


@dataclass(slots=True)
class Remark:
    """A remark in the avatar's voice."""

    text: str
    pieces: list[ReplyAudio] = field(default_factory=list)

    @property
    def duration_s(self) -> float:
        return sum(len(piece.pcm) for piece in self.pieces) / 2 / SAMPLE_RATE_HZ


class Acknowledgements:
    """The remarks of one session; each is asked of inference once, one after the other."""

    def __init__(self, session: str, inference: Inference, texts: Sequence[str]) -> None:
        self._session, self._inference = session, inference
        self._wanted = [Remark(text) for text in texts]
        self._ready: list[Remark] = []
        self._asked: str | None = None
        self._jobs = 0

    def tick(self) -> None:
        """Have the next one made, where inference can: it does so while nobody waits for it."""
        if self._asked is not None or not self._wanted or not self._inference.available:
            return
        self._jobs += 1
        self._asked = f"remark-{self._jobs}"
        remark = self._wanted[0]
        remark.pieces.clear()
        job = Say(session=self._session, job=self._asked, text=remark.text, ahead=True)
        self._inference.submit(job, lambda event: self._on_event(remark, event))

    def fitting(self, wait_s: float) -> Remark | None:
        """The next remark that is over well before an answer in `wait_s`; it goes to the end."""
        for remark in self._ready:
            if remark.duration_s + _PAUSE_S <= _TRUST * wait_s:
                self._ready.remove(remark)
                self._ready.append(remark)
                return remark
        return None

    def close(self) -> None:
        """Have no more made."""
        self._wanted.clear()
        if self._asked is not None:
            self._inference.cancel(self._asked)
            self._asked = None

    def _on_event(self, remark: Remark, event: JobEvent) -> None:
        if isinstance(event, ReplyAudio):
            remark.pieces.append(event)
            return
        self._asked = None
        if isinstance(event, ReplyEnd):
            self._wanted.remove(remark)
            if 0 < remark.duration_s <= _MAX_S:
                self._ready.append(remark)
            else:
                log.warning("%r takes %.1f s: not used", remark.text, remark.duration_s)
        elif isinstance(event, JobFailed):
            log.warning("%r could not be made: %s", remark.text, event.message)
            self._wanted.remove(remark)
