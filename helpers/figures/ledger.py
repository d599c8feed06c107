"""The account of what is kept, as rows: who keeps which tensor, what it counts, and why. Figures are made from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from helpers.data import Node, Recording, SavedTensor, TensorInfo, live_storages, state_at
from helpers.data.model import BUFFERS, PARAMETERS

from . import text, why


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor that one node keeps.

    counted: what this row adds to the total, in bytes: the whole storage at its first keeper, 0 at the others, 0 for
    parameters and buffers (alive anyway) and for released tensors; of a packed one, what stands in its place. The
    rows' sum is the ledger's total.
    """

    saved: SavedTensor
    node: Node
    state: str  # of SAVED_STATES, at the moment
    counted: int
    storage_bytes: int  # of the storages behind it, 0 where none is live
    first: SavedTensor | None  # the earlier row whose storage this is, or None
    alive: str  # "parameter", "leaf" or "buffer" if the tensor is alive anyway, else ""
    why: str

    @property
    def what(self) -> str:
        """ "its input x", "its output y", "its input (mat2)"."""
        return f"{self.role} {self.label}"

    @property
    def role(self) -> str:
        return "its output" if self.saved.output else "its input"

    @property
    def label(self) -> str:
        """The learner's names for it, or else the formula's own in brackets."""
        return text.names(self.saved.names) or f"({self.formal})"

    @property
    def form(self) -> str:
        """Shape and dtype; of a packed tensor whose form is not known: what stands in its place."""
        saved = self.saved
        if self.stand_in:
            return text.quoted(saved.packed)
        return text.tensor(TensorInfo(saved.shape, saved.dtype, saved.device))

    @property
    def size(self) -> str:
        return text.exact(self.saved.nbytes) + (" now" if self.stand_in else "")

    @property
    def stand_in(self) -> bool:
        """Whether all that is known of it is what a hook put in its place."""
        return self.state == "packed" and bool(self.saved.packed) and not self.saved.dtype

    @property
    def formal(self) -> str:
        """What the backward formula calls it: "self", "indices[1]", "attribute mask"."""
        return formal(self.saved)

    @property
    def counts(self) -> bool:
        """Whether it adds to the total: its own memory, not alive anyway, not counted before."""
        mine = self.held and not self.alive and self.first is None
        return mine and (self.state != "packed" or self.storage_bytes > 0)

    @property
    def held(self) -> bool:
        return self.state in ("live", "packed", "changed in place")


def formal(saved: SavedTensor) -> str:
    argument = saved.argument if saved.argument.isidentifier() else "attribute " + text.quoted(saved.argument[10:])
    if not saved.argument.isidentifier() and not saved.argument.startswith("attribute "):
        argument = text.quoted(saved.argument)
    return argument if saved.position is None else f"{argument}[{saved.position}]"


def rows(recording: Recording, moment: int, nodes: Iterable[int]) -> list[Row]:
    """Rows of the given nodes in their order, as things stood after event `moment`; numbers (scalars) left out."""
    live = live_storages(recording, moment)
    keeper: dict[int, SavedTensor] = {}
    plain = {i for n in recording.nodes if n.leaf and not n.leaf.parameter for i in n.leaf.storages}
    out = []
    for n in nodes:
        node = recording.nodes[n]
        names = idle = None
        for s in node.saved:
            saved = recording.saved[s]
            state = state_at(saved, moment)
            if saved.scalar or state is None:
                continue
            held = state in ("live", "packed", "changed in place")
            here = [i for i in saved.storages if i in live] if held else []
            new = [i for i in here if i not in keeper]
            first = next((keeper[i] for i in here if i in keeper), None)
            for i in new:
                keeper[i] = saved
            categories = {live[i][1] for i in here}
            alive = "parameter" if PARAMETERS in categories else "buffer" if BUFFERS in categories else ""
            if alive == "parameter" and plain.issuperset(here):
                alive = "leaf"
            counted = sum(live[i][0] for i in new if live[i][1] not in (PARAMETERS, BUFFERS))
            if names is None:
                names = argument_names(recording, node)
                idle = idle_arguments(node)
            operation, custom = text.operation(node.name), node.kind == "custom"
            because = why.reason(operation, saved.argument, saved.output, custom, names, idle)
            if masks(recording, saved):
                because = why.MASK
            out.append(Row(saved, node, state, counted, sum(live[i][0] for i in here), first, alive, because))
    return out


def masks(recording: Recording, saved: SavedTensor) -> bool:
    """Whether a kept tensor is dropout's mask: made by an operation that draws one, or drawn into as soon as made."""
    return bool(saved.storages) and all(is_mask(recording, s) for s in saved.storages) and not saved.names


def is_mask(recording: Recording, s: int) -> bool:
    storage = recording.storages[s]
    op = text.forward_operation(storage.op)
    if op in ("native_dropout", "_fused_dropout"):  # their other result is the output
        event = recording.events[storage.born] if 0 <= storage.born < len(recording.events) else None
        return event is not None and len(event.allocated) == 2 and event.allocated[1] == s
    if op not in ("empty_like", "empty") or not 0 <= storage.born < len(recording.events) - 1:
        return False
    event, drawn = recording.events[storage.born], recording.events[storage.born + 1]
    draws = drawn.kind == "op" and text.forward_operation(drawn.op) == "bernoulli_" and not drawn.allocated
    return draws and event.allocated == (s,) and drawn.place == event.place


def argument_names(recording: Recording, node: Node) -> dict[str, str]:
    """The learner's names for a node's inputs, by the formula's names, as far as edges and saved tensors tell them."""
    known = why.ARGUMENTS.get(text.operation(node.name), ())
    found = {}
    for argument, edge in zip(known, node.edges, strict=False):
        if edge.node is not None and (name := name_through(recording, edge.node)):
            found[argument] = name
    for s in node.saved:
        saved = recording.saved[s]
        if saved.names and not saved.output:
            found.setdefault(saved.argument, text.names(saved.names))
    return found


def idle_arguments(node: Node) -> frozenset[str]:
    """The formula's names of those inputs that want no gradient."""
    known = why.ARGUMENTS.get(text.operation(node.name), ())
    return frozenset(name for name, edge in zip(known, node.edges, strict=False) if edge.node is None)


def name_through(recording: Recording, node_id: int) -> str:
    """A name for what a node made: its own, a leaf's, or that of what it is only a view of."""
    node = recording.nodes[node_id]
    for _ in range(8):  # a view of a view of a view: enough, and no long chain is followed
        if node.leaf:
            return text.names(node.leaf.names)
        if len(node.outputs) > 1:
            return ""  # which of its names is meant cannot be told
        if node.names:
            return text.names(node.names)
        if text.operation(node.name) not in why.VIEWS or not node.edges or node.edges[0].node is None:
            return ""
        node = recording.nodes[node.edges[0].node]
    return ""


def total(found: Iterable[Row]) -> int:
    """Bytes kept for backward, each storage once, parameters and buffers not counted."""
    return sum(row.counted for row in found)


def counted_tensors(found: Iterable[Row]) -> int:
    """How many tensors the total is made of: rows that add to it."""
    return sum(row.counts for row in found)


def heading(found: list[Row], moment: str = "") -> str:
    """ "Kept for backward: 2 tensors, 10,240 bytes", and what is alive anyway. moment: when, if that must be said."""
    n, nbytes = counted_tensors(found), total(found)
    alive = {
        kind: [row for row in found if row.alive == kind and row.first is None]
        for kind in ("parameter", "leaf", "buffer")
    }
    alive = {kind: mine for kind, mine in alive.items() if mine}
    notes = packed_words(found)
    words = "Kept for backward" + (f", {moment}" if moment else "") + ": "
    if not n and not notes:
        return words + (only_alive(alive) if alive else "nothing, 0 bytes")
    if n:
        words += f"{text.plural(n, 'tensor')}, {text.plural(nbytes, 'byte')}"
    else:
        words += f"{notes}, 0 bytes now"
    if parts := [f"{many(kind, len(mine))} ({text.exact(held_bytes(mine))})" for kind, mine in alive.items()]:
        words += f"; not counted, since alive anyway: {', '.join(parts)}"
    return words + (f"; {notes}" if n and notes else "")


def packed_words(found: list[Row]) -> str:
    """ "7 tensors to be computed again", "2 tensors packed by a hook", or both; "" where no hook took any."""
    packed = [row for row in found if row.state == "packed"]
    again = sum(to_compute(row.saved) for row in packed)
    parts = [f"{text.plural(again, 'tensor')} to be computed again"] if again else []
    parts += [f"{text.plural(len(packed) - again, 'tensor')} packed by a hook"] if len(packed) > again else []
    return " and ".join(parts)


def to_compute(saved: SavedTensor) -> bool:
    """Whether what stands in a packed tensor's place is a checkpoint's note: backward will compute it again."""
    return bool(saved.packed) and "compute it again" in saved.packed and not saved.storages


def only_alive(alive: dict[str, list[Row]]) -> str:
    """ "2 tensors, both leaves that are alive anyway (8 B): 0 bytes more"."""
    rows = [row for mine in alive.values() for row in mine]
    n = len(rows)
    if len(alive) > 1:
        kinds = " and ".join(many(kind, len(mine)) for kind, mine in alive.items())
        which = f"{'both' if n == 2 else 'all'} alive anyway: {kinds}"
    else:
        (kind,) = alive
        which = (
            f"a {kind} that is alive anyway"
            if n == 1
            else f"{'both' if n == 2 else 'all'} {plural_of(kind)} that are alive anyway"
        )
    return f"{text.plural(n, 'tensor')}, {which} ({text.exact(held_bytes(rows))}): 0 bytes more"


def plural_of(kind: str) -> str:
    return "leaves" if kind == "leaf" else kind + "s"


def many(kind: str, n: int) -> str:
    return text.plural(n, kind, plural_of(kind))


def held_bytes(found: Iterable[Row]) -> int:
    return sum(row.storage_bytes for row in found)
