"""Each operation, free and node is at the learner's line that caused it, wherever that line stands."""

import os
import re
import subprocess
import sys
import textwrap
from contextlib import ExitStack

import pytest
import torch
from torch import nn

from helpers import record
from helpers.data import dumps

from .looking import events, line, node, nodes


def frames(recording, place):
    found = recording.place_of(place)
    return [(f.function.rsplit(".", 1)[-1], recording.sources[f.source].line(f.line)) for f in found.frames]


# ---------------------------------------------------------------- blocks


def test_block_inside_a_function():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        y = x.exp()
        y = y.sin()
        z = y.abs()
        del y, z
        x.cos().sum().backward()
    r = run.recording
    assert line(r, node(r, "ExpBackward0").place) == "y = x.exp()"
    assert line(r, node(r, "SinBackward0").place) == "y = y.sin()"
    freed = {line(r, e.place) for e in events(r, "free") if e.phase == "forward"}
    assert "del y, z" in freed
    assert {line(r, e.place) for e in events(r, "enter") + events(r, "leave")} == {"x.cos().sum().backward()"}
    source = r.sources[r.cell]
    assert source.label == "test_places.py" and source.line(r.span[0]) == "with record() as run:"
    assert source.line(r.span[1]) == "x.cos().sum().backward()"


def test_statement_over_several_lines():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        y = (
            x.exp()
            + x.sin()
            * x.cos()
        )  # fmt: skip
    r = run.recording
    assert line(r, node(r, "ExpBackward0").place) == "x.exp()"
    assert line(r, node(r, "CosBackward0").place) == "* x.cos()"
    assert r.sources[r.cell].line(r.span[1]) == ")  # fmt: skip" and y.shape == (4,)


def test_block_with_two_managers_and_nested_blocks():
    x = torch.ones(4, requires_grad=True)
    with torch.enable_grad(), record() as run:
        with torch.autograd.set_detect_anomaly(False):
            y = x.exp()
    r = run.recording
    assert line(r, node(r, "ExpBackward0").place) == "y = x.exp()" == r.sources[r.cell].line(r.span[1])
    assert r.sources[r.cell].line(r.span[0]) == "with torch.enable_grad(), record() as run:" and y.shape == (4,)


def test_entered_by_an_exit_stack():
    x = torch.ones(4, requires_grad=True)
    with ExitStack() as stack:
        run = stack.enter_context(record())
        y = x.exp()
    r = run.recording
    assert line(r, node(r, "ExpBackward0").place) == "y = x.exp()" and y.shape == (4,)


# ---------------------------------------------------------------- where code is


class Layer(nn.Module):
    def forward(self, x):
        y = x.exp()
        return y.sin()


def helper(x):
    return x.tanh()


def test_line_of_the_block_and_line_of_the_module():
    x, layer = torch.ones(4, requires_grad=True), Layer()
    with record() as run:
        y = layer(x)
        z = helper(y)
    r = run.recording
    exp, tanh = node(r, "ExpBackward0"), node(r, "TanhBackward0")
    assert frames(r, exp.place)[-1] == ("forward", "y = x.exp()") and line(r, exp.place) == "y = layer(x)"
    assert [f for f, _ in frames(r, tanh.place)] == ["test_line_of_the_block_and_line_of_the_module", "helper"]
    assert line(r, tanh.place, inner=True) == "return x.tanh()" and line(r, tanh.place) == "z = helper(y)"
    assert z.shape == (4,)


def test_lambda_comprehension_generator_and_nested_function():
    x = torch.ones(4, requires_grad=True)

    def inner(value):
        return value.log()

    square = lambda v: v.square()  # noqa: E731

    def numbers():
        yield x.cos()

    with record() as run:
        a = square(x)
        b = [x.exp() for _ in range(2)]
        c = next(numbers())
        d = inner(x)
        e = sum(x.tan() for _ in range(2))
    r = run.recording
    assert line(r, node(r, "PowBackward0").place) == "a = square(x)"
    assert line(r, node(r, "PowBackward0").place, inner=True).startswith("square = lambda v: v.square()")
    assert {line(r, n.place) for n in nodes(r, "ExpBackward0")} == {"b = [x.exp() for _ in range(2)]"}
    assert line(r, node(r, "CosBackward0").place) == "c = next(numbers())"
    assert line(r, node(r, "CosBackward0").place, inner=True) == "yield x.cos()"
    assert line(r, node(r, "LogBackward0").place, inner=True) == "return value.log()"
    assert {line(r, n.place) for n in nodes(r, "TanBackward0")} == {"e = sum(x.tan() for _ in range(2))"}
    assert len(a) == len(b[0]) == len(c) == len(d) == len(e)


def test_library_modules_show_the_line_that_calls_them():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.ones(2, 4)
    with record() as run:
        y = model(x)
    assert {line(run.recording, n.place) for n in run.recording.nodes if not n.leaf} == {"y = model(x)"}
    r = record(model, x).recording  # no code of ours inside: the line that called record
    assert {line(r, n.place) for n in r.nodes if not n.leaf} == {
        "r = record(model, x).recording  # no code of ours inside: the line that called record"
    }
    assert y.shape == (2, 4)


def test_backward_is_at_the_forward_line():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        y = x.exp()
        loss = y.sin().sum()
        loss.backward()
    r = run.recording
    backward = {e.op: line(r, e.place) for e in events(r, "run")}
    assert backward == {
        "SumBackward0": "loss = y.sin().sum()",
        "SinBackward0": "loss = y.sin().sum()",
        "ExpBackward0": "y = x.exp()",
    }
    assert {line(r, e.place) for e in events(r, "release")} == {"y = x.exp()", "loss = y.sin().sum()"}
    made = {r.storages[s].op: line(r, e.place) for e in events(r, "op") if e.graph == 0 for s in e.allocated}
    assert made["aten.cos"] == "loss = y.sin().sum()"


# ---------------------------------------------------------------- other files


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    (tmp_path / "my_model.py").write_text(
        textwrap.dedent("""
        def step(x):
            y = x.exp()
            return y.sum()


        def broken(x):
            return x @ x
        """).lstrip()
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__("my_model")
    del sys.modules["my_model"]


def test_step_from_another_module(elsewhere):
    r = record(elsewhere.step, torch.ones(3, requires_grad=True)).recording
    exp = node(r, "ExpBackward0")
    assert frames(r, exp.place) == [("step", "y = x.exp()")] and r.sources[r.cell].label == "my_model.py"
    assert r.sources[r.cell].lines[0] == "def step(x):" and r.span == (1, 3)
    assert str(elsewhere.__file__) not in dumps(r)


def test_error_in_another_module(elsewhere):
    x = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError):
        with record() as run:
            x.exp()
            elsewhere.broken(x)
    r = run.recording
    assert line(r, r.events[-1].place) == "elsewhere.broken(x)"
    assert line(r, r.events[-1].place, inner=True) == "return x @ x"


def test_error_of_the_learners_own():
    with pytest.raises(KeyError):
        with record() as run:
            x = torch.ones(3, requires_grad=True)
            loss = x.exp().sum()
            {}["no such key"]
    r = run.recording
    assert r.events[-1].note == "KeyError: 'no such key'" and line(r, r.events[-1].place) == '{}["no such key"]'
    assert loss.grad_fn is not None


# ---------------------------------------------------------------- notebooks

CELLS = [
    """
import torch
from helpers import record

W = torch.ones(4, 3, requires_grad=True)

def layer(x):
    return torch.relu(x @ W)
""",
    """
x = torch.ones(2, 4)
with record() as run:
    y = layer(x)
    loss = y.sum()
    loss.backward()
before = run.recording
""",
    """
def step():
    y = layer(x)
    return y.sum()

called = record(step).recording
""",
    """
try:
    with record() as run:
        y = layer(x)
        y @ y
except RuntimeError:
    failed = run.recording
""",
    """
%matplotlib --list
with record() as run:
    y = layer(x)
magic = run.recording
""",
]


#: Beginnings of paths, and names of temporary files.
PATH = re.compile(
    rf"/(?:tmp|home|root|usr|var|opt|Users)/|[A-Z]:\\\\|site-packages|ipykernel_|{re.escape(os.getcwd())}"
)


@pytest.fixture(scope="module", params=["terminal", "kernel"])
def shell(request):
    """A real IPython shell, which runs cells under its own names for them, or under those of a notebook's kernel."""
    from ipykernel.compiler import XCachingCompiler
    from IPython.core.interactiveshell import InteractiveShell

    class Kernel(InteractiveShell):
        compiler_class = XCachingCompiler

    shell = InteractiveShell() if request.param == "terminal" else Kernel()
    for cell in CELLS:
        shell.run_cell(cell.strip() + "\n", store_history=True).raise_error()
    return shell.user_ns


def test_cell_that_holds_the_block(shell):
    r = shell["before"]
    cell = r.sources[r.cell]
    assert cell.label == "this cell" and list(cell.lines) == CELLS[1].strip().split("\n")
    assert r.span == (2, 5)
    total = node(r, "SumBackward0")
    assert line(r, total.place) == "loss = y.sum()" and r.place_of(total.place).frames[0].function == ""
    relu = node(r, "ReluBackward0")
    outer, inner = r.place_of(relu.place).frames
    assert (r.sources[outer.source].label, r.sources[inner.source].label) == ("this cell", "another cell")
    assert line(r, relu.place, inner=True) == "return torch.relu(x @ W)" and inner.function == "layer"
    assert {n.leaf.names for n in r.nodes if n.leaf} == {("W",)} and relu.names == ("y",)


def test_cell_that_calls_a_function(shell):
    r = shell["called"]
    assert r.sources[r.cell].label == "this cell"
    assert line(r, node(r, "SumBackward0").place) == "return y.sum()"
    assert line(r, node(r, "ReluBackward0").place) == "y = layer(x)"


def test_error_in_a_cell(shell):
    r = shell["failed"]
    assert r.events[-1].kind == "error" and line(r, r.events[-1].place) == "y @ y"
    assert r.span == (2, 4)


def test_cell_with_a_magic(shell):
    r = shell["magic"]
    assert line(r, node(r, "ReluBackward0").place) == "y = layer(x)" and r.sources[r.cell].label == "this cell"


def test_recordings_hold_no_path(shell, elsewhere):
    with record() as run:
        loss = elsewhere.step(torch.ones(3, requires_grad=True))
        loss.backward()
    for r in (run.recording, shell["before"], shell["called"], shell["failed"]):
        text = dumps(r)
        assert not PATH.search(text)
        assert all("/" not in s.label and "\\" not in s.label for s in r.sources)


def test_script_without_source():
    code = """
import torch
from helpers import record
x = torch.ones(3, requires_grad=True)
with record() as run:
    y = x.exp()
r = run.recording
print(len(r.nodes), r.nodes[0].place, r.cell, r.span)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("2 "), done.stderr
