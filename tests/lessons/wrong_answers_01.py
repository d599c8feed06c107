"""Wrong answers to chapter 01's exercises: (exercise, key of the mistake, source). Each runs after the own autograd.

A source defines what the exercise asks for (see ANSWER), or `answer` where it hands over something else.
"""

from . import own

ANSWER = {
    "own_autograd": "Value",
    "own_sigmoid": "Value",
    "own_div": "Value",
    "kept_bytes": "kept_bytes",
    "bug_data": "step",
}


def operation(method, arguments, out, node, value="Value(out, {})"):
    return (
        f"def operation({arguments}):\n    out = {out}\n    return {value.format(node)}\n\nValue.{method} = operation\n"
    )


#: A Value whose node is no Node.
BARE = """
def bare(out):
    value = Value(out)
    value.node = object()
    return value
"""


def unary(exercise, method, out, derivative):
    """What can be wrong with a node of one input. derivative: of the output, in terms of `out`."""
    formula = f"lambda g, out: (g * ({derivative}),)"

    def wrong(node, **more):
        return operation(method, "a", **{"out": out, "node": node, **more})

    return [
        (exercise, "not_a_class", "answer = Value(torch.ones(2))"),
        (exercise, "not_a_class", "answer = 'Value'"),
        (exercise, "not_a_class", "answer = lambda a: a"),
        (exercise, "no_method", f"if hasattr(Value, '{method}'):\n    del Value.{method}"),
        (exercise, "no_value", wrong("", value="out")),
        (exercise, "no_node", wrong("", value="bare(out)") + BARE),
        (exercise, "not_callable", wrong("Node(3, (out,), (a,))")),
        (exercise, "not_callable", wrong(f"Node(({formula},), (out,), (a,))")),
        (exercise, "argument_order", wrong(f"Node({formula.replace('g, out:', 'out, g:')}, (out,), (a,))")),
        (exercise, "forward", wrong(f"Node({formula}, (out,), (a,))", out="torch.erf(a.data)")),
        (exercise, "forward", wrong(f"Node({formula}, (out,), (a,))", out=f"{out}.float()")),
        (exercise, "forward", wrong(f"Node({formula}, (out,), (a,))", out=f"{out}.tolist()")),
        (exercise, "edges", wrong(f"Node({formula}, (out,))")),
        (exercise, "edges", wrong("", value=f"Value(out, Node({formula}, (out,), (Value(a.data),)))")),
        (exercise, "saved_not_tuple", wrong(f"Node({formula}, out, (a,))")),
        (exercise, "saves_values", wrong("Node(lambda g, v: (g,), (a,), (a,))")),
        (exercise, "arguments", wrong("Node(lambda g: (g,), (out,), (a,))")),
        (exercise, "arguments", wrong("Node(lambda g, x, out: (g,), (out,), (a,))")),
        (exercise, "no_tuple", wrong(f"Node(lambda g, out: g * ({derivative}), (out,), (a,))")),
        (exercise, "parts", wrong("Node(lambda g, out: (g, g), (out,), (a,))")),
        (exercise, "changes_input", wrong(f"Node({formula}, (out,), (a,))", out=f"a.data.copy_({out})")),
        (exercise, "changes_g", wrong(f"Node(lambda g, out: (g.mul_({derivative}),), (out,), (a,))")),
        (exercise, "changes_saved", wrong("Node(lambda g, out: (out.mul_(g),), (out,), (a,))")),
        (exercise, "backward", wrong(f"Node(lambda g, out: (2 * g * ({derivative}),), (out,), (a,))")),
    ]


def sigmoid(formula, saved="(out,)", more=""):
    return operation("sigmoid", "a", "torch.sigmoid(a.data)", f"Node({formula}, {saved}, (a,))") + more


def div(formula, saved="(a.data, b.data)", more=""):
    return operation("__truediv__", "a, b", "a.data / b.data", f"Node({formula}, {saved}, (a, b))") + more


BACKWARD = """
def backward(self):
    found, waiting = [self.node], [self.node]
    while waiting:
        for edge in waiting.pop().edges:
            if edge not in found:
                found.append(edge)
                waiting.append(edge)
    grads = {self.node: torch.ones_like(self.data)}
    for node in sorted(found, key=lambda node: node.number, reverse=True):
        if node.saved is None:
            raise RuntimeError("a second backward: what this node kept is gone")
        parts = node.formula(grads.pop(node), *node.saved)
        node.saved = None if node.saved else ()
        for edge, part in zip(node.edges, parts):
            grads[edge] = grads[edge] + part if edge in grads else part

Value.backward = backward
"""
SUM = "grads[edge] + part if edge in grads else part"
RELEASE = "node.saved = None if node.saved else ()"
ORDER = "sorted(found, key=lambda node: node.number, reverse=True)"


def walk(old, new):
    assert BACKWARD.count(old) == 1
    return BACKWARD.replace(old, new)


STUB_BACKWARD = """
def backward(self):
    ...  # find all nodes; run them, the last made first; add up what arrives; let go

Value.backward = backward
"""


def autograd():
    """The chapter's own autograd, with a right backward: in the notebook that is an exercise."""
    found = own.namespace()
    own.cell(BACKWARD, found, "<backward>")
    return found


SEED = "grads = {self.node: torch.ones_like(self.data)}"
CALL = "node.formula(grads.pop(node), *node.saved)"
VISITED = (
    "            if edge not in found:\n                found.append(edge)\n                waiting.append(edge)\n"
)
#: Down every path: right gradients where nothing is let go.
PATHS = """
def backward(self):
    def go(node, g):
        parts = node.formula(g, *node.saved)
        RELEASE
        for edge, part in zip(node.edges, parts):
            go(edge, part)
    go(self.node, torch.ones_like(self.data))

Value.backward = backward
"""
#: Calls itself, and is right for all that: what uses a node comes after it in the list.
SORTED_BY_RECURSION = BACKWARD.replace(
    """    found, waiting = [self.node], [self.node]
    while waiting:
        for edge in waiting.pop().edges:
            if edge not in found:
                found.append(edge)
                waiting.append(edge)
""",
    """    found = []
    def visit(node):
        if node not in found:
            for edge in node.edges:
                visit(edge)
            found.append(node)
    visit(self.node)
""",
).replace("sorted(found, key=lambda node: node.number, reverse=True)", "reversed(found)")
GRADS_ON_NODES = (
    BACKWARD.replace("grads = {self.node: torch.ones_like(self.data)}", "self.node.grad = torch.ones_like(self.data)")
    .replace("grads.pop(node)", "node.grad")
    .replace(
        "grads[edge] = grads[edge] + part if edge in grads", "edge.grad = edge.grad + part if hasattr(edge, 'grad')"
    )
)
#: Parts are added into the tensor that came first.
ADDS_IN_PLACE = """            if edge in grads:
                grads[edge] += part
            else:
                grads[edge] = part
"""
BREADTH_FIRST = walk("waiting.pop()", "waiting.pop(0)").replace(ORDER, "found")
ADD_IN_PLACE = """
def accumulate(self, g):
    if self.grad is None:
        self.grad = g.clone() if g.stride() == (0, 0) else g
    else:
        self.grad += g
    return ()

Value.accumulate = accumulate
"""
ZERO_AT_FIRST = """
def start(self, data, node=None):
    self.data, self.grad = data, torch.zeros_like(data)
    self.node = node or Node(self.accumulate)

Value.__init__ = start
"""
LACKS_GRAD = """
def start(self, data, node=None):
    self.data = data
    self.node = node or Node(self.accumulate)

Value.__init__ = start
"""
OVERWRITES = "def accumulate(self, g):\n    self.grad = g\n    return ()\n\nValue.accumulate = accumulate\n"

RIGHT_DIV = "lambda g, x, y: (g / y, -g * x / (y * y))"
NODES_OF_DIV = [
    ("not_a_class", "answer = Value.__add__"),
    ("no_method", "pass"),
    ("no_value", operation("__truediv__", "a, b", "a.data / b.data", "", value="out")),
    ("no_node", operation("__truediv__", "a, b", "a.data / b.data", "", value="bare(out)") + BARE),
    ("not_callable", operation("__truediv__", "a, b", "a.data / b.data", "Node(3, (out,), (a, b))")),
    ("argument_order", div("lambda g, y, x: (g / y, -g * x / (y * y))")),
    ("forward", operation("__truediv__", "a, b", "b.data / a.data", f"Node({RIGHT_DIV}, (a.data, b.data), (a, b))")),
    ("forward", operation("__truediv__", "a, b", "a.data // b.data", f"Node({RIGHT_DIV}, (a.data, b.data), (a, b))")),
    ("edges", operation("__truediv__", "a, b", "a.data / b.data", f"Node({RIGHT_DIV}, (a.data, b.data), (b, a))")),
    ("edges", operation("__truediv__", "a, b", "a.data / b.data", f"Node({RIGHT_DIV}, (a.data, b.data), (a,))")),
    ("saved_not_tuple", div("lambda g, *y: (g, g)", "b.data")),
    ("saves_values", div("lambda g, x, y: (g / y.data, -g * x.data / y.data**2)", "(a, b)")),
    ("arguments", div("lambda g, y: (g / y, g)")),
    ("no_tuple", div("lambda g, x, y: g / y")),
    ("parts", div("lambda g, x, y: (g / y,)")),
    (
        "changes_input",
        operation("__truediv__", "a, b", "a.data.div_(b.data)", f"Node({RIGHT_DIV}, (out, b.data), (a, b))"),
    ),
    ("changes_g", div("lambda g, x, y: (g.div_(y), -g * x / y)")),
    ("changes_saved", div("lambda g, x, y: (g / y, -g * x / y.mul_(y))")),
    ("backward", div("lambda g, x, y: (g / y, -3 * g * x / (y * y))")),
    ("backward", div("lambda g, x, y: ((g / y).float(), -g * x / (y * y))")),
    ("backward", div("lambda g, x, y: ((g / y).sum(), -g * x / (y * y))")),
    ("backward", div("lambda g, x, y: (1.0, -g * x / (y * y))")),
]

COUNT = """
def kept_bytes(function, *inputs):
    saved = []
    def pack(tensor):
        saved.append(tensor)
        return tensor
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(*inputs)
    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    for tensor in inputs:
        if tensor.is_leaf and tensor.requires_grad:
            sizes.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(sizes.values())
"""
LEAVES = "        if tensor.is_leaf and tensor.requires_grad:\n            sizes.pop"
GIVEN = "given = [x.untyped_storage().data_ptr() for x in inputs if x.is_leaf and x.requires_grad]\n    "
FRESH = "for t in saved if t.untyped_storage().data_ptr() not in given"


def count(*changes):
    code = COUNT
    for old, new in changes:
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    return code


def counted(result):
    return count(("return sum(sizes.values())", result))


LEFT_ON = count(
    ("with torch.autograd", "hooks = torch.autograd"),
    (":\n        result = function", "\n    hooks.__enter__()\n    result = function"),
)

STEP = """
def step(x, w):
    h = torch.exp(x @ w)
    BEFORE
    loss = h.mean()
    {}
    return loss, shown
"""


def step(*lines, before="", end="loss, shown"):
    """before: a line between h and the loss."""
    code = STEP.replace("loss, shown", end).replace("{}", "\n    ".join(lines))
    return code.replace("    BEFORE\n", f"    {before}\n" if before else "")


WRONG = [
    *unary("own_autograd", "tanh", "torch.tanh(a.data)", "1 - out * out"),
    ("own_autograd", "incomplete", LACKS_GRAD),
    ("own_autograd", "no_backward", "del Value.backward"),
    ("own_autograd", "nothing_run", "def backward(self):\n    found = {self.node}\n\nValue.backward = backward"),
    ("own_autograd", "nothing_run", walk("for node in sorted", "for node in []: #")),
    ("own_autograd", "no_seed", walk(SEED, "grads = {}")),
    ("own_autograd", "no_seed", walk(SEED, "grads = {}").replace("grads.pop(node)", "grads.get(node)")),
    ("own_autograd", "no_seed", walk(SEED, "grads = {}").replace("grads.pop(node)", "grads.get(node, 0)")),
    ("own_autograd", "no_seed", walk("torch.ones_like", "torch.zeros_like")),
    ("own_autograd", "seed", walk(SEED, "grads = {self.node: 1.0}")),
    ("own_autograd", "seed", walk(SEED, "grads = {self.node: self.data}")),
    ("own_autograd", "seed", walk(SEED, "grads = {self.node: self}")),
    ("own_autograd", "seed", walk(SEED, "grads = {self.node: torch.tensor(1.0)}")),
    ("own_autograd", "seed", walk(SEED, "grads = {self.node: torch.tensor(1)}")),
    ("own_autograd", "seed", walk(SEED, "grads = {self.node: torch.ones(1)}")),
    ("own_autograd", "seed", walk(SEED, "grads = {self.node: torch.ones(1, dtype=torch.float64)}")),
    ("own_autograd", "seed", walk(SEED, "grads = {self.node: torch.ones(2, 2)}")),
    ("own_autograd", "seed", walk("torch.ones_like(self.data)", "2 * torch.ones_like(self.data)")),
    ("own_autograd", "start_missing", walk("found, waiting = [self.node]", "found, waiting = []")),
    ("own_autograd", "no_saved", walk(CALL, "node.formula(grads.pop(node))")),
    ("own_autograd", "no_saved", walk(CALL, "node.formula(grads.pop(node), node.saved)")),
    ("own_autograd", "no_saved", walk(CALL, "node.formula(*node.saved)")),
    ("own_autograd", "let_go_too_early", walk(f"parts = {CALL}", f"{RELEASE}; parts = {CALL}")),
    ("own_autograd", "let_go_too_early", walk(f"parts = {CALL}", f"node.saved = (); parts = {CALL}")),
    ("own_autograd", "visited_twice", walk(VISITED, "            found.append(edge); waiting.append(edge)\n")),
    (
        "own_autograd",
        "visited_twice",
        walk(VISITED, "            found.append(edge); waiting.append(edge)\n").replace(
            "grads.pop(node)", "grads[node]"
        ),
    ),
    (
        "own_autograd",
        "visited_twice",
        walk(VISITED, "            found.append(edge); waiting.append(edge)\n")
        .replace("{self.node:", "{self.node.number:")
        .replace("grads.pop(node)", "grads.pop(node.number)")
        .replace("[edge]", "[edge.number]")
        .replace("edge in grads", "edge.number in grads"),
    ),
    ("own_autograd", "visited_twice", PATHS.replace("RELEASE", "pass")),
    ("own_autograd", "visited_twice", PATHS.replace("RELEASE", RELEASE)),
    ("own_autograd", "visited_twice", PATHS.replace("RELEASE", "node.saved = ()")),
    ("own_autograd", "visited_twice", PATHS.replace("RELEASE", "node.saved = None")),
    (
        "own_autograd",
        "visited_twice",
        PATHS.replace(
            "        parts", "        if node.saved is None:\n            raise RuntimeError('gone')\n        parts"
        ).replace("RELEASE", RELEASE),
    ),
    # a leaf is found as often as it is used
    ("own_autograd", "visited_twice", walk("if edge not in found:", "if edge not in found or not edge.edges:")),
    ("own_autograd", "adds_in_place", walk(f"            grads[edge] = {SUM}\n", ADDS_IN_PLACE)),
    (
        "own_autograd",
        "returned",
        walk("found.append(edge)", "found += [edge] * bool(edge.edges)").replace(
            "\nValue.backward", "    return grads\n\nValue.backward"
        ),
    ),
    ("own_autograd", "leaf_skipped", walk("found.append(edge)", "found += [edge] * bool(edge.edges)")),
    ("own_autograd", "leaf_skipped", walk("        parts = ", "        if not node.edges: continue\n        parts = ")),
    ("own_autograd", "chain", walk("if edge in grads else part", "if edge in grads else 2 * part")),
    ("own_autograd", "shared", walk(SUM, "part")),
    ("own_autograd", "shared", walk(f"grads[edge] = {SUM}", "grads.setdefault(edge, part)")),
    ("own_autograd", "order", walk("reverse=True", "reverse=False")),
    ("own_autograd", "order", walk(ORDER, "found")),
    ("own_autograd", "order", BREADTH_FIRST),
    ("own_autograd", "unused", ZERO_AT_FIRST),
    ("own_autograd", "overwritten", OVERWRITES),
    ("own_autograd", "passes", ADD_IN_PLACE),
    ("own_autograd", "misrouted", walk("zip(node.edges, parts)", "zip(node.edges, parts[::-1])")),
    ("own_autograd", "left_on_node", GRADS_ON_NODES),
    ("own_autograd", "leaf_closed", walk(RELEASE, "node.saved = None")),
    ("own_autograd", "leaf_closed", walk(RELEASE, "del node.saved")),
    ("own_autograd", "second_pass_raised", walk(RELEASE, RELEASE + "; node.formula = None")),
    ("own_autograd", "never_released", walk(RELEASE, "pass")),
    ("own_autograd", "released_too_much", walk(RELEASE, "node.saved = None if node.edges else ()")),
    ("own_autograd", "random", walk(ORDER, ORDER + "[:14]")),
    *unary("own_sigmoid", "sigmoid", "torch.sigmoid(a.data)", "out * (1 - out)"),
    ("own_sigmoid", "tanh", sigmoid("lambda g, out: (g * (1 - out * out),)")),
    ("own_sigmoid", "no_g", sigmoid("lambda g, out: (out * (1 - out),)")),
    ("own_sigmoid", "no_factor", sigmoid("lambda g, out: (g * out,)")),
    ("own_sigmoid", "no_out", sigmoid("lambda g, out: (g * (1 - out),)")),
    ("own_sigmoid", "sign", sigmoid("lambda g, out: (g * out * (out - 1),)")),
    ("own_sigmoid", "input", sigmoid("lambda g, x: (g * x * (1 - x),)", "(a.data,)")),
    ("own_sigmoid", "twice", sigmoid("lambda g, out: (g * out.sigmoid() * (1 - out.sigmoid()),)")),
    ("own_sigmoid", "keeps_more", sigmoid("lambda g, x, out: (g * out * (1 - out),)", "(a.data, out)")),
    ("own_sigmoid", "hidden", sigmoid("lambda g: (g * out * (1 - out),)", "()")),
    ("own_sigmoid", "hidden", sigmoid("lambda g, out=out: (g * out * (1 - out),)", "()")),
    ("own_sigmoid", "hidden", sigmoid("lambda g: (g * BOX[-1] * (1 - BOX[-1]),)", "BOX.append(out) or ()", "BOX = []")),
    ("own_sigmoid", "walk", walk(SUM, "part") + sigmoid("lambda g, out: (g * out * (1 - out),)")),
    ("own_sigmoid", "backward", sigmoid("lambda g, out: (g * 0,)")),
    ("own_sigmoid", "backward", sigmoid("lambda g, out: (g,)")),
    ("own_sigmoid", "backward", sigmoid("lambda g, out: ((g * out * (1 - out)).tolist(),)")),
    ("own_sigmoid", "backward", sigmoid("lambda g, out: (None,)")),
    *(("own_div", key, code) for key, code in NODES_OF_DIV),
    ("own_div", "none", div("lambda g, x, y: (g / y, None)")),
    ("own_div", "no_g", div("lambda g, x, y: (1 / y, -x / (y * y))")),
    ("own_div", "no_g", div("lambda g, x, y: (g / y, -x / (y * y))")),
    ("own_div", "swapped", div("lambda g, x, y: (-g * x / (y * y), g / y)")),
    ("own_div", "sign", div("lambda g, x, y: (g / y, g * x / (y * y))")),
    ("own_div", "square", div("lambda g, x, y: (g / y, -g * x / y)")),
    ("own_div", "sign_and_square", div("lambda g, x, y: (g / y, g * x / y)")),
    ("own_div", "like_mul", div("lambda g, x, y: (g * y, g * x)")),
    ("own_div", "no_a", div("lambda g, x, y: (g / y, -g / (y * y))")),
    ("own_div", "only_g", div("lambda g, x, y: (g, -g * x / (y * y))")),
    ("own_div", "keeps_more", div("lambda g, x, y, out: (g / y, -g * out / y)", "(a.data, b.data, out)")),
    ("own_div", "hidden", div("lambda g, y: (g / y, -g * a.data / (y * y))", "(b.data,)")),
    ("own_div", "walk", walk(SUM, "part") + div(RIGHT_DIV)),
    ("kept_bytes", "not_a_function", "answer = 192"),
    ("kept_bytes", "not_a_function", "answer = Value"),
    ("kept_bytes", "not_called", "def kept_bytes(function, *inputs):\n    return 192"),
    ("kept_bytes", "not_a_number", counted("return str(sum(sizes.values()))")),
    ("kept_bytes", "not_a_number", counted("return sizes")),
    ("kept_bytes", "not_an_int", counted("return torch.tensor(sum(sizes.values()))")),
    ("kept_bytes", "not_an_int", counted("return float(sum(sizes.values()))")),
    ("kept_bytes", "elements", counted("return sum(t.numel() for t in saved)")),
    ("kept_bytes", "tensors", counted("return len(sizes)")),
    (
        "kept_bytes",
        "four_bytes",
        count(("t.untyped_storage().nbytes() for", "4 * t.untyped_storage().nbytes() // t.element_size() for")),
    ),
    ("kept_bytes", "view", count(("t.untyped_storage().nbytes() for", "t.nbytes for"))),
    ("kept_bytes", "twice", counted(f"{GIVEN}return sum(t.nbytes {FRESH})")),
    ("kept_bytes", "twice", counted(f"{GIVEN}return sum(t.untyped_storage().nbytes() {FRESH})")),
    (
        "kept_bytes",
        "view_of_input",
        count(
            (
                "for t in saved}",
                "for t in saved if not any(t is x for x in inputs if x.is_leaf and x.requires_grad)}",
            ),
            (f"    for tensor in inputs:\n{LEAVES}(tensor.untyped_storage().data_ptr(), None)\n", ""),
        ),
    ),
    ("kept_bytes", "inputs_counted", count(("sizes.pop(tensor.untyped_storage().data_ptr(), None)", "pass"))),
    ("kept_bytes", "inputs_dropped", count((LEAVES, "        sizes.pop"))),
    ("kept_bytes", "inputs_dropped", count(("if tensor.is_leaf and tensor.requires_grad", "if tensor.requires_grad"))),
    ("kept_bytes", "data_dropped", count((" and tensor.requires_grad", ""))),
    ("kept_bytes", "sums_inputs", counted("return sum(x.nbytes for x in inputs)")),
    ("kept_bytes", "inputs_counted", counted("return sum(t.nbytes for t in saved)")),
    ("kept_bytes", "leaf_flag", count(("for t in saved}", "for t in saved if not t.is_leaf}"))),
    ("kept_bytes", "only_result", counted("return result.nbytes")),
    ("kept_bytes", "adds_up", counted("ALL.append(sum(sizes.values()))\n    return sum(ALL)") + "\nALL = []"),
    ("kept_bytes", "other", counted("return sum(sizes.values()) + 1")),
    ("kept_bytes", "changed_inputs", count(("    sizes =", "    inputs[0].data.add_(1)\n    sizes ="))),
    ("kept_bytes", "left_grad", count(("    sizes =", "    result.sum().backward(retain_graph=True)\n    sizes ="))),
    ("kept_bytes", "hooks_left_on", LEFT_ON),
    ("kept_bytes", "pack_gives_nothing", count(("        return tensor\n", ""))),
    ("kept_bytes", "graph_spoilt", count(("        return tensor\n", "        return tensor.nbytes\n"))),
    ("kept_bytes", "graph_spoilt", count(("lambda tensor: tensor", "lambda tensor: tensor[:1]"))),
    ("bug_data", "not_a_function", "answer = (torch.tensor(1.0), torch.ones(4, 2))"),
    ("bug_data", "not_two", step("shown = h.detach().clamp(max=2.0)", end="h.mean()")),
    ("bug_data", "not_two", step("shown = h.detach().clamp(max=2.0)", end="h.mean(), h, shown")),
    ("bug_data", "loss_no_scalar", step("shown = h.detach().clamp(max=2.0)", end="h, shown")),
    ("bug_data", "loss_no_scalar", step("shown = h.detach().clamp(max=2.0)", end="h.mean().item(), shown")),
    ("bug_data", "loss_cut", step("shown = h.clamp(max=2.0)", before="h = h.detach()")),
    ("bug_data", "loss_cut", "@torch.no_grad()" + step("shown = h.clamp(max=2.0)")),
    ("bug_data", "shown_no_tensor", step("shown = h.clamp(max=2.0).tolist()")),
    ("bug_data", "shown_no_tensor", step("shown = None")),
    ("bug_data", "shown_no_tensor", step("shown = h.detach().clamp(max=2.0)[0]")),
    ("bug_data", "data", step("shown = h.data", "shown.clamp_(max=2.0)")),
    (
        "bug_data",
        "data_loss",
        step("shown = h.data", before="h.data.clamp_(max=2.0)"),
    ),
    ("bug_data", "data_loss", step("shown = h.data", "shown.clamp_(max=2.0)", end="h.mean(), shown")),
    ("bug_data", "version_error", step("shown = h.detach()", "shown.clamp_(max=2.0)")),
    ("bug_data", "version_error", step("with torch.no_grad():", "    shown = h.clamp_(max=2.0)")),
    ("bug_data", "backward_fails", step("shown = h.detach().clamp(max=2.0)", "h.mean().backward()")),
    ("bug_data", "capped_in_graph", step("shown = h.detach()", before="h = h.clamp(max=2.0)")),
    ("bug_data", "gradient", step("shown = h.detach().clamp(max=2.0)", end="h.sum(), shown")),
    ("bug_data", "loss", step("shown = h.detach().clamp(max=2.0)", end="h.mean() + 1, shown")),
    ("bug_data", "not_capped", step("shown = h.detach().clone()")),
    ("bug_data", "not_capped", step("shown = h.detach().clamp(min=2.0)")),
    ("bug_data", "not_capped", step("shown = h.detach() > 2.0")),
    ("bug_data", "shown_in_graph", step("shown = h.clamp(max=2.0)")),
    ("bug_data", "changed_inputs", step("shown = h.detach().clamp(max=2.0)", "x.data.add_(1)")),
]
