"""What chapter 01 says in its prose, asserted: by its committed outputs, which nbval compares, or by a run."""

import re

import nbformat
import pytest
import torch

from helpers import record
from tools import stamp

PATH = stamp.ROOT / "notebooks/01_autograd.ipynb"
NOTEBOOK = nbformat.read(PATH, as_version=4)
CODE = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code"]
PROSE = re.sub(r"\s+", " ", "\n".join(cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown"))
OWN = [cell.source for cell in CODE if cell.metadata.get("course", {}).get("part") == "own autograd"]


def printed(start):
    """What the one cell that holds `start` printed or showed, as text."""
    (cell,) = [cell for cell in CODE if start in cell.source]
    return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") or o.get("evalue") for o in cell.outputs)


def said(*words):
    """The prose says so: a test of a sentence that is no longer there would be worth nothing."""
    for word in words:
        assert re.sub(r"\s+", " ", word) in PROSE, word


def test_leaves_and_their_makers():
    lines = printed("for name, tensor in").splitlines()
    assert [re.findall(r"leaf: (\w+) .*requires_grad: (\w+) .*grad_fn: (\w+)", line) for line in lines[:4]] == [
        [("True", "True", "none")],
        [("True", "False", "none")],
        [("False", "True", "MulBackward0")],
        [("False", "True", "MulBackward0")],
    ]


def test_the_tree_shows_the_shared_product_twice_and_backward_runs_it_once():
    said("the branch of `y` is printed twice", "One node, and an arrow marked ×2", "Backward ran it **once**")
    assert printed("walk(loss.grad_fn)").count("MulBackward0") == 3
    shown = printed("ran = [event.op for event")
    assert "backward ran: MulBackward0, MulBackward0, AccumulateGrad\n" in shown
    assert "2 operations, 1 leaf, 3 edges" in shown and "from [2], [2]" in shown
    # the gradients of y are added before its node runs
    w, x = torch.tensor(3.0, requires_grad=True), torch.tensor(2.0)
    with record() as run:
        y = w * x
        (y * y).backward()
    order = [e.op for e in run.recording.events if e.phase == "backward" and e.kind in ("run", "op")]
    assert order.index("aten.add") < len(order) - 1 - order[::-1].index("MulBackward0")


def test_torchviz_draws_the_same_products_and_one_more_where_it_is_computed_twice():
    from torchviz import make_dot

    said("draws one box more", "there are two nodes where there was one")
    assert printed("picture(make_dot").count("MulBackward0: operation") == 2
    w, x = torch.tensor(3.0, requires_grad=True), torch.tensor(2.0)
    y = w * x
    once, twice = make_dot(y * y, params={"w": w}), make_dot((w * x) * (w * x), params={"w": w})
    assert twice.source.count("[label=") == once.source.count("[label=") + 1


def test_two_turns_give_27_and_take_the_branch_three_give_81():
    said("with two turns the result is 27", "with three it is 81")
    assert (3.0 * 3**2, 3.0 * 3**3) == (27, 81)
    shown = printed("grow(w, 2)), operations(grow(w, 3))")
    assert "2 turns: {'NegBackward0': 1, 'MulBackward0': 2" in shown and "3 turns: {'MulBackward0': 3" in shown
    assert "differs in more than that" in shown


def test_the_second_print_is_three_times_the_first():
    said("Not twice: three times")
    assert "Measured: 3×" in printed("first = w.grad.clone()")


def test_the_second_gradient_is_added_to_the_first():
    said("The first gradient *becomes* `w.grad`; the second is *added* to what is there")
    shown = printed("    (w @ x * 2).sum().backward()\n\nrun")
    arrivals = re.findall(r"A gradient (?:arrives|has arrived) at w: (.*?) Still", shown)
    assert len(arrivals) == 2 and "becomes w.grad" in arrivals[0]
    assert "added" in arrivals[1] or "w.grad now holds the sum" in arrivals[1]


def test_quoted_errors_are_what_torch_raises():
    said("*Trying to backward through the graph a second time*", "*tensors after they have already been freed*")
    x = torch.ones(3, requires_grad=True)
    result = (x * x).sum()
    result.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time") as caught:
        result.backward()
    assert "tensors after they have already been freed" in str(caught.value)
    said("*A leaf Variable that requires grad is being used in an in-place operation*")
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        x.add_(1)
    said("*is at version 1; expected version 0*")
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="is at version 1; expected version 0"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (x**2).backward()


def test_zero_grad_fills_only_when_told_to():
    said("`zero_grad(set_to_none=False)` fills")
    w = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    w.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert w.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert w.grad is None


def test_forgetting_in_numbers():
    said("after 20 steps the loss is lower than with clearing after 200")
    shown = printed('title="Regression')
    assert "it falls faster" in shown and "it swings and does not settle" in shown


def test_no_friction():
    """Without clearing, the sum over all steps of kinetic and potential energy hardly changes: nothing damps it."""
    said("like a ball without friction", "After 200 steps it still swings as high as at the beginning")
    swings = printed('title="Regression').split("not cleared:")[1]
    first, last = re.search(r"first ([\d.]+), last ([\d.]+)", swings).groups()
    assert float(last) > 0.9 * float(first)
    namespace = {"torch": torch}
    for start in ("def train(", "generator = torch.Generator()"):
        exec(next(cell.source for cell in CODE if start in cell.source), namespace)
    losses = namespace["train"](namespace["regression"], clear=False, steps=2000)
    assert max(losses[-200:]) > 0.9 * max(losses[:200])


def test_the_dead_unit():
    said("And -0.75 at `w = 0.5`", "At `w = 2` all is well", "the answer is 0, and the loss is 1")
    assert re.findall(r"w = +([-.\d]+):  loss ([.\d]+)", printed("def network(w)")) == [
        ("-2.0", "1.0000"),
        ("0.5", "0.5625"),
        ("2.0", "0.0000"),
    ]
    shown = printed("gradients, slopes, small =")
    assert "loss 1.0000,  gradient  0.0000" in shown and "gradient -0.7500,  measured slope -0.7500" in shown


def test_a_convolution_whose_weight_is_frozen_keeps_its_input_all_the_same():
    said("a convolution whose weight is frozen keeps its input all the same")
    x = torch.rand(1, 2, 8, 8, requires_grad=True)
    frozen = torch.rand(3, 2, 3, 3)
    with record() as run:
        out = torch.nn.functional.conv2d(x * 1, frozen)
    assert out.requires_grad
    kept = {row.saved.argument: row.why for row in run.kept.rows}
    assert kept["input"] == "kept all the same, though frozen wants no gradient"
    assert kept["weight"].startswith("needed for the gradient of")


def test_what_twenty_operations_keep():
    rows = re.findall(r"^(.{12}) +([\d.]+) ×  (.+)$", printed("for name, operation in asked.items()"), re.M)
    kept = {name.strip(): (float(times), what) for name, times, what in rows}
    assert len(kept) == 20
    by_kind = {}
    for name, (_, what) in kept.items():
        by_kind.setdefault(what, set()).add(name)
    assert by_kind == {
        "nothing": {"x + y", "x * 2", "x / 2", "sum", "mean", "cat"},
        "output": {"exp", "sqrt", "relu", "sigmoid", "tanh", "softmax"},
        "input": {"x * y", "x @ y", "x ** 2", "log", "gelu"},
        "made for it": {"max of rows", "dropout"},
        "input, made for it": {"layer_norm"},
    }
    assert kept["x * y"][0] == kept["x @ y"][0] == 2 and kept["dropout"][0] == 1


def test_rows_keep_64_indices_and_layer_norm_two_numbers_a_row():
    said("`max` of each row keeps 64 indices of 8 bytes", "the mean, and one over the standard deviation")
    x = torch.rand(64, 64, requires_grad=True)
    with record() as run:
        out = x.max(-1).values
    assert [row.saved.nbytes for row in run.kept.rows] == [64 * 8] and out.shape == (64,)
    normed = torch.nn.functional.layer_norm(x, (64,))
    mean, scale = normed.grad_fn._saved_result1, normed.grad_fn._saved_result2
    assert mean.shape == scale.shape == (64, 1)
    assert torch.allclose(mean, x.mean(-1, keepdim=True), atol=1e-6)
    assert torch.allclose(scale, (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt(), atol=1e-4)


def test_the_number_that_no_hook_sees():
    shown = printed("y.grad_fn._saved_other")
    assert re.search(r"hook saw: +0\n", shown) and "tensor(2)" in shown


def test_sigmoid_by_hand_keeps_two():
    said("Two against one, for the same function")
    shown = printed("as by_hand:")
    assert "Measured: 2" in shown and "x.sigmoid() keeps 1\n" in shown


def test_backward_gives_back_as_it_walks():
    said(
        "the pink band falls in steps, one for each node",
        "the first two hills are equally high",
        "its peak stands near its beginning",
    )
    shown = printed("left = [len(run.kept_at(moment).rows)")
    assert "[3, 2, 1, 0]" in shown and "Peak: 81,928 B, at event 8" in shown
    tops = [re.search(rf"^ +{p} .* Live: ([\d,]+) B\.$", shown, re.M)[1] for p in (8, 11, 14)]
    assert tops == ["81,928", "81,928", "65,544"]
    x = torch.rand(64, 64, requires_grad=True)
    with record() as run:
        x.exp().exp().exp().sum().backward()
    runs = [event.index for event in run.recording.events if event.kind == "run"]
    assert run.memory.peak_moment < runs[1]  # before the first exp has run, of three


def test_in_place_saves_one_tensor_for_a_moment():
    said("What is *kept* is the same, to the byte", "saved one tensor for a moment, at the peak")
    shown = printed("with record() as in_place:")
    found = re.findall(r"kept ([\d,]+) B, peak ([\d,]+) B", shown)
    (kept, peak), (kept_, peak_) = [[int(n.replace(",", "")) for n in row] for row in found]
    assert kept == kept_ and peak - peak_ == 64 * 64 * 4


def test_detach_shares_the_version_counter_and_data_has_its_own():
    said("`detach()` shares the memory *and the version counter*")
    said("`.data` shares the memory with a counter of its own")
    y = torch.rand(3, requires_grad=True).exp()
    y.detach().zero_()
    assert y._version == 1
    y.data.zero_()
    assert y._version == 1 and y.data.data_ptr() == y.detach().data_ptr() == y.data_ptr()


def test_detach_removes_nothing():
    shown = printed('"detach, with h still there": named')
    assert re.findall(r"kept afterwards: +([\d,]+) B,  peak: ([\d,]+) B", shown) == [
        ("0", "49,152"),
        ("0", "49,152"),
        ("32,768", "49,152"),
    ]


def test_the_autograd_has_five_cells_and_under_sixty_lines():
    said("in under sixty lines", "fifty-odd lines, in five cells")
    lines = [line for source in OWN for line in source.splitlines() if line.strip()]
    assert len(OWN) == 5 and 50 < len(lines) < 60


def test_a_recursion_ends_at_a_thousand_and_the_loop_does_not():
    said("a recursion would end at Python's limit, at about a thousand operations")
    namespace = {"torch": torch}
    for source in OWN:
        exec(source, namespace)
    leaf = namespace["Value"](torch.tensor(1.0))
    value = leaf
    for _ in range(1500):
        value = value + leaf
    namespace["Value"].backward = namespace["ours"]

    def walk(node):
        for edge in node.edges:
            walk(edge)

    with pytest.raises(RecursionError):
        walk(value.node)
    value.backward()
    assert leaf.grad == 1501


def test_seven_bugs_seven_culprits_and_one_of_another_kind():
    said("Seven bugs, and seven times the right culprit is named", "One bug of another kind")
    culprits = re.findall(r"gradient of `(.+?)` for `a` is exactly 2 times", printed("def broken("))
    assert culprits == ["a + b", "a * b", "a @ b", "a.exp()", "a.tanh()", "a.relu()", "a.sum()"]
    assert "right" not in printed("def overwrites(").splitlines()[0]


def test_two_hundred_graphs_agree():
    said("So ask for two hundred", "Every gradient of every leaf must agree to 1e-12 of its largest entry")
    (cell,) = [cell for cell in CODE if cell.source == 'check("own_autograd", Value)']
    shown = cell.outputs[0].data["text/plain"]
    assert "right" in shown and "200 random graphs" in shown and "to 1e-12 of its largest entry" in shown


def test_pytorch_has_several_hundred_formulas_more():
    said("Several hundred more formulas")
    assert len([name for name in dir(torch._C._functions) if "Backward" in name]) > 300


def test_it_asks_for_a_gpu_on_colab():
    assert NOTEBOOK.metadata["accelerator"] == "GPU"
