"""Graphs of real sizes, captured and drawn, ours beside others': `python -m tests.bench.graphs`, some forty minutes.

Each cell is a process of its own, stopped after two minutes, on one thread. Seconds are CPU time, programs that lay out
included; RAM is how far the process grew beyond what it was, models and one step before that not counted. From a loss
whose graph is there (torchviz) it is build and drawing; of those that run the model themselves, all that they do. Of
`record()` the same without it is subtracted, in time as in RAM; of backward alone, it finds the graph already there.
"""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import record
from helpers.figures.layout import embedded_program, layout_program
from tests.cells import cell, load
from tests.gpu.steps import GPT2

LIMIT = 120
TURNS = 3


class Loss(nn.Module):
    """A model with its loss: what runs a model itself then sees as much as the others."""

    def __init__(self, model: nn.Module, loss: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, x: Tensor) -> Tensor:
        return self.loss(self.model(x))


class Unrolled(nn.Module):
    """An LSTM cell in plain torch over 160 steps: 2,400 operations."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)

    def forward(self, xs: Tensor) -> Tensor:
        h = c = torch.zeros_like(xs[0])
        for x in xs:
            i, f, g, o = (self.x(x) + self.h(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


class Chain(nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.weight = length, nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight
        for _ in range(self.length):
            y = y + 1
        return y


def mlp() -> tuple[nn.Module, Tensor]:
    layers = (nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return Loss(nn.Sequential(*layers), lambda y: y.pow(2).mean()), torch.randn(32, 784)


def gpt2() -> tuple[nn.Module, Tensor]:
    tokens = torch.randint(50_257, (1, 8))
    return Loss(GPT2(), lambda y: F.cross_entropy(y.flatten(0, 1), tokens.flatten())), tokens


def lstm() -> tuple[nn.Module, Tensor]:
    return Loss(Unrolled(), lambda h: h.pow(2).sum()), torch.randn(160, 2, 64)


def chain(length: int) -> Callable[[], tuple[nn.Module, Tensor]]:
    return lambda: (Loss(Chain(length), Tensor.sum), torch.ones(4))


SUBJECTS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "MLP": mlp,
    "GPT-2 size (124M)": gpt2,
    "LSTM × 160": lstm,
    "chain 1,000": chain(1_000),
    "chain 10,000": chain(10_000),
    "chain 100,000": chain(100_000),
}


# ------------------------------------------------------------------ the tools


def same_layout_program() -> None:
    """What draws through the package graphviz lays out with the program that ours uses."""
    if (program := embedded_program()) is not None:
        import_module("graphviz.backend.dot_command").DOT_BINARY = Path(program)


def torchviz(model: nn.Module, loss: Tensor, saved: bool) -> str:
    dot = import_module("torchviz").make_dot(loss, dict(model.named_parameters()), show_saved=saved)
    svg = dot.pipe(format="svg", quiet=True)
    return f"{len(svg) / 1e6:.1f} MB of SVG"


def torchview(model: nn.Module, x: Tensor) -> str:
    found = import_module("torchview").draw_graph(model, input_data=x, depth=10, device="cpu", save_graph=False)
    svg = found.visual_graph.pipe(format="svg", quiet=True)
    return f"{svg.count(b'class=' + bytes([34]) + b'node'):,} boxes"


def torchlens(model: nn.Module, x: Tensor) -> str:
    trace = import_module("torchlens").trace(model, x)
    trace.log_backward(trace[trace.output_layers[0]].out)
    with tempfile.TemporaryDirectory() as folder:
        trace.draw_backward(vis_outpath=f"{folder}/graph", vis_save_only=True, vis_fileformat="svg")
        svg = next(Path(folder).glob("*.svg"), None)
        return f"{svg.stat().st_size / 1e6:.1f} MB of SVG" if svg else "no drawing"


def torchvista(model: nn.Module, x: Tensor) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/graph.html"
        import_module("torchvista").trace_model(
            model, x, collapse_modules_after_depth=10, export_format="html", export_path=path
        )
        return f"{os.path.getsize(path) / 1e6:.1f} MB of HTML, laid out in the browser"


RECORD, ALONE, GRAPH = "record() of the step, and its data", "record() of backward alone", "run.graph"
#: name → package.
TOOLS = {
    RECORD: "",
    ALONE: "",
    GRAPH: "",
    "torchviz": "torchviz",
    "torchviz, saved tensors": "torchviz",
    "torchview": "torchview",
    "torchlens, backward": "torchlens",
    "torchvista": "torchvista",
}


# ------------------------------------------------------------------ measuring


def cpu() -> float:
    """Seconds of this process and of its children that have ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in found)


def status(field: str) -> int:
    """A line of the kernel's account of this process, in bytes; 0 where there is none."""
    try:
        found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


class Grown:
    """How much CPU time a piece of work takes, and how far the process grows in it at most."""

    def __enter__(self) -> Grown:
        gc.collect()
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
        except OSError:
            pass
        self.before, self.begin = status("VmRSS"), cpu()
        return self

    def __exit__(self, *error: Any) -> None:
        self.seconds = cpu() - self.begin
        self.peak = status("VmHWM")
        self.bytes = max(self.peak - self.before, 0)


def measured(subject: str, tool: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = SUBJECTS[subject]()

    def step() -> None:
        model(x).backward()
        for parameter in model.parameters():
            parameter.grad = None

    step()
    record(lambda: Loss(nn.Linear(2, 2), Tensor.sum)(torch.ones(2)).backward()).graph  # noqa: B018 (all is loaded)
    if not TOOLS[tool]:
        return ours(tool, step, lambda: model(x))
    import_module(TOOLS[tool])
    same_layout_program()
    if tool.startswith("torchviz"):
        loss = model(x)
        with Grown() as work:
            what = torchviz(model, loss, "saved" in tool)
    else:
        run_model = {"torchview": torchview, "torchlens, backward": torchlens, "torchvista": torchvista}[tool]
        with Grown() as work:
            what = run_model(model, x)
    return {"seconds": work.seconds, "bytes": work.bytes, "what": what}


def ours(tool: str, step: Callable[[], None], forward: Callable[[], Tensor]) -> dict[str, Any]:
    """The least of some turns, of which each is a plain step and a watched one."""
    turns = []
    for _ in range(TURNS):
        plain_step = watched_step = step
        if tool == ALONE:
            plain_step, watched_step = forward().backward, forward().backward
        with Grown() as plain:
            plain_step()
        with Grown() as watched:
            run = record(watched_step)
            recording = run.recording
        with Grown() as drawn:
            figure = run.graph
        turns.append((plain, watched, drawn))
        plain_step = watched_step = None
    if tool == GRAPH:
        best = min((drawn for _, _, drawn in turns), key=lambda grown: grown.seconds)
        return {"seconds": best.seconds, "bytes": best.bytes, "what": f"{len(figure.html) / 1e3:.0f} kB of HTML"}
    plain, watched, _ = zip(*turns, strict=True)
    seconds = min(w.seconds for w in watched) - min(p.seconds for p in plain)
    more = min(w.peak for w in watched) - min(p.peak for p in plain)
    nodes = len(recording.graphs[0].nodes)
    return {"seconds": max(seconds, 0.0), "bytes": max(more, 0), "what": f"{nodes:,} nodes"}


def versions() -> str:
    found = []
    for package in dict.fromkeys(filter(None, TOOLS.values())):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


def installed(package: str) -> bool:
    try:
        return not package or bool(version(package))
    except PackageNotFoundError:
        return False


def main() -> None:
    print(f"torch {torch.__version__}, {versions()}, Python {sys.version.split()[0]}, one thread; {layout_program()}")
    print(f"{load()} as it begins\n")
    print("| | with | CPU seconds | RAM, MB | |\n|---|---|---|---|---|")
    for subject in SUBJECTS:
        for tool, package in TOOLS.items():
            found: Any = "not installed"
            if installed(package):
                found = cell("tests.bench.graphs", subject, tool, seconds=LIMIT)
            if isinstance(found, str):
                print(f"| {subject} | {tool} | | | {found} |", flush=True)
                continue
            numbers = f"{found['seconds']:.2f} | {found['bytes'] / 1e6:,.0f}"
            print(f"| {subject} | {tool} | {numbers} | {found['what']} |", flush=True)
    print(f"\n{load()} as it ends")


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(measured(*sys.argv[1:])))
    else:
        main()
