"""The graph as a figure: operations, leaves, and pink ellipses for what is kept until backward.

Forward runs from top to bottom. A leaf with users far apart is drawn once for each, since long arrows make a picture
slow to lay out and hard to read. Blocks that repeat are drawn once, with their count; what is still too large becomes a
summary in which every operation has its count and its bytes. Nothing is left out without a word.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from helpers.data import Graph, Node, Recording, TensorInfo, state_at

from . import layout, ledger, text, why
from .bundle import Figure, figure_of
from .draw import Svg, width_of
from .order import Folding, fold, forward_order
from .palette import ALERT, FAINT, FRAME, GRAPH, INK, SOFT

#: Boxes that a drawing may have before it becomes a summary.
MOST_DRAWN = 150
#: Graphs with more operations than this are folded even where a whole picture would fit.
FOLD_FROM = 24
#: Cells for outputs along the bottom of a box; with more, the number stands at the arrow.
MOST_OUTS = 8
_ROOMY = 20  # operations up to which inputs that need no gradient get a box of their own
_LONG = 10  # ranks that an arrow may span in a whole picture of a large graph
_FAR = 2  # ranks that an arrow from a leaf may span before the leaf is drawn again


@dataclass(frozen=True, repr=False)
class GraphFigure(Figure):
    """A graph. `nbytes`: kept for backward in it, parameters not counted. `folded`: whether `text` stands for more."""

    nbytes: int = 0
    folded: bool = False
    full: str = ""

    def text_full(self) -> str:
        return self.full or self.text


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
    one_line: bool  # whether one line made all operations but few: then a large picture need not repeat it


def graph_figure(recording: Recording, graph: int = 0, moment: int | None = None, *, folded: bool = True) -> Figure:
    """The drawing of `recording.graphs[graph]` as it stood after event `moment`, with its text twin.

    moment: an event's index; None for the moment the graph was captured. folded=False draws every node, if at all.
    Raises IndexError if there are graphs, but none of that number.
    """
    if not recording.graphs:
        return nothing(recording)
    if not -len(recording.graphs) <= graph < len(recording.graphs):
        n = len(recording.graphs)
        raise IndexError(
            f"This recording has {text.plural(n, 'graph')}, numbered from 0 to {n - 1}; there is no {graph}."
        )
    view = view_of(recording, recording.graphs[graph], moment)
    operations = sum(not recording.nodes[n].leaf for n in view.ordered)
    folding = fold(recording, view.ordered, wanted=folded and operations > FOLD_FROM)
    if folded and len(folding.drawn) > 4 * MOST_DRAWN:
        return summary(view)
    scene = build(view, folding)
    if folded and len(scene.items) > MOST_DRAWN:
        return summary(view)
    plan = layout.arrange([item.box for item in scene.items], scene.arrows, scene.frames)
    if plan is None:
        return summary(view)
    svg = draw(view, scene, plan)
    twin = twin_of(view, folding)
    title = title_of(view)
    alt = alt_of(view, folding)
    full = twin_of(view, fold(recording, view.ordered, wanted=False), sizes=True)
    return figure_of(
        title, twin, alt, svg, GraphFigure, nbytes=ledger.total(all_rows(view)), folded=bool(folding.blocks), full=full
    )


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
    lines = Counter(recording.nodes[n].place for n in ordered if not recording.nodes[n].leaf)
    one_line = bool(lines) and lines.most_common(1)[0][1] >= 0.9 * lines.total()
    return View(
        recording,
        graph,
        moment,
        ordered,
        {n: i + 1 for i, n in enumerate(ordered)},
        rows,
        frozenset(graph.pruned),
        roots,
        one_line,
    )


def all_rows(view: View) -> list[ledger.Row]:
    return [row for rows in view.rows.values() for row in rows]


def nothing(recording: Recording) -> Figure:
    """What stands where there is no graph: a sentence, in the same form."""
    sentence = " ".join(recording.notes) or "No graph: nothing that was recorded needs a gradient."
    svg = Svg()
    y = 30.0
    for part in text.wrapped(sentence, 70):
        svg.text(16, y, part, size=13, mono=False)
        y += 20
    return figure_of("No graph", sentence, sentence, svg.finish(560, y, "No graph"), GraphFigure)


# ------------------------------------------------------------------------------------------------------------- words


def trigger_words(view: View) -> str:
    graph, recording = view.graph, view.recording
    where = text.line(recording, graph.place)
    if graph.trigger == "end":
        return "as it stood at the end; no backward ran"
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


def alt_of(view: View, folding: Folding) -> str:
    heading = ledger.heading(all_rows(view))
    more = "".join(f" {block.label} drawn once for {block.count:,}." for block in folding.blocks[:4])
    return f"{title_of(view)}: {counts_of(view)}. {heading}.{more} The text form lists every node."


def leaf_kind(node: Node) -> str:
    return "parameter" if node.leaf and node.leaf.parameter else "leaf"


def from_words(view: View, node: Node, folding: Folding) -> str:
    parts = []
    for edge in node.edges:
        if edge.node is None:
            parts.append("no gradient")
        elif edge.node not in view.number:
            parts.append("outside")
        else:
            many = len(view.recording.nodes[edge.node].outputs) > 1 or edge.output
            parts.append(f"[{view.number[folding.stands[edge.node]]}]" + (f" output {edge.output}" if many else ""))
    return ", ".join(parts)


def state_words(row: ledger.Row) -> str:
    if row.state == "packed":
        return f"packed: {text.quoted(row.saved.packed)}" if row.saved.packed else "packed"
    return "kept" if row.state == "live" else row.state


def twin_of(view: View, folding: Folding, *, sizes: bool = False) -> str:
    """The text twin: every drawn node with its inputs and what it keeps. Fields are parted by two spaces.

    sizes: whether to give saved numbers that only tell a tensor's size, too.
    """
    recording = view.recording
    lines = [f"{title_of(view)}: {counts_of(view)}", ledger.heading(all_rows(view))]
    lines += [f"{flag[0].upper()}{flag[1:]}." for flag in flags_of(view)]
    for block in folding.blocks:
        numbers = [view.number[n] for n in block.members[0]]
        feeds = ", each feeding the next" if block.chained else ""
        lines.append(
            f"Folded: [{min(numbers)}] to [{max(numbers)}] stand for {block.count:,} times the same: "
            f"{block.label}{feeds}; together they keep {text.exact(block_bytes(view, block.members))}."
        )
    for n in folding.drawn:
        node = recording.nodes[n]
        lines.append("  " + "  ".join(f for f in node_fields(view, node, folding) if f))
        if node.edges:
            lines.append(f"        from {from_words(view, node, folding)}")
        for row in view.rows.get(n, ()):
            lines.append("        " + "  ".join(row_fields(view, row)))
        for number in scalars_of(view, node):
            lines.append(f"        keeps a number as {number.formal} = {text.value(number.scalar)}")
        for scalar in node.scalars if sizes else [s for s in node.scalars if not text.is_size(s.name)]:
            lines.append(f"        notes {text.quoted(scalar.name)} = {text.value(scalar.value)}")
        if node.note:
            lines.append(f"        note: {text.quoted(node.note)}")
    lines += [f"Note: {note}" for note in recording.notes]
    return "\n".join(lines)


def node_fields(view: View, node: Node, folding: Folding) -> list[str]:
    n = f"[{view.number[node.id]}]"
    roots = view.roots.get(node.id)
    root = "" if roots is None else "root" if roots == [0] else "root at output " + ", ".join(map(str, roots))
    pruned = "pruned" if node.id in view.pruned else ""
    if node.leaf:
        leaf = node.leaf
        times = folding.leaf_times.get(node.id)
        return [
            n,
            f"{leaf_kind(node)} {text.names(leaf.names) or 'unnamed'}",
            text.tensor(TensorInfo(leaf.shape, leaf.dtype, leaf.device)),
            text.exact(leaf.nbytes),
            f"×{times:,}" if times else "",
            root,
            pruned,
        ]
    kind = {"custom": "custom Function", "edge": "compiled or unknown"}.get(node.kind, "")
    where = text.line(view.recording, node.place)
    block = folding.block_of.get(node.id)
    return [
        n,
        text.quoted(node.name),
        f"makes {text.names(node.names)}" if node.names else "",
        outputs_words(node),
        where,
        f"in {text.quoted(node.module)}" if node.module else "",
        kind,
        f"×{folding.blocks[block].count:,}" if block is not None else "",
        root,
        pruned,
    ]


def outputs_words(node: Node) -> str:
    """ "4×4 float32; 2 int64", equal neighbours together: "3 times 4×4 float32"; "unknown" for a missing one."""
    runs: list[list] = []
    for info in map(text.tensor, node.outputs):
        if runs and runs[-1][0] == info:
            runs[-1][1] += 1
        else:
            runs.append([info, 1])
    return "; ".join(info if n == 1 else f"{n:,} times {info}" for info, n in runs) or "no outputs"


def row_fields(view: View, row: ledger.Row) -> list[str]:
    saved = row.saved
    info = text.tensor(TensorInfo(saved.shape, saved.dtype, saved.device))
    if row.state == "never saved":
        return [f"keeps nothing as {row.formal}", "never saved"]
    fields = [
        f"keeps {row.role} {text.names(saved.names) or 'unnamed'}",
        f"as {row.formal}",
        info,
        text.exact(saved.nbytes),
        state_words(row),
    ]
    if row.alive:
        fields.append(f"{row.alive}: not counted")
    if row.first is not None:
        fields.append(f"same storage as {ledger.formal(row.first)} of [{view.number[row.first.node]}]: counted once")
    elif row.state == "packed":
        if row.counts:
            fields.append(f"in its place {text.exact(row.storage_bytes)}")
    elif not row.alive and row.storage_bytes not in (0, saved.nbytes):
        fields.append(f"a view: its whole storage of {text.exact(row.storage_bytes)} stays")
    return fields


def block_bytes(view: View, members: Sequence[Sequence[int]]) -> int:
    return sum(row.counted for member in members for n in member for row in view.rows.get(n, ()))


# ----------------------------------------------------------------------------------------------------------- the scene


@dataclass
class Words:
    """A line of text inside a box."""

    content: str
    size: float = 11.0
    bold: bool = False
    italic: bool = False
    soft: bool = False
    colour: str = ""

    @property
    def width(self) -> float:
        return width_of(self.content, self.size) * (1.04 if self.bold else 1.0)


@dataclass
class Ellipse:
    """One kept tensor beside its node: `rows` are all the node's arguments that are this tensor."""

    rows: list[ledger.Row]
    lines: list[Words]
    rx: float
    ry: float
    state: str
    x: float = 0.0
    y: float = 0.0


@dataclass
class Item:
    """A box of the drawing: a node, a leaf, or an input that needs no gradient."""

    kind: str
    node: int | None
    lines: list[Words]
    title: str
    ellipses: list[Ellipse] = field(default_factory=list)
    outs: tuple[int, ...] = ()
    box: layout.Box | None = None
    again: bool = False
    nodes: tuple[int, ...] = ()  # all that this box stands for, where they are several


@dataclass
class Scene:
    items: list[Item]
    arrows: list[layout.Arrow]
    labels: list[str]  # beside each arrow's head: outputs, counts
    frames: list[layout.Frame]
    frame_labels: list[str]
    caption: bool  # whether each region of kept tensors says what it is


LINE = 15.0
PAD_X, PAD_Y = 12.0, 9.0
REGION_GAP, REGION_PAD = 16.0, 8.0
CAPTION = "kept until backward"


def build(view: View, folding: Folding) -> Scene:
    """Boxes, arrows and frames to be placed."""
    nodes = view.recording.nodes
    operations = [n for n in folding.drawn if not nodes[n].leaf]
    roomy = len(operations) <= _ROOMY
    outs = used_outputs(view, folding, operations)
    place = {n: i for i, n in enumerate(view.ordered)}
    items: list[Item] = []
    item_of: dict[int, int] = {}
    for group in chains(view, folding, operations, wanted=not roomy):
        item_of.update(dict.fromkeys(group, len(items)))
        if len(group) > 1:
            items.append(chain_item(view, folding, [nodes[n] for n in group]))
        else:
            items.append(operation_item(view, folding, nodes[group[0]], outs.get(group[0], ()), roomy))
    links: dict[tuple[int, int, int | None], list[int]] = {}
    leaf_users: dict[int, list[int]] = {}
    pairs = []
    for n in view.ordered:
        node = nodes[n]
        if node.leaf or folding.stands[n] not in item_of:
            continue
        head = folding.stands[n]
        for edge in node.edges:
            if edge.node is None or edge.node not in view.number:
                continue
            tail = folding.stands[edge.node]
            if nodes[tail].leaf:
                users = leaf_users.setdefault(tail, [])
                if head not in users:
                    users.append(head)
            elif (
                place[tail] < place[head] and item_of[tail] != item_of[head]
            ):  # an arrow back is one from a repetition to the next: the frame says so
                out = outs.get(tail, ()).index(edge.output) if edge.output in outs.get(tail, ()) else None
                key = (item_of[tail], item_of[head], out)
                links.setdefault(key, []).append(edge.output)
                pairs.append((key[0], key[1]))
    arrows: list[layout.Arrow] = []
    labels: list[str] = []
    rank = late_ranks(len(items), pairs)
    for (tail, head, out), outputs in links.items():
        if len(operations) > MOST_DRAWN and rank[head] - rank[tail] > _LONG:  # such arrows make a layout endless
            items.append(link_item(view, nodes[items[tail].node], outputs))
            arrows.append(layout.Arrow(len(items) - 1, head))
            labels.append("")
            continue
        arrows.append(layout.Arrow(tail, head, out))
        many = len(nodes[items[tail].node].outputs) > 1 and out is None
        same_block = folding.block_of.get(items[tail].node) == folding.block_of.get(items[head].node) is not None
        count = len(outputs) if not same_block else 1
        labels.append(output_label(outputs) if many else f"×{count:,}" if count > 2 else "")
    for leaf in folding.drawn:
        if nodes[leaf].leaf:
            for k, group in enumerate(leaf_groups([item_of[u] for u in leaf_users.get(leaf, ())], rank)):
                items.append(leaf_item(view, folding, nodes[leaf], again=k > 0))
                for user in group:
                    arrows.append(layout.Arrow(len(items) - 1, user))
                    labels.append("")
    if roomy:
        for n in operations:
            for name in plain_inputs(view, nodes[n]):
                items.append(plain_item(name))
                arrows.append(layout.Arrow(len(items) - 1, item_of[n]))
                labels.append("")
    regions = sum(bool(item.ellipses) for item in items)
    for item in items:
        measure(item, caption=regions <= 6)
    frames, frame_labels = frames_of(view, folding, items, arrows)
    return Scene(items, arrows, labels, frames, frame_labels, regions <= 6)


def chains(view: View, folding: Folding, operations: Sequence[int], *, wanted: bool) -> list[list[int]]:
    """Operations; those together that follow each other, keep nothing and feed the next alone: one box will do."""
    nodes = view.recording.nodes
    users: dict[int, set[int]] = {}
    for n in view.ordered:
        for edge in nodes[n].edges:
            if edge.node in view.number:
                users.setdefault(folding.stands[edge.node], set()).add(folding.stands[n])

    def plain(n: int) -> bool:
        node = nodes[n]
        return (
            node.kind == "operation"
            and len(node.outputs) == 1
            and len(node.edges) == 1
            and not node.note
            and not any(row.state != "never saved" for row in view.rows.get(n, ()))
        )

    groups: list[list[int]] = []
    home: dict[int, list[int]] = {}
    for n in operations:
        before = folding.stands.get(nodes[n].edges[0].node) if wanted and plain(n) else None
        group = home.get(before)
        if (
            group is not None
            and group[-1] == before
            and plain(before)
            and users[before] == {n}
            and not nodes[before].names
            and before not in view.roots
            and (before in view.pruned) == (n in view.pruned)
            and folding.block_of.get(before) == folding.block_of.get(n)
            and nodes[before].module == nodes[n].module
        ):
            group.append(n)
        else:
            group = [n]
            groups.append(group)
        home[n] = group
    return groups


def chain_item(view: View, folding: Folding, group: Sequence[Node]) -> Item:
    """One box for operations that follow each other and keep nothing."""
    last = group[-1]
    item = operation_item(view, folding, last, (), roomy=False)
    names = ", ".join(text.operation(text.quoted(node.name).strip('"')) for node in group)
    item.lines[:1] = [Words(part, 12, bold=True) for part in text.wrapped(names, 26)]
    item.nodes = tuple(node.id for node in group)
    item.title = "\n".join("  ".join(f for f in node_fields(view, node, folding) if f) for node in group)
    return item


def used_outputs(view: View, folding: Folding, operations: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Drawn nodes with several outputs → those that something uses, where there is room for a cell for each."""
    nodes = view.recording.nodes
    used: dict[int, set[int]] = {}
    for n in view.ordered:
        for edge in nodes[n].edges:
            if edge.node in view.number and len(nodes[edge.node].outputs) > 1:
                used.setdefault(folding.stands[edge.node], set()).add(edge.output)
    for n, outputs in view.roots.items():
        if len(nodes[n].outputs) > 1:
            used.setdefault(folding.stands[n], set()).update(outputs)
    drawn = set(operations)
    return {n: tuple(sorted(u)) for n, u in used.items() if n in drawn and len(u) <= MOST_OUTS}


def output_label(outputs: Sequence[int]) -> str:
    different = sorted(set(outputs))
    if len(different) <= 3:
        return "output " + ", ".join(map(str, different))
    return f"{len(different):,} outputs"


def late_ranks(count: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Ranks of operations, those that only leaves feed just above their first user: there a leaf's box would stand."""
    rank = layout.ranks_of(count, pairs)
    users: dict[int, list[int]] = {}
    feeding: dict[int, list[int]] = {}
    for tail, head in pairs:
        users.setdefault(tail, []).append(head)
        feeding.setdefault(head, []).append(tail)
    rooted = [False] * count  # fed by leaves alone, through operations with one user
    for i in range(count):  # in forward order
        rooted[i] = len(set(users.get(i, ()))) == 1 and all(rooted[j] for j in feeding.get(i, ()))
    for i in range(count - 1, -1, -1):
        if rooted[i]:
            rank[i] = rank[users[i][0]] - 1
    return rank


def leaf_groups(users: list[int], rank: Sequence[int]) -> list[list[int]]:
    """A leaf's users, parted into groups that one box can reach by short arrows; one empty group where it has none."""
    groups: list[list[int]] = []
    for user in sorted(users, key=lambda u: (rank[u], u)):
        if groups and len(groups[-1]) < 6 and rank[user] - rank[groups[-1][0]] <= _FAR:
            groups[-1].append(user)
        else:
            groups.append([user])
    return groups or [[]]


def plain_inputs(view: View, node: Node) -> list[str]:
    """Inputs that need no gradient: a name for each, "" where none is known. At most two are drawn."""
    known = why.ARGUMENTS.get(text.operation(node.name), ())
    found = []
    for i, edge in enumerate(node.edges):
        if edge.node is None:
            argument = known[i] if i < len(known) else ""
            saved = next((s for s in map(view.recording.saved.__getitem__, node.saved) if s.argument == argument), None)
            if saved is not None and saved.scalar:
                continue
            found.append(text.names(saved.names) if saved is not None else "")
    return found if len(found) <= 2 else []


@dataclass(frozen=True, slots=True)
class Number:
    """A number that a node keeps as if it were a tensor."""

    formal: str
    scalar: str


def scalars_of(view: View, node: Node) -> list[Number]:
    saved = map(view.recording.saved.__getitem__, node.saved)
    return [Number(ledger.formal(s), s.scalar) for s in saved if s.scalar and state_at(s, view.moment) is not None]


def operation_item(view: View, folding: Folding, node: Node, outs: tuple[int, ...], roomy: bool) -> Item:
    lines = [Words(text.short(text.operation(text.quoted(node.name).strip('"')), 26), 13, bold=True)]
    if node.names:
        lines.append(Words("→ " + text.short(", ".join(map(text.quoted, node.names)), 26), 11, bold=True))
    if len(node.outputs) == 1:
        lines.append(Words(text.tensor(node.outputs[0]), 11))
    elif node.outputs:
        lines.append(Words(f"{len(node.outputs):,} outputs", 11))
    where = text.line(view.recording, node.place)
    block = folding.block_of.get(node.id)
    if where and (roomy or not view.one_line):
        lines.append(Words(text.short(where, 28), 10, soft=True))
    inside = module_words(folding, node)
    if inside:
        lines.append(Words(text.short(inside, 28), 10, soft=True))
    if node.kind == "custom":
        lines.append(Words("custom Function", 10, soft=True))
    elif node.kind == "edge":
        lines.append(Words("compiled or unknown", 10, soft=True))
    numbers = [(text.quoted(s.name), s.value) for s in node.scalars if not text.is_size(s.name)]
    numbers += [(row.formal, row.scalar) for row in scalars_of(view, node)]
    shown = numbers[:2] if roomy else []
    lines += [Words(text.short(f"{name} = {text.value(number)}", 28), 10, soft=True) for name, number in shown]
    if roomy and len(numbers) > len(shown):
        lines.append(Words(f"and {len(numbers) - len(shown)} more", 10, soft=True))
    plain = sum(e.node is None for e in node.edges) - len(scalars_of(view, node))
    if plain > 0 and not (roomy and len(plain_inputs(view, node)) == plain):
        lines.append(Words(f"{text.plural(plain, 'input')} without gradient", 10, soft=True))
    if node.note:
        lines += [
            Words(part, 10, italic=True, soft=True) for part in text.wrapped(text.quoted(node.note).strip('"'), 30)[:4]
        ]
    if node.id in view.roots:
        lines.append(Words("backward starts here", 10, bold=True, colour=GRAPH["root"].text))
    if node.id in view.pruned:
        lines.append(Words("not needed by this pass", 10, soft=True, italic=True))
    kind = "pruned" if node.id in view.pruned else node.kind
    title = "  ".join(f for f in node_fields(view, node, folding) if f)
    item = Item(kind, node.id, lines, title, outs=outs)
    by_storage: dict[object, list[ledger.Row]] = {}
    for row in view.rows.get(node.id, ()):
        if row.state != "never saved":
            key = (row.saved.storages, row.saved.shape) if row.saved.storages else row.saved.id
            by_storage.setdefault(key, []).append(row)
    times = folding.blocks[block].count if block is not None else 1
    item.ellipses = [ellipse(rows, times) for rows in by_storage.values()]
    return item


def module_words(folding: Folding, node: Node) -> str:
    """A node's module, as far as its block's frame does not say it."""
    block = folding.block_of.get(node.id)
    if not node.module:
        return ""
    home = folding.blocks[block].home if block is not None else ""
    if home and (node.module + ".").startswith(home + "."):
        rest = node.module[len(home) + 1 :]
        return f"in {text.quoted(rest)}" if rest else ""
    return f"in {text.quoted(node.module)}"


def role_words(rows: Sequence[ledger.Row]) -> str:
    """What to call a tensor without a name: by the formula's names for it."""
    roles = ", ".join(r.formal for r in rows)
    saved = rows[0].saved
    if not saved.argument.isidentifier():
        return roles
    if saved.output:
        return "its output" if roles == "result" else f"output {roles}"
    known = why.ARGUMENTS.get(text.operation(rows[0].node.name), ())
    return "its input" if roles == "input" or (roles == "self" and len(known) < 2) else f"input {roles}"


def ellipse(rows: list[ledger.Row], times: int) -> Ellipse:
    row = rows[0]
    saved = row.saved
    names = ", ".join(dict.fromkeys(text.quoted(n) for r in rows for n in r.saved.names)) or role_words(rows)
    lines = [Words(text.short(names, 24), 11.5, bold=True)]
    if len(rows) > 1:
        views = row.held and row.storage_bytes not in (0, saved.nbytes)
        lines.append(Words(f"{len(rows)} views of one" if views else f"kept {len(rows)} times", 10, soft=True))
    if saved.dtype:
        lines.append(Words(text.tensor(TensorInfo(saved.shape, saved.dtype, saved.device)), 10.5))
    again = row.first is not None and not row.alive
    state = "again" if again and row.state == "live" else row.state
    if row.alive and row.state == "live":
        state = "alive"
    if row.state == "released":
        lines.append(Words("released", 10.5, italic=True))
    elif row.state == "packed":
        lines.append(Words("packed", 10.5, italic=True))
        if row.counts:
            lines.append(Words(f"{text.exact(row.storage_bytes)} in its place", 10))
        elif saved.packed:
            lines.append(Words(text.short(text.quoted(saved.packed).strip('"'), 24), 9.5))
    elif row.alive:
        lines.append(Words(text.exact(saved.nbytes), 10.5))
        lines.append(Words(f"a {row.alive}: not counted", 10, italic=True))
    elif again:
        lines.append(Words("the same memory, again", 10, italic=True))
    else:
        lines.append(Words(text.exact(row.counted) + (f" × {times:,}" if times > 1 else ""), 10.5))
        if len(rows) == 1 and row.counted != saved.nbytes:
            lines.append(Words("all that it is a view of", 10, soft=True))
    if row.state == "changed in place":
        lines.append(Words("changed in place", 10.5, bold=True, colour=ALERT))
    wide = max(line.width for line in lines)
    tall = len(lines) * 13.5
    return Ellipse(rows, lines, round(wide * 0.5 + 8 + 4.5 * len(lines), 1), round(tall * 0.5 + 11, 1), state)


def leaf_item(view: View, folding: Folding, node: Node, *, again: bool) -> Item:
    leaf = node.leaf
    lines = [Words(text.short(text.quoted(name), 28), 12, bold=True) for name in leaf.names[:3]]
    if len(leaf.names) > 3:
        lines.append(Words(f"and {len(leaf.names) - 3} more names", 10, soft=True))
    if not lines:
        lines = [Words("unnamed", 12, italic=True)]
    times = folding.leaf_times.get(node.id)
    lines.append(
        Words("the same leaf, again" if again else leaf_kind(node) + (f" × {times:,}" if times else ""), 10, soft=True)
    )
    if not again:
        lines.append(Words(text.tensor(TensorInfo(leaf.shape, leaf.dtype, leaf.device)), 11))
        lines.append(Words(text.exact(leaf.nbytes), 11))
    if node.id in view.roots:
        lines.append(Words("backward starts here", 10, bold=True, colour=GRAPH["root"].text))
    if node.id in view.pruned:
        lines.append(Words("not needed by this pass", 10, soft=True, italic=True))
    kind = "pruned" if node.id in view.pruned else leaf_kind(node)
    return Item(kind, node.id, lines, "  ".join(f for f in node_fields(view, node, folding) if f), again=again)


def link_item(view: View, node: Node, outputs: Sequence[int]) -> Item:
    """What stands at the end of an arrow too long to draw."""
    lines = [Words(f"from [{view.number[node.id]}] {text.short(text.operation(node.name), 20)}", 10.5, soft=True)]
    if len(node.outputs) > 1:
        lines.append(Words(output_label(outputs), 10, soft=True))
    return Item("none", None, lines, f"from [{view.number[node.id]}] {node.name}")


def plain_item(name: str) -> Item:
    lines = [Words(text.short(name, 26), 11, bold=True)] if name else []
    lines.append(Words("needs no gradient", 10, soft=True))
    return Item("none", None, lines, "an input that needs no gradient")


def measure(item: Item, *, caption: bool) -> None:
    """Give an item its size, and its ellipses their places within it (from the item's left top corner)."""
    main = max(line.width for line in item.lines) + 2 * PAD_X
    tall = len(item.lines) * LINE + 2 * PAD_Y - 2
    outs: tuple[float, ...] = ()
    out_height = 0.0
    if item.outs:
        widths = [max(width_of(f"out {o}", 9.5) + 8, 34.0) for o in item.outs]
        main = max(main, sum(widths))
        outs = tuple(round(w + (main - sum(widths)) / len(widths)) for w in widths)
        main, out_height = float(sum(outs)), 16.0
        tall += out_height
    main, tall = float(math.ceil(main)), float(math.ceil(tall))
    width = main
    if item.ellipses:
        columns = min(len(item.ellipses), 2)
        wide = [max(e.rx for e in item.ellipses[c::columns]) for c in range(columns)]
        inner = 2 * sum(wide) + 8 * (columns - 1)
        cap = 14.0 if caption else 0.0
        need = REGION_PAD + cap
        rows = [item.ellipses[i : i + columns] for i in range(0, len(item.ellipses), columns)]
        for row in rows:
            ry = max(e.ry for e in row)
            for k, e in enumerate(row):
                e.x = main + REGION_GAP + REGION_PAD + 2 * sum(wide[:k]) + 8 * k + wide[k]
                e.y = need + ry
            need += 2 * ry + 6
        need += REGION_PAD - 6
        if caption and (more := width_of(CAPTION, 9.5) - inner) > 0:
            inner += more
            for e in item.ellipses:
                e.x += more / 2
        width = math.ceil(main + REGION_GAP + 2 * REGION_PAD + inner)
        if need < tall:  # centre a low region beside a tall box
            for e in item.ellipses:
                e.y += (tall - need) / 2
        tall = float(math.ceil(max(tall, need)))
    item.box = layout.Box(float(width), tall, main, outs, out_height)


def frames_of(
    view: View, folding: Folding, items: Sequence[Item], arrows: Sequence[layout.Arrow]
) -> tuple[list[layout.Frame], list[str]]:
    """Frames around folded blocks, each with its label."""
    groups: dict[str, list[int]] = {}
    if folding.blocks:
        label = {}
        for b, block in enumerate(folding.blocks):
            feeds = ", each feeding the next" if block.chained else ""
            keep = block_bytes(view, block.members)
            label[b] = f"{block.count:,} × {block.label}{feeds}; together they keep {text.both(keep)}"
        for i, item in enumerate(items):
            b = folding.block_of.get(item.node) if item.node is not None else None
            if b is not None:
                groups.setdefault(label[b], []).append(i)
    home = {i: name for name, members in groups.items() for i in members}
    users: dict[int, list[int]] = {}
    for arrow in arrows:
        users.setdefault(arrow.tail, []).append(arrow.head)
    for i, item in enumerate(items):  # a leaf or plain input with one user stands in that user's frame
        if i not in home and item.kind in ("leaf", "parameter", "none", "pruned"):
            near = {home.get(u) for u in users.get(i, ())}
            if len(near) == 1 and (name := near.pop()):
                groups[name].append(i)
    frames = [layout.Frame(tuple(m), width_of(name, 10.5, mono=False) + 8, 16.0) for name, m in groups.items()]
    return frames, list(groups)


# -------------------------------------------------------------------------------------------------------------- drawing

MARGIN = 18.0


def draw(view: View, scene: Scene, plan: layout.Layout) -> str:
    """The scene, drawn as it was laid out."""
    legend = legend_of(scene, view.graph.trigger != "grad")
    width = max(plan.width + 2 * MARGIN, 660.0)
    svg = Svg()
    y = draw_head(svg, view, width)
    for frame, label in zip(plan.frames, scene.frame_labels, strict=True):
        if frame is None:  # our own layout keeps no frame together
            for part in text.wrapped(
                f"Drawn once: {label}.", width - 2 * MARGIN, lambda t: width_of(t, 12, mono=False)
            ):
                svg.text(MARGIN, y, part, size=12, mono=False, fill=SOFT)
                y += 19
    top = y + 2
    left = (width - plan.width) / 2
    svg.parts.append(f'<g transform="translate({round(left, 1)} {round(top, 1)})">')
    for frame in plan.frames:
        if frame:
            x, fy, w, h = frame
            svg.rect(
                x, fy, w, h, fill=GRAPH["module"].fill, line=GRAPH["module"].line, dash="2 3", radius=8, css="frame"
            )
    labelled: dict[int, int] = {}
    for arrow, curve, label in zip(scene.arrows, plan.arrows, scene.labels, strict=True):
        labelled[arrow.head] = labelled.get(arrow.head, -1) + bool(label)
        draw_arrow(svg, scene, arrow, list(curve), label, labelled[arrow.head])
    for frame, label in zip(plan.frames, scene.frame_labels, strict=True):
        if frame:  # on top of arrows that pass, with a ground of its own
            x, fy, _, _ = frame
            svg.rect(x + 6, fy + 5, width_of(label, 10.5, mono=False) + 8, 17, fill=GRAPH["module"].fill)
            svg.text(x + 10, fy + 17, label, size=10.5, mono=False, fill=GRAPH["module"].text)
    for item, (x, iy) in zip(scene.items, plan.corners, strict=True):
        draw_item(svg, view, item, x, iy, caption=scene.caption)
    svg.parts.append("</g>")
    bottom = top + plan.height + 16
    bottom = draw_legend(svg, legend, MARGIN, bottom, width - 2 * MARGIN)
    return svg.finish(width, bottom, title_of(view))


def draw_head(svg: Svg, view: View, width: float, more: str = "") -> float:
    """Title, counts, and a badge for each thing to know of this pass; returns where the picture may begin."""
    y = 28.0
    for i, sentence in enumerate([title_of(view), f"{counts_of(view)} · {ledger.heading(all_rows(view))}", more]):
        size, bold = (14.0, True) if i == 0 else (12.0, False)
        lines = text.wrapped(sentence, width - 2 * MARGIN, lambda t, s=size: width_of(t, s, mono=False))
        for part in lines if sentence else []:
            svg.text(MARGIN, y, part, size=size, bold=bold, mono=False, fill=SOFT if i else INK)
            y += 19
    for flag in flags_of(view):
        paint = GRAPH["root"]
        wide = width_of(flag, 11.5, mono=False) + 20
        svg.rect(MARGIN, y - 10, wide, 20, fill=paint.fill, line=paint.line, radius=10, css="badge")
        svg.text(MARGIN + 10, y + 4, flag, size=11.5, mono=False, fill=paint.text)
        y += 27
    return y


def draw_arrow(svg: Svg, scene: Scene, arrow: layout.Arrow, curve: list[layout.Point], label: str, above: int) -> None:
    """An arrow, and its label beside its head; `above`: how many labels stand there already."""
    plain = scene.items[arrow.tail].kind == "none"
    pruned = "pruned" in (scene.items[arrow.tail].kind, scene.items[arrow.head].kind)
    colour = FAINT if plain or pruned else SOFT
    svg.arrow(curve, line=colour, dash="3 3" if plain or pruned else "", css="edge")
    if label:
        x, y = curve[-1]
        svg.text(x + 7, y - 6 - 11 * above, label, size=9.5, fill=SOFT)


def draw_item(svg: Svg, view: View, item: Item, x: float, y: float, *, caption: bool) -> None:
    paint = GRAPH[item.kind]
    box = item.box
    of = " ".join(map(str, item.nodes or (item.node,))) if item.node is not None else None
    svg.open(f"item {item.kind}", item.title, nodes=of)
    dash = "4 3" if item.kind in ("pruned", "none") or item.again else ""
    round_ = 14.0 if item.kind == "none" else 3.0 if item.kind in ("leaf", "parameter") else 7.0
    svg.rect(
        x, y, box.main, box.height, fill=paint.fill, line=paint.line, width=1.3, radius=round_, dash=dash, css="box"
    )
    tall = box.height - box.out_height
    step = y + (tall - len(item.lines) * LINE) / 2 + 11.5
    for words in item.lines:
        colour = words.colour or (SOFT if words.soft else paint.text)
        svg.text(
            x + box.main / 2,
            step,
            words.content,
            size=words.size,
            bold=words.bold,
            italic=words.italic,
            fill=colour,
            anchor="middle",
        )
        step += LINE
    if item.outs:
        cx = x
        base = y + box.height - box.out_height
        svg.line(x, base, x + box.main, base, line=FRAME)
        for k, (out, w) in enumerate(zip(item.outs, box.outs, strict=True)):
            if k:
                svg.line(cx, base, cx, y + box.height, line=FRAME)
            svg.text(cx + w / 2, base + 11.5, f"out {out}", size=9.5, fill=SOFT, anchor="middle")
            cx += w
    if item.ellipses:
        draw_region(svg, item, x, y, caption=caption)
    svg.close()


def draw_region(svg: Svg, item: Item, x: float, y: float, *, caption: bool) -> None:
    """The dashed region of what a node keeps, its ellipses, and a short line to the node."""
    region = GRAPH["region"]
    box = item.box
    left = x + box.main + REGION_GAP
    top = y + min(e.y - e.ry for e in item.ellipses) - REGION_PAD - (14 if caption else 0)
    bottom = y + max(e.y + e.ry for e in item.ellipses) + REGION_PAD
    held = any(row.held for e in item.ellipses for row in e.rows)
    line = region.line if held else FAINT
    middle = y + box.height / 2
    svg.line(x + box.main, middle, left, middle, line=line, width=1.3)
    svg.rect(
        left,
        top,
        x + box.width - left,
        bottom - top,
        fill=region.fill if held else "#ffffff",
        line=line,
        width=1.1,
        dash="5 4",
        radius=10,
        css="region",
    )
    if caption:
        words = CAPTION if held else "released"
        svg.text(
            (left + x + box.width) / 2, top + 14, words, size=9.5, fill=region.text if held else SOFT, anchor="middle"
        )
    for e in item.ellipses:
        paint = GRAPH[e.state]
        row = e.rows[0]
        title = f"{row.what}: {state_words(row)}. {row.why[0].upper()}{row.why[1:]}."
        svg.open(f"kept {e.state.replace(' ', '-')}", title, saved=" ".join(str(r.saved.id) for r in e.rows))
        dash = "" if e.state in ("live", "alive", "changed in place") else "4 3"
        width = 2.4 if e.state == "changed in place" else 1.3
        svg.ellipse(
            x + e.x, y + e.y, e.rx, e.ry, fill=paint.fill, line=paint.line, width=width, dash=dash, css="tensor"
        )
        step = y + e.y - len(e.lines) * 13.5 / 2 + 10.3
        for words in e.lines:
            colour = words.colour or (SOFT if words.soft or e.state == "released" else paint.text)
            svg.text(
                x + e.x,
                step,
                words.content,
                size=words.size,
                bold=words.bold,
                italic=words.italic,
                fill=colour,
                anchor="middle",
            )
            step += 13.5
        svg.close()


def legend_of(scene: Scene, fills: bool) -> list[tuple[str, str]]:
    """(kind, words) for each kind of thing in the picture, in a fixed order. fills: whether leaves get a .grad."""
    kinds = {item.kind for item in scene.items}
    states = {e.state for item in scene.items for e in item.ellipses}
    words = [
        ("operation", "operation", "operation" in kinds),
        ("custom", "custom Function", "custom" in kinds),
        ("edge", "compiled or unknown", "edge" in kinds),
        ("parameter", "parameter", "parameter" in kinds),
        ("leaf", "leaf: its .grad is filled" if fills else "leaf", "leaf" in kinds),
        ("none", "needs no gradient", "none" in kinds),
        ("pruned", "not needed by this pass", "pruned" in kinds),
        ("live", "kept for backward", "live" in states),
        ("alive", "kept, but alive anyway", "alive" in states),
        ("again", "kept, memory counted elsewhere", "again" in states),
        ("packed", "packed by a hook", "packed" in states),
        ("released", "released", "released" in states),
        ("changed in place", "changed in place since", "changed in place" in states),
    ]
    return [(kind, label) for kind, label, there in words if there]


def draw_legend(svg: Svg, legend: Sequence[tuple[str, str]], x: float, y: float, width: float) -> float:
    """Signs with their words, in rows; returns the picture's height."""
    svg.open("legend")
    svg.line(x, y, x + width, y, line=FRAME)
    cx, cy = x, y + 20
    for kind, label in legend:
        wide = 34 + width_of(label, 11, mono=False) + 18
        if cx > x and cx + wide - 18 > x + width:
            cx, cy = x, cy + 20
        paint = GRAPH[kind]
        fill = paint.fill
        if kind in ("live", "alive", "again", "packed", "released", "changed in place"):
            dash = "" if kind in ("live", "alive", "changed in place") else "3 2"
            svg.ellipse(
                cx + 13,
                cy - 4,
                13,
                7,
                fill=fill,
                line=paint.line,
                dash=dash,
                width=2 if kind == "changed in place" else 1.2,
            )
        else:
            round_ = 7.0 if kind == "none" else 1.5 if kind in ("leaf", "parameter") else 4.0
            svg.rect(
                cx,
                cy - 11,
                26,
                14,
                fill=fill,
                line=paint.line,
                radius=round_,
                dash="3 2" if kind in ("none", "pruned") else "",
            )
        svg.text(cx + 33, cy, label, size=11, mono=False, fill=SOFT)
        cx += wide
    svg.close()
    return cy + 16


# -------------------------------------------------------------------------------------------------------------- summary


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a summary: one kind of operation."""

    name: str
    count: int
    tensors: int
    nbytes: int


def summary_lines(view: View) -> list[Line]:
    """Every kind of operation and leaf with its count and what it keeps, most bytes first."""
    nodes = view.recording.nodes
    found: dict[str, list[int]] = {}
    for n in view.ordered:
        node = nodes[n]
        name = ("parameters" if node.leaf.parameter else "leaves") if node.leaf else node.name
        entry = found.setdefault(name, [0, 0, 0])
        entry[0] += 1
        for row in view.rows.get(n, ()):
            entry[1] += row.counts
            entry[2] += row.counted
    lines = [Line(name, *entry) for name, entry in found.items()]
    return sorted(lines, key=lambda line: (-line.nbytes, -line.count, line.name))


def summary(view: View) -> Figure:
    """For a graph too large to draw: every operation with its count; the bytes add up to the ledger's total."""
    lines = summary_lines(view)
    rows = all_rows(view)
    total = ledger.total(rows)
    title = title_of(view)
    lead = "Too large to draw node by node: every operation with its count instead."
    table = [
        [text.quoted(x.name), f"{x.count:,}", text.plural(x.tensors, "tensor"), text.exact(x.nbytes)] for x in lines
    ]
    together = [
        "together",
        f"{sum(x.count for x in lines):,}",
        text.plural(sum(x.tensors for x in lines), "tensor"),
        text.exact(total),
    ]
    twin = [f"{title}: {counts_of(view)}", ledger.heading(rows)]
    twin += [f"{flag[0].upper()}{flag[1:]}." for flag in flags_of(view)]
    twin.append(lead)
    twin += text.aligned([*table, together], right=frozenset({1, 2, 3}))
    twin += [f"Note: {note}" for note in view.recording.notes]
    alt = f"{title}: {counts_of(view)}. {ledger.heading(rows)}. {lead}"
    svg = draw_summary(view, lines, lead, total)
    return figure_of(title, "\n".join(twin), alt, svg, GraphFigure, nbytes=total, folded=True)


def draw_summary(view: View, lines: Sequence[Line], lead: str, total: int) -> str:
    svg = Svg()
    width = 760.0
    y = draw_head(svg, view, width, lead)
    y += 12
    for x, label, anchor in (
        (MARGIN, "operation", ""),
        (318, "count", "end"),
        (400, "kept", "end"),
        (412, "bytes kept", ""),
    ):
        svg.text(x, y, label, size=11, mono=False, fill=SOFT, anchor=anchor)
    svg.line(MARGIN, y + 7, width - MARGIN, y + 7, line=FRAME)
    y += 24
    most = max((line.nbytes for line in lines), default=0) or 1
    shown, rest = (lines, []) if len(lines) <= 40 else (lines[:39], lines[39:])
    if rest:
        other = Line(
            f"{len(rest)} other kinds", *(sum(getattr(x, f) for x in rest) for f in ("count", "tensors", "nbytes"))
        )
        shown = [*shown, other]
    for line in shown:
        svg.open("row", f"{line.name}: {line.count:,}, keeps {text.exact(line.nbytes)}")
        svg.text(MARGIN, y, text.short(text.operation(text.quoted(line.name).strip('"')), 34), size=11.5, bold=True)
        svg.text(318, y, f"{line.count:,}", size=11.5, anchor="end")
        svg.text(400, y, f"{line.tensors:,}", size=11.5, anchor="end")
        bar = 180 * line.nbytes / most
        if line.nbytes:
            svg.rect(412, y - 10, max(bar, 1.5), 13, fill=GRAPH["live"].fill, line=GRAPH["live"].line, radius=2)
        svg.text(412 + bar + 8, y, text.exact(line.nbytes), size=11)
        svg.close()
        y += 21
    svg.line(MARGIN, y - 10, width - MARGIN, y - 10, line=FRAME)
    svg.text(MARGIN, y + 8, "together", size=11.5, bold=True)
    svg.text(318, y + 8, f"{sum(x.count for x in lines):,}", size=11.5, bold=True, anchor="end")
    svg.text(400, y + 8, f"{sum(x.tensors for x in lines):,}", size=11.5, bold=True, anchor="end")
    svg.text(412, y + 8, text.both(total), size=11.5, bold=True)
    return svg.finish(width, y + 26, title_of(view))
