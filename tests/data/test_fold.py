"""Folds over events, against a slow computation that starts anew for each moment, and against hand-made numbers."""

import pytest

from helpers.data import (
    CATEGORIES,
    EVENT_KINDS,
    PHASES,
    SAVED_STATES,
    kept_at,
    kept_bytes,
    kept_moment,
    live_storages,
    phases,
    state_at,
    timeline,
)

from .samples import ALL, REAL, by_hand


def slow_live(recording, moment):
    """Storages live after an event: each storage's own life, from its own fields and every event that names it."""
    live = {}
    for storage in recording.storages:
        born = storage.born <= moment
        gone = storage.freed is not None and storage.freed <= moment
        if born and not gone:
            size, category = storage.nbytes, storage.category
            for event in recording.events:
                if event.index <= moment:
                    size = dict(event.resized).get(storage.id, size)
                    category = dict(event.moved).get(storage.id, category)
            live[storage.id] = (size, category)
    return live


@pytest.mark.parametrize("name", ALL)
def test_timeline_and_live_storages(name):
    recording = ALL[name]()
    line = timeline(recording)
    assert len(line.rows) == len(recording.events) + 1 and line.categories == CATEGORIES
    totals = []
    for moment in range(-1, len(recording.events)):
        live = slow_live(recording, moment)
        assert live_storages(recording, moment) == live
        by_category = dict.fromkeys(CATEGORIES, 0)
        for size, category in live.values():
            by_category[category] += size
        assert line.at(moment) == by_category
        totals.append(sum(by_category.values()))
    assert list(line.totals) == totals and min(totals) >= 0
    assert line.peak == totals.index(max(totals)) - 1


@pytest.mark.parametrize("name", ALL)
def test_what_is_kept(name):
    recording = ALL[name]()
    for moment in range(-1, len(recording.events)):
        kept, sizes = [], {}
        live = slow_live(recording, moment)
        for saved in recording.saved:
            started = [e.index for e in recording.events if saved.id in e.kept] or [saved.kept]
            ended = [e.index for e in recording.events if saved.id in e.released] or [saved.released]
            is_kept = saved.state != "never saved" and started[0] <= moment and (ended[0] is None or ended[0] > moment)
            assert (saved in kept_at(recording, moment)) == is_kept
            if is_kept:
                kept.append(saved)
                sizes.update({s: live[s] for s in saved.storages if s in live})
        assert list(kept_at(recording, moment)) == kept
        assert kept_bytes(recording, moment, parameters=True) == sum(size for size, _ in sizes.values())
        own = sum(size for size, category in sizes.values() if category not in ("parameters", "buffers"))
        assert kept_bytes(recording, moment) == own


@pytest.mark.parametrize("name", REAL)
def test_real_recordings_hang_together(name):
    recording = REAL[name]()
    for storage in recording.storages:
        assert storage.category in CATEGORIES
        assert storage.born == -1 or storage.id in recording.events[storage.born].allocated
        assert storage.freed is None or storage.id in recording.events[storage.freed].freed
        assert storage.freed is None or storage.freed > storage.born or storage.born == storage.freed
    for saved in recording.saved:
        assert saved.state in SAVED_STATES and saved.id in recording.nodes[saved.node].saved
        assert (saved.kept is None) == (saved.state == "never saved")
        assert (saved.released is not None) == (saved.state == "released")
        last = state_at(saved, len(recording.events) - 1)
        assert last == saved.state
        if saved.state == "live" and not saved.scalar and not saved.packed:
            assert all(recording.storages[s].freed is None for s in saved.storages)  # what is kept is alive
    allocated = [s for e in recording.events for s in e.allocated]
    freed = [s for e in recording.events for s in e.freed]
    assert len(allocated) == len(set(allocated)) and len(freed) == len(set(freed))
    for event in recording.events:
        assert event.kind in EVENT_KINDS and event.phase in PHASES
        assert (event.kind == "error") <= (event.index == len(recording.events) - 1)
        assert event.graph is None or event.phase == "backward"
    for node in recording.nodes:
        assert (node.kind == "leaf") == (node.leaf is not None)
        assert node.event is None or recording.events[node.event].kind == "op"
    for graph in recording.graphs:
        assert len(set(graph.nodes)) == len(graph.nodes) and set(graph.pruned) <= set(graph.nodes)
        assert graph.event is None or recording.events[graph.event].graph == graph.id


@pytest.mark.parametrize("name", REAL)
def test_what_is_kept_has_the_category_that_says_so(name):
    """Always: a storage is "kept for backward" if, and only if, a node keeps it and nothing earlier claims it."""
    recording = REAL[name]()
    first = CATEGORIES[: CATEGORIES.index("kept for backward")]
    for moment in range(-1, len(recording.events)):
        held = {s for saved in kept_at(recording, moment) for s in saved.storages}
        for storage, (_, category) in live_storages(recording, moment).items():
            if category not in first:
                assert (category == "kept for backward") == (storage in held), (moment, storage)


def test_by_hand():
    recording = by_hand()
    line = timeline(recording)
    assert line.totals == (16, 24, 32, 32, 32, 56, 56, 48, 48, 48)
    assert line.peak == 4 and line.at(4) == {
        "parameters": 8,
        "buffers": 0,
        "optimizer state": 0,
        "gradients": 0,
        "kept for backward": 8,
        "inputs": 8,
        "other": 32,
    }
    assert line.at(7)["gradients"] == 24 and line.at(5)["kept for backward"] == 0
    assert kept_moment(recording) == 2 and kept_bytes(recording) == 8
    assert [s.id for s in kept_at(recording)] == [0, 1] and kept_at(recording, 5) == ()
    assert [state_at(recording.saved[0], m) for m in (-1, 0, 4, 5)] == [None, "live", "live", "released"]
    assert state_at(recording.saved[2], 8) == "never saved"
    assert phases(recording) == [("forward", 0, 1), ("backward", 2, 8)]
    assert recording.code_at(0) == "y = x.exp() * 2" and recording.code_at(None) == ""
    assert recording.place_of(1).outer.line == recording.place_of(1).inner.line == 3
    assert recording.sources[0].line(9) == ""


@pytest.mark.parametrize("name", ALL)
def test_phases_cover_every_event_once(name):
    recording = ALL[name]()
    runs = phases(recording)
    assert [i for _, first, last in runs for i in range(first, last + 1)] == list(range(len(recording.events)))
    assert all(a[0] != b[0] for a, b in zip(runs, runs[1:], strict=False))
    assert all(recording.events[i].phase == phase for phase, first, last in runs for i in range(first, last + 1))
