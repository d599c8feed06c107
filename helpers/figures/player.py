"""A recording as one live figure: code, graph, kept tensors and memory, step by step.

Its still is the overview. A script after it makes it live where scripts run; where they do not, or if anything goes
wrong in it, the still stays as it is. The drawings are in the still alone: the script takes them from there.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from helpers.data import Recording

from . import text
from .bundle import Figure, joined
from .graph import Drawn, drawn, graph_figure
from .overview import graph_shown, parts_of
from .player_data import data_of
from .view import view_of

HERE = Path(__file__).parent


def player_figure(recording: Recording) -> Figure:
    """The player of a recording. Works for any recording, one without graphs or events too."""
    still: Drawn | None = None
    if recording.graphs:
        still = drawn(view_of(recording, recording.graphs[graph_shown(recording)], None))
    parts = parts_of(recording, still.figure if still else graph_figure(recording))
    title = f"Recording of {text.plural(len(recording.events), 'event')}"
    data = data_of(recording, title, still)
    twin = [part.text for part in parts.figures]
    if parts.more:
        twin.insert(len(twin) - 2, parts.more)
    if parts.failed:
        twin.insert(0, parts.failed)
    return joined(
        title, parts.lead, parts.figures, "\n\n".join(twin), parts.alt, marks=parts.marks, script=script_of(data)
    )


@cache
def asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def script_of(data: dict) -> str:
    """The element that makes a still live: player.js as the body of a function of `data` and `css`, called at once."""
    if not (HERE / "player.js").exists():
        return f'<script>(function (data, css) {{}})({as_json(data)}, "")</script>'
    return f"<script>(function (data, css) {{\n{asset('player.js')}\n}})({as_json(data)}, {as_json(asset('player.css'))})</script>"


def as_json(value: object) -> str:
    """JSON that may stand in a script element: no tag can begin in it, and every character can be encoded."""
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    content = content.encode("utf-8", "replace").decode()  # a learner's strings may hold lone surrogates
    return content.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
