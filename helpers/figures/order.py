"""The nodes of a graph in forward order, and what repeats in them. Loops only: a chain may have 100,000 nodes."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.data import Edge, Graph, Node, Recording

from . import text

#: A run of at least this many equal blocks is folded to one.
LEAST_REPEATS = 3
#: A run of fewer operations in all is not folded: it would hide more than it saves.
LEAST_COVERED = 16
#: Starts of a repetition that are tried at each place: enough for a layer in which one operation occurs that often.
_CANDIDATES = 24
_MOST_SHIFTS = 200


def forward_order(recording: Recording, graph: Graph) -> list[int]:
    """Ids of a graph's nodes, pruned ones too: each after all that feed it, leaves just before their first user."""
    seen: dict[int, int] = {}
    for n in (*graph.nodes, *graph.pruned):
        seen.setdefault(n, len(seen))
    nodes = recording.nodes
    users: dict[int, list[int]] = {}
    waiting: dict[int, int] = {}
    for n in seen:
        feeding = {e.node for e in nodes[n].edges if e.node in seen and not nodes[e.node].leaf}
        waiting[n] = len(feeding)
        for f in feeding:
            users.setdefault(f, []).append(n)

    def key(n: int) -> tuple[int, int, int]:
        sequence = nodes[n].sequence
        return (sequence if sequence is not None else -1, -seen[n], n)

    ready = [key(n) for n in seen if not nodes[n].leaf and not waiting[n]]
    heapq.heapify(ready)
    out: list[int] = []
    placed: set[int] = set()
    while ready:
        n = heapq.heappop(ready)[2]
        for e in nodes[n].edges:
            if e.node in seen and nodes[e.node].leaf and e.node not in placed:
                placed.add(e.node)
                out.append(e.node)
        placed.add(n)
        out.append(n)
        for user in users.get(n, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, key(user))
    out += [n for n in reversed(seen) if n not in placed]  # leaves that are roots; nodes of a cycle, were there one
    return out


@dataclass(frozen=True, slots=True)
class Block:
    """Operations that repeat: `members[k]` are the k-th repetition's, in the order of `drawn`.

    The first repetition may lack some, where its input needs no gradient: None stands in their places. The repetition
    that is drawn lacks none.
    """

    members: tuple[tuple[int | None, ...], ...]
    label: str  # "layers.0 … layers.11", "the same 18 operations"
    chained: bool  # each repetition feeds the next
    home: str = ""  # the module that makes up the drawn repetition, where one does
    shown: int = 0  # which repetition is drawn

    @property
    def count(self) -> int:
        return len(self.members)

    @property
    def drawn(self) -> tuple[int, ...]:
        return self.members[self.shown]


@dataclass(frozen=True, slots=True)
class Folding:
    """Which nodes are drawn, and which they stand for. `stands[n]` is the drawn node for n (itself if drawn)."""

    drawn: tuple[int, ...]
    stands: dict[int, int]
    blocks: tuple[Block, ...]
    block_of: dict[int, int]  # drawn operation → index of its block
    like: dict[
        int, tuple[int, ...]
    ]  # drawn operation of a block → those it stands for, one for each repetition with it
    leaf_times: dict[int, int]  # drawn leaf → how many leaves it stands for, where more than one


def fold(recording: Recording, ordered: Sequence[int], *, wanted: bool = True) -> Folding:
    """Fold runs of equal blocks; with `wanted=False` everything stands for itself."""
    nodes = recording.nodes
    operations = [n for n in ordered if not nodes[n].leaf]
    blocks = repeats(recording, operations) if wanted else []
    stands = {n: n for n in ordered}
    block_of: dict[int, int] = {}
    position: dict[int, tuple[int, int, int]] = {}
    for b, block in enumerate(blocks):
        for n in block.drawn:
            block_of[n] = b
        for k, member in enumerate(block.members):
            for j, n in enumerate(member):
                if n is not None:
                    position[n] = (b, k, j)
                    stands[n] = block.drawn[j]
    # a leaf that only one repetition uses stands where its counterpart of the drawn repetition does
    users: dict[int, set[tuple[int, int]]] = {}
    for n in operations:
        for e in nodes[n].edges:
            if e.node is not None and nodes[e.node].leaf:
                users.setdefault(e.node, set()).add(position[n][:2] if n in position else (-1, n))
    for block in blocks:
        for member in block.members:
            for n, like in zip(member, block.drawn, strict=True):
                if n is None or n == like:
                    continue
                for e, f in zip(nodes[n].edges, nodes[like].edges, strict=True):
                    if (
                        e.node is not None
                        and f.node is not None
                        and e.node != f.node
                        and nodes[e.node].leaf
                        and nodes[f.node].leaf
                        and len(users[e.node]) == len(users[f.node]) == 1
                        and e.node in stands
                        and f.node in stands
                    ):
                        stands[e.node] = stands[f.node]
    times: dict[int, int] = {}
    for n in ordered:
        if nodes[n].leaf:
            times[stands[n]] = times.get(stands[n], 0) + 1
    drawn = tuple(n for n in ordered if stands[n] == n)
    like = {}
    for block in blocks:
        for j, n in enumerate(block.drawn):
            like[n] = tuple(m for m in (member[j] for member in block.members) if m is not None)
    return Folding(drawn, stands, tuple(blocks), block_of, like, {n: t for n, t in times.items() if t > 1})


def repeats(recording: Recording, operations: Sequence[int]) -> list[Block]:
    """Runs of equal blocks among operations in forward order, the widest first at each place."""
    numbers: dict[object, int] = {}
    signs = [numbers.setdefault(signature(recording, n), len(numbers)) for n in operations]
    after = next_equal(signs)
    index = {n: i for i, n in enumerate(operations)}
    blocks: list[Block] = []
    i = 0
    while i < len(signs):
        best: tuple[int, int] | None = None  # (covered, period)
        j, tried = after[i], 0
        while j is not None and tried < _CANDIDATES:
            period = j - i
            if best is None or period % best[1] or best[0] < LEAST_REPEATS * best[1]:
                k = j
                while k < len(signs) and signs[k] == signs[k - period]:
                    k += 1
                covered = (k - i) // period * period
                if covered >= LEAST_REPEATS * period and (best is None or covered > best[0]):
                    best = (covered, period)
                    slack = k - i
            j, tried = after[j], tried + 1
        if best is None:
            i += 1
            continue
        period = best[1]
        start = i + aligned_shift(recording, operations, index, i, period, slack)
        count = (i + slack - start) // period
        members = [tuple(operations[start + k * period : start + (k + 1) * period]) for k in range(count)]
        members, chained = consistent(recording, members, index)
        if len(members) < LEAST_REPEATS or period * len(members) < LEAST_COVERED:
            i += 1
            continue
        used = {n for block in blocks for n in block.members[-1] if n is not None}
        before = first_apart(recording, operations[:start], index, members, used) if chained else None
        shown = 0
        if before is not None:
            members, shown = [before, *members], 1
        label, home = label_of(recording, members, shown)
        blocks.append(Block(tuple(members), label, chained, home, shown))
        i = start + period * (len(members) - shown)
    return blocks


def first_apart(
    recording: Recording, before: Sequence[int], index: dict[int, int], members: Sequence[Sequence[int]], used: set[int]
) -> tuple[int | None, ...] | None:
    """The repetition before `members`, if it differs only in what an input without gradient leaves out.

    Its operations come just before, in the same order, wired alike, and keep the same or less; None stands for those
    that it lacks. None if there is no such repetition.
    """
    like = members[0]
    found: list[int | None] = [None] * len(like)
    i = len(before) - 1
    for j in range(len(like) - 1, -1, -1):
        if i >= 0 and before[i] not in used and alike(recording, before[i], like[j]):
            found[j] = before[i]
            i -= 1
    if 3 * sum(n is not None for n in found) < 2 * len(like):
        return None
    place = {n: j for j, n in enumerate(like)}
    mine = {n: j for j, n in enumerate(found) if n is not None}
    nodes = recording.nodes
    for n, other in zip(found, like, strict=True):
        if n is None:
            continue
        for e, f in zip(nodes[n].edges, nodes[other].edges, strict=True):
            if f.node is None:
                same = e.node is None
            elif f.node in place:  # from the same repetition: from its counterpart, or from nothing if that is lacking
                same = (e.node is None) if found[place[f.node]] is None else (e == Edge(found[place[f.node]], f.output))
            elif f.node in index:  # from the repetition before: from whatever is there, but not from inside
                same = e.node not in mine
            else:
                same = e.node is not None and e.node not in index
            if not same:
                return None
    return tuple(found)


def alike(recording: Recording, n: int, other: int) -> bool:
    """Whether a node is of the other's kind and keeps nothing that the other does not."""
    a, b = recording.nodes[n], recording.nodes[other]
    if (a.name, a.kind, a.outputs, len(a.edges)) != (b.name, b.kind, b.outputs, len(b.edges)):
        return False
    if re.sub(r"\d+", "#", a.module) != re.sub(r"\d+", "#", b.module):
        return False

    def saved(node: Node) -> dict[tuple, tuple]:
        return {
            (s.argument, s.position): (s.shape, s.dtype, s.device, s.nbytes, s.state, s.scalar)
            for s in map(recording.saved.__getitem__, node.saved)
            if s.state != "never saved"
        }

    return saved(a).items() <= saved(b).items()


def next_equal(signs: Sequence[int]) -> list[int | None]:
    """For each place the next one with the same sign."""
    last: dict[int, int] = {}
    out: list[int | None] = [None] * len(signs)
    for i in range(len(signs) - 1, -1, -1):
        out[i] = last.get(signs[i])
        last[signs[i]] = i
    return out


def signature(recording: Recording, n: int) -> tuple:
    """What must be equal for two operations to count as the same in two blocks. Names and numbers of blocks are not."""
    node = recording.nodes[n]
    saved = tuple(
        (s.argument, s.position, s.shape, s.dtype, s.device, s.nbytes, s.state, s.scalar)
        for s in map(recording.saved.__getitem__, node.saved)
    )
    edges = tuple(None if e.node is None else recording.nodes[e.node].leaf is not None for e in node.edges)
    return (node.name, node.kind, node.outputs, saved, edges, re.sub(r"\d+", "#", node.module))


def aligned_shift(
    recording: Recording, operations: Sequence[int], index: dict[int, int], i: int, period: int, slack: int
) -> int:
    """How far to move a run's start: to where a block spans fewest modules' numbers and fewest values pass between.

    Among equals the last, since there the run ends where the learner's loop does.
    """
    best: tuple[int, int] | None = None
    best_shift = 0
    for shift in range(min(slack % period, _MOST_SHIFTS) + 1):
        start = i + shift
        numbers = {tuple(re.findall(r"\d+", recording.nodes[n].module)[:1]) for n in operations[start : start + period]}
        second = start + period
        passing = {
            e.node
            for n in operations[second : second + period]
            for e in recording.nodes[n].edges
            if e.node in index and start <= index[e.node] < second
        }
        score = (len(numbers), len(passing))
        if best is None or score <= best:
            best, best_shift = score, shift
    return best_shift


def consistent(
    recording: Recording, members: list[tuple[int, ...]], index: dict[int, int]
) -> tuple[list[tuple[int, ...]], bool]:
    """The longest run from the first block whose blocks are wired alike, inside and to the one before."""
    start, period = index[members[0][0]], len(members[0])
    first: list | None = None
    second: list | None = None
    chained = False
    for k, member in enumerate(members):
        inner, before = [], []
        for j, n in enumerate(member):
            for e, edge in enumerate(recording.nodes[n].edges):
                if edge.node is None or edge.node not in index:
                    continue
                offset = index[edge.node] - start - k * period
                if 0 <= offset < period:
                    inner.append((j, e, offset, edge.output))
                elif -period <= offset < 0 and k:
                    before.append((j, e, offset, edge.output))
        if first is None:
            first = inner
        elif inner != first:
            return members[:k], chained
        elif second is None:
            second, chained = before, bool(before)
        elif before != second:
            return members[:k], chained
    return members, chained


def label_of(recording: Recording, members: Sequence[Sequence[int | None]], shown: int) -> tuple[str, str]:
    """Blocks by their module's numbers where one module makes up each, else by how many operations they have."""

    def module(member: Sequence[int | None]) -> str:
        found = [recording.nodes[n].module for n in member if n is not None]
        parts = [m.split(".") for m in found if m]
        common: list[str] = []
        for column in zip(*parts, strict=False):
            if len(set(column)) > 1:
                break
            common.append(column[0])
        while common and not common[-1].isdigit():
            common.pop()
        return ".".join(common)

    first, last = module(members[0]), module(members[-1])
    if first and last and first != last:
        return f"{text.quoted(first)} … {text.quoted(last)}", module(members[shown])
    n = len(members[0])
    return "the same operation" if n == 1 else f"the same {n:,} operations", ""
