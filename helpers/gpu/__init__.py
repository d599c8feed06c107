"""As if on a GPU: meta runs with CUDA's choices, the caching allocator, memory snapshots."""
