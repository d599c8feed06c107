"""A recording of one device's memory: what lies elsewhere is left out, and said."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from .model import Recording


def devices_of(recording: Recording) -> dict[str, int]:
    """Devices with the bytes of all storages seen there, "cpu" and the like first met first."""
    seen: Counter[str] = Counter()
    for storage in recording.storages:
        seen[storage.device] += storage.nbytes
    return dict(seen)


def only_device(recording: Recording, device: str) -> Recording:
    """The recording without the storages of other devices. device: "cuda:0", "meta"; events, graphs and code stay."""
    keep = [s for s in recording.storages if s.device == device]
    if len(keep) == len(recording.storages):
        return recording
    new = {s.id: i for i, s in enumerate(keep)}

    def ids(old):
        return tuple(new[i] for i in old if i in new)

    def pairs(old):
        return tuple((new[i], value) for i, value in old if i in new)

    return replace(
        recording,
        storages=tuple(replace(s, id=i) for i, s in enumerate(keep)),
        saved=tuple(replace(s, storages=ids(s.storages)) for s in recording.saved),
        nodes=tuple(
            replace(n, leaf=replace(n.leaf, storages=ids(n.leaf.storages))) if n.leaf else n for n in recording.nodes
        ),
        events=tuple(
            replace(
                e,
                allocated=ids(e.allocated),
                freed=ids(e.freed),
                resized=pairs(e.resized),
                moved=pairs(e.moved),
                accumulated=replace(e.accumulated, storages=ids(e.accumulated.storages)) if e.accumulated else None,
            )
            for e in recording.events
        ),
    )
