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


class Piece:
    """A block of a segment, in use or free. `nbytes` is what it takes, `requested` what was asked for (0: free)."""

    __slots__ = ("address", "after", "before", "free", "nbytes", "requested", "segment")

    def __init__(self, segment: Chunk, address: int, nbytes: int) -> None:
        self.segment, self.address, self.nbytes = segment, address, nbytes
        self.requested = 0
        self.free = True
        self.before: Piece | None = None  # neighbours in the segment
        self.after: Piece | None = None

    def __repr__(self) -> str:
        what = "free" if self.free else f"{self.requested:,} B asked for"
        return f"<block at {self.address}: {self.nbytes:,} B, {what}>"


class Chunk:
    """A segment: `pool` is "small" or "large", `first` its block at the lowest address."""

    __slots__ = ("address", "first", "nbytes", "pool", "stream")

    def __init__(self, address: int, nbytes: int, pool: str, stream: int) -> None:
        self.address, self.nbytes, self.pool, self.stream = address, nbytes, pool, stream
        self.first = Piece(self, address, nbytes)

    @property
    def blocks(self) -> Iterator[Piece]:
        """Its blocks by address, free ones included; together they fill it."""
        piece: Piece | None = self.first
        while piece is not None:
            yield piece
            piece = piece.after

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
    opened, closed: called with each segment (Chunk) that comes from the driver or goes back to it.

    Counts in bytes: `allocated` (blocks in use), `reserved` (segments), `requested` (what was asked for),
    `highest` (the most that was allocated at once). `segments` gives the segments by address.
    """

    def __init__(
        self,
        capacity: int | None = None,
        *,
        new_address: Callable[[int], int] | None = None,
        opened: Callable[[Chunk], None] | None = None,
        closed: Callable[[Chunk], None] | None = None,
    ) -> None:
        self.capacity = capacity
        self.allocated = self.reserved = self.requested = self.highest = 0
        self._new_address = new_address or self._lowest
        self._opened, self._closed = opened, closed
        self._chunks: dict[int, Chunk] = {}
        self._free: dict[tuple[int, str], list[tuple[int, int]]] = {}  # of a stream and pool: (bytes, address), sorted
        self._free_at: dict[int, Piece] = {}
        self._holes: list[tuple[int, int]] = []  # (address, bytes) given back to the driver, by address, merged
        self._end = 0  # nothing lies beyond

    # ---------------------------------------------------------------- the rules

    def malloc(self, nbytes: int, stream: int = 0) -> Piece:
        """A block for `nbytes`. Raises CapacityError where there is no room, ValueError for less than one byte."""
        if nbytes < 1:
            raise ValueError(f"malloc() serves requests from 1 B on; {nbytes} B take no block.")
        size = rounded(nbytes)
        pool = "small" if size <= SMALL else "large"
        piece = self._best_fit(size, stream, pool)
        if piece is None:
            piece = self._open(size, stream, pool, nbytes)
        return self._use(piece, size, nbytes)

    def malloc_at(self, address: int, nbytes: int) -> Piece:
        """A block for `nbytes` out of the free block that begins at `address`, whichever best fit would take.

        Raises LookupError if no free block begins there, or it is too small.
        """
        piece = self._free_at.get(address)
        size = rounded(nbytes)
        if piece is None or piece.nbytes < size:
            found = "no free block begins there" if piece is None else f"the free block there has {piece.nbytes:,} B"
            raise LookupError(f"A block of {size:,} B cannot lie at {address}: {found}.")
        return self._use(piece, size, nbytes)

    def free(self, piece: Piece) -> None:
        """Give a block back; it becomes one with the free blocks beside it. Freeing it twice raises ValueError."""
        if piece.free:
            raise ValueError(f"This block is free already: {piece!r}.")
        self.allocated -= piece.nbytes
        self.requested -= piece.requested
        piece.free, piece.requested = True, 0
        before, after = piece.before, piece.after
        if before is not None and before.free:
            self._take(before)
            piece.address = before.address
            piece.nbytes += before.nbytes
            self._link(before.before, piece)
        if after is not None and after.free:
            self._take(after)
            piece.nbytes += after.nbytes
            self._link(piece, after.after)
        self._put(piece)

    def empty_cache(self) -> int:
        """Give every segment that is wholly free back to the driver; how many bytes that were."""
        whole = [p for p in self._free_at.values() if p.before is None and p.after is None]
        for piece in whole:
            self._close(piece.segment)
        return sum(p.nbytes for p in whole)

    def _best_fit(self, size: int, stream: int, pool: str) -> Piece | None:
        """The smallest free block that is large enough; of several, the one at the lowest address."""
        free = self._free.get((stream, pool))
        if not free:
            return None
        index = bisect_left(free, (size,))
        return self._free_at[free[index][1]] if index < len(free) else None

    def _splits(self, rest: int, pool: str) -> bool:
        """Whether what a request leaves of a free block becomes a free block of its own."""
        return rest >= ROUND if pool == "small" else rest > SMALL

    def _open(self, size: int, stream: int, pool: str, asked: int) -> Piece:
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

    def widen(self, piece: Piece, more: int) -> None:
        """Let a block in use take `more` bytes of the free block behind it."""
        behind = piece.after
        if piece.free or behind is None or not behind.free or not 0 < more < behind.nbytes:
            raise ValueError(f"{piece!r} cannot take {more:,} B of what lies behind it.")
        self._take(behind)
        behind.address += more
        behind.nbytes -= more
        self._put(behind)
        piece.nbytes += more
        self.allocated += more
        self.highest = max(self.highest, self.allocated)

    def add_segment(
        self, address: int, nbytes: int, pool: str, stream: int = 0, blocks: Iterable[tuple[int, int, int]] = ()
    ) -> Chunk:
        """A segment at a given address, with blocks in use as (address, bytes, requested bytes), by address.

        What lies between them is free. Raises ValueError if they overlap or lie outside.
        """
        chunk = Chunk(address, nbytes, pool, stream)
        self._chunks[address] = chunk
        self.reserved += nbytes
        self._end = max(self._end, address + nbytes)
        self._put(chunk.first)
        if self._opened is not None:
            self._opened(chunk)
        for where, size, requested in blocks:
            last = self._last(chunk)
            if not last.free or where < last.address or where + size > last.address + last.nbytes:
                raise ValueError(f"A block of {size:,} B at {where} does not fit into {chunk!r}.")
            self._take(last)
            if where > last.address:
                gap, last = last, self._cut(last, where - last.address)
                self._put(gap)
            if size < last.nbytes:
                self._put(self._cut(last, size))
            self._hold(last, requested)
        return chunk

    def remove_segment(self, address: int) -> Chunk:
        """Give one segment back, as a trace tells it. Raises LookupError if there is none, or it is in use."""
        chunk = self._chunks.get(address)
        if chunk is None or chunk.first.after is not None or not chunk.first.free:
            found = "there is none" if chunk is None else "a block of it is in use"
            raise LookupError(f"The segment at {address} cannot go back: {found}.")
        self._close(chunk)
        return chunk

    @property
    def segments(self) -> tuple[Chunk, ...]:
        return tuple(self._chunks[address] for address in sorted(self._chunks))

    def free_block(self, address: int) -> Piece | None:
        """The free block that begins at `address`."""
        return self._free_at.get(address)

    # ---------------------------------------------------------------- the lists

    def _use(self, piece: Piece, size: int, requested: int) -> Piece:
        """Take a free block for a request, split where the rule says so."""
        self._take(piece)
        if self._splits(piece.nbytes - size, piece.segment.pool):
            self._put(self._cut(piece, size))
        return self._hold(piece, requested)

    def _hold(self, piece: Piece, requested: int) -> Piece:
        piece.free, piece.requested = False, requested
        self.requested += requested
        self.allocated += piece.nbytes
        if self.allocated > self.highest:
            self.highest = self.allocated
        return piece

    def _cut(self, piece: Piece, size: int) -> Piece:
        """Leave `size` bytes to a block; the rest behind them as a block of its own."""
        rest = Piece(piece.segment, piece.address + size, piece.nbytes - size)
        piece.nbytes = size
        self._link(rest, piece.after)
        self._link(piece, rest)
        return rest

    @staticmethod
    def _link(before: Piece | None, after: Piece | None) -> None:
        """Make two blocks neighbours; what is None is the segment's end."""
        if before is not None:
            before.after = after
        else:
            after.segment.first = after
        if after is not None:
            after.before = before

    def _put(self, piece: Piece) -> None:
        """Into the list of free blocks."""
        segment = piece.segment
        key = (segment.stream, segment.pool)
        free = self._free.get(key)
        if free is None:
            free = self._free[key] = []
        insort(free, (piece.nbytes, piece.address))
        self._free_at[piece.address] = piece

    def _take(self, piece: Piece) -> None:
        """Out of the list of free blocks."""
        segment = piece.segment
        free = self._free[segment.stream, segment.pool]
        del free[bisect_left(free, (piece.nbytes, piece.address))]
        del self._free_at[piece.address]

    @staticmethod
    def _last(chunk: Chunk) -> Piece:
        piece = chunk.first
        while piece.after is not None:
            piece = piece.after
        return piece

    def _close(self, chunk: Chunk) -> None:
        self._take(chunk.first)
        del self._chunks[chunk.address]
        self.reserved -= chunk.nbytes
        insort(self._holes, (chunk.address, chunk.nbytes))
        if self._closed is not None:
            self._closed(chunk)

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
