"""Recording leaves nothing behind: no hook, no mode, no reference, whatever the code did or raised."""

import gc
import inspect
import random
import signal
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import helpers
from helpers import Run, record
from helpers.record import Recorder

from .leftovers import Interrupt, marked, saved_tensor_hooks, standing, tensors_alive


class Work:
    """A step with everything that the recorder hooks into, and a place for something to go wrong."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.x = torch.randn(3, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        self.kept: list[torch.Tensor] = []  # graphs that outlive the recording
        self.died: list[weakref.ref] = []

    def step(self, wrong: str = "", error: BaseException | None = None) -> None:
        def go_wrong(*_):
            raise type(error)("mine")  # made here: no variable of ours refers to its traceback

        if wrong == "optimizer":
            self.optimizer.register_step_pre_hook(go_wrong)
        if wrong == "module":
            self.model[2].register_forward_hook(go_wrong)
        h = self.model(self.x)
        if wrong == "forward":
            h.view(5, 5)
        if wrong == "memory":
            torch.empty(2**60)
        a = checkpoint(self.model, h, use_reentrant=False)
        z = (a.max(0)[0] * h.exp()).sum()
        self.kept[:] = [(h * 2).sum(), z]
        self.died += [weakref.ref(t) for t in (a, h.untyped_storage(), a.untyped_storage())]
        if wrong == "tensor":
            h.register_hook(go_wrong)
        if wrong == "formula":
            z = Wrong.apply(z, error)
        if wrong == "blind":  # in a formula that runs with the mode hidden
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, go_wrong):
                z = z + h.max(0)[0].sum()
        z.backward(retain_graph=wrong != "twice")
        if wrong == "twice":
            z.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.kept.append(self.model(self.x).sum())


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, error):
        ctx.error = error
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        gradient.exp()
        raise type(ctx.error)("mine")


def call(work):
    record(work)


def block(work):
    with record():
        work()


RAISED = [
    *((wrong, ValueError("mine")) for wrong in ("module", "tensor", "formula", "blind", "optimizer")),
    *((wrong, KeyboardInterrupt("mine")) for wrong in ("module", "tensor", "formula", "blind", "optimizer")),
    ("forward", RuntimeError),
    ("memory", RuntimeError),
    ("twice", RuntimeError),
    ("", None),
]


@pytest.mark.parametrize("how", [call, block])
@pytest.mark.parametrize(("wrong", "error"), RAISED, ids=lambda v: v if isinstance(v, str) else "")
def test_nothing_stands_after(how, wrong, error):
    work, before = Work(), standing()
    if error is None:
        how(lambda: work.step())
    else:
        with pytest.raises(type(error) if isinstance(error, BaseException) else error):
            how(lambda: work.step(wrong, error))
    assert standing() == before
    assert marked(*work.kept) == 0
    if not wrong:
        work.kept[-1].backward()  # a graph that survived still works
    record(lambda: torch.ones(2, requires_grad=True).exp().sum().backward())  # and so does the next recording


def test_the_look_at_what_stands_can_fail():
    before = standing()
    with record():
        during = standing()
        y = torch.ones(2, requires_grad=True).exp().sin()
        y.sin()
        assert marked(y) == 3
    assert {name for name in before if before[name] != during[name]} == {
        *("module hooks", "optimizer hooks", "engine", "random", "linear", "dispatch modes", "gc", "interrupt"),
        "recording",
        *(("keys",) if before["keys"] != during["keys"] else ()),
    }


def test_a_refused_recording_leaves_the_outer_one_alone():
    before = standing()
    with record() as run:
        inside = standing()
        with pytest.raises(RuntimeError, match="running already"):
            record(lambda: None)
        with pytest.raises(RuntimeError, match="running already"), record():
            pass
        assert standing() == inside
        torch.ones(3).exp()
    assert standing() == before
    assert [e.op for e in run.recording.events if e.kind == "op"] == ["aten.ones", "aten.exp"]


def test_a_refused_start_leaves_nothing():
    before = standing()
    with pytest.raises(RuntimeError, match="names take tensors"):
        record(lambda: None, names={"x": 3})
    assert standing() == before


# ---------------------------------------------------------------- interrupts


def steps(how, work):
    interrupt = Interrupt(None)
    interrupt.during(lambda: how(work.step))
    return interrupt.lines


@pytest.mark.parametrize("how", [call, block])
def test_ctrl_c_at_any_line_of_ours(how, monkeypatch):
    """Neither lost nor half done, wherever it strikes. A prime stride, so that the lines differ from run to run."""
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    work = Work()
    how(work.step)
    lines, before = steps(how, work), standing()
    assert lines > 5_000
    for at in range(1, lines, 797):
        interrupt = Interrupt(at)
        raised = interrupt.during(lambda: how(work.step))
        assert standing() == before, interrupt.where
        assert marked(*work.kept) == 0, interrupt.where
        assert raised, f"lost at {interrupt.where}"
    assert not dropped


def put_back_torchs_own():
    """A context manager of torch that is interrupted as it enters, watched or not, leaves behind what it just set."""
    torch.set_grad_enabled(True)
    while saved_tensor_hooks() is not None:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def lost_by_us(dropped):
    """Whether an interrupt was lost in our code, not in a weak reference's callback of Python's or torch's own.

    What is raised in such a callback Python drops, watched or not; who presses Ctrl-C then presses it again.
    """
    frames = [args.exc_traceback.tb_frame.f_code.co_filename for args in dropped if args.exc_traceback]
    return any(Path(helpers.__file__).parent in Path(name).parents for name in frames)


def test_ctrl_c_from_outside(monkeypatch):
    """A real signal at a random moment, fifty times; again every half second, should Python itself lose one."""
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    work, before, moments = Work(), standing(), random.Random(0)
    record(work.step)
    try:
        for _ in range(50):
            with pytest.raises(KeyboardInterrupt):
                signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.001, 0.03), 0.5)
                while True:
                    record(work.step)
            signal.setitimer(signal.ITIMER_REAL, 0)
            put_back_torchs_own()
            assert standing() == before
            assert marked(*work.kept) == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert not lost_by_us(dropped)


def test_an_interrupt_lost_by_us_is_noticed(monkeypatch):
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)

    class Drops:
        def __del__(self):
            raise KeyboardInterrupt

    Drops()
    assert len(dropped) == 1 and not lost_by_us(dropped)
    monkeypatch.setattr(helpers, "__file__", str(Path(__file__).with_name("__init__.py")))
    assert lost_by_us(dropped)


def test_the_learners_own_handler_is_asked():
    seen, previous = [], signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *_: seen.append("mine"))
    try:
        with record():
            torch.ones(2)
            signal.raise_signal(signal.SIGINT)
            torch.ones(2)
        assert seen == ["mine"]
    finally:
        signal.signal(signal.SIGINT, previous)


# ---------------------------------------------------------------- references


@pytest.fixture
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("how", [call, block])
def test_no_tensor_is_kept_alive(how, no_collection):
    work = Work()
    work.step()
    work.kept.clear()
    before = tensors_alive()
    run = None
    if how is call:
        run = record(work.step)
    else:
        with record() as run:
            work.step()
    work.kept.clear()
    assert work.died and all(reference() is None for reference in work.died)
    assert tensors_alive() == before
    assert len(run.recording.events) > 50


def test_the_look_at_live_tensors_can_fail(no_collection):
    before = tensors_alive()
    kept = torch.ones(3)
    assert tensors_alive() == before + 1
    del kept


@pytest.mark.parametrize("wrong", ["module", "tensor", "formula", "blind", "optimizer", "twice", "memory"])
def test_no_tensor_is_kept_alive_after_an_error(wrong, no_collection):
    """What an error's traceback held goes with the error."""
    left = {}
    for how in ("plain", "call", "block"):
        work = Work()
        work.step()
        work.kept.clear()
        work.died.clear()
        try:
            {"plain": lambda f: f(), "call": call, "block": block}[how](
                lambda w=work: w.step(wrong, ValueError("mine"))
            )
        except (ValueError, RuntimeError):
            pass
        work.kept.clear()
        work.optimizer.zero_grad()
        at_once = sum(reference() is not None for reference in work.died)
        gc.collect()
        left[how] = (at_once, sum(reference() is not None for reference in work.died))
    if wrong != "blind":  # there torch itself keeps what the failing hook held, until the next backward
        assert left["plain"][1] == 0
    assert left["call"] == left["block"] == left["plain"]


def test_the_run_and_its_recorder_go_when_dropped(no_collection, monkeypatch):
    made, init = [], Recorder.__init__

    def noted(self, **options):
        init(self, **options)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Recorder, "__init__", noted)
    work = Work()
    run = record(work.step)
    assert made.pop()() is None
    run = weakref.ref(run)
    assert run() is None
    with record() as run:
        work.step()
    assert made.pop()() is None
    run = weakref.ref(run)
    assert run() is None


def test_no_frame_is_pinned(no_collection):
    """A big object of the block's own frame goes when the function returns."""

    class Big:
        pass

    def learner():
        big = Big()
        reference = weakref.ref(big)
        with record() as run:
            y = torch.ones(2, requires_grad=True) * 2
            y.sum().backward()
        return run, reference

    run, reference = learner()
    assert reference() is None
    assert run.recording.events


@pytest.mark.parametrize("how", [call, block])
def test_del_frees_at_its_line(how):
    """Reading variables' names must not keep the values: before Python 3.13, f_locals is a copy that a frame keeps."""

    def step():
        x = torch.ones(1000, requires_grad=True)
        y = x * 2
        z = y.detach() + 1
        z = z.exp()
        del y
        w = z + 1
        del z
        return w.sum()

    first = inspect.getsourcelines(step)[1]
    if how is call:
        run = record(step)
    else:
        with record() as run:
            step()
    recording = run.recording
    freed = {}
    for event in recording.events:
        line = recording.places[event.place].inner.line - first if event.place is not None else None
        if event.freed and line in (4, 5, 7):
            freed[line] = sum(recording.storages[s].nbytes for s in event.freed)
    assert freed == {4: 4000, 5: 4000, 7: 4000}


def test_garbage_collection_is_left_as_it_is():
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
            record(Work().step)
            assert (gc.isenabled(), gc.get_threshold()) == (enabled, threshold)
            assert gc.get_freeze_count() <= frozen  # others' frozen objects may die; none is added
        finally:
            gc.enable()


def test_a_run_that_was_interrupted_as_it_ended_says_so():
    run = Run()
    with pytest.raises(RuntimeError, match="interrupted"):
        run.recording  # noqa: B018
