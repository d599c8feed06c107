"""Variants of one program side by side: the peak of each, taken apart, and its whole course; what fits a card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.data import CATEGORIES, Recording, Timeline, timeline

from . import plots, text
from .bundle import Figure, figure_of
from .curves_text import clean
from .draw import width_of
from .memory_parts import category_words
from .palette import FRAME, INK, SOFT
from .plots import MARGIN, STYLES, WIDTH, Box, Sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

FEWEST, MOST = 2, len(STYLES)
TITLE = "Variants: memory at the peak"
ROW, BAR = 44.0, 20.0  # from one bar to the next, and height of one; pixels
COURSE = 220.0  # height of the plot of courses
MOST_POINTS = 500  # of one course in the drawing
WHAT = "Live bytes of tensors: what an allocator rounds up and strands comes on top."


@dataclass(frozen=True)
class Variant:
    name: str
    line: Timeline
    words: Mapping[str, str]  # what to call each category
    failed: str  # the allocator ran out of memory at the capacity: how, in words; else ""

    @property
    def peak(self) -> int:
        return max(self.line.totals)

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by category at the first moment at which most are live."""
        return {name: n for name, n in self.line.at(self.line.peak).items() if n}


@dataclass(frozen=True)
class Comparison:
    title: str
    variants: tuple[Variant, ...]
    capacity: int | None
    card: str

    def verdict(self, variant: Variant, words=plots.binary) -> str:
        """ "fits, 3.00 GiB to spare"; "" without a capacity."""
        if self.capacity is None:
            return ""
        if variant.failed:
            return f"does not fit: {variant.failed}"
        room = self.capacity - variant.peak
        return f"fits, {words(room)} to spare" if room >= 0 else f"does not fit: {words(-room)} too much"

    def fits(self, variant: Variant) -> bool:
        return self.capacity is not None and not variant.failed and variant.peak <= self.capacity

    @property
    def names(self) -> dict[str, str]:
        """Categories that any variant holds at its peak, in stacking order, with what to call them here."""
        found = {}
        for name in CATEGORIES:
            called = [v.words[name] for v in self.variants if name in v.parts]
            if called:
                found[name] = called[0] if len(set(called)) == 1 else name
        return found


def variants_figure(
    recordings: Mapping[str, Recording], *, capacity: int | None = None, card: str = "", title: str = TITLE
) -> Figure:
    """Two to eight recordings of one program's variants: peaks taken apart by category, courses, and what fits.

    recordings: name → Recording. capacity: bytes that the program may have, card: whose they are. What fits is judged
    by live bytes; a recording whose allocator had this very capacity and ran out of memory does not fit.
    Raises ValueError, a sentence, for another number of variants, what is no sound recording, no whole capacity.
    """
    it = comparison(recordings, capacity, card, title)
    return figure_of(it.title, twin_of(it), alt_of(it), plots.svg_of(draw_variants(it), it.title))


def comparison(recordings: Mapping[str, Recording], capacity: int | None, card: str, title: str) -> Comparison:
    if not isinstance(recordings, Mapping):
        raise ValueError(
            f'Variants are given as a dict of name → recording, as in {{"plain": a, "bf16": b}}, not as a '
            f"{type(recordings).__name__}."
        )
    if not FEWEST <= len(recordings) <= MOST:
        raise ValueError(f"{FEWEST} to {MOST} variants can be compared; {len(recordings)} are given.")
    if capacity is not None:
        capacity = plots.whole(capacity, "The capacity", least=1)
    variants = []
    for key, recording in recordings.items():
        name = plots.name_of(key, "A variant")
        plots.sound(recording, f"Variant {name!r}")
        variants.append(Variant(name, timeline(recording), category_words(recording), failure(recording, capacity)))
    return Comparison(clean(title), tuple(variants), capacity, clean(card))


def failure(recording: Recording, capacity: int | None) -> str:
    history = recording.allocator
    if history is None or not history.failures or history.capacity != capacity:
        return ""
    return f"out of memory at event {history.failures[0].event + 1:,}"


# ------------------------------------------------------------------------------------------------------------- words


def alt_of(it: Comparison) -> str:
    parts = []
    for variant in it.variants:
        verdict = it.verdict(variant)
        parts.append(f"{variant.name} {plots.binary(variant.peak)}" + (f" ({verdict})" if verdict else ""))
    limit = f" {plots.capital(plots.capacity_words(it.capacity, it.card))}." if it.capacity else ""
    return f"{it.title}. Peaks, stacked by category, and live bytes over each run: {'; '.join(parts)}.{limit}"


def twin_of(it: Comparison) -> str:
    lines = [it.title, f"{text.plural(len(it.variants), 'variant')}. {WHAT} {plots.BINARY}"]
    if it.capacity is not None:
        lines.append(plots.capital(plots.capacity_words(it.capacity, it.card)) + f": {text.exact(it.capacity)}")
        fit = [v.name for v in it.variants if it.fits(v)]
        lines.append(f"What fits: {'; '.join(fit) or 'none'}")
    first = it.variants[0].peak
    rows = []
    for k, variant in enumerate(it.variants):
        change = ""
        if k:
            more = variant.peak - first
            ratio = f" ({variant.peak / first:.4g} of it)" if first else ""
            change = f"{plots.signed(more, text.exact(abs(more)))} to the first{ratio}" if more else "as the first"
        where = variant.line.peak + 1
        when = f"after event {where:,} of {len(variant.line.rows) - 1:,}" if where else "before the first event"
        rows.append(
            [variant.name, f"peak {plots.exactly(variant.peak)}", when, change, it.verdict(variant, text.exact)]
        )
    lines += ["Peaks:", *text.aligned(rows)]
    heads = ["at the peak, B", *it.names.values(), "together"]
    table = [[v.name, *(text.grouped(v.parts.get(n, 0)) for n in it.names), text.grouped(v.peak)] for v in it.variants]
    return "\n".join([*lines, "Taken apart:", *text.aligned([heads, *table], right=frozenset(range(1, len(heads))))])


# ----------------------------------------------------------------------------------------------------------- drawing


def said(it: Comparison) -> list[str]:
    """The sentences under the title."""
    if it.capacity is None:
        return [WHAT]
    fit = [v.name for v in it.variants if it.fits(v)]
    over = [v.name for v in it.variants if not it.fits(v)]
    words = f"Fits: {'; '.join(fit) or 'none'}. Does not fit: {'; '.join(over) or 'none'}."
    return [f"{plots.capital(plots.capacity_words(it.capacity, it.card))}. {words}", WHAT]


def draw_variants(it: Comparison) -> Canvas:
    """The drawing. Its first axes hold the bars (across, in bytes), its second the courses (a line for each variant).

    A long course is thinned to each stretch's highest and lowest values, so no peak is lost.
    """
    with plots.plain_style():
        top = max(v.peak for v in it.variants)
        drawn = it.capacity if it.capacity is not None and it.capacity <= plots.FAR * max(top, 1) else None
        span = max(top, drawn or 0, 1) * 1.02
        kinds = [(name, words) for name, words in it.names.items()]
        sentences = said(it)
        if it.capacity is not None and drawn is None:
            sentences[0] += f" It lies beyond the plot, at more than {plots.FAR} times the highest peak."
        head = plots.heading_height(it.title, sentences)
        labels = [(plots.binary(v.peak), it.verdict(v)) for v in it.variants]
        left, right = sides(it.variants, labels)
        bars = Box(left, head + 34, right, head + 34 + ROW * len(it.variants))
        legend_at = bars.bottom + 32
        course_at = legend_at + plots.legend_height(kinds) + 42
        course = Box(MARGIN + 66, course_at, WIDTH - MARGIN - 8, course_at + COURSE)
        sheet = Sheet(course.bottom + 50)
        sheet.heading(it.title, sentences)
        draw_bars(sheet, it, bars, span, labels, drawn)
        sheet.legend(kinds, legend_at)
        draw_courses(sheet, it, course, span, drawn)
    return sheet.canvas


def sides(variants: Sequence[Variant], labels: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """Where bars begin and end: between the longest name, and the longest label."""
    names = max(width_of(text.short(v.name, 28), 12.5, mono=False) for v in variants)
    words = max(max(width_of(a, 12.5, mono=False), width_of(b, 11, mono=False)) for a, b in labels)
    return MARGIN + 38 + names + 12, WIDTH - MARGIN - min(words, 250.0) - 12


def draw_bars(sheet: Sheet, it: Comparison, box: Box, span: float, labels, drawn: int | None) -> None:
    axes = sheet.axes(box, (0, span), (ROW * len(it.variants), 0))
    sheet.byte_rules(axes, box, span, across=True)
    for k, variant in enumerate(it.variants):
        colour, dashes = STYLES[k]
        middle = box.top + ROW * (k + 0.5)
        sheet.stroke([(MARGIN, middle), (MARGIN + 30, middle)], colour, 2.4, dashes)
        sheet.words(MARGIN + 38, middle + 4.5, text.short(variant.name, 28), size=12.5, bold=True, fill=colour)
        low = 0
        for name, n in variant.parts.items():
            y = ROW * (k + 0.5)
            wide = sheet.place(axes, n, 0)[0] - box.left
            rect = (low, low + n, y - BAR / 2, y + BAR / 2)
            sheet.boxes(axes, name, [rect], label=f"{k}: {name}", edge=0.6 if wide > 3 else 0)
            low += n
        peak, verdict = labels[k]
        at = box.right + 12
        sheet.words(at, middle + (-2 if verdict else 4.5), peak, size=12.5, bold=True)
        sheet.words(at, middle + 13, verdict, size=11, fill=INK if it.fits(variant) else plots.ALERT)
    if drawn is not None:
        sheet.capacity(axes, box, drawn, plots.capacity_words(drawn, it.card), across=True)


def draw_courses(sheet: Sheet, it: Comparison, box: Box, span: float, drawn: int | None) -> None:
    axes = sheet.axes(box, (0, 1), (0, span * 1.04))
    unit = plots.unit_sentence(int(span))
    sheet.words(MARGIN, box.top - 14, "Live bytes over each run" + (f" ({unit})" if unit else ""), bold=True)
    sheet.byte_rules(axes, box, span)
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, _ = sheet.place(axes, share, 0)
        sheet.stroke([(x, box.bottom), (x, box.bottom + 4)], SOFT)
        sheet.words(x, box.bottom + 17, f"{share:.0%}", size=11, fill=SOFT, anchor="center")
    sheet.stroke([(box.left, box.bottom), (box.right, box.bottom)], SOFT)
    sheet.words(
        (box.left + box.right) / 2, box.bottom + 36,
        "share of each run's events (not of its time); a triangle marks each peak", size=11.5, fill=SOFT,
        anchor="center",
    )  # fmt: skip
    for k, variant in enumerate(it.variants):
        totals = variant.line.totals
        rows = plots.thinned([totals], MOST_POINTS)
        edges = [*(r / len(totals) for r in rows), 1.0]
        # the first is wider, so that it is seen under one that runs upon it
        sheet.steps(axes, edges, [totals[r] for r in rows], STYLES[k], label=variant.name, width=2.0 if k else 3.4)
        x, y = sheet.place(axes, (variant.line.peak + 1.5) / len(totals), variant.peak)
        sheet.stroke([(x - 4, y - 8), (x + 4, y - 8), (x, y - 1.5), (x - 4, y - 8)], STYLES[k][0], 1.6)
    if drawn is not None:
        sheet.capacity(axes, box, drawn, "capacity")
    sheet.stroke([(MARGIN, box.top - 34), (WIDTH - MARGIN, box.top - 34)], FRAME)
