"""Watching torch: the graph walk, the ledger of storages, saved tensors, backward's progress, source lines."""

from .errors import RecordError
from .recorder import Recorder

__all__ = ["RecordError", "Recorder"]
