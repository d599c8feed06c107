"""Inputs that public reports say break graph viewers: each gives a right graph and ledger, or one clear sentence."""

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

from helpers import RecordError, record
from helpers.data import dumps, kept_bytes, loads
from helpers.run import no_graph

from .looking import events, kept, leaves, line, node, nodes, of_recording, of_torch, saved, targets


def same_as_torch(recording, *roots):
    """The recorded graph is the one that torch shows of an unwatched run, and its JSON brings it back."""
    (graph,) = recording.graphs
    assert of_recording(recording, graph) == of_torch(*roots)
    assert loads(dumps(recording)) == recording


# ---------------------------------------------------------------- 1: subclasses


class Named(torch.Tensor):
    pass


def test_tensor_subclass():
    x = torch.ones(4).as_subclass(Named).requires_grad_()
    with record() as run:
        y = (x.exp() + torch.ones(4)).cos()
    r = run.recording
    same_as_torch(r, (x.exp() + torch.ones(4)).cos())
    assert saved(r, node(r, "ExpBackward0"))["result"].nbytes == 16
    assert leaves(r) == {("x",): ((4,), "float32", 16)}
    assert {line(r, n.place) for n in r.nodes if n.leaf is None} == {"y = (x.exp() + torch.ones(4)).cos()"}
    assert isinstance(y, Named)


def test_wrapper_subclass_counts_the_memory_of_what_it_wraps():
    x = TwoTensor(torch.ones(4), torch.ones(4)).requires_grad_()
    with record() as run:
        y = x * x
    r = run.recording
    one, other = saved(r, node(r, "MulBackward0")).values()
    assert one.storages == other.storages and len(one.storages) == 2
    assert [r.storages[s].nbytes for s in one.storages] == [16, 16]
    assert one.nbytes == 32 and leaves(r) == {("x",): ((4,), "float32", 32)}
    assert kept_bytes(r, parameters=True) == 32
    assert sum(s.nbytes for s in r.storages if "y" in s.names) == 32 and type(y) is TwoTensor


# ---------------------------------------------------------------- 2, 32, 33: many nodes


def test_lstm_cell_unrolled_160_times():
    cell, xs = nn.LSTMCell(4, 4), torch.ones(160, 2, 4)

    def unroll():
        h, c = torch.zeros(2, 4), torch.zeros(2, 4)
        for x in xs:
            h, c = cell(x, (h, c))
        return h.sum()

    run = record(unroll)
    r = run.recording
    same_as_torch(r, unroll())
    assert len(nodes(r, "ThnnFusedLstmCellBackward0")) + len(nodes(r, "TanhBackward0")) >= 160
    assert len([n for n in r.nodes if n.leaf]) == 4
    assert leaves(r)["weight_ih",] == ((16, 4), "float32", 256)


def test_sum_over_2000_terms():
    parts = [torch.ones(3, requires_grad=True) for _ in range(2000)]
    with record() as run:
        total = sum(parts)
    r = run.recording
    assert len(nodes(r, "AddBackward0")) == 2000 and len(leaves(r)) == 1  # no part has a name of its own
    assert len([n for n in r.nodes if n.leaf]) == 2000 and kept(r) == []
    assert total.tolist() == [2000] * 3


@pytest.mark.parametrize("length", [1_500, 100_000])
def test_long_chain(length):
    x = torch.ones(2, requires_grad=True)

    def chain():
        y = x
        for _ in range(length):
            y = y + 1
        return y.sum()

    with record() as run:
        y = chain()
        y.backward()
    r = run.recording
    (graph,) = r.graphs
    assert len(graph.nodes) == length + 2 and len(nodes(r, "AddBackward0")) == length
    assert len([e for e in r.events if e.kind == "run"]) == length + 1
    assert x.grad.tolist() == [1, 1]
    del y  # the nodes go now: no recursion there either, though Python has looked at every one
    gc.collect()


# ---------------------------------------------------------------- 3, 31: shared memory


def test_square_keeps_one_storage():
    a = torch.ones(5).requires_grad_() * 1.0
    with record() as run:
        b = a * a
    r = run.recording
    assert sorted(kept(r)) == [("MulBackward0", "other", 20), ("MulBackward0", "self", 20)]
    first, second = (s for s in r.saved if not s.scalar and r.nodes[s.node].names == ("b",))
    assert first.storages == second.storages and first.names == ("a",)
    assert kept_bytes(r) == 20 and b.shape == (5,)


def test_query_key_and_value_of_one_buffer():
    x, mix = torch.ones(1, 8, 16), nn.Linear(16, 48)
    with record() as run:
        q, k, v = mix(x).view(1, 8, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
    r = run.recording
    attention = next(n for n in r.nodes if n.name.startswith("ScaledDotProduct"))
    tensors = saved(r, attention)
    assert [tensors[a].nbytes for a in ("query", "key", "value")] == [8 * 16 * 4] * 3
    assert len({tensors[a].storages for a in ("query", "key", "value")}) == 1
    assert tensors["query"].names == ("q",) and tensors["value"].names == ("v",)
    (buffer,) = tensors["query"].storages
    assert r.storages[buffer].nbytes == 3 * 8 * 16 * 4
    own = sum(tensors[a].nbytes for a in tensors if a not in ("query", "key", "value"))
    assert kept_bytes(r) == 3 * 8 * 16 * 4 + x.nbytes + own and y.shape == (1, 2, 8, 8)


# ---------------------------------------------------------------- 4: custom Functions


class Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, None, y)
        ctx.gate = torch.sigmoid(x)
        return ctx.gate * y

    @staticmethod
    def backward(ctx, gradient):
        x, nothing, y = ctx.saved_tensors
        return gradient * y * ctx.gate * (1 - ctx.gate), gradient * ctx.gate


def test_custom_function_with_none_among_its_tensors():
    x, y = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    with record() as run:
        z = Gated.apply(x, y)
        z.sum().backward()
    r = run.recording
    gated = node(r, "GatedBackward")
    assert gated.kind == "custom" and targets(r, gated) == ["x", "y"] and gated.names == ("z",)
    tensors = saved(r, gated)
    assert {a: (s.names, s.nbytes, s.state) for a, s in tensors.items()} == {
        "tensors0": (("x",), 16, "released"),
        "tensors2": (("y",), 16, "released"),
        "attribute gate": ((), 16, "live"),  # torch does not release what was put on ctx
    }
    assert [s.state for s in (r.saved[i] for i in gated.saved) if s.position == 1] == ["never saved"]
    assert kept_bytes(r) == 16
    assert {e.phase for e in r.events[: gated.event + 2]} == {"forward"}
    assert r.storages[next(s.id for s in r.storages if s.names == ("z",))].category == "other"


# ---------------------------------------------------------------- 5: what is passed


def test_bound_method_and_module_are_calls():
    x, layer = torch.ones(3, requires_grad=True), nn.Linear(3, 2)
    r = record(x.mean).recording
    assert [n.name for n in r.nodes] == ["MeanBackward0", "AccumulateGrad"] and r.graphs[0].trigger == "end"
    r = record(layer, torch.ones(4, 3)).recording
    assert sorted(leaves(r)) == [("bias",), ("weight",)] and kept(r) == [("AddmmBackward0", "mat1", 48)]
    assert record(layer.forward, torch.ones(4, 3)).recording.graphs


# ---------------------------------------------------------------- 6, 26, 34: outputs


def test_outputs_of_every_kind():
    x, layer = torch.ones(2, 3), nn.Linear(3, 4)

    def step():
        y = layer(x)
        return {"a": y.sigmoid(), "b": (None, y.relu(), torch.ones(2)), "c": [1, "text", y.detach()]}

    r = record(step).recording
    (graph,) = r.graphs
    assert sorted(r.nodes[e.node].name for e in graph.roots) == ["ReluBackward0", "SigmoidBackward0"]
    assert {n.name: targets(r, n) for n in r.nodes if n.name == "AddmmBackward0"} == {
        "AddmmBackward0": ["bias", None, "TBackward0"]
    }
    assert sorted(kept(r)) == [("AddmmBackward0", "mat1", 24), ("ReluBackward0", "result", 32)] + [
        ("SigmoidBackward0", "result", 32)
    ]


def test_list_that_contains_itself():
    x = torch.ones(2, requires_grad=True)

    def step():
        results = [x * 2]
        results.append(results)
        return results

    r = record(step).recording
    assert [n.name for n in r.nodes] == ["MulBackward0", "AccumulateGrad"] and leaves(r).keys() == {("x",)}


def test_output_is_a_leaf():
    x = torch.ones(2, requires_grad=True)
    r = record(lambda: x).recording
    assert not r.graphs and "saw no operation of torch" in r.notes[-1]
    with record() as run:
        y = torch.ones(2, requires_grad=True)
    assert not run.recording.graphs and run.memory
    with pytest.raises(RecordError, match="no operation that needs a gradient"):
        run.graph  # noqa: B018
    assert y.is_leaf


def test_output_needs_no_gradient():
    x, w = torch.ones(2, 3), torch.ones(3, 2)
    with record() as run:
        loss = (x @ w).sum()
    assert not run.recording.graphs and loss == 12
    sentence = no_graph(run.recording)
    assert "`loss` (line" in sentence and "`x` and `w`" in sentence and "requires_grad=True" in sentence
    named = {s.names: s.nbytes for s in run.recording.storages if s.names}
    assert named == {("x",): 24, ("w",): 24, ("loss",): 4}


# ---------------------------------------------------------------- 7: already released


def test_everything_released_after_backward():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        y = (x.exp() * x.sin()).sum()
        y.backward()
    r = run.recording
    assert {s.state for s in r.saved} == {"released"}
    assert kept_bytes(r) == 32 and kept_bytes(r, len(r.events) - 1) == 0  # as backward began: exp's and sin's results


def test_half_released_through_a_shared_trunk():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        trunk = x.exp()
        first, second = trunk.sin().sum(), trunk.cos().sum()
        first.backward()
    r = run.recording
    states = {n.name: [s.state for s in saved(r, n).values()] for n in r.nodes if n.saved}
    assert states == {"ExpBackward0": ["released"], "SinBackward0": ["released"], "CosBackward0": ["live"]}
    assert kept(r, len(r.events) - 1) == [("CosBackward0", "self", 16)]

    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        with record() as again:
            second.backward()
    r = again.recording
    states = {n.name: [(s.state, s.kept) for s in saved(r, n).values()] for n in r.nodes if n.saved}
    assert states == {"CosBackward0": [("released", -1)], "ExpBackward0": [("released", -1)]}
    assert r.saved[node(r, "ExpBackward0").saved[0]].released == -1
    error = r.events[-1]
    assert error.kind == "error" and error.op == "ExpBackward0" and error.node == node(r, "ExpBackward0").id
    assert kept(r) == [("CosBackward0", "self", 16)] and [str(again), again.graph, again.kept, again.memory]


# ---------------------------------------------------------------- 8, 9, 10, 27: names


def test_names_of_a_state_dict():
    layer, x = nn.Linear(2, 3), torch.ones(4, 2)
    with record(names=layer.state_dict()) as run:
        F.linear(x, *layer.parameters()).sum().backward()
    assert leaves(run.recording) == {("weight",): ((3, 2), "float32", 24), ("bias",): ((3,), "float32", 12)}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(7, 5), nn.Linear(5, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def test_tied_weights_have_both_names():
    model, tokens = Tied(), torch.tensor([1, 2, 2])
    with record() as run:
        model(tokens).sum().backward()
    r = run.recording
    assert leaves(r) == {("embedding.weight", "head.weight"): ((7, 5), "float32", 140)}
    (leaf,) = (n for n in r.nodes if n.leaf)
    assert sum(e.node == leaf.id for n in r.nodes for e in n.edges) == 2 and leaf.leaf.parameter
    assert saved(r, node(r, "MmBackward0"))["mat2"].names == ("embedding.weight.t()", "head.weight.t()")
    assert [s.names for s in r.storages if s.category == "parameters"] == [leaf.leaf.names]


AWKWARD = 'w<1>|{x} "q" \\n \n'


def test_awkward_name():
    module = nn.Module()
    module.register_parameter(AWKWARD, nn.Parameter(torch.ones(2)))
    module.forward = lambda x: x * module.get_parameter(AWKWARD)
    run = record(module, torch.ones(2))
    r = run.recording
    assert leaves(r) == {(AWKWARD,): ((2,), "float32", 8)} and loads(dumps(r)) == r
    assert run.graph and run.kept and str(run)


def test_parameters_in_a_plain_list_have_no_names():
    weights = [torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)]
    with record() as run:
        y = weights[0] * weights[1]
    r = run.recording
    assert [n.leaf.names for n in r.nodes if n.leaf] == [(), ()] and len(r.storages) == 3
    assert {s.storages for s in r.saved} == {(0,), (1,)} and y.shape == (2,)


# ---------------------------------------------------------------- 11, 12, 13, 25, 29: operations


def test_cat_with_an_input_that_needs_no_gradient():
    x, c = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)
    with record() as run:
        y = torch.cat([c, x])
    r = run.recording
    same_as_torch(r, torch.cat([c, x]))
    assert targets(r, node(r, "CatBackward0")) == [None, "x"] and kept(r) == [] and y.shape == (4, 3)


def test_indexing_with_none_and_with_tensors():
    x, rows = torch.ones(4, 3, requires_grad=True), torch.tensor([0, 2])
    with record() as run:
        y = x[None, :, None, 1:]
        z = x[rows, None, rows]
    r = run.recording
    same_as_torch(r, *sorted([y, z], key=lambda t: t.grad_fn._sequence_nr()))
    index = saved(r, node(r, "IndexBackward0"))
    assert {a: (s.shape, s.dtype, s.nbytes, s.names, s.output) for a, s in index.items()} == {
        "indices0": ((2,), "int64", 16, ("rows",), False),
        "indices2": ((2,), "int64", 16, ("rows",), False),
    }
    assert kept_bytes(r) == 16 and y.shape == (1, 4, 1, 2) and z.shape == (2, 1)


def test_complex_scalar():
    x = torch.ones(3, dtype=torch.complex64, requires_grad=True)
    with record() as run:
        y = x * (2 + 3j)
        (y / 1.5j).abs().sum().backward()
    r = run.recording
    assert saved(r, node(r, "MulBackward0"))["other"].scalar == "(2+3j)"
    assert saved(r, node(r, "DivBackward0"))["other"].scalar == "1.5j"
    assert saved(r, node(r, "AbsBackward0"))["self"].nbytes == 24 and leaves(r)["x",] == ((3,), "complex64", 24)


def test_unbind_says_which_output_goes_where():
    x = torch.ones(3, 2, requires_grad=True)
    with record() as run:
        a, b, c = x.unbind()
        y = c * a
    r = run.recording
    unbind, product = node(r, "UnbindBackward0"), node(r, "MulBackward0")
    assert [(e.node, e.output) for e in product.edges] == [(unbind.id, 2), (unbind.id, 0)]
    assert [o.shape for o in unbind.outputs] == [(2,)] * 3 and unbind.names == ("a", "b", "c")
    assert {a: s.names for a, s in saved(r, product).items()} == {"self": ("c",), "other": ("a",)}
    assert b.shape == y.shape == (2,)


def test_masks_and_indices_count_their_own_dtypes():
    x, mask = torch.ones(8, 4, requires_grad=True), torch.ones(8, 4, dtype=torch.bool)
    with record() as run:
        first = torch.where(mask, x, 0.0)
        second = x.max(dim=0).values
        third = x.masked_fill(mask, 0.0)
    r = run.recording
    assert kept(r) == [
        ("WhereBackward0", "condition", 32),
        ("MaxBackward0", "indices", 4 * 8),
        ("MaskedFillBackward0", "mask", 32),
    ]
    assert saved(r, node(r, "MaxBackward0"))["indices"].output
    assert saved(r, node(r, "WhereBackward0"))["condition"].dtype == "bool"
    assert kept_bytes(r) == 32 + 32 and first.shape == third.shape and second.shape == (4,)


# ---------------------------------------------------------------- 14, 15: sparse and nested (must not break the code)


def test_sparse_matrix_product():
    matrix = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), check_invariants=True).requires_grad_()
    dense = torch.ones(2, 3, requires_grad=True)
    with record() as run:
        torch.sparse.mm(matrix, dense).sum().backward()
    r = run.recording
    tensors = saved(r, node(r, "SparseAddmmBackward0"))
    sizes = [r.storages[s].nbytes for s in tensors["mat1"].storages]
    assert sizes == [32, 8] and tensors["mat1"].nbytes == 40  # four indices and two values
    assert dense.grad.shape == (2, 3) and loads(dumps(r)) == r


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors(layout):
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout, requires_grad=True)
    with record() as run:
        y = x.sin() * 2
        z = y.to_padded_tensor(0.0) if layout == torch.strided else y.values()
        z.sum().backward()
    r = run.recording
    assert leaves(r).keys() == {("x",)} and x.grad is not None and loads(dumps(r)) == r
    first = saved(r, node(r, "SinBackward0"))["self"]
    assert r.storages[first.storages[0]].nbytes == 6 * 3 * 4 and run.graph and run.kept


# ---------------------------------------------------------------- 16: meta


def test_meta_tensors_of_4_gb():
    w = torch.empty(1 << 15, 1 << 15, device="meta", requires_grad=True)
    x = torch.empty(1 << 15, 1 << 15, device="meta")
    with record() as run:
        y = torch.relu(x @ w)
        y.sum().backward()
    r = run.recording
    assert kept(r) == [("MmBackward0", "self", 1 << 32), ("ReluBackward0", "result", 1 << 32)]
    assert kept_bytes(r) == 2 << 32 and leaves(r) == {("w",): ((1 << 15, 1 << 15), "float32", 1 << 32)}
    assert {s.device for s in r.storages} == {"meta"} and w.grad.device.type == "meta"


# ---------------------------------------------------------------- 17, 18, 19: in place, views


def test_saved_tensor_changed_in_place():
    x = torch.ones(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        with record() as run:
            y = x.exp()
            z = y * y
            y.add_(1)
            z.sum().backward()
    r = run.recording
    states = {(r.nodes[s.node].name, s.argument): s.state for s in r.saved if s.state != "never saved"}
    assert states == {
        ("ExpBackward0", "result"): "changed in place",
        ("MulBackward0", "self"): "changed in place",
        ("MulBackward0", "other"): "changed in place",
    }
    assert {line(r, r.events[s.changed].place) for s in r.saved if s.changed is not None} == {"y.add_(1)"}
    assert r.events[-1].kind == "error" and r.events[-1].op == "MulBackward0" and "inplace" in r.events[-1].note
    assert line(r, r.events[-1].place) == "z = y * y" and kept_bytes(r) == 16


def test_in_place_on_a_view():
    x = torch.ones(4, 4, requires_grad=True)

    def code():
        y = x * 3.0
        y[0].mul_(x[1])
        return y.sum()

    with record() as run:
        y = x * 3.0
        y[0].mul_(x[1])
        loss = y.sum()
    r = run.recording
    copy = node(r, "CopySlices")
    assert targets(r, node(r, "SumBackward0")) == ["CopySlices"]
    assert targets(r, copy) == ["MulBackward0", "SelectBackward0"]
    assert "hides what the operation inside it saved" in copy.note and line(r, copy.place) == "y[0].mul_(x[1])"
    assert r.events[copy.event].op == "aten.mul_" and r.events[copy.event].node == copy.id
    loss.backward()
    expected = x.grad.clone()
    x.grad = None
    code().backward()
    assert torch.equal(x.grad, expected)


def test_view_of_a_view():
    x = torch.ones(4, 4, requires_grad=True)
    with record() as run:
        y = (x * x).view(16)[2:10].view(2, 4)
    r = run.recording
    same_as_torch(r, (x * x).view(16)[2:10].view(2, 4))
    assert [(s.names, s.nbytes) for s in r.storages] == [(("x",), 64), (("y",), 64)] and y._is_view()


# ---------------------------------------------------------------- 20, 21, 22: hooks


@pytest.mark.parametrize("reentrant", [False, True])
def test_reading_a_checkpointed_graph_does_not_run_it_again(reentrant):
    layer, x, runs = nn.Linear(3, 3), torch.ones(2, 3, requires_grad=True), []

    def part(value):
        runs.append(1)
        return layer(value).tanh()

    with record() as run:
        y = checkpoint(part, x, use_reentrant=reentrant)
    assert len(runs) == 1 and run.kept and len(runs) == 1
    with record() as run:
        y = checkpoint(part, x, use_reentrant=reentrant)
        y.sum().backward()
    assert len(runs) == 3 and run.graph and run.kept and run.memory and len(runs) == 3
    r = run.recording
    assert [(g.trigger, g.parent) for g in r.graphs] == [("backward", None), ("backward", 0)][: 1 + reentrant]
    if not reentrant:
        tanh = saved(r, nodes(r, "TanhBackward0")[0])["result"]
        assert tanh.packed == "a note to compute it again (checkpoint)" and tanh.nbytes == 0 and tanh.storages == ()


def test_hooks_that_pack_and_one_that_raises():
    x, unpacked = torch.ones(4, requires_grad=True), []

    def unpack(packed):
        unpacked.append(packed)
        raise RuntimeError("it is lost")

    with pytest.raises(RuntimeError, match="it is lost"):
        with record() as run:
            with torch.autograd.graph.save_on_cpu():
                y = x.exp()
            with torch.autograd.graph.saved_tensors_hooks(lambda t: "a word", unpack):
                z = y.sin()
            z.sum().backward()
    r = run.recording
    assert unpacked == ["a word"]  # by the engine alone
    assert [(r.nodes[s.node].name, s.state, s.packed) for s in r.saved] == [
        ("ExpBackward0", "packed", "a tensor that a hook put in its place"),
        ("SinBackward0", "packed", "a str from a hook"),
    ]
    assert r.events[-1].op == "SinBackward0" and run.graph and run.kept


@pytest.mark.skipif(
    not hasattr(torch.autograd.Function, "clear_saved_tensors_on_access"), reason="torch: 2.12 brought one-read tensors"
)
def test_saved_tensors_that_may_be_read_once():
    class Once(torch.autograd.Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 2 * x * gradient

    x = torch.ones(4, requires_grad=True)
    with record() as run:
        Once.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2, 2]
    assert saved(run.recording, node(run.recording, "OnceBackward"))["tensors0"].state == "released"


# ---------------------------------------------------------------- 23: double backward


def test_double_backward():
    x = torch.ones(3, requires_grad=True)
    with record() as run:
        y = x.exp().sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        first.sum().backward()
    r = run.recording
    assert [(g.trigger, g.create_graph, g.retained) for g in r.graphs] == [
        ("grad", True, True),
        ("backward", False, False),
    ]
    one, two = r.graphs
    assert set(one.nodes) & set(two.nodes)  # the second goes on into the first
    made_in_backward = [n for n in r.nodes if n.event is not None and r.events[n.event].phase == "backward"]
    call = "(first,) = torch.autograd.grad(y, x, create_graph=True)"
    assert made_in_backward and {line(r, n.place) for n in made_in_backward} == {call}


def test_fourth_derivative_of_tanh():
    x = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    with record() as run:
        y = torch.tanh(x)
        for _ in range(4):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    r = run.recording
    t = torch.tanh(x.detach())
    assert torch.allclose(y, 8 * t * (1 - t**2) * (2 - 3 * t**2))
    assert [g.trigger for g in r.graphs] == ["grad"] * 4 and len(nodes(r, "TanhBackward0")) == 1
    assert len({g.roots[0].node for g in r.graphs}) == 4 and loads(dumps(r)) == r
    # What formulas of the second order call "output" is what the first order made, not their own result.
    assert not any(s.output for n in nodes(r, "TanhBackwardBackward0") for s in saved(r, n).values())


# ---------------------------------------------------------------- 28, 30: modules


class Thrice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(self.layer(self.layer(x)))


def test_one_module_used_three_times():
    model = Thrice()
    with record() as run:
        model(torch.ones(2, 3)).sum().backward()
    r = run.recording
    weight = next(n for n in r.nodes if n.leaf and n.leaf.names == ("layer.weight",))
    assert [n.name for n in r.nodes for e in n.edges if e.node == weight.id] == ["TBackward0"] * 3
    assert len([n for n in r.nodes if n.leaf]) == 2
    assert {n.module for n in nodes(r, "AddmmBackward0")} == {"layer"}
    accumulated = [e.accumulated for e in events(r, "accumulate") if e.accumulated.node == weight.id]
    assert [a.first for a in accumulated] == [True]


def test_autocast_keeps_copies_of_the_weights():
    layer, x = nn.Linear(8, 4), torch.ones(2, 8)
    with record() as run, torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
        z = layer(y.float() @ torch.ones(4, 8))
    r = run.recording
    first, second = nodes(r, "AddmmBackward0")
    weight = saved(r, second)["mat2"]
    (copy,) = weight.storages
    assert (weight.dtype, weight.nbytes) == ("bfloat16", 64)
    assert r.storages[copy].category != "parameters" and r.storages[copy].nbytes == 64
    assert leaves(r)["weight",] == ((4, 8), "float32", 128)
    casts = [n for n in nodes(r, "ToCopyBackward0") if targets(r, n) == ["weight"]]
    assert len(casts) == 1  # autocast casts a weight once
    assert saved(r, first)["mat1"].dtype == "bfloat16" and z.dtype == torch.bfloat16
