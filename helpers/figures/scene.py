"""What is to be drawn of a graph: boxes with their words and sizes, arrows, frames. Where they go, layout says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from helpers.data import Node, TensorInfo

from . import layout, ledger, text, why
from .draw import width_of
from .graph_text import node_fields
from .order import Folding
from .palette import ALERT, GRAPH
from .view import View, block_bytes, block_words, leaf_kind, rows_like, scalars_of

#: Boxes that a drawing may have before it becomes a summary.
MOST_DRAWN = 150
#: Cells for outputs along the bottom of a box; with more, the number stands at the arrow.
MOST_OUTS = 8
_ROOMY = 20  # operations up to which inputs that need no gradient get a box of their own
_LONG = 10  # ranks that an arrow may span in a whole picture of a large graph
_FAR = 2  # ranks that an arrow from a leaf may span before the leaf is drawn again
LINE = 15.0
PAD_X, PAD_Y = 12.0, 9.0
REGION_GAP, REGION_PAD = 16.0, 8.0
CAPTION = "kept until backward"


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


def operation_item(view: View, folding: Folding, node: Node, outs: tuple[int, ...], roomy: bool) -> Item:
    lines = [Words(text.short(text.operation(text.quoted(node.name).strip('"')), 26), 13, bold=True)]
    if node.names:
        lines.append(Words("→ " + text.short(", ".join(map(text.quoted, node.names)), 26), 11, bold=True))
    if len(node.outputs) == 1:
        lines.append(Words(text.tensor(node.outputs[0]), 11))
    elif node.outputs:
        lines.append(Words(f"{len(node.outputs):,} outputs", 11))
    where = text.line(view.recording, node.place)
    if where and (roomy or not view.one_line):
        lines.append(Words(text.short(where, 28), 10, soft=True))
    inside = module_words(folding, node)
    if inside:
        lines.append(Words(text.short(inside, 28), 10, soft=True))
    if node.kind == "custom":
        lines.append(Words("custom Function", 10, soft=True))
    elif node.kind == "edge":
        lines.append(Words("compiled or unknown", 10, soft=True))
    numbers = [(text.quoted(s.name), s.value) for s in node.scalars if not text.is_usual(s.name, s.value)]
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
    item.ellipses = [ellipse(rows, [rows_like(view, folding, row) for row in rows]) for rows in by_storage.values()]
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


def ellipse(rows: list[ledger.Row], like: list[list[ledger.Row]]) -> Ellipse:
    """A kept tensor. like: for each of its rows the same one in every repetition of its block."""
    row = rows[0]
    counted = [r.counted for others in like for r in others if r.counts]
    saved = row.saved
    names = ", ".join(dict.fromkeys(text.quoted(n) for r in rows for n in r.saved.names)) or role_words(rows)
    lines = [Words(text.short(names, 24), 11.5, bold=True)]
    if len(rows) > 1:
        views = row.held and row.storage_bytes not in (0, saved.nbytes)
        lines.append(Words(f"{len(rows)} views of one" if views else f"kept {len(rows)} times", 10, soft=True))
    if saved.dtype:
        lines.append(Words(text.tensor(TensorInfo(saved.shape, saved.dtype, saved.device)), 10.5))
    again = row.first is not None and not row.alive and not counted
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
        lines.append(Words(times_words(counted), 10.5))
        repeats = max(map(len, like))
        if counted and len(counted) < repeats:
            lines.append(Words(f"counted in {len(counted):,} of {repeats:,}", 10, soft=True))
        if len(rows) == 1 and row.counts and row.counted != saved.nbytes:
            lines.append(Words("all that it is a view of", 10, soft=True))
    if row.state == "changed in place":
        lines.append(Words("changed in place", 10.5, bold=True, colour=ALERT))
    wide = max(line.width for line in lines)
    tall = len(lines) * 13.5
    return Ellipse(rows, lines, round(wide * 0.5 + 8 + 4.5 * len(lines), 1), round(tall * 0.5 + 11, 1), state)


def times_words(counted: Sequence[int]) -> str:
    """ "8,192 B", "8,192 B × 12", or the sum where they differ."""
    if len(set(counted)) > 1:
        return f"{text.exact(sum(counted))} in {len(counted):,}"
    return text.exact(counted[0] if counted else 0) + (f" × {len(counted):,}" if len(counted) > 1 else "")


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
            keep = text.both(block_bytes(view, block))
            label[b] = f"{block.count:,} × {block_words(view, block)}; together they keep {keep}"
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
