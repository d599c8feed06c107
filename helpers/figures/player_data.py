"""What the player's script is given: a recording as plain lists, position by position.

Position p is the state after event p, as twins number events (from 1); 0 is before the first. Lists indexed by position
have one entry more than there are events. Where an item of the drawing stands for several repetitions of a block, its
ids stand one repetition after the other: of c repetitions (`blocks[item_blocks[i]].count`, 1 outside blocks) with k
ids in all, repetition r has ids[r * k / c : (r + 1) * k / c]; -1 stands where a repetition has none.

A recording too long for a page is played coarsely: fewer positions, each the state after the last of several events, as
its caption says; and of blocks that repeat very often, some repetitions.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence

from helpers.data import CATEGORIES, MemoryEvent, Recording, Timeline, phases, timeline
from helpers.data.model import BUFFERS, PARAMETERS

from . import text
from .graph import Drawn
from .kept import Folded, KeptFigure
from .memory_parts import category_words, inside_kernels, rounds_of
from .memory_svg import geometry, highest
from .overview import MOST_LINES, error_words, failed_at
from .palette import CATEGORY, HATCH
from .player_graphs import graphs_of
from .player_words import Teller

VERSION = 1
#: What a page plays event by event: so many events at most, and so many bytes of data. Beyond, it is coarse.
MOST_EVENTS, MOST_BYTES = 16_000, 1_600_000
#: Positions, and nodes that light up, of a coarse one.
COARSE, LIT = 3_000, 1_500
#: Events above which it is worth to look how many bytes the data are.
_FEW = 3_000


def data_of(recording: Recording, title: str, still: Drawn | None, kept: KeptFigure) -> dict:
    """The data of a player, ready for JSON. still: the graph that the still shows, None where there is none; kept: the
    still's ledger."""
    line = timeline(recording)
    n = len(recording.events)
    if n <= MOST_EVENTS:
        data = played(recording, line, title, still, kept, range(n + 1), None)
        size = len(recording.nodes) + n > _FEW and len(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
        if size <= MOST_BYTES:
            return data
    return played(recording, line, title, still, kept, picked(recording, line), LIT)


def played(
    recording: Recording,
    line: Timeline,
    title: str,
    still: Drawn | None,
    kept: KeptFigure,
    moments: Sequence[int],
    lit: int | None,
) -> dict:
    """The data with a position for each of `moments` (numbers of events, 0 the first), and about `lit` nodes at most
    that light up; None for all."""
    steps = Steps(moments)
    n = len(moments) - 1
    events = [recording.events[m - 1] for m in moments[1:]]
    code = Code(recording)
    graphs, drawings = graphs_of(recording, still, lit)
    for graph in graphs:
        graph["first"], graph["last"] = steps.span(graph["first"], graph["last"])
    counts, nbytes, alive = ([column[m] for m in moments] for column in kept_by_position(recording))
    words: dict[str, int] = {}
    told = Teller(recording, line)
    sentences = told.captions()
    captions = [
        [words.setdefault(part, len(words)) for part in (*steps.words(p), *sentences[m])] for p, m in enumerate(moments)
    ]
    captions[0] += [words.setdefault(part, len(words)) for part in coarse_words(recording, n)]
    start, delta = changes([line.rows[m] for m in moments])
    lines = [code.line_at(e) for e in events]
    error = None
    if recording.events and recording.events[-1].kind == "error":
        node = failed_at(recording)[1]
        error = {"p": n, "node": None if node is None else node.id, "words": error_words(recording)}
    shown = {m for g in recording.graphs for m in (*g.nodes, *g.pruned)}
    if lit is not None:
        shown = {m for g in graphs for item in g["items"] for m in item if m >= 0}
    nodes, saved = nodes_of(recording, shown, code, told, error, steps), saved_of(recording, shown, told, steps)
    rows = [list(row.saved) if isinstance(row, Folded) else [row.saved.id] for row in kept.rows]
    names = category_words(recording)
    return {
        "v": VERSION,
        "n": n,
        "title": title,
        "categories": [
            [c, names[c], CATEGORY[c].fill, CATEGORY[c].line, CATEGORY[c].text, HATCH[c]] for c in CATEGORIES
        ],
        "start": start,
        "delta": delta,
        "phases": [[name, *steps.span(first + 1, last + 1)] for name, first, last in phases(recording)],
        "rounds": [steps.span(first, last) for first, last in rounds(recording)],
        "lines": code.rows,
        "hot": [-1, *(hot for hot, _ in lines)],
        "call": [-1, *(call for _, call in lines)],
        "words": list(words),
        "caption": captions,
        "kept_count": counts,
        "kept_bytes": nbytes,
        "kept_alive": alive,
        "node": [-1, *(-1 if e.node is None else e.node for e in events)],
        "what": ["", *(e.kind for e in events)],
        "nodes": nodes,
        "saved": saved,
        # a row of which only some tensors are told of says nothing rather than something wrong
        "ledger": [ids if lit is None or saved.keys() >= set(ids) else [] for ids in rows],
        "leaves": leaves_of(recording, shown, steps),
        "graphs": [
            {**g, **dict(zip(("first", "last"), steps.span(g["first"], g["last"]), strict=True))} for g in graphs
        ],
        "drawings": drawings,
        "memory": memory_of(recording, line, moments),
        "jumps": [[name, steps.at(m)] for name, m in jumps(recording, line)],
        "peak": steps.at(line.peak + 1),
        "error": error,
    }


class Steps:
    """Positions of a player, each the moment after an event; at a coarse one, several events have come at once."""

    def __init__(self, moments: Sequence[int]) -> None:
        self.moments = moments

    def at(self, moment: int) -> int:
        """The first position that shows what a moment did."""
        return min(bisect_left(self.moments, moment), len(self.moments) - 1)

    def span(self, first: int, last: int) -> list[int]:
        """Positions of the moments from first to last: at least one, even where none of them is played."""
        a, b = self.at(first), self.at(last)
        return [a, max(a, b if self.moments[b] <= last else b - 1)]

    def words(self, p: int) -> tuple[str, ...]:
        count = self.moments[p] - self.moments[p - 1] if p else 1
        return (f"{count:,} events at once, the last of them:",) if count > 1 else ()


def picked(recording: Recording, line: Timeline) -> list[int]:
    """Moments of a coarse player: those to jump to, where phases and passes begin or end, and others evenly between."""
    n = len(recording.events)
    ends = sorted({last + 1 for _, _, last in phases(recording)} | {g.event + 1 for g in recording.graphs if g.event})
    ends = ends[:: 1 + len(ends) // (COARSE // 2)]
    jump = {m for _, m in jumps(recording, line)}
    return sorted({0, n, *jump, *ends, *range(0, n, 1 + n // (COARSE // 2))})


def coarse_words(recording: Recording, n: int) -> list[str]:
    events = len(recording.events)
    if n == events:
        return []
    return [f"This recording has {events:,} events; they are played in {n:,} steps, most of several events at once."]


class Code:
    """The lines of the recorded block, a long block folded, and which of them an event belongs to."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        found = numbered(recording)
        self.rows: list[list] = [list(row) for row in found]
        self.index = {number: i for i, (number, _) in enumerate(found)}
        hidden = len(found) - 2 * MOST_LINES
        if hidden > 0:
            tail = MOST_LINES + hidden
            self.rows[MOST_LINES:tail] = [["…", text.plural(hidden, "more line")]]
            self.index = {number: folded_index(i, hidden) for i, (number, _) in enumerate(found)}

    def row(self, place: int | None) -> int:
        """Index of the row that a place is on, -1 where it is none of the block's."""
        found = self.recording.place_of(place)
        frame = found.outer if found else None
        return self.index.get(frame.line, -1) if frame and frame.source == self.recording.cell else -1

    def line_at(self, event: MemoryEvent) -> tuple[int, int]:
        """(the line that runs, in backward the one whose node runs; the line that called backward), -1 for none."""
        if event.phase != "backward":
            return self.row(event.place), -1
        call = self.row(self.recording.graphs[event.graph].place if event.graph is not None else event.place)
        mine = self.row(event.place)
        node = None if event.node is None else self.recording.nodes[event.node]
        if node is not None:
            return (-1 if node.leaf else self.row(node.place) if node.place is not None else mine), call
        return (mine if mine != call else -1), call


def numbered(recording: Recording) -> list[tuple[int, str]]:
    """The recorded block's lines with their numbers; none where its code is not known."""
    source = None if recording.cell is None else recording.sources[recording.cell]
    first, last = recording.span
    if source is None or last < first or not source.lines:
        return []
    known = dict(enumerate(source.lines, source.first))
    return [(number, known.get(number, "").rstrip("\n")) for number in range(first, last + 1)]


def folded_index(i: int, hidden: int) -> int:
    return i if i < MOST_LINES else MOST_LINES if i < MOST_LINES + hidden else i - hidden + 1


def changes(rows: Sequence[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """Bytes by category before the first event, and every change: [position, category, bytes]."""
    out = [
        [p, c, b - a]
        for p, (before, after) in enumerate(zip(rows, rows[1:], strict=False), 1)
        if before is not after
        for c, (a, b) in enumerate(zip(before, after, strict=True))
        if a != b
    ]
    return list(rows[0]), out


def kept_by_position(recording: Recording) -> tuple[list[int], list[int], list[int]]:
    """Tensors that count as kept, and their bytes, at each position: as `helpers.data.kept_bytes` has it. With them
    the tensors that are kept but do not count, since they are alive anyway."""
    size = {s.id: s.nbytes for s in recording.storages}
    category = {s.id: s.category for s in recording.storages}
    live = {s.id for s in recording.storages if s.born < 0}
    keepers: dict[int, int] = {}
    counted: dict[int, int] = {}
    anyway: set[int] = set()
    at: dict[int, list[tuple[int, int]]] = {}  # event → (storage, one keeper more or less)
    for saved in recording.saved:
        if saved.kept is None or saved.state == "never saved" or saved.scalar:
            continue
        for s in saved.storages:
            at.setdefault(saved.kept, []).append((s, 1))
            if saved.released is not None:
                at.setdefault(max(saved.released, saved.kept), []).append((s, -1))
    total = 0
    counts, nbytes, alive = [], [], []
    for i in range(-1, len(recording.events)):
        touched = {s for s, _ in at.get(i, ())}
        for s, more in at.get(i, ()):
            keepers[s] = keepers.get(s, 0) + more
        if i >= 0:
            event = recording.events[i]
            live.update(event.allocated)
            size.update(event.resized)
            category.update(event.moved)
            live.difference_update(event.freed)
            touched.update(event.allocated, event.freed, dict(event.resized), dict(event.moved))
        for s in touched:
            held = keepers.get(s, 0) > 0 and s in live
            total -= counted.pop(s, 0)
            anyway.discard(s)
            if held and category[s] in (PARAMETERS, BUFFERS):
                anyway.add(s)
            elif held:
                counted[s] = size[s]
                total += size[s]
        counts.append(len(counted))
        nbytes.append(total)
        alive.append(len(anyway))
    return counts, nbytes, alive


def rounds(recording: Recording) -> list[list[int]]:
    found = rounds_of(recording)
    if found is None:
        return []
    starts = [start + 1 for start in found.starts]
    return [[a, b - 1] for a, b in zip(starts, [*starts[1:], len(recording.events) + 1], strict=True)]


def nodes_of(
    recording: Recording, shown: set[int], code: Code, told: Teller, error: dict | None, steps: Steps
) -> dict[int, dict]:
    ran: dict[int, list[int]] = {}
    for event in recording.events:
        if event.kind in ("run", "accumulate") and event.node is not None:
            ran.setdefault(event.node, []).append(steps.at(event.index + 1))
    out = {}
    for n in sorted(shown):
        node = recording.nodes[n]
        made = node.event + 1 if node.event is not None else 0
        if node.leaf and node.leaf.storages:
            made = max(recording.storages[s].born for s in node.leaf.storages) + 1
        out[n] = {
            "made": steps.at(max(made, 0)),
            "ran": ran.get(n, []),
            "line": code.row(node.place),
            "name": node.name,
            "more": told.node_words(node),
        }
        if error is not None and error["node"] == n:
            out[n]["failed"] = error["p"]
    return out


def saved_of(recording: Recording, shown: set[int], told: Teller, steps: Steps) -> dict[int, dict]:
    out = {}
    for saved in recording.saved:
        if saved.node not in shown or saved.kept is None or saved.state == "never saved" or saved.scalar:
            continue
        out[saved.id] = {
            "kept": steps.at(saved.kept + 1),
            "gone": None if saved.released is None else steps.at(saved.released + 1),
            "changed": None if saved.changed is None else steps.at(saved.changed + 1),
            "packed": bool(saved.packed),
            "bytes": saved.nbytes,
            "words": told.saved_words(saved),
        }
    return out


def leaves_of(recording: Recording, shown: set[int], steps: Steps) -> dict[int, list[list]]:
    """Leaves whose gradient arrived: [position, bytes of .grad, "first" or "added"] for each arrival.

    [position, 0, "cleared"] where the gradient went again, as zero_grad() lets it.
    """
    out: dict[int, list[list]] = {}
    held: dict[int, set[int]] = {}  # storage of a .grad → leaves whose it is
    for event in recording.events:
        if event.accumulated is not None:
            node = event.accumulated.node
            nbytes = sum(recording.storages[s].nbytes for s in event.accumulated.storages)
            how = "first" if event.accumulated.first else "added"
            out.setdefault(node, []).append([steps.at(event.index + 1), nbytes, how])
            for leaves in held.values():
                leaves.discard(node)
            for s in event.accumulated.storages:
                held.setdefault(s, set()).add(node)
        for s in event.freed:
            for node in sorted(held.pop(s, ())):
                out[node].append([steps.at(event.index + 1), 0, "cleared"])
    return {node: arrived for node, arrived in out.items() if node in shown}


def memory_of(recording: Recording, line: Timeline, moments: Sequence[int]) -> dict:
    """Where the memory picture's columns are, for a cursor over it."""
    where = geometry(line, highest(line, inside_kernels(recording, line)))
    columns = [where.columns[m] for m in moments]
    return {
        "left": where.left,
        "step": round(where.step, 4),
        "top": where.top,
        "height": where.height,
        "columns": None if columns == list(range(len(columns))) else columns,
        "scale": where.scale,
    }


def jumps(recording: Recording, line: Timeline) -> list[list]:
    """Moments to jump to, in the order of their buttons; those that there are."""
    n = len(recording.events)
    out: list[list] = [["start", 0]]
    for phase in ("forward", "backward"):
        first = next((e.index + 1 for e in recording.events if e.phase == phase), None)
        if first is not None:
            out.append([phase, first])
    out.append(["peak", line.peak + 1])
    if recording.events and recording.events[-1].kind == "error":
        out.append(["error", n])
    out.append(["end", n])
    return out
