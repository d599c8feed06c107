"""What a recording holds, as frozen data.

Nothing here knows torch, figures or notebooks. Every id is an index: `Recording.storages[s].id == s`, and the same for
places, nodes, saved tensors, graphs and events. Bytes are whole numbers of bytes, shapes are tuples of ints.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .allocator import AllocatorHistory, Block, OutOfMemory, Reading, Segment  # noqa: F401  (JSON finds them here)

#: Categories of live bytes, in the order in which figures stack them. A storage is in exactly one at a time; where two
#: would fit, the earlier one of `PRIORITY` wins.
CATEGORIES = ("parameters", "buffers", "optimizer state", "gradients", "kept for backward", "inputs", "other")
PARAMETERS, BUFFERS, OPTIMIZER, GRADIENTS, KEPT, INPUTS, OTHER = CATEGORIES
PRIORITY = (PARAMETERS, BUFFERS, OPTIMIZER, GRADIENTS, KEPT, INPUTS, OTHER)

PHASES = ("between", "forward", "backward", "step")

#: Kinds of events.
#: op          one operation ran: what it allocated, resized, and what became kept with the node it made
#: free        storages went because nothing referred to them any more (Python, or the engine between two nodes)
#: enter       a backward pass begins; its graph is `graphs[event.graph]`
#: run         a backward node has run
#: accumulate  a leaf's AccumulateGrad has run: `event.accumulated`
#: release     a node's saved tensors were released because it ran (where a graph is dropped, a "free" event says so)
#: leave       a backward pass has ended
#: step        an optimizer's step begins (`note` names the optimizer); `stepped` ends it
#: error       the watched code raised; `note` is "TypeName: message"; always the last event
EVENT_KINDS = ("op", "free", "enter", "run", "accumulate", "release", "leave", "step", "stepped", "error")

#: Kinds of nodes: an AccumulateGrad is a leaf, a torch.autograd.Function is custom, an edge is compiled or unknown.
NODE_KINDS = ("operation", "leaf", "custom", "edge")

#: States of a saved tensor.
#: live              kept, and not released when the recording ended (or at the moment asked for)
#: released          its node ran, or its graph was dropped
#: packed            a hook (checkpoint, offload) took the tensor away and left something else in its place
#: never saved       the node has a slot for it, and did not need it
#: changed in place  kept, but somebody changed it after it was saved: backward would raise
SAVED_STATES = ("live", "released", "packed", "never saved", "changed in place")


@dataclass(frozen=True, slots=True)
class Source:
    """A piece of the learner's code: a notebook cell, a function's file. `lines[0]` is line number `first`."""

    id: int
    label: str  # "this cell", "another cell", or a file's bare name; never a path
    first: int
    lines: tuple[str, ...]

    def line(self, number: int) -> str:
        """The text of line `number`, stripped; empty if the source is not known."""
        index = number - self.first
        return self.lines[index].strip() if 0 <= index < len(self.lines) else ""


@dataclass(frozen=True, slots=True)
class Frame:
    source: int
    line: int
    function: str  # qualified name; "" for the top level of a cell or script


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the learner's code something happened: frames from the recorded block inwards, library code left out."""

    id: int
    frames: tuple[Frame, ...]

    @property
    def outer(self) -> Frame | None:
        """The line of the recorded block itself."""
        return self.frames[0] if self.frames else None

    @property
    def inner(self) -> Frame | None:
        """The learner's line nearest to the operation (inside a module's forward, for example)."""
        return self.frames[-1] if self.frames else None


@dataclass(frozen=True, slots=True)
class TensorInfo:
    shape: tuple[int, ...]
    dtype: str  # "float32", without "torch."
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Storage:
    """One block of memory. `born` is -1 if it was there before the recording, `freed` None if it outlived it."""

    id: int
    nbytes: int  # when first seen; later sizes stand in events' `resized`
    device: str
    born: int
    freed: int | None
    category: str  # when born (or, for -1, before the first event); changes stand in events' `moved`
    names: tuple[str, ...] = ()  # parameters' and variables' names, all of them
    shape: tuple[int, ...] = ()  # of the first tensor seen over it
    dtype: str = ""
    op: str = ""  # the operation that allocated it, "" if it was there before
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """One entry of `next_functions`: the node that makes this input's gradient, or None if it needs no gradient."""

    node: int | None
    output: int = 0  # which output of that node's operation is read


@dataclass(frozen=True, slots=True)
class Leaf:
    """The tensor that an AccumulateGrad node adds gradients to."""

    names: tuple[str, ...]  # every name it has; two for tied weights; empty if it has none
    shape: tuple[int, ...]
    dtype: str
    device: str
    storages: tuple[int, ...]
    nbytes: int
    parameter: bool  # an nn.Parameter (or a tensor that an optimizer holds), not a plain leaf


@dataclass(frozen=True, slots=True)
class SavedScalar:
    """A number, shape or flag that a node keeps; it takes no tensor memory, and saved-tensor hooks never see it."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor that a node keeps for its backward formula."""

    id: int
    node: int
    argument: str  # the formula's name for it: "self", "other", "result", "weight"; "attribute NAME" on a ctx
    position: int | None  # index within a list argument, else None
    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int  # of the tensor as saved: elements × element size (a view counts its own elements)
    storages: tuple[int, ...]  # usually one; two for sparse, none where packed or never saved
    output: bool  # the node's own output (relu keeps its result), not one of its inputs
    names: tuple[str, ...]  # variable or parameter names of the tensor, if it had any
    kept: int | None  # index of the event at which it became kept; -1 if before the recording
    released: int | None  # index of the event at which it was released, None if it never was
    state: str  # of SAVED_STATES, at the end of the recording
    changed: int | None = None  # index of the first event that changed it in place while it was kept
    packed: str = ""  # what stands in its place, in words
    scalar: str = ""  # "2": a Python number, saved as a 0-dimensional tensor; no memory of its own is counted


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the autograd graph. The same node in two captured graphs has the same id."""

    id: int
    name: str  # "MulBackward0", "AccumulateGrad"
    kind: str  # of NODE_KINDS
    edges: tuple[Edge, ...]
    outputs: tuple[TensorInfo | None, ...]  # what the operation made in forward
    saved: tuple[int, ...] = ()
    scalars: tuple[SavedScalar, ...] = ()
    names: tuple[str, ...] = ()  # variable names of its outputs
    place: int | None = None  # the line that made it: forward's, or that of the backward in which it was made
    module: str = ""  # "layers.0.attention"; "" outside any module
    sequence: int | None = None  # None for leaves
    leaf: Leaf | None = None
    event: int | None = None  # the op event that made it, None if before the recording or unknown
    note: str = ""  # something a reader must know: "hides what the operation inside it saved"


@dataclass(frozen=True, slots=True)
class Graph:
    """The graph as it stood when a backward pass began, or, with no backward, at the end of the recording."""

    id: int
    trigger: str  # "backward", "grad" (torch.autograd.grad) or "end"
    roots: tuple[Edge, ...]
    nodes: tuple[int, ...]  # from the roots inwards, each once
    pruned: tuple[int, ...]  # nodes that the pass did not need (backward(inputs=…), autograd.grad)
    retained: bool  # retain_graph: nothing was released
    create_graph: bool
    event: int | None  # its "enter" event
    place: int | None  # the line that called backward
    parent: int | None = None  # the pass inside which this one ran (reentrant checkpoint)


@dataclass(frozen=True, slots=True)
class Accumulated:
    node: int  # the AccumulateGrad node
    storages: tuple[int, ...]  # of .grad afterwards
    first: bool  # .grad was None: the gradient became it; else it was added
    in_place: bool  # added into the buffer that was there


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """One thing that happened, in order. Ids of storages and saved tensors; empty where nothing happened."""

    index: int
    kind: str
    phase: str
    place: int | None = None  # in backward: the forward line of the node that runs
    op: str = ""  # "aten.addmm", or a node's name for run, accumulate and release
    node: int | None = None  # forward: the node made; backward: the node that runs
    graph: int | None = None  # the pass, during backward
    module: str = ""
    allocated: tuple[int, ...] = ()
    freed: tuple[int, ...] = ()
    resized: tuple[tuple[int, int], ...] = ()  # (storage, new bytes)
    kept: tuple[int, ...] = ()
    released: tuple[int, ...] = ()
    moved: tuple[tuple[int, str], ...] = ()  # (storage, category from here on)
    accumulated: Accumulated | None = None
    note: str = ""
    inside: int = 0  # bytes the kernel itself held at most, beyond its results; only with record(kernels=True)


@dataclass(frozen=True, slots=True)
class Recording:
    sources: tuple[Source, ...]
    places: tuple[Place, ...]
    storages: tuple[Storage, ...]
    nodes: tuple[Node, ...]
    saved: tuple[SavedTensor, ...]
    graphs: tuple[Graph, ...]
    events: tuple[MemoryEvent, ...]
    cell: int | None = None  # the source that holds the recorded block
    span: tuple[int, int] = (0, 0)  # first and last line of the recorded block in it, where known
    notes: tuple[str, ...] = ()  # sentences on what could not be seen, and why
    made_with: tuple[tuple[str, str], ...] = field(default=())  # ("torch", "2.13.0"), …; never shown in text twins
    allocator: AllocatorHistory | None = None  # a GPU's allocator, where one was there: counts, or all of a snapshot

    def place_of(self, place: int | None) -> Place | None:
        return None if place is None else self.places[place]

    def code_at(self, place: int | None) -> str:
        """The line of the recorded block at `place`, as text; "" where unknown."""
        found = self.place_of(place)
        frame = found.outer if found else None
        return self.sources[frame.source].line(frame.line) if frame else ""
