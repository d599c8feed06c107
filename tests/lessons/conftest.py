"""What the lessons display, as a kernel would send it, without a kernel."""

import sys

import IPython.display
import pytest

from helpers.lessons import answers, live, predictions, show


class Kernel:
    """A shell that has a kernel."""

    kernel = object()


@pytest.fixture
def fresh(monkeypatch):
    """Nothing asked, nothing answered, nothing on a disk."""
    monkeypatch.setenv(answers.VARIABLE, "off")
    monkeypatch.setattr(answers, "_unsaved", {})
    monkeypatch.setattr(predictions, "_asked", {})
    monkeypatch.setattr(live, "_controls", {})


@pytest.fixture
def quizzes(tmp_path, monkeypatch):
    """The folder that quizzes are read from, empty."""
    # the package's `quiz` is the function, not the module
    monkeypatch.setattr(sys.modules["helpers.lessons.quiz"], "FOLDER", tmp_path)
    return tmp_path


@pytest.fixture
def shown(fresh, monkeypatch):
    """The bundles that were displayed, in order; controls are made as in a kernel."""
    bundles = []

    def display(bundle, raw):
        assert raw is True
        bundles.append(bundle)

    monkeypatch.setattr(show, "shell", Kernel)
    monkeypatch.setattr(IPython.display, "display", display)
    return bundles
