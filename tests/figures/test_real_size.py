"""Figures of real sizes: nothing cut, bytes as the ledger has them, within their bars; a long player is coarse."""

import re
from functools import cache

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import as_if_on_gpu, record
from helpers.data import kept_bytes, timeline
from helpers.figures import graph_figure, kept_figure, player_data, player_figure
from helpers.figures.player import steps_of
from helpers.record import Recorder
from tests.figures.sound import check_sound
from tests.figures.test_player import parsed
from tests.gpu.steps import GPT2
from tests.record.sizes import STEPS, chain

GPT = "GPT-2 size"
LONG = "chain of 30,000"


@pytest.fixture(scope="module", autouse=True)
def strict(one_thread):
    strict, Recorder.strict = Recorder.strict, True
    yield
    Recorder.strict = strict


@cache
def recorded(name):
    torch.manual_seed(0)
    if name == GPT:
        with torch.device("meta"):
            model, tokens = GPT2(), torch.zeros(1, 64, dtype=torch.long)
        return as_if_on_gpu(lambda: model(tokens).sum().backward()).recording
    step, _ = chain(30_000)() if name == LONG else STEPS[name]()
    return record(lambda: step().backward()).recording


@cache
def played(name):
    return player_figure(recorded(name))


#: What each folds to: how often the same, and by what name; with the operations that a drawn one stands for.
FOLDS = {
    GPT: (12, "blocks.0 … blocks.11"),
    "LSTM cell, 160 steps": (160, "the same 15 operations"),
    "fan-in of 2,000": (2000, "the same 2 operations"),
    "chain of 10,000": (10_000, "the same operation"),
    "a module used 40 times": (40, "the same 3 operations"),
    "ResNet of 97 convolutions": (48, "1 … 48"),
    LONG: (30_000, "the same operation"),
}


@pytest.mark.parametrize("name", FOLDS)
def test_graphs_fold_and_cut_nothing(name):
    r = recorded(name)
    found = graph_figure(r)
    check_sound(found)
    count, label = FOLDS[name]
    assert found.folded and f"stand for {count:,} times the same: {label}" in found.text
    assert found.nbytes == kept_bytes(r, r.graphs[0].event)
    times = [
        int(t.replace(",", "")) for t in re.findall(r"^  \[\d+\]  .*?(?:×([\d,]+))?(?:  root)?$", found.text, re.M) if t
    ]
    single = len(re.findall(r"^  \[\d+\]  ", found.text, re.M)) - len(times)
    assert sum(times) + single == len(r.graphs[0].nodes)
    if name != LONG:
        numbers = [int(n) for n in re.findall(r"^  \[(\d+)\]  ", found.text_full(), re.M)]
        assert numbers == list(range(1, len(r.graphs[0].nodes) + 1))


@pytest.mark.parametrize("name", FOLDS)
def test_ledgers_count_every_byte(name):
    r = recorded(name)
    found = kept_figure(r, r.graphs[0].event)
    check_sound(found)
    assert found.nbytes == kept_bytes(r, r.graphs[0].event)
    assert sum(row.counted for row in found.rows) == sum(row.counted for row in found.all_rows) == found.nbytes


@pytest.mark.parametrize("name", FOLDS)
def test_players_keep_within_two_megabytes(name):
    r, found = recorded(name), played(name)
    check_sound_still(found)
    size = len(found.html.encode())
    assert size < (300_000 if len(r.events) < 1_000 else 2_000_000), size
    data = parsed(found)[2]
    coarse = len(r.events) > player_data.MOST_EVENTS
    assert (data["n"] < len(r.events)) == coarse
    assert ("events at once" in " ".join(steps_of(data))) == coarse


def check_sound_still(found):
    assert found.text.strip() and found.alt.strip()
    assert all(c.isprintable() or c == "\n" for c in found.text)


# ---------------------------------------------------------------- a coarse player


COARSE = [name for name in FOLDS if name in ("fan-in of 2,000", "chain of 10,000", LONG)]


@pytest.mark.parametrize("name", COARSE)
def test_a_coarse_player_tells_the_truth_at_each_of_its_steps(name):
    r, data = recorded(name), parsed(played(name))[2]
    line = timeline(r)
    moments = player_data.picked(r, line)
    n = len(moments) - 1
    assert data["n"] == n <= 1.4 * player_data.COARSE and moments[0] == 0 and moments[-1] == len(r.events)
    now, changes = list(data["start"]), {}
    for p, c, more in data["delta"]:
        changes.setdefault(p, []).append((c, more))
    for p, m in enumerate(moments):
        for c, more in changes.get(p, ()):
            now[c] += more
        assert tuple(now) == line.rows[m]
        if p:
            event = r.events[m - 1]
            assert data["what"][p] == event.kind and data["node"][p] == (-1 if event.node is None else event.node)
    assert moments[data["peak"]] == line.peak + 1  # the peak is not passed over
    jumps = dict(data["jumps"])
    assert jumps["start"] == 0 and jumps["end"] == n and jumps["peak"] == data["peak"]
    for p in range(0, n + 1, n // 7):
        assert data["kept_bytes"][p] == kept_bytes(r, moments[p] - 1)
    for key in ("hot", "call", "caption", "kept_count", "kept_bytes", "kept_alive", "node", "what"):
        assert len(data[key]) == n + 1


@pytest.mark.parametrize("name", COARSE)
def test_a_coarse_player_says_what_it_leaves_out(name):
    r, data = recorded(name), parsed(played(name))[2]
    said = steps_of(data)
    moments = player_data.picked(r, timeline(r))
    assert f"This recording has {len(r.events):,} events; they are played in {data['n']:,} steps" in said[0]
    at_once = [
        int(found[1].replace(",", "")) if (found := re.match(r"([\d,]+) events at once", s)) else 1 for s in said[1:]
    ]
    assert at_once == [b - a for a, b in zip(moments, moments[1:], strict=False)] and sum(at_once) == len(r.events)
    (graph,) = data["graphs"]
    count = FOLDS[name][0]
    (told,) = [flag for flag in graph["flags"] if "light up" in flag]
    few = int(re.search(r"([\d,]+) light up", told)[1].replace(",", ""))
    assert f"{count:,} × " in told and [b["count"] for b in graph["blocks"]] == [few] and 2 <= few < count
    ids = [n for item in graph["items"] for n in item if n >= 0]
    assert set(ids) == {int(n) for n in data["nodes"]} and len(set(ids)) <= 1.2 * player_data.LIT


def test_steps_map_moments_to_positions():
    steps = player_data.Steps([0, 1, 5, 6, 10])
    assert [steps.at(m) for m in (0, 1, 2, 5, 6, 7, 10, 99)] == [0, 1, 2, 2, 3, 4, 4, 4]
    assert steps.span(1, 6) == [1, 3] and steps.span(2, 5) == [2, 2] and steps.span(2, 4) == [2, 2]
    assert steps.words(1) == () and steps.words(2) == ("4 events at once, the last of them:",)


# ---------------------------------------------------------------- inputs from public reports, in every figure


def shown(run):
    """Graph, ledger and player, each sound; the graph's twin, the ledger's, and the player's."""
    figures = [run.graph, run.kept, run.player]
    for found in figures[:2]:
        check_sound(found)
    assert parsed(figures[2])[2]["n"] == len(run.recording.events)
    assert run.graph.nbytes == kept_bytes(run.recording, run.recording.graphs[0].event)
    return [found.text for found in figures]


def test_sparse_matrix_product():
    matrix = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), check_invariants=True).requires_grad_()
    dense = torch.ones(2, 3, requires_grad=True)
    with record() as run:
        torch.sparse.mm(matrix, dense).sum().backward()
    graph, kept, player = shown(run)
    for twin in (graph, kept, player):
        assert "SparseAddmmBackward0" in twin and "matrix" in twin and "40 B" in twin  # indices and values


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors(layout):
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout, requires_grad=True)
    with record() as run:
        y = x.sin() * 2
        z = y.to_padded_tensor(0.0) if layout == torch.strided else y.values()
        z.sum().backward()
    graph, kept, player = shown(run)
    for twin in (graph, kept, player):
        assert "SinBackward0" in twin and "×-1×" in twin or "2×-1×" in twin  # ragged: no size of its own


@pytest.mark.parametrize("reentrant", [False, True])
def test_figures_of_a_checkpointed_step_run_nothing_again(reentrant):
    layer, x, runs = nn.Linear(3, 3), torch.ones(2, 3, requires_grad=True), []

    def part(value):
        runs.append(1)
        return layer(value).tanh()

    with record() as run:
        checkpoint(part, x, use_reentrant=reentrant).sum().backward()
    before = len(runs)
    graph, kept, player = shown(run)
    assert len(runs) == before == 2
    if reentrant:
        assert "CheckpointFunctionBackward" in graph and len(run.graphs) == 2
    else:
        assert "a note to compute it again (checkpoint)" in graph and "to be computed again" in kept
    assert "runs that part of forward again" in player or "Forward again" in run.player.text_full()


def test_hooks_that_pack_and_one_that_raises():
    x, unpacked = torch.ones(4, requires_grad=True), []

    def unpack(packed):
        unpacked.append(packed)
        raise RuntimeError("it is lost")

    with pytest.raises(RuntimeError, match="it is lost"):
        with record() as run:
            with torch.autograd.graph.save_on_cpu():
                y = x.exp()
            with torch.autograd.graph.saved_tensors_hooks(lambda t: "a word", unpack):
                z = y.sin()
            z.sum().backward()
    graph, kept, player = shown(run)
    assert unpacked == ["a word"]  # by the engine alone, none of the figures
    assert "a str from a hook" in graph and "a str from a hook" in kept
    assert "RuntimeError: it is lost" in player and "SinBackward0" in player.split("\n\n")[1]


@pytest.mark.skipif(
    not hasattr(torch.autograd.Function, "clear_saved_tensors_on_access"), reason="torch: 2.12 brought one-read tensors"
)
def test_saved_tensors_that_may_be_read_once():
    class Once(torch.autograd.Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 2 * x * gradient

    x = torch.ones(4, requires_grad=True)
    with record() as run:
        y = Once.apply(x)
    graph, _, _ = shown(run)  # while the graph is alive
    assert "OnceBackward" in graph and "custom Function" in graph
    y.sum().backward()
    assert x.grad.tolist() == [2, 2, 2, 2]  # nobody had read it before


def test_compiled_before_the_recording_is_one_node():
    torch.compiler.reset()
    compiled = torch.compile(lambda a: (a.sin() * a).exp(), backend="aot_eager")
    x = torch.ones(4, requires_grad=True)
    y = compiled(x)
    with record() as run:
        y.sum().backward()
    torch.compiler.reset()
    graph, kept, player = shown(run)
    assert graph.count("BackwardBackward") == 0 and "SinBackward0" not in graph
    for twin in (graph, kept, player):
        assert "CompiledFunctionBackward" in twin


def test_a_list_that_contains_itself():
    x = torch.ones(2, requires_grad=True)

    def step():
        results = [x * 2]
        results.append(results)
        return results

    graph, _, player = shown(record(step))
    assert "MulBackward0" in graph and "MulBackward0" in player
