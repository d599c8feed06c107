"""The make targets as a reader uses them, in a folder with a space in its name."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tools.stamp import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
LAB = re.search(r"^LAB := (.*)$", MAKEFILE, re.M)[1].split()
TARGETS = re.findall(r"^([a-z-]+):", MAKEFILE, re.M)


@pytest.fixture
def course(tmp_path):
    """A folder with the Makefile, where each python only notes how it was called."""
    if not shutil.which("make"):
        pytest.skip("make: not installed")
    folder = tmp_path / "a folder" / "course"
    shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "tests/bench").mkdir(parents=True)
    (folder / "tests/bench/overhead.py").touch()
    for python in (".venv/bin/python", ".venv-colab/bin/python", "the python"):
        (folder / python).parent.mkdir(parents=True, exist_ok=True)
        (folder / python).write_text(
            '#!/bin/sh\nfor a in "$0" "$@"; do printf "%s|" "$a"; done >> calls\necho >> calls\n'
        )
        (folder / python).chmod(0o755)
    return folder


def make(folder, *args, python="./the python"):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", *args, *([f"PYTHON={python}"] if python else [])]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    calls = folder / "calls"
    return done, calls.read_text().splitlines() if calls.exists() else []


def test_lab(course):
    done, calls = make(course, "lab", "PIP_ARGS=--find-links wheels", "LAB_ARGS=--no-browser")
    assert done.returncode == 0, done.stderr
    as_root = "--allow-root|" if os.getuid() == 0 else ""
    assert calls == [
        "./the python|tools/environment.py|--find-links|wheels|",
        f".venv/bin/python|-m|jupyterlab|{'|'.join(LAB)}|{as_root}--no-browser|",
    ]


def test_the_gpu_s_tests_run_by_the_interpreter_given_and_nothing_is_installed(course):
    done, calls = make(course, "test-gpu", "TEST_ARGS=-x")
    assert done.returncode == 0, done.stderr
    assert [c.split("|")[:2] for c in calls] == [["./the python", "-c"], ["./the python", "-c"], ["./the python", "-m"]]
    assert calls[-1] == "./the python|-m|pytest|-m|gpu|-rA|tests/gpu/test_real_gpu.py|-x|"


def test_without_a_device_the_gpu_s_tests_say_so(course):
    (course / "the python").write_text('#!/bin/sh\ncase "$2" in *is_available*) echo no device >&2; exit 1;; esac\n')
    done, _ = make(course, "test-gpu")
    assert done.returncode != 0 and "no device" in done.stderr


def test_test_runs_style_and_every_test_and_notebook(course):
    done, calls = make(course, "test", "TEST_ARGS=-x")
    assert done.returncode == 0, done.stderr
    modules = [call.split("|")[2] for call in calls if "|-m|" in call]
    assert modules == ["ruff", "ruff", "pytest"]
    assert calls[0] == "./the python|tools/environment.py|--test|"
    assert "|--nbval|" in calls[-1] and calls[-1].endswith("|tests|notebooks|-x|")


@pytest.mark.parametrize("fails", ["ruff", "pytest"])
def test_test_fails_where_a_part_fails(course, fails):
    (course / ".venv/bin/python").write_text(f'#!/bin/sh\n[ "$2" != {fails} ]\n')
    assert make(course, "test")[0].returncode != 0


def test_bench_runs_each_as_a_module(course):
    done, calls = make(course, "bench")
    assert done.returncode == 0, done.stderr
    assert calls[-1] == ".venv/bin/python|-m|tests.bench.overhead|"


def test_clean_leaves_the_rest(course):
    make(course, "clean")
    assert {path.name for path in course.iterdir()} == {"Makefile", "tools", "tests", "the python"}


def test_help_names_every_target(course):
    done, _ = make(course, "help")
    listed = re.findall(r"^ +make ([a-z-]+) ", done.stdout, re.M)
    assert set(listed) == set(TARGETS) - {"test-environment"}


def test_the_readme_names_only_targets_that_exist():
    for page in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert set(re.findall(r"`make ([a-z-]+)", text)) | {"lab"} <= set(TARGETS)


def test_the_readme_gives_the_lines_that_make_runs():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    nbval = re.search(r"^NBVAL := (.*)$", MAKEFILE, re.M)[1]
    assert f"-m pytest tests notebooks {nbval}\n" in text
    assert text.count(f"python -m jupyterlab {LAB[0]}\n") == 2


def test_make_lab_really_starts(tmp_path):
    """The real command in the real environment: it prints an address, and something answers there."""
    if Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("lab: these tests do not run in the .venv that make builds")
    if not (ROOT / "notebooks/00_start_here.ipynb").exists():
        pytest.skip("notebooks: 00_start_here is not written yet")
    private = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    log = tmp_path / "log"
    with log.open("w") as out:
        # With port 0 the system chooses a free one.
        command = ["make", "lab", "LAB_ARGS=--no-browser --port=0"]
        lab = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | private, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        for _ in range(120):
            address = re.search(r"http://(?:localhost|127\.0\.0\.1):\d+/\S+", log.read_text())
            if address or lab.poll() is not None:
                break
            time.sleep(0.5)
        assert address, log.read_text()
        assert "/lab/tree/notebooks/00_start_here.ipynb?token=" in address[0]
        with urllib.request.urlopen(address[0], timeout=30) as answer:
            assert answer.status == 200 and b"jupyter-config-data" in answer.read()
    finally:
        os.killpg(lab.pid, signal.SIGTERM)
        lab.wait(30)
