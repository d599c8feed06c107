"""The difference of two graphs: who is matched with whom, and that signs, bytes, drawing and twin agree with it."""

import random
import re
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from helpers import record
from helpers.data import kept_bytes
from helpers.figures import matching
from helpers.figures.difference import difference_figure
from helpers.figures.palette import GRAPH
from tests.figures.sound import check_sound, check_svg, texts
from tests.record.scenarios import Transformer

pytestmark = pytest.mark.usefixtures("one_thread")


def longest(a, b):
    """Length of a longest common subsequence, by the textbook's table."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def rising(a, b, pairs):
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in zip(pairs, pairs[1:], strict=False))


def test_alignments_are_longest_common_subsequences():
    draw = random.Random(0)
    for _ in range(1000):
        a, b = ([draw.choice("abcd") for _ in range(draw.randrange(13))] for _ in range(2))
        pairs = matching.aligned(a, b)
        rising(a, b, pairs)
        assert len(pairs) == longest(a, b), (a, b)


def test_far_apart_sequences_are_paired_by_occurrence(monkeypatch):
    monkeypatch.setattr(matching, "MOST_EDITS", 2)
    draw = random.Random(0)
    shorter = 0
    for _ in range(300):
        a, b = ([draw.choice("abc") for _ in range(draw.randrange(15))] for _ in range(2))
        pairs = matching.aligned(a, b)
        rising(a, b, pairs)
        shorter += len(pairs) < longest(a, b)
        assert bool(pairs) == bool({*a} & {*b})
    assert shorter  # what need not be the longest is not always


def test_a_long_sequence_is_aligned_at_once():
    a = ["add"] * 100_000
    assert len(matching.aligned(a, a[:-1])) == 99_999
    b = [f"{i % 7}" for i in range(50_000)]
    assert len(matching.aligned(b, ["x", *b[:20_000], *b[20_001:]])) == 49_999


# ---------------------------------------------------------------- real steps


def block(changed):
    """x @ W → tanh → @ V → relu → · h, with h detached on its way into the second product or not."""
    torch.manual_seed(0)
    x, w, v = torch.randn(4, 8), torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)

    def step():
        h = (x @ w).tanh()
        y = ((h.detach() if changed else h) @ v).relu()
        (y * h).sum().backward()

    return record(step).recording


def frozen(changed):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    model[0].requires_grad_(not changed)
    x = torch.randn(2, 8)
    return record(lambda: model(x).pow(2).mean().backward()).recording


def biases(changed):
    """Two layers, all of which train, or only their biases."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU()), torch.randn(2, 8)
    for layer in (model[0], model[2]):
        layer.weight.requires_grad_(not changed)
    return record(lambda: model(x).sum().backward()).recording


def checkpointed(changed):
    torch.manual_seed(0)
    model, x = Transformer(32, 4, 12, reentrant=False if changed else None), torch.randn(2, 8, 32)
    return record(lambda: model(x).pow(2).mean().backward()).recording


def reentrant(changed):
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)

    def part(value):
        return layer(value).tanh()

    return record(
        lambda: (checkpoint(part, x, use_reentrant=True) if changed else part(x)).pow(2).sum().backward()
    ).recording


def in_place(changed):
    torch.manual_seed(0)
    w = torch.randn(6, requires_grad=True)

    def step():
        h = w.sin()
        h = F.relu(h, inplace=changed)
        (h * 3).sum().backward()

    return record(step).recording


def one_more(changed):
    torch.manual_seed(0)
    w = torch.randn(6, requires_grad=True)

    def step():
        h = w
        for _ in range(40):
            h = h + 1
        if changed:
            h = h.exp()
        h.sum().backward()

    return record(step).recording


STEPS = {f.__name__: f for f in (block, frozen, biases, checkpointed, reentrant, in_place, one_more)}


@cache
def pair(name):
    return STEPS[name](False), STEPS[name](True)


@cache
def figure(name):
    return difference_figure(*pair(name), ("plain", "changed"))


@pytest.mark.parametrize("name", STEPS)
def test_every_node_has_one_place(name):
    before, after = pair(name)
    found = figure(name)
    for side, recording in enumerate((before, after)):
        ids = [p[side] for p in found.pairs if p[side] is not None]
        assert sorted(ids) == sorted(recording.graphs[0].nodes)
    both = [(before.nodes[a], after.nodes[b]) for a, b in found.pairs if None not in (a, b)]
    assert all(a.name == b.name and (a.leaf is None) == (b.leaf is None) for a, b in both)
    went = [a for a, b in found.pairs if b is None and before.nodes[a].leaf is None]
    new = [b for a, b in found.pairs if a is None and after.nodes[b].leaf is None]
    stayed = [a for a, b in both if a.leaf is None]
    assert (found.went, found.appeared, found.stayed) == (len(went), len(new), len(stayed))
    assert found.changed <= found.stayed


@pytest.mark.parametrize("name", STEPS)
def test_bytes_are_the_ledgers(name):
    found = figure(name)
    moments = [r.graphs[0].event for r in pair(name)]
    assert found.nbytes == tuple(kept_bytes(r, m) for r, m in zip(pair(name), moments, strict=True))
    assert f"plain {found.nbytes[0]:,} B, changed {found.nbytes[1]:,} B" in found.text


@pytest.mark.parametrize("name", STEPS)
def test_nothing_with_itself(name):
    before, _ = pair(name)
    found = difference_figure(before, before)
    assert (found.appeared, found.went, found.changed) == (0, 0, 0) and found.stayed
    assert all(a == b for a, b in found.pairs) and "(the same)" in found.text
    assert not re.search(r"^ *[+−≠] ", found.text, re.M)


@pytest.mark.parametrize("name", STEPS)
def test_the_other_way_round_signs_turn(name):
    before, after = pair(name)
    there, back = figure(name), difference_figure(after, before, ("changed", "plain"))
    assert (there.appeared, there.went, there.stayed) == (back.went, back.appeared, back.stayed)
    assert there.changed == back.changed and there.nbytes == back.nbytes[::-1]


@pytest.mark.parametrize("name", STEPS)
def test_figures_are_sound(name):
    found = figure(name)
    check_sound(found)
    assert found.text == difference_figure(*pair(name), ("plain", "changed")).text
    drawn = " ".join(texts(found.svg))
    for sign in "+−≠":
        assert (f"{sign} " in drawn) == bool(re.search(rf"^ *{re.escape(sign)} ", found.text, re.M)), sign
    assert ('stroke-dasharray="6 4"' in found.svg.replace('rx="10" stroke-dasharray="6 4"', "")) or not found.went


def test_detach_cuts_an_edge_and_a_weight_is_kept_no_more():
    found = figure("block")
    assert (found.appeared, found.went, found.changed) == (0, 0, 1)
    (at,) = [i for i, line in enumerate(found.text.splitlines()) if line.startswith("  ≠ ")]
    lines = found.text.splitlines()
    assert "MmBackward0" in lines[at] and lines[at + 1].strip() == "− from [3] TanhBackward0"
    assert any(line.strip().startswith("− kept v as mat2 8×8 float32: a leaf, not counted") for line in lines)
    (edge,) = re.findall(r'<g class="edge"><title>went</title>', found.svg)
    assert edge


def test_frozen_weights_take_what_stands_before_them_along():
    found, (before, _) = figure("frozen"), pair("frozen")
    gone = [before.nodes[a] for a, b in found.pairs if b is None]
    assert [n.name for n in gone if n.leaf is None] == ["TBackward0", "AddmmBackward0", "ReluBackward0"]
    assert {n.leaf.names for n in gone if n.leaf} == {("0.weight",), ("0.bias",)}
    assert found.nbytes[0] - found.nbytes[1] == 2 * 8 * 4  # x; the relu's result is kept by the next layer


def test_a_frozen_parameter_lives_and_wants_no_gradient():
    """The first layer is frozen altogether, but its memory is in both recordings."""
    found = figure("frozen")
    (line,) = [x for x in found.text.splitlines() if "parameter 0.weight" in x]
    assert line.startswith("  − ") and line.endswith("wants no gradient any more")
    boxes = {t for t in texts(found.svg) if "parameter" in t}
    assert "− parameter 0.weight" in boxes and texts(found.svg).count("wants no gradient any more") == 2
    lives = re.findall(
        r'<g class="item went"><title>[^<]*no gradient any more</title><rect[^>]*fill="(#\w+)"', found.svg
    )
    assert lives == [GRAPH["leaf"].fill] * 2
    back = difference_figure(*pair("frozen")[::-1])
    assert back.text.count("wants a gradient now") == 2 and "any more" not in back.text


def test_a_leaf_that_is_gone_is_not_said_to_live():
    def recorded(n):
        w, v = torch.ones(3, requires_grad=True), torch.ones(n, requires_grad=True)
        return record(lambda: (w.sum() * v.sum() if n else w.sum()).backward()).recording

    for other in (0, 4):  # not there; or another one of its name
        found = difference_figure(recorded(5), recorded(other))
        assert "gradient any more" not in found.text and "gradient now" not in found.text


def test_the_drawing_names_no_number_that_stands_nowhere_in_it():
    for name in STEPS:
        assert not [words for words in texts(figure(name).svg) if re.search(r" from \[\d+\]", words)]
    assert "− from Tanh" in texts(figure("block").svg) and "− from [3] TanhBackward0" in figure("block").text


def test_what_is_kept_but_lives_anyway_is_drawn_as_in_a_graph():
    found = figure("biases")
    pills = re.findall(r'<g class="kept [^"]*"><title>([^<]*)</title><path[^>]*/><rect[^>]*fill="(#\w+)"', found.svg)
    alive = {fill for words, fill in pills if "not counted" in words}
    assert alive == {GRAPH["alive"].fill} and GRAPH["live"].fill in {fill for words, fill in pills if "64 B" in words}
    assert "kept, but alive anyway" in texts(found.svg) and "kept, but alive anyway" not in texts(
        figure("one_more").svg
    )


def test_checkpointing_changes_what_twelve_layers_keep_in_one_frame():
    found, (before, _) = figure("checkpointed"), pair("checkpointed")
    assert (found.appeared, found.went) == (0, 0) and found.changed % 12 == 0
    tensors = [s for s in before.saved if not s.scalar and s.state != "never saved"]
    keeps = {s.node for s in tensors} & {*before.graphs[0].nodes}
    assert found.changed == len([n for n in keeps if before.nodes[n].module.startswith("blocks.")])
    assert "stand for 12 times the same: blocks.0 … blocks.11" in found.text
    assert (
        found.text.count("NativeLayerNormBackward0") == 2 and found.text_full().count("NativeLayerNormBackward0") == 24
    )
    assert any(t.startswith("12 × blocks.0 … blocks.11: keep together") for t in texts(found.svg))


def test_reentrant_checkpoint_puts_one_node_in_the_place_of_several():
    found, (before, after) = figure("reentrant"), pair("reentrant")
    new = [after.nodes[b].name for a, b in found.pairs if a is None]
    gone = {before.nodes[a].name for a, b in found.pairs if b is None}
    assert new == ["CheckpointFunctionBackward"] and {"AddmmBackward0", "TanhBackward0"} <= gone


def test_in_place_keeps_the_same_nodes():
    found = figure("in_place")
    assert (found.appeared, found.went, found.changed) == (0, 0, 0)


def test_one_more_operation_at_the_end_of_many():
    found, (_, after) = figure("one_more"), pair("one_more")
    assert (found.appeared, found.went) == (1, 0)
    assert [after.nodes[b].name for a, b in found.pairs if a is None] == ["ExpBackward0"]
    assert "+ keeps h as result 6 float32: 24 B" in found.text and "times the same" in found.text


def test_without_a_graph_on_one_side_everything_appears():
    w = torch.ones(3, requires_grad=True)
    with record(graph=False) as without:
        (w.detach() * 2).sum()
    after = record(lambda: (w * 2).sum().backward()).recording
    found = difference_figure(without.recording, after)
    assert found.went == found.stayed == 0 and found.appeared == 2 and "before: no graph" in found.text
    check_sound(found)
    with pytest.raises(ValueError, match="Neither recording has a graph"):
        difference_figure(without.recording, without.recording)


def test_what_is_too_large_to_draw_becomes_a_table_that_adds_up():
    draw = random.Random(0)
    names = ["sin", "cos", "tanh", "exp", "neg", "abs"]
    ops = [draw.choice(names) for _ in range(250)]
    w = torch.ones(2, requires_grad=True)

    def recorded(which):
        def step():
            h = w
            for name in which:
                h = getattr(torch, name)(h * 0.1)
            h.sum().backward()

        return record(step).recording

    changed = [op if i % 3 else draw.choice(names) for i, op in enumerate(ops)]
    before, after = recorded(ops), recorded(changed)
    found = difference_figure(before, after)
    assert found.appeared == found.went > 0
    root = check_svg(found.svg)
    rows = [g for g in root.iter() if g.get("class") == "row"]
    assert rows and "Too large to draw node by node" in " ".join(texts(found.svg))
    assert len(re.findall(r"^  [=+−≠] \[\d+\]  \w", found.text, re.M)) >= found.appeared + found.went
    assert len(found.html) < 300_000


def test_awkward_names_stay_text():
    found = difference_figure(*pair("block"), ("<b>x", 'a "q"'))
    assert "<b>x" not in found.html and '"<b>x"' in found.text
    check_sound(found)
