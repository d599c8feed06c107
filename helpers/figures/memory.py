"""The memory timeline: live bytes by category, event by event, with phases, and the peak taken apart.

What the ledger knows is drawn, and nothing that depends on the processor. The horizontal axis is the order of events,
not time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers.data import CATEGORIES, MemoryEvent, Recording, Timeline, live_storages, phases, timeline

from . import text
from .bundle import Figure, figure_of
from .draw import Svg, num, width_of
from .palette import ALERT, BAND, CATEGORY, FRAME, HATCH, INK, SOFT

#: Columns of the drawing at most; with more events, neighbours share one, drawn at its highest.
MOST_COLUMNS = 420
#: Storages of the peak that are named.
BIGGEST = 8
#: Phases that the text twin lists one by one at each end; the rest is folded into a line.
MOST_PHASES = 60


@dataclass(frozen=True, repr=False)
class MemoryFigure(Figure):
    """The timeline. peak: bytes; peak_moment: the event after which they are live (-1: before the first)."""

    peak: int = 0
    peak_moment: int = -1
    full: str = ""

    def text_full(self) -> str:
        return self.full or self.text


@dataclass(frozen=True, slots=True)
class Phase:
    """A run of events of one phase, and the bytes by category at its peak."""

    name: str
    first: int
    last: int
    start: int  # bytes before its first event
    end: int  # bytes after its last
    peak: int
    peak_parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A storage that is live at the peak."""

    what: str
    nbytes: int
    category: str


def memory_figure(recording: Recording) -> MemoryFigure:
    """The timeline of live bytes by category, with its text twin. Works for any recording, an empty one too."""
    line = timeline(recording)
    peak = line.peak
    runs = phase_rows(recording, line)
    parts = biggest(recording, peak)
    twin = twin_of(recording, line, runs, parts)
    title = f"Memory: peak {text.both(max(line.totals))}"
    alt = f"Live bytes by category over {text.plural(len(recording.events), 'event')}. {peak_sentence(recording, line)}"
    svg = draw(recording, line, runs, parts)
    full = "" if len(runs) <= MOST_PHASES else twin_of(recording, line, runs, parts, most=len(runs))
    return figure_of(title, twin, alt, svg, MemoryFigure, peak=max(line.totals), peak_moment=peak, full=full)


def phase_rows(recording: Recording, line: Timeline) -> list[Phase]:
    totals = line.totals
    out = []
    for name, first, last in phases(recording):
        span = range(first + 1, last + 2)
        top = max(span, key=lambda i: (totals[i], -i))
        if totals[first] > totals[top]:
            top = first
        out.append(Phase(name, first, last, totals[first], totals[last + 1], totals[top], line.rows[top]))
    return out


def biggest(recording: Recording, moment: int) -> list[Part]:
    """The largest storages live after event `moment`, each with its names or the operation that made it."""
    live = live_storages(recording, moment)
    found = sorted(live.items(), key=lambda item: (-item[1][0], item[0]))[:BIGGEST]
    return [Part(what_is(recording, s), nbytes, category) for s, (nbytes, category) in found if nbytes]


def what_is(recording: Recording, s: int) -> str:
    storage = recording.storages[s]
    made = text.forward_operation(storage.op) if storage.op else ""
    line = text.line(recording, storage.place)
    origin = (f"made by {text.quoted(made)}" if made else "") + (f" on {line}" if line and made else "")
    shape = f"{text.shape(storage.shape)} {storage.dtype}" if storage.dtype else ""
    return ", ".join(part for part in (text.names(storage.names), shape, origin) if part) or "unnamed"


def what_ran(recording: Recording, moment: int) -> str:
    """ "mm ran on line 6": the event after which a moment is."""
    if moment < 0:
        return "it began"
    event = recording.events[moment]
    where = text.line(recording, event.place)
    return event_words(event) + (f" on {where}" if where else "")


def event_words(event: MemoryEvent) -> str:
    op = text.quoted(text.forward_operation(event.op)) if event.op else ""
    if event.kind == "op":
        return f"{op or 'an operation'} ran"
    words = {
        "free": "memory no longer referred to was freed",
        "enter": "a backward pass began",
        "run": f"{op} ran in backward",
        "accumulate": "a gradient arrived at its leaf",
        "release": f"{op or 'a graph'} released what it kept",
        "leave": "a backward pass ended",
        "step": f"an optimizer's step began{': ' + event.note if event.note else ''}",
        "stepped": "an optimizer's step ended",
        "error": f"an error: {event.note}",
    }
    return words[event.kind]


def peak_sentence(recording: Recording, line: Timeline) -> str:
    peak = text.exact(max(line.totals))
    if line.peak < 0:
        return f"Peak: {peak}, before the first event"
    return f"Peak: {peak}, at event {line.peak + 1} of {len(recording.events)}: {what_ran(recording, line.peak)}"


def parts_words(row: Sequence[int]) -> str:
    """ "kept for backward 2,048 B, other 8 B": categories that have bytes."""
    found = [f"{name} {text.exact(n)}" for name, n in zip(CATEGORIES, row, strict=True) if n]
    return ", ".join(found) or "nothing"


def twin_of(
    recording: Recording, line: Timeline, runs: Sequence[Phase], parts: Sequence[Part], most: int = MOST_PHASES
) -> str:
    totals = line.totals
    lines = [
        f"Memory: {text.plural(len(recording.events), 'event')}; {text.exact(totals[0])} live before, "
        f"{text.exact(totals[-1])} after",
        peak_sentence(recording, line),
        f"  at the peak: {parts_words(line.rows[line.peak + 1])}",
    ]
    if parts:
        lines.append("  biggest there:")
        lines += text.aligned(
            [[text.exact(p.nbytes), p.category, p.what] for p in parts], indent="    ", right=frozenset({0})
        )
    if runs:
        lines.append("Phases:")
        shown = list(runs) if len(runs) <= most else [*runs[: most // 2], *runs[-(most // 2) :]]
        table = [
            [
                f"{p.first + 1}–{p.last + 1}" if p.first < p.last else f"{p.first + 1}",
                p.name,
                f"start {text.exact(p.start)}",
                f"end {text.exact(p.end)}",
                f"peak {text.exact(p.peak)}: {parts_words(p.peak_parts)}",
            ]
            for p in shown
        ]
        words = text.aligned(table)
        if len(runs) > most:
            left = runs[most // 2 : -(most // 2)]
            top = max(p.peak for p in left)
            words.insert(most // 2, f"  … {len(left):,} more phases, peak {text.exact(top)}; text_full() gives each")
        lines += words
    if recording.events and recording.events[-1].kind == "error":
        event = recording.events[-1]
        where = text.line(recording, event.place)
        lines.append(f"Error{' on ' + where if where else ''}: {' '.join(event.note.split())}")
    lines += [f"Note: {note}" for note in recording.notes]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------------- drawing

LEFT, RIGHT, TOP, HEIGHT, WIDTH = 78.0, 24.0, 84.0, 230.0, 860.0


def columns_of(line: Timeline) -> tuple[list[tuple[int, ...]], list[int]]:
    """Rows to draw, and for each event row the column it is in. Where rows share a column the highest is drawn."""
    n = len(line.rows)
    count = min(n, MOST_COLUMNS)
    column = [i * count // n for i in range(n)]
    totals = line.totals
    best: list[int | None] = [None] * count
    for i, c in enumerate(column):
        if best[c] is None or totals[i] > totals[best[c]]:
            best[c] = i
    return [line.rows[i] for i in best], column


def ticks(top: int) -> list[int]:
    """Four or five round values from 0 to at least `top`, in decimal units."""
    if top <= 0:
        return [0]
    step = 1
    while step * 5 < top:
        step *= 10
    for finer in (step // 10 * 2, step // 10 * 5):
        if finer and finer * 5 >= top:
            step = finer
            break
    return list(range(0, top + step, step))[:7]


def tick_words(mark: int, top: int) -> str:
    """A round value in the unit of the axis's top: "15 kB", "2.5 GB"."""
    size, unit = 1, "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if top < 1000 * size:
            break
        size, unit = size * 1000, larger
    return f"{mark / size:g} {unit}"


def draw(recording: Recording, line: Timeline, runs: Sequence[Phase], parts: Sequence[Part]) -> str:
    svg = Svg()
    totals = line.totals
    peak = max(totals)
    svg.text(18, 28, f"Live memory, event by event: peak {text.both(peak)}", size=14, bold=True, mono=False)
    svg.text(18, 47, text.short(f"Highest as {what_ran(recording, line.peak)}", 120), size=12, mono=False, fill=SOFT)
    marks = ticks(peak)
    scale = HEIGHT / (marks[-1] or 1)
    base = TOP + HEIGHT
    right = WIDTH - RIGHT
    rows, column = columns_of(line)
    step = (right - LEFT) / len(rows)

    def at(event_row: int) -> float:
        return LEFT + column[event_row] * step

    draw_phases(svg, runs, at, right, base)
    for mark in marks:
        y = base - mark * scale
        svg.line(LEFT, y, right, y, line=FRAME)
        svg.text(LEFT - 8, y + 4, tick_words(mark, marks[-1]), size=10.5, fill=SOFT, anchor="end")
    low = [0] * len(rows)
    for c, name in enumerate(CATEGORIES):
        high = [a + row[c] for a, row in zip(low, rows, strict=True)]
        if any(row[c] for row in rows):
            ys = [(base - a * scale, base - b * scale) for a, b in zip(low, high, strict=True)]
            band(svg, name, ys, LEFT, step)
        low = high
    svg.line(LEFT, base, right, base, line=INK, width=1.2)
    px = at(line.peak + 1) + step / 2
    py = base - peak * scale
    svg.path(f"M{num(px)} {num(py)}V{num(TOP - 4)}", line=INK, width=1, dash="2 2")
    svg.path(f"M{num(px)} {num(py - 1)}l-4.5 -8h9Z", fill=INK)
    label = f"peak {text.human(peak)}"
    wide = width_of(label, 11, mono=False)
    tx = min(max(px, LEFT + wide / 2), right - wide / 2)
    svg.text(tx, TOP - 8, label, size=11, bold=True, mono=False, anchor="middle")
    if recording.events and recording.events[-1].kind == "error":
        ex = right - 6
        svg.path(f"M{num(ex - 5)} {num(base - 10)}l10 10m-10 0l10 -10", line=ALERT, width=2)
        svg.text(ex - 9, base - 4, "error", size=11, bold=True, fill=ALERT, mono=False, anchor="end")
    svg.text(
        (LEFT + right) / 2,
        base + 34,
        f"{text.plural(len(recording.events), 'event')}, in order (not to scale in time)",
        size=11,
        mono=False,
        fill=SOFT,
        anchor="middle",
    )
    y = draw_peak(svg, line, parts, base + 62)
    return svg.finish(WIDTH, y, f"Memory: peak {text.both(peak)}")


def draw_phases(svg: Svg, runs: Sequence[Phase], at, right: float, base: float) -> None:
    """Bands behind the plot, named below it. Where phases come round again, each round begins with a line."""
    for k, p in enumerate(runs):
        x1 = at(p.first + 1)
        x2 = right if k == len(runs) - 1 else at(runs[k + 1].first + 1)
        if k == 0:
            x1 = LEFT
        svg.open("phase", f"{p.name}: events {p.first + 1} to {p.last + 1}, peak {text.exact(p.peak)}")
        svg.rect(x1, TOP, max(x2 - x1, 0.5), base - TOP + 20, fill=BAND[k % 2])
        for letters, size in ((p.name, 10.5), (p.name[:3] if p.name != "between" else "", 9.5)):
            if letters and width_of(letters, size, mono=False) + 4 <= x2 - x1:
                svg.text((x1 + x2) / 2, base + 15, letters, size=size, mono=False, fill=SOFT, anchor="middle")
                break
        svg.close()
        if k:
            svg.line(x1, TOP, x1, base + 20, line=FRAME)


def band(svg: Svg, name: str, ys: Sequence[tuple[float, float]], left: float, step: float) -> None:
    """One category's part of the stack: fill, hatch, and a line that parts it from its neighbours."""
    paint = CATEGORY[name]
    svg.open(f"band {name.replace(' ', '-')}", name)
    runs: list[list[int]] = []
    for i, (low, high) in enumerate(ys):
        if low - high > 0.05:
            if runs and runs[-1][1] == i - 1:
                runs[-1][1] = i
            else:
                runs.append([i, i])
    for first, last in runs:
        top = outline([ys[i][1] for i in range(first, last + 1)], left + first * step, step)
        bottom = outline([ys[i][0] for i in range(first, last + 1)], left + first * step, step)
        d = "M" + "L".join(f"{num(x)} {num(y)}" for x, y in [*top, *reversed(bottom)]) + "Z"
        svg.path(d, fill=paint.fill, line=INK, width=0.6, css="fill")
    hatch(svg, HATCH[name], ys, left, step, paint.line)
    svg.close()


def outline(ys: Sequence[float], left: float, step: float) -> list[tuple[float, float]]:
    """A staircase through the tops of columns, without points that lie on a straight line."""
    points: list[tuple[float, float]] = []
    for i, y in enumerate(ys):
        if not points or points[-1][1] != y:
            points.append((left + i * step, y))
            if len(points) > 1:
                points.insert(-1, (left + i * step, points[-2][1]))
    points.append((left + len(ys) * step, points[-1][1]))
    return points


def hatch(svg: Svg, sign: str, ys: Sequence[tuple[float, float]], left: float, step: float, colour: str) -> None:
    """Lines or dots inside a band, cut at its edges by computing them: no pattern, so no id is needed."""
    if not sign:
        return
    parts: list[str] = []
    right = left + len(ys) * step

    def inside(x: float) -> tuple[float, float]:
        return ys[min(int((x - left) / step), len(ys) - 1)]

    if sign == "|":
        x = left + 5
        while x < right:
            low, high = inside(x)
            if low - high > 1:
                parts.append(f"M{num(x)} {num(high)}V{num(low)}")
            x += 7
    elif sign == ".":
        y0, row = TOP + 3, 0
        while y0 < TOP + HEIGHT:
            x = left + (4 if row % 2 else 8)
            while x < right:
                low, high = inside(x)
                if high + 1 < y0 < low - 1:
                    parts.append(f"M{num(x)} {num(y0)}h1.4")
                x += 8
            y0 += 5
            row += 1
    else:
        slope = {"-": 0.0, "/": -1.0, "\\": 1.0}[sign]
        gap = 6.0 if sign == "-" else 9.0
        reach = (right - left) if slope else 0.0
        start = TOP - (reach if slope > 0 else 0.0)
        end = TOP + HEIGHT + (reach if slope < 0 else 0.0)
        c = start
        while c < end:
            parts += slanted(c, slope, ys, left, step)
            c += gap
    if parts:
        svg.path("".join(parts), line=colour, width=1.4 if sign == "." else 0.9, css="hatch")


def slanted(c: float, slope: float, ys: Sequence[tuple[float, float]], left: float, step: float) -> list[str]:
    """Pieces of the line y = c + slope · (x − left) that lie inside the band."""
    pieces: list[list[float]] = []  # x1, x2
    first, last = 0, len(ys)
    if slope:  # only columns that the line can cross between the plot's top and bottom
        xs = sorted(((TOP - c) / slope, (TOP + HEIGHT - c) / slope))
        first, last = max(0, int(xs[0] / step) - 1), min(len(ys), int(xs[1] / step) + 2)
    for i in range(first, last):
        low, high = ys[i]
        x1, x2 = i * step, (i + 1) * step
        if slope:
            a, b = sorted(((high - c) / slope, (low - c) / slope))
            x1, x2 = max(x1, a), min(x2, b)
        elif not high < c < low:
            continue
        if x2 - x1 > 0.3:
            if pieces and abs(pieces[-1][1] - x1) < 0.05:
                pieces[-1][1] = x2
            else:
                pieces.append([x1, x2])
    return [
        f"M{num(left + a)} {num(c + slope * a)}L{num(left + b)} {num(c + slope * b)}" for a, b in pieces if b - a > 0.8
    ]


def draw_peak(svg: Svg, line: Timeline, parts: Sequence[Part], y: float) -> float:
    """The legend, which is also the peak by category; beside it the biggest storages."""
    row = line.rows[line.peak + 1]
    svg.line(18, y - 18, WIDTH - 18, y - 18, line=FRAME)
    svg.text(18, y, "At the peak, by category", size=12, bold=True, mono=False)
    svg.text(430, y, "The biggest there", size=12, bold=True, mono=False)
    ever = [any(r[c] for r in line.rows) for c in range(len(CATEGORIES))]
    cy = y + 20
    for c in reversed(range(len(CATEGORIES))):  # from top to bottom, as they are stacked
        if not ever[c]:
            continue
        name = CATEGORIES[c]
        svg.open("legend", f"{name}: {text.exact(row[c])}")
        swatch(svg, name, 18, cy - 12)
        svg.text(56, cy, name, size=11.5, mono=False)
        svg.text(300, cy, text.exact(row[c]), size=11, anchor="end", fill=INK if row[c] else SOFT)
        share = 100 * row[c] / (sum(row) or 1)
        svg.text(360, cy, f"{share:.0f} %" if row[c] else "", size=11, anchor="end", fill=SOFT)
        svg.close()
        cy += 21
    svg.line(200, cy - 12, 364, cy - 12, line=FRAME)
    svg.text(56, cy + 4, "together", size=11.5, mono=False, bold=True)
    svg.text(300, cy + 4, text.exact(sum(row)), size=11, anchor="end", bold=True)
    by = y + 20
    for part in parts:
        svg.open("part", f"{part.what}: {text.exact(part.nbytes)}, {part.category}")
        swatch(svg, part.category, 430, by - 10, small=True)
        svg.text(540, by, text.human(part.nbytes), size=11, anchor="end")
        svg.text(552, by, text.short(part.what, 44), size=10.5)
        svg.close()
        by += 19
    return max(cy + 24, by + 8)


def swatch(svg: Svg, name: str, x: float, y: float, *, small: bool = False) -> None:
    """A sample of a category: its colour and its hatch."""
    w, h = (16.0, 11.0) if small else (28.0, 15.0)
    paint = CATEGORY[name]
    svg.rect(x, y, w, h, fill=paint.fill, line=INK, width=0.6)
    sign = HATCH[name]
    parts = []
    if sign == "|":
        parts = [f"M{num(x + i)} {num(y)}v{num(h)}" for i in range(4, int(w), 6)]
    elif sign == "-":
        parts = [f"M{num(x)} {num(y + i)}h{num(w)}" for i in range(4, int(h), 5)]
    elif sign == ".":
        parts = [f"M{num(x + i)} {num(y + j)}h1.4" for j in (4, 9) for i in range(3 + j % 2 * 4, int(w), 8) if j < h]
    elif sign:
        for i in range(-int(h), int(w), 8):
            a, b = max(0, -i), min(h, w - i)
            if b > a:
                ya, yb = (y + a, y + b) if sign == "\\" else (y + h - a, y + h - b)
                parts.append(f"M{num(x + i + a)} {num(ya)}L{num(x + i + b)} {num(yb)}")
    if parts:
        svg.path("".join(parts), line=paint.line, width=1.4 if sign == "." else 0.9)
