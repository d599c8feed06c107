"""For all tests of the recorder: its own faults raise instead of ending the recording with a note; fixed seeds."""

import gc

import pytest
import torch

from helpers.record import Recorder


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(Recorder, "strict", True)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def small_heap():
    """Leave what is loaded by now out of garbage collection: the tests collect before each measurement."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
