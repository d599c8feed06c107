"""A training step of 7 billion parameters planned without a GPU: `python -m tests.bench.seven_billion`.

Each row is a process of its own: seconds from the model's making to the peak's being known, all RAM that the process
ever took, Python and torch included, and the peak that it says a GPU would have.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.distributed._tools.mem_tracker import MemTracker

from helpers import as_if_on_gpu
from helpers.data import timeline
from tests.cells import cell, largest_ram, load
from tests.gpu.models import Llama

LIMIT = 300
MOST_SECONDS, MOST_BYTES = 10, 10**9


class Training:
    """Llama 7B in bf16 with AdamW, one text of 2,048 tokens, after one step to warm up: optimizer state is there."""

    def __init__(self) -> None:
        with torch.device("meta"):
            self.model = Llama().to(torch.bfloat16)
            self.tokens, self.targets = torch.randint(0, 32_000, (2, 1, 2048))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.step()

    def step(self) -> None:
        F.cross_entropy(self.model(self.tokens).flatten(0, 1), self.targets.flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def unwatched() -> None:
    Training().step()


def ours() -> int:
    return max(timeline(as_if_on_gpu(Training().step).recording).totals)


def tracked(steps: int = 1) -> int:
    training, tracker = Training(), MemTracker()
    tracker.track_external(training.model, training.optimizer)
    with tracker:
        for _ in range(steps):
            training.step()
    return tracker.get_tracker_snapshot("peak")[torch.device("meta")]["Total"]


ROWS: dict[str, Callable[[], int | None]] = {
    "nothing, on meta": unwatched,
    "as_if_on_gpu and its data": ours,
    "PyTorch's MemTracker, on meta": tracked,
    "PyTorch's MemTracker, two steps": lambda: tracked(2),
}


def measured(row: str) -> dict[str, Any]:
    begin, begin_cpu = time.perf_counter(), time.process_time()
    peak = ROWS[row]()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    return {"seconds": seconds, "cpu": cpu, "ram": largest_ram(), "peak": peak}


def main() -> None:
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {load()}; GB are 1e9 bytes, GiB 2^30\n")
    print("| | seconds | CPU, s | RAM, GB | predicted peak, B | GiB |\n|---|---|---|---|---|---|")
    for row in ROWS:
        found = cell("tests.bench.seven_billion", row, seconds=LIMIT)
        if isinstance(found, str):
            print(f"| {row} | {found} | | | | |")
            continue
        peak = found["peak"]
        told = f"{peak:,} | {peak / 2**30:.2f}" if peak else " | "
        print(f"| {row} | {found['seconds']:.1f} | {found['cpu']:.1f} | {found['ram'] / 1e9:.2f} | {told} |")
    print(f"\nThe bars: under {MOST_SECONDS} s and {MOST_BYTES / 1e9:g} GB.")


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(measured(sys.argv[1])))
    else:
        main()
