"""Quizzes: read from their files or refused with the place named; shown, answered by letters, first tries kept."""

import re

import pytest

from helpers import LessonError, reset
from helpers.lessons import answers, controls
from helpers.lessons.quiz import FOLDER, SECTION, parse, quiz

TEXT = """
title = "What backward keeps"
[[question]]
id = "leaf"
ask = "Which of `x * 1` & others is a leaf?"
[[question.choice]]
text = "`x * 1`"
why = "An operation made it."
misconception = "M10"
[[question.choice]]
text = "`torch.ones(3)`"
right = true
why = "No operation made it."
[[question]]
id = "grad"
ask = "What is `y.grad`?"
[[question.choice]]
text = "None"
right = true
why = "`y` is no leaf."
[[question.choice]]
text = "Ones"
why = "Only leaves keep it."
[[question.choice]]
text = "An error"
why = "It warns only."
misconception = "M11"
"""
WHOLE = """\
Quiz: What backward keeps

1. Which of `x * 1` & others is a leaf?
   a) `x * 1`
   b) `torch.ones(3)`

2. What is `y.grad`?
   a) None
   b) Ones
   c) An error

Run this cell to answer here, or answer in its code: `answers='a-'`, one letter a question.

Answers
1. a) ✗ Not right. An operation made it.
   b) ✓ Right. No operation made it.
2. a) ✓ Right. `y` is no leaf.
   b) ✗ Not right. Only leaves keep it.
   c) ✗ Not right. It warns only.
"""


@pytest.fixture(autouse=True)
def planted(fresh, quizzes):
    (quizzes / "quiz_01.toml").write_text(TEXT, encoding="utf-8")


def test_all_of_it_in_words(capsys):
    assert quiz("01") is None
    assert capsys.readouterr().out == WHOLE
    assert answers.get(SECTION, "01") is None


def test_answered_by_letters(capsys):
    quiz("01", answers="b-")
    text = capsys.readouterr().out
    assert "   b) `torch.ones(3)`\n   You chose b) ✓ Right. No operation made it.\n\n2." in text
    assert text.count("You chose") == 1 and "\n1 of 1 right.\n" in text
    assert answers.get(SECTION, "01") == {"leaf": {"first": "b", "right": True, "misconception": None}}


def test_the_first_try_is_kept():
    quiz("01", answers="a c")
    quiz("01", answers="BA")
    assert answers.get(SECTION, "01") == {
        "leaf": {"first": "a", "right": False, "misconception": "M10"},
        "grad": {"first": "c", "right": False, "misconception": "M11"},
    }
    reset("01")
    quiz("01", answers="ba")
    assert [entry["first"] for entry in answers.get(SECTION, "01").values()] == ["b", "a"]


@pytest.mark.parametrize(
    "given, message",
    [
        ("a", "has 1 letters for 2 questions"),
        ("aaa", "has 3 letters for 2 questions"),
        ("ac1", "3 letters"),
        ("ca", "Question 1 has the choices a, b, or - for none; not 'c'"),
        ("a1", "Question 2 has the choices a, b, c"),
        (["a", "b"], "answers= is a text"),
        (True, "answers= is a text"),
    ],
    ids=str,
)
def test_letters_that_do_not_fit(given, message):
    with pytest.raises(LessonError, match=re.escape(message)):
        quiz("01", answers=given)
    assert answers.get(SECTION, "01") is None


@pytest.mark.parametrize("name", [1, "", "../x", None], ids=repr)
def test_no_name_of_a_quiz(name):
    with pytest.raises(LessonError, match="the name of a quiz in quotes"):
        quiz(name)


def test_no_such_quiz():
    with pytest.raises(LessonError, match="There is no quiz '02'. There are: 01."):
        quiz("02")


CHOICE_A = """[[question.choice]]
text = "`x * 1`"
why = "An operation made it."
misconception = "M10"
"""


@pytest.mark.parametrize(
    "old, new, message",
    [
        ('title = "What', 'titel = "What', "quiz_01.toml: unknown key `titel`"),
        ('title = "What backward keeps"', "", "quiz_01.toml: `title` is missing"),
        ('title = "What backward keeps"', "title = 3", "quiz_01.toml: `title` is 3, not a str"),
        ('title = "What backward keeps"', 'title = " "', "quiz_01.toml: `title` is empty"),
        ("[[question]]", "[[question", "quiz_01.toml is no TOML"),
        ('id = "grad"', 'id = "leaf"', "two questions have the same id"),
        (CHOICE_A, "", "question 1 (leaf) has 1 choices; 2 to 5"),
        (CHOICE_A, "".join(CHOICE_A.replace("x *", f"{n} *") for n in range(5)), "question 1 (leaf) has 6 choices"),
        ('why = "An operation made it."\n', "", "question 1 (leaf), choice a: `why` is missing"),
        ("right = true", "right = 1", "choice b: `right` is 1, not a bool"),
        ("right = true", "", "question 1 (leaf): exactly one choice"),
        ('text = "Ones"', 'text = "Ones"\nright = true', "question 2 (grad): exactly one choice"),
        ('"M10"', '"10"', "question 1 (leaf), choice a: `misconception`"),
        ("right = true", 'right = true\nmisconception = "M1"', "choice b: `misconception`"),
        ('text = "Ones"', 'text = "None"', "question 2 (grad): two choices have the same text"),
        ('text = "Ones"', 'text = "Ones"\nhint = "x"', "question 2 (grad), choice b: unknown key `hint`"),
        (TEXT, 'title = "x"\nquestion = []', "has no question"),
        (TEXT, 'title = "x"\nquestion = [3]', "question 1 is no table"),
    ],
    ids=lambda value: value[:30],
)
def test_a_malformed_file_says_where(old, new, message):
    assert old in TEXT
    with pytest.raises(LessonError, match=re.escape(message)):
        parse("01", TEXT.replace(old, new, 1))


def test_the_bundle(shown):
    quiz("01", answers="b-")
    quiz("01")
    (first, second) = (bundle["text/html"] for bundle in shown)
    for html in (first, second):
        assert html.count("<details") == 2 and html.count(">Answer</summary>") == 2
        assert not re.search(r"<(script|style)| (id|on\w+)=|class=", html)
        assert "&amp; others" in html and "`" not in re.sub(r"<code.*?</code>", "", html)
        for why in re.findall(r'why = "([^"`]*)"', TEXT):
            assert why in html
    # What is kept shows in the control, never in the still: the cell gives the same for everyone.
    assert "You chose" in first and "You chose" not in second
    assert second == shown[1]["text/html"] and list(shown[1])[2] == "application/vnd.jupyter.widget-view+json"


STARRED = """
title = "Of *one* thing"
[[question]]
id = "stars"
ask = "Only the *first* of `a * b` and 2 * 3 * 4, *never* **kwargs?"
[[question.choice]]
text = "the *next* one, `*args`"
why = "*It* is *so*: n*m*k."
right = true
[[question.choice]]
text = "*both*"
why = "No."
"""


def test_emphasis_is_shown_as_such(shown, quizzes):
    (quizzes / "quiz_02.toml").write_text(STARRED, encoding="utf-8")
    quiz("02", answers="a")
    html, plain = shown[0]["text/html"], shown[0]["text/plain"]
    for words in ("one", "first", "never", "next", "It", "so", "both"):
        assert f"<em>{words}</em>" in html and f"*{words}*" not in html and f"*{words}*" not in plain
    assert "1. Only the first of `a * b` and 2 * 3 * 4, never **kwargs?" in plain
    assert "a) the next one, `*args`" in plain and "You chose a) ✓ Right. It is so: n*m*k." in plain
    assert ">a * b</code> and 2 * 3 * 4, <em>never</em> **kwargs?" in html and ">*args</code>" in html
    assert controls.label("the *next* one, `*args`") == "the next one, *args"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("quiz_*.toml")), ids=lambda path: path.name)
def test_the_courses_own_quizzes_can_be_read(path):
    assert parse(path.stem.removeprefix("quiz_"), path.read_text(encoding="utf-8")).questions


@pytest.mark.parametrize("kept", [3, {"leaf": 1}, {"leaf": {"first": 2}}, {"leaf": {"first": "e"}}], ids=repr)
def test_a_record_changed_by_hand_is_as_none(kept):
    answers.put(SECTION, "01", kept)
    quiz("01", answers="b-")
    assert answers.get(SECTION, "01")["leaf"]["right"] is True
