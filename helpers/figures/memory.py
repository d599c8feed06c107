"""The memory timeline: live bytes by category, event by event, with phases, and the peak taken apart.

What kernels held inside themselves, where it was measured, stands in the picture alone: it depends on the processor, so
no twin, title or alt text may tell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from helpers.data import Recording, Timeline, timeline

from . import text
from .bundle import Figure, figure_of
from .memory_events import event_rows
from .memory_parts import (
    Part,
    Phase,
    biggest,
    category_words,
    inside_kernels,
    parts_words,
    phase_rows,
    rounds_of,
    what_ran,
)
from .memory_svg import draw

#: Phases that the text twin lists one by one at each end; the rest is folded into a line.
MOST_PHASES = 60
#: Events up to which the text twin lists every one of them.
MOST_EVENTS = 30
#: How to have them all.
FULL = "print(run.memory.text_full())"
#: Rounds whose first events the twin names; of more, the first ones.
MOST_ROUNDS = 12


@dataclass(frozen=True, repr=False)
class MemoryFigure(Figure):
    """The timeline. peak: bytes; peak_moment: the event after which they are live (-1: before the first)."""

    peak: int = 0
    peak_moment: int = -1


def memory_figure(recording: Recording) -> MemoryFigure:
    """The timeline of live bytes by category, with its text twin. Works for any recording, an empty one too."""
    line = timeline(recording)
    peak = line.peak
    runs = phase_rows(recording, line)
    parts = biggest(recording, peak)
    twin = twin_of(recording, line, runs, parts)
    title = f"Memory: peak {text.both(max(line.totals))}"
    alt = f"Live bytes by category over {text.plural(len(recording.events), 'event')}. {peak_sentence(recording, line)}"
    svg = draw(recording, line, runs, parts, inside_kernels(recording, line))
    large = len(runs) > MOST_PHASES or len(recording.events) > MOST_EVENTS
    whole = partial(twin_of, recording, line, runs, parts, every=True) if large else None
    return figure_of(title, twin, alt, svg, MemoryFigure, peak=max(line.totals), peak_moment=peak, whole=whole)


def peak_sentence(recording: Recording, line: Timeline) -> str:
    peak = text.exact(max(line.totals))
    if line.peak < 0:
        return f"Peak: {peak}, before the first event"
    return f"Peak: {peak}, at event {line.peak + 1} of {len(recording.events)}: {what_ran(recording, line.peak)}"


def rounds_sentence(recording: Recording) -> str:
    """ "Rounds: 3, each beginning on line 6: at events 1, 105, 197"; "" for code that went round once."""
    found = rounds_of(recording)
    if found is None:
        return ""
    events = [f"{start + 1:,}" for start in found.starts[:MOST_ROUNDS]]
    more = ", …" if len(found.starts) > MOST_ROUNDS else ""
    return f"Rounds: {len(found.starts):,}, each beginning on {found.line}: at events {', '.join(events)}{more}"


def in_short(recording: Recording, line: Timeline) -> str:
    """The twin without its events: peak and phases."""
    return twin_of(recording, line, phase_rows(recording, line), biggest(recording, line.peak), events=False)


def twin_of(
    recording: Recording,
    line: Timeline,
    runs: Sequence[Phase],
    parts: Sequence[Part],
    *,
    every: bool = False,
    events: bool = True,
) -> str:
    """The twin. every: whether to list all phases and events, however many they are. events=False leaves them out."""
    totals = line.totals
    most = len(runs) if every else MOST_PHASES
    words = category_words(recording)
    lines = [
        f"Memory: {text.plural(len(recording.events), 'event')}; {text.exact(totals[0])} live before, "
        f"{text.exact(totals[-1])} after",
        peak_sentence(recording, line),
        f"  at the peak: {parts_words(line.rows[line.peak + 1], words)}",
    ]
    if parts:
        lines.append("  biggest there:")
        rows = [[text.exact(p.nbytes), words[p.category], p.what] for p in parts]
        lines += text.aligned(rows, indent="    ", right=frozenset({0}))
    if rounds := rounds_sentence(recording):
        lines.append(rounds)
    if runs:
        lines.append("Phases:")
        shown = list(runs) if len(runs) <= most else [*runs[: most // 2], *runs[-(most // 2) :]]
        table = [
            [
                f"{p.first + 1}–{p.last + 1}" if p.first < p.last else f"{p.first + 1}",
                p.name,
                f"start {text.exact(p.start)}",
                f"end {text.exact(p.end)}: {parts_words(p.end_parts, words)}",
                f"peak {text.exact(p.peak)}: {parts_words(p.peak_parts, words)}",
            ]
            for p in shown
        ]
        rows = text.aligned(table)
        if len(runs) > most:
            left = runs[most // 2 : -(most // 2)]
            top = max(p.peak for p in left)
            rows.insert(most // 2, f"  … {len(left):,} more phases, peak {text.exact(top)}; {FULL} lists each")
        lines += rows
    if not events:
        return "\n".join(lines)
    if every or 0 < len(recording.events) <= MOST_EVENTS:
        lines += ["Events:", *text.aligned(event_rows(recording, line, words))] if recording.events else []
    elif recording.events:
        lines.append(f"Events: {len(recording.events):,}; {FULL} lists each.")
    if recording.events and recording.events[-1].kind == "error":
        event = recording.events[-1]
        where = text.moment(recording, event)
        message = text.message(event)
        lines.append(f"Error{' ' + where if where else ''}" + (f": {message}" if message else ""))
    lines += [f"Note: {note}" for note in recording.notes]
    return "\n".join(lines)
