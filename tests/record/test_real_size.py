"""Graphs of real sizes: every node, every byte that torch itself keeps. The garbage collector stays out of the way."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from helpers import as_if_on_gpu, record
from helpers.data import kept_bytes
from helpers.record import collector
from tests.gpu.steps import GPT2
from tests.record.sizes import STEPS

from .looking import events, nodes

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.usefixtures("one_thread")


def asked_of_torch(step, module):
    """(nodes, edges, bytes kept) of the graph that a step makes, unwatched: by a walk, and by what autograd packs."""
    packed = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        packed[storage._cdata] = storage  # alive: no other comes to lie there
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = step()
    theirs = {p.untyped_storage()._cdata for p in (*module.parameters(), *module.buffers())}
    kept = sum(storage.nbytes() for key, storage in packed.items() if key not in theirs)
    queue = [loss.grad_fn]
    seen, edges = set(queue), 0
    for function in queue:
        for target, _ in function.next_functions:
            if target is not None:
                edges += 1
                if target not in seen:
                    seen.add(target)
                    queue.append(target)
    return len(queue), edges, kept


@pytest.mark.parametrize("name", STEPS)
def test_every_node_and_every_byte(name):
    step, module = STEPS[name]()
    expected = asked_of_torch(step, module)
    r = record(lambda: step().backward()).recording
    (graph,) = r.graphs
    mine = [r.nodes[n] for n in graph.nodes]
    edges = sum(edge.node is not None for node in mine for edge in node.edges)
    assert (len(mine), edges, kept_bytes(r, graph.event)) == expected
    assert len(events(r, "run")) == sum(n.leaf is None for n in mine)
    assert {e.accumulated.node for e in events(r, "accumulate")} == {n.id for n in mine if n.leaf}
    assert not any(s.state in ("live", "packed") for s in r.saved if s.storages)  # all of it released


def test_gpt2_size():
    """124 million parameters, head and embedding tied; as on a GPU, so that no gigabyte is needed here."""
    with torch.device("meta"):
        model, tokens = GPT2(), torch.zeros(1, 64, dtype=torch.long)
    run = as_if_on_gpu(lambda: model(tokens).sum().backward())
    r = run.recording
    (graph,) = r.graphs
    leaves = [r.nodes[n].leaf for n in graph.nodes if r.nodes[n].leaf]
    assert len(leaves) == len(list(model.parameters())) == 148
    assert sum(leaf.nbytes for leaf in leaves) == 4 * sum(p.numel() for p in model.parameters())
    assert sum(p.numel() for p in model.parameters()) > 124e6 - 1e6
    blocks = {n.module.split(".")[1] for n in (r.nodes[n] for n in graph.nodes) if n.module.startswith("blocks.")}
    assert blocks == {str(k) for k in range(12)}
    (tied,) = [n for n in (r.nodes[n] for n in graph.nodes) if n.leaf and "tokens.weight" in n.leaf.names]
    users = [n.name for n in (r.nodes[n] for n in graph.nodes) if any(e.node == tied.id for e in n.edges)]
    assert sorted(users) == ["EmbeddingBackward0", "TBackward0"]
    assert run.graph.nbytes == kept_bytes(r, graph.event) > 0


def test_one_accumulator_for_a_module_used_forty_times():
    step, _ = STEPS["a module used 40 times"]()
    r = record(lambda: step().backward()).recording
    assert len([n for n in r.nodes if n.leaf]) == 2 and len(nodes(r, "AddmmBackward0")) == 40
    assert [e.accumulated.first for e in events(r, "accumulate")] == [True, True]


# ---------------------------------------------------------------- the garbage collector


@pytest.fixture
def rounds():
    """For each round of the collector: the names of the functions that ran as it came."""
    found = []

    def came(phase, info):
        if phase == "start":
            frame, names = sys._getframe(1), set()
            while frame is not None:
                names.add(frame.f_code.co_name)
                frame = frame.f_back
            found.append(names)

    threshold = gc.get_threshold()
    gc.callbacks.append(came)
    yield found
    gc.callbacks.remove(came)
    gc.set_threshold(*threshold)


def chain(length=300):
    y = torch.ones(2, requires_grad=True)
    for _ in range(length):
        y = y.sin()
    return y.sum()


def test_no_round_comes_while_the_recorder_works(rounds):
    gc.set_threshold(7, 2, 2)
    run = record(lambda: chain().backward())
    run.recording  # noqa: B018
    assert any("chain" in names for names in rounds)  # rounds do come
    assert not any({"_enter", "_stop", "freeze"} & names for names in rounds)


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_collector_is_left_as_it_was(enabled, fails, rounds):
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(600, 9, 8)
    during = []

    def step():
        during.append((gc.isenabled(), gc.get_threshold()))
        loss = chain(3)
        loss.backward()
        during.append((gc.isenabled(), gc.get_threshold()))
        if fails:
            loss.backward()

    try:
        if fails:
            with pytest.raises(RuntimeError, match="second time"):
                record(step)
        else:
            record(step).recording  # noqa: B018
        assert during == [(enabled, (600 * collector.OURS, 9, 8))] * 2
        assert (gc.isenabled(), gc.get_threshold()) == (enabled, (600, 9, 8))
    finally:
        gc.enable()


def test_what_the_learner_sets_stays(rounds):
    with record():
        chain(2)
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)
    gc.set_threshold(0, 4, 5)  # off, in another way
    with record():
        chain(2)
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold() == (0, 4, 5)


def test_an_error_inside_leaves_the_collector_on():
    @collector.uncollected
    def work():
        assert not gc.isenabled()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert gc.isenabled()


def test_a_long_graph_from_before_the_recording():
    layer = nn.Linear(2, 2)
    y = layer(torch.ones(1, 2))
    for _ in range(10_000):
        y = y + 1
    with record() as run:
        y.sum().backward()
    r = run.recording
    assert len(r.graphs[0].nodes) == 10_005 and len(nodes(r, "AddBackward0")) == 10_000
    assert all(n.event is None for n in nodes(r, "AddBackward0")) and layer.bias.grad.tolist() == [1, 1]


BYSTANDER = """
import gc, torch
from helpers import record

def chain():
    y = torch.ones(2, requires_grad=True) * 2
    for _ in range(60_000):
        y = y + 1
    return y.sum()

bystander, loss = chain(), chain()
with record() as run:
    {lines}
assert len(run.recording.nodes) > 60_000
del bystander
del loss
gc.collect()
print("freed")
"""


@pytest.mark.parametrize("lines", ["loss.backward()", "torch.autograd.backward([loss]); last = loss * 2; del last"])
@pytest.mark.parametrize("hidden", [False, True])
def test_another_deep_graph_can_be_freed(lines, hidden):
    """Freed by a destructor that calls the next one, a graph that Python has looked at could fill the stack."""
    code = BYSTANDER.format(lines=lines)
    if hidden:  # the recorder does not know the tensors whose nodes it marked, and looks through every graph
        code = code.replace("with record()", "import sys; R = sys.modules['helpers.record.recorder'].Recorder\n"
                            "R._living = lambda self: []\nwith record()")  # fmt: skip
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "freed"), done.stderr[-500:]
