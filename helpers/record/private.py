"""Every private torch API that the recorder uses stands here, behind a guard and a self-test.

What a torch version lacks turns up in `capabilities().missing`, as a sentence for the recording's notes: that view
degrades, the rest goes on. Signatures as in torch 2.6 to 2.14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from threading import get_ident
from typing import Any

import torch
from torch.jit import _builtins
from torch.overrides import _get_current_function_mode_stack as _function_modes
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

from .interrupts import free, held

_autograd = torch._C._autograd

#: Number of the next autograd node that this thread makes.
sequence_number: Callable[[], int] = getattr(_autograd, "_get_sequence_nr", lambda: -1)
#: Number of the backward pass that runs in this thread, -1 for none.
graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)

#: A guard: as long as it lives, this thread's operations pass by every dispatch mode.
Unseen = torch._C._DisableTorchDispatch
#: AccumulateGrad nodes carry this instead of a number of their own.
NO_SEQUENCE = 2**64 - 1


#: Nodes whose formula asks whether a dispatch mode is on, and then works out of place or by another method (with other
#: rounding). They run with our mode hidden; what is live inside them for a moment is not seen.
FORMULAS_THAT_LOOK = frozenset(
    f"{name}Backward"
    for name in (
        "Aminmax BinaryCrossEntropy BinaryCrossEntropyWithLogits Clamp Cummax Cummin Cumprod Gather Index "
        "IndexSelect Kthvalue LinalgDet LinalgEig LinalgHouseholderProduct MaskedSelect Max "
        "MaxPool2DWithIndicesBackward Median Min Mode Nanmedian Ormqr Prod Sort Take Topk Trace"
    ).split()
)


_OURS = __name__.partition(".")[0] + "."


class DispatchMode(TorchDispatchMode):
    """A dispatch mode whose handler torch does not wrap against compilation: compiled code is refused anyway."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def owners(tensor: torch.Tensor) -> tuple[int, int]:
    """References that C++ holds to a tensor and to its storage; compared only with values calibrated here."""
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def storage_key(storage: Any) -> int:
    """Address of the storage itself (not of its data): one number for one storage as long as it lives."""
    return storage._cdata


def tangents_run() -> bool:
    """Whether forward-mode differentiation runs: its engine pairs each result with a tangent."""
    return getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0


@contextmanager
@held
def no_dispatch() -> Iterator[None]:
    """Our own reads inside hooks run below every mode."""
    guard = Unseen()
    try:
        with torch.no_grad():
            yield
    finally:
        del guard


@contextmanager
def replaced(owners: Iterable[Any], name: str, original: Any, replacement: Any) -> Iterator[None]:
    """Let `replacement` stand for `original` in each owner that has it; put back only what is still ours."""
    places = [owner for owner in owners if getattr(owner, name, None) is original]
    try:
        for owner in places:
            setattr(owner, name, replacement)
        yield
    finally:
        for owner in places:
            if getattr(owner, name) is replacement:
                setattr(owner, name, original)


def engine_entry(wrapper: Callable[..., Any]) -> AbstractContextManager[None]:
    """While it is entered, every entry into backward goes through `wrapper(original, tensors, *args, **kwargs)`.

    `Tensor.backward`, `autograd.backward` and `autograd.grad` all call this one Python function.
    """
    import torch.autograd as front
    import torch.autograd.graph as graph

    original = graph._engine_run_backward

    def entry(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, tensors, *args, **kwargs)

    return replaced((front, graph), "_engine_run_backward", original, entry)


def random_states(seen: Callable[[torch.Tensor], None]) -> AbstractContextManager[None]:
    """Tell of each copy of the random state that checkpointing takes: its memory comes from no operation."""
    original = torch.random.get_rng_state

    @wraps(original)
    def get_rng_state() -> torch.Tensor:
        state = original()
        seen(state)
        return state

    return replaced((torch, torch.random), "get_rng_state", original, get_rng_state)


def _plain(tensor: Any) -> bool:
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided


def _adds_bias_in_place(*args: Any, **kwargs: Any) -> Any:
    """The shapes of result and bias, if this call of torch.nn.functional.linear adds it in place, unless it meets us.

    It does but for other kinds of tensors, transforms, forward-mode differentiation, and other modes than ours.
    """
    given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    tensors = [given.get(name) for name in ("input", "weight", "bias")]
    if (
        torch._C._len_torch_dispatch_stack() != 1
        or not all(type(m) is DeviceContext or type(m).__module__.startswith(_OURS) for m in _function_modes())
        or not all(map(_plain, tensors))
        or torch._C._functorch.is_functorch_wrapped_tensor(given["bias"])
        or tangents_run()
    ):
        return None
    return (*given["input"].shape[:-1], *given["weight"].shape[:1]), given["bias"].shape


@contextmanager
def linear_calls(told: Callable[[Any], None]) -> Iterator[None]:
    """Tell when torch.nn.functional.linear begins in this thread and would add its bias in place, and when it ends.

    It looks whether a dispatch mode is on, or the tensors on meta, and then adds out of place. `told` gets the shapes
    of result and bias, then None. While it runs, torch has its own function back: code that is told of operations
    compares with that.
    """
    functional, original, thread = torch.nn.functional, torch._C._nn.linear, get_ident()
    on = True

    @free
    def run(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    @wraps(original)
    @held
    def linear(*args: Any, **kwargs: Any) -> Any:
        if not on or functional.linear is not linear or get_ident() != thread:
            return original(*args, **kwargs)
        try:
            functional.linear = original
            told(_adds_bias_in_place(*args, **kwargs))
            return run(*args, **kwargs)
        finally:
            if on:
                told(None)
                functional.linear = linear

    script = _builtins._get_builtin_table()  # torch.jit.script knows torch's function by its id
    try:
        script[id(linear)] = "aten::linear"
        with replaced((functional,), "linear", original, linear):
            yield
    finally:
        script.pop(id(linear), None)
        on, told, linear = False, None, None  # somebody may have kept it: it goes on as torch's own


@contextmanager
def memory_history() -> Iterator[Callable[[], dict[str, Any]]]:
    """The CUDA allocator notes every block with its stack; what it gives takes the snapshot.

    Somebody else's history goes on as it was: the snapshot then holds what came before as well.
    """
    memory = torch.cuda.memory
    others = any(memory._snapshot()["device_traces"])
    if not others:
        memory._record_memory_history(max_entries=1_000_000)
    try:
        yield memory._snapshot
    finally:
        if not others:
            memory._record_memory_history(enabled=None)


#: Whether a saved tensor can be read raw, without a check or a hook. Early torch 2 cannot.
RAW = hasattr(_autograd.SavedTensor, "data")


class DefaultHooks:
    """For a torch that reads nothing raw: whether saved-tensor hooks apply to the nodes that are made now."""

    def __init__(self) -> None:
        self.depth = 0

    @contextmanager
    def followed(self) -> Iterator[None]:
        with torch.enable_grad():
            probe = torch.ones(1, requires_grad=True).exp().grad_fn
        try:
            probe._raw_saved_result.register_hooks(lambda x: x, lambda x: x)
        except RuntimeError:  # it has hooks already
            self.depth = 1
        del probe
        push, pop = _autograd._push_saved_tensors_default_hooks, _autograd._pop_saved_tensors_default_hooks

        def pushed(*args: Any) -> Any:
            self.depth += 1
            return push(*args)

        def popped(*args: Any) -> Any:
            self.depth -= 1
            return pop(*args)

        with (
            replaced((_autograd,), "_push_saved_tensors_default_hooks", push, pushed),
            replaced((_autograd,), "_pop_saved_tensors_default_hooks", pop, popped),
        ):
            yield


def saved_data(raw: Any, function: Any, argument: str, position: int | None, hooked: bool | None) -> tuple[Any, Any]:
    """What a saved tensor holds and the hook that would unpack it, read without any effect.

    hooked: for a torch that cannot read raw, whether a hook took it; None where nobody knows, and nothing is read.
    """
    if RAW:
        return raw.data, raw.unpack_hook
    if hooked is not False:
        return NotImplemented, NotImplemented
    value = getattr(function, "saved_tensors" if argument == "tensors" else f"_saved_{argument}")
    return (value if position is None else value[position]), None


def compiled_frame(qualified_name: str, filename: str) -> bool:
    """Whether a Python frame is the entrance of a function under torch.compile."""
    return (
        "_dynamo" in filename
        and qualified_name.endswith("compile_wrapper")
        or (filename.endswith("eval_frame.py") and qualified_name == "_TorchDynamoContext.__call__.<locals>._fn")
    )


@cache
def slots(kind: type) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Of a node's type: its saved tensors as (argument, raw attribute), its saved scalars as (argument, attribute)."""
    names = dir(kind)
    raw = tuple((n[len("_raw_saved_") :], n) for n in names if n.startswith("_raw_saved_"))
    raw = tuple(sorted(raw, key=lambda slot: slot[0] not in ("self", "input", "mat1")))  # as the operation takes them
    tensors = {n for n, _ in raw}
    scalars = tuple(
        (n[len("_saved_") :], n) for n in names if n.startswith("_saved_") and n[len("_saved_") :] not in tensors
    )
    return raw, scalars


@dataclass(frozen=True)
class Capabilities:
    exclusive: tuple[int, int] | None  # `owners` of a gradient that only the engine holds, as our handler sees it
    missing: tuple[str, ...]


class _Probe(DispatchMode):
    """Notes the owner counts of the first addition inside a backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.add.Tensor and graph_task() != -1:
            self.seen.append(owners(args[0]))
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            out.untyped_storage()
        return out


@cache
def capabilities() -> Capabilities:
    """The self-test, once a process: a graph of four nodes whose counts and slots are known."""
    missing = []
    state = torch.random.get_rng_state()
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        leaf = torch.ones(8, requires_grad=True)
        exclusive = None
        try:
            with _Probe() as probe:
                hidden = leaf.exp()
                (hidden.sin() + hidden.cos()).sum().backward()
            exclusive = probe.seen[0]
            # A gradient that two branches share must count more owners, or the calibration tells nothing.
            with _Probe() as probe:
                hidden = leaf.exp()
                (hidden + hidden).sum().backward()
            if not probe.seen or probe.seen[0] == exclusive:
                exclusive = None
        except (AttributeError, IndexError, TypeError):
            exclusive = None
        if exclusive is None:
            missing.append(
                "This torch does not tell who owns a gradient, so gradients that meet at one tensor are shown as added "
                "out of place: peaks in backward may be shown too high."
            )
        node = leaf.exp().grad_fn
        raw, _ = slots(type(node))
        if not raw or saved_data(getattr(node, raw[0][1]), node, raw[0][0], None, False)[0] is None:
            missing.append("This torch does not show what a node saved: nothing is listed as kept for backward.")
        elif not RAW:
            missing.append(
                "This torch does not show what graphs from before the recording keep, nor what hooks put in a tensor's "
                "place: such tensors are listed without their bytes."
            )
        before = sequence_number()
        leaf.exp()
        if sequence_number() != before + 1:
            missing.append("This torch does not number its nodes as expected: nodes have no source lines.")
    assert torch.equal(state, torch.random.get_rng_state())
    return Capabilities(exclusive, tuple(missing))
