"""Two graphs as one: nodes matched, what became of each, how the whole folds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from helpers.data import Edge, Node, Recording

from . import ledger, text
from .matching import aligned
from .order import Folding, fold
from .view import View, all_rows, view_of

WENT, APPEARED, STAYED, CHANGED = "−", "+", "=", "≠"
#: Operations up to which each is drawn and told; of more, those that stayed far from any change are gathered.
FEW = 20


@dataclass(frozen=True, slots=True)
class Kept:
    """What a node keeps under one of its formula's names, before and after."""

    sign: str
    formal: str
    form: str
    was: str  # what it counts, in words; "" where it is not there
    now: str
    name: str
    alive: bool = False  # not counted, since a parameter's or a buffer's memory lives anyway

    @property
    def words(self) -> str:
        if self.sign == CHANGED:
            return f"keeps {self.formal} {self.form}: {self.was} → {self.now}"
        verb = "kept" if self.sign == WENT else "keeps"
        return f"{verb} {' '.join(filter(None, (self.name, f'as {self.formal}', self.form)))}: {self.now or self.was}"


@dataclass(slots=True)
class Member:
    """A node of the difference: of one recording, or of both."""

    before: Node | None
    after: Node | None
    sign: str = STAYED
    kept: tuple[Kept, ...] = ()
    counted: tuple[int, int] = (0, 0)
    edges: dict[tuple[int, int], str] = field(default_factory=dict)  # (member, its output) → sign
    slots: tuple[Edge, ...] = ()  # its inputs by members, None where one needs no gradient; then those that went

    @property
    def node(self) -> Node:
        return self.after or self.before


@dataclass(frozen=True, slots=True)
class Difference:
    """Both graphs as one: members in forward order by their number, from 0, and how they fold."""

    views: tuple[View | None, View | None]
    recordings: tuple[Recording, Recording]
    names: tuple[str, str]
    members: list[Member]
    folding: Folding
    gathered: list[list[int]]  # what is told one by one, and runs of what stayed far from any change

    def lives(self, member: Member) -> bool:
        """Whether a leaf that came or went is known by its name in both recordings: only its wish has changed."""
        leaf = member.node.leaf
        if leaf is None or not leaf.names or member.sign not in (WENT, APPEARED):
            return False
        other = self.recordings[1 if member.sign == WENT else 0]
        like = (leaf.shape, leaf.dtype)
        return any({*leaf.names} & {*s.names} and (s.shape, s.dtype) == like for s in other.storages)

    def of(self, sign: str) -> list[Member]:
        mine = [m for m in self.members if m.node.leaf is None]
        if sign == STAYED:
            return [m for m in mine if m.sign in (STAYED, CHANGED)]
        return [m for m in mine if m.sign == sign]


def difference_of(before: Recording, after: Recording, names: tuple[str, str], *, folded: bool = True) -> Difference:
    recordings = (before, after)
    views = tuple(view_of(r, r.graphs[0], None) if r.graphs else None for r in recordings)
    members = merged(views)
    for member in members:
        judge(member, views)
    plain = Recording((), (), (), tuple(as_node(members, k) for k in range(len(members))), (), (), ())
    operations = sum(m.node.leaf is None for m in members)
    folding = fold(plain, range(len(members)), wanted=folded and operations > FEW)
    gathered = gather(members, folding) if folded and operations > FEW else [[n] for n in folding.drawn]
    return Difference(views, recordings, names, members, folding, gathered)


def merged(views: tuple[View | None, View | None]) -> list[Member]:
    """The nodes of both graphs, matched, in an order in which each comes after all that feed it, in both."""
    nodes = [[view.recording.nodes[n] for n in view.ordered] if view else [] for view in views]
    operations = [[n for n in mine if n.leaf is None] for mine in nodes]
    pairs = matched(operations, views)
    partner = {operations[0][i].id: operations[1][j] for i, j in pairs}
    leaf = leaves_matched(nodes, partner)
    line: list[Member] = []
    i = j = 0
    for a, b in [*pairs, (len(operations[0]), len(operations[1]))]:
        line += [Member(n, None, WENT) for n in operations[0][i:a]]
        line += [Member(None, n, APPEARED) for n in operations[1][j:b]]
        if a < len(operations[0]):
            line.append(Member(operations[0][a], operations[1][b]))
        i, j = a + 1, b + 1
    leaves = [Member(n, leaf.get(n.id), STAYED if n.id in leaf else WENT) for n in nodes[0] if n.leaf]
    taken = {n.id for n in leaf.values()}
    leaves += [Member(None, n, APPEARED) for n in nodes[1] if n.leaf and n.id not in taken]
    of = [{}, {}]  # node id → its leaf's member
    for member in leaves:
        for side, node in enumerate((member.before, member.after)):
            if node is not None:
                of[side][node.id] = member
    members: list[Member] = []
    placed: set[int] = set()
    for member in line:  # a leaf stands just before its first user
        for side, node in enumerate((member.before, member.after)):
            for edge in node.edges if node else ():
                user = of[side].get(edge.node)
                if user is not None and id(user) not in placed:
                    placed.add(id(user))
                    members.append(user)
        members.append(member)
    members += [member for member in leaves if id(member) not in placed]
    number: list[dict[int, int]] = [{}, {}]
    for k, member in enumerate(members):
        for side, node in enumerate((member.before, member.after)):
            if node is not None:
                number[side][node.id] = k
    for member in members:
        join(member, number)
    return members


def matched(operations: Sequence[Sequence[Node]], views: Sequence[View | None]) -> list[tuple[int, int]]:
    """Pairs of operations, both rising: strict descriptions first, then weaker ones between what is matched."""
    if None in views:
        return []
    pairs: list[tuple[int, int]] = []
    for level in range(4):
        keys = [
            [description(view.recording, n, level) for n in mine] for view, mine in zip(views, operations, strict=True)
        ]
        out: list[tuple[int, int]] = []
        i = j = 0
        for a, b in [*pairs, (len(operations[0]), len(operations[1]))]:
            out += [(i + x, j + y) for x, y in aligned(keys[0][i:a], keys[1][j:b])]
            out.append((a, b))
            i, j = a + 1, b + 1
        pairs = out[:-1]
    return pairs


def description(recording: Recording, node: Node, level: int) -> Hashable:
    kind = (text.operation(node.name) if node.kind == "operation" else node.name, node.kind)
    shapes = tuple(node.outputs)
    place = recording.place_of(node.place)
    frame = place.inner if place else None
    code = recording.sources[frame.source].line(frame.line) if frame else ""
    return ((kind, node.module, code, shapes), (kind, node.module, shapes), (kind, shapes), (kind, node.module))[level]


def leaves_matched(nodes: Sequence[Sequence[Node]], partner: dict[int, Node]) -> dict[int, Node]:
    """Leaf before → leaf after."""
    leaves = [[n for n in mine if n.leaf] for mine in nodes]
    named = {n.leaf.names: n for n in leaves[1] if n.leaf.names}
    found = {n.id: named[n.leaf.names] for n in leaves[0] if n.leaf.names in named}
    taken = {n.id for n in found.values()}
    after = {n.id: n for n in leaves[1]}
    before = {n.id: n for n in leaves[0]}
    for n in nodes[0]:
        other = partner.get(n.id)
        for e, f in zip(n.edges, other.edges, strict=False) if other is not None else ():
            a, b = before.get(e.node), after.get(f.node)
            alike = a is not None and b is not None and a.leaf.shape == b.leaf.shape
            if alike and a.id not in found and b.id not in taken and not (a.leaf.names and b.leaf.names):
                found[a.id] = b
                taken.add(b.id)
    return found


def join(member: Member, number: Sequence[dict[int, int]]) -> None:
    """A member's edges, by the members' numbers; one that both have stayed."""
    before, after = (
        [Edge(None if e.node is None else number[side].get(e.node), e.output) for e in node.edges] if node else []
        for side, node in enumerate((member.before, member.after))
    )
    went = [e for e in before if e not in after]
    member.slots = (*after, *went) if member.after else tuple(before)
    member.edges = {(e.node, e.output): STAYED if e in before else APPEARED for e in after if e.node is not None}
    member.edges.update({(e.node, e.output): WENT for e in went if e.node is not None})


def judge(member: Member, views: tuple[View | None, View | None]) -> None:
    """What a member keeps in both, and whether it is changed."""
    rows = []
    for view, node in zip(views, (member.before, member.after), strict=True):
        found = view.rows.get(node.id, ()) if view and node else ()
        rows.append({row.formal: row for row in found if row.state != "never saved"})
    member.counted = tuple(sum(row.counted for row in mine.values()) for mine in rows)
    member.kept = tuple(kept(formal, rows[0].get(formal), rows[1].get(formal)) for formal in {**rows[1], **rows[0]})
    if member.sign == STAYED and member.node.leaf is None:
        same = all(k.sign == STAYED for k in member.kept) and set(member.edges.values()) <= {STAYED}
        member.sign = STAYED if same else CHANGED


def kept(formal: str, before: ledger.Row | None, after: ledger.Row | None) -> Kept:
    row = after or before
    was, now = worth(before), worth(after)
    name, alive = text.names(row.saved.names), bool(row.alive)
    if before is None or after is None:
        return Kept(WENT if after is None else APPEARED, formal, row.form, was, now, name, alive)
    if (before.form, was) == (after.form, now):
        return Kept(STAYED, formal, row.form, was, now, name, alive)
    form = before.form
    if after.form != form and not after.stand_in:
        form = after.form if before.stand_in else f"{before.form} → {after.form}"
    return Kept(CHANGED, formal, form, was, now, name, alive)


def worth(row: ledger.Row | None) -> str:
    """What a row adds to the sum, in words."""
    if row is None:
        return ""
    if row.alive:
        return f"a {row.alive}, not counted"
    if row.state == "packed" and not row.counted:
        return "to be computed again" if ledger.to_compute(row.saved) else "packed by a hook"
    if not row.held:
        return row.state
    return "counted elsewhere" if row.first is not None else text.exact(row.counted)


def as_node(members: Sequence[Member], k: int) -> Node:
    """A member as a node of one graph, for folding: where what became of two nodes differs, so do their kinds."""
    member = members[k]
    fate = (member.sign, tuple(replace(x, name="") for x in member.kept), {*member.edges.values()} - {STAYED})
    return replace(
        member.node,
        id=k,
        kind=str(fate),
        edges=member.slots,
        saved=(),
        sequence=None if member.node.leaf else k,
    )


def gather(members: Sequence[Member], folding: Folding) -> list[list[int]]:
    """Drawn operations in order: each alone if it or a neighbour is changed, else runs. Leaves that are changed."""
    drawn = [n for n in folding.drawn if members[n].node.leaf is None]
    touched = {n for n in drawn if members[n].sign != STAYED}
    near = set(touched)
    for n, member in enumerate(members):
        if member.node.leaf is not None or folding.stands[n] not in folding.block_of and folding.stands[n] != n:
            continue
        for feeding, _ in member.edges:
            ends = (folding.stands[n], folding.stands[feeding])
            if touched.intersection(ends):
                near.update(ends)
    out: list[list[int]] = []
    for n in folding.drawn:
        if members[n].node.leaf is not None:
            if members[n].sign != STAYED:
                out.append([n])
            continue
        last = out[-1][-1] if out else None
        joins = last is not None and n not in near and last not in near and members[last].node.leaf is None
        if joins and folding.block_of.get(last) == folding.block_of.get(n):
            out[-1].append(n)
        else:
            out.append([n])
    return out


def totals(found: Difference) -> tuple[int, int]:
    return tuple(ledger.total(all_rows(view)) if view else 0 for view in found.views)
