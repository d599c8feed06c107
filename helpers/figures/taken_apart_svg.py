"""The drawing of a run taken apart: a spine of steps, and beside each what it keeps, as bars on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import ledger, text
from .draw import Svg, num, width_of
from .palette import ALERT, CATEGORY, FAINT, FRAME, GRAPH, INK, SOFT, Paint
from .taken_apart_steps import Apart, Chip, Entry, Step, Tier
from .view import all_rows, block_bytes, block_words, counts_of, flags_of

WIDTH, MARGIN = 900.0, 20.0
SPINE, SPINE_WIDTH = 76.0, 344.0
CENTRE = SPINE + SPINE_WIDTH / 2
BARS, ROOM = 474.0, 400.0  # where bars begin, and how long the longest is
BESIDE = 10.0  # between boxes side by side
GAP = 26.0  # between tiers
LINE, CHIP, ROW, BAR = 15.0, 19.0, 37.0, 13.0
RADIUS = 13.0  # of a sum's circle
SMALL = 11.0  # the least size of text
LEFT_LANES, RIGHT_LANES, LANE = 4, 3, 11.0
FRAME_HEAD = 18.0
FOOT_BAR = 22.0


@dataclass
class Spot:
    """Where a step stands."""

    step: Step
    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> float:
        return self.x + self.width / 2


@dataclass
class Lane:
    """A line beside the spine, from below one tier to the sides of later ones."""

    tail: Step
    heads: list[int]  # steps
    right: bool
    place: int = -1  # 0 is next to the spine; -1 has no room


@dataclass
class Plan:
    spots: dict[int, Spot] = field(default_factory=dict)
    tier_of: dict[int, int] = field(default_factory=dict)
    tops: list[float] = field(default_factory=list)
    bottoms: list[float] = field(default_factory=list)
    lanes: list[Lane] = field(default_factory=list)
    said: dict[int, list[int]] = field(default_factory=dict)  # step → steps that feed it by no line
    frames: list[tuple[float, float, str]] = field(default_factory=list)
    same: set[int] = field(default_factory=set)  # steps of the line of code that the box before shows


def draw(apart: Apart, title: str) -> str:
    """The whole picture, 900 units wide."""
    svg = Svg()
    y = draw_head(svg, apart, title)
    scale = scale_of(apart)
    plan = planned(apart, y + 34)
    bottom = max((b for b in plan.bottoms), default=y) + (
        14 if plan.frames and apart.tiers[-1].block is not None else 0
    )
    draw_axis(svg, scale, y + 18, bottom + 8)
    for top, low, label in plan.frames:
        paint = GRAPH["module"]
        svg.rect(
            10, top, WIDTH - 20, low - top, fill="none", line=paint.line, dash="6 4", width=1.3, radius=9, css="frame"
        )
        for i, part in enumerate(frame_lines(label)):
            svg.rect(BARS, top + 8 + 16 * i, width_of(part, 12, mono=False) * 1.06 + 4, 16, fill="#ffffff")
            svg.text(BARS + 2, top + 20 + 16 * i, part, size=12, bold=True, mono=False, fill=paint.text)
    for i in range(len(apart.tiers)):
        draw_arrows(svg, apart, plan, i)
    for ground in (True, False):  # the grounds of all lanes under all of their lines
        for lane in plan.lanes:
            draw_lane(svg, plan, lane, ground=ground)
    for i, tier in enumerate(apart.tiers):
        for step in tier.steps:
            draw_step(svg, plan, step)
        draw_entries(svg, apart, plan, tier, i, scale)
    y = draw_foot(svg, apart, bottom + 26)
    y = draw_legend(svg, apart, y + 16)
    return svg.finish(WIDTH, y, title)


def draw_head(svg: Svg, apart: Apart, title: str) -> float:
    y = 34.0
    svg.open("head")
    svg.text(MARGIN, y, title, size=18, bold=True, mono=False)
    y += 22
    view = apart.view
    device = f" All tensors are on {view.device}." if view.device else ""
    steps = text.plural(len(apart.steps), "step")
    words = f"{counts_of(view)}, drawn as {steps}. {ledger.heading(all_rows(view))}.{device}"
    for sentence in (words, *(f"{flag[0].upper()}{flag[1:]}." for flag in flags_of(view))):
        for part in text.wrapped(sentence, WIDTH - 2 * MARGIN, lambda t: width_of(t, 12, mono=False)):
            svg.text(MARGIN, y, part, size=12, mono=False, fill=SOFT)
            y += 18
    svg.close()
    return y


def scale_of(apart: Apart) -> float:
    """Units of the drawing for one byte: the longest bar fills its room."""
    longest = max((entry.length for tier in apart.tiers for entry in tier.entries), default=0)
    return ROOM / longest if longest else 0.0


def ticks_of(scale: float) -> list[int]:
    """Round numbers of bytes along the room, at most five."""
    if not scale:
        return [0]
    most, step = ROOM / scale, 1
    while most / step > 5:
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    return list(range(0, int(most) + 1, step))


def draw_axis(svg: Svg, scale: float, y: float, bottom: float) -> None:
    """The scale of bytes, above the bars, with a quiet line down from each of its numbers."""
    svg.open("axis")
    right = 0.0
    for tick in ticks_of(scale):
        x = BARS + tick * scale
        svg.line(x, y + 6, x, bottom, line=FRAME if tick else FAINT, width=0.8, css="grid")
        words = text.human(tick).replace(".00 ", " ").replace(".0 ", " ") if tick else "0"
        wide = width_of(words, SMALL)
        left = min(max(x - wide / 2, BARS), BARS + ROOM - wide)
        if left > right:
            svg.text(left, y, words, size=SMALL, fill=SOFT)
            right = left + wide + 6
    svg.text(SPINE, y, "operations, in the order of forward", size=SMALL, mono=False, fill=SOFT)
    svg.text(BARS, y - 17, "what each keeps for backward, to scale", size=SMALL, mono=False, fill=SOFT)
    svg.close()


# ------------------------------------------------------------------------------------------------------------ places


def planned(apart: Apart, y: float) -> Plan:
    plan = Plan()
    for i, tier in enumerate(apart.tiers):
        for step in tier.steps:
            plan.tier_of[step.number] = i
    shown = ""  # the code of the box before
    for tier in apart.tiers:
        code = tier.steps[0].code if len(tier.steps) == 1 and not tier.steps[0].is_sum else ""
        if code and code == shown:
            plan.same.add(tier.steps[0].number)
        shown = code
    plan.lanes, plan.said = lanes_of(apart, plan)
    open_frame, block = None, None
    for tier in apart.tiers:
        if tier.block != block:
            if open_frame is not None:
                plan.frames.append((*open_frame[:1], plan.bottoms[-1] + 14, open_frame[1]))
                y += 24
            open_frame = None
            if tier.block is not None:
                open_frame = (y, frame_words(apart, tier.block))
                y += FRAME_HEAD + 16 * len(frame_lines(open_frame[1]))
            block = tier.block
        wide = (SPINE_WIDTH - BESIDE * (len(tier.steps) - 1)) / len(tier.steps)
        y += 22 if any(stub_above(step) for step in tier.steps) else 0
        heights = [height_of(step, plan, wide) for step in tier.steps]
        tall = max(*heights, height_of_entries(apart, tier), 0.0)
        box = max(heights)
        for k, step in enumerate(tier.steps):
            plan.spots[step.number] = Spot(step, SPINE + k * (wide + BESIDE), y + (tall - box) / 2, wide, box)
        plan.tops.append(y)
        plan.bottoms.append(y + tall)
        y += tall + GAP
    if open_frame is not None:
        plan.frames.append((open_frame[0], plan.bottoms[-1] + 14, open_frame[1]))
    return plan


def frame_words(apart: Apart, block: int) -> str:
    found = apart.folding.blocks[block]
    drawn = f"; {text.quoted(found.home)} is drawn" if found.home and found.shown else ""
    keep = text.both(block_bytes(apart.view, found))
    return f"{found.count:,} × {block_words(apart.view, found)}{drawn}; together they keep {keep}"


def frame_lines(label: str) -> list[str]:
    return text.wrapped(label, ROOM - 4, lambda t: 1.06 * width_of(t, 12, mono=False))[:3]


def lanes_of(apart: Apart, plan: Plan) -> tuple[list[Lane], dict[int, list[int]]]:
    """A lane for each step that feeds others than the next tier; what finds no room is said in the box it leads to."""
    far: dict[int, list[int]] = {}
    for step in apart.steps.values():
        for tail in step.feeding:
            if plan.tier_of[step.number] - plan.tier_of[tail] > 1:
                far.setdefault(tail, []).append(step.number)
    lanes = []
    for tail, heads in far.items():
        tier = apart.tiers[plan.tier_of[tail]].steps
        narrow = [h for h in heads if len(apart.tiers[plan.tier_of[h]].steps) > 1]
        right = len(tier) > 1 and tier[0].number != tail
        lanes.append(Lane(apart.steps[tail], heads, right))
        if narrow:  # only the outermost box of a tier has a free side
            edge = -1 if right else 0
            free = [h for h in narrow if apart.tiers[plan.tier_of[h]].steps[edge].number == h]
            lanes[-1].heads = [h for h in heads if h not in narrow or h in free]
    said: dict[int, list[int]] = {}
    taken: dict[tuple[bool, int], list[tuple[int, int]]] = {}

    def reach(lane: Lane) -> tuple[int, int]:
        return plan.tier_of[lane.tail.number], max((plan.tier_of[h] for h in lane.heads), default=-1)

    for lane in sorted(lanes, key=lambda lane: (reach(lane)[1] - reach(lane)[0], lane.tail.number)):
        first, last = reach(lane)
        for place in range(RIGHT_LANES if lane.right else LEFT_LANES):
            spans = taken.setdefault((lane.right, place), [])
            if lane.heads and all(last < a or b <= first for a, b in spans):
                spans.append((first, last))
                lane.place = place
                break
    for lane in lanes:
        shown = lane.heads if lane.place >= 0 else []
        for head in far[lane.tail.number]:
            if head not in shown:
                said.setdefault(head, []).append(lane.tail.number)
    return [lane for lane in lanes if lane.place >= 0], said


def stub_above(step: Step) -> bool:
    return bool(step.inputs) and not step.feeding and not step.is_sum


# ------------------------------------------------------------------------------------------------------------- steps


def words_of(step: Step, plan: Plan, width: float = SPINE_WIDTH) -> list[str]:
    """What stands under a box's title."""
    out = [step.under] if step.under else []
    if out and narrow(width):
        out = step.under.split(", ")
    if step.names:
        out.append("→ " + ", ".join(step.names) + (f"  {step.shape}" if step.shape else ""))
    elif step.shape:
        out.append(f"→ {step.shape}")
    if plan.said.get(step.number):
        numbers = plan.said[step.number]
        out.append("also from " + ", ".join(map(str, numbers[:6])) + (" …" if len(numbers) > 6 else ""))
    out += step.notes
    if step.code and not narrow(width) and not step.is_sum:
        room = (0.5 if step.chips else 1) * SPINE_WIDTH - 18
        out += ["on the same line"] if step.number in plan.same else code_lines(step.code, room)
    if step.root:
        out.append("backward starts here")
    if step.kind in ("custom", "edge", "pruned"):
        words = {"custom": "custom Function", "edge": "compiled or unknown", "pruned": "not needed by this pass"}
        out.append(words[step.kind])
    return out


def code_lines(code: str, room: float) -> list[str]:
    """A line of code in two lines, as much of it as there is room for."""
    most = int(room / width_of("0", SMALL))
    lines = text.wrapped(code, most)
    out = [line if len(line) <= most else line[: most - 1] + "…" for line in lines[:2]]
    return out if len(lines) <= 2 else [out[0], out[1][: most - 2] + " …"]


MOST_CHIPS = 4


def chip_words(chip: Chip) -> str:
    times = f" × {chip.times:,}" if chip.times > 1 else ""
    return f"{text.short_name(chip.name, 22)} {text.shape(chip.shape)}{times}"


def chips_shown(step: Step) -> list[tuple[str, Chip]]:
    """Each chip's words; beyond MOST_CHIPS the others in one."""
    chips = list(step.chips)
    if len(chips) <= MOST_CHIPS:
        return [(chip_words(chip), chip) for chip in chips]
    rest = chips[MOST_CHIPS - 1 :]
    more = (f"{len(rest):,} more", rest[0])
    return [(chip_words(chip), chip) for chip in chips[: MOST_CHIPS - 1]] + [more]


def chip_lines(words: str, width: float) -> list[str]:
    """A chip's words in two lines where one has no room for them."""
    name, _, shape = words.partition(" ")
    return [name, shape] if shape and narrow(width) and width_of(words, SMALL) > width - 10 else [words]


def chips_height(step: Step, width: float) -> float:
    return sum(CHIP + 13 * (len(chip_lines(words, width)) - 1) for words, _ in chips_shown(step))


def narrow(width: float) -> bool:
    return width < SPINE_WIDTH


def height_of(step: Step, plan: Plan, width: float) -> float:
    if step.is_sum:
        return max(2 * RADIUS, LINE * (1 + len(words_of(step, plan))) + 2)
    lines = 1 + len(words_of(step, plan, width))
    chips = len(chips_shown(step))
    if narrow(width):
        return 12 + lines * LINE + chips_height(step, width) + (8 if chips else 0)
    return max(12 + lines * LINE, 11 + chips * CHIP)


def draw_step(svg: Svg, plan: Plan, step: Step) -> None:
    spot = plan.spots[step.number]
    paint = GRAPH[step.kind if step.kind in GRAPH else "operation"]
    title = f"[{step.number}] {step.title}" + (f": {step.under}" if step.under else "")
    svg.open(f"step {step.kind}", title, nodes=" ".join(map(str, step.nodes)) if len(step.nodes) <= 60 else None)
    if step.is_sum:
        draw_sum(svg, plan, spot, step, paint)
        svg.close()
        return
    if stub_above(step):
        svg.arrow(
            [(spot.centre, spot.y - 24), (spot.centre, spot.y - 16), (spot.centre, spot.y - 6), (spot.centre, spot.y)],
            line=FAINT,
            dash="3 3",
            css="edge",
        )
        words = free_words(step, SPINE_WIDTH / 2 - 12)
        svg.text(spot.centre + 9, spot.y - 10, words, size=SMALL, mono=False, fill=SOFT)
    dash = "4 3" if step.kind == "pruned" else ""
    svg.rect(
        spot.x,
        spot.y,
        spot.width,
        spot.height,
        fill=paint.fill,
        line=paint.line,
        width=1.2,
        radius=7,
        dash=dash,
        css="box",
    )
    chips = chips_shown(step)
    inner = spot.width - 18
    reserve = 0.0
    if chips and not narrow(spot.width):
        reserve = min(max(width_of(words, SMALL) for words, _ in chips) + 12, 0.62 * inner) + 8
    room = inner - reserve
    draw_words(svg, step, words_of(step, plan, spot.width), spot.x + 10, spot.y + 6, room)
    wide = inner + 10 if narrow(spot.width) else reserve - 8
    x = spot.x + (4 if narrow(spot.width) else spot.width - wide - 7)
    lines = 1 + len(words_of(step, plan, spot.width))
    y = spot.y + 11 + lines * LINE if narrow(spot.width) else spot.y + (spot.height - len(chips) * CHIP) / 2 + 1.5
    for words, chip in chips:
        lines = chip_lines(words, spot.width)
        draw_chip(svg, chip, lines, x, y, wide)
        y += CHIP + 13 * (len(lines) - 1)
    svg.close()


def draw_words(svg: Svg, step: Step, lines: Sequence[str], x: float, y: float, room: float) -> None:
    number = str(step.number)
    svg.text(x, y + 12, number, size=SMALL, fill=SOFT)
    indent = width_of(number, SMALL) + 7
    svg.text(x + indent, y + 12, fit(step.title, room - indent, 13, bold=True), size=13, bold=True)
    for i, words in enumerate(lines):
        size = SMALL
        bold = words == "backward starts here"
        fill = GRAPH["root"].text if bold else SOFT
        svg.text(x, y + 12 + LINE * (i + 1), fit(words, room, size), size=size, bold=bold, fill=fill)


def fit(words: str, room: float, size: float, *, bold: bool = False) -> str:
    """A text cut so that it fits."""
    each = width_of("0", size) * (1.04 if bold else 1.0)
    if width_of(words, size) * (1.04 if bold else 1.0) <= room:
        return words
    return text.short_name(words, max(int(room / each), 3))


def free_words(step: Step, room: float) -> str:
    """ "x: needs no gradient"."""
    names, rest = ", ".join(name for name in step.inputs if name), "needs no gradient"
    left = room - width_of(f": {rest}", SMALL, mono=False)
    return f"{fit(names, left, SMALL)}: {rest}" if names else rest


def draw_sum(svg: Svg, plan: Plan, spot: Spot, step: Step, paint: Paint) -> None:
    cy = spot.y + spot.height / 2
    if step.inputs:
        words = free_words(step, CENTRE - RADIUS - SPINE - 8)
        svg.text(SPINE + 2, cy - 6, words, size=SMALL, mono=False, fill=SOFT)
        svg.arrow(
            [(SPINE, cy), (SPINE + 20, cy), (CENTRE - RADIUS - 20, cy), (CENTRE - RADIUS, cy)],
            line=FAINT,
            dash="3 3",
            css="edge",
        )
    svg.ellipse(CENTRE, cy, RADIUS, RADIUS, fill="#ffffff", line=paint.line, width=1.4, css="box")
    svg.path(f"M{num(CENTRE - 7)} {num(cy)}h14M{num(CENTRE)} {num(cy - 7)}v14", line=INK, width=1.6)
    lines = words_of(step, plan)
    draw_words(
        svg, step, lines, CENTRE + RADIUS + 10, cy - LINE * (1 + len(lines)) / 2 - 1, SPINE_WIDTH / 2 - RADIUS - 12
    )


def draw_chip(svg: Svg, chip: Chip, lines: Sequence[str], x: float, y: float, wide: float) -> None:
    paint = GRAPH["alive"] if chip.kept else GRAPH["parameter" if chip.kind == "parameter" else "leaf"]
    told = f"{chip.kind} {chip.name} {text.shape(chip.shape)}, {text.exact(chip.nbytes)}"
    told += ", kept too: alive anyway, not counted" if chip.kept else ""
    svg.open("chip kept" if chip.kept else "chip", told)
    svg.rect(
        x,
        y,
        wide,
        CHIP - 3 + 13 * (len(lines) - 1),
        fill=paint.fill,
        line=GRAPH["parameter"].line if chip.kept else paint.line,
        width=1.1,
        radius=4,
        dash="3 2" if chip.again else "",
    )
    for i, words in enumerate(lines):
        svg.text(x + wide / 2, y + 11.8 + 13 * i, fit(words, wide - 2, SMALL), size=SMALL, anchor="middle")
    svg.close()


# ------------------------------------------------------------------------------------------------------------ arrows


def anchor_y(spot: Spot, *, top: bool) -> float:
    if not spot.step.is_sum:
        return spot.y if top else spot.y + spot.height
    middle = spot.y + spot.height / 2
    return middle - RADIUS if top else middle + RADIUS


def draw_arrows(svg: Svg, apart: Apart, plan: Plan, i: int) -> None:
    """Arrows from the tier before to a tier."""
    for step in apart.tiers[i].steps:
        head = plan.spots[step.number]
        near = [tail for tail in step.feeding if plan.tier_of[tail] == i - 1]
        for tail in near:
            spot = plan.spots[tail]
            y1, y2 = anchor_y(spot, top=False), anchor_y(head, top=True)
            x1 = spot.centre if narrow(spot.width) else head.centre
            x2 = head.centre if narrow(head.width) or head.step.is_sum else x1
            if spot.step.is_sum:
                x1 = CENTRE
                x2 = head.centre
            middle = (y1 + y2) / 2
            svg.arrow([(x1, y1), (x1, middle), (x2, middle), (x2, y2)], line=SOFT, css="edge")


def draw_lane(svg: Svg, plan: Plan, lane: Lane, *, ground: bool) -> None:
    """A branch off a step's result, past other steps, into the sides of those that use it."""
    spot = plan.spots[lane.tail.number]
    i = plan.tier_of[lane.tail.number]
    y1 = plan.bottoms[i] + 8 + 3 * (lane.place % 3)
    side = SPINE + SPINE_WIDTH + 10 + LANE * lane.place if lane.right else SPINE - 14 - LANE * lane.place
    x1 = spot.centre
    turn = -6.0 if not lane.right else 6.0
    colour = SOFT
    low = max(lane.heads, key=lambda h: plan.spots[h].y)
    for head in [low, *(h for h in lane.heads if h != low)]:
        it = plan.spots[head]
        y2 = it.y + it.height / 2 if it.step.is_sum else it.y + min(0.3 * it.height, 14)
        x2 = it.x + it.width if lane.right else it.x
        if it.step.is_sum:
            x2 = CENTRE + (RADIUS if lane.right else -RADIUS)
        if head == low:
            start = anchor_y(spot, top=False)
            d = f"M{num(x1)} {num(start)}V{num(y1)}H{num(side - turn)}" + bend(side, y1, side, y1 + 6)
            d += f"V{num(y2 - 6)}" + bend(side, y2, side - turn, y2)
            if ground:
                svg.path(d, line="#ffffff", width=4.0, css="ground")
                return
            svg.path(d, line=colour, width=1.2, css="edge")
            svg.ellipse(x1, y1, 2.2, 2.2, fill=colour, line=colour)
        begin = side - turn if head == low else side
        svg.arrow([(begin, y2), (begin, y2), ((begin + x2) / 2, y2), (x2, y2)], line=colour, css="edge")


def bend(x1: float, y1: float, x2: float, y2: float) -> str:
    """A rounded corner at (x1, y1) that ends at (x2, y2)."""
    return f"Q{num(x1)} {num(y1)} {num(x2)} {num(y2)}"


# -------------------------------------------------------------------------------------------------------------- bars


def entry_lines(entry: Entry, scale: float) -> tuple[float, str]:
    """The height of an entry, and where its note stands: "beside" its bar, or "below"."""
    if not note_of(entry):
        return ROW, ""
    fits = entry.length * scale + 8 + width_of(note_of(entry), SMALL, mono=False) <= ROOM
    return (ROW, "beside") if fits else (ROW + LINE, "below")


def note_of(entry: Entry, apart: Apart | None = None, tier: Tier | None = None) -> str:
    return "; ".join(entry.notes)


def height_of_entries(apart: Apart, tier: Tier) -> float:
    scale = scale_of(apart)
    return sum(entry_lines(entry, scale)[0] for entry in told(apart, tier)) - (ROW - 29 if tier.entries else 0)


def told(apart: Apart, tier: Tier) -> list[Entry]:
    """A tier's entries with what must be said of them here: who keeps it, where it is counted."""
    from dataclasses import replace

    out = []
    for entry in tier.entries:
        notes = list(entry.notes)
        if len(tier.steps) > 1:
            names = [apart.steps[k].title for k in entry.keepers]
            if len(names) <= 4:
                many = ", counted once" if len(names) > 1 and entry.counts else ""
                notes.insert(
                    0, f"for {', '.join(names[:-1])} and {names[-1]}{many}" if len(names) > 1 else f"for {names[0]}"
                )
        if entry.state == "again" and entry.first is not None:
            notes.append(f"counted at {entry.first} {text.short(apart.steps[entry.first].title, 20)}")
        out.append(replace(entry, notes=tuple(notes)))
    return out


def bytes_words(entry: Entry) -> str:
    if entry.state == "again":
        return "0 B"
    counts = entry.counts
    if not counts:
        return "0 B"
    if len(set(counts)) == 1 and len(counts) > 1:
        return f"{text.exact(counts[0])} × {len(counts):,}"
    return text.exact(sum(counts))


def draw_entries(svg: Svg, apart: Apart, plan: Plan, tier: Tier, i: int, scale: float) -> None:
    top, bottom = plan.tops[i], plan.bottoms[i]
    entries = told(apart, tier)
    right = SPINE + SPINE_WIDTH
    middle = (top + bottom) / 2
    if not entries:
        svg.rect(BARS + 4, middle - 9, width_of("keeps nothing", SMALL, mono=False) + 6, 17, fill="#ffffff")
        svg.text(BARS + 7, middle + 4, "keeps nothing", size=SMALL, mono=False, fill=SOFT, italic=True)
        return
    tall = sum(entry_lines(entry, scale)[0] for entry in entries) - (ROW - 29)
    y = top + (bottom - top - tall) / 2
    region = GRAPH["region"]
    start = right if not tier.steps[-1].is_sum else CENTRE + RADIUS
    spot = plan.spots[tier.steps[-1].number]
    at = spot.y + spot.height / 2
    svg.line(start, at, BARS - 6, at, line=region.line, width=1.1, css="tie")
    svg.line(BARS - 6, y, BARS - 6, max(y + tall, at), line=region.line, width=1.6, css="tie")
    for entry in entries:
        draw_entry(svg, entry, y, scale)
        y += entry_lines(entry, scale)[0]


def draw_entry(svg: Svg, entry: Entry, y: float, scale: float) -> None:
    paint = GRAPH[entry.state]
    title = f"{entry.label}, {entry.form}: {bytes_words(entry)}" + (f"; {note_of(entry)}" if note_of(entry) else "")
    svg.open(f"entry {entry.state.replace(' ', '-')}", title, bytes=entry.counted, length=entry.length)
    size = bytes_words(entry)
    end = BARS + ROOM
    wide = width_of(size, SMALL)
    room = ROOM - wide - 12
    label = fit(entry.label, room * 0.52, SMALL, bold=True)
    span = width_of(label, SMALL) * 1.04 + 9
    form = fit(entry.form, room - span, SMALL) if entry.form else ""
    for x, w in ((BARS + 2, span - 9), (BARS + span, width_of(form, SMALL)), (end - wide, wide)):
        if w:
            svg.rect(x - 1, y, w + 2, 14, fill="#ffffff")
    svg.text(BARS + 2, y + 11, label, size=SMALL, bold=True)
    if form:
        svg.text(BARS + span, y + 11, form, size=SMALL, fill=SOFT)
    svg.text(end, y + 11, size, size=SMALL, bold=bool(entry.counts), anchor="end", fill=INK if entry.counts else SOFT)
    draw_bar(svg, entry, BARS, y + 16, BAR, entry.length * scale, paint)
    note = note_of(entry)
    if note:
        below = entry_lines(entry, scale)[1] == "below"
        x = BARS + 2 if below else BARS + entry.length * scale + 7
        fill = ALERT if entry.state == "changed in place" else SOFT
        words = note if width_of(note, SMALL, mono=False) <= ROOM - (x - BARS) else text.short(note, 60)
        svg.rect(x - 2, y + 15 + (LINE if below else 0), width_of(words, SMALL, mono=False) + 4, 14, fill="#ffffff")
        svg.text(x, y + 26.5 + (LINE if below else 0), words, size=SMALL, mono=False, fill=fill, italic=True)
    svg.close()


def draw_bar(svg: Svg, entry: Entry, x: float, y: float, tall: float, wide: float, paint: Paint) -> None:
    """A bar of `wide` units; a line where that is too thin to see, parted where it stands for repetitions."""
    if wide <= 0:
        return
    if wide < 1:
        svg.line(x, y, x, y + tall, line=paint.line, width=1.6, css="thin")
        return
    dash = "" if entry.counts else "3 2"
    svg.parts.append(
        f'<rect x="{num(x)}" y="{num(y)}" width="{num(wide)}" height="{num(tall)}" fill="{paint.fill}" '
        f'stroke="{paint.line}" stroke-width="1"' + (f' stroke-dasharray="{dash}"' if dash else "") + ' class="bar"/>'
    )
    if entry.mask and entry.counts:
        hatched(svg, x, y, wide, tall, CATEGORY["kept for backward"].line)
    n = len(entry.counts)
    if n > 1 and wide / n >= 4 and len(set(entry.counts)) == 1:
        d = "".join(f"M{num(x + wide * k / n)} {num(y)}v{num(tall)}" for k in range(1, n))
        svg.path(d, line=paint.line, width=0.7)


def hatched(svg: Svg, x: float, y: float, wide: float, tall: float, colour: str, gap: float = 6.0) -> None:
    """Lines that rise to the right, cut at the bar's edges."""
    parts = []
    start = gap / 2 - tall
    while start < wide:
        a, b = max(start, 0.0), min(start + tall, wide)
        if b - a > 0.8:
            parts.append(f"M{num(x + a)} {num(y + tall - (a - start))}L{num(x + b)} {num(y + tall - (b - start))}")
        start += gap
    if parts:
        svg.path("".join(parts), line=colour, width=0.8, css="hatch")


# -------------------------------------------------------------------------------------------------------------- foot


def draw_foot(svg: Svg, apart: Apart, y: float) -> float:
    """All bars end to end, and the parameters beside them, on one scale of their own."""
    wide = WIDTH - 2 * MARGIN
    largest = max(apart.total, apart.parameters)
    svg.open("foot")
    svg.line(MARGIN, y - 12, WIDTH - MARGIN, y - 12, line=FRAME)
    y += 12
    svg.text(MARGIN, y, "All of it, end to end", size=13, bold=True, mono=False)
    svg.text(WIDTH - MARGIN, y, text.both(apart.total), size=13, bold=True, anchor="end")
    y += 8 if apart.total else -FOOT_BAR
    x, scale = MARGIN, wide / largest if largest else 0.0
    paint = GRAPH["live"]
    if apart.total:
        svg.rect(x, y, apart.total * scale, FOOT_BAR, fill=paint.fill)
    for entry in (entry for tier in apart.tiers for entry in tier.entries):
        w = entry.counted * scale
        if w and entry.mask:
            hatched(svg, x, y, w, FOOT_BAR, CATEGORY["kept for backward"].line)
        x += w
    x, edges = MARGIN, []
    for tier in apart.tiers:
        w = sum(entry.counted for entry in tier.entries) * scale
        name = ", ".join(step.title for step in tier.steps)
        if w > width_of(name, SMALL) + 8:
            if any(entry.mask for entry in tier.entries):
                svg.rect(
                    x + w / 2 - width_of(name, SMALL) / 2 - 3, y + 4, width_of(name, SMALL) + 6, 14, fill=paint.fill
                )
            svg.text(x + w / 2, y + 15, name, size=SMALL, anchor="middle")
        x += w
        if w > 2:
            edges.append(f"M{num(x)} {num(y)}v{num(FOOT_BAR)}")
    if edges:
        svg.path("".join(edges[:-1]) or edges[0], line=paint.line, width=0.8)
    if apart.total * scale:
        svg.rect(MARGIN, y, apart.total * scale, FOOT_BAR, fill="none", line=paint.line, width=1.2, css="total")
    y += FOOT_BAR
    if apart.parameters:
        y += 26
        svg.text(MARGIN, y, "The parameters, on the same scale", size=13, bold=True, mono=False)
        svg.text(WIDTH - MARGIN, y, text.both(apart.parameters), size=13, bold=True, anchor="end")
        y += 8
        look = GRAPH["parameter"]
        svg.rect(
            MARGIN, y, apart.parameters * scale, FOOT_BAR, fill=look.fill, line=look.line, width=1.2, css="parameters"
        )
        y += FOOT_BAR + 22
        svg.text(MARGIN, y, ratio_words(apart), size=13, bold=True, mono=False)
    svg.close()
    return y


def ratio_words(apart: Apart) -> str:
    return f"kept ÷ parameters = {ratio(apart)}"


def ratio(apart: Apart) -> str:
    return f"{apart.total / apart.parameters:.4g}"


def draw_legend(svg: Svg, apart: Apart, y: float) -> float:
    entries = [entry for tier in apart.tiers for entry in tier.entries]
    chips = [chip for step in apart.steps.values() for chip in step.chips]
    states = {entry.state for entry in entries if entry.length}
    scale = scale_of(apart)
    words = [
        ("live", "kept for backward", "live" in states),
        ("mask", "dropout's mask", any(entry.mask and entry.counts for entry in entries)),
        ("again", "memory counted at another step", "again" in states),
        ("packed", "packed by a hook", "packed" in states),
        ("released", "released", "released" in states),
        ("changed in place", "changed in place", "changed in place" in states),
        ("thin", "too little for this scale", any(0 < entry.length * scale < 1 for entry in entries)),
        ("parameter", "parameter", any(c.kind == "parameter" and not c.kept for c in chips)),
        ("leaf", "leaf", any(c.kind == "leaf" and not c.kept for c in chips)),
        ("alive", "kept too, but alive anyway: not counted", any(c.kept for c in chips)),
    ]
    svg.open("legend")
    svg.line(MARGIN, y, WIDTH - MARGIN, y, line=FRAME)
    x, y = MARGIN, y + 20
    for kind, label, there in words:
        if not there:
            continue
        wide = 31 + width_of(label, SMALL, mono=False) + 16
        if x > MARGIN and x + wide - 16 > WIDTH - MARGIN:
            x, y = MARGIN, y + 20
        if kind == "thin":
            svg.line(x + 12, y - 10, x + 12, y + 1, line=GRAPH["live"].line, width=1.6)
        else:
            paint = GRAPH["live" if kind == "mask" else kind]
            line = GRAPH["parameter"].line if kind == "alive" else paint.line
            dash = "3 2" if kind in ("again", "packed", "released") else ""
            svg.rect(
                x,
                y - 10,
                24,
                11,
                fill=paint.fill,
                line=line,
                dash=dash,
                radius=4 if kind in ("parameter", "leaf", "alive") else 0,
            )
            if kind == "mask":
                hatched(svg, x, y - 10, 24, 11, CATEGORY["kept for backward"].line)
        svg.text(x + 31, y, label, size=SMALL, mono=False, fill=SOFT)
        x += wide
    svg.close()
    return y + 16
