"""The controls, driven as a front end drives them: by setting what they show."""

import ipywidgets as widgets
import pytest

from helpers import predict, reset, reveal
from helpers.lessons import answers, live
from helpers.lessons.quiz import quiz

from .test_quiz import TEXT

VIEW = "application/vnd.jupyter.widget-view+json"
CHOICES = {8_192: "only `x`", 10_240: "x and one tensor", True: "yes"}
ROWS = ["x", "y"]


def control(section, name):
    return live._controls[section, name]


def parts(widget, kind):
    found = [widget] if isinstance(widget, kind) else []
    return found + [part for child in getattr(widget, "children", ()) for part in parts(child, kind)]


def note(name="kept"):
    return control("predictions", name).note.value


def kept(name="kept"):
    return answers.get("predictions", name)["answer"]


def alive():
    """Models of widgets that are open, layouts and styles too."""
    known = getattr(widgets.widget, "_instances", None)
    return set(widgets.Widget.widgets if known is None else known)


def test_a_choice(shown):
    predict("kept", "How many?", choices=CHOICES, unit="B")
    (radio,) = parts(control("predictions", "kept").widget, widgets.RadioButtons)
    assert shown[0][VIEW]["model_id"] == control("predictions", "kept").widget.model_id
    assert radio.index is None
    assert list(radio.options) == ["8,192 B: only x", "10,240 B: x and one tensor", "yes"]
    radio.index = 1
    assert kept() == 10_240 and 'role="status"' in note() and "Noted. You can change it" in note()
    radio.index = 2
    assert kept() is True


def test_a_choice_after_the_reveal(shown):
    predict("kept", "How many?", choices=CHOICES, unit="B", answer=8_192)
    (radio,) = parts(control("predictions", "kept").widget, widgets.RadioButtons)
    assert radio.index == 0
    reveal("kept", 10_240)
    radio.index = 1
    assert kept() == 8_192 and "Noted as given after the reveal" in note() and "reset(" in note()
    radio.index = 0
    assert "from before the reveal stands" in note()


def test_a_number(shown):
    predict("kept", "How many?", unit="B")
    (field,) = parts(control("predictions", "kept").widget, widgets.Text)
    assert field.continuous_update is False and field.description == "Your number in B"
    field.value = "10 240 B"
    assert kept() == 10_240 and "Noted: 10,240\u00a0B." in note()
    field.value = "a lot"
    assert kept() == 10_240 and "could not be read as a number" in note()
    field.value = " "
    assert kept() is None and "No answer yet." in note()


@pytest.mark.parametrize("value", [10_240, 0.1 + 0.2, 1e20, -1.5e-7, 123_456.789], ids=str)
def test_a_number_asked_again_is_the_very_same(shown, value):
    predict("kept", "How many?", answer=value)
    predict("kept", "How many?")
    (field,) = parts(control("predictions", "kept").widget, widgets.Text)
    typed = field.value
    field.value = ""
    field.value = typed
    assert kept() == value


def test_rows(shown):
    predict("kept", "Which?", choices=CHOICES, unit="B", rows=ROWS)
    boxes = parts(control("predictions", "kept").widget, widgets.Dropdown)
    assert [box.description for box in boxes] == ROWS
    boxes[1].index = 3
    assert kept() == {"y": True} and "Noted: 1 of 2." in note()
    boxes[0].index = 1
    boxes[1].index = 0
    assert kept() == {"x": 8_192}
    predict("kept", "Which?", choices=CHOICES, unit="B", rows=ROWS)
    assert [box.index for box in parts(control("predictions", "kept").widget, widgets.Dropdown)] == [1, 0]


KINDS = {"choice": {"choices": CHOICES}, "number": {}, "rows": {"choices": CHOICES, "rows": ROWS}}


@pytest.mark.parametrize("kind", KINDS)
def test_asked_again_piles_nothing_up(shown, kind):
    more = KINDS[kind]
    predict("kept", "How many?", **more)
    old, count = control("predictions", "kept").widget, len(alive())
    for _ in range(3):
        predict("kept", "How many?", **more)
    assert len(alive()) == count and old.comm is None


def test_reset_clears_what_is_shown(shown):
    predict("kept", "How many?", choices=CHOICES, answer=True)
    predict("number", "How many?", answer=3)
    predict("rows", "Which?", choices=CHOICES, rows=ROWS, answer={"x": True})
    reset("kept")
    (radio,) = parts(control("predictions", "kept").widget, widgets.RadioButtons)
    (field,) = parts(control("predictions", "number").widget, widgets.Text)
    assert radio.index is None and note() == "" and field.value == "3"
    reset()
    assert field.value == ""
    assert [box.index for box in parts(control("predictions", "rows").widget, widgets.Dropdown)] == [0, 0]
    assert answers.all()["predictions"] == {}
    radio.index = 0
    assert kept() == 8_192


@pytest.fixture
def planted(shown, quizzes):
    (quizzes / "quiz_01.toml").write_text(TEXT, encoding="utf-8")
    quiz("01")
    return control("quizzes", "01")


def test_a_quiz(planted):
    first, second = parts(planted.widget, widgets.RadioButtons)
    check, other = parts(planted.widget, widgets.Button)
    said = planted.rows[0][1]
    assert [check.description, other.description] == ["Check answer 1", "Check answer 2"]
    assert list(first.options) == ["a) x * 1", "b) torch.ones(3)"]
    check.click()
    assert "Choose an answer first" in said.value
    first.index = 0
    assert answers.get("quizzes", "01") is None and "You chose" not in said.value
    check.click()
    assert 'role="alert"' in said.value and "a) ✗ Not right. An operation made it." in said.value
    first.index = 1
    check.click()
    assert "b) ✓ Right. No operation made it." in said.value
    assert answers.get("quizzes", "01") == {"leaf": {"first": "a", "right": False, "misconception": "M10"}}
    assert "0 of 2 right at the first try." in planted.score.value
    second.index = 0
    other.click()
    assert "1 of 2 right at the first try." in planted.score.value


def test_a_quiz_asked_again(planted):
    quiz("01", answers="a-")
    old, count = control("quizzes", "01").widget, len(alive())
    quiz("01")
    again = control("quizzes", "01")
    assert len(alive()) == count and old.comm is None
    assert [chosen.index for chosen, _ in again.rows] == [0, None]
    assert "You chose a) ✗ Not right." in again.rows[0][1].value and again.rows[1][1].value == ""
    reset("01")
    assert [chosen.index for chosen, _ in again.rows] == [None, None]
    assert again.rows[0][1].value == again.score.value == ""
