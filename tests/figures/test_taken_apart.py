"""The run taken apart: its bytes are the ledger's, its bars to scale, its words apart; its twin says the same."""

import random
import re
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import as_if_on_gpu, record
from helpers.data import kept_bytes
from helpers.figures import taken_apart_figure
from helpers.figures.draw import width_of
from helpers.figures.order import fold
from helpers.figures.taken_apart_steps import MOST_ENTRIES, MOST_STEPS, take_apart
from helpers.figures.taken_apart_svg import LEFT_LANES, MOST_CHIPS, WIDTH
from helpers.figures.view import view_of
from helpers.lessons.transformer import Transformer, TransformerLayer
from helpers.record import RecordError
from tests.figures import recordings
from tests.figures.sound import SVG, check_sound, check_svg, texts

pytestmark = pytest.mark.usefixtures("one_thread")


class Block(nn.Module):
    """A ResNet's basic block."""

    def __init__(self, a, b, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.c2, self.b2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.down = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b)) if a != b else None

    def forward(self, x):
        out = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(out + (x if self.down is None else self.down(x)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x).tanh())


def seven():
    with torch.device("meta"):
        layer, x = TransformerLayer(4096, 32).to(torch.bfloat16), torch.empty(1, 2048, 4096, dtype=torch.bfloat16)
    return as_if_on_gpu(layer, x)


def layer_with_gradient():
    return record(TransformerLayer(32, 4), torch.randn(2, 8, 32, requires_grad=True))


def mlp():
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    x, t = torch.randn(32, 64), torch.randint(10, (32,))
    with record() as run:
        loss = F.cross_entropy(model(x), t)
        loss.backward()
    return run


def conv():
    model = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
    return record(model, torch.randn(2, 8, 12, 12))


def tied():
    return record(Tied(), torch.randint(50, (3, 7)))


def shared():
    t, m = torch.randn(1, 32, 16), torch.randn(16, 48, requires_grad=True)
    with record() as run:
        q, k, v = (t @ m)[:, None].chunk(3, dim=-1)
        out = F.scaled_dot_product_attention(q, k, v)  # noqa: F841
        square = q * q  # noqa: F841
    return run


def checkpointed():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
    x = torch.randn(4, 8, requires_grad=True)
    return record(lambda: checkpoint(model, x, use_reentrant=False).exp())


def by_hand():
    x, w, b = torch.randn(32, 64), torch.randn(16, 64, requires_grad=True), torch.randn(16, requires_grad=True)
    with record() as run:
        y = torch.relu(x @ w.t() + b)  # noqa: F841
    return run


def twelve():
    with torch.device("meta"):
        model, x = Transformer(12, 64, 4, vocabulary=100), torch.zeros(1, 32, dtype=torch.long)
    return as_if_on_gpu(model.to(torch.bfloat16), x)


def hooked():
    w = torch.randn(6, 6, requires_grad=True)
    with record() as run, torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = w.tanh().tanh() @ w  # noqa: F841
    return run


def in_place():
    w = torch.randn(50, requires_grad=True)
    with record() as run:
        h = w.exp()
        y = h.sin()  # noqa: F841
        h.mul_(2)
    return run


def dense():
    """Each feeds all that follow: more branches than there are lanes."""
    w = torch.randn(20, requires_grad=True)
    with record() as run:
        made = [w.sin()]
        for i in range(12):
            made.append((sum(made[1:], made[0]).tanh() if i % 2 else torch.stack(made).prod(0)).exp())
        out = torch.cat(made)  # noqa: F841
    return run


def long():
    w = torch.randn(9, requires_grad=True)
    with record() as run:
        y = w
        for operation in random.Random(0).choices((torch.sin, torch.exp, torch.tanh, torch.sqrt), k=700):
            y = operation(y)
    return run


def hostile():
    w = torch.randn(5, requires_grad=True)
    with record(names={'<b>&"' + "long" * 40: w}) as run:
        y = (w * w).unbind()[0] + w.sum().expand(2, 3, 4, 5, 6, 7, 8).sum()  # noqa: F841
    return run


RUNS = {
    f.__name__: f
    for f in (
        seven, layer_with_gradient, mlp, conv, tied, shared, checkpointed, by_hand, twelve, hooked, in_place, dense,
        long, hostile,
    )
}  # fmt: skip


@pytest.fixture(scope="module", params=RUNS)
def run(request):
    return RUNS[request.param]()


def apart_of(run, moment=None):
    view = view_of(run.recording, run.recording.graphs[0], moment)
    operations = sum(not run.recording.nodes[n].leaf for n in view.ordered)
    return take_apart(view, fold(run.recording, view.ordered, wanted=operations > 24))


def numbers(text):
    return int(text.replace(",", ""))


def entries(svg):
    """(bytes, length, bar width) of each entry drawn; the width is None where a line says that it is too thin."""
    out = []
    for g in ET.fromstring(svg).iter(f"{SVG}g"):
        if g.get("class", "").startswith("entry"):
            bar = g.find(f"{SVG}rect[@class='bar']")
            out.append(
                (
                    int(g.get("data-bytes")),
                    int(g.get("data-length")),
                    float(bar.get("width")) if bar is not None else None,
                )
            )
    return out


def twin_sum(text):
    """The bytes of the twin's kept rows, added up, and what it says they are together."""
    found = 0
    for line in text.splitlines():
        if line.startswith("      keeps ") and not line.startswith("      keeps nothing"):
            kept = re.search(r"(?:= |  )(\d[\d,]*) B(?:  |$)", line)
            found += numbers(kept[1])
    (total,) = re.findall(r"^  Together +([\d,]+) B$", text, re.M)
    return found, numbers(total)


# ------------------------------------------------------------------------------------------------------------- bytes


def test_the_bytes_are_the_ledger_s(run):
    figure = taken_apart_figure(run.recording)
    kept = kept_bytes(run.recording)
    assert figure.nbytes == kept == run.kept.nbytes
    assert sum(n for n, _, _ in entries(figure.svg)) == kept
    assert twin_sum(figure.text) == twin_sum(figure.text_full()) == (kept, kept)


def test_the_bytes_at_other_moments():
    run = mlp()
    moments = range(-1, len(run.recording.events))
    found = [taken_apart_figure(run.recording, moment=m) for m in moments]
    assert [f.nbytes for f in found] == [kept_bytes(run.recording, m) for m in moments]
    assert [twin_sum(f.text)[0] for f in found] == [f.nbytes for f in found]
    end = found[-1]
    assert end.nbytes == 0 and "released" in end.text and "released" in texts(end.svg)
    check_sound(end)


def test_every_kept_tensor_is_drawn_once_as_an_entry_or_a_chip(run):
    apart = apart_of(run)
    drawn = {n for n in apart.folding.drawn}
    rows = [r for n in drawn for r in apart.view.rows.get(n, ()) if r.state != "never saved"]
    entries = [s for tier in apart.tiers for entry in tier.entries for s in entry.saved]
    assert len(entries) == len(set(entries))
    assert set(entries) == {r.saved.id for r in rows if not (r.alive and r.held and not r.counted)}
    nodes = [n for step in apart.steps.values() for n in step.nodes]
    assert sorted(nodes) == sorted(n for n in drawn if not run.recording.nodes[n].leaf)


def test_parameters_and_their_ratio():
    figure = taken_apart_figure(seven().recording)
    assert (figure.nbytes, figure.parameters) == (956_334_080, 402_759_680)
    assert "kept ÷ parameters = 2.374" in texts(figure.svg) and "kept ÷ parameters = 2.374" in figure.text
    model = Tied()
    assert taken_apart_figure(tied().recording).parameters == model.head.weight.nbytes, "tied weights count once"
    figure = taken_apart_figure(by_hand().recording)
    assert figure.parameters == 0 and not any("÷" in t for t in texts(figure.svg)), "plain leaves are no parameters"


# ------------------------------------------------------------------------------------------------------------- scale


def test_bars_are_proportional(run):
    found = entries(taken_apart_figure(run.recording).svg)
    lengths = [length for _, length, _ in found if length]
    if not lengths:
        assert all(width is None for _, _, width in found)
        return
    scale = 400 / max(lengths)
    for nbytes, length, width in found:
        assert nbytes in (0, length)
        if width is None:
            assert length * scale < 1
        else:
            assert abs(width - length * scale) <= 0.051  # a coordinate has one decimal


def test_the_foot_s_bars_are_on_one_scale(run):
    figure = taken_apart_figure(run.recording)
    wide = {r.get("class"): float(r.get("width")) for r in ET.fromstring(figure.svg).iter(f"{SVG}rect")}
    largest = max(figure.nbytes, figure.parameters)
    for name, nbytes in (("total", figure.nbytes), ("parameters", figure.parameters)):
        assert abs(wide.get(name, 0.0) - (nbytes * 860 / largest if largest else 0)) <= 0.051


# ----------------------------------------------------------------------------------------------------------- drawing


def boxes_of(svg):
    """(left, top, right, bottom, text) of each text, by the house's generous widths."""
    out = []
    for t in ET.fromstring(svg).iter(f"{SVG}text"):
        size, mono = float(t.get("font-size")), not t.get("font-family")
        assert size >= 11
        wide = width_of(t.text or "", size, mono=mono)
        x, y = float(t.get("x")), float(t.get("y"))
        left = {"middle": x - wide / 2, "end": x - wide}.get(t.get("text-anchor"), x)
        out.append((left, y - 0.75 * size, left + wide, y + 0.2 * size, t.text))
    return out


def test_no_text_overlaps_another_or_leaves_the_canvas(run):
    svg = taken_apart_figure(run.recording).svg
    root = check_svg(svg)
    width, height = float(root.get("width")), float(root.get("height"))
    assert width == WIDTH <= 900
    found = boxes_of(svg)
    for left, top, right, bottom, text in found:
        assert left >= 0 and top >= 0 and right <= width and bottom <= height, text
    for a, b in combinations(found, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (a, b)


def test_no_shape_leaves_the_canvas(run):
    root = ET.fromstring(taken_apart_figure(run.recording).svg)
    height = float(root.get("height"))
    for r in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(r.get(k) or 0) for k in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and w >= 0 and x + w <= WIDTH and y + h <= height
    for p in root.iter(f"{SVG}path"):
        for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", p.get("d")):
            assert 0 <= float(x) <= WIDTH and 0 <= float(y) <= height


def test_sound(run):
    check_sound(taken_apart_figure(run.recording))


def test_boxes_do_not_overlap(run):
    root = ET.fromstring(taken_apart_figure(run.recording).svg)
    boxes = [
        tuple(float(r.get(k)) for k in ("x", "y", "width", "height"))
        for r in root.iter(f"{SVG}rect")
        if r.get("class") == "box"
    ]
    for (x, y, w, h), (u, v, s, t) in combinations(boxes, 2):
        assert x + w < u or u + s < x or y + h < v or v + t < y


# ------------------------------------------------------------------------------------------------------------- steps


def steps_of(figure):
    return re.findall(r"^  \[\d+\] ([\w.]+(?:, \w+)*)", figure.text, re.M)


def test_the_steps_of_a_layer():
    apart = apart_of(seven())
    assert [[step.title for step in tier.steps] for tier in apart.tiers] == [
        ["norm1"], ["q", "k", "v"], ["Bmm, Div"], ["Softmax"], ["dropout1"], ["Bmm"], ["out"], ["dropout2"], ["Add"],
        ["norm2"], ["up"], ["Gelu"], ["down"], ["dropout3"], ["Add"],
    ]  # fmt: skip
    steps = apart.steps
    feeding = {n: sorted(step.feeding) for n, step in steps.items()}
    assert feeding == {
        1: [], 2: [1], 3: [1], 4: [1], 5: [2, 3], 6: [5], 7: [6], 8: [4, 7], 9: [8], 10: [9], 11: [10], 12: [11],
        13: [12], 14: [13], 15: [14], 16: [15], 17: [11, 16],
    }  # fmt: skip
    assert [n for n, step in steps.items() if step.is_sum] == [11, 17]
    (shared,) = apart.tiers[1].entries
    assert shared.keepers == (2, 3, 4) and shared.counted == 2 * 2048 * 4096
    assert [entry.label for entry in apart.tiers[2].entries] == ["from q", "from k"]
    assert [entry.mask for entry in apart.tiers[4].entries] == [True]
    assert [(chip.name, chip.kept) for chip in steps[2].chips] == [("weight", True), ("bias", False)]


def test_edges_between_steps_are_the_graph_s(run):
    apart = apart_of(run)
    folding, view = apart.folding, apart.view
    home = {n: step.number for step in apart.steps.values() for n in step.nodes}
    wanted = {
        (home[folding.stands[e.node]], home[n])
        for n in home
        for e in run.recording.nodes[n].edges
        if e.node in view.number and not run.recording.nodes[e.node].leaf
    }
    found = {(tail, step.number) for step in apart.steps.values() for tail in step.feeding}
    assert found == {(a, b) for a, b in wanted if a < b}
    for a, b in wanted:
        assert a <= b or (apart.steps[a].block is not None and apart.steps[a].block == apart.steps[b].block)


def test_what_feeds_from_afar_is_a_lane_or_a_word():
    figure = taken_apart_figure(dense().recording)
    words = [t for t in texts(figure.svg) if t.startswith("also from")]
    assert words, "more branches than lanes"
    lanes = sum(p.get("class") == "ground" for p in ET.fromstring(figure.svg).iter(f"{SVG}path"))
    assert lanes >= LEFT_LANES


def test_twelve_layers_are_drawn_once():
    run = twelve()
    figure = taken_apart_figure(run.recording)
    assert "stand for 12 times the same: layers.0 … layers.11, each feeding the next" in figure.text
    assert any(t.startswith("12 × layers.0 … layers.11") for t in texts(figure.svg))
    assert steps_of(figure)[:4] == ["embedding", "dropout", "norm1", "q"]
    assert re.search(r"keeps its output .* ([\d,]+) B × 12 = ", figure.text)
    assert len(figure.text_full().splitlines()) > 5 * len(figure.text.splitlines())


def test_a_long_chain_is_a_short_picture_with_all_its_bytes():
    apart = apart_of(long())
    assert 30 < len(apart.steps) <= MOST_STEPS + 1 < sum(len(step.nodes) for step in apart.steps.values())
    assert all(len(tier.entries) <= MOST_ENTRIES for tier in apart.tiers)


def test_memory_counted_elsewhere_says_where():
    text = taken_apart_figure(mlp().recording).text
    assert re.search(r"keeps from Relu +32×128 float32 +0 B  counted at 4 Relu", text)
    apart = apart_of(shared())
    buffer = [e for tier in apart.tiers for e in tier.entries if set(e.label.split(", ")) <= {"q", "k", "v"}]
    assert sum(e.counted for e in buffer) == 32 * 48 * 4, "three views, one buffer"


def test_an_outline_is_as_long_as_what_it_stands_for():
    model = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(8, 8), nn.ReLU())))
    apart = apart_of(record(model, torch.randn(4, 8, requires_grad=True)))
    assert apart.folding.blocks
    found = {entry.state: entry for tier in apart.tiers for entry in tier.entries}
    assert found["again"].counted == 0 and found["live"].counted > 10 * 4 * 8 * 4
    assert found["again"].length in (found["live"].length, found["live"].length - 4 * 8 * 4)


def test_what_is_computed_again_is_said():
    figure = taken_apart_figure(checkpointed().recording)
    assert "to be computed again" in texts(figure.svg) and "to be computed again" in figure.text


def test_a_changed_tensor_is_said():
    figure = taken_apart_figure(in_place().recording)
    assert "changed in place" in figure.text and texts(figure.svg).count("changed in place") >= 2


class Lines(nn.Module):
    def forward(self, x):
        y = x.sin().tanh() + x.exp()
        return self.more(y, x)

    def more(self, y, x):
        return y.cos() * x


def test_code_stands_at_the_operations_that_no_module_names():
    run = record(Lines(), torch.randn(5, requires_grad=True))
    codes = [step.code for step in apart_of(run).steps.values()]
    assert codes == ["y = x.sin().tanh() + x.exp()"] * 4 + ["return y.cos() * x"] * 2
    shown = texts(run.taken_apart.svg)
    assert shown.count("on the same line") == 2 + 1, "not at the sum, which shows no code"
    assert shown.count("return y.cos() * x") == 1
    assert not any(step.code for step in apart_of(mlp()).steps.values() if "module" in step.under)


def test_parameters_are_chips_and_a_second_use_is_dashed():
    apart = apart_of(tied())
    chips = [chip for step in apart.steps.values() for chip in step.chips]
    assert [(chip.again, chip.kept) for chip in chips] == [(False, False), (True, True)]
    many = record(nn.LSTMCell(4, 4), torch.randn(2, 4))
    assert all(
        len(step.chips) <= MOST_CHIPS or "more" in " ".join(texts(many.taken_apart.svg))
        for step in apart_of(many).steps.values()
    )


def test_recordings_made_by_hand():
    for name, make in recordings.SAMPLES.items():
        recording = make()
        for g, graph in enumerate(recording.graphs):
            figure = taken_apart_figure(recording, g)
            check_sound(figure)
            drawn = sum(n for n, _, _ in entries(figure.svg))
            assert figure.nbytes == drawn == twin_sum(figure.text)[0], (name, graph.id)


# --------------------------------------------------------------------------------------------------------------- run


def test_a_run_shows_it():
    run = by_hand()
    assert run.taken_apart.text == taken_apart_figure(run.recording).text
    with pytest.raises(RecordError, match="no operation that needs a gradient"):
        _ = record(torch.tanh, torch.randn(3)).taken_apart


def test_bad_numbers_of_graphs():
    recording = by_hand().recording
    with pytest.raises(IndexError, match="1 graph, numbered from 0 to 0; there is no 3"):
        taken_apart_figure(recording, 3)
