"""The timeline: phases, peak, categories told by more than colour, and no picture that grows without bound."""

import re
from dataclasses import replace

import pytest

from helpers import data
from helpers.figures import memory_figure, overview_figure
from helpers.figures.memory_svg import columns_of, inside_columns, tick_words, ticks
from tests.figures.recordings import SAMPLES, Tape, chain, training
from tests.figures.sound import check_sound, texts
from tests.figures.twins import check_memory


def test_peak():
    recording = training()
    figure = memory_figure(recording)
    line = data.timeline(recording)
    assert (figure.peak, figure.peak_moment) == (max(line.totals), line.peak)
    assert "Peak: 327,692 B, at event 72 of 95: mean ran on line 2" in figure.text
    shown = texts(figure.svg)
    assert "peak 328 kB" in shown
    assert {"131,072 B", "kept for backward", "327,692 B"} <= set(shown)


def test_iterations_are_told_apart():
    figure = memory_figure(training(3))
    for phase in ("forward", "backward", "step"):
        assert texts(figure.svg).count(phase) == 3


def test_many_iterations_fold_in_the_twin():
    figure = memory_figure(training(40))
    assert "more phases, peak" in figure.text
    assert len(figure.text.split("\n")) < 100 < len(figure.text_full().split("\n"))
    check_sound(figure)


def test_every_category_has_a_sign_besides_its_colour():
    """Each band that is drawn has a legend entry; neighbours differ in hatch."""
    svg = memory_figure(SAMPLES["states"]()).svg
    bands = re.findall(r'<g class="band ([a-z-]+)">', svg)
    assert bands == ["parameters", "buffers", "kept-for-backward", "inputs", "other"]
    shown = texts(svg)
    assert all(band.replace("-", " ") in shown for band in bands)
    assert svg.count('class="hatch"') >= 2


def test_an_error_is_marked():
    figure = memory_figure(SAMPLES["trunk"]())
    assert "error" in texts(figure.svg)
    assert "RuntimeError: Trying to backward through the graph a second time" in figure.text


@pytest.mark.parametrize("n", [10, 419, 420, 421, 2_000])
def test_columns_hide_no_peak(n):
    line = data.timeline(chain(n))
    rows, column = columns_of(line)
    assert len(rows) <= 420
    assert max(map(sum, rows)) == max(line.totals)
    assert column[0] == 0 and column[-1] == len(rows) - 1


def test_size_does_not_grow_with_events():
    assert len(memory_figure(chain(2_000)).html) < 100_000


@pytest.mark.parametrize("top", [1, 7, 999, 1_000, 16_448, 327_692, 10**6, 14 * 10**9, 2**40])
def test_ticks(top):
    marks = ticks(top)
    assert marks[0] == 0 and marks[-1] >= top and 3 <= len(marks) <= 7 or top < 5
    assert len({tick_words(mark, marks[-1]) for mark in marks}) == len(marks)


def test_storage_resized():
    storage = data.Storage(0, 8, "cpu", 0, None, "other")
    events = (
        data.MemoryEvent(0, "op", "forward", allocated=(0,)),
        data.MemoryEvent(1, "op", "forward", resized=((0, 4_096),)),
    )
    recording = data.Recording((), (), (storage,), (), (), (), events)
    assert memory_figure(recording).peak == 4_096


def with_kernels(recording, inside):
    """The recording, as if its events' kernels had held so much inside."""
    events = tuple(replace(e, inside=inside.get(e.index, 0)) for e in recording.events)
    return replace(recording, events=events)


def test_inside_kernels_is_in_the_picture_alone():
    """It depends on the processor: the twin, the title and the alt text are the same with and without."""
    plain = training()
    line = data.timeline(plain)
    ops = [e for e in plain.events if e.kind == "op"]
    inside = {ops[3].index: 200_000, ops[5].index: 123}
    measured = with_kernels(plain, inside)
    a, b = memory_figure(plain), memory_figure(measured)
    assert (a.text, a.text_full(), a.alt, a.title, a.peak) == (b.text, b.text_full(), b.alt, b.title, b.peak)
    assert overview_figure(plain).text == overview_figure(measured).text
    assert overview_figure(plain).alt == overview_figure(measured).alt
    assert a.svg != b.svg and "inside kernels" not in a.svg
    shown = texts(b.svg)
    ledger = line.totals[ops[3].index + 1]
    assert f"highest: ledger {ledger:,} B + inside kernels 200,000 B = {ledger + 200_000:,} B" in shown
    assert any(text.startswith("by operator, at most: ") and "200 kB" in text for text in shown)
    assert shown[0].endswith(f"with kernels {ledger + 200_000:,} B ({(ledger + 200_000) / 1000:.0f} kB)")
    assert 'class="band inside-kernels"' in b.svg
    check_sound(b)


def test_kernels_below_the_peak():
    """Where kernels reach no higher than the ledger's own peak, the picture says that both are the same."""
    plain = training()
    first = next(e.index for e in plain.events if e.kind == "op")
    figure = memory_figure(with_kernels(plain, {first: 8}))
    assert texts(figure.svg)[0] == "Live memory, event by event: peak 327,692 B (328 kB); with kernels the same"


@pytest.mark.parametrize("n", [400, 2_000])
def test_shared_columns_hide_no_kernel(n):
    """Where events share a column, the band reaches as high as the highest of them."""
    recording = chain(n)
    line = data.timeline(recording)
    event = next(e.index for e in recording.events[n // 2 :] if e.kind == "op")
    measured = with_kernels(recording, {event: 10**6})
    rows, column = columns_of(line)
    more = inside_columns(measured, line, rows, column)
    assert max(sum(row) + m for row, m in zip(rows, more, strict=True)) == line.totals[event + 1] + 10**6
    assert sum(m > 0 for m in more) == 1


@pytest.mark.parametrize(
    ("phase", "node", "words"),
    [
        ("forward", 0, "made by mul on line 3"),
        ("backward", 0, "made in backward by mul, for line 3"),
        ("backward", None, "made in backward by mul on line 3"),
        ("step", None, "made in step by mul on line 3"),
        ("between", None, "made by mul on line 3"),
    ],
)
def test_what_made_a_storage(phase, node, words):
    """The line of a backward node is forward's: it is not said to have run again."""
    t = Tape("")
    x = t.tensor("x", (4,), grad=True)
    place = t.place(3)
    t.op("MulBackward0", [x], (4,), line=3)
    at = t.event("op", phase, op="aten.mul", node=1 if node is not None else None, place=place)
    s = t.storage(64, "other", born=at, shape=(16,), op="aten.mul", place=place)
    t.events[at] = replace(t.events[at], allocated=(s,))
    figure = memory_figure(t.done())
    assert f"  64 B  other   16 float32, {words}\n" in figure.text
    assert f"16 float32, {words}" in texts(figure.svg)


def test_rounds_of_a_loop():
    """Forwards that begin on the same line are rounds; two different forwards are not."""
    figure = memory_figure(training(3))
    assert "Rounds: 3, each beginning on line 2: at events " in figure.text
    assert {"round 1", "round 2", "round 3"} <= set(texts(figure.svg))
    assert "Rounds" not in memory_figure(SAMPLES["layer"]()).text


@pytest.mark.parametrize(
    ("parameter", "leaf", "words"),
    [(False, True, "leaves 16 B"), (True, False, "parameters 16 B"), (True, True, "parameters and leaves 32 B")],
)
def test_leaves_are_called_leaves(parameter, leaf, words):
    """A plain tensor that needs a gradient is no parameter of a model."""
    t = Tape("")
    made = [t.tensor("w", (4,), parameter=True)] if parameter else []
    made += [t.tensor("x", (4,), grad=True, category="parameters")] if leaf else []
    t.capture(t.op("SinBackward0", made, (4,), line=1))
    figure = memory_figure(t.done())
    assert f"at the peak: {words}, other" in figure.text
    assert words[: words.rindex(" ", 0, -3)] in texts(figure.svg)


@pytest.mark.parametrize(("name", "words"), [("x", "leaves 16 B"), ("0.weight", "parameters 16 B")])
def test_leaves_whose_graph_was_dropped(name, words):
    """Nothing is left that says what they are: a name of a module's is a parameter's."""
    t = Tape("")
    t.tensor(name, (4,), category="parameters")
    t.event("op", "forward", op="aten.sin")
    figure = memory_figure(t.done())
    assert f"at the peak: {words}" in figure.text
    check_memory(t.done(), figure.text_full())


def test_small_recordings_list_every_event():
    """When the seed gradient goes, and when a gradient becomes a leaf's .grad, can be read in words."""
    figure = memory_figure(SAMPLES["product"]())
    assert "  3  backward  the backward pass begins on line 4; total 76 B\n" in figure.text
    assert "MulBackward0 lets go of what it kept, for line 3; released x, y; " in figure.text
    assert "a gradient arrives at x; allocated 24 B (2×3 float32); becomes x.grad: 24 B (2×3 float32); " in figure.text
    assert figure.text_full() == figure.text


def test_large_recordings_say_how_to_have_the_events():
    figure = memory_figure(training())
    assert "Events: 95; print(run.memory.text_full()) lists each." in figure.text
    assert "\nEvents:\n" in figure.text_full()


def test_phases_tell_what_is_there_at_their_end():
    figure = memory_figure(SAMPLES["product"]())
    assert "end 124 B: leaves" not in figure.text  # the samples call their leaves inputs
    assert re.search(r"end 124 B: gradients 48 B, inputs 48 B, other 28 B  peak", figure.text)


def test_gradients_have_a_name_at_the_peak():
    t = Tape("")
    x = t.tensor("x", (4,), grad=True)
    y = t.op("SinBackward0", [x], (4,), saved=[("self", x)], line=1)
    t.backward(y, line=2)
    assert "16 B  gradients  x.grad, 4 float32" in memory_figure(t.done()).text


def test_events_that_are_wrong_are_noticed():
    recording = SAMPLES["product"]()
    twin = memory_figure(recording).text_full()
    check_memory(recording, twin)
    for old, new in [
        ("becomes x.grad", "becomes y.grad"),
        ("released x, y", "released x"),
        ("(z)", "(y)"),
        ("; total 100 B", "; total 101 B"),
        ("; keeps x, y", ""),
        ("SumBackward0 has run", "MulBackward0 has run"),
        ("end 124 B: gradients 48 B", "end 124 B: gradients 47 B"),
    ]:
        assert old in twin, old
        with pytest.raises((AssertionError, KeyError)):
            check_memory(recording, twin.replace(old, new))
