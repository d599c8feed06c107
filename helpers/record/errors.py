"""The one error that recording raises: a sentence that says what, where, and what to do."""


class RecordError(RuntimeError):
    """The code cannot be recorded, or a view was asked for that this recording does not have."""
