"""Which operations stand in one box of a large drawing: those that follow each other, of which one at most keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .order import Folding
from .view import View, scalars_of

#: Operations in one box at most: where one of them may keep something, and where none does.
MOST_JOINED, MOST_SILENT = 8, 24


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
        if not silent(view, n):
            group.core = n
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


def silent(view: View, n: int) -> bool:
    """Whether an operation has one output, keeps nothing, and needs no word of explanation."""
    node = view.recording.nodes[n]
    return (
        node.kind == "operation"
        and len(node.outputs) == 1
        and not node.note
        and not any(row.state != "never saved" for row in view.rows.get(n, ()))
        and sum(edge.node is None for edge in node.edges) <= len(scalars_of(view, node))
    )


def plain(view: View, n: int) -> bool:
    """Whether a silent operation has one input, numbers aside."""
    edges = view.recording.nodes[n].edges
    return silent(view, n) and bool(edges) and edges[0].node is not None and all(e.node is None for e in edges[1:])


def only_leaf(view: View, folding: Folding, n: int) -> int | None:
    """The leaf that a plain operation looks at."""
    before = view.recording.nodes[n].edges[0].node if plain(view, n) else None
    if before is None or before not in view.number or n in view.roots or n in view.pruned:
        return None
    stands = folding.stands[before]
    return stands if view.recording.nodes[stands].leaf else None


def joined_to(view: View, folding: Folding, n: int, users: dict[int, set[int]], home: dict[int, Group]) -> Group | None:
    """The group that an operation goes on, if there is just one that it can: it must feed nothing else."""
    nodes = view.recording.nodes
    feeding = {folding.stands[e.node] for e in nodes[n].edges if e.node in view.number and not nodes[e.node].leaf}
    keeps = not silent(view, n)
    found = [home[f] for f in feeding if f in home and goes_on(view, folding, home[f], n, users, keeps)]
    if len(found) != 1 or (keeps and sum(f in home and home[f].leaf is None for f in feeding) > 1):
        return None  # a product of two that were both made here stands below both
    group = found[0]
    most = MOST_JOINED if keeps or group.core is not None else MOST_SILENT
    return group if len(group.nodes) < most else None


def goes_on(view: View, folding: Folding, group: Group, n: int, users: dict[int, set[int]], keeps: bool) -> bool:
    nodes = view.recording.nodes
    before = group.nodes[-1]
    if group.leaf is not None and not plain(view, n):
        return False  # views of a leaf stand with the leaf
    if keeps and group.core is not None:
        return False
    return (
        users[before] == {n}
        and len(nodes[before].outputs) == len(nodes[n].outputs) == 1
        and not roots_apart(view, before)
        and not nodes[before].names
        and before not in view.roots
        and (before in view.pruned) == (n in view.pruned)
        and folding.block_of.get(before) == folding.block_of.get(n)
        and len(folding.like.get(before, ())) == len(folding.like.get(n, ()))
        and (keeps or group.core is not None or nodes[before].module == nodes[n].module)
    )
