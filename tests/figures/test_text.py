"""Words and numbers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.figures import text


@pytest.mark.parametrize(
    ("n", "expected"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.00 kB"), (8_192, "8.19 kB"), (99_960, "100 kB"), (999_600, "1.00 MB"),
     (14 * 10**9, "14.0 GB"), (2**40, "1.10 TB")],
)  # fmt: skip
def test_human(n, expected):
    assert text.human(n) == expected


def test_exact():
    assert text.exact(8_192) == "8,192 B"
    assert text.both(10_240) == "10,240 B (10.2 kB)"


@pytest.mark.parametrize("name", ["x", "layers.0.weight", "ünï", "日本", "q[0]", "0.weight", "W.t()", "i reshaped"])
def test_plain_names_stand_bare(name):
    assert text.quoted(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a  b",
        "a ",
        " a",
        "a and b",
        'a"b',
        "a\n",
        "<b>",
        "a\\b",
        "\u202ea",
        "unnamed",
        "and",
        "\x00",
        "\ud800",
        "😀",
    ],
)
def test_other_names_are_quoted_and_come_back(name):
    quoted = text.quoted(name)
    assert quoted.startswith('"') and quoted.isprintable()
    assert json.loads(quoted) == name


def test_shapes():
    assert text.shape((32, 64)) == "32×64"
    assert text.shape(()) == "scalar"


def test_operations():
    assert text.operation("MulBackward0") == "Mul"
    assert text.operation("MyFnBackward") == "MyFn"
    assert text.operation("Backward0") == "Backward0"
    assert text.operation("AccumulateGrad") == "AccumulateGrad"
    assert text.forward_operation("aten.addmm.default") == "addmm"


def test_short_keeps_both_ends():
    assert text.short("layers.0.attention.weight", 12) == "layers.…ight"
    assert len(text.short("x" * 100, 26)) == 26


def test_names_with_a_path_keep_their_end():
    assert text.short_name("layers.1.self_attn.in_proj_weight", 20) == "…attn.in_proj_weight"
    assert text.short_name("x.weight", 20) == "x.weight"
    assert text.short_name("a" * 30, 10) == text.short("a" * 30, 10)


def test_a_number_stays_with_its_unit():
    assert text.wrapped("both alive (48 B): 0 bytes more", 15) == ["both alive", "(48 B): 0 bytes", "more"]
    assert text.wrapped("a  b\nc", 3) == ["a b", "c"] and text.wrapped("", 3) == [""]


def test_figures_load_fast_and_light():
    """No torch, no matplotlib, no numpy behind the pictures."""
    root = Path(__file__).resolve().parents[2]
    code = (
        f"import sys, types; sys.path.insert(0, {str(root)!r}); package = types.ModuleType('helpers'); "
        f"package.__path__ = [{str(root / 'helpers')!r}]; sys.modules['helpers'] = package; import helpers.figures; "
        "print([m for m in ('torch', 'matplotlib', 'numpy', 'ipywidgets', 'IPython') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
