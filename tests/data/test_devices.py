"""A recording of one device's memory: what lies elsewhere is gone from everything that names storages."""

import dataclasses

import pytest

from helpers.data import Recording, dumps, kept_bytes, loads, timeline
from helpers.data.devices import devices_of, only_device
from helpers.data.model import Accumulated, Edge, Leaf, MemoryEvent, Node, SavedTensor, Storage


def mixed():
    """Two devices by turns, in every place that holds a storage's number."""
    homes = ("cpu", "meta", "cpu", "meta", "meta")
    storages = tuple(
        Storage(i, 10**i, home, -1 if i < 2 else 0, 2 if i > 2 else None, "other") for i, home in enumerate(homes)
    )

    def leaf(*ids):
        return Leaf(("w",), (1,), "float32", homes[ids[0]], ids, 1, True)

    nodes = (
        Node(0, "MulBackward0", "operation", (Edge(1), Edge(2)), (), saved=(0, 1)),
        Node(1, "AccumulateGrad", "leaf", (), (), leaf=leaf(1)),
        Node(2, "AccumulateGrad", "leaf", (), (), leaf=leaf(0)),
    )

    def saved(id, *ids):
        return SavedTensor(id, 0, "self", None, (1,), "float32", "", 1, ids, False, (), 0, None, "live")

    moved = ((2, "gradients"), (3, "gradients"))
    events = (
        MemoryEvent(0, "op", "forward", allocated=(2, 3, 4), resized=((0, 5), (1, 7)), kept=(0, 1)),
        MemoryEvent(1, "accumulate", "backward", accumulated=Accumulated(1, (2, 3), True, False), moved=moved),
        MemoryEvent(2, "free", "between", freed=(3, 4)),
    )
    return Recording((), (), storages, nodes, (saved(0, 1, 2), saved(1, 0)), (), events)


def test_bytes_of_each_device():
    assert devices_of(mixed()) == {"cpu": 101, "meta": 11_010}
    assert list(devices_of(mixed())) == ["cpu", "meta"]


def test_one_device_alone():
    found = only_device(mixed(), "meta")
    assert [(s.id, s.nbytes) for s in found.storages] == [(0, 10), (1, 1000), (2, 10_000)]
    first, second, third = found.events
    assert first.allocated == (1, 2) and first.resized == ((0, 7),) and first.kept == (0, 1)
    assert second.accumulated.storages == (1,) and second.moved == ((1, "gradients"),)
    assert third.freed == (1, 2)
    assert [s.storages for s in found.saved] == [(0,), ()]
    assert [n.leaf.storages for n in found.nodes if n.leaf] == [(0,), ()]
    assert timeline(found).totals == (10, 7 + 11_000, 7 + 11_000, 7)
    assert kept_bytes(found, 0) == 7
    assert loads(dumps(found)) == found


def test_the_two_halves_make_the_whole():
    whole = mixed()
    parts = [timeline(only_device(whole, device)).totals for device in ("cpu", "meta")]
    assert tuple(map(sum, zip(*parts, strict=True))) == timeline(whole).totals


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_of_one_device_it_is_itself(device):
    whole = mixed()
    alone = dataclasses.replace(whole, storages=tuple(dataclasses.replace(s, device=device) for s in whole.storages))
    assert only_device(alone, device) is alone
    assert not only_device(alone, "cuda:0").storages
