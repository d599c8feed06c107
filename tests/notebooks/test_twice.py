"""Every cell run twice in a row gives what is committed, the first time and the second."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tools import notebooks, stamp


@pytest.mark.parametrize("path", stamp.notebooks(), ids=lambda path: path.name)
def test_notebook_runs_twice(path, monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    assert notebooks.run_twice(nbformat.read(path, as_version=4), path.parent) == []


def planted(tmp_path, *sources, tags=()):
    """A notebook with the outputs of one plain run."""
    notebook = new_notebook(cells=[new_code_cell(source, metadata={"tags": list(tags)}) for source in sources])
    notebooks.run(notebook, tmp_path)
    return notebook


@pytest.mark.parametrize(
    ("sources", "tags", "problem"),
    [
        (["x = 1", "x + 1"], [], None),
        (["x = [1]", "x.append(2)\nx"], [], "1 gave another output than is committed, the second time it ran"),
        # The cell itself prints nothing; a later one shows what its second run did.
        (
            ["x = [1]", "x.append(2)", "len(x)"],
            [],
            "2 gave another output than is committed, the first time it ran",
        ),
        (["x = 1", "del x"], [], "1 raised, the second time it ran: NameError: name 'x' is not defined"),
        (["len(In)"], ["history"], None),
        (["len(In)"], [], "0 gave another output than is committed, the second time it ran"),
        (["1 / 0"], ["raises-exception"], None),
        (["import time\ntime.time()"], ["nbval-ignore-output"], None),
    ],
)
def test_running_twice_notices(sources, tags, problem, monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    found = notebooks.run_twice(planted(tmp_path, *sources, tags=tags), tmp_path)
    assert found[:1] == ([f"cell {problem}"] if problem else [])
