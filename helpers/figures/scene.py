"""What is to be drawn of a graph: boxes, arrows, frames. Where they go, layout says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import layout, text
from .draw import width_of
from .groups import groups_of
from .items import (
    Item,
    Look,
    Style,
    leaf_item,
    link_item,
    measure,
    operation_item,
    output_label,
    plain_inputs,
    plain_item,
)
from .order import Folding
from .view import View, block_bytes, block_words

#: Boxes that a drawing may have before it becomes a summary.
MOST_DRAWN = 150
#: Cells for outputs along the bottom of a box; with more, the number stands at the arrow.
MOST_OUTS = 8
#: Size of the words on a frame.
FRAME_LABEL = 12.0
_ROOMY = 20  # operations up to which a drawing is roomy, and inputs that need no gradient get a box of their own
_LONG = 10  # ranks that an arrow may span in a whole picture of a large graph
_FAR = 2  # ranks that an arrow from a leaf may span before the leaf is drawn again


@dataclass
class Scene:
    items: list[Item]
    arrows: list[layout.Arrow]
    labels: list[str]  # beside each arrow's head: outputs, counts
    frames: list[layout.Frame]
    frame_labels: list[str]
    caption: bool  # whether each region of kept tensors says what it is
    style: Style
    above: list[tuple[int, int]]  # boxes that must stand above others, beside what arrows ask


def build(view: View, folding: Folding) -> Scene:
    """Boxes, arrows and frames to be placed."""
    nodes = view.recording.nodes
    operations = [n for n in folding.drawn if not nodes[n].leaf]
    roomy = len(operations) <= _ROOMY
    outs = used_outputs(view, folding, operations)
    place = {n: i for i, n in enumerate(view.ordered)}
    look = Look(view, folding, roomy)
    items: list[Item] = []
    item_of: dict[int, int] = {}
    seen: set[int] = set()  # leaves that have a box
    first: dict[int, int] = {}  # each leaf's first user
    for n in view.ordered:
        for edge in nodes[n].edges:
            if edge.node is not None and edge.node in view.number and nodes[edge.node].leaf:
                first.setdefault(folding.stands[edge.node], folding.stands[n])
    for group in groups_of(view, folding, operations, wanted=not roomy):
        item_of.update(dict.fromkeys(group.nodes, len(items)))
        members = [nodes[n] for n in group.nodes]
        if group.leaf is not None:
            again = group.leaf in seen or first[group.leaf] not in group.nodes
            items.append(leaf_item(look, nodes[group.leaf], again=again, then=members))
            if not again:
                seen.add(group.leaf)
        else:
            core = nodes[group.core] if group.core is not None else members[-1]
            items.append(operation_item(look, members, core, outs.get(group.nodes[-1], ())))
    in_leaf = {n for n, i in item_of.items() if items[i].kind in ("leaf", "parameter")}
    links: dict[tuple[int, int, int | None], list[int]] = {}
    leaf_users: dict[int, list[int]] = {}
    leaf_uses: dict[tuple[int, int], int] = {}  # (leaf, item): edges of the item's own node to it
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
                if head not in users and head not in in_leaf:
                    users.append(head)
                if head == n:
                    leaf_uses[tail, item_of[head]] = leaf_uses.get((tail, item_of[head]), 0) + 1
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
        if (
            len(operations) > MOST_DRAWN and rank[head] - rank[tail] > _LONG and items[tail].node not in seen
        ):  # such arrows make a layout endless
            items.append(link_item(look, nodes[items[tail].node], outputs))
            arrows.append(layout.Arrow(len(items) - 1, head))
            labels.append("")
            continue
        arrows.append(layout.Arrow(tail, head, out))
        many = len(nodes[items[tail].node].outputs) > 1 and out is None
        same_block = items[tail].block == items[head].block is not None
        count = len(outputs) if not same_block else 1
        labels.append(output_label(outputs) if many else times(count))
    for leaf in folding.drawn:
        if not nodes[leaf].leaf or (leaf in seen and not leaf_users.get(leaf)):
            continue
        for group in leaf_groups([item_of[u] for u in leaf_users.get(leaf, ())], rank):
            blocks = [items[user].block for user in group]
            items.append(leaf_item(look, nodes[leaf], again=leaf in seen, users=blocks))
            seen.add(leaf)
            for user in group:
                arrows.append(layout.Arrow(len(items) - 1, user))
                labels.append(times(leaf_uses.get((leaf, user), 1)))
    if roomy:
        for n in operations:
            for name in plain_inputs(view, nodes[n]):
                items.append(plain_item(name))
                arrows.append(layout.Arrow(len(items) - 1, item_of[n]))
                labels.append("")
    regions = sum(bool(item.ellipses) for item in items)
    for item in items:
        measure(item, look.style, caption=regions <= 6)
    frames, frame_labels = frames_of(view, folding, items, arrows)
    above = apart(arrows, frames)
    return Scene(items, arrows, labels, frames, frame_labels, regions <= 6, look.style, above)


def times(count: int) -> str:
    """What stands at an arrow that is drawn once for several edges."""
    return f"×{count:,}" if count > 1 else ""


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


def frames_of(
    view: View, folding: Folding, items: Sequence[Item], arrows: Sequence[layout.Arrow]
) -> tuple[list[layout.Frame], list[str]]:
    """Frames around folded blocks, each with its label."""
    groups: dict[str, list[int]] = {}
    if folding.blocks:
        label = {}
        for b, block in enumerate(folding.blocks):
            keep = text.both(block_bytes(view, block))
            drawn = f"; {text.quoted(block.home)} is drawn" if block.home and block.shown else ""
            label[b] = f"{block.count:,} × {block_words(view, block)}{drawn}; together they keep {keep}"
        for i, item in enumerate(items):
            if item.block is not None:
                groups.setdefault(label[item.block], []).append(i)
    home = {i: name for name, members in groups.items() for i in members}
    users: dict[int, list[int]] = {}
    for arrow in arrows:
        users.setdefault(arrow.tail, []).append(arrow.head)
    for i, item in enumerate(items):  # a leaf or plain input with one user stands in that user's frame
        if i not in home and item.kind in ("leaf", "parameter", "none", "pruned"):
            near = {home.get(u) for u in users.get(i, ())}
            if len(near) == 1 and (name := near.pop()):
                groups[name].append(i)
    frames = [
        layout.Frame(tuple(m), width_of(name, FRAME_LABEL, mono=False) * 1.05 + 8, 18.0) for name, m in groups.items()
    ]
    return frames, list(groups)


def apart(arrows: Sequence[layout.Arrow], frames: Sequence[layout.Frame]) -> list[tuple[int, int]]:
    """What keeps frames below what feeds them and above what they feed, leaves included: else they stand side by side,
    and the picture grows wide."""
    feeding: dict[int, set[int]] = {}
    using: dict[int, set[int]] = {}
    for arrow in arrows:
        feeding.setdefault(arrow.head, set()).add(arrow.tail)
        using.setdefault(arrow.tail, set()).add(arrow.head)
    out: dict[tuple[int, int], None] = {}
    for frame in frames:
        inside = set(frame.boxes)
        fed = {a.head for a in arrows if a.tail in inside and a.head not in inside}
        for arrow in arrows:
            if (arrow.tail in inside) == (arrow.head in inside) or arrow.tail not in feeding:
                continue
            for source in feeding[arrow.head]:
                if source in feeding or source == arrow.tail:
                    continue
                near = source in inside if arrow.head in inside else using[source] <= fed
                if near:
                    out[arrow.tail, source] = None
    return list(out)
