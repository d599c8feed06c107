"""predict asks before a cell shows; reveal compares with what was measured.

The answer that counts is the last one before the first reveal. A later one is kept beside it, as given after the fact.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from . import answers, live, show
from .errors import LessonError

SECTION = "predictions"
SPELLED = (("zero", "none"), *((word,) for word in "one two three four five six seven eight nine ten".split()))
#: Questions asked in this kernel; reveal needs the one of its name.
_asked: dict[str, Question] = {}


@dataclass(frozen=True)
class Question:
    """One question: a choice (`choices`), the same choice for each of `rows`, or a number (`choices` None)."""

    name: str
    ask: str
    choices: dict | None
    rows: tuple[str, ...] | None
    unit: str
    within: float

    def words(self, key) -> str:
        """A choice in words: "10,240 B: only x"; the words alone where they say the number, or the key is none."""
        words = self.choices[key]
        if isinstance(key, bool | str) or self.spelled(key):
            return words
        shown = show.number(key, self.unit)
        return words if re.match(rf"{re.escape(shown)}(?![\w.,:]*\w)", words) else f"{shown}: {words}"

    def spelled(self, key) -> bool:
        """Whether a choice's words are its number as a word: "three", or "none" for 0."""
        said = self.choices[key].casefold()
        return not self.unit and _is_number(key) and any(key == n and said in names for n, names in enumerate(SPELLED))

    def said(self, value) -> str:
        """An answer or a measured value inside a sentence."""
        if isinstance(value, bool | str):
            key = self.key(value)
            return f"“{self.choices[key]}”" if key is not None else f"`{value!r}`"
        return show.number(value, self.unit)

    def tail(self, value) -> str:
        """What a number stands for: ": only x", else nothing."""
        key = self.key(value)
        if key is None or isinstance(key, bool | str) or self.spelled(key):
            return ""
        return self.words(key).removeprefix(show.number(key, self.unit))

    def sentence(self, value) -> str:
        """An answer as a sentence of its own; a dict row by row."""
        if isinstance(value, dict):
            return "; ".join(f"{row}: {self.words(key)}" for row, key in value.items()) + "."
        return f"{self.said(value)}{self.tail(value)}."

    def brief(self, value) -> str:
        """What a control that was answered does not show by itself: ": 10,240 B", or how many rows are answered."""
        if isinstance(value, dict):
            return f": {len(value)} of {len(self.rows)}"
        return "" if self.choices else f": {self.said(value)}"

    def key(self, value):
        """The choice that a value is; None for none of them. True is not 1; numbers agree by value, `within`."""
        same = [k for k in self.choices or () if self.agree(k, value)]
        return min(same, key=lambda k: abs(k - value) if _is_number(k) else 0, default=None)

    def agree(self, answer, measured) -> bool:
        if isinstance(answer, bool | str) or isinstance(measured, bool | str):
            return type(answer) is type(measured) and answer == measured
        return answer == measured or math.isclose(answer, measured, rel_tol=self.within, abs_tol=0)

    def right(self, answer, measured) -> bool:
        """Whether an answer is what was measured: for choices, whether both are the same choice."""
        if self.choices is None:
            return self.agree(answer, measured)
        key = self.key(measured)
        return key is not None and _same(key, answer)

    def keys(self) -> str:
        return ", ".join(f"{key!r} ({words})" for key, words in self.choices.items())

    def accept(self, value):
        """A learner's answer as it is kept: a key, a number, a dict of rows. LessonError for what is none."""
        if self.rows is None:
            return self._accept_one(value)
        if not isinstance(value, dict):
            raise LessonError(
                f"{self}: it asks for each of {', '.join(self.rows)}, so the answer is a dict of row → choice."
            )
        if extra := [row for row in value if row not in self.rows]:
            raise LessonError(f"{self}: there is no row {extra[0]!r}. The rows are {', '.join(self.rows)}.")
        return {row: self._accept_one(value[row]) for row in self.rows if row in value}

    def _accept_one(self, given):
        value = plain(given, f"{self}: the answer")
        if self.choices is None:
            if isinstance(value, str):
                return parse(value, self.unit)
            if isinstance(value, bool) or not math.isfinite(value):
                raise LessonError(f"{self}: it asks for a number, and {value!r} is none.")
            return value
        for key in self.choices:
            if _same(key, value):
                return key
        raise LessonError(f"{self}: {value!r} is none of the choices{self._hint(value)}. The choices: {self.keys()}.")

    def _hint(self, value) -> str:
        for key, words in self.choices.items():
            if isinstance(value, str) and not isinstance(key, str):
                try:
                    meant = value == str(key) or _same(key, parse(value, self.unit))
                except LessonError:
                    meant = False
                if meant:
                    return f": in quotes it is text. Write answer={key!r}, without them"
            if value == words:
                return f": answer by the key, answer={key!r}"
        return ""

    def __str__(self) -> str:
        return f'predict("{self.name}")'


def predict(name, question, *, choices=None, rows=None, unit="", within=0, answer=None) -> None:
    """Ask for a prediction, and show a control to answer with. Nothing has to be answered.

    choices: dict of key (int, float, bool or str) → words; without them a number is asked for.
    rows: names of rows; the choices are then asked for each of them, and answers are dicts of row → key.
    unit: of the numbers, as in "B". within: relative tolerance of numbers, 0 is exact.
    answer: answers in code, as a control would. Asked again, the same question keeps its answer.
    Raises LessonError for a question that is malformed, and for an answer that is no choice, naming the choices.
    """
    asked = _question(name, question, choices, rows, unit, within)
    given = None if answer is None else asked.accept(answer)
    _asked[name] = asked
    _kept(asked)
    if given is not None:
        give(name, given)
    _show(asked)


def reveal(name, measured) -> None:
    """Compare the prediction with what was measured, and say both.

    measured: a number, bool or str, a 0-dimensional tensor or a NumPy scalar; for rows a dict of row → such a value.
    Raises LessonError where the question was not asked in this kernel, and for a value that is none of these.
    """
    asked = _asked.get(name) if isinstance(name, str) else None
    if asked is None:
        raise LessonError(
            f'reveal({name!r}, …): its question was not asked yet. Run the cell with predict("{name}", …) first, '
            "then this one again."
        )
    found = _measured(asked, measured)
    kept = _kept(asked)
    if not kept["revealed"]:
        kept["revealed"] = True
        answers.put(SECTION, name, kept)
    lines, data = (_by_row if asked.rows else _by_one)(asked, kept, found)
    sign = {True: "✓ ", False: "✗ ", None: ""}[data["right"]]
    first, *others = lines["text"]
    body = show.paragraph(sign + first) + lines.get("table", "")
    body += "".join(show.paragraph(line, soft=True) for line in lines.get("after", []))
    show.show("\n".join([first, *others, *lines.get("after", [])]), show.card(body), data, "prediction")


def give(name: str, value) -> str:
    """Keep an accepted answer, None for none; returns what to say about it. After the reveal it does not replace."""
    asked = _asked[name]
    kept = _kept(asked)
    if not kept["revealed"]:
        kept["answer"] = value
        note = (
            "No answer yet."
            if value in (None, {})
            else f"Noted{asked.brief(value)}. You can change it until you reveal."
        )
    else:
        kept["after"] = None if _same(value, kept["answer"]) else value
        note = "Your answer from before the reveal stands."
        if kept["after"] is not None:
            note = f"Noted as given after the reveal{asked.brief(value)}. `reset({name!r})` begins anew."
    answers.put(SECTION, name, kept)
    return note


def plain(value, what: str):
    """A bool, int, float or str of Python's own, of what tensors and NumPy scalars hold."""
    if not isinstance(value, bool | int | float | str) and getattr(value, "ndim", None) == 0:
        try:
            value = value.item()
        except Exception as error:
            raise LessonError(f"{what} is a tensor whose value cannot be read ({error}).") from None
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    shape = getattr(value, "shape", None)
    if shape is not None:
        held = "×".join(map(str, shape))
        raise LessonError(f"{what} holds {held} numbers; one is needed. Take one, or their sum, with `.item()`.")
    raise LessonError(f"{what} is a {type(value).__name__}; a number, True or False, or a text is needed.")


def parse(text: str, unit: str = "") -> int | float:
    """A number as people write it: 10240, 10,240, 10 240, 10_240, 1e3, 24 B. LessonError for anything else."""
    number = re.sub(r"[\s\u00a0\u2009\u202f]+", " ", text).strip().replace("\u2212", "-")
    units = {unit, *(("b", "byte", "bytes") if unit == "B" else ())} - {""}
    for end in sorted(units, key=len, reverse=True):
        if number.casefold().endswith(end.casefold()):
            number = number[: len(number) - len(end)].strip()
            break
    if re.fullmatch(r"[+-]?\d{1,3}(?:([ ,_'])\d{3})(?:\1\d{3})*(?:\.\d*)?", number):
        number = re.sub(r"[ ,_']", "", number)
    if re.fullmatch(r"[+-]?\d[\d_]*", number):
        return int(number)
    if re.fullmatch(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", number) and math.isfinite(float(number)):
        value = float(number)
        return int(value) if value == int(value) else value
    hint = f" Give it in {unit}." if unit and re.search(r"[a-zA-Z]", number) else ""
    if re.fullmatch(r"[+-]?\d+,\d+", number):
        hint = f" For a fraction, write {number.replace(',', '.')}."
    raise LessonError(f"{text!r} could not be read as a number. Write it like 10240, 10,240 or 1e3.{hint}")


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one, other) -> bool:
    """Equal, and True is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _question(name, ask, choices, rows, unit, within) -> Question:
    if not isinstance(name, str) or not name.strip():
        raise LessonError(f'predict() begins with a name in quotes, as in predict("kept", …); this is {name!r}.')
    where = f'predict("{name}")'
    if not isinstance(ask, str) or not ask.strip():
        raise LessonError(f"{where}: the question is a text; this is {ask!r}.")
    if not isinstance(unit, str):
        raise LessonError(f'{where}: unit= is a text, as in "B"; this is {unit!r}.')
    if not _is_number(within) or not 0 <= within < 1:
        raise LessonError(f"{where}: within= is a relative tolerance from 0 to below 1; this is {within!r}.")
    if choices is not None:
        if not isinstance(choices, dict) or len(choices) < 2:
            raise LessonError(f"{where}: choices= is a dict of at least two, key → words; this is {choices!r}.")
        for key, words in choices.items():
            if not isinstance(key, bool | int | float | str) or (isinstance(key, float) and not math.isfinite(key)):
                raise LessonError(f"{where}: a choice's key is a number, True, False or a text; this is {key!r}.")
            if not isinstance(words, str) or not words.strip():
                raise LessonError(f"{where}: the choice {key!r} wants words; these are {words!r}.")
        if len(set(choices.values())) < len(choices):
            raise LessonError(f"{where}: two choices have the same words.")
    if rows is not None:
        rows = tuple(rows) if isinstance(rows, list | tuple) else ()
        if not rows or len(set(rows)) < len(rows) or not all(isinstance(row, str) and row.strip() for row in rows):
            raise LessonError(f"{where}: rows= is a list of different names.")
        if choices is None:
            raise LessonError(f"{where}: rows= needs choices=, which are asked for each row.")
    return Question(name, ask, dict(choices) if choices is not None else None, rows, unit, within)


def _kept(asked: Question) -> dict:
    """What is kept for this very question, else a fresh record: another question's answer is none to this one."""
    kept = answers.get(SECTION, asked.name)
    fresh = {"question": asked.ask, "answer": None, "revealed": False, "after": None}
    if not isinstance(kept, dict) or kept.keys() != fresh.keys() or kept["question"] != asked.ask:
        return fresh
    try:
        for part in ("answer", "after"):
            if kept[part] is not None:
                kept[part] = asked.accept(kept[part])
    except LessonError:  # its choices have changed since
        return fresh
    return kept


def _measured(asked: Question, measured):
    what = f'reveal("{asked.name}"): what was measured'
    if asked.rows is None:
        found = plain(measured, what)
        if asked.choices is None and not _is_number(found):
            raise LessonError(f"{what} is {found!r}; the question asks for a number.")
        return found
    if not isinstance(measured, dict) or set(measured) != set(asked.rows):
        raise LessonError(f"{what} is a dict with exactly these rows: {', '.join(asked.rows)}.")
    return {row: plain(measured[row], f"{what} for {row}") for row in asked.rows}


def _by_one(asked: Question, kept: dict, found) -> tuple[dict, dict]:
    answer, after = kept["answer"], kept["after"]
    measured = f"Measured: {asked.said(found)}{asked.tail(found)}."
    if asked.choices is not None and asked.key(found) is None:
        measured = f"Measured: {asked.said(found)}, which is none of the choices."
        measured += " Run the cells again from the top; if it stays, please report it: the question is at fault."
    right = None if answer is None else asked.right(answer, found)
    if answer is None:
        text = f"No prediction this time. {measured}"
    elif right:
        text = f"You predicted {asked.said(answer)}, and so it is{asked.tail(answer)}."
        if not asked.choices and answer != found:
            text = f"You predicted {_apart(asked, answer, found)[0]}, and so it is, near enough. {measured}"
    elif asked.choices is None:
        mine, theirs = _apart(asked, answer, found)
        text = f"You predicted {mine}. Measured: {theirs}{_off(asked, answer, found)}."
    else:
        text = f"You predicted {asked.said(answer)}{asked.tail(answer)}. {measured}"
    lines = {"text": [text]}
    if after is not None:
        agrees = "which is what was measured" if asked.right(after, found) else "which was not measured"
        lines["after"] = [f"After the reveal you answered {asked.said(after)}, {agrees}."]
    return lines, _data(asked, answer, found, right)


def _by_row(asked: Question, kept: dict, found: dict) -> tuple[dict, dict]:
    answer = kept["answer"] or {}
    rows, hits = [], 0
    for row in asked.rows:
        mine = answer.get(row)
        hit = mine is not None and asked.right(mine, found[row])
        hits += hit
        none = asked.key(found[row]) is None
        theirs = f"{asked.said(found[row])} (none of the choices)" if none else asked.words(asked.key(found[row]))
        word = "no prediction" if mine is None else "as predicted" if hit else "otherwise"
        rows.append([row, "none" if mine is None else asked.words(mine), theirs, word])
    if not answer:
        lead = "No prediction this time. Measured:"
        rows = [[row, theirs] for row, _, theirs, _ in rows]
        head = ["", "measured"]
    else:
        count = len(asked.rows)
        lead = f"All {count} as you predicted." if hits == count else f"{hits} of {count} as you predicted."
        head = ["", "predicted", "measured", ""]
    widths = [max(len(line[at]) for line in [head, *rows]) for at in range(len(head))]
    body = ["  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in [head, *rows]]
    lines = {"text": [lead, *body], "table": show.table(head, rows)}
    if kept["after"] is not None:
        late = sum(asked.right(key, found[row]) for row, key in kept["after"].items())
        lines["after"] = [f"After the reveal you answered otherwise: {late} of {len(asked.rows)} as measured."]
    right = None if not answer else hits == len(asked.rows)
    return lines, _data(asked, answer or None, found, right)


def _data(asked: Question, answer, found, right) -> dict:
    return {"schema": 1, "name": asked.name, "answer": answer, "measured": _shown(found), "right": right}


def _shown(value):
    """A measured value as plain JSON, floats as they are shown: their last digits differ from machine to machine."""
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in value.items()}
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else str(value)
    return value


def _apart(asked: Question, answer, found) -> tuple[str, str]:
    """Both numbers, with as many digits as it takes to tell them apart."""
    for digits in range(4, 18):
        both = tuple(show.number(value, asked.unit, digits=digits) for value in (answer, found))
        if both[0] != both[1]:
            break
    return both


def _off(asked: Question, answer, found) -> str:
    """How far a number was off: by how much, and how many times, where that says something."""
    if not math.isfinite(found):
        return ""
    far = abs(answer - found)
    by = show.number(far, asked.unit.replace("×", ""))  # "1.2× too low" would be a factor
    if asked.unit == "%":  # a share of a share would say nothing
        by = f"{show.number(far)} percentage point{'' if far == 1 else 's'}"
    text = f", so {by} too {'high' if answer > found else 'low'}"
    if asked.unit != "%" and answer > 0 < found and max(answer / found, found / answer) >= 1.5:
        times = show.number(float(f"{max(answer / found, found / answer):.2g}"))
        text += f" ({times} times as much)" if answer > found else f" (the measured value is {times} times as large)"
    return text


def _show(asked: Question) -> None:
    kept = _kept(asked)
    given = kept["after"] if kept["after"] is not None else kept["answer"]
    text, body = [f"Predict: {asked.ask}"], show.paragraph(f"Predict: {asked.ask}", strong=True)
    if asked.rows:
        text.append("  for each of: " + ", ".join(asked.rows))
        body += show.paragraph("For each of: " + ", ".join(asked.rows))
    if asked.choices:
        listed = [asked.words(key) for key in asked.choices]
        text += [f"  ○ {words}" for words in listed]
        body += show.bullets(f"○ {words}" for words in listed)
    if given in (None, {}):
        state = f"Run this cell to answer here, or answer in its code: {_example(asked)}."
    else:
        late = ", given after the reveal" if kept["after"] is not None else ""
        state = f"Your answer{late}: {asked.sentence(given)}"
    text.append(state)
    widget = live.control(SECTION, asked.name, "PredictionControl", asked, given, lambda value: give(asked.name, value))
    show.show("\n".join(text), show.card(body + show.paragraph(state, soft=True)), widget=widget)


def _example(asked: Question) -> str:
    if asked.choices is None:
        return "`answer=`, then a number"
    first, *others = map(repr, asked.choices)
    if asked.rows:
        return f"`answer={{{asked.rows[0]!r}: {first}, …}}`"
    return f"`answer={first}` (or {', '.join(others)})"
