"""The claims and misconceptions are all there, each in its chapter, and a fault in their files is named."""

import dataclasses
import re

import pytest

from helpers.lessons import LessonError
from helpers.lessons.claims import (
    CHAPTERS,
    VERDICTS,
    Bound,
    claims,
    claims_of,
    misconceptions,
    misconceptions_of,
    read_claims,
    read_misconceptions,
)

#: Which chapter settles what: every sentence of the two sources that can be measured, and B3x of the course's own.
SETTLED = {
    "00": "",
    "01": "A1 A2 A3 A3b B1 B1b B2",
    "02": "A4 A5 A6 A7",
    "03": "A9 A10 B3 B3x B4 B5 B6 B7 B8 B9",
    "04": "A9b A11",
    "05": "A12 A13 A14 A15 A16 A17 A18 A20b",
    "06": "A19 A20 A21 A22",
    "07": "A8 A23",
}
MET = {
    "00": "",
    "01": "M1 M2 M3 M10 M12 M15 M16 M22",
    "02": "M16 M23",
    "03": "M4 M5 M6",
    "04": "M7 M8 M9",
    "05": "M10 M11 M12",
    "06": "M13 M14 M17 M18 M19 M20 M21 M22 M23 M24",
    "07": "",
}


def test_each_claim_is_there_and_nothing_else():
    ids = [f"A{n}" for n in range(1, 24)] + [f"B{n}" for n in range(1, 10)] + "A3b A9b A20b B1b B3x".split()
    assert set(claims()) == set(ids) and len(claims()) == len(ids) == 37


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_each_claim_is_settled_in_its_chapter(chapter):
    assert {claim.id for claim in claims_of(chapter)} == set(SETTLED[chapter].split())


def test_each_misconception_is_there_and_nothing_else():
    assert list(misconceptions()) == [f"M{n}" for n in range(1, 25)]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_each_misconception_is_met_in_its_chapters(chapter):
    assert {found.id for found in misconceptions_of(chapter)} == set(MET[chapter].split())


def test_sources():
    assert {claim.id: claim.source for claim in claims().values() if claim.id[0] != claim.source} == {"B3x": "course"}


def test_claims_with_expectations_are_those_of_the_chapters_that_exist():
    expecting = {claim.chapter for claim in claims().values() if claim.expect}
    for chapter in expecting:
        assert all(claim.expect for claim in claims_of(chapter)), chapter
    assert "01" in expecting


@pytest.mark.parametrize("entry", [*claims().values(), *misconceptions().values()], ids=lambda entry: entry.id)
def test_words_are_sentences_for_a_learner(entry):
    said = [entry.claim, entry.truth] if hasattr(entry, "claim") else [entry.name, entry.truth]
    for text in said:
        assert text[0].isupper() or text[0] in "`0123456789"
        assert re.search(r"[.?!][)\"]?$", text) and text.count("`") % 2 == 0
        assert not re.search(r"[^\x00-\x7f·²×]", text), "plain letters and few signs"
        inside = re.sub(r"`[^`]*`", "", text)
        assert 1 <= len(re.findall(r"[.?!](?=[\s)\"]|$)", re.sub(r"et al\.", "", inside))) <= 4


@pytest.mark.parametrize("entry", [*claims().values(), *misconceptions().values()], ids=lambda entry: entry.id)
def test_ids_that_are_named_exist(entry):
    for id in re.findall(r"\b[AB]\d+[a-z]?\b", entry.truth):
        assert id in claims() and id != entry.id


def test_every_verdict_is_used():
    assert {claim.verdict for claim in claims().values()} == set(VERDICTS)


def test_data_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        claims()["A1"].verdict = "holds"
    with pytest.raises(dataclasses.FrozenInstanceError):
        misconceptions()["M1"].truth = ""
    with pytest.raises(TypeError):
        claims()["A99"] = None
    with pytest.raises(TypeError):
        claims()["A1"].expect["w.grad is set by backward"] = False
    assert claims() is claims() and misconceptions() is misconceptions()


GOOD = """
[A1]
source = "A"
chapter = "01"
claim = "Everybody says so."
verdict = "holds"
truth = "It is so."
[A1.expect]
"a fact" = 3
"""
GOOD_M = '[M1]\nname = "It is."\ntruth = "It is not."\nchapters = ["01", "05"]\n'


def test_good_files_are_read():
    assert read_claims(GOOD)["A1"].expect == {"a fact": 3}
    assert read_misconceptions(GOOD_M)["M1"].chapters == ("01", "05")
    assert read_claims('[B2]\nsource="B"\nchapter="03"\nclaim="C."\nverdict="holds"\ntruth="T."')["B2"].expect == {}


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("[A1]", "[A1", "no TOML"),
        ("\n[A1]", "A2 = 3\n[A1]", "outside a table"),
        ("A1", "C1", "A or B with a number"),
        ('source = "A"', 'source = "a"', "source is 'a'"),
        ('source = "A"\n', "", "source wants"),
        ('"01"', '"08"', "chapter is '08'"),
        ('"01"', '"00"', "chapter is '00'"),
        ('"01"', "1", "chapter wants one line of text; there is 1"),
        ('"holds"', '"maybe"', "verdict is 'maybe'"),
        ('"It is so."', '" "', "truth wants"),
        ('"It is so."', '"""It is\nso."""', "one line"),
        ("truth", "Truth", "truth wants"),
        ('source = "A"', 'source = "A"\nnote = "x"', "unknown note"),
        ('"a fact" = 3', "", "a line for each fact"),
        ("[A1.expect]", "[A1.expected]", "unknown expected"),
        ("= 3", '= "> many"', "no bound"),
        ("= 3", '= ">"', "no bound"),
        ("= 3", '= "< nan"', "no bound"),
        ("= 3", '= "> 1e999"', "no finite number"),
        ("= 3", "= nan", "can never be met"),
        ("= 3", "= [[1, nan]]", "can never be met"),
        ("= 3", '= ["> 1"]', "stands alone"),
        ("= 3", "= {x = 1}", "no yes or no"),
        ("= 3", "= 2026-01-31", "no yes or no"),
    ],
)
def test_a_fault_in_the_claims_is_named(old, new, said):
    assert old in GOOD
    with pytest.raises(LessonError, match=re.escape(said)) as raised:
        read_claims(GOOD.replace(old, new))
    assert "claims.toml" in str(raised.value)


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("M1", "N1", "M with a number"),
        ('["01", "05"]', '"01"', "chapters is a list"),
        ('["01", "05"]', "[]", "chapters is a list"),
        ('["01", "05"]', '["01", "01"]', "each once"),
        ('["01", "05"]', '["01", "11"]', "chapters is '11'"),
        ('name = "It is."', "name = 3", "name wants one line of text; there is 3"),
        ("truth", "true", "truth wants"),
        ("[M1]", '[M1]\nclaim = "x"', "unknown claim"),
    ],
)
def test_a_fault_in_the_misconceptions_is_named(old, new, said):
    with pytest.raises(LessonError, match=re.escape(said)) as raised:
        read_misconceptions(GOOD_M.replace(old, new))
    assert "misconceptions.toml" in str(raised.value)


@pytest.mark.parametrize(
    "text, inside, outside, words",
    [
        ("< 3", 2.999, 3, "below 3"),
        ("<= 3", 3, 3.001, "at most 3"),
        ("> 0", 1e-300, 0, "above 0"),
        (">= 10240", 10240, 10239, "at least 10,240"),
        ("< 1e-12", 9e-13, 1e-12, "below 1e-12"),
        (">=-0.5", -0.5, -0.6, "at least -0.5"),
    ],
)
def test_bounds(text, inside, outside, words):
    bound = Bound.read(text)
    assert bound.holds(inside) and not bound.holds(outside) and not bound.holds(float("nan"))
    assert bound.words == words and Bound.read(str(bound)) == bound
