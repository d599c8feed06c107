"""The drawing of a difference: both graphs as one, with a sign at every box, tensor and arrow that came or went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from . import layout, text
from .difference_model import FEW, Difference, Member
from .difference_text import edge_words, gathered_words, leaf_words, member_fields, place_words, wish_words
from .draw import Svg, width_of
from .palette import CATEGORY, FRAME, GRAPH, INK, SOFT, WATERFALL
from .scene import FRAME_LABEL, MOST_DRAWN

MARGIN = 18.0
LINE, PILL = 14.0, 18.0
PAINT = {"+": WATERFALL["saving"], "−": WATERFALL["cost"], "=": GRAPH["operation"], "≠": GRAPH["custom"]}
WORDS = {"+": "appeared", "−": "went", "=": "stayed", "≠": "stayed, changed"}
#: Kept tensors that one box shows one by one.
MOST_PILLS = 6


@dataclass(frozen=True)
class Pill:
    """A tensor that a node keeps. alive: it is not counted, since it lives anyway."""

    sign: str
    words: str
    alive: bool = False


@dataclass
class Tile:
    """A box with its words, and what it keeps beside it."""

    sign: str
    lines: list[tuple[str, float, bool]]
    pills: list[Pill]
    title: str
    nodes: list[int]
    block: int | None = None
    leaf: bool = False
    lives: bool = False  # a leaf that is in one graph, but there in both recordings
    box: layout.Box = field(default_factory=lambda: layout.Box(0, 0, 0))


def draw(found: Difference, title: str, lead: str) -> str:
    """Boxes and arrows, or a table of counts where they are too many."""
    tiles = tiles_of(found)
    plan = None
    if len(tiles) <= MOST_DRAWN:
        arrows, signs = arrows_of(found, tiles)
        frames, labels = frames_of(found, tiles)
        gaps = layout.Gaps(26.0, 18.0)
        plan = layout.arrange([tile.box for tile in tiles], arrows, frames, gaps=gaps)
    if plan is None:
        return draw_counts(found, title, lead)
    svg = Svg()
    width = max(plan.width + 2 * MARGIN, 660.0)
    y = draw_head(svg, width, title, lead, said_once(found, tiles))
    svg.parts.append(f'<g transform="translate({round((width - plan.width) / 2, 1)} {round(y, 1)})">')
    paint = GRAPH["module"]
    for frame in plan.frames:
        if frame:
            svg.rect(*frame, fill=paint.fill, line=paint.line, dash="6 4", width=1.6, radius=10)
    signed = []
    for curve, sign in zip(plan.arrows, signs, strict=True):
        svg.open("edge", WORDS[sign])
        line = SOFT if sign == "=" else PAINT[sign].line
        svg.arrow(list(curve), line=line, dash="5 4" if sign == "−" else "", width=1.2 if sign == "=" else 2.2)
        if sign != "=":
            signed.append((sign, *middle(curve)))
        svg.close()
    for frame, label in zip(plan.frames, labels, strict=True):
        if frame:
            x, top = frame[:2]
            svg.rect(x + 6, top + 5, width_of(label, FRAME_LABEL, mono=False) * 1.05 + 8, 18, fill=paint.fill)
            svg.text(x + 10, top + 18, label, size=FRAME_LABEL, bold=True, mono=False, fill=paint.text)
    for tile, (x, top) in zip(tiles, plan.corners, strict=True):
        draw_tile(svg, tile, x, top)
    for sign, x, top in signed:  # on top of whatever an arrow passes
        svg.ellipse(x, top, 9, 9, fill=PAINT[sign].fill, line=PAINT[sign].line, dash="3 2" if sign == "−" else "")
        svg.text(x, top + 4.5, sign, size=13, bold=True, fill=PAINT[sign].text, anchor="middle")
    svg.parts.append("</g>")
    bottom = draw_legend(svg, tiles, signs, y + plan.height + 16, width)
    return svg.finish(width, bottom, title)


def middle(curve: tuple[layout.Point, ...]) -> layout.Point:
    """The point half way along the middle one of a curve's cubics."""
    k = (len(curve) - 1) // 3 // 2 * 3
    (x1, y1), (x2, y2), (x3, y3), (x4, y4) = curve[k : k + 4]
    return (x1 + 3 * x2 + 3 * x3 + x4) / 8, (y1 + 3 * y2 + 3 * y3 + y4) / 8


def draw_head(svg: Svg, width: float, *sentences: str) -> float:
    y = 28.0
    for i, sentence in enumerate(filter(None, sentences)):
        size = 12.0 if i else 14.0
        for part in text.wrapped(sentence, width - 2 * MARGIN, lambda t, s=size: width_of(t, s, mono=False)):
            svg.text(MARGIN, y, part, size=size, bold=not i, mono=False, fill=SOFT if i else INK)
            y += 19
    return y + 2


def said_once(found: Difference, tiles: list[Tile]) -> str:
    shown = {n for tile in tiles for n in tile.nodes}
    quiet = sum(m.node.leaf is not None and n not in shown and m.sign == "=" for n, m in enumerate(found.members))
    words = f"{text.plural(quiet, 'leaf', 'leaves')} that stayed: not drawn. " if quiet else ""
    line = common_line(found)
    return words + (f"Operations that name no line are of {line}." if line else "")


def common_line(found: Difference) -> str:
    """The line of nearly all operations of a large difference, in both alike; "" if there is none."""
    lines = {view.common_line if view else "" for view in found.views}
    return lines.pop() if len(lines) == 1 and len(found.members) > 2 * FEW else ""


# ------------------------------------------------------------------------------------------------ boxes


def tiles_of(found: Difference) -> list[Tile]:
    return [tile_of(found, run) for run in found.gathered]


def tile_of(found: Difference, run: list[int]) -> Tile:
    member = found.members[run[0]]
    node = member.node
    block = found.folding.block_of.get(run[0])
    if len(run) > 1:
        first, rest = gathered_words(found, run).split(", ", 1)
        names = ", ".join(dict.fromkeys(text.operation(found.members[n].node.name) for n in run))
        lines = [(f"= {first}", 12.0, True), (text.short(names, 38), 10.5, False), (rest, 10.5, False)]
        tile = Tile("=", lines, [], names, run, block)
    elif node.leaf:
        lines = [(f"{member.sign} {text.short(leaf_words(node), 30)}", 12.0, True)]
        lines.append((f"{text.shape(node.leaf.shape)} {node.leaf.dtype}, {text.exact(node.leaf.nbytes)}", 10.5, False))
        times = found.folding.leaf_times.get(run[0], 1)
        lines += [(f"× {times:,}", 10.5, False)] if times > 1 else []
        wish = wish_words(found, member)
        lines += [(wish, 10.5, False)] if wish else []
        fields = " ".join(filter(None, member_fields(found, run[0])))
        tile = Tile(member.sign, lines, [], fields, run, block, leaf=True, lives=bool(wish))
    else:
        made = f" → {text.short_name(text.names(node.names), 18)}" if node.names else ""
        lines = [(f"{member.sign} {text.short(text.operation(text.quoted(node.name)), 24)}{made}", 12.5, True)]
        if len(node.outputs) == 1 and node.outputs[0] is not None:
            lines.append((text.tensor(node.outputs[0]), 10.5, False))
        line = place_words(found, member)
        line = "" if line == common_line(found) else line
        where = ", ".join(filter(None, (line, text.in_module(node.module))))
        lines += [(text.short(where, 34), 10.5, False)] if where else []
        lines += [(text.short(words, 34), 10.5, False) for words in edge_words(found, member, drawn=True)[:3]]
        tile = Tile(member.sign, lines, pills_of(found, member), "\n".join(member_fields(found, run[0])), run, block)
    measure(tile)
    return tile


def pills_of(found: Difference, member: Member) -> list[Pill]:
    """What a node keeps, with signs; what stayed together, if it is much."""
    stayed = [k for k in member.kept if k.sign == "="]
    moved = [k for k in member.kept if k.sign != "="]
    if len(stayed) + len(moved) > MOST_PILLS or (len(stayed) > 2 and moved):
        pills = [Pill(k.sign, k.words, k.alive) for k in moved[:MOST_PILLS]]
        rest = len(moved) - len(pills)
        pills += [Pill("≠", f"and {rest:,} more that changed")] if rest else []
        alive = all(k.alive for k in stayed)
        return pills + ([Pill("=", f"keeps {text.plural(len(stayed), 'tensor')} as before", alive)] if stayed else [])
    return [Pill(k.sign, k.words, k.alive) for k in (*moved, *stayed)]


def measure(tile: Tile) -> None:
    main = max(width_of(words, size) for words, size, _ in tile.lines) + 22
    tall = LINE * len(tile.lines) + 12
    width = main
    if tile.pills:
        tile.pills = [replace(pill, words=text.short(pill.words, 72)) for pill in tile.pills]
        width = main + 12 + max(width_of(f"{pill.sign} {pill.words}", 10) for pill in tile.pills) + 24
        tall = max(tall, (PILL + 4) * len(tile.pills))
    tile.box = layout.Box(float(round(width)), float(round(tall)), float(round(main)))


def draw_tile(svg: Svg, tile: Tile, x: float, y: float) -> None:
    paint, box = PAINT[tile.sign], tile.box
    if tile.leaf and tile.sign == "=":
        paint = GRAPH["leaf"]
    fill = GRAPH["leaf"].fill if tile.lives else paint.fill
    svg.open(f"item {WORDS[tile.sign].replace(', ', '-')}", tile.title)
    dash, width = ("6 4" if tile.sign == "−" else ""), (1.3 if tile.sign == "=" else 2.2)
    svg.rect(
        x,
        y,
        box.main,
        box.height,
        fill=fill,
        line=paint.line,
        width=width,
        dash=dash,
        radius=3 if tile.leaf else 7,
    )
    top = y + (box.height - LINE * len(tile.lines)) / 2 + LINE - 4
    for words, size, bold in tile.lines:
        fill = paint.text if bold else SOFT if tile.sign == "=" else INK
        svg.text(x + box.main / 2, top, words, size=size, bold=bold, fill=fill, anchor="middle")
        top += LINE
    step = PILL + 4
    top = y + (box.height - step * len(tile.pills)) / 2 + 2
    left = x + box.main + 12
    for pill in tile.pills:
        sign, words = pill.sign, pill.words
        look = GRAPH["alive"] if pill.alive else GRAPH["live"] if sign in "=+" else GRAPH["packed"]
        edge = look.line if sign == "=" else PAINT[sign].line
        svg.open(f"kept {WORDS[sign].replace(', ', '-')}", words)
        svg.line(x + box.main, top + PILL / 2, left, top + PILL / 2, line=edge)
        wide = width_of(f"{sign} {words}", 10) + 18
        fill = "#ffffff" if sign == "−" else look.fill
        weight, dash = (1.2 if sign == "=" else 2.0), ("5 3" if sign == "−" else "")
        svg.rect(left, top, wide, PILL, fill=fill, line=edge, width=weight, dash=dash, radius=PILL / 2)
        svg.text(left + wide / 2, top + PILL / 2 + 3.6, f"{sign} {words}", size=10, anchor="middle")
        svg.close()
        top += step
    svg.close()


def arrows_of(found: Difference, tiles: list[Tile]) -> tuple[list[layout.Arrow], list[str]]:
    """Arrows between boxes; where several edges share one, it has a sign only if they all have that one."""
    home = {n: k for k, tile in enumerate(tiles) for n in tile.nodes}
    stands = found.folding.stands
    links: dict[tuple[int, int], set[str]] = {}
    for n, member in enumerate(found.members):
        head = home.get(stands[n])
        if head is None or member.node.leaf:
            continue
        for (feeding, _), sign in member.edges.items():
            tail = home.get(stands[feeding])
            # an arrow back is one from a repetition to the next: the frame says so
            if tail is not None and tail < head:
                links.setdefault((tail, head), set()).add(sign)
    arrows = [layout.Arrow(tail, head) for tail, head in links]
    return arrows, [signs.pop() if len(signs) == 1 else "=" for signs in links.values()]


def frames_of(found: Difference, tiles: list[Tile]) -> tuple[list[layout.Frame], list[str]]:
    frames, labels = [], []
    for b, block in enumerate(found.folding.blocks):
        inside = tuple(k for k, tile in enumerate(tiles) if tile.block == b)
        if inside:
            before, after = (
                sum(found.members[n].counted[side] for member in block.members for n in member if n is not None)
                for side in (0, 1)
            )
            label = f"{block.count:,} × {block.label}: keep together {text.exact(before)} → {text.exact(after)}"
            frames.append(layout.Frame(inside, width_of(label, FRAME_LABEL, mono=False) * 1.05 + 8, 18.0))
            labels.append(label)
    return frames, labels


def draw_legend(svg: Svg, tiles: list[Tile], signs: list[str], y: float, width: float) -> float:
    there = {tile.sign for tile in tiles} | {pill.sign for tile in tiles for pill in tile.pills} | set(signs)
    svg.open("legend")
    svg.line(MARGIN, y, width - MARGIN, y, line=FRAME)
    x = MARGIN
    for sign, words in WORDS.items():
        if sign not in there:
            continue
        paint = PAINT[sign]
        dash = "3 2" if sign == "−" else ""
        words += " (from the graph)" * (sign == "−" and any(tile.lives for tile in tiles))
        svg.rect(x, y + 9, 26, 16, fill=paint.fill, line=paint.line, width=1.6, dash=dash, radius=4)
        svg.text(x + 13, y + 21, sign, size=12, bold=True, fill=paint.text, anchor="middle")
        svg.text(x + 33, y + 21, words, size=11, mono=False, fill=SOFT)
        x += 33 + width_of(words, 11, mono=False) + 22
    alive = {pill.alive for tile in tiles for pill in tile.pills}
    for name, words, there in (
        ("live", "kept for backward", False in alive),
        ("alive", "kept, but alive anyway", True in alive),
    ):
        if there:
            svg.rect(x, y + 9, 26, 16, fill=GRAPH[name].fill, line=GRAPH[name].line, radius=8)
            svg.text(x + 33, y + 21, words, size=11, mono=False, fill=SOFT)
            x += 33 + width_of(words, 11, mono=False) + 22
    svg.close()
    return y + 38


# ------------------------------------------------------------------------------------------------ too many to draw


def draw_counts(found: Difference, title: str, lead: str) -> str:
    """Every kind of operation with how many went, appeared and stayed, and what they keep in both."""
    counts: dict[str, Counter] = {}
    for member in found.members:
        node = member.node
        name = "leaves" if node.leaf else text.operation(text.quoted(node.name))
        mine = counts.setdefault(name, Counter())
        mine["=" if member.sign == "≠" else member.sign] += 1
        mine["≠"] += member.sign == "≠"
        mine["was"] += member.counted[0]
        mine["now"] += member.counted[1]
    rows = sorted(counts.items(), key=lambda row: (-row[1]["−"] - row[1]["+"] - row[1]["≠"], -row[1].total(), row[0]))
    shown, rest = (rows, []) if len(rows) <= 40 else (rows[:39], rows[39:])
    if rest:
        shown = [*shown, (f"{len(rest)} other kinds", sum((mine for _, mine in rest), Counter()))]
    svg = Svg()
    width = 760.0
    more = "Too large to draw node by node: every kind of operation, with how many stayed, went and appeared."
    y = draw_head(svg, width, title, lead, more) + 12
    columns = (("=", 330, "= stayed"), ("≠", 405, "≠ changed"), ("−", 470, "− went"), ("+", 545, "+ appeared"))
    svg.text(MARGIN, y, "operation", size=11, mono=False, fill=SOFT)
    for _, x, label in columns:
        svg.text(x, y, label, size=11, mono=False, fill=SOFT, anchor="end")
    svg.text(width - MARGIN, y, "bytes kept", size=11, mono=False, fill=SOFT, anchor="end")
    svg.line(MARGIN, y + 7, width - MARGIN, y + 7, line=FRAME)
    for name, mine in shown:
        y += 22
        svg.open("row", name)
        svg.text(MARGIN, y, text.short(name, 34), size=11.5, bold=True)
        for sign, x, _ in columns:
            if mine[sign]:
                bold = sign != "="
                svg.text(x, y, f"{mine[sign]:,}", size=11.5, bold=bold, fill=PAINT[sign].text, anchor="end")
        both = text.exact(mine["was"])
        if mine["was"] != mine["now"]:
            both += f" → {text.exact(mine['now'])}"
        kept = CATEGORY["kept for backward"].text
        svg.text(width - MARGIN, y, both, size=11, anchor="end", fill=kept if mine["was"] + mine["now"] else SOFT)
        svg.close()
    return svg.finish(width, y + 24, title)
