"""The difference of two graphs: two recordings of one step, with and without detach, checkpoint, frozen weights, …

Operations are matched along their common order in forward (backward's, reversed): first by name, module, the text of
the line that made them, and what they make; what is left over in between by less and less of that, at last by name and
module alone. Ids, line numbers and variables' names play no part, so two cells can be compared. A leaf is matched by
its name, else by the place that it has among the inputs of operations that are matched. What is matched stayed; the
rest of the first recording went, the rest of the second appeared. A node that stayed is changed if it keeps something
else, or if an input of it came or went.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.data import Recording

from .bundle import Figure, figure_of
from .difference_model import APPEARED, CHANGED, STAYED, WENT, difference_of, totals
from .difference_svg import draw
from .difference_text import heading, subtitle, twin_of


@dataclass(frozen=True, repr=False)
class DifferenceFigure(Figure):
    """The difference of two graphs. Counts are operations; nbytes: kept for backward before and after.

    pairs: (node before, node after) by their ids, None where there is none; leaves too.
    """

    appeared: int = 0
    went: int = 0
    stayed: int = 0  # with those that are changed
    changed: int = 0
    nbytes: tuple[int, int] = (0, 0)
    pairs: tuple[tuple[int | None, int | None], ...] = ()


def difference_figure(
    before: Recording, after: Recording, names: tuple[str, str] = ("before", "after")
) -> DifferenceFigure:
    """What appeared, what went and what stayed between the first graphs of two recordings, and the bytes that each
    keeps as its backward begins (or at its end, if there is none). names: what to call the two.

    Raises ValueError where neither recording has a graph.
    """
    if not before.graphs and not after.graphs:
        raise ValueError("Neither recording has a graph: nothing in them needs a gradient, so there is no difference.")
    found = difference_of(before, after, names)
    whole = difference_of(before, after, names, folded=False) if len(found.gathered) < len(found.members) else None
    nbytes = totals(found)
    title = heading(found)
    svg = draw(found, title, subtitle(found))
    return figure_of(
        title,
        twin_of(found),
        f"{title}. {subtitle(found)} The text form lists every change.",
        svg,
        DifferenceFigure,
        appeared=len(found.of(APPEARED)),
        went=len(found.of(WENT)),
        stayed=len(found.of(STAYED)),
        changed=len(found.of(CHANGED)),
        nbytes=nbytes,
        pairs=tuple((m.before and m.before.id, m.after and m.after.id) for m in found.members),
        whole=(lambda: twin_of(whole)) if whole else None,
    )
