"""A recording at a glance: the code and what each line did, the graph, the ledger, the memory. One bundle, one twin."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from helpers.data import MemoryEvent, Node, Recording, state_at

from . import text
from .bundle import INSET, MONO, Figure, escape, joined, paragraph
from .graph import graph_figure
from .kept import CELL, kept_figure, table, td
from .memory import memory_figure
from .memory_parts import rounds_of
from .palette import ALERT

VERBS = ("allocates {}", "frees {}", "keeps {} for backward")
#: Lines of code shown at each end of a longer block.
MOST_LINES = 60


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of the recorded block: what its own operations, and the backward nodes that it called, did to memory."""

    number: int
    code: str
    allocated: int
    freed: int
    kept: int
    error: bool
    rounds: tuple[tuple[int, int, int], ...] = ()  # the same three for each round of a loop that the line ran in


@dataclass(frozen=True, repr=False)
class Parts:
    """What an overview is made of. marks: which figure is which; lead: HTML that stands above them."""

    figures: tuple[Figure, ...]
    marks: tuple[str, ...]  # "code", "graph", "kept", "memory"
    failed: str
    more: str  # how to see the other graphs
    lead: str

    @property
    def alt(self) -> str:
        return " ".join(part.alt for part in self.figures)


def overview_figure(recording: Recording) -> Figure:
    """Code, graph, ledger and memory of a recording as one figure."""
    parts = parts_of(recording, graph_figure(recording, graph_shown(recording)))
    twin = [part.text for part in parts.figures]
    if parts.more:
        twin.insert(len(twin) - 2, parts.more)
    if parts.failed:
        twin.insert(0, parts.failed)
    title = f"Recording of {text.plural(len(recording.events), 'event')}"
    return joined(title, parts.lead, parts.figures, "\n\n".join(twin), parts.alt)


def graph_shown(recording: Recording) -> int:
    """The graph that a still shows: the one in which an error arose, else the first."""
    return (failed_at(recording)[0] or 0) if error_words(recording) else 0


def parts_of(recording: Recording, graph: Figure) -> Parts:
    """graph: the figure of `graph_shown`."""
    failed, shown = error_words(recording), graph_shown(recording)
    kept = kept_figure(recording, recording.graphs[shown].event if recording.graphs else None)
    found = {"code": code_figure(code_lines(recording)), "graph": graph, "kept": kept}
    found["memory"] = memory_figure(recording)
    found = {mark: part for mark, part in found.items() if part is not None}
    more = others_words(len(recording.graphs), shown) if len(recording.graphs) > 1 else ""
    lead = f'<p style="margin:0 0 8px 0;color:{ALERT};font-weight:bold;">{escape(failed)}</p>' if failed else ""
    lead += paragraph(more, soft=True) if more else ""
    lead = f'<div style="{INSET}">{lead}</div>' if lead else ""
    return Parts(tuple(found.values()), tuple(found), failed, more, lead)


def others_words(count: int, shown: int) -> str:
    """Which of several graphs this is, and how to see the others."""
    others = [f"run.graphs[{i}]" for i in range(count) if i != shown]
    which = (
        " and ".join(filter(None, (", ".join(others[:-1]), others[-1])))
        if len(others) < 5
        else f"run.graphs[0] to run.graphs[{count - 1}]"
    )
    one = "The other is" if len(others) == 1 else "The others are" if len(others) < 5 else "All are"
    return f"This recording has {count:,} graphs; this is number {shown + 1}. {one} {which}."


def error_words(recording: Recording) -> str:
    """What was raised, where, and who had released what was missing; "" if nothing was."""
    if not recording.events or recording.events[-1].kind != "error":
        return ""
    event = recording.events[-1]
    message = text.message(event)
    where = text.line(recording, event.place)
    graph, node = failed_at(recording)
    if graph is None:
        return f"The code raised an error{' on ' + where if where else ''}. {message}".rstrip()
    called = text.line(recording, recording.graphs[graph].place)
    words = f"The backward{' on ' + called if called else ''} raised an error"
    if node is None:
        return f"{words}. {message}".rstrip()
    made = text.line(recording, node.place)
    words += f" as {text.quoted(node.name)}{' of ' + made if made else ''} ran. {message}".rstrip()
    words += "" if words.endswith((".", "!", "?")) else "."
    by = released_by(recording, node, event.index)
    return words + (f" What it had kept was released by the backward{by}." if by is not None else "")


def failed_at(recording: Recording) -> tuple[int | None, Node | None]:
    """The pass in which the recording's error arose, and the node that was running, as far as can be told.

    Where the event does not say it: the pass that began and did not end, and the next node that was due in it, if that
    one lacks what it needs.
    """
    event = recording.events[-1]
    if event.node is not None:
        return event.graph, recording.nodes[event.node]
    began = [e.graph for e in recording.events if e.kind == "enter"]
    ended = {e.graph for e in recording.events if e.kind == "leave"}
    unfinished = [g for g in began if g not in ended]
    if not unfinished:
        return None, None
    graph = recording.graphs[unfinished[-1]]
    ran = {e.node for e in recording.events if e.graph == graph.id and e.kind == "run"}
    due = [recording.nodes[n] for n in graph.nodes if n not in ran and n not in graph.pruned]
    node = max((n for n in due if not n.leaf), key=lambda n: (n.sequence or 0, -n.id), default=None)
    if node is None:
        return graph.id, None
    lacking = any(state_at(recording.saved[s], event.index) in ("released", "changed in place") for s in node.saved)
    return graph.id, node if lacking else None


def released_by(recording: Recording, node: Node, before: int) -> str | None:
    """ " on line 4": the backward that released what a node had kept; None if none did."""
    released = [recording.saved[s].released for s in node.saved]
    events = [recording.events[e] for e in released if e is not None and e < before]
    passes = [e.graph for e in events if e.graph is not None]
    if not passes:
        return None
    line = text.line(recording, recording.graphs[passes[0]].place)
    return f" on {line}" if line else " before"


def code_lines(recording: Recording) -> list[CodeLine]:
    """Lines of the recorded block, with the bytes that each allocated, freed, and had kept for backward."""
    if recording.cell is None:
        return []
    source = recording.sources[recording.cell]
    first, last = recording.span
    if last < first or not source.lines:
        return []
    made: dict[int, list[int]] = {}
    by_round: dict[int, dict[int, list[int]]] = {}
    loop = rounds_of(recording)
    starts = loop.starts if loop else ()
    seen: set[tuple[int | None, int]] = set()  # storages kept: in a round of the loop, and, with None, at all
    for event in recording.events:
        number = line_of(recording, event)
        if number is None:
            continue
        entry = made.setdefault(number, [0, 0, 0, 0])
        turn = bisect_right(starts, event.index)
        this = by_round.setdefault(number, {}).setdefault(turn, [0, 0, 0])
        for k, storages in enumerate((event.allocated, event.freed)):
            n = sum(recording.storages[s].nbytes for s in storages)
            entry[k] += n
            this[k] += n
        kept = {s for k in event.kept for s in recording.saved[k].storages}
        for s in kept:
            if recording.storages[s].category not in ("parameters", "buffers"):
                for counts, key in ((entry, (None, s)), (this, (turn, s))):
                    counts[2] += recording.storages[s].nbytes if key not in seen else 0
                    seen.add(key)
        entry[3] |= event.kind == "error"
    out = []
    for number in range(first, last + 1):
        index = number - source.first
        code = source.lines[index].rstrip("\n") if 0 <= index < len(source.lines) else ""
        allocated, freed, kept, error = made.get(number, (0, 0, 0, 0))
        rounds = tuple(tuple(n) for n in by_round.get(number, {}).values()) if starts else ()
        out.append(CodeLine(number, code, allocated, freed, kept, bool(error), rounds if len(rounds) > 1 else ()))
    return out


def line_of(recording: Recording, event: MemoryEvent) -> int | None:
    """The line of the recorded block that ran at an event: in backward, the one that called backward."""
    place = event.place
    if event.phase == "backward" and event.graph is not None:
        place = recording.graphs[event.graph].place
    found = recording.place_of(place)
    frame = found.outer if found else None
    return frame.line if frame and frame.source == recording.cell else None


def notes_of(line: CodeLine) -> str:
    """What a line did, in words. In a loop: what it did in each round, or the rounds' sum where they differ."""
    sums = (line.allocated, line.freed, line.kept)
    equal = [k for k in range(3) if len({found[k] for found in line.rounds}) == 1]
    parts = []
    for which, heading, counts in (
        (equal, f"in each of {len(line.rounds):,} rounds: ", line.rounds[0] if line.rounds else ()),
        ([k for k in range(3) if k not in equal], f"{len(line.rounds):,} rounds together: ", sums),
    ):
        if words := [verb.format(text.exact(counts[k])) for k, verb in enumerate(VERBS) if k in which and sums[k]]:
            parts.append((heading if line.rounds else "") + ", ".join(words))
    if line.error:
        parts.append("raised the error")
    return ("; " if line.rounds else ", ").join(parts)


def code_figure(lines: list[CodeLine]) -> Figure | None:
    """The code as a table of lines with notes; None where the code is not known."""
    if not lines:
        return None
    hidden = 0
    if len(lines) > 2 * MOST_LINES:
        hidden = len(lines) - 2 * MOST_LINES
    rows, twin = [], ["The code that ran:"]
    width = max(len(line.code) for line in lines)
    for i, line in enumerate(lines):
        if hidden and MOST_LINES <= i < MOST_LINES + hidden:
            if i == MOST_LINES:
                twin.append(f"  … {hidden:,} more lines")
                rows.append(f"<tr>{td('…')}{td(f'{hidden:,} more lines', soft=True)}{td('')}</tr>")
            continue
        notes = notes_of(line)
        code = "".join(c if c.isprintable() else " " for c in line.code)
        padded = f"{code.ljust(min(width, 70))}  # {notes}" if notes else code
        twin.append(f"  {line.number:>4}  {padded}".rstrip())
        rows.append(
            f"<tr>{td(str(line.number), right=True, mono=True, soft=True)}"
            f"{code_cell(line.code)}{td(notes, colour=ALERT if line.error else '', soft=not line.error)}</tr>"
        )
    head = [("line", True), ("code", False), ("what it did to memory", False)]
    body = f'<div style="{INSET}">{table("The code that ran", head, rows)}</div>'
    return Figure(
        title="The code that ran",
        text="\n".join(twin),
        alt="The code that ran, with notes on memory.",
        svg="",
        body=body,
    )


def code_cell(code: str) -> str:
    """Code in a table cell, its spaces kept even where `white-space` is stripped."""
    clean = escape(code.replace("\t", "    ")).replace("  ", "\u00a0 ").replace("\u00a0  ", "\u00a0 \u00a0")
    if clean.startswith(" "):
        clean = "\u00a0" + clean[1:]
    return f'<td style="{CELL}font-family:{MONO};text-align:left;white-space:pre;">{clean}</td>'
