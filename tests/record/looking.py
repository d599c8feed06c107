"""Looking into recordings, and the same things read from torch's own objects, for comparison.

`of_torch` may use the accessors that have effects: the graph it reads is not the one that is recorded.
"""

import torch

from helpers.data import Graph, Node, Recording, SavedTensor, kept_at


def line(recording: Recording, place: int | None, *, inner: bool = False) -> str:
    """The learner's line at a place: of the recorded block, or the innermost one."""
    found = recording.place_of(place)
    frame = found and (found.inner if inner else found.outer)
    return recording.sources[frame.source].line(frame.line) if frame else ""


def nodes(recording: Recording, name: str) -> list[Node]:
    return [n for n in recording.nodes if n.name == name]


def node(recording: Recording, name: str) -> Node:
    (found,) = nodes(recording, name)
    return found


def saved(recording: Recording, found: Node) -> dict[str, SavedTensor]:
    """What a node keeps: argument, with its position in a list, → saved tensor; what it did not need is left out."""
    tensors = [recording.saved[i] for i in found.saved]
    return {
        s.argument if s.position is None else f"{s.argument}{s.position}": s
        for s in tensors
        if s.state != "never saved"
    }


def targets(recording: Recording, found: Node) -> list[str | None]:
    """Names of the nodes that a node hands gradients to; a leaf by its tensor's names."""
    names = []
    for edge in found.edges:
        target = None if edge.node is None else recording.nodes[edge.node]
        names.append(None if target is None else "/".join(target.leaf.names) if target.leaf else target.name)
    return names


def leaves(recording: Recording) -> dict[tuple[str, ...], tuple]:
    return {n.leaf.names: (n.leaf.shape, n.leaf.dtype, n.leaf.nbytes) for n in recording.nodes if n.leaf}


def kept(recording: Recording, moment: int | None = None) -> list[tuple[str, str, int]]:
    """The ledger's lines: node, argument, bytes of the tensor."""
    return [(recording.nodes[s.node].name, s.argument, s.nbytes) for s in kept_at(recording, moment) if not s.scalar]


def events(recording: Recording, kind: str) -> list:
    return [e for e in recording.events if e.kind == kind]


# ---------------------------------------------------------------- the same graph, read twice


def of_recording(recording: Recording, graph: Graph) -> list:
    """A graph as nodes in the order of a walk from its roots: name, edges, saved tensors, all by number."""
    order = [edge.node for edge in graph.roots]
    numbers = {n: i for i, n in enumerate(order)}
    storages: dict = {}
    picture = []
    for id in order:  # grows
        found = recording.nodes[id]
        edges = []
        for edge in found.edges:
            if edge.node is not None and edge.node not in numbers:
                numbers[edge.node] = len(order)
                order.append(edge.node)
            edges.append((None if edge.node is None else numbers[edge.node], edge.output))
        tensors = [
            (key, "number", s.dtype)
            if s.scalar
            else (key, s.shape, s.dtype, s.nbytes, tuple(storages.setdefault(i, len(storages)) for i in s.storages))
            for key, s in sorted(saved(recording, found).items())
        ]
        picture.append((found.name, edges, tensors))
    assert set(order) == set(graph.nodes)
    return picture


def of_torch(*roots: torch.Tensor) -> list:
    """The same from live tensors. A saved tensor of no dimension is taken for a number."""
    order = [t.grad_fn for t in roots]
    numbers = {f: i for i, f in enumerate(order)}
    storages: dict = {}
    alive = []
    picture = []
    for function in order:  # grows
        edges = []
        for target, output in function.next_functions:
            if target is not None and target not in numbers:
                numbers[target] = len(order)
                order.append(target)
            edges.append((None if target is None else numbers[target], output))
        tensors = []
        for key, tensor in sorted(_saved(function).items()):
            alive.append(tensor)
            dtype = str(tensor.dtype).removeprefix("torch.")
            if tensor.dim() == 0 and not key.startswith("result"):
                tensors.append((key, "number", dtype))
            else:
                number = storages.setdefault(tensor.untyped_storage()._cdata, len(storages))
                size = tensor.numel() * tensor.element_size()
                tensors.append((key, tuple(tensor.shape), dtype, size, (number,)))
        picture.append((function.name().rsplit("::", 1)[-1], edges, tensors))
    return picture


def _saved(function) -> dict[str, torch.Tensor]:
    found = {}
    for attribute in dir(function):
        if attribute.startswith("_saved_"):
            value, name = getattr(function, attribute), attribute.removeprefix("_saved_")
            for position, item in enumerate(value) if isinstance(value, (tuple, list)) else [("", value)]:
                if isinstance(item, torch.Tensor):
                    found[f"{name}{position}"] = item
    return found
