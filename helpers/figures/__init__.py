"""The pictures of a recording. Each is a `Figure`: a still that reads on light and dark, and a text twin in words.

graph_figure     the graph of one backward, what it keeps as pink ellipses
difference_figure what two recordings of one step have different in their graphs, side by side
kept_figure      the ledger of what is kept, and why
memory_figure    live bytes by category, event by event
overview_figure  code, graph, ledger and memory together
taken_apart_figure operations from top to bottom, beside each what it keeps, to scale
player_figure    the same, live: step by step
picture          a graph that torchviz drew (anything in the DOT language)
curves           a line chart
bars             bars of numbers by name, stacked or side by side, with a formula's numbers marked over them
variants_figure  peaks and courses of a program's variants, and which of them fit a card
waterfall_figure from naive to fitting: what each step saves or costs
allocator_figure a caching allocator over time: curves, and the map of its segments
kernels_figure   what kernels hold inside themselves, over the ledger (CPU)
layout_program   which layout program is used, in words
PALETTE          category → colour, for plots beside these figures
"""

from .allocator_map import allocator_figure
from .bars import bars
from .bundle import Figure
from .curves import curves
from .difference import difference_figure
from .dot import picture
from .graph import graph_figure
from .kept import kept_figure
from .kernels_plot import kernels_figure
from .layout import layout_program
from .memory import memory_figure
from .overview import overview_figure
from .palette import PALETTE
from .player import player_figure
from .taken_apart import taken_apart_figure
from .variants import variants_figure
from .waterfall import waterfall_figure

__all__ = [
    "PALETTE",
    "Figure",
    "allocator_figure",
    "bars",
    "curves",
    "difference_figure",
    "graph_figure",
    "kept_figure",
    "kernels_figure",
    "layout_program",
    "memory_figure",
    "overview_figure",
    "picture",
    "player_figure",
    "taken_apart_figure",
    "variants_figure",
    "waterfall_figure",
]
