"""For all tests of the recorder: its own faults raise instead of ending the recording with a note; fixed seeds."""

import pytest
import torch

from helpers.record import Recorder


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(Recorder, "strict", True)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
