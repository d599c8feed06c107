"""What torchviz draws, as a figure: in torchviz's own colours and words, without the addresses it names boxes by.

torchviz is the tool that readers meet elsewhere. Nothing of it is imported: anything with a `.source` in the DOT
language will do. The layout program lays out and says what to draw; the drawing is made here, at 4/3 of its points, so
that torchviz's 10 point labels are 13 pixels high.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence

from . import layout, text
from .bundle import MONO, Figure, escape, figure_of
from .dot_source import DotGraph, Edge, Node, read
from .draw import Svg, num

SCALE = 4 / 3  # pixels a point
MARGIN = 12.0  # pixels
#: More boxes than this are counted in the twin; `text_full()` lists them.
MOST_LISTED = 60
#: torchviz's fill colours: what a box stands for.
KINDS = {
    "lightblue": "leaf",
    "orange": "saved tensor",
    "darkolivegreen1": "result",
    "darkolivegreen3": "base of a result that is a view",
}
OPERATION = "operation"
_MANY = {"leaf": "leaves", KINDS["darkolivegreen3"]: "bases of results that are views"}
_TOO_LONG = "took more than its {:g} s and was stopped"


def picture(dot) -> Figure:
    """A graph in the DOT language, such as `torchviz.make_dot(loss)` returns, drawn, with its text twin.

    dot: anything with a `.source` (graphviz.Digraph, graphviz.Graph, graphviz.Source). Where no layout program can draw
    it, the figure is the twin alone, with a sentence that says why.
    Raises ValueError for anything else, and for a source that is not in the DOT language.
    """
    graph = read(source_of(dot))
    title = title_of(graph)
    svg, missing = drawn(graph) if graph.nodes else ("", "")
    folded = len(graph.nodes) > MOST_LISTED
    twin = twin_of(graph, title, missing, folded=folded)
    whole = (lambda: twin_of(graph, title, missing, folded=False)) if folded else None
    alt = alt_of(graph, title)
    if svg:
        return figure_of(title, twin, alt, svg, whole=whole)
    words = f'<div style="white-space:pre-wrap;font-family:{MONO};">{escape(twin)}</div>'
    return Figure(title=title, text=twin, alt=alt, svg="", body=words, whole=whole)


def source_of(dot) -> str:
    """The graph's source; ValueError for what has none."""
    source = getattr(dot, "source", None)
    if isinstance(source, str):
        return source
    kind = type(dot).__name__
    if kind in ("Tensor", "Parameter"):
        more = "Draw it first: picture(torchviz.make_dot(loss))."
    elif isinstance(dot, str):
        more = "For a text in the DOT language, write picture(graphviz.Source(text))."
    else:
        more = "Such an object comes from torchviz.make_dot(loss), graphviz.Digraph() or graphviz.Source(text)."
    raise ValueError(f"picture() shows a graph that has a `.source` in the DOT language; a {kind} has none. {more}")


# -------------------------------------------------------------------- in words


def kind_of(graph: DotGraph, node: Node) -> str:
    """What a box stands for, as far as torchviz's colours tell; "" in a graph that is not torchviz's."""
    return KINDS.get(node.fill, "" if node.fill else OPERATION) if graph.torchviz else ""


def things(graph: DotGraph) -> tuple[str, str]:
    """What its nodes are called, one and many: torchviz draws nothing but boxes."""
    return ("box", "boxes") if graph.torchviz else ("node", "nodes")


def shape_of(graph: DotGraph, node: Node) -> str:
    """A node's shape, where there are several in the graph: the shape then says something."""
    return node.shape if not graph.torchviz and len({other.shape for other in graph.nodes}) > 1 else ""


def title_of(graph: DotGraph) -> str:
    arrows = sum(edge.arrow for edge in graph.edges)
    one, many = things(graph)
    counted = f"{text.plural(len(graph.nodes), one, many)}, {text.plural(arrows, 'arrow')}"
    if arrows < len(graph.edges):
        counted += f", {text.plural(len(graph.edges) - arrows, 'line')}"
    return f"{'Drawn by torchviz' if graph.torchviz else 'A graph in the DOT language'}: {counted}"


def kinds_in(graph: DotGraph) -> list[str]:
    """["1 result", "8 operations", "3 leaves"], in order of appearance."""
    counted = Counter(filter(None, (kind_of(graph, node) for node in graph.nodes)))
    return [text.plural(n, kind, _MANY.get(kind)) for kind, n in counted.items()]


def clean(line: str) -> str:
    """A line in which every character shows."""
    return "".join(c if c.isprintable() else text.escape_unprintable(c) for c in line)


def short_label(node: Node) -> str:
    """What names a box in an arrow: its first line, the second too for a tensor's shape."""
    lines = node.lines or ["(no label)"]
    second = lines[1] if len(lines) > 1 and lines[1].startswith("(") else ""
    return clean(f"{lines[0]} {second}".rstrip())


def box_line(graph: DotGraph, number: int) -> str:
    """ "[2] MulBackward0: operation; other: [saved tensor]"."""
    node = graph.nodes[number]
    label, kind = short_label(node), kind_of(graph, node)
    used = 2 if len(node.lines) > 1 and node.lines[1].startswith("(") else 1
    rest = [re.sub(r"^(\w+) +: +", r"\1: ", line) for line in node.lines[used:] if line.strip("-")]
    said = "; ".join(filter(None, [kind, clean(shape_of(graph, node)), *map(clean, rest)]))
    return f"[{number + 1}] {label}" + (f": {said}" if said else "")


def cluster_lines(graph: DotGraph) -> list[str]:
    """ "kept until backward (dashed): [4], [5]"."""
    lines = []
    for cluster in graph.clusters:
        style = f" ({clean(cluster.style)})" if cluster.style else ""
        inside = ", ".join(f"[{number + 1}]" for number in cluster.nodes)
        lines.append(f"{clean(cluster.label) or '(no label)'}{style}: {inside}")
    return lines


def edge_lines(graph: DotGraph) -> list[str]:
    """ "[1] AccumulateGrad → [2] MulBackward0"; what is there several times stands once, with its count."""

    def words(edge: Edge) -> str:
        ends = [f"[{i + 1}] {short_label(graph.nodes[i])}" for i in (edge.tail, edge.head)]
        more = [clean(edge.label)] if edge.label else []
        more += ["dotted"] if edge.dotted else []
        return (" → " if edge.arrow else " — ").join(ends) + (f" ({', '.join(more)})" if more else "")

    counted = Counter(map(words, graph.edges))
    return [f"{line} ({n:,} times)" if n > 1 else line for line, n in counted.items()]


def twin_of(graph: DotGraph, title: str, missing: str, *, folded: bool) -> str:
    lines = [title]
    if missing:
        lines.append(missing)
    if not graph.nodes:
        return "\n".join([*lines, "The graph is empty."])
    if graph.torchviz:
        lines.append(f"{', '.join(kinds_in(graph))}.")
        said = "Arrows run as forward does, from leaves to results."
        if any(not edge.arrow for edge in graph.edges):
            said += " A line joins an operation to a tensor that it saved."
        lines.append(said)
    if folded:
        counted = Counter(
            short_label(node) for node in graph.nodes if kind_of(graph, node) in (OPERATION, "") and node.lines
        )
        lines += ["", "Boxes by label, without tensors:" if graph.torchviz else "Nodes by label:"]
        lines += [f"  {label}" + (f" × {n:,}" if n > 1 else "") for label, n in counted.items()]
        return "\n".join([*lines, "", f"Every {things(graph)[0]} and arrow stands in the figure's text_full()."])
    lines += ["", f"{things(graph)[1].capitalize()}:"]
    lines += [f"  {box_line(graph, i)}" for i in range(len(graph.nodes))]
    if graph.clusters:
        lines += ["", "Drawn around some of them:", *(f"  {line}" for line in cluster_lines(graph))]
    if graph.edges:
        lines += ["", "Arrows and lines:" if any(not edge.arrow for edge in graph.edges) else "Arrows:"]
        lines += [f"  {line}" for line in edge_lines(graph)]
    return "\n".join(lines)


def alt_of(graph: DotGraph, title: str) -> str:
    kinds = f" {', '.join(kinds_in(graph))}; arrows run from leaves to results." if kinds_in(graph) else ""
    one, many = things(graph)
    more = f"counts the {many} by label" if len(graph.nodes) > MOST_LISTED else f"names every {one} and arrow"
    return f"{title}.{kinds} The text form {more}."


# -------------------------------------------------------------------- the drawing


def drawn(graph: DotGraph) -> tuple[str, str]:
    """The SVG and "", or "" and a sentence that says why there is none."""
    why = ""
    for _, command in layout.programs():
        found, why = run(command, graph.text, layout.BUDGET)
        if found is not None:
            try:
                return svg_of(json.loads(found)), ""
            except (ValueError, KeyError, IndexError, TypeError, AttributeError):
                why = "could not draw this graph"  # a program of another kind under that name
    if not why:
        return "", "No picture: no layout program was found. `pip install graphviz-pure` brings one."
    return "", f"No picture: the layout program {why}."


def run(command: Sequence[str], source: str, budget: float) -> tuple[str | None, str]:
    """What to draw, as JSON; or None and why not. A program that is over its budget (seconds) is killed."""
    try:
        done = subprocess.run(
            [*command, "-Tjson"],
            input=source.encode("utf-8", "replace"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=budget,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, _TOO_LONG.format(budget)
    except (OSError, subprocess.SubprocessError):
        return None, "could not be started"
    if done.returncode or not done.stdout:
        return None, "could not draw this graph"
    return done.stdout.decode("utf-8", "replace"), ""


def svg_of(plan: dict) -> str:
    """The drawing that the layout program described: clusters, then boxes, then arrows, then the graph's own label."""
    left, low, right, high = (float(part) for part in plan["bb"].split(","))
    if not all(map(math.isfinite, (left, low, right, high))) or right <= left or high <= low:
        raise ValueError("no size")
    pen = _Pen(left, high)
    things = plan.get("objects", [])
    clusters = [t for t in things if "bb" in t]
    if not any("pos" in t for t in things):
        raise ValueError("nothing placed")
    for thing in [*clusters, *(t for t in things if "bb" not in t), *plan.get("edges", []), {**plan, "_draw_": []}]:
        for part in ("_draw_", "_tdraw_", "_hdraw_", "_ldraw_", "_tldraw_", "_hldraw_"):
            pen.draw(thing.get(part, []))
    width, height = (right - left) * SCALE + 2 * MARGIN, (high - low) * SCALE + 2 * MARGIN
    return pen.svg.finish(width, height, "A graph drawn from the DOT language")


class _Pen:
    """Draws what the layout program says, one operation after the other. Its y runs upwards, ours downwards."""

    def __init__(self, left: float, high: float) -> None:
        self.svg = Svg()
        self.left, self.high = left, high

    def at(self, point: Sequence[float]) -> tuple[float, float]:
        return (point[0] - self.left) * SCALE + MARGIN, (self.high - point[1]) * SCALE + MARGIN

    def path(self, points: Iterable[Sequence[float]], between: str = "L", end: str = "") -> str:
        places = [f"{num(x)} {num(y)}" for x, y in map(self.at, points)]
        return f"M{places[0]}{between}{' '.join(places[1:])}{end}"

    def draw(self, operations: Sequence[dict]) -> None:
        fill, line, width, dash = "none", "#000000", 1.0, ""
        size, mono, style = 14.0, False, 0
        for op in operations:
            kind = op["op"]
            if kind == "c":
                line = colour(op)
            elif kind == "C":
                fill = colour(op)
            elif kind == "S":
                dash = {"dashed": "5 3", "dotted": "1.5 3", "solid": ""}.get(op["style"], dash)
                wide = re.fullmatch(r"setlinewidth\(([\d.]+)\)", op["style"])
                width = float(wide[1]) if wide else 2.0 if op["style"] == "bold" else width
            elif kind == "F":
                size, mono = float(op["size"]) * SCALE, "cour" in op["face"].lower()
            elif kind == "t":
                style = int(op["fontchar"])
            elif kind == "T":
                x, y = self.at(op["pt"])
                anchor = {"c": "middle", "r": "end"}.get(op["align"], "")
                shown = op["text"].replace("  ", "\u00a0\u00a0")  # torchviz pads columns, browsers join spaces
                self.svg.text(
                    x, y, shown, size=size, fill=line, mono=mono, anchor=anchor,
                    bold=bool(style & 1), italic=bool(style & 2),
                )  # fmt: skip
            elif kind in "Ee":
                (x, y), (rx, ry) = self.at(op["rect"][:2]), op["rect"][2:]
                inside = fill if kind == "E" else "none"
                self.svg.ellipse(x, y, rx * SCALE, ry * SCALE, fill=inside, line=line, width=width, dash=dash)
            elif kind in "PpBbL":
                way = self.path(op["points"], "C" if kind in "Bb" else "L", "Z" if kind in "Pp" else "")
                self.svg.path(way, fill=fill if kind in "PB" else "none", line=line, width=width, dash=dash)


def colour(op: dict) -> str:
    """ "#rrggbb", or "none" for what is not seen; a gradient's first colour stands for it."""
    code = op.get("color") or op["stops"][0]["color"]
    if not re.fullmatch(r"#[0-9a-fA-F]{6}(?:[0-9a-fA-F]{2})?", code):
        return "#000000" if op["op"] == "c" else "#d3d3d3"
    return "none" if code[7:] == "00" else code[:7].lower()
