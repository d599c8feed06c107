"""What a GPU's caching allocator did during a recording, as frozen data: segments, blocks, bytes after each event.

A segment is a piece of the GPU's memory that the allocator got from the driver (cudaMalloc); a block is a piece of a
segment that the program holds. Moments are indices of the recording's events, -1 is before the first.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Where a history comes from.
#: simulated  our allocator (helpers.gpu) went through the recording's events
#: snapshot   a memory snapshot of a real GPU, with the driver's addresses
#: counters   a real GPU's own counts after each event; no segments, no blocks
SOURCES = ("simulated", "snapshot", "counters")


@dataclass(frozen=True, slots=True)
class Reading:
    """The allocator's counts at a moment, in bytes."""

    allocated: int  # blocks in use, each rounded up to 512 B
    reserved: int  # segments
    requested: int  # what the program asked for
    highest: int  # the most that was allocated at once up to here, scratch inside kernels included where it is known


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory got from the driver. opened is -1 if it was there before the recording, closed None if it stayed."""

    id: int
    address: int  # the driver's; of a simulation, counted from 0
    nbytes: int
    pool: str  # "small" (requests up to 1 MiB) or "large"
    opened: int
    closed: int | None = None
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment that the program held from event `born` (-1: before) to event `freed` (None: to the end)."""

    id: int
    segment: int
    address: int
    nbytes: int  # what it takes in the segment
    requested: int  # what the program asked for
    born: int
    freed: int | None = None
    storage: int | None = None  # of the recording


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The allocator could not serve a request, also after it had given back every segment that was wholly free."""

    event: int  # at which it happened; -1: what was there before was too much already
    asked: int  # bytes of the request
    storage: int | None
    reading: Reading  # as it was then
    capacity: int
    free: int  # capacity - reserved: what the driver could still give
    inside: int  # bytes free inside the segments: enough, perhaps, but in pieces


@dataclass(frozen=True, slots=True)
class AllocatorHistory:
    """`readings[0]` is before the first event, `readings[i + 1]` after event i (as `Timeline.rows`)."""

    source: str  # of SOURCES
    segments: tuple[Segment, ...]
    blocks: tuple[Block, ...]
    readings: tuple[Reading, ...]
    capacity: int | None = None  # bytes that the program could have in all; None: not asked
    failures: tuple[OutOfMemory, ...] = ()
    card: str = ""  # the name of the card whose capacity it is
    notes: tuple[str, ...] = ()  # assumptions and limits, as sentences

    @property
    def peak(self) -> int:
        """The first moment at which most is allocated."""
        allocated = [r.allocated for r in self.readings]
        return allocated.index(max(allocated)) - 1

    @property
    def most_reserved(self) -> int:
        return max(r.reserved for r in self.readings)


@dataclass(frozen=True, slots=True)
class Free:
    """Bytes of the segments that no block holds, at a moment."""

    cached: int  # in segments that are wholly free: empty_cache() would give them back
    stranded: int  # in segments that hold a block too: they stay reserved

    @property
    def total(self) -> int:
        return self.cached + self.stranded


def free_bytes(history: AllocatorHistory) -> tuple[Free, ...]:
    """What lies free inside the segments, at each moment (as `readings`: first before the first event)."""
    opened: dict[int, list[int]] = {}
    closed: dict[int, list[int]] = {}
    changes: dict[int, list[tuple[int, int]]] = {}  # moment → (segment, bytes more in use)
    for segment in history.segments:
        opened.setdefault(segment.opened, []).append(segment.id)
        if segment.closed is not None:
            closed.setdefault(segment.closed, []).append(segment.id)
    for block in history.blocks:
        changes.setdefault(block.born, []).append((block.segment, block.nbytes))
        if block.freed is not None:
            changes.setdefault(block.freed, []).append((block.segment, -block.nbytes))
    size = [s.nbytes for s in history.segments]
    used = [0] * len(size)
    there = [False] * len(size)
    cached = stranded = 0
    rows = []
    for moment in range(-1, len(history.readings) - 1):
        touched = {*opened.get(moment, ()), *closed.get(moment, ()), *(s for s, _ in changes.get(moment, ()))}
        for s in touched:
            if there[s]:
                cached -= size[s] if not used[s] else 0
                stranded -= size[s] - used[s] if used[s] else 0
        for s, more in changes.get(moment, ()):
            used[s] += more
        for s in opened.get(moment, ()):
            there[s] = True
        for s in closed.get(moment, ()):
            there[s] = False
        for s in touched:
            if there[s]:
                cached += size[s] if not used[s] else 0
                stranded += size[s] - used[s] if used[s] else 0
        rows.append(Free(cached, stranded))
    return tuple(rows)
