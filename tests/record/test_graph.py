"""The graph as data: nodes, edges, leaves, what is kept and in which state, who made it, step by step."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import record
from helpers.data import kept_at, kept_bytes, phases, state_at, timeline
from helpers.data.json_io import check

from .looking import events, kept, leaves, line, node, nodes, of_recording, of_torch, saved, targets

# ---------------------------------------------------------------- what one operation keeps

X, Y, POSITIVE = torch.ones(4, 6), torch.full((4, 6), 2.0), torch.full((4, 6), 0.5)
W, BIAS, TOKENS = torch.ones(6, 6), torch.ones(6), torch.tensor([1, 0, 3])

#: Operation on x (4 × 6, float32: 96 bytes) → what its nodes keep: (node, argument, bytes). Worked out by hand.
KEPT = {
    "relu": (lambda x: x.relu(), [("ReluBackward0", "result", 96)]),
    "sigmoid": (lambda x: x.sigmoid(), [("SigmoidBackward0", "result", 96)]),
    "tanh": (lambda x: x.tanh(), [("TanhBackward0", "result", 96)]),
    "exp": (lambda x: x.exp(), [("ExpBackward0", "result", 96)]),
    "log": (lambda x: x.log(), [("LogBackward0", "self", 96)]),
    "gelu": (F.gelu, [("GeluBackward0", "self", 96)]),
    "pow": (lambda x: x**3, [("PowBackward0", "self", 96)]),
    "x + y": (lambda x: x + Y, []),
    "x * y": (lambda x: x * Y, [("MulBackward0", "other", 96)]),
    "x * x": (lambda x: x * x, [("MulBackward0", "other", 96), ("MulBackward0", "self", 96)]),
    "x * 2": (lambda x: x * 2, []),
    "x / 2": (lambda x: x / 2, []),
    "matmul": (lambda x: x @ W, [("MmBackward0", "mat2", 144)]),
    "sum": (lambda x: x.sum(), []),
    "mean": (lambda x: x.mean(), []),
    "max": (lambda x: x.max(), [("MaxBackward1", "result", 4), ("MaxBackward1", "self", 96)]),
    "max(dim)": (lambda x: x.max(dim=1).values, [("MaxBackward0", "indices", 32)]),
    "softmax": (lambda x: x.softmax(-1), [("SoftmaxBackward0", "result", 96)]),
    "cat": (lambda x: torch.cat([x, Y]), []),
    "embedding": (lambda x: F.embedding(TOKENS, x), [("EmbeddingBackward0", "indices", 24)]),
    "layer_norm": (
        lambda x: F.layer_norm(x, (6,)),
        [
            ("NativeLayerNormBackward0", "input", 96),
            ("NativeLayerNormBackward0", "result1", 16),  # mean and 1/deviation of each of the 4 rows
            ("NativeLayerNormBackward0", "result2", 16),
        ],
    ),
    "dropout": (lambda x: F.dropout(x, 0.5), [("MulBackward0", "other", 96)]),  # on a CPU the mask is as wide as x
}


@pytest.mark.parametrize("name", KEPT)
def test_what_an_operation_keeps(name):
    operation, expected = KEPT[name]
    x = torch.full((4, 6), 0.5, requires_grad=True)
    with record() as run:
        y = operation(x)
    r = run.recording
    assert sorted(kept(r)) == expected
    assert of_recording(r, r.graphs[0]) == of_torch(operation(x))
    results = {s.output for s in r.saved if s.argument.startswith(("result", "indices")) and s.state == "live"}
    assert results == (
        {name != "embedding"} if any(a.startswith(("result", "indices")) for _, a, _ in expected) else set()
    )
    assert y is not None


def test_numbers_are_saved_without_memory_of_their_own():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        y = x * 2
        z = y / 0.5
        torch.sum(z, 0).backward()
    r = run.recording
    number = saved(r, node(r, "MulBackward0"))["other"]
    assert (number.scalar, number.nbytes, number.storages, number.state) == ("2", 0, (), "released")
    assert saved(r, node(r, "DivBackward0"))["other"].scalar == "0.5" and kept_bytes(r) == 0
    scalars = {s.name: s.value for s in node(r, "SumBackward1").scalars}
    assert scalars["dim"] == "(0)" and scalars["keepdim"] == "False"


def test_a_tensor_of_no_dimension_is_no_number():
    x, scale = torch.ones(4, requires_grad=True), torch.tensor(3.0)
    with record() as run:
        y = x * scale
    r = run.recording
    other = saved(r, node(r, "MulBackward0"))["other"]
    assert (other.scalar, other.nbytes, other.names) == ("", 4, ("scale",)) and kept_bytes(r) == 4 and y.shape == (4,)


# ---------------------------------------------------------------- the first examples of the course


def test_relu_layer():
    x, W, b = torch.randn(32, 64), torch.randn(16, 64, requires_grad=True), torch.randn(16, requires_grad=True)
    with record() as run:
        y = torch.relu(x @ W.t() + b)
    r = run.recording
    assert of_recording(r, r.graphs[0]) == of_torch(torch.relu(x @ W.t() + b))
    assert kept(r) == [("MmBackward0", "self", 8192), ("ReluBackward0", "result", 2048)] and kept_bytes(r) == 10240
    assert {s.argument: s.names for s in kept_at(r)} == {"self": ("x",), "result": ("y",)}
    assert leaves(r) == {("W",): ((16, 64), "float32", 4096), ("b",): ((16,), "float32", 64)}
    assert node(r, "ReluBackward0").names == ("y",) and targets(r, node(r, "MmBackward0")) == [None, "TBackward0"]
    assert [(s.nbytes, s.freed is None) for s in r.storages if s.op in ("aten.mm", "aten.add")] == [(2048, False)] * 2
    assert {line(r, n.place) for n in r.nodes if not n.leaf} == {"y = torch.relu(x @ W.t() + b)"} and y.shape == (
        32,
        16,
    )


def test_product_of_two():
    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with record() as run:
        z = x * y
        z.backward(torch.ones(3))
    r = run.recording
    product = node(r, "MulBackward0")
    assert targets(r, product) == ["x", "y"] and r.graphs[0].roots[0].node == product.id
    # The gradient of x needs y, and the other way round: both are leaves, alive anyway.
    assert {a: s.names for a, s in saved(r, product).items()} == {"self": ("x",), "other": ("y",)}
    assert kept_bytes(r) == 0 and kept_bytes(r, parameters=True) == 24
    kinds = [e.kind for e in r.events if e.kind not in ("op", "free")]
    assert kinds == ["enter", "run", "release", "accumulate", "accumulate", "leave"]


def test_linear_and_the_same_spelled_out_keep_the_same():
    layer, x = nn.Linear(8, 4), torch.ones(2, 8)
    whole = record(lambda: layer(x).relu()).recording
    spelled = record(lambda: (x @ layer.weight.t() + layer.bias).relu()).recording
    assert kept_bytes(whole) == kept_bytes(spelled) == 2 * 8 * 4 + 2 * 4 * 4
    assert [n.name for n in whole.nodes if "Mm" in n.name or "mm" in n.name] == ["AddmmBackward0"]
    assert {n.name for n in spelled.nodes} >= {"MmBackward0", "AddBackward0"}


# ---------------------------------------------------------------- states


def test_states_over_time():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        y = x.exp()
        y.sum().backward()
    r = run.recording
    (tensor,) = (s for s in r.saved)
    made, release = node(r, "ExpBackward0").event, events(r, "release")[0].index
    assert [state_at(tensor, m) for m in (made - 1, made, release - 1, release)] == [None, "live", "live", "released"]
    assert r.events[made].kept == (tensor.id,) == r.events[release].released


def test_retain_graph_releases_nothing():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        loss = x.exp().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    r = run.recording
    assert [(g.retained, g.create_graph) for g in r.graphs] == [(True, False), (False, False)]
    assert [e.note for e in events(r, "enter")] == ["retain_graph", ""]
    assert [e.graph for e in events(r, "release")] == [1] and r.graphs[0].nodes == r.graphs[1].nodes
    assert [(a.first, a.in_place) for a in (e.accumulated for e in events(r, "accumulate"))] == [
        (True, False),
        (False, True),
    ]


def test_graph_dropped_without_backward():
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    with record() as run:
        for _ in range(3):
            y = model(x).tanh()
    r = run.recording
    results = [saved(r, n)["result"] for n in nodes(r, "TanhBackward0")]
    assert [s.state for s in results] == ["released", "released", "live"]
    # A new result is made before the old one goes: rebinding frees the graph before.
    assert [r.events[s.released].kind for s in results[:2]] == ["free", "free"] and y.shape == (2, 4)
    assert results[0].released > results[1].kept - 1
    (graph,) = r.graphs
    assert [r.nodes[e.node].name for e in graph.roots] == ["TanhBackward0"] and len(graph.nodes) == 5
    assert kept_bytes(r) == x.nbytes + 32


def test_saved_before_the_recording():
    x = torch.ones(4, requires_grad=True)
    y = x.exp() * x.sin()
    with record() as run:
        y.sum().backward()
    r = run.recording
    states = [(r.nodes[s.node].name, s.kept, s.state) for s in r.saved]
    assert {s[1:] for s in states} == {(-1, "released")} and len(states) == 4
    assert kept_bytes(r) == 32 and node(r, "ExpBackward0").place is None and node(r, "ExpBackward0").event is None


# ---------------------------------------------------------------- who is needed


def test_gradient_of_one_input_only():
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with record() as run:
        loss = (x.sin() * w.exp()).sum()
        torch.autograd.grad(loss, x)
    r = run.recording
    (graph,) = r.graphs
    assert graph.trigger == "grad"
    pruned = {r.nodes[n].name for n in graph.pruned}
    assert "ExpBackward0" in pruned and pruned <= {"ExpBackward0", "AccumulateGrad"}
    assert {n.name: {s.state for s in saved(r, n).values()} for n in r.nodes if n.saved} == {
        "MulBackward0": {"released"},
        "SinBackward0": {"released"},
        "ExpBackward0": {"live"},  # not needed, so not released
    }
    assert not events(r, "accumulate") and x.grad is None


def test_backward_to_some_inputs():
    x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    with record() as run:
        (x.sin() * w.exp()).sum().backward(inputs=[w])
    r = run.recording
    assert r.graphs[0].trigger == "backward" and "SinBackward0" in {r.nodes[n].name for n in r.graphs[0].pruned}
    assert [r.nodes[e.accumulated.node].leaf.names for e in events(r, "accumulate")] == [("w",)]
    assert x.grad is None and w.grad is not None


def test_accumulating_over_micro_batches():
    model = nn.Linear(4, 2)
    with record() as run:
        for rows in torch.ones(6, 4).split(2):
            loss = model(rows).sum()
            loss.backward()
    r = run.recording
    assert [g.trigger for g in r.graphs] == ["backward"] * 3
    added = [(e.accumulated.first, e.accumulated.in_place) for e in events(r, "accumulate")]
    assert sorted(added[:2]) == [(True, False)] * 2 and added[2:] == [(False, True)] * 4
    gradients = [
        s
        for s in r.storages
        if s.freed is None and s.id in {i for e in events(r, "accumulate") for i in e.accumulated.storages}
    ]
    assert sorted(s.nbytes for s in gradients) == [8, 32]
    assert len({leaf for g in r.graphs for leaf in g.nodes if r.nodes[leaf].leaf}) == 2


def test_gradients_of_a_detached_twin_are_its_own():
    x = torch.ones(4, requires_grad=True)
    twin = x.detach().requires_grad_()
    with record() as run:
        (twin * 2).sum().backward()
        (x * 3).sum().backward()
        (x * 3).sum().backward()
    added = [(e.accumulated.first, e.accumulated.in_place) for e in events(run.recording, "accumulate")]
    assert added == [(True, False), (True, False), (False, True)] and twin.grad is not x.grad


# ---------------------------------------------------------------- passes within passes


def test_reentrant_checkpoint_is_a_pass_inside_a_pass():
    layer, x = nn.Linear(3, 3), torch.ones(2, 3, requires_grad=True)
    with record() as run:
        y = checkpoint(layer, x, use_reentrant=True)
        y.sum().backward()
    r = run.recording
    outer, inner = r.graphs
    assert (outer.parent, inner.parent) == (None, outer.id) and inner.event > outer.event
    leave = [e.graph for e in events(r, "leave")]
    assert leave == [inner.id, outer.id]
    function = node(r, "CheckpointFunctionBackward")
    assert function.kind == "custom" and function.id in outer.nodes and function.id not in inner.nodes
    weight = [n for n in r.nodes if n.leaf and n.leaf.names == ("weight",)]
    assert len(weight) == 1 and weight[0].id in inner.nodes and weight[0].id not in outer.nodes
    assert len(events(r, "accumulate")) == 4  # weight, bias, the detached x inside, x


def test_checkpoint_recomputes_inside_its_own_modules():
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.ones(2, 3, requires_grad=True)
    with record() as run:
        checkpoint(model, x, use_reentrant=False).sum().backward()
    r = run.recording
    products = [e for e in events(r, "op") if e.op == "aten.addmm"]
    assert [(e.phase, e.module) for e in products] == [("forward", "0"), ("backward", "0")]


# ---------------------------------------------------------------- phases


def test_optimizer_phases_and_state():
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    with record() as run:
        for _ in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    r = run.recording
    order = [p for p, _, _ in phases(r) if p != "between"]
    assert order == ["forward", "backward", "step"] * 2
    assert [(e.note, line(r, e.place)) for e in events(r, "step")] == [("AdamW", "optimizer.step()")] * 2
    state = [s for s in r.storages if s.category == "optimizer state" or ("optimizer state" in moves(r, s.id))]
    held = {t.untyped_storage()._cdata: t.nbytes for p in optimizer.state.values() for t in p.values()}
    assert sorted(s.nbytes for s in state) == sorted(held.values())
    assert {e.phase for e in r.events if "foreach" in e.op or "sqrt" in e.op} <= {"step"}


def moves(r, storage):
    return [category for e in r.events for s, category in e.moved if s == storage]


def test_closure_of_lbfgs():
    w = torch.ones(3, requires_grad=True)
    optimizer, calls = torch.optim.LBFGS([w], max_iter=3), []

    def closure():
        optimizer.zero_grad()
        loss = (w**4).sum()
        loss.backward()
        calls.append(loss.item())
        return loss

    with record() as run:
        optimizer.step(closure)
    r = run.recording
    assert len(r.graphs) == len(calls) > 1 and events(r, "step")[0].note == "LBFGS" and len(events(r, "stepped")) == 1
    assert {line(r, n.place, inner=True) for n in nodes(r, "PowBackward0")} == {"loss = (w**4).sum()"}
    inside = r.events[events(r, "step")[0].index : events(r, "stepped")[0].index]
    assert {"forward", "backward", "step"} <= {e.phase for e in inside}


def test_code_without_gradients():
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    with record(graph=False) as run, torch.no_grad():
        y = model(x).relu()
    r = run.recording
    assert not r.graphs and not r.nodes and {e.phase for e in r.events} == {"forward"}
    assert [(s.op, s.nbytes) for s in r.storages if s.born >= 0] == [("aten.addmm", 32), ("aten.relu", 32)]
    assert y.shape == (2, 4)


def test_data_loading_lies_between():
    model = nn.Linear(4, 1)
    with record() as run:
        x = torch.zeros(8, 4) + 1
        loss = model(x).sum()
        loss.backward()
    r = run.recording
    assert [e.phase for e in events(r, "op")][:2] == ["between", "between"]
    (data,) = (s for s in r.storages if s.names == ("x",))
    assert data.category == "other" and moves(r, data.id)[0] in ("kept for backward", "inputs")
    assert moves(r, data.id)[-1] == "inputs"  # once backward has let it go


# ---------------------------------------------------------------- errors in the middle


def test_error_inside_a_formula():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("no gradient today")

    x = torch.ones(4, requires_grad=True)
    with pytest.raises(ValueError, match="no gradient today"):
        with record() as run:
            y = Broken.apply(x.exp())
            y.sin().sum().backward()
    r = run.recording
    error, broken = r.events[-1], node(r, "BrokenBackward")
    assert (error.kind, error.note) == ("error", "ValueError: no gradient today")
    assert (error.phase, error.op, error.node, error.graph) == ("backward", "BrokenBackward", broken.id, 0)
    assert line(r, error.place) == "y = Broken.apply(x.exp())"
    ran = [e.op for e in events(r, "run")]
    assert ran == ["SumBackward0", "SinBackward0"]
    states = {n.name: [s.state for s in saved(r, n).values()] for n in r.nodes if n.saved}
    assert states == {"SinBackward0": ["released"], "BrokenBackward": ["live"], "ExpBackward0": ["live"]}
    assert [e.kind for e in r.events].count("error") == 1 and x.grad is None


def test_error_in_forward():
    x = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError) as caught:
        with record() as run:
            y = x.exp()
            z = y @ x  # noqa: F841
    r = run.recording
    assert (
        r.events[-1].note == f"RuntimeError: {caught.value}"
        and line(r, r.events[-1].place) == "z = y @ x  # noqa: F841"
    )
    assert r.events[-1].phase == "forward" and r.events[-1].graph is None


def test_error_that_the_code_catches():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        loss = x.exp().sum()
        loss.backward()
        try:
            loss.backward()
        except RuntimeError:
            pass
        x.sin().sum().backward()
    r = run.recording
    assert not events(r, "error") and [g.trigger for g in r.graphs] == ["backward"] * 3
    assert [e.graph for e in events(r, "leave")] == [0, 2]
    assert line(r, r.graphs[2].place) == "x.sin().sum().backward()" and r.graphs[2].parent is None


# ---------------------------------------------------------------- modules and names


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.mix, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.mix(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Gpt(nn.Module):
    def __init__(self, layers, width=16, heads=2, vocabulary=32, length=8):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def test_every_node_of_a_gpt_is_owned_by_a_module():
    model, tokens = Gpt(layers=12), torch.zeros(2, 8, dtype=torch.long)
    with record() as run:
        logits = model(tokens)
    r = run.recording
    operations = [n for n in r.nodes if not n.leaf]
    assert of_recording(r, r.graphs[0]) == of_torch(model(tokens))
    assert len(operations) > 300 and all(n.place is not None for n in operations)
    paths = {path for path, _ in model.named_modules()}
    named = {n.module for n in operations} - {"Gpt"}
    assert named <= paths and {f"blocks.{i}.attention" for i in range(12)} <= named and logits.shape == (2, 8, 32)
    owners = {n.name: n.module for n in operations if n.module.startswith("blocks.3.")}
    assert owners["GeluBackward0"] == "blocks.3.mlp.1" and owners["UnbindBackward0"] == "blocks.3.attention"
    own = {n.name for n in operations if n.module == "Gpt"}
    assert own == {"AddBackward0"}
    names = {n.leaf.names for n in r.nodes if n.leaf}
    expected = {(name,) for name, _ in model.named_parameters() if name != "tokens.weight"}
    assert names == expected | {("tokens.weight", "head.weight")}


def test_two_root_modules():
    encoder, decoder = nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 4))
    with record() as run:
        loss = decoder(encoder(torch.ones(3, 4))).sum()
        loss.backward()
    r = run.recording
    names = [("decoder.0.bias",), ("decoder.0.weight",), ("encoder.bias",), ("encoder.weight",)]
    assert sorted(leaves(r)) == names
    assert [n.module for n in nodes(r, "AddmmBackward0")] in (["decoder.0", "encoder"], ["encoder", "decoder.0"])


def test_functional_call_names_the_tensors_that_took_part():
    model, x = nn.Linear(2, 3), torch.ones(4, 2)
    fast = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    with record() as run:
        y = torch.func.functional_call(model, fast, (x,))
        y.sum().backward()
    r = run.recording
    assert leaves(r) == {("weight",): ((3, 2), "float32", 24), ("bias",): ((3,), "float32", 12)}
    assert fast["weight"].grad is not None and model.weight.grad is None
    assert not any(n.leaf.parameter for n in r.nodes if n.leaf)


def test_names_of_variables():
    x, W, b = torch.ones(4, 3), torch.ones(3, 2, requires_grad=True), torch.ones(2, requires_grad=True)
    with record() as run:
        y = x @ W
        z = y + b
        loss = z.pow(2).mean()
        loss.backward()
    r = run.recording
    assert {n.name: n.names for n in r.nodes if n.names} == {
        "MmBackward0": ("y",),
        "AddBackward0": ("z",),
        "MeanBackward0": ("loss",),
    }
    assert {s.names for s in r.storages if s.names} == {("x",), ("W",), ("b",), ("y",), ("z",), ("loss",)}
    assert saved(r, node(r, "PowBackward0"))["self"].names == ("z",)


SCALE = torch.full((3,), 2.0, requires_grad=True)


def scaled(x):
    return (x * SCALE).sum()


def test_names_of_variables_outside_the_function():
    inner = torch.ones(3, requires_grad=True)

    def step():
        y = inner.exp()
        return scaled(y)

    r = record(scaled, torch.ones(3)).recording
    assert leaves(r) == {("SCALE",): ((3,), "float32", 12)}
    assert saved(r, node(r, "MulBackward0"))["self"].names == ("x",)
    assert ("inner",) in leaves(record(step).recording)


def test_views_of_a_variable_are_named_after_it():
    x, w = torch.ones(4, 6), torch.ones(6, 4, requires_grad=True)
    with record() as run:
        y = x[:2] @ w
        z = x.view(6, 4) * w
    r = run.recording
    (left,) = saved(r, node(r, "MmBackward0")).values()
    (other,) = saved(r, node(r, "MulBackward0")).values()
    assert left.names == ("part of x",) and left.nbytes == 2 * 6 * 4
    assert other.names == ("x reshaped",) and other.nbytes == 96
    assert kept_bytes(r) == x.nbytes and y.shape == (2, 4) and z.shape == (6, 4)


def test_lazy_modules():
    model, x = nn.Sequential(nn.LazyLinear(3), nn.ReLU()), torch.ones(2, 5)
    with record() as run:
        model(x).sum().backward()
    r = run.recording
    assert leaves(r) == {("0.weight",): ((3, 5), "float32", 60), ("0.bias",): ((3,), "float32", 12)}


# ---------------------------------------------------------------- end of a block without backward


def test_roots_are_what_nothing_consumed():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        a = x.exp()
        b, c = a.sin(), a.cos()
    r = run.recording
    (graph,) = r.graphs
    assert graph.trigger == "end" and graph.event is None
    assert sorted(r.nodes[e.node].name for e in graph.roots) == ["CosBackward0", "SinBackward0"]
    assert b.shape == c.shape


def test_graphs_from_before_are_left_out():
    x = torch.ones(4, requires_grad=True)
    earlier = x.exp()
    with record() as run:
        later = x.sin()
    assert [n.name for n in run.recording.nodes] == ["SinBackward0", "AccumulateGrad"]
    assert earlier.shape == later.shape
    gc.collect()


def test_what_ran_before_an_error_has_its_graph():
    x = torch.ones(4, requires_grad=True)
    with pytest.raises(ZeroDivisionError), record() as run:
        y = x.exp()
        raise ZeroDivisionError
    (graph,) = run.recording.graphs
    assert graph.trigger == "end" and [r.node for r in graph.roots] == [nodes(run.recording, "ExpBackward0")[0].id]
    assert nodes(run.recording, "ExpBackward0")[0].names == ("y",) and y.shape == (4,)


def test_a_leaf_as_the_root_of_backward():
    w = torch.ones(3, requires_grad=True)
    with record() as run:
        w.backward(torch.ones(3))
    (graph,) = run.recording.graphs
    (accumulated,) = events(run.recording, "accumulate")
    assert [r.node for r in graph.roots] == [accumulated.node] == list(graph.nodes) and not graph.pruned
    assert accumulated.accumulated.first


def test_a_gradient_edge_as_the_root_of_backward():
    w = torch.ones(3, requires_grad=True)
    y = (w * w).sum()
    with record() as run:
        torch.autograd.backward([torch.autograd.graph.get_gradient_edge(y)], [torch.ones(())])
    assert [n.name for n in run.recording.nodes] == ["SumBackward0", "MulBackward0", "AccumulateGrad"]


# ---------------------------------------------------------------- names of parts, of transposes, of recomputed tensors


def test_parts_of_a_model_called_in_a_loop_have_the_models_paths():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.ones(2, 4)
    with record() as run:
        h = x
        for layer in model:
            h = layer(h)
    assert sorted(leaves(run.recording)) == [("0.bias",), ("0.weight",), ("1.bias",), ("1.weight",)]
    assert [n.module for n in nodes(run.recording, "AddmmBackward0")] == ["0", "1"] and h.shape == (2, 4)


@pytest.mark.parametrize(("rows", "columns"), [(4, 6), (5, 5), (8, 1)])
def test_a_transposed_weight_is_named_so(rows, columns):
    """Square weights and columns too, where the shape alone does not tell."""
    weight = torch.ones(rows, columns, requires_grad=True)
    x = torch.ones(2, columns, requires_grad=True)
    with record() as run:
        x @ weight.t() + 1
        turned = (x @ weight.t()).sum()
        turned.backward()
    assert {s.names for s in run.recording.saved if s.argument == "mat2" and s.kept is not None} == {("weight.t()",)}


def test_a_reshaped_tensor_is_named_so():
    x = torch.ones(8, 1, requires_grad=True)
    with record() as run:
        y = x.reshape(1, 8).exp().log()
        z = x.reshape(1, 8) ** 3
    assert {s.names for s in run.recording.saved if s.node == nodes(run.recording, "PowBackward0")[0].id} == {
        ("x reshaped",)
    }
    assert y.shape == z.shape


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_checkpoint_computes_again_is_kept_until_it_was_used(reentrant):
    block = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh())
    x = torch.ones(16, 32, requires_grad=True)
    with record() as run:
        checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    line_ = timeline(run.recording)
    inside = [line_.at(e.index)["kept for backward"] for e in run.recording.events if e.phase == "backward"]
    first, second, random_state = 16 * 64 * 4, 16 * 32 * 4, torch.get_rng_state().nbytes
    if reentrant:
        assert max(inside) == first + second + random_state
    else:
        # Torch breaks off while it saves the last result that it needs: that node is never made, and nothing shows it.
        assert max(inside) == first
        assert inside[-1] == 0
    assert all(s.released is not None for s in run.recording.saved if s.storages and "attribute" not in s.argument)


class MaskedRelu(torch.autograd.Function):
    """Makes what it keeps after the operation by which its node is known."""

    @staticmethod
    def forward(ctx, x):
        doubled = x * 2
        mask = doubled > 0
        ctx.save_for_backward(mask)
        return doubled * mask

    @staticmethod
    def backward(ctx, gradient):
        (mask,) = ctx.saved_tensors
        return gradient * mask * 2


def test_what_a_custom_function_makes_late_is_kept_no_earlier_than_it_is_there():
    x = torch.ones(8, requires_grad=True)
    with record() as run:
        MaskedRelu.apply(x).sum().backward()
    recording = run.recording
    check(recording)
    (saved,) = [s for n in recording.nodes if n.kind == "custom" for s in (recording.saved[i] for i in n.saved)]
    (storage,) = (recording.storages[i] for i in saved.storages)
    assert recording.events[storage.born].op == "aten.gt" and saved.kept == storage.born
    assert timeline(recording).at(saved.kept)["kept for backward"] == 8
