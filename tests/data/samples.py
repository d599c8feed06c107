"""Recordings to try the data on: one made by hand, several of code that really ran."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import record
from helpers.data import (
    Accumulated,
    Edge,
    Frame,
    Graph,
    Leaf,
    MemoryEvent,
    Node,
    Place,
    Recording,
    SavedScalar,
    SavedTensor,
    Source,
    Storage,
    TensorInfo,
)


def by_hand() -> Recording:
    """`y = x.exp() * 2; y.backward(g)` with x a leaf of 8 bytes: every kind of thing once, every number known."""
    info = TensorInfo((2,), "float32")
    return Recording(
        sources=(Source(0, "this cell", 1, ("with record() as run:", "    y = x.exp() * 2", "    y.backward(g)")),),
        places=(Place(0, (Frame(0, 2, ""),)), Place(1, (Frame(0, 3, ""),))),
        storages=(
            Storage(0, 8, "cpu", -1, None, "parameters", ("x",), (2,), "float32"),
            Storage(1, 8, "cpu", 0, 6, "kept for backward", (), (2,), "float32", "aten.exp", 0),
            Storage(2, 8, "cpu", 1, None, "other", ("y",), (2,), "float32", "aten.mul", 0),
            Storage(3, 8, "cpu", -1, None, "inputs", ("g",), (2,), "float32"),
            Storage(4, 8, "cpu", 4, None, "other", (), (2,), "float32", "aten.mul", 0),
        ),
        nodes=(
            Node(
                0,
                "ExpBackward0",
                "operation",
                (Edge(1),),
                (info,),
                saved=(0,),
                place=0,
                sequence=0,
                event=0,
                module="",
            ),
            Node(1, "AccumulateGrad", "leaf", (), (info,), leaf=Leaf(("x",), (2,), "float32", "cpu", (0,), 8, False)),
            Node(
                2,
                "MulBackward0",
                "operation",
                (Edge(0), Edge(None)),
                (info,),
                saved=(1, 2),
                scalars=(SavedScalar("note", "1"),),
                names=("y",),
                place=0,
                sequence=1,
                event=1,
            ),
        ),
        saved=(
            SavedTensor(0, 0, "result", None, (2,), "float32", "cpu", 8, (1,), True, (), 0, 5, "released"),
            SavedTensor(1, 2, "other", None, (), "int64", "cpu", 0, (), False, (), 1, 3, "released", scalar="2"),
            SavedTensor(2, 2, "self", None, (), "", "", 0, (), False, (), None, None, "never saved"),
        ),
        graphs=(Graph(0, "backward", (Edge(2),), (2, 0, 1), (), False, False, 2, 1),),
        events=(
            MemoryEvent(0, "op", "forward", 0, "aten.exp", 0, allocated=(1,), kept=(0,)),
            MemoryEvent(1, "op", "forward", 0, "aten.mul", 2, allocated=(2,), kept=(1,)),
            MemoryEvent(2, "enter", "backward", 1, graph=0),
            MemoryEvent(3, "release", "backward", 0, "MulBackward0", 2, 0, released=(1,)),
            MemoryEvent(4, "op", "backward", 0, "aten.mul", 0, 0, allocated=(4,), resized=((4, 24),)),
            MemoryEvent(5, "release", "backward", 0, "ExpBackward0", 0, 0, released=(0,), moved=((1, "other"),)),
            MemoryEvent(6, "free", "backward", 0, node=0, graph=0, freed=(1,)),
            MemoryEvent(
                7,
                "accumulate",
                "backward",
                1,
                "AccumulateGrad",
                1,
                0,
                moved=((4, "gradients"),),
                accumulated=Accumulated(1, (4,), True, False),
            ),
            MemoryEvent(8, "leave", "backward", 1, graph=0),
        ),
        cell=0,
        span=(1, 3),
        notes=("A sentence.",),
        made_with=(("torch", "2.13.0"),),
    )


def training() -> Recording:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters())
    with record() as run:
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 6)).square().mean()
            loss.backward()
            optimizer.step()
    return run.recording


def checkpointed() -> Recording:
    layer, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.ones(2, 4, requires_grad=True)
    with record() as run:
        for reentrant in (True, False):
            checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
    return run.recording


def second_order() -> Recording:
    x = torch.ones(3, requires_grad=True)
    with record() as run:
        y = x.tanh()
        for _ in range(3):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return run.recording


def failed() -> Recording:
    x = torch.ones(3, requires_grad=True)
    try:
        with record() as run:
            y = x.exp()
            y.add_(1)
            y.sum().backward()
    except RuntimeError:
        pass
    return run.recording


def without_gradients() -> Recording:
    with record(graph=False) as run:
        x = torch.ones(4)
        x.resize_(100)
        x = x * 2
        x.resize_(2)
    return run.recording


def empty() -> Recording:
    with record() as run:
        pass
    return run.recording


def late() -> Recording:
    """A graph from before the recording, half of it dropped inside."""
    x = torch.ones(4, requires_grad=True)
    y, z = x.exp(), x.sin().exp()
    with record() as run:
        y.sum().backward(retain_graph=True)
        del z
        y.sum().backward()
    return run.recording


REAL = {f.__name__: f for f in (training, checkpointed, second_order, failed, without_gradients, empty, late)}
ALL = {"by_hand": by_hand, **REAL}
