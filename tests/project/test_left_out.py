"""What a run says it left out, and which skips it refuses where REQUIRE names things."""

import os
import shutil
import subprocess
import sys

import pytest

from tools.stamp import ROOT

TESTS = """
import pytest

def test_passes(): pass
def test_named(): pytest.skip("browser: no chromium found")
@pytest.mark.skipif(True, reason="gpu: no CUDA device")
def test_marked(): pass
@pytest.mark.xfail(reason="not yet")
def test_expected_to_fail(): assert False
"""
MODULE = 'import pytest\npytest.skip("network: no index", allow_module_level=True)\n'


@pytest.fixture
def run(tmp_path):
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(required, *arguments, **files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(tmp_path)]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"REQUIRE": required}, capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout.splitlines()

    return run


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_the_last_line_says_what_was_left_out(run, workers):
    code, lines = run("", *workers, test_some=TESTS, test_module=MODULE)
    assert code == 0
    assert lines[-1] == "Left out: browser: no chromium found (1); gpu: no CUDA device (1); network: no index (1)"


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_required_thing_may_not_be_missing(run, workers):
    code, lines = run("browser", *workers, test_some=TESTS)
    assert code == 1
    assert "required here, yet skipped: Skipped: browser: no chromium found" in "\n".join(lines)
    assert lines[-1] == "Left out: gpu: no CUDA device (1)"


def test_a_required_thing_may_not_skip_a_whole_module(run):
    code, lines = run("network", test_module=MODULE)
    assert code != 0 and "required here, yet skipped" in "\n".join(lines)


def test_where_things_are_required_each_skip_names_one(run):
    code, lines = run("network", test_some='import pytest\ndef test_some(): pytest.skip("later")\n')
    assert code == 1 and "a skip must name what is missing" in "\n".join(lines)


def test_nothing_left_out(run):
    assert run("browser", test_some="def test_some(): pass\n")[1][-1] == "Left out: nothing"
