"""The timeline: phases, peak, categories told by more than colour, and no picture that grows without bound."""

import re

import pytest

from helpers import data
from helpers.figures import memory_figure
from helpers.figures.memory import columns_of, tick_words, ticks
from tests.figures.recordings import SAMPLES, chain, training
from tests.figures.sound import check_sound, texts


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
