"""Cards: a table of assumptions, and numbers in its place."""

import dataclasses

import pytest

from helpers.gpu.cards import CARDS, Card, card


def test_the_table():
    assert {c.name: c.nbytes for c in CARDS} == {
        "T4": 15_800_000_000,
        "L4": 24_000_000_000,
        "RTX 3090": 24_000_000_000,
        "RTX 4090": 24_000_000_000,
        "A100 40 GB": 40_000_000_000,
        "A100 80 GB": 80_000_000_000,
        "H200": 141_000_000_000,
    }
    assert all(c.context == 2**29 and c.capacity == c.nbytes - 2**29 for c in CARDS)


@pytest.mark.parametrize(
    "asked, name",
    [
        ("T4", "T4"),
        (" t4 ", "T4"),
        ("a100 80", "A100 80 GB"),
        ("A100-40GB", "A100 40 GB"),
        ("h200", "H200"),
        ("rtx 4090", "RTX 4090"),
        (CARDS[0], "T4"),
    ],
)
def test_found_by_name(asked, name):
    assert card(asked) == next(c for c in CARDS if c.name == name)


@pytest.mark.parametrize("asked", [16, 16.0, "16", "16 GB", "16gb"])
def test_a_number_is_that_many_gb(asked):
    assert card(asked) == Card("16 GB", 16_000_000_000)


def test_the_context_can_be_replaced():
    assert card("T4", context=0).capacity == 15_800_000_000
    assert card(1, context=400_000_000).capacity == 600_000_000
    with pytest.raises(dataclasses.FrozenInstanceError):
        CARDS[0].context = 3


@pytest.mark.parametrize("asked", ["V100", "", -3, 0, True, float("nan")])
def test_an_unknown_one_is_told_the_known_ones(asked):
    with pytest.raises(ValueError, match="No card is called .* Known cards: T4, L4, .*H200. A number means"):
        card(asked)


def test_a_name_that_fits_several():
    with pytest.raises(ValueError, match="fits A100 40 GB, A100 80 GB: say which"):
        card("A100")


def test_no_room_beside_the_context():
    with pytest.raises(ValueError, match="0.5 GB has no room beside a context of 536,870,912 B"):
        card(0.5)
    with pytest.raises(ValueError, match="no room"):
        card("T4", context=-1)
