"""Figures of code that really ran: every twin read back against its recording, every figure sound."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import data, record
from helpers.figures import graph_figure, kept_figure, memory_figure, overview_figure
from tests.figures.sound import SVG, check_sound, check_svg, texts
from tests.figures.twins import check_kept, check_memory, expected_graph, read_graph


def product():
    x, y = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    z = x * y
    z.sum().backward()


def layer():
    x, W, b = torch.ones(32, 64), torch.ones(16, 64, requires_grad=True), torch.ones(16, requires_grad=True)
    return torch.relu(x @ W.t() + b)


def square():
    a = torch.ones(4, requires_grad=True)
    (a * a).sum().backward()


def twice():
    x = torch.ones(8, 8, requires_grad=True)
    h = torch.tanh(x)
    first, second = (h * h).sum(), h.exp().sum()
    first.backward()
    second.backward()


def retained():
    x = torch.ones(3, requires_grad=True)
    loss = (x.exp() * x).sum()
    loss.backward(retain_graph=True)
    loss.backward()


def pruned():
    x, w = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    torch.autograd.grad((x.exp() * w.sin()).sum(), x)


def unbind():
    q, k, v = torch.ones(3, 4, 4, requires_grad=True).unbind(0)
    return q * k + v


def mixed_inputs():
    x = torch.ones(4, requires_grad=True)
    return torch.cat([x, torch.ones(4)])[None] * 2 + (x[:2].sum() * (1 + 2j)).real


def custom():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, None, y)
            ctx.mask = x > 0
            return x * y

        @staticmethod
        def backward(ctx, grad):
            x, _, y = ctx.saved_tensors
            return grad * y, grad * x

    a, b = torch.ones(5, requires_grad=True), torch.ones(5, requires_grad=True)
    Scale.apply(a, b).sum().backward()


def in_place():
    x = torch.ones(4, requires_grad=True)
    y = x.exp()
    z = y.sin()
    y.add_(1)
    z.sum().backward()


def on_a_view():
    x = torch.ones(4, requires_grad=True)
    y = x * 1
    y[:2].mul_(3)
    return y.relu()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embed.weight
        self.register_parameter('w<1>|{x} "q"', nn.Parameter(torch.ones(4)))

    def forward(self, ids):
        return self.head(self.embed(ids) * self._parameters['w<1>|{x} "q"'])


def tied():
    model = Tied()
    model(torch.arange(3)).sum().backward()


def training():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.LayerNorm(16), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        nn.functional.cross_entropy(model(torch.ones(6, 8)), torch.zeros(6, dtype=torch.long)).backward()
        optimizer.step()
        optimizer.zero_grad()


def convolution():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    model(torch.ones(2, 1, 8, 8)).sum().backward()


def checkpointed():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    x = torch.ones(4, 8, requires_grad=True)
    (checkpoint(model, x, use_reentrant=False) + checkpoint(model, x, use_reentrant=True)).sum().backward()


def offloaded():
    x = torch.ones(4, requires_grad=True)
    with torch.autograd.graph.save_on_cpu():
        y = x.exp().sin()
    y.sum().backward()


def autocast():
    model = nn.Linear(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.ones(4, 8)).float().pow(2).mean()
    loss.backward()


def double():
    x = torch.ones(3, requires_grad=True)
    (g,) = torch.autograd.grad(x.tanh().sum(), x, create_graph=True)
    g.pow(2).sum().backward()


def transformer():
    model = nn.Sequential(*[nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(4)])
    model(torch.ones(2, 5, 16)).mean().backward()


def unrolled():
    cell, h, c = nn.LSTMCell(4, 4), torch.zeros(1, 4), torch.zeros(1, 4)
    for _ in range(12):
        h, c = cell(torch.ones(1, 4), (h, c))
    h.sum().backward()


def no_gradient():
    return torch.ones(8) * 2


FAILING = ("twice", "in_place")
CASES = [
    product, layer, square, twice, retained, pruned, unbind, mixed_inputs, custom, in_place, on_a_view, tied, training,
    convolution, checkpointed, offloaded, autocast, double, transformer, unrolled, no_gradient,
]  # fmt: skip


def recorded(case) -> data.Recording:
    torch.manual_seed(0)
    held = None
    try:
        with record() as run:
            held = case()
    except RuntimeError:
        assert case.__name__ in FAILING
    del held
    return run.recording


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_real(case):
    recording = recorded(case)
    for graph in recording.graphs:
        figure = graph_figure(recording, graph.id)
        check_sound(figure)
        whole = graph_figure(recording, graph.id, folded=False).text_full()
        assert read_graph(whole) == expected_graph(recording, graph.id)
    for moment in (None, len(recording.events) - 1):
        kept = kept_figure(recording, moment)
        assert kept.nbytes == data.kept_bytes(recording, moment)
        check_kept(recording, kept.text_full(), moment)
    memory = memory_figure(recording)
    check_memory(recording, memory.text_full())
    for figure in (kept_figure(recording), memory, overview_figure(recording)):
        check_sound(figure)


def test_what_checkpoint_will_compute_again():
    """A note stands in each tensor's place, in words, whole in the picture too; none is called unknown."""

    def step():
        x = torch.ones(4, 8, requires_grad=True)
        checkpoint(nn.Sequential(nn.Linear(8, 8), nn.GELU()), x, use_reentrant=False).sum().backward()

    recording = record(step).recording
    kept, graph = kept_figure(recording), graph_figure(recording)
    assert kept.text.startswith("Kept for backward: 3 tensors to be computed again, 0 bytes now\n")
    assert "a note to compute it again (checkpoint)  0 B now  " in kept.text
    assert "a note to compute it again (checkpoint)  0 B now  packed" in graph.text
    assert "unknown" not in kept.text + graph.text + kept.html
    shown = texts(graph.svg)
    assert shown.count("to be computed again") == 3 and not any("…" in t for t in shown)


def test_an_error_says_who_released():
    words = overview_figure(recorded(twice)).text.split("\n")[0]
    assert "raised an error as TanhBackward0" in words
    assert "Trying to backward through the graph a second time" in words
    assert "What it had kept was released by the backward" in words


def test_twins_and_pictures_are_the_same_each_time():
    assert graph_figure(recorded(training)) == graph_figure(recorded(training))
    assert memory_figure(recorded(training)) == memory_figure(recorded(training))


def test_what_kernels_hold_is_in_no_twin():
    """An LSTM holds much inside its kernels: the picture shows it, words do not."""
    model, x = nn.LSTM(8, 16, batch_first=True), torch.ones(2, 5, 8)

    def step():
        model(x)[0].pow(2).mean().backward()

    plain, measured = record(step).recording, None
    model.zero_grad()
    measured = record(step, kernels=True).recording
    assert any(event.inside for event in measured.events)
    for make in (memory_figure, overview_figure, kept_figure, graph_figure):
        a, b = make(plain), make(measured)
        assert (a.text, a.alt, a.title) == (b.text, b.alt, b.title)
    assert "inside kernels" in memory_figure(measured).svg
    assert "inside kernels" not in memory_figure(plain).svg + memory_figure(measured).text


def test_twelve_layers_are_one_picture():
    """One layer stands for twelve, the first too, whose input needs no gradient; the picture stays of a page's size."""
    with torch.device("meta"):
        model = nn.Sequential(*[nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True) for _ in range(12)])
        x = torch.empty(2, 1024, 768)
    with record() as run:
        model(x).pow(2).mean().backward()
    recording = run.recording
    figure = graph_figure(recording)
    assert "stand for 12 times the same: 0 … 11, each feeding the next; the first has 3 operations fewer" in figure.text
    assert figure.nbytes == data.kept_bytes(recording)
    root = check_svg(figure.svg)
    assert float(root.get("height")) < 1_800 and float(root.get("width")) < 1_500
    check_sound(figure, most=120_000)
    shown = [t.text for t in root.iter(f"{SVG}text")]
    assert not any(" on meta" in text for text in shown[3:])  # said once, above
