"""Real traces, where there are some: the folder that CUDA_SNAPSHOTS names."""

import os
from pathlib import Path

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "unproved: rules of the allocator's source that no trace at hand proves")


def traces():
    """The snapshot files at hand; one None where there is none, for a test that then skips."""
    folder = os.environ.get("CUDA_SNAPSHOTS")
    return sorted(Path(folder).glob("*.pickle")) if folder else []


@pytest.fixture(scope="module", params=traces() or [None], ids=lambda path: path.stem if path else "none")
def trace(request):
    if request.param is None:
        skip()
    return request.param


@pytest.fixture(scope="module")
def all_traces():
    return traces() or skip()


def skip():
    named = os.environ.get("CUDA_SNAPSHOTS")
    pytest.skip(f"snapshots: {'CUDA_SNAPSHOTS names a folder without one' if named else 'CUDA_SNAPSHOTS is not set'}")
