"""The proof that our allocator is PyTorch's: it serves a real history's requests, and each address is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from .allocator import ROUND, SMALL, CachingAllocator, PoolBlock, rounded
from .errors import SnapshotError
from .trace import Entry, Trace, load, parse


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A request that our allocator placed elsewhere than the GPU did. `entry`: index into the history."""

    entry: int
    nbytes: int
    recorded: int
    ours: int


@dataclass(frozen=True, slots=True)
class Replay:
    """placements: how many requests were placed; same: how many of them at the recorded address at the first try.

    repairs: requests that were at the recorded address once the state before the history was corrected.
    mismatches: those that no correction explains; the replay ends at the first.
    final: whether the state at the end is the snapshot's, block by block.
    """

    placements: int
    same: int
    repairs: tuple[Mismatch, ...]
    mismatches: tuple[Mismatch, ...]
    final: bool

    @property
    def proved(self) -> bool:
        """Every request at the recorded address, and the same state at the end."""
        return self.final and not self.mismatches and self.same + len(self.repairs) == self.placements

    def __str__(self) -> str:
        words = f"{self.same:,} of {self.placements:,} placements at the recorded address, {len(self.repairs)} repairs"
        if self.mismatches:
            words += f"; entry {self.mismatches[0].entry:,} lies elsewhere, and no repair explains it"
        return words + ("" if self.final else "; the state at the end differs")


def replay(
    source: str | PathLike[str] | Mapping[str, Any],
    *,
    device: int | None = None,
    allocator: Callable[..., CachingAllocator] = CachingAllocator,
) -> Replay:
    """Serve a snapshot's requests by our allocator, and compare every address with the one that the GPU's gave.

    The state before the history is settled before the replay begins (helpers.gpu.trace undoes the history to find it)
    and the replay knows nothing of what is to come, but where the driver put new segments.

    A repair: of a large block that was there before, with more than 1 MiB free behind it, a snapshot may not tell
    whether it took up to 1 MiB of that, and it begins without. If later a request lies elsewhere than ours because the
    free block that we took must have been smaller than we thought, the block before it is widened by the least that
    explains it, and the request is served again. A repair is made only at a block that was left open, once for each.

    allocator: makes the allocator; tests give ones with faults.
    Raises SnapshotError for what is no snapshot, for one without a history, and for expandable segments (not modelled).
    """
    trace = parse(load(source), device)
    if trace.expandable:
        raise SnapshotError(
            "This snapshot was taken with expandable segments, whose rules this allocator does not have. It can be "
            "read (read_snapshot), not replayed."
        )
    if trace.changed:
        raise SnapshotError(
            f"This snapshot was taken with other allocator settings ({', '.join(trace.changed)}), under which other "
            "rules hold. It can be read (read_snapshot), not replayed."
        )
    if not any(e.action == "alloc" for e in trace.entries):
        raise SnapshotError("This snapshot has no history, so there is nothing to replay.")
    return _Replaying(trace, allocator).run()


class _Replaying:
    def __init__(self, trace: Trace, allocator: Callable[..., CachingAllocator]) -> None:
        self.trace = trace
        self.new = [s.address for s in trace.segments if s.opened >= 0][::-1]
        self.allocator = allocator(new_address=self._new_address)
        blocks: dict[int, list[tuple[int, int, int]]] = {}
        for life in trace.blocks:
            if life.born < 0:
                blocks.setdefault(life.home.address, []).append((life.address, life.nbytes, life.requested))
        for s in trace.segments:
            if s.opened < 0:
                self.allocator.add_segment(s.address, s.nbytes, s.pool, s.stream, blocks.get(s.address, ()))
        self.held: dict[int, PoolBlock] = {
            b.address: b for s in self.allocator.segments for b in s.blocks if not b.free
        }
        self.open_ended = {life.address: life for life in trace.open_ended}
        self.repairs: list[Mismatch] = []

    def run(self) -> Replay:
        placements = same = 0
        for index, entry in enumerate(self.trace.entries):
            if entry.action == "free_completed":
                self.allocator.free(self.held.pop(entry.address))
                self.open_ended.pop(entry.address, None)
            elif entry.action == "segment_free":
                self._close(entry)
            elif entry.action == "alloc":
                placements += 1
                block = self.allocator.malloc(entry.nbytes, entry.stream)
                if block.address == entry.address:
                    same += 1
                else:
                    missed = Mismatch(index, entry.nbytes, entry.address, block.address)
                    block = self._repaired(entry, block)
                    if block is None:
                        return Replay(placements, same, tuple(self.repairs), (missed,), False)
                    self.repairs.append(missed)
                self.held[entry.address] = block
        return Replay(placements, same, tuple(self.repairs), (), self._final())

    def _repaired(self, entry: Entry, block: PoolBlock) -> PoolBlock | None:
        """The request served again, with blocks before free ones widened; None if that does not explain it."""
        while block.address != entry.address:
            ours = block.address
            self.allocator.free(block)
            free = self.allocator.free_block(ours)
            before = free.before if free is not None else None
            if before is None or before.address not in self.open_ended:
                return None
            more = free.nbytes - rounded(entry.nbytes) + ROUND  # so that the request does not fit any more
            if not 0 < more <= SMALL or free.nbytes - more <= SMALL:
                return None
            del self.open_ended[before.address]
            self.allocator.widen(before, more)
            block = self.allocator.malloc(entry.nbytes, entry.stream)
        return block

    def _close(self, entry: Entry) -> None:
        """A segment that went back to the driver: ours may have flushed it already."""
        if any(s.address == entry.address for s in self.allocator.segments):
            self.allocator.remove_segment(entry.address)

    def _new_address(self, nbytes: int) -> int:
        return self.new.pop() if self.new else -nbytes  # one more than the GPU opened: it lies nowhere

    def _final(self) -> bool:
        """Whether blocks and segments are the snapshot's at the end."""
        ours = {(b.address, b.nbytes, b.requested) for s in self.allocator.segments for b in s.blocks if not b.free}
        there = {(b.address, b.nbytes, b.requested) for b in self.trace.blocks if b.freed is None}
        segments = {(s.address, s.nbytes, s.pool, s.stream) for s in self.allocator.segments}
        return ours == there and segments == {
            (s.address, s.nbytes, s.pool, s.stream) for s in self.trace.segments if s.closed is None
        }
