"""CUDA's choices: what each switch changes, in bytes that an equation gives."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from helpers import as_if_on_gpu
from helpers.data import kept_bytes, timeline
from helpers.gpu import CUBLAS_WORKSPACE, HOPPER_WORKSPACE, Choices
from helpers.gpu.choices import _rms_norm_backward
from helpers.gpu.private import overload
from helpers.record import RecordError

BF16, HALF, SINGLE, DOUBLE = torch.bfloat16, torch.float16, torch.float32, torch.float64
FLASH, EFFICIENT = "aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_efficient_attention"


def meta(*shape, dtype=SINGLE, grad=True):
    return torch.empty(*shape, dtype=dtype, device="meta").requires_grad_(grad)


def watch(step, **choices):
    return as_if_on_gpu(step, **{"workspace": 0} | choices).recording


def ops(recording):
    return [e.op for e in recording.events if e.kind == "op"]


def kept(step, **choices):
    """Bytes of what a step that gives its result keeps for backward, without what it was given."""
    recording = watch(step, **choices)
    given = sum(s.nbytes for s in recording.storages if s.born < 0)
    return sum(timeline(recording).at(len(recording.events) - 1).values()) - given


def made(recording, op):
    """(bytes, dtype) of all that an operation allocates."""
    storages = [recording.storages[i] for e in recording.events if e.op == op for i in e.allocated]
    return sorted((s.nbytes, s.dtype) for s in storages)


# ---------------------------------------------------------------- the switches themselves


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"attention": "fast"}, "attention is one of 'auto', 'flash', 'efficient', 'math', not 'fast'."),
        ({"attention": True}, "attention is one of 'auto', 'flash', 'efficient', 'math', not True."),
        ({"foreach": None}, "foreach is a switch, True or False, not None."),
        ({"dropout": 0.1}, "dropout is a switch, True or False, not 0.1."),
        ({"rms_norm": "fused"}, "rms_norm is a switch, True or False, not 'fused'."),
        ({"autocast": "bf16"}, "autocast is a switch, True or False, not 'bf16'."),
        ({"workspace": -1}, "workspace is a number of bytes, 0 for none, not -1."),
        ({"workspace": True}, "workspace is a number of bytes, 0 for none, not True."),
        ({"workspace": 1.5}, "workspace is a number of bytes, 0 for none, not 1.5."),
    ],
    ids=str,
)
def test_a_choice_that_there_is_not(wrong, said):
    with pytest.raises(ValueError) as raised:
        as_if_on_gpu(lambda: None, **wrong)
    assert str(raised.value) == said
    with pytest.raises(ValueError), as_if_on_gpu(**wrong):
        pass
    assert as_if_on_gpu(lambda: meta(3).exp()).recording.events  # the next one runs


def test_workspaces_of_cards():
    assert CUBLAS_WORKSPACE == 2 * 4096 * 1024 + 8 * 16 * 1024 == 8_519_680
    assert HOPPER_WORKSPACE == 32 * 2**20 == 33_554_432
    assert Choices().workspace == CUBLAS_WORKSPACE


# ---------------------------------------------------------------- attention

B, H, L, D = 2, 4, 64, 32
LSE = 4 * B * H * L  # one float32 a row


def inputs(dtype=BF16, heads=H, length=L, width=D, batch=B):
    return meta(B, H, L, width, dtype=dtype), *(meta(batch, heads, length, width, dtype=dtype) for _ in range(2))


def attention(*qkv, **options):
    return lambda: F.scaled_dot_product_attention(*qkv, **options)


def kernel(step, **choices):
    """Which kernel ran; "math" for matrix products."""
    seen = [op for op in ops(watch(step, **choices)) if op in (FLASH, EFFICIENT)]
    assert len(seen) <= 1
    return {FLASH: "flash", EFFICIENT: "efficient"}.get(*seen, "") if seen else "math"


def mask(dtype=torch.bool, *shape):
    return torch.ones(shape or (L, L), dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("step", "taken"),
    [
        (attention(*inputs(BF16)), "flash"),
        (attention(*inputs(HALF)), "flash"),
        (attention(*inputs(SINGLE)), "efficient"),
        (attention(*inputs(DOUBLE)), "math"),
        (attention(*inputs(BF16), is_causal=True), "flash"),
        (attention(*inputs(BF16), dropout_p=0.1), "flash"),
        (attention(*inputs(BF16), attn_mask=mask()), "efficient"),
        (attention(*inputs(BF16), attn_mask=mask(BF16)), "efficient"),
        (attention(*inputs(BF16), attn_mask=mask(torch.bool, B, 1, 1, L)), "efficient"),
        (attention(*inputs(DOUBLE), attn_mask=mask()), "math"),
        (attention(*inputs(BF16, width=36)), "flash"),  # padded
        (attention(*inputs(SINGLE, width=36)), "efficient"),  # 4 divides it
        (attention(*inputs(SINGLE, width=34)), "math"),
        (attention(*inputs(BF16, width=36), attn_mask=mask()), "math"),  # 8 does not
        (attention(*inputs(BF16, width=256)), "flash"),
        (attention(*inputs(BF16, width=264)), "efficient"),
        (attention(*inputs(BF16, heads=2), enable_gqa=True), "flash"),
        (attention(*inputs(SINGLE, heads=2), enable_gqa=True), "math"),
        (attention(*inputs(BF16, length=48)), "flash"),
        (attention(*inputs(BF16, length=48), is_causal=True), "efficient"),  # flash takes square ones alone
        (attention(*inputs(BF16, batch=1)), "math"),  # no kernel repeats a batch
        (attention(*inputs(BF16, heads=1)), "math"),
        (attention(*(meta(B, L, D, dtype=BF16) for _ in range(3))), "math"),  # 3 dimensions
        (attention(*(meta(B, H, D, L, dtype=BF16).transpose(2, 3) for _ in range(3))), "math"),  # strided
        (attention(*(meta(B, L, H, D, dtype=BF16).transpose(1, 2) for _ in range(3))), "flash"),
    ],
)
def test_the_kernel_that_cuda_takes(step, taken):
    assert kernel(step) == taken
    assert kernel(step, attention="math") == "math"
    assert kernel(step, attention="efficient") in ("efficient", "math")
    assert kernel(step, attention="flash") == ("flash" if taken == "flash" else "math")


@pytest.mark.parametrize(
    ("allowed", "dtype", "taken"),
    [
        ([SDPBackend.MATH], BF16, "math"),
        ([SDPBackend.EFFICIENT_ATTENTION], BF16, "efficient"),
        ([SDPBackend.FLASH_ATTENTION], BF16, "flash"),
        ([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION], BF16, "flash"),
        ([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], SINGLE, "math"),
    ],
)
def test_sdpa_kernel_is_heard(allowed, dtype, taken):
    qkv = inputs(dtype)

    def step():
        with sdpa_kernel(allowed):
            return F.scaled_dot_product_attention(*qkv)

    assert kernel(step) == taken


def test_no_kernel_that_is_allowed():
    qkv = inputs(SINGLE)

    def step():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(*qkv)

    with pytest.raises(RuntimeError, match="No kernel of those that sdpa_kernel.. allows") as raised:
        as_if_on_gpu(step)
    assert not isinstance(raised.value, RecordError)


def test_flash_keeps_no_square():
    """Result and one number a row (and two random states of 8 or 16 B) against two squares and more."""
    qkv = inputs()
    recording = watch(attention(*qkv))
    sizes = [n for n, _ in made(recording, FLASH) if n > 16]
    assert sizes == sorted([2 * B * H * L * D, LSE])
    plain = kept(attention(*qkv), attention="math")
    # In float32, as CUDA does it: scaled query and key, value, softmax; and the result.
    assert plain == 4 * 3 * B * H * L * D + 4 * B * H * L * L + 2 * B * H * L * D
    assert plain - kept(attention(*qkv)) > 4 * B * H * L * L


def test_flash_pads_the_width():
    """36 to 40: three padded inputs are kept, and the padded result; what is given back is a view of it."""
    wide = [n for n, _ in made(watch(attention(*inputs(width=36))), "aten.constant_pad_nd")]
    assert wide == [2 * B * H * L * 40] * 3
    assert kept(attention(*inputs(width=36))) - kept(attention(*inputs(width=32))) == 3 * 2 * B * H * L * 40 + (
        2 * B * H * L * (40 - 32)
    )


def test_efficient_keeps_statistics_only_for_a_gradient():
    """Its statistics are padded to a multiple of 32 rows."""
    with_gradient = made(watch(attention(*inputs(SINGLE))), EFFICIENT)
    assert (LSE, "float32") in with_gradient
    q, k, v = inputs(SINGLE)
    for step in (
        attention(q.detach(), k.detach(), v.detach()),
        lambda: _under(torch.no_grad(), attention(q, k, v)),
    ):
        assert (LSE, "float32") not in made(watch(step), EFFICIENT)


def _under(context, step):
    with context:
        return step()


@pytest.mark.parametrize(("length", "row"), [(64, 64), (72, 72), (60, 64), (1, 8)])
def test_a_mask_is_made_a_bias(length, row):
    """A bool mask becomes one of the query's dtype, its rows padded to a multiple of 8 before it is expanded."""
    q, k, v = inputs(length=length)
    recording = watch(attention(q, k, v, attn_mask=mask(torch.bool, L, length)))
    biases = made(recording, "aten.where")
    assert biases == [(2 * L * length, "bfloat16")]
    padded = made(recording, "aten.constant_pad_nd")
    assert padded == ([(2 * L * row, "bfloat16")] if row != length else [])
    assert not made(recording, "aten.clone")


@pytest.mark.parametrize(
    ("bias", "elements"),
    [
        (mask(BF16, L, L), 0),
        (mask(BF16, B, 1, 1, L), 0),
        (mask(BF16, 1, 1, L).expand(H, L, L), 0),  # a stride of 0 is aligned
        (mask(BF16, B, 1, L, 60), B * L * 64),  # of one head for all
        (mask(BF16, L, L).t(), L * (L + 8)),  # a last stride that is not 1: a whole 8 more
        (mask(BF16, L, L + 4)[:, :L], L * (L + 8)),  # rows that begin at odd places
    ],
    ids=["whole", "one row", "expanded", "odd length", "transposed", "a part"],
)
def test_a_bias_is_padded_where_its_strides_are_odd(bias, elements):
    q, k, v = inputs(length=bias.shape[-1])
    recording = watch(attention(q, k, v, attn_mask=bias))
    assert made(recording, "aten.constant_pad_nd") == ([(2 * elements, "bfloat16")] if elements else [])
    assert EFFICIENT in ops(recording) and not made(recording, "aten.clone")


def test_attention_backward():
    for dtype, name in ((BF16, FLASH), (SINGLE, EFFICIENT)):
        qkv = inputs(dtype)
        recording = watch(lambda qkv=qkv: F.scaled_dot_product_attention(*qkv).sum().backward())
        gradients = [n for n, _ in made(recording, f"{name}_backward") if n > 4]
        assert gradients == [qkv[0].nbytes] * 3


def test_dropout_inside_attention():
    """As matrix products its dropout too has a mask of one byte: by the switch of dropout, not that of attention."""
    qkv = inputs(DOUBLE)
    square = B * H * L * L
    step = attention(*qkv, dropout_p=0.5)
    assert made(watch(step), "aten.native_dropout") == [(square, "bool"), (8 * square, "float64")]
    assert not made(watch(step, dropout=False), "aten.native_dropout")


# ---------------------------------------------------------------- foreach


def stepped(make, clip=False, **choices):
    """Peak of an optimizer's step over its start."""
    parameters = [nn.Parameter(meta(n)) for n in SIZES]
    for p in parameters:
        p.grad = torch.empty_like(p)
    optimizer = make(parameters)
    optimizer.step()  # its state is there

    def step():
        if clip:
            nn.utils.clip_grad_norm_(parameters, 1.0)
        else:
            optimizer.step()

    recording = watch(step, **choices)
    totals = timeline(recording).totals
    assert any("_foreach_" in op for op in ops(recording)) == choices.get("foreach", True)
    return max(totals) - totals[0]


SIZES = (1000, 3000, 500)


@pytest.mark.parametrize(
    ("make", "alone", "together"),
    [
        # In elements. One parameter a time: two temporaries of the largest, and Adam's of the one before it, which has
        # a name. Together: one of each parameter.
        (lambda p: torch.optim.AdamW(p, 0.1), 2 * 3000 + 1000, sum(SIZES)),
        (lambda p: torch.optim.Adam(p, 0.1), 2 * 3000 + 1000, sum(SIZES)),
        (lambda p: torch.optim.SGD(p, 0.1), 0, 0),
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 0, 0),
        (lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.1), 3000, sum(SIZES)),
    ],
    ids=["AdamW", "Adam", "SGD", "momentum", "weight decay"],
)
def test_foreach(make, alone, together):
    assert stepped(make, foreach=False) == 4 * alone
    assert stepped(make) == 4 * together


def test_clipping_on_all_gradients_at_once():
    """Together: all norms in one operation, and one factor on all; alone: a norm for each."""
    make = lambda p: torch.optim.SGD(p, 0.1)  # noqa: E731
    parameters = [nn.Parameter(meta(n)) for n in SIZES]
    for p in parameters:
        p.grad = torch.empty_like(p)
    seen = [ops(watch(lambda: nn.utils.clip_grad_norm_(parameters, 1.0), foreach=f)) for f in (False, True)]
    assert seen[0].count("aten.linalg_vector_norm") == 4 and seen[1].count("aten.linalg_vector_norm") == 1
    assert seen[1].count("aten._foreach_norm") == seen[1].count("aten._foreach_mul_") == 1
    assert stepped(make, clip=True) <= 64 >= stepped(make, clip=True, foreach=False)


def test_what_the_code_says_counts():
    for foreach in (False, True):
        parameter = nn.Parameter(meta(10))
        parameter.grad = meta(10, grad=False)
        optimizer = torch.optim.AdamW([parameter], foreach=foreach)
        for choice in (False, True):
            seen = ops(watch(optimizer.step, foreach=choice))
            assert any("_foreach_" in op for op in seen) == foreach


def test_a_fused_optimizer_has_no_temporaries():
    parameters = [nn.Parameter(meta(n)) for n in SIZES]
    for p in parameters:
        p.grad = torch.empty_like(p)

    def step():
        torch.optim.AdamW(parameters, fused=True).step()

    recording = watch(step)
    assert "aten._fused_adamw_" in ops(recording)
    state = 2 * 4 * sum(SIZES) + 4 * len(SIZES)  # its counters are on the GPU
    assert max(timeline(recording).totals) - timeline(recording).totals[0] == state


# ---------------------------------------------------------------- dropout


@pytest.mark.parametrize(("dtype", "width"), [(BF16, 2), (SINGLE, 4)])
def test_dropout(dtype, width):
    """A mask of one byte an element; meta's own is as wide as the input (and so is the CPU's)."""
    x = meta(10, 100, dtype=dtype)
    result = 1000 * width
    step = lambda: F.dropout(x, 0.1)  # noqa: E731
    assert kept(step) == result + 1000
    assert kept(step, dropout=False) == result + 1000 * width
    assert made(watch(step), "aten.native_dropout") == sorted([(1000, "bool"), (result, str(dtype)[6:])])


@pytest.mark.parametrize(
    "step",
    [
        lambda x: F.dropout(x, 0.0),
        lambda x: F.dropout(x, 0.5, training=False),
        lambda x: nn.Dropout(0.5).eval()(x),
        lambda x: F.dropout(x[:0], 0.5),
        lambda x: F.dropout1d(x, 0.5),
        lambda x: F.alpha_dropout(x, 0.5),
        lambda x: F.dropout(x * 1, 0.5, inplace=True),
    ],
    ids=["nothing dropped", "evaluation", "evaluated module", "no element", "of channels", "alpha", "in place"],
)
def test_other_dropouts_are_metas_own(step):
    """CUDA has the fused kernel for plain dropout alone."""
    x = meta(10, 100)
    on, off = (watch(lambda: step(x), dropout=d) for d in (True, False))
    assert ops(on) == ops(off) and "aten.native_dropout" not in ops(on)


def test_dropout_in_a_layer():
    x = meta(3, 5, 16, grad=False)
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    assert ops(watch(lambda: layer(x))).count("aten.native_dropout") == 3
    assert "aten.native_dropout" not in ops(watch(lambda: layer(x), dropout=False))


# ---------------------------------------------------------------- RMSNorm


@pytest.fixture
def fused():
    if overload("_fused_rms_norm") is None:
        pytest.skip("fused-rms-norm: not in this torch")


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize(("dtype", "width"), [(BF16, 2), (SINGLE, 4)])
def test_rms_norm(dtype, width, weighted, fused):
    """Fused: one number a row. The chain: what it is made of, in float32, and the normalized rows."""
    x, weight = meta(10, 100, dtype=dtype), meta(100, dtype=dtype) if weighted else None
    step = lambda: F.rms_norm(x, (100,), weight)  # noqa: E731
    assert kept(step) == 1000 * width + 10 * 4
    chain = kept(step, rms_norm=False)
    wide = 1000 * 4 if dtype is BF16 else 0  # a copy in float32
    normalized = 1000 * 4 if weighted else 0  # in float32 too
    assert chain == 1000 * width + 10 * 4 + wide + normalized


def test_rms_norm_backward_gives_both_gradients(fused):
    x, weight = meta(10, 100), meta(100)
    watch(lambda: F.rms_norm(x, (100,), weight).sum().backward())
    assert x.grad.shape == x.shape and weight.grad.shape == weight.shape
    x, weight = meta(10, 100, grad=False), meta(100)
    watch(lambda: F.rms_norm(x, (100,), weight).sum().backward())
    assert x.grad is None and weight.grad.shape == weight.shape


def test_rms_norm_twice_differentiated(fused):
    """With create_graph backward is a chain; without, one operation for each gradient."""
    x, weight = meta(10, 100), meta(100)

    def step():
        grads = torch.autograd.grad(F.rms_norm(x, (100,), weight).sum(), (x, weight), create_graph=True)
        assert [g.shape for g in grads] == [x.shape, weight.shape] and all(g.requires_grad for g in grads)
        sum(g.pow(2).sum() for g in grads).backward()

    for choice in (True, False):
        x.grad = weight.grad = None
        watch(step, rms_norm=choice)
        assert x.grad.shape == x.shape and weight.grad.shape == weight.shape


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("over", [(5,), (4, 5)])
def test_the_chain_is_the_gradient_of_rms_norm(weighted, over):
    """With numbers, against autograd through the definition; and once more differentiated."""
    x = torch.randn(3, 4, 5, dtype=DOUBLE, requires_grad=True)
    weight = torch.randn(over, dtype=DOUBLE, requires_grad=True) if weighted else None
    wanted = [t for t in (x, weight) if t is not None]
    into = torch.randn(3, 4, 5, dtype=DOUBLE)
    dims = tuple(range(-len(over), 0))
    y = F.rms_norm(x, over, weight, eps=0.0)
    expected = torch.autograd.grad(y, wanted, into, create_graph=True)
    of_x, _, of_weight = _rms_norm_backward(x, weight, into, dims, DOUBLE)
    found = [of_x, of_weight][: len(wanted)]
    again = [torch.autograd.grad(sum(g.sin().sum() for g in grads), wanted) for grads in (expected, found)]
    for one, other in zip((*expected, *again[0]), (*found, *again[1]), strict=True):
        torch.testing.assert_close(one, other)


def test_rms_norm_under_transforms(fused):
    """Gradients of each sample, by vmap: a chain, whatever the switch says."""
    weight, x = meta(8, grad=False), meta(5, 8, grad=False)
    shapes = []

    def step():
        one = torch.func.grad(lambda w, row: F.rms_norm(row, (8,), w).pow(2).sum(), argnums=(0, 1))
        shapes.extend(g.shape for g in torch.func.vmap(one, in_dims=(None, 0))(weight, x))

    for choice in (True, False):
        watch(step, rms_norm=choice)
    assert shapes == [(5, 8)] * 4


def test_rms_norm_of_two_dtypes_is_a_chain(fused):
    x, weight = meta(10, 100, dtype=BF16), meta(100)
    step = lambda: F.rms_norm(x, (100,), weight)  # noqa: E731
    assert ops(watch(step)) == ops(watch(step, rms_norm=False)) and len(ops(watch(step))) > 3


def test_rms_norm_gives_what_the_chain_gives():
    x = meta(4, 6, 5).transpose(0, 1)
    for dtype in (SINGLE, BF16, DOUBLE):
        norm = nn.RMSNorm(5, device="meta", dtype=dtype)
        shown = []

        def step(norm=norm, shown=shown, dtype=dtype):
            y = norm(x.to(dtype))
            shown.append((y.shape, y.dtype, y.is_contiguous()))

        watch(step)
        watch(step, rms_norm=False)
        assert shown[0] == shown[1]


# ---------------------------------------------------------------- cuBLAS workspaces


def workspaces(step, nbytes=1000):
    """In which phase each is taken."""
    recording = watch(step, workspace=nbytes)
    return [
        e.phase
        for e in recording.events
        for i in e.allocated
        if recording.storages[i].names == ("cuBLAS workspace",) and recording.storages[i].nbytes == nbytes
    ]


def test_one_workspace_in_forward_and_one_in_backward():
    with torch.device("meta"):
        model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), torch.rand(4, 8)

    def step():
        model(x).sum().backward()
        model(x).sum().backward()

    assert workspaces(step) == ["forward", "backward"]
    assert workspaces(lambda: model(x)) == ["forward"]
    assert workspaces(step, 0) == []


def test_they_are_all_that_differs():
    """Once taken they stay: on top of all that lives from there on."""
    with torch.device("meta"):
        model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), torch.rand(4, 8)

    def step():
        model(x).sum().backward()
        model.zero_grad()

    without, with_them = watch(step), watch(step, workspace=10**9)
    rows = [
        total - 10**9 * sum(n == 10**9 for n, _ in made(with_them, "aten.empty"))
        for total in timeline(with_them).totals[-1:]
    ]
    assert rows == list(timeline(without).totals[-1:])
    assert max(timeline(with_them).totals) > 2 * 10**9
    assert len(ops(with_them)) == len(ops(without)) + 2


@pytest.mark.parametrize(
    ("step", "taken"),
    [
        (lambda x: x @ x, True),
        (lambda x: x @ x[0], True),
        (lambda x: x[0].dot(x[0]), True),
        (lambda x: torch.bmm(x[None], x[None]), True),
        (lambda x: torch.addmm(x, x, x), True),
        (lambda x: torch.einsum("ij,jk->ik", x, x), True),
        (lambda x: F.linear(x, x, x[0]), True),
        (lambda x: (x.exp() + x).softmax(-1).sum(), False),
        (lambda x: F.conv1d(x[None], x[None]), False),
        (lambda x: F.layer_norm(x, (8,)), False),
        (lambda x: x.exp().shape and torch.ones(2, 2) @ torch.ones(2, 2), False),  # on the CPU
    ],
)
@pytest.mark.parametrize("context", [nullcontext, torch.no_grad, torch.inference_mode])
def test_only_matrix_products_take_one(step, taken, context):
    x = meta(8, 8)
    assert len(workspaces(lambda: _under(context(), lambda: step(x)))) == taken


def test_attention_as_matrix_products_takes_one():
    qkv = inputs(DOUBLE)
    assert workspaces(attention(*qkv)) == ["forward"]
    assert workspaces(attention(*inputs())) == []  # flash needs none


# ---------------------------------------------------------------- together


def test_each_switch_alone_changes_a_transformer():
    """A layer with all of them: no switch is without an effect, and all off is what meta does by itself."""
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(64, 4, 128, 0.1, batch_first=True)
        norm, x = nn.RMSNorm(64), torch.rand(2, 16, 64)

    def step():
        optimizer = torch.optim.AdamW(layer.parameters())
        with torch.autocast("cuda", dtype=BF16):
            y = norm(layer(x))
        y.float().sum().backward()
        optimizer.step()
        layer.zero_grad()
        norm.zero_grad()

    whole = ops(as_if_on_gpu(step).recording)
    switches = {"attention": "math", "foreach": False, "dropout": False, "workspace": 0, "autocast": False}
    if overload("_fused_rms_norm") is not None:
        switches["rms_norm"] = False
    with pytest.warns(UserWarning, match="CUDA is not available"):
        for name, off in switches.items():
            assert ops(as_if_on_gpu(step, **{name: off}).recording) != whole, name
    assert kept_bytes(as_if_on_gpu(step).recording) > 0


# ---------------------------------------------------------------- softmax


@pytest.mark.parametrize(
    ("of", "kernel"), [(F.softmax, "aten._softmax"), (F.log_softmax, "aten._log_softmax")], ids=["softmax", "log"]
)
@pytest.mark.parametrize("autocast", [True, False])
def test_a_softmax_widens_float16_as_it_reads(of, kernel, autocast):
    """To float32, with no copy before it and none in backward; bfloat16, and other dtypes, are cast before."""
    for dtype in (HALF, BF16):
        x = meta(10, 100, dtype=dtype)

        def step(x=x):
            if not autocast:
                of(x, -1, dtype=SINGLE).sum().backward()
                return
            with torch.autocast("cuda", dtype=x.dtype):
                of(x, -1).sum().backward()

        recording = watch(step)
        cast = dtype is BF16
        assert made(recording, kernel) == [(4000, "float32")]
        assert made(recording, f"{kernel}_backward_data") == [
            (4000 if cast else 2000, "float32" if cast else "float16")
        ]
        assert [n for n, _ in made(recording, "aten._to_copy")] == ([2000, 4000] if cast else [])
        assert x.grad.dtype is dtype
    x = meta(10, 100, dtype=HALF)
    assert made(watch(lambda: of(x, -1, dtype=DOUBLE)), "aten._to_copy") == [(8000, "float64")]
    assert made(watch(lambda: of(x, -1)), kernel) == [(2000, "float16")]
