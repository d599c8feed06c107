"""predict and reveal, as learners use them: before, late, twice, not at all, and with what is no answer."""

import json
import re

import numpy as np
import pytest
import torch

from helpers import LessonError, predict, reset, reveal
from helpers.lessons import answers, predictions
from helpers.lessons.predictions import parse

from .conftest import Kernel

CHOICES = {8_192: "only x", 10_240: "x and one 32×16 tensor", 14_336: "x and three 32×16 tensors", 0: "nothing"}
YES_NO = {True: "yes, at once", False: "no"}
ROWS = ["x", "the product", "y"]
MIME = "application/vnd.gradients-and-intermediates.prediction+json"
pytestmark = pytest.mark.usefixtures("fresh")


def ask(answer=None, **more):
    predict("kept", "How many bytes?", **({"choices": CHOICES, "unit": "B", "answer": answer} | more))


def said(capsys, measured, name="kept"):
    """The text of a reveal."""
    capsys.readouterr()
    reveal(name, measured)
    return capsys.readouterr().out.removesuffix("\n")


def test_unanswered(capsys):
    assert ask() is None
    assert capsys.readouterr().out == (
        "Predict: How many bytes?\n"
        "  ○ 8,192 B: only x\n"
        "  ○ 10,240 B: x and one 32×16 tensor\n"
        "  ○ 14,336 B: x and three 32×16 tensors\n"
        "  ○ 0 B: nothing\n"
        "Run this cell to answer here, or answer in its code: `answer=8192` (or 10240, 14336, 0).\n"
    )
    assert said(capsys, 10_240) == "No prediction this time. Measured: 10,240 B: x and one 32×16 tensor."


def test_right(capsys):
    ask(10_240)
    assert capsys.readouterr().out.endswith("Your answer: 10,240 B: x and one 32×16 tensor.\n")
    assert said(capsys, 10_240) == "You predicted 10,240 B, and so it is: x and one 32×16 tensor."


def test_wrong(capsys):
    ask(14_336)
    assert said(capsys, 10_240) == (
        "You predicted 14,336 B: x and three 32×16 tensors. Measured: 10,240 B: x and one 32×16 tensor."
    )


def test_none_of_the_choices(capsys):
    ask(0)
    text = said(capsys, 12_288)
    assert text.startswith("You predicted 0 B: nothing. Measured: 12,288 B, which is none of the choices.")
    assert said(capsys, "x").count("Measured: `'x'`, which is none of the choices.") == 1


@pytest.mark.parametrize(
    "measured",
    [np.int64(10_240), np.float32(10_240), np.array(10_240), torch.tensor(10_240), torch.tensor(10_240.0), 10_240.0],
    ids=lambda value: f"{type(value).__name__} {getattr(value, 'dtype', '')}",
)
def test_measured_as_tensor_or_numpy_scalar(capsys, measured):
    ask(10_240)
    assert said(capsys, measured) == "You predicted 10,240 B, and so it is: x and one 32×16 tensor."


@pytest.mark.parametrize("measured", [True, np.True_, torch.tensor(True)], ids=repr)
def test_yes_and_no(capsys, measured):
    predict("kept", "Is it freed?", choices=YES_NO, answer=True)
    assert said(capsys, measured) == "You predicted “yes, at once”, and so it is."
    assert "none of the choices" in said(capsys, 1)
    assert said(capsys, False) == "You predicted “yes, at once”. Measured: “no”."


def test_true_is_not_one(capsys):
    predict("one", "Which?", choices={1: "one", 2: "two"}, answer=1)
    assert "`True`, which is none of the choices" in said(capsys, True, "one")
    with pytest.raises(LessonError, match="True is none of the choices"):
        predict("one", "Which?", choices={1: "one", 2: "two"}, answer=True)


@pytest.mark.parametrize(
    "measured, message",
    [
        (torch.ones(2, 3), "2×3 numbers"),
        (np.ones(4), "4 numbers"),
        (None, "NoneType"),
        ([1], "list"),
        (torch.ones((), device="meta"), "cannot be read"),
        (torch.tensor(1j), "complex"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_measured_as_something_else(measured, message):
    ask()
    with pytest.raises(LessonError, match=message):
        reveal("kept", measured)


def test_reveal_before_its_predict_names_the_cell():
    with pytest.raises(LessonError, match=r'Run the cell with predict\("kept", …\) first'):
        reveal("kept", 1)
    with pytest.raises(LessonError):
        reveal(None, 1)


@pytest.mark.parametrize(
    "answer, message",
    [
        ("10240", "in quotes it is text. Write answer=10240"),
        ("10,240 B", "in quotes it is text. Write answer=10240"),
        ("only x", "answer by the key, answer=8192"),
        (10_241, "is none of the choices. The choices: 8192 (only x), 10240"),
        (torch.ones(2), "holds 2 numbers"),
        ([8_192], "the answer is a list"),
    ],
    ids=str,
)
def test_an_answer_that_is_no_choice(answer, message):
    with pytest.raises(LessonError, match=re.escape(message)):
        ask(answer)


def test_a_refused_answer_changes_nothing(capsys):
    ask(14_336)
    with pytest.raises(LessonError):
        ask(3)
    assert said(capsys, 10_240).startswith("You predicted 14,336 B")


def test_the_last_answer_before_the_reveal_counts(capsys):
    ask(14_336)
    ask(10_240)
    assert said(capsys, 10_240) == "You predicted 10,240 B, and so it is: x and one 32×16 tensor."


def test_answered_late(capsys):
    ask()
    said(capsys, 10_240)
    ask(10_240)
    assert "\nYour answer, given after the reveal: 10,240 B: x and" in capsys.readouterr().out
    assert said(capsys, 10_240) == (
        "No prediction this time. Measured: 10,240 B: x and one 32×16 tensor.\n"
        "After the reveal you answered 10,240 B, which is what was measured."
    )


def test_answered_otherwise_after_the_reveal(capsys):
    ask(14_336)
    said(capsys, 10_240)
    ask(0)
    first, second = said(capsys, 10_240).split("\n")
    assert first.startswith("You predicted 14,336 B")
    assert second == "After the reveal you answered 0 B, which was not measured."
    ask(14_336)
    assert "After" not in said(capsys, 10_240)


def test_revealed_twice_says_the_same(capsys):
    ask(10_240)
    assert said(capsys, 10_240) == said(capsys, 10_240)


def test_asked_again_keeps_the_answer(capsys):
    ask(14_336)
    ask()
    assert capsys.readouterr().out.endswith("Your answer: 14,336 B: x and three 32×16 tensors.\n")
    assert said(capsys, 10_240).startswith("You predicted 14,336 B")


def test_a_name_used_twice_for_another_question(capsys):
    ask(14_336)
    said(capsys, 10_240)
    predict("kept", "Is it freed?", choices=YES_NO)
    assert said(capsys, False) == "No prediction this time. Measured: “no”."
    ask(14_336)
    predict("kept", "How many bytes at the peak?", choices=CHOICES, unit="B")
    assert said(capsys, 0).startswith("No prediction this time.")


def test_choices_that_changed_drop_the_answer(capsys):
    ask(14_336)
    ask(choices={8_192: "only x", 10_240: "two"})
    assert said(capsys, 10_240) == "No prediction this time. Measured: 10,240 B: two."


def test_kernel_restarted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(answers.VARIABLE, str(tmp_path / "answers.json"))
    ask(14_336)
    predict("rows", "Which?", choices=YES_NO, rows=ROWS, answer={"x": True, "y": False})
    monkeypatch.setattr(predictions, "_asked", {})
    monkeypatch.setattr(answers, "_unsaved", {})
    with pytest.raises(LessonError):
        reveal("kept", 10_240)
    ask()
    predict("rows", "Which?", choices=YES_NO, rows=ROWS)
    assert said(capsys, 10_240).startswith("You predicted 14,336 B")
    assert said(capsys, dict.fromkeys(ROWS, True), "rows").startswith("1 of 3 as you predicted.")


@pytest.mark.parametrize("kept", [3, [], {"answer": 3}, {"question": "How many bytes?", "answer": "x"}], ids=repr)
def test_a_record_changed_by_hand_is_as_none(capsys, kept):
    answers.put("predictions", "kept", kept)
    ask()
    assert said(capsys, 10_240).startswith("No prediction this time.")


def test_reset_begins_anew(capsys):
    ask(14_336)
    said(capsys, 10_240)
    reset("kept")
    assert capsys.readouterr().out == "Forgotten: `kept`.\n"
    assert said(capsys, 10_240).startswith("No prediction")
    reset("kept")
    assert capsys.readouterr().out == "Forgotten: `kept`.\n"
    reset("kept")
    assert capsys.readouterr().out == "Nothing was kept under `kept`.\n"
    ask(0)
    reset()
    assert capsys.readouterr().out.endswith("Forgotten: everything kept so far (kept).\n")
    with pytest.raises(LessonError, match="in quotes"):
        reset(1)


def number(answer=None, within=0):
    predict("n", "How many?", unit="B", within=within, answer=answer)


@pytest.mark.parametrize(
    "answer, measured, text",
    [
        (10_240, 10_240, "You predicted 10,240 B, and so it is."),
        ("10,240 B", torch.tensor(10_240), "You predicted 10,240 B, and so it is."),
        (np.int32(14_336), 10_240, "You predicted 14,336 B. Measured: 10,240 B, so 4,096 B too high."),
        (
            1_000,
            10_240,
            "You predicted 1,000 B. Measured: 10,240 B, so 9,240 B too low (the measured value is 10 times as large).",
        ),
        (20_480, 10_240, "You predicted 20,480 B. Measured: 10,240 B, so 10,240 B too high (2 times as much)."),
        (3, 0, "You predicted 3 B. Measured: 0 B, so 3 B too high."),
        (
            0.1,
            0.25,
            "You predicted 0.1 B. Measured: 0.25 B, so 0.15 B too low (the measured value is 2.5 times as large).",
        ),
        (1.5, float("nan"), "You predicted 1.5 B. Measured: nan B."),
        (None, 12_345.678, "No prediction this time. Measured: 12,350 B."),
        (None, 3.0, "No prediction this time. Measured: 3 B."),
        (None, 0.000_123_45, "No prediction this time. Measured: 0.0001234 B."),
    ],
    ids=str,
)
def test_numbers(capsys, answer, measured, text):
    number(answer)
    assert said(capsys, measured, "n") == text


@pytest.mark.parametrize(
    ("unit", "answer", "measured", "text"),
    [
        ("%", 10, 46.7, "You predicted 10%. Measured: 46.7%, so 36.7 percentage points too low."),
        ("%", 300, 100, "You predicted 300%. Measured: 100%, so 200 percentage points too high."),
        ("%", 2, 1, "You predicted 2%. Measured: 1%, so 1 percentage point too high."),
        (
            "×", 0.5, 2.375,
            "You predicted 0.5×. Measured: 2.375×, so 1.875 too low (the measured value is 4.8 times as large).",
        ),
    ],
)  # fmt: skip
def test_shares_and_ratios(capsys, unit, answer, measured, text):
    predict("n", "How many?", unit=unit, answer=answer)
    assert said(capsys, measured, "n") == text


@pytest.mark.parametrize(
    ("choices", "unit", "listed"),
    [
        ({0: "none", 1: "one", 2: "Two", 10: "ten"}, "", ["none", "one", "Two", "ten"]),
        ({0: "zero", 1.0: "one", 2.5: "2.5 times", 3: "one third"}, "", ["zero", "one", "2.5 times", "3: one third"]),
        ({2: "two", 3: "3 B", 4: "40 B"}, "B", ["2 B: two", "3 B", "4 B: 40 B"]),
        ({2: "2.5", 3: "two", 0: "nothing", 4096: "4,096 B"}, "", ["2: 2.5", "3: two", "0: nothing", "4,096 B"]),
    ],
)  # fmt: skip
def test_a_number_is_not_said_twice(capsys, choices, unit, listed):
    predict("n", "How many?", choices=choices, unit=unit)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:-1] == [f"  ○ {words}" for words in listed]
    first, *others = map(repr, choices)
    assert lines[-1].endswith(f"`answer={first}` (or {', '.join(others)}).")  # what to type stays
    for key in choices:
        predict("n", "How many?", choices=choices, unit=unit, answer=key)


def test_a_number_in_a_word_in_sentences(capsys):
    choices = {0: "none", 2: "two", 3: "3 tensors"}
    predict("n", "How many?", choices=choices, answer=2)
    assert capsys.readouterr().out.endswith("Your answer: 2.\n")
    assert said(capsys, 3, "n") == "You predicted 2. Measured: 3 tensors."
    assert said(capsys, 2, "n") == "You predicted 2, and so it is."
    predict("r", "How many?", choices=choices, rows=["a"], answer={"a": 2})
    assert said(capsys, {"a": 0}, "r").splitlines()[-1] == "  a  two        none      otherwise"


def test_within(capsys):
    number(10_000, within=0.05)
    assert said(capsys, 10_240, "n") == "You predicted 10,000 B, and so it is, near enough. Measured: 10,240 B."
    assert "too low" in said(capsys, 11_000, "n")


def test_numbers_that_look_the_same_are_told_apart(capsys):
    number(0.300_001)
    assert said(capsys, 0.3, "n").startswith("You predicted 0.300001 B. Measured: 0.3 B")


@pytest.mark.parametrize("answer", [True, float("nan"), float("inf"), "ten", ""], ids=repr)
def test_no_number(answer):
    with pytest.raises(LessonError, match="number"):
        number(answer)


def test_measured_is_no_number():
    number()
    with pytest.raises(LessonError, match="asks for a number"):
        reveal("n", True)


@pytest.mark.parametrize(
    "text, value",
    [
        ("10240", 10_240),
        ("10,240", 10_240),
        ("10 240", 10_240),
        ("10\u202f240\u00a0B", 10_240),
        ("10_240", 10_240),
        ("1,234,567.5", 1_234_567.5),
        ("1e3", 1000),
        ("2.5E-1", 0.25),
        ("24 B", 24),
        ("24b", 24),
        ("24 bytes", 24),
        (" -3 ", -3),
        ("\u22123", -3),
        (".5", 0.5),
        ("0", 0),
    ],
)
def test_numbers_as_people_write_them(text, value):
    assert parse(text, "B") == value
    assert type(parse(text, "B")) is type(value)


@pytest.mark.parametrize(
    "text, hint",
    [("1,5", "write 1.5"), ("10 kB", "Give it in B"), ("1,23,456", "10,240"), ("1e999", "1e3"), ("0x10", "10240")],
)
def test_what_is_no_number_says_how_to_write_one(text, hint):
    with pytest.raises(LessonError, match=re.escape(hint)):
        parse(text, "B")


def rows(answer=None):
    predict("rows", "Which are kept?", choices={True: "kept", False: "freed"}, rows=ROWS, answer=answer)


MEASURED = {"x": True, "the product": False, "y": torch.tensor(True)}


def test_rows_unanswered(capsys):
    rows()
    assert "for each of: x, the product, y\n  ○ kept\n  ○ freed" in capsys.readouterr().out
    assert said(capsys, MEASURED, "rows") == (
        "No prediction this time. Measured:\n"
        "               measured\n"
        "  x            kept\n"
        "  the product  freed\n"
        "  y            kept"
    )


def test_rows_answered_in_part(capsys):
    rows({"x": True, "the product": True})
    assert said(capsys, MEASURED, "rows") == (
        "1 of 3 as you predicted.\n"
        "               predicted  measured\n"
        "  x            kept       kept      as predicted\n"
        "  the product  kept       freed     otherwise\n"
        "  y            none       kept      no prediction"
    )
    rows({"x": True, "the product": False, "y": True})
    assert said(capsys, MEASURED, "rows").endswith("After the reveal you answered otherwise: 3 of 3 as measured.")


def test_rows_all_right(capsys):
    rows({"x": True, "the product": False, "y": True})
    assert said(capsys, MEASURED, "rows").startswith("All 3 as you predicted.\n")
    assert "(none of the choices)" in said(capsys, MEASURED | {"y": 3}, "rows")


@pytest.mark.parametrize(
    "answer, message",
    [(True, "a dict of row → choice"), ({"z": True}, "no row 'z'. The rows are x"), ({"x": 1}, "1 is none of")],
    ids=str,
)
def test_rows_answered_wrongly(answer, message):
    with pytest.raises(LessonError, match=re.escape(message)):
        rows(answer)


@pytest.mark.parametrize("measured", [True, {"x": True}, {**MEASURED, "z": True}], ids=str)
def test_rows_measured_wrongly(measured):
    rows()
    with pytest.raises(LessonError, match="exactly these rows: x, the product, y"):
        reveal("rows", measured)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"name": ""}, "begins with a name"),
        ({"name": 3}, "begins with a name"),
        ({"question": " "}, "the question is a text"),
        ({"choices": ["a", "b"]}, "a dict of at least two"),
        ({"choices": {1: "one"}}, "a dict of at least two"),
        ({"choices": {None: "none", 1: "one"}}, "a choice's key"),
        ({"choices": {float("nan"): "none", 1: "one"}}, "a choice's key"),
        ({"choices": {1: "", 2: "two"}}, "wants words"),
        ({"choices": {1: "one", 2: "one"}}, "the same words"),
        ({"rows": ["x"]}, "needs choices="),
        ({"rows": [], "choices": YES_NO}, "different names"),
        ({"rows": ["x", "x"], "choices": YES_NO}, "different names"),
        ({"rows": "xy", "choices": YES_NO}, "different names"),
        ({"unit": None}, "unit= is a text"),
        ({"within": -1}, "relative tolerance"),
        ({"within": True}, "relative tolerance"),
        ({"within": float("nan")}, "relative tolerance"),
    ],
    ids=str,
)
def test_a_malformed_question(arguments, message):
    with pytest.raises(LessonError, match=message):
        predict(**({"name": "kept", "question": "How many?"} | arguments))


def test_the_bundle(shown):
    predict("kept", "How many of `W` & <b>?", choices=CHOICES, unit="B", answer=10_240)
    reveal("kept", 10_240)
    first, second = shown
    assert list(first) == ["text/plain", "text/html", "application/vnd.jupyter.widget-view+json"]
    assert list(second) == ["text/plain", "text/html", MIME]
    assert second[MIME] == {"schema": 1, "name": "kept", "answer": 10_240, "measured": 10_240, "right": True}
    assert ">W</code> &amp; &lt;b&gt;?" in first["text/html"]
    for bundle in shown:
        assert not re.search(r"<(script|style)| (id|on\w+)=|class=", bundle["text/html"])
        json.dumps(bundle)


def test_the_html_says_the_same_as_the_text(shown):
    rows({"x": True})
    reveal("rows", MEASURED)
    words = [
        re.sub(r"\W+", " ", part) for part in (shown[1]["text/plain"], re.sub("<[^>]+>", " ", shown[1]["text/html"]))
    ]
    assert words[0].split() == words[1].split()
    assert shown[1]["text/html"].count("✗") == 1


def test_floats_in_the_data_as_they_are_shown(shown):
    number()
    reveal("n", 0.123_456_789)
    assert shown[1][MIME]["measured"] == 0.1235
    reveal("n", float("inf"))
    assert json.dumps(shown[2][MIME], allow_nan=False)


def test_the_same_cell_twice_shows_the_same(shown):
    for _ in range(2):
        ask(14_336)
        reveal("kept", 10_240)
    for bundle in shown:
        bundle.pop("application/vnd.jupyter.widget-view+json", None)
    assert shown[:2] == shown[2:]


def test_no_kernel_no_control(shown, monkeypatch):
    monkeypatch.delattr(Kernel, "kernel")
    ask()
    assert list(shown[0]) == ["text/plain", "text/html"]
