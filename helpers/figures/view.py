"""A graph at a moment, as its drawing and its text twin both need it, and the words that both use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.data import Graph, Node, Recording, state_at

from . import ledger, text
from .bundle import Figure
from .order import Block, Folding, forward_order


@dataclass(frozen=True, repr=False)
class GraphFigure(Figure):
    """A graph. `nbytes`: kept for backward in it, parameters not counted. `folded`: whether `text` stands for more."""

    nbytes: int = 0
    folded: bool = False


@dataclass(frozen=True, repr=False)
class View:
    """A graph at a moment, as drawing and twin both need it."""

    recording: Recording
    graph: Graph
    moment: int
    ordered: list[int]
    number: dict[int, int]  # node id → its number in words and pictures, from 1 in forward order
    rows: dict[int, list[ledger.Row]]
    pruned: frozenset[int]
    roots: dict[int, list[int]]  # node id → outputs from which backward starts
    common_line: (
        str  # the line that made nearly all operations: a large picture need not repeat it; "" if there is none
    )
    device: str  # where all tensors are, if all are in one place that is not the CPU; else ""
    dtype: str  # what nearly all tensors are; "" if there is no such dtype


def numbered(recording: Recording, graph: int) -> Graph:
    """The recording's graph of that number, counted from 0. Raises IndexError, a sentence, if there is none."""
    n = len(recording.graphs)
    if not -n <= graph < n:
        raise IndexError(
            f"This recording has {text.plural(n, 'graph')}, numbered from 0 to {n - 1}; there is no {graph}."
        )
    return recording.graphs[graph]


def view_of(recording: Recording, graph: Graph, moment: int | None) -> View:
    if moment is None:
        moment = graph.event if graph.event is not None else len(recording.events) - 1
    ordered = forward_order(recording, graph)
    rows: dict[int, list[ledger.Row]] = {}
    for row in ledger.rows(recording, moment, ordered):
        rows.setdefault(row.node.id, []).append(row)
    roots: dict[int, list[int]] = {}
    for edge in graph.roots:
        if edge.node is not None:
            roots.setdefault(edge.node, []).append(edge.output)
    lines = Counter(text.line(recording, recording.nodes[n].place) for n in ordered if not recording.nodes[n].leaf)
    common = [line for line, n in lines.most_common(1) if n >= 0.9 * lines.total()]
    infos = [info for n in ordered for info in (*recording.nodes[n].outputs, recording.nodes[n].leaf)]
    devices = {info.device for info in infos if info is not None}
    dtypes = Counter(info.dtype for info in infos if info is not None and info.dtype)
    usual = [dtype for dtype, n in dtypes.most_common(1) if n >= 0.8 * dtypes.total()]
    devices |= {row.saved.device for found in rows.values() for row in found if row.saved.dtype}
    return View(
        recording,
        graph,
        moment,
        ordered,
        {n: i + 1 for i, n in enumerate(ordered)},
        rows,
        frozenset(graph.pruned),
        roots,
        common[0] if common else "",
        devices.pop() if len(devices) == 1 and "cpu" not in devices else "",
        usual[0] if usual else "",
    )


def all_rows(view: View) -> list[ledger.Row]:
    return [row for rows in view.rows.values() for row in rows]


def trigger_words(view: View) -> str:
    if view.graph.trigger == "end":
        return "as it stood at the end; no backward ran"
    return begins_words(view.recording, view.graph)


def begins_words(recording: Recording, graph: Graph) -> str:
    """ "as backward() begins on line 4": the moment at which a pass found its graph."""
    where = text.line(recording, graph.place)
    call = "backward()" if graph.trigger == "backward" else "autograd.grad()"
    return f"as {call} begins" + (f" on {where}" if where else "")


def title_of(view: View) -> str:
    n = len(view.recording.graphs)
    which = f" {view.graph.id + 1} of {n}" if n > 1 else ""
    return f"Graph{which}, {trigger_words(view)}"


def flags_of(view: View) -> list[str]:
    out = []
    if view.graph.retained:
        out.append("retain_graph=True: this backward releases nothing")
    if view.graph.create_graph:
        out.append("create_graph=True: this backward makes a graph of its own")
    if view.graph.parent is not None:
        out.append("this backward runs inside another one")
    default = view.graph.event if view.graph.event is not None else len(view.recording.events) - 1
    if view.moment != default:
        out.append(f"kept tensors as they stood after event {view.moment + 1} of {len(view.recording.events)}")
    return out


def counts_of(view: View) -> str:
    nodes = [view.recording.nodes[n] for n in view.ordered]
    leaves = sum(node.leaf is not None for node in nodes)
    edges = sum(e.node is not None for node in nodes for e in node.edges)
    return (
        f"{text.plural(len(nodes) - leaves, 'operation')}, {text.plural(leaves, 'leaf', 'leaves')}, "
        f"{text.plural(edges, 'edge')}"
    )


def leaf_kind(node: Node) -> str:
    return "parameter" if node.leaf and node.leaf.parameter else "leaf"


def block_bytes(view: View, block: Block) -> int:
    """What all repetitions of a block keep, each storage once."""
    members = (n for member in block.members for n in member if n is not None)
    return sum(row.counted for n in members for row in view.rows.get(n, ()))


def block_words(view: View, block: Block) -> str:
    """What a block is, how its repetitions hang together, and in what its first one differs."""
    words = block.label + (", each feeding the next" if block.chained else "")
    if not block.shown:
        return words
    first, drawn = block.members[0], block.drawn
    lacking = sum(n is None for n in first)
    less = kept_rows(view, drawn) - kept_rows(view, first)
    parts = [text.plural(lacking, "operation") + " fewer"] if lacking else []
    parts += [f"keeps {text.plural(less, 'tensor')} less"] if less else []
    if parts:
        has = "has " if lacking else ""
        words += f"; the first {has}{' and '.join(parts)}, since an input of it needs no gradient"
    return words


def kept_rows(view: View, member: Sequence[int | None]) -> int:
    return sum(row.held for n in member if n is not None for row in view.rows.get(n, ()))


def rows_like(view: View, folding: Folding, row: ledger.Row) -> list[ledger.Row]:
    """The same row in every repetition that has it; only itself outside blocks."""
    nodes = folding.like.get(row.node.id)
    if nodes is None:
        return [row]
    key = (row.saved.argument, row.saved.position)
    return [
        other
        for n in nodes
        for other in view.rows.get(n, ())
        if (other.saved.argument, other.saved.position) == key and other.state != "never saved"
    ]


@dataclass(frozen=True, slots=True)
class Number:
    """A number that a node keeps as if it were a tensor."""

    formal: str
    scalar: str


def scalars_of(view: View, node: Node) -> list[Number]:
    saved = map(view.recording.saved.__getitem__, node.saved)
    return [Number(ledger.formal(s), s.scalar) for s in saved if s.scalar and state_at(s, view.moment) is not None]
