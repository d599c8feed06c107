"""Predictions and quizzes in a notebook: their controls leave nothing that differs from run to run."""

import subprocess
import sys

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from tools import notebooks
from tools.stamp import ROOT

from .test_nbval import OPTIONS

CELLS = [
    f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom helpers import predict, quiz, reset, reveal",
    'predict("chosen", "How many?", choices={1: "one", 2: "two"})',
    'predict("typed", "How many?", unit="B")',
    'predict("rows", "Which?", choices={True: "a", False: "b"}, rows=["x", "y"])',
    'reveal("chosen", 2)\nreveal("typed", 3.5)\nreveal("rows", {"x": True, "y": False})',
    'predict("coded", "How many?", choices={1: "one", 2: "two"}, answer=1)\nreveal("coded", 2)',
    'reset("coded")\npredict("coded", "How many?", choices={1: "one", 2: "two"})\nreveal("coded", 2)',
]


def test_committed_compared_and_run_twice(tmp_path):
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    notebooks.private_ipython()
    notebooks.run(notebook, tmp_path)
    made = [output.data for cell in notebook.cells for output in cell.outputs]
    assert sum(notebooks.WIDGET_VIEW in data for data in made) == 5
    notebooks.normalise(notebook)
    path = tmp_path / "lessons.ipynb"
    nbformat.write(notebook, path)
    assert not any(notebooks.WIDGET_VIEW in output.data for cell in notebook.cells for output in cell.outputs)

    once = path.read_bytes()
    notebooks.run(notebook, tmp_path)
    notebooks.normalise(notebook)
    nbformat.write(notebook, path)
    assert path.read_bytes() == once

    command = [sys.executable, "-m", "pytest", *OPTIONS, str(path), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and f"{len(CELLS)} passed" in done.stdout, done.stdout

    assert notebooks.run_twice(nbformat.read(path, as_version=4), tmp_path) == []
