"""The face: what a reader imports, and that it costs nothing before it is used."""

import subprocess
import sys

import pytest

import helpers
from tools.stamp import ROOT

NAMES = ("LessonError", "check", "predict", "quiz", "reset", "reveal", "verdict")


@pytest.mark.parametrize("name", NAMES)
def test_from_the_top(name):
    assert name in helpers.__all__ and name in dir(helpers)
    assert callable(getattr(helpers, name)) and getattr(helpers, name) is getattr(helpers.lessons, name)


def test_no_other_name():
    with pytest.raises(AttributeError, match="no attribute 'predictions'"):
        helpers.predictions  # noqa: B018
    with pytest.raises(ImportError):
        from helpers import no_such_name  # noqa: F401


def loaded(code):
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_lessons_are_loaded_when_asked_for():
    assert not {name for name in loaded("import helpers") if name.startswith("helpers.lessons")}


@pytest.mark.parametrize("order", ["import helpers.lessons.check, helpers.lessons.quiz, helpers.lessons.verdicts", ""])
def test_no_widgets_and_no_plots_until_they_are_shown(order):
    code = f"{order}\nfrom helpers import check, predict, quiz, reset, reveal, verdict\n"
    code += "assert all(map(callable, (check, predict, quiz, verdict)))\n"
    code += 'predict("a", "How many?", answer=3)\nreveal("a", 3)\nreset("a")'
    tops = {name.split(".")[0] for name in loaded(code)}
    assert not tops & {"matplotlib", "ipywidgets", "IPython", "torchviz", "graphviz", "PIL"}
