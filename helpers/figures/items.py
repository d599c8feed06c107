"""Boxes of a drawing with their words and sizes: operations with what they keep, leaves, inputs without gradient."""

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
from .view import View, leaf_kind, rows_like, scalars_of

CAPTION = "kept until backward"


@dataclass(frozen=True, slots=True)
class Style:
    """Sizes of a drawing, in units."""

    line: float  # from one line of a box to the next
    pad_x: float
    pad_y: float
    title: float  # size of an operation's name
    tensor_line: float  # from one line of an ellipse to the next
    region_gap: float
    region_pad: float
    gaps: layout.Gaps


ROOMY = Style(15.0, 12.0, 9.0, 13.0, 13.5, 16.0, 8.0, layout.Gaps(40.0, 24.0))
COMPACT = Style(12.0, 8.0, 4.0, 12.0, 11.5, 8.0, 3.0, layout.Gaps(16.0, 12.0))


@dataclass(frozen=True, slots=True)
class Look:
    """What a drawing is made of, and how roomy it is. A large one says less in each box, and joins more in one."""

    view: View
    folding: Folding
    roomy: bool

    @property
    def style(self) -> Style:
        return ROOMY if self.roomy else COMPACT

    def tensor(self, info: TensorInfo) -> str:
        """A tensor in words; without its device or dtype where the picture's heading says it for all."""
        if info.device == self.view.device:
            info = TensorInfo(info.shape, info.dtype)
        usual = not self.roomy and info.device == "cpu" and info.dtype == self.view.dtype
        return text.shape(info.shape) if usual and info.dtype else text.tensor(info)


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
    block: int | None = None  # the folded block that it is in


def operation_item(look: Look, group: Sequence[Node], core: Node, outs: tuple[int, ...]) -> Item:
    """One box for operations that follow each other. core: the only one of them that may keep something."""
    view, folding = look.view, look.folding
    last = group[-1]
    names = ", ".join(bare(node) for node in group)
    limit = 26 if look.roomy else 24
    titles = text.wrapped(names, limit) if len(group) > 1 else [text.short(names, 26)]
    lines = [Words(part, look.style.title, bold=True) for part in titles]
    if last.names:
        made = ", ".join(text.quoted(local(folding, folding.block_of.get(last.id), name)) for name in last.names)
        lines.append(Words("→ " + text.short_name(made, 26), 11, bold=True))
    if len(last.outputs) == 1 and last.outputs[0] is not None:
        lines.append(Words(look.tensor(last.outputs[0]), 11 if look.roomy else 10.5))
    elif last.outputs:
        lines.append(Words(text.plural(len(last.outputs), "output"), 11))
    where = text.line(view.recording, core.place)
    where = where if look.roomy or where != view.common_line else ""
    inside = module_words(folding, core)
    if look.roomy:
        lines += [Words(text.short(part, 28), 10, soft=True) for part in (where, inside) if part]
    elif where or inside:
        lines.append(Words(text.short(", ".join(filter(None, (where, inside))), 30), 10, soft=True))
    if core.kind == "custom":
        lines.append(Words("custom Function", 10, soft=True))
    elif core.kind == "edge":
        lines.append(Words("compiled or unknown", 10, soft=True))
    numbers = [(text.quoted(s.name), s.value) for s in core.scalars if not text.is_usual(s.name, s.value)]
    numbers += [(row.formal, row.scalar) for row in scalars_of(view, core)]
    shown = numbers[:2] if look.roomy else []
    lines += [Words(text.short(f"{name} = {text.value(number)}", 28), 10, soft=True) for name, number in shown]
    if look.roomy and len(numbers) > len(shown):
        lines.append(Words(f"and {len(numbers) - len(shown)} more", 10, soft=True))
    plain = sum(e.node is None for e in core.edges) - len(scalars_of(view, core))
    if plain > 0 and not (look.roomy and len(plain_inputs(view, core)) == plain):
        lines.append(Words(f"{text.plural(plain, 'input')} without gradient", 10, soft=True))
    if core.note:
        parts = text.wrapped(text.quoted(core.note).strip('"'), 30)[:4]
        lines += [Words(part, 10, italic=True, soft=True) for part in parts]
    block = folding.block_of.get(last.id)
    if block is not None and len(folding.like[last.id]) < folding.blocks[block].count:
        times = f"in {len(folding.like[last.id]):,} of {folding.blocks[block].count:,}"
        lines.append(Words(times, 10, soft=True, italic=True))
    lines += ending(view, last)
    kind = "pruned" if last.id in view.pruned else core.kind
    title = "\n".join("  ".join(f for f in node_fields(view, node, folding) if f) for node in group)
    item = Item(kind, last.id, lines, title, outs=outs, block=block)
    if len(group) > 1:
        item.nodes = tuple(node.id for node in group)
    by_storage: dict[object, list[ledger.Row]] = {}
    for row in view.rows.get(core.id, ()):
        if row.state != "never saved":
            key = (row.saved.storages, row.saved.shape) if row.saved.storages else row.saved.id
            by_storage.setdefault(key, []).append(row)
    owner = bare(core) if len(group) > 1 else ""
    item.ellipses = [ellipse(look, rows, owner) for rows in by_storage.values()]
    return item


def bare(node: Node) -> str:
    return text.operation(text.quoted(node.name).strip('"'))


def ending(view: View, node: Node) -> list[Words]:
    """What a box says last: where backward starts, what this pass does not need."""
    lines = []
    if node.id in view.roots and view.graph.trigger != "end":  # where no pass ran, none starts
        lines.append(Words("backward starts here", 10, bold=True, colour=GRAPH["root"].text))
    if node.id in view.pruned:
        lines.append(Words("not needed by this pass", 10, soft=True, italic=True))
    return lines


def module_words(folding: Folding, node: Node) -> str:
    """A node's module, as far as its block's frame does not say it."""
    block = folding.block_of.get(node.id)
    if not node.module:
        return ""
    home = folding.blocks[block].home if block is not None else ""
    if home and (node.module + ".").startswith(home + "."):
        rest = node.module[len(home) + 1 :]
        return text.in_module(rest)
    return text.in_module(node.module)


def local(folding: Folding, block: int | None, name: str) -> str:
    """A name inside a block's frame: without the module that the frame names."""
    home = folding.blocks[block].home if block is not None else ""
    return name[len(home) + 1 :] if home and name.startswith(f"{home}.") and len(name) > len(home) + 1 else name


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


def role_words(rows: Sequence[ledger.Row], owner: str) -> str:
    """What to call a tensor without a name: by the formula's names. owner: whose it is, where that is unclear."""
    roles = ", ".join(r.formal for r in rows)
    saved = rows[0].saved
    its = f"{owner}'s " if owner else ""
    if rows[0].why == why.MASK:
        return "dropout mask"
    if not saved.argument.isidentifier():
        return its + roles
    if saved.output:
        return (its or "its ") + "output" if roles == "result" else f"{its}output {roles}"
    known = why.ARGUMENTS.get(text.operation(rows[0].node.name), ())
    only = roles == "input" or (roles == "self" and len(known) < 2)
    return (its or "its ") + "input" if only else f"{its}input {roles}"


def ellipse(look: Look, rows: list[ledger.Row], owner: str) -> Ellipse:
    """A kept tensor; in a folded block, with how many repetitions keep it."""
    row = rows[0]
    saved = row.saved
    like = [rows_like(look.view, look.folding, r) for r in rows]
    counted = [r.counted for others in like for r in others if r.counts]
    block = look.folding.block_of.get(row.node.id)
    names = ", ".join(dict.fromkeys(text.quoted(local(look.folding, block, n)) for r in rows for n in r.saved.names))
    names = names or role_words(rows, owner if look.roomy or len(owner) <= 10 else "")
    lines = [Words(text.short_name(names, 24), 11.5 if look.roomy else 11, bold=True)]
    if len(rows) > 1:
        views = row.held and row.storage_bytes not in (0, saved.nbytes)
        lines.append(Words(f"{len(rows)} views of one" if views else f"kept {len(rows)} times", 10, soft=True))
    if saved.dtype:
        lines.append(Words(look.tensor(TensorInfo(saved.shape, saved.dtype, saved.device)), 10.5))
    again = row.first is not None and not row.alive and not counted
    state = "again" if again and row.state == "live" else row.state
    if row.alive and row.state == "live":
        state = "alive"
    if row.state == "released":
        lines.append(Words("released", 10.5, italic=True))
    elif row.state == "packed":
        again = ledger.to_compute(saved)
        lines.append(Words("to be computed again" if again else "packed", 10.5, italic=True))
        if again:
            lines.append(Words(f"{text.exact(saved.nbytes)} now", 10))
        elif row.counts:
            lines.append(Words(f"{text.exact(row.storage_bytes)} in its place", 10))
        elif saved.packed and look.roomy:
            told = text.wrapped(text.quoted(saved.packed).strip('"'), 24)
            lines += [Words(text.short(part, 24), 9.5) for part in told[:3]]
    elif row.alive and look.roomy:
        lines.append(Words(text.exact(saved.nbytes), 10.5))
        lines.append(Words(f"a {row.alive}: not counted", 10, italic=True))
    elif row.alive:
        lines.append(Words("not counted", 10, italic=True))
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
    rx, ry = around(lines, look.style.tensor_line)
    return Ellipse(rows, lines, rx, ry, state)


def around(lines: Sequence[Words], step: float) -> tuple[float, float]:
    """Radii of the ellipse around centred lines of text: each line's corners lie inside it."""
    n = len(lines)
    ry = n * step / 2 + (8 if step > 12 else 6)
    rx = 0.0
    for i, line in enumerate(lines):
        far = abs((i - (n - 1) / 2) * step) + 0.3 * line.size
        rx = max(rx, (line.width / 2 + 6) / math.sqrt(1 - min(far / ry, 0.9) ** 2))
    return round(rx, 1), round(ry, 1)


def times_words(counted: Sequence[int]) -> str:
    """ "8,192 B", "8,192 B × 12", or the sum where they differ."""
    if len(set(counted)) > 1:
        return f"{text.exact(sum(counted))} in {len(counted):,}"
    return text.exact(counted[0] if counted else 0) + (f" × {len(counted):,}" if len(counted) > 1 else "")


def leaf_item(
    look: Look, node: Node, *, again: bool, then: Sequence[Node] = (), users: Sequence[int | None] = ()
) -> Item:
    """A leaf. then: views of it that stand in the same box. users: the blocks of the boxes that it feeds."""
    view, folding = look.view, look.folding
    leaf = node.leaf
    block = folding.block_of.get(then[-1].id) if then else None
    inside = block if then else users[0] if len(set(users)) == 1 else None
    shown = [text.short_name(text.quoted(local(folding, inside, name)), 28) for name in leaf.names[:3]]
    lines = [Words(name, 12 if look.roomy else 11, bold=True) for name in shown]
    if len(leaf.names) > 3:
        lines.append(Words(f"and {len(leaf.names) - 3} more names", 10, soft=True))
    if not lines:
        lines = [Words("unnamed", 12, italic=True)]
    times = folding.leaf_times.get(node.id)
    many = f" × {times:,}" if times else ""
    shape = Words(look.tensor(TensorInfo(leaf.shape, leaf.dtype, leaf.device)), 11 if look.roomy else 10.5)
    if again:
        lines.append(Words("the same leaf, again", 10, soft=True))
    elif look.roomy:
        lines += [Words(leaf_kind(node) + many, 10, soft=True), shape, Words(text.exact(leaf.nbytes), 11)]
    else:
        lines += [shape, Words(text.exact(leaf.nbytes) + many, 10.5)]
    views = "then " + ", ".join(bare(n) for n in then) if then else ""
    kind_words = "" if look.roomy or again else leaf_kind(node)
    if kind_words or views:
        lines.append(Words(text.short(", ".join(filter(None, (kind_words, views))), 30), 10, soft=True))
    lines += ending(view, node)
    kind = "pruned" if node.id in view.pruned else leaf_kind(node)
    title = "\n".join("  ".join(f for f in node_fields(view, n, folding) if f) for n in (node, *then))
    nodes = (node.id, *(n.id for n in then)) if then else ()
    return Item(kind, node.id, lines, title, again=again, nodes=nodes, block=block)


def link_item(look: Look, node: Node, outputs: Sequence[int]) -> Item:
    """What stands at the end of an arrow too long to draw."""
    number = look.view.number[node.id]
    lines = [Words(f"from [{number}] {text.short(text.operation(node.name), 20)}", 10.5, soft=True)]
    if len(node.outputs) > 1:
        lines.append(Words(output_label(outputs), 10, soft=True))
    return Item("none", None, lines, f"from [{number}] {node.name}")


def output_label(outputs: Sequence[int]) -> str:
    different = sorted(set(outputs))
    if len(different) <= 3:
        return "output " + ", ".join(map(str, different))
    return f"{len(different):,} outputs"


def plain_item(name: str) -> Item:
    lines = [Words(text.short(name, 26), 11, bold=True)] if name else []
    lines.append(Words("needs no gradient", 10, soft=True))
    return Item("none", None, lines, "an input that needs no gradient")


def measure(item: Item, style: Style, *, caption: bool) -> None:
    """Give an item its size, and its ellipses their places within it (from the item's left top corner)."""
    main = max(line.width for line in item.lines) + 2 * style.pad_x
    tall = len(item.lines) * style.line + 2 * style.pad_y - 2
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
        n = len(item.ellipses)
        columns = min(n, 2 if style is ROOMY else 5)
        wide = [max(e.rx for e in item.ellipses[c::columns]) for c in range(columns)]
        inner = 2 * sum(wide) + 8 * (columns - 1)
        pad = style.region_pad
        need = pad + (14.0 if caption else 0.0)
        rows = [item.ellipses[i : i + columns] for i in range(0, n, columns)]
        for row in rows:
            ry = max(e.ry for e in row)
            for k, e in enumerate(row):
                e.x = main + style.region_gap + pad + 2 * sum(wide[:k]) + 8 * k + wide[k]
                e.y = need + ry
            need += 2 * ry + 4
        need += pad - 4
        if caption and (more := width_of(CAPTION, 9.5) - inner) > 0:
            inner += more
            for e in item.ellipses:
                e.x += more / 2
        width = math.ceil(main + style.region_gap + 2 * pad + inner)
        if need < tall:  # centre a low region beside a tall box
            for e in item.ellipses:
                e.y += (tall - need) / 2
        tall = float(math.ceil(max(tall, need)))
    item.box = layout.Box(float(width), tall, main, outs, out_height)
