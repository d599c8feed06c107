"""The files as a whole: what must not stand in them, and that their links lead somewhere."""

import re
import subprocess
from pathlib import Path

import pytest

from tools.stamp import ROOT

# Spelled so that this file does not match itself.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.])/(?:work|root|home|Users)/\w|\b[A-Z]:\\Users\b",
    "a package registry's host": r"\b(?:pypi|pythonhosted|npmjs)\.(?:org|com)\b|\bdeb\.debian\.org\b",
    "how the course was made": r"\b(?:coding|last|next|earlier|previous) ses[s]ions?\b|\b(?:AI|coding) a[g]ents?\b"
    r"|\b(?:C[E]O|Cl[a]ude|Anthr[o]pic|Ch[a]tGPT|work[p]lace)\b",
}
# Tests show on purpose what must not be shown.
MAY_SHOW_PATHS = ("tests/",)


def tracked():
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("git: this is no clone")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def text_of(path):
    data = path.read_bytes()
    return None if b"\0" in data else data.decode("utf-8")


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_forbidden(what):
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if what.startswith("a path") and name.startswith(MAY_SHOW_PATHS):
            continue
        for number, line in enumerate((text_of(path) or "").splitlines(), 1):
            if match := re.search(FORBIDDEN[what], line):
                found.append(f"{name}:{number}: {match[0]}")
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of one machine", "see /home" + "/someone/course"),
        ("a package registry's host", "https://py" + "pi.org/simple"),
        ("how the course was made", "as the last ses" + "sion left it"),
        ("how the course was made", "an AI ag" + "ent wrote this"),
    ],
)
def test_the_search_finds(what, line):
    assert re.search(FORBIDDEN[what], line)


def test_lines_end_as_on_linux():
    assert [path.name for path in tracked() if b"\r\n" in path.read_bytes()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_ci_is_one_script():
    workflow = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    assert "- run: .ci/run" in workflow
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "set -euo pipefail" in script and re.search(r'required="[^"]*\bbrowser\b', script)


def test_sizes_stay_small():
    assert [path.name for path in tracked() if Path(path).stat().st_size > 5 * 2**20] == []
