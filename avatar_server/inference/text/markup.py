"""Markdown, HTML, emoji and addresses to plain text."""

from __future__ import annotations

import html
import re
import unicodedata

_FENCE = re.compile(r"```[ \t]*[\w+-]*[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_INLINE_CODE = re.compile(r"`+([^`\n]+)`+")
_IMAGE_OR_LINK = re.compile(r"!?\[([^\]\n]{0,300})\](?:\([^)\n]{0,500}\)|\[[^\]\n]{0,100}\])")
_FOOTNOTE = re.compile(r"\[\^?[\w-]{1,3}\]")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9-]*(?:\s+[^<>\n]*)?/?>")
_RULE = re.compile(
    r"^[ \t]{0,8}(?:[-*_][ \t]{0,8}){3,}$|^[ \t]{0,8}(?=[|:-])[ \t:|-]*---[ \t:|-]*$|^=+$",
    re.MULTILINE,
)
_LINE_START = re.compile(
    r"^[ \t]*(?:(?:>[ \t]?)+|#{1,6}[ \t]+|[-*+•‣◦][ \t]+)+(?:\[[ xX]\][ \t]+)?"
)
_NUMBERED = re.compile(r"^[ \t]*\(?(\d{1,3})[.)][ \t]+(?=\S)")
_EMPHASIS = re.compile(r"\*+|~~+|(?<!\w)_+|_+(?!\w)")
_ADDRESS = re.compile(
    r"\b(?:https?|ftp)://[^\s<>\"'）」、。]+|\bwww\.[^\s<>\"'）」、。]+", re.IGNORECASE
)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}\b")
_BARE_HOST = re.compile(
    r"(?<![\w.-])(?:[a-z0-9-]{1,63}\.){1,6}(?:com|org|net|edu|gov|io|dev|app|ai|co|uk|de|fr|jp|eu)\b(?:/[^\s]*)?",
    re.IGNORECASE,
)
_LONGEST_CODE = 60
"""Longer code is named, not read: nobody can follow it by ear."""

_SYMBOLS = {
    "→": " to ",
    "⇒": " means ",
    "←": " from ",
    "↔": " to and from ",
    "≈": " about ",
    "≠": " is not ",
    "≤": " at most ",
    "≥": " at least ",
    "±": " plus or minus ",
    "×": " times ",
    "÷": " divided by ",
    "√": " root of ",
    "∞": " infinity ",
    "©": " copyright ",
    "™": "",
    "®": "",
    "•": ", ",
    "·": " ",
    "…": "...",
    "\u00a0": " ",
    "\u200b": "",
    "\u00ad": "",
}
_CODE_WORDS = {
    ".": " dot ",
    "/": " slash ",
    "\\": " backslash ",
    "--": " dash dash ",
    "=": " equals ",
    "*": " star ",
    "#": " hash ",
    "+": " plus ",
    "@": " at ",
    "&": " and ",
    "%": " percent ",
    "$": " dollar ",
    "~": " tilde ",
    "|": " pipe ",
}
_LEFT_OVER = re.compile(r"[*_`#~|<>\[\]{}\\^]+")


def strip_markup(text: str, english: bool = True) -> str:
    """`text` as one line of plain text; code and addresses are put in words where `english`."""
    text = html.unescape(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", " ")
    text = _COMMENT.sub(" ", text)
    text = _FENCE.sub(lambda m: " " + _code(m.group(1), english) + " ", text)
    text = _INLINE_CODE.sub(lambda m: " " + _code(m.group(1), english) + " ", text)
    text = _IMAGE_OR_LINK.sub(r"\1", text)
    text = _FOOTNOTE.sub("", text)
    text = _EMAIL.sub(lambda m: spoken_address(m.group(), english), text)
    text = _ADDRESS.sub(lambda m: spoken_address(m.group(), english), text)
    if english:
        text = _BARE_HOST.sub(lambda m: spoken_address(m.group(), english), text)
    text = _TAG.sub(" ", text)
    text = _RULE.sub("", text)
    text = _join_lines(text)
    text = _EMPHASIS.sub("", text)
    if english:
        text = "".join(_SYMBOLS.get(char, char) for char in text)
    return without_emoji(text)


def drop_left_over(text: str) -> str:
    """Without the characters that only markup and code use."""
    return _LEFT_OVER.sub(" ", text)


def without_emoji(text: str) -> str:
    """Without pictures and what joins or colours them."""
    return "".join(" " if _is_picture(char) else char for char in text)


def spoken_address(address: str, english: bool = True) -> str:
    """A web or mail address as one says it: the host, and a path of one plain word."""
    end = ""
    while address and address[-1] in ".,;:!?)":
        address, end = address[:-1], address[-1] + end
    address = re.sub(r"^[a-z]+://", "", address, flags=re.IGNORECASE)
    address = re.sub(r"^www\.", "", address, flags=re.IGNORECASE)
    host, _, path = address.partition("/")
    host = host.partition("?")[0].partition("#")[0]
    path = path.strip("/").partition("?")[0].partition("#")[0]
    if not english:
        return host + end
    spoken = host.replace("@", " at ").replace(".", " dot ").replace("_", " underscore ")
    spoken = re.sub(r"(?<=\w)[-+:](?=\w)", " ", spoken)
    if path and re.fullmatch(r"[A-Za-z]{2,20}", path):
        spoken += f" slash {path}"
    return f" {spoken}{end} "


def _is_picture(char: str) -> bool:
    code = ord(char)
    if code < 0x80:
        return code < 0x20 and char not in "\n\t"
    if code in (0x200D, 0x20E3) or 0xFE00 <= code <= 0xFE0F or 0xE0000 <= code <= 0xE007F:
        return True
    if 0x1F000 <= code <= 0x1FAFF or 0x1F1E6 <= code <= 0x1F1FF:
        return True
    return unicodedata.category(char) in ("So", "Cs", "Co", "Cn", "Cc", "Cf") and char != "°"


def _code(code: str, english: bool) -> str:
    code = code.strip()
    if not english:
        return code
    if len(code) > _LONGEST_CODE or "\n" in code:
        return "some code"
    for symbol in ("--", *(s for s in _CODE_WORDS if s != "--")):
        if symbol == ".":
            code = re.sub(r"(?<=[A-Za-z])\.(?=\w)|(?<!\w)\.(?=[A-Za-z])", _CODE_WORDS["."], code)
        else:
            code = code.replace(symbol, _CODE_WORDS[symbol])
    return re.sub(r"[^\w\s.,'-]|_", " ", code)


def _join_lines(text: str) -> str:
    """Lines become sentences; list marks, quotes and headings lose their marks."""
    joined: list[str] = []
    lines = text.split("\n")
    for index, line in enumerate(lines):
        line = _LINE_START.sub("", line, count=1)
        line = _NUMBERED.sub(r"\1, ", line, count=1)
        if line.count("|") >= 2:
            line = ", ".join(cell.strip() for cell in line.strip().strip("|").split("|"))
        line = line.strip()
        if not line:
            continue
        broken = index < len(lines) - 1
        if broken and line[-1].isalnum() and not _continues(lines[index + 1]):
            line += "."
        joined.append(line)
    return " ".join(joined)


def _continues(line: str) -> bool:
    """Whether `line` carries on a sentence that was only wrapped."""
    return line.strip()[:1].islower()
