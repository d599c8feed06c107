"""`record` and `Run`: the learner's code runs once, watched; every view is made from what was seen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from .data import AllocatorHistory, Recording, dumps, loads
from .data.devices import devices_of, only_device
from .data.model import PARAMETERS
from .record import Recorder, RecordError
from .record.interrupts import free, held
from .record.places import is_library
from .record.recorder import GONE

if TYPE_CHECKING:
    from .figures import Figure
    from .gpu import AsIfOnGPU, Card

FORMATS = (".html", ".svg", ".json", ".pickle")


class Run:
    """One recorded run. Views are made when asked for, from the recording alone; no view runs the code again."""

    def __init__(
        self,
        recorder: Recorder | None = None,
        make: Callable[[], Recording] | None = None,
        setting: AsIfOnGPU | None = None,
    ) -> None:
        self._recorder = recorder
        self._setting = setting  # what surrounds the recording
        self._make = make  # makes the recording, at the first look: a step that is watched need not wait for it
        self._recording: Recording | None = None
        self._snapshot: dict[str, Any] | None = None  # a GPU allocator's own history, where it was asked for
        self._shown: Recording | None = None

    # ---------------------------------------------------------------- as a context manager

    @held
    def __enter__(self) -> Run:
        if self._recorder is None:
            raise RecordError("This run is over. Write `with record() as run:` to record another one.")
        frame: FrameType = sys._getframe(1)
        while frame.f_back is not None and is_library(frame.f_code.co_filename):
            frame = frame.f_back  # entered by an ExitStack, say: the block is its caller's
        if self._setting is not None:
            self._setting.__enter__()
        try:
            self._recorder.start(frame, include_boundary=True)
        except BaseException:
            if self._setting is not None:
                self._setting.__exit__()
            raise
        return self

    @held
    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        recorder, self._recorder = self._recorder, None
        told = recorder.refused(error)
        if self._setting is not None:
            told = self._setting.told(told, recorder)
        self._end(recorder, told)
        if told is not error:
            raise told from None

    def _end(self, recorder: Recorder, error: BaseException | None, result: Any = None) -> None:
        setting, self._setting = self._setting, None
        try:
            make = recorder.stop(error, result)
            self._snapshot = recorder.snapshot
        finally:
            if setting is not None:
                setting.__exit__()
        if setting is not None:
            if error is None:
                setting.check(recorder)
            self._make = lambda: setting.finished(make())
        else:
            self._make = make

    # ---------------------------------------------------------------- the views

    @property
    def recording(self) -> Recording:
        """The data: events, storages, graphs, saved tensors (see helpers.data)."""
        if self._recording is None:
            if self._recorder is not None:
                raise RecordError(
                    "The recording is not over yet. Look at it after the `with record()` block has ended."
                )
            if self._make is None:
                raise RecordError("The recording was interrupted while it ended. Run the cell again.")
            self._recording = self._make()
            self._make = None
        return self._recording

    @property
    def graph(self) -> Figure:
        """The graph of the first backward pass (of the live results, if there was none), with what it keeps."""
        return self.graphs[0]

    @property
    def graphs(self) -> list[Figure]:
        """One figure for each backward pass."""
        from .figures import graph_figure

        recording = self._something()
        if not recording.graphs:
            raise RecordError(no_graph(recording))
        return [graph_figure(recording, graph.id) for graph in recording.graphs]

    @property
    def taken_apart(self) -> Figure:
        """The first graph's operations from top to bottom, as forward ran, and beside each what it keeps, to scale."""
        from .figures import taken_apart_figure

        recording = self._something()
        if not recording.graphs:
            raise RecordError(no_graph(recording))
        return taken_apart_figure(recording)

    @property
    def kept(self) -> Figure:
        """The ledger of what is kept as the first backward begins (at the end, if there was none), and why."""
        return self.kept_at(None)

    def kept_at(self, moment: int | None) -> Figure:
        """The ledger after event `moment`."""
        from .figures import kept_figure

        return kept_figure(self._something(), moment)

    @property
    def memory(self) -> Figure:
        """Live bytes by category, event by event, and the peak taken apart."""
        from .figures import memory_figure

        return memory_figure(self._something())

    @property
    def allocator(self) -> Figure:
        """The GPU's allocator: bytes allocated and reserved, its segments, and what lies stranded in them.

        Of a run on a GPU with record(history=True), and of a snapshot, the real one; of any other run, what PyTorch's
        allocator would do with it.
        """
        from .figures import allocator_figure

        recording, history = self._allocated(None)
        return allocator_figure(history, recording)

    def allocator_on(self, card: str | float | Card) -> Figure:
        """The same on a card ("T4", 24 for 24 GB, a helpers.gpu.Card): whether memory runs out, and where."""
        from .figures import allocator_figure

        recording, history = self._allocated(card)
        return allocator_figure(history, recording)

    def _allocated(self, card: str | float | Card | None) -> tuple[Recording, AllocatorHistory]:
        from .gpu import read_snapshot, simulate

        if self._snapshot is not None and card is None:
            recording = read_snapshot(self._snapshot)
            return recording, recording.allocator
        recording = self._something()
        history = recording.allocator
        if card is None and history is not None and history.segments:
            return recording, history
        return recording, simulate(recording, card)

    @property
    def kernels(self) -> Figure:
        """What kernels take inside themselves, over the ledger: of a run with record(kernels=True), on the CPU."""
        from .figures import kernels_figure

        return kernels_figure(self._something())

    def _something(self) -> Recording:
        """The recording that the views show: on a GPU, that GPU's memory alone."""
        recording = self.recording
        if not recording.events:
            raise RecordError(recording.notes[-1])
        if self._shown is None:
            nbytes = devices_of(recording)
            gpus = [d for d in nbytes if d.startswith("cuda")]
            self._shown = recording
            if gpus and len(nbytes) > 1:
                gpu = max(gpus, key=nbytes.__getitem__)
                beside = sum(n for d, n in nbytes.items() if d != gpu)
                note = f"Memory of {gpu} alone; {beside:,} B elsewhere are left out."
                self._shown = replace(only_device(recording, gpu), notes=(*recording.notes, note))
        return self._shown

    @property
    def player(self) -> Figure:
        """Everything together, step by step: what a notebook shows of a run. Live where scripts run, else a still."""
        from .figures import player_figure

        return player_figure(self._something())

    # ---------------------------------------------------------------- showing and saving

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        try:
            return self.player._repr_mimebundle_(include, exclude)
        except RecordError as error:
            return {"text/plain": str(error)}

    def __str__(self) -> str:
        try:
            return str(self.player)
        except RecordError as error:
            return str(error)

    def __repr__(self) -> str:
        if self._recorder is not None:
            return "<Run, not over yet>"
        counts = {"event": len(self.recording.events), "graph": len(self.recording.graphs)}
        return f"<Run of {', '.join(f'{n} {what}' + 's' * (n != 1) for what, n in counts.items())}>"

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the run to a file; the name's end chooses the form.

        .html is a page of its own with every view, .svg the picture of the graph (of the memory, if there is no graph),
        .json the recording itself, which `load` reads, .pickle a memory snapshot for PyTorch's own viewer, with the
        blocks where the allocator has them, or would have them. Raises ValueError for any other ending.
        """
        path = Path(path)
        end = path.suffix.lower()
        if end not in FORMATS:
            raise ValueError(f"save() writes {', '.join(FORMATS)}; {path.name!r} ends in {end or 'none of them'}.")
        if end == ".json":
            path.write_text(dumps(self.recording), encoding="utf-8")
        elif end == ".pickle":
            from .gpu import write_snapshot

            write_snapshot(*self._allocated(None), path)
        elif end == ".html":
            self.player.save(path)
        else:
            (self.graph if self._something().graphs else self.memory).save(path)
        return path


@held
def record(
    step: Any = None,
    /,
    *args: Any,
    graph: bool = True,
    names: dict[str, Any] | None = None,
    kernels: bool = False,
    history: bool = False,
    **kwargs: Any,
) -> Run:
    """Watch a block of torch code, or one call, and give the Run.

        with record() as run:          # a block
            loss = model(x).mean()
            loss.backward()

        run = record(step, x, y)       # a call: step(x, y)

    The code runs once, as it would without: same results, gradients, random numbers and memory peak. No tensor is kept.
    graph: False for code without gradients: no graph is looked for.
    names: names for tensors that no module and no variable names, such as model.state_dict().
    kernels: True measures what kernels take and give back inside themselves too (CPU only, and slow); it depends on the
        processor, so figures show it as a band of its own and no text twin tells it.
    history: True lets a GPU's allocator note every block with its address: run.allocator then shows the real map. A
        GPU's own counts are taken in any case where tensors lie on one.

    Raises RecordError, a sentence, for what cannot be recorded. What the code raises is raised on; in a block, the run
    then ends with that error.
    """
    recorder = Recorder(graph=graph, names=names, kernels=kernels, history=history)
    return _recorded(recorder, None, "record", step, args, kwargs)


@held
def as_if_on_gpu(
    step: Any = None,
    /,
    *args: Any,
    graph: bool = True,
    names: dict[str, Any] | None = None,
    attention: str = "auto",
    foreach: bool = True,
    dropout: bool = True,
    rms_norm: bool = True,
    autocast: bool = True,
    workspace: int | None = None,
    **kwargs: Any,
) -> Run:
    """Record a step as a GPU would run it, with no GPU: a Run like any other, of tensors without numbers.

        with torch.device("meta"):                 # shapes alone: any size, no memory
            model, x = Model(), torch.empty(8, 512)
        run = as_if_on_gpu(step, model, x)         # or: with as_if_on_gpu() as run:

    `device="cuda"` in the step means this device, and `torch.autocast("cuda")` casts as CUDA does.
    graph, names: as for `record`.
    attention, foreach, dropout, rms_norm, autocast, workspace: CUDA's choices, each a switch to see what it changes
        (helpers.gpu.Choices says what each means). workspace: bytes of cuBLAS workspace a thread; 8,519,680 unless
        told, 33,554,432 on Hopper, 0 for none.

    Raises RecordError for what needs numbers (`loss.item()`), with the operation and its line, and for a model that is
    on the CPU; ValueError for a choice that there is not.
    """
    from .gpu import AsIfOnGPU, Choices

    more = {} if workspace is None else {"workspace": workspace}
    choices = Choices(attention, foreach, dropout, rms_norm, autocast, **more)
    return _recorded(Recorder(graph=graph, names=names), AsIfOnGPU(choices), "as_if_on_gpu", step, args, kwargs)


def _recorded(
    recorder: Recorder, setting: AsIfOnGPU | None, name: str, step: Any, args: tuple, kwargs: dict[str, Any]
) -> Run:
    """The run of a block that is still to come, or of a call."""
    if step is None:
        if args or kwargs:
            raise RecordError(f"{name}() takes a function first: {name}(step, x, y) watches step(x, y).")
        return Run(recorder, setting=setting)
    _check_step(step, name)
    run = Run(setting=setting)
    if setting is not None:
        setting.__enter__()
    try:
        recorder.start(sys._getframe(2), include_boundary=False)
    except BaseException:
        if setting is not None:
            setting.__exit__()
        raise
    result = error = None
    try:
        result = _call(step, args, kwargs)
    except BaseException as raised:
        error = recorder.refused(raised)
        if setting is not None:
            error = setting.told(error, recorder)
        if error is raised:
            raise
        raise error from None
    finally:
        run._end(recorder, error, result)
        del error, result
    return run


@free
def _call(step: Any, args: Any, kwargs: Any) -> Any:
    return step(*args, **kwargs)


def load(path: str | PathLike[str]) -> Run:
    """The run that `Run.save("….json")` wrote, or a GPU's memory snapshot (.pickle), opened in our figures.

    A snapshot is what torch.cuda.memory._dump_snapshot writes; it is read without running anything that is in it. Any
    other file raises helpers.data.RecordingFormatError or helpers.gpu.SnapshotError, a sentence each.
    """
    path = Path(path)
    if path.suffix.lower() in (".pickle", ".pkl"):
        from .gpu import read_snapshot

        recording = read_snapshot(path)
    else:
        recording = loads(path.read_bytes())
    return Run(make=lambda: recording)


def compare(runs: Mapping[str, Run], *, card: str | float | Card | None = None, title: str = "") -> Figure:
    """Variants of one program side by side: each one's peak by category, its course, and whether it fits a card.

    runs: two to eight, name → Run. card: "T4", 24 for 24 GB, a helpers.gpu.Card.
    """
    from .figures import variants_figure

    recordings = runs
    if isinstance(runs, Mapping):
        recordings = {name: _recording_of(run, f"{name!r}") for name, run in runs.items()}
    return variants_figure(recordings, **_capacity(card), **({"title": title} if title else {}))


def difference(before: Run, after: Run, names: tuple[str, str] = ("before", "after")) -> Figure:
    """Two runs of one step side by side: the graph's operations that appeared, went and stayed, and what each keeps.

    names: what to call the two. Raises RecordError where neither has a graph.
    """
    from .figures import difference_figure

    try:
        return difference_figure(_recording_of(before, "the first"), _recording_of(after, "the second"), names)
    except ValueError as error:
        raise RecordError(str(error)) from None


def waterfall(
    steps: Sequence[tuple[str, Run | int]], *, card: str | float | Card | None = None, title: str = ""
) -> Figure:
    """From naive to fitting: what each step takes off the peak, or adds.

    steps: pairs (name, Run or bytes), in order. card: as for `compare`.
    """
    from .figures import waterfall_figure

    pairs = [(name, step._something() if isinstance(step, Run) else step) for name, step in steps]
    return waterfall_figure(pairs, **_capacity(card), **({"title": title} if title else {}))


def _recording_of(run: Any, what: str) -> Recording:
    if not isinstance(run, Run):
        raise RecordError(f"Runs were expected, as record() gives them; {what} is a {type(run).__name__}.")
    return run._something()


def _capacity(card: str | float | Card | None) -> dict[str, Any]:
    from .gpu import card as find

    if card is None:
        return {}
    found = find(card)
    return {"capacity": found.capacity, "card": found.name}


def _check_step(step: Any, name: str) -> None:
    import torch

    if isinstance(step, torch.Tensor):
        raise RecordError(
            f"{name}() got a tensor. The operations that made it have run already, and a tensor alone does not tell "
            f"what memory they took. Put the code that makes it into a `with {name}() as run:` block, or pass a "
            "function that does."
        )
    if not callable(step):
        raise RecordError(
            f"{name}() got a {type(step).__name__}, which cannot be called. Pass a function (`{name}(step, x)`), or "
            f"put the code into a `with {name}() as run:` block."
        )
    if hasattr(step, "_torchdynamo_orig_callable") or type(step).__name__ == "OptimizedModule":
        raise RecordError(
            f"{name}() got a function compiled by torch.compile. Under a recording it would run uncompiled, without a "
            "word, and you would see another program's memory. Pass the plain function, or module._orig_mod."
        )


def no_graph(recording: Recording) -> str:
    """Why a recording has no graph, as a sentence: what came from where, and what to do."""
    if GONE in recording.notes:
        return GONE
    ops = [e for e in recording.events if e.kind == "op"]
    made = [s for e in ops for i in e.allocated for s in (recording.storages[i],) if s.names]
    given = [s for s in recording.storages if s.born < 0 and s.names]
    sentence = "record() saw no operation that needs a gradient. "
    place = recording.place_of(made[-1].place) if made else None
    line = f" (line {place.outer.line})" if place and place.outer else ""
    if any(s.category == PARAMETERS for s in recording.storages):
        what = f"`{made[-1].names[0]}`{line}" if made else "Everything in it"
        return sentence + (
            f"{what} was made while gradients were off (torch.no_grad(), torch.inference_mode()), or from parameters "
            "that are frozen. Take that away to see the graph, or use record(graph=False) to watch memory alone: "
            "run.memory shows it now."
        )
    if made and given:
        sentence += (
            f"`{made[-1].names[0]}`{line} comes from {_list(s.names[0] for s in given[:3])}, and no tensor before it "
            "has requires_grad=True. "
        )
    else:
        sentence += "No tensor in it has requires_grad=True. "
    return sentence + (
        "Set requires_grad on the tensor you want the gradient of, or use record(graph=False) to watch memory alone: "
        "run.memory shows it now."
    )


def _list(names: Any) -> str:
    quoted = [f"`{name}`" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
