"""`make notebooks`: what it takes out, what it keeps, and that a second run changes no byte."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import notebooks, stamp

SOURCES = [
    "for i in range(3):\n    print(i, flush=True)",
    "import sys\nprint('err', file=sys.stderr)\n7",
    "import json\njson.loads('{')",
    "import ipywidgets\nipywidgets.HTML('x')",
    "1 + 1;",
]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers/__init__.py").touch()
    cells = [new_markdown_cell("# Title"), new_code_cell("", metadata={"tags": ["setup"], "collapsed": True})]
    cells += [new_code_cell(source) for source in SOURCES]
    cells[4].metadata = {"tags": ["raises-exception"], "execution": {"iopub.status.busy": "2026"}}
    notebook = new_notebook(cells=cells, metadata={"accelerator": "GPU", "widgets": {}})
    notebook.metadata.language_info = {"name": "python", "version": "3.12.9"}
    path = tmp_path / "x.ipynb"
    nbformat.write(notebook, path)
    return path


def test_a_second_run_changes_no_byte(path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", "")
    ids = [cell.id for cell in nbformat.read(path, as_version=4).cells]
    _, first = notebooks.renew(path)
    _, second = notebooks.renew(path)
    assert (first, second) == (True, False)
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert [cell.id for cell in notebook.cells] == ids
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2, 3, 4, 5, 6]
    assert [len(cell.outputs) for cell in code] == [0, 1, 2, 1, 1, 0]
    assert "site-packages" not in path.read_text() and "json/decoder" not in path.read_text()
    assert code[4].outputs[0].data == {"text/plain": "HTML(value='x')"}
    assert notebook.metadata.keys() == {"accelerator", "kernelspec", "language_info"}
    assert all(cell.metadata.keys() <= {"tags", "cellView", "jupyter"} for cell in notebook.cells)


def test_an_error_ends_with_the_cell_and_writes_nothing(path):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[4].metadata = {}
    nbformat.write(notebook, path)
    before = path.read_bytes()
    with pytest.raises(SystemExit, match="(?s)x.ipynb: .*JSONDecodeError"):
        notebooks.renew(path)
    assert path.read_bytes() == before


def test_cells_without_id_get_the_same_one_each_time():
    given = []
    for _ in range(2):
        notebook = new_notebook(cells=[new_code_cell("x"), new_code_cell("x")])
        notebook.cells[0].pop("id")
        notebook.cells[1].id = "kept"
        notebooks.give_ids(notebook)
        given.append([cell.id for cell in notebook.cells])
    assert given[0] == given[1] and given[0][1] == "kept"


@pytest.mark.parametrize(
    "source",
    [
        "# Title\n\nText",
        "# Title\n\n[![Open](https://x/colab-badge.svg)](https://colab.research.google.com/github/a/b/blob/c/old.ipynb)\n\nText",
    ],
)
def test_a_badge_is_set_under_the_title_or_renewed(source):
    line = stamp.badge("x.ipynb", {"repository": "owner/name", "ref": "v2"})
    assert stamp.with_badge(source, line) == f"# Title\n\n{line}\n\nText"
    assert line.endswith("(https://colab.research.google.com/github/owner/name/blob/v2/notebooks/x.ipynb)")


def test_badges_keep_the_repository_in_one_place(tmp_path):
    (tmp_path / "pyproject.toml").write_text((stamp.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    stamp.set_course(tmp_path, repository="owner/name", ref="v2")
    assert stamp.course(tmp_path) == {"repository": "owner/name", "ref": "v2"}
    source = stamp.setup_source(stamp.course(tmp_path))
    assert '"v2", "https://github.com/owner/name"' in source and "OWNER" not in source and "REF" not in source
