"""Line charts: what the twin says, where the lines run, and that nothing of matplotlib's settings is changed."""

import importlib
import math
import os
import re
import subprocess
import sys
import warnings

import pytest
import torch

from helpers.figures import curves
from tests.figures.sound import SVG, check_sound, check_svg, texts
from tests.figures.test_palette import contrast, distance

drawing = importlib.import_module("helpers.figures.curves_svg")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FALL = [2.0 * 0.9**i for i in range(51)]


def paths(figure, colour):
    """Points of each stroke of a colour."""
    found = []
    for path in check_svg(figure.svg).iter(f"{SVG}path"):
        if f"stroke: {colour}" in path.get("style", ""):
            numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", path.get("d"))]
            found.append((list(zip(numbers[::2], numbers[1::2], strict=True)), path.get("style")))
    return found


def longest(figure, i):
    return max((points for points, _ in paths(figure, drawing.STYLES[i][0])), key=len)


def test_twin():
    figure = curves({"SGD": FALL, "Adam": [(0, 2), (50, 0.25)]}, title="Two ways down", marks=[(20, "lr halved"), 30])
    check_sound(figure)
    assert figure.text == "\n".join(
        [
            "Two ways down",
            "Line chart of loss by step, 2 lines.",
            "",
            "SGD: 51 values, step 0 to 50",
            "  first 2, last 0.01031",
            "  largest 2 at step 0; smallest 0.01031 at step 50",
            "  step  0      10      20       30       40       50",
            "  loss  2  0.6974  0.2432  0.08478  0.02956  0.01031",
            "",
            "Adam: 2 values, step 0 to 50",
            "  first 2, last 0.25",
            "  largest 2 at step 0; smallest 0.25 at step 50",
            "",
            "Marked: step 20: lr halved; step 30",
        ]
    )
    assert figure.alt == (
        "Line chart: Two ways down. loss by step. SGD falls from 2 to 0.01031; Adam falls from 2 to 0.25."
    )
    shown = texts(figure.svg)
    for said in ("Two ways down", "loss", "step", "SGD", "Adam", "lr halved", "0", "10"):
        assert said in shown


def test_lines_run_where_the_values_are():
    figure = curves({"a": [0.0, 1.0, 4.0], "b": [4.0, 1.0, 0.0]}, title="t")
    (x0, y0), (x1, y1), (x2, y2) = longest(figure, 0)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.02)
    assert (y0 - y2) == pytest.approx(4 * (y0 - y1), abs=0.05) and y0 > y2
    assert [y for _, y in longest(figure, 1)] == pytest.approx([y2, y1, y0], abs=0.02)
    low = curves({"a": [1.0, 10.0, 100.0]}, title="t", log=True)
    (_, y0), (_, y1), (_, y2) = longest(low, 0)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.02) and y0 > y1


def test_log_scale_has_a_floor():
    """Zeros, negatives and rounding noise are drawn on the floor, and both drawing and twin say where it is."""
    noise = curves({"w": [math.exp(-i) for i in range(60)]}, title="t", log=True, y="error")
    check_sound(noise)
    assert "Line chart of error (log scale, drawn down to 1e-8) by step" in noise.text
    assert "last below 1e-8" in noise.text and "smallest below 1e-8, first at step 19" in noise.text
    assert not re.search(r"e-(?:9|1\d|2\d)", noise.text)
    assert any("what is below 1e-8 is drawn at the bottom" in t for t in texts(noise.svg))
    assert "< 1e-8" in texts(noise.svg)
    points = longest(noise, 0)
    assert len({y for _, y in points[19:]}) == 1 and points[18][1] < points[19][1]
    zero = curves({"w": [1.0, 0.5, 0.0, -1.0]}, title="t", log=True)
    check_sound(zero)
    assert "drawn down to 0.1" in zero.text and "last -1" in zero.text
    points = longest(zero, 0)
    assert points[2][1] == points[3][1] > points[1][1]
    assert "drawn down" not in curves({"w": [1.0, 0.5]}, title="t", log=True).text


def test_noise_is_a_bound_on_any_scale():
    assert "last below 1e-8" in curves({"w": [1.0, 1e-12]}, title="t").text
    assert "last within 1e-8 of 0" in curves({"w": [1.5, -0.5, -3e-16]}, title="t").text
    # the largest of the chart counts, not of the line
    assert "first below 1e-5" in curves({"w": [1e-6, 1e-7], "v": [1234.5]}, title="t").text
    # digits that differ in the noise give the same twin
    one, two = ([1.0, 0.3, 0.1 + e, 0.1, 1e-17 * (1 + e)] for e in (1e-15, -1e-15))
    assert curves({"w": one}, title="t").text == curves({"w": two}, title="t").text
    counts = curves({"passes": [0, 1, 12_345_678_901]}, title="t").text
    assert "first 0, last 12,345,678,901" in counts


def test_no_numbers():
    figure = curves({"lr 1": [1.0, 2.0, math.nan, math.nan, math.inf, 3.0, -math.inf]}, title="t")
    check_sound(figure)
    assert "nan at step 2, 3" in figure.text and "\n  inf at step 4" in figure.text
    assert "-inf at step 6" in figure.text
    assert "largest 3 at step 5; smallest 1 at step 0" in figure.text
    assert "lr 1 (nan at 2)" in texts(figure.svg)
    assert not re.search(r"\bnan\b", "".join(p.get("d", "") for p in check_svg(figure.svg).iter(f"{SVG}path")))
    many = curves({"w": [1.0] + [math.nan] * 9}, title="t").text
    assert "nan at step 1, 2, 3 and 6 more" in many
    for log in (False, True):
        nothing = curves({"w": [math.nan] * 3}, title="t", log=log)
        check_sound(nothing)
        assert "no finite value" in texts(nothing.svg) and "nan at step 0, 1, 2" in nothing.text


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "values",
    [[0.5], [0.0], [-3.0], [7.0] * 4, [0.0] * 3, [-1.0, -2.0], [1e-300, 2e-300], [1e299, -1e299], [1e305, 1.0],
     [(3, 1.0), (3, 2.0)], [(5, 1.0), (1, 2.0)], [1.0, 1.0 + 1e-15], list(range(30_000))],
    ids=lambda values: str(values)[:30],
)  # fmt: skip
def test_odd_values(values, log):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = curves({"w": values}, title="t", log=log)
    check_sound(figure)
    root = check_svg(figure.svg)
    width, height = float(root.get("width")), float(root.get("height"))
    drawn = paths(figure, drawing.STYLES[0][0])
    assert drawn
    for points, _ in drawn:
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    assert any(t.startswith("w") for t in texts(figure.svg))


def test_one_point():
    figure = curves({"w": [(12, 0.5)]}, title="t")
    assert figure.text == "t\nLine chart of loss by step, 1 line.\n\nw: 1 value, at step 12\n  0.5"
    assert "12" in texts(figure.svg)


def test_tensors_and_arrays():
    plain = curves({"a": [1.0, 2.0, 4.0]}, title="t")
    w = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for values in (w, w.detach().numpy(), list(w), tuple(w.detach().numpy()), iter([1, 2, 4])):
            assert curves({"a": values}, title="t") == plain
        pairs = torch.tensor([[0.0, 1.0], [1.0, 2.0], [2.0, 4.0]])
        assert curves({"a": pairs}, title="t") == plain


def boxes_of_labels(figure, names):
    found = {}
    for element in check_svg(figure.svg).iter(f"{SVG}text"):
        if element.text in names and element.get("font-weight"):
            x, y = float(element.get("x")), float(element.get("y"))
            wide = drawing.width_of(element.text, 13, mono=False)
            found[element.text] = (x, y - 11, x + wide, y + 3)
    return found


@pytest.mark.parametrize("count", range(1, 7))
@pytest.mark.parametrize("apart", [0.0, 0.001, 0.02, 0.5])
@pytest.mark.parametrize("short", [0, 7])
def test_names_do_not_meet(count, apart, short):
    """Each line has its name in its colour, inside the drawing, on no other name; lines of all lengths."""
    lines = {f"variant {k}": [1 / (1 + s) + k * apart for s in range(60 - short * k)] for k in range(count)}
    figure = curves(lines, title="t")
    boxes = boxes_of_labels(figure, set(lines))
    assert set(boxes) == set(lines)
    root = check_svg(figure.svg)
    for name, box in boxes.items():
        assert box[0] >= 0 and box[2] <= float(root.get("width")) and box[1] >= 0
        assert box[3] <= float(root.get("height"))
        assert not any(drawing.meets(box, other) for key, other in boxes.items() if key != name)
    if short:  # and on no line
        for k in range(count):
            way = longest(figure, k)
            assert not any(drawing.crosses(box, way) for box in boxes.values())
    fills = {e.text: e.get("fill") for e in root.iter(f"{SVG}text") if e.text in lines}
    assert [fills[name] for name in lines] == [drawing.STYLES[k][0] for k in range(count)]


def test_told_apart_without_colour():
    figure = curves({f"v{k}": [k, k + 1.0] for k in range(6)}, title="t")
    dashes = set()
    for colour, _ in drawing.STYLES:
        styles = [style for points, style in paths(figure, colour) if points[0] != points[-1]]
        assert len(styles) == 1
        dashes.add(re.sub(r"stroke: #\w+|stroke-width: [\d.]+", "", styles[0]))
    assert len(dashes) == 6
    for colour, _ in drawing.STYLES:
        assert contrast(colour, "#ffffff") >= 4.5
    for kind in ("deuteranopia", "protanopia", "tritanopia", "full colour vision"):
        assert distance(drawing.STYLES[0][0], drawing.STYLES[1][0], kind) > 30, kind


def test_long_words_are_whole_in_the_twin():
    name, title = "a name that is far too long to stand beside the end of a line", "word " * 40
    figure = curves({name: [1, 2]}, title=title, y="error <&> $x_1$", marks=[(0.5, "mark " * 20)])
    check_sound(figure)
    assert f"\n{name}: 2 values" in figure.text and title.strip() in figure.text
    shown = texts(figure.svg)
    assert name not in shown and any(t.startswith("a name") and "…" in t for t in shown)
    assert " ".join(t for t in shown if t.startswith("word")) == title.strip()
    assert "error <&> $x_1$" in shown


def test_awkward_names():
    lines = {"<script>": [1, 2], "日本": [2, 3], "a\nb\u202e": [3, 4], "": [4, 5]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = curves(lines, title="t")
    check_sound(figure)
    assert {"<script>", "日本", "a b\\u202e"} <= set(texts(figure.svg))


def test_long_lines_stay_small_and_keep_their_peaks():
    values = [0.0] * 50_000
    values[31_234] = 9.0
    figure = curves({"w": values}, title="t")
    check_sound(figure, most=100_000)
    points = longest(figure, 0)
    assert min(y for _, y in points) < points[0][1] - 150
    assert "largest 9 at step 31,234" in figure.text


def test_settings_are_left_alone():
    import matplotlib

    with matplotlib.rc_context({"lines.linewidth": 9, "text.color": "red", "font.size": 40, "path.simplify": True}):
        before = dict(matplotlib.rcParams)
        backend = matplotlib.rcParams._get("backend") if hasattr(matplotlib.rcParams, "_get") else None
        styled = curves({"a": FALL}, title="t", log=True)
        assert dict(matplotlib.rcParams) == before
        if backend is not None:
            assert matplotlib.rcParams._get("backend") == backend
    assert styled == curves({"a": FALL}, title="t", log=True)


CODE = """
import sys
from helpers.figures import curves
assert "matplotlib" not in sys.modules
figure = curves({"a": [1.0, 0.3, 1e-12], "b": [(0, 2), (9, 1)]}, title="t", log=True, marks=[(1, "here")])
assert "matplotlib.pyplot" not in sys.modules
print(figure.html, figure.text)
"""


def test_same_bytes_in_two_processes_and_no_pyplot():
    def out(seed):
        done = subprocess.run(
            [sys.executable, "-c", CODE], capture_output=True, cwd=ROOT, timeout=300,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    first = out("1")
    assert b"data:image/svg+xml" in first and first == out("2")
    assert b"matplotlib" not in first


@pytest.mark.parametrize(
    "lines, message",
    [
        ([1, 2], "takes a dict"),
        ({}, "1 to 6 lines; 0"),
        ({str(i): [1] for i in range(7)}, "1 to 6 lines; 7"),
        ({"a": []}, "Line 'a' has no values"),
        ({"a": 3}, "Line 'a': a list of numbers was expected, not a int"),
        ({"a": [1, "two"]}, "Line 'a', value 1: .*'two'"),
        ({"a": [1, None]}, "Line 'a', value 1: a NoneType is no number"),
        ({"a": [(1, 2, 3)]}, "Line 'a', value 0: a number or a pair"),
        ({"a": [(math.nan, 2)]}, "x is nan"),
        ({"a": [torch.ones(3)]}, "Line 'a', value 0: a number or a pair"),
        ({"a": ["12"]}, "Line 'a', value 0"),
        ({"a": [1j]}, "Line 'a', value 0"),
    ],
)
def test_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        curves(lines, title="t")


def test_marks_refused():
    with pytest.raises(ValueError, match="mark"):
        curves({"a": [1]}, title="t", marks=["here"])
    with pytest.raises(ValueError, match="mark"):
        curves({"a": [1]}, title="t", marks=[math.inf])
