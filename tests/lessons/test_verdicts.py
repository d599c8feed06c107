"""A verdict is given if every fact agrees, and never else."""

import enum
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.lessons import LessonError, answers, verdicts
from helpers.lessons.claims import Bound, Claim, claims, claims_of
from helpers.lessons.show import inline
from helpers.lessons.verdicts import agree, judge, plain, say, settles, verdict

ROOT = Path(__file__).parents[2]
EXPECTING = [claim for claim in claims().values() if claim.expect]
FACTS = [(claim, fact) for claim in EXPECTING for fact in claim.expect]


@pytest.fixture(autouse=True)
def own_answers(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIENTS_ANSWERS", str(tmp_path / "answers.json"))


@pytest.fixture
def made_up(monkeypatch):
    """Put a claim of the given expectations into the data."""

    def make(**expect):
        claim = Claim("A99", "A", "01", "Is `x < 1`?", "holds, if", "It <is> so & `y` too.", expect)
        monkeypatch.setattr(verdicts, "claims", lambda: {"A99": claim, **claims()})

    return make


def inside(value):
    """A measurement that agrees."""
    if isinstance(value, Bound):
        return value.limit + {"<": -1, "<=": 0, ">": 1, ">=": 0}[value.sign]
    return list(value) if isinstance(value, tuple) else value


def outside(value):
    """Measurements that do not, of the same kind and of others."""
    if isinstance(value, Bound):
        return [value.limit + {"<": 0, "<=": 1, ">": 0, ">=": -1}[value.sign], float("nan"), True, str(value), [9]]
    if isinstance(value, bool):
        return [not value, int(value), str(value), float("nan"), [value]]
    if isinstance(value, str):
        return [value + "x", value.upper() + "!", "", [value], True]
    if isinstance(value, tuple):
        return [list(value[:-1]), [*value, value[-1]], [], [True] * len(value), str(value), 3, [list(value)]]
    return [value + 1, -1 - value, float("nan"), bool(value), str(value), [value]]


def measured_of(claim):
    return {fact: inside(value) for fact, value in claim.expect.items()}


@pytest.mark.parametrize("claim", EXPECTING, ids=lambda claim: claim.id)
def test_a_run_that_agrees_gets_the_verdict(claim):
    outcome = judge(claim.id, measured_of(claim))
    assert outcome.settled and outcome.data["settled"] is True and outcome.data["verdict"] == claim.verdict
    first, *_ = outcome.text.splitlines()
    assert first.removesuffix(" …") == f"Claim {claim.id} · {claim.verdict}"
    assert claim.claim in outcome.text and claim.truth in outcome.text
    assert all(fact in outcome.text for fact in claim.expect)


@pytest.mark.parametrize("claim, fact", FACTS, ids=[f"{claim.id}: {fact}" for claim, fact in FACTS])
def test_one_fact_that_disagrees_is_enough(claim, fact):
    for wrong in outside(claim.expect[fact]):
        outcome = judge(claim.id, measured_of(claim) | {fact: wrong})
        assert not outcome.settled and outcome.data["settled"] is False and outcome.data["verdict"] is None, wrong
        assert outcome.title == f"Claim {claim.id} · not settled by this run"
        assert claim.truth not in outcome.text and inline(claim.truth) not in outcome.html
        assert "report it" in outcome.text and "report it" in outcome.html
        said = outcome.text.split("Not as expected:")[1].split("As expected")[0]
        assert f"{fact}: measured " in said and said.count("the course expects") == 1
        shown = said.split("measured ")[1].split("; the course expects ")
        assert shown[0].strip() != shown[1].split("\n")[0].strip(), "what differs looks different"


@pytest.mark.parametrize(
    "expected, measured, same",
    [
        (True, True, True),
        (True, 1, False),
        (1, True, False),
        (0, False, False),
        (1, 1.0, True),
        (1.0, 1, True),
        (0.1 + 0.2, 0.3, False),
        (0.0, -0.0, True),
        (3, "3", False),
        ("3", 3, False),
        ("a", "a", True),
        ((1, 2), (1, 2), True),
        ((1, 2), (2, 1), False),
        ((1, 2), (1, True), False),
        ((1, 2), (1,), False),
        ((), (), True),
        ((1,), 1, False),
        (((1, "a"), True), ((1, "a"), True), True),
        (((1, "a"), True), ((1, "a"), 1), False),
        (2**53 + 1, 2**53, False),
        (1.0, float("nan"), False),
        (float("nan"), float("nan"), False),
        (Bound("<", 2), 1.5, True),
        (Bound("<", 2), 2, False),
        (Bound(">", 0), True, False),
        (Bound(">", 0), float("inf"), True),
        (Bound(">", 0), float("nan"), False),
        (Bound(">", 0), "1", False),
        (Bound(">", 0), (1,), False),
    ],
)
def test_agree(expected, measured, same):
    assert agree(expected, measured) is same


class Count(enum.IntEnum):
    THREE = 3


@pytest.mark.parametrize(
    "value, expected",
    [
        (torch.tensor(3), 3),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.tensor(True), True),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(False), False),
        (np.array(3), 3),
        (np.str_("x"), "x"),
        (Count.THREE, 3),
        (None, "None"),
        (torch.Size([2, 3]), (2, 3)),
        ([torch.tensor(1), (np.int8(2), "x")], (1, (2, "x"))),
    ],
)
def test_values_become_plain(value, expected):
    found = plain(value, "here")
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    "value, said",
    [
        (torch.ones(1), "a Tensor of shape 1"),
        (torch.ones(2, 3), "of shape 2×3"),
        (np.ones(2), "a ndarray of shape 2"),
        (torch.tensor(0.0, device="meta"), "gives no number"),
        (torch.tensor(1j), "cannot be compared"),
        (1j, "a complex"),
        ({"y"}, "a set"),
        ({"y": 1}, "a dict"),
        (torch.relu, "cannot be compared"),
        ([1, object()], "an object"),
    ],
)
def test_values_that_cannot_be_compared(made_up, value, said):
    made_up(first=3, second=True)
    with pytest.raises(LessonError) as raised:
        judge("A99", {"first": 3, "second": value})
    assert said in str(raised.value) and "'second'" in str(raised.value)


def test_missing_and_unknown_facts_are_named(made_up):
    made_up(first=3, second=True)
    with pytest.raises(LessonError) as raised:
        judge("A99", {"first": 3})
    assert str(raised.value) == 'verdict("A99", …) lacks "second". The facts of A99: "first"; "second".'
    with pytest.raises(LessonError, match='lacks "second" and does not know "Second"; "7". The facts'):
        judge("A99", {"first": 3, "Second": True, 7: True})
    with pytest.raises(LessonError, match='A99", …\\) does not know "third"'):
        judge("A99", {"first": 3, "second": True, "third": 1})


@pytest.mark.parametrize("measured", [None, True, [("a", 1)], "kept"])
def test_what_is_no_dict_of_facts(measured):
    with pytest.raises(LessonError, match="as a dict, fact → value"):
        judge("A2", measured)


@pytest.mark.parametrize("id", ["A99", "a2", "", None, 3, ["A2"]])
def test_what_is_no_claim(id):
    with pytest.raises(LessonError, match=r"There is no claim .*A1, "):
        judge(id, {})


@pytest.mark.parametrize("claim", [c for c in claims().values() if not c.expect], ids=lambda claim: claim.id)
def test_a_claim_of_a_later_chapter(claim):
    with pytest.raises(LessonError, match=f"chapter {claim.chapter} settles it"):
        judge(claim.id, {})
    assert "nothing is expected" in settles({}, claim.id)


def test_the_text(made_up):
    made_up(**{"kept after each node": (3, 2, 1, 0)})
    assert judge("A99", {"kept after each node": [3, 2, 1, 0]}).text == (
        "Claim A99 · holds, if …\n"
        "    The claim: Is `x < 1`?\n"
        "    Measured: kept after each node: 3, 2, 1, 0\n"
        "    So: It <is> so & `y` too."
    )
    assert judge("A99", {"kept after each node": [3, 3, 3, 0]}).text == (
        "Claim A99 · not settled by this run\n"
        "    The claim: Is `x < 1`?\n"
        "    Not as expected: kept after each node: measured 3, 3, 3, 0; the course expects 3, 2, 1, 0\n"
        f"    What to do: {verdicts.ADVICE}"
    )


def test_several_facts_stand_in_lines_of_their_own(made_up):
    made_up(ratio=3.0, same=True, other="x")
    lines = judge("A99", {"ratio": 3, "same": True, "other": "x"}).text.splitlines()
    assert lines[2:6] == ["    Measured:", "      - ratio: 3", "      - same: yes", "      - other: x"]
    lines = judge("A99", {"ratio": 4, "same": True, "other": "x"}).text.splitlines()
    assert lines[2] == "    Not as expected: ratio: measured 4; the course expects 3"
    assert lines[3:6] == ["    As expected:", "      - same: yes", "      - other: x"]


def test_a_bound_is_shown_and_stored_as_the_bound(made_up):
    made_up(error=Bound("<", 1e-12), count=10_240)
    outcomes = [judge("A99", {"error": error, "count": 10_240}) for error in (3.1e-17, 0, torch.tensor(2e-14))]
    assert {outcome.text for outcome in outcomes} == {outcomes[0].text}
    assert {outcome.html for outcome in outcomes} == {outcomes[0].html}
    assert "error: below 1e-12" in outcomes[0].text and "count: 10,240" in outcomes[0].text
    assert all(o.data["measured"] == {"error": "< 1e-12", "count": 10_240} for o in outcomes)
    missed = judge("A99", {"error": 0.25, "count": 10_240})
    assert "measured 0.25; the course expects below 1e-12" in missed.text and missed.data["measured"]["error"] == 0.25


def test_a_count_within_its_bound_is_shown(made_up):
    made_up(operations=Bound(">=", 3))
    assert "operations: 6" in judge("A99", {"operations": 6}).text
    assert "operations: at least 3" in judge("A99", {"operations": 6.0}).text


@pytest.mark.parametrize(
    "expected, measured, said",
    [
        (3.0, 2.9999998, "measured 2.9999998; the course expects 3.0"),
        (Bound("<=", 3), 3.0000001, "measured 3.0000001; the course expects at most 3"),
        ("3", 3, 'measured 3; the course expects the text "3"'),
        (True, "yes", 'measured the text "yes"; the course expects yes (True)'),
        (("a, b",), ("a", "b"), 'measured the list [the text "a", the text "b"]; the course expects the list ['),
        (1, float("nan"), "measured not a number (NaN); the course expects 1"),
        (1, float("inf"), "measured inf; the course expects 1"),
        ((), ("y",), "measured y; the course expects none"),
    ],
)
def test_what_differs_looks_different(made_up, expected, measured, said):
    made_up(fact=expected)
    outcome = judge("A99", {"fact": measured})
    assert said in outcome.text
    assert json.loads(json.dumps(outcome.data, allow_nan=False)) == outcome.data


def test_words_for_values():
    assert [say(v) for v in (True, False, 10_240, 0.123456, (), (1, "x"), "None")] == [
        *("yes", "no", "10,240", "0.1235", "none", "1, x", "None"),
    ]


def test_html_is_escaped_and_inert(made_up):
    made_up(**{"<b>fact</b> & `code`": "a<i>"})
    for value in ("a<i>", "<script>alert(1)</script>"):
        html = judge("A99", {"<b>fact</b> & `code`": value}).html
        assert "<b>" not in html and "<i>" not in html and "<script" not in html and " id=" not in html
        assert "&lt;b&gt;fact&lt;/b&gt; &amp; <code" in html and "x &lt; 1</code>" in html
    assert "&lt;script&gt;" in html and "holds" not in html


@pytest.mark.parametrize("claim", EXPECTING, ids=lambda claim: claim.id)
def test_the_html_says_what_the_text_says(claim):
    for changes in ({}, {fact: "other" for fact in claim.expect}):
        outcome = judge(claim.id, measured_of(claim) | changes)
        for said in ([outcome.title], *(said for _, said in outcome.parts)):
            assert all(one in outcome.text and inline(one) in outcome.html for one in said)


@pytest.mark.parametrize("claim", EXPECTING, ids=lambda claim: claim.id)
def test_the_result_survives_json_and_still_settles(claim):
    outcome = judge(claim.id, measured_of(claim))
    data = json.loads(json.dumps(outcome.data, allow_nan=False))
    assert data == outcome.data and set(data) == {"schema", "id", "verdict", "settled", "measured"}
    assert settles(data, claim.id) is None
    assert settles(data, next(c.id for c in EXPECTING if c is not claim)) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 2},
        {"id": "A2"},
        {"settled": 1},
        {"settled": False},
        {"verdict": "holds"},
        {"verdict": None},
        {"measured": {}},
        {"measured": None},
        {"measured": {"list": [3, 2], "error": "< 1"}},
        {"measured": {"list": [3, 2, 1], "error": "< 2"}},
        {"measured": {"list": [3, 2, 1], "error": 0.5}},
        {"measured": {"list": [3, 2, 1], "error": "< 1", "more": 1}},
    ],
)
def test_a_result_that_settles_nothing(made_up, changes):
    made_up(list=(3, 2, 1), error=Bound("<", 1))
    data = judge("A99", {"list": [3, 2, 1], "error": 0.5}).data
    assert settles(data, "A99") is None
    assert settles(data | changes, "A99")


@pytest.mark.parametrize("data", [None, "A3b", [], {}])
def test_what_is_no_result(data):
    assert settles(data, "A3b")


def test_verdict_prints_in_a_script_and_returns_none(capsys):
    measured = measured_of(claims()["B1b"])
    assert verdict("B1b", measured) is None
    assert capsys.readouterr().out == judge("B1b", measured).text + "\n"


def test_verdict_is_kept_with_the_answers(capsys):
    claim = claims_of("01")[0]
    for measured in (measured_of(claim), dict.fromkeys(claim.expect, 17)):
        verdict(claim.id, measured)
        assert answers.get("verdicts", claim.id) == judge(claim.id, measured).data
    with pytest.raises(LessonError):
        verdict(claim.id, {})
    assert answers.get("verdicts", claim.id)["settled"] is False
    assert claim.truth in capsys.readouterr().out


def test_what_a_notebook_gets():
    measured = measured_of(claims()["B1"])
    code = f"""
import json
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
InteractiveShell.instance()
from helpers import verdict
with capture_output() as shown:
    given = verdict("B1", {measured!r})
assert given is None and not shown.stdout
(output,) = shown.outputs
print(json.dumps(output.data))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    bundle = json.loads(done.stdout.splitlines()[-1])
    outcome = judge("B1", measured)
    assert bundle == {
        "text/plain": outcome.text,
        "text/html": outcome.html,
        "application/vnd.gradients-and-intermediates.verdict+json": outcome.data,
    }
