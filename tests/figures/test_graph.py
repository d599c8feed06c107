"""The graph's drawing: what is in it, what is folded, that totals hold and that nothing is cut without a word."""

import re
import xml.etree.ElementTree as ET

import pytest

from helpers import data
from helpers.figures import graph_figure, kept_figure
from helpers.figures.order import fold, forward_order
from helpers.figures.palette import GRAPH
from helpers.figures.scene import build
from helpers.figures.view import rows_like, view_of
from tests.figures.recordings import SAMPLES, Tape, chain, lstm, mixed, transformer
from tests.figures.sound import SVG, check_sound, texts


def groups(svg, css):
    return [g for g in ET.fromstring(svg).iter(f"{SVG}g") if css in g.get("class", "").split()]


def words(group):
    return [t.text for t in group.iter(f"{SVG}text")]


def test_product():
    """z = x * y: two leaves, one operation with a pink ellipse for each factor."""
    svg = graph_figure(SAMPLES["product"]()).svg
    assert len(groups(svg, "leaf")) == 2
    assert [words(g)[0] for g in groups(svg, "kept")] == ["x", "y"]
    assert all("24 B" in words(g) for g in groups(svg, "kept"))
    assert svg.count(f'fill="{GRAPH["live"].fill}"') >= 2


def test_square_is_one_ellipse():
    (kept,) = groups(graph_figure(SAMPLES["square"]()).svg, "kept")
    assert "kept 2 times" in words(kept)
    assert kept.get("data-saved") == "0 1"


def test_states_are_words_not_colours_alone():
    shown = texts(graph_figure(SAMPLES["states"]()).svg)
    assert {"changed in place", "packed", "a parameter: not counted", "a buffer: not counted"} <= set(shown)
    shown = texts(graph_figure(SAMPLES["trunk"](), 1).svg)
    assert shown.count("released") >= 2  # in the ellipse and in the legend


def test_moment():
    recording = SAMPLES["product"]()
    after = graph_figure(recording, moment=len(recording.events) - 1)
    assert "released" in after.text and "released" not in graph_figure(recording).text
    assert after.nbytes == 0


def test_retained_badge():
    assert "retain_graph=True: this backward releases nothing" in texts(graph_figure(SAMPLES["retained"]()).svg)
    assert "retain_graph=True" not in graph_figure(SAMPLES["retained"](), 1).text


def test_several_outputs_have_cells():
    shown = texts(graph_figure(SAMPLES["unbind"]()).svg)
    assert {"out 0", "out 1", "out 2"} <= set(shown)


def test_pruned_nodes_say_so():
    figure = graph_figure(SAMPLES["pruned"]())
    assert len(groups(figure.svg, "pruned")) == 2
    assert texts(figure.svg).count("not needed by this pass") == 3


def test_input_without_gradient_is_drawn_by_name():
    (plain,) = groups(graph_figure(SAMPLES["layer"]()).svg, "none")
    assert words(plain) == ["x", "needs no gradient"]


def test_tied_leaf_is_one_leaf_with_both_names():
    figure = graph_figure(transformer())
    boxes = [words(g) for g in groups(figure.svg, "parameter") if "embed.weight" in words(g)]
    assert all("head.weight" in w for w in boxes)
    assert sum("the same leaf, again" not in w for w in boxes) == 1


def test_no_such_graph():
    with pytest.raises(IndexError, match="numbered from 0 to 1; there is no 5"):
        graph_figure(SAMPLES["trunk"](), 5)


def test_no_graph_is_a_sentence():
    figure = graph_figure(SAMPLES["empty"]())
    assert figure.text == "No graph: nothing that was recorded needs a gradient."
    check_sound(figure)


def test_blocks_fold_by_module():
    recording = transformer()
    figure = graph_figure(recording)
    assert figure.folded
    assert "12 times the same: layers.0 … layers.11, each feeding the next" in figure.text
    folding = fold(recording, forward_order(recording, recording.graphs[0]))
    (block,) = folding.blocks
    modules = [{recording.nodes[n].module.split(".")[1] for n in member} for member in block.members]
    assert modules == [{str(i)} for i in range(12)]
    kept = {
        i
        for member in block.members
        for n in member
        for s in recording.nodes[n].saved
        for i in recording.saved[s].storages
    }
    live = data.live_storages(recording, recording.graphs[0].event)
    total = sum(live[i][0] for i in kept if live[i][1] != "parameters")
    assert f"together they keep {total:,} B" in figure.text
    assert any(f"together they keep {total:,} B" in t for t in texts(figure.svg))


def test_names_inside_a_frame_drop_its_own():
    """The frame says which layer is drawn: the boxes inside say what of it; words beside the picture say all."""
    figure = graph_figure(transformer())
    shown = texts(figure.svg)
    assert {"norm.weight", "up.weight", "down.weight"} <= set(shown)
    assert {"embed.weight", "head.weight"} <= set(shown)
    assert not any(t.startswith("layers.") for t in shown[3:])
    assert "layers.1.up.weight" in figure.text or "layers.0.up.weight" in figure.text


def test_blocks_of_other_kinds_do_not_fold():
    """A block that differs in one shape ends the run; two equal blocks are not folded."""
    recording = transformer(2)
    assert not graph_figure(recording).folded
    t = Tape("")
    x = t.tensor("x", (8,), grad=True)
    for size in [8] * 20 + [9] + [8] * 20:
        x = t.op("SinBackward0", [x], (size,), saved=[("self", x)], line=1)
    t.capture(x)
    recording = t.done()
    folding = fold(recording, forward_order(recording, recording.graphs[0]))
    assert [block.count for block in folding.blocks] == [20, 19]  # the first after the other size keeps that one


def test_wiring_that_differs_does_not_fold():
    """The same operations, wired otherwise, are not the same blocks."""
    t = Tape("")
    x = first = t.tensor("x", (8,), grad=True)
    first = x = t.op("ExpBackward0", [x], (8,), line=1)
    for i in range(30):
        a = t.op("SinBackward0", [x], (8,), line=1)
        x = t.op("AddBackward0", [a, x if i % 2 else first], (8,), line=1)
    t.capture(x)
    recording = t.done()
    for block in fold(recording, forward_order(recording, recording.graphs[0])).blocks:
        assert len(block.members[0]) % 4 == 0


def test_unrolled_cell_folds_to_one_step():
    recording = lstm(40)
    figure = graph_figure(recording)
    assert "40 times the same: the same 15 operations, each feeding the next" in figure.text
    check_sound(figure)
    assert figure.nbytes == data.kept_bytes(recording)
    assert len(groups(figure.svg, "item")) < 60


def test_folded_figure_gives_all_on_request():
    recording = transformer()
    figure = graph_figure(recording)
    assert "[126]" not in figure.text and figure.text_full().count("\n  [") == 125


@pytest.mark.parametrize("n", [600, 5_000])
def test_summary_totals(n):
    """Too large and nothing repeats: each operation with its count; the bytes are the ledger's."""
    recording = mixed(n)
    figure = graph_figure(recording)
    rows = [re.split(r"\s{2,}", line.strip()) for line in figure.text.split("\n") if line.startswith("  ")]
    *kinds, together = rows
    size = [int(r[3].removesuffix(" B").replace(",", "")) for r in kinds]
    count = {r[0]: int(r[1].replace(",", "")) for r in kinds}
    assert (
        sum(size) == int(together[3].removesuffix(" B").replace(",", "")) == data.kept_bytes(recording) == figure.nbytes
    )
    assert sum(count.values()) == n + 1
    names = [recording.nodes[i].name for i in recording.graphs[0].nodes]
    assert count["SinBackward0"] == names.count("SinBackward0")
    assert "Too large to draw node by node" in figure.text
    check_sound(figure)


def test_long_chain():
    """No recursion: a chain far beyond Python's limit, drawn as one operation with its count."""
    recording = chain(5_000)
    figure = graph_figure(recording)
    assert "5,000 times the same: the same operation" in figure.text
    assert figure.nbytes == kept_figure(recording).nbytes == 5_000 * 32
    check_sound(figure)


def test_whole_picture_on_request():
    figure = graph_figure(lstm(12), folded=False)
    assert not figure.folded
    assert len(groups(figure.svg, "item")) > 180
    check_sound(figure, most=2_000_000)


def test_wide_fan_in():
    t = Tape("")
    x = t.tensor("x", (4,), grad=True)
    parts = [t.op("ExpBackward0", [x], (4,), saved=[("result", "output")], line=1) for _ in range(2_000)]
    t.capture(t.op("CatBackward0", parts, (8_000,), line=2))
    recording = t.done()
    figure = graph_figure(recording)
    assert figure.nbytes == 2_000 * 16
    assert "×2,000" in figure.text
    check_sound(figure)


def test_texts_fit_their_boxes():
    """By the generous widths that the drawing assumes, no text leaves the picture."""
    for name, make in SAMPLES.items():
        root = ET.fromstring(graph_figure(make()).svg)
        width = float(root.get("width"))
        for element in root.findall(f"{SVG}text"):
            start = float(element.get("x"))
            size = float(element.get("font-size"))
            assert start + 0.5 * size * len(element.text) < width + 4, (name, element.text)


def layers(first_gets_gradient, n=6):
    """Layers alike, the first of which may get an input that needs no gradient: it then lacks a view, and a tensor."""
    t = Tape("for layer in layers:\n    x = layer(x)\nx.sum().backward()")
    x = t.tensor("x", (8, 16), grad=first_gets_gradient)
    for i in range(n):
        w = t.tensor("", (16, 16), parameter=True, names=(f"layers.{i}.weight",))
        module = f"layers.{i}"
        wt = t.op("TBackward0", [w], (16, 16), view=w, line=2, module=module)
        grad = x.node is not None
        seen = t.op("ViewBackward0", [x], (8, 16), view=x, line=2, module=module) if grad else x
        kept = [("self", seen)] + ([("mat2", wt)] if grad else [])
        a = t.op("MmBackward0", [seen, wt], (8, 16), saved=kept, line=2, module=module)
        r = t.op("ReluBackward0", [a], (8, 16), saved=[("result", "output")], line=2, module=module)
        b = t.op("ExpBackward0", [r], (8, 16), saved=[("result", "output")], line=2, module=module)
        x = t.op("MulBackward0", [r, b], (8, 16), saved=[("self", r), ("other", b)], line=2, module=module)
    t.backward(t.op("SumBackward0", [x], (), line=3), line=3)
    return t.done()


def test_a_first_layer_that_lacks_something_folds_too():
    recording = layers(False)
    figure = graph_figure(recording)
    (line,) = [line for line in figure.text.split("\n") if line.startswith("Folded: ")]
    assert "6 times the same: layers.0 … layers.5, each feeding the next; " in line
    assert "the first has 1 operation fewer and keeps 1 tensor less, since an input of it needs no gradient" in line
    assert "ViewBackward0  8×16 float32  line 2  in layers.1  ×5" in figure.text
    assert "in 5 of 6" in figure.text
    assert figure.nbytes == data.kept_bytes(recording)
    assert any("layers.1 is drawn" in t for t in texts(figure.svg))


@pytest.mark.parametrize("make", [lambda: layers(False), lambda: layers(True), transformer, lstm, lambda: chain(900)])
def test_folded_rows_stand_for_the_whole_ledger(make):
    """What the drawn rows stand for, in every repetition that has them, adds up to the ledger's total."""
    recording = make()
    view = view_of(recording, recording.graphs[0], None)
    folding = fold(recording, view.ordered)
    assert folding.blocks
    rows = [row for n in folding.drawn for row in view.rows.get(n, ())]
    assert sum(r.counted for row in rows for r in rows_like(view, folding, row)) == data.kept_bytes(recording)
    assert sum(len(folding.like.get(n, (n,))) for n in folding.drawn if not recording.nodes[n].leaf) == sum(
        recording.nodes[n].leaf is None for n in view.ordered
    )


def test_ellipses_of_a_folded_block_add_up():
    """The bytes in the picture, times their counts, are the ledger's total."""
    for recording in (layers(False), layers(True), transformer(), lstm(40)):
        total = 0
        for group in groups(graph_figure(recording).svg, "kept"):
            for line in words(group):
                found = re.fullmatch(r"([\d,]+) B(?: × ([\d,]+)| in [\d,]+)?", line)
                if found and not any(word.endswith("not counted") for word in words(group)):
                    total += int(found[1].replace(",", "")) * int((found[2] or "1").replace(",", ""))
        assert total == data.kept_bytes(recording)


def test_no_two_that_keep_share_a_box():
    """In a large picture operations share a box, but whose a kept tensor is stays clear."""
    for recording in (transformer(), lstm(40), layers(False)):
        view = view_of(recording, recording.graphs[0], None)
        folding = fold(recording, view.ordered)
        scene = build(view, folding)
        seen = [n for item in scene.items for n in item.nodes or (item.node,) if not item.again]
        operations = [n for n in seen if n is not None and not recording.nodes[n].leaf]
        assert sorted(operations) == sorted(n for n in folding.drawn if not recording.nodes[n].leaf)
        for item in scene.items:
            assert sum(bool(view.rows.get(n)) for n in item.nodes) <= 1
            assert {row.node.id for e in item.ellipses for row in e.rows} <= set(item.nodes or (item.node,))
