"""Chapter 01's exercises: each wrong answer gets its own message, each stub waits, each solution is right."""

import importlib
import re

import pytest
import torch

from helpers import record
from helpers.lessons.chapter_01 import CASES, EXERCISES, Probe, true_bytes
from helpers.lessons.check import NOT_ATTEMPTED, RAISED, RIGHT, judge

from . import own
from .exercises import every_message_is_somebody_s, gets_its_message, short_and_warm
from .wrong_answers_01 import (
    ANSWER,
    COUNT,
    RIGHT_DIV,
    SORTED_BY_RECURSION,
    STUB_BACKWARD,
    autograd,
    count,
    counted,
    div,
    sigmoid,
    step,
    walk,
)
from .wrong_answers_01 import WRONG as ANSWERS

# `helpers.lessons.check` is the function
check_module = importlib.import_module("helpers.lessons.check")


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(check_module, "strict", True)


def judged(exercise, source):
    namespace = autograd()
    own.cell(source, namespace)
    return judge(exercise, namespace.get("answer", namespace.get(ANSWER[exercise])))


@pytest.mark.parametrize(("exercise", "key", "source"), ANSWERS)
def test_wrong_answer_gets_its_message(exercise, key, source):
    gets_its_message(judged(exercise, source), exercise, key)


def test_every_message_is_somebody_s():
    every_message_is_somebody_s(EXERCISES, ANSWERS, ANSWER, "chapter_01")


@pytest.mark.parametrize(("exercise", "key"), [(e, k) for e in EXERCISES for k in EXERCISES[e].mistakes])
def test_message_is_short_and_warm(exercise, key):
    short_and_warm(EXERCISES[exercise].mistakes[key])


STUBS = {
    "own_autograd": STUB_BACKWARD,
    "own_sigmoid": sigmoid("..."),
    "own_div": div("...", "..."),
    "kept_bytes": "def kept_bytes(function, *inputs):\n    ...",
}


@pytest.mark.parametrize("exercise", STUBS)
@pytest.mark.parametrize("blank", ["...", "None", "raise NotImplementedError", "pass"])
def test_stub_waits(exercise, blank):
    source = STUBS[exercise]
    if blank in ("raise NotImplementedError", "pass"):
        name = "Value." if "Value." in source else "kept_bytes"
        source = re.sub(r"(def .*\n)(    .*\n?)+", rf"\1    {blank}\n", source)
        assert name in source
    elif exercise == "kept_bytes":
        source = source.replace("...", f"return {blank}")
    else:
        source = source.replace("...", blank)
    outcome = judged(exercise, source)
    assert (outcome.status, outcome.mistake) == (NOT_ATTEMPTED, None), outcome.text
    assert outcome.message.endswith(EXERCISES[exercise].start)


@pytest.mark.parametrize("exercise", EXERCISES)
@pytest.mark.parametrize("answer", [None, ...])
def test_nothing_waits(exercise, answer):
    assert judge(exercise, answer).text.endswith(EXERCISES[exercise].start)
    assert judge(exercise, answer).status == NOT_ATTEMPTED


def test_a_blank_that_is_left_is_named():
    assert "Still blank: `formula`." in judged("own_div", div("...")).message
    assert "Still blank: `saved` and `formula`." in judged("own_div", div("...", "...")).message
    inside = judged("own_sigmoid", sigmoid("lambda g, out: (g * ...,)"))
    assert inside.status == NOT_ATTEMPTED and "still there, in line 3 of its cell" in inside.message
    assert judged("own_sigmoid", sigmoid("lambda g, out: (...,)")).status == NOT_ATTEMPTED
    assert (
        "`kept_bytes` gives `None`: does it end with `return`?" in judged("kept_bytes", counted("sum(sizes)")).message
    )


RECORDED = """
from helpers import record

def kept_bytes(function, *inputs):
    with record() as run:
        result = function(*inputs)
    return run.kept.nbytes
"""
RIGHT_STEP = step("shown = h.detach().clamp(max=2.0)")
SOLUTIONS = [
    ("own_autograd", "", "Every gradient agrees with PyTorch's to 1e-12"),
    ("own_autograd", sigmoid("lambda g, out: (g * out * (1 - out),)") + div(RIGHT_DIV), "`sigmoid`, "),
    ("own_autograd", sigmoid("...") + div("...", "..."), "Every gradient agrees with PyTorch's to 1e-12"),
    ("own_autograd", SORTED_BY_RECURSION, "ends in a RecursionError"),
    ("own_autograd", walk("\nValue.backward", "    return found\n\nValue.backward"), "Every gradient agrees"),
    (
        "own_autograd",
        walk("{self.node: torch.ones_like(self.data)}", "{self.node: torch.ones((), dtype=self.data.dtype)}"),
        "Every gradient",
    ),
    ("own_sigmoid", STUB_BACKWARD + sigmoid("lambda g, out: (g * out * (1 - out),)"), "PyTorch does the same"),
    ("own_div", "del Value.backward\n" + div(RIGHT_DIV), "You keep `a` and `b`"),
    ("own_sigmoid", sigmoid("lambda g, out: (g * out * (1 - out),)"), "PyTorch does the same"),
    ("own_sigmoid", sigmoid("lambda g, out: [g * out * (1 - out)]", "[out]"), "PyTorch does the same"),
    ("own_sigmoid", sigmoid("lambda g, y, same: (g * (y - y * same),)", "(out, out)"), "PyTorch does the same"),
    ("own_sigmoid", sigmoid("lambda g, *kept: (g * kept[0] * (1 - kept[0]),)"), "PyTorch does the same"),
    (
        "own_sigmoid",
        sigmoid("lambda g, x: (g * x.sigmoid() * (1 - x.sigmoid()),)", "(a.data,)"),
        "You keep the input where PyTorch keeps the output",
    ),
    ("own_sigmoid", sigmoid("lambda g, slope: (g * slope,)", "(out * (1 - out),)"), "a tensor made for it"),
    ("own_div", div(RIGHT_DIV), "You keep `a` and `b`, and so does PyTorch"),
    ("own_div", div("lambda g, out, y: (g / y, -g * out / y)", "(out, b.data)"), "You keep the result and `b`"),
    ("own_div", div(RIGHT_DIV, "(a.data.clone(), b.data)"), "PyTorch keeps `a` and `b` themselves"),
    ("own_sigmoid", sigmoid("lambda g, y: (g * (y - y * y),)", "(out.clone(),)"), "a tensor made for it"),
    ("own_div", div("lambda g, p, q: (g * p, g * q)", "(1 / b.data, -out / b.data)"), "You keep 2 tensors"),
    ("kept_bytes", COUNT, "Right for all 13 functions"),
    ("kept_bytes", count(("saved.append(tensor)", "saved.append(tensor); print('packed')")), "Right for all 13"),
    ("kept_bytes", RECORDED, "to the byte what `record` says"),
    ("bug_data", RIGHT_STEP, "Loss and gradient are as if there were no log; `shown`"),
    ("bug_data", step("shown = h.detach().clone().clamp_(max=2.0)"), "`shown` is capped"),
    ("bug_data", step("with torch.no_grad():", "    shown = h.clamp(max=2.0)"), "`shown` is capped"),
    ("bug_data", step("shown = torch.minimum(h.detach(), torch.tensor(2.0))"), "`shown` is capped"),
    ("bug_data", step("shown = h.detach().float().clamp(max=2.0)"), "`shown` is capped"),
    ("bug_data", step("shown = h.data.clamp(max=2.0)"), "`.data` is safe here only because"),
]


@pytest.mark.parametrize(("exercise", "source", "said"), SOLUTIONS)
def test_solution_is_right(exercise, source, said):
    outcome = judged(exercise, source)
    assert outcome.status == RIGHT, outcome.text
    assert said in outcome.message
    assert outcome == judged(exercise, source), "the same answer again"


def test_what_the_sentences_say_of_pytorch():
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    assert hasattr(x.sigmoid().grad_fn, "_saved_result") and not hasattr(x.sigmoid().grad_fn, "_saved_self")
    kept = {name for name in dir((x / y).grad_fn) if name.startswith("_saved_")}
    assert kept == {"_saved_self", "_saved_other", "_saved_rounding_mode"} or kept == {"_saved_self", "_saved_other"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.shown)
def test_true_bytes_are_the_recorder_s(case):
    inputs = case.inputs()
    with record() as run:
        result = case.function(*inputs)
    assert true_bytes(case) == run.kept.nbytes
    del result


def test_the_bug_hunt_s_first_message_asks_and_does_not_tell():
    message = judged("bug_data", step("shown = h.data", "shown.clamp_(max=2.0)")).message
    assert message.startswith("The gradient of `w` is 85% off. No error came, and the loss is right.")
    assert message.endswith("?") and not re.search("share|same memory|one memory|version|`h`|`shown`|detach", message)


def test_gradient_that_the_bug_hunt_wants():
    """Central differences of the loss, in float64."""
    namespace = autograd()
    own.cell(RIGHT_STEP, namespace)
    x = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3)
    w = torch.linspace(1, -0.5, 6, dtype=torch.float64).reshape(3, 2)
    assert torch.autograd.gradcheck(lambda w: namespace["step"](x, w)[0], w.requires_grad_())
    own.cell(step("shown = h.data", "shown.clamp_(max=1.0)"), namespace)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(lambda w: namespace["step"](x, w)[0], w)


@pytest.mark.parametrize("left_on", [0, 1, 3])
def test_probe_takes_off_what_was_left_on(left_on):
    outer, packed = torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t), []
    with outer:
        probe = Probe()
        packed.clear()  # it looked whether hooks are on
        for _ in range(left_on):
            torch.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t).__enter__()
        assert probe.close() == left_on
        assert packed == []
        torch.ones(1, requires_grad=True).exp()
        assert len(packed) == 1
    torch.ones(1, requires_grad=True).exp()
    assert len(packed) == 1


@pytest.mark.parametrize("left_on", [0, 1, 3])
def test_probe_where_no_hooks_are(left_on):
    probe = Probe()
    for _ in range(left_on):
        torch.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t).__enter__()
    assert probe.close() == left_on
    torch.ones(1, requires_grad=True).exp()


def test_hooks_left_on_are_off_after_an_error_too():
    source = (
        "def kept_bytes(function, *inputs):\n"
        "    torch.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t).__enter__()\n"
        "    return function(*inputs)\n"
    )
    assert judged("kept_bytes", source).status == RAISED
    torch.ones(1, requires_grad=True).exp()


def test_a_broken_walk_is_named_where_it_raises():
    outcome = judged("own_autograd", walk("grads.pop(node)", "grads[nod]"))
    assert outcome.status == RAISED
    assert "NameError" in outcome.message and "`backward`" in outcome.message
