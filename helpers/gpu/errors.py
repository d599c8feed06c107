"""What the snapshots' readers raise: sentences that say what was wrong, where, and what to do."""


class SnapshotError(ValueError):
    """A file is no memory snapshot that can be read, or what it tells does not fit together."""
