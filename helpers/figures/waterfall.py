"""From naive to fitting: what each step saves or costs, bar by bar, down to what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.data import Recording, timeline

from . import plots, text
from .bundle import Figure, figure_of
from .curves_text import clean
from .draw import width_of
from .palette import INK, SOFT, WATERFALL
from .plots import MARGIN, WIDTH, Box, Sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

TITLE = "Memory at the peak, step by step"
FEWEST, MOST = 2, 16
ROW, BAR = 38.0, 20.0


@dataclass(frozen=True)
class Waterfall:
    title: str
    names: tuple[str, ...]
    levels: tuple[int, ...]  # bytes after each step; the first is where it begins
    capacity: int | None
    card: str

    @property
    def changes(self) -> tuple[int, ...]:
        """Bytes more (or, negative, less) at each step after the first."""
        return tuple(b - a for a, b in zip(self.levels, self.levels[1:], strict=False))

    def verdict(self, words=plots.binary) -> str:
        """Whether what is left fits."""
        if self.capacity is None:
            return ""
        room = self.capacity - self.levels[-1]
        return f"fits, {words(room)} to spare" if room >= 0 else f"does not fit: {words(-room)} too much"

    @property
    def fitting(self) -> str:
        """Since which step it fits for good; "" if it does not."""
        over = [k for k, n in enumerate(self.levels) if self.capacity is not None and n > self.capacity]
        if self.capacity is None or (over and over[-1] == len(self.levels) - 1):
            return ""
        return self.names[over[-1] + 1] if over else self.names[0]


def waterfall_figure(
    steps: Sequence[tuple[str, int | Recording]], *, capacity: int | None = None, card: str = "", title: str = TITLE
) -> Figure:
    """Levels in the order in which they are reached: each bar runs from the former level to the new one.

    steps: 2 to 16 pairs (name, bytes) or (name, Recording), of which the peak of live bytes is taken. capacity: bytes
    that there are, card: whose. Raises ValueError, a sentence, for another number of steps, what is no pair, no name,
    no whole bytes or no sound recording.
    """
    it = waterfall(steps, capacity, card, title)
    return figure_of(it.title, twin_of(it), alt_of(it), plots.svg_of(draw_waterfall(it), it.title))


def waterfall(steps: Sequence, capacity: int | None, card: str, title: str) -> Waterfall:
    if isinstance(steps, str | bytes) or not hasattr(steps, "__iter__"):
        raise ValueError(f"Steps are a list of pairs (name, bytes), not a {type(steps).__name__}.")
    steps = list(steps.items() if hasattr(steps, "items") else steps)
    if not FEWEST <= len(steps) <= MOST:
        raise ValueError(f"A waterfall has {FEWEST} to {MOST} steps; {len(steps)} are given.")
    names, levels = [], []
    for k, step in enumerate(steps, start=1):
        if not isinstance(step, tuple | list) or len(step) != 2:
            raise ValueError(f"Step {k} is no pair (name, bytes).")
        names.append(plots.name_of(step[0], f"Step {k}"))
        what = f"Step {k}, {names[-1]!r},"
        if isinstance(step[1], int | float):
            levels.append(plots.whole(step[1], what))
        else:
            levels.append(max(timeline(plots.sound(step[1], what)).totals))
    if capacity is not None:
        capacity = plots.whole(capacity, "The capacity", least=1)
    return Waterfall(clean(title), tuple(names), tuple(levels), capacity, clean(card))


# ------------------------------------------------------------------------------------------------------------- words


def sum_sentence(it: Waterfall, words=plots.binary) -> str:
    first, last = it.levels[0], it.levels[-1]
    share = f", {last / first:.4g} of the first" if first and first != last else ""
    return f"From {words(first)} to {words(last)}{share}"


def fit_sentence(it: Waterfall, words=plots.binary) -> str:
    if it.capacity is None:
        return ""
    since = f", from step {text.quoted(it.fitting)} on" if it.fitting and it.fitting != it.names[0] else ""
    return f"{plots.capital(plots.capacity_words(it.capacity, it.card))}: what is left {it.verdict(words)}{since}"


def alt_of(it: Waterfall) -> str:
    steps = [f"{it.names[0]} {plots.binary(it.levels[0])}"]
    steps += [
        f"{name} {plots.signed(n, plots.binary(abs(n)))}" for name, n in zip(it.names[1:], it.changes, strict=True)
    ]
    fits = fit_sentence(it)
    return f"{it.title}. {sum_sentence(it)}: {'; '.join(steps)}." + (f" {fits}." if fits else "")


def twin_of(it: Waterfall) -> str:
    lines = [it.title, f"{sum_sentence(it, plots.exactly)}. {plots.BINARY}"]
    if it.capacity is not None:
        lines += [f"{fit_sentence(it, text.exact)}", f"Capacity: {text.exact(it.capacity)}"]
    rows = [["step", "changes it by", "to", ""]]
    for name, level, change in zip(it.names, it.levels, (None, *it.changes), strict=True):
        more = "" if change is None else plots.signed(change, text.exact(abs(change)))
        over = it.capacity is not None and level > it.capacity
        rows.append([name, more, text.exact(level), "does not fit" if over else "fits" if it.capacity else ""])
    return "\n".join([*lines, *text.aligned(rows, right=frozenset({1, 2}))])


# ----------------------------------------------------------------------------------------------------------- drawing


def draw_waterfall(it: Waterfall) -> Canvas:
    """The drawing. Its axes hold a bar for each step (across, in bytes): labels "level", "saving" and "cost"."""
    with plots.plain_style():
        top = max(it.levels)
        drawn = it.capacity if it.capacity is not None and it.capacity <= plots.FAR * max(top, 1) else None
        span = max(top, drawn or 0, 1) * 1.02
        unit = plots.unit_sentence(int(span))
        sentences = [s + "." for s in (sum_sentence(it), fit_sentence(it), unit) if s]
        if it.capacity is not None and drawn is None:
            sentences.append(f"The capacity lies beyond the plot, at more than {plots.FAR} times the highest level.")
        head = plots.heading_height(it.title, sentences)
        rows = [*it.names, "left in the end"]
        left = MARGIN + max(width_of(text.short(n, 34), 12.5, mono=False) for n in rows) + 12
        box = Box(left, head + 34, WIDTH - MARGIN - 100, head + 34 + ROW * len(rows))
        present = {"level", *(kind_of(n) for n in it.changes)}
        kinds = [(k, w) for k, w in LEGEND if k in present]
        sheet = Sheet(box.bottom + 34 + plots.legend_height(kinds) + 10)
        sheet.heading(it.title, sentences)
        axes = sheet.axes(box, (0, span), (ROW * len(rows), 0))
        sheet.byte_rules(axes, box, span, across=True)
        bars = bars_of(it)
        for kind in dict.fromkeys(kind for kind, *_ in bars):
            rects = [
                (low, high, ROW * (k + 0.5) - BAR / 2, ROW * (k + 0.5) + BAR / 2)
                for k, (found, low, high, _) in enumerate(bars)
                if found == kind
            ]
            sheet.boxes(axes, kind, rects)
        for k, (kind, low, high, label) in enumerate(bars):
            middle = box.top + ROW * (k + 0.5)
            sheet.words(MARGIN, middle + 4.5, text.short(rows[k], 34), size=12.5, bold=kind == "level")
            level = it.levels[min(k, len(it.levels) - 1)]
            if k + 1 < len(bars):  # from the level reached here to the next bar
                x, _ = sheet.place(axes, level, 0)
                sheet.stroke([(x, middle + BAR / 2), (x, middle + ROW - BAR / 2)], SOFT, 1.0, (2, 2))
            fill = SOFT if low == high else WATERFALL[kind].text
            sheet.words(WIDTH - MARGIN, middle + 4.5, label, size=12.5, bold=True, fill=fill, anchor="right")
        sheet.stroke([(box.left, box.top), (box.left, box.bottom)], INK)
        if drawn is not None:
            sheet.capacity(axes, box, drawn, plots.capacity_words(drawn, it.card), across=True)
        sheet.legend(kinds, box.bottom + 32)
    return sheet.canvas


LEGEND = (("level", "bytes at the peak"), ("saving", "saved by the step"), ("cost", "added by the step"))


def kind_of(change: int) -> str:
    return "cost" if change > 0 else "saving"


def bars_of(it: Waterfall) -> list[tuple[str, int, int, str]]:
    """Kind, lower and higher end in bytes, and label of each bar: the start, each step, and what is left."""
    bars = [("level", 0, it.levels[0], plots.binary(it.levels[0]))]
    for before, change in zip(it.levels, it.changes, strict=False):
        low, high = sorted((before, before + change))
        bars.append((kind_of(change), low, high, plots.signed(change, plots.binary(abs(change)))))
    return [*bars, ("level", 0, it.levels[-1], plots.binary(it.levels[-1]))]
