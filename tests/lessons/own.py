"""The chapter's own autograd as the learner has it: the notebook's cells, run in a namespace of their own."""

import json
import linecache
from functools import cache
from pathlib import Path

import torch

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_autograd.ipynb"


@cache
def source() -> str:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    parts = [c["source"] for c in cells if c["metadata"].get("course", {}).get("part") == "own autograd"]
    return "\n\n".join("".join(lines) for lines in parts)


def cell(code: str, namespace: dict, name: str = "<cell>") -> None:
    """Run code as a cell: tracebacks find its lines."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    exec(compile(code, name, "exec"), namespace)


def namespace() -> dict:
    """A fresh one in which the own autograd has been run."""
    found = {"torch": torch}
    cell(source(), found, "<own autograd>")
    return found
