"""Python's garbage collector and a recording: hundreds of thousands of notes, none of them garbage.

Each full round of the collector walks every object there is; while the notes grow, rounds follow each other, and they
cost more than the recording itself. So no round comes while we work, and between, as many objects of ours as usually
come with one of the learner's do not count.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

#: Objects that an operation leaves with us, at least.
OURS = 16


def uncollected(function: Callable[..., Any]) -> Callable[..., Any]:
    """No round of the collector while this function runs. No code of the learner's may run in it."""

    @wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        collecting = gc.isenabled()
        try:
            gc.disable()
            return function(*args, **kwargs)
        finally:
            if collecting:
                gc.enable()

    return inner


@contextmanager
def eased() -> Iterator[None]:
    """Rounds of the youngest generation come after OURS times as many new objects: about as often as unwatched.

    At the end the thresholds are what they were, unless the learner's code has set others since.
    """
    before = gc.get_threshold()
    ours = (before[0] * OURS, *before[1:])
    try:
        gc.set_threshold(*ours)
        yield
    finally:
        if gc.get_threshold() == ours:
            gc.set_threshold(*before)
