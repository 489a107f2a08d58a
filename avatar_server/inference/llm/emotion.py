"""What the face shows with a clause of a reply.

A capable language model may say so itself, by a tag at the beginning of a sentence (`[happy]`)
that is never spoken. Otherwise, and for fixed replies, the words decide, by the first of these that
fits:

1. compassion ("I'm sorry to hear that") and bad news: sad
2. excuses ("I'm sorry", "I'm afraid", "unfortunately"): apologetic
3. exclamations of wonder ("Wow", "Really?", "?!"): surprised
4. words of somebody who considers ("Hmm", "let me think", "that depends"): thinking
5. greetings, thanks, praise, joy, or a sentence that ends in "!": happy
6. for a reply's first clause, what the viewer said: bad news sad, good news and greetings happy
7. nothing: the face stays as it is
"""

from __future__ import annotations

import re

EMOTIONS = ("neutral", "happy", "sad", "surprised", "thinking", "apologetic")

TAGS_IN_PROMPT = (
    "You have a face: where it helps, begin a sentence with one of "
    f"{', '.join(f'[{name}]' for name in EMOTIONS[1:])}; that is shown and never spoken."
)

_TAG = re.compile(rf"\[({'|'.join(EMOTIONS)})\]", re.IGNORECASE)
_MARKS = {chr(0xE000 + number): name for number, name in enumerate(EMOTIONS)}
"""Characters for private use, each of which stands for an emotion within text on its way to
speech: no reply contains them, and no cut between clauses parts them from their word."""
_MARK_OF = {name: mark for mark, name in _MARKS.items()}
_MARK = re.compile(f"[{''.join(_MARKS)}]")

_SAD = re.compile(
    r"\b(sorry (for your loss|to hear)|(that'?s|that is|that must be|how) (so |very |really )?"
    r"(sad|hard|tough|awful|terrible|painful)|condolences|heartbreaking|passed away"
    r"|i feel for you)\b"
    r"|お気の毒|お悔やみ|悲しい|つらかった|つらい|残念で",
    re.IGNORECASE,
)
_APOLOGETIC = re.compile(
    r"\b(sorry|apologi[sz]e|apologies|i'?m afraid|i am afraid|unfortunately|my mistake|regret)\b"
    r"|すみません|申し訳|ごめん|あいにく",
    re.IGNORECASE,
)
_SURPRISED = re.compile(
    r"^\W*(wow|whoa|oh my|no way|really\?|what a surprise|goodness|incredible)\b"
    r"|\b(unbelievable|astonishing|you won't believe|what a surprise)\b|\?!|!\?|^\W*really\?"
    r"|^えっ|まさか|びっくり|驚い|信じられ",
    re.IGNORECASE,
)
_THINKING = re.compile(
    r"^\W*(h+m+|let me (think|see|check)|good question|one moment|that depends|let's see)\b"
    r"|\b(i wonder|hard to say|it depends)\b|^えーと|^えっと|^うーん|^そうですね|考えさせて",
    re.IGNORECASE,
)
_HAPPY = re.compile(
    r"\b(hi|hello|hey|welcome|glad|happy|delighted|pleasure|nice to meet|good to see|thank(s| you)"
    r"|haha|joke|funny|wonderful|great|lovely|congratulations|i love|fun|cheers|goodbye|bye)\b"
    r"|[!！]\s*$|こんにちは|はじめまして|ありがとう|うれしい|嬉しい|楽しい|おめでとう|よかった|さようなら",
    re.IGNORECASE,
)
_SAD_NEWS = re.compile(
    r"\b(died|passed away|funeral|broke up|divorce|cancer|i('m| am| feel) (so |very )?"
    r"(sad|lonely|depressed|heartbroken)|i (lost|miss) my)\b|亡くな|死ん|悲し|寂し|別れた",
    re.IGNORECASE,
)
_GOOD_NEWS = re.compile(
    r"\b(hi|hello|hey|thank(s| you)|i won|i passed|got the job|i'm so happy|tell me a joke"
    r"|birthday)\b"
    r"|こんにちは|はじめまして|ありがとう|うれしい|嬉しい|合格|誕生日",
    re.IGNORECASE,
)


def emotion_of(clause: str, question: str = "") -> str:
    """The emotion of a clause by its words, and of what it answers; empty where there is none.

    `question` is what the viewer said, for a reply's first clause.
    """
    for pattern, name in (
        (_SAD, "sad"),
        (_APOLOGETIC, "apologetic"),
        (_SURPRISED, "surprised"),
        (_THINKING, "thinking"),
        (_HAPPY, "happy"),
    ):
        if pattern.search(clause):
            return name
    if question and _SAD_NEWS.search(question):
        return "sad"
    if question and _GOOD_NEWS.search(question):
        return "happy"
    return ""


def leading_tag(text: str) -> tuple[str, str]:
    """(mark, rest) of a word that begins with a tag; ("", `text`) for any other."""
    found = _TAG.match(text)
    return (_MARK_OF[found[1].lower()], text[found.end() :]) if found else ("", text)


def without_marks(text: str) -> tuple[str, str]:
    """`text` without marks and tags, and the last emotion they name; empty where there are none."""
    named = [_MARKS[mark] for mark in _MARK.findall(text)]
    named += [name.lower() for name in _TAG.findall(text)]
    if not named:
        return text, ""
    return re.sub(r"[^\S\n]{2,}", " ", _TAG.sub("", _MARK.sub("", text))).strip(), named[-1]
