"""Every number that chapter 00 quotes in its prose, asserted by running what the chapter runs."""

import torch

from helpers import record
from helpers.data import kept_at, kept_bytes, timeline


def multiplied():
    x = torch.tensor(2.0, requires_grad=True)
    y = torch.tensor(3.0, requires_grad=True)
    with record() as run:
        z = x * y
        z.backward()
    return run.recording, x, y


def added():
    x = torch.tensor(2.0, requires_grad=True)
    y = torch.tensor(3.0, requires_grad=True)
    with record() as run:
        s = x + y
        s.backward()
    return run.recording, x, y


def test_the_gradient_of_each_is_the_other():
    _, x, y = multiplied()
    assert (x.grad.item(), y.grad.item()) == (y.item(), x.item()) == (3, 2)


def test_the_product_keeps_both_and_its_total_is_nothing():
    recording, _, _ = multiplied()
    assert [tensor.names for tensor in kept_at(recording)] == [("x",), ("y",)]
    assert kept_bytes(recording) == 0 and kept_bytes(recording, parameters=True) == 8


def test_each_byte_of_the_peak():
    recording, _, _ = multiplied()
    line = timeline(recording)
    assert (line.totals[0], max(line.totals), line.totals[-1]) == (8, 24, 20)
    assert all(storage.nbytes == 4 for storage in recording.storages) and len(recording.storages) == 6
    # A gradient that arrives changes its category, and nothing is allocated.
    arrived = [e for e in recording.events if e.kind == "accumulate"]
    assert [(e.allocated, [c for _, c in e.moved]) for e in arrived] == [((), ["gradients"])] * 2
    # x, y, then z in forward; the 1 and two gradients in backward: half of the peak. Only the 1 goes again.
    born = [("before" if s.born < 0 else recording.events[s.born].phase) for s in recording.storages]
    assert born == ["before", "before", "forward", "backward", "backward", "backward"]
    gone = [s for s in recording.storages if s.freed is not None]
    assert [s.op for s in gone] == ["aten.ones_like"]
    assert recording.events[gone[0].freed].phase == "backward"


def test_the_sum_keeps_nothing_and_peaks_as_high():
    recording, x, y = added()
    assert kept_at(recording) == () and kept_bytes(recording, parameters=True) == 0
    assert max(timeline(recording).totals) == 24
    # Each leaf has a copy of its own of the 1 that backward began with.
    assert [s.op for s in recording.storages[-2:]] == ["aten.new_empty_strided"] * 2
    assert (x.grad.item(), y.grad.item()) == (1, 1) and x.grad.data_ptr() != y.grad.data_ptr()


def test_the_longer_product_keeps_the_first_product():
    x = torch.tensor(2.0, requires_grad=True)
    y = torch.tensor(3.0, requires_grad=True)
    with record() as run:
        result = x * y * y
    assert result.grad_fn is not None and run.kept.nbytes == 4
    assert [row.label for row in run.kept.rows if row.counted] == ["(self)"]  # no variable's, but the first product
