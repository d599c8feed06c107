"""Memory snapshots of a real GPU: read into a Recording, so that every figure of memory opens them; and written."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from os import PathLike
from typing import Any

from ..data.model import (
    GRADIENTS,
    KEPT,
    OPTIMIZER,
    OTHER,
    AllocatorHistory,
    Block,
    MemoryEvent,
    OutOfMemory,
    Reading,
    Recording,
    Segment,
    Storage,
)
from .errors import SnapshotError
from .snapshot_writing import write_snapshot
from .stacks import Stack, Stacks
from .trace import HOW, Entry, Trace, load, parse

__all__ = ["SnapshotError", "read_snapshot", "write_snapshot"]

INFERRED = (
    "A snapshot does not say what a block holds. It is inferred from when it lived: made in forward and gone in "
    'backward, it was "kept for backward"; made in backward and there when it ends, it is among the "gradients"; made '
    'in an optimizer\'s step and there after it, among the "optimizer state". All else is "other", parameters too.'
)
NO_HISTORY = f"This snapshot has no history, so it shows one moment. To have one, call {HOW}."
EXPANDABLE = (
    "It was taken with expandable segments, which grow and shrink: reserved bytes follow them, the map draws each "
    "segment at its largest."
)
HIGHEST = "The highest count is that since the history begins."


def read_snapshot(source: str | PathLike[str] | Mapping[str, Any], *, device: int | None = None) -> Recording:
    """A snapshot that torch.cuda.memory._dump_snapshot wrote (or the dict that _snapshot() gives) as a Recording.

    One device's: `device`, or the one with the longest history. Each block is a storage of as many bytes as were
    requested; what it takes in its segment stands in `.allocator` (source "snapshot"; "simulated" if write_snapshot
    made it of a simulation), with a reading for each moment.
    Each block that comes or goes is an event, with the line, operation and phase that its stack tells. There is no
    graph. A file without history gives a recording without events, and a note.

    Nothing in the file is run (helpers.gpu.trace.load). Raises SnapshotError, a sentence, for a file that is no
    snapshot, too old, cut off or damaged.
    """
    return _Reading(parse(load(source), device)).recording()


class _Reading:
    """One device's trace on its way to a recording. Entries become events, or fall between two: into the later one."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.stacks = Stacks()
        happens = [e.action in ("alloc", "free_completed") for e in trace.entries]
        self.event_at = [i for i, event in enumerate(happens) if event]  # event → entry
        self.events = len(self.event_at)
        self.block_of: dict[int, int] = {}  # entry → block
        for number, life in enumerate(trace.blocks):
            if life.born >= 0:
                self.block_of[life.born] = number
            if life.freed is not None:
                self.block_of[life.freed] = number

    def recording(self) -> Recording:
        told = self._frees_told()
        stacks = [self._stack(self.trace.entries[i], told) for i in self.event_at]
        phases = _phases([self.trace.entries[i].action for i in self.event_at], stacks)
        storages = self._storages(phases)
        events = tuple(
            self._event(index, entry, stacks[index], phases[index]) for index, entry in enumerate(self.event_at)
        )
        notes = (INFERRED,) if events else (NO_HISTORY,)
        places = self.stacks.trimmed()
        outer = Counter(place.outer.source for place in places)
        return Recording(
            tuple(self.stacks.sources),
            places,
            storages,
            (),
            (),
            (),
            events,
            cell=outer.most_common(1)[0][0] if outer else None,
            notes=notes + self._notes(),
            allocator=self._history(),
        )

    def _moment(self, entry: int | None) -> int | None:
        """The event that is, or comes next after, an entry; the last one where none does. -1 and None stay."""
        if entry is None or entry < 0:
            return entry
        return min(bisect_left(self.event_at, entry), self.events - 1)

    def _frees_told(self) -> bool:
        """Whether frees have stacks of their own. With context="alloc", PyTorch gives them the allocation's again."""
        both = [b for b in self.trace.blocks if b.born >= 0 and b.freed is not None]
        return not both or any(b.frames != self.trace.entries[b.freed].frames for b in both)

    def _stack(self, entry: Entry, frees_told: bool) -> Stack | None:
        """An entry's stack; None for a free without one of its own."""
        if entry.action != "alloc" and not (frees_told and entry.frames):
            return None
        return self.stacks.read(entry.frames)

    def _event(self, index: int, entry: int, stack: Stack | None, phase: str) -> MemoryEvent:
        block = self.block_of[entry]
        if self.trace.entries[entry].action == "alloc":
            return MemoryEvent(index, "op", phase, stack.place, stack.op, allocated=(block,))
        return MemoryEvent(index, "free", phase, stack.place if stack else None, freed=(block,))

    def _storages(self, phases: list[str]) -> tuple[Storage, ...]:
        ends = _run_ends(phases)
        device = f"cuda:{self.trace.device}"
        storages = []
        for number, life in enumerate(self.trace.blocks):
            stack = self.stacks.read(life.frames)
            born, freed = self._moment(life.born), self._moment(life.freed)
            category = _category(born, freed, phases, ends)
            storages.append(
                Storage(number, life.requested, device, born, freed, category, op=stack.op, place=stack.place)
            )
        return tuple(storages)

    # ---------------------------------------------------------------- the allocator

    def _history(self) -> AllocatorHistory:
        trace = self.trace
        home_ids = {id(s): i for i, s in enumerate(trace.segments)}
        segments = tuple(
            Segment(i, s.address, s.nbytes, s.pool, self._moment(s.opened), self._moment(s.closed), s.stream)
            for i, s in enumerate(trace.segments)
        )
        blocks = tuple(
            Block(
                i,
                home_ids[id(b.home)],
                b.address,
                b.nbytes,
                b.requested,
                self._moment(b.born),
                self._moment(b.freed),
                i,
            )
            for i, b in enumerate(trace.blocks)
        )
        readings, failures = self._readings()
        source = "simulated" if trace.simulated else "snapshot"
        return AllocatorHistory(source, segments, blocks, readings, failures=failures, notes=(HIGHEST, *self._notes()))

    def _readings(self) -> tuple[tuple[Reading, ...], tuple[OutOfMemory, ...]]:
        trace = self.trace
        before = [b for b in trace.blocks if b.born < 0]
        allocated = highest = sum(b.nbytes for b in before)
        requested = sum(b.requested for b in before)
        reserved = trace.mapped
        readings, failures = [Reading(allocated, reserved, requested, highest)], []
        for index, entry in enumerate(trace.entries):
            if entry.action == "alloc":
                block = trace.blocks[self.block_of[index]]
                allocated += block.nbytes
                requested += block.requested
                highest = max(highest, allocated)
            elif entry.action == "free_completed":
                block = trace.blocks[self.block_of[index]]
                allocated -= block.nbytes
                requested -= block.requested
            elif entry.action in ("segment_alloc", "segment_map"):
                reserved += entry.nbytes
            elif entry.action in ("segment_free", "segment_unmap"):
                reserved -= entry.nbytes
            elif self.events:
                now = Reading(allocated, reserved, requested, highest)
                failures.append(
                    OutOfMemory(
                        event=self._moment(index),
                        asked=entry.nbytes,
                        storage=None,
                        reading=now,
                        capacity=entry.address + reserved,
                        free=entry.address,
                        inside=reserved - allocated,
                    )
                )
            now = Reading(allocated, reserved, requested, highest)
            if index in self.block_of:
                readings.append(now)
            elif not self.events or index > self.event_at[-1]:
                readings[-1] = now  # after the last event: its moment goes on to the end
        return tuple(readings), tuple(failures)

    def _notes(self) -> tuple[str, ...]:
        trace = self.trace
        notes = []
        if trace.others:
            notes.append(f"Device {trace.device} is shown; {trace.others:,} entries are of other devices.")
        if trace.expandable:
            notes.append(EXPANDABLE)
        if trace.changed:
            notes.append(
                f"It was taken with other allocator settings ({', '.join(trace.changed)}): what blocks took that were "
                "gone at its end is estimated by the usual rules."
            )
        if trace.open_ended:
            notes.append(
                f"Of {len(trace.open_ended):,} blocks from before the history, gone at its end, the snapshot does not "
                "tell whether each took up to 1 MiB more than it needed; they are shown without."
            )
        if trace.unknown:
            kinds = ", ".join(f"{kind!r}" for kind in sorted(trace.unknown))
            notes.append(
                f"{sum(trace.unknown.values()):,} entries of kinds that are not known here are left out: {kinds}. The "
                "snapshot may come from a newer PyTorch."
            )
        return tuple(notes)


def _phases(actions: list[str], stacks: list[Stack | None]) -> list[str]:
    """Each event's phase. What neither backward nor a step did is forward; a free between two phases is "between".

    A free whose stack is not known falls into the phase of the allocation before it.
    """
    phases: list[str] = []
    made = "forward"  # the phase of the last allocation
    for action, stack in zip(actions, stacks, strict=True):
        if stack is None:
            phases.append(made)
            continue
        phase = stack.phase or ("forward" if action == "alloc" or made == "forward" else "between")
        if action == "alloc":
            made = phase
        phases.append(phase)
    return phases


def _run_ends(phases: list[str]) -> list[int]:
    """For each event, the last event of its backward or step. What falls "between" does not end it."""
    ends = [0] * len(phases)
    end, current = len(phases) - 1, ""
    for i in range(len(phases) - 1, -1, -1):
        if phases[i] != "between" and phases[i] != current:
            current, end = phases[i], i
        ends[i] = end
    return ends


def _category(born: int, freed: int | None, phases: list[str], ends: list[int]) -> str:
    if born < 0:
        return OTHER
    made = phases[born]
    if made == "forward":
        return KEPT if freed is not None and phases[freed] == "backward" else OTHER
    if freed is not None and freed <= ends[born]:
        return OTHER
    return {"backward": GRADIENTS, "step": OPTIMIZER}.get(made, OTHER)
