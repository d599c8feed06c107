"""A step runs on meta tensors as it would on a GPU: what surrounds its recording.

Meta tensors have shapes and no numbers, so a step of any size runs in a moment and takes no memory; the choices of
helpers.gpu.choices make it take the kernels that CUDA takes. Nothing ever pretends to be a CUDA tensor.
"""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..data.devices import devices_of, only_device
from ..data.model import PARAMETERS, Recording, Storage
from ..record import Recorder, RecordError
from ..record.interrupts import Interrupts, held
from . import private
from .choices import SPARSE_GRADIENT, Choices, in_force

_ITEM = ("item()", "float(), int(), bool(), `if tensor:` and an f-string with :.3f")
_COPY = ("a copy to the CPU", "cpu(), numpy(), tolist() and to('cpu')")
_NONZERO = ("nonzero()", "a boolean mask, as in x[mask], and torch.where with one argument")

#: Operations that need numbers, as a reader knows them: name, and what else comes down to it.
NEEDS_NUMBERS = {
    "aten._local_scalar_dense": _ITEM,
    "aten._to_copy": _COPY,
    "aten.copy_": _COPY,
    "aten.nonzero": _NONZERO,
    "aten.masked_select": ("masked_select()", ""),
    "aten.equal": ("torch.equal()", "torch.testing.assert_close() and the like"),
    "aten.unique_consecutive": ("unique_consecutive()", ""),
    "aten._unique2": ("unique()", ""),
    "aten.unique_dim": ("unique()", ""),
    "aten._ctc_loss": ("ctc_loss()", ""),
    "aten.bincount": ("bincount()", ""),
    "aten.repeat_interleave": ("repeat_interleave() without output_size", ""),
    "aten._pack_padded_sequence": (
        "pack_padded_sequence()",
        "all that takes lengths as a tensor: give it one on the CPU",
    ),
}

#: How torch says that a tensor has no numbers, in any operation, and the operation where only the message tells.
_NO_NUMBERS = (
    (re.compile(r"on meta tensors|Tensor\.__format__"), "aten._local_scalar_dense"),
    (re.compile(r"out of meta tensor|meta device type tensor|Not available for 'meta'"), "aten._to_copy"),
    (re.compile(r"register_meta function for torch\.nonzero"), "aten.nonzero"),
    (re.compile(r"repeat_interleave a meta tensor"), "aten.repeat_interleave"),
    (re.compile(r"'lengths' argument .* meta "), "aten._pack_padded_sequence"),
    (re.compile(r"aten::(\w+)[\w.]*: attempted to run this operator with Meta tensors"), ""),
)
#: How torch says that an operation got tensors of two devices, one of them ours; and that it looked for a GPU.
_TWO_DEVICES = re.compile(
    r"(?s)expected device meta|device meta is not on the expected device|(on|in) the same device\b.*\bmeta\b"
    r"|same device type\b.*\bmeta\b"
)
_NO_GPU = re.compile(
    r"not compiled with CUDA|NVIDIA driver|CUDA driver version|no attribute '_cuda_|CUDA generator"
    r"|reset_peak_memory_stats|instantiate dummy base class|accelerator device when none"
)
_one = threading.Lock()  # the dispatcher is the process's, so one run at a time borrows from it
_CUDA = re.compile(r"cuda(:\d+)?")


class AsIfOnGPU:
    """Enter it around a recording; `told` says what an error means, `finished` makes the recording what it stands for.

    Limits: what kernels take inside themselves is not seen; cuDNN's LSTM and GRU keep a reserve that only cuDNN knows
    (here they run operation by operation), and its attention, which newest cards prefer, is taken for flash; GradScaler
    stays off, since it would have to look at numbers; attention layers in evaluation take the path of training;
    torch.autocast("cuda") that was made before the run (a decorator, say) stays off, as torch made it without a GPU;
    sparse gradients are refused; of operations that CUDA refuses for a tensor on the CPU, rare ones may run. Code that
    asks is told the truth: x.is_cuda is False, x.device.type "meta", torch.cuda.is_available() what it is here.
    """

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self._stack = ExitStack()
        self._interrupts = Interrupts()

    @held
    def __enter__(self) -> AsIfOnGPU:
        if why := private.missing():
            raise RecordError(why)
        if not _one.acquire(blocking=False):
            raise RecordError(
                "A run as if on a GPU is running already, and it cannot hold another one. End the outer `with "
                "as_if_on_gpu()` block first, or take the inner one out."
            )
        try:
            self._interrupts.begin()
            with ExitStack() as stack:
                stack.enter_context(in_force(self.choices))
                stack.enter_context(_Devices())
                self._stack = stack.pop_all()
        except BaseException:
            self._end()
            raise
        return self

    @held
    def __exit__(self, *error: Any) -> None:
        try:
            self._stack.close()
        finally:
            self._end()

    def _end(self) -> None:
        _one.release()
        self._interrupts.end()

    def told(self, error: BaseException | None, recorder: Recorder) -> BaseException | None:
        """The error that the step raised; a sentence of ours where the cause is that no numbers are here, or no GPU."""
        if not isinstance(error, Exception) or isinstance(error, RecordError):
            return error
        message = str(error)
        if (name := _without_numbers(message)) is not None:
            what, so_do = NEEDS_NUMBERS.get(name, (name.removeprefix("aten."), ""))
            why = (
                f"{what} needs the numbers in a tensor{so_do and f' (so do {so_do})'}, and as if on a GPU tensors have "
                "shapes but no numbers. Take that line out of the step, or run the step for real, with record()."
            )
        elif _TWO_DEVICES.search(message):
            why = (
                "a tensor on the CPU meets one on the GPU, which a GPU refuses too. Make it there, under `with "
                'torch.device("meta"):`, or move it: x.to("cuda").'
            )
        elif message == SPARSE_GRADIENT:
            why = (
                "this gradient is sparse: how many rows it has is in the numbers of the indices, and as if on a GPU "
                "tensors have none. Take sparse=True (sparse_grad=True) out, with an optimizer that takes dense "
                "gradients, or run the step for real, with record()."
            )
        elif _NO_GPU.search(message):
            why = (
                "this line asks a GPU for something, and there is none: tensors are on meta, which has no streams, no "
                "events and no memory of its own. Take that line out; run.memory and run.allocator tell what memory is "
                "taken."
            )
        else:
            return error
        at = recorder.places.of_traceback(error.__traceback__)
        frame = recorder.places.places[at].inner if at is not None else None
        line = recorder.places.sources[frame.source].line(frame.line) if frame else ""
        where = f" on line {frame.line}" + (f", `{line}`" if line else "") if frame else ""
        return RecordError(f"as_if_on_gpu stopped{where}: {why}")

    def check(self, recorder: Recorder) -> None:
        """Raise RecordError if what ran was not on meta."""
        homes = {s.device for s in recorder.storages if s.fixed == PARAMETERS}
        parameters = "cpu" in homes and "meta" not in homes  # both: a model that the step itself moved
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
        size = self.choices.workspace
        if size and storage.op == "aten.empty" and storage.shape == (size,) and storage.dtype == "uint8":
            return replace(storage, names=("cuBLAS workspace",))
        return storage


def _without_numbers(message: str) -> str | None:
    """The operation that found no numbers, "aten.nonzero", by torch's own message; None for any other message."""
    for pattern, name in _NO_NUMBERS:
        if found := pattern.search(message):
            return name or f"aten.{found[1]}"
    return None


def assumed(choices: Choices) -> str:
    """What a run as if on a GPU takes for granted, as a sentence."""
    attention = {"auto": "attention by the kernel that CUDA chooses", "math": "attention by matrix products"}
    parts = [
        attention.get(choices.attention, f"attention by the {choices.attention} kernel"),
        "optimizers on "
        + ("all parameters at once (foreach, " if choices.foreach else "one parameter a time (")
        + "unless they say otherwise)",
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
        if func is torch.Tensor.to and len(args) > 1 and _is_cuda(args[1]):
            args = (args[0], "meta", *args[2:])
        return func(*args, **kwargs)


def _is_cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return _CUDA.fullmatch(device) is not None
    return isinstance(device, int) and not isinstance(device, bool)  # its number
