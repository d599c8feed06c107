"""What kernels take and give back inside themselves, on a CPU: the ledger, and above it the profiler's total.

The ledger sees what operations return; PyTorch's profiler sees every allocation. The difference depends on the
processor: it stands in the picture alone, and no title, alt text or twin tells it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from helpers.data import CATEGORIES, Recording, Timeline, timeline

from . import plots, text
from .bundle import Figure, figure_of
from .draw import width_of
from .hatch import KERNELS
from .memory import in_short
from .memory_parts import Inside, category_words, inside_kernels
from .palette import INSIDE, SOFT
from .plots import MARGIN, WIDTH, Box, Sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

MOST_OPERATORS = 8
MOST_POINTS = 400
PLOT, ROW, BAR = 250.0, 24.0, 14.0
TITLE = "Live bytes, and what kernels hold inside themselves"
ONLY_HERE = (
    "What kernels hold inside themselves depends on the processor: it is in the picture only, as a cross-hatched band "
    "over the ledger and as bars by operator."
)


def kernels_figure(recording: Recording) -> Figure:
    """The ledger stacked by category, the profiler's total over it, the difference as a band, and by operator.

    Raises ValueError, a sentence, for a recording that did not measure what kernels hold.
    """
    plots.sound(recording, "This recording")
    line = timeline(recording)
    inside = inside_kernels(recording, line)
    if inside is None:
        raise ValueError(
            "This recording does not tell what kernels hold inside themselves: no event has any. Make it with "
            "record(kernels=True), on a CPU; kernels that take no memory of their own leave nothing to draw."
        )
    twin = f"{TITLE}\n{ONLY_HERE}\nThe ledger alone:\n{in_short(recording, line)}"
    peak = max(line.totals)
    alt = (
        f"{TITLE}. The ledger, stacked by category over {text.plural(len(recording.events), 'event')}, has its peak at "
        f"{plots.exactly(peak)}. {ONLY_HERE}"
    )
    return figure_of(TITLE, twin, alt, plots.svg_of(draw_kernels(recording, line, inside), TITLE))


def draw_kernels(recording: Recording, line: Timeline, inside: Inside) -> Canvas:
    """The drawing. Its first axes hold the bands and the profiler's total, its second the operators' bars.

    A long course is thinned to each stretch's highest and lowest moments of ledger and total, so no peak is lost.
    """
    with plots.plain_style():
        ledger = line.totals
        held = [0, *(e.inside for e in recording.events)]
        totals = [a + b for a, b in zip(ledger, held, strict=True)]
        top = max(totals)
        words = category_words(recording)
        rows = plots.thinned([ledger, totals], MOST_POINTS)
        names = [name for c, name in enumerate(CATEGORIES) if any(line.rows[r][c] for r in rows)]
        kinds = [*((name, words[name]) for name in names), (KERNELS, KERNELS)]
        operators = inside.operators[:MOST_OPERATORS]
        sentences = said(line, inside)
        head = plots.heading_height(TITLE, sentences)
        box = Box(MARGIN + 66, head + 24, WIDTH - MARGIN - 8, head + 24 + PLOT)
        legend_at = box.bottom + 44
        list_at = legend_at + plots.legend_height(kinds) + 26
        sheet = Sheet(list_at + 12 + ROW * len(operators) + (30 if len(inside.operators) > len(operators) else 12))
        sheet.heading(TITLE, sentences)
        axes = sheet.axes(box, (0, len(ledger)), (0, top * 1.04 or 1))
        sheet.byte_rules(axes, box, top)
        edges = [*rows, len(ledger)]
        low = [0] * len(rows)
        for c, name in enumerate(CATEGORIES):
            high = [a + line.rows[r][c] for a, r in zip(low, rows, strict=True)]
            sheet.band(axes, name, edges, low, high)
            low = high
        drawn = [totals[r] for r in rows]
        sheet.band(axes, KERNELS, edges, low, drawn, edge=0)
        sheet.steps(axes, edges, drawn, (INSIDE.line, ()), label="profiler's total", width=1.2)
        sheet.stroke([(box.left, box.bottom), (box.right, box.bottom)], SOFT)
        middle = (box.left + box.right) / 2
        sheet.words(
            middle, box.bottom + 20, f"{text.plural(len(recording.events), 'event')}, in order (not to scale in time); "
            "the line on top is the profiler's total", size=11.5, fill=SOFT, anchor="center",
        )  # fmt: skip
        sheet.legend(kinds, legend_at)
        draw_operators(sheet, inside, operators, list_at)
    return sheet.canvas


def said(line: Timeline, inside: Inside) -> list[str]:
    """The sentences under the title: of the picture alone."""
    peak = max(line.totals)
    unit = plots.unit_sentence(max(peak, inside.total))
    total = (
        f"Of the profiler's total: {plots.exactly(inside.total)}, {text.exact(inside.ledger)} in the ledger and "
        f"{text.exact(inside.kernels)} inside a kernel at that moment."
        if inside.total > peak
        else "The profiler's total reaches no higher."
    )
    note = f"What is inside kernels depends on the processor.{f' {unit}.' if unit else ''}"
    return [f"Peak of the ledger: {plots.exactly(peak)}. {total}", note]


def draw_operators(sheet: Sheet, inside: Inside, operators: tuple[tuple[str, int], ...], y: float) -> None:
    sheet.words(MARGIN, y, "Held inside at most, by operator", bold=True)
    names = [text.short(text.quoted(name), 34) for name, _ in operators]
    left = MARGIN + max(width_of(n, 12, mono=False) for n in names) + 12
    box = Box(left, y + 8, WIDTH - MARGIN - 110, y + 8 + ROW * len(operators))
    axes = sheet.axes(box, (0, operators[0][1]), (ROW * len(operators), 0))
    rects = [(0, n, ROW * (k + 0.5) - BAR / 2, ROW * (k + 0.5) + BAR / 2) for k, (_, n) in enumerate(operators)]
    sheet.boxes(axes, KERNELS, rects)
    for k, (name, (_, n)) in enumerate(zip(names, operators, strict=True)):
        middle = box.top + ROW * (k + 0.5)
        x, _ = sheet.place(axes, n, 0)
        sheet.words(MARGIN, middle + 4, name)
        sheet.words(x + 8, middle + 4, plots.binary(n), bold=True)
    if len(inside.operators) > len(operators):
        rest = inside.operators[len(operators) :]
        more = f"and {text.plural(len(rest), 'operator')} with {plots.binary(rest[0][1])} or less"
        sheet.words(MARGIN, box.bottom + 16, more, fill=SOFT)
