"""Each text twin, read back, gives the recording's own nodes, edges, tensors, bytes and states."""

import pytest

from helpers import data
from helpers.figures import graph_figure, kept_figure, memory_figure
from helpers.figures.order import forward_order
from tests.figures.recordings import SAMPLES, Tape
from tests.figures.twins import check_kept, check_memory, expected_graph, read_graph

SMALL = [name for name in SAMPLES if name not in ("mixed", "lstm")]


@pytest.fixture(scope="module")
def recordings():
    return {name: make() for name, make in SAMPLES.items()}


@pytest.mark.parametrize("name", SMALL)
def test_graph_twin_says_all(recordings, name):
    recording = recordings[name]
    for graph in recording.graphs:
        figure = graph_figure(recording, graph.id)
        assert read_graph(figure.text_full()) == expected_graph(recording, graph.id)


@pytest.mark.parametrize("name", SAMPLES)
def test_kept_twin_says_all(recordings, name):
    recording = recordings[name]
    for moment in {None, len(recording.events) - 1, len(recording.events) // 2}:
        figure = kept_figure(recording, moment)
        assert figure.nbytes == data.kept_bytes(recording, moment)
        check_kept(recording, figure.text_full(), moment)


@pytest.mark.parametrize("name", SAMPLES)
def test_memory_twin_says_all(recordings, name):
    check_memory(recordings[name], memory_figure(recordings[name]).text_full())


@pytest.mark.parametrize("name", SAMPLES)
def test_forward_order(recordings, name):
    """Every node once, each after what feeds it."""
    recording = recordings[name]
    for graph in recording.graphs:
        ordered = forward_order(recording, graph)
        assert sorted(ordered) == sorted({*graph.nodes, *graph.pruned})
        place = {n: i for i, n in enumerate(ordered)}
        for n in ordered:
            assert all(place[e.node] < place[n] for e in recording.nodes[n].edges if e.node is not None)


def test_a_twin_can_be_wrong():
    """The reader does not pass everything: a changed byte, state, edge or name is noticed."""
    recording = SAMPLES["layer"]()
    twin = graph_figure(recording).text_full()
    expected = expected_graph(recording, 0)
    assert read_graph(twin) == expected
    for old, new in [("8,192 B", "8,193 B"), ("  kept", "  released"), ("[3], [4]", "[3], [1]"), ("leaf W", "leaf V")]:
        assert old in twin
        assert read_graph(twin.replace(old, new)) != expected


def test_twin_speaks_of_no_processor_or_place():
    """No id beyond the figure's own numbers, no path: the same code at another place in a recording reads the same."""
    other = Tape("")
    for _ in range(7):  # shifts every id
        other.op("ExpBackward0", [other.tensor("q", (1,), grad=True)], (1,), line=1)
    x = other.tensor("x", (2, 3), grad=True)
    other.capture(other.op("SinBackward0", [x], (2, 3), saved=[("self", x)], line=9, names=("y",)))
    plain = Tape("")
    x = plain.tensor("x", (2, 3), grad=True)
    plain.capture(plain.op("SinBackward0", [x], (2, 3), saved=[("self", x)], line=9, names=("y",)))
    assert graph_figure(other.done()).text == graph_figure(plain.done()).text
