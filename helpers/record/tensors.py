"""What memory stands behind a tensor, whatever kind of tensor it is."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

#: Offset, shape, strides.
Geometry = tuple[int, tuple[int, ...], tuple[int, ...]]

PLAIN = (torch.Tensor, torch.nn.Parameter)


def storages_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The untyped storages behind a tensor: one for a strided tensor, several for sparse, nested and wrapper tensors.

    Empty where a tensor has none that Python can reach. To be called below every mode (`private.no_dispatch`).
    """
    if type(tensor) in PLAIN and tensor.layout is torch.strided and not tensor.is_nested:
        try:
            return (tensor.untyped_storage(),)
        except (NotImplementedError, RuntimeError):
            return ()
    parts: list[Any] = []
    try:
        if hasattr(type(tensor), "__tensor_flatten__"):
            names, _ = tensor.__tensor_flatten__()
            parts = [getattr(tensor, name) for name in names]
        elif tensor.is_nested:
            parts = [tensor.values()]
        elif tensor.layout is torch.sparse_coo:
            parts = [tensor._indices(), tensor._values()]
        elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
            parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
        else:
            return (tensor.untyped_storage(),)
    except (AttributeError, NotImplementedError, RuntimeError):
        return ()
    return tuple(s for part in parts if isinstance(part, torch.Tensor) for s in storages_of(part))


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The shape as ints; a ragged dimension of a nested tensor is written -1."""
    if type(tensor) in PLAIN and not tensor.is_nested:
        return tuple(tensor.shape)
    try:
        return tuple(int(n) if isinstance(n, int) else -1 for n in tensor.shape)
    except RuntimeError:  # nested tensors of the old layout have no size
        return (tensor.size(0), *([-1] * (tensor.dim() - 1)))


def nbytes_of(tensor: torch.Tensor) -> int:
    """Elements × element size of the tensor itself; for sparse and nested tensors, the bytes of their storages."""
    if type(tensor) in PLAIN and tensor.layout is torch.strided and not tensor.is_nested:
        return tensor.numel() * tensor.element_size()
    return sum(s.nbytes() for s in storages_of(tensor))


def geometry(tensor: torch.Tensor) -> Geometry:
    """Which part of its storage a tensor is, and in which order: offset, shape, strides."""
    try:
        return tensor.storage_offset(), shape_of(tensor), tuple(tensor.stride())
    except (NotImplementedError, RuntimeError):  # sparse and nested tensors have no strides
        return 0, shape_of(tensor), ()


@cache
def name_of(kind: Any) -> str:
    """ "float32" for torch.float32; "cpu" for a device."""
    return str(kind).removeprefix("torch.")
