"""Every exercise of the notebooks: its stub waits as committed, its folded solution is right when all is run."""

import ast
import copy
import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.lessons.check import CHAPTERS, STATUSES
from tools import notebooks, stamp
from tools.notebook_rules import tags

MIME = "application/vnd.gradients-and-intermediates.check+json"
FENCE = re.compile(r"```python\n(.*?)```", re.S)
FOLDED = re.compile(r"<details>\s*<summary>.*?</summary>(.*?)</details>", re.S)


def exercises(notebook):
    """Index of each cell tagged `exercise`."""
    return [at for at, cell in enumerate(notebook.cells) if "exercise" in tags(cell)]


def checks(cell):
    """The results that a cell's output carries: exercise → status."""
    data = [output.data[MIME] for output in cell.get("outputs", []) if MIME in output.get("data", {})]
    return {result["exercise"]: result["status"] for result in data}


def solution(notebook, at):
    """The code folded away in the markdown cell after an exercise; "" for none."""
    after = notebook.cells[at + 1] if at + 1 < len(notebook.cells) else {"cell_type": None}
    folded = FOLDED.search(after.source) if after["cell_type"] == "markdown" else None
    fences = FENCE.findall(folded[1]) if folded else []
    return fences[0] if fences else ""


def solved(cell, code):
    """The exercise's cell with the solution in place of the stub; its own check() stays."""
    own, theirs = (
        [ast.unparse(node) for node in ast.parse(text).body if ast.unparse(node).startswith("check(")]
        for text in (code, cell.source)
    )
    return code if own else "\n\n".join([code.strip(), *theirs])


def problems(notebook):
    """A sentence for each thing that is wrong with an exercise as committed."""
    found = []
    names = [notebook.cells[at].metadata.get("course", {}).get("exercise") for at in exercises(notebook)]
    for at, name in zip(exercises(notebook), names, strict=True):
        cell = notebook.cells[at]
        if name not in CHAPTERS:
            found.append(f"cell {at}: metadata names no exercise that check() knows: {name!r}")
            continue
        if f'check("{name}"' not in cell.source:
            found.append(f"{name}: its cell does not call check with its name")
        if list(checks(cell)) != [name] or checks(cell)[name] not in STATUSES:
            found.append(f"{name}: its committed output carries no result of it")
        elif checks(cell)[name] == "right":
            found.append(f"{name}: committed already solved")
        if not solution(notebook, at):
            found.append(f"{name}: no folded solution in the markdown cell after it")
    found += [f"{name}: twice" for name in {n for n in names if n and names.count(n) > 1}]
    return found


def run_solved(notebook, folder):
    """Run a notebook with every stub replaced by its solution; exercise → status, in order."""
    notebook = copy.deepcopy(notebook)
    places = exercises(notebook)
    for at in places:
        notebook.cells[at].source = solved(notebook.cells[at], solution(notebook, at))
    notebooks.run(notebook, folder)
    return {name: status for at in places for name, status in checks(notebook.cells[at]).items()}


PATHS = [path for path in stamp.notebooks() if exercises(nbformat.read(path, as_version=4))]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_exercises_as_committed(path):
    assert problems(nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_solutions_are_right(path, monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("GRADIENTS_ANSWERS", "off")
    notebook = nbformat.read(path, as_version=4)
    names = [notebook.cells[at].metadata.course.exercise for at in exercises(notebook)]
    assert run_solved(notebook, path.parent) == dict.fromkeys(names, "right")


def test_every_exercise_stands_in_a_notebook():
    """Tagged, or called by a cell that has nothing to fill in."""
    sources = "\n".join(cell.source for path in stamp.notebooks() for cell in nbformat.read(path, as_version=4).cells)
    assert [name for name in CHAPTERS if f'check("{name}"' not in sources] == []


# ------------------------------------------------------------------------------------------ that the tests can fail

STUB = 'def kept_bytes(function, *inputs):\n    ...\n\n\ncheck("kept_bytes", kept_bytes)'
RIGHT = """def kept_bytes(function, *inputs):
    saved = []
    pack = lambda tensor: saved.append(tensor) or tensor
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(*inputs)
    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    alive = [x.untyped_storage().data_ptr() for x in inputs if x.is_leaf and x.requires_grad]
    return sum(size for at, size in sizes.items() if at not in alive)
"""


def made(code=RIGHT, status="not attempted", name="kept_bytes", stub=STUB, fold="<details><summary>One way</summary>"):
    data = {"text/plain": "", MIME: {"schema": 1, "exercise": name, "status": status, "mistake": None}}
    cells = [
        new_code_cell("import torch\nfrom helpers.lessons import check"),
        new_code_cell(stub, metadata={"tags": ["exercise"], "course": {"exercise": name}}),
        new_markdown_cell(f"{fold}\n\n```python\n{code}```\n\n</details>"),
    ]
    cells[1].outputs = [new_output("display_data", data=data)]
    return new_notebook(cells=cells)


@pytest.mark.parametrize(
    ("notebook", "problem"),
    [
        (made(), None),
        (made(status="wrong"), None),
        (made(status="right"), "kept_bytes: committed already solved"),
        (made(status="fine"), "kept_bytes: its committed output carries no result of it"),
        (made(name="other"), "cell 1: metadata names no exercise that check() knows: 'other'"),
        (made(stub="pass"), "kept_bytes: its cell does not call check with its name"),
        (made(fold="One way:"), "kept_bytes: no folded solution in the markdown cell after it"),
        (new_notebook(cells=made().cells[:2] + made().cells[1:]), "kept_bytes: twice"),
    ],
)
def test_problems_are_noticed(notebook, problem):
    assert (problem in problems(notebook)) if problem else (problems(notebook) == [])


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (RIGHT, "right"),
        (RIGHT + '\ncheck("kept_bytes", kept_bytes)\n', "right"),
        (RIGHT.replace("size for", "1 for"), "wrong"),
        (RIGHT.replace("saved = []", "saved = ()"), "raised"),
    ],
)
def test_a_wrong_solution_is_noticed(code, status, monkeypatch):
    monkeypatch.setenv("GRADIENTS_ANSWERS", "off")
    assert run_solved(made(code), stamp.ROOT) == {"kept_bytes": status}
