"""Writes down what an allocator does, moment by moment, as the frozen AllocatorHistory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data.model import AllocatorHistory, Block, OutOfMemory, Reading, Segment
from .allocator import CachingAllocator, CapacityError, PoolBlock, PoolSegment


class HistoryWriter:
    """An allocator and its history so far. `moment` is the event that happens now, -1 before the first.

    Options are CachingAllocator's. Where it is out of memory, the first time is noted as a failure, and from there on
    the limit is gone: the history then tells what would have been needed.
    """

    def __init__(self, **options: Any) -> None:
        self.allocator = CachingAllocator(opened=self._opened, closed=self._closed, **options)
        self.capacity = self.allocator.capacity
        self.moment = -1
        self.failures: list[OutOfMemory] = []
        self._segments: list[Segment] = []
        self._segment_of: dict[int, int] = {}  # address of a segment that is there → its id
        self._blocks: list[Block] = []
        self._block_of: dict[PoolBlock, int] = {}
        self._readings: list[Reading] = []

    def malloc(self, nbytes: int, storage: int | None, stream: int = 0) -> PoolBlock:
        """A block for a storage, beyond the limit if need be."""
        try:
            block = self.allocator.malloc(nbytes, stream)
        except CapacityError as error:
            self._fail(error, storage)
            block = self.allocator.malloc(nbytes, stream)
        self.hold(block, storage)
        return block

    def hold(self, block: PoolBlock, storage: int | None) -> None:
        """Write down a block that the allocator has given."""
        number = self._block_of[block] = len(self._blocks)
        segment = self._segment_of[block.segment.address]
        self._blocks.append(
            Block(number, segment, block.address, block.nbytes, block.requested, self.moment, None, storage)
        )

    def free(self, block: PoolBlock) -> None:
        number = self._block_of.pop(block)
        self._blocks[number] = replace(self._blocks[number], freed=self.moment)
        self.allocator.free(block)

    def read(self) -> None:
        """The moment is over: write down its counts."""
        self._readings.append(self.reading())
        self.moment += 1

    def reading(self) -> Reading:
        a = self.allocator
        return Reading(a.allocated, a.reserved, a.requested, a.highest)

    def history(self, source: str, card: str = "", notes: tuple[str, ...] = ()) -> AllocatorHistory:
        return AllocatorHistory(
            source,
            tuple(self._segments),
            tuple(self._blocks),
            tuple(self._readings),
            self.capacity,
            tuple(self.failures),
            card,
            notes,
        )

    def _fail(self, error: CapacityError, storage: int | None) -> None:
        self.failures.append(
            OutOfMemory(self.moment, error.asked, storage, self.reading(), error.capacity, error.free, error.inside)
        )
        self.allocator.capacity = None

    def _opened(self, segment: PoolSegment) -> None:
        number = self._segment_of[segment.address] = len(self._segments)
        self._segments.append(
            Segment(number, segment.address, segment.nbytes, segment.pool, self.moment, None, segment.stream)
        )

    def _closed(self, segment: PoolSegment) -> None:
        number = self._segment_of.pop(segment.address)
        self._segments[number] = replace(self._segments[number], closed=self.moment)
