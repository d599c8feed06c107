"""The committed notebooks keep every rule, and each rule can fail."""

import base64
import copy

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.lessons.claims import CHAPTERS, claims, claims_of, misconceptions, misconceptions_of
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
    "a claim that is not in the data": ("course_ids", set_("3.metadata", {"course": {"claims": ["A1", "A24"]}})),
    "a misconception that is not in the data": (
        "course_ids",
        set_("2.metadata", {"course": {"misconceptions": ["M25"]}}),
    ),
    "a misconception among the claims": ("course_ids", set_("2.metadata", {"course": {"claims": ["M1"]}})),
    "no claim in the list": ("course_ids", set_("2.metadata", {"course": {"claims": []}})),
    "an id that is no text": ("course_ids", set_("2.metadata", {"course": {"claims": [["A1"]]}})),
    "an exercise without a name": ("course_ids", set_("3.metadata", {"course": {"exercise": " "}})),
    "parts in a list": ("course_ids", set_("3.metadata", {"course": {"part": ["one"]}})),
    "metadata that is no table": ("course_ids", set_("2.metadata", {"course": "A1"})),
    "a chapter that settles nothing": ("claims_settled", lambda page: setattr(page, "name", "01_x.ipynb")),
    "a chapter that meets no misconception": ("misconceptions_met", lambda page: setattr(page, "name", "02_x.ipynb")),
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


def test_the_words_of_claims_and_misconceptions_may_be_shown(good):
    words = [(found.claim, found.truth) for found in claims().values()]
    words += [(found.name, found.truth) for found in misconceptions().values()]
    good.notebook.cells[3].outputs = [printed("\n".join(pair)) for pair in words]
    assert list(rules.same_everywhere(good)) == []


def test_what_differs_may_be_shown_by_a_cell_about_versions(good):
    cell = good.notebook.cells[3]
    cell.source, cell.metadata.tags = "print(torch.__version__)", ["nbval-ignore-output"]
    cell.outputs = [printed("2026-01-31 in /home/someone")]
    assert problems(good) == set()


def settling(*ids, named=None, results=None):
    """A cell that settles claims: its metadata and its output as they should be, unless told otherwise."""
    cell = new_code_cell("\n".join(f'verdict("{id}", measured)' for id in ids))
    cell.metadata["course"] = {"claims": list(ids if named is None else named)}
    for data in [settled(id) for id in ids] if results is None else results:
        cell.outputs.append(new_output("display_data", data={"text/plain": "words", rules.VERDICT: data}))
    return cell


def settled(id, **changes):
    claim = next(claim for claim in claims_of("01") if claim.id == id)
    facts = {
        fact: list(value)
        if isinstance(value, tuple)
        else value
        if isinstance(value, (bool, int, float))
        else str(value)
        for fact, value in claim.expect.items()
    }
    return {"schema": 1, "id": id, "verdict": claim.verdict, "settled": True, "measured": facts} | changes


@pytest.fixture
def chapter():
    """Chapter 01 as it settles its claims: a cell each, the last two together; A1's is its cell 0."""
    *alone, last, very_last = [claim.id for claim in claims_of("01")]
    notebook = new_notebook(cells=[*map(settling, alone), settling(last, very_last), new_markdown_cell("Met")])
    notebook.cells[-1].metadata["course"] = {"misconceptions": [found.id for found in misconceptions_of("01")]}
    return rules.Page(notebook, "01_x.ipynb")


def test_cells_may_be_named_for_tests(good):
    good.notebook.cells[3].metadata["course"] = {"exercise": "own_div", "part": "own autograd"}
    assert problems(good) == set()


def test_a_chapter_that_settles_what_is_its_own(chapter):
    assert list(rules.claims_settled(chapter)) == list(rules.misconceptions_met(chapter)) == []


def cell(at, make):
    return lambda page: page.notebook.cells.__setitem__(at, make())


UNSETTLED = {
    "a claim left out": (lambda page: page.notebook.cells.pop(0), "never settles A1"),
    "a claim of another chapter": (cell(0, lambda: settling("B3", results=[])), "B3 is no claim of this chapter"),
    "no claim at all": (cell(0, lambda: settling("A99", results=[])), "A99 is no claim"),
    "a claim twice": (lambda page: page.notebook.cells.append(settling("A1")), "settles A1 2 times"),
    "a claim twice in a cell": (cell(0, lambda: settling("A1", "A1")), "settles A1 2 times"),
    "an id that is computed": (set_("0.source", "for id in ids:\n    verdict(id, measured)"), "in quotes"),
    "no id": (set_("0.source", "verdict()"), "in quotes"),
    "metadata without it": (cell(0, lambda: settling("A1", named=["A2"])), "does not name it"),
    "no metadata": (set_("0.metadata", {}), "does not name it"),
    "no output": (set_("0.outputs", []), "0 results of A1"),
    "two results": (cell(0, lambda: settling("A1", results=[settled("A1")] * 2)), "2 results of A1"),
    "a result of another claim": (cell(0, lambda: settling("A1", results=[settled("A2")])), "0 results of A1"),
    "a result without its call": (set_("0.source", "1"), "does not ask for"),
    "a result that is no result": (cell(0, lambda: settling("A1", results=["A1"])), "0 results of A1"),
    "not settled": (cell(0, lambda: settling("A1", results=[settled("A1", settled=False)])), "did not settle"),
    "settled by a word": (cell(0, lambda: settling("A1", results=[settled("A1", settled="yes")])), "did not settle"),
    "an older verdict": (cell(0, lambda: settling("A1", results=[settled("A1", verdict="holds")])), "'holds'"),
    "older facts": (cell(0, lambda: settling("A1", results=[settled("A1", measured={"a": 1})])), "other facts"),
    "another schema": (cell(0, lambda: settling("A1", results=[settled("A1", schema=2)])), "schema"),
    "called through the module": (set_("0.source", 'helpers.verdict("A2", m)'), "settles A2 2 times"),
}


@pytest.mark.parametrize("what", UNSETTLED)
def test_what_does_not_settle_is_noticed(chapter, what):
    change, said = UNSETTLED[what]
    change(chapter)
    assert said in "\n".join(rules.claims_settled(chapter))


def test_a_notebook_that_is_no_chapter_settles_nothing(chapter):
    chapter.name = "x.ipynb"
    assert "A1 is no claim of this chapter" in "\n".join(rules.claims_settled(chapter))


def test_a_misconception_left_out_is_noticed(chapter):
    left = chapter.notebook.cells[-1].metadata["course"]["misconceptions"].pop()
    assert [left in problem for problem in rules.misconceptions_met(chapter)] == [True]


@pytest.mark.parametrize("number", CHAPTERS)
def test_a_chapter_wants_all_that_is_its_own(number):
    page = rules.Page(new_notebook(cells=[new_markdown_cell("# Empty")]), f"{number}_x.ipynb")
    assert len(list(rules.claims_settled(page))) == len(claims_of(number))
    assert len(list(rules.misconceptions_met(page))) == len(misconceptions_of(number))
