"""Drawing: SVG elements as text. Presentation attributes only (no ids, no style sheet), so one drawing works as an
image, and inside a page whose own rules may restyle it by class."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from .bundle import MONO, SANS, escape
from .palette import GROUND, INK


def num(value: float) -> str:
    """A coordinate to one decimal, so that the same picture has the same bytes everywhere."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def width_of(text: str, size: float, *, mono: bool = True) -> float:
    """Width of a text in user units; generous, since the reader's fonts are not known."""
    total = 0.0
    for c in text:
        if unicodedata.east_asian_width(c) in "WF":
            total += 1.05
        elif mono:
            total += 0.0 if unicodedata.combining(c) else 0.605
        elif c in "ijl.,:;'|!()[]·I ":
            total += 0.33
        elif c in 'frt-"/':
            total += 0.42
        elif c in "mwMW@%×→":
            total += 0.92
        else:
            total += 0.7 if c.isupper() else 0.6
    return total * size


class Svg:
    """Parts of a drawing, in painting order."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def open(self, css: str, title: str = "", **data: object) -> None:
        """Begin a group; `title` is what hovering shows, `data` becomes data-* attributes."""
        attributes = "".join(f' data-{k}="{escape(str(v))}"' for k, v in data.items() if v is not None)
        self.parts.append(f'<g class="{css}"{attributes}>')
        if title:
            self.parts.append(f"<title>{escape(title)}</title>")

    def close(self) -> None:
        self.parts.append("</g>")

    def rect(self, x, y, w, h, *, fill, line="none", width=1.0, radius=0.0, dash="", css="") -> None:
        more = f' rx="{num(radius)}"' if radius else ""
        self.parts.append(
            f'<rect x="{num(x)}" y="{num(y)}" width="{num(w)}" height="{num(h)}"{more}'
            f"{paint(fill, line, width, dash, css)}/>"
        )

    def ellipse(self, cx, cy, rx, ry, *, fill, line, width=1.2, dash="", css="") -> None:
        self.parts.append(
            f'<ellipse cx="{num(cx)}" cy="{num(cy)}" rx="{num(rx)}" ry="{num(ry)}"'
            f"{paint(fill, line, width, dash, css)}/>"
        )

    def path(self, d: str, *, fill="none", line="none", width=1.0, dash="", css="") -> None:
        self.parts.append(f'<path d="{d}"{paint(fill, line, width, dash, css)}/>')

    def line(self, x1, y1, x2, y2, *, line, width=1.0, dash="", css="") -> None:
        self.path(f"M{num(x1)} {num(y1)}L{num(x2)} {num(y2)}", line=line, width=width, dash=dash, css=css)

    def arrow(self, points: list[tuple[float, float]], *, line, width=1.2, dash="", css="") -> None:
        """A curve through cubic control points (1 + 3n of them) with a head at its last point."""
        (x1, y1), (x2, y2) = points[-2], points[-1]
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 0.01)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        head, half = 7.0, 3.2
        bx, by = x2 - ux * head, y2 - uy * head
        points = [*points[:-1], (bx, by)]
        d = f"M{num(points[0][0])} {num(points[0][1])}"
        for i in range(1, len(points) - 2, 3):
            d += "C" + " ".join(f"{num(x)} {num(y)}" for x, y in points[i : i + 3])
        self.path(d, line=line, width=width, dash=dash, css=css)
        self.path(
            f"M{num(x2)} {num(y2)}L{num(bx - uy * half)} {num(by + ux * half)}"
            f"L{num(bx + uy * half)} {num(by - ux * half)}Z",
            fill=line,
            css=css,
        )

    def text(
        self, x, y, content: str, *, size=11.0, fill=INK, bold=False, italic=False, mono=True, anchor="", css=""
    ) -> None:
        """One line of text, its baseline at y. `anchor` is "", "middle" or "end"."""
        more = f' font-family="{SANS}"' if not mono else ""
        more += ' font-weight="bold"' if bold else ""
        more += ' font-style="italic"' if italic else ""
        more += f' text-anchor="{anchor}"' if anchor else ""
        more += f' class="{css}"' if css else ""
        self.parts.append(
            f'<text x="{num(x)}" y="{num(y)}" font-size="{num(size)}" fill="{fill}"{more}>{escape(content)}</text>'
        )

    def finish(self, width: float, height: float, title: str) -> str:
        """The whole drawing, on its own ground."""
        w, h = num(width), num(height)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" '
            f'font-family="{MONO}" xml:space="preserve"><title>{escape(title)}</title>'
            f'<rect class="ground" width="{w}" height="{h}" fill="{GROUND}"/>' + "".join(self.parts) + "</svg>"
        )


def paint(fill: str, line: str, width: float, dash: str, css: str) -> str:
    out = f' fill="{fill}"'
    if line != "none":
        out += f' stroke="{line}" stroke-width="{num(width)}"'
    if dash:
        out += f' stroke-dasharray="{dash}"'
    if css:
        out += f' class="{css}"'
    return out


def polyline(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{num(x)} {num(y)}" for x, y in points)
