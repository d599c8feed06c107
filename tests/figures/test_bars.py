"""Bars: the artists and the twin hold the numbers that were given, the formula's too."""

import io
import math
import random
import re
import subprocess
import sys

import pytest
import torch

from helpers.figures import bars, plots
from helpers.figures.bars import BAR, MOST_BARS, MOST_PARTS, PAINTS, THIN, bars_of, draw_bars
from helpers.figures.palette import INK, PART_HATCH, PARTS
from tests.figures.plot_samples import line, patches, rects
from tests.figures.sound import check_sound, texts
from tests.figures.test_palette import BLIND, contrast, distance

GIB = 2**30


def drawn(groups, y="bytes", parts=(), grouped=False, against=None, marks=()):
    it = bars_of(groups, "t", y, "", parts, grouped, against, "formula", marks)
    return it, draw_bars(it)


def read(canvas):
    """Number of bar → part → (from, to), and number of bar → the formula's number, from the artists."""
    axes, bars_read, said = canvas.axes[0], {}, {}
    for patch in patches(axes):
        number, _, part = patch.get_label().partition(": ")
        ((x0, x1, y0, y1),) = rects(patch)
        assert y1 - y0 == pytest.approx(BAR)
        bars_read.setdefault(int(number), {})[part] = (x0, x1)
    for artist in axes.lines:
        number, _, what = artist.get_label().partition(": ")
        if what == "against":
            (a, b) = artist.get_xdata()
            assert a == b
            said[int(number)] = a
    return bars_read, said


def table(figure):
    """Rows of the twin: name → cells, split where two spaces stand."""
    rows = [re.split(r"  +", x.strip()) for x in figure.text.split("\n")[2:] if x.startswith("  ")]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("seed", range(6))
def test_stacked_bars_hold_the_numbers(seed):
    dice = random.Random(seed)
    parts = [f"part {chr(97 + k)}" for k in range(dice.randrange(1, MOST_PARTS + 1))]
    groups = {
        f"bar {k}": {p: dice.choice((0, 1, dice.randrange(GIB))) for p in parts if p == parts[0] or dice.random() < 0.8}
        for k in range(dice.randrange(1, 9))
    }
    against = {name: dice.randrange(GIB) for name in groups if dice.random() < 0.5}
    it, canvas = drawn(groups, against=against)
    found, said = read(canvas)
    for k, (name, given) in enumerate(groups.items()):
        assert {p: x1 - x0 for p, (x0, x1) in found[k].items()} == given
        ends = [x for pair in found[k].values() for x in pair]
        assert ends[0] == 0 and ends[-1] == sum(given.values()) and ends[1:-1:2] == ends[2::2]
        assert said.get(k) == against.get(name)
    assert canvas.axes[0].get_xlim()[1] >= it.top
    figure = bars(groups, title="t", against=against)
    check_sound(figure)
    for name, given in groups.items():
        assert f"{name} {plots.binary(sum(given.values()))}" in figure.alt
        if name in against:
            more = sum(given.values()) - against[name]
            assert plots.signed(more, f"{abs(more):,}") in figure.text
    drawn_words = {words.removesuffix(THIN) for words in texts(figure.svg)}
    assert all(part in drawn_words for part in it.parts)


def test_the_twin_is_a_table():
    figure = bars({"a": 2048, "b": 10_000}, title="Two bars", x="operation", against={"b": 10_003})
    assert figure.text == "\n".join(
        [
            "Two bars",
            "Bytes by operation, 2 bars. Exact bytes. KiB, MiB and GiB are 2^10, 2^20 and 2^30 B.",
            "      bytes  in binary units  formula  difference",
            "  a   2,048         2.00 KiB",
            "  b  10,000         9.77 KiB   10,003          −3",
        ]
    )
    assert figure.alt == "Bars: Two bars. Bytes by operation: a 2.00 KiB; b 9.77 KiB (formula 9.77 KiB)."
    assert {"2.00 KiB", "9.77 KiB", "3 B under the formula", "formula"} <= set(texts(figure.svg))


def test_the_published_example():
    """More parts than bars: these are the rows."""
    layer = {"LayerNorm": 33_554_432, "softmax": 268_435_456, "statistics": 32_768}
    figure = bars({"explicit": layer}, title="t", against={"explicit": 301_989_888})
    cells = table(figure)
    assert cells["softmax"] == ["268,435,456"] and cells["together"] == ["302,022,656"]
    assert cells["formula"] == ["301,989,888"] and cells["difference"] == ["+32,768"]
    assert "32,768 B over the formula" in texts(figure.svg)
    equal = bars({"a": 5}, title="t", against={"a": 5})
    assert "equal to the formula" in texts(equal.svg) and table(equal)["a"][-1] == "±0"


def test_a_bar_reaches_the_mark_of_what_it_is_equal_to():
    """Nothing is painted between them: a mark has a ground of its own only where the bar goes on behind it."""
    groups = {"equal": 1000, "a little more": 1001, "much more": 1000, "less": 500}
    said = {"equal": 1000, "a little more": 1000, "much more": 700, "less": 800}
    _, canvas = drawn(groups, against=said)
    axes = canvas.axes[0]
    found, marked = read(canvas)
    assert [found[k][""][1] for k in range(4)] == list(groups.values()) and list(marked.values()) == list(said.values())
    grounds = [artist.get_xdata()[0] for artist in axes.lines if artist.get_label() == "ground"]
    assert grounds == [700]
    canvas.savefig(page := io.BytesIO(), format="rgba", facecolor="white")
    wide, high = (round(n) for n in canvas.get_size_inches() * canvas.dpi)
    rows = [page.getvalue()[4 * wide * y : 4 * wide * (y + 1)] for y in range(high)]
    for y, to in ((BAR / 2 + 10, 1000), (BAR / 2 + 50, 1000)):  # of the first two rows, a line through the bar
        (left, top), (right, _) = (axes.transData.transform((x, y)) for x in (0, to))
        row = rows[high - round(top)]
        pixels = [row[4 * x : 4 * x + 3] for x in range(round(left) + 2, round(right))]
        paint = min(bytes.fromhex(PARTS[PAINTS[0]].fill[1:]))
        assert len(pixels) > 300 and max(min(p) for p in pixels) <= paint + 5


def test_a_part_that_is_too_thin_is_said_to_be():
    groups = {"a": {"numbers": 2**24, "deviation": 2**14, "none": 0}, "b": {"numbers": 2**28, "masks": 2**23}}
    said = set(texts(bars(groups, title="t").svg))
    assert {"numbers", "masks", "deviation (too thin to see)", "none"} <= said
    groups["c"] = {"deviation": 2**22}
    assert "deviation" in texts(bars(groups, title="t").svg)


def test_side_by_side():
    groups = {"16 bit": {"softmax": 10, "dropout": 5}, "fp32": {"softmax": 20, "dropout": 20}}
    it, canvas = drawn(groups, grouped=True, against={"fp32": {"dropout": 5}})
    found, said = read(canvas)
    assert [b.words for b in it.bars] == ["16 bit, softmax", "16 bit, dropout", "fp32, softmax", "fp32, dropout"]
    assert [next(iter(found[k].values())) for k in range(4)] == [(0, 10), (0, 5), (0, 20), (0, 20)]
    assert said == {3: 5}
    figure = bars(groups, title="t", grouped=True, against={"fp32": {"dropout": 5}})
    check_sound(figure)
    assert table(figure)["fp32, dropout"][-1] == "+15"
    assert {"16 bit", "fp32", "softmax", "dropout"} <= set(texts(figure.svg))


def test_lists_with_names_of_their_parts():
    by_list = bars({"a": [1, 2], "b": [3, 4]}, parts=["x", "y"], title="t")
    by_name = bars({"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 4}}, title="t")
    assert (by_list.text, by_list.svg) == (by_name.text, by_name.svg)


def test_numbers_that_are_no_bytes():
    ratios = {"512": 1.5, "1,024": torch.tensor(3.25, dtype=torch.float64), "2,048": 0}
    it, canvas = drawn(ratios, y="ratio", against={"512": 1.5 + 1e-14, "1,024": 3})
    found, said = read(canvas)
    assert [found[k][""] for k in range(3)] == [(0, 1.5), (0, 3.25), (0, 0)] and said == {0: 1.5 + 1e-14, 1: 3}
    figure = bars(ratios, title="t", y="ratio", x="tokens", against={"512": 1.5 + 1e-14, "1,024": 3})
    check_sound(figure)
    assert table(figure)["512"] == ["1.5", "1.5", "±0"] and table(figure)["1,024"] == ["3.25", "3", "+0.25"]
    assert "Ratio by tokens, 3 bars." in figure.text and "GiB" not in figure.text


def test_marks_are_lines_through_all():
    it, canvas = drawn({"a": 3, "b": 4}, marks=[(9, "a limit"), 2])
    axes = canvas.axes[0]
    assert [x.get_xdata()[0] for x in axes.lines if x.get_label() == "mark"] == [9, 2]
    assert axes.get_xlim()[1] >= 9
    figure = bars({"a": 3, "b": 4}, title="t", marks=[(9, "a limit"), 2])
    assert figure.text.endswith("Marked: 9: a limit; 2") and "a limit" in texts(figure.svg)
    with pytest.raises(ValueError):
        line(axes, "no such line")


def test_names_of_any_kind():
    figure = bars(
        {"<b>&\n" + "long " * 30: {"$x$ " * 20: 3}, 7: {"b": 2}}, title="t <&>", x="<&>", marks=[(1, "m" * 90)]
    )
    check_sound(figure)
    many = {f"bar number {k}": {f"part number {p}": k * p for p in range(MOST_PARTS)} for k in range(MOST_BARS)}
    check_sound(bars(many, title="all"), most=600_000)


def test_same_bytes_again_and_nothing_restyled():
    import matplotlib

    groups = {"a": {"x": 1, "y": 2}, "b": {"x": 3}}
    usual = bars(groups, title="t").svg
    with matplotlib.rc_context({"lines.linewidth": 9, "text.color": "red", "font.size": 40}):
        before = dict(matplotlib.rcParams)
        assert bars(groups, title="t").svg == usual
        assert dict(matplotlib.rcParams) == before


def test_importing_it_loads_no_matplotlib():
    code = "import sys, helpers.figures.bars\nassert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", BLIND)
def test_paints_stay_apart(kind):
    """By colour where the hatch is the same; where it is not, the hatch tells, and neighbours differ in colour too."""
    for i, a in enumerate(PAINTS):
        for j, b in enumerate(PAINTS[:i]):
            apart = distance(PARTS[a].fill, PARTS[b].fill, kind)
            assert apart >= (25 if PART_HATCH[a] == PART_HATCH[b] else 10 if i == j + 1 else 4), (a, b)
            assert i != j + 1 or PART_HATCH[a] != PART_HATCH[b]


def test_paints_can_be_read():
    for name, paint in PARTS.items():
        assert contrast(INK, paint.fill) >= 3, name
        assert contrast(paint.text, "#ffffff") >= 4.5, name
        if PART_HATCH[name]:
            assert contrast(paint.line, paint.fill) >= 3, name


@pytest.mark.parametrize(
    ("groups", "more", "words"),
    [
        ([1, 2], {}, "takes a dict of name → number or name → parts, not a list"),
        ({}, {}, "no bar"),
        ({"": 1}, {}, "a name in words was expected"),
        ({"a": {}}, {}, "Bar 'a' has no part"),
        ({"a": {"": 3}}, {}, "A part of 'a' has the name ''"),
        ({"a": 1, "b": {"x": 1}}, {}, "Give all of them parts, or none"),
        ({"a": [1, 2]}, {"parts": ["x"]}, "Bar 'a' has 2 numbers; `parts` has 1 names"),
        ({"a": 1.5}, {}, "Bar 'a' is 1.5; a whole number of bytes"),
        ({"a": {"x": -1}}, {}, "Bar 'a', part 'x', is -1"),
        ({"a": "3"}, {}, "is a str"),
        ({"a": True}, {"y": "ratio"}, "is a bool; a number was expected"),
        ({"a": math.nan}, {"y": "ratio"}, "is nan; a number of 0 or more"),
        ({"a": -0.5}, {"y": "ratio"}, "is -0.5"),
        ({"a": torch.ones(2)}, {}, "is a Tensor of several numbers; one was expected"),
        ({"a": 1}, {"against": {"b": 1}}, "`against` names 'b', and there is no such bar. The bars are a."),
        ({"a": 1}, {"against": [1]}, "`against` is a dict of name → number, not a list"),
        ({"a": 1}, {"against": {"a": -1}}, "`against`, 'a', is -1"),
        ({"a": 1}, {"grouped": True}, "'a' is a number and has none"),
        ({"a": {"x": 1}}, {"grouped": True, "against": {"a": 1}}, "a number for each part of 'a'"),
        ({"a": {"x": 1}}, {"grouped": True, "against": {"a": {"y": 1}}}, "names 'y' of 'a'"),
        ({"a": 1}, {"marks": ["b"]}, "A mark is a str"),
        ({"a": 1}, {"marks": "b"}, "`marks` a list of values"),
        ({str(k): 1 for k in range(MOST_BARS + 1)}, {}, "33 bars of 0 parts are given"),
        ({"a": {str(k): 1 for k in range(MOST_PARTS + 1)}}, {}, "1 bar of 13 parts are given"),
    ],
)
def test_bars_refuse(groups, more, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        bars(groups, title="t", **more)


def test_from_the_top():
    import helpers

    assert helpers.bars is bars and "bars" in helpers.__all__
