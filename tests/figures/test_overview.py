"""A recording at a glance."""

from dataclasses import replace

import pytest

from helpers.figures import graph_figure, kept_figure, memory_figure, overview_figure
from helpers.figures.overview import code_lines, notes_of, others_words
from tests.figures.recordings import SAMPLES, product
from tests.figures.sound import check_sound


def test_everything_is_in_it():
    recording = SAMPLES["layer"]()
    figure = overview_figure(recording)
    for part in (graph_figure(recording), kept_figure(recording), memory_figure(recording)):
        assert part.text in figure.text
        assert part.body in figure.html
    reader = check_sound(figure)
    assert len(reader.images) == 2 and reader.tables == 2


def test_code_lines():
    lines = {line.number: line for line in code_lines(product())}
    assert lines[3].code == "z = x * y"
    assert (lines[3].allocated, lines[3].kept) == (24, 48)
    assert lines[4].allocated == 4 + 48  # the sum, and both gradients
    assert lines[1].allocated == 0


def test_an_error_comes_first():
    first = overview_figure(SAMPLES["trunk"]()).text.split("\n")[0]
    assert first == (
        "The backward on line 5 raised an error as TanhBackward0 of line 1 ran. "
        "RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they "
        "have already been freed). "
        "What it had kept was released by the backward on line 4."
    )


def test_graph_and_ledger_are_of_one_moment():
    """The second backward failed: its graph, and the ledger as it began; how to see the other."""
    recording = SAMPLES["trunk"]()
    figure = overview_figure(recording)
    assert "This recording has 2 graphs; this is number 2. The other is run.graphs[0]." in figure.text
    assert "Graph 2 of 2, as backward() begins on line 5" in figure.text
    assert "Kept for backward, as backward() begins on line 5: " in figure.text
    assert kept_figure(recording, recording.graphs[1].event).text in figure.text
    assert kept_figure(recording).text.startswith("Kept for backward, as backward() begins on line 4: ")
    assert kept_figure(SAMPLES["product"]()).text.startswith("Kept for backward: ")


def test_how_to_see_the_other_graphs():
    assert others_words(3, 0).endswith("this is number 1. The others are run.graphs[1] and run.graphs[2].")
    assert others_words(12, 0).endswith("this is number 1. All are run.graphs[0] to run.graphs[11].")


@pytest.mark.parametrize("note", ["ValueError: ", "ValueError"])
def test_an_error_without_a_message(note):
    recording = SAMPLES["trunk"]()
    recording = replace(recording, events=(*recording.events[:-1], replace(recording.events[-1], note=note)))
    figure = overview_figure(recording)
    assert "ran. ValueError What it" not in figure.text and "ValueError:" not in figure.text
    assert "ValueError. What it had kept was released" in figure.text


def test_code_keeps_its_indent():
    """By no-break spaces, which no front end folds: `white-space` alone may be stripped."""
    html = overview_figure(SAMPLES["layer"]()).html
    indent = html[: html.index("y = torch.relu")][-4:]
    assert len(indent) == 4 and set(indent) <= {" ", "\u00a0"} and "  " not in indent and indent[0] == "\u00a0"


def test_awkward_code_is_text():
    assert "&lt;b&gt;" in overview_figure(SAMPLES["awkward"]()).html


def test_lines_of_a_loop_tell_each_round():
    """Three rounds keep the same, never at once: the note gives one round's bytes, not their sum."""
    lines = {line.number: line for line in code_lines(SAMPLES["training"]())}
    forward, step = notes_of(lines[2]), notes_of(lines[4])
    assert forward == (
        "in each of 3 rounds: allocates 262,148 B, frees 131,072 B, keeps 196,608 B for backward"  # x too, each time
    )
    assert "3 rounds together: allocates 131,072 B" in step  # the optimizer's state is allocated in the first alone
    assert kept_figure(SAMPLES["training"]()).text.startswith(
        "Kept for backward, as backward() begins on line 3 (graph 1 of 3): "
    )
    assert "round" not in notes_of({line.number: line for line in code_lines(product())}[3])
