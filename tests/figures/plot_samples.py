"""For tests of the memory plots: random recordings and histories, and numbers read back from matplotlib's artists."""

from __future__ import annotations

import random

from helpers.data import CATEGORIES, AllocatorHistory, MemoryEvent, Recording, Storage
from helpers.data.json_io import check
from helpers.gpu.simulate import simulate


def random_recording(seed: int, events: int = 60, most: int = 40 << 20) -> Recording:
    """Storages of every category that are born, resized, moved and freed at random; sound, and the same each time."""
    dice = random.Random(seed)
    made: list[dict] = []
    live: list[int] = []

    def born(at: int) -> int:
        size = dice.choice((0, 1, 300, dice.randrange(1, 1 << 20), dice.randrange(1, most)))
        made.append(dict(nbytes=size, born=at, freed=None, category=dice.choice(CATEGORIES)))
        live.append(len(made) - 1)
        return len(made) - 1

    for _ in range(dice.randrange(5)):
        born(-1)
    out = []
    for at in range(events):
        before = list(live)
        allocated = tuple(born(at) for _ in range(dice.choice((0, 1, 1, 2))))
        moved = tuple((s, dice.choice(CATEGORIES)) for s in before if dice.random() < 0.1)
        resized = tuple((s, dice.randrange(most)) for s in before if dice.random() < 0.03)
        freed = tuple(s for s in before if dice.random() < (0.3 if len(live) > 8 else 0.05))
        for s in freed:
            live.remove(s)
            made[s]["freed"] = at
        kind = "op" if allocated else "free"
        phase = ("forward", "backward", "step")[3 * at // events]
        inside = dice.choice((0, 0, dice.randrange(most))) if kind == "op" else 0
        out.append(
            MemoryEvent(
                at, kind, phase, op=f"aten.op{at % 5}", allocated=allocated, freed=freed, resized=resized, moved=moved,
                inside=inside,
            )
        )  # fmt: skip
    storages = tuple(Storage(i, device="cpu", **fields) for i, fields in enumerate(made))
    recording = Recording((), (), storages, (), (), (), tuple(out))
    check(recording)
    return recording


def random_history(seed: int, events: int = 60, card=None) -> tuple[AllocatorHistory, Recording]:
    recording = random_recording(seed, events)
    return simulate(recording, card), recording


# ------------------------------------------------------------------------------------------------- artists, read back


def patches(axes, label: str | None = None) -> list:
    return [p for p in axes.patches if p.get_label() != "hatch" and label in (None, p.get_label())]


def rects(patch) -> list[tuple[float, float, float, float]]:
    """Rectangles of a path: x0, x1, y0, y1, in the axes' values."""
    corners = patch.get_path().vertices.reshape(-1, 5, 2)
    return [(r[:, 0].min(), r[:, 0].max(), r[:, 1].min(), r[:, 1].max()) for r in corners]


def band(axes, label: str) -> dict[float, tuple[float, float]]:
    """A band's edges → its (low, high) from there on; edges at which it is not there are left out."""
    found = patches(axes, label)
    if not found:
        return {}
    (patch,) = found
    values, edges, baseline = patch.get_data()
    return {
        float(x): (float(low), float(high))
        for x, low, high in zip(edges[:-1], baseline, values, strict=True)
        if high == high  # not NaN: there it has no height
    }


def line(axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = [artist for artist in axes.lines if artist.get_label() == label]
    return list(map(float, found.get_xdata())), list(map(float, found.get_ydata()))
