"""The steps that a real GPU is compared on run as if on one, and give the same the second time."""

import pytest

from helpers import as_if_on_gpu
from helpers.data import dumps, loads, timeline
from helpers.gpu import simulate

from .steps import STEPS


@pytest.fixture(scope="module", params=STEPS)
def recorded(request):
    step = STEPS[request.param]("meta")
    as_if_on_gpu(step)
    return step, as_if_on_gpu(step).recording


def test_a_step_is_recorded_whole(recorded):
    _, recording = recorded
    assert {e.phase for e in recording.events} >= {"forward", "backward", "step"}
    totals = timeline(recording).totals
    assert totals[-1] - totals[0] in (0, 2 * 8_519_680), "a step that clears its gradients leaves only workspaces"
    assert loads(dumps(recording)) == recording


def test_the_same_step_takes_the_same_again(recorded):
    step, recording = recorded
    assert timeline(as_if_on_gpu(step).recording).totals == timeline(recording).totals


def test_the_allocator_serves_it(recorded):
    _, recording = recorded
    history = simulate(recording)
    for reading, live in zip(history.readings, timeline(recording).totals, strict=True):
        assert reading.requested == live <= reading.allocated <= reading.reserved
