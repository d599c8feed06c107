"""The one error of the lessons."""


class LessonError(ValueError):
    """What was wrong, where, and what to do: its message is for the reader of a notebook."""
