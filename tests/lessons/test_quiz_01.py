"""Each question of chapter 01's quiz, answered by a run: the choice marked right is the one that torch gives."""

import tomllib
import warnings
from pathlib import Path

import pytest
import torch

import helpers.lessons
from helpers import record

FILE = Path(helpers.lessons.__file__).with_name("quiz_01.toml")
QUESTIONS = {q["id"]: q for q in tomllib.loads(FILE.read_text(encoding="utf-8"))["question"]}


def raises(function):
    try:
        function()
    except RuntimeError:
        return True
    return False


def leaf():
    first = torch.randn(3, requires_grad=True)
    w = first.to(torch.float64)
    (w * w).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert w.grad is None and first.grad is not None and first.to(torch.float32) is first
    return "None"


def alias():
    x = torch.ones(3, requires_grad=True)
    (2 * x).sum().backward()
    g = x.grad
    (2 * x).sum().backward()
    assert g is x.grad and g.tolist() == [4, 4, 4]
    return "The sum of both: it is the same tensor"


def rewrapped():
    model = torch.nn.Linear(2, 1)
    loss = model(torch.ones(1, 2)).pow(2).mean()
    new = torch.tensor(loss.item(), requires_grad=True)
    assert not raises(new.backward)
    assert new.grad.item() == 1 and all(p.grad is None for p in model.parameters())
    return "Nothing, and no error comes"


def too_late():
    w = torch.ones(2, requires_grad=True)
    h = w + 2  # no node here keeps anything, so that a second backward works
    loss = (h + 1).sum()
    loss.backward()
    h.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert h.grad is None
    loss.backward()
    assert h.grad.tolist() == [1, 1]
    return "None, until another backward passes"


def no_bytes():
    x = torch.rand(1000, requires_grad=True)
    with record() as run:
        loss = ((x * 1 + 1) * 2).mean()
    assert loss.grad_fn is not None and run.kept.rows == ()
    return str(run.kept.nbytes)


def in_place():
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    u = x * 1
    h = u.sigmoid()
    u.add_(1)
    assert not raises(h.sum().backward)
    right = x.detach().sigmoid() * (1 - x.detach().sigmoid())
    assert torch.allclose(x.grad, right)
    return "Fine: sigmoid kept its output, and the output was not touched"


def no_grad():
    with torch.no_grad():
        layer = torch.nn.Linear(2, 2)
        inside = layer(torch.ones(1, 2))
    assert layer.weight.requires_grad and inside.grad_fn is None
    layer(torch.ones(1, 2)).sum().backward()
    assert layer.weight.grad is not None
    return "Yes: a parameter wants a gradient wherever it was made"


RUNS = [leaf, alias, rewrapped, too_late, no_bytes, in_place, no_grad]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_the_right_choice_is_what_torch_does(run):
    assert [c["text"] for c in QUESTIONS[run.__name__]["choice"] if c.get("right")] == [run()]


def test_each_question_has_its_run():
    assert [run.__name__ for run in RUNS] == list(QUESTIONS)
