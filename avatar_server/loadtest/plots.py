"""Plots as SVG text to put into a page; colours come from the page's style sheet.

Series are drawn with the classes `s0` to `s9`, so that a page can show them light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

_WIDTH, _HEIGHT = 860, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 26, 34
_CLASSES = 10

Points = Sequence[tuple[float, float | None]]


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from at or below `low` to at or above `high`."""
    span = max(high - low, 1e-9)
    rough = span / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


@dataclass(slots=True)
class _Axes:
    """Maps values to a plot's pixels and draws its grid."""

    x: list[float]
    y: list[float]
    x_name: str
    y_name: str
    height: int = _HEIGHT
    parts: list[str] = field(default_factory=list)

    def px(self, value: float) -> float:
        span = (self.x[-1] - self.x[0]) or 1.0
        return _LEFT + (value - self.x[0]) / span * (_WIDTH - _LEFT - _RIGHT)

    def py(self, value: float) -> float:
        span = (self.y[-1] - self.y[0]) or 1.0
        room = self.height - _TOP - _BOTTOM
        return self.height - _BOTTOM - (value - self.y[0]) / span * room

    def grid(self) -> None:
        right, bottom = _WIDTH - _RIGHT, self.height - _BOTTOM
        for value in self.y:
            y = self.py(value)
            self.parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
            self.parts.append(_text(_LEFT - 6, y + 4, f"{value:g}", "end"))
        for value in self.x:
            self.parts.append(_text(self.px(value), bottom + 15, f"{value:g}", "middle"))
        self.parts.append(_text(right, self.height - 4, self.x_name, "end"))
        self.parts.append(_text(2, 11, self.y_name, "start"))

    def marks(self, marks: Mapping[str, float]) -> None:
        """Vertical lines with names, in the units of x."""
        for row, (name, value) in enumerate(marks.items()):
            if self.x[0] <= value <= self.x[-1]:
                x = self.px(value)
                low, high = self.height - _BOTTOM, _TOP
                self.parts.append(f'<path class="mark" d="M{x:.1f} {low}V{high}"/>')
                at_right = x > _WIDTH - 150
                anchor, place = ("end", x - 4) if at_right else ("start", x + 4)
                self.parts.append(_text(place, high + 11 + 13 * (row % 3), name, anchor))

    def svg(self, title: str) -> str:
        inside = "".join(self.parts)
        return (
            f'<svg viewBox="0 0 {_WIDTH} {self.height}" role="img" aria-label="{escape(title)}">'
            f"<title>{escape(title)}</title>{inside}</svg>"
        )


def line_plot(
    title: str,
    series: Mapping[str, Points],
    *,
    x_name: str,
    y_name: str,
    y_from: float | None = None,
    marks: Mapping[str, float] | None = None,
) -> str:
    """Lines; a point whose value is None interrupts its line. `marks` are moments of x."""
    points = [point for line in series.values() for point in line if point[1] is not None]
    if not points:
        return empty(title)
    values = [y for _, y in points if y is not None]
    low = min(values) if y_from is None else min(y_from, *values)
    axes = _Axes(
        nice_ticks(min(x for x, _ in points), max(x for x, _ in points), 8),
        nice_ticks(low, max(max(values), low + 1e-6)),
        x_name,
        y_name,
    )
    axes.grid()
    for number, (name, line) in enumerate(series.items()):
        path, pen_up = [], True
        for x, y in line:
            if y is None:
                pen_up = True
                continue
            path.append(f"{'M' if pen_up else 'L'}{axes.px(x):.1f} {axes.py(y):.1f}")
            pen_up = False
        kind = f"line s{number % _CLASSES}"
        axes.parts.append(
            f'<path class="{kind}" d="{"".join(path)}"><title>{escape(name)}</title></path>'
        )
    axes.marks(marks or {})
    return axes.svg(title) + legend(series)


def stacked_plot(
    title: str,
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    x_name: str,
    y_name: str,
    y_most: float,
    marks: Mapping[str, float] | None = None,
) -> str:
    """Areas on one another; `y_most` is always in sight."""
    if len(x) < 2 or not series:
        return empty(title)
    totals = [sum(values) for values in zip(*series.values(), strict=True)]
    axes = _Axes(nice_ticks(x[0], x[-1], 8), nice_ticks(0, max(y_most, *totals)), x_name, y_name)
    axes.grid()
    below = [0.0] * len(x)
    for number, (name, values) in enumerate(series.items()):
        above = [base + value for base, value in zip(below, values, strict=True)]
        there = " ".join(
            f"{axes.px(at):.1f},{axes.py(v):.1f}" for at, v in zip(x, above, strict=True)
        )
        back = " ".join(
            f"{axes.px(at):.1f},{axes.py(v):.1f}"
            for at, v in reversed(list(zip(x, below, strict=True)))
        )
        axes.parts.append(
            f'<polygon class="area s{number % _CLASSES}" points="{there} {back}">'
            f"<title>{escape(name)}</title></polygon>"
        )
        below = above
    y = axes.py(y_most)
    axes.parts.append(f'<path class="mark" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
    axes.marks(marks or {})
    return axes.svg(title) + legend(series)


def histogram(
    title: str, values: Sequence[float], *, x_name: str, marks: Mapping[str, float] | None = None
) -> str:
    """How often which values come, in some 20 classes; `marks` are values."""
    if not values:
        return empty(title)
    high = max(*values, *(marks or {}).values(), 1e-6)
    ticks = nice_ticks(min(0.0, *values) if len(values) > 1 else min(0.0, values[0]), high, 8)
    classes = 3 * (len(ticks) - 1)
    width = (ticks[-1] - ticks[0]) / classes
    counts = [0] * classes
    for value in values:
        counts[min(classes - 1, int((value - ticks[0]) / width))] += 1
    axes = _Axes(ticks, nice_ticks(0, max(counts), 4), x_name, "turns")
    axes.grid()
    for number, count in enumerate(counts):
        if count:
            left, right = (
                axes.px(ticks[0] + number * width),
                axes.px(ticks[0] + (number + 1) * width),
            )
            top, bottom = axes.py(count), axes.py(0)
            axes.parts.append(
                f'<rect class="area s0" x="{left + 1:.1f}" y="{top:.1f}" '
                f'width="{right - left - 2:.1f}" height="{bottom - top:.1f}">'
                f"<title>{count}</title></rect>"
            )
    axes.marks(marks or {})
    return axes.svg(title)


def bars(
    title: str, rows: Mapping[str, tuple[float, float]], *, x_name: str, names: tuple[str, str]
) -> str:
    """For each row a thick bar and a thin one behind it, like p50 and p95."""
    if not rows:
        return empty(title)
    spans = {name: [(0.0, first), (0.0, second)] for name, (first, second) in rows.items()}
    return _rows(title, spans, x_name, {names[0]: 0, names[1]: 1}, overlaid=True)


def spans(
    title: str, rows: Mapping[str, Sequence[tuple[str, float, float]]], *, x_name: str
) -> str:
    """For each row its named spans (name, start, end) on one time axis, one below the other."""
    if not rows:
        return empty(title)
    kinds: dict[str, int] = {}
    for row in rows.values():
        for name, _, _ in row:
            kinds.setdefault(name, len(kinds))
    drawn = {
        key: [next(((s, e) for n, s, e in row if n == kind), (0.0, 0.0)) for kind in kinds]
        for key, row in rows.items()
    }
    return _rows(title, drawn, x_name, kinds, overlaid=False)


def _rows(
    title: str,
    rows: Mapping[str, Sequence[tuple[float, float]]],
    x_name: str,
    kinds: Mapping[str, int],
    *,
    overlaid: bool,
) -> str:
    ends = [end for row in rows.values() for _, end in row]
    starts = [start for row in rows.values() for start, _ in row]
    lane = 6 if overlaid else max(4, min(6, 36 // max(1, len(kinds))))
    tall = 22 if overlaid else lane * len(kinds) + 10
    height = _TOP + _BOTTOM + tall * len(rows)
    axes = _Axes(nice_ticks(min(0.0, *starts), max(*ends, 1.0), 8), [0, 1], x_name, "", height)
    left = 150
    span = axes.x[-1] - axes.x[0]

    def px(value: float) -> float:
        return left + (value - axes.x[0]) / span * (_WIDTH - left - _RIGHT)

    for value in axes.x:
        x = px(value)
        axes.parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{height - _BOTTOM}"/>')
        axes.parts.append(_text(x, height - _BOTTOM + 15, f"{value:g}", "middle"))
    axes.parts.append(_text(_WIDTH - _RIGHT, height - 4, x_name, "end"))
    names = list(kinds)
    for number, (name, row) in enumerate(rows.items()):
        top = _TOP + tall * number
        axes.parts.append(_text(left - 8, top + tall / 2 + 4, name[:24], "end"))
        order = reversed(list(enumerate(row))) if overlaid else iter(enumerate(row))
        for kind, (start, end) in order:
            if end <= start:
                continue
            y = top + (4 + 3 * kind if overlaid else 4 + lane * kind)
            thick = (tall - 8 - 6 * kind) if overlaid else lane - 1
            axes.parts.append(
                f'<rect class="area s{kind % _CLASSES}" x="{px(start):.1f}" y="{y:.1f}" '
                f'width="{max(1.0, px(end) - px(start)):.1f}" height="{thick:.1f}">'
                f"<title>{escape(f'{name}: {names[kind]} {start:.0f} to {end:.0f}')}</title></rect>"
            )
    return axes.svg(title) + legend(kinds)


def legend(names: Mapping[str, object]) -> str:
    """Names beside their colours."""
    items = "".join(
        f'<span><i class="key s{number % _CLASSES}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f'<p class="legend">{items}</p>'


def empty(title: str) -> str:
    """In place of a plot that has nothing to show."""
    return f'<p class="empty">{escape(title)}: nothing was measured.</p>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
