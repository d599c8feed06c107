"""What the tests measure with: torch's own profiler as the oracle, and bitwise pictures of a run's outcome."""

import gc
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from helpers import record
from helpers.data import Recording, state_at, timeline
from helpers.record import private

from .scenarios import SCENARIOS, Trial


@dataclass(frozen=True)
class Allocation:
    nbytes: int  # negative: freed
    operator: str  # the innermost operator that ran then, "" outside any


@dataclass(frozen=True)
class Profile:
    """The profiler's memory events in order, from a start of 0 bytes."""

    events: tuple[Allocation, ...]

    @property
    def totals(self) -> list[int]:
        now, totals = 0, [0]
        for event in self.events:
            now += event.nbytes
            totals.append(now)
        return totals

    @property
    def peak(self) -> int:
        return max(self.totals)

    @property
    def end(self) -> int:
        return self.totals[-1]


def profiled(work: Callable[[], Any]) -> tuple[Profile, Any]:
    """Run under the profiler; the value of `work` lives until it has ended."""
    gc.collect()
    gc.disable()  # when it comes round depends on how many Python objects were made: not on tensors alone
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watcher:
            value = work()
    finally:
        gc.enable()
    events = sorted(watcher.profiler.kineto_results.events(), key=lambda e: e.start_ns())
    allocations, open_ = [], []
    for event in events:
        while open_ and open_[-1].end_ns() < event.start_ns():
            open_.pop()
        if event.name() == "[memory]":
            allocations.append(Allocation(event.nbytes(), open_[-1].name() if open_ else ""))
        elif event.name().startswith("aten::"):
            open_.append(event)
    return Profile(tuple(allocations)), value


@dataclass(frozen=True)
class Outcome:
    picture: Any  # of results, objects, random state, error
    profile: Profile
    recording: Recording | None = None  # None where nobody watched, and where a call raised
    error: Exception | None = None


def outcome(build: Callable[[], Trial], how: str = "plain", seed: int = 1) -> Outcome:
    """Build a trial and run it. how: plain, call (record(step)), block (with record()) or kernels."""
    private.capabilities()  # its self-test allocates, once a process
    torch.manual_seed(seed)
    trial = build()
    seen: list[Any] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            if how == "plain":
                trial.run()
            elif how in ("call", "kernels"):
                seen.append(record(trial.run, kernels=how == "kernels"))
            else:
                watching = record()
                seen.append(watching)
                with watching:
                    trial.run()
        except Exception as error:
            errors.append(error.with_traceback(None))
            trial.results.append((type(error), str(error)))

    # What kernels hold inside is measured with the profiler too, and there is only one.
    profile_, _ = profiled(run) if how != "kernels" else (Profile(()), run())
    recording = seen[0].recording if seen else None
    seen_ = (picture(trial.results, version=False), picture(trial.objects), picture(torch.random.get_rng_state()))
    return Outcome(seen_, profile_, recording, errors[0] if errors else None)


def compared(model: Callable[[], torch.nn.Module], shape: tuple[int, ...]) -> tuple[Profile, Recording]:
    """One forward and backward of a model, unwatched under the profiler and then recorded."""

    def build() -> Any:
        torch.manual_seed(0)
        return model(), torch.randn(shape)

    def step(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        loss = net(x).float().pow(2).mean()
        loss.backward()
        return loss

    parts = build()
    profile_, _ = profiled(lambda: step(*parts))
    return profile_, record(step, *build()).recording


class Summary(NamedTuple):
    """What many tests want to know of one run; small, so that it can be kept."""

    picture: Any
    failed: bool
    peak: int
    end: int
    ledger_peak: int
    ledger_end: int
    numbers: int  # Python numbers that nodes keep at the end


@cache
def summary(name: str, how: str = "plain") -> Summary:
    """One run of a scenario, once a session."""
    run = outcome(SCENARIOS[name], how)
    ledger = (0, 0, 0)
    if run.recording is not None:
        last = len(run.recording.events) - 1
        ledger = (ledger_peak(run.recording), ledger_end(run.recording), numbers_kept(run.recording, last))
    return Summary(run.picture, run.error is not None, run.profile.peak, run.profile.end, *ledger)


def picture(value: Any, *, version: bool = True) -> Any:
    """A value as plain data; tensors bit by bit, with layout and gradient, and how often they were changed in place.

    `version` False leaves the last out: how often torch itself wrote into a result while making it matters to nobody.
    """
    inner = partial(picture, version=version)
    if isinstance(value, torch.Tensor):
        return _tensor(value, version)
    if isinstance(value, torch.nn.Module):
        return tuple((name, inner(t)) for name, t in (*value.named_parameters(), *value.named_buffers()))
    if isinstance(value, torch.optim.Optimizer):
        return inner(value.state_dict())
    if isinstance(value, dict):
        return tuple((inner(k), inner(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(inner, value))
    return value


def _tensor(tensor: torch.Tensor, version: bool) -> Any:
    if tensor.layout is torch.sparse_coo:
        bits = (tensor.is_coalesced(), _tensor(tensor._indices(), False), _tensor(tensor._values(), False))
    else:
        plain = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
        bits = (tensor.stride(), tensor.storage_offset(), hashlib.sha1(data).hexdigest())
    gradient = tensor.grad if tensor.is_leaf or tensor.retains_grad else None
    changes = tensor._version if version and not tensor.is_inference() else None
    kind = (str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad, changes)
    return (*kind, bits, None if gradient is None else _tensor(gradient, False))


# ---------------------------------------------------------------- the ledger


def ledger_totals(recording: Recording) -> list[int]:
    """Live bytes after each event, from a start of 0."""
    totals = timeline(recording).totals
    return [total - totals[0] for total in totals]


def ledger_peak(recording: Recording) -> int:
    return max(ledger_totals(recording))


def ledger_end(recording: Recording) -> int:
    return ledger_totals(recording)[-1]


def numbers_kept(recording: Recording, moment: int) -> int:
    """How many Python numbers (`x * 2`) nodes keep: 8 bytes each to the profiler, nobody's tensor to the ledger."""
    return sum(bool(s.scalar) and state_at(s, moment) == "live" for s in recording.saved)
