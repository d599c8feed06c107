"""The graph as a figure: operations, leaves, and pink ellipses for what is kept until backward.

Forward runs from top to bottom. A leaf with users far apart is drawn once for each, since long arrows make a picture
slow to lay out and hard to read. Blocks that repeat are drawn once, with their count; what is still too large becomes a
summary in which every operation has its count and its bytes. Nothing is left out without a word.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.data import Recording

from . import layout, ledger, text
from .bundle import Figure, figure_of
from .draw import Svg
from .graph_svg import draw
from .graph_text import twin_of
from .order import Folding, fold
from .scene import MOST_DRAWN, Scene, build
from .summary import summary
from .view import GraphFigure, View, all_rows, counts_of, numbered, title_of, view_of

#: Graphs with more operations than this are folded even where a whole picture would fit.
FOLD_FROM = 24


def graph_figure(recording: Recording, graph: int = 0, moment: int | None = None, *, folded: bool = True) -> Figure:
    """The drawing of `recording.graphs[graph]` as it stood after event `moment`, with its text twin.

    moment: an event's index; None for the moment the graph was captured. folded=False draws every node, if at all.
    Raises IndexError if there are graphs, but none of that number.
    """
    if not recording.graphs:
        return nothing(recording)
    return drawn(view_of(recording, numbered(recording, graph), moment), folded=folded).figure


@dataclass(frozen=True, repr=False)
class Drawn:
    """A graph's figure, with what its drawing is made of; no scene where a summary stands for the drawing."""

    view: View
    figure: Figure
    folding: Folding | None = None
    scene: Scene | None = None
    plan: layout.Layout | None = None


def drawn(view: View, *, folded: bool = True) -> Drawn:
    """The drawing of a graph, and its text twin. folded=False draws every node, if at all."""
    recording = view.recording
    operations = sum(not recording.nodes[n].leaf for n in view.ordered)
    folding = fold(recording, view.ordered, wanted=folded and operations > FOLD_FROM)
    if folded and len(folding.drawn) > 4 * MOST_DRAWN:
        return Drawn(view, summary(view))
    scene = build(view, folding)
    if folded and len(scene.items) > MOST_DRAWN:
        return Drawn(view, summary(view))
    plan = layout.arrange(
        [item.box for item in scene.items], scene.arrows, scene.frames, gaps=scene.style.gaps, above=scene.above
    )
    if plan is None:
        return Drawn(view, summary(view))
    svg = draw(view, scene, plan)
    twin = twin_of(view, folding)
    title = title_of(view)
    alt = alt_of(view, folding)

    def whole() -> str:
        return twin_of(view, fold(recording, view.ordered, wanted=False), sizes=True)

    figure = figure_of(
        title,
        twin,
        alt,
        svg,
        GraphFigure,
        nbytes=ledger.total(all_rows(view)),
        folded=bool(folding.blocks),
        whole=whole,
    )
    return Drawn(view, figure, folding, scene, plan)


def nothing(recording: Recording) -> Figure:
    """What stands where there is no graph: a sentence, in the same form."""
    sentence = " ".join(recording.notes) or "No graph: nothing that was recorded needs a gradient."
    svg = Svg()
    y = 30.0
    for part in text.wrapped(sentence, 70):
        svg.text(16, y, part, size=13, mono=False)
        y += 20
    return figure_of("No graph", sentence, sentence, svg.finish(560, y, "No graph"), GraphFigure)


def alt_of(view: View, folding: Folding) -> str:
    heading = ledger.heading(all_rows(view))
    more = "".join(f" {block.label} drawn once for {block.count:,}." for block in folding.blocks[:4])
    return f"{title_of(view)}: {counts_of(view)}. {heading}.{more} The text form lists every node."
