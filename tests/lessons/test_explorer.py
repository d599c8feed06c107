"""The explorer: its numbers are those of a direct measurement, and it measures no more than it must."""

import asyncio
import base64
import gc
import json
import random
import re
import subprocess
import sys
import time
from dataclasses import replace

import ipywidgets as widgets
import pytest
import torch

import helpers
from helpers import LessonError, as_if_on_gpu, record
from helpers.data import kept_bytes, timeline
from helpers.data.model import PARAMETERS
from helpers.figures import memory_figure, plots
from helpers.figures.bundle import prose
from helpers.lessons import explorer, explorer_controls
from helpers.lessons.explorer import (
    CHECKPOINTS,
    WORTH,
    Measured,
    Setting,
    explore_transformer,
    measure,
    record_step,
    table,
    taken_apart,
)
from helpers.lessons.transformer import Transformer, TransformerLayer
from tests.figures.sound import texts
from tools.stamp import ROOT

from . import own
from .test_controls import VIEW, alive, parts

SMALL = Setting(layers=2, batch=2, sequence=32, width=48, heads=4)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(explorer, "_known", type(explorer._known)())
    monkeypatch.setattr(explorer, "_controls", {})


@pytest.fixture
def steps(monkeypatch):
    """The settings whose step was run, in order."""
    ran = []

    def counted(setting):
        ran.append(setting)
        return record_step(setting)

    monkeypatch.setattr(explorer, "record_step", counted)
    return ran


def some_settings():
    dice = random.Random(0)
    for _ in range(14):
        yield Setting(
            layers=dice.choice((1, 2, 3)),
            batch=dice.choice((1, 3)),
            sequence=dice.choice((16, 40)),
            width=dice.choice((48, 96)),
            heads=dice.choice((1, 2, 6)),
            precision=dice.choice(tuple(explorer.PRECISIONS)),
            attention=dice.choice(explorer.ATTENTION),
            dropout=dice.choice((True, False)),
            checkpointing=dice.choice((True, False)),
        )


def directly(setting):
    """The same step written by hand."""
    dtype = torch.bfloat16 if setting.precision == "bf16" else torch.float32
    with torch.device("meta"):
        model = Transformer(
            setting.layers, setting.width, setting.heads, attention=setting.attention,
            dropout=0.1 * setting.dropout, checkpointed=setting.checkpointing,
        ).to(dtype)  # fmt: skip
        x = torch.empty(setting.batch, setting.sequence, setting.width, dtype=dtype)
    with as_if_on_gpu(workspace=0) as run:
        with torch.autocast("cuda", torch.bfloat16, enabled=setting.precision.startswith("autocast")):
            loss = model(x).sum()
        loss.backward()
    return run.recording, sum(p.nbytes for p in model.parameters())


# ------------------------------------------------------------------------------------------------------- the numbers


@pytest.mark.parametrize("setting", list(some_settings()), ids=str)
def test_values_are_those_of_a_direct_measurement(setting):
    recording, parameters = directly(setting)
    found = measure(setting)
    assert found.parameters == parameters and found.peak == max(timeline(recording).totals)
    assert found.ratio == found.kept / parameters
    assert found.kept == sum(n for _, n in found.by_part) and all(n > 0 for _, n in found.by_part)
    size = 2 if setting.precision == "bf16" else 4
    inputs = setting.layers * setting.batch * setting.sequence * setting.width * size
    if setting.checkpointing:
        assert found.by_part == ((CHECKPOINTS, inputs),)
    else:
        assert found.kept == kept_bytes(recording)
    # as backward begins: parameters, what is kept, the loss and its gradient
    enter = next(e.index for e in recording.events if e.kind == "enter")
    after = timeline(recording).at(enter)
    scalars = sum(after.values()) - after[PARAMETERS] - found.kept
    assert 0 < scalars <= 8


def test_the_published_example_taken_apart():
    s, b, h, a = 2048, 1, 4096, 32
    sbh, square = s * b * h, a * s * s * b
    found = dict(measure(Setting()).by_part)
    statistics = 8 * s * b  # mean and inverse deviation of each row, float32
    assert found == {
        "norm1": 2 * sbh + statistics,
        "q, k, v: their input": 2 * sbh,
        "q, k and v themselves": 6 * sbh,
        "softmax: its output": 2 * square,
        "dropout1": square,
        "weights @ v: dropped weights": 2 * square,
        "out": 2 * sbh,
        "dropout2": sbh,
        "norm2": 2 * sbh + statistics,
        "up": 2 * sbh,
        "gelu": 8 * sbh,
        "down": 8 * sbh,
        "dropout3": sbh,
    }
    sums = measure(Setting()).sums
    assert sums == {"attention": 13 * sbh + 5 * square + statistics, "MLP": 21 * sbh + statistics}
    assert sum(found.values()) == 956_334_080


def test_a_layer_on_the_cpu_taken_apart():
    """Its division keeps a number, which takes no memory of its own."""
    torch.manual_seed(0)
    layer, x = TransformerLayer(24, 3), torch.randn(2, 7, 24)
    with record() as run:
        layer(x).sum().backward()
    assert any(s.scalar for s in run.recording.saved)
    assert sum(taken_apart(run.recording).values()) == kept_bytes(run.recording)


def test_the_picture_is_the_timeline_and_names_no_line_of_ours():
    found = measure(SMALL)
    (data,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', found.picture)
    words = " ".join(texts(base64.b64decode(data).decode()))
    assert f"{found.peak:,} B" in words and "forward" in words and "backward" in words
    assert " line " not in words and "explorer" not in words


def test_what_autocast_keeps_beside():
    found, plain = (dict(measure(replace(SMALL, precision=p)).by_part) for p in ("autocast bf16", "bf16"))
    weights = 12 * SMALL.width**2 * SMALL.layers
    assert found["q, k, v, out: weights in bf16"] == 2 * weights / 3
    assert found["up, down: weights in bf16"] == 2 * weights * 2 / 3
    into = "q, k, v: their input"
    assert found[into] == 3 * plain[into]  # each of three casts its input for itself


MEASURED = """
with torch.device("meta"):
    layer, x = Layer(4096, 32).to(torch.bfloat16), torch.empty(1, 2048, 4096, dtype=torch.bfloat16)
run = as_if_on_gpu(layer, x)
"""


def test_parts_are_those_of_chapter_02():
    """The same names and bytes as the chapter's own cells find in its own layer."""
    cells = json.loads((ROOT / "notebooks" / "02_computation_graph.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    parts = (
        "import torch, math\nfrom torch import nn\nimport torch.nn.functional as F\nfrom helpers import as_if_on_gpu",
    )
    for begin in ("def explicit(", "class Layer(", "def part("):
        parts += tuple(c for c in code if f"\n{begin}" in f"\n{c}")
    assert len(parts) == 4
    own.cell("\n\n".join((*parts, MEASURED)), found := {}, "<cell of chapter 02>")
    theirs = {}
    for row in found["run"].kept.all_rows:
        if row.counted:
            name = found["part"](row)
            theirs[name] = theirs.get(name, 0) + row.counted
    assert dict(measure(Setting()).by_part) == theirs


@pytest.mark.parametrize("setting", [s for s in some_settings() if not s.checkpointing], ids=str)
def test_attention_and_mlp_are_all_of_it(setting):
    m = measure(setting)
    assert sum(m.sums.values()) == m.kept and list(m.sums) == ["attention", "MLP"]
    names = [name for name, _ in m.by_part]
    assert {*names} <= {name for parts in explorer.SUMS.values() for name in parts}
    assert (explorer.FUSED in names) == (setting.attention == "fused")
    assert (explorer.SOFTMAX in names) == (setting.attention == "explicit")
    assert (explorer.DROPPED in names) == (setting.attention == "explicit" and setting.dropout)
    assert all(explorer.SPANS[name] in m.sentence and plots.binary(n) in m.sentence for name, n in m.sums.items())
    assert all(explorer.SPANS[name] in explorer.view(m) and f"{n:,}" in explorer.view(m) for name, n in m.sums.items())


def test_numbers_can_be_read():
    """Of a very long sequence in a narrow layer: not 1.089e+05."""
    m = Measured(SMALL, 1_000, 108_912_345, (("up", 108_912_345),), 3, "")
    assert m.ratio > 1e5 and "108,900 times the parameters" in m.sentence
    assert explorer.cells("x", m)[5] == "108,900" and "108,912,345 B (103.87 MiB) kept for backward" in m.sentence
    for words in (m.sentence, explorer.view(m), *explorer.cells("x", m)):
        assert not re.search(r"\de\+\d", words)


def test_the_picture_calls_operations_as_a_reader_does():
    for more in ({}, {"checkpointing": True}, {"precision": "autocast bf16"}):
        plain = memory_figure(record_step(Setting(**more))).text
        assert "by softmax" in plain and not re.search(r"made.* by _", plain)


def test_nothing_is_left_behind():
    def state():
        return (
            torch.get_rng_state().tolist(), torch.is_grad_enabled(), torch.is_autocast_enabled("cuda"),
            torch.get_default_dtype(), torch.empty(0).device.type,
        )  # fmt: skip

    before = state()
    measure(SMALL)
    measure(replace(SMALL, precision="autocast bf16", checkpointing=True))
    gc.collect()
    assert state() == before
    assert not [x for x in gc.get_objects() if type(x) is Transformer]


def test_a_setting_is_measured_once(steps):
    assert measure(SMALL) is measure(replace(SMALL, layers=2)) and steps == [SMALL]
    assert explorer.known(SMALL) and not explorer.known(replace(SMALL, layers=1))


def test_only_so_many_are_remembered(steps, monkeypatch):
    monkeypatch.setattr(explorer, "MOST_KNOWN", 2)
    one, two, three = (replace(SMALL, batch=n) for n in (1, 2, 3))
    for setting in (one, two, one, three):
        measure(setting)
    assert explorer.known(one) and not explorer.known(two) and len(steps) == 3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"heads": 7}, "48 is no multiple of 7"),
        ({"layers": 0}, "layers is 0; a whole number from 1 on"),
        ({"batch": 1.5}, "batch is 1.5"),
        ({"sequence": True}, "sequence is True"),
        ({"precision": "fp8"}, "'fp8'; it is one of 'fp32', 'bf16', 'autocast bf16'"),
        ({"attention": "flash"}, "'flash'; it is one of 'explicit', 'fused'"),
        ({"dropout": 0.1}, "dropout is 0.1; True or False"),
    ],
)
def test_settings_that_there_are_not(steps, wrong, words):
    with pytest.raises(LessonError, match=words.replace("(", r"\(")):
        measure(replace(SMALL, **wrong))
    assert not steps


# --------------------------------------------------------------------------------------------------------- the table


def test_the_table_is_measured_and_each_time_the_same(steps):
    plain, html = table()
    assert len(steps) == len(WORTH) == len({s for _, s in WORTH})
    assert table() == (plain, html) and len(steps) == len(WORTH)
    for words, setting in WORTH:
        m = measure(setting)
        row = next(x for x in plain.split("\n") if x.strip().startswith(f"{words}  "))
        cells = row.strip().split("  ")
        mib = [f"{n / 2**20:,.1f}" for n in (m.kept, m.sums["attention"], m.sums["MLP"], m.parameters, m.peak)]
        assert [c.strip() for c in cells if c.strip()][1:7] == [*mib[:4], f"{m.ratio:.4g}", mib[4]]
        assert all(n in html for n in mib)
    assert not [x for x in plain.split("\n") if x != x.rstrip()]


def test_each_row_changes_one_thing():
    first = WORTH[0][1]
    for words, setting in WORTH[1:]:
        changed = [n for n in Setting.__dataclass_fields__ if getattr(setting, n) != getattr(first, n)]
        assert len(changed) == 1 + (", " in words), words


def test_without_a_kernel_it_is_the_table(capsys):
    assert explore_transformer() is None
    assert capsys.readouterr().out == table()[0] + "\n"


def test_from_the_top():
    assert helpers.explore_transformer is explore_transformer is helpers.lessons.explore_transformer
    assert "explore_transformer" in helpers.__all__
    with pytest.raises(LessonError, match="has no setting 'depth'; it has layers, batch"):
        explore_transformer(depth=3)
    with pytest.raises(LessonError, match="48 is no multiple of 7"):
        explore_transformer(width=48, heads=7)


# ------------------------------------------------------------------------------------------------------ the controls


@pytest.fixture
def kernel(shown, steps, monkeypatch):
    """What a kernel displays; of the table two rows are enough."""
    monkeypatch.setattr(explorer, "WORTH", WORTH[:2])
    return shown


@pytest.fixture
def control(kernel, steps):
    explore_transformer(layers=2, batch=2, sequence=128, width=256, heads=4)
    (found,) = explorer._controls.values()
    steps.clear()
    return found


def test_what_is_displayed(control, kernel, capsys):
    (bundle,) = kernel
    assert (bundle["text/plain"], bundle["text/html"]) == table()
    assert bundle[VIEW]["model_id"] == control.widget.model_id
    labels = [x.description for x in control.inputs.values()]
    assert labels == [
        "layers", "batch b", "sequence s", "width h", "heads a", "precision", "attention", "dropout",
        "a checkpoint per layer",
    ]  # fmt: skip
    m = measure(control.setting)
    assert prose(m.sentence) in control.note.value and 'role="status"' in control.note.value
    for name, n in m.by_part:
        assert f"{n:,}" in control.result.value and name.replace("'", "&#x27;") in control.result.value
    assert m.picture in control.result.value and "<caption" in control.result.value
    assert not parts(control.widget, widgets.Output)
    assert capsys.readouterr().out == ""


def test_only_the_last_setting_of_a_drag_is_measured(control, steps):
    async def drag():
        waits = []
        for n in (1, 4, 8, 16, 32):
            control.inputs["batch"].value = n
            assert "Measuring…" in control.note.value and not steps
            assert explorer_controls.OLD in control.result._dom_classes  # the old numbers are dimmed
            waits.append(control.waiting)
            assert [w.cancelled() for w in waits] == [True] * (len(waits) - 1) + [False]  # each begins the rest anew
        control.inputs["dropout"].value = False
        await asyncio.sleep(0.5)

    asyncio.run(drag())
    assert explorer_controls.OLD not in control.result._dom_classes
    assert steps == [replace(control.setting, batch=32, dropout=False)] == [control.setting]
    assert "kept for backward" in control.note.value


def test_what_is_known_is_shown_at_once(control, steps):
    first = control.setting, control.result.value

    async def there_and_back():
        control.inputs["layers"].value = 1
        await asyncio.sleep(0.5)
        assert len(steps) == 1 and control.result.value != first[1]
        control.inputs["attention"].value = "fused"  # not measured: the next change comes before it is at rest
        control.inputs["attention"].value = "explicit"
        control.inputs["layers"].value = 2
        assert (control.setting, control.result.value) == first and control.waiting is None
        assert explorer_controls.OLD not in control.result._dom_classes
        await asyncio.sleep(0.5)

    asyncio.run(there_and_back())
    assert len(steps) == 1


def test_without_a_loop_it_is_measured_at_once(control, steps):
    control.inputs["precision"].value = "fp32"
    assert steps == [control.setting] and "kept for backward" in control.note.value


def test_a_setting_that_there_is_not_says_so(kernel, steps):
    explore_transformer(sequence=128, width=320, heads=5)
    (control,) = explorer._controls.values()
    steps.clear()
    control.inputs["width"].value = 256
    assert 'role="alert"' in control.note.value and "256 is no multiple of 5" in control.note.value
    assert control.result.value == "" and not steps
    control.inputs["heads"].value = 8
    assert "kept for backward" in control.note.value and control.result.value


def test_every_width_of_the_sliders_is_divided_by_every_number_of_heads():
    (_, widths), (_, heads) = (explorer_controls.SLIDERS[name] for name in ("width", "heads"))
    assert not [(h, a) for h in widths for a in heads if h % a]


def test_an_error_is_told(control, monkeypatch):
    def broken(setting):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(control, "measure", broken)
    control.inputs["heads"].value = 8
    assert "could not be measured: no such kernel" in control.note.value
    assert control.result.value == "" and explorer_controls.OLD not in control.result._dom_classes


def test_what_takes_long_says_so(control):
    assert control._measuring(control.setting) == "Measuring…"
    control.seconds = 0.3
    assert control._measuring(replace(control.setting, layers=48)) == "Measuring… This takes about 14 s."


def test_run_again_piles_nothing_up(kernel):
    explore_transformer()
    (old,) = explorer._controls.values()
    count = len(alive())
    for _ in range(3):
        explore_transformer()
    assert len(alive()) == count and old.widget.comm is None and len(explorer._controls) == 1
    explore_transformer(layers=2)  # another one beside it
    assert len(explorer._controls) == 2


def test_a_start_that_no_slider_has(kernel):
    explore_transformer(layers=3, width=320, heads=5)
    (found,) = explorer._controls.values()
    assert found.setting == Setting(layers=3, width=320, heads=5)


# ------------------------------------------------------------------------------------------------------------- times


def test_times_are_printed(steps):
    """The bar is 0.15 s up to 2 layers and 1 s at 12; a table's matter, since other work shares the machine."""
    measure(Setting())  # what torch loads at the first step
    for layers in (1, 2, 12):
        for checkpointing in (False, True):
            setting = Setting(layers=layers, batch=2, checkpointing=checkpointing)
            begun = time.perf_counter(), time.process_time()
            explorer.view(measure(setting))
            took = time.perf_counter() - begun[0], time.process_time() - begun[1]
            print(f"{layers} layers, checkpointing {checkpointing}: {took[0]:.3f} s, {took[1]:.3f} s of CPU")
    assert len(steps) == 7


def test_no_widgets_and_no_plots_without_a_kernel():
    code = "import sys\nfrom helpers import explore_transformer\nexplore_transformer()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    tops = {name.split(".")[0] for name in done.stdout.split("\n")[-2].split()}
    assert "torch" in tops and not tops & {"matplotlib", "ipywidgets", "IPython"}
