"""Laying out: where boxes and arrows go. Only that; drawing is elsewhere.

The embedded program of the package graphviz-pure does it, else the system's `dot`, else a plain layered layout of our
own. A program that is over its time budget is killed. `arrange` never raises, and places every box or says
that it cannot.

Boxes come with their sizes, so no program needs fonts, and coordinates are rounded: with graphviz-pure the same graph
gets the same numbers on every machine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A box to place. Arrows meet the part `main` units wide at its left; what stands beside it fills the rest.

    `outs`: widths of cells along the bottom of that part, from which arrows may leave; empty for a plain box.
    """

    width: float
    height: float
    main: float
    outs: tuple[float, ...] = ()
    out_height: float = 0.0
    main_height: float = 0.0  # height of the part that arrows meet, centred vertically; 0 for all of `height`


@dataclass(frozen=True, slots=True)
class Arrow:
    tail: int
    head: int
    out: int | None = None  # which of the tail's cells it leaves from


@dataclass(frozen=True, slots=True)
class Frame:
    """Boxes to be kept together in a frame with a label of the given size."""

    boxes: tuple[int, ...]
    label_width: float
    label_height: float
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Gaps:
    """Distances between ranks, and between neighbours of a rank."""

    rank: float = 40.0
    box: float = 24.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Left top corners of boxes; cubic control points of arrows (1 + 3n); frames as x, y, width, height, or None."""

    width: float
    height: float
    corners: tuple[Point, ...]
    arrows: tuple[tuple[Point, ...], ...]
    frames: tuple[tuple[float, float, float, float] | None, ...]
    program: str  # "graphviz-pure", "dot" or "own"


_GAPS = Gaps()
#: Seconds that a layout program may take before it is killed.
BUDGET = 5.0
#: More boxes than this are not given to our own layout: a summary reads better.
OWN_LIMIT = 200
_ENOUGH_FOR_ORDER = 4  # sweeps
_RELAX_LIMIT = 400  # boxes up to which arrows are made plainer where they can be


def arrange(
    boxes: Sequence[Box],
    arrows: Sequence[Arrow],
    frames: Sequence[Frame] = (),
    *,
    gaps: Gaps = _GAPS,
    above: Sequence[tuple[int, int]] = (),
    budget: float = BUDGET,
) -> Layout | None:
    """Place boxes in ranks from top to bottom, arrows pointing down where they can.

    above: pairs of boxes of which the first must stand above the other, though no arrow says so.

    None if no program could do it within its budget and there are too many boxes for our own plain layout.
    """
    if not boxes:
        return Layout(0.0, 0.0, (), (), (), "own")
    for name, command in programs():
        found = run_program(command, dot_text(boxes, arrows, frames, gaps, above), budget)
        if found is not None:
            try:
                return relaxed(read_layout(found, boxes, arrows, frames, name), boxes, frames)
            except (KeyError, ValueError, IndexError, TypeError):
                continue  # a program of another kind under that name: the next one, or our own
    return own_layout(boxes, arrows, frames, gaps) if len(boxes) <= OWN_LIMIT else None


def layout_program() -> str:
    """The layout program in words: name, version and where it comes from; for an environment report."""
    for name, command in programs():
        try:
            done = subprocess.run([*command, "-V"], capture_output=True, text=True, timeout=BUDGET, check=False)
        except (OSError, subprocess.SubprocessError):
            continue
        found = re.search(r"version (\d[\w.]*)", done.stderr + done.stdout)
        if found:
            kind = "the pip-installed one" if name == "graphviz-pure" else "the system's"
            return f"{name} {found[1]} ({kind})"
    return "none: a plain layout of our own is used. `pip install graphviz-pure` mends it"


@cache
def programs() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Layout programs that are there, best first: (name, command)."""
    found = []
    ours = embedded_program()
    if ours:
        found.append(("graphviz-pure", (ours,)))
    system = shutil.which("dot")
    if system:
        found.append(("dot", (system,)))
    return tuple(found)


def embedded_program() -> str | None:
    """The program of the graphviz-pure package: beside this Python first, as its environment may not be active."""
    name = "graphviz-pure.exe" if os.name == "nt" else "graphviz-pure"
    places = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    try:
        places.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    except KeyError:
        pass
    for place in places:
        path = os.path.join(place, name) if place else ""
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which("graphviz-pure")


def run_program(command: Sequence[str], text: str, budget: float) -> str | None:
    """What the program printed; None if it failed or was over its budget, in which case it is killed."""
    try:
        done = subprocess.run(
            [*command, "-Tjson0"],
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=budget,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 and done.stdout else None


def dot_text(
    boxes: Sequence[Box],
    arrows: Sequence[Arrow],
    frames: Sequence[Frame],
    gaps: Gaps = _GAPS,
    above: Sequence[tuple[int, int]] = (),
) -> str:
    """The graph in the DOT language: sizes and connections, no learner's text at all."""
    lines = [
        "digraph {",
        f'graph [rankdir=TB, nodesep="{gaps.box / 72:.3f}", ranksep="{gaps.rank / 72:.3f}", fontname="Courier"]',
        'node [shape=plain, fontname="Courier", margin=0, width=0.01, height=0.01]',
        "edge [dir=none]",
    ]
    children: dict[int | None, list[int]] = {}
    for i, frame in enumerate(frames):
        children.setdefault(frame.parent, []).append(i)
    stack: list[tuple[int, bool]] = [(i, False) for i in reversed(children.get(None, []))]
    while stack:
        i, done = stack.pop()
        if done:
            lines.append("}")
            continue
        frame = frames[i]
        label = table([(frame.label_width, frame.label_height, "")])
        lines.append(f'subgraph "cluster_{i}" {{ graph [margin=10, labeljust=l, labelloc=t, label=<{label}>]')
        lines.append(" ".join(f"n{b}" for b in frame.boxes))
        stack.append((i, True))
        stack += [(j, False) for j in reversed(children.get(i, []))]
    for i, box in enumerate(boxes):
        plain = box.main >= box.width and not box.outs
        if plain:
            size = f'width="{box.width / 72:.4f}", height="{box.height / 72:.4f}"'
            lines.append(f'n{i} [shape=box, fixedsize=true, label="", {size}]')
        else:
            lines.append(f"n{i} [label=<{composite(box)}>]")
    for k, arrow in enumerate(arrows):
        tail, head = boxes[arrow.tail], boxes[arrow.head]
        out = f':"o{arrow.out}":s' if arrow.out is not None and tail.outs else ""
        out = out or (':"m":s' if tail.main < tail.width or tail.outs else ":s")
        into = ':"m":n' if head.main < head.width or head.outs else ":n"
        lines.append(f'n{arrow.tail}{out} -> n{arrow.head}{into} [k="{k}"]')
    lines += [f"n{a} -> n{b} [style=invis]" for a, b in above]
    lines.append("}")
    return "\n".join(lines)


def table(cells: Sequence[tuple[float, float, str]]) -> str:
    """One row of empty cells of fixed size, as an HTML-like label."""
    return (
        f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR>{"".join(map(cell, cells))}</TR></TABLE>'
    )


def cell(size: tuple[float, float, str]) -> str:
    width, height, more = size
    return f'<TD FIXEDSIZE="TRUE" WIDTH="{round(width)}" HEIGHT="{round(height)}"{more}></TD>'


def composite(box: Box) -> str:
    """A box with something beside it or cells below it, as an HTML-like label."""
    n = max(len(box.outs), 1)
    tall = box.height - (box.out_height if box.outs else 0)
    rows = f'<TR>{cell((box.main, tall, f""" PORT="m" COLSPAN="{n}" """))}'
    if box.main < box.width:
        rows += cell((box.width - box.main, box.height, f' ROWSPAN="{2 if box.outs else 1}"'))
    rows += "</TR>"
    if box.outs:
        outs = "".join(cell((w, box.out_height, f' PORT="o{i}"')) for i, w in enumerate(box.outs))
        rows += f"<TR>{outs}</TR>"
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0">{rows}</TABLE>'


def read_layout(
    text: str, boxes: Sequence[Box], arrows: Sequence[Arrow], frames: Sequence[Frame], program: str
) -> Layout:
    """The program's JSON as a Layout; y grows downwards. Raises if something is missing."""
    data = json.loads(text)
    _, _, width, height = (float(v) for v in data["bb"].split(","))
    corners: list[Point | None] = [None] * len(boxes)
    found: list[tuple[float, float, float, float] | None] = [None] * len(frames)
    for item in data["objects"]:
        name = item["name"]
        if name.startswith("cluster_"):
            if "bb" in item:
                x1, y1, x2, y2 = (float(v) for v in item["bb"].split(","))
                found[int(name[8:])] = (round(x1, 1), round(height - y2, 1), round(x2 - x1, 1), round(y2 - y1, 1))
            continue
        i = int(name[1:])
        x, y = (float(v) for v in item["pos"].split(","))
        corners[i] = (round(x - boxes[i].width / 2, 1), round(height - y - boxes[i].height / 2, 1))
    curves: list[tuple[Point, ...]] = [()] * len(arrows)
    for item in data.get("edges", ()):
        if "k" not in item:  # only keeps one box above another
            continue
        points = []
        for part in item["pos"].split():
            if part[0] in "se":
                continue
            x, y = part.split(",")
            points.append((round(float(x), 1), round(height - float(y), 1)))
        curves[int(item["k"])] = tuple(points)
    if None in corners or not all(curves):
        raise ValueError("the layout lacks a box or an arrow")
    return Layout(round(width, 1), round(height, 1), tuple(corners), tuple(curves), tuple(found), program)


def relaxed(plan: Layout, boxes: Sequence[Box], frames: Sequence[Frame]) -> Layout:
    """The plan with each arrow as one plain curve where that meets no box and no frame's label."""
    if len(boxes) > _RELAX_LIMIT:
        return plan
    walls = [
        (x - 3, y + 0.5, x + b.width + 3, y + b.height - 0.5) for (x, y), b in zip(plan.corners, boxes, strict=True)
    ]
    for place, frame in zip(plan.frames, frames, strict=True):
        if place:
            walls.append((place[0], place[1] + 2, place[0] + 14 + frame.label_width, place[1] + 24))
    curves = []
    for curve in plan.arrows:
        (x1, y1), (x2, y2) = curve[0], curve[-1]
        plain = smooth([(x1, y1), (x2, y2)])
        curves.append(plain if y2 - y1 >= 10 and clear(plain, walls) else curve)
    return replace(plan, arrows=tuple(curves))


def clear(curve: Sequence[Point], walls: Sequence[tuple[float, float, float, float]]) -> bool:
    """Whether a single cubic meets none of the walls."""
    (x1, y1), (x2, y2), (x3, y3), (x4, y4) = curve
    left, right, top, bottom = min(x1, x4), max(x1, x4), y1, y4
    near = [w for w in walls if w[0] < right + 1 and w[2] > left - 1 and w[1] < bottom and w[3] > top]
    steps = max(12, int(y4 - y1) // 4)
    for i in range(1, steps if near else 0):
        t = i / steps
        a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        x, y = a * x1 + b * x2 + c * x3 + d * x4, a * y1 + b * y2 + c * y3 + d * y4
        if any(w[0] < x < w[2] and w[1] < y < w[3] for w in near):
            return False
    return True


# ---------------------------------------------------------------------------------------------- our own plain layout


@dataclass
class _Item:
    """A box, or a bend of a long arrow, in a rank."""

    width: float
    centre: float  # of the part that arrows meet, from its left
    box: int | None
    ups: list[int] = field(default_factory=list)
    downs: list[int] = field(default_factory=list)
    x: float = 0.0


def ranks_of(count: int, arrows: Sequence[tuple[int, int]]) -> list[int]:
    """Rank of each box: longest way from a box without incoming arrows. Arrows of a cycle are left out of account."""
    downs: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for tail, head in arrows:
        if tail != head:
            downs[tail].append(head)
            waiting[head] += 1
    ready = [i for i in range(count) if not waiting[i]]
    rank = [0] * count
    done = [False] * count
    start = 0
    while True:
        while ready:
            i = ready.pop()
            if done[i]:
                continue
            done[i] = True
            for j in downs[i]:
                if not done[j]:
                    rank[j] = max(rank[j], rank[i] + 1)
                    waiting[j] -= 1
                    if not waiting[j]:
                        ready.append(j)
        while start < count and done[start]:
            start += 1
        if start == count:
            return rank
        ready.append(start)  # only a cycle leaves boxes waiting: break it at its first


def own_layout(
    boxes: Sequence[Box], arrows: Sequence[Arrow], frames: Sequence[Frame] = (), gaps: Gaps = _GAPS
) -> Layout:
    """Ranks from top to bottom, few crossings, bends in long arrows. Frames are not kept together, so not drawn."""
    pairs = [(a.tail, a.head) for a in arrows]
    rank = ranks_of(len(boxes), pairs)
    outgoing: dict[int, list[int]] = {}
    for tail, head in pairs:
        outgoing.setdefault(tail, []).append(head)
    for i in range(len(boxes)):  # a box that only feeds others stands just above them
        if i in outgoing and rank[i] == 0:
            below = [rank[j] for j in outgoing[i] if rank[j] > 0]
            if below:
                rank[i] = min(below) - 1
    items = [_Item(b.width, b.main / 2, i) for i, b in enumerate(boxes)]
    rows: list[list[int]] = [[] for _ in range(max(rank) + 1)]
    for i in range(len(boxes)):
        rows[rank[i]].append(i)
    ways: list[list[int]] = []
    for tail, head in pairs:
        way = [tail]
        for r in range(rank[tail] + 1, rank[head]):
            items.append(_Item(8.0, 4.0, None))
            rows[r].append(len(items) - 1)
            way.append(len(items) - 1)
        way.append(head)
        ways.append(way)
        if rank[head] > rank[tail]:
            for a, b in zip(way, way[1:], strict=False):
                items[a].downs.append(b)
                items[b].ups.append(a)
    order(rows, items, gaps.box)
    tops, heights, y = [], [], 0.0
    for row in rows:
        tall = max((boxes[items[i].box].height for i in row if items[i].box is not None), default=10.0)
        tops.append(y)
        heights.append(tall)
        y += tall + gaps.rank
    left = min(items[i].x for row in rows for i in row)
    for item in items:
        item.x = round(item.x - left, 1)
    corners = tuple(
        (items[i].x, round(tops[rank[i]] + (heights[rank[i]] - boxes[i].height) / 2, 1)) for i in range(len(boxes))
    )
    curves = []
    for arrow, way in zip(arrows, ways, strict=True):
        tail, head = boxes[arrow.tail], boxes[arrow.head]
        start_x = corners[arrow.tail][0] + out_centre(tail, arrow.out)
        points = [(start_x, corners[arrow.tail][1] + tail.height)]
        for i in way[1:-1]:
            r = rank[arrow.tail] + way.index(i)
            x = items[i].x + items[i].centre
            points += [(x, tops[r]), (x, tops[r] + heights[r])]
        points.append((corners[arrow.head][0] + head.main / 2, corners[arrow.head][1]))
        curves.append(smooth(points))
    width = max(items[i].x + items[i].width for row in rows for i in row)
    return Layout(round(width, 1), round(y - gaps.rank, 1), corners, tuple(curves), (None,) * len(frames), "own")


def out_centre(box: Box, out: int | None) -> float:
    """Distance from the box's left to where an arrow leaves it."""
    if out is None or not box.outs:
        return box.main / 2
    return sum(box.outs[:out]) + box.outs[out] / 2


def smooth(points: Sequence[Point]) -> tuple[Point, ...]:
    """Cubic control points through `points`, leaving and arriving vertically."""
    curve = [points[0]]
    for (x1, y1), (x2, y2) in zip(points, points[1:], strict=False):
        half = (y2 - y1) / 2
        curve += [(x1, y1 + half), (x2, y2 - half), (x2, y2)]
    return tuple((round(x, 1), round(y, 1)) for x, y in curve)


def order(rows: list[list[int]], items: list[_Item], gap: float) -> None:
    """Order each row by its neighbours' places, then give every item an x."""
    for sweep in range(_ENOUGH_FOR_ORDER):
        down = sweep % 2 == 0
        for r in range(len(rows)) if down else range(len(rows) - 1, -1, -1):
            place = {i: k for near in (r - 1, r + 1) if 0 <= near < len(rows) for k, i in enumerate(rows[near])}
            now = {i: k for k, i in enumerate(rows[r])}

            def weight(i: int, down=down, place=place, now=now) -> float:
                near = items[i].ups if down else items[i].downs
                return sum(place[j] for j in near) / len(near) if near else now[i]

            rows[r].sort(key=weight)
    for row in rows:
        x = 0.0
        for i in row:
            items[i].x = x
            x += items[i].width + gap
    for sweep in range(_ENOUGH_FOR_ORDER):  # pull each towards its neighbours, pushing the rest aside
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            wish = []
            for i in row:
                near = items[i].ups if down else items[i].downs
                middle = [items[j].x + items[j].centre for j in near]
                wish.append(sum(middle) / len(middle) - items[i].centre if middle else items[i].x)
            pack(row, wish, items, gap)


def pack(row: list[int], wish: list[float], items: list[_Item], gap: float) -> None:
    """Place a row's items as near to their wishes as their order and widths allow: left and right limits averaged."""
    from_left, edge = [], float("-inf")
    for i, x in zip(row, wish, strict=True):
        from_left.append(max(x, edge))
        edge = from_left[-1] + items[i].width + gap
    from_right, edge = [], float("inf")
    for i, x in zip(reversed(row), reversed(wish), strict=True):
        from_right.append(min(x, edge - items[i].width - gap))
        edge = from_right[-1]
    for i, a, b in zip(row, from_left, reversed(from_right), strict=True):
        items[i].x = (a + b) / 2
