"""Memory that a kernel takes and gives back while it runs: no operation returns it, so the ledger cannot see it.

PyTorch's profiler sees every allocation on the CPU. Each operation runs under a marker of its own; what was allocated
under it at the highest moment, beyond what the operation gave out, is the kernel's own.
"""

from __future__ import annotations

from typing import Any

import torch

from .build import EventNote
from .errors import RecordError

_MARK = "gradients-and-intermediates:"


class Kernels:
    """A profiler around the watched code."""

    def __init__(self) -> None:
        self.events: list[EventNote | None] = []
        self.mark: Any = None
        self.profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, record_shapes=False
        )

    def __enter__(self) -> Kernels:
        if torch.autograd._profiler_enabled():
            raise RecordError(
                "record(kernels=True) needs PyTorch's profiler for itself, and one is running: record outside it."
            )
        self.profile.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.profile.stop()

    def run(self, event: EventNote, func: Any, args: tuple, kwargs: dict) -> Any:
        """Run one operation under its marker."""
        mark = f"{_MARK}{len(self.events)}"
        self.events.append(event)
        with torch.profiler.record_function(mark):
            return func(*args, **kwargs)

    def open(self) -> None:
        """A formula begins that runs without us; `close` says which event it is."""
        self.mark = torch.profiler.record_function(f"{_MARK}{len(self.events)}")
        self.events.append(None)
        self.mark.__enter__()

    def close(self, event: EventNote) -> None:
        self.mark.__exit__(None, None, None)
        self.events[-1], self.mark = event, None

    def note(self) -> None:
        """Write into each event what its kernel held at most beyond its results, in bytes."""
        for node in _nodes(self.profile.profiler.kineto_results.experimental_event_tree()):
            if not node.name.startswith(_MARK):
                continue
            changes = sorted(
                (inner.start_time_ns, inner.extra_fields.alloc_size)
                for inner in _nodes(node.children)
                if inner.tag.name == "Allocation" and inner.extra_fields.device.type == "cpu"
            )
            live = most = 0
            for _, nbytes in changes:
                live += nbytes
                most = max(most, live)
            event = self.events[int(node.name.removeprefix(_MARK))]
            if event is None:  # it raised
                continue
            given_out = sum(s.nbytes for s in event.allocated)
            event.inside = max(0, most - given_out)


def _nodes(roots: Any) -> Any:
    queue = list(roots)
    for node in queue:  # grows while we walk
        queue.extend(node.children)
        yield node
