"""check(): what it shows and keeps, and that no answer, however odd, gets past it or leaves a trace."""

import importlib
import json
import random
import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from helpers.lessons import LessonError, answers, check
from helpers.lessons.check import (
    CHAPTERS,
    MOST_PRINTED,
    NOT_ATTEMPTED,
    RAISED,
    RIGHT,
    WRONG,
    Exercise,
    Mistake,
    judge,
)

from . import own
from .wrong_answers_01 import (
    ANSWER,
    BACKWARD,
    COUNT,
    ORDER,
    RIGHT_DIV,
    SUM,
    autograd,
    count,
    div,
    operation,
    sigmoid,
    step,
    walk,
)

# `helpers.lessons.check` is the function
check_module = importlib.import_module("helpers.lessons.check")
MIME = "application/vnd.gradients-and-intermediates.check+json"


@pytest.fixture(autouse=True)
def own_answers(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIENTS_ANSWERS", str(tmp_path / "answers.json"))
    monkeypatch.setattr(answers, "_unsaved", {})


def judged(exercise, source):
    namespace = autograd()
    own.cell(source, namespace)
    return judge(exercise, namespace.get("answer", namespace.get(ANSWER[exercise])))


def made_up(monkeypatch, examine, **mistakes):
    exercise = Exercise(examine, "Begin.", mistakes)
    monkeypatch.setattr(check_module, "exercise_of", lambda name: exercise)


# ------------------------------------------------------------------------------------------------------------ shows


def test_shows_once_as_text_html_and_data(shown):
    assert check("kept_bytes", None) is None
    assert check("bug_data", 3) is None
    waits, wrong = shown
    assert set(waits) == set(wrong) == {"text/plain", "text/html", MIME}
    assert waits[MIME] == {"schema": 1, "exercise": "kept_bytes", "status": "not attempted", "mistake": None}
    assert wrong[MIME] == {"schema": 1, "exercise": "bug_data", "status": "wrong", "mistake": "not_a_function"}
    assert wrong["text/plain"].splitlines()[0] == "bug_data · not yet"
    assert "<code" in wrong["text/html"] and "`" not in wrong["text/html"] and " id=" not in wrong["text/html"]
    json.dumps([waits, wrong])


def test_gives_back_the_outcome_instead_of_showing_it(shown):
    outcome = check("kept_bytes", 3, show=False)
    assert (outcome.status, outcome.mistake) == (WRONG, "not_a_function")
    assert outcome.message.startswith("`check` wants the function itself") and "<" not in outcome.message
    assert check("kept_bytes", show=False).status == NOT_ATTEMPTED
    assert shown == [] and answers.get("exercises", "kept_bytes") is None
    with pytest.raises(AttributeError):
        outcome.status = RIGHT
    with pytest.raises(LessonError):
        check("kept_byte", 3, show=False)
    with pytest.raises(TypeError):
        check("kept_bytes", 3, False)


def test_html_says_what_the_text_says(monkeypatch):
    def examine(answer):
        raise Mistake("sharp", code="a < b & c")

    made_up(monkeypatch, examine, sharp="Look at `{code}`.\nThen go on.")
    outcome = judge("any", 1)
    assert outcome.text == "any · not yet\n    Look at `a < b & c`.\n    Then go on."
    assert "a &lt; b &amp; c</code>." in outcome.html and outcome.html.count("<p ") == 3


def test_prints_without_a_shell(capsys, monkeypatch):
    monkeypatch.setattr("helpers.lessons.show.shell", lambda: None)
    check("kept_bytes")
    assert capsys.readouterr().out.startswith("kept_bytes · not attempted yet\n    Start with")


@pytest.mark.parametrize("name", ["kept_byte", "", None, 3, ["own_div"]])
def test_unknown_exercise(name):
    with pytest.raises(LessonError) as caught:
        check(name, 1)
    assert all(known in str(caught.value) for known in CHAPTERS)
    assert ('Did you mean "kept_bytes"?' in str(caught.value)) == (name == "kept_byte")


def test_keeps_the_best_and_counts_attempts(capsys):
    namespace = autograd()
    own.cell(step("shown = h.detach().clamp(max=2.0)"), namespace)
    kept = []
    for answer in (None, lambda x: 1 / 0, 3, namespace["step"], None, 3):
        check("bug_data", answer)
        kept.append(answers.get("exercises", "bug_data"))
    assert [(k["best"], k["attempts"]) for k in kept] == [
        ("not attempted", 0),
        ("raised", 1),
        ("wrong", 2),
        ("right", 3),
        ("right", 3),
        ("right", 4),
    ]


@pytest.mark.parametrize("kept", [3, [], {"best": "splendid"}, {"best": None, "attempts": "two"}, {"attempts": None}])
def test_a_spoilt_record_is_begun_anew(kept, capsys):
    answers.put("exercises", "bug_data", kept)
    check("bug_data", 3)
    assert answers.get("exercises", "bug_data") == {"best": "wrong", "attempts": 1}


# ----------------------------------------------------------------------------------------------------------- raised


TOTAL_IN_PACK = count(
    ("saved = []", "total = 0"),
    ("saved.append(tensor)", "total += tensor.nbytes"),
)


@pytest.mark.parametrize(
    ("exercise", "source", "said"),
    [
        ("kept_bytes", "def kept_bytes(function, *inputs):\n    x = 1\n    return y", "`NameError`: name 'y'"),
        ("kept_bytes", "def kept_bytes(function):\n    return 0", "Compare the `def` or `lambda` line"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    return kept_bytes(f, *i)", "calls itself without end"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    exit()", "hands its result back with `return`"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    raise SystemExit", "`exit()` would end"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    return 1 / 0", "divided by zero"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    return f(*i).grd_fn", "Look at the type of what stands before"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    return f(i[0] @ i[0])", "Two shapes do not fit"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    i[0].add_(1)", "changed in place"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    f(i[0].detach()).sum().backward()", "The graph was cut"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    raise ValueError", "`ValueError`.\n"),
        ("bug_data", step("shown = h.data", "h.sum().backward()", "h.sum().backward()"), "after one backward"),
        ("own_sigmoid", "def s(a):\n    return Value(torch.sigmoid(a))\nValue.sigmoid = s", "A Value is no tensor"),
        ("own_sigmoid", sigmoid("lambda g, out: (g @ out[:2],)"), "Two shapes do not fit"),
        ("own_div", div("lambda g, x, y: (g / y, -g * x / y ** k)"), "A spelling mistake"),
        ("own_sigmoid", operation("sigmoid", "a", "a.data.sigmoid()", "Node(0, (out,), a)"), "One Value stands where"),
        ("own_sigmoid", operation("sigmoid", "a", "a.data()", "Node(0)"), "Brackets stand after"),
        ("kept_bytes", count(("= function(*inputs)", "= function(inputs)")), "A tuple stands where"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    return {}[i[0]]", "In which order"),
        ("kept_bytes", TOTAL_IN_PACK, "Inside `pack`, `total` is a new local name"),
        ("kept_bytes", "def kept_bytes(f, *i):\n    total += f(*i).nbytes", "`total` is a local name of `kept_bytes`"),
        ("own_autograd", walk("waiting = [self.node], [self.node]", "waiting = [self], [self]"), "`self.node` on"),
        (
            "own_autograd",
            walk("grads[edge] = ", "edge.grad = edge.grad + part\n            grads[edge] = "),
            "of yours",
        ),
        ("own_autograd", walk(ORDER, "sorted(found, reverse=True)"), "`key=lambda node: node.number`"),
        ("own_autograd", walk("zip(node.edges, parts)", "zip(node.edges, parts[1:])"), "In which order"),
        ("own_autograd", walk(SUM, "grads.get(edge, 0) + parts"), "`zip(node.edges, parts)`"),
        ("own_autograd", walk(SUM, "grads.get(edge, ()) + part"), "`zip(node.edges, parts)`"),
    ],
)
def test_error_is_told_with_where_to_look(exercise, source, said, monkeypatch):
    monkeypatch.setattr(check_module, "strict", True)
    outcome = judged(exercise, source)
    assert (outcome.status, outcome.mistake) == (RAISED, None), outcome.text
    assert said in outcome.message and "0x" not in outcome.message
    assert "It came up in line" in outcome.message or "def kept_bytes(function):" in source


def test_line_of_their_cell():
    source = "def kept_bytes(function, *inputs):\n\n\n    return helper()\n\ndef helper():\n    return [][1]\n"
    outcome = judged("kept_bytes", source)
    assert "It came up in line 7 of the cell with `helper`: `return [][1]`." in outcome.message
    # an error inside torch is theirs where they call torch
    outcome = judged("kept_bytes", "def kept_bytes(function, *inputs):\n    return torch.nn.functional.linear(1, 2)\n")
    assert "line 2 of the cell with `kept_bytes`: `return torch.nn.functional.linear(1, 2)`" in outcome.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "    up = 2 * n\n    down = ...  # its input\n    mask = ...\n    return up + down + mask",
            "Blanks `...` are still there, in lines 4 and 5 of the cell with `kept_bytes`: `down = ...  # its input` "
            "and `mask = ...`.",
        ),
        (
            "    down = ...\n    mask = n\n    return down + mask",
            "A blank `...` is still there, in line 3 of the cell with `kept_bytes`: `down = ...`.",
        ),
        (
            "    up = max(\n        n,\n        2 * (n + ...),\n    )\n    return up",
            "A blank `...` is still there, in line 5 of the cell with `kept_bytes`: `2 * (n + ...),`.",
        ),
        (
            "    x = torch.ones(2)[..., 0]\n    a = b = ...\n    return x + a",
            "A blank `...` is still there, in line 4 of the cell with `kept_bytes`: `a = b = ...`.",
        ),
        (
            "    a = ...\n    b = ...\n    c = ...\n    d = ...\n    return a + b + c + d",
            "Blanks `...` are still there, in lines 3, 4, 5 and 6 of the cell with `kept_bytes`: `a = ...`, `b = ...`, "
            "`c = ...` and ….",
        ),
        (
            "    held = n\n    return ...",
            "A blank `...` is still there, in line 4 of the cell with `kept_bytes`: `return ...`.",
        ),
        (
            "    return n + later\n\nlater = ...",
            "A blank `...` is still there, in line 5 of the cell with `kept_bytes`: `later = ...`.",
        ),
    ],
)
def test_blanks_are_named_where_they_stand(body, said):
    outcome = judged("kept_bytes", f"n = 3\ndef kept_bytes(function, *inputs):\n{body}\n")
    assert outcome.status == NOT_ATTEMPTED
    assert outcome.message == f"{said} {check_module.exercise_of('kept_bytes').start}"


def test_a_stub_is_told_what_to_do_first():
    outcome = judged("kept_bytes", "def kept_bytes(function, *inputs): ...")
    assert (outcome.status, outcome.message) == (NOT_ATTEMPTED, check_module.exercise_of("kept_bytes").start)


def test_a_blank_whose_cell_cannot_be_found():
    namespace = autograd()
    exec(compile("def kept_bytes(function, *inputs):\n    return 1 + ...", "<nowhere>", "exec"), namespace)
    message = judge("kept_bytes", namespace["kept_bytes"]).message
    assert message.startswith("A blank `...` is still there, in line 2 of the cell with `kept_bytes`. ")


def test_addresses_and_long_messages_are_cut():
    told = "str(function) + 'x' * 1000 + '\\nsecond' + ' line'"
    source = f"def kept_bytes(function, *inputs):\n    said = {told}\n    raise ValueError(said)"
    message = judged("kept_bytes", source).message
    assert "0x" not in message and "second line" not in message and len(message) < 500


def test_error_that_cannot_be_told():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    def answer(*_):
        raise Mute

    assert judge("kept_bytes", answer).message.startswith("`Mute`.\nIt came up in")


def test_ctrl_c_passes(monkeypatch):
    before = torch.get_rng_state()

    def stop(*_):
        torch.manual_seed(3)
        torch.set_default_dtype(torch.float64)
        raise KeyboardInterrupt

    for exercise in ("kept_bytes", "bug_data"):
        with pytest.raises(KeyboardInterrupt):
            judge(exercise, stop)
    assert torch.equal(before, torch.get_rng_state()) and torch.get_default_dtype() == torch.float32


def test_our_own_fault_is_told_gently_and_in_tests_raised(monkeypatch):
    made_up(monkeypatch, lambda answer: 1 / 0)
    assert judge("any", 1).status == RAISED
    monkeypatch.setattr(check_module, "strict", True)
    with pytest.raises(ZeroDivisionError):
        judge("any", 1)


# ------------------------------------------------------------------------------------------------- leaves no trace

SPOIL = """
import random, numpy
torch.manual_seed(5); random.seed(5); numpy.random.seed(5)
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.rand(3); random.random(); numpy.random.rand()
"""


@pytest.mark.parametrize("end", ["return 0", "raise ValueError", "return None", "exit()"])
@pytest.mark.parametrize("grad", [True, False])
def test_state_is_as_before(end, grad):
    spoil = SPOIL.strip().replace("\n", "\n    ")
    source = f"def kept_bytes(f, *i):\n    {spoil}\n    {end}"
    torch_state, python_state, numpy_state = torch.get_rng_state(), random.getstate(), np.random.get_state()
    with torch.set_grad_enabled(grad):
        assert judged("kept_bytes", source).status != RIGHT
        assert torch.is_grad_enabled() == grad
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(torch_state, torch.get_rng_state())
    assert python_state == random.getstate()
    assert all(np.array_equal(a, b) for a, b in zip(numpy_state, np.random.get_state(), strict=True))


@contextmanager
def default_dtype():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


MODES = {
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "another device": lambda: torch.device("meta"),
    "float64": default_dtype,
}


@pytest.mark.parametrize("mode", MODES)
def test_right_in_any_mode(mode):
    namespace = autograd()
    own.cell(COUNT + step("shown = h.detach().clamp(max=2.0)"), namespace)
    with MODES[mode]():
        statuses = [judge(exercise, namespace[ANSWER[exercise]]).status for exercise in ("kept_bytes", "bug_data")]
        statuses.append(judge("own_autograd", namespace["Value"]).status)
    assert statuses == [RIGHT] * 3


def test_class_is_left_as_it_was():
    namespace = autograd()
    own.cell(sigmoid("lambda g, out: (g * out * (1 - out),)") + div(RIGHT_DIV), namespace)
    Value, Node = namespace["Value"], namespace["Node"]
    before = dict(vars(Value)), dict(vars(Node))
    for exercise in ("own_autograd", "own_sigmoid", "own_div"):
        assert judge(exercise, Value).status == RIGHT
    assert (dict(vars(Value)), dict(vars(Node))) == before


def test_the_learner_s_prints_are_let_through_but_not_by_hundreds(capsys):
    namespace = autograd()
    own.cell(BACKWARD.replace("    found,", "    print('walk')\n    found,"), namespace)
    assert judge("own_autograd", namespace["Value"]).status == RIGHT
    lines = capsys.readouterr().out.splitlines()
    assert lines[:-1] == ["walk"] * MOST_PRINTED
    assert re.fullmatch(r"… and \d+ more lines that your code prints\.", lines[-1])


# ----------------------------------------------------------------------------------------------------- odd answers


class Odd:
    """Answers to nothing as one would expect."""

    __slots__ = ()

    def __eq__(self, other):
        raise TypeError("no comparing")

    __hash__ = None

    def __bool__(self):
        raise TypeError("neither true nor false")

    def __getattr__(self, name):
        raise RuntimeError("no " + name)


class Meta(type):
    def __instancecheck__(cls, instance):
        raise RuntimeError("no looking")


class Hostile(metaclass=Meta):
    def __init__(self, data, node=None):
        self.data = data


# fmt: off
ODD = [    0, 1.5, True, "Value", b"x", [], {}, (), object(), Odd(), Odd, Hostile, type, int, str, torch.Tensor,
    torch.nn.Module, torch.nn.Linear(2, 2), torch.ones(3), torch.sigmoid, torch, np.ones(2), np.float64, print, len,
    max, exit, iter, lambda: 0, lambda *a: a, lambda *a: a[0], lambda *a: 0, lambda *a: "", lambda *a: float("nan"),
    lambda *a: -1, lambda *a: 10**400, lambda *a: (0, 0), lambda *a: (a[0], a[1]), lambda *a: (Odd(), Odd()),
    lambda *a: torch.ones(2), lambda *a: Odd(), lambda *a: (torch.ones(()), torch.ones(4, 2)),
    lambda *a: (i for i in a), lambda *a, **k: {1: 2, 3: 4}, Exercise, judge,
    lambda *a: check_module.NotAttempted("x"), dict, BaseException, lambda *a: (None, None), lambda *a: (..., 1),
    lambda *a: (torch.ones((), requires_grad=True), torch.ones(4, 2, dtype=torch.complex64)),
    lambda x, w: ((x @ w).exp().mean(), torch.full((4, 2), float("nan"))),
    lambda x, w: ((x @ w).exp().mean(), (x @ w).exp().detach().clamp(max=2).to_sparse()),
    lambda x, w: ((x @ w).exp().mean(), (x @ w).exp().detach().clamp(max=2).numpy()),
    lambda x, w: ((x @ w).exp().mean().float(), (x @ w).exp().detach().clamp(max=1.99)), lambda f, *i: f(*i),
    lambda f, *i: f(*i).nbytes, lambda f, *i: [f(*i)], lambda f, *i: torch.tensor([192, 0]),
]
# fmt: on


@pytest.mark.parametrize("exercise", CHAPTERS)
@pytest.mark.parametrize("at", range(len(ODD)))
def test_odd_answer_is_answered_and_never_right(exercise, at, capsys):
    outcome = judge(exercise, ODD[at])
    assert outcome.status in (WRONG, RAISED, NOT_ATTEMPTED) and len(outcome.message.split()) >= 8
    assert "0x" not in outcome.text and "{" not in outcome.message.replace("{1:", "")
    assert outcome == judge(exercise, ODD[at])
