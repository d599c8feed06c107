"""Which operations stand in one box of a large drawing: those that follow each other, of which one at most keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers.data import Node

from .order import Folding
from .view import View

#: Operations in one box at most, where one of them may keep something.
MOST_JOINED = 6


@dataclass
class Group:
    """Operations of one box, in order. core: the one that may keep something; leaf: what all are only views of."""

    nodes: list[int]
    core: int | None = None
    leaf: int | None = None


def groups_of(view: View, folding: Folding, operations: Sequence[int], *, wanted: bool) -> list[Group]:
    """Every drawn operation, in groups; each alone unless `wanted`."""
    if not wanted:
        return [Group([n], n) for n in operations]
    users = drawn_users(view, folding)
    out: list[Group] = []
    home: dict[int, Group] = {}
    for n in operations:
        group = None if roots_apart(view, n) else joined_to(view, folding, n, users, home)
        if group is None:
            group = Group([n], leaf=only_leaf(view, folding, n))
            out.append(group)
        else:
            group.nodes.append(n)
        if not plain(view, n):
            group.core, group.leaf = n, None
        home[n] = group
    return out


def roots_apart(view: View, n: int) -> bool:
    return view.recording.nodes[n].kind != "operation" or bool(view.recording.nodes[n].note)


def drawn_users(view: View, folding: Folding) -> dict[int, set[int]]:
    users: dict[int, set[int]] = {}
    for n in view.ordered:
        for edge in view.recording.nodes[n].edges:
            if edge.node in view.number:
                users.setdefault(folding.stands[edge.node], set()).add(folding.stands[n])
    return users


def plain(view: View, n: int) -> bool:
    """Whether an operation has one input and one output, keeps nothing, and needs no word of explanation."""
    node: Node = view.recording.nodes[n]
    return (
        node.kind == "operation"
        and len(node.outputs) == 1
        and len(node.edges) == 1
        and not node.note
        and not any(row.state != "never saved" for row in view.rows.get(n, ()))
    )


def only_leaf(view: View, folding: Folding, n: int) -> int | None:
    """The leaf that a plain operation looks at."""
    before = view.recording.nodes[n].edges[0].node if plain(view, n) else None
    if before is None or before not in view.number or n in view.roots or n in view.pruned:
        return None
    stands = folding.stands[before]
    return stands if view.recording.nodes[stands].leaf else None


def joined_to(view: View, folding: Folding, n: int, users: dict[int, set[int]], home: dict[int, Group]) -> Group | None:
    """The group that an operation goes on: its only feeding one, views of leaves aside, which feeds nothing else."""
    nodes = view.recording.nodes
    feeding = {folding.stands[e.node] for e in nodes[n].edges if e.node in view.number and not nodes[e.node].leaf}
    feeding = {f for f in feeding if f in home and (plain(view, n) or home[f].leaf is None)}
    if len(feeding) != 1:
        return None
    (before,) = feeding
    group = home[before]
    mine = plain(view, n)
    fits = (
        group.nodes[-1] == before
        and users[before] == {n}
        and len(nodes[before].outputs) == 1
        and len(nodes[n].outputs) == 1
        and not roots_apart(view, before)
        and not nodes[before].names
        and before not in view.roots
        and (before in view.pruned) == (n in view.pruned)
        and folding.block_of.get(before) == folding.block_of.get(n)
        and len(folding.like.get(before, ())) == len(folding.like.get(n, ()))
    )
    if not fits:
        return None
    if mine and group.core is None:
        return group if nodes[before].module == nodes[n].module else None
    if len(group.nodes) >= MOST_JOINED or (not mine and group.core is not None):
        return None
    return group
