"""The committed notebooks keep every rule, and each rule can fail."""

import base64
import copy

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import notebook_rules as rules
from tools import notebooks, stamp

PAGES = [rules.Page.read(path) for path in stamp.notebooks()]


def test_there_are_notebooks():
    if not PAGES:
        pytest.skip("notebooks: none is written yet")
    assert PAGES[0].name == "00_start_here.ipynb"


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_notebook_keeps(page, rule):
    assert list(rule(page)) == []


def test_few_cells_of_the_course_are_exempt_from_running_twice():
    exempt = [(page.name, rules.where(cell)) for page in PAGES for cell in page.tagged("history")]
    assert len(exempt) <= rules.MOST_HISTORY_CELLS, exempt


@pytest.mark.parametrize("path", stamp.notebooks(), ids=lambda path: path.name)
def test_notebook_is_as_make_notebooks_writes_it(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    stamp.stamp(notebook, path.name, stamp.course())
    notebooks.normalise(notebook)
    stamp.write(tmp_path / path.name, notebook)
    assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def html(text, twin="Graph: one node"):
    data = {"text/html": text} | ({"text/plain": twin} if twin is not None else {})
    return new_output("display_data", data=data)


def printed(text):
    return new_output("stream", name="stdout", text=text)


@pytest.fixture
def good():
    """A small notebook that keeps every rule."""
    cells = [
        new_markdown_cell("# Title"),
        new_code_cell("", metadata={"tags": ["setup"]}),
        new_markdown_cell("## Part\n![a graph](graph.png)\n```python\n# a comment, no heading\n```"),
        new_code_cell("from helpers import record\nprint(1)", outputs=[printed("1\n")]),
        new_code_cell(
            "1/0", metadata={"tags": ["raises-exception"], "course": {"claims": ["A3b"], "misconceptions": ["M1"]}}
        ),
        new_code_cell("figure", outputs=[html('<img alt="a graph" src="x.png">')]),
    ]
    cells[4].outputs = [new_output("error", ename="ZeroDivisionError", evalue="division by zero", traceback=[])]
    notebook = new_notebook(cells=cells)
    stamp.stamp(notebook, "x.ipynb", stamp.course())
    for count, cell in enumerate((c for c in cells if c.cell_type == "code"), 1):
        cell.execution_count = count
    notebooks.normalise(notebook)
    return rules.Page(notebook, "x.ipynb", size=1000)


def problems(page):
    return {rule.__name__ for rule in rules.RULES if list(rule(page))}


def test_the_good_notebook_keeps_every_rule(good):
    assert problems(good) == set()


def picture(inside):
    svg = base64.b64encode(f"<svg><text>{inside}</text></svg>".encode()).decode()
    return html(f'<img alt="a graph" src="data:image/svg+xml;base64,{svg}">')


def set_(path, value):
    """A change of one cell: set_('3.source', 'x')."""
    at, key = path.split(".")

    def change(page):
        page.notebook.cells[int(at)][key] = value

    return change


def tag(at, *tags):
    return lambda page: page.notebook.cells[at].metadata.update(tags=list(tags))


BAD = {
    "two titles": ("headings", set_("2.source", "# Another")),
    "no title": ("headings", lambda page: setattr(page.notebook.cells[0], "source", page.notebook.cells[0].source[2:])),
    "a heading before the title": ("headings", lambda page: page.notebook.cells.reverse()),
    "a skipped level": ("headings", set_("2.source", "### Too deep")),
    "no alt text in markdown": ("alt_texts", set_("2.source", "## Part\n![](graph.png)")),
    "no alt text in HTML": ("alt_texts", set_("2.source", '## Part\n<img src="graph.png">')),
    "no alt text in an output": ("alt_texts", set_("5.outputs", [html('<img src="x.png" alt=" ">')])),
    "a long cell": ("short_cells", set_("3.source", "x = 1\n" * 16)),
    "a long set-up cell": ("short_cells", set_("1.source", "x = 1\n" * 13)),
    "a big file": ("small_file", lambda page: setattr(page, "size", 3 * 2**20)),
    "a wrong count": ("run_in_order", set_("3.execution_count", 7)),
    "a cell that did not run": ("run_in_order", set_("3.execution_count", None)),
    "a path": ("same_everywhere", set_("3.outputs", [printed("in /home/someone/course")])),
    "a path in a warning": ("same_everywhere", set_("3.outputs", [printed("C:\\Users\\x: deprecated")])),
    "an address": ("same_everywhere", set_("3.outputs", [printed("<object at 0x7f1122334455>")])),
    "a date": ("same_everywhere", set_("3.outputs", [printed("made 2026-01-31")])),
    "a time of day": ("same_everywhere", set_("3.outputs", [printed("at 12:34:56")])),
    "a duration": ("same_everywhere", set_("3.outputs", [printed("took 3.5 ms")])),
    "a path in a traceback": (
        "same_everywhere",
        lambda page: page.notebook.cells[4].outputs[0].traceback.append("/usr/lib/x.py"),
    ),
    "a path in a picture": ("same_everywhere", set_("5.outputs", [picture("/tmp/cell.py")])),
    "a duration in an alt text": ("same_everywhere", set_("5.outputs", [html('<img alt="took 3 s" src="x.png">')])),
    "an unknown tag": ("known_tags", tag(3, "nbval-skip")),
    "an nbval comment": ("known_tags", set_("3.source", "# NBVAL_IGNORE_OUTPUT\n1")),
    "an ignored output without need": ("known_tags", tag(3, "nbval-ignore-output")),
    "many history cells": (
        "known_tags",
        lambda page: page.notebook.cells.extend([new_code_cell("", metadata={"tags": ["history"]})] * 4),
    ),
    "an unexpected error": ("expected_errors", tag(4)),
    "an error that did not come": ("expected_errors", set_("4.outputs", [])),
    "a wrong claim": ("course_ids", set_("3.metadata", {"course": {"claims": ["C1"]}})),
    "a wrong misconception": ("course_ids", set_("3.metadata", {"course": {"misconceptions": "M1"}})),
    "an unknown key": ("course_ids", set_("2.metadata", {"course": {"claim": ["A1"]}})),
    "an import from inside": ("imports", set_("3.source", "from helpers.record import walk")),
    "an import of the inside": ("imports", set_("3.source", "%time\nimport helpers.figures as f")),
    "a syntax error": ("imports", set_("3.source", "print(")),
    "a badge of another notebook": ("stamped", lambda page: setattr(page, "name", "y.ipynb")),
    "another set-up cell": ("stamped", set_("1.source", "import helpers")),
    "a set-up cell that is not first": ("stamped", lambda page: page.notebook.cells.append(page.notebook.cells.pop(1))),
    "an unfolded set-up cell": ("stamped", lambda page: page.notebook.cells[1].metadata.pop("cellView")),
    "a figure without a twin": ("text_twins", set_("5.outputs", [html('<img alt="a" src="x.png">', twin=None)])),
    "a figure that names its type only": (
        "text_twins",
        set_("5.outputs", [html("<b>x</b>", twin="<Figure size 640x480>")]),
    ),
    "widget state": ("nothing_passing", lambda page: page.notebook.metadata.update(widgets={})),
    "a language version": ("nothing_passing", lambda page: page.notebook.metadata.language_info.update(version="3.11")),
    "timing metadata": ("nothing_passing", set_("3.metadata", {"execution": {}})),
    "a widget view": (
        "nothing_passing",
        set_("5.outputs", [new_output("display_data", data={rules.WIDGET_VIEW: {}, "text/plain": "HTML()"})]),
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_rule_notices(good, what):
    rule, change = BAD[what]
    page = copy.deepcopy(good)
    page.__dict__.pop("markdown", None)
    change(page)
    assert rule in problems(page)


def test_every_rule_can_fail():
    assert {rule for rule, _ in BAD.values()} == {rule.__name__ for rule in rules.RULES}


@pytest.mark.parametrize(
    "text", ["batch × 3 steps", "34 + 5·a·s/h", "8,192 B", "a/b/tmp", "b=1 s=64", "2.4× for 7B", "ratio 1:2"]
)
def test_plain_output_may_be_shown(good, text):
    good.notebook.cells[3].outputs = [printed(text)]
    assert list(rules.same_everywhere(good)) == []


def test_what_differs_may_be_shown_by_a_cell_about_versions(good):
    cell = good.notebook.cells[3]
    cell.source, cell.metadata.tags = "print(torch.__version__)", ["nbval-ignore-output"]
    cell.outputs = [printed("2026-01-31 in /home/someone")]
    assert problems(good) == set()
