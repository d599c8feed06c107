"""The graph's text twin: every node, edge and kept tensor in words. It never depends on a layout."""

from __future__ import annotations

from helpers.data import Edge, Node, TensorInfo

from . import ledger, text
from .order import Folding
from .view import (
    View,
    all_rows,
    block_bytes,
    block_words,
    counts_of,
    flags_of,
    leaf_kind,
    rows_like,
    scalars_of,
    title_of,
)
from .why import MASK


def from_words(view: View, node: Node, folding: Folding) -> str:
    parts = []
    block = folding.blocks[folding.block_of[node.id]] if node.id in folding.block_of else None
    first = block.members[0][block.drawn.index(node.id)] if block and block.shown else None
    for k, edge in enumerate(node.edges):
        words = edge_words(view, folding, node, edge)
        if first is not None and words.endswith(" of the one before"):
            before = edge_words(view, folding, view.recording.nodes[first], view.recording.nodes[first].edges[k])
            words += f" (in the first {before})"
        parts.append(words)
    return ", ".join(parts)


def edge_words(view: View, folding: Folding, node: Node, edge: Edge) -> str:
    if edge.node is None:
        return "no gradient"
    if edge.node not in view.number:
        return "outside"
    many = len(view.recording.nodes[edge.node].outputs) > 1 or edge.output
    return number_words(view, folding, node, edge.node) + (f" output {edge.output}" if many else "")


def number_words(view: View, folding: Folding, user: Node, n: int) -> str:
    """ "[7]", or for a node of the repetition before: "[19] of the one before"."""
    stands = folding.stands.get(n, n)
    words = f"[{view.number[stands]}]"
    block = folding.block_of.get(user.id)
    apart = stands != n and block is not None and block == folding.block_of.get(stands)
    return f"{words} of the one before" if apart else words


def state_words(row: ledger.Row) -> str:
    if row.state == "packed":
        told = row.stand_in or not row.saved.packed
        return "packed" if told else f"packed: {text.quoted(row.saved.packed)}"
    return "kept" if row.state == "live" else row.state


def twin_of(view: View, folding: Folding, *, sizes: bool = False) -> str:
    """The text twin: every drawn node with its inputs and what it keeps. Fields are parted by two spaces.

    sizes: whether to give saved numbers that only tell a tensor's size or change nothing, too.
    """
    recording = view.recording
    lines = [f"{title_of(view)}: {counts_of(view)}", ledger.heading(all_rows(view))]
    lines += [f"{flag[0].upper()}{flag[1:]}." for flag in flags_of(view)]
    if view.pruned:
        lines.append("pruned: this pass did not need it.")
    for block in folding.blocks:
        numbers = [view.number[n] for n in block.drawn]
        lines.append(
            f"Folded: [{min(numbers)}] to [{max(numbers)}] stand for {block.count:,} times the same: "
            f"{block_words(view, block)}; together they keep {text.exact(block_bytes(view, block))}."
        )
    for n in folding.drawn:
        node = recording.nodes[n]
        lines.append("  " + "  ".join(f for f in node_fields(view, node, folding) if f))
        if node.edges:
            lines.append(f"        from {from_words(view, node, folding)}")
        for row in view.rows.get(n, ()):
            lines.append("        " + "  ".join(row_fields(view, row, folding)))
        for number in scalars_of(view, node):
            lines.append(f"        keeps a number as {number.formal} = {text.value(number.scalar)}")
        for scalar in node.scalars if sizes else [s for s in node.scalars if not text.is_usual(s.name, s.value)]:
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
    like = folding.like.get(node.id)
    return [
        n,
        text.quoted(node.name),
        f"makes {text.names(node.names)}" if node.names else "",
        outputs_words(node),
        where,
        text.in_module(node.module),
        kind,
        f"×{len(like):,}" if like else "",
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


def row_fields(view: View, row: ledger.Row, folding: Folding) -> list[str]:
    saved = row.saved
    if row.state == "never saved":
        return [f"keeps nothing as {row.formal}", "never saved"]
    fields = [
        f"keeps {row.role} {text.names(saved.names) or 'unnamed'}",
        f"as {row.formal}",
        row.form,
        row.size,
        state_words(row),
    ]
    if row.why == MASK:
        fields.append("the dropout mask")
    if row.alive:
        fields.append(f"{row.alive}: not counted")
    if row.first is not None:
        where = number_words(view, folding, row.node, row.first.node)
        fields.append(f"same storage as {ledger.formal(row.first)} of {where}: counted once")
    elif row.state == "packed":
        if row.counts:
            fields.append(f"in its place {text.exact(row.storage_bytes)}")
    elif not row.alive and row.storage_bytes not in (0, saved.nbytes):
        fields.append(f"a view: its whole storage of {text.exact(row.storage_bytes)} stays")
    return fields + repeated_words(view, folding, row)


def repeated_words(view: View, folding: Folding, row: ledger.Row) -> list[str]:
    """Where not every repetition keeps a tensor as the drawn one does: in how many of them it is kept, and counted."""
    like = folding.like.get(row.node.id)
    if like is None:
        return []
    rows = rows_like(view, folding, row)
    counted = sum(r.counts for r in rows)
    block = folding.blocks[folding.block_of[row.node.id]]
    fields = [f"in {len(rows):,} of {block.count:,}"] if len(rows) < len(like) else []
    return fields + (
        [f"counted in {counted:,} of {len(rows):,}"] if 0 < counted < len(rows) or row.counts != bool(counted) else []
    )
