"""As if on a GPU: meta runs with CUDA's choices, the caching allocator, memory snapshots."""

from .as_if import AsIfOnGPU
from .choices import CUBLAS_WORKSPACE, HOPPER_WORKSPACE, Choices

__all__ = ["CUBLAS_WORKSPACE", "HOPPER_WORKSPACE", "AsIfOnGPU", "Choices"]
