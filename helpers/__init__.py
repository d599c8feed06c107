"""Helpers of the course: record a run of torch code, then see its graph, what it keeps and its memory.

from helpers import record

with record() as run:
    loss = model(x).pow(2).mean()
    loss.backward()

run           # everything side by side
run.graph     # the graph, with what it keeps
run.kept      # the ledger: what is kept for backward, and why
run.memory    # live bytes by category
"""

from .environment import environment
from .record import RecordError
from .run import Run, load, record

__all__ = ["RecordError", "Run", "environment", "load", "record"]
