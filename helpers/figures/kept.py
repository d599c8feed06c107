"""The ledger of what is kept for backward, and why.

It is an HTML table rather than a drawing: a table survives an untrusted notebook too, and a screen reader can walk it
cell by cell.
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.data import Recording, kept_moment, live_storages

from . import ledger, text, view
from .bundle import INSET, MONO, Figure, escape, paragraph, prose
from .ledger import Row
from .palette import FRAME, GROUND, INK, SOFT
from .why import MASK, reason

#: Rows that a ledger shows one by one; with more, it folds them by operation.
MOST_ROWS = 40
#: Freed results that the "Not kept" line names one by one.
MOST_FREED = 8


@dataclass(frozen=True, repr=False)
class KeptFigure(Figure):
    """The ledger. nbytes: its total, in bytes, each storage once, parameters and buffers not counted.

    all_rows: every row. rows: the same, unless the figure folds: then one `Folded` for each operation and reason.
    """

    nbytes: int = 0
    rows: tuple = ()
    all_rows: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Folded:
    """Rows of one operation that keep the same kind of tensor for the same reason."""

    name: str  # of the nodes
    role: str  # "its input", "its output"
    formal: str
    count: int
    counted: int  # bytes that they add to the total
    tensors: int  # that add to it
    why: str
    saved: tuple[int, ...] = ()  # ids of what its rows keep


@dataclass(frozen=True, slots=True)
class Freed:
    """Results of forward that went before the moment and that no node kept: those of one operation and line."""

    op: str
    nbytes: int  # of each
    made: str
    freed: str
    count: int


def kept_figure(recording: Recording, moment: int | None = None) -> KeptFigure:
    """The ledger after event `moment`; by default as the first backward begins, or at the end if none did.

    Its `nbytes` equals `helpers.data.kept_bytes(recording, moment)`.
    """
    moment = kept_moment(recording) if moment is None else moment
    order: dict[int, None] = {}
    for saved in recording.saved:
        order.setdefault(saved.node, None)
    rows = tuple(row for row in ledger.rows(recording, moment, order) if row.held)
    total = ledger.total(rows)
    freed = freed_results(recording, moment)
    heading = ledger.heading(list(rows), moment_words(recording, moment))
    folds = folded(rows) if len(rows) > MOST_ROWS else ()
    notes = [f"Note: {note}" for note in recording.notes]
    after = [not_kept(freed)] if freed else []

    def whole() -> str:
        every = [not_kept(freed, len(freed))] if freed else []
        return "\n".join([heading, *row_lines(recording, rows), *every, *notes])

    if folds:
        lead = f"{len(rows):,} rows, folded by operation; print(run.kept.text_full()) gives each."
        twin = "\n".join([heading, lead, *fold_lines(folds), *after, *notes])
    else:
        lead, twin = "", "\n".join([heading, *row_lines(recording, rows), *after, *notes])
    body = paragraph(heading, strong=True)
    if lead:
        body += paragraph(lead, soft=True)
    body += fold_table(folds, total) if folds else row_table(recording, rows, total)
    for sentence in (*after, *recording.notes):
        body += f'<p style="margin:8px 0 0 0;color:{SOFT};font-size:13px;">{prose(sentence)}</p>'
    body = f'<div style="{INSET}">{body}</div>'
    alt = f"Table. {heading}."
    return KeptFigure(
        title="Kept for backward",
        text=twin,
        alt=alt,
        svg="",
        body=body,
        nbytes=total,
        rows=folds or rows,
        all_rows=rows,
        whole=whole if folds else None,
    )


def moment_words(recording: Recording, moment: int) -> str:
    """ "as backward() begins on line 4": of which moment a ledger is; "" where no other could be meant."""
    ran = [graph for graph in recording.graphs if graph.event is not None]
    failed = bool(recording.events) and recording.events[-1].kind == "error"
    if moment == kept_moment(recording) and len(ran) < 2 and not (failed and ran):
        return ""
    for graph in ran:
        if graph.event == moment:
            words = [view.begins_words(recording, other) for other in ran]
            which = f" (graph {graph.id + 1} of {len(recording.graphs)})"
            mine = view.begins_words(recording, graph)
            return mine + (which if words.count(mine) > 1 else "")
    if moment >= len(recording.events) - 1:
        return "at the end"
    return f"after event {moment + 1:,} of {len(recording.events):,}"


def freed_results(recording: Recording, moment: int) -> list[Freed]:
    """Storages that operations of forward made, that are gone after event `moment`, and that no node had kept."""
    live = live_storages(recording, moment)
    kept = {i for saved in recording.saved for i in saved.storages}
    gone = {}
    for event in recording.events[: moment + 1]:
        for s in event.freed:
            gone[s] = event
    found: dict[tuple[str, int, str, str], int] = {}
    for event in recording.events[: moment + 1]:
        if event.kind != "op" or event.phase != "forward":
            continue
        for s in event.allocated:
            if s in gone and s not in live and s not in kept and recording.storages[s].nbytes:
                storage = recording.storages[s]
                made, freed = text.moment(recording, event), text.moment(recording, gone[s])
                key = (text.forward_operation(storage.op or event.op), storage.nbytes, made, freed)
                found[key] = found.get(key, 0) + 1
    return [Freed(*key, count) for key, count in found.items()]


def not_kept(freed: list[Freed], most: int = MOST_FREED) -> str:
    """ "Not kept: mm (2,048 B, freed on line 6), …"."""
    parts = []
    for x in freed[:most]:
        where = f", freed {x.freed}" if x.freed else ", freed"
        made = f", made {x.made}" if x.made and x.made != x.freed else ""
        times, each = (f"{x.count:,} × ", " each") if x.count > 1 else ("", "")
        parts.append(f"{times}{text.quoted(x.op)} ({text.exact(x.nbytes)}{each}{made}{where})")
    rest = freed[most:]
    if rest:
        more = text.plural(sum(x.count for x in rest), "more result")
        parts.append(f"and {more} ({text.exact(sum(x.nbytes * x.count for x in rest))})")
    return "Not kept: " + ", ".join(parts)


def status(recording: Recording, row: Row) -> str:
    """What a reader must know of a row besides its bytes; "" for an ordinary one."""
    parts = []
    keeper = recording.nodes[row.first.node].name if row.first else ""
    if row.state == "packed":
        told = row.stand_in or not row.saved.packed
        parts.append("packed" if told else f"packed: {text.quoted(row.saved.packed)}")
        if row.counts:
            parts.append(f"in its place {text.exact(row.storage_bytes)}")
    elif row.state == "changed in place":
        parts.append("changed in place since: backward would raise")
    if row.first is not None:
        first = text.names(row.first.names) or f"({ledger.formal(row.first)})"
        other = "" if row.first.node == row.node.id else f" of {text.quoted(keeper)}"
        parts.append(f"same storage as {first}{other} above: counted once")
    elif row.alive:
        parts.append(f"{row.alive}, alive anyway: not counted")
    elif row.state != "packed" and row.storage_bytes not in (0, row.saved.nbytes):
        parts.append(f"keeps its whole storage of {text.exact(row.storage_bytes)}")
    return "; ".join(parts)


def where(recording: Recording, row: Row) -> str:
    line = text.line(recording, row.node.place)
    return ", ".join(part for part in (line, text.in_module(row.node.module)) if part)


def row_lines(recording: Recording, rows: tuple[Row, ...]) -> list[str]:
    cells = []
    for row in rows:
        role = f"keeps {row.role}"
        why = row.why + (f" [{more}]" if (more := status(recording, row)) else "")
        cells.append([text.quoted(row.node.name), role, row.label, row.form, row.size, where(recording, row), why])
    return text.aligned(cells, right=frozenset({4}))


def folded(rows: tuple[Row, ...]) -> tuple[Folded, ...]:
    """Rows by operation, argument and reason (its general form), most bytes first."""
    groups: dict[tuple[str, str, str, bool], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.node.name, row.role, row.saved.argument, row.why == MASK), []).append(row)
    out = []
    for (name, role, argument, _), members in groups.items():
        reasons = {row.why for row in members}
        node, saved = members[0].node, members[0].saved
        general = reason(text.operation(name), saved.argument, saved.output, node.kind == "custom", {})
        why = reasons.pop() if len(reasons) == 1 else general
        tensors = ledger.counted_tensors(members)
        saved = tuple(row.saved.id for row in members)
        out.append(Folded(name, role, argument, len(members), ledger.total(members), tensors, why, saved))
    return tuple(sorted(out, key=lambda x: (-x.counted, x.name, x.formal)))


def fold_lines(folds: tuple[Folded, ...]) -> list[str]:
    cells = [
        [
            text.quoted(x.name),
            f"keeps {x.role} ({x.formal})",
            text.plural(x.count, "time"),
            text.plural(x.tensors, "tensor") + " counted",
            text.exact(x.counted),
            x.why,
        ]
        for x in folds
    ]
    return text.aligned(cells, right=frozenset({2, 3, 4}))


# ---------------------------------------------------------------------------------------------------------------- HTML

CELL = (
    f"background-color:{GROUND};color:{INK};border-bottom:1px solid {FRAME};"
    "padding:4px 14px 4px 0;vertical-align:top;max-width:none;"
)


def td(content: str, *, right: bool = False, mono: bool = False, soft: bool = False, colour: str = "") -> str:
    style = CELL + f"text-align:{'right' if right else 'left'};"
    style += f"font-family:{MONO};white-space:nowrap;" if mono else ""
    style += f"color:{SOFT};" if soft else f"color:{colour};" if colour else ""
    return f'<td style="{style}">{prose(content)}</td>'


def th(content: str, *, scope: str, right: bool = False, mono: bool = False) -> str:
    style = CELL + f"text-align:{'right' if right else 'left'};font-weight:bold;"
    style += f"font-family:{MONO};white-space:nowrap;" if mono else f"color:{SOFT};"
    return f'<th scope="{scope}" style="{style}">{escape(content)}</th>'


def table(caption: str, head: list[tuple[str, bool]], rows: list[str]) -> str:
    """A table with a caption and column headings. head: (words, right-aligned)."""
    columns = "".join(th(words, scope="col", right=right) for words, right in head)
    return (
        f'<table style="border-collapse:collapse;font-size:12px;background-color:{GROUND};color:{INK};margin:0;">'
        f'<caption style="text-align:left;color:{SOFT};padding:0 0 4px 0;caption-side:top;">{escape(caption)}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def row_table(recording: Recording, rows: tuple[Row, ...], total: int) -> str:
    head = [
        ("Operation", False),
        ("keeps", False),
        ("shape and dtype", False),
        ("bytes", True),
        ("why", False),
        ("kept on", False),
    ]
    out = []
    for row in rows:
        more = status(recording, row)
        why = row.why + (f" ({more})" if more else "")
        out.append(
            "<tr>"
            + th(text.short(text.quoted(row.node.name), 40), scope="row", mono=True)
            + td(row.what)
            + td(row.form, mono=not row.stand_in)
            + td(row.size, right=True, mono=True, soft=not row.counted)
            + td(why)
            + td(where(recording, row), soft=True)
            + "</tr>"
        )
    out.append(total_row(total, 6))
    grey = any(not row.counted for row in rows)
    caption = "What is kept, by whom, and why." + (" Grey bytes are not added to the sum." if grey else "")
    return table(caption, head, out)


def total_row(total: int, columns: int) -> str:
    rest = "".join(td("") for _ in range(columns - 4))
    return f"<tr>{th('Together', scope='row')}{td('')}{td('')}{td(text.exact(total), right=True, mono=True)}{rest}</tr>"


def fold_table(folds: tuple[Folded, ...], total: int) -> str:
    head = [("Operation", False), ("keeps", False), ("how often", True), ("bytes", True), ("why", False)]
    out = []
    for x in folds:
        out.append(
            "<tr>"
            + th(text.short(text.quoted(x.name), 40), scope="row", mono=True)
            + td(f"{x.role} ({x.formal})")
            + td(f"{x.count:,}", right=True, mono=True)
            + td(text.exact(x.counted), right=True, mono=True, soft=not x.counted)
            + td(x.why)
            + "</tr>"
        )
    out.append(total_row(total, 5))
    return table("Each row stands for all nodes of that name. Bytes count each storage once.", head, out)
