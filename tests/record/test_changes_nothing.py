"""Recording changes nothing: results, gradients, parameters, optimizer state, random state, errors, and memory.

Each comparison is shown to be able to fail: with a cure taken away, it does.
"""

import dataclasses

import pytest
import torch

from helpers import record
from helpers.record import private
from helpers.record.nodes import Nodes

from .measure import outcome, profiled, summary
from .scenarios import SCENARIOS, Trial

#: A Python number in an operation becomes a tensor of 8 bytes while the operation runs. Whoever passes the operation on
#: under a mode makes that tensor a second time; no recorder written in Python can help it.
WRAPPED_NUMBER = 8

#: Tried as `with record()` too; all are tried as `record(step)`.
AS_BLOCK = (
    "conv_batchnorm checkpoint_without_reentry checkpoint_with_reentry fan_out_of_four grad_create_graph lbfgs "
    "autocast_adamw tensor_hooks error_second_backward error_caught random_numbers"
).split()


@pytest.mark.parametrize(
    ("name", "how"), [*((name, "call") for name in SCENARIOS), *((name, "block") for name in AS_BLOCK)]
)
def test_same_outcome_and_memory(name, how):
    plain, watched = summary(name), summary(name, how)
    assert watched.picture == plain.picture
    assert plain.failed == (name.startswith("error_") and name != "error_caught")
    if not SCENARIOS[name]().memory:
        assert watched.end == plain.end
        assert 0 <= watched.peak - plain.peak <= WRAPPED_NUMBER


@pytest.mark.parametrize("name", ["random_numbers", "autocast_adamw", "tensor_hooks", "two_networks"])
def test_the_comparison_can_fail(name):
    assert outcome(SCENARIOS[name], seed=1).picture != outcome(SCENARIOS[name], seed=2).picture


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("error_second_backward", "Trying to backward through the graph a second time"),
        ("error_changed_in_place", "has been modified by an inplace operation"),
        ("error_in_custom_backward", "broken on purpose"),
    ],
)
def test_the_errors_are_the_ones_meant(name, text):
    ((kind, said),), *_ = outcome(SCENARIOS[name], "call").picture
    assert text in said and issubclass(kind, Exception)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, MemoryError])
@pytest.mark.parametrize("how", ["call", "block"])
def test_what_the_code_raises_is_raised_on(error, how):
    mine = error("mine")

    def step():
        torch.ones(2).exp()
        raise mine

    with pytest.raises(error) as caught:
        if how == "call":
            record(step)
        else:
            with record():
                step()
    assert caught.value is mine and caught.value.__cause__ is None


# ---------------------------------------------------------------- the peak, and the cures that keep it


def _fan_out() -> Trial:
    w = torch.randn(100_000, requires_grad=True)

    def step():
        h = w.exp()
        sum((h * k).sum() for k in (2, 3, 4, 5)).backward()

    return Trial(step, (w,))


def _units(how: str) -> float:
    return round(outcome(_fan_out, how).profile.peak / 400_000, 3)


def test_fan_out_of_four():
    """exp's result, the sum of gradients so far, the next gradient."""
    assert _units("plain") == _units("call") == 3.0


def test_fan_out_without_the_cure(monkeypatch):
    blunt = dataclasses.replace(private.capabilities(), exclusive=None)
    monkeypatch.setattr(private, "capabilities", lambda: blunt)
    assert _units("call") == 4.0


def test_a_mode_that_does_nothing_disturbs():
    """What the recorder undoes is real: torch's own behaviour under any mode."""

    class Nothing(private.DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    trial = _fan_out()
    with Nothing():
        profile, _ = profiled(trial.run)
    assert round(profile.peak / 400_000, 3) == 4.0


@pytest.mark.parametrize("name", ["max_dim", "gather", "index_list", "cumsum_cumprod"])
def test_formulas_without_the_cure(name, monkeypatch):
    plain = outcome(SCENARIOS[name])
    monkeypatch.setattr(private, "FORMULAS_THAT_LOOK", frozenset())
    assert outcome(SCENARIOS[name], "call").profile.peak > plain.profile.peak + WRAPPED_NUMBER


def test_prod_without_the_cure_rounds_otherwise(monkeypatch):
    plain = outcome(SCENARIOS["unfold_pad"])
    monkeypatch.setattr(private, "FORMULAS_THAT_LOOK", frozenset())
    assert outcome(SCENARIOS["unfold_pad"], "call").picture != plain.picture


def test_aliased_gradients_stay_apart():
    """h + h sends one gradient twice; were it added in place, it would be counted double."""
    w = torch.ones(5, requires_grad=True)

    def step():
        h = w * 1.0
        ((h + h) + h.view(5) * 3).sum().backward()

    record(step)
    assert w.grad.tolist() == [5.0] * 5


def test_reading_what_is_saved_the_plain_way_runs_checkpoints_again(monkeypatch):
    """The counter of forward runs notices a reader that goes through the unpack hooks."""
    name = "checkpoint_without_reentry"
    plain = outcome(SCENARIOS[name])
    careful = Nodes._read_one

    def careless(self, function, note, argument, position, raw, event):
        if position is None and raw.unpack_hook is not None:
            with torch.enable_grad():
                getattr(function, f"_saved_{argument}")
        careful(self, function, note, argument, position, raw, event)

    monkeypatch.setattr(Nodes, "_read_one", careless)
    try:
        assert outcome(SCENARIOS[name], "call").picture != plain.picture
    except Exception as error:  # or torch notices that it was computed twice
        assert "checkpoint" in str(error).lower()
