"""The set-up cell: finds the course above, else fetches it once and installs what is missing, with no dependencies."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import stamp
from tools.environment import lines

SOURCE = stamp.setup_source({"repository": "owner/name", "ref": "v2"})


@pytest.fixture
def commands(monkeypatch):
    """The commands that the cell starts; a clone makes the folder that git would make."""
    started = []

    def run(command, check):
        assert check
        started.append(command)
        if command[0] == "git":
            Path(command[-1], "helpers").mkdir(parents=True)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return started


def test_it_is_short():
    assert sum(1 for line in SOURCE.splitlines() if line.strip()) <= 12


def test_in_a_clone_it_starts_nothing(commands, monkeypatch, tmp_path):
    (tmp_path / "a folder/helpers").mkdir(parents=True)
    (tmp_path / "a folder/helpers/__init__.py").touch()
    (tmp_path / "a folder/notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "a folder/notebooks")
    for _ in range(2):
        exec(SOURCE, {})
    assert commands == []
    assert sys.path[0] == str(tmp_path / "a folder")
    assert sys.path.count(sys.path[0]) == 1


@pytest.mark.parametrize("missing", [[], ["torchviz"], ["graphviz-pure", "torchviz"]])
def test_elsewhere_it_clones_once_and_installs_what_is_missing(commands, monkeypatch, tmp_path, missing, capsys):
    monkeypatch.chdir(tmp_path)
    there = [SimpleNamespace(name=name) for name in {"graphviz-pure", "torchviz"} - set(missing)]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: there)
    exec(SOURCE, {})
    clone, *installs = commands
    assert clone[:6] == ["git", "clone", "--quiet", "--depth", "1", "--branch"]
    assert clone[6:8] == ["v2", "https://github.com/owner/name"]
    assert [command[1:6] for command in installs] == [["-m", "pip", "install", "--quiet", "--no-deps"]] * len(missing)
    assert sorted(command[-1].split("==")[0] for command in installs) == missing
    assert {command[-1] for command in installs} <= set(lines("requirements.txt"))
    assert sys.path[0] == str(tmp_path / "gradients-and-intermediates")
    commands.clear()
    there += [SimpleNamespace(name=name) for name in missing]
    exec(SOURCE, {})
    assert commands == []
    assert capsys.readouterr().out == ""


def test_the_names_are_those_that_pip_lists():
    listed = {found.name for found in importlib.metadata.distributions()}
    assert {"graphviz-pure", "torchviz"} <= listed
