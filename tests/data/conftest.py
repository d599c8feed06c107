import pytest
import torch

from helpers.record import Recorder


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    """A fault of the recorder raises."""
    monkeypatch.setattr(Recorder, "strict", True)
    torch.manual_seed(0)
