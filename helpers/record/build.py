"""What the recorder notes while the code runs, and how it becomes a frozen Recording at the end.

Notes refer to each other as objects; ids and indices are given out at the end. Nothing here holds a tensor.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from ..data import model
from ..data.model import GRADIENTS, INPUTS, KEPT, OTHER, Accumulated, Edge, MemoryEvent, Recording, SavedTensor
from .places import Places


class EventNote:
    __slots__ = (
        "accumulated allocated changed freed graph hooked index inside kept kind module node note op phase place "
        "reading released resized roles"
    ).split()

    def __init__(self, kind, phase, place, op="", node=None, graph=None, module=""):
        self.kind, self.phase, self.place, self.op = kind, phase, place, op
        self.node, self.graph, self.module = node, graph, module
        # Tuples, grown by +=: most stay empty, and thousands of empty lists would make garbage collection slow.
        self.allocated = self.freed = self.resized = self.kept = self.released = ()
        self.roles = ()  # (storage, INPUTS or GRADIENTS, whether it has that role from here on)
        self.accumulated = None
        self.note = ""
        self.inside = 0
        self.hooked = False  # see private.DefaultHooks
        self.reading = None  # the CUDA allocator's counts, see cuda.Counters
        self.index = -1


class StorageNote:
    __slots__ = (
        "born device dtype fixed freed holders initial made_between names nbytes op place saved shape size watch id"
    ).split()

    def __init__(self, nbytes, device, born, shape, dtype, op, place, made_between):
        self.nbytes = self.size = nbytes
        self.device, self.born, self.shape, self.dtype, self.op, self.place = device, born, shape, dtype, op, place
        self.freed = None
        self.fixed = None  # a category that holds for its whole life
        self.initial = OTHER if born else INPUTS
        self.made_between = made_between  # outside any forward, from nothing that needs a gradient: data, maybe
        self.names = ()  # (is a parameter's, name, geometry)
        self.saved = ()  # SavedNotes that hold it now
        self.id = -1

    def call(self, name, geometry, *, parameter=False):
        """Note a name that a tensor over this storage has."""
        key = (parameter, name, geometry)
        if key not in self.names:
            self.names += (key,)

    def names_of(self, geometry):
        """Names of the tensor with this geometry; else what it is a part of. Parameters' names come first."""
        offset, shape, strides = geometry
        known = [n for n in self.names if n[0]] or self.names
        exact = [n[1] for n in known if n[2] == geometry]
        if exact:
            return tuple(exact)
        turned = (offset, shape[::-1], strides[::-1])
        transposed = [f"{n[1]}.t()" for n in known if len(shape) == 2 and n[2] == turned]
        if transposed:
            return tuple(transposed)
        whole = [n[1] for n in known if n[2][0] == offset and math.prod(n[2][1]) == math.prod(shape)]
        return tuple(f"{n} reshaped" for n in whole) or tuple(f"part of {n[1]}" for n in known[:1])

    def all_names(self):
        known = [n for n in self.names if n[0]] or self.names
        return tuple(dict.fromkeys(n[1] for n in known))


class SavedNote:
    __slots__ = (
        "again argument changed device dtype geometry id kept nbytes never node output packed position released scalar "
        "shape storages"
    ).split()

    def __init__(self, id, node, argument, position):
        self.id, self.node, self.argument, self.position = id, node, argument, position
        self.shape, self.dtype, self.device, self.nbytes, self.geometry = (), "", "", 0, (0, (), ())
        self.again = False  # computed a second time, during backward (checkpoint)
        self.storages = ()
        self.output = self.never = False
        self.kept = self.released = self.changed = None
        self.packed = self.scalar = ""


class NodeNote:
    __slots__ = (
        "depth edges event id kind leaf leaf_geometry leaf_parameter leaf_storages module name names note outputs "
        "place saved scalars sequence tensor"
    ).split()

    def __init__(self, id, name, sequence):
        self.id, self.name, self.sequence = id, name, sequence
        self.kind = "operation"
        self.depth = 0
        self.edges = self.outputs = self.saved = self.scalars = self.names = ()
        self.event = self.place = self.leaf = self.tensor = None
        self.leaf_storages, self.leaf_geometry, self.leaf_parameter = (), None, False
        self.module = self.note = ""


class GraphNote:
    __slots__ = "create_graph event id modules nodes parent place pruned ran retained roots trigger".split()

    def __init__(self, id, trigger, roots, nodes, place, parent):
        self.id, self.trigger, self.roots, self.nodes = id, trigger, roots, nodes
        self.place, self.parent = place, parent
        self.retained = self.create_graph = False
        self.event = None
        self.modules = 0  # how many modules' forwards were running as it began
        self.pruned = ()
        self.ran = set()


class Rooted(NamedTuple):
    """A path inside a module that the learner called; whether that module's name is needed shows at the end."""

    root: int
    path: str


def spell_out(events, storages, nodes, roots) -> None:
    """Write every Rooted path as text: `0.weight` where one module was called, `D.0.weight` where there were several.

    roots: (variable's name or "", class) of each module.
    """
    shown = [name or kind for name, kind in roots]
    shown = [name if shown.count(name) == 1 else f"{name} {i + 1}" for i, name in enumerate(shown)]

    def text(name):
        if not isinstance(name, Rooted):
            return name
        if len(roots) == 1:
            return name.path or roots[0][1]
        return f"{shown[name.root]}.{name.path}" if name.path else shown[name.root]

    for storage in storages:
        storage.names = tuple((parameter, text(name), geometry) for parameter, name, geometry in storage.names)
    for note in (*events, *nodes):
        note.module = text(note.module)


def freeze(events, storages, saved, nodes, graphs, places: Places, notes, allocator, made_with) -> Recording:
    """The notes as a Recording: indices for objects, categories replayed from roles and from what was kept."""
    for i, event in enumerate(events):
        event.index = i
    for i, storage in enumerate(storages):
        storage.id = i
    for note in saved:
        _keep_not_before_born(note)
    moved = _categories(events, storages)

    def index(event):
        return None if event is None else event.index

    frozen_events = tuple(
        MemoryEvent(
            index=i,
            kind=e.kind,
            phase=e.phase,
            place=e.place,
            op=e.op,
            node=e.node,
            graph=e.graph,
            module=e.module,
            allocated=tuple(s.id for s in e.allocated),
            freed=tuple(s.id for s in e.freed),
            resized=tuple((s.id, n) for s, n in e.resized),
            kept=tuple(s.id for s in e.kept),
            released=tuple(s.id for s in e.released),
            moved=moved[i],
            accumulated=Accumulated(e.accumulated[0], tuple(s.id for s in e.accumulated[1]), *e.accumulated[2:])
            if e.accumulated
            else None,
            note=e.note,
            inside=e.inside,
        )
        for i, e in enumerate(events)
    )
    frozen_storages = tuple(
        model.Storage(
            id=i,
            nbytes=s.nbytes,
            device=s.device,
            born=s.born.index if s.born else -1,
            freed=index(s.freed),
            category=s.initial,
            names=s.all_names(),
            shape=s.shape,
            dtype=s.dtype,
            op=s.op,
            place=s.place,
        )
        for i, s in enumerate(storages)
    )
    frozen_saved = tuple(_saved(s) for s in saved)
    frozen_nodes = tuple(
        model.Node(
            id=n.id,
            name=n.name,
            kind=n.kind,
            edges=tuple(Edge(*e) for e in n.edges),
            outputs=tuple(None if o is None else model.TensorInfo(*o) for o in n.outputs),
            saved=tuple(n.saved),
            scalars=tuple(model.SavedScalar(name, text_of(value)) for name, value in n.scalars),
            names=tuple(n.names),
            place=n.place,
            module=n.module,
            sequence=n.sequence,
            leaf=_leaf(n) if n.leaf else None,
            event=index(n.event),
            note=n.note,
        )
        for n in nodes
    )
    frozen_graphs = tuple(
        model.Graph(
            id=g.id,
            trigger=g.trigger,
            roots=tuple(Edge(*r) for r in g.roots),
            nodes=tuple(g.nodes),
            pruned=tuple(g.pruned),
            retained=g.retained,
            create_graph=g.create_graph,
            event=index(g.event),
            place=g.place,
            parent=g.parent,
        )
        for g in graphs
    )
    cell, span = places.block
    sources = tuple(
        replace(s, label="this cell" if s.id == cell else "another cell") if s.label == "a cell" else s
        for s in places.sources
    )
    return Recording(
        sources=sources,
        places=tuple(places.places),
        storages=frozen_storages,
        nodes=frozen_nodes,
        saved=frozen_saved,
        graphs=frozen_graphs,
        events=frozen_events,
        cell=cell,
        span=span,
        notes=tuple(dict.fromkeys(notes)),
        made_with=made_with,
        allocator=allocator,
    )


def _keep_not_before_born(note: SavedNote) -> None:
    """A custom Function's node is made by its first operation, and may keep what its later ones make."""
    if note.kept is None or note.never:
        return
    latest = max((s.born for s in note.storages if s.born is not None), key=lambda e: e.index, default=None)
    if latest is not None and latest.index > note.kept.index:
        note.kept.kept = tuple(s for s in note.kept.kept if s is not note)
        latest.kept += (note,)
        note.kept = latest


def _categories(events, storages):
    """Replay roles; fix each storage's first category; give each event its moves."""
    roles = {s: {s.initial} - {OTHER} for s in storages}
    kept = dict.fromkeys(storages, 0)

    def category(s):
        if s.fixed:
            return s.fixed
        if GRADIENTS in roles[s]:
            return GRADIENTS
        if kept[s]:
            return KEPT
        return INPUTS if INPUTS in roles[s] else OTHER

    # What was kept before the recording began is kept from the start.
    for s in storages:
        kept[s] = sum(1 for note in s.saved if note.kept is None)
    for event in events:
        for note in event.released:
            if note.kept is None:
                for s in note.storages:
                    kept[s] += 1
    now = {}
    for s in storages:
        now[s] = s.initial = category(s)
    moved = []
    for event in events:
        touched = []
        for s, role, on in event.roles:
            (roles[s].add if on else roles[s].discard)(role)
            touched.append(s)
        for note in event.kept:
            for s in note.storages:
                kept[s] += 1
                touched.append(s)
        for note in event.released:
            for s in note.storages:
                kept[s] -= 1
                touched.append(s)
        changes, gone = [], set(event.freed)
        for s in dict.fromkeys(touched):
            new = category(s)
            if new != now[s]:
                now[s] = new
                if s.born is event:
                    s.initial = new
                elif s not in gone:
                    changes.append((s.id, new))
        moved.append(tuple(changes))
    return moved


def _saved(note: SavedNote) -> SavedTensor:
    if note.never:
        state = "never saved"
    elif note.released is not None:
        state = "released"
    elif note.packed:
        state = "packed"
    else:
        state = "changed in place" if note.changed is not None else "live"
    names: tuple[str, ...] = ()
    if note.storages:
        names = note.storages[0].names_of(note.geometry)
    return SavedTensor(
        id=note.id,
        node=note.node.id,
        argument=note.argument,
        position=note.position,
        shape=note.shape,
        dtype=note.dtype,
        device=note.device,
        nbytes=note.nbytes,
        storages=tuple(s.id for s in note.storages),
        output=note.output,
        names=names,
        kept=None if note.never else (note.kept.index if note.kept else -1),
        released=None if note.released is None else note.released.index,
        state=state,
        changed=None if note.changed is None else note.changed.index,
        packed=note.packed,
        scalar=note.scalar,
    )


def _leaf(note: NodeNote) -> model.Leaf:
    shape, dtype, device, nbytes = note.leaf
    names: tuple[str, ...] = ()
    if note.leaf_storages:
        names = note.leaf_storages[0].names_of(note.leaf_geometry)
    return model.Leaf(
        names=names,
        shape=shape,
        dtype=dtype,
        device=device,
        storages=tuple(s.id for s in note.leaf_storages),
        nbytes=nbytes,
        parameter=note.leaf_parameter,
    )


def text_of(value) -> str:
    """A saved number, shape or flag in words."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 2**63:
        value -= 2**64  # a negative dimension, read as unsigned
    if isinstance(value, (tuple, list)):
        return f"({', '.join(text_of(v) for v in value)})"
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None or isinstance(value, (bool, int, complex, str)):
        return str(value)
    name = str(value)
    return name.removeprefix("torch.") if name.startswith("torch.") else type(value).__name__
