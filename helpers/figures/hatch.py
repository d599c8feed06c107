"""Bands of a stacked plot: colour, and a hatch as a second sign, both cut at the band's edges by computing them.

No pattern is used, so no id is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from .draw import Svg, num
from .palette import CATEGORY, HATCH, INK, INSIDE, Paint

#: Where the plot lies that bands stand in: its top, and its height.
TOP, HEIGHT = 84.0, 230.0
#: The band that is no category of the ledger: memory that kernels take and give back while they run.
KERNELS = "inside kernels"


def paint_of(name: str) -> Paint:
    return INSIDE if name == KERNELS else CATEGORY[name]


def sign_of(name: str) -> str:
    return "x" if name == KERNELS else HATCH[name]


def band(svg: Svg, name: str, ys: Sequence[tuple[float, float]], left: float, step: float) -> None:
    """One category's part of the stack: fill, hatch, and a line that parts it from its neighbours."""
    paint = paint_of(name)
    svg.open(f"band {name.replace(' ', '-')}", name)
    runs: list[list[int]] = []
    for i, (low, high) in enumerate(ys):
        if low - high > 0.05:
            if runs and runs[-1][1] == i - 1:
                runs[-1][1] = i
            else:
                runs.append([i, i])
    for first, last in runs:
        top = outline([ys[i][1] for i in range(first, last + 1)], left + first * step, step)
        bottom = outline([ys[i][0] for i in range(first, last + 1)], left + first * step, step)
        d = "M" + "L".join(f"{num(x)} {num(y)}" for x, y in [*top, *reversed(bottom)]) + "Z"
        svg.path(d, fill=paint.fill, line=INK, width=0.6, css="fill")
    hatch(svg, sign_of(name), ys, left, step, paint.line)
    svg.close()


def outline(ys: Sequence[float], left: float, step: float) -> list[tuple[float, float]]:
    """A staircase through the tops of columns, without points that lie on a straight line."""
    points: list[tuple[float, float]] = []
    for i, y in enumerate(ys):
        if not points or points[-1][1] != y:
            points.append((left + i * step, y))
            if len(points) > 1:
                points.insert(-1, (left + i * step, points[-2][1]))
    points.append((left + len(ys) * step, points[-1][1]))
    return points


def hatch(svg: Svg, sign: str, ys: Sequence[tuple[float, float]], left: float, step: float, colour: str) -> None:
    """Lines or dots inside a band, cut at its edges by computing them: no pattern, so no id is needed."""
    if not sign:
        return
    parts: list[str] = []
    right = left + len(ys) * step

    def inside(x: float) -> tuple[float, float]:
        return ys[min(int((x - left) / step), len(ys) - 1)]

    if sign == "|":
        x = left + 5
        while x < right:
            low, high = inside(x)
            if low - high > 1:
                parts.append(f"M{num(x)} {num(high)}V{num(low)}")
            x += 7
    elif sign == ".":
        y0, row = TOP + 3, 0
        while y0 < TOP + HEIGHT:
            x = left + (4 if row % 2 else 8)
            while x < right:
                low, high = inside(x)
                if high + 1 < y0 < low - 1:
                    parts.append(f"M{num(x)} {num(y0)}h1.4")
                x += 8
            y0 += 5
            row += 1
    else:
        for slope in {"-": (0.0,), "/": (-1.0,), "\\": (1.0,), "x": (-1.0, 1.0)}[sign]:
            gap = 6.0 if sign in "-x" else 9.0
            reach = (right - left) if slope else 0.0
            c = TOP - (reach if slope > 0 else 0.0)
            end = TOP + HEIGHT + (reach if slope < 0 else 0.0)
            while c < end:
                parts += slanted(c, slope, ys, left, step)
                c += gap
    if parts:
        svg.path("".join(parts), line=colour, width=1.4 if sign == "." else 0.9, css="hatch")


def slanted(c: float, slope: float, ys: Sequence[tuple[float, float]], left: float, step: float) -> list[str]:
    """Pieces of the line y = c + slope · (x − left) that lie inside the band."""
    pieces: list[list[float]] = []  # x1, x2
    first, last = 0, len(ys)
    if slope:  # only columns that the line can cross between the plot's top and bottom
        xs = sorted(((TOP - c) / slope, (TOP + HEIGHT - c) / slope))
        first, last = max(0, int(xs[0] / step) - 1), min(len(ys), int(xs[1] / step) + 2)
    for i in range(first, last):
        low, high = ys[i]
        x1, x2 = i * step, (i + 1) * step
        if slope:
            a, b = sorted(((high - c) / slope, (low - c) / slope))
            x1, x2 = max(x1, a), min(x2, b)
        elif not high < c < low:
            continue
        if x2 - x1 > 0.3:
            if pieces and abs(pieces[-1][1] - x1) < 0.05:
                pieces[-1][1] = x2
            else:
                pieces.append([x1, x2])
    return [
        f"M{num(left + a)} {num(c + slope * a)}L{num(left + b)} {num(c + slope * b)}" for a, b in pieces if b - a > 0.8
    ]


def swatch(svg: Svg, name: str, x: float, y: float, *, small: bool = False) -> None:
    """A sample of a category: its colour and its hatch."""
    w, h = (16.0, 11.0) if small else (28.0, 15.0)
    paint = paint_of(name)
    svg.rect(x, y, w, h, fill=paint.fill, line=INK, width=0.6)
    sign = sign_of(name)
    parts = []
    if sign == "|":
        parts = [f"M{num(x + i)} {num(y)}v{num(h)}" for i in range(4, int(w), 6)]
    elif sign == "-":
        parts = [f"M{num(x)} {num(y + i)}h{num(w)}" for i in range(4, int(h), 5)]
    elif sign == ".":
        parts = [f"M{num(x + i)} {num(y + j)}h1.4" for j in (4, 9) for i in range(3 + j % 2 * 4, int(w), 8) if j < h]
    elif sign:
        for slope in "/\\" if sign == "x" else sign:
            for i in range(-int(h), int(w), 6 if sign == "x" else 8):
                a, b = max(0, -i), min(h, w - i)
                if b > a:
                    ya, yb = (y + a, y + b) if slope == "\\" else (y + h - a, y + h - b)
                    parts.append(f"M{num(x + i + a)} {num(ya)}L{num(x + i + b)} {num(yb)}")
    if parts:
        svg.path("".join(parts), line=paint.line, width=1.4 if sign == "." else 0.9)
