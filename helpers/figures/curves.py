"""A line chart as a figure: losses over steps, errors over sizes. What is given is read here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from . import text
from .bundle import Figure, figure_of
from .curves_svg import STYLES, draw
from .curves_text import Chart, Line, Point, alt_of, clean, twin_of

MOST_LINES = len(STYLES)
HUGE = 1e300  # beyond it an axis cannot be divided: drawn and told as infinite


def curves(
    lines: Mapping[str, Sequence], *, title: str, x: str = "step", y: str = "loss", log: bool = False, marks=()
) -> Figure:
    """A line chart of up to six lines, with its text twin.

    lines: name → values (at x = 0, 1, 2, …) or (x, y) pairs; numbers, tensors of one element, or a whole tensor. NaN
    and infinities leave a gap and are told. x, y: what the axes mean, with the unit if there is one ("time (ms)").
    log: logarithmic y; what is 0, negative, or at most a billionth of the largest value, is drawn on the floor.
    marks: values of x, or pairs (x, words), to mark by an upright line.
    Raises ValueError for no line, more than six, one without values, or a value that is no number.
    """
    chart = Chart(clean(title), clean(x), clean(y), log, lines_of(lines), tuple(mark_of(m, clean(x)) for m in marks))
    return figure_of(chart.title, twin_of(chart), alt_of(chart), draw(chart))


def lines_of(lines: Mapping[str, Sequence]) -> tuple[Line, ...]:
    if not isinstance(lines, Mapping):
        raise ValueError(f'curves() takes a dict of name → values, as in {{"loss": losses}}, not a {kind(lines)}.')
    if not 1 <= len(lines) <= MOST_LINES:
        raise ValueError(
            f"curves() draws 1 to {MOST_LINES} lines; {len(lines)} are given. More read better as two charts."
        )
    return tuple(Line(clean(str(name)), points_of(str(name), values)) for name, values in lines.items())


def points_of(name: str, values: Sequence) -> tuple[Point, ...]:
    try:
        items = list(values)
    except TypeError:
        raise ValueError(f"Line {name!r}: a list of numbers was expected, not a {kind(values)}.") from None
    if not items:
        raise ValueError(f"Line {name!r} has no values.")
    points = []
    for i, item in enumerate(items):
        pair = size_of(item)
        if isinstance(item, str | bytes | Mapping) or pair not in (None, 2):
            raise ValueError(f"Line {name!r}, value {i}: a number or a pair (x, y) was expected, not {shown(item)}.")
        px, py = (i, item) if pair is None else item
        place = number(px, name, i)
        if not math.isfinite(place) or abs(place) > HUGE:
            raise ValueError(f"Line {name!r}, value {i}: x is {place}, which has no place on an axis.")
        height = number(py, name, i)
        points.append((place, math.copysign(math.inf, height) if abs(height) > HUGE else height))
    return tuple(points)


def size_of(item) -> int | None:
    try:
        return len(item)
    except TypeError:  # a number, or a tensor without dimensions
        return None


def number(value, name: str, i: int) -> float:
    """A float, also of a tensor that needs a gradient."""
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"Line {name!r}, value {i}: {shown(value)} is no number.") from None


def mark_of(mark, x: str) -> tuple[float, str]:
    place, words = mark if size_of(mark) == 2 and not isinstance(mark, str) else (mark, "")
    place = number(place, "marks", 0)
    if not math.isfinite(place) or abs(place) > HUGE:
        raise ValueError(f"A mark at {x} {place} has no place on an axis.")
    return place, clean(str(words))


def kind(value) -> str:
    return type(value).__name__


def shown(value) -> str:
    return text.short(repr(value), 40) if isinstance(value, str | int | float | tuple | list) else f"a {kind(value)}"
