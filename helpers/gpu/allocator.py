"""PyTorch's CUDA caching allocator, as plain Python: where each request goes, and what stays reserved.

The rules are those of c10/cuda/CUDACachingAllocator.cpp with its default settings (no expandable segments, no
max_split_size, one private pool). Segments are pieces of the GPU's memory got from the driver, cut into blocks. A block
is in use or free; two free blocks never lie side by side. Best fit, split and merge are held against real traces
(helpers.gpu.replay); segment sizes, flush and out-of-memory are the source's rules, which no trace at hand proves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

MIB = 2**20
#: Every request is rounded up to a multiple of this (kMinBlockSize).
ROUND = 512
#: The largest request that the small pool serves (kSmallSize); a large block's rest up to this is not split off.
SMALL = MIB
#: Segments of the small pool (kSmallBuffer), and what a large request's own segment is rounded up to (kRoundLarge).
SMALL_SEGMENT = 2 * MIB
#: Segments for large requests below OWN_SEGMENT (kLargeBuffer).
LARGE_SEGMENT = 20 * MIB
#: From here on a request gets a segment of its own (kMinLargeAlloc).
OWN_SEGMENT = 10 * MIB


def rounded(nbytes: int) -> int:
    """What a request of `nbytes` takes at least: the next multiple of 512 B."""
    return -(-nbytes // ROUND) * ROUND


def segment_size(nbytes: int) -> int:
    """Bytes of the segment that a request of `nbytes` (rounded or not) opens where no free block fits."""
    nbytes = rounded(nbytes)
    if nbytes <= SMALL:
        return SMALL_SEGMENT
    if nbytes < OWN_SEGMENT:
        return LARGE_SEGMENT
    return -(-nbytes // SMALL_SEGMENT) * SMALL_SEGMENT


class PoolBlock:
    """A block of a segment, in use or free. `nbytes` is what it takes, `requested` what was asked for (0: free)."""

    __slots__ = ("address", "after", "before", "free", "nbytes", "requested", "segment")

    def __init__(self, segment: PoolSegment, address: int, nbytes: int) -> None:
        self.segment, self.address, self.nbytes = segment, address, nbytes
        self.requested = 0
        self.free = True
        self.before: PoolBlock | None = None  # neighbours in the segment
        self.after: PoolBlock | None = None

    def __repr__(self) -> str:
        what = "free" if self.free else f"{self.requested:,} B asked for"
        return f"<block at {self.address}: {self.nbytes:,} B, {what}>"


class PoolSegment:
    """A segment: `pool` is "small" or "large", `first` its block at the lowest address."""

    __slots__ = ("address", "first", "nbytes", "pool", "stream")

    def __init__(self, address: int, nbytes: int, pool: str, stream: int) -> None:
        self.address, self.nbytes, self.pool, self.stream = address, nbytes, pool, stream
        self.first = PoolBlock(self, address, nbytes)

    @property
    def blocks(self) -> Iterator[PoolBlock]:
        """Its blocks by address, free ones included; together they fill it."""
        block: PoolBlock | None = self.first
        while block is not None:
            yield block
            block = block.after

    def __repr__(self) -> str:
        return f"<{self.pool} segment at {self.address}: {self.nbytes:,} B>"


class CapacityError(MemoryError):
    """No free block fits, and the driver has not enough left, also after every wholly free segment was given back."""

    def __init__(self, asked: int, allocator: CachingAllocator) -> None:
        self.asked = asked
        self.capacity = allocator.capacity
        self.free = allocator.capacity - allocator.reserved
        self.inside = allocator.reserved - allocator.allocated
        super().__init__(
            f"Out of memory: {asked:,} B were asked for, which take a segment of {segment_size(asked):,} B. Of "
            f"{self.capacity:,} B, {allocator.allocated:,} B are allocated, {self.free:,} B are not reserved, and "
            f"{self.inside:,} B lie free inside segments, in pieces that are too small."
        )


class CachingAllocator:
    """Serves requests as PyTorch does on one GPU, and counts.

    capacity: bytes that may be reserved in all; None: no limit. It may be changed at any time.
    new_address: called with the bytes of each new segment, gives its address. Left out, segments lie at multiples of
        2 MiB from 0 on, each at the lowest place that is free: an assumption, since a driver tells nobody how it
        chooses. It decides only between free blocks of the same size.
    opened, closed: called with each segment (PoolSegment) that comes from the driver or goes back to it.

    Counts in bytes: `allocated` (blocks in use), `reserved` (segments), `requested` (what was asked for),
    `highest` (the most that was allocated at once). `segments` gives the segments by address.
    """

    def __init__(
        self,
        capacity: int | None = None,
        *,
        new_address: Callable[[int], int] | None = None,
        opened: Callable[[PoolSegment], None] | None = None,
        closed: Callable[[PoolSegment], None] | None = None,
    ) -> None:
        self.capacity = capacity
        self.allocated = self.reserved = self.requested = self.highest = 0
        self._new_address = new_address or self._lowest
        self._opened, self._closed = opened, closed
        self._segments: dict[int, PoolSegment] = {}
        self._free: dict[tuple[int, str], list[tuple[int, int]]] = {}  # of a stream and pool: (bytes, address), sorted
        self._free_at: dict[int, PoolBlock] = {}
        self._holes: list[tuple[int, int]] = []  # (address, bytes) given back to the driver, by address, merged
        self._end = 0  # nothing lies beyond

    # ---------------------------------------------------------------- the rules

    def malloc(self, nbytes: int, stream: int = 0) -> PoolBlock:
        """A block for `nbytes`. Raises CapacityError where there is no room, ValueError for less than one byte."""
        if nbytes < 1:
            raise ValueError(f"malloc() serves requests from 1 B on; {nbytes} B take no block.")
        size = rounded(nbytes)
        pool = "small" if size <= SMALL else "large"
        block = self._best_fit(size, stream, pool)
        if block is None:
            block = self._open(size, stream, pool, nbytes)
        return self._use(block, size, nbytes)

    def free(self, block: PoolBlock) -> None:
        """Give a block back; it becomes one with the free blocks beside it. Freeing it twice raises ValueError."""
        if block.free:
            raise ValueError(f"This block is free already: {block!r}.")
        self.allocated -= block.nbytes
        self.requested -= block.requested
        block.free, block.requested = True, 0
        before, after = block.before, block.after
        if before is not None and before.free:
            self._take(before)
            block.address = before.address
            block.nbytes += before.nbytes
            self._link(before.before, block)
        if after is not None and after.free:
            self._take(after)
            block.nbytes += after.nbytes
            self._link(block, after.after)
        self._put(block)

    def empty_cache(self) -> int:
        """Give every segment that is wholly free back to the driver; how many bytes that were."""
        whole = [p for p in self._free_at.values() if p.before is None and p.after is None]
        for block in whole:
            self._close(block.segment)
        return sum(p.nbytes for p in whole)

    def _best_fit(self, size: int, stream: int, pool: str) -> PoolBlock | None:
        """The smallest free block that is large enough; of several, the one at the lowest address."""
        free = self._free.get((stream, pool))
        if not free:
            return None
        index = bisect_left(free, (size,))
        return self._free_at[free[index][1]] if index < len(free) else None

    def _splits(self, rest: int, pool: str) -> bool:
        """Whether what a request leaves of a free block becomes a free block of its own."""
        return rest >= ROUND if pool == "small" else rest > SMALL

    def _open(self, size: int, stream: int, pool: str, asked: int) -> PoolBlock:
        """A new segment; where the capacity does not allow it, after all wholly free segments have gone back."""
        nbytes = segment_size(size)
        if self._exceeds(nbytes):
            self.empty_cache()
            if self._exceeds(nbytes):
                raise CapacityError(asked, self)
        return self.add_segment(self._new_address(nbytes), nbytes, pool, stream).first

    def _exceeds(self, nbytes: int) -> bool:
        return self.capacity is not None and self.reserved + nbytes > self.capacity

    # ---------------------------------------------------------------- a given state

    def widen(self, block: PoolBlock, more: int) -> None:
        """Let a block in use take `more` bytes of the free block behind it."""
        behind = block.after
        if block.free or behind is None or not behind.free or not 0 < more < behind.nbytes:
            raise ValueError(f"{block!r} cannot take {more:,} B of what lies behind it.")
        self._take(behind)
        behind.address += more
        behind.nbytes -= more
        self._put(behind)
        block.nbytes += more
        self.allocated += more
        self.highest = max(self.highest, self.allocated)

    def add_segment(
        self, address: int, nbytes: int, pool: str, stream: int = 0, blocks: Iterable[tuple[int, int, int]] = ()
    ) -> PoolSegment:
        """A segment at a given address, with blocks in use as (address, bytes, requested bytes), by address.

        What lies between them is free. Raises ValueError if they overlap or lie outside.
        """
        segment = PoolSegment(address, nbytes, pool, stream)
        self._segments[address] = segment
        self.reserved += nbytes
        self._end = max(self._end, address + nbytes)
        self._put(segment.first)
        if self._opened is not None:
            self._opened(segment)
        for where, size, requested in blocks:
            last = self._last(segment)
            if not last.free or where < last.address or where + size > last.address + last.nbytes:
                raise ValueError(f"A block of {size:,} B at {where} does not fit into {segment!r}.")
            self._take(last)
            if where > last.address:
                gap, last = last, self._cut(last, where - last.address)
                self._put(gap)
            if size < last.nbytes:
                self._put(self._cut(last, size))
            self._hold(last, requested)
        return segment

    def remove_segment(self, address: int) -> PoolSegment:
        """Give one segment back, as a trace tells it. Raises LookupError if there is none, or it is in use."""
        segment = self._segments.get(address)
        if segment is None or segment.first.after is not None or not segment.first.free:
            found = "there is none" if segment is None else "a block of it is in use"
            raise LookupError(f"The segment at {address} cannot go back: {found}.")
        self._close(segment)
        return segment

    @property
    def segments(self) -> tuple[PoolSegment, ...]:
        return tuple(self._segments[address] for address in sorted(self._segments))

    def free_block(self, address: int) -> PoolBlock | None:
        """The free block that begins at `address`."""
        return self._free_at.get(address)

    # ---------------------------------------------------------------- the lists

    def _use(self, block: PoolBlock, size: int, requested: int) -> PoolBlock:
        """Take a free block for a request, split where the rule says so."""
        self._take(block)
        if self._splits(block.nbytes - size, block.segment.pool):
            self._put(self._cut(block, size))
        return self._hold(block, requested)

    def _hold(self, block: PoolBlock, requested: int) -> PoolBlock:
        block.free, block.requested = False, requested
        self.requested += requested
        self.allocated += block.nbytes
        if self.allocated > self.highest:
            self.highest = self.allocated
        return block

    def _cut(self, block: PoolBlock, size: int) -> PoolBlock:
        """Leave `size` bytes to a block; the rest behind them as a block of its own."""
        rest = PoolBlock(block.segment, block.address + size, block.nbytes - size)
        block.nbytes = size
        self._link(rest, block.after)
        self._link(block, rest)
        return rest

    @staticmethod
    def _link(before: PoolBlock | None, after: PoolBlock | None) -> None:
        """Make two blocks neighbours; what is None is the segment's end."""
        if before is not None:
            before.after = after
        else:
            after.segment.first = after
        if after is not None:
            after.before = before

    def _put(self, block: PoolBlock) -> None:
        """Into the list of free blocks."""
        segment = block.segment
        key = (segment.stream, segment.pool)
        free = self._free.get(key)
        if free is None:
            free = self._free[key] = []
        insort(free, (block.nbytes, block.address))
        self._free_at[block.address] = block

    def _take(self, block: PoolBlock) -> None:
        """Out of the list of free blocks."""
        segment = block.segment
        free = self._free[segment.stream, segment.pool]
        del free[bisect_left(free, (block.nbytes, block.address))]
        del self._free_at[block.address]

    @staticmethod
    def _last(segment: PoolSegment) -> PoolBlock:
        block = segment.first
        while block.after is not None:
            block = block.after
        return block

    def _close(self, segment: PoolSegment) -> None:
        self._take(segment.first)
        del self._segments[segment.address]
        self.reserved -= segment.nbytes
        insort(self._holes, (segment.address, segment.nbytes))
        if self._closed is not None:
            self._closed(segment)

    def _lowest(self, nbytes: int) -> int:
        """The lowest free address for a new segment: in what was given back, else behind everything."""
        merged: list[tuple[int, int]] = []
        for address, size in self._holes:
            if merged and sum(merged[-1]) == address:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((address, size))
        self._holes = merged
        for i, (address, size) in enumerate(merged):
            if size >= nbytes:
                merged[i : i + 1] = [(address + nbytes, size - nbytes)] if size > nbytes else []
                return address
        if merged and sum(merged[-1]) == self._end:
            self._end = merged.pop()[0]
        return -(-self._end // SMALL_SEGMENT) * SMALL_SEGMENT
