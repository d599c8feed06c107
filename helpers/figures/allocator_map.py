"""A caching allocator over time: what is allocated, reserved and stranded, and the map of the address space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from helpers.data import CATEGORIES, AllocatorHistory, Free, MemoryEvent, Recording, free_bytes, phases

from . import plots, text
from .allocator_layout import Map, map_of
from .bundle import Figure, figure_of
from .curves_text import clean
from .draw import width_of
from .memory_parts import category_words, what_ran
from .palette import ALERT, BAND, FAINT, FRAME, INK, SOFT
from .plots import MARGIN, WIDTH, Box, Sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

CURVES, MAP = 170.0, 340.0  # heights of the two plots
MOST_POINTS = 400
RESERVED, REQUESTED = ((INK, ()), 1.8), ((INK, (2.0, 2.0)), 1.2)  # colour and dashes, width
MOST_FAILURES = 5  # that the twin tells one by one
EDGED = 5.0  # blocks and segments at least so high, in pixels, have an outline
SOURCE_WORDS = {
    "simulated": "simulated",
    "snapshot": "from a memory snapshot of a real GPU",
    "counters": "a real GPU's own counts",
}


@dataclass(frozen=True)
class Story:
    """A history, and what is told of it."""

    history: AllocatorHistory
    recording: Recording | None

    @property
    def events(self) -> int:
        return len(self.history.readings) - 1

    @cached_property
    def free(self) -> tuple[Free, ...] | None:
        """What lies free inside segments, at each reading; None where segments are not known, or do not add up."""
        if not self.history.segments:
            return None
        found = free_bytes(self.history)
        sums = all(r.allocated + f.total == r.reserved for r, f in zip(self.history.readings, found, strict=True))
        return found if sums else None

    @cached_property
    def title(self) -> str:
        peak = self.history.readings[self.history.peak + 1].allocated
        return f"Allocator: at most {plots.binary(peak)} allocated, {plots.binary(self.history.most_reserved)} reserved"

    @cached_property
    def worst(self) -> int:
        """The first moment at which most is stranded."""
        stranded = [f.stranded for f in self.free or (Free(0, 0),)]
        return stranded.index(max(stranded)) - 1

    @cached_property
    def words(self) -> Mapping[str, str]:
        """What to call what the map shows."""
        plain = {"stranded": "stranded: free in a segment in use", "cached": "cached: segment wholly free"}
        if self.recording is None:
            return {"block": "blocks", **plain}
        return {**category_words(self.recording), "block": "block of no recorded tensor", **plain}

    def when(self, moment: int) -> str:
        """ "after event 7 of 95: mm ran on line 2"."""
        if moment < 0:
            return "before the first event"
        ran = f": {what_ran(self.recording, moment)}" if self.recording else ""
        return f"after event {moment + 1:,} of {self.events:,}{ran}"


def allocator_figure(history: AllocatorHistory, recording: Recording | None = None) -> Figure:
    """An allocator's history: curves of bytes allocated, reserved and requested, and the map of its segments.

    recording: the one that the history's blocks belong to; their categories then colour the map. A history without
    segments (source "counters") has the curves alone. Raises ValueError, a sentence, for what is no sound history.
    """
    story = Story(sound_history(history, recording), recording)
    return figure_of(story.title, twin_of(story), alt_of(story), plots.svg_of(draw_allocator(story), story.title))


def sound_history(history: object, recording: Recording | None) -> AllocatorHistory:
    if isinstance(history, Recording):
        raise ValueError("allocator_figure() takes a history first: allocator_figure(recording.allocator, recording).")
    if not isinstance(history, AllocatorHistory):
        why = " This recording has none: simulate one first." if history is None else ""
        raise ValueError(f"An AllocatorHistory was expected, not a {type(history).__name__}.{why}")
    if not history.readings:
        raise ValueError("This history has no reading: there is nothing to draw.")
    for k, r in enumerate(history.readings):
        for name in ("allocated", "reserved", "requested", "highest"):
            plots.whole(getattr(r, name), f"Reading {k}: {name}")
    if history.capacity is not None:
        plots.whole(history.capacity, "The capacity", least=1)
    for what, items in (("Segment", history.segments), ("Block", history.blocks)):
        for item in items:
            plots.whole(item.nbytes, f"{what} {item.id}")
    if recording is None:  # what holds of any history holds of it beside a recording in which nothing happens
        events = tuple(MemoryEvent(i, "free", "between") for i in range(len(history.readings) - 1))
        blocks = tuple(replace(b, storage=None) for b in history.blocks)
        failures = tuple(replace(f, storage=None) for f in history.failures)
        bare = replace(history, blocks=blocks, failures=failures)
        plots.sound(Recording((), (), (), (), (), (), events, allocator=bare), "This history")
    else:
        plots.sound(recording, "This recording")
        plots.sound(replace(recording, allocator=history), "This history beside this recording")
    return history


# ------------------------------------------------------------------------------------------------------------- words


def alt_of(story: Story) -> str:
    history = story.history
    peak = history.readings[history.peak + 1]
    parts = [
        f"Curves of bytes over {text.plural(story.events, 'event')}: at the peak {plots.binary(peak.allocated)} are "
        f"allocated and {plots.binary(peak.reserved)} reserved"
    ]
    if story.free:
        parts.append(f"stranded at most {plots.binary(story.free[story.worst + 1].stranded)}")
    if history.capacity:
        parts.append(plots.capacity_words(history.capacity, clean(history.card)))
    if history.failures:
        parts.append(f"out of memory at event {history.failures[0].event + 1:,}")
    shown = f" Under them the map: {counted(story)}, one above another." if history.segments else ""
    return f"{story.title}. {'; '.join(parts)}.{shown}"


def counted(story: Story) -> str:
    history = story.history
    return f"{text.plural(len(history.segments), 'segment')} with {text.plural(len(history.blocks), 'block')} in all"


def segments_words(history: AllocatorHistory) -> str:
    """ "small 3 (6,291,456 B), large 2 (41,943,040 B)": of all segments that were ever there."""
    pools: dict[str, list[int]] = {}
    for s in history.segments:
        pools.setdefault(s.pool, []).append(s.nbytes)
    return ", ".join(
        f"{text.quoted(pool)} {len(sizes):,} ({text.exact(sum(sizes))})" for pool, sizes in sorted(pools.items())[::-1]
    )


def failure_sentence(story: Story, k: int) -> str:
    f = story.history.failures[k]
    return (
        f"Out of memory {story.when(f.event).replace('after', 'at', 1)}: {text.exact(f.asked)} were asked for; of "
        f"{text.exact(f.capacity)}, {text.exact(f.reading.allocated)} were allocated, {text.exact(f.free)} not "
        f"reserved, and {text.exact(f.inside)} lay free inside segments"
    )


def parts_at(story: Story, moment: int) -> dict[str, int]:
    """Bytes of blocks by category after event `moment`, in stacking order; "block" is what no recorded tensor holds."""
    assert story.recording is not None
    category = {s.id: s.category for s in story.recording.storages}
    for event in story.recording.events[: moment + 1]:
        category.update(event.moved)
    found = dict.fromkeys((*CATEGORIES, "block"), 0)
    for b in story.history.blocks:
        if b.born <= moment and (b.freed is None or moment < b.freed):
            found["block" if b.storage is None else category[b.storage]] += b.nbytes
    return {name: n for name, n in found.items() if n}


def twin_of(story: Story) -> str:
    history = story.history
    peak = history.peak
    top = history.readings[peak + 1]
    highest = history.readings[-1].highest
    reserved = [r.reserved for r in history.readings]
    lines = [
        f"Allocator, {SOURCE_WORDS[history.source]}: {text.plural(story.events, 'event')}"
        + (f", {counted(story)}" if history.segments else ", segments not known")
        + f". {plots.BINARY}"
    ]
    if history.capacity is not None:
        words = plots.capital(plots.capacity_words(history.capacity, clean(history.card)))
        lines.append(f"{words}: {text.exact(history.capacity)}")
    lines.append(f"Peak allocated: {plots.exactly(top.allocated)}, {story.when(peak)}")
    rows = [["reserved there", plots.exactly(top.reserved)], ["requested there", plots.exactly(top.requested)]]
    if story.free:
        free = story.free[peak + 1]
        rows += [
            ["stranded there", plots.exactly(free.stranded) + " (free in segments that hold a block too)"],
            ["cached there", plots.exactly(free.cached) + " (segments wholly free)"],
        ]
    else:
        rows.append(["free in segments there", plots.exactly(top.reserved - top.allocated)])
    if story.recording and history.blocks:
        parts = [f"{story.words[name]} {text.exact(n)}" for name, n in parts_at(story, peak).items()]
        rows.append(["blocks there", ", ".join(parts) or "none"])
    lines += text.aligned(rows)
    if highest > top.allocated:
        lines.append(f"Allocated at most between two readings: {plots.exactly(highest)}")
    most = history.most_reserved
    lines.append(f"Reserved at most: {plots.exactly(most)}, first {story.when(reserved.index(most) - 1)}")
    if story.free:
        worst = story.free[story.worst + 1].stranded
        if worst:
            of = text.exact(history.readings[story.worst + 1].reserved)
            lines.append(f"Stranded at most: {plots.exactly(worst)}, of {of} reserved, first {story.when(story.worst)}")
        else:
            lines.append("Stranded at most: 0 B")
    elif history.segments:
        lines.append("The counts do not add up to what the segments hold: what of the free bytes is stranded is open.")
    if history.segments:
        lines.append(f"Segments by pool, in all: {segments_words(history)}")
    lines += [failure_sentence(story, k) for k in range(min(len(history.failures), MOST_FAILURES))]
    if len(history.failures) > MOST_FAILURES:
        lines.append(f"and out of memory {len(history.failures) - MOST_FAILURES:,} more times")
    if history.capacity is not None and not history.failures:
        lines.append("Never out of memory")
    return "\n".join([*lines, *(f"Note: {clean(note)}" for note in history.notes)])


# ----------------------------------------------------------------------------------------------------------- drawing


def said(story: Story, drawn: int | None) -> list[str]:
    """The sentences under the title."""
    history = story.history
    first = plots.capital(SOURCE_WORDS[history.source]) + "."
    if story.free:
        at, worst = story.free[history.peak + 1], story.free[story.worst + 1]
        first += (
            f" Stranded: {plots.binary(at.stranded)} where most is allocated, {plots.binary(worst.stranded)} at the "
            "worst."
        )
    if history.failures:
        f = history.failures[0]
        first += (
            f" Out of memory at event {f.event + 1:,}: {plots.binary(f.asked)} asked for, {plots.binary(f.free)} not "
            f"reserved, {plots.binary(f.inside)} free inside segments."
        )
        if history.most_reserved > f.capacity:
            first += " What comes after is drawn as if there were no limit."
    elif history.capacity is not None and drawn is None:
        words = plots.capital(plots.capacity_words(history.capacity, clean(history.card)))
        first += f" {words}: beyond the plot, at more than {plots.FAR} times what is reserved."
    unit = plots.unit_sentence(history.most_reserved)
    return [first + (f" {unit}." if unit else "")]


def map_sentences(story: Story, shown: Map) -> list[str]:
    """How the map is thinned, where it is."""
    out = []
    most = max(b - a for a, b in zip(shown.edges, shown.edges[1:], strict=False))
    if most > 1:
        out.append(
            f"A column stands for up to {most:,} events and shows the moment of them at which most is allocated; "
            "blocks that live only between these moments are not in the map, but in the curves."
        )
    peak = story.history.readings[story.history.peak + 1].allocated
    if peak * MAP < 2 * shown.height:
        out.append(f"All blocks together take {plots.binary(peak)} of {plots.binary(shown.height)}: too little to see.")
    elif shown.merged:
        out.append("Neighbours thinner than a pixel are gathered by kind, over a pixel or two; their sums are exact.")
    return out


def draw_allocator(story: Story) -> Canvas:
    """The drawing. Its first axes hold the curves, its second the map; both in events across and bytes upwards.

    Curves are thinned to each stretch's highest and lowest values, so no peak of any is lost. Each column of the map
    holds the bytes of one moment exactly: blocks, stranded and cached as they are then.
    """
    history = story.history
    with plots.plain_style():
        top = history.most_reserved
        drawn = history.capacity if history.capacity and history.capacity <= plots.FAR * max(top, 1) else None
        shown = map_of(history, story.recording, MAP) if history.segments else None
        sentences = said(story, drawn)
        head = plots.heading_height(story.title, sentences)
        left, right = MARGIN + 66, WIDTH - MARGIN - 8
        curves = Box(left, head + 44, right, head + 44 + CURVES)
        kinds = curve_kinds(story)
        at = curves.bottom + (24 if story.recording else 8)
        place = None
        notes: list[str] = []
        if shown:
            place = Box(left, at + 44, right, at + 44 + MAP)
            at = place.bottom
            kinds = map_kinds(story, shown)
            notes = [line for s in map_sentences(story, shown) for line in plots.sentence_lines(s)]
        caption = at + 20
        legend_at = caption + 16
        notes_at = legend_at + plots.legend_height(kinds) + 4
        sheet = Sheet(notes_at + 17 * len(notes) + 14)
        sheet.heading(story.title, sentences)
        draw_curves(sheet, story, curves, max(top, drawn or 0, 1), drawn)
        if shown and place:
            draw_map(sheet, story, shown, place)
        if history.failures:
            draw_failures(sheet, story, curves, place)
        events = f"{text.plural(story.events, 'event')}, in order (not to scale in time)"
        sheet.words((left + right) / 2, caption, events, size=11.5, fill=SOFT, anchor="center")
        sheet.legend(kinds, legend_at)
        for k, line in enumerate(notes):
            sheet.words(MARGIN, notes_at + 14 + 17 * k, line, size=11.5, fill=SOFT)
    return sheet.canvas


def curve_kinds(story: Story) -> list[tuple[str, str]]:
    if story.free:
        return [("block", "allocated"), *((k, story.words[k]) for k in ("stranded", "cached"))]
    return [("block", "allocated"), ("cached", "free inside segments")]


def map_kinds(story: Story, shown: Map) -> list[tuple[str, str]]:
    there = {*shown.single, *shown.merged}
    held = [k for k in (*CATEGORIES, "block") if k in there]
    words = dict(story.words)
    if story.recording:
        words["block"] = "allocated (above); block of no recorded tensor" if "block" in there else "allocated (above)"
        held = held if "block" in held else [*held, "block"]
    else:
        words["block"] = "allocated; blocks"
    return [(k, words[k]) for k in (*held, "stranded", "cached")]


def draw_curves(sheet: Sheet, story: Story, box: Box, top: int, drawn: int | None) -> None:
    history = story.history
    readings = history.readings
    axes = sheet.axes(box, (0, len(readings)), (0, top * 1.08))
    sheet.words(MARGIN, box.top - 14, "Bytes reserved, allocated and requested", bold=True)
    sheet.byte_rules(axes, box, top)
    allocated = [r.allocated for r in readings]
    reserved = [r.reserved for r in readings]
    requested = [r.requested for r in readings]
    free = story.free or [Free(r.reserved - r.allocated, 0) for r in readings]
    stranded = [f.stranded for f in free]
    rows = plots.thinned([allocated, reserved, stranded, [f.cached for f in free]], MOST_POINTS)
    edges = [*rows, len(readings)]
    low = [0] * len(rows)
    for kind, values in (("block", allocated), ("stranded", stranded), ("cached", [f.cached for f in free])):
        high = [a + values[r] for a, r in zip(low, rows, strict=True)]
        sheet.band(axes, kind, edges, low, high, edge=0 if kind == "block" else 0.5)
        low = high
    for name, values, (style, width) in (("reserved", reserved, RESERVED), ("requested", requested, REQUESTED)):
        sheet.steps(axes, edges, [values[r] for r in rows], style, label=name, width=width)
    sheet.stroke([(box.left, box.bottom), (box.right, box.bottom)], SOFT)
    x, y = sheet.place(axes, history.peak + 1.5, allocated[history.peak + 1])
    sheet.stroke([(x - 4, y - 8), (x + 4, y - 8), (x, y - 1.5), (x - 4, y - 8)], INK, 1.4)
    line_key(sheet, box)
    if drawn is not None:
        early = any(2 * f.event < len(readings) for f in history.failures[:1])  # its words stand at the left
        sheet.capacity(axes, box, drawn, plots.capacity_words(drawn, clean(history.card)), right=early)
    if story.recording:
        draw_phases(sheet, story.recording, box, len(readings))


def line_key(sheet: Sheet, box: Box) -> None:
    """What the lines are, at the right above the plot."""
    x = box.right
    for words, (style, width) in (("requested", REQUESTED), ("reserved", RESERVED)):
        wide = width_of(words, 11.5, mono=False)
        sheet.words(x, box.top - 14, words, size=11.5, anchor="right")
        y = box.top - 18
        sheet.stroke([(x - wide - 32, y), (x - wide - 6, y)], style[0], width, style[1])
        x -= wide + 52
    sheet.words(x, box.top - 14, "▽ most allocated", size=11.5, anchor="right")


def draw_phases(sheet: Sheet, recording: Recording, box: Box, count: int) -> None:
    """Under the curves, the phases' names where there is room."""
    runs = phases(recording)
    step = (box.right - box.left) / count
    for k, (name, first, last) in enumerate(runs):
        x1 = box.left + (first + 1) * step
        x2 = box.left + (last + 2) * step
        sheet.stroke([(x1, box.bottom + 9), (x2, box.bottom + 9)], BAND[k % 2], 16, over=-1)
        sheet.stroke([(x1, box.bottom + 1), (x1, box.bottom + 17)], FRAME, over=-1)
        for words in (name, {"forward": "fwd", "backward": "bwd"}.get(name, "")):
            if words and width_of(words, 10.5, mono=False) + 4 <= x2 - x1:
                sheet.words((x1 + x2) / 2, box.bottom + 13, words, size=10.5, fill=SOFT, anchor="center")
                break


def draw_map(sheet: Sheet, story: Story, shown: Map, box: Box) -> None:
    axes = sheet.axes(box, (0, shown.edges[-1]), (0, shown.height or 1))
    words = "The segments' addresses over time, what lies between segments left out"
    sheet.words(MARGIN, box.top - 14, words, bold=True)
    sheet.byte_rules(axes, box, shown.height)
    pixel = (shown.height or 1) / MAP
    for kind in (*CATEGORIES, "block", "stranded", "cached"):
        tall = [r for r in shown.single.get(kind, ()) if r[3] - r[2] >= EDGED * pixel]
        flat = [r for r in shown.single.get(kind, ()) if r[3] - r[2] < EDGED * pixel]
        edge = 0.0 if kind in ("stranded", "cached") else 0.4
        sheet.boxes(axes, kind, tall, edge=edge)
        sheet.boxes(axes, kind, [*flat, *shown.merged.get(kind, ())], edge=0)
    for x0, x1, low, high in shown.segments:
        if high - low >= EDGED * pixel:
            (a, b), (c, d) = sheet.place(axes, x0, low), sheet.place(axes, x1, high)
            sheet.stroke([(a, b), (c, b), (c, d), (a, d), (a, b)], FAINT, 0.8)
    sheet.stroke([(box.left, box.bottom), (box.right, box.bottom)], SOFT)


def draw_failures(sheet: Sheet, story: Story, curves: Box, place: Box | None) -> None:
    """An upright line and a cross where memory ran out."""
    axes = sheet.canvas.axes[0]
    for k, f in enumerate(story.history.failures):
        x, y = sheet.place(axes, f.event + 1, f.reading.reserved)
        axes.plot([f.event + 1], [f.reading.reserved], label="out of memory", lw=0)  # a place to read back
        for sign in (1, -1):
            sheet.stroke([(x - 5, y - 5 * sign), (x + 5, y + 5 * sign)], ALERT, 2.2)
        for box in filter(None, (curves, place)):
            sheet.stroke([(x, box.top - 4), (x, box.bottom)], ALERT, 1.2, (3, 3))
        if k == 0:
            words = f"out of memory: {plots.binary(f.asked)} asked for"
            anchor = "right" if x > (curves.left + curves.right) / 2 else "left"
            sheet.sign(x + (-8 if anchor == "right" else 8), curves.top + 8, words, anchor)
