"""verdict(): what a run measured, held against what the course says of a claim."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from . import answers
from .claims import Bound, Claim, Expected, claims
from .errors import LessonError
from .show import bullets, card, number, paragraph, show

SCHEMA = 1
ADVICE = (
    "Run the cells above again, from the top of the notebook. If it stays so, your run is right and the course is "
    "wrong: please report it."
)


def verdict(id: str, measured: Mapping) -> None:
    """Show what was measured and, if it is what the course expects, the claim's verdict.

    id: a claim, as "A3b". measured: exactly the facts of its `expect` table → what this run gave; numbers, True and
    False, text, lists; tensors and arrays of one number with no dimension count as numbers, None as the text "None".
    A fact that disagrees is shown beside what the course expects, and no verdict is given. Raises LessonError for an
    unknown claim, one that a later chapter settles, missing or unknown facts, and values that cannot be compared.
    """
    outcome = judge(id, measured)
    show(outcome.text, outcome.html, outcome.data, "verdict")
    answers.put("verdicts", id, outcome.data)


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of a claim: what the course expects and what a run gave, as plain values."""

    name: str
    expected: Expected
    measured: bool | int | float | str | tuple

    @property
    def agrees(self) -> bool:
        return agree(self.expected, self.measured)

    @property
    def line(self) -> str:
        """For a fact that agrees; of a bound the bound, since digits differ: but a count is the same everywhere."""
        counted = isinstance(self.expected, Bound) and type(self.measured) is type(self.expected.limit) is int
        return f"{self.name}: {say(self.measured if counted else self.expected)}"

    @property
    def disagreement(self) -> str:
        measured, wanted = say(self.measured), say(self.expected)
        limit = say(self.expected.limit) if isinstance(self.expected, Bound) else wanted
        if measured == limit:
            measured, wanted = exactly(self.measured), exactly(self.expected)
        return f"{self.name}: measured {measured}; the course expects {wanted}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What verdict() shows: `text`, `html` and `data` say the same."""

    claim: Claim
    facts: tuple[Fact, ...]

    @property
    def settled(self) -> bool:
        return all(fact.agrees for fact in self.facts)

    @property
    def title(self) -> str:
        if not self.settled:
            return f"Claim {self.claim.id} · not settled by this run"
        more = " …" if self.claim.verdict in ("holds, if", "holds, except") else ""
        return f"Claim {self.claim.id} · {self.claim.verdict}{more}"

    @property
    def parts(self) -> tuple[tuple[str, list[str]], ...]:
        """What stands under the title, in order: a label and its lines."""
        agreeing = [fact.line for fact in self.facts if fact.agrees]
        parts = [("The claim", [self.claim.claim])]
        if self.settled:
            return (*parts, ("Measured", agreeing), ("So", [self.claim.truth]))
        parts.append(("Not as expected", [fact.disagreement for fact in self.facts if not fact.agrees]))
        if agreeing:
            parts.append(("As expected", agreeing))
        return (*parts, ("What to do", [ADVICE]))

    @property
    def text(self) -> str:
        lines = [self.title]
        for label, said in self.parts:
            if len(said) == 1:
                lines.append(f"    {label}: {said[0]}")
            else:
                lines += [f"    {label}:", *(f"      - {one}" for one in said)]
        return "\n".join(lines)

    @property
    def html(self) -> str:
        body = paragraph(self.title, strong=True)
        for label, said in self.parts:
            if len(said) == 1:
                body += paragraph(f"{label}: {said[0]}")
            else:
                body += paragraph(f"{label}:") + bullets(said, mark="disc")
        return card(body)

    @property
    def data(self) -> dict:
        """Plain JSON, the same on each machine if settled: of a bound that holds the bound, not the digits."""
        return {
            "schema": SCHEMA,
            "id": self.claim.id,
            "verdict": self.claim.verdict if self.settled else None,
            "settled": self.settled,
            "measured": {fact.name: stored(fact) for fact in self.facts},
        }


def judge(id: str, measured: Mapping) -> Outcome:
    """Hold what was measured against the claim; displays and stores nothing. Raises LessonError as verdict() does."""
    if not isinstance(id, str) or id not in claims():
        raise LessonError(
            f'There is no claim {id!r}. A claim\'s id is a text such as "A3b"; there are {", ".join(claims())}.'
        )
    claim = claims()[id]
    if not claim.expect:
        raise LessonError(f"Claim {id} is not settled here: chapter {claim.chapter} settles it.")
    at = f'verdict("{id}", …)'
    if not isinstance(measured, Mapping):
        raise LessonError(
            f"{at} takes what was measured as a dict, fact → value; this is {kind(measured)}. "
            f"The facts of {id}: {listed(claim.expect)}."
        )
    missing = [fact for fact in claim.expect if fact not in measured]
    unknown = [fact for fact in measured if fact not in claim.expect]
    if missing or unknown:
        said = [f"{word} {listed(facts)}" for word, facts in (("lacks", missing), ("does not know", unknown)) if facts]
        raise LessonError(f"{at} {' and '.join(said)}. The facts of {id}: {listed(claim.expect)}.")
    facts = (Fact(name, wanted, plain(measured[name], f"{at}, {name!r}")) for name, wanted in claim.expect.items())
    return Outcome(claim, tuple(facts))


def settles(data: object, id: str) -> str | None:
    """Why a stored result does not settle this claim as the course now stands; None if it does."""
    claim = claims().get(id)
    if claim is None or not claim.expect:
        return f"nothing is expected of {id} yet"
    if not isinstance(data, Mapping) or data.get("id") != id:
        return f"the result is not one of {id}"
    if data.get("schema") != SCHEMA:
        return f"the result has schema {data.get('schema')!r}, not {SCHEMA}"
    if data.get("settled") is not True:
        return "the run did not settle it"
    wanted = {name: as_json(value) for name, value in claim.expect.items()}
    measured = data.get("measured")
    same = isinstance(measured, Mapping) and set(measured) == set(wanted)
    if not same or not all(agree(tuple_of(wanted[name]), tuple_of(measured[name])) for name in wanted):
        return "the result holds other facts than the course expects now"
    if data.get("verdict") != claim.verdict:
        return f"the result says {data.get('verdict')!r}, the course {claim.verdict!r}"
    return None


def agree(expected: Expected, measured) -> bool:
    """Whether a plain value is what is expected: numbers by value, and True is not 1; NaN agrees with nothing."""
    if isinstance(expected, Bound):
        return is_number(measured) and expected.holds(measured)
    if isinstance(expected, tuple):
        same = isinstance(measured, tuple) and len(measured) == len(expected)
        return same and all(agree(one, other) for one, other in zip(expected, measured, strict=True))
    if is_number(expected):
        return is_number(measured) and measured == expected
    return type(measured) is type(expected) and measured == expected


def is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain(value, at: str):
    """A measured value as bool, int, float, text or a tuple of these. Raises LessonError for anything else."""
    if value is None:
        return "None"
    for basic in (bool, int, float, str):
        if isinstance(value, basic):
            # a subclass (an enumeration, numpy's float64) may compare and print in its own way
            return basic(value)
    if isinstance(value, (list, tuple)):
        return tuple(plain(item, at) for item in value)
    if hasattr(value, "item") and hasattr(value, "ndim"):
        if value.ndim:
            shape = "×".join(map(str, value.shape))
            raise LessonError(f"{at}: this is {kind(value)} of shape {shape}; give one number, or a list: `.tolist()`.")
        try:
            item = value.item()
        except RuntimeError as error:
            raise LessonError(f"{at}: {kind(value)} that gives no number: {str(error).splitlines()[0]}") from None
        if isinstance(item, (bool, int, float, str)):
            return item
    raise LessonError(
        f"{at}: {kind(value)} cannot be compared; give a number, True or False, text, or a list of these."
    )


def kind(value) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def say(value) -> str:
    """A value in words: yes and no, numbers for people, lists with commas, bounds as "below …"."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Bound):
        return value.words
    if isinstance(value, tuple):
        return ", ".join(map(say, value)) if value else "none"
    if isinstance(value, str):
        return value
    return "not a number (NaN)" if math.isnan(value) else number(value)


def exactly(value) -> str:
    """A value with its type, for two that look the same to `say`: the text "3" and the number 3, 3 and 3.0000001."""
    if isinstance(value, bool):
        return f"{say(value)} ({value})"
    if isinstance(value, str):
        return f'the text "{value}"'
    if isinstance(value, tuple):
        return f"the list [{', '.join(map(exactly, value))}]"
    return value.words if isinstance(value, Bound) else repr(value)


def stored(fact: Fact):
    return as_json(fact.expected if fact.agrees else fact.measured)


def as_json(value):
    """A value as JSON has it: lists, bounds as text, and text for what JSON has no number for."""
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    if isinstance(value, Bound):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def tuple_of(value):
    return tuple(map(tuple_of, value)) if isinstance(value, (list, tuple)) else value


def listed(names) -> str:
    return "; ".join(f'"{name}"' for name in names)
