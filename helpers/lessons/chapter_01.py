"""Chapter 01's exercises: the learner's own autograd, two operators for it, the bytes a function keeps, a bug hunt."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from .check import Exercise, Mistake, NotAttempted, run
from .own_autograd import (
    ALL,
    NODE_MISTAKES,
    Trial,
    compare,
    describe,
    differs,
    is_blank,
    kind,
    plural,
    refuse_gradients,
    run_backward,
    shape,
    try_alone,
)

# ---------------------------------------------------------------------------------------------------- own_autograd


def own_autograd(Value: Any) -> str:
    found = compare(Value)
    listed = ", ".join(f"{count:,} `{name}`" for name, count in found.counts.items())
    every = "in each" if found.shared == found.graphs else f"in {found.shared:,} of them"
    return (
        f"{found.graphs:,} random graphs with {found.operations:,} operations in all; {every} a node is used more than "
        f"once. Every gradient agrees with PyTorch's to 1e-12 of its largest entry (or of 1).\n"
        f"Operations: {listed}. Two backward passes add up, and a node that has run lets go of what it saved."
        + ("" if found.deep else SHALLOW)
    )


SHALLOW = (
    "\nOne thing to know: your walk calls itself, so a graph with more operations in a row than Python lets calls nest "
    "ends in a RecursionError. A loop over a list of nodes still to visit has no such end."
)


OWN_AUTOGRAD = {
    **NODE_MISTAKES,
    "incomplete": "A fresh `Value` has no `{name}`. Run the cells that build `Node` and `Value` again, from the top.",
    "no_backward": "`Value` has no `backward` yet. Write the function, and then, outside of it, `Value.backward = "
    "backward`.",
    "nothing_run": "`backward` ended without an error, but for {code} it ran no node's formula, so no gradient got "
    "anywhere. A node is run by calling `node.formula` with the gradient that arrived there, and with what it saved.",
    "no_seed": "In {code} the walk begins with {node}, and nothing has arrived there: nobody uses the loss, so nobody "
    "sends it a gradient. You have to put the first one in. What is the gradient of a thing with respect to itself?",
    "seed": "In {code} the walk begins with {node}, and it is given {got}. What is the gradient of the loss with "
    "respect to itself? It is a tensor with the shape and dtype of `self.data`.",
    "start_missing": "In {code} {node} is never run, and it is the one to begin with: its formula sends the first "
    "parts on their way. Is `self.node` among the nodes that you found?",
    "no_saved": "In {code} the formula in {node} is called with {given}. It takes `g`, and then each tensor that "
    "its node saved as an argument of its own. A star takes a tuple apart: `*node.saved`.",
    "let_go_too_early": "In {code} what {node} saved is gone before its formula is run, and the formula needs "
    "it. First run it, then let go.",
    "visited_twice": "In {code} {node} comes up twice, since more than one edge leads there. A node has one "
    "turn, when all its parts have arrived and are added up. Going down every path doubles the work at each such "
    "node, and a second turn finds nothing left. How can the search tell which nodes it has found already?",
    "adds_in_place": "In {code} one part is changed after it was handed on: `+=` writes into the tensor itself. It may "
    "be on its way to another node as well (an addition sends one tensor to both sides), or be one number shown many "
    "times (`expand`). Make a new tensor: `x = x + part`.",
    "returned": "For {code} your `backward` hands back {got}, but `a.grad` is still None. Nobody reads what `backward` "
    "gives. The leaves have nodes too, and it is their formula that writes `.grad`: run those as well.",
    "leaf_skipped": "For {code} the operations are run, but not the node of the leaf `a`, so `a.grad` is still None. A "
    "leaf's node has no edges, but it has a formula: `accumulate`, which writes `.grad`.",
    "chain": "Each operator alone is right, but not the walk over a plain chain, {code}: {what}. "
    "Follow `grads` through `backward` for these three nodes.",
    "shared": "A plain chain is right, but in {code} {what}. Two parts arrive at one node there, and "
    "only their sum is the gradient. What does `backward` do with the second one?",
    "order": "In {code} {what}. A node may run only when the parts of all its users have arrived. Depth first or "
    "breadth first, the search does not see to that. Which number does?",
    "misrouted": "In {code} {what}, though each node has its turn in time. Compare what arrives at a node with what "
    "the formulas before it gave: the parts come in the order of `node.edges`.",
    "unused": "With a second leaf that the loss does not use, {what}. What no path reaches stays as it was made.",
    "overwritten": "After two passes the gradient is that of the second alone: the first was overwritten. In PyTorch a "
    "leaf adds what arrives to its `grad`. Look at `accumulate`.",
    "passes": "One pass is right; after two, {what}. Do two leaves share one tensor as their `grad`, and one of them "
    "changes it in place?",
    "left_on_node": "One pass is right; after two, {what}. The first pass left {left} on the leaf's node, and the next "
    "one found it there. What is on its way belongs to one call of `backward`: keep it in a dictionary of that call.",
    "leaf_closed": "One pass is right; a second one, over a fresh graph from the same leaves, raised {error}. The "
    "first pass closed the leaves' nodes too: their `saved` is no tuple any more. A leaf lives on and is used again, "
    "and it had nothing to let go of.",
    "second_pass_raised": "One pass is right; a second one, over a fresh graph from the same leaves, raised {error}. "
    "Only the leaves are there from before. What did the first pass change in their nodes?",
    "never_released": "A second backward over `a.exp().sum()` goes through, since its nodes still hold what they "
    "saved. All gradients are right; but the memory would stay taken as long as the loss lives. When may a node let "
    "go?",
    "released_too_much": "A second backward over `(a + b).sum()` raised {error}. No node in it saved anything, so "
    "nothing was gone: PyTorch lets it through, and the gradient doubles.",
    "random": "Alone, in a chain and in small graphs all is right, but {failed} of {graphs} random graphs are not. In "
    "graph {number}, the shortest of them, {what}. Does something survive from one graph to the next?",
}

# ------------------------------------------------------------------------------------------------------ own_sigmoid


def _trial(Value: Any, name: str) -> Trial:
    if not isinstance(Value, type):
        raise Mistake("not_a_class", got=kind(Value))
    return try_alone(Value, ALL[name])


def _refuse_hidden(trial: Trial) -> None:
    """Tensors that the formula holds by itself are kept too, and no backward releases them. The gradient is right."""
    formula = trial.out.node.formula
    cells = [cell for cell in getattr(formula, "__closure__", None) or () if _filled(cell)]
    held = [cell.cell_contents for cell in cells] + list(getattr(formula, "__defaults__", None) or ())
    if not _kept(trial) or any(isinstance(thing, (torch.Tensor, type(trial.out))) for thing in held):
        raise Mistake("hidden")


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _kept(trial: Trial) -> list[torch.Tensor]:
    """What was saved, each storage once."""
    found = {t.untyped_storage().data_ptr(): t for t in trial.saved if isinstance(t, torch.Tensor)}
    return list(found.values())


def _among(tensor: torch.Tensor, *values: Any) -> bool:
    """Is it the very memory of one of these Values, not a copy?"""
    return tensor.untyped_storage().data_ptr() in [value.data.untyped_storage().data_ptr() for value in values]


def _refuse_walk(Value: Any, program: Callable, data: list[torch.Tensor]) -> None:
    """The formula is right; is it still, when the learner's own backward runs it? A blank one cannot tell."""
    if is_blank(getattr(Value, "backward", None)):
        return
    leaves = [Value(tensor.clone()) for tensor in data]
    run_backward(run(program, *leaves))
    wanted = [tensor.clone().requires_grad_() for tensor in data]
    program(*wanted).backward()
    if any(leaf.grad is None or describe(leaf.grad, want.grad) for leaf, want in zip(leaves, wanted, strict=True)):
        raise Mistake("walk")


def own_sigmoid(Value: Any) -> str:
    trial = _trial(Value, "sigmoid")
    part, out, g = trial.part[0], trial.result, trial.g
    if trial.wrong(0):
        known = {
            "tanh": g * (1 - out * out),
            "no_g": out * (1 - out),
            "no_factor": g * out,
            "no_out": g * (1 - out),
            "sign": -g * out * (1 - out),
            "input": g * trial.inputs[0] * (1 - trial.inputs[0]),
            "twice": g * torch.sigmoid(out) * (1 - torch.sigmoid(out)),
        }
        for key, wrong in known.items():
            if isinstance(part, torch.Tensor) and not differs(part.double(), wrong):
                raise Mistake(key)
        refuse_gradients(trial)
    _refuse_hidden(trial)
    kept, x = _kept(trial), trial.inputs[0]
    if len(kept) > 1:
        raise Mistake("keeps_more", count=len(kept))
    _refuse_walk(Value, lambda a: (a.sigmoid() * a).sum(), [x])
    if _among(kept[0], trial.out):
        return (
            "The gradient is within 1e-12 of PyTorch's, and only the output is kept. PyTorch does the same: its "
            "`SigmoidBackward0` has `_saved_result`."
        )
    if _among(kept[0], *trial.values):
        return (
            "The gradient is within 1e-12 of PyTorch's. You keep the input where PyTorch keeps the output: as many "
            "bytes, but backward has to compute the sigmoid a second time."
        )
    return (
        "The gradient is within 1e-12 of PyTorch's. You keep a tensor made for it. PyTorch keeps the output, which is "
        "there anyway and which the next operation may keep too: then both need only one tensor."
    )


HIDDEN = (
    "The gradient is right, but the formula carries a tensor with it from the lines around (or as a default) instead "
    "of getting it from `saved`. No backward can release that one. Everything it needs comes in after `g`."
)
WALK = (
    "The formula alone is right; through `backward` the gradient is not. So look at the autograd itself: what does "
    '`check("own_autograd", Value)` say?'
)

OWN_SIGMOID = {
    **NODE_MISTAKES,
    "tanh": "That is the derivative of tanh, `1 - out²`. The sigmoid's has its own; it too can be written with `out` "
    "alone. Where is the sigmoid steepest, and how steep is it there?",
    "no_g": "The local derivative is right. But `g`, which arrives from above, is not in it: by the chain rule the two "
    "are multiplied.",
    "no_factor": "Half of it is there: `out` is right, a second factor is missing. Your gradient is largest where the "
    "sigmoid is near 1, and there its curve is flat.",
    "no_out": "Half of it is there: `1 - out` is right, a second factor is missing. Your gradient is largest where the "
    "sigmoid is near 0, and there its curve is flat.",
    "sign": "All numbers are right, but for the sign: the sigmoid rises everywhere, so its derivative is positive.",
    "input": "The formula is right for the output, but was given the input: what it gets after `g` is what you saved.",
    "twice": "The sigmoid is taken a second time: what was saved is its output already.",
    "keeps_more": "The gradient is right, but the node keeps {count} tensors, and one is enough. The derivative can be "
    "written with `out` alone.",
    "hidden": HIDDEN,
    "walk": WALK,
}

# ---------------------------------------------------------------------------------------------------------- own_div


def own_div(Value: Any) -> str:
    trial = _trial(Value, "/")
    (x, y), g = trial.inputs, trial.g
    first, second = trial.part
    if first is None or second is None:
        raise Mistake("none", input="a" if first is None else "b")
    if trial.deaf[0] or trial.deaf[1]:
        raise Mistake("no_g", input=" and ".join(f"`{n}`" for n, deaf in zip("ab", trial.deaf, strict=True) if deaf))
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        if not differs(first, trial.want[1]) and not differs(second, trial.want[0]):
            raise Mistake("swapped")
        known = {
            "sign": (1, -trial.want[1]),
            "square": (1, -g * x / y),
            "sign_and_square": (1, g * x / y),
            "like_mul": (0, g * y),
            "no_a": (1, -g / (y * y)),
            "only_g": (0, g),
        }
        for key, (i, wrong) in known.items():
            if not differs(trial.part[i], wrong):
                raise Mistake(key)
    refuse_gradients(trial)
    _refuse_hidden(trial)
    kept = _kept(trial)
    if len(kept) > 2:
        raise Mistake("keeps_more", count=len(kept))
    _refuse_walk(Value, lambda a, b: (a / b * b).sum(), [x, y])
    if all(_among(t, *trial.values) for t in kept):
        return (
            "Both gradients are within 1e-12 of PyTorch's. You keep `a` and `b`, and so does PyTorch: `DivBackward0` "
            "has `_saved_self` and `_saved_other`."
        )
    if all(_among(t, trial.out, trial.values[1]) for t in kept):
        return (
            "Both gradients are within 1e-12 of PyTorch's. You keep the result and `b`; PyTorch keeps `a` and `b` "
            "(`_saved_self`, `_saved_other`). Yours lets `a` go, which pays where nobody else keeps it."
        )
    return (
        f"Both gradients are within 1e-12 of PyTorch's. You keep {plural(len(kept), 'tensor')}, not all of which are "
        "there anyway. PyTorch keeps `a` and `b` themselves (`_saved_self`, `_saved_other`) and makes the rest in "
        "backward."
    )


OWN_DIV = {
    **NODE_MISTAKES,
    "none": "The gradient for `{input}` is None. Both inputs need theirs: hold the other one fixed and derive `a / b`.",
    "no_g": "The gradient for {input} does not depend on `g`, on what arrives from above. By the chain rule each local "
    "derivative is multiplied with it.",
    "swapped": "Both gradients are there, but in the wrong order: the first is `b`'s, the second `a`'s. They go to the "
    "inputs in the order of `(a, b)`.",
    "sign": "The gradient for `b` has the wrong sign. Make `b` a bit larger: does `a / b` grow, for positive numbers?",
    "square": "The gradient for `b` lacks a factor. Write `a / b` as a times a power of b, and derive that power.",
    "sign_and_square": "The gradient for `b` has the wrong sign and lacks a factor. Write `a / b` as a times a power "
    "of b, and derive that power.",
    "like_mul": "The gradient for `a` is multiplication's. What is `a / b` multiplied with, if you call it a product?",
    "no_a": "The gradient for `b` is right only where `a` is 1: `a` was a factor in front, and it stays one.",
    "only_g": "The gradient for `a` is `g` itself, as if `b` were 1. By how much does `a / b` change, if `a` does by "
    "1?",
    "keeps_more": "Both gradients are right, but the node keeps {count} tensors. One of them can be computed from the "
    "other two: which one would you let go?",
    "hidden": HIDDEN,
    "walk": WALK,
}

# ------------------------------------------------------------------------------------------------------- kept_bytes


@dataclass(frozen=True, slots=True)
class Case:
    """A function whose kept bytes are asked. code, note: as a learner reads it. inputs: makes them anew."""

    code: str
    function: Callable[..., torch.Tensor]
    inputs: Callable[[], list[torch.Tensor]]
    note: str = ""

    @property
    def shown(self) -> str:
        return f"`{self.code}`{self.note}"


def _leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return torch.linspace(-1, 2, count, dtype=dtype).reshape(shape).requires_grad_()


def _part_of(x: torch.Tensor) -> torch.Tensor:
    rows = (x + 1)[:2]
    return rows * rows


def _squared(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return y * y


def _made(*shape: int) -> torch.Tensor:
    """No leaf: an operation made it, outside of what is counted."""
    return _leaf(*shape) * 2


def _masked(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, 2 * x)


#: From the plain to the special, so that the first that fails says most.
CASES = (
    Case("x.exp().sum()", lambda x: x.exp().sum(), lambda: [_leaf(6, 8)]),
    # input, result and what is kept differ in size
    Case("x[:2].exp().exp()", lambda x: x[:2].exp().exp(), lambda: [_leaf(6, 8)]),
    Case("x + 1", lambda x: x + 1, lambda: [_leaf(6, 8)]),
    Case("x * x", lambda x: x * x, lambda: [_leaf(6, 8)]),
    Case("y * y", _squared, lambda: [_leaf(6, 8)], " with `y = x.exp()`"),
    Case("rows * rows", _part_of, lambda: [_leaf(6, 8)], " with `rows = (x + 1)[:2]`"),
    Case("x.t() @ x", lambda x: x.t() @ x, lambda: [_leaf(6, 8)]),
    Case("torch.where(x > 0, x, 2 * x)", _masked, lambda: [_leaf(6, 8)]),
    Case("x.max(dim=1).values", lambda x: x.max(dim=1).values, lambda: [_leaf(6, 8)]),
    Case("x.exp()", lambda x: x.exp(), lambda: [_leaf(6, 8, dtype=torch.float64)], " in float64"),
    Case("y * y", lambda y: y * y, lambda: [_made(6, 8)], " with an input `y` that is no leaf"),
    Case(
        "x * y",
        lambda x, y: x * y,
        lambda: [_leaf(6, 8), _leaf(6, 8).detach()],
        " with data `y`, which wants no gradient,",
    ),
    Case(
        "(x @ w).tanh()",
        lambda x, w: (x @ w).tanh(),
        lambda: [_leaf(6, 8).detach(), _leaf(8, 4)],
        " with data `x`, which wants no gradient,",
    ),
)


def saved_by(case: Case) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """What a case's graph saves (each tensor as often as it is saved), its inputs, its result."""
    inputs, saved = case.inputs(), []

    def pack(tensor):
        saved.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = case.function(*inputs)
    return saved, inputs, result


def _storages(tensors: list[torch.Tensor]) -> dict[int, int]:
    """Storage → bytes. All tensors are alive here, so no two storages have one address."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _wants(tensor: torch.Tensor) -> bool:
    """A leaf that wants a gradient: whoever trains it holds it."""
    return tensor.is_leaf and tensor.requires_grad


def true_bytes(case: Case) -> int:
    """The bytes that a case keeps for backward, as the recorder counts: each storage once and whole, no such leaves."""
    saved, inputs, _ = saved_by(case)
    given = _storages([tensor for tensor in inputs if _wants(tensor)])
    return sum(size for at, size in _storages(saved).items() if at not in given)


def mistaken_bytes(case: Case) -> dict[str, int]:
    """Mistake → the number that it leads to in this case."""
    saved, inputs, result = saved_by(case)
    given = _storages([tensor for tensor in inputs if _wants(tensor)])
    leaves = _storages([tensor for tensor in inputs if tensor.is_leaf])
    all_given = _storages(inputs)
    fresh = [tensor for tensor in saved if tensor.untyped_storage().data_ptr() not in given]
    once = {tensor.untyped_storage().data_ptr(): tensor for tensor in fresh}.values()
    own = [tensor for tensor in saved if not any(tensor is x for x in inputs if _wants(x))]
    flagged = [tensor for tensor in saved if not tensor.is_leaf]
    return {
        "elements": sum(tensor.untyped_storage().nbytes() // tensor.element_size() for tensor in once),
        "tensors": len(once),
        "four_bytes": sum(4 * tensor.untyped_storage().nbytes() // tensor.element_size() for tensor in once),
        "view": sum(tensor.nbytes for tensor in once),
        "twice": sum(tensor.untyped_storage().nbytes() for tensor in fresh),
        "view_of_input": sum(_storages(own).values()),
        "inputs_counted": sum(_storages(saved).values()),
        "data_dropped": sum(size for at, size in _storages(saved).items() if at not in leaves),
        "inputs_dropped": sum(size for at, size in _storages(saved).items() if at not in all_given),
        "sums_inputs": sum(tensor.nbytes for tensor in inputs),
        "leaf_flag": sum(_storages(flagged).values()),
        "only_result": result.nbytes,
        "twice_view": sum(tensor.nbytes for tensor in fresh),
        "all_of_it": sum(tensor.nbytes for tensor in saved),
        "all_twice": sum(tensor.untyped_storage().nbytes() for tensor in saved),
    }


#: What the same slip is called, whichever way the number came about.
SAME_MISTAKE = {"twice_view": "twice", "all_of_it": "inputs_counted", "all_twice": "inputs_counted"}


def kept_bytes(answer: Any) -> str:
    if not callable(answer) or isinstance(answer, type):
        raise Mistake("not_a_function", got=kind(answer))
    so_far = 0
    for case in CASES:
        _examine_case(answer, case, so_far)
        so_far += true_bytes(case)
    return (
        f"Right for all {len(CASES)} functions, to the byte what `record` says in `run.kept.nbytes`: each storage once "
        "and in whole; data and tensors that an operation made are counted, if the graph keeps them; leaves that want "
        "a gradient are not."
    )


def _examine_case(answer: Callable, case: Case, so_far: int) -> None:
    """so_far: the bytes that the cases before it keep."""
    inputs, results = case.inputs(), []
    before = [tensor.detach().clone() for tensor in inputs]

    def function(*arguments):
        results.append(case.function(*arguments))
        return results[-1]

    probe = Probe()
    try:
        found = run(answer, function, *inputs)
    finally:
        left_on = probe.close()
    expected = true_bytes(case)
    number = _number(found)
    if number is None:
        raise Mistake("not_a_number", got=kind(found), code=case.shown)
    if any(differs(x.detach().double(), b.double()) for x, b in zip(inputs, before, strict=True)):
        raise Mistake("changed_inputs", code=case.shown)
    if not results:
        raise Mistake("not_called", code=case.shown)
    if any(x.is_leaf and x.grad is not None for x in inputs):
        raise Mistake("left_grad", code=case.shown)
    if number != expected:
        facts = {"code": case.shown, "got": f"{number:,.10g}", "expected": f"{expected:,}"}
        for key, wrong in mistaken_bytes(case).items():
            if number == wrong:
                raise Mistake(SAME_MISTAKE.get(key, key), **facts)
        if so_far and number == so_far + expected:
            raise Mistake("adds_up", **facts)
        raise Mistake("other", **facts)
    if left_on:
        raise Mistake("hooks_left_on", code=case.shown)
    if not isinstance(found, int) or isinstance(found, bool):
        raise Mistake("not_an_int", got=kind(found), code=case.shown, number=f"{expected:,}")
    _refuse_broken_graph(results[-1], case)


def _number(found: Any) -> float | None:
    if isinstance(found, torch.Tensor) and found.numel() == 1:
        found = found.item()
    try:
        return None if isinstance(found, (str, bytes)) else float(found)
    except Exception:
        return None


def _refuse_broken_graph(result: torch.Tensor, case: Case) -> None:
    """What pack returned is what backward will be given."""
    try:
        result.sum().backward()
    except Exception as error:
        said = (str(error).splitlines() or [""])[0]
        if "NoneType" in said:
            raise Mistake("pack_gives_nothing", code=case.shown, said=said) from None
        raise Mistake("graph_spoilt", code=case.shown, said=f"{type(error).__name__}: {said}") from None


class Probe:
    """Tells whether code has left saved-tensor hooks on, and takes them off.

    Where hooks are on already, ours go on top of them: if not ours are called afterwards, others lie above. Where none
    are, none of ours go on either: they would hide from an old torch's recorder what it is asked for.
    """

    def __init__(self) -> None:
        self.called = False
        self.hooks = saved_tensors_hooks(self._pack, lambda tensor: tensor)
        self.among_others = _hooked()
        if self.among_others:
            self.hooks.__enter__()

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.called = True
        return tensor

    def _as_before(self) -> bool:
        self.called = False
        hooked = _hooked()
        return self.called if self.among_others else not hooked

    def close(self) -> int:
        """How many hooks were left on. Afterwards none of them is, nor are ours."""
        left = 0
        while not self._as_before():
            try:
                self.hooks.__exit__()  # takes off the topmost, whose ever it is
            except RuntimeError:  # the stack is empty: more were taken off than put on
                return left
            left += 1
        if self.among_others:
            self.hooks.__exit__()
        return left


def _hooked() -> bool:
    """Are saved-tensor hooks on?"""
    try:
        node = torch.ones(1, requires_grad=True).exp().grad_fn
        node._raw_saved_result.register_hooks(lambda tensor: tensor, lambda tensor: tensor)
    except Exception:  # a tensor that has hooks takes no others; or the hooks that are on raise themselves
        return True
    return False


COUNTED = "For {code} you count {got} bytes, and {expected} are kept. "

KEPT_BYTES = {
    "not_a_function": "`check` wants the function itself, `kept_bytes` without brackets; it got {got}. So: "
    '`check("kept_bytes", kept_bytes)`.',
    "not_called": "For {code} your function gave a number without calling `function(*inputs)`. Nothing has been kept "
    "before the forward ran.",
    "not_a_number": "For {code} your function gave {got}. What is wanted is a whole number of bytes.",
    "not_an_int": "The number is right, {number} for {code}, but it is {got}. Bytes are counted in whole numbers: "
    "hand back an `int`.",
    "elements": COUNTED + "That many elements there are; how many bytes does each of them take?",
    "tensors": COUNTED + "That is the number of tensors: add up their bytes.",
    "four_bytes": COUNTED + "Not each element takes 4 bytes: a float64 takes 8, a bool 1. The tensor knows.",
    "view": COUNTED + "What is saved there is a view of a larger "
    "tensor, and a view keeps all the memory that it looks into. A tensor's storage knows its own size.",
    "twice": COUNTED + "The same memory was saved more than once, "
    "and is there only once. How can you tell that two tensors share their memory?",
    "view_of_input": COUNTED + "What is saved is not the input "
    "object itself but looks into the input's memory. Compare storages, not tensors.",
    "inputs_counted": COUNTED + "The rest is memory of an input that is a leaf and wants a gradient. It is alive "
    "anyway, whether a graph needs it or not: leave out what lies in it.",
    "inputs_dropped": COUNTED + "What is missing is an input, and not one that is alive anyway: an operation made it, "
    "so when its name goes, this graph alone keeps it. Which inputs did you leave out, and which are leaves?",
    "data_dropped": COUNTED + "What is missing is data: an input that is a leaf, but wants no gradient. The next batch "
    "will take its name, and then this graph alone keeps it. Of which leaves is that not so?",
    "sums_inputs": COUNTED + "{got} are the bytes of the inputs. What the graph keeps is handed to the hook `pack` "
    "while the function runs.",
    "leaf_flag": COUNTED + "`is_leaf` does not tell who made a "
    "tensor: a mask or an index needs no gradient and so counts as a leaf, though the function made it, and a view "
    "of an input is none. Ask it of the inputs only.",
    "only_result": COUNTED + "{got} are the bytes of the result. "
    "What the graph keeps is handed to the hook `pack` while the function runs.",
    "adds_up": COUNTED + "Together with what the calls before it kept it makes {got}: does each call begin anew?",
    "other": COUNTED + "Print shape and dtype of each tensor that arrives in `pack`, for this function alone.",
    "changed_inputs": "For {code} the inputs have other numbers after the count than before. Counting should not be "
    "noticed: change nothing in place.",
    "left_grad": "For {code} the inputs have a `.grad` after the count. Counting should not be noticed: the forward "
    "alone tells what is kept.",
    "hooks_left_on": "The number for {code} is right, but afterwards your hooks were still on: all that comes later "
    "would be packed by them too. (They are off now.) `with` takes them off again, even after an error.",
    "pack_gives_nothing": "The number for {code} is right, but the graph cannot be used any more. Backward says: "
    "`{said}`. Backward gets what `pack` hands back; yours hands back nothing.",
    "graph_spoilt": "The number for {code} is right, but the graph cannot be used any more. Backward says: `{said}`. "
    "`unpack` has to give back the very tensor that `pack` was given.",
}

# --------------------------------------------------------------------------------------------------------- bug_data

CAP = 2.0


def _program() -> tuple[torch.Tensor, torch.Tensor]:
    """Fixed numbers, so that the share in the message is the same on each machine; h reaches from 0.1 to 8."""
    x = torch.tensor([[0.5, -1.0, 1.5], [1.0, 0.25, -0.5], [-1.5, 0.75, 1.0], [2.0, 0.5, 0.25]], dtype=torch.float64)
    w = torch.tensor([[0.75, -0.5], [0.25, 1.0], [0.5, 1.25]], dtype=torch.float64)
    return x, w.requires_grad_()


def bug_data(step: Any) -> str:
    if not callable(step) or isinstance(step, type):
        raise Mistake("not_a_function", got=kind(step))
    x, w = _program()
    h = torch.exp(x @ w)
    h.mean().backward()
    wanted_loss, wanted_grad, wanted_shown = h.mean().detach(), w.grad, h.detach().clamp(max=CAP)

    x, w = _program()
    given = run(step, x, w)
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        many = f" of {len(given)}" if isinstance(given, (tuple, list)) else ""
        raise Mistake("not_two", got=kind(given) + many)
    loss, shown = given
    if loss is ... or loss is None:
        raise NotAttempted()
    if not isinstance(loss, torch.Tensor) or loss.shape != wanted_loss.shape:
        of = f" of {shape(loss)}" if isinstance(loss, torch.Tensor) else ""
        raise Mistake("loss_no_scalar", got=kind(loss) + of)
    if not loss.requires_grad:
        raise Mistake("loss_cut")
    if not isinstance(shown, torch.Tensor) or shown.shape != wanted_shown.shape:
        raise Mistake("shown_no_tensor", got=kind(shown))
    first_loss, first_shown = loss.detach().clone(), shown.detach().clone()
    try:
        loss.backward()
    except RuntimeError as error:
        said = str(error).split(":", 1)[0].split(". ")[0].split(" (")[0]
        if "modified by an inplace operation" not in str(error):
            raise Mistake("backward_fails", said=said) from None
        raise Mistake("version_error", said=said) from None
    if w.grad is None:
        raise Mistake("loss_cut")
    if differs(x, _program()[0]) or differs(w.detach(), _program()[1].detach()):
        raise Mistake("changed_inputs")
    _refuse_gradient(first_loss, w.grad, x, wanted_loss, wanted_grad, wanted_shown)
    if _shown_differs(first_shown, wanted_shown):
        raise Mistake("not_capped", largest=f"{first_shown.max().item():.3g}")
    if shown.requires_grad:
        raise Mistake("shown_in_graph")
    if "data" in getattr(inspect.unwrap(step), "__code__", _program.__code__).co_names:
        return (
            "Loss and gradient are as if there were no log. But `.data` is safe here only because `shown` has memory "
            "of its own: had `h` been changed, nobody would have said so. After `detach()` the version counter "
            "notices."
        )
    return (
        "Loss and gradient are as if there were no log; `shown` is capped, has memory of its own and belongs to no "
        "graph. Had you changed it in place after `detach()`, the version counter would have noticed; `.data` hides it."
    )


def _shown_differs(shown: torch.Tensor, wanted: torch.Tensor) -> bool:
    """A log may well be of lower precision."""
    if not shown.is_floating_point():
        return True
    return not torch.allclose(shown.double(), wanted, rtol=0, atol=max(1e-12, 4 * torch.finfo(shown.dtype).eps))


def _refuse_gradient(loss, grad, x, wanted_loss, wanted_grad, capped) -> None:
    if not differs(grad, wanted_grad) and not differs(loss, wanted_loss):
        return
    off = ((grad - wanted_grad).norm() / wanted_grad.norm()).item()
    share = f"{off:.0%}"
    count = capped.numel()
    # exp's backward multiplies with the result it kept, and that is the capped one now
    numbers = {"got": f"{loss.item():.4g}", "expected": f"{wanted_loss.item():.4g}"}
    if not differs(grad, x.T @ capped / count):
        raise (
            Mistake("data_loss", share=share, **numbers) if differs(loss, wanted_loss) else Mistake("data", share=share)
        )
    if not differs(grad, x.T @ (capped * (capped < CAP)) / count):
        raise Mistake("capped_in_graph", share=share)
    if differs(grad, wanted_grad):
        raise Mistake("gradient", share=share)
    raise Mistake("loss", **numbers)


BUG_DATA = {
    "not_a_function": "`check` wants the function itself, `step` without brackets; it got {got}. So: "
    '`check("bug_data", step)`.',
    "not_two": "`step` hands back two things, the loss and what the log shows; this gave {got}.",
    "loss_no_scalar": "The first thing that `step` hands back is the loss, a tensor with one number that backward can "
    "start from; this is {got}.",
    "loss_cut": "The loss is cut off from `w`: no gradient can get there. Only the log should leave the graph; `h` and "
    "the loss stay in it.",
    "shown_no_tensor": "The log wants a tensor of the shape of `h`; `shown` is {got}.",
    "data": "The gradient of `w` is {share} off. No error came, and the loss is right. Which line writes, into whose "
    "memory, and who will still read it?",
    "data_loss": "The gradient of `w` is {share} off, and no error came. Now the loss is off too: {got} instead of "
    "{expected}. Which line writes, into whose memory, and who reads it after that?",
    "version_error": "That is progress: it is no longer silent. Backward now says `{said}`. The memory is still `h`'s, "
    "and it is still changed. What would leave `h` alone?",
    "backward_fails": "`loss.backward()`, called on what `step` hands back, says: `{said}`. `step` only goes forward; "
    "the graph it leaves should be whole.",
    "capped_in_graph": "Now the loss is made of the capped `h`: where it was capped, no gradient gets through, and "
    "`w.grad` is {share} off. Training should not notice the log: cap something that the loss does not use.",
    "gradient": "The gradient of `w` is {share} off from that without the log. Which line changes something that the "
    "loss is made of?",
    "loss": "The gradient is right, but the loss is {got}; without the log it is {expected}.",
    "not_capped": "Loss and gradient are right. But the log is not capped as asked: its largest number is {largest}, "
    "and each should be `min(h, 2)`.",
    "shown_in_graph": "Loss, gradient and log are right. But `shown` still requires a gradient: as long as the log "
    "holds it, it holds the graph too. Take it out of the graph.",
    "changed_inputs": "`step` changed `x` or `w` in place. The next step would start from other numbers.",
}

EXERCISES = {
    "own_autograd": Exercise(
        own_autograd,
        "Start with the search alone: a list of nodes still to visit, with `self.node` in it, and a set of those "
        "found. Each node's `edges` lead on. Print the numbers of the nodes found for `(a * a).sum()`: there are "
        "three.",
        OWN_AUTOGRAD,
    ),
    "own_sigmoid": Exercise(
        own_sigmoid,
        "Start with a function of `g` and `out` that gives a tuple of one, and look at how tanh does it.",
        OWN_SIGMOID,
    ),
    "own_div": Exercise(
        own_div,
        "Start on paper: derive `a / b` once with `b` fixed, once with `a` fixed. Which tensors stand in the two "
        "results? Those go into `saved`, and in the same order, after `g`, into the formula.",
        OWN_DIV,
    ),
    "kept_bytes": Exercise(
        kept_bytes,
        "Start with a list and `torch.autograd.graph.saved_tensors_hooks(pack, unpack)` around the call: let `pack` "
        "append each tensor and hand it back. Then add up.",
        KEPT_BYTES,
    ),
    "bug_data": Exercise(
        bug_data,
        "Run it as it is first, and compare what backward gives for `w` with and without the log. Then change "
        "one line.",
        BUG_DATA,
    ),
}
