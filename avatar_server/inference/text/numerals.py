"""Figures in English text to words: numbers, money, dates, times, units."""

from __future__ import annotations

import re
from collections.abc import Callable

from num2words import num2words

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b\.?"
)
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_SCALE = "hundred|thousand|million|billion|trillion"
_SCALE_LETTERS = {"k": "thousand", "m": "million", "bn": "billion", "b": "billion", "t": "trillion"}
_CURRENCIES: dict[str, tuple[str, str, str, str]] = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "sen", "sen"),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "USD": ("US dollar", "US dollars", "cent", "cents"),
    "EUR": ("euro", "euros", "cent", "cents"),
    "GBP": ("pound", "pounds", "penny", "pence"),
    "JPY": ("yen", "yen", "sen", "sen"),
}
_UNITS: dict[str, tuple[str, str]] = {
    "km/h": ("kilometre per hour", "kilometres per hour"),
    "m/s": ("metre per second", "metres per second"),
    "mph": ("mile per hour", "miles per hour"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "km²": ("square kilometre", "square kilometres"),
    "m²": ("square metre", "square metres"),
    "m³": ("cubic metre", "cubic metres"),
    "km": ("kilometre", "kilometres"),
    "cm": ("centimetre", "centimetres"),
    "mm": ("millimetre", "millimetres"),
    "nm": ("nanometre", "nanometres"),
    "kg": ("kilogram", "kilograms"),
    "mg": ("milligram", "milligrams"),
    "lbs": ("pound", "pounds"),
    "lb": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "ft": ("foot", "feet"),
    "yd": ("yard", "yards"),
    "mi": ("mile", "miles"),
    "ml": ("millilitre", "millilitres"),
    "ms": ("millisecond", "milliseconds"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "hrs": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "Hz": ("hertz", "hertz"),
    "KB": ("kilobyte", "kilobytes"),
    "kB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"),
    "fps": ("frame per second", "frames per second"),
    "kW": ("kilowatt", "kilowatts"),
    "MW": ("megawatt", "megawatts"),
    "mA": ("milliampere", "milliamperes"),
    "dB": ("decibel", "decibels"),
    "px": ("pixel", "pixels"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "°": ("degree", "degrees"),
    "m": ("metre", "metres"),
    "g": ("gram", "grams"),
    "L": ("litre", "litres"),
    "V": ("volt", "volts"),
    "W": ("watt", "watts"),
    "h": ("hour", "hours"),
    "s": ("second", "seconds"),
}
_UNIT = "|".join(re.escape(u) for u in sorted(_UNITS, key=len, reverse=True))
_ARTICLE = re.compile(r"\b(?:an?)\s$", re.IGNORECASE)
"""Before a measure that describes a noun: a ten kilometre run."""
_FRACTIONS = {
    "½": "one half",
    "⅓": "one third",
    "⅔": "two thirds",
    "¼": "one quarter",
    "¾": "three quarters",
    "⅕": "one fifth",
    "⅛": "one eighth",
}
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_LONGEST_NUMBER = 15
"""Digits up to which a number is read as one; longer ones digit by digit."""


def number_words(written: str) -> str:
    """A number such as `1,234.5` in words; digit by digit where it is no quantity."""
    whole, _, fraction = written.replace(",", "").partition(".")
    if len(whole) > _LONGEST_NUMBER or (len(whole) > 1 and whole.startswith("0")):
        words = digit_words(whole)
    else:
        words = _cardinal(int(whole or "0"))
    return f"{words} point {digit_words(fraction)}" if fraction else words


def digit_words(digits: str) -> str:
    """Every digit by itself."""
    return " ".join(_DIGITS[int(digit)] for digit in digits)


def year_words(year: int) -> str:
    """A year as one says it: nineteen eighty-four, two thousand and five, twenty twenty-six."""
    return str(num2words(year, to="year")).replace(",", "").replace("oh-", "oh ")


def ordinal_words(number: int) -> str:
    """First, second, twenty-first."""
    return str(num2words(number, to="ordinal")).replace(",", "")


def spell_out(text: str) -> str:
    """English `text` with all figures in words."""
    for pattern, replace in _RULES:
        text = pattern.sub(replace, text)
    return text


def _cardinal(number: int) -> str:
    return str(num2words(number)).replace(",", "")


def _money(symbol: str, amount: str, scale: str | None) -> str:
    one, many, cent, cents = _CURRENCIES[symbol]
    if scale:
        return f"{number_words(amount)} {_SCALE_LETTERS.get(scale.lower(), scale.lower())} {many}"
    whole, _, fraction = amount.partition(".")
    units = int(whole.replace(",", ""))
    if fraction and len(fraction) != 2:
        return f"{number_words(amount)} {many}"
    small = int(fraction or "0")
    parts = []
    if units or not small:
        parts.append(f"{number_words(whole)} {one if units == 1 else many}")
    if small:
        parts.append(f"{_cardinal(small)} {cent if small == 1 else cents}")
    return " and ".join(parts)


def _time(hour: int, minute: int, half: str | None) -> str:
    half_words = f" {half.lower()}.m." if half else ""
    if minute == 0:
        if half_words:
            return _cardinal(hour) + half_words
        return f"{_cardinal(hour)} o'clock" if 1 <= hour <= 12 else f"{_cardinal(hour)} hundred"
    minutes = f"oh {_cardinal(minute)}" if minute < 10 else _cardinal(minute)
    return f"{_cardinal(hour)} {minutes}{half_words}"


def _clock(match: re.Match[str]) -> str:
    hour, minute = int(match["hour"]), int(match["minute"] or "0")
    if hour > 24 or minute > 59:
        return f"{_cardinal(hour)} {_cardinal(minute)}"
    return _time(hour, minute, match["half"])


def _date(year: str | None, month: int, day: int) -> str:
    words = f"{_MONTHS[month - 1]} {ordinal_words(day)}"
    return f"{words} {year_words(int(year))}" if year else words


def _iso_date(match: re.Match[str]) -> str:
    month, day = int(match["month"]), int(match["day"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return " ".join(number_words(match[name]) for name in ("year", "month", "day"))
    return _date(match["year"], month, day)


def _month_name(written: str) -> str:
    start = written[:3].lower()
    return next(month for month in _MONTHS if month.lower().startswith(start))


def _month_day(match: re.Match[str]) -> str:
    day = int(match["day"])
    if not 1 <= day <= 31:
        return match.group()
    words = f"{_month_name(match['month'])} {ordinal_words(day)}"
    return f"{words}, {year_words(int(match['year']))}" if match["year"] else words


def _day_month(match: re.Match[str]) -> str:
    day = int(match["day"])
    if not 1 <= day <= 31:
        return match.group()
    words = f"the {ordinal_words(day)} of {_month_name(match['month'])}"
    if match["the"]:
        words = words.removeprefix("the ")
        words = f"{match['the']}{words}"
    return f"{words} {year_words(int(match['year']))}" if match["year"] else words


def _month_year(match: re.Match[str]) -> str:
    return f"{_month_name(match['month'])} {year_words(int(match['year']))}"


def _decade(match: re.Match[str]) -> str:
    digits = match["decade"] or match["short"]
    words = year_words(int(digits)) if len(digits) == 4 else _cardinal(int(digits))
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


def _unit(match: re.Match[str]) -> str:
    one, many = _UNITS[match["unit"]]
    number = match["number"]
    sign = "minus " if match["sign"] else ""
    single = number == "1" or _ARTICLE.search(match.string[: match.start()])
    return f"{sign}{number_words(number)} {one if single else many}"


def _fraction(match: re.Match[str]) -> str:
    top, bottom = int(match["top"]), int(match["bottom"])
    if not 0 < top < bottom <= 100:
        return f"{_cardinal(top)} {_cardinal(bottom)}"
    name = {2: "half", 4: "quarter"}.get(bottom) or ordinal_words(bottom)
    plural = {2: "halves"}.get(bottom, f"{name}s")
    return f"{_cardinal(top)} {name if top == 1 else plural}"


def _range(match: re.Match[str]) -> str:
    return f"{_plain(match['low'])} to {_plain(match['high'])}"


def _plain(written: str) -> str:
    if re.fullmatch(r"1[1-9]\d\d|20[1-9]\d", written):
        return year_words(int(written))
    return number_words(written)


def _phone(match: re.Match[str]) -> str:
    groups = re.findall(r"\d+", match.group())
    plus = "plus " if match.group().startswith("+") else ""
    return plus + ", ".join(digit_words(group) for group in groups)


def _dotted(match: re.Match[str]) -> str:
    return " point ".join(number_words(part) for part in match.group().split("."))


def _sum(match: re.Match[str]) -> str:
    word = {"+": "plus", "-": "minus", "−": "minus", "*": "times", "x": "times", "/": "over"}
    word |= {"=": "equals", "<": "is less than", ">": "is more than"}
    return f" {word[match['sign']]} "


Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]


def _rule(pattern: str, replace: Callable[[re.Match[str]], str], flags: int = 0) -> Rule:
    return re.compile(pattern, flags), replace


_START = r"(?<![\w.,])"
_END = r"(?![\w])(?![.,]\d)"
_RULES: list[Rule] = [
    _rule(
        r"(?<!\w)(?P<feet>\d)['’′]\s?(?P<inches>\d\d?)(?:[\"”″]|'')",
        lambda m: f"{_cardinal(int(m['feet']))} foot {_cardinal(int(m['inches']))}",
    ),
    _rule("[½⅓⅔¼¾⅕⅛]", lambda m: f" {_FRACTIONS[m.group()]} "),
    _rule(rf"{_START}(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)", _iso_date),
    _rule(rf"{_START}(?P<month>\d\d?)/(?P<day>\d\d?)/(?P<year>\d{{4}}){_END}", _iso_date),
    _rule(
        rf"\b(?P<month>{_MONTH})\s+(?P<day>\d\d?)(?:st|nd|rd|th)?(?:,?\s+(?P<year>\d{{4}}))?{_END}",
        _month_day,
    ),
    _rule(
        rf"(?P<the>\b[Tt]he\s+)?(?<![\w.,])(?P<day>\d\d?)(?:st|nd|rd|th)?(?:\s+of)?\s+"
        rf"(?P<month>{_MONTH})(?:,?\s+(?P<year>\d{{4}}))?(?!\w)",
        _day_month,
    ),
    _rule(rf"\b(?P<month>{_MONTH})\s+(?P<year>\d{{4}}){_END}", _month_year),
    _rule(
        rf"{_START}(?P<hour>\d\d?):(?P<minute>\d\d)(?::\d\d)?(?:\s*(?P<half>[ap])\.?m\b\.?)?(?!\d)",
        _clock,
        re.IGNORECASE,
    ),
    _rule(rf"{_START}(?P<hour>\d\d?)(?P<minute>)\s*(?P<half>[ap])\.?m\b\.?", _clock, re.IGNORECASE),
    _rule(
        rf"(?P<symbol>[$€£¥₹]|\b(?:USD|EUR|GBP|JPY)\s?)\s?(?P<amount>{_NUMBER})"
        rf"(?:\s(?P<scale>{_SCALE})\b|(?P<letter>k|m|bn|b|t)\b)?",
        lambda m: _money(m["symbol"].strip(), m["amount"], m["scale"] or m["letter"]),
        re.IGNORECASE,
    ),
    _rule(
        rf"{_START}(?P<amount>{_NUMBER})\s?(?P<symbol>[€£¥₹]|(?:USD|EUR|GBP|JPY)\b)",
        lambda m: _money(m["symbol"], m["amount"], None),
    ),
    _rule(
        rf"\+\d{{1,3}}(?:[ -]\d{{2,4}}){{2,5}}{_END}|{_START}\d{{3}}-\d{{3,4}}(?:-\d{{4}})?{_END}",
        _phone,
    ),
    _rule(rf"{_START}\d+(?:\.\d+){{2,}}", _dotted),
    _rule(r"(?<![\w.,])(?:(?P<decade>\d{3}0)|(?:(?<=the )|['’])(?P<short>\d0))['’]?s\b", _decade),
    _rule(
        rf"{_START}(?P<low>{_NUMBER})\s?%?\s?[-–—]\s?(?P<high>{_NUMBER})(?=\s?%)",
        _range,
    ),
    _rule(
        rf"(?P<sign>(?<![\w)])[-−])?(?<![\w.,])(?P<number>{_NUMBER})\s?%",
        lambda m: f"{'minus ' if m['sign'] else ''}{number_words(m['number'])} percent",
    ),
    _rule(
        rf"{_START}(?P<low>{_NUMBER})\s?[-–—]\s?(?P<number>{_NUMBER})\s?(?P<unit>{_UNIT})(?![\w/²³])",
        lambda m: f"{number_words(m['low'])} to {number_words(m['number'])} {_UNITS[m['unit']][1]}",
    ),
    _rule(
        rf"(?P<sign>(?<![\w)])[-−])?(?<![\w.,])(?P<number>{_NUMBER})(?:\s?|-)(?P<unit>{_UNIT})(?![\w/²³])",
        _unit,
    ),
    _rule(rf"{_START}(?P<number>\d+)(?:st|nd|rd|th)\b", lambda m: ordinal_words(int(m["number"]))),
    _rule(r"(?<=\d)\s*(?P<sign>[+*=<>]|(?<=\s)[-−x/](?=\s))\s*(?=\d)", _sum),
    _rule(rf"{_START}24/7{_END}", lambda m: "twenty-four seven"),
    _rule(rf"{_START}(?P<top>\d{{1,3}})/(?P<bottom>\d{{1,3}}){_END}", _fraction),
    _rule(rf"{_START}(?P<low>{_NUMBER})\s?[–—-]\s?(?P<high>{_NUMBER}){_END}", _range),
    _rule(r"(?<![\w)])[-−](?=\d)", lambda m: "minus "),
    _rule(
        rf"{_START}(?P<number>{_NUMBER})(?P<letter>k|bn)\b",
        lambda m: f"{number_words(m['number'])} {_SCALE_LETTERS[m['letter']]}",
    ),
    _rule(r"(?<=[A-Za-z])-?(?=\d)|(?<=\d)(?=[A-Za-z])", lambda m: " "),
    _rule(
        rf"{_START}(?:1[1-9]\d\d|20[1-9]\d)(?![\d,]*\d)(?!\.\d)",
        lambda m: year_words(int(m.group())),
    ),
    _rule(_NUMBER, lambda m: f"{number_words(m.group())}"),
]
