"""The comparison with PyTorch: what it runs, that it is the same everywhere, and that no planted bug passes."""

import random
import re

import pytest
import torch

from helpers.lessons import own_autograd
from helpers.lessons.check import judge
from helpers.lessons.own_autograd import ALL, BASE, LIMIT, Program, compare, describe, differs

from . import own
from .wrong_answers_01 import (
    ORDER,
    RIGHT_DIV,
    SORTED_BY_RECURSION,
    STUB_BACKWARD,
    autograd,
    div,
    operation,
    sigmoid,
    walk,
)

MORE = sigmoid("lambda g, out: (g * out * (1 - out),)") + div(RIGHT_DIV)
MINUS = operation("__sub__", "a, b", "a.data - b.data", "Node(lambda g: (g, -g), (), (a, b))")


def built(source=""):
    namespace = autograd()
    own.cell(source, namespace)
    return namespace["Value"]


def programs(names, seeds=range(200)):
    return [Program.draw(random.Random(seed), [ALL[name] for name in names]) for seed in seeds]


def used(program):
    """The leaves that something uses."""
    return {i for _, operands in program.steps for i in operands if i < len(program.leaves)}


def test_the_chapter_s_autograd_is_pytorch_s():
    found = compare(built())
    assert found.graphs == found.shared == 200
    assert set(found.counts) == set(BASE) and min(found.counts.values()) >= 200
    assert found.operations > 3000 and found.leaves >= 400 and found.deep


def test_the_same_graphs_everywhere():
    """Pinned: neither torch's random numbers nor rounded values decide what a graph looks like."""
    counts = {"+": 1192, "*": 265, "@": 228, "exp": 216, "tanh": 471, "relu": 256, "sum": 1331}
    assert compare(built()).counts == counts
    with torch.random.fork_rng():
        torch.manual_seed(7)
        random.seed(7)
        assert compare(built()).counts == counts


def test_far_inside_the_tolerance(monkeypatch):
    monkeypatch.setattr(own_autograd, "TOLERANCE", 1e-14)
    assert compare(built(MORE + MINUS)).graphs == 200


def test_added_operators_take_part():
    found = compare(built(MORE + MINUS))
    assert set(found.counts) == {*BASE, "sigmoid", "/", "-"}
    assert min(found.counts.values()) >= 100
    assert compare(built(MORE), ["/"], graphs=20).counts["/"] > 0


def test_stubs_take_no_part():
    assert set(compare(built(sigmoid("...") + div("...", "..."))).counts) == set(BASE)


@pytest.mark.parametrize("names", [BASE, tuple(ALL)], ids=["base", "all"])
def test_random_graphs_are_what_they_claim(names):
    idle = 0
    for seed, program in enumerate(programs(names)):
        assert program.shares
        uses = [i for _, operands in program.steps for i in operands]
        idle += len(used(program)) < len(program.leaves)
        # every result but the loss is used, so each matters to some gradient
        last = len(program.leaves) + len(program.steps) - 1
        assert set(range(len(program.leaves), last)) <= set(uses)
        values = program.data(torch.Generator().manual_seed(seed))
        for op, operands in program.steps:
            values.append(op.apply(*(values[i] for i in operands)))
            assert values[-1].shape in ((3, 3), ())
        steps = len(values) - len(program.leaves) - 2 * len(program.ends) + 1
        for value in values[: len(program.leaves) + steps]:
            assert value.isfinite().all() and value.abs().max() <= LIMIT
        assert values[-1].dim() == 0
    assert 20 <= idle <= 80


# Each wraps an operator's formula, and so damages that operator's backward alone.
BUGS = {
    "factor 2": ("2 * part", "is exactly 2 times"),
    "half": ("part / 2", "is exactly half"),
    "sign": ("-part", "has the wrong sign"),
    "zero": ("part * 0", "is zero everywhere"),
    "nan": ("part * float('nan')", "holds inf or nan"),
    "shape": ("part[None]", "has the shape 1"),
    "float32": ("part.float()", "comes back as float32"),
    "added": ("part + 1e-9 * torch.arange(1, 1 + part.numel()).reshape(part.shape)", "is wrong in"),
    "rounded": ("part * (1 + 1e-9)", "is off a little"),
    "None": ("None", "is None"),
}
PLANT = """
right = Value.{method}
def planted(*values):
    out = right(*values)
    formula = out.node.formula
    out.node.formula = lambda g, *saved: {bug}
    return out
Value.{method} = planted
"""


def planted(name, bug):
    return judge("own_autograd", built(MORE + MINUS + PLANT.format(method=ALL[name].method, bug=bug)))


def test_the_plant_itself_is_harmless():
    assert planted("*", "formula(g, *saved)").status == "right"


@pytest.mark.parametrize("kind", BUGS)
@pytest.mark.parametrize("name", ALL)
def test_planted_bug_is_caught_and_named(name, kind):
    damage, said = BUGS[kind]
    outcome = planted(name, f"tuple({damage} for part in formula(g, *saved))")
    assert outcome.mistake == "backward"
    assert f"The gradient of `{ALL[name].shown}` for `a` {said}" in outcome.message


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name].inputs == 2])
def test_bug_in_the_second_gradient_alone(name):
    outcome = planted(name, "(formula(g, *saved)[0], 3 * formula(g, *saved)[1])")
    assert f"The gradient of `{ALL[name].shown}` for `b` is exactly 3 times" in outcome.message


@pytest.mark.parametrize("name", ALL)
def test_g_forgotten(name):
    outcome = planted(name, "formula(torch.ones_like(g), *saved)")
    assert f"The gradient of `{ALL[name].shown}` for `a` does not depend on `g`" in outcome.message


@pytest.mark.parametrize("name", ["*", "@", "/", "-"])
def test_parts_swapped(name):
    outcome = planted(name, "formula(g, *saved)[::-1]")
    # the two parts of a subtraction differ in sign alone, and that is what one sees
    said = "has the wrong sign" if name == "-" else "is the one for the other input"
    assert f"The gradient of `{ALL[name].shown}` for `a` {said}" in outcome.message


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("sum",)])
def test_transposed(name):
    outcome = planted(name, "tuple(part.T for part in formula(g, *saved))")
    assert f"The gradient of `{ALL[name].shown}` for `a` is the transpose" in outcome.message


def test_transposition_forgotten_in_the_product():
    for formula in ("(g @ y, x.T @ g)", "(g @ y.T, x @ g)", "(g @ y.T, g @ x.T)", "(y.T @ g, x.T @ g)"):
        source = operation("__matmul__", "a, b", "a.data @ b.data", f"Node(lambda g, x, y: {formula}, SAVED, (a, b))")
        outcome = judge("own_autograd", built(source.replace("SAVED", "(a.data, b.data)")))
        assert outcome.mistake == "backward" and "`a @ b`" in outcome.message


def test_shortest_graph_is_named():
    message = judge("own_autograd", built(walk(ORDER, ORDER + "[:14]"))).message
    failed, number = map(int, re.search(r"but (\d+) of 200 random graphs are not. In graph (\d+),", message).groups())
    drawn = programs(BASE, seeds=[1_000_003 + n for n in range(200)])
    # the loss, 13 nodes more, and the leaves run last
    late = [n for n, program in enumerate(drawn, 1) if len(program.steps) + len(used(program)) > 14]
    assert failed == len(late) and number in late
    assert len(drawn[number - 1].steps) == min(len(drawn[n - 1].steps) for n in late)


def test_a_walk_that_calls_itself_is_right_and_told_where_it_ends():
    assert not compare(built(SORTED_BY_RECURSION)).deep
    assert "RecursionError" in judge("own_autograd", built(SORTED_BY_RECURSION)).message
    assert "RecursionError" not in judge("own_autograd", built()).message


def test_an_entry_is_told_in_numbers():
    node = "Node(lambda g, out: (g * out * out + g,), (out,), (a,))"
    message = judge("own_autograd", built(operation("tanh", "a", "a.data.tanh()", node))).message
    # 1 - tanh²(0.5) = 0.7864
    assert "is wrong in 9 of 9 entries: where `a` = 0.5 and `g` = 1, it should be 0.7864 and is 1.214." in message
    node = "Node(lambda g, x, y: (g @ y.T + y, x.T @ g), (a.data, b.data), (a, b))"
    message = judge("own_autograd", built(operation("__matmul__", "a, b", "a.data @ b.data", node))).message
    assert "is wrong in 9 of 9 entries: the first should be -4.375 and is -5.375." in message


def test_operators_are_named_while_backward_is_still_blank():
    factor = "lambda g, out: (2 * g * out,)"
    source = STUB_BACKWARD + operation("exp", "a", "a.data.exp()", f"Node({factor}, (out,), (a,))")
    assert "`a.exp()` for `a` is exactly 2 times" in judge("own_autograd", built(source)).message


def test_differs():
    one = torch.ones(2, dtype=torch.float64)
    assert not differs(one, one) and not differs(one + 1e-13, one)
    assert differs(one + 1e-11, one) and differs(one * float("nan"), one) and differs(one[:1], one)
    assert not differs(1e6 * one + 1e-7, 1e6 * one)
    assert describe(one.clone(), one) == ""
