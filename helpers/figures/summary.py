"""For a graph too large to draw: every operation with its count and its bytes, which add up to the ledger's total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import ledger, text
from .bundle import Figure, figure_of
from .draw import Svg
from .graph_svg import MARGIN, draw_head
from .palette import FRAME, GRAPH, SOFT
from .view import GraphFigure, View, all_rows, counts_of, flags_of, title_of


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a summary: one kind of operation."""

    name: str
    count: int
    tensors: int
    nbytes: int


def summary_lines(view: View) -> list[Line]:
    """Every kind of operation and leaf with its count and what it keeps, most bytes first."""
    nodes = view.recording.nodes
    found: dict[str, list[int]] = {}
    for n in view.ordered:
        node = nodes[n]
        name = ("parameters" if node.leaf.parameter else "leaves") if node.leaf else node.name
        entry = found.setdefault(name, [0, 0, 0])
        entry[0] += 1
        for row in view.rows.get(n, ()):
            entry[1] += row.counts
            entry[2] += row.counted
    lines = [Line(name, *entry) for name, entry in found.items()]
    return sorted(lines, key=lambda line: (-line.nbytes, -line.count, line.name))


def summary(view: View) -> Figure:
    """For a graph too large to draw: every operation with its count; the bytes add up to the ledger's total."""
    lines = summary_lines(view)
    rows = all_rows(view)
    total = ledger.total(rows)
    title = title_of(view)
    lead = "Too large to draw node by node: every operation with its count instead."
    table = [
        [text.quoted(x.name), f"{x.count:,}", text.plural(x.tensors, "tensor"), text.exact(x.nbytes)] for x in lines
    ]
    together = [
        "together",
        f"{sum(x.count for x in lines):,}",
        text.plural(sum(x.tensors for x in lines), "tensor"),
        text.exact(total),
    ]
    twin = [f"{title}: {counts_of(view)}", ledger.heading(rows)]
    twin += [f"{flag[0].upper()}{flag[1:]}." for flag in flags_of(view)]
    twin.append(lead)
    twin += text.aligned([*table, together], right=frozenset({1, 2, 3}))
    twin += [f"Note: {note}" for note in view.recording.notes]
    alt = f"{title}: {counts_of(view)}. {ledger.heading(rows)}. {lead}"
    svg = draw_summary(view, lines, lead, total)
    return figure_of(title, "\n".join(twin), alt, svg, GraphFigure, nbytes=total, folded=True)


def draw_summary(view: View, lines: Sequence[Line], lead: str, total: int) -> str:
    svg = Svg()
    width = 760.0
    y = draw_head(svg, view, width, lead)
    y += 12
    for x, label, anchor in (
        (MARGIN, "operation", ""),
        (318, "count", "end"),
        (400, "kept", "end"),
        (412, "bytes kept", ""),
    ):
        svg.text(x, y, label, size=11, mono=False, fill=SOFT, anchor=anchor)
    svg.line(MARGIN, y + 7, width - MARGIN, y + 7, line=FRAME)
    y += 24
    most = max((line.nbytes for line in lines), default=0) or 1
    shown, rest = (lines, []) if len(lines) <= 40 else (lines[:39], lines[39:])
    if rest:
        other = Line(
            f"{len(rest)} other kinds", *(sum(getattr(x, f) for x in rest) for f in ("count", "tensors", "nbytes"))
        )
        shown = [*shown, other]
    for line in shown:
        svg.open("row", f"{line.name}: {line.count:,}, keeps {text.exact(line.nbytes)}")
        svg.text(MARGIN, y, text.short(text.operation(text.quoted(line.name).strip('"')), 34), size=11.5, bold=True)
        svg.text(318, y, f"{line.count:,}", size=11.5, anchor="end")
        svg.text(400, y, f"{line.tensors:,}", size=11.5, anchor="end")
        bar = 180 * line.nbytes / most
        if line.nbytes:
            svg.rect(412, y - 10, max(bar, 1.5), 13, fill=GRAPH["live"].fill, line=GRAPH["live"].line, radius=2)
        svg.text(412 + bar + 8, y, text.exact(line.nbytes), size=11)
        svg.close()
        y += 21
    svg.line(MARGIN, y - 10, width - MARGIN, y - 10, line=FRAME)
    svg.text(MARGIN, y + 8, "together", size=11.5, bold=True)
    svg.text(318, y + 8, f"{sum(x.count for x in lines):,}", size=11.5, bold=True, anchor="end")
    svg.text(400, y + 8, f"{sum(x.tensors for x in lines):,}", size=11.5, bold=True, anchor="end")
    svg.text(412, y + 8, text.both(total), size=11.5, bold=True)
    return svg.finish(width, y + 26, title_of(view))
