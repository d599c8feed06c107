"""Each question of chapter 02's quiz, answered by a run: the choice marked right is the one that torch gives."""

import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import helpers.lessons
from helpers import as_if_on_gpu, record
from helpers.lessons.transformer import TransformerLayer

FILE = Path(helpers.lessons.__file__).with_name("quiz_02.toml")
QUESTIONS = {q["id"]: q for q in tomllib.loads(FILE.read_text(encoding="utf-8"))["question"]}


def layer_keeps(b, s, h, a, **options):
    with torch.device("meta"):
        layer = TransformerLayer(h, a, **options).to(torch.bfloat16)
        x = torch.empty(b, s, h, dtype=torch.bfloat16)
    return as_if_on_gpu(layer, x).kept.nbytes


def square(b, s, a):
    return 5 * a * s * s * b


def two_short():
    one, two = layer_keeps(1, 2048, 4096, 32), layer_keeps(2, 1024, 4096, 32)
    assert one - two == square(1, 2048, 32) / 2 and two < one
    assert one - square(1, 2048, 32) == two - square(2, 1024, 32), "the first term stays"
    return "Less"


def more_heads():
    few, many = layer_keeps(1, 512, 256, 4), layer_keeps(1, 512, 256, 8)
    assert many - few == square(1, 512, 4)
    fused = [layer_keeps(1, 512, 256, a, attention="fused") for a in (4, 8)]
    assert fused[1] - fused[0] == 4 * 512 * 4, "one number of 4 bytes for each row and head"
    return "Twice as much of what grows with the square, and the rest as before"


def no_activation():
    x = torch.rand(32, 64)
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    with record() as run:
        h = net[0](x)
        out = net[1](h)
    assert [row.label for row in run.kept.rows if row.counted] == ["x", "h"] and out.requires_grad
    return "`x`, and what the first layer gives"


def gelus():
    return nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(64, 64), nn.GELU())))


def train_the_first():
    x = torch.rand(32, 64)
    whole, net = record(gelus(), x), gelus().requires_grad_(False)
    net[0].weight.requires_grad_(True)
    part = record(net, x)
    assert [row.node.name for row in part.kept.rows if row.counted] == ["AddmmBackward0", *["GeluBackward0"] * 4]
    assert 8 * part.kept.nbytes == 5 * whole.kept.nbytes
    return "Five eighths"


def relu_in_place():
    x = torch.rand(32, 64)
    between = [
        record(nn.Sequential(nn.Linear(64, 16), relu, nn.Linear(16, 8)), x).kept.nbytes - x.nbytes
        for relu in (nn.ReLU(), nn.ReLU(inplace=True))
    ]
    assert between == [32 * 16 * 4] * 2
    return "One, as with a plain ReLU"


def gate():
    x, layer = torch.rand(32, 64), nn.Linear(64, 32)
    with record() as run:
        a, b = layer(x).chunk(2, dim=-1)
        out = F.silu(a) * b
    size = 32 * 16 * 4
    assert run.kept.nbytes - x.nbytes == 3 * size and out.nbytes == size
    assert sorted(row.counted for row in run.kept.rows if row.label != "x") == [0, size, 2 * size]
    return "Three: the buffer, and what SiLU gives"


class Masked(nn.Module):
    """Its mask is a buffer."""

    def __init__(self, s):
        super().__init__()
        self.project = nn.Linear(8, s)
        self.register_buffer("later", torch.ones(s, s, dtype=torch.bool).triu(1))
        self.fill = False

    def forward(self, x):
        scores = self.project(x)
        return (scores.masked_fill(self.later, -torch.inf) if self.fill else scores).softmax(-1)

    def adds(self):
        """What the mask adds to what is kept, in bytes."""
        x, kept = torch.rand(len(self.later), 8), []
        for self.fill in (False, True):
            kept.append(record(self, x).kept.nbytes)
        return kept[1] - kept[0]


def causal_mask():
    s = 48
    for a, b in ((2, 1), (4, 3)):
        assert layer_keeps(b, s, 32, a, causal=True) - layer_keeps(b, s, 32, a) == s * s
    assert Masked(s).adds() == 0, "a buffer lives anyway: so the question says that the table is made anew"
    return "s² bytes: the one table"


RUNS = [two_short, more_heads, no_activation, train_the_first, relu_in_place, gate, causal_mask]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_the_right_choice_is_what_torch_does(run):
    assert [c["text"] for c in QUESTIONS[run.__name__]["choice"] if c.get("right")] == [run()]


def test_the_right_choice_is_not_always_in_one_place():
    places = [[bool(c.get("right")) for c in q["choice"]].index(True) for q in QUESTIONS.values()]
    assert max(map(places.count, range(3))) <= 3


def test_each_question_has_its_run():
    assert [run.__name__ for run in RUNS] == list(QUESTIONS)
