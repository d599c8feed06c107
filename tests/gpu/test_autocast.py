"""CUDA's autocast on tensors without numbers, against torch's own header, CPU autocast as an oracle, and by hand."""

import re
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import as_if_on_gpu, record
from helpers.gpu import autocast, private
from helpers.gpu.autocast import BANNED, FLOAT32, FLOAT32_APPENDED, FLOAT32_RESULT, LOWER, NOT_DONE, PROMOTE, Casts

BF16, HALF, SINGLE, DOUBLE = torch.bfloat16, torch.float16, torch.float32, torch.float64
aten = torch.ops.aten
KNOWN = LOWER | FLOAT32 | FLOAT32_RESULT | FLOAT32_APPENDED.keys() | PROMOTE | BANNED | NOT_DONE


# ---------------------------------------------------------------- a call of every operation


def ints(t, *shape):
    return torch.zeros(*shape, dtype=torch.long, device=t.device)


#: Operation → its call with tensors that t(*shape) makes.
CALLS = {
    "conv1d": lambda t: (t(1, 2, 5), t(3, 2, 3), t(3)),
    "conv2d": lambda t: (t(1, 2, 5, 5), t(3, 2, 3, 3), t(3)),
    "conv3d": lambda t: (t(1, 2, 5, 5, 5), t(3, 2, 3, 3, 3), t(3)),
    "conv_tbc": lambda t: (t(5, 2, 3), t(3, 3, 4), t(4)),
    "conv_transpose1d": lambda t: (t(1, 2, 5), t(2, 3, 3), t(3)),
    "conv_transpose2d.input": lambda t: (t(1, 2, 5, 5), t(2, 3, 3, 3), t(3)),
    "conv_transpose3d.input": lambda t: (t(1, 2, 5, 5, 5), t(2, 3, 3, 3, 3), t(3)),
    "convolution": lambda t: (t(1, 2, 5), t(3, 2, 3), t(3), [1], [0], [1], False, [0], 1),
    "prelu": lambda t: (t(2, 3, 4), t(3)),
    "addmm": lambda t: (t(2, 4), t(2, 3), t(3, 4)),
    "addmv": lambda t: (t(2), t(2, 3), t(3)),
    "addr": lambda t: (t(2, 3), t(2), t(3)),
    "matmul": lambda t: (t(2, 3), t(3, 4)),
    "einsum": lambda t: ("ij,jk->ik", [t(2, 3), t(3, 4)]),
    "mm": lambda t: (t(2, 3), t(3, 4)),
    "mv": lambda t: (t(2, 3), t(3)),
    "linalg_vecdot": lambda t: (t(2, 3), t(2, 3)),
    "linear": lambda t: (t(2, 3), t(4, 3), t(4)),
    "addbmm": lambda t: (t(2, 4), t(5, 2, 3), t(5, 3, 4)),
    "baddbmm": lambda t: (t(5, 2, 4), t(5, 2, 3), t(5, 3, 4)),
    "bmm": lambda t: (t(5, 2, 3), t(5, 3, 4)),
    "chain_matmul": lambda t: ([t(2, 3), t(3, 4), t(4, 5)],),
    "linalg_multi_dot": lambda t: ([t(2, 3), t(3, 4), t(4, 5)],),
    "lstm_cell": lambda t: (t(2, 3), [t(2, 4), t(2, 4)], t(16, 3), t(16, 4), t(16), t(16)),
    "gru_cell": lambda t: (t(2, 3), t(2, 4), t(12, 3), t(12, 4), t(12), t(12)),
    "rnn_tanh_cell": lambda t: (t(2, 3), t(2, 4), t(4, 3), t(4, 4), t(4), t(4)),
    "rnn_relu_cell": lambda t: (t(2, 3), t(2, 4), t(4, 3), t(4, 4), t(4), t(4)),
    "_scaled_dot_product_flash_attention": lambda t: (t(1, 2, 16, 8), t(1, 2, 16, 8), t(1, 2, 16, 8)),
    "scaled_dot_product_attention": lambda t: (t(1, 2, 16, 8), t(1, 2, 16, 8), t(1, 2, 16, 8)),
    **{
        name: lambda t: (t(2, 3),)
        for name in "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan softplus".split()
    },
    "pow.Tensor_Scalar": lambda t: (t(2), 3),
    "pow.Tensor_Tensor": lambda t: (t(2), t(2)),
    "pow.Scalar": lambda t: (2, t(2)),
    "layer_norm": lambda t: (t(2, 3), [3], t(3), t(3)),
    "native_layer_norm": lambda t: (t(2, 3), [3], t(3), t(3), 1e-5),
    "group_norm": lambda t: (t(2, 4, 3), 2, t(4), t(4)),
    "rms_norm": lambda t: (t(2, 3), [3], t(3)),
    "frobenius_norm.dim": lambda t: (t(2, 3), [1]),
    "nuclear_norm": lambda t: (t(2, 3),),
    "nuclear_norm.dim": lambda t: (t(2, 3), [0, 1]),
    "cosine_similarity": lambda t: (t(2, 3), t(2, 3)),
    "poisson_nll_loss": lambda t: (t(2, 3), t(2, 3), True, False, 1e-8, 1),
    "cosine_embedding_loss": lambda t: (t(2, 3), t(2, 3), t(2)),
    "nll_loss": lambda t: (t(2, 3), ints(t, 2)),
    "nll_loss2d": lambda t: (t(2, 3, 4, 4), ints(t, 2, 4, 4)),
    "hinge_embedding_loss": lambda t: (t(2, 3), t(2, 3)),
    "kl_div": lambda t: (t(2, 3), t(2, 3)),
    "l1_loss": lambda t: (t(2, 3), t(2, 3)),
    "smooth_l1_loss": lambda t: (t(2, 3), t(2, 3)),
    "huber_loss": lambda t: (t(2, 3), t(2, 3)),
    "mse_loss": lambda t: (t(2, 3), t(2, 3)),
    "margin_ranking_loss": lambda t: (t(2), t(2), t(2)),
    "multilabel_margin_loss": lambda t: (t(2, 3), ints(t, 2, 3)),
    "soft_margin_loss": lambda t: (t(2, 3), t(2, 3).detach()),
    "triplet_margin_loss": lambda t: (t(2, 3), t(2, 3), t(2, 3)),
    "multi_margin_loss": lambda t: (t(2, 3), ints(t, 2)),
    "binary_cross_entropy_with_logits": lambda t: (t(2, 3), t(2, 3)),
    "dist": lambda t: (t(2, 3), t(2, 3)),
    "pdist": lambda t: (t(4, 3),),
    "cdist": lambda t: (t(2, 3), t(4, 3)),
    "renorm": lambda t: (t(2, 3), 2, 0, 1.0),
    "logsumexp": lambda t: (t(2, 3), [1]),
    "linalg_matrix_sqrth": lambda t: (t(3, 3),),
    "upsample_nearest1d": lambda t: (t(1, 2, 4), [8]),
    "_upsample_nearest_exact1d": lambda t: (t(1, 2, 4), [8]),
    "upsample_nearest2d": lambda t: (t(1, 2, 4, 4), [8, 8]),
    "_upsample_nearest_exact2d": lambda t: (t(1, 2, 4, 4), [8, 8]),
    "upsample_nearest3d": lambda t: (t(1, 2, 4, 4, 4), [8, 8, 8]),
    "_upsample_nearest_exact3d": lambda t: (t(1, 2, 4, 4, 4), [8, 8, 8]),
    "upsample_linear1d": lambda t: (t(1, 2, 4), [8], False),
    "upsample_bilinear2d": lambda t: (t(1, 2, 4, 4), [8, 8], False),
    "_upsample_bilinear2d_aa": lambda t: (t(1, 2, 4, 4), [8, 8], False),
    "upsample_trilinear3d": lambda t: (t(1, 2, 4, 4, 4), [8, 8, 8], False),
    "upsample_bicubic2d": lambda t: (t(1, 2, 4, 4), [8, 8], False),
    "_upsample_bicubic2d_aa": lambda t: (t(1, 2, 4, 4), [8, 8], False),
    "prod": lambda t: (t(2, 3),),
    "prod.dim_int": lambda t: (t(2, 3), 1),
    "softmax.int": lambda t: (t(2, 3), 1),
    "log_softmax.int": lambda t: (t(2, 3), 1),
    "cumprod": lambda t: (t(2, 3), 1),
    "cumsum": lambda t: (t(2, 3), 1),
    "linalg_vector_norm": lambda t: (t(2, 3),),
    "linalg_matrix_norm": lambda t: (t(2, 3), 1),
    "linalg_matrix_norm.str_ord": lambda t: (t(2, 3),),
    "sum": lambda t: (t(2, 3),),
    "sum.dim_IntList": lambda t: (t(2, 3), [1]),
    "norm.Scalar": lambda t: (t(2, 3),),
    "norm.ScalarOpt_dim": lambda t: (t(2, 3), 2, [1]),
    "addcdiv": lambda t: (t(2), t(2), t(2)),
    "addcmul": lambda t: (t(2), t(2), t(2)),
    "atan2": lambda t: (t(2), t(2)),
    "bilinear": lambda t: (t(2, 3), t(2, 4), t(5, 3, 4), t(5)),
    "cross": lambda t: (t(2, 3), t(2, 3), 1),
    "dot": lambda t: (t(3), t(3)),
    "vdot": lambda t: (t(3), t(3)),
    "grid_sampler": lambda t: (t(1, 2, 4, 4), t(1, 3, 3, 2), 0, 0, False),
    "index_put": lambda t: (t(4), [ints(t, 2)], t(2)),
    "tensordot": lambda t: (t(2, 3), t(3, 4), [1], [0]),
    "scatter_add": lambda t: (t(4), 0, ints(t, 2), t(2)),
}
#: Operations whose kernel only CUDA has, or that nobody calls but another operation: their casts are checked alone.
CASTS_ALONE = {
    "_convolution": lambda t: (t(1, 2, 5), t(3, 2, 3), t(3), [1], [0], [1], False, [0], 1, False, False, True, True),
    "_convolution.deprecated": lambda t: (
        t(1, 2, 5),
        t(3, 2, 3),
        t(3),
        [1],
        [0],
        [1],
        False,
        [0],
        1,
        False,
        False,
        True,
    ),
    "_thnn_fused_lstm_cell": lambda t: (t(2, 16), t(2, 16), t(2, 4), t(16), t(16)),
    "_thnn_fused_gru_cell": lambda t: (t(2, 12), t(2, 12), t(2, 4), t(12), t(12)),
    "cudnn_convolution": lambda t: (t(1, 2, 5, 5), t(3, 2, 3, 3), [0, 0], [1, 1], [1, 1], 1, False, False, True),
    "cudnn_convolution_transpose": lambda t: (
        *(t(1, 2, 5, 5), t(2, 3, 3, 3)),
        *([0, 0], [0, 0], [1, 1], [1, 1], 1, False, False, True),
    ),
}


def maker(*dtypes, device="meta", made=None, grad=False):
    """t(*shape): tensors whose dtypes go round `dtypes`."""
    made = [] if made is None else made

    def t(*shape):
        made.append(torch.rand(*shape, device=device).to(dtypes[len(made) % len(dtypes)]).requires_grad_(grad))
        return made[-1]

    t.device = device
    return t


def floats(value):
    """The dtypes of all floating-point tensors in a value."""
    if isinstance(value, torch.Tensor):
        return [value.dtype] if value.is_floating_point() else []
    return [d for item in value for d in floats(item)] if isinstance(value, (list, tuple)) else []


@contextmanager
def casts_as_on_cuda():
    casts = Casts()
    with ExitStack() as stack:
        stack.callback(casts.clear)
        stack.enter_context(private.cuda_autocast(casts.clear))
        stack.enter_context(private.kernels(private.CASTS, casts.rules()))
        yield casts


class Below(Exception):
    """An operation was called below the casts."""


@contextmanager
def looking_below(operation):
    """A function of dtypes: what the operation then gets below the casts to bfloat16, and gives.

    It gives the dtypes of the operation's tensors, its dtype argument, and the dtypes of its results.
    """
    alone = operation in CASTS_ALONE
    make, seen = (CASTS_ALONE if alone else CALLS)[operation], []

    def look(op, args, kwargs):
        named = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.dtype)]
        seen.append((floats(args), named[0] if named else None))
        if alone:
            raise Below
        return op(*args, **kwargs)

    def below(*dtypes):
        args, out = make(maker(*dtypes)), None
        with torch.autocast("cuda", dtype=BF16):
            try:
                out = private.overload(operation)(*args)
            except Below:
                pass
        return *seen.pop(), floats(out)

    with private.kernels(private.CHOICES, {FLOAT32_APPENDED.get(operation, operation): look}), casts_as_on_cuda():
        yield below
    assert not seen


def here(names):
    """Those of the operations that this torch casts."""
    return sorted(names & private.autocast_operations())


# ---------------------------------------------------------------- the tables


def test_every_rule_of_this_torch_is_ours():
    assert not autocast.without_rule(), f"torch {torch.__version__} casts them on CUDA, and we do not"


def test_the_look_for_rules_that_are_missing_can_fail(monkeypatch):
    monkeypatch.setattr(autocast, "LOWER", LOWER - {"mm"})
    assert autocast.without_rule() == {"mm"}


def test_no_operation_stands_in_two_tables():
    tables = (LOWER, FLOAT32, FLOAT32_RESULT, FLOAT32_APPENDED, PROMOTE, BANNED, NOT_DONE)
    assert sum(map(len, tables)) == len(KNOWN)


def torchs_lists():
    """Policy → operations, as the header that comes with torch lists them for every backend."""
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    if not header.exists():
        pytest.skip("torch-headers: not installed with this torch")
    text = header.read_text()
    lists = {}
    for policy in ("LOWER_PRECISION_FP", "FP32", "FP32_SET_OPT_DTYPE", "PROMOTE"):
        (body,) = re.findall(rf"#define AT_FORALL_{policy}\(_\)((?:.*\\\n)+.*\n)", text)
        lists[policy] = {".".join(re.split(r",\s*", name)) for name in re.findall(r"_\((.*?)\)", body)}
    (body,) = re.findall(r"#define AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE\(_\)((?:.*\\\n)+.*\n)", text)
    lists["APPENDED"] = set(re.findall(r'"(norm\..*?)"', body))
    return lists


def test_the_tables_are_torchs_own():
    """What CUDA adds to the lists of all backends stands in no header: cuDNN's, the banned one, and the newest."""
    lists = torchs_lists()
    assert min(len(names) for names in lists.values()) >= 2
    added = {"cudnn_convolution", "cudnn_convolution_transpose", "linalg_matrix_sqrth"}
    for policy, ours in (
        ("LOWER_PRECISION_FP", LOWER - added),
        ("FP32", FLOAT32 - added),
        ("FP32_SET_OPT_DTYPE", FLOAT32_RESULT),
        ("PROMOTE", PROMOTE),
        ("APPENDED", FLOAT32_APPENDED.keys()),
    ):
        theirs = lists[policy] - NOT_DONE
        assert theirs <= ours, policy
        assert set(here(ours)) <= theirs, policy


# ---------------------------------------------------------------- every operation


def test_every_operation_has_a_call():
    tables = LOWER | FLOAT32 | FLOAT32_RESULT | FLOAT32_APPENDED.keys() | PROMOTE
    assert CALLS.keys() | CASTS_ALONE.keys() == tables


def results(operation, dtype):
    """Dtypes of an operation's results: flash attention gives its logsumexp in float32 too."""
    wide = {"_scaled_dot_product_flash_attention": {dtype, SINGLE}}
    return wide.get(operation, set() if operation in CASTS_ALONE else {dtype})


MIXTURES = (SINGLE,), (BF16,), (HALF,), (BF16, SINGLE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operation", here(LOWER))
def test_lower(operation):
    with looking_below(operation) as below:
        for dtypes in MIXTURES:
            inputs, _, outputs = below(*dtypes)
            assert inputs and set(inputs) == {BF16} and set(outputs) == results(operation, BF16)
        if results(operation, DOUBLE) == {DOUBLE}:  # float64 is left alone
            inputs, _, outputs = below(DOUBLE)
            assert set(inputs) == set(outputs) == {DOUBLE}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operation", here(FLOAT32))
def test_float32(operation):
    with looking_below(operation) as below:
        for dtypes in MIXTURES:
            inputs, _, outputs = below(*dtypes)
            assert inputs and set(inputs) == {SINGLE} == set(outputs)


@pytest.mark.parametrize("operation", here(FLOAT32_RESULT | FLOAT32_APPENDED.keys()))
def test_float32_result(operation):
    """The input stays as it is; the result is float32."""
    with looking_below(operation) as below:
        for dtype in (SINGLE, BF16, HALF):
            assert below(dtype) == ([dtype], SINGLE, [SINGLE])


@pytest.mark.parametrize("operation", here(FLOAT32_RESULT))
def test_a_dtype_that_is_named_stays(operation):
    (x, *more), op = CALLS[operation](maker(BF16)), private.overload(operation)
    with casts_as_on_cuda(), torch.autocast("cuda", dtype=BF16):
        assert op(x, *more, dtype=BF16).dtype is BF16
        assert op(x, *more).dtype is SINGLE


@pytest.mark.parametrize("operation", here(PROMOTE))
def test_promote(operation):
    with looking_below(operation) as below:
        for dtypes, to in (((SINGLE,), SINGLE), ((BF16,), BF16), ((BF16, SINGLE), SINGLE), ((HALF, SINGLE), SINGLE)):
            if dtypes[0] is HALF:
                with pytest.raises(RuntimeError, match=f"{operation} takes no float16 tensor under autocast on CUDA"):
                    below(*dtypes)
            else:
                inputs, _, outputs = below(*dtypes)
                assert set(inputs) == set(outputs) == {to}
        inputs, _, outputs = below(DOUBLE)
        assert set(inputs) == set(outputs) == {DOUBLE}


def test_the_default_dtype_is_float16():
    with casts_as_on_cuda():
        x = torch.empty(4, 4, device="meta")
        with torch.autocast("cuda"):
            assert (x @ x).dtype is HALF
        with torch.autocast("cuda", dtype=SINGLE):
            assert (x.bfloat16() @ x).dtype is SINGLE


def test_what_is_banned():
    x = torch.rand(3, device="meta")
    with casts_as_on_cuda():
        torch.nn.functional.binary_cross_entropy(x, x)
        with torch.autocast("cuda"):
            with pytest.raises(RuntimeError, match="binary_cross_entropy is not allowed .*_with_logits"):
                torch.nn.functional.binary_cross_entropy(x, x)


def test_other_devices_and_other_dtypes_are_left_alone():
    with casts_as_on_cuda(), torch.autocast("cuda", dtype=BF16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is SINGLE
        whole = torch.ones(2, 2, dtype=torch.long, device="meta")
        assert whole.sum().dtype is torch.long and whole.float().sum().dtype is SINGLE
        assert torch.softmax(torch.ones(2, dtype=DOUBLE, device="meta"), 0).dtype is DOUBLE
        assert torch.ones(2, dtype=DOUBLE, device="meta").norm().dtype is DOUBLE


# ---------------------------------------------------------------- CPU autocast as an oracle

OTHER_ON_CPU = {"grid_sampler", "prod", "prod.dim_int", "binary_cross_entropy", "scaled_dot_product_attention"}
PLAIN = {"attention": "math", "dropout": False, "rms_norm": False, "workspace": 0}


def shared():
    """Operations with one policy on both devices, the same kernel, and a call."""
    on_cpu = {name for name in here(CALLS.keys()) if private.has_kernel(f"aten::{name}", "AutocastCPU")}
    return sorted(on_cpu & KNOWN - OTHER_ON_CPU)


def on(device, **options):
    return torch.autocast("cpu" if device == "cpu" else "cuda", **{"dtype": BF16} | options)


def watch(device, *step, **choices):
    """The recording on the CPU, for real, or as if on a GPU."""
    run = record(*step) if device == "cpu" else as_if_on_gpu(*step, **PLAIN | choices)
    return run.recording


def of_events(recording):
    """What every event allocates and frees: (operation, phase, sizes and dtypes); random states are left out."""

    def sizes(ids):
        storages = [recording.storages[i] for i in ids]
        return sorted((s.nbytes, s.dtype) for s in storages if s.nbytes and s.op != "get_rng_state")

    found = [(e.op, e.phase, sizes(e.allocated), sizes(e.freed)) for e in recording.events]
    return [row for row in found if row[2] or row[3]]


@pytest.mark.parametrize("operation", shared())
@pytest.mark.parametrize("dtypes", [(SINGLE,), (BF16, SINGLE)], ids=str)
def test_as_autocast_on_the_cpu(operation, dtypes):
    """Every cast, in its order, every allocation, and every tensor that is kept."""
    seen = []
    for device in ("cpu", "meta"):
        args = CALLS[operation](maker(*dtypes, device=device, grad=True))

        def step(device=device, args=args):
            with on(device):
                return private.overload(operation)(*args)

        recording = watch(device, step)
        kept = [
            (recording.nodes[s.node].name, s.argument, s.shape, s.dtype) for s in recording.saved if s.state == "live"
        ]
        casts = [row for row in of_events(recording) if row[0] == "aten._to_copy"]
        seen.append((casts, kept))
    assert seen[0] == seen[1]


def test_the_oracle_covers_the_common_operations():
    assert len(shared()) > 25 and {"mm", "linear", "conv2d", "mse_loss", "nll_loss"} <= set(shared())


class Twice(nn.Module):
    """Uses one weight twice."""

    def __init__(self, bias=True):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8, bias), nn.Linear(8, 4, bias)

    def forward(self, x):
        return self.b(self.a(self.a(x).relu()))


def twice(device, model, x):
    with on(device):
        loss = model(x).float().square().mean()
    loss.backward()


def backward_inside(device, model, x):
    with on(device):
        model(x).float().square().mean().backward()


def no_cache(device, model, x):
    with on(device, cache_enabled=False):
        loss = model(x).float().mean()
    loss.backward()


def two_blocks(device, model, x):
    with on(device):
        first = model(x).float().mean()
    with on(device):
        second = model(x).float().mean()
    (first + second).backward()


def nested(device, model, x):
    with on(device):
        h = model.a(x)
        with on(device, enabled=False):
            h = model.a(h.float())
        with on(device):
            h = model.a(h)
        loss = model.b(h).float().mean()
    loss.backward()


def no_grad(device, model, x):
    with torch.no_grad(), on(device):
        return model(x)


def inference(device, model, x):
    with torch.inference_mode(), on(device):
        return model(x)


def no_grad_first(device, model, x):
    """A weight that is cast under no_grad first: whether it has a gradient later depends on torch."""
    with on(device):
        with torch.no_grad():
            model(x)
        loss = (model(x) * x[:, :4].detach().requires_grad_()).float().mean()
    loss.backward()


def half_weights(device, model, x):
    model.a.half()
    with on(device):
        loss = model(x.half()).float().mean()
    loss.backward()


def checkpointed(reentrant, inside):
    def step(device, model, x):
        x = x.requires_grad_()
        with on(device):
            loss = checkpoint(model, x, use_reentrant=reentrant).float().mean()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()

    return step


def decorated(device, model, x):
    @on(device)
    def forward(x):
        return model(x)

    forward(x).float().mean().backward()


def custom(cast_inputs):
    def step(device, model, x):
        kind = "cpu" if device == "cpu" else "cuda"

        class Product(torch.autograd.Function):
            @staticmethod
            @torch.amp.custom_fwd(device_type=kind, cast_inputs=cast_inputs)
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x @ w.t()

            @staticmethod
            @torch.amp.custom_bwd(device_type=kind)
            def backward(ctx, gradient):
                x, w = ctx.saved_tensors
                return gradient @ w, gradient.t() @ x

        with on(device):
            loss = Product.apply(model.a(x), model.b.weight).float().mean()
        loss.backward()

    return step


STEPS = {
    "twice": twice,
    "no cache": no_cache,
    "two blocks": two_blocks,
    "nested": nested,
    "no_grad": no_grad,
    "inference": inference,
    "no_grad first": no_grad_first,
    "half weights": half_weights,
    "checkpoint": checkpointed(False, False),
    "reentrant checkpoint": checkpointed(True, False),
    "decorated": decorated,
    "custom": custom(None),
    "custom float32": custom(SINGLE),
    "custom float16": custom(HALF),
    # A bias's gradient is a sum, which autocast lets alone on the CPU and casts on CUDA.
    "backward inside, no bias": backward_inside,
    "checkpoint inside, no bias": checkpointed(False, True),
    "reentrant checkpoint inside, no bias": checkpointed(True, True),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_as_autocast_on_the_cpu(name):
    """Event for event, byte for byte: the cache of cast weights, when it goes, what is cast in backward."""
    seen = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            model, x = Twice("no bias" not in name), torch.rand(4, 8)
        if device == "cpu":
            checkpoint(nn.Identity(), x, use_reentrant=False)  # what it imports is not recorded
        seen.append(of_events(watch(device, STEPS[name], device, model, x)))
    assert len(seen[0]) > 8
    assert seen[0] == seen[1]


# ---------------------------------------------------------------- what only CUDA does, by hand


def casts_of(recording):
    """(bytes, phase) of each cast."""
    return [(row[2][0][0], row[1]) for row in of_events(recording) if row[0] == "aten._to_copy"]


def test_a_bias_gradient_inside_autocast():
    """On CUDA `sum` gives float32 there, and the engine brings it back to the dtype of the cast bias."""
    with torch.device("meta"):
        layer, x = nn.Linear(8, 4), torch.rand(16, 8)

    def step(inside):
        with torch.autocast("cuda", dtype=BF16):
            loss = layer(x).float().mean()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        layer.zero_grad()

    sums = [
        [row[2] for row in of_events(watch("meta", step, inside)) if row[0] == "aten.sum"] for inside in (False, True)
    ]
    assert sums == [[[(8, "bfloat16")]], [[(16, "float32")]]]


def test_layer_norm_softmax_and_loss_run_in_float32():
    with torch.device("meta"):
        norm, x = nn.LayerNorm(8), torch.rand(4, 8, dtype=BF16)
        target = torch.zeros(4, dtype=torch.long)

    def step():
        with torch.autocast("cuda", dtype=BF16):
            h = norm(x)
            p = h.bfloat16().softmax(-1)
            loss = torch.nn.functional.cross_entropy(p.bfloat16(), target)
        assert h.dtype is p.dtype is loss.dtype is SINGLE
        return h, p, loss

    kept = {(s.argument, s.dtype) for s in watch("meta", step).saved if s.state == "live" and s.shape == (4, 8)}
    assert ("input", "float32") in kept and ("result", "float32") in kept


def test_spellings():
    """All say the same: the old one, the device of a tensor, the decorator, positional arguments."""
    with torch.device("meta"):
        layer, x = nn.Linear(8, 4), torch.rand(2, 8)
    seen = []

    def note(name):
        seen.append((name, layer(x).dtype, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")))

    def step():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            with torch.cuda.amp.autocast(dtype=BF16):
                note("old")
            with torch.cuda.amp.autocast(True, BF16):
                note("old, by position")
        with torch.autocast(x.device.type, BF16):
            note("the tensor's device")
        with torch.amp.autocast("cuda", dtype=BF16):
            note("amp")
        torch.autocast("cuda", dtype=BF16)(lambda: note("decorated"))()
        with torch.autocast("cuda", dtype=BF16, enabled=False):
            note("off")

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # CUDA is not available, says torch: not in here
        as_if_on_gpu(step)
    assert [row[1:] for row in seen] == [(BF16, True, BF16)] * 5 + [(SINGLE, False, BF16)]
    assert not torch.is_autocast_enabled("cuda")


def test_autocast_on_the_cpu_stays_torchs_own():
    layer, x = nn.Linear(8, 4), torch.rand(2, 8)
    seen = []

    def step():
        with torch.autocast("cpu", dtype=BF16):
            seen.append((layer(x).dtype, torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu")))
            seen.append(nn.Linear(8, 4, device="meta")(x.to("meta")).dtype)

    with casts_as_on_cuda():
        step()
    assert seen == [(BF16, False, True), SINGLE]


def test_the_cache_is_dropped_when_torch_drops_its_own():
    weight, x = torch.rand(8, 8, device="meta", requires_grad=True), torch.rand(2, 8, device="meta")
    with casts_as_on_cuda() as casts:
        with torch.autocast("cuda", dtype=BF16):
            x @ weight
            with torch.autocast("cuda", dtype=BF16):
                x @ weight
            assert len(casts.cache) == 1
            torch.clear_autocast_cache()
            assert not casts.cache
            x @ weight.detach()  # no gradient
            x @ (weight * 1)  # no leaf
            x @ weight.view(8, 8)  # a view
            x @ weight.bfloat16()
            assert not casts.cache
            torch.exp(weight.detach().bfloat16().requires_grad_())  # to float32: never kept
            assert not casts.cache
            x @ weight
        assert not casts.cache


def test_grad_scaler_stays_off():
    """It would have to look at the gradients' numbers. Torch says so itself, in a warning."""
    with torch.device("meta"):
        model, x = nn.Linear(8, 4), torch.rand(2, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.warns(UserWarning, match="CUDA is not available"):
        scaler = torch.amp.GradScaler("cuda")

    def step():
        with torch.autocast("cuda"):
            loss = model(x).float().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    recording = watch("meta", step)
    assert not scaler.is_enabled()
    assert [e.kind for e in recording.events if e.kind in ("step", "stepped")] == ["step", "stepped"]


def test_without_autocast_nothing_is_cast():
    with torch.device("meta"):
        model, x = Twice(), torch.rand(4, 8)
    assert len(casts_of(watch("meta", twice, "meta", model, x))) > 8
    model.zero_grad()
    with warnings.catch_warnings(record=True) as told:  # without a GPU torch warns, and does nothing
        warnings.simplefilter("always")
        assert not casts_of(watch("meta", twice, "meta", model, x, autocast=False))
    assert any("CUDA is not available" in str(w.message) for w in told)
