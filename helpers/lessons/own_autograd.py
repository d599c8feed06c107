"""A learner's own autograd against PyTorch's: each operator alone, then small graphs on purpose, then random ones.

The same program runs on both: an operator's `apply` works on the learner's Value and on a tensor alike. What a random
graph looks like depends on Python's random numbers only, never on a rounded value, so it is the same on each machine.
"""

from __future__ import annotations

import inspect
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .check import Mistake, NotAttempted, Raised, gave_nothing, run, their_line

#: Largest difference from PyTorch's, relative to the largest entry or 1.
TOLERANCE = 1e-12
#: No value in a random graph is larger, so that its gradients stay comparable.
LIMIT = 100


@dataclass(frozen=True, slots=True)
class Operator:
    """One operation. shown: as a learner writes it. inputs: how many. apply: works on Values and tensors alike.

    reach: bounds of the inputs' absolute values → that of the result, whole numbers.
    """

    name: str
    shown: str
    method: str
    inputs: int
    apply: Callable[..., Any]
    reach: Callable[..., int]


def _exp_reach(a: int) -> int:
    return 3**a if a < 5 else LIMIT + 1


ALL = {
    op.name: op
    for op in (
        Operator("+", "a + b", "__add__", 2, lambda a, b: a + b, lambda a, b: a + b),
        Operator("*", "a * b", "__mul__", 2, lambda a, b: a * b, lambda a, b: a * b),
        Operator("@", "a @ b", "__matmul__", 2, lambda a, b: a @ b, lambda a, b: 3 * a * b),
        Operator("exp", "a.exp()", "exp", 1, lambda a: a.exp(), _exp_reach),
        Operator("tanh", "a.tanh()", "tanh", 1, lambda a: a.tanh(), lambda a: 1),
        Operator("relu", "a.relu()", "relu", 1, lambda a: a.relu(), lambda a: a),
        Operator("sum", "a.sum()", "sum", 1, lambda a: a.sum(), lambda a: 9 * a),
        Operator("sigmoid", "a.sigmoid()", "sigmoid", 1, lambda a: a.sigmoid(), lambda a: 1),
        Operator("-", "a - b", "__sub__", 2, lambda a, b: a - b, lambda a, b: a + b),
        # What divides is at least 1 (see Program), so the result is no larger than what is divided.
        Operator("/", "a / b", "__truediv__", 2, lambda a, b: a / b, lambda a, b: a),
    )
}
#: What the chapter builds; the others take part once a learner has added them.
BASE = ("+", "*", "@", "exp", "tanh", "relu", "sum")
LETTERS = "ab"

#: Messages of mistakes that concern one operator's node.
NODE_MISTAKES = {
    "not_a_class": "`check` wants the class itself here, `Value` without quotes and brackets; it got {got}.",
    "no_method": "`Value` has no `{method}` yet. Write the function, and then, outside of it, `Value.{method} = …`.",
    "no_value": "`{op}` gives {got}, and the chain of nodes ends there. It has to give a `Value` that carries its "
    "`Node`.",
    "no_node": "`{op}` gives a Value that lacks {what}, so the walk backward cannot read it. The cell with `class "
    "Node` says what a node has.",
    "forward": "Forward first: `{op}` is not what PyTorch computes. {what} Try both on one small tensor.",
    "not_callable": "The formula in the node of `{op}` is {got}. It has to be a function; where a tuple of one is "
    "meant, its comma stands inside: `lambda g, out: (… ,)`.",
    "edges": "The node of `{op}` does not lead back to its input{s}. `Node(formula, saved, inputs)` takes as "
    "`inputs` a tuple of the Values themselves: their nodes become its edges.",
    "saved_not_tuple": "What the node of `{op}` saved is {got}. It has to be a tuple of tensors, and one tensor alone "
    "is written `(out,)`: backward unpacks it with `*node.saved`.",
    "saves_values": "`{op}` saves Values. They bring their nodes along, and so everything before them: save the tensor "
    "itself, `.data`.",
    "arguments": "The formula of `{op}` cannot take what it will be given: `g` first, then the {saved} that you save, "
    "in that order. Yours takes {takes}.",
    "argument_order": "The formula of `{op}` would be right if its arguments came in another order. First comes `g`, "
    "and then what you saved, in the order of `saved`.",
    "no_tuple": "The formula of `{op}` gives {got}, and backward expects a tuple: one gradient for each input, even "
    "for a single one. Without it, `zip` would take a tensor apart row by row. A comma is missing: `(… ,)`.",
    "parts": "`{op}` has {inputs}, and its formula gives {parts}. One for each input, in their order.",
    "changes_input": "`{op}` changed its input in place. Others may still need those numbers: make a new tensor.",
    "changes_g": "The formula of `{op}` changes `g` in place. The same `g` may be on its way to another node (an "
    "addition hands one tensor to both sides): make a new tensor.",
    "changes_saved": "The formula of `{op}` changes in place what was saved. That tensor may be another node's result: "
    "make a new one.",
    "backward": "The gradient of `{op}` for `{input}` {what}. {look}",
}


@dataclass(slots=True)
class Trial:
    """One operator run alone. part[i] is the formula's gradient for input i, want[i] PyTorch's, for the same g.

    inputs, result: the right numbers; values, out: the learner's Values.
    """

    operator: Operator
    values: list
    out: Any
    inputs: list[torch.Tensor]
    result: torch.Tensor
    g: torch.Tensor
    want: tuple[torch.Tensor, ...]
    saved: tuple = ()
    part: Sequence = ()
    #: Does the formula's gradient stay when g changes?
    deaf: list[bool] = field(default_factory=list)

    def wrong(self, i: int) -> str:
        """In words what part i is instead of the gradient; "" if it is right."""
        others = [w for j, w in enumerate(self.want) if j != i]
        given = {}
        if self.operator.name != "@":  # an entry of a matrix product depends on more than the entries at its place
            given = dict(zip(LETTERS, self.inputs, strict=False)) | {"g": self.g}
        return describe(self.part[i], self.want[i], others, self.deaf[i], given)

    def misordered(self) -> bool:
        """Would the formula be right if its arguments came in another order?"""
        for order in itertools.permutations((self.g, *self.saved)):
            try:
                part = tuple(self.out.node.formula(*order))
                right = [not describe(p, want) for p, want in zip(part, self.want, strict=True)]
            except Exception:  # another order may well make no sense at all
                continue
            if all(right):
                return True
        return False


def try_alone(Value: Any, operator: Operator) -> Trial:
    """Run one operator and its formula, without any walk. Raises Mistake for all but a wrong number in a gradient."""
    op = operator.shown
    a = torch.tensor([[0.5, -1.0, 1.5], [-0.25, 0.75, -2.0], [1.25, -0.5, 2.0]], dtype=torch.float64)
    b = torch.tensor([[-1.0, 2.0, 1.25], [1.5, -1.75, 2.5], [-3.0, 1.0, -1.5]], dtype=torch.float64)
    inputs = [a, b][: operator.inputs]
    if not hasattr(Value, operator.method):
        raise Mistake("no_method", method=operator.method)
    values = [run(Value, tensor.clone()) for tensor in inputs]
    out = run(lambda *operands: [operator.apply(*operands)], *values)[0]
    if out is None or out is ...:
        raise gave_nothing(getattr(Value, operator.method))
    if not isinstance(out, Value):
        raise Mistake("no_value", op=op, got=kind(out))
    node, data = getattr(out, "node", None), getattr(out, "data", None)
    formula = getattr(node, "formula", None)
    if blank := [f"`{name}`" for name in ("saved", "formula") if _is_blank(node, name)]:
        raise NotAttempted(f"Still blank: {' and '.join(blank)}.")

    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    result = operator.apply(*leaves)
    if what := _forward(data, result.detach()):
        raise Mistake("forward", op=op, what=what)
    for tensor, value in zip(inputs, values, strict=True):
        if differs(value.data, tensor):
            raise Mistake("changes_input", op=op)
    for name in ("formula", "saved", "edges"):
        if not hasattr(node, name):
            raise Mistake("no_node", op=op, what=f"a node with `{name}`")
    if not callable(formula):
        raise Mistake("not_callable", op=op, got=kind(formula))
    edges = list(node.edges) if isinstance(node.edges, (list, tuple)) else []
    if len(edges) != len(values) or any(e is not v.node for e, v in zip(edges, values, strict=True)):
        raise Mistake("edges", op=op, s="s" if len(values) > 1 else "")
    g = torch.tensor([[1.0, -2.0, 0.5], [3.0, 0.25, -1.5], [-0.75, 2.5, 1.75]], dtype=torch.float64)
    g = g if result.dim() else torch.tensor(1.5, dtype=torch.float64)
    trial = Trial(operator, values, out, inputs, result.detach(), g, torch.autograd.grad(result, leaves, g))
    _run_formula(trial, node)
    return trial


def _is_blank(node: Any, name: str) -> bool:
    return node is not None and any(getattr(node, name, 0) is blank for blank in (None, ...))


def _run_formula(trial: Trial, node: Any) -> None:
    op, formula = trial.operator.shown, node.formula
    if not isinstance(node.saved, (tuple, list)):
        raise Mistake("saved_not_tuple", op=op, got=kind(node.saved))
    trial.saved = saved = tuple(node.saved)
    if any(isinstance(thing, type(trial.out)) for thing in saved):
        raise Mistake("saves_values", op=op)
    if (takes := _refused(formula, trial.g, *saved)) is not None:
        raise Mistake("arguments", op=op, saved=plural(len(saved), "tensor"), takes=plural(takes, "argument"))
    before = [tensor.clone() for tensor in saved if isinstance(tensor, torch.Tensor)]
    g = trial.g.clone()
    part = run(formula, g, *saved)
    if not isinstance(part, (tuple, list)):
        raise Mistake("no_tuple", op=op, got=kind(part))
    if len(part) != len(trial.inputs):
        inputs, parts = plural(len(trial.inputs), "input"), plural(len(part), "gradient")
        raise Mistake("parts", op=op, inputs=inputs, parts=parts)
    if ... in [p for p in part if not isinstance(p, torch.Tensor)]:
        raise NotAttempted("A blank `...` is still there in the formula.")
    if differs(g, trial.g):
        raise Mistake("changes_g", op=op)
    if any(differs(t, b) for t, b in zip((t for t in saved if isinstance(t, torch.Tensor)), before, strict=True)):
        raise Mistake("changes_saved", op=op)
    # an expanded or shared part must not change with what follows
    trial.part = [p.clone() if isinstance(p, torch.Tensor) else p for p in part]
    again = run(formula, 2 * trial.g + 1, *saved)
    again = again if isinstance(again, (tuple, list)) else ()
    trial.deaf = [
        isinstance(p, torch.Tensor) and isinstance(q, torch.Tensor) and not differs(p, q)
        for p, q in itertools.zip_longest(trial.part, again)
    ]


def _refused(function: Callable, *arguments: Any) -> int | None:
    """How many arguments it takes, if it does not take these."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a built-in one; calling it will tell
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        return len(signature.parameters)
    return None


def describe(
    part: Any,
    want: torch.Tensor,
    others: Sequence[torch.Tensor] = (),
    deaf: bool = False,
    given: Mapping[str, torch.Tensor] | None = None,
) -> str:
    """In words what `part` is instead of the gradient `want`; "" if it is the gradient.

    others: the other inputs' gradients. deaf: it stays when g changes. given: name → tensor, of which the entry at the
    place of a wrong one is told.
    """
    if not isinstance(part, torch.Tensor):
        return f"is {kind(part)}, not a tensor"
    if part.shape != want.shape:
        return f"has the shape {shape(part)}, and what it is the gradient of has {shape(want)}"
    if part.dtype != want.dtype:
        return f"comes back as {dtype(part)}; everything here is {dtype(want)}"
    part, want = part.detach(), want.detach()
    if not differs(part, want):
        return ""
    if not torch.isfinite(part).all():
        return "holds inf or nan"
    if not part.any():
        return "is zero everywhere"
    if deaf:
        return "does not depend on `g`, on what arrives from above"
    factor = ((part * want).sum() / (want * want).sum()).item() if want.any() else 0.0
    if not differs(part, factor * want):
        return times(factor)
    if any(not differs(part, other) for other in others):
        return "is the one for the other input: the two are swapped"
    if part.dim() == 2 and not differs(part.T, want):
        return "is the transpose of what it should be"
    wrong = (part - want).abs() > TOLERANCE * scale(want)
    return f"is wrong in {int(wrong.sum())} of {want.numel()} entries{_example(part, want, wrong, given or {})}"


def _example(part: torch.Tensor, want: torch.Tensor, wrong: torch.Tensor, given: Mapping[str, torch.Tensor]) -> str:
    """The first wrong entry, in numbers."""
    at = tuple(int(i) for i in wrong.nonzero()[0])
    found, right = (f"{tensor[at].item():.4g}" for tensor in (part, want))
    if found == right:
        found = f"off by {(part[at] - want[at]).abs().item():.1g}"
    # a tensor of one number counts at every place
    names = [f"`{name}` = {(t[at] if t.dim() else t).item():.4g}" for name, t in given.items()]
    where = f"where {', '.join(names[:-1])} and {names[-1]}, it" if names else "the first"
    return f": {where} should be {right} and is {found}"


def times(factor: float) -> str:
    """A constant factor, in words."""
    if abs(factor + 1) < TOLERANCE:
        return "has the wrong sign"
    if abs(factor - 0.5) < TOLERANCE:
        return "is exactly half of what it should be"
    whole = round(factor)
    if whole and abs(factor - whole) < TOLERANCE * abs(whole):
        return f"is exactly {whole} times what it should be"
    if abs(factor - 1) < 1e-3:
        return "is off a little, everywhere by the same small factor: was it rounded on the way, to float32 say?"
    return f"is {factor:.3g} times what it should be, everywhere"


#: Where to look, by the beginning of what describe() says.
LOOK = (
    ("is exactly", "Which factor is one too many, or missing?"),
    ("has the wrong sign", "A minus is missing, or one too many."),
    ("is zero", "Nothing gets past this node, so nothing before it learns."),
    ("does not depend", "Each formula multiplies the local derivative with `g`: that is the chain rule."),
    ("is the one for", "The parts come in the order of the inputs."),
    ("is the transpose", "A `.T` is missing or one too many: compare the shapes for a 2×3 and a 3×4 matrix."),
    ("has the shape", "A gradient has the shape of its input. `(… ,)` makes a tuple of one."),
    ("holds inf", "A logarithm or a root of something negative, or a division by zero?"),
    ("is None", "Each input gets its own part."),
)


def look(what: str) -> str:
    return next(
        (hint for start, hint in LOOK if what.startswith(start)), "Derive it once more on paper, for one number."
    )


def _forward(data: Any, result: torch.Tensor) -> str:
    if not isinstance(data, torch.Tensor):
        return f"Its `.data` is {kind(data)}, not a tensor."
    if data.shape != result.shape or data.dtype != result.dtype:
        return f"It gives {shape(data)} {dtype(data)} instead of {shape(result)} {dtype(result)}."
    return "The numbers differ." if differs(data, result) else ""


def check_operator(Value: Any, operator: Operator) -> None:
    """Raises Mistake if the operator, run alone, is not PyTorch's, forward or backward."""
    trial = try_alone(Value, operator)
    refuse_gradients(trial)


def refuse_gradients(trial: Trial) -> None:
    """Raises Mistake for a part that is not PyTorch's gradient."""
    op = trial.operator.shown
    for i in range(trial.operator.inputs):
        if what := trial.wrong(i):
            if what.startswith("is wrong in") and trial.misordered():
                raise Mistake("argument_order", op=op)
            raise Mistake("backward", op=op, input=LETTERS[i], what=what, look=look(what))


@dataclass(frozen=True, slots=True)
class Comparison:
    """What compare() ran. counts: operator → how often; shared: graphs in which a node is used more than once.

    deep: a chain longer than Python lets calls nest is walked too.
    """

    graphs: int
    counts: dict[str, int]
    shared: int
    leaves: int
    deep: bool

    @property
    def operations(self) -> int:
        return sum(self.counts.values())


def compare(
    Value: Any, operators: Sequence[str | Operator] | None = None, graphs: int = 200, seed: int = 1
) -> Comparison:
    """Compare the learner's class with PyTorch. Raises Mistake with what is wrong, the narrowest cause first.

    operators: names of ALL or Operators of one's own; by default all that the class has (a stub takes no part).
    graphs: random graphs of float64 3×3 matrices; each gradient must be within TOLERANCE of PyTorch's.
    """
    if not isinstance(Value, type):
        raise Mistake("not_a_class", got=kind(Value))
    chosen = [ALL[op] if isinstance(op, str) else op for op in operators or _present(Value)]
    chosen = [ALL[name] for name in BASE if name not in [op.name for op in chosen]] + chosen
    _check_leaf(Value)
    for operator in chosen:
        check_operator(Value, operator)
    refuse_blank(Value)
    _check_walk(Value)
    counts: Counter[str] = Counter({op.name: 0 for op in chosen})
    shared = leaves = 0
    failed: list[tuple[int, int, str]] = []
    for number in range(graphs):
        program = Program.draw(random.Random(seed * 1_000_003 + number), chosen)
        data = program.data(torch.Generator().manual_seed(seed * 1_000_003 + number))
        counts.update(op.name for op, _ in program.steps)
        shared += program.shares
        leaves += len(data)
        names = [f"leaf {i + 1}" for i in range(len(data))]
        if what := _difference(Value, program.run, data, 1 + (number % 10 == 0), names):
            failed.append((len(program.steps), number + 1, what))
    if failed:
        _, number, what = min(failed)
        raise Mistake("random", failed=len(failed), graphs=graphs, number=number, what=what)
    return Comparison(graphs, dict(counts), shared, leaves, _goes_deep(Value))


def _present(Value: Any) -> list[str]:
    """The base, and what the learner has added, unless its formula is still blank."""
    names = list(BASE)
    for name in ALL:
        if name not in BASE and hasattr(Value, ALL[name].method):
            try:
                try_alone(Value, ALL[name])
            except NotAttempted:
                continue
            except (Mistake, Raised):
                pass
            names.append(name)
    return names


def _check_leaf(Value: Any) -> None:
    leaf = run(Value, torch.ones(2, dtype=torch.float64))
    for name in ("data", "grad", "node"):
        if not hasattr(leaf, name):
            raise Mistake("incomplete", name=name)


def is_blank(function: Any) -> bool:
    """Is there nothing in a function that could do anything?"""
    code = getattr(function, "__code__", None)
    return function is None or function is ... or (code is not None and not code.co_names and not code.co_freevars)


def refuse_blank(Value: Any) -> None:
    """Raises for a `backward` that is missing, or still the stub."""
    if not hasattr(Value, "backward"):
        raise Mistake("no_backward")
    if is_blank(Value.backward):
        raise NotAttempted("Node, Value and the operations are right; `backward` is still blank.")


def _gradients(Value: Any, program: Callable, data: Sequence[torch.Tensor], passes: int = 1) -> tuple[Any, list]:
    """The learner's loss and leaves after backward over `passes` fresh graphs of the same program."""
    leaves = [run(Value, tensor.clone()) for tensor in data]
    for _ in range(passes):
        loss = run(program, *leaves)
        run_backward(loss)
    return loss, leaves


def run_backward(loss: Any) -> Any:
    """What the learner's own walk gives back (None, if it is like PyTorch's). Raises Raised for its errors."""
    return run(lambda: [loss.backward()])[0]


def _torch_gradients(program: Callable, data: Sequence[torch.Tensor], passes: int = 1) -> tuple[torch.Tensor, list]:
    leaves = [tensor.clone().requires_grad_() for tensor in data]
    for _ in range(passes):
        loss = program(*leaves)
        loss.backward()
    return loss.detach(), [leaf.grad for leaf in leaves]


def _difference(
    Value: Any, program: Callable, data: Sequence[torch.Tensor], passes: int = 1, names: Sequence[str] = ("`a`", "`b`")
) -> str:
    """In words how the learner's result or gradients differ from PyTorch's; "" if they do not. names: the leaves'."""
    loss, leaves = _gradients(Value, program, data, passes)
    want_loss, want = _torch_gradients(program, data, passes)
    if what := _forward(loss.data, want_loss):
        return f"its result is not PyTorch's. {what}"
    for name, leaf, wanted in zip(names, leaves, want, strict=False):
        if wanted is None:
            if leaf.grad is not None:
                return f"{name} is used by nobody, and yet has a gradient; PyTorch leaves it None"
        elif leaf.grad is None:
            return f"{name} got no gradient: its `.grad` is None"
        elif what := describe(leaf.grad, wanted):
            return f"the gradient of {name} {what}"
    return ""


@dataclass(frozen=True, slots=True)
class Small:
    """A small graph of one leaf, `a`. labels: its operations in the order in which they are made."""

    code: str
    labels: tuple[str, ...]
    run: Callable[[Any], Any]


def _twice(a: Any) -> Any:
    b = a.exp()
    return (b + b).sum()


def _left(a: Any) -> Any:
    b = a.exp()
    return (b + b.tanh()).sum()


def _right(a: Any) -> Any:
    b = a.exp()
    return (b.tanh() + b).sum()


def _deep(a: Any) -> Any:
    b = a.exp()
    c = b.tanh()
    return ((c.relu() * b + c).tanh() * (b + a)).sum()


CHAIN = Small("`a.exp().tanh().sum()`", ("exp", "tanh", "sum"), lambda a: a.exp().tanh().sum())
#: Shows the shape and dtype that the walk begins with.
SUM = Small("`a.sum().sum()`", ("sum", "sum"), lambda a: a.sum().sum())
TWICE = Small("`(b + b).sum()` with `b = a.exp()`", ("exp", "+", "sum"), _twice)
LEAF_TWICE = Small("`(a * a).sum()`", ("*", "sum"), lambda a: (a * a).sum())
#: A user that is run too late, whichever way the walk turns.
DIAMONDS = (
    Small("`(b + b.tanh()).sum()` with `b = a.exp()`", ("exp", "tanh", "+", "sum"), _left),
    Small("`(b.tanh() + b).sum()` with `b = a.exp()`", ("exp", "tanh", "+", "sum"), _right),
    Small(
        "`((c.relu() * b + c).tanh() * (b + a)).sum()` with `b = a.exp()`, `c = b.tanh()`",
        ("exp", "tanh", "relu", "*", "+", "tanh", "+", "*", "sum"),
        _deep,
    ),
)


def _check_walk(Value: Any) -> None:
    """Small graphs that take the walk apart. The operators are right when this runs."""
    x = torch.tensor([[0.5, -1.0], [0.25, 0.75]], dtype=torch.float64)
    y = torch.tensor([[1.0, 0.5], [-0.75, 2.0]], dtype=torch.float64)
    _walk(Value, CHAIN, x, "chain")
    _walk(Value, SUM, x, "chain")
    _walk(Value, TWICE, x, "shared")
    _walk(Value, LEAF_TWICE, x, "shared")
    for graph in DIAMONDS:
        _walk(Value, graph, x, "order")
    if what := _difference(Value, lambda a, b: a.exp().sum(), [x, y]):
        raise Mistake("unused", what=what)
    _check_passes(Value, x, y)
    _check_release(Value, x, y)


def _walk(Value: Any, graph: Small, x: torch.Tensor, key: str) -> None:
    """Raises Mistake if the walk over a small graph is wrong: the cause, where it can be seen, or else `key`."""
    error = None
    try:
        what = _difference(Value, graph.run, [x])
    except Raised as raised:
        what, error = f"backward raised {_said(raised.error)}", raised
    Watch(Value, graph, x).explain(what)
    if error and graph is CHAIN:  # told with its line
        raise error
    if what:
        raise Mistake(key, code=graph.code, what=what)


class Watch:
    """A walk over a small graph in which each formula tells when it is run, and with what."""

    def __init__(self, Value: Any, graph: Small, x: torch.Tensor) -> None:
        self.graph, self.leaf = graph, run(Value, x.clone())
        self.loss = run(graph.run, self.leaf)
        self.nodes = _nodes(self.loss.node)
        labels = iter(graph.labels)
        self.edges = [(user, edge) for user in self.nodes for edge in user.edges]
        self.labels = [f"the node of `{next(labels)}`" if node.edges else "the leaf's node" for node in self.nodes]
        #: In the order of their turns.
        self.turns: list[Any] = []
        self.parts: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.what = ""

    def label(self, node: Any) -> str:
        return self.labels[next(i for i, other in enumerate(self.nodes) if other is node)]

    def had_turn(self, node: Any) -> bool:
        return any(node is other for other in self.turns)

    def mistake(self, key: str, node: Any = None, **facts: object) -> Mistake:
        named = {"node": self.label(node)} if node is not None else {}
        return Mistake(key, code=self.graph.code, **named, **facts)

    def explain(self, what: str) -> None:
        """Raises Mistake for what can be seen. what: in words, which gradient was wrong or which error came."""
        self.what = what
        for node in self.nodes:
            node.formula = self._watched(node, node.formula, node.saved)
        try:
            returned = run_backward(self.loss)
        except Raised as raised:
            if what:
                self._explain_error(raised.error)
            return
        if what:
            self._explain_walk(returned)

    def _watched(self, node: Any, formula: Callable, saved: tuple) -> Callable:
        def watched(*arguments):
            if self.had_turn(node):
                raise self.mistake("visited_twice", node)
            if self.what:
                self._explain_arguments(node, saved, arguments)
            self.turns.append(node)
            parts = formula(*arguments)
            self.parts += [(part, part.clone()) for part in parts if isinstance(part, torch.Tensor)]
            return parts

        watched.__self__ = getattr(formula, "__self__", None)  # a leaf's leads to its Value
        return watched

    def _explain_arguments(self, node: Any, saved: tuple, arguments: tuple) -> None:
        if len(arguments) != 1 + len(saved) or isinstance(arguments[-1], (tuple, list)):
            if saved and not node.saved:
                raise self.mistake("let_go_too_early", node)
            given = plural(len(arguments), "argument")
            if len(arguments) == 2 and isinstance(arguments[1], (tuple, list)):
                given = "`g` and a tuple"
            elif len(arguments) == 1 and saved:
                given = "`g` alone" if arguments[0] is not saved[0] else "what was saved, and no `g`"
            raise self.mistake("no_saved", node, given=given)
        g = arguments[0]
        if node is self.loss.node:
            if g is None or (isinstance(g, (int, float, torch.Tensor)) and not torch.as_tensor(g).any()):
                raise self.mistake("no_seed", node)
            if not isinstance(g, torch.Tensor):
                raise self.mistake("seed", node, got=f"`{g!r}`, {kind(g)}" if type(g) in (int, float) else kind(g))
            if g.dtype != self.loss.data.dtype or differs(g, torch.ones_like(self.loss.data)):
                reshaped = f", with the shape {shape(g)}" if g.dim() else ""
                raise self.mistake("seed", node, got=f"{_short(g)} in {dtype(g)}{reshaped}")

    def _explain_error(self, error: BaseException) -> None:
        said = str(error)
        if isinstance(error, KeyError):
            node = next((node for node in self.nodes if error.args and _is_key(error.args[0], node)), None)
            if node is None:
                return
            if self.had_turn(node):
                raise self.mistake("visited_twice", node)
            if node is self.loss.node:
                raise self.mistake("no_seed", node)
            if not self.turns and any(node is edge for edge in self.loss.node.edges):
                raise self.mistake("start_missing", self.loss.node)
            if not all(self.had_turn(user) for user, edge in self.edges if edge is node):
                raise self.mistake("order", what=f"{self.label(node)} has its turn before anything has arrived there")
            return
        if "single memory location" in said or self._changed_parts():
            raise self.mistake("adds_in_place")
        gone = "after * must be an iterable, not NoneType" in said
        if gone and self.graph is CHAIN:
            raise self.mistake("let_go_too_early", self.nodes[-1 - len(self.turns)])
        line = their_line(error)
        # a check for a second backward, on a graph that has seen none
        if self.turns and self.graph is not CHAIN and (gone or (line and (line.line or "").startswith("raise"))):
            raise self.mistake("visited_twice", self._shared())

    def _explain_walk(self, returned: Any) -> None:
        if self._changed_parts():
            raise self.mistake("adds_in_place")
        if not self.turns:
            raise self.mistake("nothing_run")
        if not self.had_turn(self.loss.node):
            raise self.mistake("start_missing", self.loss.node)
        if self.leaf.grad is None and not self.had_turn(self.leaf.node):
            if returned is not None:
                raise self.mistake("returned", got=kind(returned))
            raise self.mistake("leaf_skipped")
        for user, edge in self.edges:
            if self.had_turn(user) and self.had_turn(edge) and self._turn(user) > self._turn(edge):
                what = f"{self.label(edge)} has its turn before {self.label(user)}, which uses its result"
                raise self.mistake("order", what=what)
        if self.graph in DIAMONDS and len(self.turns) == len(self.nodes):
            raise self.mistake("misrouted", what=self.what)

    def _turn(self, node: Any) -> int:
        return next(i for i, other in enumerate(self.turns) if other is node)

    def _changed_parts(self) -> bool:
        return any(differs(part, before) for part, before in self.parts)

    def _shared(self) -> Any:
        """The first node that two edges lead to."""
        reached = [id(edge) for _, edge in self.edges]
        return next(node for node in reversed(self.nodes) if reached.count(id(node)) > 1)


def _is_key(key: Any, node: Any) -> bool:
    return key is node or (isinstance(key, int) and key in (getattr(node, "number", None), id(node)))


def _nodes(last: Any) -> list:
    """All nodes that lead to one, the first made first."""
    found, waiting = [last], [last]
    while waiting:
        for edge in waiting.pop().edges:
            if not any(edge is other for other in found):
                found.append(edge)
                waiting.append(edge)
    return sorted(found, key=lambda node: node.number)


def _short(tensor: torch.Tensor) -> str:
    return f"{tensor.item():.4g}" if tensor.numel() == 1 else "a tensor"


def _goes_deep(Value: Any) -> bool:
    """Whether a chain is walked that is longer than Python lets calls nest."""
    leaf = run(Value, torch.ones(1, dtype=torch.float64))
    loss = leaf
    for _ in range(min(sys.getrecursionlimit(), 20_000) + 100):
        loss = loss.relu()
    try:
        run_backward(loss.sum())
    except Raised as raised:
        if isinstance(raised.error, RecursionError):
            return False
        raise
    return True


def _said(error: BaseException) -> str:
    said = (str(error).strip().splitlines() or [""])[0]
    return f"`{type(error).__name__}`{': ' + said if said and not isinstance(error, KeyError) else ''}"


def _check_passes(Value: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    def program(a, b):
        return (a + b).tanh().sum()

    _, once = _torch_gradients(program, [x, y])
    try:
        _, leaves = _gradients(Value, program, [x, y], passes=2)
    except Raised as raised:
        _, (leaf,) = _gradients(Value, lambda a: a.exp().sum(), [x])
        closed = not isinstance(getattr(leaf.node, "saved", None), (tuple, list))
        key = "leaf_closed" if closed else "second_pass_raised"
        raise Mistake(key, error=_said(raised.error)) from None
    if all(leaf.grad is not None and not differs(leaf.grad, g) for leaf, g in zip(leaves, once, strict=True)):
        raise Mistake("overwritten")
    what = _difference(Value, program, [x, y], passes=2)
    if what:
        if left := _left_on_leaf(Value, x):
            raise Mistake("left_on_node", what=what, left=left)
        raise Mistake("passes", what=what)


def _left_on_leaf(Value: Any, x: torch.Tensor) -> str:
    """What a walk leaves on the leaf's node that was not there before."""
    leaf = run(Value, x.clone())
    loss, before = run(lambda a: a.exp().sum(), leaf), set(vars(leaf.node))
    run_backward(loss)
    return ", ".join(f"`{name}`" for name in vars(leaf.node) if name not in before)


def _check_release(Value: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    loss, _ = _gradients(Value, lambda a: a.exp().sum(), [x])
    try:
        run_backward(loss)
    except Raised:
        pass
    else:
        raise Mistake("never_released")
    loss, (a, _) = _gradients(Value, lambda a, b: (a + b).sum(), [x, y])
    try:
        run_backward(loss)
    except Raised as raised:
        raise Mistake("released_too_much", error=_said(raised.error)) from None
    if what := describe(a.grad, 2 * torch.ones_like(x)):
        raise Mistake("passes", what=f"after a second backward over the sum of `a + b` the gradient of `a` {what}")


@dataclass(frozen=True, slots=True)
class Program:
    """A random graph: leaves, steps (operator, operands), and which results are summed into the loss.

    leaves: for each, whether its numbers are at least 1 (it may divide). Operands count leaves first, then steps.
    """

    leaves: tuple[bool, ...]
    steps: tuple[tuple[Operator, tuple[int, ...]], ...]
    ends: tuple[int, ...]
    shares: bool

    @classmethod
    def draw(cls, rng: random.Random, operators: Sequence[Operator]) -> Program:
        """A graph of 5 to 14 operations; one node at least is used twice, and in one of four a leaf by nobody."""
        divides = any(op.name == "/" for op in operators)
        leaves = tuple(divides and i == 0 for i in range(rng.randint(2, 4)))
        idle = len(leaves) - 1 if rng.randrange(4) == 0 else None
        bound, low, scalar = [2] * len(leaves), [int(positive) for positive in leaves], [False] * len(leaves)
        steps: list[tuple[Operator, tuple[int, ...]]] = []
        first = len(leaves)
        for number in range(rng.randint(5, 14)):
            op = rng.choice(operators)
            usable = [i for i in range(len(bound)) if i != idle]
            # the second and third operation both take the first one's result: it is shared in every graph
            a = first if number in (1, 2) else rng.choice(usable)
            b = rng.choice([i for i in usable if scalar[i] == scalar[a]])
            if op.name == "/":
                b = rng.choice([i for i in usable if scalar[i] == scalar[a] and low[i]] or [-1])
            if b < 0 or (op.name == "@" and scalar[a]):
                op = ALL["*"]
                b = a
            if op.name == "sum" and number == 0:
                op = ALL["exp"]
            operands = (a, b)[: op.inputs]
            if op.reach(*(bound[i] for i in operands)) > LIMIT:
                op, operands = ALL["tanh"], (a,)
            steps.append((op, operands))
            bound.append(op.reach(*(bound[i] for i in operands)))
            low.append(_low(op, [low[i] for i in operands]))
            scalar.append(scalar[a] or op.name == "sum")
        uses = Counter(i for _, operands in steps for i in operands)
        ends = [i for i in range(len(bound)) if not uses[i] and i != idle]
        # the loss itself: each end summed, and added to the others
        total = None
        for end in ends:
            steps.append((ALL["sum"], (end,)))
            latest = len(leaves) + len(steps) - 1
            if total is not None:
                steps.append((ALL["+"], (total, latest)))
                latest += 1
            total = latest
        return cls(leaves, tuple(steps), tuple(ends), any(count > 1 for count in uses.values()))

    def data(self, generator: torch.Generator) -> list[torch.Tensor]:
        drawn = (torch.rand(3, 3, generator=generator, dtype=torch.float64) for _ in self.leaves)
        return [1 + d if positive else 4 * d - 2 for d, positive in zip(drawn, self.leaves, strict=True)]

    def run(self, *leaves: Any) -> Any:
        """The loss, on Values or on tensors."""
        found = list(leaves)
        for op, operands in self.steps:
            found.append(op.apply(*(found[i] for i in operands)))
        return found[-1]


def _low(op: Operator, lows: list[int]) -> int:
    """A whole number that the result is at least, 0 where none is known."""
    if op.name in ("+", "*") and all(lows):
        return lows[0] * lows[1] if op.name == "*" else lows[0] + lows[1]
    return lows[0] if op.name in ("relu", "sum") else 0


def scale(want: torch.Tensor) -> torch.Tensor:
    return want.abs().max().clamp(min=1) if want.numel() else want.new_ones(())


def differs(found: torch.Tensor, want: torch.Tensor) -> bool:
    """More than TOLERANCE apart, relative to the larger of 1 and the largest entry; nan differs."""
    if found.shape != want.shape:
        return True
    return not bool(((found - want).abs() <= TOLERANCE * scale(want)).all())


def kind(thing: Any) -> str:
    """What a thing is, for a sentence."""
    if thing is None:
        return "None"
    if isinstance(thing, torch.Tensor):
        return "a tensor"
    if type(thing).__name__ == "ndarray":
        return "a NumPy array"
    name = "class" if isinstance(thing, type) else type(thing).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def shape(tensor: torch.Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "no dimension"


def dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
