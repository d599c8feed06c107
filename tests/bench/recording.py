"""What recording a training step costs, and how exact it is: `python -m tests.bench.recording`.

Times are CPU time of this process, on one thread (with more, those that wait for work spin, and that would count as
well). Plain and watched steps take turns, and of each the one least disturbed by other work on the machine counts.
"""

import gc
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed._tools.mem_tracker import MemTracker

from helpers import record
from helpers.record import private
from tests.record.measure import compared, ledger_peak
from tests.record.scenarios import FLOAT32, KERNELS, Transformer


class Nothing(private.DispatchMode):
    """The least that any recorder must do."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        return func(*args, **(kwargs or {}))


class Training:
    def __init__(self, layers: int, width: int, batch: int, length: int) -> None:
        torch.manual_seed(0)
        self.model = Transformer(width, 4, layers)
        self.x = torch.randn(batch, length, width)
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self) -> None:
        loss = self.model(self.x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def nothing(self) -> int:
        with Nothing() as mode:
            self.step()
        return mode.operations

    def recorded(self) -> None:
        """What slows the learner's code; the data are made at the first look."""
        record(self.step)

    def looked_at(self) -> None:
        record(self.step).recording  # noqa: B018

    def tracked(self) -> None:
        tracker = MemTracker()
        tracker.track_external(self.model, self.optimizer)
        with tracker:
            self.step()


def cost(work: Callable[[], Any]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def least(works: list[Callable[[], Any]], turns: int) -> list[float]:
    """The smallest cost of each, taken in turns."""
    times = []
    for _ in range(turns):
        gc.collect()
        times.append([cost(work) for work in works])
    return [min(column) for column in zip(*times, strict=True)]


def overhead(title: str, training: Training, turns: int, track: bool) -> None:
    training.step()
    operations = training.nothing()
    record(training.step)
    works = [training.step, training.nothing, training.recorded, training.looked_at]
    plain, nothing, recorded, looked_at = least(works, turns)
    print(f"\n{title}: {operations} operations a step\n")
    print("| | CPU time, ms | ratio | µs an operation |\n|---|---|---|---|")
    rows = {"plain": plain, "a mode that does nothing": nothing, "record()": recorded, "and its data": looked_at}
    if track:
        rows["PyTorch's MemTracker"] = min(cost(training.tracked) for _ in range(3))
    for name, seconds in rows.items():
        each = "" if name == "plain" else f"{(seconds - plain) / operations * 1e6:.1f}"
        print(f"| {name} | {seconds * 1e3:.1f} | {seconds / plain:.2f} | {each} |")


def exactness() -> None:
    print("\nForward and backward; bytes above the start\n")
    print("| | profiler's peak | ledger's peak | inside kernels | |\n|---|---|---|---|---|")
    for name, (model, shape) in {**FLOAT32, **KERNELS}.items():
        profile, recording = compared(model, shape)
        inside = profile.peak - ledger_peak(recording)
        share = f"{inside / profile.peak:.3%}"
        print(f"| {name} | {profile.peak:,} | {ledger_peak(recording):,} | {inside:,} | {share} |")


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, one thread")
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "")
    overhead("12 layers, h=64, B=1, S=16", Training(12, 64, 1, 16), turns=25, track=True)
    overhead("12 layers, h=256, B=4, S=256", Training(12, 256, 4, 256), turns=7, track=False)
    exactness()


if __name__ == "__main__":
    main()
