"""The allocator's rules one by one, from its source. Those marked `unproved` are met by no trace at hand."""

import random

import pytest

from helpers.gpu.allocator import MIB, CachingAllocator, CapacityError, rounded, segment_size


def check(allocator):
    """Blocks fill their segments without gap; no two free ones side by side; the counts are sums over them."""
    allocated = requested = 0
    for segment in allocator.segments:
        address, before = segment.address, None
        for block in segment.blocks:
            assert block.address == address and block.before is before and block.segment is segment
            assert not (before is not None and before.free and block.free)
            if block.free:
                assert allocator.free_block(address) is block and block.requested == 0
            else:
                allocated += block.nbytes
                requested += block.requested
            address, before = address + block.nbytes, block
        assert address == segment.address + segment.nbytes
    assert allocated == allocator.allocated and requested == allocator.requested
    assert allocator.reserved == sum(s.nbytes for s in allocator.segments)
    spans = [(s.address, s.address + s.nbytes) for s in allocator.segments]
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))


@pytest.mark.parametrize(
    "asked, takes", [(1, 512), (511, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)]
)
def test_requests_are_rounded_up_to_512(asked, takes):
    assert rounded(asked) == takes
    allocator = CachingAllocator()
    block = allocator.malloc(asked)
    assert (allocator.allocated, allocator.requested, block.nbytes, block.requested) == (takes, asked, takes, asked)


@pytest.mark.unproved
@pytest.mark.parametrize(
    "asked, segment, pool",
    [
        (1, 2 * MIB, "small"),
        (512, 2 * MIB, "small"),
        (MIB - 1, 2 * MIB, "small"),
        (MIB, 2 * MIB, "small"),
        (MIB + 1, 20 * MIB, "large"),
        (10 * MIB - 513, 20 * MIB, "large"),
        (10 * MIB - 512, 20 * MIB, "large"),
        (10 * MIB - 511, 10 * MIB, "large"),  # rounded, it is 10 MiB
        (10 * MIB - 1, 10 * MIB, "large"),
        (10 * MIB, 10 * MIB, "large"),
        (10 * MIB + 1, 12 * MIB, "large"),
        (12345679, 12 * MIB, "large"),
        (33_554_433, 34 * MIB, "large"),
    ],
)
def test_segment_sizes(asked, segment, pool):
    assert segment_size(asked) == segment
    allocator = CachingAllocator()
    allocator.malloc(asked)
    (only,) = allocator.segments
    assert (only.nbytes, only.pool, allocator.reserved) == (segment, pool, segment)


def test_a_small_block_is_split_from_512_bytes_on():
    allocator = CachingAllocator()
    allocator.add_segment(0, 2 * MIB, "small", blocks=[(1024, 2 * MIB - 1024, 2 * MIB - 1024)])
    assert allocator.malloc(512).nbytes == 512
    assert allocator.free_block(512).nbytes == 512
    check(allocator)


@pytest.mark.parametrize("rest, splits", [(0, False), (512, False), (MIB, False), (MIB + 512, True)])
def test_a_large_block_is_split_beyond_one_mib(rest, splits):
    allocator = CachingAllocator()
    asked = 10 * MIB - rest
    allocator.add_segment(0, 10 * MIB, "large")
    block = allocator.malloc(asked)
    assert block.nbytes == (asked if splits else 10 * MIB)
    assert (allocator.free_block(asked) is not None) == splits
    assert allocator.reserved == 10 * MIB and allocator.requested == asked
    check(allocator)


def test_best_fit_takes_the_smallest_then_the_lowest():
    allocator = CachingAllocator()
    for i, n in enumerate([8, 4, 6, 4]):
        allocator.add_segment(100 * i * MIB, n * MIB, "large")
    assert allocator.malloc(3 * MIB).address == 100 * MIB  # of the two with 4 MiB, the lower; all of it
    assert allocator.malloc(3 * MIB + 1).address == 300 * MIB
    assert allocator.malloc(3 * MIB).address == 200 * MIB
    assert allocator.malloc(3 * MIB).address == 203 * MIB  # the rest that was split off
    check(allocator)


def test_free_blocks_merge_on_both_sides():
    allocator = CachingAllocator()
    first, middle, last = (allocator.malloc(100 * 512) for _ in range(3))
    allocator.free(first)
    allocator.free(last)  # with the segment's free end
    assert [b.free for b in allocator.segments[0].blocks] == [True, False, True]
    check(allocator)
    allocator.free(middle)
    (whole,) = allocator.segments[0].blocks
    assert whole.free and whole.nbytes == 2 * MIB
    check(allocator)


def test_streams_and_pools_do_not_share():
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(5 * MIB, stream=7))
    allocator.malloc(5 * MIB, stream=0)
    assert len(allocator.segments) == 2
    allocator.malloc(5 * MIB, stream=7)
    assert len(allocator.segments) == 2
    allocator.malloc(MIB)  # small: none of the large pool's free blocks
    assert [s.pool for s in allocator.segments].count("small") == 1
    check(allocator)


@pytest.mark.unproved
def test_empty_cache_gives_back_whole_free_segments_only():
    allocator = CachingAllocator()
    whole, held = allocator.malloc(30 * MIB), allocator.malloc(4 * MIB)
    small = allocator.malloc(100)
    allocator.free(whole)
    assert allocator.reserved == 52 * MIB
    assert allocator.empty_cache() == 30 * MIB and allocator.empty_cache() == 0
    assert allocator.reserved == 22 * MIB
    allocator.free(held)
    allocator.free(small)
    assert allocator.empty_cache() == 22 * MIB and allocator.segments == () and allocator.reserved == 0


@pytest.mark.unproved
def test_at_the_capacity_it_flushes_first():
    allocator = CachingAllocator(64 * MIB)
    held = allocator.malloc(12 * MIB)
    allocator.free(allocator.malloc(40 * MIB))
    allocator.free(allocator.malloc(1))
    assert allocator.reserved == 54 * MIB
    allocator.malloc(50 * MIB)  # only if what lies free goes back, of both pools: 12 + 50 of 64
    assert allocator.reserved == 62 * MIB and len(allocator.segments) == 2 and not held.free
    check(allocator)


@pytest.mark.unproved
def test_out_of_memory_says_what_is_free_and_leaves_the_flush():
    allocator = CachingAllocator(40 * MIB)
    held = allocator.malloc(4 * MIB)
    allocator.free(allocator.malloc(20 * MIB - 1))
    assert allocator.reserved == 40 * MIB
    with pytest.raises(CapacityError) as caught:
        allocator.malloc(21 * MIB)
    error = caught.value
    assert (error.asked, error.capacity) == (21 * MIB, 40 * MIB)
    assert error.free == 20 * MIB and error.inside == 16 * MIB  # flushed before it gave up
    assert f"{21 * MIB:,} B were asked for" in str(error) and f"a segment of {22 * MIB:,} B" in str(error)
    assert allocator.reserved == 20 * MIB and not held.free
    assert allocator.malloc(20 * MIB).nbytes == 20 * MIB  # what fits is served afterwards
    check(allocator)


@pytest.mark.unproved
def test_enough_is_free_but_in_pieces():
    """Every second of eight blocks goes: half of what is reserved is free, and no request for a fifth fits."""
    allocator = CachingAllocator(40 * MIB)
    blocks = [allocator.malloc(5 * MIB) for _ in range(8)]
    assert allocator.reserved == allocator.allocated == 40 * MIB
    for block in blocks[::2]:
        allocator.free(block)
    with pytest.raises(CapacityError) as caught:
        allocator.malloc(8 * MIB)
    assert caught.value.inside == 20 * MIB and caught.value.free == 0
    allocator.free(blocks[1])  # the neighbours become one
    assert allocator.malloc(8 * MIB).address == 0
    check(allocator)


def test_what_cannot_be_asked_for():
    allocator = CachingAllocator()
    with pytest.raises(ValueError, match="from 1 B on; 0 B"):
        allocator.malloc(0)
    block = allocator.malloc(8)
    allocator.free(block)
    with pytest.raises(ValueError, match="free already"):
        allocator.free(block)
    held = allocator.malloc(MIB)
    with pytest.raises(ValueError, match="cannot take"):
        allocator.widen(held, MIB)  # all of what lies behind it: nothing would be left to be free
    allocator.widen(held, MIB - 512)
    assert held.nbytes == allocator.allocated == 2 * MIB - 512 and allocator.free_block(2 * MIB - 512).nbytes == 512
    allocator.free(held)
    with pytest.raises(LookupError, match="there is none"):
        allocator.remove_segment(MIB)
    allocator.malloc(8)
    with pytest.raises(LookupError, match="in use"):
        allocator.remove_segment(0)
    with pytest.raises(ValueError, match="does not fit"):
        allocator.add_segment(40 * MIB, 2 * MIB, "small", blocks=[(40 * MIB, 1024, 1), (40 * MIB + 512, 512, 1)])


def test_a_given_state_and_given_addresses():
    asked = []

    def address(nbytes):
        asked.append(nbytes)
        return 70_000_000

    allocator = CachingAllocator(new_address=address)
    allocator.add_segment(
        1000, 20 * MIB, "large", 3, [(1000, 4 * MIB, 4 * MIB - 5), (1000 + 6 * MIB, 2 * MIB, 2 * MIB)]
    )
    check(allocator)
    assert allocator.allocated == 6 * MIB and allocator.requested == 6 * MIB - 5 and allocator.highest == 6 * MIB
    assert allocator.malloc(MIB + 1, stream=3).address == 1000 + 4 * MIB
    assert allocator.malloc(1).address == 70_000_000 and asked == [2 * MIB]
    check(allocator)


@pytest.mark.unproved
def test_segments_lie_at_the_lowest_free_place():
    allocator = CachingAllocator()
    first, second, third = (allocator.malloc(n * MIB) for n in (10, 20, 30))
    assert [s.address for s in allocator.segments] == [0, 10 * MIB, 30 * MIB]
    allocator.free(second)
    allocator.empty_cache()
    assert allocator.malloc(12 * MIB).address == 10 * MIB
    assert allocator.malloc(9 * MIB).address == 60 * MIB  # 8 MiB are left between them
    allocator.free(third)
    allocator.empty_cache()
    assert allocator.malloc(34 * MIB).address == 22 * MIB
    check(allocator)


def test_it_stays_sound_under_many_requests():
    chance = random.Random(0)
    opened, closed = [], []
    allocator = CachingAllocator(500 * MIB, opened=opened.append, closed=closed.append)
    live, failed, highest = [], 0, 0
    for turn in range(4000):
        if live and chance.random() < 0.47:
            allocator.free(live.pop(chance.randrange(len(live))))
        else:
            try:
                nbytes = int(2 ** chance.uniform(0, 25))
                live.append(allocator.malloc(nbytes, stream=chance.choice([0, 0, 0, 1])))
            except CapacityError:
                failed += 1
        highest = max(highest, allocator.allocated)
        assert allocator.reserved <= 500 * MIB
        if turn % 100 == 0:
            check(allocator)
    assert failed and closed and len(opened) - len(closed) == len(allocator.segments)
    assert allocator.highest == highest
    for block in live:
        allocator.free(block)
    check(allocator)
    assert allocator.allocated == allocator.requested == 0
    assert allocator.empty_cache() > 0 and allocator.reserved == 0
