"""The run taken apart: operations from top to bottom as forward ran, and beside each what it keeps, to scale.

Operations become steps: views, copies and factors stand with the operation that they serve, equal ones that share an
input stand side by side, and blocks that repeat are drawn once. Every bar is on one scale, and all together are the
ledger's total. What finds no room in the picture is said in it: as a number, a count, or a sum.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from helpers.data import Recording

from . import ledger, text
from .bundle import Figure, figure_of
from .graph import FOLD_FROM, nothing
from .order import fold
from .taken_apart_steps import Apart, Entry, take_apart
from .taken_apart_svg import bytes_words, chip_words, draw, ratio_words, told
from .view import View, all_rows, block_bytes, block_words, counts_of, flags_of, numbered, trigger_words, view_of


@dataclass(frozen=True, repr=False)
class TakenApartFigure(Figure):
    """A run taken apart. nbytes: the sum of its bars; parameters: bytes of the parameters alive, each storage once."""

    nbytes: int = 0
    parameters: int = 0


def taken_apart_figure(recording: Recording, graph: int = 0, moment: int | None = None) -> Figure:
    """`recording.graphs[graph]` as steps with what each keeps after event `moment`, and its text twin, a table.

    moment: an event's index; None for the moment the graph was captured. Raises IndexError if there are graphs, but
    none of that number.
    """
    if not recording.graphs:
        return nothing(recording)
    view = view_of(recording, numbered(recording, graph), moment)
    operations = sum(not recording.nodes[n].leaf for n in view.ordered)
    apart = take_apart(view, fold(recording, view.ordered, wanted=operations > FOLD_FROM))

    def whole() -> str:
        return twin_of(
            take_apart(view, fold(recording, view.ordered, wanted=False), most=sys.maxsize, entries=sys.maxsize)
        )

    nbytes = sum(entry.counted for tier in apart.tiers for entry in tier.entries)
    return figure_of(
        title_of(view),
        twin_of(apart),
        alt_of(apart),
        draw(apart, title_of(view)),
        TakenApartFigure,
        nbytes=nbytes,
        parameters=apart.parameters,
        whole=whole,
    )


def title_of(view: View) -> str:
    n = len(view.recording.graphs)
    which = f", graph {view.graph.id + 1} of {n}" if n > 1 else ""
    return f"The run taken apart{which}, {trigger_words(view)}"


def twin_of(apart: Apart) -> str:
    """The picture's rows as a table, with exact bytes."""
    view = apart.view
    lines = [f"{title_of(view)}: {counts_of(view)}, as {text.plural(len(apart.steps), 'step')}"]
    lines.append(ledger.heading(all_rows(view)))
    lines += [f"{flag[0].upper()}{flag[1:]}." for flag in flags_of(view)]
    for b, block in enumerate(apart.folding.blocks):
        numbers = [step.number for step in apart.steps.values() if step.block == b]
        lines.append(
            f"Folded: [{min(numbers)}] to [{max(numbers)}] stand for {block.count:,} times the same: "
            f"{block_words(view, block)}; together they keep {text.exact(block_bytes(view, block))}."
        )
    rows: list[list[str]] = []
    code: dict[int, str] = {}  # row → the line of code before it
    for tier in apart.tiers:
        entries = told(apart, tier)
        for step in tier.steps:
            feeding = ", ".join(f"[{n}]" for n in step.feeding)
            free = [f"{name or 'an input'} without gradient" for name in step.inputs]
            sources = ", ".join(filter(None, [feeding, *free]))
            made = " → ".join(filter(None, [", ".join(step.names), step.shape]))
            more = "; ".join(filter(None, [step.under, *step.notes, "backward starts here" if step.root else ""]))
            name = f"[{step.number}] {step.title}" + (f" ({more})" if more else "")
            rows.append([name, f"from {sources}" if sources else "", made, "", ""])
            if step.code:
                code[len(rows)] = f"      code {text.value(step.code)}"
            for chip in step.chips:
                kept = "kept too, alive anyway: not counted" if chip.kept else ""
                kept += (", " if kept else "") + "shown before" if chip.again else ""
                rows.append([f"    {chip.kind} {chip_words(chip)}", "", "", f"({text.exact(chip.nbytes)})", kept])
        rows += [entry_row(entry) for entry in entries]
        if not entries:
            rows.append(["    keeps nothing", "", "", text.exact(0), ""])
    rows.append(["Together", "", "", text.exact(apart.total), ""])
    if apart.parameters:
        rows.append(["Parameters", "", "", text.exact(apart.parameters), ratio_words(apart)])
    for i, line in enumerate(text.aligned(rows, right=frozenset({3}))):
        lines += [code[i], line] if i in code else [line]
    return "\n".join([*lines, *(f"Note: {note}" for note in view.recording.notes)])


def entry_row(entry: Entry) -> list[str]:
    mask = "mask, " if entry.mask and entry.label != "dropout mask" else ""
    note = mask + "; ".join(entry.notes)
    many = f" = {text.exact(entry.counted)}" if len(entry.counts) > 1 else ""
    return [
        f"    keeps {entry.label}",
        "",
        entry.form,
        bytes_words(entry) + (many if "×" in bytes_words(entry) else ""),
        note,
    ]


def alt_of(apart: Apart) -> str:
    """The picture in sentences: how much, and what the largest part of it is."""
    view = apart.view
    steps = text.plural(len(apart.steps), "step")
    parts = [(sum(e.counted for e in tier.entries), tier) for tier in apart.tiers]
    words = f"{title_of(view)}: {steps} from top to bottom, beside each what it keeps as bars. "
    words += f"{ledger.heading(all_rows(view))}."
    most, tier = max(parts, key=lambda part: part[0], default=(0, None))
    if most:
        words += f" Most, {text.exact(most)}, at {', '.join(step.title for step in tier.steps)}."
    return words + " The text form lists every step."
