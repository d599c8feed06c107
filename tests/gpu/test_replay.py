"""The proof: our allocator places every request of a real history where the GPU's did. A fault in a rule breaks it."""

import pytest

from helpers.gpu.allocator import MIB, CachingAllocator, rounded
from helpers.gpu.errors import SnapshotError
from helpers.gpu.replay import replay
from helpers.gpu.snapshot_writing import write_snapshot
from helpers.gpu.trace import load, parse

from .programs import Program, by_chance, with_hidden_slack

MOST_REPAIRS = 10


class FirstFit(CachingAllocator):
    """The lowest free block that is large enough, whatever its size."""

    def _best_fit(self, size, stream, pool):
        fitting = [address for n, address in self._free.get((stream, pool), ()) if n >= size]
        return self._free_at[min(fitting)] if fitting else None


class HighestFirst(CachingAllocator):
    """Of free blocks of one size, the one at the highest address."""

    def _best_fit(self, size, stream, pool):
        found = super()._best_fit(size, stream, pool)
        return found and self._free_at[max(a for n, a in self._free[stream, pool] if n == found.nbytes)]


class NoMerge(CachingAllocator):
    def free(self, block):
        self.allocated -= block.nbytes
        self.requested -= block.requested
        block.free, block.requested = True, 0
        self._put(block)


class MergeBehindOnly(CachingAllocator):
    def free(self, block):
        before, block.before = block.before, None
        super().free(block)
        block.before = before


class SplitAlways(CachingAllocator):
    """Large blocks are split from 512 B on."""

    def _splits(self, rest, pool):
        return rest >= 512


class SplitLate(CachingAllocator):
    """Large blocks are split from 4 MiB on."""

    def _splits(self, rest, pool):
        return rest >= (512 if pool == "small" else 4 * MIB)


class SmallUnsplit(CachingAllocator):
    def _splits(self, rest, pool):
        return rest > MIB


FAULTS = (FirstFit, HighestFirst, NoMerge, MergeBehindOnly, SplitAlways, SplitLate, SmallUnsplit)


def written(program, folder):
    return load(write_snapshot(*program.done(), folder / "snapshot.pickle"))


# ------------------------------------------------------------------ real traces


def test_every_placement_of_a_real_trace(trace):
    found = replay(trace)
    print(f"\n{trace.name}: {found}")
    for repair in found.repairs:
        print(f"  {repair}")
    assert found.placements > 1000
    assert len(found.repairs) <= MOST_REPAIRS
    assert not found.mismatches and found.same + len(found.repairs) == found.placements
    assert found.final and found.proved


@pytest.mark.parametrize("fault", [f for f in FAULTS if f is not SplitAlways])
def test_a_fault_breaks_the_real_replay(trace, fault):
    assert not replay(trace, allocator=fault).proved


def test_splitting_small_rests_breaks_the_real_replay(all_traces):
    """It shows where what would have been split off is still part of a block at the end, or was asked for meanwhile."""
    telling = 0
    for path in all_traces:
        blocks = [b for b in parse(load(path)).blocks if b.born >= 0 and b.freed is None]
        if any(b.nbytes > rounded(b.requested) for b in blocks):
            telling += 1
            assert not replay(path, allocator=SplitAlways).proved
    assert telling


def test_the_state_before_is_no_guess(trace):
    """No block from before has a size that the snapshot leaves open: the replay starts from what is known."""
    assert parse(load(trace)).open_ended == []


# ------------------------------------------------------------------ histories of our own


@pytest.mark.parametrize("seed", range(40))
def test_a_history_by_chance(seed, tmp_path):
    """What our allocator did is found again from its end and its entries: undoing is right, also where segments go."""
    program = by_chance(seed)
    found = replay(written(program, tmp_path))
    assert found.proved and found.placements > 100 and len(found.repairs) <= MOST_REPAIRS


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_histories_by_chance(fault, tmp_path):
    assert not all(replay(written(by_chance(seed), tmp_path), allocator=fault).proved for seed in range(6))


def test_a_repair(tmp_path):
    found = replay(written(with_hidden_slack(), tmp_path))
    assert found.same == 0 and len(found.repairs) == 1 and found.proved
    (repair,) = found.repairs
    assert (repair.recorded, repair.ours) == (2**34 + 100 * MIB, 2**34 + 4 * MIB)
    assert str(found) == "0 of 1 placements at the recorded address, 1 repairs"


def test_no_repair_explains_more_than_one_mib(tmp_path):
    """The request would have fitted the free block by more than any slack: that is a fault, and it is told."""
    program = Program()
    program.state(0, 20 * MIB, "large", [(0, 4 * MIB, 4 * MIB)])
    program.state(100 * MIB, 16 * MIB, "large")
    program.begin()
    allocator = program.writer.allocator
    allocator._best_fit = lambda size, stream, pool: allocator.free_block(100 * MIB)
    program.malloc(14 * MIB)
    program.free(0)
    found = replay(written(program, tmp_path))
    assert not found.proved and not found.repairs and len(found.mismatches) == 1
    assert "entry 0 lies elsewhere, and no repair explains it" in str(found)


@pytest.mark.unproved
def test_segments_that_open_and_go(tmp_path):
    """At a capacity: a flush gives segments back, others open; the replay follows, with the driver's addresses."""
    program = Program(capacity=64 * MIB)
    program.begin()
    for nbytes in (30 * MIB, 100, 20 * MIB):
        program.free(program.malloc(nbytes))
    program.malloc(40 * MIB)
    program.free(program.malloc(12 * MIB))
    program.empty_cache()
    data = written(program, tmp_path)
    actions = [e["action"] for e in data["device_traces"][0]]
    assert actions.count("segment_alloc") == 4 and actions.count("segment_free") == 3
    assert replay(data).proved


def test_what_cannot_be_replayed(tmp_path):
    program = Program()
    program.begin()
    program.malloc(100)
    data = written(program, tmp_path)
    with pytest.raises(SnapshotError, match="no history, so there is nothing to replay"):
        replay({**data, "device_traces": [[]]})
    data["segments"][0]["is_expandable"] = True
    with pytest.raises(SnapshotError, match="expandable segments"):
        replay(data)
