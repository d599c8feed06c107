"""On a real GPU: ledger, prediction and allocator side by side. `make test-gpu PYTHON=python3` runs these alone.

GPU_TRACES=folder keeps the snapshots that the steps leave, with where they come from; tests/gpu/traces holds some that
were recorded so, and test_own_traces.py replays them everywhere.
"""

import gc
import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from helpers import as_if_on_gpu, load, record
from helpers.data import timeline
from helpers.data.devices import only_device
from helpers.gpu import read_snapshot
from helpers.gpu.allocator import rounded
from helpers.gpu.replay import replay

from .steps import NOT_PREDICTED, STEPS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="gpu: no CUDA device"),
]
GPU = "cuda:0"


@pytest.fixture(scope="module", params=STEPS)
def measured(request):
    """Name, the recording of one step on the GPU, and the allocator's own history of it."""
    torch.manual_seed(0)
    step = STEPS[request.param](GPU)
    step()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    run = record(step, history=True)
    yield request.param, run
    del step, run
    gc.collect()
    torch.cuda.empty_cache()


def live_rounded(recording):
    """Bytes of the ledger's storages after each event, each rounded up as the allocator does; first before all."""
    size = [rounded(s.nbytes) if s.nbytes else 0 for s in recording.storages]
    now = sum(size[s.id] for s in recording.storages if s.born < 0)
    rows = [now]
    for event in recording.events:
        for s, nbytes in event.resized:
            now += rounded(nbytes) - size[s] if nbytes else -size[s]
            size[s] = rounded(nbytes) if nbytes else 0
        now += sum(size[s] for s in event.allocated) - sum(size[s] for s in event.freed)
        rows.append(now)
    return rows


def test_the_allocator_counts_what_the_ledger_holds(measured):
    """After each event, beside what was there before and no tensor of the step holds: nothing, or a library's
    workspace that came and stayed, named by its size."""
    name, run = measured
    recording = only_device(run.recording, GPU)
    readings = run.recording.allocator.readings
    ledger = live_rounded(recording)
    beside = [r.allocated - held for r, held in zip(readings, ledger, strict=True)]
    workspaces = {b - beside[0] for b in beside}
    print(
        f"{name}: {len(ledger) - 1} events; beside the ledger {beside[0]:,} B at the start, then {sorted(workspaces)}"
    )
    assert min(workspaces) >= 0, "the ledger holds what the allocator does not"
    assert max(workspaces) <= 2 * 33_554_432 + 2 * 2**20
    assert beside[-1] >= beside[0]


def test_the_allocator_noted_events(measured):
    name, run = measured
    history = run._allocated(None)[1]
    born = [b for b in history.blocks if b.born >= 0]
    print(f"{name}: {len(born):,} blocks in {len(history.segments)} segments")
    assert history.source == "snapshot" and len(born) > 0


def test_the_prediction(measured):
    name, run = measured
    if name in NOT_PREDICTED:
        pytest.skip(f"cudnn-model: {name} runs a kernel whose reserve only cuDNN knows")
    step = STEPS[name]("meta")
    as_if_on_gpu(step)
    predicted = timeline(as_if_on_gpu(step).recording).totals
    real = timeline(only_device(run.recording, GPU)).totals
    rise, expected = max(real) - real[0], max(predicted) - predicted[0]
    requested = [r.requested for r in run.recording.allocator.readings]
    counted = max(requested) - requested[0]
    print(f"{name}: peak rise {expected:,} B predicted, {rise:,} B in the ledger, {counted:,} B counted")
    assert abs(expected - rise) <= 0.001 * rise


def test_our_allocator_places_every_block_where_the_gpu_s_did(measured):
    name, run = measured
    done = replay(run._snapshot)
    print(f"{name}: {done}")
    assert done.proved and len(done.repairs) <= 10 and done.placements > 0


def test_a_run_on_a_gpu_is_kept_and_comes_back(measured, tmp_path):
    _, run = measured
    assert run.recording.allocator.source == "counters"
    assert load(run.save(tmp_path / "run.json")).recording == run.recording
    blocks = run._allocated(None)[1].blocks
    assert len(load(run.save(tmp_path / "run.pickle")).recording.allocator.blocks) == len(blocks)


def test_figures_of_a_gpu(measured):
    if not find_spec("matplotlib"):
        pytest.skip("matplotlib: not installed")
    _, run = measured
    assert "from a memory snapshot" in run.allocator.text and f"Memory of {GPU} alone" in run.memory.text


def noted():
    return sum(map(len, torch.cuda.memory._snapshot()["device_traces"]))


def test_nothing_is_left_behind(measured):
    """The allocator notes no block any more."""
    before = noted()
    del_me = torch.empty(1000, device=GPU)
    del del_me
    assert noted() == before


@pytest.mark.skipif("GPU_TRACES" not in os.environ, reason="gpu-traces: GPU_TRACES names no folder to keep them in")
def test_keep_a_small_trace():
    """A small step of each kind of pool, as test data for machines without a GPU."""
    folder = Path(os.environ["GPU_TRACES"])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(300, 700), torch.nn.ReLU(), torch.nn.Linear(700, 10)).to(GPU)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        for rows in (64, 1000, 64, 5000):
            model(torch.randn(rows, 300, device=GPU)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.empty_cache()

    step()
    run = record(step, history=True)
    done = replay(run._snapshot)
    run.save(folder / "small_mlp.pickle")
    properties = torch.cuda.get_device_properties(0)
    origin = {
        "what": "tests/gpu/test_real_gpu.py, test_keep_a_small_trace, written by Run.save",
        "gpu": properties.name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "bytes": properties.total_memory,
    }
    (folder / "small_mlp.json").write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
    assert done.proved and read_snapshot(folder / "small_mlp.pickle").events
