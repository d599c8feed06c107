"""The CUDA allocator's own counts beside the ledger: what a real GPU holds after each event.

The ledger knows what each storage is for; the allocator knows what is truly taken (rounding, scratch inside kernels,
workspaces of libraries). Both are kept, and the difference can be looked at.
"""

from __future__ import annotations

from typing import Any

import torch

from ..data.allocator import AllocatorHistory, Reading
from .build import EventNote

#: Said of counts.
CONTEXT = (
    "The allocator's counts leave out the CUDA context (some 300 to 700 MB) and whatever asks the driver for memory by "
    "itself."
)


def read(device: int) -> tuple[int, int, int, int]:
    """Bytes allocated, reserved, requested now, and the most that was ever allocated; all 0 before CUDA has begun."""
    stats: dict[str, Any] = torch.cuda.memory.memory_stats_as_nested_dict(device=device)

    def of(name: str, which: str = "current") -> int:
        return stats.get(name, {}).get("all", {}).get(which, 0)

    return of("allocated_bytes"), of("reserved_bytes"), of("requested_bytes"), of("allocated_bytes", "peak")


class Counters:
    """Reads the counts of one device. An event's reading is what the allocator counts when the next event begins: only
    then is the memory that an event lets go really free."""

    def __init__(self, device: int) -> None:
        self.device = device

    @classmethod
    def found(cls) -> Counters | None:
        """Of the device in use; None where there is no CUDA."""
        return cls(torch.cuda.current_device()) if torch.cuda.is_available() else None

    def read(self, event: EventNote) -> None:
        event.reading = read(self.device)

    def history(self, before: EventNote, events: list[EventNote]) -> AllocatorHistory:
        first = before.reading or (0, 0, 0, 0)
        now, readings, highest = first, [], first[0]
        for event in (before, *events):
            now = event.reading or now
            allocated, reserved, requested, peak = now
            # The peak counter began before the recording: it says something once it has risen.
            highest = max(highest, allocated, peak if peak > first[3] else 0)
            readings.append(Reading(allocated, reserved, requested, highest))
        return AllocatorHistory("counters", (), (), tuple(readings), notes=(CONTEXT,))


class CountedEvents(list):
    """The recorder's events: before one is put down, the counts are read for the one before it.

    Operations are put down after they ran, so the recorder reads for them before they do.
    """

    def __init__(self, counters: Counters, before: EventNote) -> None:
        super().__init__()
        self.counters, self.before = counters, before

    def append(self, event: EventNote) -> None:
        if event.kind != "op":
            self.read()
        super().append(event)

    def read(self) -> None:
        self.counters.read(self[-1] if self else self.before)
