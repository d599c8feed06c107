"""The environment that make builds: which torch it keeps, which Python it refuses, and that it works once."""

import json
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tools import environment

Version = namedtuple("Version", "major minor micro releaselevel serial")


@pytest.mark.parametrize(
    ("torch", "kept"),
    [
        (None, False),
        ("2.5.1+cu121", False),
        ("2.6.0", True),
        ("2.11.0+cu128", True),
        ("2.13.0+cpu", True),
        ("2.14.1", True),
    ],
)
def test_a_torch_in_the_range_is_kept(torch, kept):
    asked = environment.wanted(colab=False, test=False, torch=torch)
    assert ("torch==2.13.0" in asked) == (not kept)
    assert [line for line in environment.lines("requirements.txt") if not line.startswith("torch==")] == [
        line for line in asked if not line.startswith("torch==")
    ]


def test_colab_gets_ranges_and_no_front_end():
    asked = [environment.package(line) for line in environment.wanted(colab=True, test=True, torch=None)]
    assert "torch" in asked and "pytest" in asked and "jupyterlab" not in asked


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0)])
def test_another_python_gets_a_sentence(version, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "version_info", Version(*version, "final", 0))
    assert environment.main(["--dir", str(tmp_path / "none")]) == 1
    said = capsys.readouterr().out
    assert f"is Python {'.'.join(map(str, version))}" in said and "make lab PYTHON=" in said


def test_it_reads_in_old_pythons():
    compile(Path(environment.__file__).read_text(encoding="utf-8"), "environment.py", "exec", dont_inherit=True)
    import ast

    ast.parse(Path(environment.__file__).read_text(encoding="utf-8"), feature_version=(3, 7))


@pytest.fixture
def calls(monkeypatch):
    made = []
    monkeypatch.setattr(subprocess, "call", lambda command: made.append(command) or 0)
    return made


def test_it_installs_once_and_passes_options_on(calls, tmp_path):
    for _ in range(2):
        assert environment.install(str(tmp_path), False, True, ["--find-links", "a folder"]) == 0
    (command,) = calls
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert command[command.index("--find-links") + 1] == "a folder"
    # The readers' set is part of the tests'.
    assert environment.install(str(tmp_path), False, False, []) == 0
    assert len(calls) == 1


def test_a_changed_requirement_is_installed(calls, tmp_path):
    environment.install(str(tmp_path), False, False, [])
    stamp = tmp_path / "installed.json"
    stamp.write_text(json.dumps(json.loads(stamp.read_text())[1:]))
    environment.install(str(tmp_path), False, False, [])
    assert len(calls) == 2


def test_a_failed_install_is_tried_again(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(subprocess, "call", lambda command: 1)
    assert environment.install(str(tmp_path), False, False, []) == 1
    assert "pip could not install" in capsys.readouterr().out
    assert not (tmp_path / "installed.json").exists()
