"""What chapter 02 says in its prose, asserted: by its committed outputs, which nbval compares, or by a run."""

import re

import nbformat
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import as_if_on_gpu, record
from helpers.lessons.transformer import TransformerLayer
from tools import stamp

PATH = stamp.ROOT / "notebooks/02_computation_graph.ipynb"
NOTEBOOK = nbformat.read(PATH, as_version=4)
CODE = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code"]
PROSE = re.sub(r"\s+", " ", "\n".join(cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown"))


def the(start):
    """The one code cell that holds `start`."""
    (cell,) = [cell for cell in CODE if start in cell.source]
    return cell


def printed(start):
    """What the one cell that holds `start` printed or showed, as text."""
    outputs = the(start).outputs
    return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") or o.get("evalue") for o in outputs)


def said(*words):
    """The prose says so: a test of a sentence that is no longer there would be worth nothing."""
    for word in words:
        assert re.sub(r"\s+", " ", word) in PROSE, word


def numbers(text):
    return [int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*", text)]


def namespace(*starts):
    """The names that cells define, run on their own."""
    found = {"torch": torch, "nn": nn, "F": F, "record": record, "as_if_on_gpu": as_if_on_gpu}
    for start in starts:
        exec(the(start).source, found)
    return found


@pytest.fixture(scope="module")
def layers():
    return namespace("def explicit(", "class Layer(")


# ------------------------------------------------------------------------------------------------------ before part 1


def test_the_retrieval_questions():
    assert "Measured: “x alone”" in printed('reveal("again_total"')
    shown = printed('reveal("again_total"')
    assert [re.search(rf"{re.escape(row)} +(.+)", shown)[1] for row in ("x + y", "x.tanh()", "gelu(x)")] == [
        "nothing",
        "its output",
        "its input",
    ]
    assert "[4, 3, 2, 1, 0]" in printed('reveal("again_gone"') and "Measured: 2" in printed('reveal("again_gone"')


# -------------------------------------------------------------------------------------------------------------- part 1


def test_the_layer_s_sizes():
    said("32 rows of 64 numbers, and 16 outputs", "has 8,192 bytes", "each of the 32×16 tensors that follow has 2,048")
    assert (32 * 64 * 4, 32 * 16 * 4) == (8192, 2048)
    choices = numbers(re.search(r"choices=\{(.*?)\}", the('predict(\n    "kept_by_relu"').source, re.S)[1])
    assert {14336, 12288, 10240, 4096} <= set(choices)
    assert (8192 + 3 * 2048, 8192 + 2 * 2048, 8192 + 2048, 2 * 2048) == (14336, 12288, 10240, 4096)


def test_the_claimed_figure_has_the_claim_s_boxes_ellipses_and_region():
    said("boxes for what you give and what you get, pink ellipses for the intermediates, and a dashed region")
    said("Full arrows are forward, dotted ones backward")
    shown = printed("picture(Source(claimed))")
    assert "6 nodes, 7 arrows" in shown and shown.count("(dotted)") == 2
    assert shown.count(": box") == 4 and shown.count(": ellipse") == 2
    assert "intermediates: must be kept until backward (dashed): [4], [5]" in shown
    html = "".join(o.data.get("text/html", "") for o in the("picture(Source(claimed))").outputs)
    assert "<img" in html


def test_two_ellipses_x_and_y():
    said("The two pink ellipses are `x` and `y`", "Of the claim's four intermediates (three tensors,", "one is there")
    shown = printed("as by_hand")
    assert "Kept for backward: 2 tensors, 10,240 bytes" in shown
    assert re.findall(r"keeps its (\w+) (\w+)  as \w+ .* kept$", shown, re.M) == [("input", "x"), ("output", "y")]
    assert "Measured: 10,240 B" in shown


def test_the_product_and_the_sum_are_freed_where_their_names_go():
    said("Freed on line 9, before `y` was even used")
    (cell,) = [cell for cell in CODE if cell.source == "by_hand.kept"]
    shown = cell.outputs[0].data["text/plain"]
    assert re.findall(r"(\w+) \(2,048 B, made on line \d, freed on line (\d+)\)", shown) == [("mm", "9"), ("add", "9")]
    assert the("as by_hand").source.splitlines()[8].strip().startswith("del Wx, z")


def test_edges_lead_from_the_result_to_the_leaves():
    said("The stored edges lead from the result back to the leaves", "Where its edge would be, stands `None`")
    shown = printed("def edges_of(")
    assert "ReluBackward0  →  AddBackward0" in shown and "MmBackward0    →  NoneType, TBackward0" in shown
    assert shown.count("AccumulateGrad →  ends here") == 2
    assert "it would have one with an edge from a leaf back to ReLU: no" in printed("def has_order(")
    assert "tensors in the region, asked of the nodes: x, y" in printed("def has_order(")
    assert "AccumulateGrad → AccumulateGrad → T → Mm → Add → Relu" in printed("stored = {node")
    found = printed("stored = {node")
    assert "“to the nodes that made its inputs”" in found and "“none”" in found


def test_the_sorter_would_notice_a_circle():
    from graphlib import CycleError, TopologicalSorter

    with pytest.raises(CycleError):
        list(TopologicalSorter({1: [2], 2: [1]}).static_order())


def test_linear_multiplies_and_adds_in_one_go():
    said("One node, `addmm`", "What is kept is the same")
    shown = printed("as fused_run")
    said("two new tensors, not three")
    assert "by hand    ran t, mm, add, relu: 3 new tensors, and keeps 10,240 B" in shown
    assert "nn.Linear  ran t, addmm, relu: 2 new tensors, and keeps 10,240 B" in shown and "“no, never”" in shown


@pytest.mark.parametrize(
    ("shape", "turned", "exists"),
    [((4, 64), False, False), ((64, 4), True, False), ((4, 8, 64), False, False), ((8, 4, 64), True, True)]
    + [((2, 4, 8, 64), False, False), ((4, 2, 8, 64), True, True)],
)
def test_the_product_exists_only_for_what_does_not_lie_contiguous(shape, turned, exists):
    """Asked of PyTorch's profiler, since watching may change what runs."""
    said("an input that lies contiguous in memory. For the others, if they have three dimensions or more")
    x, layer = torch.randn(shape), nn.Linear(64, 16)
    x = x.transpose(0, 1) if turned else x
    with profile(activities=[ProfilerActivity.CPU]) as watcher:
        layer(x)
    ran = {event.key for event in watcher.key_averages()}
    assert ("aten::mm" in ran, "aten::addmm" in ran) == (exists, not exists)


def test_gelu_keeps_two_where_relu_keeps_one():
    said("Two tensors. With ReLU both want the same one")
    said("between two linear layers GELU costs two tensors where ReLU costs one")
    shown = printed("def two_layers(")
    assert re.search(r"ReLU +(?:1: )?one\n +GELU +(?:2: )?two", shown)
    for depth in (2, 5):
        x, kept = torch.rand(32, 64), {}
        for act in (nn.ReLU, nn.GELU):
            net = [part for _ in range(depth) for part in (nn.Linear(64, 64), act())]
            kept[act] = record(nn.Sequential(*net, nn.Linear(64, 64)), x).kept.nbytes - x.nbytes
        assert (kept[nn.ReLU], kept[nn.GELU]) == (depth * x.nbytes, 2 * depth * x.nbytes)


# -------------------------------------------------------------------------------------------------------------- part 2


def test_the_notebook_s_layer_is_the_course_s(layers):
    """Same parameters, same bytes: the explorer and the exercises speak of the layer that is shown."""
    for number, gpu in ((torch.bfloat16, True), (torch.float32, False)):
        kept = []
        for make in (layers["Layer"], TransformerLayer):
            with torch.device("meta"):
                layer, x = make(96, 4).to(number), torch.empty(2, 14, 96, dtype=number)
            run = as_if_on_gpu(layer, x) if gpu else record(layer, x)
            kept.append((run.kept.nbytes, [p.shape for p in layer.parameters()]))
        assert kept[0] == kept[1]
    torch.manual_seed(0)
    mine, theirs = layers["Layer"](32, 4, p=0.0), TransformerLayer(32, 4, dropout=0.0)
    theirs.load_state_dict(mine.state_dict())
    x = torch.rand(2, 6, 32)
    assert torch.allclose(mine(x), theirs(x), atol=1e-6)
    mine.attend = layers["fused"]
    assert torch.allclose(mine(x), theirs(x), atol=1e-5), "fused computes the same"


@pytest.mark.parametrize("name", ["explicit", "fused", "masked"])
def test_the_notebook_s_attention_drops_nothing_in_eval_mode(layers, name):
    found = {**layers, "cases": {}}
    exec(the("def masked(").source, found)
    layer, x = layers["Layer"](32, 4, attend=found[name], p=0.5).eval(), torch.rand(2, 6, 32)
    assert torch.equal(layer(x), layer(x)) and not torch.equal(layer.train()(x), layer(x))


def test_the_7b_layer():
    said("h = 4096 and 32 heads", "one sequence of 2,048 tokens", "2.4 times: near the claim, and below it")
    said("find out what these 956 million bytes are", "the layer's whole run, taken apart")
    said("56 operations, drawn as 17 steps", "the two bars at the foot of the picture are this ratio")
    shown = printed("def on_gpu(")
    assert "kept 956,334,080 B, weights 402,759,680 B" in shown
    assert f"{956_334_080 / 402_759_680:.1f}" == "2.4"
    assert "56 operations, 16 leaves, 74 edges, as 17 steps" in shown
    kept, weights = (
        numbers(re.search(rf"^  {name} +(.*) B", shown, re.M)[1])[0] for name in ("Together", "Parameters")
    )
    assert (kept, weights) == (956_334_080, 402_759_680) and "kept ÷ parameters = 2.374" in shown


def test_neither_sum_keeps_anything():
    said("neither sum keeps anything", "`q`, `k` and `v` have one bar together, for they have one input")
    with torch.device("meta"):
        layer, x = TransformerLayer(64, 4), torch.empty(1, 8, 64)
    rows = record(layer, x).kept.rows
    assert rows and "AddBackward0" not in {row.node.name for row in rows}
    shown = printed("def on_gpu(")
    assert re.findall(r"\[\d+\] Add .*\n(?: +code .*\n)? +keeps (\w+)", shown) == ["nothing", "nothing"]
    assert re.search(r"keeps .* 16,777,216 B  for q, k and v, counted once$", shown, re.M)
    assert re.search(r"\[17\] Add +from \[11\], \[16\]", shown), "the line round the MLP"


def test_hatched_bars_are_masks_and_pale_plates_are_kept_weights():
    said("Hatched ones are masks of dropout", "the pale ones are kept too, but they are alive anyway")
    shown = printed("def on_gpu(")
    assert len(re.findall(r"keeps dropout mask .* bool ", shown)) == 3
    kept = re.findall(r"parameter (\w+) \S+ +\([\d,]+ B\)  kept too, alive anyway: not counted", shown)
    assert sorted(kept) == ["bias"] * 2 + ["weight"] * 8, "all weights, and LayerNorm's biases"


def test_where_each_bar_comes_from():
    said("it takes 2·s·b·h: here 16 MiB", "Add up: 2+2+6+2+1+2+2+8+8+1 = 34", "2 + 1 + 2 = 5 times a·s²·b")
    assert 2 * 2048 * 4096 == 16 * 2**20
    assert 2 + 2 + 6 + 2 + 1 + 2 + 2 + 8 + 8 + 1 == 34
    shown = printed("bars(parts")
    n, pairs = 2048 * 4096, 32 * 2048 * 2048
    per_part = {
        "norm1": 2 * n + 16_384,
        "q, k, v: their input": 2 * n,
        "q, k and v themselves": 6 * n,
        "softmax: its output": 2 * pairs,
        "dropout1": pairs,
        "weights @ v: dropped weights": 2 * pairs,
        "out": 2 * n,
        "dropout2": n,
        "norm2": 2 * n + 16_384,
        "up": 2 * n,
        "gelu": 8 * n,
        "down": 8 * n,
        "dropout3": n,
    }
    for name, nbytes in per_part.items():
        assert re.search(rf"^ +{re.escape(name)} .*{nbytes:,}", shown, re.M), name
    assert sum(per_part.values()) == 956_334_080
    assert shown.count("+16,384") == 2 and shown.count("±0") == 11


def test_the_formula_to_the_byte():
    said("To the byte, but for 16·s·b", "less than a fiftieth of a percent")
    said("6.33 times the weights, 2.37, and 0.79. *Three to five* is none of them")
    said(r"24\,h^2 \text{ bytes of weights}")
    assert 24 * 4096**2 < 402_759_680 < 1.001 * 24 * 4096**2
    rows = re.findall(r"keeps +([\d,]+) B; formula +([\d,]+), +([\d,]+) more; ([\d.]+) ×", printed("layers = {"))
    found = [(*map(lambda text: int(text.replace(",", "")), row[:3]), row[3]) for row in rows]
    assert [row[3] for row in found] == ["6.33", "2.37", "0.79"]
    for (kept, formula, more, _), s in zip(found, (1024, 2048, 2048), strict=True):
        assert kept - formula == more == 16 * s and more / kept < 0.02 / 100


def test_numbers_double_and_masks_take_four_times_as_much():
    said("The numbers doubled. The masks took four times as much", "16 numbers of 4 bytes and two masks of 4 bytes: 72")
    said("2·4 + 4 = 12 for the square")
    assert (16 * 4 + 2 * 4, 2 * 4 + 4) == (72, 12)
    shown = printed("kinds(gpu)")
    both = {name: numbers(re.search(rf"^ +{name} .*$", shown, re.M)[0]) for name in ("numbers", "masks")}
    assert both["numbers"][1] == 2 * both["numbers"][0] and both["masks"][1] == 4 * both["masks"][0]
    assert "“more than twice”" in printed("def kinds(")


def test_the_cpu_s_mask_is_a_factor_to_multiply_by():
    said("the CPU's keeps a factor to multiply by, 0 or 1/(1−p), in the precision of the layer")
    x = torch.ones(64, 64, dtype=torch.float64, requires_grad=True)
    out = F.dropout(x, 0.2)
    assert sorted({round(n, 4) for n in out.grad_fn._saved_other.flatten().tolist()}) == [0.0, 1.25]
    assert out.grad_fn._saved_other.dtype == torch.float64


def test_twice_the_tokens_are_more_than_twice_the_ratio_and_twice_the_batch_is_twice():
    said("It more than doubles", "With a batch instead of a long sequence it would exactly double")
    assert "“more than doubles”" in printed("ratios = {}")
    kept = []
    for b in (1, 2):
        with torch.device("meta"):
            layer, x = TransformerLayer(96, 4).bfloat16(), torch.empty(b, 32, 96, dtype=torch.bfloat16)
        kept.append(as_if_on_gpu(layer, x).kept.nbytes)
    assert kept[1] == 2 * kept[0]


def test_where_a_layer_passes_through_three_to_five():
    said("between about 2,350 and 3,140 tokens, GPT-2's before 1,000, that of a 175B model beyond 4,000")
    rows = re.findall(r"^(\S+) +keeps 3 to 5 times its weights with ([\d,]+) to ([\d,]+)", printed("inside = ["), re.M)
    windows = {name: [int(n.replace(",", "")) for n in ends] for name, *ends in rows}
    assert [round(n, -1) for n in windows["7B"]] == [2350, 3140]
    assert windows["GPT-2"][1] < 1000 and windows["175B"][0] > 4000
    sizes = {"GPT-2": (768, 12), "7B": (4096, 32), "175B": (12288, 96)}
    for name, (h, a) in sizes.items():
        first, last = windows[name]
        inside = [3 <= s * (34 + 5 * a * s / h) / (24 * h) <= 5 for s in (first - 1, first, last, last + 1)]
        assert inside == [False, True, True, False], "to the token"


def test_where_the_square_is_left():
    said("Fused attention is linear, *if* the fused kernel runs", "CUDA's does with dropout too")
    said("the square is back, to the byte what `explicit` keeps", "one table of s × s numbers, though only one for all")
    rows = re.findall(r"^(.+?) +([\d,]+) B a token with 128 tokens, +([\d,]+) B with 512", printed("grows = {}"), re.M)
    found = {name: [int(n.replace(",", "")) for n in both] for name, *both in rows}
    assert found["GPU, fused, dropout"][0] == found["GPU, fused, dropout"][1]
    assert found["CPU, fused"][0] == found["CPU, fused"][1]
    assert found["CPU, fused, dropout"] == found["CPU, explicit"]
    mask = [masked - plain for masked, plain in zip(found["CPU, fused, dense mask"], found["CPU, fused"], strict=True)]
    assert mask == [4 * 128, 4 * 512], "4 bytes for each pair of tokens, whatever the number of heads"


def test_a_causal_flag_needs_no_table():
    said("write `is_causal=True` instead: no table, no square")
    per_token = []
    for s in (64, 256):
        layer = TransformerLayer(64, 4, attention="fused", dropout=0.0, causal=True)
        per_token.append(record(layer, torch.randn(1, s, 64)).kept.nbytes / s)
    assert per_token[0] == per_token[1]


# -------------------------------------------------------------------------------------------------------------- part 3


def test_depth():
    said("6.33 with one layer and 6.33 with sixteen", "from 90 MB to 1.43 GB", "from 0.54 to 3.8", "towards 6.33")
    shown = printed('"with embedding and head")},')
    equal, whole = shown.split("with embedding and head:")
    assert re.search(r"kept / weights +((?:6\.326 *){5})", equal)
    values = [float(n) for n in re.search(r"kept / weights +(.+)", whole)[1].split()]
    assert values == sorted(values) and (f"{values[0]:.2g}", f"{values[-1]:.2g}") == ("0.54", "3.8")
    assert values[-1] < 6.326
    one = 89_669_632
    assert (round(one / 1e6), f"{16 * one / 1e9:.2f}") == (90, "1.43")
    assert f"{one:,} B" in printed("layers = {")


def test_the_cnn_goes_down():
    said("from 2,936 to 1.9")
    shown = printed('title="The same for a CNN')
    assert "first 2,936, last 1.864" in shown


def test_a_vgg_rises():
    """Simonyan and Zisserman 2014, configurations A, B, D and E, with batch norm, on eight pictures of 224×224."""
    said(
        "from VGG-11 to VGG-19 the ratio rises",
        "mostly in the three linear layers at the end, which are the same in each",
    )
    stages, ratios = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}, []
    for depths in stages.values():
        with torch.device("meta"):
            net, c = [], 3
            for depth, d in zip(depths, (64, 128, 256, 512, 512), strict=True):
                for _ in range(depth):
                    net += [nn.Conv2d(c, d, 3, padding=1), nn.BatchNorm2d(d), nn.ReLU()]
                    c = d
                net.append(nn.MaxPool2d(2))
            head = [nn.Linear(25088, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)]
            net, x = nn.Sequential(*net, nn.Flatten(), *head), torch.empty(8, 3, 224, 224)
        weights = sum(p.nbytes for p in net.parameters())
        assert sum(p.nbytes for layer in head for p in layer.parameters()) > 0.8 * weights
        ratios.append(record(net, x).kept.nbytes / weights)
    assert ratios == sorted(ratios) and ratios[-1] > 1.5 * ratios[0]


def test_what_the_explorer_s_questions_find():
    said("attention overtakes the MLP between 128 and 256 tokens: 11 + 5·a·s/h passes 19 at 205 (each with 2 more for")
    said("the input of each layer, here 0.04 of the weights", "0.28 of them with 512 tokens")
    assert 11 + 5 * 32 * 204 / 4096 < 19 < 11 + 5 * 32 * 205 / 4096
    shown = printed("explore_transformer()")
    with torch.device("meta"):
        layer = TransformerLayer(4096, 32).bfloat16()
    for s, more in ((128, False), (204, False), (205, True), (256, True)):
        run = as_if_on_gpu(layer, torch.empty(1, s, 4096, dtype=torch.bfloat16, device="meta"))
        by_part = {}
        for row in run.kept.all_rows:
            part = row.node.module if hasattr(layer, row.node.module) else row.node.name
            by_part[part] = by_part.get(part, 0) + row.counted
        mlp = sum(by_part[p] for p in ("up", "GeluBackward0", "down", "dropout3"))
        attention = sum(by_part.values()) - mlp - by_part["norm1"] - by_part["norm2"]
        assert (attention > mlp) is more
        assert by_part["norm1"] == by_part["norm2"] == 2 * s * 4096 + 8 * s
    table = shown[shown.index("  setting") :]
    at = re.split(r"  +", table.splitlines()[0].strip()).index("kept ÷ parameters")
    cells = [re.split(r"  +", line.strip()) for line in table.splitlines()[1:] if line.strip()]
    ratios = {row[0]: float(row[at]) for row in cells}
    assert {n: round(ratio, 2) for n, ratio in ratios.items() if ratio < 0.5} == {"12 layers, checkpointing": 0.04}
    assert re.search(r"^7B.*?kept / weights +0\.1146 +0\.2812 ", printed("curves(ratios"), re.M | re.S), "512 tokens"


# -------------------------------------------------------------------------------------------------------------- part 4


def test_freezing():
    said("**Half**, with every weight frozen", "**A quarter** remains", "**`eval()`** changes nothing here")
    shown = printed("all_train = record(")
    assert "everything trains: 1,048,576 B" in shown
    rows = dict(re.findall(r"^ +(.+?)  +([\d.]+): ", shown, re.M))
    assert rows == {
        "weights frozen, biases train": "0.5",
        "all frozen, x wants a gradient": "0.5",
        "all frozen, x is data": "0",
        "only the last linear layer trains": "0.25",
        "eval()": "1",
        "no_grad()": "0",
    }


def test_eval_spares_what_a_dropout_kept(layers):
    said("With a dropout, its mask goes, and often the tensor it made: the 7B layer of part 2 keeps 56 %")
    kept = {}
    for training in (True, False):
        with torch.device("meta"):
            layer, x = layers["Layer"](4096, 32).bfloat16(), torch.empty(1, 2048, 4096, dtype=torch.bfloat16)
        kept[training] = as_if_on_gpu(layer.train(training), x).kept.nbytes
    assert kept[True] == 956_334_080 and f"{kept[False] / kept[True]:.0%}" == "56%"
    n, pairs = 2048 * 4096, 32 * 2048 * 2048
    assert kept[True] - kept[False] == pairs + 2 * n + 2 * pairs, "three masks, and what the first dropout made"


class LowRank(nn.Module):
    """A frozen linear layer, and beside it two thin ones that train."""

    def __init__(self, h, r=4):
        super().__init__()
        self.frozen = nn.Linear(h, h).requires_grad_(False)
        self.A, self.B = nn.Linear(h, r, bias=False), nn.Linear(r, h, bias=False)

    def forward(self, x):
        return self.frozen(x) + self.B(self.A(x))


def test_an_adapter_before_a_frozen_stack_and_one_inside_each_layer():
    said("or of an adapter *before* a frozen stack", "An adapter *inside* each layer, as with LoRA, saves nothing here")
    x = torch.randn(128, 256)
    frozen = nn.Sequential(*(p for _ in range(4) for p in (nn.Linear(256, 256), nn.GELU()))).requires_grad_(False)
    inside = nn.Sequential(*(p for _ in range(4) for p in (LowRank(256), nn.GELU())))
    before = nn.Sequential(nn.Linear(256, 256), frozen)
    own = record(before[0], x).kept.nbytes
    assert record(before, x).kept.nbytes - own == 1_048_576 / 2
    assert record(inside, x).kept.nbytes >= 1_048_576


def test_the_difference_shows_two_inputs_gone_and_no_gelu_changed():
    said("two kept tensors of 131,072 B, and each is such an input")
    said("The boxes marked − are the two weights and their transposes", "What went is marked −, what stayed =")
    shown = printed("difference(trained")
    assert "0 operations appeared, 2 went, 4 stayed, 2 of them changed" in shown
    assert len(re.findall(r"− kept as mat1 128×256 float32: 131,072 B", shown)) == 2
    gone = re.findall(r"^ +− \[\d+\]  (parameter \S+|TBackward0)", shown, re.M)
    assert gone == ["parameter 0.weight", "TBackward0", "parameter 2.weight", "TBackward0"]
    assert re.findall(r"^ +(\S) \[\d+\]  GeluBackward0", shown, re.M) == ["=", "="]
    assert "everything trains 524,288 B, weights frozen 262,144 B" in shown


def test_freezing_with_relu_saves_one_of_five():
    said("With ReLU freezing saves one tensor of five, the input of the net; with more layers")
    shown = printed("relu_all = record(")
    assert "ReLU: 655,360 B, with frozen weights 524,288 B" in shown
    assert "GELU: 1,048,576 B, with frozen weights 524,288 B" in shown
    assert (655_360 - 524_288, 655_360) == (128 * 256 * 4, 5 * 128 * 256 * 4)
    said("with ReLU all but the input of the net")
    for depth in (2, 8):
        x, kept = torch.randn(32, 64), []
        for names in ("", "bias"):
            net = nn.Sequential(*(part for _ in range(depth) for part in (nn.Linear(64, 64), nn.ReLU())))
            for name, parameter in net.named_parameters():
                parameter.requires_grad_(names in name)
            kept.append(record(net, x).kept.nbytes)
        assert kept == [(depth + 1) * x.nbytes, depth * x.nbytes]


def test_the_teaser_s_numbers():
    said("2 bytes × 7 billion", "30.6 or 8.6", "14 + 30.6 are more than 40")
    shown = printed("light, _ = on_gpu(")
    assert re.findall(r"([\d.]+) GB", shown) == ["14.0", "30.6", "8.6"]
    assert not any("verdict" in cell.source and "A8" in cell.source for cell in CODE), "A8 is chapter 07's"


# -------------------------------------------------------------------------------------------------------------- part 5


def test_views():
    said("Three views, one buffer, counted once", "a view of 768 bytes that holds on to all 98,304")
    shown = printed("as views")
    assert shown.count("Measured: 98,304 B") == 2
    assert (128 * 192 * 4, 192 * 4) == (98_304, 768)
    x, W = torch.randn(1, 128, 64), torch.randn(64, 192, requires_grad=True)
    with record() as run:
        first = (x @ W)[:, 0].clone()
        squared = first * first
    assert squared.requires_grad and sum(row.counted for row in run.kept.rows if row.label == "first") == 768


def test_a_naive_sum_is_nearly_half_too_high():
    said("Nearly half as much again: the weights", "the shared input of `q`, `k` and `v`")
    shown = printed("every = sum(")
    every, kept, weights, again = numbers(shown.split("(weights")[0]) + numbers(shown.split("anyway)")[1])[:1]
    assert (every, kept) == (11_542_528, 7_868_416) and every == kept + weights + again
    assert again == 2 * 256 * 256 * 4 and "Measured: 46.7%" in shown
    assert "7,868,416 B" in the('predict(\n    "naive_sum"').source


# -------------------------------------------------------------------------------------------------------------- part 6


class Nothing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def peak_seen_by_the_profiler(step):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watcher:
        step()
    live = top = 0
    events = [e for e in watcher.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        top = max(top, live)
    return top


def test_three_and_four():
    said("what PyTorch's profiler says of this code when nobody watches: 3.0", "the same profiler says **4.0**")
    said("would be wrong by a third here")
    lines = the("units = (run.memory.peak").source.splitlines()
    body = "\n".join(line[4:] for line in lines if line.startswith("    "))

    def units():
        w = torch.randn(100_000, requires_grad=True)
        return round(peak_seen_by_the_profiler(lambda: exec(body, {"w": w})) / w.nbytes, 2)

    plain = units()
    with Nothing():
        watched = units()
    assert (plain, watched) == (3.0, 4.0)
    assert "3.0 tensors of w's size at the peak" in printed("units = (run.memory.peak")


def test_dozens_of_programs_are_compared_with_the_profiler():
    said("here and for dozens of other programs")
    tested = (stamp.ROOT / "tests/record/scenarios.py").read_text(encoding="utf-8")
    assert tested.count("\n@scenario\n") > 36


# ------------------------------------------------------------------------------------------------------------ the rest


def test_the_bug_hunt_s_numbers():
    said("it says 458,752 B, and their four results take 262,144", "The check tries it on ten models")
    shown = printed("returned = []")
    assert [numbers(line)[0] for line in shown.splitlines()[:3]] == [458_752, 262_144, 196_608]
    from helpers.lessons.chapter_02 import MODELS

    assert len(MODELS) == 10


def test_what_the_solutions_add_up_to():
    said("2 + 8 + 8 + 1 = 19 times s·b·h", "11·s·b·h + 5·a·s²·b", "Sixteen tensors and two masks of s·b·h")
    assert 2 + 8 + 8 + 1 == 19
    assert (1 + 3 + 1) + (1 + 4 + 4) + 2 == 16


def test_the_table_of_sentences():
    said("of the three intermediates of `relu(Wx + b)` one is kept", "falling for a CNN that doubles its channels")
    said("one 7B layer keeps 0.77, 2.4 or 8.1 times its weights with 1,024, 2,048 or 4,096 tokens")
    row = re.search(r"^7B.*?kept / weights +([\d. ]+)$", printed("curves(ratios"), re.M | re.S)[1].split()
    assert [f"{float(n):.2g}" for n in row[2:]] == ["0.77", "2.4", "8.1"]


def test_layers_and_dropouts_are_named_as_prose_names_them(layers):
    layer = layers["Layer"](8, 2)
    for name in ("norm1", "norm2", "q", "k", "v", "out", "up", "gelu", "down", "dropout1", "dropout2", "dropout3"):
        assert isinstance(getattr(layer, name), nn.Module)


def test_it_asks_for_a_gpu_on_colab():
    assert NOTEBOOK.metadata["accelerator"] == "GPU"


def test_never_more_than_two_cells_in_a_row_that_only_want_to_be_run():
    row = 0
    for cell in NOTEBOOK.cells[2:]:
        asks = re.search(r"\b(predict|check|quiz|explore_transformer)\(", cell.source) or "verdict(" in cell.source
        row = row + 1 if cell.cell_type == "code" and not asks else 0
        assert row <= 2, cell.source
