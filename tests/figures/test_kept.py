"""The ledger: totals, what is not counted, what was not kept, folding, and the reasons."""

from dataclasses import replace

import pytest

from helpers import data
from helpers.figures import graph_figure, kept_figure
from helpers.figures.ledger import Row
from helpers.figures.why import ARGUMENTS, MASK, REASONS, reason
from tests.figures.recordings import SAMPLES, Tape, Value
from tests.figures.sound import texts
from tests.figures.twins import check_kept


def test_the_example():
    """The course's own example, to the letter of its facts."""
    figure = kept_figure(SAMPLES["layer"]())
    assert figure.nbytes == 10_240
    lines = figure.text.split("\n")
    assert lines[0] == "Kept for backward: 2 tensors, 10,240 bytes"
    assert lines[1].split("  ")[1] == "MmBackward0"
    assert lines[1].endswith("needed for the gradient of W")
    assert lines[2].endswith("tells where the input was positive")
    assert lines[3] == "Not kept: mm (2,048 B, freed on line 6), add (2,048 B, freed on line 6)"
    assert [row.counted for row in figure.rows] == [8_192, 2_048]
    assert all(isinstance(row, Row) for row in figure.rows)


@pytest.mark.parametrize("name", SAMPLES)
def test_rows_add_up(name):
    recording = SAMPLES[name]()
    for moment in range(-1, len(recording.events), max(1, len(recording.events) // 7)):
        figure = kept_figure(recording, moment)
        assert figure.nbytes == sum(row.counted for row in figure.rows) == data.kept_bytes(recording, moment)
        assert figure.nbytes == sum(row.counted for row in figure.all_rows)


def test_shared_storage_counts_once():
    figure = kept_figure(SAMPLES["square"]())
    assert [row.counted for row in figure.rows] == [16, 0]
    assert "same storage as a above: counted once" in figure.text


def test_parameters_are_told_but_not_counted():
    t = Tape("")
    w = t.tensor("w", (8, 8), parameter=True)
    x = t.tensor("x", (8, 8), grad=True)
    t.capture(t.op("MmBackward0", [x, w], (8, 8), saved=[("self", x), ("mat2", w)], line=1))
    figure = kept_figure(t.done())
    assert figure.nbytes == 256
    assert "not counted, since alive anyway: 1 parameter (256 B)" in figure.text


def test_a_view_keeps_its_whole_storage():
    figure = kept_figure(SAMPLES["states"]())
    row = figure.rows[-1]
    assert (row.saved.nbytes, row.counted) == (16, 16_384)
    assert "keeps its whole storage of 16,384 B" in figure.text


def test_many_rows_fold_by_operation():
    figure = kept_figure(SAMPLES["transformer"]())
    assert len(figure.all_rows) > 40 > len(figure.rows)
    assert "87 rows, folded by operation" in figure.text
    assert figure.text_full().count("Backward0 ") == 87
    assert sum(row.count for row in figure.rows) == 87


def test_equal_results_that_were_freed_stand_together():
    assert "Not kept: 12 × mm (512 B each, freed on line 1)" in kept_figure(SAMPLES["transformer"]()).text


def test_dropout_masks_are_called_so():
    """By what drew them: native_dropout's second result, or what bernoulli_ filled; another factor is none."""
    t = Tape("")
    x = t.tensor("x", (4,), grad=True)
    place = t.place(1)
    at = t.event("op", "forward", op="aten.empty_like", place=place)
    s = t.storage(16, "other", born=at, shape=(4,), op="aten.empty_like", place=place)
    t.events[at] = replace(t.events[at], allocated=(s,))
    t.event("op", "forward", op="aten.bernoulli_", place=place)
    mask = Value(s, (4,))
    y = t.op("MulBackward0", [x, None], (4,), saved=[("other", mask)], line=1, module="1")
    factor = t.tensor("", (4,))
    t.capture(t.op("MulBackward0", [y, None], (4,), saved=[("other", factor)], line=2))
    recording = t.done()
    drawn, other = kept_figure(recording).rows
    assert (drawn.why, other.why) == (MASK, "needed for the gradient of its first input")
    assert "line 1, in module 1  the dropout mask: tells which elements were dropped" in kept_figure(recording).text
    assert "dropout mask" in texts(graph_figure(recording).svg)


def test_reasons():
    named = {"other": "W"}
    assert reason("Mul", "self", False, False, named) == "needed for the gradient of W"
    assert reason("Mul", "self", False, False, {}) == "needed for the gradient of its second input"
    assert reason("Relu", "result", True, False, {}) == "tells where the input was positive"
    assert reason("Unheard", "self", False, False, {}) == "its backward formula uses it"
    assert reason("Unheard", "result", True, False, {}) == "its backward formula uses its own output"
    assert reason("Scale", "saved_tensors", False, True, {}) == "its own backward() asked for it"
    assert len(REASONS) >= 60


def test_reasons_are_short_and_name_real_arguments():
    for operation, arguments in REASONS.items():
        for argument, why in arguments.items():
            assert len(why) <= 70, (operation, argument)
            assert why[0].islower() or why[0] == "{"
            if "{" in why:
                role = why[why.index("{") + 1 : why.index("}")]
                assert role in ARGUMENTS[operation], (operation, argument)


def test_another_name_with_braces():
    assert reason("Mul", "self", False, False, {"other": "{x}"}) == "needed for the gradient of {x}"


@pytest.mark.parametrize(
    ("leaves", "parameters", "words"),
    [
        (0, 0, "nothing, 0 bytes"),
        (1, 0, "1 tensor, a leaf that is alive anyway (16 B): 0 bytes more"),
        (2, 0, "2 tensors, both leaves that are alive anyway (32 B): 0 bytes more"),
        (0, 3, "3 tensors, all parameters that are alive anyway (48 B): 0 bytes more"),
        (1, 1, "2 tensors, both alive anyway: 1 parameter and 1 leaf (32 B): 0 bytes more"),
    ],
)
def test_what_is_alive_anyway_costs_nothing_more(leaves, parameters, words):
    t = Tape("")
    made = [t.tensor(f"x{i}", (4,), grad=True, category="parameters") for i in range(leaves)]
    made += [t.tensor(f"w{i}", (4,), parameter=True) for i in range(parameters)]
    y = t.tensor("y", (4,), grad=True, category="parameters")
    t.capture(t.op("SinBackward0", [*made, y], (4,), saved=[(f"a{i}", v) for i, v in enumerate(made)], line=1))
    recording = t.done()
    assert kept_figure(recording).text.split("\n")[0] == f"Kept for backward: {words}"
    check_kept(recording, kept_figure(recording).text)
