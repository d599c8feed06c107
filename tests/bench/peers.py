"""What watching a training step costs, ours beside others': `python -m tests.bench.peers`, some ten minutes.

Times are CPU time, on one thread (with more, those that wait for work spin, and that would count as well). Each row is
a process of its own, in which plain and watched steps take turns; of each the one least disturbed by other work counts.
`pip install torchlens` adds its rows, which stay empty without.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.profiler import ProfilerActivity, profile

from helpers import record
from helpers.record import private
from tests.cells import cell, load
from tests.gpu.steps import ResNet18
from tests.record.scenarios import Transformer

#: Of each kind of step so many are measured at most, at least three, and no more once the seconds are over.
MOST, LEAST, SECONDS, LIMIT = 25, 3, 30, 240


class Loss(nn.Module):
    """The model with its loss: a watcher of one module sees as much as the others."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).pow(2).mean()


class Training:
    """Forward, backward and AdamW."""

    def __init__(self, model: Callable[[], nn.Module], *shape: int) -> None:
        torch.manual_seed(0)
        self.loss, self.x = Loss(model()), torch.randn(shape)
        self.optimizer = torch.optim.AdamW(self.loss.parameters())

    def step(self) -> None:
        self.loss(self.x).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


SMALL, LARGE = "12 layers, h=64, B=1, S=16", "12 layers, h=256, B=4, S=256"
STEPS: dict[str, Callable[[], Training]] = {
    SMALL: lambda: Training(lambda: Transformer(64, 4, 12), 1, 16, 64),
    LARGE: lambda: Training(lambda: Transformer(256, 4, 12), 4, 256, 256),
    "ResNet-18, 8 images of 64×64": lambda: Training(ResNet18, 8, 3, 64, 64),
    "MLP of 1.9 million, B=128": lambda: Training(mlp, 128, 784),
}


class Nothing(private.DispatchMode):
    """The least that any recorder must do."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        return func(*args, **(kwargs or {}))


# ------------------------------------------------------------------ the watchers


def nothing(training: Training) -> int:
    with Nothing() as mode:
        training.step()
    return mode.operations


def recorded(training: Training) -> None:
    """What slows the learner's code; the data are made at the first look."""
    record(training.step)


def looked_at(training: Training) -> None:
    record(training.step).recording  # noqa: B018


def profiled(training: Training) -> profile:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watcher:
        training.step()
    return watcher


def profile_read(training: Training) -> None:
    profiled(training).events()


def tracked(training: Training) -> None:
    """A tracker is good for one step."""
    tracker = MemTracker()
    tracker.track_external(training.loss, training.optimizer)
    with tracker:
        training.step()


def traced(training: Training) -> None:
    """Forward and backward; the optimizer runs unwatched."""
    trace = import_module("torchlens").trace(training.loss, training.x)
    trace.log_backward(trace[trace.output_layers[0]].out)
    training.optimizer.step()
    training.optimizer.zero_grad()


RECORD, TRACKER, LENS = "record()", "PyTorch's MemTracker", "torchlens"
WATCHERS: dict[str, Callable[[Training], Any]] = {
    "nothing": Training.step,
    "a mode that does nothing": nothing,
    RECORD: recorded,
    "record() and its data": looked_at,
    "torch.profiler, profile_memory": profiled,
    "torch.profiler and its events": profile_read,
    TRACKER: tracked,
    LENS: traced,
}


# ------------------------------------------------------------------ measuring


def cost(work: Callable[[Training], Any], training: Training) -> float:
    begin = time.process_time()
    work(training)
    return time.process_time() - begin


def measured(step: str, watcher: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    training, work = STEPS[step](), WATCHERS[watcher]
    training.step()
    operations = nothing(training)
    # Some before anything watched: what a watcher changes for good must not make plain steps look slow.
    plain = [cost(Training.step, training) for _ in range(LEAST)]
    watched: list[float] = []
    begin = time.process_time()
    while len(watched) < LEAST + 1 or (len(watched) < MOST and time.process_time() - begin < SECONDS):
        gc.collect()
        plain.append(cost(Training.step, training))
        watched.append(cost(work, training))
    return {"operations": operations, "plain": min(plain), "watched": min(watched), "turns": len(watched)}


def main() -> None:
    try:
        lens = version(LENS)
    except PackageNotFoundError:
        lens = ""
    print(
        f"torch {torch.__version__}, torchlens {lens or 'not installed'}, Python {sys.version.split()[0]}, one thread"
    )
    print(f"{load()} as it begins\n")
    print("| a step of | watched by | plain, ms | watched, ms | ratio | µs an operation | steps |")
    print("|---|---|---|---|---|---|---|")
    each: dict[tuple[str, str], float] = {}
    ratio: dict[tuple[str, str], float] = {}
    for step in STEPS:
        for watcher in WATCHERS:
            found: Any = "not installed"
            if watcher != LENS or lens:
                found = cell("tests.bench.peers", step, watcher, seconds=LIMIT)
            if isinstance(found, str):
                print(f"| {step} | {watcher} | | {found} | | | |", flush=True)
                continue
            plain, watched = found["plain"], found["watched"]
            ratio[step, watcher] = watched / plain
            each[step, watcher] = (watched - plain) / found["operations"] * 1e6
            cells = f"{plain * 1e3:.1f} | {watched * 1e3:.1f} | {watched / plain:.2f} | {each[step, watcher]:.1f}"
            what = f"{step}: {found['operations']} operations" if watcher == "nothing" else ""
            print(f"| {what} | {watcher} | {cells} | {found['turns']} |", flush=True)
    print(f"\n{load()} as it ends")
    if (SMALL, RECORD) in each and (SMALL, TRACKER) in each:
        share = each[SMALL, RECORD] / each[SMALL, TRACKER]
        print(f"{SMALL}: {each[SMALL, RECORD]:.1f} µs an operation (the bar: 30), {share:.2f} of MemTracker's (0.33).")
    if (LARGE, RECORD) in ratio:
        print(f"{LARGE}: a ratio of {ratio[LARGE, RECORD]:.2f} (the bar: 1.15).")


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(measured(*sys.argv[1:])))
    else:
        main()
