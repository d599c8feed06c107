"""What a difference says in words; its text twin."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.data import Node, TensorInfo

from . import ledger, text
from .difference_model import APPEARED, CHANGED, STAYED, WENT, Difference, Member, totals
from .graph_text import outputs_words
from .order import Block
from .view import all_rows, leaf_kind


def heading(found: Difference) -> str:
    was, now = map(text.quoted, found.names)
    counts = [(len(found.of(APPEARED)), "appeared"), (len(found.of(WENT)), "went"), (len(found.of(STAYED)), "stayed")]
    words = [
        text.plural(n, "operation") + f" {verb}" if not k else f"{n:,} {verb}" for k, (n, verb) in enumerate(counts)
    ]
    changed = len(found.of(CHANGED))
    return f"From {was} to {now}: {', '.join(words)}" + (f", {changed:,} of them changed" if changed else "")


def subtitle(found: Difference) -> str:
    before, after = totals(found)
    was, now = map(text.quoted, found.names)
    more = after - before
    sign = "the same" if not more else f"{'+' if more > 0 else '−'}{text.exact(abs(more))}"
    return f"Kept for backward: {was} {text.exact(before)}, {now} {text.exact(after)} ({sign})."


def block_words(block: Block) -> str:
    lacking = sum(n is None for n in block.members[0])
    less = f" has {text.plural(lacking, 'operation')} fewer, and" if lacking else ""
    first = f"; the first{less} may lack what an input without gradient leaves out" if block.shown else ""
    return block.label + first


def place_words(found: Difference, member: Member) -> str:
    """The line that made it; both lines, where they differ."""
    lines = [
        text.line(recording, node.place) if node is not None else ""
        for recording, node in zip(found.recordings, (member.before, member.after), strict=True)
    ]
    was, now = lines
    if was and now and was != now:
        return f"{was} → {now.removeprefix('line ')}" if now.startswith("line ") else f"{was} → {now}"
    return now or was


def number(n: int) -> str:
    return f"[{n + 1}]"


def wish_words(found: Difference, member: Member) -> str:
    """What became of a leaf that lives in both recordings, but is in one of the graphs only."""
    if not found.lives(member):
        return ""
    return "wants no gradient any more" if member.sign == WENT else "wants a gradient now"


def edge_words(found: Difference, member: Member, *, drawn: bool = False) -> list[str]:
    """Inputs that came or went, as "− from [3] TBackward0"; in the drawing, which has no numbers, as "− from T"."""
    out = []
    for (feeding, output), sign in member.edges.items():
        if sign != STAYED and member.sign == CHANGED:
            other = found.members[feeding].node
            name = text.quoted(other.name)
            what = leaf_words(other) if other.leaf else text.operation(name) if drawn else name
            which = f" output {output}" if len(other.outputs) > 1 else ""
            at = "" if drawn else f"{number(found.folding.stands[feeding])} "
            out.append(f"{sign} from {at}{what}{which}")
    return out


def leaf_words(node: Node) -> str:
    return f"{leaf_kind(node)} {text.names(node.leaf.names) or 'unnamed'}"


def twin_of(found: Difference) -> str:
    """Every change with its sign; what stayed far from any, in runs."""
    lines = [heading(found)]
    for view, name in zip(found.views, found.names, strict=True):
        rows = f"{ledger.heading(all_rows(view))}" if view else "no graph"
        lines.append(f"{text.quoted(name)}: {rows[0].lower()}{rows[1:]}")
    lines.append(
        f"{subtitle(found)} Signs: {APPEARED} appeared, {WENT} went, {STAYED} stayed, {CHANGED} stayed, changed."
    )
    for block in found.folding.blocks:
        first, last = number(min(block.drawn)), number(max(block.drawn))
        lines.append(f"Folded: {first} to {last} stand for {block.count:,} times the same: {block_words(block)}.")
    for run in found.gathered:
        member = found.members[run[0]]
        if len(run) > 1:
            lines.append(f"  {STAYED} {number(run[0])} to {number(run[-1])}  {gathered_words(found, run)}")
            continue
        lines.append("  " + "  ".join(filter(None, member_fields(found, run[0]))))
        lines += [f"        {words}" for words in edge_words(found, member)]
        lines += [f"        {k.sign} {k.words}" for k in member.kept]
    told = {n for run in found.gathered for n in run}
    quiet = [m for n, m in enumerate(found.members) if m.node.leaf and n not in told and m.sign == STAYED]
    if quiet:
        lines.append(f"  {STAYED} {text.plural(len(quiet), 'leaf', 'leaves')} that stayed")
    notes = dict.fromkeys(note for recording in found.recordings for note in recording.notes)
    return "\n".join([*lines, *(f"Note: {note}" for note in notes)])


def member_fields(found: Difference, n: int) -> list[str]:
    member = found.members[n]
    node = member.node
    times = len(found.folding.like.get(n, ())) or found.folding.leaf_times.get(n, 1)
    many = f"×{times:,}" if times > 1 else ""
    head = f"{member.sign} {number(n)}"
    if node.leaf:
        leaf = node.leaf
        form = text.tensor(TensorInfo(leaf.shape, leaf.dtype, leaf.device))
        return [f"{head}  {leaf_words(node)}", form, text.exact(leaf.nbytes), many, wish_words(found, member)]
    makes = f"makes {text.names(node.names)}" if node.names else ""
    where = (place_words(found, member), text.in_module(node.module))
    return [f"{head}  {text.quoted(node.name)}", makes, outputs_words(node), *where, many]


def gathered_words(found: Difference, run: Sequence[int]) -> str:
    """ "15 operations that stayed, they keep 8,192 B"; in a folded block, of all repetitions."""
    times = len(found.folding.like.get(run[0], ())) or 1
    like = [m for n in run for m in found.folding.like.get(n, (n,))]
    keep = sum(found.members[m].counted[1] for m in like)
    many = f" ×{times:,}" if times > 1 else ""
    return f"{text.plural(len(run), 'operation')} that stayed{many}, keeping {text.exact(keep)}"
