"""A step runs on meta tensors as it would on a GPU: what surrounds its recording.

Meta tensors have shapes and no numbers, so a step of any size runs in a moment and takes no memory; the choices of
helpers.gpu.choices make it take the kernels that CUDA takes. Nothing ever pretends to be a CUDA tensor.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..data.devices import devices_of, only_device
from ..data.model import PARAMETERS, Recording, Storage
from ..record import Recorder, RecordError
from . import private
from .choices import Choices, in_force

#: Operations that need numbers, as a reader knows them.
NEEDS_NUMBERS = {
    "aten._local_scalar_dense": ("item()", "float(), int(), bool(), tolist(), `if tensor:` and an f-string with :.3f"),
    "aten.nonzero": ("nonzero()", "a boolean mask, as in x[mask], and torch.where with one argument"),
    "aten.masked_select": ("masked_select()", "a boolean mask, as in x[mask]"),
    "aten.equal": ("torch.equal()", "torch.allclose() and torch.testing.assert_close()"),
    "aten._to_copy": ("a copy to the CPU", "cpu(), numpy() and to('cpu')"),
    "aten.copy_": ("a copy to the CPU", ""),
    "aten.unique_consecutive": ("unique_consecutive()", ""),
    "aten._unique2": ("unique()", ""),
    "aten._ctc_loss": ("ctc_loss()", ""),
    "aten.bincount": ("bincount()", ""),
}
_CUDA = re.compile(r"cuda(:\d+)?")


class AsIfOnGPU:
    """Enter it around a recording; `told` says what an error means, `finished` makes the recording what it stands for.

    Limits: what kernels take inside themselves is not seen; cuDNN's LSTM and GRU keep a reserve that only cuDNN knows
    (here they run operation by operation); GradScaler stays off, since it would have to look at numbers; attention
    layers in evaluation take the path of training.
    """

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._stack = ExitStack()

    def __enter__(self) -> AsIfOnGPU:
        if why := private.missing():
            raise RecordError(why)
        with ExitStack() as stack:
            stack.enter_context(in_force(self.choices))
            stack.enter_context(_Devices())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def told(self, error: BaseException | None, recorder: Recorder) -> BaseException | None:
        """The error that the step raised; a sentence of ours where meta tensors are why."""
        if not isinstance(error, (RuntimeError, NotImplementedError, TypeError, AssertionError)):
            return error
        message, name = str(error), recorder.trying
        if isinstance(error, RecordError) or not name or "meta" not in message.lower():
            return error
        at = recorder.places.of_traceback(error.__traceback__)
        frame = recorder.places.places[at].inner if at is not None else None
        line = recorder.places.sources[frame.source].line(frame.line) if frame else ""
        where = f" on line {frame.line}" + (f", `{line}`" if line else "") if frame else ""
        what, so_do = NEEDS_NUMBERS.get(name, (name.removeprefix("aten.") or "an operation", ""))
        return RecordError(
            f"as_if_on_gpu stopped{where}: {what} needs the numbers in a tensor{so_do and f' (so do {so_do})'}, and as "
            "if on a GPU tensors have shapes but no numbers. Take that line out of the step, or run the step for real, "
            "with record()."
        )

    def check(self, recorder: Recorder) -> None:
        """Raise RecordError if what ran was not on meta."""
        parameters = any(s.fixed == PARAMETERS and s.device == "cpu" for s in recorder.storages)
        nothing = recorder.storages and not any(s.device == "meta" for s in recorder.storages)
        if parameters or nothing:
            what = "The model's parameters are on the CPU" if parameters else "All tensors of this step are on the CPU"
            raise RecordError(
                f"{what}, with numbers in them. As if on a GPU everything is made without: build it under `with "
                'torch.device("meta"):` (model and data; the optimizer after them).'
            )

    def finished(self, recording: Recording) -> Recording:
        """Only the GPU's memory, and what was assumed."""
        beside = devices_of(recording).get("cpu", 0)
        notes = recording.notes + (assumed(self.choices),)
        if beside:
            notes += (f"Tensors on the CPU ({beside:,} B) are left out: they take nothing of a GPU's memory.",)
        found = only_device(recording, "meta")
        return replace(found, notes=notes, storages=tuple(map(self._named, found.storages)))

    def _named(self, storage: Storage) -> Storage:
        """A workspace by its name."""
        if storage.op == "aten.empty" and storage.shape == (self.choices.workspace,) and storage.dtype == "uint8":
            return replace(storage, names=("cuBLAS workspace",))
        return storage


def assumed(choices: Choices) -> str:
    """What a run as if on a GPU takes for granted, as a sentence."""
    attention = {"auto": "attention by the kernel that CUDA chooses", "math": "attention by matrix products"}
    parts = [
        attention.get(choices.attention, f"attention by the {choices.attention} kernel"),
        "optimizers on all parameters at once (foreach)" if choices.foreach else "optimizers on one parameter a time",
        "dropout with a mask of one byte an element" if choices.dropout else "dropout with meta's mask",
        "RMSNorm in one kernel" if choices.rms_norm else "RMSNorm as a chain of operations",
        "CUDA's autocast" if choices.autocast else "no autocast",
        f"{choices.workspace:,} B of cuBLAS workspace a thread" if choices.workspace else "no cuBLAS workspace",
    ]
    return f"As if on a GPU: {', '.join(parts)}. What kernels take inside themselves is not in it."


class _Devices(TorchFunctionMode):
    """ "cuda" in the step's code means the device that the run is as if on."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0].to("meta")
        if kwargs and _is_cuda(kwargs.get("device")):
            kwargs = {**kwargs, "device": "meta"}
        if func is torch.Tensor.to and any(_is_cuda(a) for a in args[1:]):
            args = (args[0], *("meta" if _is_cuda(a) else a for a in args[1:]))
        return func(*args, **kwargs)


def _is_cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and _CUDA.fullmatch(device) is not None
