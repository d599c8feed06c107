"""What a reader calls: the views of memory on a run, runs beside each other, snapshots in and out."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import RecordError, as_if_on_gpu, compare, difference, load, record, waterfall
from helpers.data import timeline
from helpers.gpu import Card, SnapshotError, simulate
from helpers.run import Run


def step_of(layers, checkpointed=False):
    with torch.device("meta"):
        blocks = (nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024)) for _ in range(layers))
        model = nn.Sequential(*blocks)
        x = torch.empty(4096, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        y = x
        for block in model:
            y = checkpoint(block, y, use_reentrant=False) if checkpointed else block(y)
        y.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.fixture(scope="module")
def runs():
    return {"plain": as_if_on_gpu(step_of(4)), "checkpointed": as_if_on_gpu(step_of(4, checkpointed=True))}


def peak(run):
    return max(timeline(run.recording).totals)


def test_the_allocator_of_a_run_is_simulated(runs):
    history = simulate(runs["plain"].recording)
    figure = runs["plain"].allocator
    assert figure.text.startswith("Allocator, simulated") and f"{history.most_reserved:,} B" in figure.text
    assert figure.svg


def test_a_card_on_which_memory_runs_out(runs):
    small = Card("a small card", peak(runs["plain"]) // 2, 0)
    text = runs["plain"].allocator_on(small).text
    assert "a small card" in text and simulate(runs["plain"].recording, small).failures
    assert "ut of memory" in text and "Never out of memory" not in text
    assert "Never out of memory" in runs["plain"].allocator_on("T4").text


def test_a_card_that_there_is_not_is_a_sentence(runs):
    with pytest.raises(ValueError, match="No card is called 'B4'"):
        runs["plain"].allocator_on("B4")


def test_variants_side_by_side(runs):
    text = compare(runs, card=24).text
    for name, run in runs.items():
        assert f"{name}" in text and f"{peak(run):,} B" in text
    assert "24 GB" in text and "fits" in text


def test_only_runs_are_compared(runs):
    with pytest.raises(RecordError, match="'plain' is a int"):
        compare({"plain": 3, "other": runs["plain"]})
    with pytest.raises(ValueError, match="dict"):
        compare([runs["plain"]])


def test_from_naive_to_fitting(runs):
    text = waterfall([*runs.items(), ("half of it", peak(runs["checkpointed"]) // 2)], card=8).text
    saved = peak(runs["plain"]) - peak(runs["checkpointed"])
    assert saved > 0 and f"−{saved:,} B" in text


def test_a_snapshot_of_a_run_and_back(runs, tmp_path):
    back = load(runs["plain"].save(tmp_path / "run.pickle"))
    # A snapshot has an event for every block; the most that was live at once is the same.
    assert max(r.requested for r in back.recording.allocator.readings) == peak(runs["plain"]) == peak(back)
    assert back.allocator.text.startswith("Allocator, simulated")
    assert "Peak" in back.memory.text and isinstance(back, Run)


def test_another_file_is_no_snapshot(tmp_path):
    path = tmp_path / "x.pickle"
    path.write_bytes(b"no pickle")
    with pytest.raises(SnapshotError):
        load(path)


def test_what_kernels_hold_is_asked_for_first(runs):
    with pytest.raises(ValueError, match=r"record\(kernels=True\)|kernels=True"):
        _ = runs["plain"].kernels


def test_two_runs_of_one_step():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    x = torch.ones(4, 8)
    before = record(lambda: model(x).sum().backward())
    model[0].requires_grad_(False)
    after = record(lambda: model(x).sum().backward())
    figure = difference(before, after, ("trained", "frozen"))
    assert figure.went > 0 and figure.appeared == 0 and "frozen" in figure.text
    with pytest.raises(RecordError, match="Neither recording has a graph"):
        nothing = record(lambda: torch.ones(2) * 2, graph=False)
        difference(nothing, nothing)
    with pytest.raises(RecordError, match="the second is a str"):
        difference(before, "after")


def test_the_face_stays_quick_to_load():
    """None of this is loaded before it is asked for."""
    code = (
        "import helpers, sys; "
        "print([m for m in sys.modules if m.startswith(('helpers.gpu', 'helpers.figures', 'matplotlib'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
