"""What real GPUs recorded is predicted on meta, to the byte; and a fault anywhere on the way shows."""

from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F

from helpers.gpu import CUBLAS_WORKSPACE
from helpers.gpu.snapshot import read_snapshot
from helpers.gpu.trace import load
from helpers.record import private
from helpers.record.recorder import Recorder

from . import prediction, snapshot_model
from .prediction import (
    TRACED,
    Traced,
    predicted,
    predicted_requests,
    predicted_rise,
    recorded_requests,
    recorded_rise,
)

SECOND, BF16 = TRACED["medium_256_training"], TRACED["medium_512_training_bf16"]

# Autocast says so where it does nothing: with that switch off, and while torch looks for CUDA.
pytestmark = pytest.mark.filterwarnings("ignore:.*CUDA is not available")


class Summary(NamedTuple):
    rise: int
    requests: Counter


def summary(traced: Traced, **switches) -> Summary:
    recording = predicted(traced, **switches)
    return Summary(predicted_rise(recording), Counter(predicted_requests(recording)))


right = cache(summary)


def known(trace) -> Traced:
    if trace.stem not in TRACED:
        pytest.skip(f"snapshots: {trace.name} is none of the four that are described")
    return TRACED[trace.stem]


# ------------------------------------------------------------------ against the files


@pytest.mark.parametrize("traced", TRACED.values(), ids=TRACED)
def test_peak_rise(traced):
    """Within a thousandth of what was published; in fact the same."""
    found = right(traced).rise
    print(f"\n{traced.name}: {found:,} B predicted, {traced.rise:,} B recorded, {found - traced.rise:+,} B")
    assert abs(found - traced.rise) <= traced.rise / 1000
    assert found == traced.rise


def test_the_file_says_so_itself(trace):
    """The published number is in the file: counted from its entries, and by our reader."""
    traced = known(trace)
    assert recorded_rise(load(trace)) == traced.rise
    requested = [reading.requested for reading in read_snapshot(trace).allocator.readings]
    assert max(requested) - requested[0] == traced.rise


def test_every_request(trace):
    """Each request that is predicted was made. What was made beside them is scratch inside kernels."""
    traced = known(trace)
    recorded = recorded_requests(load(trace))
    found = right(traced).requests
    beside = Counter(recorded) - found
    print(f"\n{trace.name}: {found.total():,} of {len(recorded):,} requests predicted, beside them {dict(beside)}")
    assert not found - Counter(recorded)
    assert beside.total() <= len(recorded) // 50
    if not traced.training:
        assert predicted_requests(predicted(traced)) == recorded


# ------------------------------------------------------------------ what each switch changes


def test_switches_that_this_model_does_not_use():
    """Its attention, optimizer and norm are its own, and it drops nothing."""
    assert summary(SECOND, attention="math", foreach=False, dropout=False, rms_norm=False) == right(SECOND)


def test_autocast_off():
    """Without CUDA's casts bf16 is predicted as if it were fp32: 31 % too high."""
    off = summary(BF16, autocast=False)
    assert off.rise - BF16.rise == 2_298_978_296
    assert off == summary(Traced("fp32", BF16.context, 0))


def test_autocast_is_for_autocast_alone():
    assert summary(SECOND, autocast=False) == right(SECOND)


@pytest.mark.parametrize("name, threads", [("medium_128_training", 2), ("medium_128_inference", 1)])
def test_workspaces_of_a_first_step(name, threads):
    """A process's first step takes cuBLAS's workspaces, one a thread; a later one finds them there."""
    traced = TRACED[name]
    assert summary(traced, workspace=CUBLAS_WORKSPACE).rise - traced.rise == threads * CUBLAS_WORKSPACE


# ------------------------------------------------------------------ faults show


def rises(traced: Traced = SECOND) -> int:
    """How far the prediction is off, in bytes."""
    return summary(traced).rise - traced.rise


def test_formulas_that_see_a_mode(monkeypatch):
    """Backward of gather, watched, adds out of place: as a plain simulation on meta has it."""
    monkeypatch.setattr(private, "FORMULAS_THAT_LOOK", frozenset())
    assert rises() == 40_955_912


def test_gradients_out_of_place(monkeypatch):
    """The engine under a mode adds every gradient out of place: no peak of this model is there, but requests are."""
    monkeypatch.setattr(Recorder, "_adds_in_place", lambda self, args, kwargs: False)
    faulty = summary(SECOND)
    assert (faulty.requests - right(SECOND).requests).total() == 339


def test_another_activation(monkeypatch):
    """One kernel for silu keeps one tensor a layer less."""
    monkeypatch.setattr(snapshot_model, "silu", F.silu)
    each = 4 * snapshot_model.BATCH * SECOND.context * snapshot_model.INNER
    assert rises() == -snapshot_model.LAYERS * each


def test_another_softmax(monkeypatch):
    monkeypatch.setattr(snapshot_model, "softmax", lambda x: torch.softmax(x, -1))
    assert abs(rises()) > SECOND.rise / 1000


def test_another_loss(monkeypatch):
    monkeypatch.setattr(prediction, "cross_entropy", lambda x, t: F.cross_entropy(x.flatten(0, 1), t.flatten()))
    assert rises(BF16) != 0


def test_another_optimizer(monkeypatch):
    monkeypatch.setattr(prediction, "AdamW", torch.optim.AdamW)
    traced = TRACED["medium_128_training"]  # the one whose peak is in the optimizer's step
    assert abs(rises(traced)) > traced.rise / 1000
