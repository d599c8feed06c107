"""The lessons: predict and reveal, quizzes, checked exercises, verdicts on what tutorials claim, an explorer.

Each shows itself and returns None. What the learner answers is kept in a file of their own (see `answers`).
"""

from . import answers, show
from .check import check
from .errors import LessonError
from .predictions import predict, reveal
from .quiz import quiz

__all__ = ["LessonError", "check", "explore_transformer", "predict", "quiz", "reset", "reveal", "verdict"]


def reset(name: str | None = None) -> None:
    """Forget the answers kept under `name` (of a prediction, an exercise, a claim or a quiz), or all of them."""
    if name is not None and not isinstance(name, str):
        raise LessonError(f'reset() takes a name in quotes, as in reset("01"); this is {name!r}.')
    kept = answers.clear(name)
    if kept:
        text = "Forgotten: " + (f"`{name}`." if name else f"everything kept so far ({', '.join(kept)}).")
    else:
        text = f"Nothing was kept under `{name}`." if name else "Nothing was kept."
    show.show(text, show.card(show.paragraph(text)))


def __getattr__(name):
    if name == "verdict":
        from .verdicts import verdict

        globals()["verdict"] = verdict
        return verdict
    if name == "explore_transformer":
        from .explorer import explore_transformer

        globals()["explore_transformer"] = explore_transformer
        return explore_transformer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
