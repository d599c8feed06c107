"""An allocator's address space over time, laid out as rectangles: segments one above another, what lies in them.

A place on the y axis is in bytes from the lowest segment; what lies between segments' addresses is squeezed out.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from helpers.data import CATEGORIES, AllocatorHistory, Recording, Segment

from .plots import Rect, columns

#: Columns of the map at most, and rectangles: where there are more of these, it is drawn in fewer columns.
MOST_COLUMNS, MOST_RECTS, FEWEST_COLUMNS = 600, 9_000, 60
#: Segments thinner than so many pixels are laid out together with their neighbours.
THIN = 2.0
#: Pixels over which what is thinner than one is gathered by kind.
GATHERED = 1.5
ORDER = (*CATEGORIES, "block", "stranded", "cached")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a segment at a moment: a block, or what is free between blocks."""

    low: int
    high: int
    kind: str  # a category, "block", "stranded" or "cached"
    block: int | None = None  # None too for blocks that are drawn together with their neighbours


@dataclass(frozen=True)
class Map:
    height: int  # bytes of all places that any segment takes at any time
    edges: tuple[int, ...]  # of the columns, counted in readings
    moments: tuple[int, ...]  # that each column shows: of its own, the one at which most is allocated
    single: Mapping[str, list[Rect]]  # of each kind: rectangles of one block, or one free piece
    merged: Mapping[str, list[Rect]]  # of each kind: gathered from neighbours that are each thinner than a pixel
    segments: tuple[Rect, ...]


def map_of(history: AllocatorHistory, recording: Recording | None, pixels: float) -> Map:
    """The map, in as many columns as its rectangles allow. pixels: its height in the drawing."""
    most = MOST_COLUMNS
    while True:
        found = _Layout(history, recording, pixels, most).lay()
        count = sum(map(len, found.single.values())) + sum(map(len, found.merged.values()))
        if count <= MOST_RECTS or most <= FEWEST_COLUMNS:
            return found
        most = max(FEWEST_COLUMNS, min(most * 2 // 3, most * MOST_RECTS // count))


def extents(segments: tuple[Segment, ...]) -> tuple[list[int], list[int], int]:
    """Where pieces of the address space begin that touch no other, their places on the y axis, and the sum of all."""
    starts: list[int] = []
    places: list[int] = []
    end = height = 0
    for s in sorted(segments, key=lambda s: s.address):
        if not starts or s.address > end:
            starts.append(s.address)
            places.append(height)
            end = s.address
        more = max(0, s.address + s.nbytes - end)
        end += more
        height += more
    return starts, places, height


class _Layout:
    def __init__(self, history: AllocatorHistory, recording: Recording | None, pixels: float, most: int) -> None:
        self.history = history
        starts, places, self.height = extents(history.segments)
        self.pixel = self.height / pixels if pixels else 1.0  # bytes of one

        def place(address: int) -> int:
            k = bisect_right(starts, address) - 1
            return places[k] + address - starts[k]

        self.low = [place(s.address) for s in history.segments]
        self.at = [self.low[b.segment] + b.address - history.segments[b.segment].address for b in history.blocks]
        self.edges, rows = columns([r.allocated for r in history.readings], most)
        self.moments = [row - 1 for row in rows]
        self.category = [s.category for s in recording.storages] if recording else None
        self.holding: dict[int | None, list[int]] = {}  # storage → its blocks
        for b in history.blocks:
            self.holding.setdefault(b.storage, []).append(b.id)
        self.changes = changes_of(history, recording)
        self.unit = [self.unit_of(s) for s in history.segments]
        self.there: dict[tuple, list[tuple[int, int]]] = {}  # unit → (place, segment), sorted
        self.used: dict[int, list[tuple[int, int]]] = {}  # segment → (place, block), sorted

    def unit_of(self, segment: Segment) -> tuple:
        """Thin neighbours share a unit, since what lies in them is gathered."""
        if segment.nbytes >= THIN * self.pixel:
            return (1, segment.id)
        return (0, int(self.low[segment.id] / (2 * THIN * self.pixel)))

    def kind(self, block: int) -> str:
        storage = self.history.blocks[block].storage
        return "block" if self.category is None or storage is None else self.category[storage]

    def pieces(self, unit: tuple) -> Iterator[Piece]:
        """What lies in a unit's segments now, from low to high."""
        for low, s in self.there.get(unit, ()):
            blocks = self.used.get(s, ())
            free = "stranded" if blocks else "cached"
            at, high = low, low + self.history.segments[s].nbytes
            for place, b in blocks:
                if place > at:
                    yield Piece(at, place, free)
                at = place + self.history.blocks[b].nbytes
                yield Piece(place, at, self.kind(b), b)
            if high > at:
                yield Piece(at, high, free)

    def drawn(self, unit: tuple) -> list[tuple[Piece, bool]]:
        """Pieces to draw, and whether each is gathered: neighbours thinner than a pixel are sorted by kind over a pixel
        or two, and become one piece a kind, as high as their sum."""
        out: list[tuple[Piece, bool]] = []
        group: dict[str, int] = {}
        low = high = 0

        def gather() -> None:
            at = low
            for kind in sorted(group, key=ORDER.index):
                last = out[-1] if out else None
                if last and last[1] and last[0].kind == kind and last[0].high == at:
                    out[-1] = (Piece(last[0].low, at + group[kind], kind), True)
                else:
                    out.append((Piece(at, at + group[kind], kind), True))
                at += group[kind]
            group.clear()

        for piece in self.pieces(unit):
            size = piece.high - piece.low
            if group and (size >= self.pixel or piece.low != high or high - low >= GATHERED * self.pixel):
                gather()
            if size >= self.pixel:
                out.append((piece, False))
                continue
            low = low if group else piece.low
            high = piece.high
            group[piece.kind] = group.get(piece.kind, 0) + size
        gather()
        return out

    def lay(self) -> Map:
        single: dict[str, list[Rect]] = {}
        merged: dict[str, list[Rect]] = {}
        open_: dict[tuple, dict[tuple[Piece, bool], int]] = {}  # unit → what is drawn there, and since which column

        def close(pieces: Mapping[tuple[Piece, bool], int], column: int) -> None:
            for (piece, thin), since in pieces.items():
                rect = (self.edges[since], self.edges[column], piece.low, piece.high)
                (merged if thin else single).setdefault(piece.kind, []).append(rect)

        moment = -2
        for column, target in enumerate(self.moments):
            touched = set()
            while moment < target:
                moment += 1
                touched |= self.step(moment)
            for unit in touched:
                before = open_.get(unit, {})
                now = {item: before.get(item, column) for item in self.drawn(unit)}
                close({item: since for item, since in before.items() if item not in now}, column)
                open_[unit] = now
        for pieces in open_.values():
            close(pieces, len(self.moments))
        return Map(self.height, tuple(self.edges), tuple(self.moments), single, merged, tuple(self.segment_rects()))

    def step(self, moment: int) -> set[tuple]:
        """Go on to a moment; gives the units that it changed."""
        touched = set()
        for what, i, more in self.changes.get(moment, ()):
            if what == "category":
                self.category[i] = more
                touched |= {self.unit[self.history.blocks[b].segment] for b in self.holding.get(i, ())}
                continue
            s = i if what in ("open", "close") else self.history.blocks[i].segment
            unit = self.unit[s]
            touched.add(unit)
            if what == "open":
                insort(self.there.setdefault(unit, []), (self.low[s], s))
            elif what == "close":
                self.there[unit].remove((self.low[s], s))
            elif what == "born":
                insort(self.used.setdefault(s, []), (self.at[i], i))
            else:
                self.used[s].remove((self.at[i], i))
        return touched

    def segment_rects(self) -> Iterator[Rect]:
        """Each segment that some column shows."""
        for s in self.history.segments:
            shown = [c for c, m in enumerate(self.moments) if s.opened <= m and (s.closed is None or m < s.closed)]
            if shown:
                yield self.edges[shown[0]], self.edges[shown[-1] + 1], self.low[s.id], self.low[s.id] + s.nbytes


def changes_of(history: AllocatorHistory, recording: Recording | None) -> dict[int, list[tuple[str, int, str]]]:
    """What happens at each moment, in an order in which it can be done: what goes, then what comes."""
    found: dict[int, list[tuple[str, int, str]]] = {}
    lived = [b for b in history.blocks if b.born != b.freed]
    for b in lived:
        if b.freed is not None:
            found.setdefault(b.freed, []).append(("freed", b.id, ""))
    for s in history.segments:
        if s.closed is not None and s.closed != s.opened:
            found.setdefault(s.closed, []).append(("close", s.id, ""))
    for s in history.segments:
        if s.closed != s.opened:
            found.setdefault(s.opened, []).append(("open", s.id, ""))
    for b in lived:
        found.setdefault(b.born, []).append(("born", b.id, ""))
    for event in recording.events if recording else ():
        for s, category in event.moved:
            found.setdefault(event.index, []).append(("category", s, category))
    return found
