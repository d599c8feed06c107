"""The drawing of a line chart, by matplotlib, off screen.

Each line is told apart by its dashes and by its name at its end, not by colour alone. matplotlib is loaded when first
used. Nothing in the drawing has an id: no axis, marker or clip path of matplotlib's own, only strokes and words.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from . import text
from .bundle import escape
from .curves_text import Chart, Line, Point, digits, floor_of, power
from .draw import Svg, width_of
from .palette import ALERT, FAINT, FRAME, GRAPH, GROUND, INK, SOFT

#: Colour and dashes (on, off, … in pixels) of the first line, the second, …
STYLES = (
    (GRAPH["leaf"].line, ()),
    (ALERT, (10.0, 7.0)),
    (GRAPH["root"].line, (2.0, 2.5)),
    (GRAPH["live"].line, (10.0, 3.0, 2.0, 3.0)),
    (GRAPH["custom"].line, (14.0, 4.0)),
    (INK, (6.0, 2.5, 1.5, 2.5, 1.5, 2.5)),
)
SIZE = 13.0  # of texts, pixels
WIDTH, PLOT = 720.0, 260.0  # of the drawing, and height between its axes; pixels
ROW = 18.0  # from one label to the next
LONGEST_NAME = 30  # characters of a name, the twin has all
MOST_POINTS = 1200  # of a line in the drawing: each pixel's lowest and highest stay


def draw(chart: Chart) -> str:
    """The chart as SVG. matplotlib's global settings are the same after it as before."""
    return _Drawing(chart).svg()


class _Drawing:
    """One chart. Places are in pixels from the left bottom, as matplotlib counts at 72 dots an inch."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.floor = floor_of(chart)
        self.rows = mark_rows(chart)
        self.labels = [self.label_of(line) for line in chart.lines]
        side = max(width_of(label, SIZE, mono=False) for label in self.labels) + 34
        self.right = WIDTH - min(side, 260.0)
        axis = f"{chart.y}, log scale" if chart.log else chart.y
        if self.floor:
            axis += f"; what is below {power(f'{self.floor:g}')} is drawn at the bottom"
        self.heading = text.wrapped(chart.title, WIDTH - 40, lambda t: width_of(t, 16, mono=False))
        self.axis = text.wrapped(axis, WIDTH - 40, lambda t: width_of(t, SIZE, mono=False))
        self.bottom = 52.0
        self.top = self.bottom + PLOT
        self.height = self.top + 26 + 18 * len(self.axis) + 20 * len(self.heading)

    def label_of(self, line: Line) -> str:
        name = text.short(line.name, LONGEST_NAME)
        if line.broken:
            px, py = line.broken
            name += f" ({py} at {digits(px)})"
        return name

    def svg(self) -> str:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Canvas

        # the reader's own style must not restyle this, and nothing of ours may stay
        usual = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith(("backend", "interactive"))}
        ours = {"svg.fonttype": "none", "svg.hashsalt": "curves", "path.simplify": False}
        with warnings.catch_warnings(), matplotlib.rc_context({**usual, **ours}):
            warnings.filterwarnings("ignore", message="Glyph")  # the reader's fonts draw the text, not matplotlib's
            self.figure = Canvas(figsize=(WIDTH / 72, self.height / 72), dpi=72)
            FigureCanvasSVG(self.figure)
            self.figure.patch.set_visible(False)
            self.fill()
            out = io.StringIO()
            self.figure.savefig(out, format="svg", dpi=72, metadata={"Date": None})
        return plain_svg(out.getvalue(), self.height, self.chart.title)

    def fill(self) -> None:
        chart = self.chart
        heights, places = self.heights(), [px for line in chart.lines for px, _ in line.points]
        places += [px for px, _ in chart.marks]
        ticks, names = log_ticks(*heights) if chart.log else plain_ticks(*heights)
        if self.floor and ticks and ticks[0] == self.floor:
            names[0] = f"< {names[0]}"
        left = max(46.0, max((width_of(n, SIZE, mono=False) for n in names), default=0.0) + 30)
        self.left = left
        self.axes = self.figure.add_axes(
            (
                left / WIDTH,
                self.bottom / self.height,
                (self.right - left) / WIDTH,
                (self.top - self.bottom) / self.height,
            )
        )
        self.axes.set_axis_off()
        low, high = min(places), max(places)
        if low == high:
            low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
        self.axes.set_xlim(low, high)
        if chart.log:
            self.axes.set_yscale("log")
        self.axes.set_ylim(*heights)

        at = self.height - 6
        for content in self.heading:
            at -= 20
            self.words(18, at, content, size=15, bold=True)
        at -= 3
        for content in self.axis:
            at -= 18
            self.words(18, at, content, fill=SOFT)
        for tick, name in zip(ticks, names, strict=True):
            at = self.place(low, tick)[1]
            self.stroke([(left, at), (self.right, at)], FRAME, 1.0)
            self.words(left - 8, at - 4.5, name, fill=SOFT, anchor="right")
        self.stroke([(left, self.bottom), (self.right, self.bottom)], FAINT, 1.2)
        whole = all(px == int(px) for px in places)
        marked = plain_ticks(low, high, whole=whole) if len(set(places)) > 1 else (places[:1], [digits(places[0])])
        for tick, name in zip(*marked, strict=True):
            at = self.place(tick, heights[0])[0]
            self.stroke([(at, self.bottom), (at, self.bottom - 4)], FAINT, 1.2)
            self.words(at, self.bottom - 19, name, fill=SOFT, anchor="center")
        self.words((left + self.right) / 2, 12, chart.x, fill=SOFT, anchor="center")
        for (px, content), row in zip(chart.marks, self.rows, strict=True):
            at = self.place(px, heights[0])[0]
            self.stroke([(at, self.bottom), (at, self.top)], SOFT, 1.0, (1.0, 3.0))
            content = text.short(content, 42)
            toward = "right" if at > (left + self.right) / 2 else "left"
            self.words(
                at + (-5 if toward == "right" else 5), self.top - 10 - 16 * row, content, fill=SOFT, anchor=toward
            )
        self.drawn_lines()
        if not chart.values:
            self.words((left + self.right) / 2, (self.top + self.bottom) / 2, "no finite value", anchor="center")

    def heights(self) -> tuple[float, float]:
        """The y axis from and to, with room above for the words of marks."""
        values = self.chart.values or [0.0, 1.0]
        room = max(self.rows, default=-1) + 1
        share = 16 * room / (self.top - self.bottom)
        if self.chart.log:
            above_zero = [v for v in values if v > 0] or [1.0]
            low = self.floor or min(above_zero)
            high = max(*above_zero, low)
            span = max(math.log10(high) - math.log10(low), 0.3)
            low = low if self.floor else low / 10 ** (span * 0.06)
            return low, high * 10 ** (span * (0.04 + share / (1 - min(share, 0.8))))
        low, high = min(values), max(values)
        if low >= 0 and low <= 0.4 * high:
            low = 0.0
        span = (high - low) or abs(high) or 1.0
        below = 0.0 if low == 0.0 and high > 0 else span * 0.06
        above = span * (0.06 + share / (1 - min(share, 0.8)))
        if high == low:  # one value: in the middle, or on the ground
            below, above = (span * 0.5, span * 0.5) if low else (0.0, span)
        return low - below, high + above

    def place(self, px: float, py: float) -> Point:
        found = self.axes.transData.transform((px, py))
        return float(found[0]), float(found[1])

    def drawn_lines(self) -> None:
        ends: list[tuple[int, Point]] = []
        ways: list[list[Point]] = []
        for i, line in enumerate(self.chart.lines):
            colour, dashes = STYLES[i]
            way: list[Point] = []
            for piece in pieces(line.points):
                held = [self.place(px, max(py, self.floor) if self.floor else py) for px, py in piece]
                way += held
                if len(held) == 1:
                    self.dot(held[0], colour, 6.0)
                # the first is wider, so that it is seen under a line that runs upon it
                self.stroke(
                    thinned(held),
                    colour,
                    4.2 if i == 0 and len(self.chart.lines) > 1 else 2.2,
                    dashes,
                    over=3 + i * 0.1,
                )
            ways.append(way)
            if way:
                ends.append((i, way[-1]))
                self.dot(way[-1], colour, 6.0)
            if way and line.broken:
                at = next((k for k, p in enumerate(line.points) if not math.isfinite(p[1])), 0)
                before = [p for p in line.points[:at] if math.isfinite(p[1])]
                if before:
                    cx, cy = self.place(before[-1][0], max(before[-1][1], self.floor) if self.floor else before[-1][1])
                    for sign in (1, -1):
                        self.stroke([(cx - 5, cy - 5 * sign), (cx + 5, cy + 5 * sign)], colour, 2.0, over=5)
        self.named(ends, ways)

    def named(self, ends: list[tuple[int, Point]], ways: list[list[Point]]) -> None:
        """Names beside the ends of lines: at the right where they reach it, else within the chart where it is free."""
        at_right = [(i, p) for i, p in ends if p[0] > self.right - 12]
        taken: list[tuple[float, float, float, float]] = []
        waiting = [i for i in range(len(self.labels)) if i not in [k for k, _ in ends]]
        for i, (px, py) in ends:
            if (i, (px, py)) in at_right:
                continue
            wide = width_of(self.labels[i], SIZE, mono=False)
            spots = [(px + 9, py - 4.5), (px - wide / 2, py + 10), (px - wide / 2, py - 20), (px + 9, py + 10)]
            spots += [(px + 9, py - 20), (px - wide - 9, py + 10), (px - wide - 9, py - 20)]
            for sx, sy in spots:
                box = (sx - 3, sy - 5, sx + wide + 3, sy + 13)
                inside = self.left < box[0] and box[2] < self.right and self.bottom < box[1] and box[3] < self.top
                if inside and not any(crosses(box, way) for way in ways) and not any(meets(box, b) for b in taken):
                    taken.append(box)
                    self.words(sx, sy, self.labels[i], fill=STYLES[i][0], bold=True)
                    break
            else:
                waiting.append(i)
        wished = [(py, i, (px, py)) for i, (px, py) in at_right]
        wished += [(self.bottom + 6 + ROW * k, i, None) for k, i in enumerate(reversed(waiting))]
        wished.sort(key=lambda w: (round(w[0]), -w[1]))
        places = spread([w[0] for w in wished], self.bottom, self.top)
        moved = waiting or any(abs(w[0] - y) > 3 for w, y in zip(wished, places, strict=True))
        indent = 26 if moved else 10
        for (_, i, end), y in zip(wished, places, strict=True):
            colour, dashes = STYLES[i]
            if end is not None and moved:
                self.stroke([(end[0] + 7, end[1]), (self.right + indent - 4, y)], FAINT, 0.8)
            elif end is None and ways[i]:  # its end is elsewhere: a piece of the line says which it is
                self.stroke([(self.right + 4, y), (self.right + indent - 4, y)], colour, 2.0, dashes)
            self.words(self.right + indent, y - 4.5, self.labels[i], fill=colour, bold=True)

    # ---------------------------------------------------------------- strokes and words

    def stroke(self, way: Sequence[Point], colour: str, width: float, dashes: Sequence[float] = (), over=1.0) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.transforms import IdentityTransform

        if len(way) < 2:
            return
        line = Line2D(
            [px for px, _ in way], [py for _, py in way], color=colour, linewidth=width, zorder=over,
            transform=IdentityTransform(), dash_capstyle="butt", solid_capstyle="round",
        )  # fmt: skip
        if dashes:
            line.set_linestyle((0, tuple(d / width for d in dashes)))  # matplotlib counts dashes in line widths
        self.figure.add_artist(line, clip=False)

    def dot(self, at: Point, colour: str, size: float) -> None:
        """A dot: a line of no length with round ends, which needs no marker, so no id."""
        self.stroke([at, at], GROUND, size + 3, over=4)
        self.stroke([at, at], colour, size, over=4.1)

    def words(self, px, py, content: str, *, fill=INK, size=SIZE, bold=False, anchor="left") -> None:
        from matplotlib.text import Text
        from matplotlib.transforms import IdentityTransform

        if content:
            self.figure.add_artist(
                Text(
                    px,
                    py,
                    content,
                    color=fill,
                    fontsize=size,
                    fontweight="bold" if bold else "normal",
                    ha=anchor,
                    va="baseline",
                    transform=IdentityTransform(),
                    parse_math=False,
                    zorder=6,
                )  # fmt: skip
            )


def mark_rows(chart: Chart) -> list[int]:
    """For each mark the row that its words stand in, so that neighbours do not meet; -1 without words."""
    count = 0
    rows = []
    for _, words in chart.marks:
        rows.append(count % 4 if words else -1)
        count += bool(words)
    return rows


def pieces(points: Sequence[Point]) -> list[list[Point]]:
    """Runs of finite values."""
    out: list[list[Point]] = [[]]
    for point in points:
        if math.isfinite(point[1]):
            out[-1].append(point)
        elif out[-1]:
            out.append([])
    return [piece for piece in out if piece]


def thinned(way: list[Point]) -> list[Point]:
    """At most about MOST_POINTS of a way: of neighbours, the lowest and the highest, in their order; and both ends."""
    if len(way) <= MOST_POINTS:
        return way
    size = math.ceil(2 * len(way) / MOST_POINTS)
    out = [way[0]]
    for start in range(0, len(way), size):
        part = range(start, min(start + size, len(way)))
        ends = {min(part, key=lambda k: way[k][1]), max(part, key=lambda k: way[k][1])}
        out += [way[k] for k in sorted(ends)]
    return [*out, way[-1]]


def spread(wishes: Sequence[float], low: float, high: float) -> list[float]:
    """Places at least ROW apart, near to their wishes (ascending), within the chart if they fit."""
    groups: list[list[float]] = []  # [sum of wishes less their offsets, count]
    for wish in wishes:
        groups.append([wish, 1])
        while len(groups) > 1 and start(groups[-2]) + ROW * groups[-2][1] > start(groups[-1]):
            last = groups.pop()
            total = last[0] - last[1] * ROW * groups[-1][1]
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + last[1]]
    out = [start(g) + ROW * k for g in groups for k in range(int(g[1]))]
    for i in range(len(out)):
        out[i] = max(out[i], low + ROW * i)
    for i in range(len(out)):
        out[-1 - i] = min(out[-1 - i], high - ROW * i)
    return out


def start(group: Sequence[float]) -> float:
    return group[0] / group[1]


def meets(a, b) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def crosses(box, way: Sequence[Point]) -> bool:
    """Whether a way runs through a box, as looked at in steps of a few pixels."""
    for (x1, y1), (x2, y2) in zip(way, way[1:], strict=False):
        if max(x1, x2) < box[0] or min(x1, x2) > box[2] or max(y1, y2) < box[1] or min(y1, y2) > box[3]:
            continue
        steps = max(1, int(max(abs(x2 - x1), abs(y2 - y1)) / 3))
        for k in range(steps + 1):
            px, py = x1 + (x2 - x1) * k / steps, y1 + (y2 - y1) * k / steps
            if box[0] <= px <= box[2] and box[1] <= py <= box[3]:
                return True
    return False


def plain_ticks(low: float, high: float, *, whole: bool = False) -> tuple[list[float], list[str]]:
    """Round values within an axis, and their words, all with the same number of decimals."""
    from matplotlib.ticker import MaxNLocator

    found = MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=whole).tick_values(low, high)
    slack = (high - low) * 1e-9
    ticks = [float(t) + 0.0 for t in found if low - slack <= t <= high + slack]
    step = float(found[1] - found[0])
    size = max(map(abs, ticks), default=0.0)
    if size >= 1e7 or (0 < size < 1e-3):
        return ticks, [power(f"{round(t / step) * step:.3g}") for t in ticks]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return ticks, [f"{t:,.{decimals}f}" for t in ticks]


def log_ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Powers of ten within an axis, at most seven; 2 and 5 too where there are few."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    stride = max(1, math.ceil((last - first + 1) / 7))
    ticks = [float(f"1e{e}") for e in range(first, last + 1, stride)]
    for factors in ((2, 5), (1.5, 3, 4, 7)):
        if len(ticks) < 3:
            more = [f * float(f"1e{e}") for e in range(first - 1, last + 1) for f in factors]
            ticks = sorted({*ticks, *(t for t in more if low <= t <= high)})
    return ticks, [f"{t:,.0f}" if 1 < t < 1e6 and t == int(t) else power(f"{t:g}") for t in ticks]


def plain_svg(drawn: str, height: float, title: str) -> str:
    """matplotlib's drawing with strokes and words only: no ids, no style sheet, no metadata, the reader's own fonts."""
    svg = Svg()
    svg.parts.append('<g stroke-linejoin="round" stroke-linecap="butt">')
    space = "{http://www.w3.org/2000/svg}"
    for element in ET.fromstring(drawn).iter():
        tag = element.tag.removeprefix(space) if isinstance(element.tag, str) else ""
        if tag not in ("path", "text"):
            continue
        kept = {k: v for k, v in element.attrib.items() if k in ("d", "style", "x", "y")}
        if tag == "path":
            kept["d"] = " ".join(re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.2f}", kept["d"]).split())
            svg.parts.append(f'<path d="{kept["d"]}" style="{escape(kept["style"])}"/>')
            continue
        style = kept.get("style", "")
        size = re.search(
            r"([\d.]+)px", style
        )  # in `font: 700 13px …` or `font-size: 13px`, as matplotlib's version has it
        fill = re.search(r"fill:\s*(#[0-9a-fA-F]{6})", style)
        anchor = re.search(r"text-anchor:\s*(middle|end)", style)
        svg.text(
            float(kept["x"]), float(kept["y"]), element.text or "", size=float(size[1]) if size else SIZE,
            fill=fill[1] if fill else INK, bold="bold" in style or "700" in style, mono=False,
            anchor=anchor[1] if anchor else "",
        )  # fmt: skip
    svg.parts.append("</g>")
    return svg.finish(WIDTH, height, title)
