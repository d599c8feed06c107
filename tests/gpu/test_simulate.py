"""A recording's storages go through the allocator: counts by hand, and every invariant on recordings of real code."""

import dataclasses

import pytest
import torch
from torch import nn

from helpers import record
from helpers.data import MemoryEvent, Recording, Storage, dumps, free_bytes, loads, timeline
from helpers.gpu.allocator import MIB, rounded
from helpers.gpu.cards import Card
from helpers.gpu.simulate import simulate


def made(*events, before=(), device="cpu"):
    """A recording from sizes: each event is (bytes allocated, …), {storage: new bytes} or [storage freed, …]."""
    storages = [Storage(i, n, device, -1, None, "parameters") for i, n in enumerate(before)]
    rows = []
    for index, event in enumerate(events):
        if isinstance(event, tuple):
            ids = tuple(range(len(storages), len(storages) + len(event)))
            storages += [Storage(i, n, device, index, None, "other") for i, n in zip(ids, event, strict=True)]
            rows.append(MemoryEvent(index, "op", "forward", allocated=ids))
        elif isinstance(event, dict):
            rows.append(MemoryEvent(index, "op", "forward", resized=tuple(event.items())))
        else:
            for s in event:
                storages[s] = dataclasses.replace(storages[s], freed=index)
            rows.append(MemoryEvent(index, "free", "forward", freed=tuple(event)))
    return Recording((), (), tuple(storages), (), (), (), tuple(rows))


def with_history(recording, history):
    """The recording with it, through JSON and its checks."""
    whole = dataclasses.replace(recording, allocator=history)
    assert loads(dumps(whole)) == whole
    return whole


def test_counts_after_each_event():
    recording = made((8, 700), [1], (3 * MIB,), {2: 2 * MIB}, [3, 2], before=(100,))
    history = simulate(recording)
    assert [(r.allocated, r.reserved, r.requested, r.highest) for r in history.readings] == [
        (512, 2 * MIB, 100, 512),
        (2048, 2 * MIB, 808, 2048),
        (1536, 2 * MIB, 800, 2048),
        (3 * MIB + 1536, 22 * MIB, 3 * MIB + 800, 3 * MIB + 1536),
        (5 * MIB + 512, 22 * MIB, 5 * MIB + 100, 5 * MIB + 1536),  # the old block went after the new one was there
        (512, 22 * MIB, 100, 5 * MIB + 1536),
    ]
    assert [(s.address, s.nbytes, s.pool, s.opened, s.closed) for s in history.segments] == [
        (0, 2 * MIB, "small", -1, None),
        (2 * MIB, 20 * MIB, "large", 2, None),
    ]
    assert [(b.storage, b.address, b.nbytes, b.requested, b.born, b.freed) for b in history.blocks] == [
        (0, 0, 512, 100, -1, None),
        (1, 512, 512, 8, 0, 1),
        (2, 1024, 1024, 700, 0, 3),
        (3, 2 * MIB, 3 * MIB, 3 * MIB, 2, 4),
        (2, 5 * MIB, 2 * MIB, 2 * MIB, 3, 4),
    ]
    assert history.source == "simulated" and history.capacity is None and not history.failures
    assert [f.cached for f in free_bytes(history)] == [0, 0, 0, 0, 0, 20 * MIB]
    with_history(recording, history)


def test_highest_sees_moments_inside_an_event():
    """Allocated and freed by one event: no reading shows it, the highest count does."""
    recording = made((5 * MIB,), before=(8,))
    storage = dataclasses.replace(recording.storages[1], freed=0)
    event = dataclasses.replace(recording.events[0], freed=(1,))
    recording = dataclasses.replace(recording, storages=(recording.storages[0], storage), events=(event,))
    history = simulate(recording)
    assert [(r.allocated, r.highest) for r in history.readings] == [(512, 512), (512, 5 * MIB + 512)]
    with_history(recording, history)


def test_empty_storages_take_nothing():
    recording = made((0, 8), {0: 600, 2: 0}, {2: 9}, [0], before=(0,))
    history = simulate(recording)
    assert [r.allocated for r in history.readings] == [0, 512, 1024, 1536, 512]
    assert [(b.storage, b.requested) for b in history.blocks] == [(2, 8), (0, 600), (2, 9)]
    with_history(recording, history)


@pytest.mark.unproved
def test_the_out_of_memory_point():
    """40 MiB: 20 held, 10 cached. The 11 flush; the 30 fail; from there on there is no limit."""
    recording = made((10 * MIB,), [1], (11 * MIB,), (30 * MIB,), (8,), before=(20 * MIB,))
    history = simulate(recording, Card("a card", 45 * MIB, 5 * MIB))
    assert history.capacity == 40 * MIB and history.card == "a card"
    assert [r.reserved // MIB for r in history.readings] == [20, 30, 30, 32, 62, 64]
    assert history.segments[1].closed == 2  # the flush
    (failure,) = history.failures
    assert (failure.event, failure.storage, failure.asked) == (3, 3, 30 * MIB)
    assert (failure.capacity, failure.free, failure.inside) == (40 * MIB, 8 * MIB, 0)
    assert failure.reading.reserved == 32 * MIB and failure.reading.allocated == 32 * MIB
    assert any("no limit" in note for note in history.notes) and any("a card is taken" in n for n in history.notes)
    with_history(recording, history)


@pytest.mark.unproved
def test_a_state_before_that_is_too_large_already():
    recording = made((8,), before=(30 * MIB,))
    history = simulate(recording, Card("a card", 20 * MIB, 0))
    assert [f.event for f in history.failures] == [-1]


def test_other_devices_are_left_out():
    cpu, gpu = made((600,), before=(8,)), made((600,), before=(8,), device="cuda:0")
    mixed = dataclasses.replace(
        gpu,
        storages=(
            *gpu.storages,
            Storage(2, 5 * MIB, "cpu", -1, None, "other"),
            Storage(3, 9, "cuda:1", -1, None, "other"),
        ),
    )
    assert [r.allocated for r in simulate(mixed).readings] == [512, 1536]
    assert [r.allocated for r in simulate(mixed, device="cuda:1").readings] == [512, 512]
    assert simulate(mixed, device="cpu").readings[0].requested == 5 * MIB
    assert "Storages on cpu, cuda:1 are left out." in simulate(mixed).notes
    assert simulate(cpu).readings == simulate(gpu).readings
    assert any("on the CPU" in note for note in simulate(cpu).notes)
    assert simulate(gpu, device="cuda").readings == simulate(gpu).readings
    with pytest.raises(ValueError, match="device='meta' is none of .* on cpu, cuda:0, cuda:1"):
        simulate(mixed, device="meta")
    with pytest.raises(ValueError, match="device='cuda' names several"):
        simulate(mixed, device="cuda")


def test_nothing_at_all():
    empty = Recording((), (), (), (), (), (), ())
    history = simulate(empty, "T4")
    assert [r.reserved for r in history.readings] == [0] and not history.segments
    with_history(empty, history)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_real_step(device):
    """An MLP with Adam: live bytes are the ledger's, rounding is the only difference, blocks never overlap."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    x = torch.randn(1000, 512, device=device)

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    recording = record(step).recording
    history = simulate(recording, "A100 40")
    ids = {s.id for s in recording.storages if s.device == device}
    if device == "cpu":
        assert tuple(r.requested for r in history.readings) == timeline(recording).totals
    live = {s.id: s.nbytes for s in recording.storages if s.born < 0 and s.id in ids}
    assert history.readings[0].allocated == sum(map(rounded, live.values()))
    for reading, event in zip(history.readings[1:], recording.events, strict=True):
        live |= {s: recording.storages[s].nbytes for s in event.allocated if s in ids}
        live |= {s: n for s, n in event.resized if s in ids}
        for s in event.freed:
            live.pop(s, None)
        assert reading.requested == sum(live.values())
        slack = reading.allocated - sum(map(rounded, live.values()))
        assert 0 <= slack <= MIB * sum(n > MIB for n in live.values())
        assert reading.allocated <= reading.reserved and reading.allocated <= reading.highest
    assert {b.storage for b in history.blocks} == {s.id for s in recording.storages if s.nbytes and s.id in ids}
    assert len(recording.events) > 40 and history.most_reserved > history.readings[0].reserved
    no_overlap(history)
    with_history(recording, history)


def no_overlap(history):
    """At no moment do two blocks share an address."""
    for segment in history.segments:
        blocks = sorted((b for b in history.blocks if b.segment == segment.id), key=lambda b: b.address)
        for i, b in enumerate(blocks):
            for other in blocks[i + 1 :]:
                if other.address >= b.address + b.nbytes:
                    break
                first, second = sorted((b, other), key=lambda b: b.id)
                assert first.freed is not None and first.freed <= second.born
