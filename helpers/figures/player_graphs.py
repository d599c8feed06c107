"""The graphs of a player: which is shown when, which drawing serves it, and what each part of a drawing stands for."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.data import Recording

from . import text
from .graph import Drawn, drawn
from .graph_text import twin_of
from .order import Block, Folding, fold
from .view import View, flags_of, rows_like, title_of, view_of

#: Different drawings in one player at most, and their bytes beside the still's own.
MOST_DRAWINGS, MOST_BYTES = 6, 400_000


@dataclass(frozen=True, slots=True)
class Parts:
    """What a drawing's parts stand for, each a list of ids by repetition (-1: that repetition has none)."""

    items: list[list[int]]  # of each `g.item` with data-nodes
    tensors: list[list[int]]  # of each `g.kept`
    item_blocks: list[int]  # of each item: its block, -1 outside
    tensor_blocks: list[int]
    blocks: list[dict]


NOTHING = Parts([], [], [], [], [])


def graphs_of(recording: Recording, still: Drawn | None, lit: int | None = None) -> tuple[list[dict], list[str | None]]:
    """Every graph as data, and the drawings: the first is None for the still's own.

    Graphs that differ only in ids, title and flags share a drawing. lit: about how many nodes, over all graphs, may
    light up; of blocks that repeat too often for that, evenly chosen repetitions do. None for all.
    """
    if still is None:
        return [], []
    drawings: list[str | None] = [None]
    known: dict[str, tuple[int, View, Parts]] = {}
    shown = still.view.graph.id
    if still.scene is not None:
        key = sign(still.view) if len(recording.graphs) > 1 else ""
        known[key] = (0, still.view, parts_of(still))
    room, graphs = MOST_BYTES, []
    each = None if lit is None else max(lit // len(recording.graphs), 1)
    for graph, (first, last) in zip(recording.graphs, spans(recording), strict=True):
        view = still.view if graph.id == shown else view_of(recording, graph, None)
        key = sign(view) if len(recording.graphs) > 1 else ""  # nothing to share it with
        words = ""
        if key not in known and graph.id == shown:
            known[key] = (0, view, NOTHING)
        if key not in known:
            found = drawn(view) if len(drawings) < MOST_DRAWINGS else None
            if found is not None and len(found.figure.svg) <= room:
                room -= len(found.figure.svg)
                known[key] = (len(drawings), view, parts_of(found))
                drawings.append(found.figure.svg)
            else:
                known[key] = (-1, view, NOTHING)
        number, like, parts = known[key]
        if number < 0:
            words = f"This graph is not drawn here: run.graphs[{graph.id}] shows it."
        parts = carried(like, view, parts)
        flags = flags_of(view)
        pruned = set(graph.pruned)
        if each is not None:
            parts, told = thinned(parts, each)
            flags += told
            pruned.intersection_update(n for item in parts.items for n in item)
        graphs.append(
            {
                "drawing": number,
                "first": first,
                "last": last,
                "title": pass_words(view),
                "flags": flags,
                "items": parts.items,
                "tensors": parts.tensors,
                "item_blocks": parts.item_blocks,
                "tensor_blocks": parts.tensor_blocks,
                "blocks": parts.blocks,
                "pruned": sorted(
                    graph.pruned if each is None else {n for i in parts.items for n in i} & {*graph.pruned}
                ),
                **({"words": words} if words else {}),
            }
        )
    return graphs, drawings


def pass_words(view: View) -> str:
    """ "Graph 2 of 4: backward() on line 9": whose graph this is. The player shows it at every moment, not at one."""
    head = title_of(view).split(",", 1)[0]
    if view.graph.trigger == "end":
        return f"{head}: no backward ran"
    where = text.line(view.recording, view.graph.place)
    call = "backward()" if view.graph.trigger == "backward" else "autograd.grad()"
    return f"{head}: {call}" + (f" on {where}" if where else "")


def spans(recording: Recording) -> list[tuple[int, int]]:
    """For each graph the positions for which it is shown: up to the end of its pass, then the next one is.

    A pass inside another has the positions of its own pass; where two spans hold a position, the later graph is meant.
    """
    n = len(recording.events)
    left = {e.graph: e.index + 1 for e in recording.events if e.kind == "leave"}
    inner = [g.parent is not None for g in recording.graphs]
    outer = [g for g in recording.graphs if g.parent is None]
    out: dict[int, tuple[int, int]] = {}
    first = 0
    for i, graph in enumerate(outer):
        last = n if i == len(outer) - 1 else max(left.get(graph.id, first), first)
        out[graph.id] = (first, last)
        first = min(last + 1, n)
    for graph, inside in zip(recording.graphs, inner, strict=True):
        if inside:
            begins = graph.event + 1 if graph.event is not None else n
            out[graph.id] = (begins, max(left.get(graph.id, n), begins))
    return [out[g.id] for g in recording.graphs]


def sign(view: View) -> str:
    """What two graphs have in common whose drawings differ in ids, title and flags alone: their twins say it all."""
    plain = fold(view.recording, view.ordered, wanted=False)
    lines = twin_of(view, plain, sizes=True).split("\n")[1:]
    flags = {f"{flag[0].upper()}{flag[1:]}." for flag in flags_of(view)}
    return "\n".join(line for line in lines if line not in flags)


def carried(like: View, view: View, parts: Parts) -> Parts:
    """The same parts with another graph's ids, where the two graphs are alike node for node."""
    if like is view or parts is NOTHING:
        return parts
    nodes = view.recording.nodes
    node = dict(zip(like.ordered, view.ordered, strict=True))
    saved: dict[int, int] = {}
    for a, b in node.items():
        saved.update(zip(nodes[a].saved, nodes[b].saved, strict=False))
    return Parts(
        [[node.get(n, -1) for n in item] for item in parts.items],
        [[saved.get(s, -1) for s in tensor] for tensor in parts.tensors],
        parts.item_blocks,
        parts.tensor_blocks,
        parts.blocks,
    )


def thinned(parts: Parts, most: int) -> tuple[Parts, list[str]]:
    """The same with fewer repetitions, so that about `most` nodes are left; and in words how few."""
    size = sum(map(len, parts.items))
    if size <= most or not parts.blocks:
        return parts, []
    chosen, blocks, told = [], [], []
    for block in parts.blocks:
        count = block["count"]
        few = min(count, max(count * most // size, 2))
        chosen.append([round(k * (count - 1) / (few - 1)) for k in range(few)] if few < count else range(count))
        blocks.append({**block, "count": few})
        if few < count:
            told.append(f"Of {block['label']}, {few:,} light up, evenly spaced")

    def some(ids: list[int], block: int) -> list[int]:
        if block < 0:
            return ids
        each = len(ids) // parts.blocks[block]["count"]
        return [n for r in chosen[block] for n in ids[r * each : (r + 1) * each]]

    return Parts(
        [some(*pair) for pair in zip(parts.items, parts.item_blocks, strict=True)],
        [some(*pair) for pair in zip(parts.tensors, parts.tensor_blocks, strict=True)],
        parts.item_blocks,
        parts.tensor_blocks,
        blocks,
    ), told


def parts_of(found: Drawn) -> Parts:
    view, folding, scene = found.view, found.folding, found.scene
    if scene is None:
        return NOTHING
    leaves = leaf_slots(view, folding)
    items, tensors, item_blocks, tensor_blocks = [], [], [], []
    for item in scene.items:
        if item.node is None:
            continue
        block = item.block
        mine = item.nodes or (item.node,)
        if block is None:
            block = next((leaves[n][0] for n in mine if n in leaves), None)
        count = folding.blocks[block].count if block is not None else 1
        slots = [slots_of(view, folding, leaves, n, block, count) for n in mine]
        items.append([slot[k] for k in range(count) for slot in slots])
        item_blocks.append(-1 if block is None else block)
        for ellipse in item.ellipses:
            rows = []
            for row in ellipse.rows:
                by_node = {other.node.id: other.saved.id for other in rows_like(view, folding, row)}
                rows.append([by_node.get(n, -1) for n in slots_of(view, folding, leaves, row.node.id, block, count)])
            tensors.append([row[k] for k in range(count) for row in rows])
            tensor_blocks.append(-1 if block is None else block)
    return Parts(items, tensors, item_blocks, tensor_blocks, blocks_of(found))


def slots_of(view: View, folding: Folding, leaves: dict, n: int, block: int | None, count: int) -> list[int]:
    """A drawn node's counterpart in each repetition of a block, -1 where one has none."""
    if block is None:
        return [n]
    if n in leaves:
        return leaves[n][1]
    drawn_ones = folding.blocks[block].drawn
    if n in drawn_ones:
        j = drawn_ones.index(n)
        return [-1 if member[j] is None else member[j] for member in folding.blocks[block].members]
    return [n] * count  # a leaf that all repetitions share


def leaf_slots(view: View, folding: Folding) -> dict[int, tuple[int, list[int]]]:
    """Drawn leaves that stand for one leaf of each repetition → (block, leaves by repetition)."""
    place = {
        n: (b, k)
        for b, block in enumerate(folding.blocks)
        for k, member in enumerate(block.members)
        for n in member
        if n is not None
    }
    out: dict[int, tuple[int, list[int]]] = {}
    nodes = view.recording.nodes
    for n in view.ordered:
        for edge in nodes[n].edges:
            leaf = edge.node
            if leaf is None or leaf not in view.number or not nodes[leaf].leaf or n not in place:
                continue
            stands = folding.stands[leaf]
            if stands in folding.leaf_times:
                b, k = place[n]
                slots = out.setdefault(stands, (b, [-1] * folding.blocks[b].count))[1]
                slots[k] = leaf
    return out


def blocks_of(found: Drawn) -> list[dict]:
    """Folded blocks: which frame of the drawing is theirs (-1: none), a label, and how often they stand."""
    frames: dict[int, int] = {}
    number = 0
    for frame, place in zip(found.scene.frames, found.plan.frames, strict=True):
        for i in frame.boxes:
            if found.scene.items[i].block is not None:
                frames.setdefault(found.scene.items[i].block, number if place is not None else -1)
        number += place is not None
    return [
        {"frame": frames.get(b, -1), "label": times(block), "count": block.count}
        for b, block in enumerate(found.folding.blocks)
    ]


def times(block: Block) -> str:
    """ "12 modules (layers.0 … layers.11)", "12 × the same 18 operations"."""
    return f"{block.count:,} modules ({block.label})" if " … " in block.label else f"{block.count:,} × {block.label}"
