"""pyproject.toml (ranges), requirements.txt (pins) and environment.yml (conda-forge's names) say the same."""

import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tools.environment import NOT_ON_COLAB, lines
from tools.stamp import ROOT

# PyPI's name -> conda-forge's, where they differ; None where conda-forge has no such package.
CONDA_NAMES = {
    "torch": "pytorch",
    "matplotlib": "matplotlib-base",
    "graphviz": "python-graphviz",
    "graphviz-pure": None,
    "torchviz": None,
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RANGES = {r.name: r.specifier for r in map(Requirement, PROJECT["dependencies"])}
PINS = {r.name: r.specifier for r in map(Requirement, lines("requirements.txt"))}
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
CONDA_LINES = [line for line in CONDA["dependencies"] if isinstance(line, str)]
PIP_LINES = [line for part in CONDA["dependencies"] if isinstance(part, dict) for line in part["pip"]]


def pinned(specifier):
    (only,) = specifier
    assert only.operator == "=="
    return only.version


def test_one_table_of_names():
    conda = {r.name for r in map(Requirement, CONDA_LINES)} - {"python", "pip"}
    pip = {r.name for r in map(Requirement, PIP_LINES)}
    assert set(PINS) == set(RANGES)
    assert conda == {CONDA_NAMES.get(name, name) for name in RANGES} - {None}
    assert pip == {name for name in RANGES if CONDA_NAMES.get(name, name) is None}


@pytest.mark.parametrize("name", RANGES)
def test_same_ranges(name):
    conda = {r.name: r.specifier for r in map(Requirement, CONDA_LINES + PIP_LINES)}
    assert conda[CONDA_NAMES.get(name) or name] == RANGES[name]
    assert RANGES[name].contains(pinned(PINS[name]))
    assert any(part.operator == ">=" for part in RANGES[name])


def test_same_pythons():
    python = next(Requirement(line) for line in CONDA_LINES if line.startswith("python>"))
    assert python.specifier == SpecifierSet(PROJECT["requires-python"])
    assert python.specifier.contains(".".join(map(str, sys.version_info[:3])))


def test_environment_yml_is_what_conda_reads():
    assert list(CONDA) == ["name", "channels", "dependencies"]
    assert CONDA["channels"] == ["conda-forge", "nodefaults"]
    assert CONDA_LINES.index("pip") == len(CONDA_LINES) - 1
    # conda takes no space in a requirement for two; it would read a version and a build.
    assert not [line for line in CONDA_LINES if " " in line]


def test_tools_are_pinned_once():
    tools = [r for r in map(Requirement, lines("requirements-dev.txt"))]
    assert all(pinned(r.specifier) for r in tools)
    assert not {r.name for r in tools} & set(RANGES)


def test_colab_is_in_the_ranges_and_older_than_the_tested_set():
    colab = {r.name: pinned(r.specifier) for r in map(Requirement, lines("constraints-colab.txt"))}
    assert set(colab) <= set(RANGES) - NOT_ON_COLAB
    assert all(RANGES[name].contains(version) for name, version in colab.items())
    assert not [n for n, v in colab.items() if not SpecifierSet(f"<={pinned(PINS[n])}").contains(v)]


def test_what_pip_gives_conda_can_be_had(tmp_path):
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(tmp_path), *PIP_LINES]
    done = subprocess.run([*command, "--retries", "1"], capture_output=True, text=True, timeout=300)
    if done.returncode and re.search(r"NewConnectionError|ConnectTimeout|NameResolution|ProxyError", done.stderr):
        pytest.skip("network: the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    got = {re.split(r"-\d", path.name)[0].replace("_", "-") for path in tmp_path.iterdir()}
    assert got == {Requirement(line).name for line in PIP_LINES}
