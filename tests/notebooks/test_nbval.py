"""Strict nbval, with its traps closed: planted notebooks, run by the same options as the course's own."""

import re
import shlex
import subprocess
import sys
import time

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tools.stamp import ROOT

OPTIONS = shlex.split(re.search(r"^NBVAL := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1])

FIGURE = """
class Figure:
    def _repr_mimebundle_(self, include=None, exclude=None):
        html = '<div><img alt="a graph" src="data:image/svg+xml;base64,{svg}"></div>'
        return {{"text/html": html, "text/plain": "Graph: {twin}"}}
Figure()
"""


HTML_REPR = "<IPython.core.display.HTML object>"


def value(text):
    return new_output("execute_result", data={"text/plain": text}, execution_count=1)


def shown(svg, twin):
    html = f'<div><img alt="a graph" src="data:image/svg+xml;base64,{svg}"></div>'
    return new_output("execute_result", data={"text/html": html, "text/plain": f"Graph: {twin}"}, execution_count=1)


def raised(name, message):
    return new_output("error", ename=name, evalue=message, traceback=[])


# With its text committed, only the reply tells that this was an error.
USAGE = new_output("stream", name="stderr", text="UsageError: Line magic function `%no_such_magic` not found.\n")

# What it is: (source, committed outputs, tags, what nbval must say of it: None where it passes).
PLANTED = {
    "a value": ("1 + 1", [value("2")], [], None),
    "another value": ("1 + 1", [value("3")], [], "Cell outputs differ"),
    "another text": ("print(1)", [new_output("stream", name="stdout", text="2\n")], [], "Cell outputs differ"),
    "a semicolon": ("1 + 1;", [], [], None),
    "a semicolon and a value": ("1 + 1;", [value("2")], [], "Cell outputs differ"),
    "the last value": ("_ = 5\nx = 1\nlen(In) > 1", [value("True")], [], None),
    "an unknown magic": ("%no_such_magic", [USAGE], [], "without a traceback: UsageError"),
    "an unknown magic, expected": ("%no_such_magic", [USAGE], ["raises-exception"], "without a traceback: UsageError"),
    "a dead kernel": ("import os\nos._exit(1)", [], [], "The kernel died"),
    "an error": ("1 / 0", [], [], "caused an exception"),
    "an expected error": ("1 / 0", [raised("ZeroDivisionError", "division by zero")], ["raises-exception"], None),
    "another message": ("1 / 0", [raised("ZeroDivisionError", "by nought")], ["raises-exception"], "outputs differ"),
    "a figure": (FIGURE.format(svg="QUJD", twin="x"), [shown("QUJD", "x")], [], None),
    "a figure drawn otherwise": (FIGURE.format(svg="QUJD", twin="x"), [shown("WFla", "x")], [], None),
    "another text twin": (FIGURE.format(svg="QUJD", twin="x"), [shown("QUJD", "y")], [], "outputs differ"),
    "other HTML": (
        "from IPython.display import HTML\nHTML('<b>x</b>')",
        [
            new_output(
                "execute_result", data={"text/html": "<b>y</b>", "text/plain": "<IPython.core.display.HTML object>"}
            )
        ],
        [],
        "outputs differ",
    ),
    "an ignored output": ("1 + 1", [value("3")], ["nbval-ignore-output"], None),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """All planted notebooks in one run: its text, and the seconds it took."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "pytest.ini").write_text("[pytest]\n")
    for what, (source, outputs, tags, _) in PLANTED.items():
        cell = new_code_cell(source, outputs=outputs, execution_count=1, metadata={"tags": tags})
        nbformat.write(new_notebook(cells=[cell]), folder / f"{what}.ipynb")
    command = [sys.executable, "-m", "pytest", "-v", "--color=no", *OPTIONS, "--rootdir", str(folder), str(folder)]
    start = time.monotonic()
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300).stdout
    return text, time.monotonic() - start


@pytest.mark.parametrize("what", PLANTED)
def test_nbval_says(report, what):
    text, _ = report
    wanted = PLANTED[what][3]
    outcome = re.search(rf"/{re.escape(what)}[.:]+ipynb::.*? (PASSED|FAILED)", text, re.M)
    assert outcome, text[-3000:]
    assert (outcome[1] == "PASSED") == (wanted is None), text
    if wanted:
        section = re.search(rf"^_+ {re.escape(what)}\.ipynb::.*?(?=^_{{3,}} |^=+ )", text, re.M | re.S)
        assert wanted in section[0]


def test_a_dead_kernel_does_not_hang(report):
    # The cell's timeout is 120 s: waiting for it would show here.
    assert report[1] < 110
