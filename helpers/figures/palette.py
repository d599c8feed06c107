"""One palette for all figures, after Okabe and Ito's colours, which stay apart for colour-blind readers.

Every still has an opaque white ground, so it reads on a light and on a dark page alike. Contrast on it (WCAG): ink
15.8, soft ink 7.9, each outline at least 3 against its fill or ground. Neighbours in a memory plot differ by hatch and
label too, and a dark line parts them. tests/figures/test_palette.py computes all of this, and the distance between
neighbours as seen with deuteranopia, protanopia and tritanopia.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from helpers.data import CATEGORIES


@dataclass(frozen=True, slots=True)
class Paint:
    """Colours of one kind of thing, as "#rrggbb"."""

    fill: str
    line: str
    text: str


GROUND = "#ffffff"
FRAME = "#d3d6da"
INK = "#1f2328"
SOFT = "#4a525b"
FAINT = "#8b949e"  # lines only, never text
ALERT = "#983000"
BAND = ("#f2f4f7", "#ffffff")  # alternating grounds of phases

#: Nodes and tensors of a graph.
GRAPH = MappingProxyType(
    {
        "operation": Paint("#f6f7f8", "#57606a", INK),
        "custom": Paint("#fdf1d8", "#8a6100", INK),
        "edge": Paint("#eeeeee", "#57606a", INK),
        "leaf": Paint("#e3f0fa", "#0072b2", INK),
        "parameter": Paint("#b4d6f2", "#00568a", INK),
        "none": Paint("#ffffff", "#6e7781", SOFT),
        "pruned": Paint("#ffffff", "#8b949e", SOFT),
        "live": Paint("#f8c8df", "#a8326f", INK),
        "alive": Paint("#fbeaf2", "#0072b2", INK),
        "released": Paint("#ffffff", "#8b949e", SOFT),
        "packed": Paint("#fbeaf2", "#a8326f", INK),
        "changed in place": Paint("#f8c8df", ALERT, INK),
        "again": Paint("#ffffff", "#a8326f", INK),
        "region": Paint("#fef7fa", "#a8326f", "#8f2a5e"),
        "root": Paint("#ffffff", "#006d50", "#006d50"),
        "module": Paint("#fbfbfc", "#8b949e", SOFT),
    }
)

#: Categories of live bytes, in stacking order: fill of the band, line of its hatch, text of its label on the ground.
CATEGORY = MappingProxyType(
    {
        "parameters": Paint("#0072b2", "#7cc4f0", "#005a8c"),
        "buffers": Paint("#8fd0f5", "#0f5f8f", "#0f5f8f"),
        "optimizer state": Paint("#009e73", "#00382a", "#00694c"),
        "gradients": Paint("#f0b429", "#7a5200", "#7a5200"),
        "kept for backward": Paint("#d58fb8", "#6b1f4b", "#8f2a5e"),
        "inputs": Paint("#f5ec7a", "#6b6400", "#625c00"),
        "other": Paint("#cfd4d9", "#4a525b", "#41474d"),
    }
)

#: What kernels hold inside themselves: no category of the ledger, and cross-hatched ("x").
INSIDE = Paint("#ffe9dc", "#983000", "#983000")

#: Hatch of each category: a second sign beside colour. "" is plain.
HATCH = MappingProxyType(
    {
        "parameters": "",
        "buffers": "|",
        "optimizer state": "-",
        "gradients": "/",
        "kept for backward": "",
        "inputs": ".",
        "other": "\\",
    }
)

assert tuple(CATEGORY) == CATEGORIES == tuple(HATCH)

#: What an allocator's map shows besides the categories: blocks of no category, and what is free inside segments.
ALLOCATOR = MappingProxyType(
    {
        "block": Paint("#6e7480", "#1f2328", INK),
        "stranded": Paint("#f7c9a8", "#983000", ALERT),
        "cached": Paint("#eef3f8", "#4a525b", SOFT),
    }
)

#: Steps of a waterfall: a level is a whole bar, a saving or a cost the piece between two levels.
WATERFALL = MappingProxyType(
    {
        "level": Paint("#6e7480", "#1f2328", INK),
        "saving": Paint("#b5e3d0", "#00573f", "#00573f"),
        "cost": Paint("#f9b48f", "#7a2600", "#7a2600"),
    }
)

#: Their hatches, as in `HATCH`; "+" is a grid.
PLOT_HATCH = MappingProxyType({"block": "", "stranded": "+", "cached": "", "level": "", "saving": "/", "cost": "\\"})

#: Parts of stacked bars, whatever they stand for, in the order in which they come; each with a hatch of its own.
PARTS = MappingProxyType(
    {
        "part 1": Paint("#d58fb8", "#6b1f4b", "#8f2a5e"),
        "part 2": Paint("#0072b2", "#b4d6f2", "#005a8c"),
        "part 3": Paint("#f0b429", "#7a5200", "#7a5200"),
        "part 4": Paint("#cfd4d9", "#4a525b", "#41474d"),
        "part 5": Paint("#009e73", "#00382a", "#00694c"),
        "part 6": Paint("#f5ec7a", "#6b6400", "#625c00"),
        "part 7": Paint("#8fd0f5", "#0f5f8f", "#0f5f8f"),
        "part 8": Paint("#f9b48f", "#7a2600", "#7a2600"),
        "part 9": Paint("#6e7480", "#eef3f8", INK),
        "part 10": Paint("#b5e3d0", "#00573f", "#00573f"),
        "part 11": Paint("#eef3f8", "#4a525b", SOFT),
        "part 12": Paint("#fbe3b5", "#8a6100", "#7a5200"),
    }
)
PART_HATCH = MappingProxyType(
    dict(zip(PARTS, ("", "/", "-", "\\", "|", ".", "-", "x", ".", "+", "|", "/"), strict=True))
)

#: What notebooks and plots may use: category → fill; plus the inks.
PALETTE = MappingProxyType(
    {**{name: paint.fill for name, paint in CATEGORY.items()}, "ground": GROUND, "ink": INK, "soft ink": SOFT}
)
