"""What a player says at each position."""

from __future__ import annotations

from helpers.data import Node, Recording, SavedTensor, Timeline

from . import ledger, text
from .memory_events import what_happened


class Teller:
    def __init__(self, recording: Recording, line: Timeline) -> None:
        self.recording = recording
        self.line = line

    def caption(self, p: int) -> list[str]:
        """Sentences of the caption at a position."""
        if p == 0:
            return ["Before the first event."]
        event = self.recording.events[p - 1]
        return [f"{event.phase.capitalize()}.", what_happened(self.recording, event) + "."]

    def node_words(self, node: Node) -> str:
        where = text.line(self.recording, node.place)
        return text.quoted(node.name) + (f", {where}" if where else "")

    def saved_words(self, saved: SavedTensor) -> str:
        return (text.names(saved.names) or ledger.formal(saved)) + f", {text.exact(saved.nbytes)}"
