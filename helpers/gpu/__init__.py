"""As if on a GPU: meta runs with CUDA's choices, the caching allocator, memory snapshots."""

from .allocator import CachingAllocator
from .as_if import AsIfOnGPU
from .cards import CARDS, Card, card
from .choices import CUBLAS_WORKSPACE, HOPPER_WORKSPACE, Choices
from .simulate import simulate
from .snapshot import SnapshotError, read_snapshot, write_snapshot

__all__ = [
    "CARDS",
    "CUBLAS_WORKSPACE",
    "HOPPER_WORKSPACE",
    "AsIfOnGPU",
    "CachingAllocator",
    "Card",
    "Choices",
    "SnapshotError",
    "card",
    "read_snapshot",
    "simulate",
    "write_snapshot",
]
