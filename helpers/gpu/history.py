"""Writes down what an allocator does, moment by moment, as the frozen AllocatorHistory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data.model import AllocatorHistory, Block, OutOfMemory, Reading, Segment
from .allocator import CachingAllocator, CapacityError, Chunk, Piece


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
        self._block_of: dict[Piece, int] = {}
        self._readings: list[Reading] = []

    def malloc(self, nbytes: int, storage: int | None, stream: int = 0, at: int | None = None) -> Piece:
        """A block for a storage; `at` dictates its address."""
        if at is not None:
            piece = self.allocator.malloc_at(at, nbytes)
        else:
            try:
                piece = self.allocator.malloc(nbytes, stream)
            except CapacityError as error:
                self._fail(error, storage)
                piece = self.allocator.malloc(nbytes, stream)
        self.hold(piece, storage)
        return piece

    def hold(self, piece: Piece, storage: int | None) -> None:
        """Write down a block that the allocator has given."""
        number = self._block_of[piece] = len(self._blocks)
        segment = self._segment_of[piece.segment.address]
        self._blocks.append(
            Block(number, segment, piece.address, piece.nbytes, piece.requested, self.moment, None, storage)
        )

    def free(self, piece: Piece) -> None:
        number = self._block_of.pop(piece)
        self._blocks[number] = replace(self._blocks[number], freed=self.moment)
        self.allocator.free(piece)

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

    def _opened(self, chunk: Chunk) -> None:
        number = self._segment_of[chunk.address] = len(self._segments)
        self._segments.append(Segment(number, chunk.address, chunk.nbytes, chunk.pool, self.moment, None, chunk.stream))

    def _closed(self, chunk: Chunk) -> None:
        number = self._segment_of.pop(chunk.address)
        self._segments[number] = replace(self._segments[number], closed=self.moment)
