"""Helpers of the course: record a run of torch code, then see its graph, what it keeps and its memory.

from helpers import record

with record() as run:
    loss = model(x).pow(2).mean()
    loss.backward()

run           # the player: all of it, step by step
run.graph     # the graph, with what it keeps
run.kept      # the ledger: what is kept for backward, and why
run.memory    # live bytes by category
run.taken_apart  # operations from top to bottom, beside each what it keeps, to scale
difference(run, other)  # what another run of the step has different in its graph
run.allocator # where a GPU's allocator puts it: segments, blocks, what lies stranded

as_if_on_gpu(step)                         # the same as a GPU would run it, with no GPU, at any size
compare({"plain": a, "bf16": b}, card=24)  # variants side by side; waterfall([...]) from naive to fitting

picture(dot)  # a graph that torchviz drew, as one of these figures
curves({...}) # a line chart, as one of these figures; bars({...}) numbers by name, beside a formula's

And the lessons: predict, reveal, quiz, check, verdict, reset; explore_transformer() measures what one keeps.
"""

import importlib

from .environment import environment
from .record import RecordError
from .run import Run, as_if_on_gpu, compare, difference, load, record, waterfall

# Loaded when first asked for: `import helpers` stays quick.
_FIGURES = ("bars", "curves", "picture")
_LESSONS = ("LessonError", "check", "explore_transformer", "predict", "quiz", "reset", "reveal", "verdict")

__all__ = [
    "RecordError",
    "Run",
    "as_if_on_gpu",
    "compare",
    "difference",
    "environment",
    "load",
    "record",
    "waterfall",
    *_FIGURES,
    *_LESSONS,
]


def __getattr__(name):
    if name not in _FIGURES + _LESSONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = ".figures" if name in _FIGURES else ".lessons"
    globals()[name] = value = getattr(importlib.import_module(home, __name__), name)
    return value


def __dir__():
    return sorted({*globals(), *_FIGURES, *_LESSONS})
