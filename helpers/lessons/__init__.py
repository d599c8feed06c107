"""The lessons: predict and reveal, quizzes, checked exercises, and verdicts on what tutorials claim.

Each shows itself and returns None. What the learner answers is kept in a file of their own (see `answers`).
"""

from . import answers
from .errors import LessonError
from .predictions import predict, reveal
from .show import card, paragraph, show

__all__ = ["LessonError", "check", "predict", "quiz", "reset", "reveal", "verdict"]


def reset(name: str | None = None) -> None:
    """Forget the answers kept under `name` (of a prediction, an exercise, a claim or a quiz), or all of them."""
    if name is not None and not isinstance(name, str):
        raise LessonError(f'reset() takes a name in quotes, as in reset("01"); this is {name!r}.')
    kept = answers.clear(name)
    if kept:
        text = "Forgotten: " + (f"`{name}`." if name else f"everything kept so far ({', '.join(kept)}).")
    else:
        text = f"Nothing was kept under `{name}`." if name else "Nothing was kept."
    show(text, card(paragraph(text)))


def __getattr__(name):
    if name == "verdict":
        from .verdicts import verdict

        globals()["verdict"] = verdict
        return verdict
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# A module and its function share a name: the function is bound last, so that it is what the package gives.
try:
    from .quiz import quiz
except ModuleNotFoundError:
    pass
try:
    from .check import check
except ModuleNotFoundError:
    pass
