"""A recording to JSON and back, exactly. Fields at their default are left out, so files stay small and readable."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from functools import cache
from typing import Any

from . import model
from .allocator import SOURCES
from .model import Recording

#: Raise it when a field changes its meaning; `loads` refuses every other version in a sentence.
SCHEMA = 1
FORMAT = "gradients-and-intermediates recording"


class RecordingFormatError(ValueError):
    """The text is not a recording that this version can read."""


def dumps(recording: Recording) -> str:
    """JSON text of a recording. The same recording gives the same text."""
    document = {"format": FORMAT, "schema": SCHEMA, "recording": to_plain(recording)}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def loads(text: str | bytes) -> Recording:
    """The recording that `dumps` wrote.

    Raises RecordingFormatError if the text is no JSON, no recording, of another schema version, or damaged.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise RecordingFormatError(f"This is not a saved recording: it is no JSON ({error}).") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise RecordingFormatError("This JSON is not a saved recording: its 'format' does not say so.")
    found = document.get("schema")
    if type(found) is not int or found != SCHEMA:
        raise RecordingFormatError(
            f"This recording has schema version {found}; these helpers read version {SCHEMA}. "
            "Record the step again, or open it with the version of the course that saved it."
        )
    try:
        recording = from_plain(document["recording"], Recording)
        check(recording)
    except RecordingFormatError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RecordingFormatError(f"This recording is damaged: {type(error).__name__}: {error}.") from None
    return recording


def to_plain(value: Any) -> Any:
    """Dataclasses to dicts without their defaults, tuples to lists."""
    if dataclasses.is_dataclass(value):
        return {
            f.name: to_plain(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if f.default is dataclasses.MISSING or getattr(value, f.name) != f.default
        }
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    return value


def from_plain(value: Any, kind: Any) -> Any:
    """The inverse of `to_plain`, by the fields' declared types; a value of another type raises TypeError."""
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise TypeError(f"{kind.__name__} expected, found {type(value).__name__}")
        hints = _hints(kind)
        if unknown := set(value) - set(hints):
            raise TypeError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")
        return kind(**{name: from_plain(item, hints[name]) for name, item in value.items()})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        if value is None:
            return None
        return from_plain(value, next(a for a in arguments if a is not types.NoneType))
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError(f"a list expected, found {type(value).__name__}")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(from_plain(item, arguments[0]) for item in value)
        return tuple(from_plain(item, a) for item, a in zip(value, arguments, strict=True))
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} expected, found {value!r}")
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, vars(model))


def check(recording: Recording) -> None:
    """Ids are indices, references point at something, lives make sense. Raises RecordingFormatError otherwise."""

    def need(holds: bool, sentence: str) -> None:
        if not holds:
            raise RecordingFormatError(f"This recording is damaged: {sentence}.")

    for name in ("sources", "places", "storages", "nodes", "saved", "graphs"):
        for index, item in enumerate(getattr(recording, name)):
            need(item.id == index, f"{name}[{index}] calls itself {item.id}")

    storages, nodes, saved = len(recording.storages), len(recording.nodes), len(recording.saved)
    places, graphs, events = len(recording.places), len(recording.graphs), len(recording.events)

    def within(what: str, ids: Any, limit: int, first: int = 0) -> None:
        for i in ids:
            need(i is None or first <= i < limit, f"{what} {i} does not exist")

    within("source", (recording.cell,), len(recording.sources))
    for place in recording.places:
        within("source", (f.source for f in place.frames), len(recording.sources))
    for node in recording.nodes:
        need(node.kind in model.NODE_KINDS, f"node {node.id} is of no known kind")
        within("node", (e.node for e in node.edges), nodes)
        within("saved tensor", node.saved, saved)
        within("place", (node.place,), places)
        within("storage", node.leaf.storages if node.leaf else (), storages)
        within("event", (node.event,), events)
    for tensor in recording.saved:
        within("node", (tensor.node,), nodes)
        within("storage", tensor.storages, storages)
        within("event", (tensor.kept, tensor.released, tensor.changed), events, first=-1)
        known = tensor.state in model.SAVED_STATES and (tensor.state == "never saved") == (tensor.kept is None)
        need(
            known and (tensor.state == "released") == (tensor.released is not None),
            f"saved tensor {tensor.id} is in no known state",
        )
    for storage in recording.storages:
        within("place", (storage.place,), places)
        need(storage.category in model.CATEGORIES and storage.nbytes >= 0, f"storage {storage.id} is none")
    for graph in recording.graphs:
        within("node", (*graph.nodes, *graph.pruned, *(e.node for e in graph.roots)), nodes)
        within("event", (graph.event,), events)
        within("graph", (graph.parent,), graphs)
        within("place", (graph.place,), places)
    for index, event in enumerate(recording.events):
        known = event.index == index and event.kind in model.EVENT_KINDS and event.phase in model.PHASES
        need(known, f"event {index} is not one")
        within("storage", (*event.allocated, *event.freed, *(s for s, _ in event.resized + event.moved)), storages)
        within("saved tensor", event.kept + event.released, saved)
        within("node", (event.node,), nodes)
        within("graph", (event.graph,), graphs)
        within("place", (event.place,), places)
        need(all(category in model.CATEGORIES for _, category in event.moved), f"event {index} moves to nowhere")
        if event.accumulated is not None:
            within("node", (event.accumulated.node,), nodes)
            within("storage", event.accumulated.storages, storages)
    _check_lives(recording, need)
    if recording.allocator is not None:
        _check_allocator(recording, need)


def _check_allocator(recording: Recording, need: Any) -> None:
    """A reading for each moment, blocks inside their segments."""
    history = recording.allocator
    events, storages, segments = len(recording.events), len(recording.storages), history.segments
    need(history.source in SOURCES, "its allocator's history is of no known kind")
    need(len(history.readings) == events + 1, "its allocator has not one reading for each moment")
    for kind, items in (("segment", segments), ("block", history.blocks)):
        for index, item in enumerate(items):
            need(item.id == index, f"{kind} {index} calls itself {item.id}")
    for segment in segments:
        ends = segment.closed is None or segment.opened <= segment.closed < events
        need(-1 <= segment.opened < max(events, 1) and ends, f"segment {segment.id} was never there")
    for block in history.blocks:
        need(0 <= block.segment < len(segments), f"block {block.id} lies in no segment")
        home = segments[block.segment]
        inside = home.address <= block.address and block.address + block.nbytes <= home.address + home.nbytes
        need(inside, f"block {block.id} lies outside its segment")
        ends = block.freed is None or block.born <= block.freed < events
        need(-1 <= block.born < max(events, 1) and ends, f"block {block.id} was never there")
        need(block.storage is None or 0 <= block.storage < storages, f"block {block.id} holds no storage")
    for failure in history.failures:
        need(-1 <= failure.event < max(events, 1), f"event {failure.event} does not exist")
        need(failure.storage is None or 0 <= failure.storage < storages, f"storage {failure.storage} does not exist")


def _check_lives(recording: Recording, need: Any) -> None:
    """Each storage is allocated once, freed once, and nothing happens to it before or after."""
    live = {s.id for s in recording.storages if s.born < 0}
    for event in recording.events:
        for s in event.allocated:
            need(s not in live and recording.storages[s].born == event.index, f"storage {s} is born twice")
            live.add(s)
        for s, *_ in event.resized + event.moved:
            need(s in live, f"event {event.index} changes storage {s}, which is not there")
        for s in event.freed:
            need(s in live and recording.storages[s].freed == event.index, f"storage {s} is freed twice")
            live.discard(s)
    for storage in recording.storages:
        freed = storage.freed is not None and storage.born <= storage.freed < len(recording.events)
        need(storage.id in live if storage.freed is None else freed, f"storage {storage.id} was never there")
