"""A recording as one live figure: code, graph, kept tensors and memory, step by step.

Its still is the overview. A script after it makes it live where scripts run; where they do not, or if anything goes
wrong in it, the still stays as it is. The still's drawings are not embedded twice: the script takes them from there.
"""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path

from helpers.data import Recording, timeline

from . import memory, text
from .bundle import Figure, joined
from .graph import Drawn, drawn, graph_figure
from .overview import Parts, graph_shown, parts_of
from .player_data import data_of
from .player_words import closing
from .view import view_of

HERE = Path(__file__).parent
#: Steps up to which the twin tells every one of them; of more, those where a phase begins or ends, and the jumps.
MOST_STEPS = 40
#: How to have them all.
FULL = "print(run.player.text_full())"


def player_figure(recording: Recording) -> Figure:
    """The player of a recording. Works for any recording, one without graphs or events too."""
    still: Drawn | None = None
    if recording.graphs:
        still = drawn(view_of(recording, recording.graphs[graph_shown(recording)], None))
    parts = parts_of(recording, still.figure if still else graph_figure(recording))
    events = text.plural(len(recording.events), "event")
    title = f"Recording of {events}"
    kept = dict(zip(parts.marks, parts.figures, strict=True))["kept"]
    data = data_of(recording, title, still, kept)
    twin = partial(twin_of, recording, parts, f"{title}, step by step", steps_of(data), data)
    folds = len(recording.events) > MOST_STEPS or any(part.whole for part in parts.figures[:-1])
    return joined(
        title,
        parts.lead,
        parts.figures,
        twin(),
        parts.alt,
        marks=parts.marks,
        script=script_of(data),
        whole=partial(twin, every=True) if folds else None,
    )


# ------------------------------------------------------------------------------------------------ the text twin


def steps_of(data: dict) -> list[str]:
    """What the player says at each position, its closing sentences too."""
    keeps = any(data["kept_count"]) or any(data["kept_alive"])
    live = sum(data["start"])
    change: dict[int, int] = {}
    for p, _, more in data["delta"]:
        change[p] = change.get(p, 0) + more
    out = []
    for p, ids in enumerate(data["caption"]):
        live += change.get(p, 0)
        said = " ".join(data["words"][i] for i in ids)
        kept = (data[key][p] for key in ("kept_count", "kept_bytes", "kept_alive"))
        out.append(f"{said} {closing(keeps, *kept, live)}")
    return out


def twin_of(
    recording: Recording, parts: Parts, title: str, steps: list[str], data: dict, *, every: bool = False
) -> str:
    """The same story in words: the code, the graph, the ledger, the memory in short, and the steps."""
    figures = dict(zip(parts.marks, parts.figures, strict=True))
    figures.pop("memory")
    blocks = [title]
    if parts.failed:
        blocks.append(parts.failed)
    for mark, figure in figures.items():
        blocks.append(figure.text_full() if every else figure.text)
        if mark == "graph" and parts.more:
            blocks.append(parts.more)
    blocks.append(memory.in_short(recording, timeline(recording)))
    n = len(steps) - 1
    numbers = range(n + 1)
    heading = "Steps:"
    if n > MOST_STEPS and not every:
        numbers = landmarks(data)
        heading = f"Steps: {n:,}, here those where something begins or ends, and the peak; {FULL} gives each."
    wide = len(f"{n:,}")
    blocks.append("\n".join([heading, *(f"  {f'{p:,}'.rjust(wide)}  {steps[p]}" for p in numbers)]))
    return "\n\n".join(blocks)


def landmarks(data: dict) -> list[int]:
    """Positions that tell a long recording in short: where phases begin and end, and the moments to jump to."""
    jumps = {p for _, p in data["jumps"]}
    ends = sorted({p for _, first, last in data["phases"] for p in (first, last)} - jumps)
    room = MOST_STEPS - len(jumps)
    if len(ends) > room:
        ends = [*ends[: room // 2], *ends[-(room - room // 2) :]]
    return sorted({*ends, *jumps})


# ------------------------------------------------------------------------------------------------ the script


@cache
def asset(name: str) -> str:
    """player.js or player.css as it stands beside this module."""
    return (HERE / name).read_text(encoding="utf-8")


def script_of(data: dict) -> str:
    """The element that makes a still live: player.js as the body of a function of `data` and `css`, called at once."""
    code, css = asset("player.js"), as_json(asset("player.css"))
    return f"<script>(function (data, css) {{\n{code}\n}})({as_json(data)}, {css});</script>"


def as_json(value: object) -> str:
    """JSON that may stand in a script element: no tag can begin in it, and every character can be encoded."""
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    content = content.encode("utf-8", "replace").decode()  # a learner's strings may hold lone surrogates
    return content.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
