"""The one bundle that every figure goes through: a still picture in HTML, its alt text, and its text twin.

The still is an `<img>` with the drawing in its `src`, or a table: of all that carries a drawing only these survive when
JupyterLab opens a notebook that it does not trust (scripts, style sheets, inline SVG, ids and data-* are stripped). So
styles stand inline, nothing has an id, and nothing is needed from a network.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .palette import FRAME, GROUND, INK, SOFT

SANS = "Helvetica Neue,Helvetica,Arial,sans-serif"
MONO = "Menlo,Consolas,DejaVu Sans Mono,Courier New,monospace"
#: The margin of what is not a drawing; drawings have it inside.
INSET = "padding:8px 18px;"


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure: what a notebook shows, and the same facts in words.

    title: one line. text: the text twin (its `text/plain`). alt: the picture in a sentence or two.
    svg: the drawing, "" for a figure that is a table. body: HTML as it goes into a page, without the page.
    whole: makes the twin with nothing folded, when it is asked for; None if `text` folds nothing.
    script: what makes the still live where scripts run, as one element that stands after it; "" for a still.
    """

    title: str
    text: str
    alt: str
    svg: str
    body: str
    whole: Callable[[], str] | None = field(default=None, compare=False, kw_only=True)
    script: str = field(default="", kw_only=True)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}

    @property
    def html(self) -> str:
        """The HTML fragment that a notebook shows: images and tables with inline styles, opaque, no ids."""
        return card(self.body, mark=' data-gi="still"' if self.script else "") + self.script

    def text_full(self) -> str:
        """The text twin with nothing folded; the same as `text` for a figure that folds nothing."""
        return self.whole() if self.whole else self.text

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def save(self, path: str | Path) -> Path:
        """Write the figure to `path` and return it: .html (a page that needs no network), .svg or .txt (the twin).

        Raises ValueError for another ending, and for .svg of a figure that is a table.
        """
        path = Path(path)
        kind = path.suffix.lower()
        if kind == ".html":
            content = page(self)
        elif kind == ".svg":
            if not self.svg:
                raise ValueError(f"This figure is a table, not a drawing: save it as .html or .txt, not {path.name}.")
            content = self.svg
        elif kind == ".txt":
            content = self.text_full() + "\n"
        else:
            raise ValueError(f"A figure is saved as .html, .svg or .txt; {path.name!r} ends otherwise.")
        # surrogates can come from a learner's own strings, and no encoding can write them
        path.write_text(content.encode("utf-8", "replace").decode(), encoding="utf-8", newline="\n")
        return path


def escape(text: str) -> str:
    """Text for HTML and XML: the five signs as entities, characters that XML forbids as U+FFFD."""
    clean = "".join(
        c if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff" and c < "\ufffe") else "\ufffd" for c in text
    )
    return html.escape(clean, quote=True)


def prose(text: str) -> str:
    """Text for HTML in which a number stays on one line with its unit."""
    return re.sub(r"(?<=\d) (?=(?:B|kB|MB|GB|TB|KiB|MiB|GiB|TiB|bytes?)\b)", "\u00a0", escape(text))


def image(svg: str, alt: str) -> str:
    """A drawing as an image that brings its own ground, at most as wide as its place."""
    data = base64.b64encode(svg.encode()).decode()
    style = f"max-width:100%;height:auto;background-color:{GROUND};display:block;"
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(alt)}" style="{style}">'


def card(body: str, mark: str = "") -> str:
    """The ground that every figure stands on: opaque, so that it reads on a light and on a dark page.

    mark: an attribute by which a script finds it.
    """
    style = (
        f"background-color:{GROUND};color:{INK};border:1px solid {FRAME};border-radius:6px;padding:8px;"
        f"display:inline-block;box-sizing:border-box;max-width:100%;overflow:auto;font-family:{SANS};font-size:13px;line-height:1.45;"
    )
    return f'<div{mark} style="{style}">{body}</div>'


def paragraph(text: str, *, strong: bool = False, soft: bool = False) -> str:
    weight = "font-weight:bold;" if strong else ""
    size = "15px" if strong else "13px"
    style = f"margin:0 0 8px 0;color:{SOFT if soft else INK};font-size:{size};{weight}"
    return f'<p style="{style}">{prose(text)}</p>'


def figure_of(title: str, text: str, alt: str, svg: str, kind: type[Figure] = Figure, **more) -> Figure:
    """A figure that is one drawing."""
    return kind(title=title, text=text, alt=alt, svg=svg, body=image(svg, alt), **more)


def joined(
    title: str, lead: str, parts: Sequence[Figure], text: str, alt: str, *, marks: Sequence[str] = (), **more
) -> Figure:
    """Several figures as one: a heading in words, then each figure's body. marks: names by which a script finds each;
    more: fields of the figure."""
    attributes = [f' data-part="{mark}"' for mark in marks] or [""] * len(parts)
    body = lead + "".join(
        f'<div{mark} style="padding:12px 0 0 0;">{part.body}</div>'
        for mark, part in zip(attributes, parts, strict=True)
    )
    svg = next((part.svg for part in parts if part.svg), "")
    return Figure(title=title, text=text, alt=alt, svg=svg, body=body, **more)


def page(figure: Figure) -> str:
    """A page of its own: language, title, one H1, the figure, and its twin to unfold."""
    twin = (
        f'<details style="margin-top:16px;"><summary>The same in words and numbers</summary>'
        f'<pre style="overflow:auto;font-family:{MONO};font-size:12px;">{escape(figure.text_full())}</pre></details>'
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(figure.title)}</title>\n</head>\n"
        f'<body style="margin:24px;background-color:{GROUND};color:{INK};font-family:{SANS};">\n'
        f'<main>\n<h1 style="font-size:20px;">{escape(figure.title)}</h1>\n{figure.html}\n{twin}\n'
        "</main>\n</body>\n</html>\n"
    )
