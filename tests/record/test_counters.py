"""The CUDA allocator's counts in a recording, with a stand-in for the device: what is read when, and what comes of it.

tests/gpu/test_real_gpu.py holds the same to a real device, where there is one.
"""

import pytest
import torch

from helpers import RecordError, record
from helpers.data import dumps, loads
from helpers.record import cuda
from helpers.record.build import EventNote
from helpers.record.cuda import CountedEvents, Counters


class Device:
    """Counts that a test sets by hand: allocated, reserved, requested, the highest ever allocated."""

    def __init__(self, monkeypatch):
        self.now = (0, 0, 0, 0)
        monkeypatch.setattr(cuda, "read", lambda device: self.now)


@pytest.fixture
def device(monkeypatch):
    return Device(monkeypatch)


def event(kind):
    return EventNote(kind, "forward", None)


def test_an_event_s_reading_is_what_is_counted_when_the_next_begins(device):
    before = event("free")
    events = CountedEvents(Counters(0), before)
    device.now = (512, 2048, 500, 512)
    events.read()  # as the recorder does before an operation runs
    device.now = (1024, 2048, 1000, 1536)
    events.append(event("op"))  # it has run: what is counted now is not read yet
    device.now = (512, 2048, 500, 1536)
    events.append(event("free"))  # and the one before, the operation, gets what is counted here
    device.now = (0, 2048, 0, 1536)
    events.read()
    history = events.counters.history(before, list(events))
    assert [r.allocated for r in history.readings] == [512, 512, 0]
    assert [r.requested for r in history.readings] == [500, 500, 0]
    assert [r.highest for r in history.readings] == [512, 1536, 1536]
    assert history.source == "counters" and not history.blocks and len(history.readings) == len(events) + 1


def test_a_peak_from_before_the_recording_says_nothing(device):
    before = event("free")
    events = CountedEvents(Counters(0), before)
    device.now = (100, 2048, 100, 9_000)
    events.read()
    events.append(event("op"))
    device.now = (300, 2048, 300, 9_000)
    events.read()
    assert [r.highest for r in events.counters.history(before, list(events)).readings] == [100, 300]
    device.now = (300, 16_384, 300, 9_500)  # scratch inside the kernel, above all that was before
    events.read()
    assert [r.highest for r in events.counters.history(before, list(events)).readings] == [100, 9_500]


def test_counts_of_a_device_where_nothing_lay_are_no_part_of_a_recording(device, monkeypatch):
    monkeypatch.setattr(Counters, "found", classmethod(lambda cls: cls(0)))
    x = torch.ones(4, requires_grad=True)
    run = record(lambda: (x * 2).sum().backward())
    assert run.recording.allocator is None and run.recording.events


def test_counts_go_with_the_recording_and_into_json(device, monkeypatch):
    """The storages are taken for the device's: the recorder itself cannot tell."""
    from helpers.record import recorder

    monkeypatch.setattr(Counters, "found", classmethod(lambda cls: cls(0)))
    plain = recorder.name_of
    monkeypatch.setattr(recorder, "name_of", lambda value: "cuda:0" if str(value) == "cpu" else plain(value))
    x = torch.ones(4, requires_grad=True)
    device.now = (512, 2_097_152, 16, 512)
    recording = record(lambda: (x * 2).sum().backward()).recording
    history = recording.allocator
    assert history.source == "counters" and len(history.readings) == len(recording.events) + 1
    assert {r.reserved for r in history.readings} == {2_097_152}
    assert loads(dumps(recording)) == recording


@pytest.mark.skipif(torch.cuda.is_available(), reason="no-gpu: this machine has one")
def test_a_history_needs_a_device():
    with pytest.raises(RecordError, match="here is no CUDA device"):
        record(lambda: torch.ones(1), history=True)
    assert record(lambda: torch.ones(1)).recording.events  # and nothing was left running
