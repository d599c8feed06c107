"""How exact a recording is, against the profiler: `python -m tests.bench.recording`. Its cost: tests.bench.peers."""

import sys
import warnings

import torch

from tests.record.measure import compared, ledger_peak
from tests.record.scenarios import FLOAT32, KERNELS


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, one thread")
    print("Forward and backward; bytes above the start\n")
    print("| | profiler's peak | ledger's peak | inside kernels | |\n|---|---|---|---|---|")
    for name, (model, shape) in {**FLOAT32, **KERNELS}.items():
        profile, recording = compared(model, shape)
        inside = profile.peak - ledger_peak(recording)
        share = f"{inside / profile.peak:.3%}"
        print(f"| {name} | {profile.peak:,} | {ledger_peak(recording):,} | {inside:,} | {share} |")


if __name__ == "__main__":
    main()
