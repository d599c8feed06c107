"""Snapshots: read safely into a recording, written so that PyTorch reads them, and there and back again."""

import copy
import dataclasses
import io
import os
import pickle
import random
import zipfile
from collections import Counter

import pytest
import torch
from torch import nn

from helpers import record
from helpers.data import MemoryEvent, Recording, dumps, free_bytes, live_storages, loads, phases, timeline
from helpers.figures import memory_figure
from helpers.gpu.allocator import MIB, rounded
from helpers.gpu.cards import Card
from helpers.gpu.errors import SnapshotError
from helpers.gpu.replay import replay
from helpers.gpu.simulate import simulate
from helpers.gpu.snapshot import read_snapshot, write_snapshot
from helpers.gpu.trace import load, parse

from .programs import Program, by_chance, with_hidden_slack
from .test_simulate import no_overlap


@pytest.fixture(scope="module")
def step():
    """A training step with Adam, and its history on a card of 0.4 GB, on which it runs out of memory once."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    x = torch.randn(4000, 512)

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    recording = record(step).recording
    return recording, simulate(recording, Card("a card", 100 * MIB, 0))


@pytest.fixture
def written(step, tmp_path):
    return write_snapshot(*step, tmp_path / "snapshot.pickle")


# ------------------------------------------------------------------ there and back


def test_there_and_back(step, written):
    recording, history = step
    back = read_snapshot(written)
    assert loads(dumps(back)) == back
    changes = Counter(b.born for b in history.blocks) + Counter(b.freed for b in history.blocks if b.freed is not None)
    assert len(back.events) == sum(changes[e.index] for e in recording.events)
    moment, same = -1, [history.readings[0] == back.allocator.readings[0]]
    for event in recording.events:
        moment += changes[event.index]
        same.append(history.readings[event.index + 1] == back.allocator.readings[moment + 1])
    assert all(same) and moment == len(back.events) - 1
    assert back.allocator.source == "simulated" and len(back.allocator.segments) == len(history.segments)
    spans = [
        Counter((b.address - base, b.nbytes, b.requested) for b in h.blocks)
        for h, base in ((history, 0), (back.allocator, 2**34))
    ]
    assert spans[0] == spans[1]
    no_overlap(back.allocator)
    (failure,), (was,) = back.allocator.failures, history.failures
    assert (failure.asked, failure.reading, failure.free) == (was.asked, was.reading, was.free)
    assert (failure.capacity, failure.inside) == (was.capacity, was.inside)


def test_lines_operations_and_phases_come_back(step, written):
    recording, history = step
    back = read_snapshot(written)
    ops = [
        (e.op, e.phase) for e in recording.events if e.kind == "op" for s in e.allocated if recording.storages[s].nbytes
    ]
    assert [(e.op, e.phase) for e in back.events if e.kind == "op"] == ops
    assert {s.label for s in back.sources} == {"test_snapshot.py"}
    made = [e for e in recording.events if e.kind == "op" and any(recording.storages[s].nbytes for s in e.allocated)]
    line = {e.op: recording.places[e.place].outer.line for e in made}
    found = {e.op: back.places[e.place].outer for e in back.events if e.kind == "op"}
    assert {op: frame.line for op, frame in found.items()} == line
    assert {"step"} == {frame.function.rpartition(".")[2] for frame in found.values()}
    assert {"forward", "backward", "step"} <= {phase for phase, _, _ in phases(back)}


def test_categories_are_inferred(step, written):
    recording, _ = step
    back = read_snapshot(written)
    nbytes = Counter()
    for storage in back.storages:
        nbytes[storage.category] += storage.nbytes
    parameters = sum(s.nbytes for s in recording.storages if s.category == "parameters")
    moments = sum(s.nbytes for s in recording.storages if s.category == "optimizer state")
    assert nbytes["gradients"] == parameters
    assert nbytes["optimizer state"] == moments > 2 * parameters
    assert nbytes["kept for backward"] >= 2 * 4000 * 2048 * 4
    assert any("does not say what a block holds" in note for note in back.notes)


@pytest.mark.parametrize("seed", range(20))
def test_there_and_back_by_chance(seed, tmp_path):
    recording, history = by_chance(seed, events=200).done()
    back = read_snapshot(write_snapshot(recording, history, tmp_path / "x.pickle"))
    loads(dumps(back))
    mine = {(b.address + 2**34, b.requested, b.born >= 0) for b in history.blocks}
    assert {(b.address, b.requested, b.born >= 0) for b in back.allocator.blocks} == mine
    exact = not any("more than it needed" in note for note in back.notes)
    readings = [
        (r.reserved, r.requested) + ((r.allocated, r.highest) if exact else ()) for r in back.allocator.readings
    ]
    # Emptying the cache is no event of its own there: it falls into the next one.
    told = [r for r, e in zip(history.readings[1:], recording.events, strict=True) if e.allocated or e.freed]
    expected = [(r.reserved, r.requested) + ((r.allocated, r.highest) if exact else ()) for r in told]
    if recording.events[-1].kind == "op" and not recording.events[-1].allocated:
        expected[-1] = (history.readings[-1].reserved, *expected[-1][1:])
    assert readings[1:] == expected
    no_overlap(back.allocator)
    assert [f.total for f in free_bytes(back.allocator)] == [r.reserved - r.allocated for r in back.allocator.readings]


def test_what_the_snapshot_leaves_open_is_said(tmp_path):
    recording, history = with_hidden_slack().done()
    back = read_snapshot(write_snapshot(recording, history, tmp_path / "x.pickle"))
    assert any(note.startswith("Of 1 blocks from before the history") for note in back.notes)
    assert history.readings[0].allocated - back.allocator.readings[0].allocated == MIB // 2


# ------------------------------------------------------------------ what is written


def test_pytorch_reads_it(step, written):
    from torch.cuda import _memory_viz as viz

    data = pickle.loads(written.read_bytes())
    lines = viz.segments(data, format_flamegraph=str)
    weights = {line for line in lines.splitlines() if "active_allocated" in line}
    assert len(lines.splitlines()) >= sum(len(s["blocks"]) for s in data["segments"]) and weights
    total = sum(int(line.rsplit(" ", 1)[1]) for line in viz.memory(data, format_flamegraph=str).splitlines())
    assert total == step[1].readings[-1].reserved
    told = viz.trace(data)
    actions = Counter(e["action"] for e in data["device_traces"][0])
    assert told.count(" = cudaMalloc(") == actions["segment_alloc"] > 0
    assert told.count("raise OutOfMemoryError") == actions["oom"] == 1
    assert told.count("\ndel ") == actions["free_requested"] > 0
    assert "test_snapshot.py" in lines


def test_only_plain_data_no_path_and_no_time(step, written, tmp_path):
    raw = written.read_bytes()
    assert raw[0] == 0x80 and raw[1] <= 4
    data = load(written)  # the reader that refuses every global
    texts = []

    def look(value):
        assert type(value) in (dict, list, tuple, str, int, bool, float)
        if isinstance(value, dict):
            for key, item in value.items():
                assert type(key) is str
                look(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                look(item)
        elif isinstance(value, str):
            texts.append(value)

    look(data)
    assert {text for text in texts if "/" in text or os.sep in text} == {"N/A", "torch/optim/optimizer.py"}
    times = [e["time_us"] for e in data["device_traces"][0]]
    assert times == list(range(len(times)))
    again = write_snapshot(*step, tmp_path / "again.pickle")
    assert again.read_bytes() == raw


def fields(items):
    """Each combination of keys and types that the dicts have; stacks and blocks are looked at on their own."""
    return {tuple((k, type(v).__name__) for k, v in sorted(item.items())) for item in items}


def test_keys_and_types_are_a_real_snapshots(written, trace):
    ours, real = load(written), load(trace)
    assert list(ours) == list(real)
    assert ours["allocator_settings"] == real["allocator_settings"]
    found = []
    for data in (ours, real):
        segments, entries = data["segments"], data["device_traces"][0]
        blocks = [b for s in segments for b in s["blocks"]]
        stacks = {id(e["frames"]): e["frames"] for e in entries}.values()
        assert {type(s["segment_pool_id"]) for s in segments} == {tuple}
        found.append(
            {
                "segments": fields(segments),
                "blocks": fields(blocks),
                "entries": fields(e for e in entries if e["action"] != "oom"),  # no real one has it
                "frames": fields(f for stack in stacks for f in stack),
                "states": {b["state"] for b in blocks},
                "pools": {(s["segment_type"], s["segment_pool_id"], s["is_expandable"], s["device"]) for s in segments},
            }
        )
        actions = {e["action"] for e in entries}
        assert actions >= {"alloc", "free_requested", "free_completed"}
        assert actions <= {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom"}
    assert found[0] == found[1]


def test_what_cannot_be_written(step, tmp_path):
    recording, history = step
    with pytest.raises(ValueError, match="of another recording"):
        write_snapshot(recording, dataclasses.replace(history, readings=history.readings[1:]), tmp_path / "x")
    with pytest.raises(ValueError, match="counts alone"):
        write_snapshot(recording, dataclasses.replace(history, source="counters"), tmp_path / "x")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ real snapshots


def test_a_real_snapshot_opens(trace):
    recording = read_snapshot(trace)
    assert loads(dumps(recording)) == recording
    history, line = recording.allocator, timeline(recording)
    assert tuple(r.requested for r in history.readings) == line.totals
    assert len(recording.events) > 2000 and all(s.device == "cuda:0" for s in recording.storages)
    # What PyTorch counted itself, at the end:
    data = load(trace)
    assert history.readings[-1].allocated == sum(s["allocated_size"] for s in data["segments"])
    assert history.readings[-1].requested == sum(s["requested_size"] for s in data["segments"])
    assert history.readings[-1].reserved == sum(s["total_size"] for s in data["segments"])
    no_overlap(history)
    figure = memory_figure(recording)
    assert f"{max(line.totals):,} B" in str(figure) and "Peak" in figure._repr_mimebundle_(None, None)["text/html"]
    for label in (s.label for s in recording.sources):
        assert "/" not in label and label.endswith(".py")
    assert all(e.op.startswith("aten.") for e in recording.events if e.kind == "op")


def test_a_real_snapshot_has_the_known_rise(trace):
    """The rise of the peak over the start, as the traces' README tells it."""
    known = {
        "medium_128_training": 1_918_013_444,
        "medium_256_training": 4_008_140_800,
        "medium_512_training_bf16": 7_331_061_768,
        "medium_128_inference": 35_651_584,
    }
    totals = timeline(read_snapshot(trace)).totals
    assert max(totals) - totals[0] == known[trace.stem]


def test_a_real_snapshot_has_phases_lines_and_categories(trace):
    recording = read_snapshot(trace)
    found = [phase for phase, _, _ in phases(recording) if phase != "between"]
    outer = {recording.places[e.place].outer for e in recording.events if e.place is not None}
    categories = Counter(s.category for s in recording.storages)
    assert len({frame.function for frame in outer}) == 1 and len({frame.source for frame in outer}) == 1
    if "inference" in trace.name:
        assert found == ["forward"] and set(categories) == {"other"}
        return
    assert found == ["forward", "backward", "step"]
    parameters = 423_183_360 * 4  # and AdamW's two moments, by the README's description
    nbytes = Counter()
    for storage in recording.storages:
        nbytes[storage.category] += storage.nbytes
    assert nbytes["gradients"] == parameters + 4
    assert nbytes["optimizer state"] == 2 * parameters
    assert nbytes["kept for backward"] > 1_000_000_000
    last = {category for _, category in live_storages(recording, len(recording.events) - 1).values()}
    assert last == {"gradients", "optimizer state", "other"}


def test_a_real_snapshot_is_read_in_parts(trace):
    """Without its history it still opens; with entries cut off at its start (a ring that was full) too."""
    data = load(trace)
    bare = read_snapshot({**data, "device_traces": [[]]})
    assert bare.events == () and "has no history" in bare.notes[0] and "_record_memory_history" in bare.notes[0]
    assert loads(dumps(bare)) == bare and "one moment" in str(memory_figure(bare))
    whole = read_snapshot(data)
    entries = data["device_traces"][0]
    cut = read_snapshot({**data, "device_traces": [entries[len(entries) // 3 :]]})
    lost = len(whole.events) - len(cut.events)
    kept = [(r.reserved, r.requested) for r in whole.allocator.readings[lost:]]
    assert [(r.reserved, r.requested) for r in cut.allocator.readings] == kept


# ------------------------------------------------------------------ stacks


def entry(action, address, nbytes, *frames, **more):
    rows = [{"name": name, "filename": filename, "line": line} for name, filename, line in frames]
    return {"action": action, "addr": address, "size": nbytes, "stream": 0, "time_us": 0, "frames": rows, **more}


def state(*blocks, total=20 * MIB, address=0, **more):
    """A segment of a snapshot from (address, bytes, requested or None if free)."""
    rows = [
        {
            "address": a,
            "size": n,
            "requested_size": asked or 0,
            "state": "inactive" if asked is None else "active_allocated",
            "frames": [],
        }
        for a, n, asked in blocks
    ]
    pool = "small" if total == 2 * MIB else "large"
    return {
        "device": 0,
        "address": address,
        "total_size": total,
        "allocated_size": 0,
        "active_size": 0,
        "stream": 0,
        "segment_type": pool,
        "blocks": rows,
        **more,
    }


def one(*frames):
    """The event of one allocation with this stack, innermost frame first, and its recording."""
    data = {
        "segments": [state((0, 4 * MIB, 4 * MIB), (4 * MIB, 16 * MIB, None))],
        "device_traces": [[entry("alloc", 0, 4 * MIB, *frames)]],
    }
    recording = read_snapshot(data)
    return recording.events[0], recording


PLAIN = ("forward", "/home/x/model.py", 7)
TOP = ("<module>", "/tmp/ipykernel_88/12.py", 3)


@pytest.mark.parametrize(
    "frames, op",
    [
        ([("at::_ops::add_Tensor::call(at::Tensor const&)", "??", 0)], "aten.add"),
        ([("at::_ops::_index_put_impl_::call(at::Tensor&)", "??", 0)], "aten._index_put_impl_"),
        ([("at::_ops::pow_Tensor_Scalar::call(x)", "??", 0)], "aten.pow"),
        ([("at::_ops::sum_dim_IntList::call(x)", "??", 0)], "aten.sum"),
        ([("at::_ops::no_such_operation::call(x)", "??", 0)], "aten.no_such_operation"),
        # an operation inside another one: the outer one is what ran
        ([("at::_ops::empty_like::call(x)", "", 0), ("at::_ops::zeros_like::call(x)", "", 0)], "aten.zeros_like"),
        # unless it is only made of others
        (
            [
                ("at::_ops::bmm::call(x)", "", 0),
                ("at::(anonymous namespace)::wrapper_CompositeImplicitAutograd__einsum(x)", "", 0),
                ("at::_ops::einsum::call(x)", "", 0),
            ],
            "aten.bmm",
        ),
        # what autocast made for another operation
        (
            [
                ("at::_ops::_to_copy::call(x)", "", 0),
                ("at::autocast::cached_cast(x)", "", 0),
                ("at::_ops::bmm::call(x)", "", 0),
            ],
            "aten._to_copy",
        ),
        ([("at::_ops::add_Tensor::redispatch(x)", "??", 0)], ""),
        ([], ""),
    ],
)
def test_operations_from_stacks(frames, op):
    event, _ = one(*frames, PLAIN)
    assert event.op == op


@pytest.mark.parametrize(
    "frames, phase",
    [
        ([PLAIN], "forward"),
        ([], "forward"),
        ([("torch::autograd::Engine::evaluate_function(x)", "??", 0)], "backward"),
        ([("_make_grads", "/x/site-packages/torch/autograd/__init__.py", 5), PLAIN], "backward"),
        ([("step", "/home/x/my.py", 2), ("wrapper", "/x/torch/optim/optimizer.py", 3), PLAIN], "step"),
        ([("zero_grad", "/x/torch/optim/optimizer.py", 3), PLAIN], "forward"),
        ([("step", "/home/x/train.py", 9)], "forward"),  # a learner's own step() is a whole training step
        # a step inside a backward hook
        (
            [("wrapper", "/x/torch/optim/optimizer.py", 3), ("torch::autograd::Engine::evaluate_function()", "", 0)],
            "step",
        ),
        (
            [("torch::autograd::Engine::evaluate_function()", "", 0), ("step", "C:\\x\\torch\\optim\\lbfgs.py", 3)],
            "backward",
        ),
    ],
)
def test_phases_from_stacks(frames, phase):
    assert one(*frames)[0].phase == phase


def test_lines_from_stacks():
    event, recording = one(
        ("at::_ops::add_Tensor::call", "/build/aten/Operators_2.cpp", 12),
        PLAIN,
        ("_call_impl", "/usr/lib/python3.12/site-packages/torch/nn/modules/module.py", 1790),
        ("__call__", "/src/pytorch/torch/nn/modules/module.py", 3),
        ("run", "/usr/lib/python3.12/threading.py", 1),
        ("exec", "<frozen importlib>", 1),
        TOP,
    )
    frames = recording.places[event.place].frames
    assert [(recording.sources[f.source].label, f.line, f.function) for f in frames] == [
        ("a cell", 3, ""),
        ("model.py", 7, "forward"),
    ]
    assert all(s.lines == () and s.line(7) == "" for s in recording.sources)
    assert recording.sources[recording.cell].label == "a cell"
    assert str(memory_figure(recording))


def test_what_all_stacks_share_is_left_out():
    first, second = ("train", "train.py", 5), ("train", "train.py", 6)
    main = ("<module>", "train.py", 90)
    data = {
        "segments": [state((0, 2 * MIB, 2 * MIB), (2 * MIB, 2 * MIB, 2 * MIB), (4 * MIB, 16 * MIB, None))],
        "device_traces": [
            [entry("alloc", 0, 2 * MIB, PLAIN, first, main), entry("alloc", 2 * MIB, 2 * MIB, second, main)]
        ],
    }
    places = read_snapshot(data).places
    assert [[f.line for f in place.frames] for place in places] == [[5, 7], [6]]


def test_frees_with_the_allocations_stack():
    """With context="alloc" a free has no stack of its own: no line, and the phase in which it happens."""
    engine = ("torch::autograd::Engine::evaluate_function()", "", 0)
    frees = [entry(a, 0, 4 * MIB, PLAIN) for a in ("free_requested", "free_completed")]
    data = {
        "segments": [state((0, 4 * MIB, None), (4 * MIB, 4 * MIB, 4 * MIB), (8 * MIB, 12 * MIB, None))],
        "device_traces": [[entry("alloc", 0, 4 * MIB, PLAIN), entry("alloc", 4 * MIB, 4 * MIB, engine), *frees]],
    }
    recording = read_snapshot(data)
    events = [(e.kind, e.phase, e.place) for e in recording.events]
    assert events == [("op", "forward", 0), ("op", "backward", None), ("free", "backward", None)]
    assert [s.category for s in recording.storages] == ["kept for backward", "gradients"]


def test_a_blocks_stack_is_that_of_its_allocation():
    """Of a block from before, the snapshot tells it if it is there at the end; the stack of its free is not it."""
    segment = state((0, 4 * MIB, None), (4 * MIB, 4 * MIB, 4 * MIB), (8 * MIB, 12 * MIB, None))
    name, filename, line = PLAIN
    segment["blocks"][1]["frames"] = [{"name": name, "filename": filename, "line": line}]
    frees = [entry(a, 0, 4 * MIB, ("late", "late.py", 1)) for a in ("free_requested", "free_completed")]
    recording = read_snapshot({"segments": [segment], "device_traces": [frees]})
    places = [s.place is not None and recording.places[s.place].outer.line for s in recording.storages]
    assert places == [False, 7]
    assert recording.places[recording.events[0].place].outer.function == "late"


# ------------------------------------------------------------------ devices, streams, other kinds


def test_several_devices():
    other = state((MIB, 4 * MIB, 4 * MIB), (5 * MIB, 16 * MIB, None), address=MIB, device=1)
    data = {
        "segments": [state((0, 20 * MIB, None)), other],
        "device_traces": [[], [entry("alloc", MIB, 4 * MIB, PLAIN)]],
    }
    recording = read_snapshot(data)
    assert [s.device for s in recording.storages] == ["cuda:1"] and len(recording.events) == 1
    assert read_snapshot(data, device=0).events == ()
    assert "Device 0 is shown; 1 entries are of other devices." in read_snapshot(data, device=0).notes
    with pytest.raises(SnapshotError, match="nothing of device 3; it has: 0, 1"):
        read_snapshot(data, device=3)


def test_out_of_memory_as_recorded():
    oom = entry("oom", 0, 30 * MIB, PLAIN)
    del oom["addr"]
    data = {
        "segments": [state((0, 4 * MIB, 4 * MIB), (4 * MIB, 16 * MIB, None))],
        "device_traces": [[dict(oom, device_free=3 * MIB), entry("alloc", 0, 4 * MIB)]],
    }
    (failure,) = read_snapshot(data).allocator.failures
    assert (failure.event, failure.asked, failure.free, failure.capacity) == (0, 30 * MIB, 3 * MIB, 23 * MIB)
    assert failure.inside == 20 * MIB and failure.reading.allocated == 0
    data["device_traces"][0].reverse()
    (failure,) = read_snapshot(data).allocator.failures
    assert failure.event == 0 and failure.inside == 16 * MIB


def test_expandable_segments():
    """Mapped in pieces, unmapped in part: reserved follows, blocks are exact, the segment is told at its largest."""
    data = {
        "segments": [state((0, 4 * MIB, 4 * MIB - 100), (4 * MIB, 16 * MIB, None), is_expandable=True)],
        "device_traces": [
            [
                entry("segment_map", 0, 20 * MIB),
                entry("alloc", 0, 4 * MIB - 100),
                entry("segment_map", 20 * MIB, 20 * MIB),
                entry("alloc", 4 * MIB, 30 * MIB),
                entry("free_requested", 4 * MIB, 30 * MIB),
                entry("free_completed", 4 * MIB, 30 * MIB),
                entry("segment_unmap", 20 * MIB, 20 * MIB),
            ]
        ],
    }
    recording = read_snapshot(data)
    rows = [(r.allocated // MIB, r.reserved // MIB) for r in recording.allocator.readings]
    assert rows == [(0, 0), (4, 20), (34, 40), (4, 20)]
    (segment,) = recording.allocator.segments
    assert (segment.address, segment.nbytes) == (0, 40 * MIB)
    assert any("expandable" in note for note in recording.notes)
    assert loads(dumps(recording)) == recording


def test_blocks_that_wait_for_another_stream_are_still_there():
    segment = state((0, 4 * MIB, 4 * MIB), (4 * MIB, 16 * MIB, None))
    segment["blocks"][0]["state"] = "active_pending_free"
    data = {
        "segments": [segment],
        "device_traces": [[entry("alloc", 0, 4 * MIB), entry("free_requested", 0, 4 * MIB)]],
    }
    recording = read_snapshot(data)
    assert [r.allocated for r in recording.allocator.readings] == [0, 4 * MIB] and len(recording.events) == 1


def test_kinds_that_are_not_known():
    data = {
        "segments": [state((0, 20 * MIB, None))],
        "device_traces": [[entry("teleport", 0, 1), entry("teleport", 0, 1), entry("snapshot", 0, 0)]],
    }
    notes = read_snapshot(data).notes
    assert any(n.startswith("2 entries of kinds that are not known here are left out: 'teleport'.") for n in notes)


# ------------------------------------------------------------------ files that are none


class Evil:
    def __reduce__(self):
        return os.system, ("echo evil",)


class Pointing(pickle.Pickler):
    def persistent_id(self, obj):
        return "elsewhere" if obj == "x" else None


def pointing():
    out = io.BytesIO()
    Pointing(out).dump({"segments": ["x"]})
    return out.getvalue()


def zipped():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("data.pkl", "x")
    return out.getvalue()


OLD = {
    "segments": [
        {"total_size": 1, "stream": 0, "segment_type": "large", "address": 0, "blocks": [{"size": 1, "state": "x"}]}
    ]
}


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"", "is empty"),
        (b"<html>", "is no pickle"),
        (b'{"segments": []}', "is no pickle"),
        (zipped(), "a zip file, as torch.save writes it"),
        (pickle.dumps(Evil()), "asks for .*system to be run"),
        (pickle.dumps({"segments": [nn.Linear]}), "asks for torch.nn.*Linear to be run"),
        (pointing(), "refers to something outside itself"),
        (pickle.dumps({"segments": [1, 2, 3], "device_traces": [[{}] * 40]})[:-9], "ends too early"),
        (b"\x80\x04", "ends too early"),
        (b"\x80\x63N.", "pickle of protocol 99"),
        (b"\x80\x04\xffgarbage.", "is damaged: its pickle cannot be read"),
        (pickle.dumps([{"blocks": []}]), "a bare list of segments, .* PyTorch 1.x wrote"),
        (pickle.dumps([]), "a bare list of segments"),
        (pickle.dumps({"weight": 3}), "holds a dict without segments"),
        (pickle.dumps("hello"), "holds a str"),
        (pickle.dumps(OLD), "older format: 'address' is missing"),
        (pickle.dumps({"segments": [3]}), "is damaged: AttributeError"),
        (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc"}]]}), "older format: 'addr' is missing"),
        (pickle.dumps({"segments": [], "device_traces": [[3]]}), "is damaged: TypeError"),
    ],
)
def test_a_file_that_is_none_gets_a_sentence(tmp_path, content, sentence):
    path = tmp_path / "x.pickle"
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match=sentence) as caught:
        read_snapshot(path)
    assert str(caught.value).endswith(".") and str(tmp_path) not in str(caught.value)


def test_a_missing_file_is_python_s_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_snapshot(tmp_path / "none.pickle")


def test_cut_off_anywhere(written, tmp_path):
    raw = written.read_bytes()
    path = tmp_path / "cut.pickle"
    for length in range(1, len(raw), len(raw) // 40):
        path.write_bytes(raw[:length])
        with pytest.raises(SnapshotError, match="ends too early|is no pickle"):
            read_snapshot(path)


def last(data, action):
    return [e for e in data["device_traces"][0] if e["action"] == action][-1]


@pytest.mark.parametrize(
    "change, sentence",
    [
        (
            lambda d: d["device_traces"][0].insert(9, last(d, "alloc")),
            "allocates a block that is not",
        ),
        (lambda d: d["segments"].pop(), "does not fit together"),
        (
            lambda d: d["device_traces"][0].append(entry("free_completed", 0, 8)),
            "speaks of a block outside all segments",
        ),
        (lambda d: d["device_traces"][0].append(entry("segment_alloc", 5, 8)), "opens a segment that is not there"),
        (
            lambda d: d["device_traces"][0].append(entry("segment_free", d["segments"][0]["address"], 8)),
            "gives back a segment that is still there",
        ),
        (lambda d: d["device_traces"][0][0].update(size="8"), "'size' is '8', where a whole number belongs"),
        (lambda d: last(d, "alloc").update(frames=[{"name": 3}]), "stands where a stack's frame belongs"),
    ],
)
def test_what_does_not_fit_together(written, change, sentence):
    data = copy.deepcopy(load(written))
    change(data)
    with pytest.raises(SnapshotError, match=sentence):
        read_snapshot(data)


def test_damaged_bytes_never_raise_anything_else(tmp_path):
    """Bytes changed by chance: it opens, or a sentence says why not."""
    raw = write_snapshot(*by_chance(3, events=40).done(), tmp_path / "x.pickle").read_bytes()
    chance, path, refused = random.Random(0), tmp_path / "damaged.pickle", 0
    for _ in range(400):
        damaged = bytearray(raw)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(raw))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            assert loads(dumps(read_snapshot(path)))
        except SnapshotError as error:
            refused += str(error).endswith(".")
    assert 100 < refused < 400


def test_other_settings_are_said(written):
    data = {**load(written), "allocator_settings": {"max_split_size": 10, "roundup_power2_divisions": {"1": 4}}}
    assert any("(max_split_size, roundup_power2_divisions)" in note for note in read_snapshot(data).notes)
    with pytest.raises(SnapshotError, match="other allocator settings .* not replayed"):
        replay(data)


def test_a_real_programs_requests_from_an_empty_cache(trace):
    """Without the segments that earlier steps left: the same bytes asked for, and about as much reserved."""
    recording = read_snapshot(trace)
    real, ours = recording.allocator, simulate(recording)
    assert [r.requested for r in ours.readings] == [r.requested for r in real.readings]
    for mine, theirs in zip(ours.readings, real.readings, strict=True):
        assert abs(mine.allocated - theirs.allocated) <= 2**-9 * theirs.allocated
    print(f"\n{trace.name}: {ours.most_reserved:,} B reserved at most, on the GPU {real.most_reserved:,} B")


def test_sizes_of_blocks_follow_the_rules(trace):
    """Blocks take what they need, or, in the large pool, up to 1 MiB more."""
    for life in parse(load(trace)).blocks:
        more = life.nbytes - rounded(life.requested)
        assert more == 0 or (life.home.pool == "large" and 0 < more <= MIB and more % 512 == 0)


def test_nothing_at_all(tmp_path):
    empty = Recording((), (), (), (), (), (), ())
    back = read_snapshot(write_snapshot(empty, simulate(empty), tmp_path / "x"))
    assert back.events == () and back.allocator.readings[0].reserved == 0
    program = Program()
    program.begin()
    program.empty_cache()
    recording, history = program.done()
    assert isinstance(recording.events[0], MemoryEvent)
    assert read_snapshot(write_snapshot(recording, history, tmp_path / "y")).events == ()


def test_a_written_simulation_does_not_pass_for_a_gpu_s(tmp_path):
    """Read back it is called simulated; a real history that is written again stays one."""
    recording = record(lambda: torch.ones(1000).sum(), graph=False).recording
    written = read_snapshot(write_snapshot(recording, simulate(recording), tmp_path / "simulated.pickle"))
    assert written.allocator.source == "simulated"
    as_real = dataclasses.replace(written.allocator, source="snapshot")
    again = read_snapshot(write_snapshot(written, as_real, tmp_path / "real.pickle"))
    assert again.allocator.source == "snapshot"
