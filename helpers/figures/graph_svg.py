"""The graph's drawing: a scene and its layout as one SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import layout, ledger, text
from .draw import Svg, width_of
from .graph_text import state_words
from .items import CAPTION, COMPACT, Item, Style, Words
from .palette import FAINT, FRAME, GRAPH, INK, SOFT
from .scene import FRAME_LABEL, Scene
from .view import View, all_rows, counts_of, flags_of, title_of

MARGIN = 18.0


def draw(view: View, scene: Scene, plan: layout.Layout) -> str:
    """The scene, drawn as it was laid out."""
    legend = legend_of(scene, view.graph.trigger != "grad")
    width = max(plan.width + 2 * MARGIN, 660.0)
    svg = Svg()
    y = draw_head(svg, view, width, said_once(view, scene))
    for frame, label in zip(plan.frames, scene.frame_labels, strict=True):
        if frame is None:  # our own layout keeps no frame together
            for part in text.wrapped(
                f"Drawn once: {label}.", width - 2 * MARGIN, lambda t: width_of(t, 12, mono=False)
            ):
                svg.text(MARGIN, y, part, size=12, mono=False, fill=SOFT)
                y += 19
    top = y + 2
    left = (width - plan.width) / 2
    svg.parts.append(f'<g transform="translate({round(left, 1)} {round(top, 1)})">')
    for frame in plan.frames:
        if frame:
            x, fy, w, h = frame
            svg.rect(
                x,
                fy,
                w,
                h,
                fill=GRAPH["module"].fill,
                line=GRAPH["module"].line,
                dash="6 4",
                width=1.6,
                radius=10,
                css="frame",
            )
    labelled: dict[int, int] = {}
    for arrow, curve, label in zip(scene.arrows, plan.arrows, scene.labels, strict=True):
        labelled[arrow.head] = labelled.get(arrow.head, -1) + bool(label)
        draw_arrow(svg, scene, arrow, list(curve), label, labelled[arrow.head])
    for frame, label in zip(plan.frames, scene.frame_labels, strict=True):
        if frame:  # on top of arrows that pass, with a ground of its own
            x, fy, _, _ = frame
            svg.rect(x + 6, fy + 5, width_of(label, FRAME_LABEL, mono=False) * 1.05 + 8, 18, fill=GRAPH["module"].fill)
            svg.text(x + 10, fy + 18, label, size=FRAME_LABEL, bold=True, mono=False, fill=GRAPH["module"].text)
    for item, (x, iy) in zip(scene.items, plan.corners, strict=True):
        draw_item(svg, item, x, iy, scene.style, caption=scene.caption)
    svg.parts.append("</g>")
    bottom = top + plan.height + 16
    bottom = draw_legend(svg, legend, MARGIN, bottom, width - 2 * MARGIN)
    return svg.finish(width, bottom, title_of(view))


def said_once(view: View, scene: Scene) -> str:
    """What a picture says once, since its boxes need not repeat it."""
    small = scene.style is COMPACT
    parts = [f"all tensors are on {view.device}"] if view.device else []
    if small and view.dtype:
        parts.append(f"tensors that name no dtype are {view.dtype}")
    if small and view.common_line:
        parts.append(f"operations that name no line are of {view.common_line}")
    if small and any(len(item.nodes) > 1 for item in scene.items):
        parts.append("operations that follow each other share a box")
    words = "; ".join(parts)
    return f"{words[0].upper()}{words[1:]}." if words else ""


def draw_head(svg: Svg, view: View, width: float, more: str = "") -> float:
    """Title, counts, and a badge for each thing to know of this pass; returns where the picture may begin."""
    y = 28.0
    svg.open("head")
    for i, sentence in enumerate([title_of(view), f"{counts_of(view)} · {ledger.heading(all_rows(view))}", more]):
        size, bold = (14.0, True) if i == 0 else (12.0, False)
        lines = text.wrapped(sentence, width - 2 * MARGIN, lambda t, s=size: width_of(t, s, mono=False))
        for part in lines if sentence else []:
            svg.text(MARGIN, y, part, size=size, bold=bold, mono=False, fill=SOFT if i else INK)
            y += 19
    for flag in flags_of(view):
        paint = GRAPH["root"]
        wide = width_of(flag, 11.5, mono=False) + 20
        svg.rect(MARGIN, y - 10, wide, 20, fill=paint.fill, line=paint.line, radius=10, css="badge")
        svg.text(MARGIN + 10, y + 4, flag, size=11.5, mono=False, fill=paint.text)
        y += 27
    svg.close()
    return y


def draw_arrow(svg: Svg, scene: Scene, arrow: layout.Arrow, curve: list[layout.Point], label: str, above: int) -> None:
    """An arrow, and its label beside its head; `above`: how many labels stand there already."""
    plain = scene.items[arrow.tail].kind == "none"
    pruned = "pruned" in (scene.items[arrow.tail].kind, scene.items[arrow.head].kind)
    colour = FAINT if plain or pruned else SOFT
    svg.arrow(curve, line=colour, dash="3 3" if plain or pruned else "", css="edge")
    if label:
        x, y = curve[-1]
        svg.text(x + 7, y - 6 - 11 * above, label, size=9.5, fill=SOFT)


def draw_lines(svg: Svg, lines: Iterable[Words], x: float, y: float, step: float, colour: str) -> None:
    """Centred lines of text, one `step` below the other, the first at y."""
    for words in lines:
        fill = words.colour or (SOFT if words.soft else colour)
        svg.text(x, y, words.content, size=words.size, bold=words.bold, italic=words.italic, fill=fill, anchor="middle")
        y += step


def draw_item(svg: Svg, item: Item, x: float, y: float, style: Style, *, caption: bool) -> None:
    paint = GRAPH[item.kind]
    box = item.box
    of = " ".join(map(str, item.nodes or (item.node,))) if item.node is not None else None
    svg.open(f"item {item.kind}", item.title, nodes=of)
    dash = "4 3" if item.kind in ("pruned", "none") or item.again else ""
    round_ = 14.0 if item.kind == "none" else 3.0 if item.kind in ("leaf", "parameter") else 7.0
    svg.rect(
        x, y, box.main, box.height, fill=paint.fill, line=paint.line, width=1.3, radius=round_, dash=dash, css="box"
    )
    tall = box.height - box.out_height
    step = y + (tall - len(item.lines) * style.line) / 2 + style.line / 2 + 4
    draw_lines(svg, item.lines, x + box.main / 2, step, style.line, paint.text)
    if item.outs:
        cx = x
        base = y + box.height - box.out_height
        svg.line(x, base, x + box.main, base, line=FRAME)
        for k, (out, w) in enumerate(zip(item.outs, box.outs, strict=True)):
            if k:
                svg.line(cx, base, cx, y + box.height, line=FRAME)
            svg.text(cx + w / 2, base + 11.5, f"out {out}", size=9.5, fill=SOFT, anchor="middle")
            cx += w
    if item.ellipses:
        draw_region(svg, item, x, y, style, caption=caption)
    svg.close()


def draw_region(svg: Svg, item: Item, x: float, y: float, style: Style, *, caption: bool) -> None:
    """The dashed region of what a node keeps, its ellipses, and a short line to the node."""
    region = GRAPH["region"]
    box = item.box
    left = x + box.main + style.region_gap
    top = y + min(e.y - e.ry for e in item.ellipses) - style.region_pad - (14 if caption else 0)
    bottom = y + max(e.y + e.ry for e in item.ellipses) + style.region_pad
    held = any(row.held for e in item.ellipses for row in e.rows)
    line = region.line if held else FAINT
    middle = y + box.height / 2
    svg.line(x + box.main, middle, left, middle, line=line, width=1.3)
    svg.rect(
        left,
        top,
        x + box.width - left,
        bottom - top,
        fill=region.fill if held else "#ffffff",
        line=line,
        width=1.1,
        dash="5 4",
        radius=10,
        css="region",
    )
    if caption:
        words = CAPTION if held else "released"
        svg.text(
            (left + x + box.width) / 2, top + 14, words, size=9.5, fill=region.text if held else SOFT, anchor="middle"
        )
    for e in item.ellipses:
        paint = GRAPH[e.state]
        row = e.rows[0]
        stands = f" ({row.form})" if row.stand_in else ""
        title = f"{row.what}: {state_words(row)}{stands}. {row.why[0].upper()}{row.why[1:]}."
        svg.open(f"kept {e.state.replace(' ', '-')}", title, saved=" ".join(str(r.saved.id) for r in e.rows))
        dash = "" if e.state in ("live", "alive", "changed in place") else "4 3"
        width = 2.4 if e.state == "changed in place" else 1.3
        svg.ellipse(
            x + e.x, y + e.y, e.rx, e.ry, fill=paint.fill, line=paint.line, width=width, dash=dash, css="tensor"
        )
        step = y + e.y - (len(e.lines) - 1) * style.tensor_line / 2 + 3.6
        colour = SOFT if e.state == "released" else paint.text
        draw_lines(svg, e.lines, x + e.x, step, style.tensor_line, colour)
        svg.close()


def legend_of(scene: Scene, fills: bool) -> list[tuple[str, str]]:
    """(kind, words) for each kind of thing in the picture, in a fixed order. fills: whether leaves get a .grad."""
    kinds = {item.kind for item in scene.items}
    states = {e.state for item in scene.items for e in item.ellipses}
    packed = [e.rows[0].saved for item in scene.items for e in item.ellipses if e.state == "packed"]
    hooks = "to be computed again (checkpoint)" if all(map(ledger.to_compute, packed)) else "packed by a hook"
    words = [
        ("operation", "operation", "operation" in kinds),
        ("custom", "custom Function", "custom" in kinds),
        ("edge", "compiled or unknown", "edge" in kinds),
        ("parameter", "parameter", "parameter" in kinds),
        ("leaf", "leaf: its .grad is filled" if fills else "leaf", "leaf" in kinds),
        ("none", "needs no gradient", "none" in kinds),
        ("pruned", "not needed by this pass", "pruned" in kinds),
        ("live", "kept for backward", "live" in states),
        ("alive", "kept, but alive anyway", "alive" in states),
        ("again", "kept, memory counted elsewhere", "again" in states),
        ("packed", hooks, "packed" in states),
        ("released", "released", "released" in states),
        ("changed in place", "changed in place since", "changed in place" in states),
    ]
    return [(kind, label) for kind, label, there in words if there]


def draw_legend(svg: Svg, legend: Sequence[tuple[str, str]], x: float, y: float, width: float) -> float:
    """Signs with their words, in rows; returns the picture's height."""
    svg.open("legend")
    svg.line(x, y, x + width, y, line=FRAME)
    cx, cy = x, y + 20
    for kind, label in legend:
        wide = 34 + width_of(label, 11, mono=False) + 18
        if cx > x and cx + wide - 18 > x + width:
            cx, cy = x, cy + 20
        paint = GRAPH[kind]
        fill = paint.fill
        if kind in ("live", "alive", "again", "packed", "released", "changed in place"):
            dash = "" if kind in ("live", "alive", "changed in place") else "3 2"
            svg.ellipse(
                cx + 13,
                cy - 4,
                13,
                7,
                fill=fill,
                line=paint.line,
                dash=dash,
                width=2 if kind == "changed in place" else 1.2,
            )
        else:
            round_ = 7.0 if kind == "none" else 1.5 if kind in ("leaf", "parameter") else 4.0
            svg.rect(
                cx,
                cy - 11,
                26,
                14,
                fill=fill,
                line=paint.line,
                radius=round_,
                dash="3 2" if kind in ("none", "pruned") else "",
            )
        svg.text(cx + 33, cy, label, size=11, mono=False, fill=SOFT)
        cx += wide
    svg.close()
    return cy + 16
