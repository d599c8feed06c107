"""What a memory figure tells, as plain rows: phases, rounds, the peak taken apart, what kernels held inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers.data import CATEGORIES, MemoryEvent, Recording, Timeline, live_storages, phases
from helpers.data.model import PARAMETERS

from . import text
from .memory_events import SEED, as_gradient, seeds

#: Storages of the peak that are named.
BIGGEST = 8


@dataclass(frozen=True, slots=True)
class Phase:
    """A run of events of one phase, and the bytes by category at its peak and at its end."""

    name: str
    first: int
    last: int
    start: int  # bytes before its first event
    end: int  # bytes after its last
    peak: int
    peak_parts: tuple[int, ...]
    end_parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A storage that is live at the peak."""

    what: str
    nbytes: int
    category: str


@dataclass(frozen=True, slots=True)
class Rounds:
    """A loop's rounds: the line that they begin with, and the events at which they begin."""

    line: str
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inside:
    """What kernels held beyond their results: at each event, and where ledger and kernels together are highest."""

    moment: int  # the event, -1 for before the first
    ledger: int
    kernels: int
    operators: tuple[tuple[str, int], ...]  # each with the most that it ever held, highest first

    @property
    def total(self) -> int:
        return self.ledger + self.kernels


def phase_rows(recording: Recording, line: Timeline) -> list[Phase]:
    totals = line.totals
    out = []
    for name, first, last in phases(recording):
        span = range(first + 1, last + 2)
        top = max(span, key=lambda i: (totals[i], -i))
        if totals[first] > totals[top]:
            top = first
        ends = line.rows[last + 1]
        out.append(Phase(name, first, last, totals[first], totals[last + 1], totals[top], line.rows[top], ends))
    return out


def rounds_of(recording: Recording) -> Rounds | None:
    """Rounds of a loop: forwards that begin on the line on which the first one began; None where it ran but once.

    A forward begins with what first makes a node; what the loop does on the lines before it (gradients cleared, a batch
    taken) is of its round.
    """
    runs = [(first, last) for name, first, last in phases(recording) if name == "forward"]
    graph = any(makes(e) for e in recording.events if e.phase == "forward")
    begins = []
    for first, last in runs:
        found = [e for e in recording.events[first : last + 1] if makes(e) or not graph]
        lines = [(where, e.index) for e in found if (where := line_of(recording, e))]
        if lines:
            begins.append(lines[0])
    if not begins:
        return None
    line = begins[0][0]
    forwards = [index for where, index in begins if where == line]
    if len(forwards) < 2:
        return None
    # What comes before the first round on lines above the loop is no part of it: the later rounds tell where it begins.
    later = [backed(recording, index, line) for index in forwards[1:]]
    top = min(lowest for _, lowest in later)
    first, _ = backed(recording, forwards[0], line, top)
    return Rounds(shown_line(recording, (line[0], top)), (first, *(start for start, _ in later)))


def makes(event: MemoryEvent) -> bool:
    """Whether an event of forward made a node, or had something kept."""
    return event.node is not None or bool(event.kept)


def line_of(recording: Recording, event: MemoryEvent) -> tuple[int, int] | None:
    """(source, line) of an event in the learner's own block or file."""
    found = recording.place_of(event.place)
    return (found.outer.source, found.outer.line) if found and found.outer else None


def shown_line(recording: Recording, line: tuple[int, int]) -> str:
    """ "line 6", as text.line has it."""
    place = next(p for p in recording.places if p.outer and (p.outer.source, p.outer.line) == line)
    return text.frame_words(recording, place)


def backed(recording: Recording, index: int, line: tuple[int, int], top: int = 0) -> tuple[int, int]:
    """(the event at which the round of a forward begins, the first line of that round): back from the event that begins
    the forward, over what ran on the lines from `top` to the forward's since the last backward or step."""
    start, lowest = index, line[1]
    for event in reversed(recording.events[:index]):
        if event.phase not in ("between", "forward") or makes(event) or event.kind not in ("op", "free"):
            break
        where = line_of(recording, event)
        if where is None:
            continue
        if where[0] != line[0] or not top <= where[1] <= line[1]:
            break
        start, lowest = event.index, min(lowest, where[1])
    return start, lowest


def inside_kernels(recording: Recording, line: Timeline) -> Inside | None:
    """None unless the recording measured it."""
    held = [e for e in recording.events if e.inside]
    if not held:
        return None
    totals = line.totals
    most = max(range(len(totals)), key=lambda i: (totals[i] + (recording.events[i - 1].inside if i else 0), -i))
    by: dict[str, int] = {}
    for event in held:
        name = text.forward_operation(event.op) or "an operation"
        by[name] = max(by.get(name, 0), event.inside)
    operators = tuple(sorted(by.items(), key=lambda item: (-item[1], item[0])))
    return Inside(most - 1, totals[most], recording.events[most - 1].inside if most else 0, operators)


def biggest(recording: Recording, moment: int) -> list[Part]:
    """The largest storages live after event `moment`, each with its names or the operation that made it."""
    live = live_storages(recording, moment)
    found = sorted(live.items(), key=lambda item: (-item[1][0], item[0]))[:BIGGEST]
    return [Part(what_is(recording, s, moment), nbytes, category) for s, (nbytes, category) in found if nbytes]


def what_is(recording: Recording, s: int, moment: int) -> str:
    storage = recording.storages[s]
    shape = f"{text.shape(storage.shape)} {storage.dtype}" if storage.dtype else ""
    gradient = as_gradient(recording, s, moment) if not storage.names else ""
    seed = SEED if storage.op.startswith("aten.ones_like") and s in seeds(recording) else ""
    parts = (text.names(storage.names), gradient, seed, shape, text.made(recording, storage))
    return ", ".join(part for part in parts if part) or "unnamed"


def category_words(recording: Recording) -> dict[str, str]:
    """What to call each category here: leaves that are no parameters of a model are called leaves."""
    words = {name: name for name in CATEGORIES}
    leaves = {s for n in recording.nodes if n.leaf and not n.leaf.parameter for s in n.leaf.storages}
    mine = {s.id for s in recording.storages if s.category == PARAMETERS}
    mine |= {s for event in recording.events for s, category in event.moved if category == PARAMETERS}
    if not any(n.leaf for n in recording.nodes):  # no graph was left to tell: go by names, "0.weight" is a model's
        plain = mine and not any("." in name for s in mine for name in recording.storages[s].names)
        words[PARAMETERS] = "leaves" if plain else words[PARAMETERS]
    elif mine and leaves & mine:
        words[PARAMETERS] = "leaves" if leaves >= mine else "parameters and leaves"
    return words


def parts_words(row: Sequence[int], words: dict[str, str]) -> str:
    """ "kept for backward 2,048 B, other 8 B": categories that have bytes."""
    found = [f"{words[name]} {text.exact(n)}" for name, n in zip(CATEGORIES, row, strict=True) if n]
    return ", ".join(found) or "nothing"


def what_ran(recording: Recording, moment: int) -> str:
    """ "mm ran on line 6": the event after which a moment is."""
    if moment < 0:
        return "it began"
    event = recording.events[moment]
    when = text.moment(recording, event)
    if event.kind in ("run", "enter", "leave", "step", "stepped"):  # these name their phase themselves
        when = when.partition(", ")[2] or ("" if when.startswith("in ") else when)
    words = event_words(event)
    return f"{words} {when}" if when else words


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
        "error": ": ".join(filter(None, ("an error", text.message(event)))),
    }
    return words[event.kind]
