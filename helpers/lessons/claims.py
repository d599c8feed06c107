"""The claims that the course settles and the misconceptions that it meets: claims.toml and misconceptions.toml."""

from __future__ import annotations

import math
import operator
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from .errors import LessonError

#: Chapters as the notebooks' file names begin; 00 settles nothing.
CHAPTERS = ("00", "01", "02", "03", "04", "05", "06", "07")
#: Where a claim stands: in one of the two source texts, or in the course alone.
SOURCES = ("A", "B", "course")
VERDICTS = (
    "holds",
    "holds, if",
    "holds, except",
    "holds in part",
    "does not hold",
    "an image, not a definition",
    "a heuristic",
    "a contradiction",
)
SIGNS = {
    "<": (operator.lt, "below"),
    "<=": (operator.le, "at most"),
    ">": (operator.gt, "above"),
    ">=": (operator.ge, "at least"),
}
BOUND = re.compile(r"(<=|>=|<|>) *([+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?))")


@dataclass(frozen=True, slots=True)
class Bound:
    """A number that is known only to lie on one side of `limit`, written "< 1e-12" in the data."""

    sign: str
    limit: int | float

    @classmethod
    def read(cls, text: str) -> Bound:
        """Raises ValueError for a text that is no bound."""
        found = BOUND.fullmatch(text)
        if not found:
            raise ValueError(f'{text!r} is no bound such as "< 1e-12" or ">= 3"')
        sign, limit = found.groups()
        value = int(limit) if re.fullmatch(r"[+-]?\d+", limit) else float(limit)
        if not math.isfinite(value):
            raise ValueError(f"{text!r} bounds by no finite number")
        return cls(sign, value)

    def holds(self, value: int | float) -> bool:
        """Whether the number keeps the bound; what is not a number (NaN) never does."""
        return SIGNS[self.sign][0](value, self.limit)

    @property
    def words(self) -> str:
        """As a reader sees it: "below 1e-12"."""
        limit = f"{self.limit:,}" if isinstance(self.limit, int) else f"{self.limit:g}"
        return f"{SIGNS[self.sign][1]} {limit}"

    def __str__(self) -> str:
        """As it stands in the data, and in a machine-readable result."""
        return f"{self.sign} {self.limit}"


#: What a fact is expected to be; a list of the data is a tuple here.
Expected = bool | int | float | str | tuple | Bound


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, the chapter that settles it, and what is so.

    id: as "A3b". source: one of SOURCES. chapter: one of CHAPTERS. verdict: one of VERDICTS. truth: what is true
    instead, or under which condition. expect: fact → what a run must show; empty until the chapter is written.
    """

    id: str
    source: str
    chapter: str
    claim: str
    verdict: str
    truth: str
    expect: Mapping[str, Expected]


@dataclass(frozen=True, slots=True)
class Misconception:
    """What learners get wrong. id: as "M16". name: as a learner would say it. chapters: where it is met."""

    id: str
    name: str
    truth: str
    chapters: tuple[str, ...]


def read_claims(text: str, file: str = "claims.toml") -> Mapping[str, Claim]:
    """Claims from the text of such a file, by id. Raises LessonError that names the table and what is wrong in it."""
    found = {}
    for id, table in tables(text, file):
        at = f"{file}, [{id}]"
        if not re.fullmatch(r"[AB]\d+[a-z]?", id):
            raise LessonError(f'{at}: a claim\'s id is A or B with a number, as in "A3b".')
        keys(table, at, {"source", "chapter", "claim", "verdict", "truth"}, {"expect"})
        one_of(table["source"], SOURCES, f"{at}: source")
        one_of(table["chapter"], CHAPTERS[1:], f"{at}: chapter")
        one_of(table["verdict"], VERDICTS, f"{at}: verdict")
        expect = table.get("expect", {})
        if not isinstance(expect, dict) or ("expect" in table and not expect):
            raise LessonError(f"{at}: expect is a table with a line for each fact.")
        facts = {fact: expected(value, f"{at}: expect, {fact!r}") for fact, value in expect.items()}
        found[id] = Claim(id, **{k: v for k, v in table.items() if k != "expect"}, expect=MappingProxyType(facts))
    return MappingProxyType(found)


def read_misconceptions(text: str, file: str = "misconceptions.toml") -> Mapping[str, Misconception]:
    """Misconceptions from the text of such a file, by id. Raises LessonError that names the table and what is wrong."""
    found = {}
    for id, table in tables(text, file):
        at = f"{file}, [{id}]"
        if not re.fullmatch(r"M\d+", id):
            raise LessonError(f'{at}: a misconception\'s id is M with a number, as in "M16".')
        chapters = table.pop("chapters", None)
        keys(table, at, {"name", "truth"}, set())
        if not isinstance(chapters, list) or not chapters or len(set(map(str, chapters))) < len(chapters):
            raise LessonError(f'{at}: chapters is a list such as ["01", "02"], each once.')
        for chapter in chapters:
            one_of(chapter, CHAPTERS[1:], f"{at}: chapters")
        found[id] = Misconception(id, **table, chapters=tuple(chapters))
    return MappingProxyType(found)


def tables(text: str, file: str) -> list[tuple[str, dict]]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LessonError(f"{file} is no TOML: {error}.") from None
    for id, table in data.items():
        if not isinstance(table, dict):
            raise LessonError(f"{file}: {id!r} stands outside a table; each entry is a table of its own.")
    return list(data.items())


def keys(table: dict, at: str, wanted: set[str], allowed: set[str]) -> None:
    """The wanted keys are there, with text; nothing else but the allowed ones is."""
    for key in sorted(wanted):
        value = table.get(key)
        if not isinstance(value, str) or not value.strip() or value != value.strip() or "\n" in value:
            raise LessonError(f"{at}: {key} wants one line of text; there is {value!r}.")
    if unknown := sorted(set(table) - wanted - allowed):
        raise LessonError(f"{at}: unknown {', '.join(unknown)}; known are {', '.join(sorted(wanted | allowed))}.")


def one_of(value, choices: tuple, what: str) -> None:
    if value not in choices:
        raise LessonError(f"{what} is {value!r}; it is one of {', '.join(map(repr, choices))}.")


def expected(value, at: str) -> Expected:
    """An expected value as it stands in the data; a text that begins with < or > must be a bound."""
    if isinstance(value, str) and value.lstrip().startswith(("<", ">")):
        try:
            return Bound.read(value)
        except ValueError as error:
            raise LessonError(f"{at}: {error}.") from None
    if isinstance(value, list):
        items = tuple(expected(item, at) for item in value)
        if any(isinstance(item, Bound) for item in items):
            raise LessonError(f"{at}: a bound stands alone, not in a list.")
        return items
    if isinstance(value, float) and not math.isfinite(value):
        raise LessonError(f"{at}: {value} can never be met; expect a finite number or a bound.")
    if isinstance(value, (bool, int, float, str)):
        return value
    raise LessonError(f"{at}: {value!r} is no yes or no, number, text, list or bound.")


def here(file: str) -> str:
    return Path(__file__).with_name(file).read_text(encoding="utf-8")


@cache
def claims() -> Mapping[str, Claim]:
    """All claims by id, in the order of the chapters; read once."""
    return read_claims(here("claims.toml"))


@cache
def misconceptions() -> Mapping[str, Misconception]:
    """All misconceptions by id; read once."""
    return read_misconceptions(here("misconceptions.toml"))


def claims_of(chapter: str) -> tuple[Claim, ...]:
    """The claims that a chapter ("01") settles."""
    return tuple(claim for claim in claims().values() if claim.chapter == chapter)


def misconceptions_of(chapter: str) -> tuple[Misconception, ...]:
    """The misconceptions that a chapter ("01") meets."""
    return tuple(found for found in misconceptions().values() if chapter in found.chapters)
