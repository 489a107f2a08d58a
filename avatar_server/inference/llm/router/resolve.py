"""A continuation in full: the earlier request and the change, in words.

No rewriting: the two are put side by side, which a language model, a person or a tool's
argument parser can read, and which invents nothing.
"""

from __future__ import annotations

import re

from avatar_server.inference.llm.router.features import unspaced

_LEAD_EN = re.compile(
    r"^(?:(?:um+|uh+|er+|hm+|oh|ok(?:ay)?|well|so|sorry|please|actually|and|also|then|now)\b"
    r"[,. ]*)+",
    re.IGNORECASE,
)
_LEAD_JA = re.compile(r"^(?:(?:えっと|えーと|あのー?|うーん|あ|じゃあ?|それじゃ|あと|で)[、。 ]+)+")
_AGAIN = re.compile(
    r"^(?:(?:and|ok|okay|please|do it|try|try it|run it|run that|do that|once|one more time)\b ?)*"
    r"(?:again|once more|one more time)?(?: please)?$",
    re.IGNORECASE,
)
_AGREED = re.compile(
    r"^(?:yes|yeah|yep|yup|sure|okay|ok|do it|go ahead|please do|go on|continue|carry on|"
    r"はい|うん|お願い|お願いします|続けて|続き)(?: please)?[.!。！]*$",
    re.IGNORECASE,
)


def merge(request: str, change: str) -> str:
    """The request with the change applied: "run the tests, with coverage"."""
    base = request.strip().rstrip(".!?。！？ ")
    japanese = unspaced(change) or unspaced(base)
    lead = _LEAD_JA if japanese else _LEAD_EN
    said = change.strip().rstrip(".!。！ ")
    rest = lead.sub("", said).strip() or said
    if _AGREED.match(change.strip()) or (not japanese and _AGAIN.match(rest)):
        return base
    return f"{base}{'、' if japanese else ', '}{rest}"
