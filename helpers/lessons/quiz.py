"""A chapter's quiz, from quiz_<name>.toml beside this file: every choice has its explanation.

Texts may have `code` and *emphasis*.

title = "What backward keeps"
[[question]]
id = "leaf"
ask = "Which of these is a leaf?"
[[question.choice]]
text = "`x * 1`"
why = "It was made by an operation."
misconception = "M10"      # which one this wrong choice shows; may be left out
[[question.choice]]
text = "`torch.ones(3)`"
right = true               # of exactly one choice
why = "No operation with a graph made it."
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from . import answers as kept_answers
from . import live, show
from .errors import LessonError

SECTION = "quizzes"
LETTERS = "abcde"
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Choice:
    text: str
    why: str
    right: bool = False
    misconception: str | None = None

    @property
    def verdict(self) -> str:
        """Its explanation, led by a sign and a word."""
        return f"{'✓ Right.' if self.right else '✗ Not right.'} {self.why}"


@dataclass(frozen=True)
class Question:
    id: str
    ask: str
    choices: tuple[Choice, ...]

    @property
    def lettered(self) -> list[str]:
        return [f"{letter}) {choice.text}" for letter, choice in zip(LETTERS, self.choices, strict=False)]

    def explained(self, letter: str) -> str:
        """What to say to who chose that letter."""
        return f"{letter}) {self.choices[LETTERS.index(letter)].verdict}"


@dataclass(frozen=True)
class Quiz:
    name: str
    title: str
    questions: tuple[Question, ...]


def quiz(name, *, answers=None) -> None:
    """Show all questions of a chapter's quiz ("01"), to be answered by its controls or by `answers`.

    answers: one letter a question, - for none, as in "bca-". Of each question the first try is kept, for the review.
    Raises LessonError for a quiz that is not there or is malformed, and for letters that do not fit it.
    """
    asked = read(name)
    given = _letters(asked, answers)
    for question, letter in zip(asked.questions, given, strict=True):
        if letter:
            keep(asked, question, letter)
    text, html = _still(asked, given)
    widget = live.control(SECTION, asked.name, "QuizControl", asked, given, first_tries, keep)
    show.show(text, show.card(html), widget=widget)


def keep(asked: Quiz, question: Question, letter: str) -> None:
    """Keep a try, if it is the first."""
    tries = first_tries(asked)
    if question.id in tries:
        return
    choice = question.choices[LETTERS.index(letter)]
    entry = {"first": letter, "right": choice.right, "misconception": choice.misconception}
    kept_answers.put(SECTION, asked.name, tries | {question.id: entry})


def first_tries(asked: Quiz) -> dict[str, dict]:
    """Question id -> its first try; those that no longer fit the quiz are left out."""
    kept = kept_answers.get(SECTION, asked.name)
    tries = {}
    for question in asked.questions:
        entry = kept.get(question.id) if isinstance(kept, dict) else None
        letter = entry.get("first") if isinstance(entry, dict) else None
        if isinstance(letter, str) and letter and letter in LETTERS[: len(question.choices)]:
            if entry.get("right") == question.choices[LETTERS.index(letter)].right:
                tries[question.id] = entry
    return tries


def read(name) -> Quiz:
    """The quiz of that name; LessonError where there is none, or saying where its file is malformed."""
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name):
        raise LessonError(f'quiz() takes the name of a quiz in quotes, as in quiz("01"); this is {name!r}.')
    file = FOLDER / f"quiz_{name}.toml"
    if not file.is_file():
        there = ", ".join(sorted(path.stem.removeprefix("quiz_") for path in FOLDER.glob("quiz_*.toml"))) or "none yet"
        raise LessonError(f"There is no quiz {name!r}. There are: {there}.")
    return parse(name, file.read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Quiz:
    """A quiz from the text of its file; LessonError saying where it is malformed."""
    where = f"quiz_{name}.toml"
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LessonError(f"{where} is no TOML: {error}.") from None
    _keys(data, {"title": str, "question": list}, {}, where)
    questions = []
    for number, part in enumerate(data["question"], 1):
        here = f"{where}, question {number}"
        _keys(part, {"id": str, "ask": str, "choice": list}, {}, here)
        here += f" ({part['id']})"
        if not 2 <= len(part["choice"]) <= len(LETTERS):
            raise LessonError(f"{here} has {len(part['choice'])} choices; 2 to {len(LETTERS)} are wanted.")
        choices = []
        for letter, choice in zip(LETTERS, part["choice"], strict=False):
            at = f"{here}, choice {letter}"
            _keys(choice, {"text": str, "why": str}, {"right": bool, "misconception": str}, at)
            if "misconception" in choice and (
                choice.get("right") or not re.fullmatch(r"M\d+", choice["misconception"])
            ):
                raise LessonError(f"{at}: `misconception` names one as M10 does, and only of a wrong choice.")
            choices.append(Choice(**choice))
        if sum(choice.right for choice in choices) != 1:
            raise LessonError(f"{here}: exactly one choice says `right = true`.")
        if len({choice.text for choice in choices}) < len(choices):
            raise LessonError(f"{here}: two choices have the same text.")
        questions.append(Question(part["id"], part["ask"], tuple(choices)))
    if not questions:
        raise LessonError(f"{where} has no question.")
    if len({question.id for question in questions}) < len(questions):
        raise LessonError(f"{where}: two questions have the same id.")
    return Quiz(name, data["title"], tuple(questions))


def _keys(table, wanted: dict, optional: dict, where: str) -> None:
    if not isinstance(table, dict):
        raise LessonError(f"{where} is no table.")
    for key in table:
        if key not in wanted | optional:
            raise LessonError(f"{where}: unknown key `{key}`; known are {', '.join(wanted | optional)}.")
    for key, kind in (wanted | optional).items():
        if key not in table and key in wanted:
            raise LessonError(f"{where}: `{key}` is missing.")
        if key in table and not isinstance(table[key], kind):
            raise LessonError(f"{where}: `{key}` is {table[key]!r}, not a {kind.__name__}.")
        if kind is str and key in table and not table[key].strip():
            raise LessonError(f"{where}: `{key}` is empty.")


def _letters(asked: Quiz, given) -> list[str]:
    """A letter for each question, "" for none."""
    count = len(asked.questions)
    if given is None:
        return [""] * count
    example = f'quiz("{asked.name}", answers="{("abc" * count)[: count - 1]}-")'
    if not isinstance(given, str):
        raise LessonError(f"answers= is a text, one letter a question, - for none, as in {example}; this is {given!r}.")
    letters = re.sub(r"[\s,]", "", given).lower()
    if len(letters) != count:
        raise LessonError(f"answers={given!r} has {len(letters)} letters for {count} questions, as in {example}.")
    for number, (letter, question) in enumerate(zip(letters, asked.questions, strict=True), 1):
        has = LETTERS[: len(question.choices)]
        if letter not in has + "-":
            raise LessonError(f"Question {number} has the choices {', '.join(has)}, or - for none; not {letter!r}.")
    return [letter.replace("-", "") for letter in letters]


def _still(asked: Quiz, given: list[str]) -> tuple[str, str]:
    """The quiz as text, answers after the questions, and as HTML, each answer folded below its question."""
    text, html = [f"Quiz: {asked.title}"], [show.paragraph(f"Quiz: {asked.title}", strong=True)]
    solutions = ["", "Answers"]
    for number, (question, letter) in enumerate(zip(asked.questions, given, strict=True), 1):
        all_explained = [question.explained(each) for each in LETTERS[: len(question.choices)]]
        lead = f"{number}. {question.ask}"
        text += ["", lead, *(f"   {line}" for line in question.lettered)]
        html += [show.paragraph(lead), show.bullets(question.lettered)]
        if letter:
            text.append(f"   You chose {question.explained(letter)}")
            html.append(show.paragraph(f"You chose {question.explained(letter)}"))
        solutions += [f"{f'{number}.' if at == 0 else '':2} {line}" for at, line in enumerate(all_explained)]
        html.append(show.details("Answer", show.bullets(all_explained)))
    chosen = [q.choices[LETTERS.index(letter)] for q, letter in zip(asked.questions, given, strict=True) if letter]
    if chosen:
        state = f"{sum(choice.right for choice in chosen)} of {len(chosen)} right."
    else:
        example = "".join(LETTERS[at % 2] for at in range(len(given) - 1)) + "-"
        state = f"Run this cell to answer here, or answer in its code: `answers={example!r}`, one letter a question."
    return show.unstarred("\n".join([*text, "", state, *solutions])), "".join([*html, show.paragraph(state, soft=True)])
