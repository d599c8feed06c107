"""The drawing of a memory timeline: bands stacked over the order of events, phases and rounds, the peak's parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers.data import CATEGORIES, Recording, Timeline

from . import text
from .draw import Svg, num, width_of
from .hatch import HEIGHT, KERNELS, TOP, band, swatch
from .memory_parts import Inside, Part, Phase, Rounds, category_words, rounds_of, what_ran
from .palette import ALERT, BAND, FRAME, INK, SOFT

#: Columns of the drawing at most; with more events, neighbours share one, drawn at its highest.
MOST_COLUMNS = 420
LEFT, RIGHT, WIDTH = 78.0, 24.0, 860.0
#: Operators that are named under the band of what kernels held inside.
MOST_OPERATORS = 6


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


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where the plot's columns stand in the drawing, in its units: what a cursor over it needs."""

    left: float
    step: float  # width of a column
    top: float
    height: float
    columns: tuple[int, ...]  # of each row of the timeline
    scale: float  # units for a byte


def geometry(line: Timeline, top: int) -> Geometry:
    """top: the highest value drawn, in bytes."""
    rows, column = columns_of(line)
    step = (WIDTH - RIGHT - LEFT) / len(rows)
    return Geometry(LEFT, step, TOP, HEIGHT, tuple(column), HEIGHT / (ticks(top)[-1] or 1))


def highest(line: Timeline, inside: Inside | None) -> int:
    peak = max(line.totals)
    return max(peak, inside.total) if inside else peak


def inside_columns(
    recording: Recording, line: Timeline, rows: Sequence[tuple[int, ...]], column: Sequence[int]
) -> list:
    """For each column how far ledger and kernels together reach above what the ledger's row there does."""
    reach = [sum(row) for row in rows]
    totals = line.totals
    for event in recording.events:
        c = column[event.index + 1]
        reach[c] = max(reach[c], totals[event.index + 1] + event.inside)
    return [most - sum(row) for most, row in zip(reach, rows, strict=True)]


def draw(
    recording: Recording, line: Timeline, runs: Sequence[Phase], parts: Sequence[Part], inside: Inside | None
) -> str:
    svg = Svg()
    totals = line.totals
    peak = max(totals)
    top = highest(line, inside)
    where = geometry(line, top)
    heading = f"Live memory, event by event: peak {text.both(peak)}"
    reached = f"Highest as {what_ran(recording, line.peak)}"
    if inside:
        heading += f"; with kernels {text.both(inside.total) if inside.total > peak else 'the same'}"
        if inside.total > peak and inside.moment != line.peak:
            reached += f"; with kernels, as {what_ran(recording, inside.moment)}"
    svg.text(18, 28, heading, size=14, bold=True, mono=False)
    svg.text(18, 47, text.short(reached, 124), size=12, mono=False, fill=SOFT)
    marks = ticks(top)
    scale, step = where.scale, where.step
    base = TOP + HEIGHT
    right = WIDTH - RIGHT
    rows, column = columns_of(line)

    def at(event_row: int) -> float:
        return LEFT + column[event_row] * step

    short = draw_phases(svg, runs, at, right, base)
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
    if inside:
        more = inside_columns(recording, line, rows, column)
        band(
            svg,
            KERNELS,
            [(base - a * scale, base - (a + m) * scale) for a, m in zip(low, more, strict=True)],
            LEFT,
            step,
        )
    svg.line(LEFT, base, right, base, line=INK, width=1.2)
    label = f"peak {text.human(peak)}"
    px = at(line.peak + 1) + step / 2
    if inside and inside.total > peak:
        label = f"peak {text.human(inside.total)}, kernels included"
        px = at(inside.moment + 1) + step / 2
    mark_peak(svg, px, base - top * scale, label, right)
    if recording.events and recording.events[-1].kind == "error":
        ex = right - 6
        svg.path(f"M{num(ex - 5)} {num(base - 10)}l10 10m-10 0l10 -10", line=ALERT, width=2)
        svg.text(ex - 9, base - 4, "error", size=11, bold=True, fill=ALERT, mono=False, anchor="end")
    y = base + 34
    rounds = rounds_of(recording)
    caption = f"{text.plural(len(recording.events), 'event')}, in order (not to scale in time)"
    if rounds:
        draw_rounds(svg, rounds, at, right, base)
        caption += f"; a round begins each time {rounds.line} runs"
        y += 18
    if short:
        caption += "; " + ", ".join(f"{a} = {b}" for a, b in short.items())
    svg.text((LEFT + right) / 2, y, caption, size=11, mono=False, fill=SOFT, anchor="middle")
    y = draw_peak(svg, recording, line, parts, y + 28)
    if inside:
        y = draw_inside(svg, inside, y + 6)
    return svg.finish(WIDTH, y, f"Memory: peak {text.both(peak)}")


def mark_peak(svg: Svg, px: float, py: float, label: str, right: float) -> None:
    svg.path(f"M{num(px)} {num(py)}V{num(TOP - 4)}", line=INK, width=1, dash="2 2")
    svg.path(f"M{num(px)} {num(py - 1)}l-4.5 -8h9Z", fill=INK)
    wide = width_of(label, 11, mono=False)
    tx = min(max(px, LEFT + wide / 2), right - wide / 2)
    svg.text(tx, TOP - 10, label, size=11, bold=True, mono=False, anchor="middle")


#: What stands for a phase's name where there is little room.
SHORT = {"forward": "fwd", "backward": "bwd"}


def draw_phases(svg: Svg, runs: Sequence[Phase], at, right: float, base: float) -> dict[str, str]:
    """Bands behind the plot, named below it; returns the short names that were used, with what they stand for."""
    used: dict[str, str] = {}
    for k, p in enumerate(runs):
        x1 = at(p.first + 1)
        x2 = right if k == len(runs) - 1 else at(runs[k + 1].first + 1)
        if k == 0:
            x1 = LEFT
        svg.open("phase", f"{p.name}: events {p.first + 1} to {p.last + 1}, peak {text.exact(p.peak)}")
        svg.rect(x1, TOP, max(x2 - x1, 0.5), base - TOP + 20, fill=BAND[k % 2])
        for letters, size in ((p.name, 10.5), (SHORT.get(p.name, ""), 9.5)):
            if letters and width_of(letters, size, mono=False) + 4 <= x2 - x1:
                svg.text((x1 + x2) / 2, base + 15, letters, size=size, mono=False, fill=SOFT, anchor="middle")
                if letters != p.name:
                    used[letters] = p.name
                break
        svg.close()
        if k:
            svg.line(x1, TOP, x1, base + 20, line=FRAME)
    return used


def draw_rounds(svg: Svg, rounds: Rounds, at, right: float, base: float) -> None:
    """A bracket under each round of a loop, with its number where there is room."""
    xs = [at(start + 1) for start in rounds.starts] + [right]
    for k, (x1, x2) in enumerate(zip(xs, xs[1:], strict=False)):
        svg.open("round", f"round {k + 1}: from event {rounds.starts[k] + 1}")
        svg.path(f"M{num(x1 + 1)} {num(base + 22)}v5H{num(max(x2 - 2, x1 + 1))}v-5", line=SOFT, width=1.1)
        for letters in (f"round {k + 1}", str(k + 1)):
            if width_of(letters, 10.5, mono=False) + 4 <= x2 - x1:
                svg.text(
                    (x1 + x2) / 2, base + 38, letters, size=10.5, bold=True, mono=False, fill=SOFT, anchor="middle"
                )
                break
        svg.close()


def draw_peak(svg: Svg, recording: Recording, line: Timeline, parts: Sequence[Part], y: float) -> float:
    """The legend, which is also the peak by category; beside it the biggest storages."""
    row = line.rows[line.peak + 1]
    words = category_words(recording)
    svg.line(18, y - 18, WIDTH - 18, y - 18, line=FRAME)
    svg.text(18, y, "At the peak, by category", size=12, bold=True, mono=False)
    svg.text(RIGHT_HALF, y, "The biggest there", size=12, bold=True, mono=False)
    ever = [any(r[c] for r in line.rows) for c in range(len(CATEGORIES))]
    cy = y + 20
    for c in reversed(range(len(CATEGORIES))):  # from top to bottom, as they are stacked
        if not ever[c]:
            continue
        name = CATEGORIES[c]
        svg.open("legend", f"{words[name]}: {text.exact(row[c])}")
        swatch(svg, name, 18, cy - 12)
        svg.text(56, cy, words[name], size=11.5, mono=False)
        svg.text(BYTES_AT, cy, text.exact(row[c]), size=11, anchor="end", fill=INK if row[c] else SOFT)
        svg.text(SHARE_AT, cy, share_words(row[c], sum(row)), size=11, anchor="end", fill=SOFT)
        svg.close()
        cy += 21
    svg.line(190, cy - 13, SHARE_AT, cy - 13, line=FRAME)
    svg.text(56, cy + 3, "together", size=11.5, mono=False, bold=True)
    svg.text(BYTES_AT, cy + 3, text.exact(sum(row)), size=11, anchor="end", bold=True)
    by = y + 20
    for part in parts:
        svg.open("part", f"{part.what}: {text.exact(part.nbytes)}, {words[part.category]}")
        swatch(svg, part.category, RIGHT_HALF, by - 10, small=True)
        svg.text(RIGHT_HALF + 78, by, text.human(part.nbytes), size=10.5, anchor="end")
        what = part.what if len(part.what) <= 60 else part.what.replace(", made in backward by ", ", by ")
        svg.text(RIGHT_HALF + 86, by, text.short(what, 60), size=10)
        svg.close()
        by += 19
    return max(cy + 22, by + 4)


RIGHT_HALF, BYTES_AT, SHARE_AT = 384.0, 296.0, 348.0


def share_words(n: int, total: int) -> str:
    """A share of the peak; what is there but under half a percent is not called nothing."""
    if not n:
        return ""
    share = 100 * n / total
    return f"{share:.0f} %" if share >= 0.5 else "< 1 %"


def draw_inside(svg: Svg, inside: Inside, y: float) -> float:
    """What kernels held: the highest moment as a sum, and the operators that held most."""
    svg.open("legend inside", "memory that a kernel takes and gives back while it runs")
    svg.line(18, y - 10, WIDTH - 18, y - 10, line=FRAME)
    y += 12
    swatch(svg, KERNELS, 18, y - 12)
    svg.text(56, y, KERNELS, size=11.5, bold=True, mono=False)
    note = "taken and given back while an operation runs; it depends on the processor, and no operation returns it"
    svg.text(148, y, note, size=11, mono=False, fill=SOFT)
    y += 20
    words = (
        f"highest: ledger {text.exact(inside.ledger)} + inside kernels {text.exact(inside.kernels)} "
        f"= {text.exact(inside.total)}"
    )
    svg.text(56, y, words, size=11)
    shown = [x for x in inside.operators[:MOST_OPERATORS] if 100 * x[1] >= inside.operators[0][1]]
    by = [f"{text.short(text.quoted(op), 40)} {text.human(n)}" for op, n in shown]
    if len(inside.operators) > len(shown):
        by.append(f"and {len(inside.operators) - len(shown)} with less")
    for part in text.wrapped(f"by operator, at most: {', '.join(by)}", WIDTH - 80, lambda t: width_of(t, 11)):
        y += 18
        svg.text(56, y, part, size=11)
    svg.close()
    return y + 20
