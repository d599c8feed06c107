"""Bars of numbers by name, stacked by part or side by side, with what a formula says marked over them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import plots, text
from .bundle import Figure, figure_of
from .curves_svg import plain_ticks
from .curves_text import clean, digits
from .draw import width_of
from .palette import FRAME, GROUND, INK, PARTS, SOFT
from .plots import MARGIN, WIDTH, Box, Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PAINTS = tuple(PARTS)
MOST_BARS, MOST_PARTS = 32, len(PAINTS)
ROW, BAR = 30.0, 18.0
MORE = 10.0  # that a row is higher where a second line stands in it
HEAD = 26.0  # of a group's name over its bars
LONGEST = 34  # characters of a name in the drawing, the twin has all
SEEN, THIN = 1.0, " (too thin to see)"  # pixels from which a part can be seen; said of one that has less in every bar
AROUND = 5.0  # width of the ground on which a mark stands within a bar
HUGE = 1e300
EQUAL = 1e-9  # a difference smaller than this share of the largest number is rounding, where numbers are not whole

Number = int | float


@dataclass(frozen=True)
class Bar:
    group: str  # whose heading it stands under; "" for none
    name: str
    parts: tuple[tuple[str, Number], ...]  # stacked, in this order; one, named "", where nothing is stacked
    against: Number | None = None

    @property
    def value(self) -> Number:
        return sum(n for _, n in self.parts)

    @property
    def words(self) -> str:
        return f"{self.group}, {self.name}" if self.group else self.name


@dataclass(frozen=True)
class Bars:
    title: str
    y: str
    x: str
    bars: tuple[Bar, ...]
    parts: tuple[str, ...]  # that have a paint each; () where nothing is stacked
    against: str  # what the numbers in `Bar.against` are called
    marks: tuple[tuple[Number, str], ...]

    @property
    def whole(self) -> bool:
        """Whether the numbers are bytes."""
        return self.y.split()[:1] == ["bytes"]

    @property
    def compared(self) -> bool:
        return any(b.against is not None for b in self.bars)

    @property
    def top(self) -> float:
        return max([*(b.value for b in self.bars), *(b.against or 0 for b in self.bars), *(v for v, _ in self.marks)])

    def short(self, n: Number) -> str:
        """A number in the drawing: "912.00 MiB", "2.374"."""
        return plots.binary(n) if self.whole else digits(n)

    def exact(self, n: Number) -> str:
        return text.grouped(n) if self.whole else digits(n)

    def difference(self, bar: Bar) -> str:
        """How much more the bar has than the formula: "+32,768", "±0"."""
        more = bar.value - bar.against
        if not self.whole and abs(more) <= EQUAL * max(abs(bar.value), abs(bar.against)):
            more = 0
        return plots.signed(more, self.exact(abs(more)))


def bars(
    groups: Mapping[str, Number | Mapping[str, Number] | Sequence[Number]],
    *,
    title: str,
    y: str = "bytes",
    x: str = "",
    parts: Sequence[str] = (),
    grouped: bool = False,
    against: Mapping[str, Number | Mapping[str, Number]] | None = None,
    against_name: str = "formula",
    marks: Sequence[Number | tuple[Number, str]] = (),
) -> Figure:
    """Up to 32 bars of numbers by name, with their table as text twin.

    groups: name → number; or name → {part → number}, stacked, each of up to 12 parts with its own paint and hatch; or
        name → list, the parts' names then in `parts`. grouped: parts side by side under their group's name instead.
    y: what the bars measure; "bytes" (also "bytes kept") takes whole bytes and shows binary units. x: what they are by.
    against: name → what a formula says of the whole bar (grouped: name → {part → number}), drawn as a mark across it,
        with the difference beside it. against_name: what to call it.
    marks: values, or pairs (value, words), as a line through all bars.
    Raises ValueError, a sentence, for no bar, too many bars or parts, a number that is none, negative or (bytes) not
    whole, and a name in `against` that has no bar.
    """
    it = bars_of(groups, title, y, x, parts, grouped, against, against_name, marks)
    return figure_of(it.title, twin_of(it), alt_of(it), plots.svg_of(draw_bars(it), it.title))


# -------------------------------------------------------------------------------------------------------- what comes in


def bars_of(groups, title, y, x, parts, grouped, against, against_name, marks) -> Bars:
    y = clean(y)
    said = dict(against or {}) if against is None or isinstance(against, Mapping) else None
    if said is None:
        raise ValueError(f"`against` is a dict of name → number, not a {type(against).__name__}.")
    if isinstance(parts, str) or isinstance(marks, str | Mapping) or not hasattr(marks, "__iter__"):
        raise ValueError("`parts` is a list of names, `marks` a list of values or of pairs (value, words).")
    given = table_of(groups, tuple(plots.name_of(p, "A part") for p in parts), y)
    named = {clean(str(name)): n for name, n in said.items()}
    for name in named:
        if name not in given:
            raise ValueError(f"`against` names {name!r}, and there is no such bar. The bars are {', '.join(given)}.")
    out, seen = [], {}
    for name, values in given.items():
        seen |= dict.fromkeys(p for p in values if p)
        if grouped:
            out += side_by_side(name, values, named.get(name), y)
        else:
            found = number_of(named[name], f"`against`, {name!r},", y) if name in named else None
            out.append(Bar("", name, tuple(values.items()), found))
    if len(out) > MOST_BARS or len(seen) > MOST_PARTS:
        raise ValueError(
            f"Up to {MOST_BARS} bars of up to {MOST_PARTS} parts can be drawn; "
            f"{text.plural(len(out), 'bar')} of {text.plural(len(seen), 'part')} are given."
        )
    pairs = [m if isinstance(m, tuple | list) and len(m) == 2 else (m, "") for m in marks]
    lines = tuple((number_of(n, "A mark", y), clean(str(words))) for n, words in pairs)
    return Bars(clean(title), y, clean(x), tuple(out), tuple(seen), clean(against_name), lines)


def table_of(groups, parts: tuple[str, ...], y: str) -> dict[str, dict[str, Number]]:
    """Name of bar → part → number; one part named "" for a bar that is a number."""
    if not isinstance(groups, Mapping):
        raise ValueError(f"bars() takes a dict of name → number or name → parts, not a {type(groups).__name__}.")
    if not groups:
        raise ValueError("bars() was given no bar.")
    table = {}
    for key, given in groups.items():
        name = plots.name_of(key if isinstance(key, str) else str(key), "A bar")
        if isinstance(given, list | tuple):
            if len(given) != len(parts):
                raise ValueError(f"Bar {name!r} has {len(given)} numbers; `parts` has {len(parts)} names for them.")
            given = dict(zip(parts, given, strict=True))
        stacked = isinstance(given, Mapping)
        if stacked and not given:
            raise ValueError(f"Bar {name!r} has no part.")
        values = {plots.name_of(p, f"A part of {name!r}"): n for p, n in given.items()} if stacked else {"": given}
        table[name] = {p: number_of(n, f"Bar {name!r}" + (f", part {p!r}," if p else ""), y) for p, n in values.items()}
    if len({"" in values for values in table.values()}) > 1:
        raise ValueError("Some bars are numbers and some have parts. Give all of them parts, or none.")
    return table


def side_by_side(name: str, values: dict[str, Number], said, y: str) -> list[Bar]:
    if "" in values:
        raise ValueError(f"Bars stand in groups by their parts; {name!r} is a number and has none.")
    if said is not None and not isinstance(said, Mapping):
        raise ValueError(f"Side by side, `against` needs a number for each part of {name!r}: {{part: number}}.")
    told = {clean(str(p)): number_of(n, f"`against`, {name!r}, {p!r},", y) for p, n in (said or {}).items()}
    missing = [p for p in told if p not in values]
    if missing:
        raise ValueError(f"`against` names {missing[0]!r} of {name!r}, and there is no such bar.")
    return [Bar(name, p, ((p, n),), told.get(p)) for p, n in values.items()]


def number_of(value, what: str, y: str) -> Number:
    """A number of zero or more; bytes are whole. Tensors and arrays of one element count as numbers."""
    if hasattr(value, "item"):
        try:
            value = value.item()
        except (ValueError, RuntimeError):
            raise ValueError(f"{what} is a {type(value).__name__} of several numbers; one was expected.") from None
    if y.split()[:1] == ["bytes"]:
        return plots.whole(value, what)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} is a {type(value).__name__}; a number was expected.")
    if not 0 <= value <= HUGE:  # not NaN either
        raise ValueError(f"{what} is {value}; a number of 0 or more was expected.")
    return value


# ------------------------------------------------------------------------------------------------------------- words


def alt_of(it: Bars) -> str:
    said = []
    for bar in it.bars:
        more = "" if bar.against is None else f" ({it.against} {it.short(bar.against)})"
        said.append(f"{bar.words} {it.short(bar.value)}{more}")
    return f"Bars: {it.title}. {plots.capital(it.y)}{f' by {it.x}' if it.x else ''}: {'; '.join(said)}."


def twin_of(it: Bars) -> str:
    """The same numbers as a table: parts as columns, or as rows where there are more parts than bars."""
    by = f" by {it.x}" if it.x else ""
    stacked = it.parts and not it.bars[0].group
    lines = [it.title, f"{plots.capital(it.y)}{by}, {text.plural(len(it.bars), 'bar')}."]
    if it.whole:
        lines[-1] += f" Exact bytes. {plots.BINARY}"
    columns = [["", *(bar.words for bar in it.bars)]]
    if stacked:
        columns += [[p, *(it.exact(dict(b.parts)[p]) if p in dict(b.parts) else "" for b in it.bars)] for p in it.parts]
    columns.append(["together" if stacked else it.y, *(it.exact(b.value) for b in it.bars)])
    if it.whole:
        columns.append(["in binary units", *(plots.binary(b.value) for b in it.bars)])
    if it.compared:
        columns.append([it.against, *("" if b.against is None else it.exact(b.against) for b in it.bars)])
        columns.append(["difference", *("" if b.against is None else it.difference(b) for b in it.bars)])
    rows = columns if stacked and len(it.parts) > len(it.bars) else [list(row) for row in zip(*columns, strict=True)]
    lines += text.aligned(rows, right=frozenset(range(1, len(rows[0]))))
    if it.marks:
        lines.append("Marked: " + "; ".join(f"{it.exact(n)}{': ' * bool(words)}{words}" for n, words in it.marks))
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------------------------- drawing


def draw_bars(it: Bars) -> Canvas:
    """The drawing. Its axes hold the bars (across): each patch is labelled with its bar's number and its part, each
    mark over a bar with its number and "against", each line through all with "mark"."""
    with plots.plain_style():
        span = (it.top or 1) * 1.02
        high = ROW + MORE * it.compared
        tops, y = [], 0.0
        for k, bar in enumerate(it.bars):
            y += HEAD * (bar.group != (it.bars[k - 1].group if k else ""))
            tops.append(y)
            y += high
        names = max(width_of(text.short(b.name, LONGEST), 12.5, mono=False) + 14 * bool(b.group) for b in it.bars)
        labels = [label_of(it, b) for b in it.bars]
        side = max(max(width_of(a, 12.5, mono=False), width_of(b, 11, mono=False)) for a, b in labels)
        sentences = [s for s in (sentence_of(it),) if s]
        room = 20.0 * len(it.marks)
        top = plots.heading_height(it.title, sentences) + 22 + room
        box = Box(MARGIN + names + 14, top, WIDTH - MARGIN - side - 12, top + y)
        kinds = kinds_of(it, (box.right - box.left) / span)
        sheet = Sheet(box.bottom + 46 + plots.legend_height(kinds) + 22 * it.compared)
        sheet.heading(it.title, sentences)
        axes = sheet.axes(box, (0, span), (y, 0))
        rules(sheet, axes, it, box, span)
        for k, (bar, at) in enumerate(zip(it.bars, tops, strict=True)):
            draw_bar(sheet, axes, it, k, bar, at + high / 2)
            middle = box.top + at + high / 2
            if bar.group and (not k or bar.group != it.bars[k - 1].group):
                group = text.short(bar.group, 60)
                ground = (box.top + at - 10, MARGIN + width_of(group, 12.5, mono=False) + 6)
                sheet.stroke([(MARGIN, ground[0]), (ground[1], ground[0])], GROUND, 16, over=8)
                sheet.words(MARGIN, box.top + at - 6, group, size=12.5, bold=True)
            sheet.words(MARGIN + 14 * bool(bar.group), middle + 4.5, text.short(bar.name, LONGEST), size=12.5)
            value, more = labels[k]
            sheet.words(box.right + 12, middle + (-2 if more else 4.5), value, size=12.5, bold=True)
            sheet.words(box.right + 12, middle + 12, more, size=11, fill=SOFT)
        sheet.stroke([(box.left, box.top), (box.left, box.bottom)], INK)
        for k, (n, words) in enumerate(it.marks):
            plots.dashed(axes.axvline(n, color=INK, lw=1.4, label="mark", zorder=4, clip_on=False), 1.4, (5, 3))
            px, _ = sheet.place(axes, n, 0)
            half = width_of(words, 11.5, mono=False) / 2
            sheet.stroke([(px, box.top - 20 * k - 4), (px, box.top)], INK, 1.4, (5, 3))
            middle = min(max(px, MARGIN + half), WIDTH - MARGIN - half)
            sheet.words(middle, box.top - 20 * k - 8, words, size=11.5, bold=True, anchor="center")
        below = sheet.legend(kinds, box.bottom + 32)
        if it.compared:
            sheet.stroke([(MARGIN + 13, below + 2), (MARGIN + 13, below + 17)], INK, 2.2, over=5)
            caps(sheet, MARGIN + 13, below + 2, below + 17)
            sheet.words(MARGIN + 32, below + 13, it.against, size=11.5)
    return sheet.canvas


def sentence_of(it: Bars) -> str:
    by = f" by {it.x}" if it.x else ""
    unit = plots.unit_sentence(int(it.top)) if it.whole else ""
    return f"{plots.capital(it.y)}{by}." + (f" {unit}." if unit else "")


def label_of(it: Bars, bar: Bar) -> tuple[str, str]:
    """A bar's number, and what the formula says of it."""
    if bar.against is None:
        return it.short(bar.value), ""
    more = it.difference(bar)
    if more == "±0":
        return it.short(bar.value), f"equal to the {text.short(it.against, 30)}"
    amount = f"{more[1:]} B" if it.whole else more[1:]
    over = "over" if more[0] == "+" else "under"
    return it.short(bar.value), f"{amount} {over} the {text.short(it.against, 30)}"


def kinds_of(it: Bars, scale: float) -> list[tuple[str, str]]:
    """Paints with their parts' names; none where each bar's own name says it. scale: pixels of one unit."""
    if not it.parts or it.bars[0].group:
        return []
    widest = {p: scale * max(dict(b.parts).get(p, 0) for b in it.bars) for p in it.parts}
    return [(paint, p + THIN * (0 < widest[p] < SEEN)) for paint, p in zip(PAINTS, it.parts, strict=False)]


def paint_of(it: Bars, part: str) -> str:
    return PAINTS[it.parts.index(part)] if part else PAINTS[0]


def draw_bar(sheet: Sheet, axes: Axes, it: Bars, k: int, bar: Bar, y: float) -> None:
    low = 0
    for part, n in bar.parts:
        wide = sheet.place(axes, n, 0)[0] - sheet.place(axes, 0, 0)[0]
        rect = (low, low + n, y - BAR / 2, y + BAR / 2)
        sheet.boxes(axes, paint_of(it, part), [rect], label=f"{k}: {part}", edge=0.6 if wide > 2.5 else 0)
        low += n
    if bar.against is None:
        return
    from matplotlib.lines import Line2D

    ends = (y - BAR / 2 - 5, y + BAR / 2 + 5)
    # where the bar ends at the mark, a ground would part the two
    beyond = sheet.place(axes, bar.value, 0)[0] - sheet.place(axes, bar.against, 0)[0]
    grounds = [(GROUND, AROUND, "ground")] if beyond > AROUND / 2 else []
    for colour, width, label in (*grounds, (INK, 2.2, f"{k}: against")):
        line = Line2D([bar.against] * 2, ends, color=colour, lw=width, label=label, zorder=4 + (colour == INK))
        axes.add_artist(line)
        line.set_clip_on(False)
    px, top = sheet.place(axes, bar.against, ends[0])
    caps(sheet, px, top, sheet.place(axes, 0, ends[1])[1])


def caps(sheet: Sheet, x: float, top: float, bottom: float) -> None:
    """The ends of the sign that marks a formula's number."""
    for y in (top, bottom):
        sheet.stroke([(x - 5, y), (x + 5, y)], INK, 2.0, over=5)


def rules(sheet: Sheet, axes: Axes, it: Bars, box: Box, span: float) -> None:
    """Fine upright lines at round numbers, with their words below."""
    if it.whole:
        sheet.byte_rules(axes, box, span, across=True)
        return
    for value, words in zip(*plain_ticks(0.0, span, whole=False), strict=True):
        if math.isfinite(value) and 0 <= value <= span:
            px, _ = sheet.place(axes, value, 0)
            sheet.stroke([(px, box.top), (px, box.bottom + 4)], FRAME, over=-1)
            sheet.words(px, box.bottom + 17, words, fill=SOFT, size=11, anchor="center")
