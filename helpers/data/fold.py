"""Folds over a recording's events: what was true at a moment. A moment is an event's index; -1 is before the first."""

from __future__ import annotations

from dataclasses import dataclass

from .model import BUFFERS, CATEGORIES, PARAMETERS, Recording, SavedTensor


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bytes by category after each event. `rows[0]` is before the first event, `rows[i + 1]` after event i."""

    categories: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]

    @property
    def totals(self) -> tuple[int, ...]:
        return tuple(map(sum, self.rows))

    def at(self, moment: int) -> dict[str, int]:
        """Bytes by category after event `moment` (-1: before the first)."""
        return dict(zip(self.categories, self.rows[moment + 1], strict=True))

    @property
    def peak(self) -> int:
        """The first moment at which most bytes are live."""
        totals = self.totals
        return totals.index(max(totals)) - 1


def timeline(recording: Recording) -> Timeline:
    """Replay allocations, frees, resizes and moves between categories."""
    column = {name: i for i, name in enumerate(CATEGORIES)}
    size = [s.nbytes for s in recording.storages]
    category = [s.category for s in recording.storages]
    now = [0] * len(CATEGORIES)
    for storage in recording.storages:
        if storage.born < 0:
            now[column[storage.category]] += storage.nbytes
    rows = [tuple(now)]
    for event in recording.events:
        for s in event.allocated:
            now[column[category[s]]] += size[s]
        for s, nbytes in event.resized:
            now[column[category[s]]] += nbytes - size[s]
            size[s] = nbytes
        for s, new in event.moved:
            now[column[category[s]]] -= size[s]
            now[column[new]] += size[s]
            category[s] = new
        for s in event.freed:
            now[column[category[s]]] -= size[s]
        rows.append(tuple(now))
    return Timeline(CATEGORIES, tuple(rows))


def live_storages(recording: Recording, moment: int) -> dict[int, tuple[int, str]]:
    """Storages live after event `moment`: id → (bytes, category)."""
    live = {s.id: (s.nbytes, s.category) for s in recording.storages if s.born < 0}
    for event in recording.events[: moment + 1]:
        for s in event.allocated:
            live[s] = (recording.storages[s].nbytes, recording.storages[s].category)
        for s, nbytes in event.resized:
            live[s] = (nbytes, live[s][1])
        for s, new in event.moved:
            live[s] = (live[s][0], new)
        for s in event.freed:
            del live[s]
    return live


def state_at(saved: SavedTensor, moment: int) -> str | None:
    """A saved tensor's state after event `moment`; None if it was not kept yet."""
    if saved.state == "never saved":
        return saved.state
    if saved.kept is None or saved.kept > moment:
        return None
    if saved.released is not None and saved.released <= moment:
        return "released"
    if saved.packed:
        return "packed"
    return "changed in place" if saved.changed is not None and saved.changed <= moment else "live"


def kept_moment(recording: Recording) -> int:
    """The moment that `kept` shows unless told otherwise: as the first backward begins, else the end."""
    for event in recording.events:
        if event.kind == "enter":
            return event.index
    return len(recording.events) - 1


def kept_at(recording: Recording, moment: int | None = None) -> tuple[SavedTensor, ...]:
    """Saved tensors that are kept (live, packed or changed in place) after event `moment`, in forward order."""
    moment = kept_moment(recording) if moment is None else moment
    states = ("live", "packed", "changed in place")
    return tuple(s for s in recording.saved if state_at(s, moment) in states)


def kept_bytes(recording: Recording, moment: int | None = None, *, parameters: bool = False) -> int:
    """Bytes of the distinct storages kept for backward; parameters and buffers, alive anyway, only if asked."""
    moment = kept_moment(recording) if moment is None else moment
    live = live_storages(recording, moment)
    storages = {i for s in kept_at(recording, moment) if not s.scalar for i in s.storages if i in live}
    return sum(live[i][0] for i in storages if parameters or live[i][1] not in (PARAMETERS, BUFFERS))


def phases(recording: Recording) -> list[tuple[str, int, int]]:
    """Runs of events of one phase: (phase, first event, last event)."""
    runs: list[tuple[str, int, int]] = []
    for event in recording.events:
        if runs and runs[-1][0] == event.phase:
            runs[-1] = (event.phase, runs[-1][1], event.index)
        else:
            runs.append((event.phase, event.index, event.index))
    return runs
