"""What a snapshot's stack says: the learner's lines, the operation, the phase. Frames are innermost first."""

from __future__ import annotations

import functools
import os
import re
import reprlib
from typing import Any, NamedTuple

from ..data.model import Frame, Place, Source
from .errors import SnapshotError

_LIBRARY = re.compile(
    r"(^|/)((site|dist)-packages|lib/python\d[\d.]*|torch/(_\w+|autograd|cuda|fx|nn|optim|utils))/|^<(?!ipython|stdin)"
)
_CELL = re.compile(r"(^|/)ipykernel_\d+/|^<ipython-input")
#: What a notebook's cell is called, as in recordings.
CELL = "a cell"
_CALL = re.compile(r"at::_ops::(\w+)::call\b")


class Stack(NamedTuple):
    place: int | None
    op: str  # "aten.add"; "" where no C++ frame tells it
    phase: str  # "backward", "step" or "" (no frame of either)


class Stacks:
    """Reads stacks, and gives each place and source its id once."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.sources: list[Source] = []
        self._place_ids: dict[tuple[Frame, ...], int] = {}
        self._source_ids: dict[str, int] = {}
        self._stacks: dict[int, tuple[list, Stack]] = {}  # by identity: a snapshot shares equal stacks

    def read(self, frames: list[dict[str, Any]]) -> Stack:
        found = self._stacks.get(id(frames))
        if found is None:
            found = self._stacks[id(frames)] = (frames, self._read(frames))
        return found[1]

    def trimmed(self) -> tuple[Place, ...]:
        """The places without what all of them share, the way to the code that was recorded.

        A notebook's cell is that code; each place keeps a frame at least.
        """
        stacks = [place.frames for place in self.places]
        drop = 0
        for level in zip(*(frames[:-1] for frames in stacks), strict=False):
            if len(set(level)) > 1 or self.sources[level[0].source].label == CELL:
                break
            drop += 1
        return tuple(Place(place.id, place.frames[drop:]) for place in self.places)

    def _read(self, frames: list[dict[str, Any]]) -> Stack:
        mine: list[Frame] = []
        calls: list[str] = []
        phase, inside, autocast = "", "", False
        for frame in frames:
            try:
                name, filename, line = str(frame["name"]), str(frame["filename"]), int(frame["line"])
            except (KeyError, TypeError, ValueError):
                raise SnapshotError(
                    f"This snapshot is damaged: {reprlib.repr(frame)} stands where a stack's frame belongs."
                ) from None
            if _is_python(filename):
                phase = phase or _python_phase(name, filename)
                if not _LIBRARY.search(filename.replace("\\", "/")):
                    function = "" if name == "<module>" else name
                    mine.append(Frame(self._source(filename), line, function))
                continue
            if "torch::autograd::Engine::" in name:
                phase = phase or "backward"
            autocast = autocast or "at::autocast::" in name
            call = _CALL.match(name)
            # One made of others is not what ran: einsum is bmm. Nor is what autocast made a cast for.
            if call and not autocast and "CompositeImplicitAutograd" not in inside:
                calls.append(call[1])
            inside = name + filename
        return Stack(self._place(tuple(reversed(mine))), _operation(calls[-1]) if calls else "", phase)

    def _place(self, frames: tuple[Frame, ...]) -> int | None:
        if not frames:
            return None
        found = self._place_ids.get(frames)
        if found is None:
            found = self._place_ids[frames] = len(self.places)
            self.places.append(Place(found, frames))
        return found

    def _source(self, filename: str) -> int:
        found = self._source_ids.get(filename)
        if found is None:
            found = self._source_ids[filename] = len(self.sources)
            label = CELL if _CELL.search(filename) else re.split(r"[/\\]", filename)[-1]
            self.sources.append(Source(found, label, 1, ()))
        return found


@functools.cache
def _is_python(filename: str) -> bool:
    return filename.endswith(".py") or filename.startswith("<") or bool(_CELL.search(filename))


def _python_phase(name: str, filename: str) -> str:
    """Every optimizer's step is wrapped by torch/optim/optimizer.py; backward's first gradient is made in Python."""
    filename = filename.replace(os.sep, "/")
    if "torch/optim/" in filename and name != "zero_grad":
        return "step"
    return "backward" if filename.endswith("torch/autograd/__init__.py") else ""


@functools.cache
def _operation(name: str) -> str:
    """ "add_Tensor" → "aten.add": C++ joins an operation's name and its overload's, both of which hold underscores."""
    import torch

    for cut in (len(name), *(i for i in range(len(name) - 1, 0, -1) if name[i] == "_")):
        packet = getattr(torch.ops.aten, name[:cut], None)
        if packet is not None and (name[cut + 1 :] or "default") in packet.overloads():
            return f"aten.{name[:cut]}"
    return f"aten.{name}"
