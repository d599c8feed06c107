"""How near predictions come to what real GPUs recorded: `CUDA_SNAPSHOTS=folder python -m tests.bench.accuracy`.

tests/gpu/test_prediction.py and tests/gpu/test_replay.py hold every number of these tables.
"""

import os
import warnings
from collections import Counter
from pathlib import Path

import torch

from helpers.gpu.replay import replay
from helpers.gpu.snapshot import read_snapshot
from helpers.gpu.trace import load
from tests.gpu.prediction import TRACED, predicted, predicted_requests, predicted_rise, recorded_requests


def main() -> None:
    folder = os.environ.get("CUDA_SNAPSHOTS")
    if not folder:
        print("CUDA_SNAPSHOTS is not set: it names a folder of memory snapshots of real GPUs.")
        return
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}; peak over the start, in bytes as requested\n")
    columns = (
        "snapshot",
        "recorded, B",
        "predicted, B",
        "difference, B",
        "requests predicted",
        "placements the same",
        "repairs",
    )
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for name, traced in TRACED.items():
        path = Path(folder, f"{name}.pickle")
        if not path.exists():
            print(f"| {name} | not there |" + " |" * 5)
            continue
        requested = [reading.requested for reading in read_snapshot(path).allocator.readings]
        rise = max(requested) - requested[0]
        step = predicted(traced)
        found = predicted_rise(step)
        requests = recorded_requests(load(path))
        both = (Counter(requests) & Counter(predicted_requests(step))).total()
        placed = replay(path)
        print(
            f"| {name} | {rise:,} | {found:,} | {found - rise:+,} | {both:,} of {len(requests):,} "
            f"| {placed.same:,} of {placed.placements:,} | {len(placed.repairs)} |"
        )


if __name__ == "__main__":
    main()
