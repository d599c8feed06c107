"""Ground that the memory plots share: a sheet that matplotlib draws off screen, axes in bytes, bands, hatches, SVG.

A sheet is WIDTH pixels wide; matplotlib counts at 72 dots an inch, so a point is a pixel. What carries numbers (bars,
bands, lines, blocks) stands in axes, in bytes, with a label that names it, so that a test reads it back; words and
hatches stand on the sheet, in pixels. The SVG holds strokes, fills and words only: no id, no clip path, no pattern, and
text as text in the reader's fonts, as in every other figure. Bytes are told in binary units here (GiB is 2^30), since
cards and allocators count so. matplotlib is loaded when a figure is drawn.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helpers.data import Recording
from helpers.data.json_io import check

from . import text
from .bundle import escape
from .curves_svg import STYLES as SIX
from .curves_text import clean
from .draw import Svg, width_of
from .hatch import KERNELS
from .palette import (
    ALERT,
    ALLOCATOR,
    CATEGORY,
    FRAME,
    GRAPH,
    GROUND,
    HATCH,
    INK,
    INSIDE,
    PART_HATCH,
    PARTS,
    PLOT_HATCH,
    SOFT,
    WATERFALL,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH = 860.0
MARGIN = 18.0
SIZE = 12.0  # of texts
#: Colour and dashes of up to eight lines in one plot.
STYLES = (*SIX, (GRAPH["packed"].line, (1.5, 4.0)), (GRAPH["operation"].line, (16.0, 3.0, 3.0, 3.0)))
PAINT = {**CATEGORY, KERNELS: INSIDE, **ALLOCATOR, **WATERFALL, **PARTS}
SIGN = {**HATCH, KERNELS: "x", **PLOT_HATCH, **PART_HATCH}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
BINARY = "KiB, MiB and GiB are 2^10, 2^20 and 2^30 B."
#: A capacity further off than so many times the highest value is said, not drawn: the bars would be slivers beside it.
FAR = 4

Rect = tuple[float, float, float, float]  # x0, x1, y0, y1
Point = tuple[float, float]


# ------------------------------------------------------------------------------------------------------------- words


def unit_of(n: float) -> tuple[int, str]:
    """The largest binary unit that a number of bytes fills: its size, and its name."""
    k = min(max(int(abs(n)).bit_length() - 1, 0) // 10, len(UNITS) - 1)
    return 1024**k, UNITS[k]


def binary(n: int) -> str:
    """Bytes in binary units (GiB is 2^30), to two decimals: 67384337920 → "62.76 GiB". Below 1,024: exact."""
    size, unit = unit_of(n)
    return f"{n} B" if size == 1 else f"{n / size:.2f} {unit}"


def exactly(n: int) -> str:
    """Exact bytes, and binary units where these are shorter to read: "67,384,337,920 B (62.76 GiB)"."""
    return text.exact(n) if abs(n) < 10_000 else f"{text.exact(n)} ({binary(n)})"


def signed(n: int, words: str) -> str:
    """A difference's words with its sign: "−12.06 GiB", "+512 B", "±0 B"."""
    return ("−" if n < 0 else "+" if n else "±") + words.removeprefix("-")


def unit_sentence(n: int) -> str:
    """ "1 GiB = 2^30 B": what the unit on an axis up to `n` bytes means; "" for plain bytes."""
    size, unit = unit_of(n)
    return f"1 {unit} = 2^{size.bit_length() - 1} B" if size > 1 else ""


def byte_ticks(top: float) -> tuple[list[int], list[str]]:
    """Four to eight round values of one binary unit from 0 to at most `top` bytes, and their words."""
    if top < 1:
        return [0], ["0"]
    size, unit = unit_of(top)
    span = top / size
    step = next(
        f * 10.0**e for e in range(-2, 4) for f in (1, 2, 2.5, 5) if span / (f * 10.0**e) <= 7 and (e or f != 2.5)
    )
    if size == 1:
        step = max(1.0, math.ceil(step))
    marks = [k * step for k in range(int(span / step + 1e-9) + 1)]
    return [round(m * size) for m in marks], [f"{m:g} {unit}" if m else "0" for m in marks]


def capital(words: str) -> str:
    """Words as a sentence begins."""
    return words[:1].upper() + words[1:]


# -------------------------------------------------------------------------------------------------- what comes in


def sound(recording: object, what: str) -> Recording:
    """The recording, if it is one and holds together. Raises ValueError, a sentence, otherwise."""
    if not isinstance(recording, Recording):
        more = " Pass its .recording." if hasattr(type(recording), "recording") else ""
        raise ValueError(f"{what} is a {type(recording).__name__}, not a Recording.{more}")
    try:
        check(recording)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"{what} cannot be drawn. {error}") from None
    return recording


def whole(n: object, what: str, least: int = 0) -> int:
    """Whole bytes, at least `least`. Raises ValueError, a sentence, for anything else, NaN and infinities too."""
    number = isinstance(n, int | float) and not isinstance(n, bool)
    if not number or not math.isfinite(n) or n != int(n) or n < least:
        shown = n if number else f"a {type(n).__name__}"
        raise ValueError(f"{what} is {shown}; a whole number of bytes, {least:,} or more, was expected (24 * 2**30).")
    return int(n)


def name_of(name: object, what: str) -> str:
    """A name in one line. Raises ValueError for one that says nothing."""
    words = clean(name) if isinstance(name, str) else ""
    if not words:
        raise ValueError(f"{what} has the name {name!r}; a name in words was expected.")
    return words


def capacity_words(capacity: int, card: str) -> str:
    return f"capacity {binary(capacity)}" + (f", {card}" if card else "")


# --------------------------------------------------------------------------------------------------------- thinning


def thinned(series: Iterable[Sequence[float]], most: int) -> list[int]:
    """Indices to draw, at most about `most` a series: of each group of neighbours those at which a series is highest
    or lowest (first of each), and the first of all. No peak of any series is lost, and all are true at each index.

    After "M4: a visualization-oriented time series data aggregation", Jugel and others, 2014, which keeps the same.
    """
    series = list(series)
    n = len(series[0])
    if n <= most:
        return list(range(n))
    size = math.ceil(2 * n / most)
    kept = {0, n - 1}
    for start in range(0, n, size):
        part = range(start, min(start + size, n))
        for values in series:
            kept |= {max(part, key=lambda k: (values[k], -k)), min(part, key=lambda k: (values[k], k))}  # noqa: B023
    return sorted(kept)


def columns(values: Sequence[float], most: int) -> tuple[list[int], list[int]]:
    """At most `most` columns of neighbours: their edges, and of each the first index at which `values` is highest."""
    n = len(values)
    count = min(n, most)
    edges = [n * c // count for c in range(count + 1)]
    spans = [range(a, b) for a, b in zip(edges, edges[1:], strict=False)]
    return edges, [max(span, key=lambda k: (values[k], -k)) for span in spans]


# ----------------------------------------------------------------------------------------------------------- a sheet


@contextmanager
def plain_style() -> Iterator[None]:
    """matplotlib's own defaults while we draw: a reader's style restyles nothing of ours, nothing of ours stays."""
    import matplotlib

    usual = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith(("backend", "interactive"))}
    ours = {"svg.fonttype": "none", "svg.hashsalt": "memory", "path.simplify": False}
    with warnings.catch_warnings(), matplotlib.rc_context({**usual, **ours}):
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's fonts draw the text
        yield


@dataclass(frozen=True, slots=True)
class Box:
    """A place on the sheet, in pixels from its left top."""

    left: float
    top: float
    right: float
    bottom: float


class Sheet:
    """A drawing under way. Places are in pixels from the left top. Use inside `plain_style()`."""

    def __init__(self, height: float) -> None:
        from matplotlib.figure import Figure as Canvas

        self.height = height
        self.canvas: Canvas = Canvas(figsize=(WIDTH / 72, height / 72), dpi=72)
        self.canvas.patch.set_visible(False)

    def axes(self, box: Box, x: Point, y: Point) -> Axes:
        """Axes without a frame, ticks or margins: `x` and `y` are the values at their ends."""
        wide, high = (box.right - box.left) / WIDTH, (box.bottom - box.top) / self.height
        axes = self.canvas.add_axes((box.left / WIDTH, 1 - box.bottom / self.height, wide, high))
        axes.set_axis_off()
        axes.set_xlim(*x)
        axes.set_ylim(*y)
        return axes

    def place(self, axes: Axes, x: float, y: float) -> Point:
        """Where a value of some axes stands on the sheet."""
        px, py = axes.transData.transform((x, y))
        return float(px), self.height - float(py)

    # ------------------------------------------------------------------------------------------------ on the sheet

    def words(self, x: float, y: float, content: str, *, fill=INK, size=SIZE, bold=False, anchor="left") -> None:
        """A line of text, its baseline at y."""
        if content:
            self.canvas.text(
                x / WIDTH, 1 - y / self.height, content, color=fill, fontsize=size, ha=anchor, va="baseline",
                fontweight="bold" if bold else "normal", parse_math=False, zorder=9,
            )  # fmt: skip

    def sign(self, x: float, y: float, words: str, anchor: str = "left") -> None:
        """Words in warning colour on a ground of their own, to be read over a band."""
        wide = width_of(words, 11.5, mono=False)
        left = x if anchor == "left" else x - wide
        self.stroke([(left - 3, y - 4), (left + wide + 3, y - 4)], GROUND, 14, over=8)
        self.words(x, y, words, fill=ALERT, size=11.5, bold=True, anchor=anchor)

    def stroke(
        self, points: Sequence[Point], colour: str, width: float = 1.0, dashes: Sequence[float] = (), over: float = 3
    ) -> None:
        """A line. over: -1 puts it behind the axes, which stand at 0."""
        from matplotlib.lines import Line2D
        from matplotlib.transforms import IdentityTransform

        xs, ys = zip(*points, strict=True)
        line = Line2D(xs, [self.height - y for y in ys], color=colour, lw=width, transform=IdentityTransform())
        line.set_zorder(over)
        self.canvas.add_artist(dashed(line, width, dashes), clip=False)

    def swatch(self, kind: str, x: float, y: float, width: float = 26, height: float = 13) -> None:
        """A sample of a kind's paint: colour, and hatch."""
        from matplotlib.patches import PathPatch
        from matplotlib.transforms import IdentityTransform

        box = (x, x + width, self.height - y - height, self.height - y)
        patch = PathPatch(
            path_of([box]), facecolor=PAINT[kind].fill, edgecolor=INK, lw=0.6, transform=IdentityTransform(), zorder=2
        )
        self.canvas.add_artist(patch, clip=False)
        self._hatch(self.canvas, [box], kind)

    def _hatch(self, where: Canvas | Axes, boxes: Iterable[Rect], kind: str) -> None:
        """A kind's lines or dots over boxes that are given in matplotlib's pixels."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path
        from matplotlib.transforms import IdentityTransform

        pieces = hatched(boxes, SIGN[kind])
        if pieces:
            path = Path([p for piece in pieces for p in piece], [Path.MOVETO, Path.LINETO] * len(pieces))
            width = {".": 1.4, "+": 0.5}.get(SIGN[kind], 0.7)
            patch = PathPatch(path, fill=False, edgecolor=PAINT[kind].line, lw=width, transform=IdentityTransform())
            patch.set(label="hatch", zorder=2.5)
            where.add_artist(patch)
            patch.set_clip_on(False)

    # ------------------------------------------------------------------------------------------------- in the axes

    def boxes(self, axes: Axes, kind: str, rects: Sequence[Rect], *, label: str = "", edge: float = 0.6) -> None:
        """Rectangles of one kind, in the axes' values, as one path. edge: width of their outline, 0 for none."""
        from matplotlib.patches import PathPatch

        if not rects:
            return
        line = INK if edge else "none"
        patch = PathPatch(path_of(rects), facecolor=PAINT[kind].fill, edgecolor=line, lw=edge, label=label or kind)
        self._into(axes, patch)
        ends = [(axes.transData.transform([(a, c), (b, d)])) for a, b, c, d in rects] if SIGN[kind] else []
        self._hatch(axes, [(p[0], q[0], *sorted((p[1], q[1]))) for p, q in ends], kind)

    def band(
        self, axes: Axes, kind: str, edges: Sequence[float], low: Sequence[int], high: Sequence[int], edge: float = 0.5
    ) -> None:
        """A stacked band: from `low` to `high` between each two of `edges`, a staircase. edge: of its outline, or 0."""
        import numpy as np
        from matplotlib.patches import StepPatch

        there = [b > a for a, b in zip(low, high, strict=True)]
        if not any(there):
            return
        top = np.where(there, np.asarray(high, dtype=float), np.nan)  # no outline where there is nothing
        bottom = np.asarray(low, dtype=float)
        patch = StepPatch(
            top, edges, baseline=bottom, facecolor=PAINT[kind].fill, edgecolor=INK if edge else "none", lw=edge,
            fill=True, joinstyle="miter", label=kind,
        )  # fmt: skip
        self._into(axes, patch)
        if SIGN[kind]:
            place = axes.transData.transform
            rects = [
                (*place((edges[i], low[i])), *place((edges[i + 1], high[i]))) for i, held in enumerate(there) if held
            ]
            self._hatch(axes, [(x0, x1, y0, y1) for x0, y0, x1, y1 in rects], kind)

    def steps(
        self, axes: Axes, edges: Sequence[float], values: Sequence[int], style: tuple, *, label: str, width: float = 1.8
    ) -> None:
        """A line that holds each value from its edge to the next."""
        from matplotlib.lines import Line2D

        colour, dashes = style
        line = Line2D(
            edges, [*values, values[-1]], color=colour, lw=width, drawstyle="steps-post", label=label,
            solid_joinstyle="miter", dash_joinstyle="miter",
        )  # fmt: skip
        self._into(axes, dashed(line, width, dashes), 3)

    def _into(self, axes: Axes, artist: Artist, over: float = 2) -> None:
        artist.set_zorder(over)
        axes.add_artist(artist)
        artist.set_clip_on(False)  # nothing reaches beyond the axes; a clip path would need an id

    # ------------------------------------------------------------------------------------------- what all plots have

    def heading(self, title: str, sentences: Sequence[str]) -> float:
        """The title and the sentences under it; gives the place under them."""
        y = 10.0
        for line in head_lines(title):
            y += 20
            self.words(MARGIN, y, line, size=15, bold=True)
        for sentence in sentences:
            for line in sentence_lines(sentence):
                y += 17
                self.words(MARGIN, y, line, fill=SOFT)
        return y

    def byte_rules(self, axes: Axes, box: Box, top: float, *, across: bool = False) -> None:
        """Fine lines at round bytes, with their words: from left to right, or (`across`) upright under the axes."""
        for mark, words in zip(*byte_ticks(top), strict=True):
            if across:
                x, _ = self.place(axes, mark, 0)
                self.stroke([(x, box.top), (x, box.bottom + 4)], FRAME, over=-1)
                self.words(x, box.bottom + 17, words, fill=SOFT, size=11, anchor="center")
            else:
                _, y = self.place(axes, 0, mark)
                self.stroke([(box.left, y), (box.right, y)], FRAME, over=-1)
                self.words(box.left - 7, y + 4, words, fill=SOFT, size=11, anchor="right")

    def capacity(
        self, axes: Axes, box: Box, capacity: int, words: str = "", *, across: bool = False, right: bool = False
    ) -> None:
        """The capacity as a dashed line of the axes, labelled: upright if `across`, else with words left or right."""
        draw = axes.axvline if across else axes.axhline
        line = draw(capacity, color=ALERT, lw=1.8, label="capacity", zorder=4)
        dashed(line, 1.8, (7, 4))
        line.set_clip_on(False)
        if across:
            x, _ = self.place(axes, capacity, 0)
            half = width_of(words, 11.5, mono=False) / 2
            x = min(max(x, MARGIN + half), WIDTH - MARGIN - half)
            self.words(x, box.top - 6, words, fill=ALERT, size=11.5, bold=True, anchor="center")
        else:
            _, y = self.place(axes, 0, capacity)
            self.sign(box.right - 6 if right else box.left + 6, y - 7, words, "right" if right else "left")

    def legend(self, kinds: Sequence[tuple[str, str]], y: float) -> float:
        """Samples of kinds with their words, row by row from y; gives the place under them."""
        for (kind, words), (x, row) in zip(kinds, legend_places(kinds), strict=True):
            self.swatch(kind, x, y + row)
            self.words(x + 32, y + row + 11, words, size=11.5)
        return y + legend_height(kinds)


def legend_places(kinds: Sequence[tuple[str, str]]) -> list[Point]:
    x, y, places = MARGIN, 0.0, []
    for _, words in kinds:
        wide = 32 + width_of(words, 11.5, mono=False)
        if x > MARGIN and x + wide > WIDTH - MARGIN:
            x, y = MARGIN, y + 20
        places.append((x, y))
        x += wide + 16
    return places


def legend_height(kinds: Sequence[tuple[str, str]]) -> float:
    return legend_places(kinds)[-1][1] + 20 if kinds else 0.0


def head_lines(title: str) -> list[str]:
    return text.wrapped(title, WIDTH - 2 * MARGIN, lambda t: width_of(t, 15.5, mono=False))


def sentence_lines(sentence: str) -> list[str]:
    return text.wrapped(sentence, WIDTH - 2 * MARGIN, lambda t: width_of(t, SIZE * 0.94, mono=False))


def heading_height(title: str, sentences: Sequence[str]) -> float:
    """What `Sheet.heading` will give."""
    return 10.0 + 20 * len(head_lines(title)) + 17 * sum(len(sentence_lines(s)) for s in sentences)


def dashed(line, width: float, dashes: Sequence[float]):
    """Dashes of a line, given in pixels; matplotlib counts them in line widths."""
    if dashes:
        line.set_linestyle((0, tuple(d / width for d in dashes)))
    line.set_solid_capstyle("butt")
    line.set_dash_capstyle("butt")
    return line


def path_of(rects: Sequence[Rect]):
    """Rectangles as one path."""
    from matplotlib.path import Path

    points = [p for a, b, c, d in rects for p in ((a, c), (b, c), (b, d), (a, d), (a, c))]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(rects)
    return Path(points, codes)


#: Of each hatch: slopes of its lines (None is upright), and pixels between them.
_LINES = {
    "|": ((None,), 7.0),
    "-": ((0.0,), 6.0),
    "/": ((1.0,), 9.0),
    "\\": ((-1.0,), 9.0),
    "x": ((1.0, -1.0), 8.0),
    "+": ((0.0, None), 9.0),
}


def hatched(boxes: Iterable[Rect], sign: str) -> list[tuple[Point, Point]]:
    """Pieces of a hatch's lines, cut at the edges of boxes by computing it. The lines are those of one grid, so they
    run on from box to box; pieces that meet are joined, and what is too short to tell a direction is left out."""
    if sign == ".":
        return [
            ((x, y), (x + 1.4, y))
            for x0, x1, y0, y1 in boxes
            for row in range(math.ceil((y0 + 1) / 5), math.ceil((y1 - 1) / 5))
            for y in (row * 5.0,)
            for k in range(math.ceil((x0 - 4 * (row % 2)) / 8), math.ceil((x1 - 4 * (row % 2)) / 8))
            for x in (k * 8.0 + 4 * (row % 2),)
        ]
    slopes, gap = _LINES.get(sign, ((), 1.0))
    found: dict[tuple[float | None, int], list[Point]] = {}
    for x0, x1, y0, y1 in boxes:
        for slope in slopes:
            if slope is None:
                for k in range(math.ceil(x0 / gap), math.ceil(x1 / gap)):
                    found.setdefault((slope, k), []).append((y0, y1))
                continue
            reach = (slope * x0, slope * x1)  # a line is y = slope · x + k · gap
            for k in range(math.ceil((y0 - max(reach)) / gap), math.ceil((y1 - min(reach)) / gap)):
                a, b = x0, x1
                if slope:
                    cuts = sorted(((y0 - k * gap) / slope, (y1 - k * gap) / slope))
                    a, b = max(a, cuts[0]), min(b, cuts[1])
                if b > a:
                    found.setdefault((slope, k), []).append((a, b))
    pieces: list[tuple[Point, Point]] = []
    for (slope, k), spans in sorted(found.items(), key=lambda item: (item[0][0] is None, item[0][0] or 0, item[0][1])):
        for a, b in joined(spans, 4.0 if slope else 2.0):
            if slope is None:
                pieces.append(((k * gap, a), (k * gap, b)))
            else:
                pieces.append(((a, slope * a + k * gap), (b, slope * b + k * gap)))
    return pieces


def joined(spans: Iterable[Point], least: float) -> list[Point]:
    """Spans in order, those that meet made one, none shorter than `least`."""
    out: list[Point] = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1] + 0.05:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return [(a, b) for a, b in out if b - a >= least]


# --------------------------------------------------------------------------------------------------------------- SVG


def svg_of(canvas: Canvas, title: str) -> str:
    """The drawing as SVG on an opaque ground: the same bytes for the same data, whatever the date or the style."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    FigureCanvasSVG(canvas)
    height = float(canvas.get_figheight()) * 72
    out = io.StringIO()
    with plain_style():
        canvas.savefig(out, format="svg", dpi=72, metadata={"Date": None})
    svg = Svg()
    svg.parts.append('<g stroke-linecap="butt">')
    for element in ET.fromstring(out.getvalue()).iter():
        tag = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
        style = element.get("style", "")
        if tag == "path" and style:  # one without a style is a clip path's
            svg.parts.append(f'<path d="{short_path(element.get("d", ""))}" style="{escape(style)}"/>')
        elif tag == "text":
            size = re.search(r"([\d.]+)px", style)
            fill = re.search(r"fill:\s*(#[0-9a-fA-F]{6})", style)
            anchor = re.search(r"text-anchor:\s*(middle|end)", style)
            svg.text(
                float(element.get("x", 0)), float(element.get("y", 0)), element.text or "",
                size=float(size[1]) if size else SIZE, fill=fill[1] if fill else INK,
                bold="bold" in style or "700" in style, mono=False, anchor=anchor[1] if anchor else "",
            )  # fmt: skip
    svg.parts.append("</g>")
    return svg.finish(WIDTH, height, title)


def short_path(d: str) -> str:
    """A path to two decimals of a pixel, level and upright pieces as H and V, points on a straight one left out."""
    out: list[str] = []
    way: list[tuple[str, str]] = []
    for part in re.findall(r"[MLz][^MLzQC]*|[QC][^MLzQC]*", d):
        if part[0] in "QC":
            raise ValueError("A memory plot holds straight strokes only.")
        numbers = [short_number(n) for n in part[1:].split()]
        if part[0] in "Mz":
            out.append(way_words(way))
            way = []
        if part[0] == "z":
            out.append("z")
        else:
            way += zip(numbers[::2], numbers[1::2], strict=True)
    return "".join([*out, way_words(way)])


def short_number(n: str) -> str:
    return f"{round(float(n), 2) + 0.0:g}"


def way_words(way: Sequence[tuple[str, str]]) -> str:
    kept: list[tuple[str, str]] = []
    for point in way:
        if kept and point == kept[-1]:
            continue
        for axis in (0, 1):  # two pieces that run on in one direction are one
            if len(kept) > 1 and kept[-2][axis] == kept[-1][axis] == point[axis]:
                a, b, c = (float(p[1 - axis]) for p in (kept[-2], kept[-1], point))
                if (b - a) * (c - b) >= 0:
                    kept.pop()
        kept.append(point)
    if not kept:
        return ""
    words = f"M{kept[0][0]} {kept[0][1]}"
    if len(kept) == 1:
        kept.append(kept[0])
    for (x0, y0), (x1, y1) in zip(kept, kept[1:], strict=False):
        words += f"V{y1}" if x0 == x1 else f"H{x1}" if y0 == y1 else f"L{x1} {y1}"
    return words
