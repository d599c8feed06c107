"""Every private torch API of the runs as if on a GPU stands here, behind a guard and a self-test.

A torch that was built without CUDA has no CUDA tensors, and pretending to have some can abort the process. What it does
have is a place in its dispatcher, above autograd, where another device's autocast would stand: for devices that are
not here, no kernel is registered there. For the time of a run our own stand there, on two levels (casts above kernel
choices), and only for this thread; at the end nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch

from ..record.private import replaced

#: Rule(op, args, kwargs) → what the operation gives; NotImplemented to let it run as it would without the rule.
Rule = Callable[[Any, tuple, dict], Any]

#: Devices whose places we borrow, the upper one first.
CASTS, CHOICES = "hpu", "ipu"
_KEYS = {CASTS: "AutocastHPU", CHOICES: "AutocastIPU"}


@cache
def missing() -> str:
    """The self-test, once a process: why this torch cannot run as if on a GPU, as a sentence; "" if it can."""
    try:
        for device, name in _KEYS.items():
            getattr(torch._C.DispatchKey, name)
            if torch.is_autocast_enabled(device) or has_kernel("aten::bmm", name):
                return f"This torch runs on a device of its own ({device}), and as_if_on_gpu needs that place."
        seen: list[str] = []

        def note(op: Any, args: tuple, kwargs: dict) -> Any:
            seen.append(str(op))
            return op(*args, **kwargs)

        with kernels(CHOICES, {"sin": note}):
            x = torch.empty(2, device="meta", requires_grad=True)
            y = torch.ops.aten.sin.default(x).cos()
        torch.ops.aten.sin.default(x)
        if seen != ["aten.sin.default"] or y.grad_fn is None:
            return "This torch does not let its dispatcher be extended for a while, which as_if_on_gpu needs."
    except (AttributeError, RuntimeError, TypeError) as error:
        return f"This torch lacks something that as_if_on_gpu needs ({type(error).__name__}: {error})."
    return ""


def has_kernel(op: str, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op, key)


@cache
def autocast_operations() -> frozenset[str]:
    """Names of the operations for which this torch has an autocast kernel for CUDA: "bmm", "pow.Tensor_Scalar"."""
    names = torch._C._dispatch_get_all_op_names()
    return frozenset(n[len("aten::") :] for n in names if n.startswith("aten::") and has_kernel(n, "AutocastCUDA"))


@cache
def cached_casts_have_gradients() -> bool:
    """Whether a weight that is cast under no_grad has a gradient all the same, for later uses of the cache.

    It has in later versions; before, a weight met under no_grad first got no gradient until the cache was dropped.
    """
    weight = torch.ones(1, 1, requires_grad=True)
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=True):
        with torch.no_grad():
            weight.mm(weight)
        return weight.mm(weight).requires_grad


def overload(name: str) -> Any:
    """ "pow.Tensor_Scalar" → torch.ops.aten.pow.Tensor_Scalar; None if this torch has no such operation."""
    packet, _, which = name.partition(".")
    found = getattr(torch.ops.aten, packet, None)
    return None if found is None else getattr(found, which or "default", None)


@contextmanager
def kernels(level: str, rules: Mapping[str, Rule]) -> Iterator[None]:
    """While it is entered, each named operation of this thread is done by its rule, above autograd.

    Inside a rule this level is off, so a rule may call the operation itself. Where a rule lets its operation run, the
    level is on for what that operation is made of.
    """
    name = _KEYS[level]
    key = getattr(torch._C.DispatchKey, name)
    off, below = torch._C.DispatchKeySet(key), torch._C._dispatch_keyset_full_after(key)

    def kernel(op: Any, rule: Rule) -> Callable[..., Any]:
        def run(keys: Any, *args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(off):
                out = rule(op, args, kwargs)
            return op.redispatch(keys & below, *args, **kwargs) if out is NotImplemented else out

        return run

    with ExitStack() as stack:
        passing = torch.library.Library("_", "IMPL")
        stack.callback(passing._destroy)
        passing.fallback(torch.library.fallthrough_kernel, name)
        library = torch.library.Library("aten", "IMPL")
        stack.callback(library._destroy)
        for operation, rule in rules.items():
            op = overload(operation)
            if op is not None:
                library.impl(operation, kernel(op, rule), name, with_keyset=True)
        stack.callback(torch.set_autocast_enabled, level, torch.is_autocast_enabled(level))
        torch.set_autocast_enabled(level, True)
        stack.enter_context(torch._C._IncludeDispatchKeyGuard(key))
        yield


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def transforms_run() -> bool:
    """Whether one of torch.func's transforms (vmap, grad) is at work."""
    return torch._C._functorch.peek_interpreter_stack() is not None


@contextmanager
def foreach_by_default() -> Iterator[None]:
    """Optimizers and gradient clipping take their multi-tensor form for meta tensors too, as they do on CUDA."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils as utils

    with ExitStack() as stack:
        for name in ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices"):
            original = getattr(utils, name)

            def more(original: Any = original) -> list[str]:
                return [*original(), "meta"]

            stack.enter_context(replaced((utils, optimizer), name, original, more))
        yield


@contextmanager
def cuda_autocast(cleared: Callable[[], None]) -> Iterator[None]:
    """`torch.autocast("cuda")` (and "meta") is on where the code says so, though there is no CUDA; so are the casts of
    custom_fwd; `cleared` is called when torch drops its cache of cast weights."""
    from torch.utils import checkpoint

    module = torch.amp.autocast_mode
    autocast, cast = module.autocast, module._cast
    original, clear = autocast.__init__, torch.clear_autocast_cache
    infer = checkpoint._infer_device_type

    def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        if device_type not in ("cuda", "meta"):
            original(self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
            return
        original(self, "cuda", dtype=dtype, enabled=False, cache_enabled=cache_enabled)
        self._enabled = enabled

    def clear_cache() -> None:
        clear()
        cleared()

    def cast_on(value: Any, device_type: str, dtype: Any) -> Any:
        return cast(value, "meta" if device_type == "cuda" else device_type, dtype)

    def infer_device_type(*args: Any) -> str:  # of which device checkpoint keeps the autocast state
        found = infer(*args)
        return "cuda" if found == "meta" else found

    with (
        replaced((checkpoint,), "_infer_device_type", infer, infer_device_type),
        replaced((autocast,), "__init__", original, init),
        replaced((torch,), "clear_autocast_cache", clear, clear_cache),
        replaced((module,), "_cast", cast, cast_on),
    ):
        yield
