"""Reads autograd nodes without any effect on them: edges, leaves, what they saved.

The accessors `_saved_X` check versions, run unpack hooks and raise once released; `_raw_saved_X` do none of that. They
outlive their node, so each is dropped as soon as it is read. Walks are loops: graphs can be deeper than Python's stack.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from . import private
from .build import NodeNote, SavedNote, text_of
from .interrupts import held
from .tensors import geometry, name_of, nbytes_of, shape_of

_KEY = "gradients-and-intermediates"
_BRAKE = "gradients-and-intermediates brake"
_BRAKE_EVERY = 10_000  # nodes in a row; shallower graphs, nearly all, have none
_SIMPLE = (int, float, bool, str, type(None))
_RESULT = "result"  # what derivative formulas call an operation's own results; some have names of their own


class Marker:
    """Sits in a C++ node's metadata, which lives as long as the node: gives it an identity, and tells of its end."""

    __slots__ = ("__weakref__", "id", "owner")

    def __init__(self, owner: object, id: int) -> None:
        self.owner, self.id = owner, id


class MarkerWatch(weakref.ref):
    __slots__ = ("id",)


class Brake:
    """Holds deep nodes until the garbage collector comes by.

    From 2.13 on, a torch node that Python has looked at is freed by its last user's destructor, that one by the next,
    and some 40,000 deep the stack is full. A node with a brake on the one behind it ends such a run: the brake refers
    to itself, so nothing but the collector, on a stack of its own, lets it go. It goes with the node that carries it.
    """

    __slots__ = ("me", "nodes")

    def __init__(self, nodes: list[Any]) -> None:
        self.me, self.nodes = self, nodes


class Nodes:
    """The nodes seen by one recording."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self.owner = object()
        self.notes: list[NodeNote] = []
        self.saved: list[SavedNote] = []
        self.watches: dict[int, MarkerWatch] = {}
        self.again: list[SavedNote] = []  # what this pass computes a second time (checkpoint)

    def known(self, function: Any) -> int | None:
        """Id of a node met before, else None."""
        marker = function.metadata.get(_KEY)
        return marker.id if marker is not None and marker.owner is self.owner else None

    @held
    def add(self, function: Any) -> int:
        """Id of a node; it, and all unknown nodes behind it, are read now."""
        found = self.known(function)
        if found is not None:
            return found
        first = self._mark(function)
        queue = [(function, self.notes[first])]
        for function, note in queue:  # grows while we walk
            edges = []
            for target, output in function.next_functions:
                id = None
                if target is not None:
                    id = self.known(target)
                    if id is None:
                        id = self._mark(target)
                        queue.append((target, self.notes[id]))
                edges.append((id, output))
            note.edges = edges
            self._read(function, note)
        self._measure(queue)
        return first

    def _measure(self, new: list[tuple[Any, NodeNote]]) -> None:
        """How deep each new node is, leaves being 0; inputs come before their users by their numbers."""
        notes = self.notes
        if len(new) > 1:
            new = sorted(new, key=lambda item: -1 if item[1].sequence is None else item[1].sequence)
        for function, note in new:
            for id, _ in note.edges:
                if id is not None and notes[id].depth >= note.depth:
                    note.depth = notes[id].depth + 1
            if note.depth >= _BRAKE_EVERY:  # a brake wherever a path goes on into the next stretch of that length
                held = [
                    function.next_functions[i][0]
                    for i, (id, _) in enumerate(note.edges)
                    if id is not None
                    and notes[id].depth > _BRAKE_EVERY // 2
                    and notes[id].depth // _BRAKE_EVERY < note.depth // _BRAKE_EVERY
                ]
                if held:
                    function.metadata[_BRAKE] = Brake(held)

    def _mark(self, function: Any) -> int:
        id = len(self.notes)
        sequence = function._sequence_nr()
        name = function.name().rsplit("::", 1)[-1]
        self.notes.append(NodeNote(id, name, None if sequence == private.NO_SEQUENCE else sequence))
        marker = Marker(self.owner, id)
        function.metadata[_KEY] = marker
        watch = MarkerWatch(marker, self.recorder.node_died)
        watch.id = id
        self.watches[id] = watch
        return id

    def _read(self, function: Any, note: NodeNote) -> None:
        recorder = self.recorder
        event = recorder.maker(note.sequence) if note.sequence is not None else None
        note.event = event
        if event is not None:
            note.place, note.module = event.place, event.module
            if event.phase == "backward" and event.graph is not None and recorder.graphs[event.graph].create_graph:
                note.place = recorder.graphs[event.graph].place  # no line of forward made it: the call of backward did
            if event.node is None or (event.graph is None and note.sequence < self.notes[event.node].sequence):
                event.node = note.id  # the first that it made: later ones only connect it
        if (variable := getattr(function, "variable", None)) is not None and note.name == "AccumulateGrad":
            note.kind = "leaf"
            note.leaf = (shape_of(variable), name_of(variable.dtype), name_of(variable.device), nbytes_of(variable))
            note.leaf_storages = recorder.leaf(variable)
            note.tensor = weakref.ref(variable)
            note.leaf_geometry = geometry(variable)
            note.leaf_parameter = isinstance(variable, torch.nn.Parameter)
            note.outputs = (note.leaf[:3],)
            return
        note.outputs = [_info(m) for m in getattr(function, "_input_metadata", ())]
        if isinstance(function, torch.autograd.function.BackwardCFunction):
            note.kind = "custom"
            self._read_custom(function, note, event)
            return
        if note.name == "CopySlices":
            note.note = "hides what the operation inside it saved"
        raw, scalars = private.slots(type(function))
        for argument, attribute in raw:
            self._read_slot(function, note, argument, attribute, event)
        for argument, attribute in scalars:
            try:
                value = getattr(function, attribute)
            except (RuntimeError, AttributeError, NotImplementedError):
                continue
            plain = type(value) in _SIMPLE or type(value) in (tuple, list) and all(type(v) in _SIMPLE for v in value)
            note.scalars += ((argument, value if plain else text_of(value)),)  # plain values become text at the end

    def _read_slot(self, function: Any, note: NodeNote, argument: str, attribute: str, event: Any) -> None:
        try:
            raw = getattr(function, attribute)
        except RuntimeError:  # a released list raises as a whole
            self._gone(note, argument)
            return
        if isinstance(raw, (tuple, list)):
            for position, item in enumerate(raw):
                if item is not None:
                    self._read_one(function, note, argument, position, item, event)
        else:
            self._read_one(function, note, argument, None, raw, event)

    def _read_custom(self, function: Any, note: NodeNote, event: Any) -> None:
        self._read_slot(function, note, "tensors", "_raw_saved_tensors", event)
        for name, value in vars(function).items():
            if isinstance(value, torch.Tensor) and name not in ("saved_tensors", "to_save"):
                saved = self._note(note, f"attribute {name}", None)
                self._hold(saved, value, event)

    def _note(self, note: NodeNote, argument: str, position: int | None) -> SavedNote:
        saved = SavedNote(len(self.saved), note, argument, position)
        saved.output = argument.startswith(_RESULT)
        self.saved.append(saved)
        note.saved += (saved.id,)
        return saved

    def _gone(self, note: NodeNote, argument: str) -> None:
        saved = self._note(note, argument, None)
        saved.released = self.recorder.before  # before the recording began

    def _read_one(
        self, function: Any, note: NodeNote, argument: str, position: int | None, raw: Any, event: Any
    ) -> None:
        saved = self._note(note, argument, position)
        try:
            data, hook = private.saved_data(raw, function, argument, position, event.hooked if event else None)
        except RuntimeError:  # the only accessor of an early torch raises once released
            saved.released = self.recorder.before
            return
        if data is NotImplemented:
            saved.packed = "not shown by this torch"
            self._keep(saved, (), event)
            return
        if data is None and hook is None:
            # Released, or never needed? Only now is the checking accessor safe: there is nothing left to unpack.
            try:
                value = getattr(function, f"_saved_{argument}", None)
                saved.never = value is None or position is not None
            except RuntimeError:
                saved.released = self.recorder.before
            return
        if hook is not None:
            self._read_packed(saved, data, event)
        elif data.dim() == 0 and data.device.type == "cpu" and not saved.output and self.recorder.unknown(data):
            saved.scalar = _number(data)
            saved.shape, saved.dtype, saved.device, saved.nbytes = (), name_of(data.dtype), "cpu", 0
            self._keep(saved, (), event)
        else:
            self._hold(saved, data, event)

    def _hold(self, saved: SavedNote, tensor: torch.Tensor, event: Any) -> None:
        saved.shape, saved.dtype = shape_of(tensor), name_of(tensor.dtype)
        saved.device, saved.nbytes, saved.geometry = name_of(tensor.device), nbytes_of(tensor), geometry(tensor)
        storages = self.recorder.see_all(tensor)
        if event is not None and saved.node.kind == "operation" and any(s.born is event for s in storages):
            saved.output = True  # its operation made it: the indices of max, the output of attention
        self._keep(saved, storages, event)

    def _read_packed(self, saved: SavedNote, packed: Any, event: Any) -> None:
        parts = packed if isinstance(packed, (tuple, list)) else (packed,)
        tensors = [p for p in parts if isinstance(p, torch.Tensor)]
        if tensors:
            self._hold(saved, tensors[0], event)
            saved.packed = "a tensor that a hook put in its place"
            saved.again = event is not None and event.phase == "backward"
            if saved.again:
                self.again.append(saved)
        else:
            kind = type(packed)
            checkpoint = "checkpoint" in kind.__module__
            saved.packed = "a note to compute it again (checkpoint)" if checkpoint else f"a {kind.__name__} from a hook"
            self._keep(saved, (), event)

    def _keep(self, saved: SavedNote, storages: Iterable[Any], event: Any) -> None:
        saved.storages = tuple(dict.fromkeys(storages))
        saved.kept = event
        for storage in saved.storages:
            storage.saved += (saved,)
        if event is not None:
            event.kept += (saved,)

    def release(self, id: int, event: Any) -> bool:
        """Mark what a node held as released at `event`; whether there was anything. Attributes on a ctx stay."""
        any_released = False
        for number in self.notes[id].saved:
            saved = self.saved[number]
            if saved.never or saved.released is not None or (event.kind == "release" and "attribute" in saved.argument):
                continue
            if saved.again and event.kind == "free":
                continue  # the graph that computed it again is dropped at once; it stays until its node has used it
            self._let_go(saved, event)
            any_released = True
        return any_released

    def _let_go(self, saved: SavedNote, event: Any) -> None:
        saved.released = event
        for storage in saved.storages:
            storage.saved = tuple(s for s in storage.saved if s is not saved)
        event.released += (saved,)

    def release_again(self, event: Any) -> None:
        """At the end of a pass: what it computed again over memory that lives on (weights) is kept no more."""
        for saved in self.again:
            if saved.released is None:
                self._let_go(saved, event)
        self.again.clear()

    def walk(self, roots: Iterable[Any]) -> list[tuple[Any, int]]:
        """Every node from the roots inwards, once, with its id."""
        seen: set[int] = set()
        order: list[tuple[Any, int]] = []
        for root in roots:
            id = self.add(root)
            if id not in seen:
                seen.add(id)
                order.append((root, id))
        for function, _ in order:  # grows while we walk
            for target, _ in function.next_functions:
                if target is not None:
                    id = self.add(target)
                    if id not in seen:
                        seen.add(id)
                        order.append((target, id))
        return order

    def unmark(self, roots: Iterable[Any]) -> None:
        """Take our markers out of every node behind the roots."""
        queue = list(roots)
        seen = set(queue)
        strangers = []
        for function in queue:  # grows while we walk; on through nodes that we never marked: ours may lie behind them
            metadata = function.metadata
            marker = metadata.get(_KEY)
            if marker is not None and marker.owner is self.owner:
                self.watches.pop(marker.id, None)
                del metadata[_KEY]
            elif not self.watches:
                break
            else:
                strangers.append(function)
            for target, _ in function.next_functions:
                if target is not None and target not in seen:
                    seen.add(target)
                    queue.append(target)
        if len(strangers) >= _BRAKE_EVERY:
            brake(strangers)


def brake(strangers: list[Any]) -> None:
    """Brakes for nodes that we looked at in passing: from then on they are as deep to free as our own."""
    depth: dict[Any, int] = {}
    for function in sorted(strangers, key=lambda f: (f._sequence_nr() + 1) % (private.NO_SEQUENCE + 1)):  # leaves first
        targets = [target for target, _ in function.next_functions if target is not None]
        mine = depth[function] = 1 + max((depth.get(target, 0) for target in targets), default=-1)
        held = [
            target
            for target in targets
            if depth.get(target, 0) > _BRAKE_EVERY // 2 and depth[target] // _BRAKE_EVERY < mine // _BRAKE_EVERY
        ]
        if held and _BRAKE not in function.metadata:
            function.metadata[_BRAKE] = Brake(held)


def _info(metadata: Any) -> tuple[tuple[int, ...], str, str] | None:
    """Shape, dtype and device of a node's output; None where it has none."""
    try:
        shape = tuple(metadata.shape)
        if metadata.is_nested_tensor:
            shape = tuple(n if type(n) is int else -1 for n in shape)
        return shape, name_of(metadata.dtype), name_of(metadata.device)
    except (RuntimeError, AttributeError, TypeError):
        return None


def _number(tensor: torch.Tensor) -> str:
    return text_of(tensor.item())
