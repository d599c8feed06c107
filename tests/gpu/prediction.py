"""What the public CUDA snapshots recorded, run as if on a GPU: one model, one set of switches for all of them.

Only context, precision and mode differ, and no number of a snapshot goes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from helpers import as_if_on_gpu
from helpers.data import Recording, timeline
from helpers.gpu import Choices
from helpers.gpu.choices import in_force

from .snapshot_model import BATCH, VOCABULARY, AdamW, Model, cross_entropy

#: For every file. The recorded steps came after others, so cuBLAS's workspaces are there at the start: none is new.
SWITCHES: dict[str, Any] = {"workspace": 0}


@dataclass(frozen=True)
class Traced:
    """A snapshot file and what ran. rise: published peak over the start, in bytes as requested."""

    name: str
    context: int
    rise: int
    bf16: bool = False
    training: bool = True


TRACED = {
    t.name: t
    for t in (
        Traced("medium_128_training", 128, 1_918_013_444),
        Traced("medium_256_training", 256, 4_008_140_800),
        Traced("medium_512_training_bf16", 512, 7_331_061_768, bf16=True),
        Traced("medium_128_inference", 128, 35_651_584, training=False),
    )
}


def predicted(traced: Traced, **switches: Any) -> Recording:
    """The step recorded as if on a GPU, after one to warm up: optimizer state is there, gradients are not."""
    switches = SWITCHES | switches
    with torch.device("meta"):
        model = Model(traced.context)
        tokens, targets = torch.randint(0, VOCABULARY, (2, BATCH, traced.context))
    optimizer = AdamW(model.parameters())

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=traced.bf16):
            logits = model(tokens)
            loss = cross_entropy(logits, targets)
        loss.backward()
        optimizer.step()

    def inference() -> None:
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=traced.bf16):
            model(tokens)

    if not traced.training:
        return as_if_on_gpu(inference, graph=False, **switches).recording
    with in_force(Choices(**switches)):
        step()
    optimizer.zero_grad()
    return as_if_on_gpu(step, **switches).recording


def predicted_rise(recording: Recording) -> int:
    """Bytes of the peak over the start."""
    totals = timeline(recording).totals
    return max(totals) - totals[0]


def predicted_requests(recording: Recording) -> list[int]:
    """Bytes of each request, in order."""
    made = (recording.storages[s].nbytes for event in recording.events for s in event.allocated)
    return [nbytes for nbytes in made if nbytes]


def recorded_rise(snapshot: Mapping[str, Any]) -> int:
    """The same of a snapshot's history, in bytes as requested, counted entry by entry."""
    now = most = 0
    for entry in snapshot["device_traces"][0]:
        now += {"alloc": entry["size"], "free_completed": -entry["size"]}.get(entry["action"], 0)
        most = max(most, now)
    return most


def recorded_requests(snapshot: Mapping[str, Any]) -> list[int]:
    """The same of a snapshot's history."""
    return [entry["size"] for entry in snapshot["device_traces"][0] if entry["action"] == "alloc"]
