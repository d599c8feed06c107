"""What CUDA would run, for tensors without numbers: the choice of kernel decides what is kept.

Each switch of `Choices` stands for one such choice; off, meta's own kernel runs, and the difference shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch

from . import private
from .autocast import Casts

Tensor = torch.Tensor
aten = torch.ops.aten

#: What cuBLAS takes per handle and stream, in bytes: ":4096:2:16:8" (2 × 4 MiB + 8 × 16 KiB), and 32 MiB on Hopper.
CUBLAS_WORKSPACE = 8_519_680
HOPPER_WORKSPACE = 33_554_432

#: Matrix products, and operations made of them.
PRODUCTS = "mm addmm bmm baddbmm addbmm mv addmv dot vdot _addmm_activation"
COMPOSITE = "linear matmul einsum"

#: Operations that meta runs on tensors of two devices, where CUDA refuses.
ONE_DEVICE = (
    f"{PRODUCTS} convolution embedding _embedding_bag _embedding_bag_forward_only gather index_select index_add "
    "scatter.src scatter.value scatter_add scatter_reduce.two rms_norm scaled_dot_product_attention"
)
SPARSE_GRADIENT = "A sparse gradient has no rows on meta."
#: Operations that give one.
SPARSE = "embedding_sparse_backward _embedding_bag_backward _gather_sparse_backward"

ATTENTION = ("auto", "flash", "efficient", "math")


@dataclass(frozen=True, slots=True)
class Choices:
    """CUDA's choices, each a switch.

    attention: which kernel serves scaled_dot_product_attention: "flash", "efficient", "math" (matrix products and a
        softmax, what meta runs), or "auto", as CUDA chooses.
    foreach: whether optimizers and gradient clipping work on all parameters at once, as they do by default on CUDA.
    dropout: whether dropout keeps a mask of one byte an element (native_dropout), or meta's, as wide as its input.
    rms_norm: whether F.rms_norm is one kernel that keeps its input and one number a row, or a chain of operations (as
        it is under torch.func's transforms in any case).
    autocast: whether torch.autocast("cuda") casts as CUDA does, or, as on meta, does nothing.
    workspace: bytes of workspace that cuBLAS takes, once in the forward thread and once in backward's; 0 for none.
    """

    attention: str = "auto"
    foreach: bool = True
    dropout: bool = True
    rms_norm: bool = True
    autocast: bool = True
    workspace: int = CUBLAS_WORKSPACE

    def __post_init__(self) -> None:
        if self.attention not in ATTENTION:
            raise ValueError(f"attention is one of {', '.join(map(repr, ATTENTION))}, not {self.attention!r}.")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool" and not isinstance(value, bool):
                raise ValueError(f"{field.name} is a switch, True or False, not {value!r}.")
        if isinstance(self.workspace, bool) or not isinstance(self.workspace, int) or self.workspace < 0:
            raise ValueError(f"workspace is a number of bytes, 0 for none, not {self.workspace!r}.")


@contextmanager
def in_force(choices: Choices) -> Iterator[None]:
    """While it is entered, this thread's operations on meta tensors run as CUDA would run them."""
    workspaces = Workspaces(choices.workspace)
    rules: dict[str, private.Rule] = workspaces.rules() if choices.workspace else {}
    if choices.attention != "math":
        rules["scaled_dot_product_attention"] = Attention(choices.attention)
    if choices.dropout:
        rules["dropout"] = _dropout
    if choices.rms_norm and private.overload("_fused_rms_norm") is not None:  # before, CUDA had no such kernel either
        rules["rms_norm"] = _rms_norm
    rules |= {"softmax.int": _softmax, "log_softmax.int": _softmax} | dict.fromkeys(SPARSE.split(), _sparse)
    rules |= {name: _on_one_device(rules.get(name)) for name in ONE_DEVICE.split()}
    with ExitStack() as stack:
        stack.callback(workspaces.held.clear)
        if choices.foreach:
            stack.enter_context(private.foreach_by_default())
        stack.enter_context(private.kernels(private.CHOICES, rules))
        if choices.autocast:
            casts = Casts()
            stack.callback(casts.clear)
            stack.enter_context(private.cuda_autocast(casts.clear))
            stack.enter_context(private.kernels(private.CASTS, casts.rules()))
        yield


def _on_meta(tensor: Any) -> bool:
    return isinstance(tensor, Tensor) and tensor.device.type == "meta"


# -------------------------------------------------------------------- cuBLAS


class Workspaces:
    """cuBLAS's workspaces: taken at the first matrix product of each thread, and kept."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.held: dict[bool, Tensor] = {}  # whether in backward → the workspace

    def rules(self) -> dict[str, private.Rule]:
        return dict.fromkeys(PRODUCTS.split(), self.product) | dict.fromkeys(COMPOSITE.split(), self.composite)

    def product(self, op: Any, args: tuple, kwargs: dict) -> Any:
        thread = private.in_backward()
        if thread not in self.held and any(_on_meta(t) for a in args for t in (a if isinstance(a, list) else (a,))):
            with torch.no_grad():
                self.held[thread] = torch.empty(self.nbytes, dtype=torch.uint8, device="meta")
        return NotImplemented

    def composite(self, op: Any, args: tuple, kwargs: dict) -> Any:
        """In inference mode a recording sees these whole, and would not see what they take inside."""
        return self.product(op, args, kwargs) if torch.is_inference_mode_enabled() else NotImplemented


# -------------------------------------------------------------------- dropout, RMSNorm


def _dropout(op: Any, args: tuple, kwargs: dict) -> Any:
    """CUDA fuses where something is dropped and something stays."""
    x, p, train = args
    if not _on_meta(x) or not (train and 0 < p < 1 and x.numel()):
        return NotImplemented
    return aten.native_dropout.default(x, p, train)[0]


class FusedRMSNorm(torch.autograd.Function):
    """Keeps what CUDA's kernel keeps: input, weight, and the inverse root mean square of each row in float32.

    Its backward is one kernel; with create_graph=True it is, as on CUDA, a chain that can be differentiated again.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple[int, ...], weight: Tensor | None) -> Tensor:
        rows = x.shape[: x.dim() - len(shape)]
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        scale = x.new_empty((*rows, *[1] * len(shape)), dtype=wide)
        ctx.save_for_backward(x, weight, scale)
        ctx.over = tuple(range(-len(shape), 0))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _rms_norm_backward(x, weight, gradient, ctx.over, scale.dtype)
        of_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        of_weight = torch.empty_like(weight) if ctx.needs_input_grad[2] else None
        return of_x, None, of_weight


def _rms_norm_backward(
    x: Tensor, weight: Tensor | None, gradient: Tensor, over: tuple[int, ...], wide: torch.dtype
) -> tuple[Tensor | None, ...]:
    """dL/dx and dL/dweight of y = weight·x/rms(x), in operations that autograd knows."""
    scale = x.to(wide).pow(2).mean(over, keepdim=True).rsqrt()
    normal, into = x.to(wide) * scale, gradient.to(wide)
    of_weight = None if weight is None else (into * normal).sum_to_size(weight.shape).to(weight.dtype)
    into = into if weight is None else into * weight
    of_x = (into - normal * (into * normal).mean(over, keepdim=True)) * scale
    return of_x.to(x.dtype), None, of_weight


def _rms_norm(op: Any, args: tuple, kwargs: dict) -> Any:
    """Of another dtype than its weight, CUDA too runs the chain of operations."""
    names = ("input", "normalized_shape", "weight", "eps")
    given = dict(zip(names, args, strict=False)) | kwargs
    x, weight = given["input"], given.get("weight")
    if not _on_meta(x) or (weight is not None and weight.dtype is not x.dtype) or private.transforms_run():
        return NotImplemented
    return FusedRMSNorm.apply(x, tuple(given["normalized_shape"]), weight)


# -------------------------------------------------------------------- softmax, and what CUDA refuses


def _softmax(op: Any, args: tuple, kwargs: dict) -> Any:
    """From float16 to float32 CUDA's kernel widens as it reads, with no copy before it."""
    given = dict(zip(("self", "dim", "dtype"), args, strict=False)) | kwargs
    x = given["self"]
    if not _on_meta(x) or x.dtype is not torch.float16 or given.get("dtype") is not torch.float32:
        return NotImplemented
    kernel = aten._softmax if op is aten.softmax.int else aten._log_softmax
    return kernel.default(x, given["dim"], True)


def _sparse(op: Any, args: tuple, kwargs: dict) -> Any:
    given = dict(zip([a.name for a in op._schema.arguments], args, strict=False)) | kwargs
    if not any(map(_on_meta, args)) or not given.get("sparse", True):  # a bag has one backward for both kinds
        return NotImplemented
    raise RuntimeError(SPARSE_GRADIENT)


def _on_one_device(rule: private.Rule | None) -> private.Rule:
    def run(op: Any, args: tuple, kwargs: dict) -> Any:
        devices = {t.device.type for t in (*args, *kwargs.values()) if isinstance(t, Tensor)}
        if devices == {"cpu", "meta"}:
            raise RuntimeError("Expected all tensors to be on the same device, but found cpu and meta.")
        return NotImplemented if rule is None else rule(op, args, kwargs)

    return run


# -------------------------------------------------------------------- attention


class Attention:
    """scaled_dot_product_attention by a fused kernel, as CUDA prepares its inputs for it."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted

    def __call__(self, op: Any, args: tuple, kwargs: dict) -> Any:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = dict(zip(names, args, strict=False)) | kwargs
        q, k, v, mask = given["query"], given["key"], given["value"], given.get("attn_mask")
        causal, p, scale = given.get("is_causal", False), given.get("dropout_p", 0.0), given.get("scale")
        kernel = self.kernel(q, k, v, mask, causal, given.get("enable_gqa", False))
        if kernel == "flash":
            return _flash(q, k, v, p, causal, scale)
        if kernel == "efficient":
            return _efficient(q, k, v, mask, p, causal, scale)
        return NotImplemented

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, grouped: bool) -> str:
        """Which kernel CUDA takes: the first that is allowed and can."""
        if not all(_on_meta(t) for t in (q, k, v)) or not all(t.dim() == 4 and not t.is_nested for t in (q, k, v)):
            return "math"
        same = q.dtype is k.dtype is v.dtype and q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1] == v.shape[1]
        whole = all(t.shape[2] > 0 and t.stride(-1) == 1 for t in (q, k, v))
        if not (same and whole):
            return "math"
        able = {
            "flash": q.dtype in (torch.float16, torch.bfloat16)
            and mask is None
            and not (causal and q.shape[2] != k.shape[2])
            and (q.shape[1] == k.shape[1] or (grouped and q.shape[1] % k.shape[1] == 0))
            and q.shape[-1] <= 256
            and q.shape[-1] == k.shape[-1] == v.shape[-1]
            and torch.backends.cuda.flash_sdp_enabled(),
            "efficient": q.dtype in (torch.float16, torch.bfloat16, torch.float32)
            and not grouped
            and q.shape[1] == k.shape[1]
            and all(t.shape[-1] % (4 if t.dtype is torch.float32 else 8) == 0 for t in (q, v))
            and torch.backends.cuda.mem_efficient_sdp_enabled(),
        }
        order = ("flash", "efficient") if self.wanted == "auto" else (self.wanted,)
        found = next((name for name in order if able[name]), "math")
        if found == "math" and self.wanted == "auto" and not torch.backends.cuda.math_sdp_enabled():
            raise RuntimeError(
                "No kernel of those that sdpa_kernel() allows can do this attention on CUDA: flash takes 16 bits and "
                "no mask, efficient a width that 8 divides (4 in float32), no grouped heads. Allow SDPBackend.MATH too."
            )
        return found


def _flash(q: Tensor, k: Tensor, v: Tensor, p: float, causal: bool, scale: float | None) -> Tensor:
    width = q.shape[-1]
    scale = width**-0.5 if scale is None else scale
    if more := -width % 8:
        q, k, v = (torch.nn.functional.pad(t, (0, more)) for t in (q, k, v))
    out = aten._scaled_dot_product_flash_attention.default(q, k, v, p, causal, False, scale=scale)[0]
    return out[..., :width] if more else out


def _efficient(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, causal: bool, scale: float | None
) -> Tensor:
    if mask is not None:
        if mask.dtype is torch.bool:
            mask = torch.where(mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=q.dtype, device=mask.device))
        if mask.stride(-1) != 1 or any(stride % 8 for stride in mask.stride()[:-1]):  # rows the kernel cannot load
            length = mask.shape[-1]
            mask = torch.nn.functional.pad(mask, (0, 8 - length % 8))[..., :length]
        mask = mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    keeps = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
    return aten._scaled_dot_product_efficient_attention.default(q, k, v, mask, keeps, p, causal, scale=scale)[0]
