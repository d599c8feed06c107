"""A graph as steps: each an operation with the views and copies around it, its parameters, and what it keeps."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from helpers.data import Node, TensorInfo, live_storages
from helpers.data.model import PARAMETERS

from . import ledger, text, why
from .groups import drawn_users, plain
from .items import bare, local, plain_inputs, role_words
from .order import Folding
from .view import View, rows_like, scalars_of

#: Steps that a figure may have before runs of them share one; tensors that one tier shows one by one.
MOST_STEPS, MOST_ENTRIES = 60, 6
#: Steps that stand side by side at most.
MOST_BESIDE = 4
#: Operations of one input that keep nothing and are no step of their own, beside views.
_COPIES = frozenset({"Clone", "Contiguous", "ToCopy"})
_SMALL = _COPIES | {"Div", "Mul", "Neg"}


@dataclass(frozen=True, slots=True)
class Chip:
    """A leaf or buffer at the step that uses it. kept: whether the step keeps it, which costs nothing: it lives anyway.

    kind: "parameter", "leaf" or "buffer". again: an earlier step shows it. times: of how many it stands, in a block.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    kept: bool
    again: bool
    times: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One piece of memory that steps of one tier keep, or several small ones together.

    counted: what it adds to the total, in bytes, all repetitions together: counts[i] in the i-th that has it.
    length: what its bar shows, in bytes: `counted`, or for an outline what is held elsewhere, or was.
    state: "live", "changed in place", "packed", "released", or "again": its memory is counted at the step `first`.
    """

    label: str
    form: str
    state: str
    counts: tuple[int, ...]
    length: int
    mask: bool = False
    keepers: tuple[int, ...] = ()
    first: int | None = None
    tensors: int = 1  # of one repetition
    notes: tuple[str, ...] = ()
    saved: tuple[int, ...] = ()

    @property
    def counted(self) -> int:
        return sum(self.counts)


@dataclass
class Step:
    """Operations drawn as one. anchor: the one that names it; nodes: all of them, in forward order."""

    number: int
    anchor: int
    nodes: list[int]
    title: str = ""
    under: str = ""
    names: tuple[str, ...] = ()
    shape: str = ""
    kind: str = "operation"
    block: int | None = None
    feeding: tuple[int, ...] = ()  # numbers of the steps that feed it
    chips: tuple[Chip, ...] = ()
    inputs: tuple[str, ...] = ()  # inputs that need no gradient, "" where no name is known
    is_sum: bool = False
    root: bool = False
    code: str = ""  # the learner's line nearest to it, where it tells more than the title
    notes: tuple[str, ...] = ()


@dataclass
class Tier:
    """Steps that stand side by side, and what they keep."""

    steps: list[Step]
    entries: list[Entry] = field(default_factory=list)

    @property
    def block(self) -> int | None:
        return self.steps[0].block


@dataclass(frozen=True)
class Apart:
    """A run taken apart. total: bytes kept, the ledger's; parameters: bytes of the parameters alive, 0 if none."""

    view: View
    folding: Folding
    tiers: list[Tier]
    total: int
    parameters: int

    @property
    def steps(self) -> dict[int, Step]:
        return {step.number: step for tier in self.tiers for step in tier.steps}


def take_apart(view: View, folding: Folding, *, most: int = MOST_STEPS, entries: int = MOST_ENTRIES) -> Apart:
    """The steps of a graph in forward order, in tiers. most, entries: beyond them, steps and tensors are joined."""
    members = joined_steps(view, folding)
    if len(members) > most:
        members = merged(members, folding, math.ceil(len(members) / most))
        entries = min(entries, 3)
    home = {n: i + 1 for i, (_, nodes) in enumerate(members) for n in nodes}
    modules = Counter((view.recording.nodes[anchor].module, folding.block_of.get(anchor)) for anchor, _ in members)
    steps = [described(view, folding, i + 1, *member, home, modules) for i, member in enumerate(members)]
    seen: set[int] = set()
    for step in steps:
        step.chips = tuple(chips_of(view, folding, step, seen))
    tiers = in_tiers(steps)
    counted_at: dict[int, int] = {}  # storage → the step where it is counted
    by_number = {step.number: step for step in steps}
    for tier in tiers:
        found = entries_of(view, folding, tier, home, by_number, counted_at)
        tier.entries = fewer(found, entries)
    return Apart(view, folding, tiers, ledger.total(r for rows in view.rows.values() for r in rows), parameters(view))


def parameters(view: View) -> int:
    """Bytes of the parameters that are alive, each storage once; plain leaves are none."""
    plain_leaves = {i for n in view.recording.nodes if n.leaf and not n.leaf.parameter for i in n.leaf.storages}
    live = live_storages(view.recording, view.moment)
    return sum(size for i, (size, kind) in live.items() if kind == PARAMETERS and i not in plain_leaves)


# ------------------------------------------------------------------------------------------------------------- steps


def joined_steps(view: View, folding: Folding) -> list[tuple[int, list[int]]]:
    """(anchor, operations) for each step: views, copies and factors stand with the operation that they serve.

    One that follows an operation of its own module stands with it; any other waits for the one operation that uses it.
    No join makes a circle: what joins its producer has no other input, what joins its user no other user.
    """
    nodes = view.recording.nodes
    users = drawn_users(view, folding)
    steps: dict[int, list[int]] = {}  # anchor → operations
    anchor: dict[int, int] = {}
    waiting: dict[int, list[int]] = {}  # last of a chain that waits → the chain
    for n in folding.drawn:
        if nodes[n].leaf:
            continue
        feeding = [folding.stands[e.node] for e in nodes[n].edges if e.node in view.number]
        before = [f for f in dict.fromkeys(feeding) if not nodes[f].leaf]
        block = folding.block_of.get(n)
        if small(view, n):
            one = before[0] if len(before) == 1 else None
            if one in anchor and joins(view, folding, one, n, block):
                steps[anchor[one]].append(n)
                anchor[n] = anchor[one]
                continue
            if one in waiting and folding.block_of.get(one) == block:
                chain = waiting.pop(one) + [n]
            else:
                chain = [n]
            if len(users.get(n, ())) == 1 and n not in view.roots:
                waiting[n] = chain
                continue
            steps[chain[0]] = chain
            anchor.update(dict.fromkeys(chain, chain[0]))
            continue
        steps[n] = [n]
        for f in before:
            if f in waiting and folding.block_of.get(f) == block:
                steps[n] = waiting.pop(f) + steps[n]
        anchor.update(dict.fromkeys(steps[n], n))
    for chain in waiting.values():  # their user is in another block
        steps[chain[0]] = chain
    place = {n: i for i, n in enumerate(view.ordered)}
    return [(a, sorted(ns, key=place.__getitem__)) for a, ns in sorted(steps.items(), key=lambda s: place[s[0]])]


def small(view: View, n: int) -> bool:
    """Whether an operation is a view, a copy or a factor, keeps nothing, and has one input."""
    operation = text.operation(view.recording.nodes[n].name)
    return operation in why.VIEWS | _SMALL and plain(view, n) and n not in view.pruned


def joins(view: View, folding: Folding, before: int, n: int, block: int | None) -> bool:
    nodes = view.recording.nodes
    return (
        nodes[before].module == nodes[n].module
        and folding.block_of.get(before) == block
        and len(nodes[before].outputs) == 1
        and before not in view.roots
        and not (nodes[before].names and nodes[n].names)
        and before not in view.pruned
        and nodes[before].kind == "operation"
    )


def merged(members: Sequence[tuple[int, list[int]]], folding: Folding, size: int) -> list[tuple[int, list[int]]]:
    """Runs of `size` steps as one, none across a block's edge."""
    out: list[tuple[int, list[int]]] = []
    room, block = 0, None
    for anchor, nodes in members:
        mine = folding.block_of.get(anchor)
        if out and room and mine == block:
            out[-1][1].extend(nodes)
            room -= 1
        else:
            out.append((anchor, list(nodes)))
            room, block = size - 1, mine
    return out


def described(
    view: View, folding: Folding, number: int, anchor: int, nodes: list[int], home: dict[int, int], modules: Counter
) -> Step:
    """A step with its words. Named by its module where that has only this step, else by its operations."""
    found = [view.recording.nodes[n] for n in nodes]
    core, last = view.recording.nodes[anchor], found[-1]
    block = folding.block_of.get(anchor)
    kinds = Counter("copy" if is_copy(node) else "view" if is_view(node) else "" for node in found if node is not core)
    own = [bare(node) for node in found if node is core or not (is_copy(node) or is_view(node))]
    under = [
        text.plural(kinds[kind], kind, many) for kind, many in (("copy", "copies"), ("view", "views")) if kinds[kind]
    ]
    module = local(folding, block, core.module) if modules[core.module, block] == 1 else ""
    if len(own) > 3:
        most = Counter(own).most_common(3)
        title = text.plural(len(found), "operation")
        under = [f"{k:,} {name}" if k > 1 else name for name, k in most] + ["…"] * (len(set(own)) > 3)
    elif not module or re.fullmatch(r"[\d.]+", module) or (module[0].isupper() and len(modules) > 1):
        title = ", ".join(own)  # a number alone would tell nothing, and the outermost module's class too much
        under = [text.in_module(module), *under] if module else under
    else:
        title, under = text.quoted(module), [", ".join(own), *under]
    feeding: dict[int, None] = {}
    tensors = 0
    for n in nodes:
        for e in view.recording.nodes[n].edges:
            if e.node in view.number and not view.recording.nodes[e.node].leaf:
                tensors += 1
                source = home[folding.stands[e.node]]
                if source < number:  # what comes from the repetition before, the block's frame says
                    feeding[source] = None
    info = last.outputs[0] if len(last.outputs) == 1 else None
    keeps = any(row.state != "never saved" for n in nodes for row in view.rows.get(n, ()))
    free = sum(e.node is None for e in core.edges) - len(scalars_of(view, core))
    leaves = any(e.node in view.number and view.recording.nodes[e.node].leaf for node in found for e in node.edges)
    kind = "pruned" if anchor in view.pruned else core.kind
    return Step(
        number,
        anchor,
        nodes,
        title,
        ", ".join(under),
        tuple(text.quoted(local(folding, block, name)) for name in last.names),
        text.shape(info.shape) if info else text.plural(len(last.outputs), "output") if last.outputs else "",
        kind,
        block,
        tuple(sorted(feeding)),
        inputs=tuple(free_inputs(view, core, first=not feeding)),
        is_sum=text.operation(core.name) == "Add" and len(own) == 1 and not keeps and not leaves and tensors + free > 1,
        root=any(n in view.roots for n in nodes) and view.graph.trigger != "end",
        code="" if module else code_of(view, core),
        notes=tuple(text.quoted(node.note).strip('"') for node in found if node.note)[:2],
    )


def free_inputs(view: View, core: Node, *, first: bool) -> list[str]:
    """Inputs that need no gradient, of a sum or of a step that no other feeds: their names, "" where none is known."""
    found = plain_inputs(view, core)
    if text.operation(core.name) == "Add":
        return found
    named = [name for name in found if name]
    unnamed = [""] if found and core.edges[0].node is None else []  # not a convolution's bias that is not there
    return (named or unnamed) if first else []


def is_view(node: Node) -> bool:
    return text.operation(node.name) in why.VIEWS - _COPIES


def is_copy(node: Node) -> bool:
    return text.operation(node.name) in _COPIES


def code_of(view: View, node: Node) -> str:
    """The line of code nearest to an operation, unless it made nearly all of them."""
    place = view.recording.place_of(node.place)
    if place is None or place.inner is None:
        return ""
    if place.inner is place.outer and text.line(view.recording, node.place) == view.common_line:
        return ""
    line = view.recording.sources[place.inner.source].line(place.inner.line)
    return " ".join(line.split("  # ")[0].split())


def chips_of(view: View, folding: Folding, step: Step, seen: set[int]) -> Iterable[Chip]:
    """The leaves that a step uses, and what it keeps of buffers and frozen parameters."""
    nodes = view.recording.nodes
    home = nodes[step.anchor].module
    rows = [row for n in step.nodes for row in view.rows.get(n, ()) if row.alive and row.held and not row.counted]
    leaves = {  # those of other repetitions too, where the drawn one has no like of them
        folding.stands[e.node]: None
        for n in step.nodes
        for m in (n, *folding.like.get(n, ()))
        for e in nodes[m].edges
        if e.node in view.number and nodes[e.node].leaf
    }

    def short(name: str) -> str:
        name = local(folding, step.block, name)
        inside = local(folding, step.block, home)
        return text.quoted(name.removeprefix(f"{inside}."))

    told: set[int] = set()
    for leaf in leaves:
        it = nodes[leaf].leaf
        mine = [row for row in rows if set(row.saved.storages) & set(it.storages)]
        told |= {row.saved.id for row in mine}
        name = " = ".join(map(short, it.names)) or "unnamed"
        again = not seen.isdisjoint(it.storages)
        seen |= set(it.storages)
        kind = "parameter" if it.parameter else "leaf"
        yield Chip(name, it.shape, kind, bool(mine), again, folding.leaf_times.get(leaf, 1), it.nbytes)
    for row in rows:
        if row.saved.id in told or (set(row.saved.storages) <= seen and told):
            continue
        told.add(row.saved.id)
        again = bool(row.saved.storages) and set(row.saved.storages) <= seen
        seen |= set(row.saved.storages)
        name = " = ".join(map(short, row.saved.names)) or role_words([row], "")
        times = len(rows_like(view, folding, row))
        yield Chip(name, row.saved.shape, row.alive, True, again, times, row.saved.nbytes)


def in_tiers(steps: Sequence[Step]) -> list[Tier]:
    """Steps that follow each other, are fed by the same ones and are of one kind, side by side."""
    tiers: list[Tier] = []
    for step in steps:
        last = tiers[-1].steps if tiers else []
        alike = bool(last) and all(
            (s.under or s.title, s.feeding, s.block, s.kind)
            == (step.under or step.title, step.feeding, step.block, step.kind)
            for s in last
        )
        if alike and step.feeding and len(last) < MOST_BESIDE and not step.is_sum and not step.notes:
            last.append(step)
        else:
            tiers.append(Tier([step]))
    return tiers


# ----------------------------------------------------------------------------------------------------------- entries


def entries_of(
    view: View, folding: Folding, tier: Tier, home: dict[int, int], steps: dict[int, Step], counted_at: dict[int, int]
) -> list[Entry]:
    """What a tier keeps, each piece of memory once."""
    groups: dict[object, list[tuple[int, ledger.Row]]] = {}
    for step in tier.steps:
        for n in step.nodes:
            for row in view.rows.get(n, ()):
                if row.state != "never saved" and not (row.alive and row.held and not row.counted):
                    key = (row.saved.storages, row.saved.shape) if row.saved.storages else row.saved.id
                    groups.setdefault(key, []).append((step.number, row))
    return [entry_of(view, folding, tier, found, home, steps, counted_at) for found in groups.values()]


def entry_of(
    view: View,
    folding: Folding,
    tier: Tier,
    found: list[tuple[int, ledger.Row]],
    home: dict[int, int],
    steps: dict[int, Step],
    counted_at: dict[int, int],
) -> Entry:
    rows = [row for _, row in found]
    row, saved = rows[0], rows[0].saved
    like = [other for r in rows for other in rows_like(view, folding, r)]
    counts = tuple(other.counted for other in like if other.counts)
    for other in like:
        if other.counted:
            counted_at.update(dict.fromkeys(other.saved.storages, found[0][0]))
    state, first, notes = row.state, None, []
    if row.held and not counts and row.first is not None and state == "live":
        state = "again"
        first = next((counted_at[i] for i in saved.storages if i in counted_at), None)
    repeats = len(folding.like.get(row.node.id, (0,)))
    if counts and len(counts) < repeats:
        notes.append(f"counted in {len(counts):,} of {repeats:,}")
    keepers = tuple(dict.fromkeys(number for number, _ in found))
    if len(rows) > 1 and counts and len(tier.steps) == 1:
        notes.append(f"kept {len(rows)} times, counted once")
    if len(rows) == 1 and row.counts and row.counted != saved.nbytes and state == "live":
        notes.append(f"a view of {text.exact(saved.nbytes)}: all behind it stays")
    if state == "packed":
        notes.append("to be computed again" if ledger.to_compute(saved) else "packed by a hook")
    elif state == "released":
        notes.append("released")
    elif state == "changed in place":
        notes.append("changed in place")
    info = TensorInfo(saved.shape, saved.dtype, "cpu" if saved.device == view.device else saved.device)
    lost = state in ("released", "packed") and saved.dtype
    same = rows_like(view, folding, row)
    held = {r.saved.storages or r.saved.id: r.storage_bytes for r in same}  # of every repetition, each memory once
    length = sum(counts) or (sum(r.saved.nbytes for r in same) if lost else sum(held.values()))
    if state == "packed" and ledger.to_compute(saved):
        length = 0
    return Entry(
        label_of(view, folding, rows, home, steps),
        text.tensor(info) if saved.dtype else "",
        state,
        counts,
        length,
        row.why == why.MASK,
        keepers,
        first,
        notes=tuple(notes),
        saved=tuple(r.saved.id for r in rows),
    )


def label_of(
    view: View, folding: Folding, rows: Sequence[ledger.Row], home: dict[int, int], steps: dict[int, Step]
) -> str:
    """What to call a kept tensor: by its names, by the step that made it, or by the formula's word for it."""
    block = folding.block_of.get(rows[0].node.id)
    names = dict.fromkeys(text.quoted(local(folding, block, name)) for row in rows for name in row.saved.names)
    if names:
        return ", ".join(names)
    row = rows[0]
    if row.why.startswith("the mean, "):
        return "mean"
    if row.why.startswith("one over the standard deviation"):
        return "1/deviation"
    if row.why == why.MASK:
        return "dropout mask"
    source = made_by(view, folding, row, home)
    if source is not None:
        return f"from {steps[abs(source)].title}" + (", copied" if source < 0 else "")
    return role_words(rows[:1], "")


def made_by(view: View, folding: Folding, row: ledger.Row, home: dict[int, int]) -> int | None:
    """The step whose result a kept input is, where views alone lead to it; negative where a copy stands between."""
    nodes = view.recording.nodes
    known = why.ARGUMENTS.get(text.operation(row.node.name), ("input",) if len(row.node.edges) else ())
    if row.saved.output or row.saved.position is not None:
        return None
    if row.saved.argument not in known:
        if len(row.node.edges) != 1 and row.saved.argument not in ("self", "input"):
            return None
        index = 0
    else:
        index = known.index(row.saved.argument)
    own, sign = home[row.node.id], 1
    n = row.node.edges[index].node if index < len(row.node.edges) else None
    while n in view.number and not nodes[n].leaf:
        if home[folding.stands[n]] != own:
            return sign * home[folding.stands[n]]
        if not (is_view(nodes[n]) or is_copy(nodes[n])) or not nodes[n].edges:
            return None
        sign = -1 if is_copy(nodes[n]) else sign
        n = nodes[n].edges[0].node
    return None


def fewer(found: list[Entry], most: int) -> list[Entry]:
    """At most `most` entries: the largest as they are, the others together; small equal ones always together."""
    found = pairs_joined(found)
    again = [entry for entry in found if entry.state == "packed" and not entry.length]
    if len(again) > 1:  # a checkpoint's: none takes anything
        found = [entry for entry in found if entry not in again] + [together(again)]
    if len(found) <= most:
        return found
    large = sorted(range(len(found)), key=lambda i: (-found[i].counted, -found[i].length, i))[: most - 1]
    rest = [entry for i, entry in enumerate(found) if i not in large]
    return [found[i] for i in sorted(large)] + [together(rest, " more")]


def together(rest: Sequence[Entry], more: str = "") -> Entry:
    """Entries as one, with their sum."""
    tensors, total = sum(entry.tensors for entry in rest), sum(entry.counted for entry in rest)
    states = {entry.state for entry in rest}
    told = states < {"packed", "released", "changed in place"} and len(states) == 1
    notes = tuple(dict.fromkeys(note for entry in rest for note in entry.notes)) if told else ()
    return Entry(
        f"{tensors:,}{more} tensors",
        "",
        states.pop() if len(states) == 1 else "live",
        (total,) if total else (),
        total,
        tensors=tensors,
        keepers=tuple(dict.fromkeys(k for entry in rest for k in entry.keepers)),
        notes=notes if len(notes) == 1 else (),
        saved=tuple(s for entry in rest for s in entry.saved),
    )


def pairs_joined(found: list[Entry]) -> list[Entry]:
    """A mean and its deviation as one entry, where they are alike."""
    out: list[Entry] = []
    for entry in found:
        last = out[-1] if out else None
        same = last is not None and (last.form, last.state, last.keepers) == (entry.form, entry.state, entry.keepers)
        if same and (last.label, entry.label) == ("mean", "1/deviation") and not last.notes + entry.notes:
            out[-1] = Entry(
                "mean, 1/deviation",
                entry.form,
                entry.state,
                last.counts + entry.counts,
                last.length + entry.length,
                keepers=entry.keepers,
                tensors=2,
                saved=last.saved + entry.saved,
            )
        else:
            out.append(entry)
    return out
