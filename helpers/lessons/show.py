"""How a lesson shows itself: one display of text, still HTML, plain data and, where a kernel runs, a control.

The HTML survives JupyterLab's cleaning of a notebook that it does not trust, as figures do: inline styles, no ids, no
scripts. The text is complete by itself. Neither holds a time, a path, an address or anything random.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable

from helpers.figures.bundle import MONO, card, prose
from helpers.figures.palette import FRAME, GROUND, INK, SOFT

KIND = "application/vnd.gradients-and-intermediates.{}+json"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
__all__ = ["KIND", "bullets", "card", "details", "inline", "number", "paragraph", "shell", "show", "table", "unstarred"]
#: `code` or *emphasis*; a star between spaces, at a number or doubled is none: 2 * 3, 2*n*m, **options.
MARKED = re.compile(r"`(?P<code>[^`\n]+)`|(?<![\w*])\*(?P<stress>\w(?:[^*`\n]*[\w.!?…])?)\*(?![\w*])")


def shell():
    """The IPython shell that runs, else None; does not load IPython."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def show(text: str, html: str, data: dict | None = None, mime: str | None = None, widget=None) -> None:
    """Display at once: `text` (complete), `html` (finished: stand it on `card`), `data` as plain JSON under `mime`.

    mime: "prediction", "verdict", "check" (see KIND), or a whole MIME type. widget: an ipywidgets widget, shown in
    place of the HTML where the front end has widgets and the cell was run. Without IPython the text is printed.
    """
    if shell() is None:
        print(text)
        return
    from IPython.display import display

    bundle = {"text/plain": text, "text/html": html}
    if data is not None:
        bundle[mime if "/" in mime else KIND.format(mime)] = data
    if widget is not None:
        bundle[WIDGET_VIEW] = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display(bundle, raw=True)


def inline(text: str) -> str:
    """Text as HTML: escaped, a number on one line with its unit, `code` as <code>, *emphasis* as <em>."""
    style = f"font-family:{MONO};font-size:12px;background-color:#f2f4f7;color:{INK};padding:0 3px;border-radius:3px;"
    code = rf'<code style="{style}">\g<code></code>'
    return MARKED.sub(lambda m: m.expand(code if m["code"] else r"<em>\g<stress></em>"), prose(text))


def unstarred(text: str) -> str:
    """Text without the stars of its *emphasis*; those in `code` stay."""
    return MARKED.sub(lambda m: m["stress"] or m[0], text)


def paragraph(text: str, *, strong: bool = False, soft: bool = False) -> str:
    """A paragraph of `inline` text; strong: as a heading, soft: as an aside."""
    weight, size = ("font-weight:bold;", "14px") if strong else ("", "13px")
    return f'<p style="margin:5px 0;color:{SOFT if soft else INK};font-size:{size};{weight}">{inline(text)}</p>'


def bullets(lines: Iterable[str], *, mark: str = "none") -> str:
    """A list of `inline` lines; mark: a CSS list-style-type."""
    items = "".join(f'<li style="margin:0 0 3px 0;">{inline(line)}</li>' for line in lines)
    indent = "4px" if mark == "none" else "24px"
    return f'<ul style="margin:0 0 8px 0;padding:0 0 0 {indent};list-style-type:{mark};color:{INK};">{items}</ul>'


def details(summary: str, body: str) -> str:
    """HTML that is folded until it is asked for; `summary` is inline text."""
    head = f'<summary style="cursor:pointer;color:{INK};">{inline(summary)}</summary>'
    return f'<details style="margin:0 0 12px 0;">{head}<div style="padding:6px 0 0 12px;">{body}</div></details>'


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of `inline` cells, the first of each row its heading."""
    # JupyterLab gives rows a ground of its theme, so each cell brings its own
    line = f"background-color:{GROUND};color:{INK};border-bottom:1px solid {FRAME};"
    line += "padding:3px 14px 3px 4px;text-align:left;vertical-align:top;"
    named = f'<th scope="col" style="{line}">{{}}</th>'
    top = "".join(named.format(inline(cell)) if cell else f'<td style="{line}"></td>' for cell in head)
    body = ""
    for first, *others in rows:
        cells = "".join(f'<td style="{line}">{inline(cell)}</td>' for cell in others)
        body += f'<tr><th scope="row" style="{line}font-weight:normal;">{inline(first)}</th>{cells}</tr>'
    style = "border-collapse:collapse;margin:0 0 8px 0;font-size:13px;"
    return f'<table style="{style}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def number(value: int | float, unit: str = "", *, digits: int = 4) -> str:
    """A number for people: commas in thousands, floats to `digits` significant digits, then its unit."""
    if isinstance(value, int) or not math.isfinite(value):
        shown = f"{value:,}"
    elif value == int(value) and abs(value) < 1e15:
        shown = f"{int(value):,}"
    elif 10**digits <= abs(value) < 1e15:
        shown = f"{float(f'{value:.{digits}g}'):,.0f}"
    else:
        shown = f"{value:,.{digits}g}"
    # a percent sign stands by its number, a unit one space away
    return f"{shown}{'' if unit in ('', '%', '×') else ' '}{unit}"
