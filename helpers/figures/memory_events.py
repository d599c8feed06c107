"""What happened at each event, in words: what ran, what it allocated and freed, what is kept, what becomes a .grad."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helpers.data import MemoryEvent, Recording, Timeline
from helpers.data.model import GRADIENTS, KEPT

from . import ledger, text

SEED = "the seed gradient 1"


def seeds(recording: Recording) -> frozenset[int]:
    """Storages of the gradient 1 that a backward from a loss starts with: made for no node, just before a pass."""
    found = set()
    for event, following in zip(recording.events, recording.events[1:], strict=False):
        ones = event.kind == "op" and event.op.startswith("aten.ones_like") and event.node is None
        if ones and event.phase == "backward" and following.kind == "enter" and len(event.allocated) == 1:
            found.update(event.allocated)
    return frozenset(found)


def leaf_of(recording: Recording, event: MemoryEvent) -> str:
    """The names of the leaf whose gradient arrived; "a leaf" if it has none."""
    leaf = recording.nodes[event.accumulated.node].leaf
    return (text.names(leaf.names) if leaf else "") or "a leaf"


def grad_name(recording: Recording, event: MemoryEvent) -> str:
    """ "x.grad", for an event at which a gradient arrived; "W and V's .grad" for a leaf of several names."""
    node = recording.nodes[event.accumulated.node]
    names = node.leaf.names if node.leaf else ()
    if len(names) == 1 and text.quoted(names[0]) == names[0]:
        return f"{names[0]}.grad"
    return f"the .grad of {text.names(names) or 'an unnamed leaf'}"


def as_gradient(recording: Recording, s: int, moment: int) -> str:
    """ "x.grad" where a storage is that after event `moment`, "becomes x.grad" where it will be; else ""."""
    later = ""
    for event in recording.events:
        if event.accumulated is not None and s in event.accumulated.storages:
            if event.index <= moment:
                return grad_name(recording, event)
            later = later or f"becomes {grad_name(recording, event)}"
    return later


def storage_words(recording: Recording, s: int, seed: Iterable[int], now: int) -> str:
    """A storage in short: its names, or its form and the event that made it. now: the event that speaks of it."""
    storage = recording.storages[s]
    what = text.names(storage.names)
    if not what:
        form = f"{text.shape(storage.shape)} {storage.dtype}" if storage.dtype else "unnamed"
        what = SEED if s in seed else form
        what += f" of event {storage.born + 1:,}" if 0 <= storage.born != now else ""
    return f"{text.exact(storage.nbytes)} ({what})"


def event_details(recording: Recording, event: MemoryEvent, seed: Iterable[int], words: dict[str, str]) -> list[str]:
    """What an event did to memory: allocated, freed, resized, kept, released, became a .grad, changed its category."""

    def many(ids: Iterable[int]) -> str:
        return ", ".join(storage_words(recording, s, seed, event.index) for s in ids)

    def tensors(ids: Iterable[int]) -> str:
        found = [recording.saved[k] for k in ids if not recording.saved[k].scalar]
        return ", ".join(text.names(s.names) or f"({ledger.formal(s)})" for s in found)

    out = []
    if event.allocated:
        out.append(f"allocated {many(event.allocated)}")
    for s, size in event.resized:
        out.append(f"resized to {text.exact(size)}: {storage_words(recording, s, seed, event.index)}")
    if kept := tensors(event.kept):
        out.append(f"keeps {kept}")
    if released := tensors(event.released):
        out.append(f"released {released}")
    if event.freed:
        out.append(f"freed {many(event.freed)}")
    gradients: Sequence[int] = ()
    if event.accumulated is not None:
        into, gradients = grad_name(recording, event), event.accumulated.storages
        if event.accumulated.in_place:
            out.append(f"added into {into}: {many(gradients)}")
        else:
            out.append(f"{'becomes' if event.accumulated.first else 'the sum becomes'} {into}: {many(gradients)}")
    for s, category in event.moved:
        if not (category == GRADIENTS and s in gradients):
            now = KEPT if category == KEPT else f"counted as {words[category]}"
            out.append(f"now {now}: {many([s])}")
    return out


def what_happened(recording: Recording, event: MemoryEvent) -> str:
    """What ran, and on which line; the phase stands beside it."""
    when = text.moment(recording, event)
    if when.startswith("in "):
        when = when.partition(", ")[2]
    op = text.quoted(text.forward_operation(event.op)) if event.op else ""
    message = text.message(event)
    what = {
        "op": f"{op or 'an operation'} ran",
        "free": "no longer referred to",
        "enter": "the backward pass begins",
        "run": f"{op or 'a node'} has run",
        "accumulate": "a gradient arrives" + (f" at {leaf_of(recording, event)}" if event.accumulated else ""),
        "release": f"{op or 'a graph'} lets go of what it kept",
        "leave": "the backward pass ends",
        "step": "the optimizer's step begins" + (f": {text.quoted(message)}" if message else ""),
        "stepped": "the optimizer's step ends",
        "error": "an error was raised",
    }[event.kind]
    if not when or event.kind == "accumulate":
        return what
    return f"{what}, {when}" if when.startswith("for") else f"{what} {when}"


def event_rows(recording: Recording, line: Timeline, words: dict[str, str]) -> list[list[str]]:
    """Every event in order: its number, its phase, what happened, with the total after it at the end."""
    seed = seeds(recording)
    out = []
    for event, total in zip(recording.events, line.totals[1:], strict=True):
        details = event_details(recording, event, seed, words)
        parts = [what_happened(recording, event), *details, f"total {text.exact(total)}"]
        out.append([f"{event.index + 1:,}", event.phase, "; ".join(parts)])
    return out
