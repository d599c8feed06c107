"""A memory snapshot of PyTorch's CUDA allocator as plain facts: which block lay where, from when to when.

A snapshot holds the allocator's state when it was taken, and (where it was recorded) the history before that, one
entry for each thing that happened. The state before the history is found by undoing it, entry by entry, from the end.
"""

from __future__ import annotations

import pickle
import reprlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from .allocator import SMALL, SMALL_SEGMENT, rounded
from .errors import SnapshotError

#: Files beyond this are not read; a snapshot of some 100,000 entries has about 20 MB.
LARGEST_FILE = 2_000_000_000
#: Entries that say nothing about memory.
SILENT = ("free_requested", "snapshot")
SEGMENTS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
HOW = "torch.cuda.memory._record_memory_history() before the step, torch.cuda.memory._dump_snapshot(path) after it"


class Entry(NamedTuple):
    """One entry of the history. Of an "oom", `address` is what the driver had left, in bytes."""

    action: str
    address: int
    nbytes: int  # as requested
    stream: int
    frames: list


@dataclass(slots=True)
class BlockLife:
    """A block from its entry `born` (-1: there before the history) to its entry `freed` (None: there at the end)."""

    address: int
    requested: int
    nbytes: int | None  # what it takes; None: not found out yet
    freed: int | None
    frames: list
    home: SegmentLife | None = None
    born: int = -1


@dataclass(slots=True)
class SegmentLife:
    """A segment, as BlockLife. An expandable one is told at its largest."""

    address: int
    nbytes: int
    pool: str
    stream: int
    closed: int | None = None
    opened: int = -1
    expandable: bool = False

    @property
    def end(self) -> int:
        return self.address + self.nbytes


#: An annotation of this name says that no GPU was there.
SIMULATED = "simulated by helpers.gpu"


@dataclass(slots=True)
class Trace:
    """One device's history. Blocks and segments in the order in which they came; those before it by address."""

    entries: list[Entry]
    segments: list[SegmentLife]
    blocks: list[BlockLife]
    expandable: bool
    mapped: int  # bytes reserved before the first entry
    open_ended: list[BlockLife]  # blocks before the history whose exact size the history leaves open
    device: int = 0
    unknown: dict[str, int] = field(default_factory=dict)  # actions that are not known → how many
    changed: tuple[str, ...] = ()  # settings that were not PyTorch's own, under which other rules hold
    others: int = 0  # entries of other devices
    simulated: bool = False  # written by us, of a simulation


# ------------------------------------------------------------------ reading


class _Plain(pickle.Unpickler):
    """Builds lists, dicts, numbers and strings, and nothing else: a pickle that names any code is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise SnapshotError(
            f"This file asks for {module}.{name} to be run; a memory snapshot holds nothing but lists, dicts, numbers "
            "and strings. It was not opened: do not load it by other means unless you trust where it comes from."
        )

    def persistent_load(self, pid: Any) -> Any:
        raise SnapshotError(
            "This file refers to something outside itself, as torch.save's files do; a memory snapshot does not."
        )


def load(source: str | PathLike[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    """The snapshot's dict, from a file or as torch.cuda.memory._snapshot() gives it.

    No code is run: a pickle that names any is refused. Raises SnapshotError for what is no snapshot; errors of opening
    the file pass through.
    """
    data = source if isinstance(source, Mapping) else _unpickled(Path(source))
    if isinstance(data, list) and (not data or (isinstance(data[0], dict) and "blocks" in data[0])):
        raise SnapshotError(
            "This is a bare list of segments, as torch.cuda.memory_snapshot() gives it and PyTorch 1.x wrote it: it "
            f"has no history. Take one with {HOW}."
        )
    if not isinstance(data, Mapping) or not isinstance(data.get("segments"), list):
        what = "a dict without segments" if isinstance(data, Mapping) else f"a {type(data).__name__}"
        raise SnapshotError(f"This is no memory snapshot: it holds {what}. Take one with {HOW}.")
    return data


def _unpickled(path: Path) -> Any:
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise SnapshotError(
            f"This file has {size:,} B; up to {LARGEST_FILE:,} B are read. Record a shorter history "
            "(_record_memory_history(max_entries=100_000))."
        )
    with path.open("rb") as file:
        start = file.read(2)
        file.seek(0)
        if not start:
            raise SnapshotError("This file is empty: it was never written to its end. Take the snapshot again.")
        if start == b"PK":
            raise SnapshotError(
                f"This is a zip file, as torch.save writes it, no memory snapshot. Take one with {HOW}."
            )
        if start[0] != 0x80:
            raise SnapshotError(f"This is no pickle, so it is no memory snapshot. Take one with {HOW}.")
        if start[1:] and start[1] > pickle.HIGHEST_PROTOCOL:
            raise SnapshotError(
                f"This file says it is a pickle of protocol {start[1]}; this Python reads up to "
                f"{pickle.HIGHEST_PROTOCOL}. It was written by a newer Python, or it is damaged."
            )
        try:
            return _Plain(file).load()
        except SnapshotError:
            raise
        except EOFError:
            raise SnapshotError(_CUT) from None
        except Exception as error:  # pickle raises nearly anything for bytes that are none
            if "truncated" in str(error) or "ran out of" in str(error):
                raise SnapshotError(_CUT) from None
            raise SnapshotError(f"This file is damaged: its pickle cannot be read ({type(error).__name__}).") from None


_CUT = "This file ends too early: it was cut off while it was written or copied. Copy it, or take the snapshot, again."


def parse(data: Mapping[str, Any], device: int | None = None) -> Trace:
    """The history of one device: `device`, or the one with most entries (without any: with most reserved).

    Raises SnapshotError where keys are missing (an older PyTorch's format), or the history does not fit the state.
    """
    try:
        return _parsed(data, device)
    except KeyError as error:
        raise SnapshotError(
            f"This snapshot is of an older format: {error} is missing in it. PyTorch 2.1 and newer write all of it."
        ) from None
    except (TypeError, AttributeError, IndexError) as error:
        raise SnapshotError(f"This snapshot is damaged: {type(error).__name__}: {error}.") from None


def _parsed(data: Mapping[str, Any], device: int | None) -> Trace:
    traces = data.get("device_traces") or []
    reserved: dict[int, int] = {}
    for segment in data["segments"]:
        reserved[segment.get("device", 0)] = reserved.get(segment.get("device", 0), 0) + segment["total_size"]
    devices = sorted(reserved.keys() | {i for i, entries in enumerate(traces) if entries})
    counts = {d: len(traces[d]) if d < len(traces) else 0 for d in devices}
    if device is None:
        device = max(devices, key=lambda d: (counts[d], reserved.get(d, 0), -d), default=0)
    elif device not in devices:
        found = ", ".join(map(str, devices)) or "none"
        raise SnapshotError(f"This snapshot tells nothing of device {device}; it has: {found}.")
    entries, unknown = [], {}
    for raw in traces[device] if device < len(traces) else ():
        entry = _entry(raw)
        if entry is not None:
            entries.append(entry)
        elif raw["action"] not in SILENT:
            unknown[raw["action"]] = unknown.get(raw["action"], 0) + 1
    here = [s for s in data["segments"] if s.get("device", 0) == device]
    trace = _Undoing(here, entries).trace()
    trace.device, trace.unknown = device, unknown
    changed = _changed(data.get("allocator_settings") or {})
    trace.changed = tuple(name for name in changed if name != "expandable_segments" or not trace.expandable)
    trace.others = sum(counts.values()) - counts.get(device, 0)
    trace.simulated = any(note["name"] == SIMULATED for note in data.get("external_annotations") or ())
    return trace


def _entry(raw: dict[str, Any]) -> Entry | None:
    action = raw["action"]
    if type(action) is not str:
        raise TypeError(f"an entry's action is a {type(action).__name__}")
    if action in ("alloc", "free_completed", "oom", *SEGMENTS):
        address = "device_free" if action == "oom" else "addr"
        numbers = (_whole(raw, key) for key in (address, "size", "stream"))
        return Entry(action, *numbers, _frames(raw))
    return None


def _whole(raw: dict[str, Any], key: str) -> int:
    if type(raw[key]) is not int or raw[key] < 0:
        raise TypeError(f"{key!r} is {reprlib.repr(raw[key])}, where a whole number belongs")
    return raw[key]


def _frames(raw: dict[str, Any]) -> list:
    frames = raw.get("frames") or []
    if not isinstance(frames, list):
        raise TypeError(f"'frames' is a {type(frames).__name__}")
    return frames


def _changed(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings under which blocks are rounded, split or served by other rules."""
    usual = {"max_split_size": -1, "garbage_collection_threshold": 0, "expandable_segments": False}
    changed = [name for name, value in usual.items() if settings.get(name, value) != value]
    if any((settings.get("roundup_power2_divisions") or {}).values()):
        changed.append("roundup_power2_divisions")
    return tuple(changed)


# ------------------------------------------------------------------ undoing


class _Undoing:
    """Goes from the end of a history to its start, and finds each block's and segment's life.

    Sizes: a snapshot tells what a block takes only if it is there at the end; of the others the history tells what was
    requested. What a block takes beyond that follows from the allocator's rules. A block is cut from the start of a
    free one, and where the rest is at most 1 MiB (large pool), it takes the rest too. So,
      - undoing the entry that made it, all that lies free up to the next block was the free block: its size follows;
      - of one that was there before the history: a request served directly behind it shows where it ended; a gap of at
        most 1 MiB behind it belongs to it, since no free block of the large pool is that small.
    What stays open is a large block with more than 1 MiB free behind it, in which nothing was placed at the start while
    it lived: it may hold up to 1 MiB of that. It is told without.
    """

    def __init__(self, segments: list[dict[str, Any]], entries: list[Entry]) -> None:
        self.entries = entries
        self.done_segments: list[SegmentLife] = []
        self.done_blocks: list[BlockLife] = []
        self.live: dict[int, BlockLife] = {}
        self.homes: dict[int, SegmentLife] = {}
        self.mapped = 0
        final: list[tuple[int, int, str, int]] = []
        for s in segments:
            pool = "small" if s["segment_type"] == "small" else "large"
            address, nbytes, stream = (_whole(s, key) for key in ("address", "total_size", "stream"))
            self.mapped += nbytes
            if s.get("is_expandable", False):
                final.append((address, nbytes, pool, stream))
            else:
                self.homes[address] = SegmentLife(address, nbytes, pool, stream)
            for b in s["blocks"]:
                if b["state"] != "inactive":
                    where, requested, size = (_whole(b, key) for key in ("address", "requested_size", "size"))
                    self.live[where] = BlockLife(where, requested, size, None, _frames(b))
        self.expandable = bool(final)
        self._add_expandable(final)
        self.starts = sorted(self.homes)
        self.order = sorted(self.live)

    def trace(self) -> Trace:
        undo = {
            "alloc": self._unalloc,
            "free_completed": self._unfree,
            "segment_alloc": self._unopen,
            "segment_free": self._unclose,
            "segment_map": self._unmap,
            "segment_unmap": self._map,
        }
        for index in range(len(self.entries) - 1, -1, -1):
            entry = self.entries[index]
            if entry.action in undo:  # an out-of-memory changes nothing
                undo[entry.action](index, entry)
        first = [self.live[a] for a in self.order]
        open_ended = self._sizes_at_the_start(first)
        segments = [self.homes[a] for a in self.starts] + self.done_segments[::-1]
        blocks = first + self.done_blocks[::-1]
        return Trace(self.entries, segments, blocks, self.expandable, self.mapped, open_ended)

    def _unalloc(self, index: int, entry: Entry) -> None:
        life = self.live.pop(entry.address, None)
        if life is None or life.requested != entry.nbytes:
            self._contradiction(index, "allocates a block that is not there afterwards")
        at = bisect_left(self.order, entry.address)
        del self.order[at]
        life.born = index
        life.frames = entry.frames
        life.home = home = self._home(index, entry.address)
        end = min(self.order[at], home.end) if at < len(self.order) else home.end
        room = end - life.address
        if life.nbytes is None:
            life.nbytes = taken(rounded(life.requested), room, home)
        if life.nbytes > room:
            self._contradiction(index, "allocates a block over another one")
        if at and self.order[at - 1] >= home.address:
            left = self.live[self.order[at - 1]]
            if left.nbytes is None:
                left.nbytes = life.address - left.address
        self.done_blocks.append(life)

    def _unfree(self, index: int, entry: Entry) -> None:
        if entry.address in self.live:
            self._contradiction(index, "frees a block that is still there afterwards")
        life = BlockLife(entry.address, entry.nbytes, None, index, [])  # its stack comes with its allocation
        life.home = self._home(index, entry.address)
        self.live[entry.address] = life
        insort(self.order, entry.address)

    def _unopen(self, index: int, entry: Entry) -> None:
        home = self.homes.pop(entry.address, None)
        if home is None:
            self._contradiction(index, "opens a segment that is not there afterwards")
        home.opened = index
        del self.starts[bisect_left(self.starts, entry.address)]
        self.mapped -= home.nbytes
        self.done_segments.append(home)

    def _unclose(self, index: int, entry: Entry) -> None:
        if entry.address in self.homes:
            self._contradiction(index, "gives back a segment that is still there afterwards")
        pool = "small" if entry.nbytes == SMALL_SEGMENT else "large"  # a large one has 10 MiB or more
        self.homes[entry.address] = SegmentLife(entry.address, entry.nbytes, pool, entry.stream, index)
        insort(self.starts, entry.address)
        self.mapped += entry.nbytes

    def _unmap(self, index: int, entry: Entry) -> None:
        self.mapped -= entry.nbytes

    def _map(self, index: int, entry: Entry) -> None:
        self.mapped += entry.nbytes

    def _add_expandable(self, spans: list[tuple[int, int, str, int]]) -> None:
        """What was ever mapped in one piece, as one segment."""
        for e in self.entries:
            if e.action in ("segment_map", "segment_unmap"):
                spans.append((e.address, e.nbytes, "large", e.stream))
                self.expandable = True
        largest: SegmentLife | None = None
        for address, nbytes, pool, stream in sorted(spans):
            if largest is not None and address <= largest.end:
                largest.nbytes = max(largest.end, address + nbytes) - largest.address
                largest.pool = pool if pool == "small" else largest.pool
            else:
                largest = self.homes[address] = SegmentLife(address, nbytes, pool, stream, expandable=True)

    def _sizes_at_the_start(self, first: list[BlockLife]) -> list[BlockLife]:
        """Sizes of the blocks that were there before; those whose size stays open."""
        open_ended = []
        for at, life in enumerate(first):
            life.home = home = self._home(-1, life.address)
            end = home.end if at + 1 == len(first) else min(first[at + 1].address, home.end)
            if life.nbytes is None:
                size = rounded(life.requested)
                life.nbytes = taken(size, end - life.address, home)
                if home.pool == "large" and not home.expandable and end - life.address - size > SMALL:
                    open_ended.append(life)
            if life.address + life.nbytes > end:
                self._contradiction(-1, "begins with blocks that overlap")
        return open_ended

    def _home(self, index: int, address: int) -> SegmentLife:
        at = bisect_right(self.starts, address) - 1
        home = self.homes[self.starts[at]] if at >= 0 else None
        if home is None or address >= home.end:
            self._contradiction(index, "speaks of a block outside all segments")
        return home

    def _contradiction(self, index: int, what: str) -> None:
        where = (
            f"entry {index:,} of {len(self.entries):,} (frees requested not counted)" if index >= 0 else "its history"
        )
        raise SnapshotError(f"This snapshot does not fit together: {where} {what}. It is damaged; take it again.")


def taken(size: int, room: int, home: SegmentLife) -> int:
    """What a block takes that is cut from the start of a free one of `room` bytes: its size, or all of it."""
    keeps = home.pool == "large" and not home.expandable and size <= room <= size + SMALL
    return room if keeps else size
