"""Recordings to look at in a player: code that really ran, each as a page.

python -m tests.figures.player_samples OUT_DIR
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import record
from helpers.data import Recording
from tests.figures.recordings import SAMPLES as BY_HAND


def product():
    x = torch.ones(2, 3, requires_grad=True)
    y = torch.ones(2, 3, requires_grad=True)
    with record() as run:
        z = x * y
        z.sum().backward()
    return run


def layer():
    x = torch.ones(32, 64)
    W = torch.ones(16, 64, requires_grad=True)
    b = torch.ones(16, requires_grad=True)
    with record() as run:
        y = torch.relu(x @ W.t() + b)
        loss = y.pow(2).mean()
        del y
        loss.backward()
    return run


def accumulation():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.ones(64, 16)
    with record() as run:
        for part in batch.chunk(4):
            loss = model(part).pow(2).mean() / 4
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return run


def loop():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(2, 3)
    with record() as run:
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            loss.backward()
            optimizer.step()
            loss.item()
    return run


def retained():
    x = torch.ones(3, 4, requires_grad=True)
    with record() as run:
        loss = (x.exp() * x).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    return run


def version_error():
    x = torch.ones(8, 8, requires_grad=True)
    try:
        with record() as run:
            y = x.exp()
            z = y.sin()
            y.add_(1)
            z.sum().backward()
    except RuntimeError:
        pass
    return run


def second_time():
    x = torch.ones(8, 8, requires_grad=True)
    try:
        with record() as run:
            h = torch.tanh(x)
            one = (h * h).sum()
            two = h.exp().sum()
            one.backward()
            two.backward()
    except RuntimeError:
        pass
    return run


def forward_error():
    x = torch.ones(8, 8, requires_grad=True)
    W = torch.ones(4, 4, requires_grad=True)
    try:
        with record() as run:
            h = torch.tanh(x)
            y = h @ W
            y.sum().backward()
    except RuntimeError:
        pass
    return run


def double():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        (g,) = torch.autograd.grad(x.tanh().sum(), x, create_graph=True)
        g.pow(2).sum().backward()
    return run


def checkpointed(reentrant: bool = False):
    layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(2))
    x = torch.ones(8, 16, requires_grad=True)
    with record() as run:
        h = x
        for part in layers:
            h = checkpoint(part, h, use_reentrant=reentrant)
        h.sum().backward()
    return run


def reentrant():
    return checkpointed(True)


def offloaded():
    x = torch.ones(16, 16, requires_grad=True)
    with record() as run:
        with torch.autograd.graph.save_on_cpu():
            y = x.exp().sin()
        y.sum().backward()
    return run


def pruned():
    x, w = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    with record() as run:
        y = (x.exp() * w.sin()).sum()
        y.backward(inputs=[x])
    return run


def no_gradients():
    x = torch.ones(64, 64)
    with record(graph=False) as run:
        y = x @ x
        z = y.relu()
        del y
        z.sum()
    return run


def custom():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return grad * y, grad * x

    a, b = torch.ones(5, requires_grad=True), torch.ones(5, requires_grad=True)
    with record() as run:
        Scale.apply(a, b).sum().backward()
    return run


def transformer(layers: int = 12):
    model = nn.Sequential(
        nn.Embedding(100, 32), *(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(layers))
    )
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.zeros(2, 16, dtype=torch.int64)
    with record() as run:
        out = model(ids)
        loss = out.pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return run


def hostile():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_parameter("<script>alert(1)</script>", nn.Parameter(torch.ones(4, 4)))
            self.register_parameter('a "quoted"\nname \u2028 </script><!--', nn.Parameter(torch.ones(4, 4)))

        def forward(self, x):
            for p in self.parameters():
                x = torch.tanh(x @ p)
            return x

    model = Odd()
    x = torch.ones(2, 4)
    with record(names={"x' onload='alert(1)": x, "</script>\ud800": model(x).detach()}) as run:
        words = "</script><script>alert(1)</script><!-- &amp; \u202e"  # </script>
        loss = model(x).sum()
        loss.backward()
        del words
    return run


MAKERS = (
    product, layer, accumulation, loop, retained, version_error, second_time, forward_error, double, checkpointed,
    reentrant, offloaded, pruned, no_gradients, custom, transformer, hostile,
)  # fmt: skip


def recorded(make) -> Recording:
    torch.manual_seed(0)
    return make().recording


#: Name → a function that gives the recording; made once, since it is frozen data.
SAMPLES = {make.__name__: cache(lambda make=make: recorded(make)) for make in MAKERS}
SAMPLES["empty"] = BY_HAND["empty"]
SAMPLES["awkward"] = BY_HAND["awkward"]
SAMPLES["lstm"] = BY_HAND["lstm"]


def main(folder: str) -> None:
    from helpers.figures import player_figure

    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    for name, make in SAMPLES.items():
        figure = player_figure(make())
        path = figure.save(out / f"{name}.html")
        figure.save(out / f"{name}.txt")
        print(f"{path.name}: {len(make().events):,} events, {len(figure.html):,} B, script {len(figure.script):,} B")


if __name__ == "__main__":
    main(*sys.argv[1:])
