"""An explorer of one Transformer: what it keeps for backward, taken apart, and its memory, measured at any size.

Every number is measured: a step of the course's own `Transformer` runs as if on a GPU, on meta tensors, so its size
costs nothing. Where a kernel runs, controls change the setting (see `explorer_controls`); everywhere else, and in a
committed notebook, a table shows the settings worth seeing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, fields, replace

import torch

from helpers.data import Recording, kept_at, kept_moment, live_storages, timeline
from helpers.data.model import BUFFERS, PARAMETERS
from helpers.figures import PALETTE, memory_figure, plots, text
from helpers.run import as_if_on_gpu

from . import show
from .errors import LessonError
from .transformer import ATTENTION, Transformer

#: Name → dtype of the parameters and of the input, and whether bf16 autocast is on.
PRECISIONS = {
    "fp32": (torch.float32, False),
    "bf16": (torch.bfloat16, False),
    "autocast bf16": (torch.float32, True),
}
MOST_KNOWN = 128  # measurements that are remembered

#: Parts of a layer in forward order, as chapter 02 calls them, and the sums that they belong to.
QKV, INTO = "q, k and v themselves", "q, k, v: their input"
SOFTMAX, DROPPED, COPIED = "softmax: its output", "weights @ v: dropped weights", "weights @ v: weights in bf16"
FUSED = "fused kernel: its output, logsumexp"
CAST = ("q, k, v, out: weights in bf16", "up, down: weights in bf16")  # what autocast makes and keeps
SUMS = {
    "attention": ("norm1", INTO, CAST[0], QKV, SOFTMAX, "dropout1", DROPPED, COPIED, FUSED, "out", "dropout2"),
    "MLP": ("norm2", "up", "gelu", "down", CAST[1], "dropout3"),
}
SPANS = {"attention": "norm1 … dropout2", "MLP": "norm2 … dropout3"}
CHECKPOINTS = "inputs of layers, for their checkpoints"


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured. The default is the example of Korthikanti and others, 2022: s=2048, b=1, h=4096, a=32."""

    layers: int = 1
    batch: int = 1
    sequence: int = 2048
    width: int = 4096
    heads: int = 32
    precision: str = "bf16"
    attention: str = "explicit"
    dropout: bool = True
    checkpointing: bool = False

    def check(self) -> None:
        """Raises LessonError, a sentence, for a setting that there is not."""
        for name in ("layers", "batch", "sequence", "width", "heads"):
            n = getattr(self, name)
            if not isinstance(n, int) or isinstance(n, bool) or n < 1:
                raise LessonError(f"{name} is {n!r}; a whole number from 1 on was expected.")
        if self.width % self.heads:
            raise LessonError(
                f"The width is divided among the heads, and {self.width:,} is no multiple of {self.heads}. "
                "Choose fewer heads, or another width."
            )
        for name, known in (("precision", tuple(PRECISIONS)), ("attention", ATTENTION)):
            if getattr(self, name) not in known:
                raise LessonError(f"{name} is {getattr(self, name)!r}; it is one of {', '.join(map(repr, known))}.")
        for name in ("dropout", "checkpointing"):
            if not isinstance(getattr(self, name), bool):
                raise LessonError(f"{name} is {getattr(self, name)!r}; True or False was expected.")


@dataclass(frozen=True, slots=True)
class Measured:
    """A setting's step, measured; all in bytes."""

    setting: Setting
    parameters: int
    kept: int  # held for backward as it begins, beyond the parameters; what checkpoints hold counts too
    by_part: tuple[tuple[str, int], ...]  # what each part of the layer kept first, in forward order; adds up to `kept`
    peak: int  # highest of forward and backward, parameters and gradients too; no optimizer
    picture: str  # the memory timeline, as HTML

    @property
    def ratio(self) -> float:
        return self.kept / self.parameters

    @property
    def sums(self) -> dict[str, int]:
        """Bytes of attention and of the MLP, with the LayerNorm before and the dropout behind each."""
        return {name: sum(n for part, n in self.by_part if part in parts) for name, parts in SUMS.items()}

    @property
    def sentence(self) -> str:
        """What is kept, in words: the sum, against the parameters, and its two halves."""
        words = f"{both(self.kept)} kept for backward, {show.number(self.ratio)} times the parameters"
        if not any(self.sums.values()):
            return f"{words}: all of it {CHECKPOINTS}."
        return (
            f"{words}: " + ", ".join(f"{name} ({SPANS[name]}) {plots.binary(n)}" for name, n in self.sums.items()) + "."
        )


def both(n: int) -> str:
    """Exact bytes, and in the unit of chapter 02's figures: "956,334,080 B (912.04 MiB)"."""
    return f"{show.number(n, 'B')} ({plots.binary(n)})"


_known: OrderedDict[Setting, Measured] = OrderedDict()  # the one asked for last at the end


def measure(setting: Setting) -> Measured:
    """The step of this setting, measured once and remembered. Raises LessonError for a setting that there is not."""
    setting.check()
    if setting not in _known:
        _known[setting] = _measured(setting)
        if len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
    _known.move_to_end(setting)
    return _known[setting]


def known(setting: Setting) -> bool:
    """Whether `measure` would run no step."""
    return setting in _known


def _measured(setting: Setting) -> Measured:
    recording = record_step(setting)
    parts, now, line = taken_apart(recording), kept_moment(recording), timeline(recording)
    picture = memory_figure(_without_lines(recording)).body
    kept, before = sum(parts.values()), line.at(now)[PARAMETERS]
    return Measured(setting, before, kept, tuple(parts.items()), max(line.totals), picture)


def _without_lines(recording: Recording) -> Recording:
    """The recording without the lines of this file, which tell a reader nothing."""
    return replace(recording, places=tuple(replace(place, frames=()) for place in recording.places))


def record_step(setting: Setting) -> Recording:
    """Forward and backward of a Transformer, as a GPU would run them; without cuBLAS's workspace."""
    dtype, autocast = PRECISIONS[setting.precision]
    with torch.device("meta"):
        model = Transformer(
            setting.layers, setting.width, setting.heads, attention=setting.attention,
            dropout=0.1 if setting.dropout else 0.0, checkpointed=setting.checkpointing,
        ).to(dtype)  # fmt: skip
        x = torch.empty(setting.batch, setting.sequence, setting.width, dtype=dtype)

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = model(x).sum()
        loss.backward()

    return as_if_on_gpu(step, workspace=0).recording


def taken_apart(recording: Recording) -> dict[str, int]:
    """Bytes held as backward begins, by the part of the layer that kept them first, in forward order.

    Each storage counts once; parameters and buffers are left out, and so is the loss. What no part kept is there
    for a checkpoint: the inputs of layers.
    """
    now = kept_moment(recording)
    held = {i: n for i, (n, kind) in live_storages(recording, now).items() if kind not in (PARAMETERS, BUFFERS)}
    parts: dict[str, int] = {}
    before: set[str] = set()  # softmaxes and dropouts that have run, by their module
    for saved in kept_at(recording, now):
        node = recording.nodes[saved.node]
        name = text.operation(node.name)
        if name in ("Softmax", "NativeDropout"):
            before.add(f"{node.module}:{name}")
        for i in saved.storages:
            if i in held:
                words = part_words(name, node.module, saved.argument, recording.storages[i].op, before)
                parts[words] = parts.get(words, 0) + held.pop(i)
    rest = sum(n for i, n in held.items() if recording.storages[i].shape)
    if rest:
        parts[CHECKPOINTS] = parts.get(CHECKPOINTS, 0) + rest
    return parts


def part_words(name: str, module: str, argument: str, made_by: str, before: Collection[str]) -> str:
    """The part of the layer, as chapter 02 calls it, that keeps something. before: see `taken_apart`."""
    leaf = module.rpartition(".")[2]
    if leaf in ("q", "k", "v", "out", "up", "down") and argument == "mat2" and made_by == "aten._to_copy":
        return CAST[leaf in ("up", "down")]
    if leaf in ("q", "k", "v"):
        return INTO
    if leaf in SUMS["attention"] or leaf in SUMS["MLP"]:
        return leaf
    if name == "Bmm" and argument == "self" and f"{module}:Softmax" in before:
        return DROPPED if f"{module}.dropout1:NativeDropout" in before else COPIED
    if name == "Bmm" or argument in ("query", "key", "value"):
        return QKV
    if name.startswith("ScaledDotProduct"):
        return FUSED
    if name == "_NoopSaveInputs":  # in torch 2.6 a checkpoint keeps them in a node of its own
        return CHECKPOINTS
    return {"Softmax": SOFTMAX, "Gelu": "gelu"}.get(name, name)


# ---------------------------------------------------------------------------------- what stands where no kernel runs

START = Setting()
#: Words and settings of the table: the published example, then one thing changed at a time.
WORTH = (
    ("one layer, s=2048, b=1, h=4096, a=32, bf16", START),
    ("twice the batch", replace(START, batch=2)),
    ("twice the sequence", replace(START, sequence=4096)),
    ("twice the width", replace(START, width=8192)),
    ("twice the heads", replace(START, heads=64)),
    ("fp32", replace(START, precision="fp32")),
    ("autocast bf16", replace(START, precision="autocast bf16")),
    ("no dropout", replace(START, dropout=False)),
    ("fused attention", replace(START, attention="fused")),
    ("fused, no dropout", replace(START, attention="fused", dropout=False)),
    ("12 layers", replace(START, layers=12)),
    ("12 layers, fused", replace(START, layers=12, attention="fused")),
    ("12 layers, checkpointing", replace(START, layers=12, checkpointing=True)),
)
TITLE = "What a Transformer keeps for backward, as on a GPU"
LEAD = (
    "Each row changes one thing of the first one. All are measured on tensors without numbers. Attention is what norm1 "
    "to dropout2 keep, MLP what norm2 to dropout3 keep. With checkpointing only the input of each layer is kept. The "
    "peak is that of forward and backward, with parameters and gradients, without an optimizer. All in MiB, 2^20 B."
)
HEADS = ("setting", "kept", *SUMS, "parameters", "kept ÷ parameters", "peak", "most of what is kept")


def cells(words: str, m: Measured) -> list[str]:
    name, most = max(m.by_part, key=lambda part: part[1])
    kept, attention, mlp, parameters, peak = (
        f"{n / 2**20:,.1f}" for n in (m.kept, *m.sums.values(), m.parameters, m.peak)
    )
    return [words, kept, attention, mlp, parameters, show.number(m.ratio), peak, f"{name}, {most / m.kept:.0%}"]


def table() -> tuple[str, str]:
    """The settings worth seeing as text and as HTML."""
    rows = [cells(words, measure(setting)) for words, setting in WORTH]
    lines = text.aligned([list(HEADS), *rows], right=frozenset(range(1, 7)))
    html = show.paragraph(TITLE, strong=True) + show.paragraph(LEAD) + show.table(HEADS, rows)
    hint = "Run the cell in JupyterLab, VS Code or Colab to move the settings yourself."
    return "\n".join([TITLE, LEAD, "", *lines]), show.card(html + show.paragraph(hint, soft=True))


_controls: dict[Setting, object] = {}  # the controls alive in this kernel, by the setting that they began with


def explore_transformer(**start) -> None:
    """Explore what a Transformer keeps for backward: controls where a kernel runs, else a table; all measured.

    start: the setting to begin with, any of layers, batch, sequence, width, heads (whole numbers), precision ("fp32",
    "bf16", "autocast bf16"), attention ("explicit", "fused"), dropout, checkpointing (True or False).
    Raises LessonError for another name, or a setting that there is not.
    """
    names = [f.name for f in fields(Setting)]
    for name in start:
        if name not in names:
            raise LessonError(f"explore_transformer() has no setting {name!r}; it has {', '.join(names)}.")
    setting = Setting(**start)
    setting.check()
    plain, html = table()
    show.show(plain, html, widget=_control(setting))


def _control(setting: Setting):
    """A new control's widget in place of the one that began so; None where nothing can serve one."""
    if old := _controls.pop(setting, None):
        old.close()
    if not hasattr(show.shell(), "kernel"):
        return None
    try:
        from .explorer_controls import ExplorerControl
    except ImportError:  # no ipywidgets: the table is enough
        return None
    _controls[setting] = made = ExplorerControl(setting, measure, known)
    return made.widget


def view(m: Measured) -> str:
    """A measurement as HTML: the sums, bytes by part of the layer with a bar each, the memory timeline."""
    sums = show.table(
        ("kept for backward", "parameters", "kept ÷ parameters", "peak of forward and backward"),
        [[both(m.kept), both(m.parameters), show.number(m.ratio), both(m.peak)]],
    )
    top = max(n for _, n in m.by_part)
    rows = ""
    for name, parts in SUMS.items():
        mine = [(part, n) for part, n in m.by_part if part in parts]
        rows += "".join(_row(part, n, m.kept, n / top) for part, n in mine)
        rows += _row(f"{name}, together ({SPANS[name]})", m.sums[name], m.kept, None) if mine else ""
    rows += "".join(_row(part, n, m.kept, n / top) for part, n in m.by_part if not _in_a_sum(part))
    caption = '<caption style="text-align:left;padding:6px 0 2px 0;">Kept for backward, part by part</caption>'
    named = (("part", _CELL), ("bytes", _NUMBER), ("", _NUMBER), ("share", _NUMBER))
    head = "".join(f'<th scope="col" style="{style}">{words}</th>' if words else "<td></td>" for words, style in named)
    style = "border-collapse:collapse;font-size:13px;width:100%;"
    return f'{sums}<table style="{style}">{caption}<tr>{head}<td></td></tr>{rows}</table>{m.picture}'


_CELL = "text-align:left;padding:2px 14px 2px 4px;font-weight:normal;white-space:nowrap;"
_NUMBER = _CELL.replace("text-align:left", "text-align:right")


def _in_a_sum(part: str) -> bool:
    return any(part in parts for parts in SUMS.values())


def _row(name: str, n: int, kept: int, length: float | None) -> str:
    """A part with its bar, `length` of the longest; None for a sum, in bold and without one."""
    colour = f"background-color:{PALETTE['kept for backward']};border:1px solid {PALETTE['ink']};"
    bar = "" if length is None else f'<div style="height:11px;width:{100 * length:.2f}%;{colour}"></div>'
    bold = "font-weight:bold;" if length is None else ""
    said = (f"{n:,}", plots.binary(n) if n >= 1024 else "", f"{n / kept:.1%}")
    cells = "".join(f'<td style="{_NUMBER}{bold}">{words}</td>' for words in said)
    return (
        f'<tr><th scope="row" style="{_CELL}{bold}">{show.inline(name)}</th>{cells}'
        f'<td style="width:40%;">{bar}</td></tr>'
    )
