"""How much memory a program has on a card: a table of assumptions, each of which can be replaced by a number."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: What a CUDA context takes of the card before the first tensor (measured contexts: 287–667 MB, by card and driver).
CONTEXT = 2**29

#: Sizes in GB (1e9 B). A T4's 15.8 is the most that torch.cuda reports of one (14.75 GiB; 14.56 GiB with some drivers).
#: Of the others it is the seller's number, read as 1e9: an A100, an RTX 3090 or 4090 and an H200 report some 6 % more
#: (an A100 40 GB has 39.4 to 39.6 GiB), an L4, whose error correction takes a part, 1 % less.
_GB = {"T4": 15.8, "L4": 24, "RTX 3090": 24, "RTX 4090": 24, "A100 40 GB": 40, "A100 80 GB": 80, "H200": 141}


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU's memory. nbytes: all of it; context: what CUDA itself takes; both are assumptions, in bytes."""

    name: str
    nbytes: int
    context: int = CONTEXT

    @property
    def capacity(self) -> int:
        """Bytes that the program can reserve."""
        return self.nbytes - self.context

    @property
    def assumption(self) -> str:
        """What is assumed, as a sentence."""
        return (
            f"{self.name} is taken to have {self.nbytes:,} B, of which the CUDA context takes {self.context:,} B; "
            f"{self.capacity:,} B are left for the program."
        )


CARDS = tuple(Card(name, round(gb * 1e9)) for name, gb in _GB.items())


def card(which: str | int | float | Card, *, context: int | None = None) -> Card:
    """The card of that name ("T4", "A100 80", in any case), or one with that many GB (1e9 B).

    context: bytes that CUDA takes for itself; 0.5 GiB (2**29) unless told. Raises ValueError, naming the cards, for a
    name that is not in the table, and for one with no memory left.
    """
    found = _found(which)
    if context is not None:
        found = Card(found.name, found.nbytes, context)
    if found.context < 0 or found.capacity <= 0:
        raise ValueError(f"{found.name} has no room beside a context of {found.context:,} B. {_known()}")
    return found


def _found(which: str | int | float | Card) -> Card:
    if isinstance(which, Card):
        return which
    text = str(which).strip()
    plain = _plain(text)
    exact = [c for c in CARDS if _plain(c.name) == plain]
    begun = [c for c in CARDS if plain and _plain(c.name).startswith(plain)]
    if len(exact or begun) == 1:
        return (exact or begun)[0]
    number = None if isinstance(which, bool) else re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:GB)?", text, re.IGNORECASE)
    if number and float(number[1]) > 0:
        return Card(f"{float(number[1]):g} GB", round(float(number[1]) * 1e9))
    several = f"{which!r} fits {_list(begun)}: say which." if begun else f"No card is called {which!r}."
    raise ValueError(f"{several} {_known()}")


def _plain(name: str) -> str:
    """ "A100 80 GB" → "a10080": without case, spaces and the unit."""
    return re.sub(r"gb$", "", re.sub(r"[\s_-]", "", name.lower()))


def _known() -> str:
    return f"Known cards: {_list(CARDS)}. A number means that many GB (1e9 B)."


def _list(cards: object) -> str:
    return ", ".join(c.name for c in cards)
