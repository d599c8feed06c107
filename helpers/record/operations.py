"""What the recorder wants to know of an operation: its name, what it writes, whether it is worth an event."""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor
aten = torch.ops.aten

#: Operations that change nothing a reader could see, unless they allocate or make a node.
_QUIET = {"aten.detach", "aten.alias", "aten.t", "aten.view", "aten.expand", "aten.transpose", "aten.unsqueeze"}

#: What item(), float() and printing come to: a number is read, and no forward begins with that.
_READS = "aten._local_scalar_dense"

#: What torch asks a tensor subclass about itself, while it holds that tensor's lock: nothing may be read then.
_QUESTIONS = {
    *(f"aten.sym_{what}" for what in ("is_contiguous", "numel", "size", "storage_offset", "stride")),
    *(f"aten.{what}" for what in ("dim", "numel", "size", "storage_offset", "stride")),
    *(f"aten.is_{what}" for what in ("contiguous", "non_overlapping_and_dense", "strides_like_format")),
    *(f"prim.{what}" for what in ("device", "layout")),
}


class Operation:
    """Facts about one operator, looked up once a recording."""

    __slots__ = ("add", "detach", "foreach", "func", "lift", "name", "question", "quiet", "reads", "written")

    def __init__(self, func: Any) -> None:
        self.func = func  # held, so that its id stays its own
        self.name = str(func._overloadpacket)
        self.add = func is aten.add.Tensor
        self.detach = func is aten.detach.default
        self.lift = func is aten.lift_fresh.default
        self.quiet = self.name in _QUIET
        self.reads = self.name == _READS
        self.question = self.name in _QUESTIONS
        arguments = func._schema.arguments if func._schema.is_mutable else ()
        self.written = tuple(  # arguments that it changes in place
            (i, a.name) for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write
        )
        self.foreach = bool(self.written) and self.name.startswith("aten._foreach_")

    def writes(self, args: tuple, kwargs: dict) -> list[Tensor]:
        """The tensors that a call of it changes in place."""
        found = []
        for i, name in self.written:
            value = args[i] if i < len(args) else kwargs.get(name)
            if isinstance(value, Tensor):
                found.append(value)
            elif isinstance(value, (list, tuple)):
                found.extend(v for v in value if isinstance(v, Tensor))
        return found

    def versions(self, args: tuple, kwargs: dict) -> list[tuple[Tensor, int]]:
        """Those tensors with their version counters."""
        return [(t, t._version) for t in self.writes(args, kwargs) if not t.is_inference()]


def dense(tensor: Tensor) -> bool:
    """Whether its elements fill their memory without gap or overlap, in whatever order."""
    if tensor.is_contiguous():
        return True
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True
