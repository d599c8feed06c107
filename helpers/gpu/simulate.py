"""What the caching allocator would do with a recording: where each storage would lie, and what would stay reserved."""

from __future__ import annotations

from collections import Counter

from ..data.model import AllocatorHistory, Recording
from . import cards
from .allocator import PoolBlock
from .history import HistoryWriter

#: Said of every simulation.
ADDRESSES = (
    "Segments are laid side by side from address 0 on, the lowest free place first: how a driver chooses is not known. "
    "It decides only between free blocks of the same size."
)
SCRATCH = "What kernels take and give back inside themselves is not in it."


def simulate(
    recording: Recording, card: str | int | float | cards.Card | None = None, *, device: str | None = None
) -> AllocatorHistory:
    """Serve a recording's storages as PyTorch's allocator does on a GPU (helpers.gpu.allocator has the rules).

    card: a card by name, a number of GB (1e9 B), or a Card: its capacity is the limit. Left out: no limit.
    device: the device whose storages count, "cuda:0" or "meta". Left out: the one that is not the CPU (of several, the
        one with most bytes); where all storages are on the CPU, they are taken as if they were on the GPU.

    What was there before the recording is allocated first, in the order of the storages' ids. Then, event by event:
    what it allocated, what it resized (the new block first, then the old one goes, as `resize_` does on a GPU), what it
    freed. Empty storages take nothing. Where memory runs out, `failures` holds that moment, and the history goes on as
    if there were no limit. Raises ValueError for a card or a device that is not there.
    """
    chosen = None if card is None else cards.card(card)
    device, notes = _device(recording, device)
    counts = [s.device == device for s in recording.storages]
    writer = HistoryWriter(capacity=chosen.capacity if chosen else None)
    live: dict[int, PoolBlock] = {}

    def put(storage: int, nbytes: int) -> None:
        old = live.pop(storage, None)
        if nbytes:
            live[storage] = writer.malloc(nbytes, storage)
        if old is not None:
            writer.free(old)

    for storage in recording.storages:
        if storage.born < 0 and counts[storage.id]:
            put(storage.id, storage.nbytes)
    writer.read()
    for event in recording.events:
        for s in event.allocated:
            if counts[s]:
                put(s, recording.storages[s].nbytes)
        for s, nbytes in event.resized:
            if counts[s]:
                put(s, nbytes)
        for s in event.freed:
            if s in live:
                writer.free(live.pop(s))
        writer.read()
    notes += (ADDRESSES, SCRATCH)
    if chosen:
        notes += (f"An assumption: {chosen.assumption}",)
    if writer.failures:
        notes += ("Where memory runs out, the history goes on as if there were no limit: it tells what was needed.",)
    return writer.history("simulated", chosen.name if chosen else "", notes)


def _device(recording: Recording, asked: str | None) -> tuple[str, tuple[str, ...]]:
    """The device whose storages count, and what there is to say about it."""
    nbytes: Counter[str] = Counter()
    for storage in recording.storages:
        nbytes[storage.device] += storage.nbytes
    if asked is not None:
        found = [d for d in nbytes if d == asked or d.partition(":")[0] == asked]
        if len(found) != 1:
            where = f"it has storages on {', '.join(sorted(nbytes))}" if nbytes else "it has no storage at all"
            which = "names several" if found else "is none"
            raise ValueError(f"device={asked!r} {which} of this recording's devices: {where}.")
        return found[0], ()
    others = sorted((d for d in nbytes if d != "cpu"), key=lambda d: -nbytes[d])
    if not others:
        return "cpu", ("The storages were on the CPU; they are placed as if they were on a GPU.",) if nbytes else ()
    left = [d for d in nbytes if d != others[0]]
    return others[0], (f"Storages on {', '.join(sorted(left))} are left out.",) if left else ()
