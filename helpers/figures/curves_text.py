"""A line chart in words and numbers.

What is at most a billionth of the chart's largest value is rounding noise, whose digits differ from machine to machine:
words give a bound there, and log scales end there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

from . import text

SAMPLES = 6  # values that the twin gives of each line
NOISE = -8  # powers of ten from the largest value's own to where its rounding noise begins

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: tuple[Point, ...]

    @property
    def finite(self) -> list[Point]:
        return [p for p in self.points if math.isfinite(p[1])]

    @property
    def broken(self) -> Point | None:
        """The first value that is no number or infinite."""
        return next((p for p in self.points if not math.isfinite(p[1])), None)


@dataclass(frozen=True)
class Chart:
    title: str
    x: str
    y: str
    log: bool
    lines: tuple[Line, ...]
    marks: tuple[tuple[float, str], ...]

    @cached_property
    def values(self) -> list[float]:
        return [y for line in self.lines for _, y in line.finite]

    @cached_property
    def lowest(self) -> float:
        return min(self.values, default=0.0)

    @cached_property
    def counts(self) -> bool:
        """Whether all values are whole numbers: these are exact."""
        return all(v == int(v) and abs(v) < 1e15 for v in self.values)

    @cached_property
    def bound(self) -> float:
        """Values nearer to 0 than this are noise; 0 if there is none (all whole, or all 0)."""
        largest = max(map(abs, self.values), default=0.0)
        if not largest or self.counts:
            return 0.0
        return float(f"1e{int(f'{largest:e}'.partition('e')[2]) + NOISE}")


def floor_of(chart: Chart) -> float:
    """Where a log scale ends because values go on below it; 0 if none do. A power of ten."""
    if not chart.log:
        return 0.0
    limit = chart.bound
    kept = [v for v in chart.values if v > 0 and v >= limit]
    if len(kept) == len(chart.values) or not kept:
        return 0.0 if kept or not chart.values else 1.0
    exponent = math.floor(math.log10(min(kept)))
    if min(kept) < 2 * 10.0**exponent:
        exponent -= 1  # leave the floor to what is below it
    return max(limit, float(f"1e{exponent}"))


def clean(words: str) -> str:
    """One line in which every character shows."""
    return "".join(c if c.isprintable() else text.escape_unprintable(c) for c in " ".join(words.split()))


def digits(value: float) -> str:
    """Four significant digits: "0.01234", "12,350", "1.234e-5", "nan", "-inf"."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    rounded = float(f"{value:.3e}")
    if 1e3 <= abs(rounded) < 1e7:
        return f"{rounded:,.0f}"
    return power(f"{rounded:.4g}")


def power(words: str) -> str:
    """ "1e-05" → "1e-5"."""
    return re.sub(r"e([+-])0*(\d)", lambda m: f"e{'-' if m[1] == '-' else ''}{m[2]}", words)


def said(chart: Chart, value: float) -> str:
    """A value in the twin: its digits, or a bound for what is noise."""
    if math.isfinite(value) and abs(value) < chart.bound:
        limit = power(f"{chart.bound:g}")
        return f"within {limit} of 0" if chart.lowest <= -chart.bound else f"below {limit}"
    return digits(value) if chart.counts or not math.isfinite(value) else digits(float(f"{value:.3e}"))


def extreme(chart: Chart, line: Line, sign: int) -> str:
    """ "0.01234 at step 99": where the value, as said, is met first; "below 1e-8, first at step 40" for noise."""
    best = said(chart, sign * max(sign * y for _, y in line.finite))
    where = next(px for px, py in line.finite if said(chart, py) == best)
    return f"{best}{', first' if best.startswith(('below', 'within')) else ''} at {chart.x} {digits(where)}"


def twin_of(chart: Chart) -> str:
    floor = floor_of(chart)
    scale = f" (log scale, drawn down to {power(f'{floor:g}')})" if floor else " (log scale)" if chart.log else ""
    out = [chart.title, f"Line chart of {chart.y}{scale} by {chart.x}, {text.plural(len(chart.lines), 'line')}."]
    for line in chart.lines:
        first, last = line.points[0], line.points[-1]
        n = len(line.points)
        out += ["", f"{line.name}: {text.plural(n, 'value')}" + ("" if n > 1 else f", at {chart.x} {digits(first[0])}")]
        if n > 1:
            out[-1] += f", {chart.x} {digits(first[0])} to {digits(last[0])}"
        if n == 1:
            out.append(f"  {said(chart, first[1])}")
            continue
        out.append(f"  first {said(chart, first[1])}, last {said(chart, last[1])}")
        if line.finite:
            out.append(f"  largest {extreme(chart, line, 1)}; smallest {extreme(chart, line, -1)}")
        if n > 2:
            chosen = [line.points[i] for i in dict.fromkeys(round(k * (n - 1) / (SAMPLES - 1)) for k in range(SAMPLES))]
            rows = [[digits(px) for px, _ in chosen], [said(chart, py) for _, py in chosen]]
            heads = [chart.x, chart.y]
            out += text.aligned([[h, *row] for h, row in zip(heads, rows, strict=True)], right=frozenset(range(1, 7)))
        for what in ("nan", "inf", "-inf"):
            places = [digits(px) for px, py in line.points if str(py) == what]
            if places:
                more = f" and {len(places) - 3:,} more" if len(places) > 3 else ""
                out.append(f"  {what} at {chart.x} {', '.join(places[:3])}{more}")
    if chart.marks:
        out += ["", "Marked: " + "; ".join(f"{chart.x} {digits(px)}{': ' * bool(w)}{w}" for px, w in chart.marks)]
    return "\n".join(out)


def alt_of(chart: Chart) -> str:
    parts = []
    for line in chart.lines:
        ends = [said(chart, p[1]) for p in (line.points[0], line.points[-1])]
        a, b = line.points[0][1], line.points[-1][1]
        if len(line.points) == 1:
            parts.append(f"{line.name}: {ends[0]}")
        elif ends[0] == ends[1]:
            parts.append(f"{line.name} begins and ends at {ends[0]}")
        else:
            verb = "falls" if b < a else "rises" if b > a else "goes"
            parts.append(f"{line.name} {verb} from {ends[0]} to {ends[1]}")
    scale = ", log scale" if chart.log else ""
    return f"Line chart: {chart.title}. {chart.y} by {chart.x}{scale}. {'; '.join(parts)}."
