"""Writes a recording and its allocator's history in the format of PyTorch's memory snapshots."""

from __future__ import annotations

import pickle
from os import PathLike
from pathlib import Path
from typing import Any

from ..data.model import AllocatorHistory, Block, MemoryEvent, Recording, Segment
from .trace import SIMULATED

#: PyTorch's viewer reads protocols up to 4.
PROTOCOL = 4
#: Added to a simulation's addresses, which begin at 0: no driver gives 0 away.
BASE = 2**34
#: What PyTorch writes of its settings when none were changed.
SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": "",
    "max_split_size": -1,
    "garbage_collection_threshold": 0.0,
    "expandable_segments": False,
    "pinned_num_register_threads": 1,
    "release_lock_on_cudamalloc": False,
    "pinned_use_cuda_host_register": False,
    "graph_capture_record_stream_reuse": False,
    "roundup_power2_divisions": {str(2**i): 0 for i in range(16)},
}


def write_snapshot(recording: Recording, history: AllocatorHistory, path: str | PathLike[str]) -> Path:
    """Write a memory snapshot that PyTorch's viewer (torch.cuda._memory_viz, pytorch.org/memory_viz) opens.

    history: of that recording, simulated or read; with segments and blocks, so no bare counters. Its state at the end
    becomes the segments, each block that came or went an entry of the history; what was there before is not told by a
    snapshot otherwise. Stacks hold the learner's lines, by the files' bare names, and one frame each for operation and
    phase, named as in a real stack. Times count entries: nothing in the file is a time or a path.
    Raises ValueError if the history is not of the recording, or has no segments to write.
    """
    if history.source == "counters":
        raise ValueError(
            "This history holds a GPU's counts alone, no segments and blocks, so there is no snapshot in it. "
            "simulate(recording) gives a history that has them."
        )
    if len(history.readings) != len(recording.events) + 1:
        raise ValueError(
            f"This history has {len(history.readings):,} moments, the recording {len(recording.events) + 1:,}: it is "
            "of another recording."
        )
    path = Path(path)
    path.write_bytes(pickle.dumps(_Writing(recording, history).snapshot(), protocol=PROTOCOL))
    return path


class _Writing:
    def __init__(self, recording: Recording, history: AllocatorHistory) -> None:
        self.recording, self.history = recording, history
        self.base = BASE if history.source == "simulated" else 0
        self.entries: list[dict[str, Any]] = []
        self.in_use: dict[int, Block] = {b.id: b for b in history.blocks if b.born < 0}
        self.stacks: dict[tuple[int | None, str, str], list[dict[str, Any]]] = {}
        self.stack_of: dict[int, list[dict[str, Any]]] = {}  # block → the stack that made it

    def snapshot(self) -> dict[str, Any]:
        history = self.history
        born, freed = (_by_moment(history.blocks, key) for key in ("born", "freed"))
        opened, closed = (_by_moment(history.segments, key) for key in ("opened", "closed"))
        for event in self.recording.events:
            changes = (items.get(event.index, []) for items in (born, freed, opened, closed))
            self._event(event, self._stack(event), *changes)
        return {
            "segments": [self._segment(s) for s in sorted(self._open(), key=lambda s: s.address)],
            "device_traces": [self.entries],
            "allocator_settings": SETTINGS,
            "external_annotations": self._annotations(),
        }

    def _annotations(self) -> list[dict[str, Any]]:
        """Whether a GPU was there at all."""
        if self.history.source != "simulated":
            return []
        ends = (("START", 0), ("END", len(self.entries)))
        return [{"stage": stage, "name": SIMULATED, "device": 0, "time_us": time} for stage, time in ends]

    # ---------------------------------------------------------------- the history

    def _event(
        self,
        event: MemoryEvent,
        stack: list[dict[str, Any]],
        born: list[Block],
        freed: list[Block],
        opened: list[Segment],
        closed: list[Segment],
    ) -> None:
        """One event's entries in an order that can have been: a segment opens before its first block, what stands in
        the way of a block or a segment goes first, everything else goes at the end."""
        going, closing, opening = list(freed), list(closed), list(opened)
        failures = [f for f in self.history.failures if f.event == event.index]
        self._close_free(closing, stack)
        for block in born:
            for failure in [f for f in failures if f.storage in (None, block.storage)]:
                self._note("oom", failure.asked, stack, device_free=failure.free)
                failures.remove(failure)
            home = self.history.segments[block.segment]
            if home in opening:
                there = [b for b in going if b.id in self.in_use]
                self._free([b for b in there if _overlap(self.history.segments[b.segment], home)], going, stack)
                self._close_free(closing, stack)
                opening.remove(home)
                self._note("segment_alloc", home.nbytes, stack, home.address, home.stream)
            self._free([b for b in going if b.id in self.in_use and _overlap(b, block)], going, stack)
            self.in_use[block.id] = block
            self.stack_of[block.id] = stack
            self._note("alloc", block.requested, stack, block.address, home.stream)
        for failure in failures:
            self._note("oom", failure.asked, stack, device_free=failure.free)
        for segment in opening:  # with no block of this event in it
            self._note("segment_alloc", segment.nbytes, stack, segment.address, segment.stream)
        self._free(list(going), going, stack)
        self._close_free(closing, stack)

    def _free(self, blocks: list[Block], going: list[Block], stack: list[dict[str, Any]]) -> None:
        for block in blocks:
            going.remove(block)
            del self.in_use[block.id]
            stream = self.history.segments[block.segment].stream
            for action in ("free_requested", "free_completed"):
                self._note(action, block.requested, stack, block.address, stream)

    def _close_free(self, closing: list[Segment], stack: list[dict[str, Any]]) -> None:
        """Give back the segments that hold nothing any more."""
        if not closing:
            return
        held = {b.segment for b in self.in_use.values()}
        for segment in [s for s in closing if s.id not in held]:
            closing.remove(segment)
            self._note("segment_free", segment.nbytes, stack, segment.address, segment.stream)

    def _note(
        self,
        action: str,
        nbytes: int,
        stack: list[dict[str, Any]],
        address: int | None = None,
        stream: int = 0,
        *,
        device_free: int = 0,
    ) -> None:
        where = {"device_free": device_free} if address is None else {"addr": address + self.base}
        self.entries.append(
            {
                "action": action,
                **where,
                "size": nbytes,
                "stream": stream,
                "time_us": len(self.entries),
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": stack,
            }
        )

    # ---------------------------------------------------------------- stacks

    def _stack(self, event: MemoryEvent) -> list[dict[str, Any]]:
        """Innermost first: the operation, the learner's lines, and what tells the phase."""
        key = (event.place, event.op if event.kind == "op" else "", event.phase)
        if key not in self.stacks:
            frames = [_frame("c10::cuda::CUDACachingAllocator", "??", 0)]
            if key[1]:
                name = key[1].removeprefix("aten.").replace(".", "_")
                frames.append(_frame(f"at::_ops::{name}::call", "??", 0))
            if event.phase == "backward":
                frames.append(_frame("torch::autograd::Engine::evaluate_function", "??", 0))
            if event.phase == "step":
                frames.append(_frame("wrapper", "torch/optim/optimizer.py", 0))
            place = self.recording.place_of(event.place)
            for frame in reversed(place.frames if place else ()):
                label = self.recording.sources[frame.source].label
                frames.append(_frame(frame.function or "<module>", label, frame.line))
            self.stacks[key] = frames
        return self.stacks[key]

    # ---------------------------------------------------------------- the state at the end

    def _open(self) -> list[Segment]:
        return [s for s in self.history.segments if s.closed is None]

    def _segment(self, segment: Segment) -> dict[str, Any]:
        blocks = sorted((b for b in self.in_use.values() if b.segment == segment.id), key=lambda b: b.address)
        rows, at = [], segment.address
        for block in blocks:
            rows += self._gap(at, block.address)
            rows.append(
                {
                    "address": block.address + self.base,
                    "size": block.nbytes,
                    "requested_size": block.requested,
                    "state": "active_allocated",
                    "frames": self.stack_of.get(block.id, []),
                }
            )
            at = block.address + block.nbytes
        rows += self._gap(at, segment.address + segment.nbytes)
        allocated = sum(b.nbytes for b in blocks)
        return {
            "device": 0,
            "address": segment.address + self.base,
            "total_size": segment.nbytes,
            "allocated_size": allocated,
            "active_size": allocated,
            "requested_size": sum(b.requested for b in blocks),
            "stream": segment.stream,
            "segment_type": segment.pool,
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": rows,
        }

    def _gap(self, start: int, end: int) -> list[dict[str, Any]]:
        if end == start:
            return []
        inactive = {"size": end - start, "requested_size": 0, "state": "inactive", "frames": []}
        return [{"address": start + self.base, **inactive}]


def _by_moment(items: Any, key: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for item in items:
        found.setdefault(getattr(item, key), []).append(item)
    return found


def _overlap(one: Block | Segment, other: Block | Segment) -> bool:
    return one.address < other.address + other.nbytes and other.address < one.address + one.nbytes


def _frame(name: str, filename: str, line: int) -> dict[str, Any]:
    return {"name": name, "filename": filename, "line": line}
