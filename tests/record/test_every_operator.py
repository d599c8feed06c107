"""torch's own list of operators with sample inputs: each forward and backward is the same, watched or not.

This is how the formulas that look for a mode are found (`private.FORMULAS_THAT_LOOK`): a new torch may bring new ones.
"""

import gc
import sys
import types
import unittest
import warnings

import pytest
import torch

from .measure import outcome
from .scenarios import Trial

#: Compressed rows have no plain bits to compare.
LEFT_OUT = {"sparse.sampled_addmm", "sparse.mm"}


def operators():
    """torch.testing's list. Its module wants `expecttest`, for a base class that nothing here uses."""
    wanted = "expecttest" not in sys.modules
    if wanted:
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        pytest.skip(f"operator-list: torch.testing cannot be loaded ({error})")
    finally:
        if wanted:
            del sys.modules["expecttest"]
    return [op for op in op_db if op.supports_autograd and torch.float32 in op.dtypes and op.name not in LEFT_OUT]


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in tensors(v)] if isinstance(value, (tuple, list)) else []


def mapped(change, value):
    if isinstance(value, torch.Tensor):
        return change(value)
    return type(value)(mapped(change, v) for v in value) if type(value) in (tuple, list) else value


def copied(tensor):
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def inner(tensor):
    """No leaf: its gradient goes on to another node."""
    return tensor * 1.25 if tensor.requires_grad and tensor.layout is torch.strided else tensor


def trial(op, sample):
    def build():
        first, rest = mapped(copied, sample.input), mapped(copied, list(sample.args))
        named = {k: mapped(copied, v) for k, v in sample.kwargs.items()}
        leaves = [t for t in tensors([first, rest, list(named.values())]) if t.requires_grad]

        def step():
            out = op(mapped(inner, first), *mapped(inner, rest), **named)
            ends = [t for t in tensors(out) if t.requires_grad and t.layout is torch.strided]
            if ends:
                sum((t.abs() if t.is_complex() else t).mul(1.5).sum() for t in ends).backward()
            return out

        return Trial(step, leaves)

    return build


@pytest.mark.filterwarnings("ignore")
def test_every_operator():
    differ, compared = [], 0
    all_operators = operators()
    gc.collect()
    gc.freeze()
    for op in all_operators:
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=True))
        sample = samples[len(samples) // 2]
        plain, watched = outcome(trial(op, sample)), outcome(trial(op, sample), "call")
        compared += 1
        rise = watched.profile.peak - plain.profile.peak
        if watched.picture != plain.picture:
            differ.append(f"{op.name}: another result")
        elif not 0 <= rise <= 2 * 8 or watched.profile.end != plain.profile.end:  # 8 bytes: a Python number, twice made
            differ.append(f"{op.name}: {rise} bytes more at the peak")
    assert not differ, f"of {compared}: " + "; ".join(differ)
    assert compared > 450
