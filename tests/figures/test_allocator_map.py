"""The allocator's curves and map: each column holds the bytes of one moment exactly, and no curve loses a peak."""

import math
import os
import re
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.data import CATEGORIES, AllocatorHistory, Block, MemoryEvent, Reading, Recording, Segment, free_bytes
from helpers.figures import allocator_figure
from helpers.figures.allocator_layout import MOST_COLUMNS, extents, map_of
from helpers.figures.allocator_map import MAP, Story, draw_allocator, parts_at
from helpers.gpu.simulate import simulate
from tests.figures.player_samples import SAMPLES as REAL
from tests.figures.plot_samples import band, line, patches, random_history, rects
from tests.figures.recordings import SAMPLES
from tests.figures.sound import check_sound, texts

FREE = ("stranded", "cached")


def drawn(history, recording=None):
    return draw_allocator(Story(history, recording))


def at_column(axes, x):
    """Kind → its (low, high) pieces between x and the next column."""
    found = {}
    for patch in patches(axes):
        for x0, x1, low, high in rects(patch):
            if x0 <= x < x1:
                found.setdefault(patch.get_label(), []).append((low, high))
    return found


def columns_of(axes):
    """Where columns begin, as far as anything changes there."""
    return sorted({x0 for patch in patches(axes) for x0, _, _, _ in rects(patch)})


def scaled(recording, times):
    """As if every tensor were so many times as large."""
    events = tuple(replace(e, resized=tuple((s, n * times) for s, n in e.resized)) for e in recording.events)
    storages = tuple(replace(s, nbytes=s.nbytes * times) for s in recording.storages)
    return replace(recording, storages=storages, events=events)


def samples():
    for seed in range(6):
        yield random_history(seed)
    for name, times in (("training", 3000), ("product", 1), ("states", 40)):
        recording = scaled(SAMPLES[name](), times)
        yield simulate(recording), recording
    recording = scaled(REAL["accumulation"](), 9000)
    yield simulate(recording), recording


@pytest.mark.parametrize(("history", "recording"), list(samples()))
def test_each_column_of_the_map_is_its_moment(history, recording):
    """Without a recording: blocks. With it: blocks by category. What is free: cached and stranded."""
    free = free_bytes(history)
    for given in (None, recording):
        axes = drawn(history, given).axes[1]
        held = columns_of(axes)
        assert len(history.readings) <= MOST_COLUMNS  # so each moment has its column
        for x in range(len(history.readings)):
            found = at_column(axes, x)
            sums = {kind: sum(high - low for low, high in pieces) for kind, pieces in found.items()}
            assert (sums.pop("stranded", 0), sums.pop("cached", 0)) == (free[x].stranded, free[x].cached)
            assert sum(sums.values()) == history.readings[x].allocated
            if given:
                assert sums == parts_at(Story(history, recording), x - 1)
            pieces = sorted(piece for kind in found.values() for piece in kind)
            assert all(a[1] <= b[0] for a, b in zip(pieces, pieces[1:], strict=False))  # nothing over another
            assert not pieces or pieces[-1][1] <= axes.get_ylim()[1]
        assert held[0] == 0 or not history.readings[0].reserved


@pytest.mark.parametrize(("history", "recording"), list(samples()))
def test_curves_are_the_readings(history, recording):
    axes = drawn(history, recording).axes[0]
    free = free_bytes(history)
    for name in ("reserved", "requested"):
        xs, ys = line(axes, name)
        assert ys[:-1] == [getattr(r, name) for r in history.readings] and xs == list(range(len(history.readings) + 1))
    for x, (r, f) in enumerate(zip(history.readings, free, strict=True)):
        low = 0
        for kind, n in (("block", r.allocated), ("stranded", f.stranded), ("cached", f.cached)):
            assert band(axes, kind).get(float(x), (low, low)) == (low, low + n)
            low += n
        assert low == r.reserved


def long_history(events, blocks, seed=0):
    """As long as a real snapshot, without an allocator: many blocks of every size, most of them short-lived."""
    import random

    dice = random.Random(seed)
    sizes = [dice.choice((2 << 20, 20 << 20, dice.randrange(5, 60) << 21)) for _ in range(400)]
    segments, at = [], 1 << 40
    for k, size in enumerate(sizes):
        segments.append(Segment(k, at, size, "small" if size == 2 << 20 else "large", -1))
        at += size + dice.choice((0, 0, 1 << 30))
    free = [(s.address, s.nbytes, s.id) for s in segments]  # the rest of each segment's pieces
    live, made, change = [], [], [0] * (events + 1)
    for number in range(blocks):
        born = number * (events - 2) // blocks
        while live and (len(live) > 1500 or dice.random() < 0.4):
            k = dice.randrange(len(live))
            b = live.pop(k)
            made[b] = replace(made[b], freed=born)
            change[born + 1] -= made[b].nbytes
            free.append((made[b].address, made[b].nbytes, made[b].segment))
        k = dice.randrange(len(free))
        address, room, segment = free.pop(k)
        size = min(room, dice.choice((512, 4096, 1 << 20, room)))
        if room > size:
            free.append((address + size, room - size, segment))
        made.append(Block(number, segment, address, size, size - 8, born))
        change[born + 1] += size
        live.append(number)
    readings, now, most, reserved = [], 0, 0, sum(sizes)
    for n in change:
        now += n
        most = max(most, now)
        readings.append(Reading(now, reserved, now, most))
    return AllocatorHistory("snapshot", tuple(segments), tuple(made), tuple(readings))


def snapshots():
    """Real ones, read by helpers.gpu; see CUDA_SNAPSHOTS in .ci/run."""
    folder = os.environ.get("CUDA_SNAPSHOTS")
    if not folder:
        pytest.skip("snapshots: CUDA_SNAPSHOTS is not set")
    from helpers.gpu.snapshot import read_snapshot

    return [read_snapshot(path) for path in sorted(Path(folder).glob("*.pickle"))]


def check_long(history, recording, most):
    """Small, and each column is the moment of its own at which most is allocated; curves have every peak."""
    figure = allocator_figure(history, recording)
    assert len(figure.svg) < most
    check_sound(figure, most * 3 // 2)
    curves, axes = drawn(history, recording).axes
    free = free_bytes(history)
    tops = {"block": [r.allocated for r in history.readings], "stranded": [f.stranded for f in free]}
    tops["cached"] = [f.cached for f in free]
    for kind, values in tops.items():
        assert max(high - low for low, high in band(curves, kind).values()) == max(values)
    for name in ("reserved", "requested"):
        values = [getattr(r, name) for r in history.readings]
        assert name == "requested" or max(line(curves, name)[1]) == max(values)
    plan = map_of(history, recording, MAP)
    held = {}
    for patch in patches(axes):
        for x0, x1, low, high in rects(patch):
            for x in (e for e in plan.edges[:-1] if x0 <= e < x1):
                sums = held.setdefault(x, {})
                sums[patch.get_label()] = sums.get(patch.get_label(), 0) + high - low
    assert len(plan.moments) <= MOST_COLUMNS
    for start, end, moment in zip(plan.edges, plan.edges[1:], plan.moments, strict=False):
        sums = held[start]
        assert (sums.pop("stranded", 0), sums.pop("cached", 0)) == (free[moment + 1].stranded, free[moment + 1].cached)
        assert sum(sums.values()) == max(r.allocated for r in history.readings[start:end])
    assert any("A column stands for up to" in t for t in texts(figure.svg))


def test_a_long_history_stays_small_and_true():
    """The worst case: blocks at random places, so hardly anything can be drawn together."""
    check_long(long_history(20_000, 7_000), None, 600_000)


def in_crumbs():
    """One segment full of blocks far thinner than a pixel: close together below, far apart above."""
    places = [k * 512 for k in range(40_000) if k % (2 if k < 20_000 else 9) == 0]
    blocks = tuple(Block(i, 0, address, 512, 500, -1 + i % 3) for i, address in enumerate(places))
    born = [sum(b.born <= m for b in blocks) * 512 for m in range(-1, 3)]
    readings = tuple(Reading(n, 40_000 * 512, n, n) for n in born)
    return AllocatorHistory("simulated", (Segment(0, 0, 40_000 * 512, "large", -1),), blocks, readings)


@pytest.mark.parametrize("history", [long_history(2_000, 1_500), in_crumbs()], ids=["long", "crumbs"])
def test_what_is_gathered_stays_where_it_is(history):
    """Of each kind as many bytes lie under any height as there really are, but for two or three pixels."""
    plan = map_of(history, None, MAP)
    starts, places, _ = extents(history.segments)
    pixel = plan.height / MAP
    assert plan.merged
    for column in (1, len(plan.moments) // 2, len(plan.moments) - 1):
        moment = plan.moments[column]
        real = {"block": [], "stranded": [], "cached": []}
        for s in history.segments:
            base = places[bisect_right(starts, s.address) - 1] + s.address - starts[bisect_right(starts, s.address) - 1]
            blocks = [b for b in history.blocks if b.segment == s.id and b.born <= moment]
            blocks = sorted((b.address, b.nbytes) for b in blocks if b.freed is None or moment < b.freed)
            at = s.address
            for address, nbytes in [*blocks, (s.address + s.nbytes, 0)]:
                real["stranded" if blocks else "cached"].append((base + at - s.address, base + address - s.address))
                real["block"].append((base + address - s.address, base + address + nbytes - s.address))
                at = address + nbytes
        for kind, pieces in real.items():
            shown = [
                (low, high)
                for x0, x1, low, high in (*plan.single.get(kind, ()), *plan.merged.get(kind, ()))
                if x0 <= plan.edges[column] < x1
            ]
            for k in range(101):
                height = plan.height * k / 100
                under = [sum(max(0, min(b, height) - a) for a, b in what) for what in (pieces, shown)]
                assert abs(under[0] - under[1]) <= 2.5 * pixel


def test_real_snapshots_stay_small_and_true():
    for recording in snapshots():
        check_long(recording.allocator, recording, 300_000)


def moved_apart(history):
    """The same, as another driver would have placed it: other addresses, gaps between segments."""
    shift = {s.id: 0x7F00_0000_0000 + s.id * (1 << 32) for s in history.segments}
    order = sorted(history.segments, key=lambda s: s.address)
    shift = {s.id: 0x7F00_0000_0000 + k * (1 << 36) - s.address for k, s in enumerate(order)}
    segments = tuple(replace(s, address=s.address + shift[s.id]) for s in history.segments)
    blocks = tuple(replace(b, address=b.address + shift[b.segment]) for b in history.blocks)
    return replace(history, segments=segments, blocks=blocks)


def test_no_address_is_told_and_gaps_are_squeezed():
    recording = scaled(SAMPLES["training"](), 3000)
    history = simulate(recording)
    assert len({s.address for s in history.segments}) == len(history.segments)  # none in another's place
    a, b = allocator_figure(history, recording), allocator_figure(moved_apart(history), recording)
    assert (a.text, a.alt, a.svg) == (b.text, b.alt, b.svg)
    assert not re.search(r"0x|7f00|139\d{12}", b.text.replace(",", ""))


def test_segments_in_one_anothers_place_share_it():
    """Closed and opened again at the same address: one place on the axis, and it overlaps at no moment."""
    segments = (Segment(0, 0, 100, "large", -1, 1), Segment(1, 50, 100, "large", 1), Segment(2, 900, 10, "small", 0))
    assert extents(segments) == ([0, 900], [0, 150], 160)
    readings = [Reading(0, n, 0, 0) for n in (100, 110, 110)]
    axes = drawn(AllocatorHistory("simulated", segments, (), tuple(readings))).axes[1]
    # a segment is there from the reading after the event that opened it; the first goes as the second comes
    assert [sorted(at_column(axes, x)["cached"]) for x in range(3)] == [
        [(0, 100)],
        [(0, 100), (150, 160)],
        [(50, 150), (150, 160)],
    ]


def test_the_twin():
    recording = scaled(SAMPLES["training"](), 3000)
    history = simulate(recording)
    figure = allocator_figure(history, recording)
    check_sound(figure)
    peak, free = history.readings[history.peak + 1], free_bytes(history)
    worst = max(f.stranded for f in free)
    lines = figure.text.split("\n")
    assert lines[0].startswith("Allocator, simulated: 95 events, 8 segments with 32 blocks in all. ")
    assert lines[1] == f"Peak allocated: {peak.allocated:,} B (940.04 MiB), after event 72 of 95: mean ran on line 2"
    for words, n in (("reserved there", peak.reserved), ("requested there", peak.requested)):
        assert any(re.match(rf"  {words} +{n:,} B", x) for x in lines)
    for words in FREE:
        n = getattr(free[history.peak + 1], words)
        assert any(re.match(rf"  {words} there +{n:,} B", x) for x in lines)
    assert any(x.startswith(f"Stranded at most: {worst:,} B") for x in lines)
    assert any(x.startswith(f"Reserved at most: {history.most_reserved:,} B") for x in lines)
    assert "Segments by pool, in all: small 1 (2,097,152 B), large 7 (1,086,324,736 B)" in lines
    assert lines[-len(history.notes) :] == [f"Note: {note}" for note in history.notes]
    parts = next(x for x in lines if x.startswith("  blocks there"))
    assert sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) B", parts)) == peak.allocated


def test_out_of_memory_and_capacity():
    recording = scaled(SAMPLES["training"](), 3000)
    history = simulate(recording, 1.2)
    (failure,) = history.failures
    figure = allocator_figure(history, recording)
    check_sound(figure)
    axes = drawn(history, recording).axes[0]
    assert line(axes, "capacity")[1] == [history.capacity] * 2
    assert line(axes, "out of memory") == ([failure.event + 1], [failure.reading.reserved])
    (said,) = [x for x in figure.text.split("\n") if x.startswith("Out of memory")]
    for n in (failure.asked, failure.capacity, failure.reading.allocated, failure.free, failure.inside):
        assert f"{n:,} B" in said
    assert f"at event {failure.event + 1} of 95" in said
    assert "out of memory at event 3" in figure.alt
    assert any(t.startswith("out of memory: ") for t in texts(figure.svg))
    roomy = allocator_figure(simulate(recording, "L4"), recording)
    assert "Never out of memory" in roomy.text
    assert "beyond the plot" in "".join(texts(roomy.svg))


def test_counters_have_curves_alone():
    recording = scaled(SAMPLES["training"](), 3000)
    history = replace(simulate(recording), source="counters", segments=(), blocks=())
    figure = allocator_figure(history, recording)
    check_sound(figure)
    canvas = drawn(history, recording)
    assert len(canvas.axes) == 1
    for x, r in enumerate(history.readings):
        assert band(canvas.axes[0], "cached").get(float(x), (r.allocated, r.reserved)) == (r.allocated, r.reserved)
    assert "segments not known" in figure.text and "tranded" not in figure.text


def test_counts_that_do_not_add_up_are_not_split():
    recording = scaled(SAMPLES["training"](), 3000)
    history = simulate(recording)
    readings = tuple(replace(r, reserved=r.reserved + 512) for r in history.readings)
    figure = allocator_figure(replace(history, readings=readings), recording)
    assert "what of the free bytes is stranded is open" in figure.text
    assert "Stranded at most" not in figure.text


def test_scratch_between_readings_is_told():
    history = simulate(SAMPLES["product"]())
    last = history.readings[-1]
    readings = (*history.readings[:-1], replace(last, highest=10**6))
    assert (
        "Allocated at most between two readings: 1,000,000 B"
        in allocator_figure(replace(history, readings=readings)).text
    )


@pytest.mark.parametrize("n", [0, 1, 5])
def test_tiny_histories(n):
    events = tuple(MemoryEvent(i, "op", "forward") for i in range(n))
    recording = Recording((), (), (), (), (), (), events)
    check_sound(allocator_figure(simulate(recording), recording))
    segments = (Segment(0, 0, 2 << 20, "small", -1),)
    blocks = tuple(Block(i, 0, 512 * i, 512, 8, i - 1, None if i % 2 else n - 1) for i in range(n))
    readings = tuple(
        Reading(512 * k, 2 << 20, 8 * k, 512 * k)
        for m in range(-1, n)
        for k in (sum(b.born <= m and (b.freed is None or m < b.freed) for b in blocks),)
    )
    figure = allocator_figure(AllocatorHistory("snapshot", segments, blocks, readings))
    check_sound(figure)
    assert f"1 segment with {n} block" in figure.text


def test_refusals():
    history, recording = random_history(1)
    first = history.blocks[0]
    bad = [
        (None, "This recording has none: simulate one first"),
        (3, "An AllocatorHistory was expected, not a int"),
        (recording, "takes a history first"),
        (replace(history, readings=()), "has no reading"),
        (replace(history, readings=history.readings[:-1]), "beside this recording"),
        (replace(history, readings=(replace(history.readings[0], allocated=-1), *history.readings[1:])), "is -1"),
        (replace(history, readings=(replace(history.readings[0], reserved=math.nan), *history.readings[1:])), "is nan"),
        (replace(history, source="heard of"), "of no known kind"),
        (replace(history, capacity=0), "The capacity is 0"),
        (replace(history, blocks=(replace(first, segment=999), *history.blocks[1:])), "lies in no segment"),
        (replace(history, blocks=(replace(first, nbytes=math.nan), *history.blocks[1:])), "Block 0 is nan"),
        (replace(history, blocks=(replace(first, storage=10**6), *history.blocks[1:])), "holds no storage"),
    ]
    for given, words in bad:
        with pytest.raises(ValueError, match=re.escape(words)):
            allocator_figure(given, recording)
    with pytest.raises(ValueError, match="lies in no segment"):
        allocator_figure(bad[9][0])
    unknown = replace(recording.storages[0], category="gpu stuff")
    with pytest.raises(ValueError, match="This recording cannot be drawn"):
        allocator_figure(history, replace(recording, storages=(unknown, *recording.storages[1:])))


def test_every_kind_is_in_the_legend():
    recording = scaled(SAMPLES["states"](), 400)
    figure = allocator_figure(simulate(recording), recording)
    kinds = {p.get_label() for p in patches(drawn(simulate(recording), recording).axes[1])} & set(CATEGORIES)
    shown = texts(figure.svg)
    assert kinds and all(any(kind in t for t in shown) for kind in kinds)
    assert any(t.startswith("stranded: ") for t in shown) and any(t.startswith("cached: ") for t in shown)
