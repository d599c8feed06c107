"""What cannot be recorded is said in a sentence: what, where, and what to do. Nothing is left behind by it."""

import json
import random
from pathlib import Path

import pytest
import torch
from torch import nn

from helpers import RecordError, Run, load, record
from helpers.data import SCHEMA, RecordingFormatError, dumps, loads
from helpers.record import recorder
from helpers.record.recorder import unfollowed
from helpers.run import no_graph

from .looking import events, line, saved


@pytest.fixture(autouse=True)
def nothing_left_behind():
    yield
    assert recorder._active is None and not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    x = torch.ones(3, requires_grad=True)
    with record() as run:
        x.exp().sum().backward()
    assert [n.name for n in run.recording.nodes if n.leaf is None] == ["ExpBackward0", "SumBackward0"]


def views(run):
    return [lambda: run.graph, lambda: run.graphs, lambda: run.kept, lambda: run.memory]


# ---------------------------------------------------------------- nothing, or nothing with a gradient


def test_nothing_ran():
    with record() as run:

        def step():
            return torch.ones(3)

    assert not run.recording.events
    for view in views(run):
        with pytest.raises(RecordError, match="saw no operation of torch.*call the code inside the block"):
            view()
    assert "saw no operation of torch" in str(run) and "text/plain" in run._repr_mimebundle_()
    assert step().shape == (3,)


def test_graph_asked_for_where_nothing_needs_a_gradient():
    x, w = torch.ones(32, 64), torch.ones(64, 16)
    with record() as run:
        y = x @ w
        loss = y.sum()
    r = run.recording
    assert [s.nbytes for s in r.storages if s.born >= 0] == [32 * 16 * 4, 4]  # memory is recorded
    with pytest.raises(RecordError) as refused:
        run.graph  # noqa: B018
    number = r.place_of(events(r, "op")[-1].place).outer.line
    assert str(refused.value) == (
        f"record() saw no operation that needs a gradient. `loss` (line {number}) comes from `x` and `w`, and no "
        "tensor before it has requires_grad=True. Set requires_grad on the tensor you want the gradient of, or use "
        "record(graph=False) to watch memory alone: run.memory shows it now."
    )
    assert line(r, r.place_of(r.storages[-1].place).id) == "loss = y.sum()" and loss == 32 * 16 * 64
    assert str(run.memory)


def test_graph_asked_for_under_no_grad():
    x = torch.ones(3, requires_grad=True)
    with record() as run, torch.no_grad():
        y = x.exp()
    sentence = no_graph(run.recording)
    assert sentence.startswith("record() saw no operation that needs a gradient. `y` (line ")
    assert "was made while gradients were off (torch.no_grad()" in sentence and y.shape == (3,)


def test_graph_already_released():
    x = torch.ones(4, requires_grad=True)
    loss = x.exp().sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time") as raised:
        with record() as run:
            loss.backward()
    r = run.recording
    assert r.events[-1].kind == "error" and r.events[-1].note == f"RuntimeError: {raised.value}"
    assert line(r, r.events[-1].place) == "loss.backward()" and r.events[-1].op == "ExpBackward0"
    exp = next(n for n in r.nodes if n.name == "ExpBackward0")
    assert [s.state for s in saved(r, exp).values()] == ["released"]
    assert "released" in str(run.graph) and str(run.kept)


# ---------------------------------------------------------------- what is passed


def test_a_tensor():
    with pytest.raises(RecordError, match="got a tensor.*have run already.*with record"):
        record(torch.ones(3).sum())


@pytest.mark.parametrize("thing", [3, "step", [1], {"x": 1}])
def test_what_cannot_be_called(thing):
    with pytest.raises(RecordError, match=rf"got a {type(thing).__name__}, which cannot be called.*with record\(\)"):
        record(thing)


def test_arguments_without_a_function():
    with pytest.raises(RecordError, match=r"takes a function first: record\(step, x, y\)"):
        record(None, torch.ones(3))
    with pytest.raises(RecordError, match="takes a function first"):
        record(x=1)


def test_names_that_are_no_tensors():
    with pytest.raises(RecordError, match=r"names\['lr'\] is a float"):
        with record(names={"lr": 0.1}):
            pass


def test_methods_and_modules_work_as_calls():
    x = torch.ones(4, requires_grad=True)
    assert record(x.mean).recording.graphs and record(nn.ReLU(), x).recording.graphs
    assert record(x.sum().backward).recording.graphs[0].trigger == "backward"


# ---------------------------------------------------------------- compiled code


def plain(x):
    return x.exp().sin()


@pytest.fixture
def compiled():
    torch.compiler.reset()
    yield torch.compile(plain, backend="eager"), torch.compile(nn.Sequential(nn.Linear(3, 3)), backend="eager")
    torch.compiler.reset()


def test_compiled_code_passed(compiled):
    x = torch.ones(3, requires_grad=True)
    for thing in compiled:
        with pytest.raises(RecordError, match="compiled by torch.compile.*another program's memory.*module._orig_mod"):
            record(thing, x)
        assert thing(x).shape == (3,)


def test_compiled_code_called_in_a_block(compiled):
    x = torch.ones(3, requires_grad=True)
    for thing in compiled:
        with pytest.raises(RecordError, match=r"Line \d+ calls a function compiled by torch.compile") as refused:
            with record() as run:
                y = thing(x)
        assert run.recording.events[-1].kind == "error" and str(refused.value) in run.recording.events[-1].note
        number = int(str(refused.value).split()[1])
        source = run.recording.sources[run.recording.cell]
        assert source.line(number) == "y = thing(x)"
        y = thing(x)  # and it is of use afterwards
        y.sum().backward()
        assert x.grad is not None


def test_compiled_code_called_by_a_step(compiled):
    function, module = compiled
    x = torch.ones(3, requires_grad=True)

    def step():
        return module(function(x)).sum()

    with pytest.raises(RecordError, match="calls a function compiled by torch.compile"):
        record(step)
    step().backward()


def test_functions_compiled_before_run_compiled_after():
    torch.compiler.reset()
    counter = torch._dynamo.testing.CompileCounter()
    function = torch.compile(plain, backend=counter)
    x = torch.ones(3)
    function(x)
    frames = counter.frame_count
    with pytest.raises(RecordError):
        record(function, x)
    with record():
        plain(x)
    function(x)
    assert counter.frame_count == frames == 1
    torch.compiler.reset()


# ---------------------------------------------------------------- recordings inside recordings


def test_block_inside_a_block():
    x = torch.ones(3, requires_grad=True)
    with record() as outer:
        y = x.exp()
        with pytest.raises(RecordError, match="running already.*End the outer"):
            with record():
                y = y.sin()
        with pytest.raises(RecordError, match="running already"):
            record(y.cos)
        y.sum().backward()
    r = outer.recording
    assert {n.name for n in r.nodes} == {"ExpBackward0", "SumBackward0", "AccumulateGrad"}
    assert not events(r, "error") and x.grad is not None  # the outer one went on


def test_call_inside_a_call():
    x = torch.ones(3, requires_grad=True)

    def inner():
        return x.exp()

    with pytest.raises(RecordError, match="running already"):
        record(lambda: record(inner))


def test_recording_inside_a_hook():
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    refusals = []

    def hook(gradient):
        try:
            record(gradient.sin)
        except RecordError as error:
            refusals.append(str(error))

    y.register_hook(hook)
    with record() as run:
        y.sum().backward()
    assert len(refusals) == 1 and "running already" in refusals[0]
    assert run.recording.events[-1].kind in ("leave", "free") and len(run.recording.graphs) == 1


def test_entering_a_run_twice():
    run = record()
    with run:
        torch.ones(3)
    with pytest.raises(RecordError, match="This run is over. Write `with record"):
        with run:
            pass
    with pytest.raises(RecordError, match="This run is over"):
        record(torch.ones, 3).__enter__()


def test_entering_a_run_while_it_runs():
    with record() as run:
        with pytest.raises(RecordError, match="running already"):
            run.__enter__()
        torch.ones(3)
    assert [e.op for e in events(run.recording, "op")] == ["aten.ones"]


def test_looking_before_the_end():
    with record() as run:
        torch.ones(3)
        for view in [*views(run), lambda: run.recording, lambda: run.save("never.json")]:
            with pytest.raises(RecordError, match="not over yet.*after the `with record"):
                view()
        assert repr(run) == "<Run, not over yet>" and "not over yet" in str(run)
    assert run.memory


def test_looking_before_the_start():
    with pytest.raises(RecordError, match="not over yet"):
        record().graph  # noqa: B018


# ---------------------------------------------------------------- devices


def test_device_that_is_not_followed(monkeypatch):
    sentence = unfollowed("mps:0")
    assert "lives on mps:0" in sentence and "cpu, cuda, meta" in sentence and "model.to('cpu')" in sentence
    with monkeypatch.context() as patched:
        patched.setattr(recorder, "name_of", lambda kind: "mps:0" if isinstance(kind, torch.device) else str(kind))
        with pytest.raises(RecordError, match="lives on mps:0, and recordings follow only cpu, cuda, meta"):
            record(torch.ones(3).exp)


# ---------------------------------------------------------------- files


@pytest.fixture
def run():
    x, model = torch.ones(2, 3), nn.Linear(3, 2)
    with record() as run:
        loss = model(x).tanh().sum()
        loss.backward()
    return run


def test_save_with_a_bad_ending(run, tmp_path):
    for name in ("run.pdf", "run", "run.txt", ".html"):
        with pytest.raises(ValueError, match=r"save\(\) writes .html, .svg, .json"):
            run.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_save_and_load(run, tmp_path):
    path = run.save(tmp_path / "run.json")
    back = load(path)
    assert isinstance(path, Path) and isinstance(back, Run) and back.recording == run.recording
    assert str(back) == str(run) and str(back.kept) == str(run.kept)
    with pytest.raises(RecordError, match="This run is over"):
        back.__enter__()
    assert run.save(str(tmp_path / "run.JSON")).exists()


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"\x89PNG\r\n", "no JSON"),
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[1, 2]", "not a saved recording"),
        (b'{"cells": [], "nbformat": 4}', "not a saved recording"),
        (b"null", "not a saved recording"),
        (b'{"format": "gradients-and-intermediates recording"}', "schema version None"),
    ],
)
def test_files_that_are_no_recordings(content, sentence, tmp_path):
    (tmp_path / "file.json").write_bytes(content)
    with pytest.raises(RecordingFormatError, match=sentence):
        load(tmp_path / "file.json")


@pytest.mark.parametrize("version", [SCHEMA - 1, SCHEMA + 1, "1", 1.5, True, None])
def test_other_schema_versions(run, version):
    document = json.loads(dumps(run.recording))
    document["schema"] = version
    with pytest.raises(
        RecordingFormatError, match=f"schema version {version}.*read version {SCHEMA}.*Record the step again"
    ):
        loads(json.dumps(document))


def damaged(document, chance: random.Random):
    """One random change somewhere in a document: an item dropped, doubled, or given another value."""
    holders = []

    def walk(value):
        if isinstance(value, (dict, list)) and value:
            holders.append(value)
            for item in value.values() if isinstance(value, dict) else value:
                walk(item)

    walk(document)
    holder = chance.choice(holders)
    key = chance.choice(list(holder)) if isinstance(holder, dict) else chance.randrange(len(holder))
    others = [None, -1, 0, 7, 10**9, 1.5, "", "x", [], {}, [1], {"id": 0}, True, False, "live", "op", [None], 2**70]
    match chance.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case 2 if isinstance(holder, dict):
            holder[f"{key}_"] = holder.pop(key)
        case _:
            holder[key] = chance.choice(others)


def test_damaged_files(run):
    text = dumps(run.recording)
    chance, refused = random.Random(0), 0
    for _ in range(400):
        document = json.loads(text)
        damaged(document, chance)
        try:
            back = loads(json.dumps(document))
        except RecordingFormatError as error:
            refused += 1
            assert str(error)[0].isupper() and len(str(error)) < 400
        else:  # a change that leaves a recording: it can be written and read again
            assert loads(dumps(back)) == back
    assert refused > 200


def test_truncated_files(run):
    text = dumps(run.recording)
    for cut in range(0, len(text) - 1, len(text) // 50):
        with pytest.raises(RecordingFormatError):
            loads(text[:cut])


def test_graph_asked_for_where_the_result_was_dropped():
    x = torch.ones(3, requires_grad=True)
    with record() as run:
        x * 2
    with pytest.raises(RecordError, match="Operations that need a gradient ran, but .* Keep the result"):
        run.graph  # noqa: B018
    assert run.memory.peak == 24
