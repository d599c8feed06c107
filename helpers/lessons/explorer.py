"""An explorer of one Transformer: what it keeps for backward, taken apart, and its memory, measured at any size.

Every number is measured: a step of the course's own `Transformer` runs as if on a GPU, on meta tensors, so its size
costs nothing. Where a kernel runs, controls change the setting (see `explorer_controls`); everywhere else, and in a
committed notebook, a table shows the settings worth seeing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import torch

from helpers.data import Recording, kept_at, kept_moment, live_storages, timeline
from helpers.data.model import BUFFERS, PARAMETERS
from helpers.figures import PALETTE, memory_figure, text
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

#: What a leaf module or an operation is called in the list of bytes by operation.
MODULES = {"q": "q, k, v", "k": "q, k, v", "v": "q, k, v", "out": "out", "up": "up", "down": "down"}
OPERATIONS = {"Gelu": "GELU", "Softmax": "softmax", "NativeDropout": "dropout masks", "MaskedFill": "causal mask"}
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
    by_operation: tuple[tuple[str, int], ...]  # what each operation kept first, in forward order; adds up to `kept`
    peak: int  # highest of forward and backward, parameters and gradients too; no optimizer
    picture: str  # the memory timeline, as HTML

    @property
    def ratio(self) -> float:
        return self.kept / self.parameters


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
    """Bytes held as backward begins, by the operation that kept them first, in forward order.

    Each storage counts once; parameters and buffers are left out, and so is the loss. What no operation kept is there
    for a checkpoint: the inputs of layers.
    """
    now = kept_moment(recording)
    held = {i: n for i, (n, kind) in live_storages(recording, now).items() if kind not in (PARAMETERS, BUFFERS)}
    parts: dict[str, int] = {}
    scored: set[str] = set()  # modules whose attention is past its softmax
    for saved in kept_at(recording, now):
        node = recording.nodes[saved.node]
        name = text.operation(node.name)
        if name == "Softmax":
            scored.add(node.module)
        for i in saved.storages:
            if i in held:
                words = operation_words(name, node.module, saved.argument, recording.storages[i].op, scored)
                parts[words] = parts.get(words, 0) + held.pop(i)
    rest = sum(n for i, n in held.items() if recording.storages[i].shape)
    if rest:
        parts[CHECKPOINTS] = parts.get(CHECKPOINTS, 0) + rest
    return parts


def operation_words(name: str, module: str, argument: str, made_by: str, scored: Iterable[str]) -> str:
    if name == "NativeLayerNorm":
        return "LayerNorm" if argument == "input" else "LayerNorm statistics"
    if name == "NativeDropout" and module.endswith("dropout1"):
        return "attention's dropout mask"
    if name == "Bmm":
        return "weighted sum of v" if module in scored else "scores q·k"
    if name.startswith("ScaledDotProduct"):
        return "fused attention"
    if name == "_NoopSaveInputs":  # in torch 2.6 a checkpoint keeps them in a node of its own
        return CHECKPOINTS
    leaf = module.rpartition(".")[2]
    if leaf in MODULES and argument == "mat2" and made_by == "aten._to_copy":
        return "weights cast to bf16"
    return MODULES.get(leaf) or OPERATIONS.get(name, name)


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
    "Each row changes one thing of the first one. All are measured on tensors without numbers. With checkpointing only "
    "the input of each layer is kept. The peak is that of forward and backward, with parameters and gradients, without "
    "an optimizer. 1 MB = 1,000,000 B."
)
HEADS = ("setting", "kept, MB", "parameters, MB", "kept ÷ parameters", "peak, MB", "most of what is kept")


def cells(words: str, m: Measured) -> list[str]:
    name, most = max(m.by_operation, key=lambda part: part[1])
    kept, parameters, peak = (f"{n / 1e6:,.1f}" for n in (m.kept, m.parameters, m.peak))
    return [words, kept, parameters, f"{m.ratio:.4g}", peak, f"{name}, {most / m.kept:.0%}"]


def table() -> tuple[str, str]:
    """The settings worth seeing as text and as HTML."""
    rows = [cells(words, measure(setting)) for words, setting in WORTH]
    lines = text.aligned([list(HEADS), *rows], right=frozenset({1, 2, 3, 4}))
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
    """A measurement as HTML: the sums, bytes by operation with a bar each, the memory timeline."""
    sums = show.table(
        ("kept for backward", "parameters", "kept ÷ parameters", "peak of forward and backward"),
        [[show.number(m.kept, "B"), show.number(m.parameters, "B"), f"{m.ratio:.4g}", show.number(m.peak, "B")]],
    )
    top = max(n for _, n in m.by_operation)
    rows = "".join(_row(name, n, n / m.kept, n / top) for name, n in m.by_operation)
    caption = '<caption style="text-align:left;padding:6px 0 2px 0;">Kept for backward, by operation</caption>'
    named = (("operation", _CELL), ("bytes", _NUMBER), ("share", _NUMBER))
    head = "".join(f'<th scope="col" style="{style}">{words}</th>' for words, style in named)
    style = "border-collapse:collapse;font-size:13px;width:100%;"
    return f'{sums}<table style="{style}">{caption}<tr>{head}<td></td></tr>{rows}</table>{m.picture}'


_CELL = "text-align:left;padding:2px 14px 2px 4px;font-weight:normal;white-space:nowrap;"
_NUMBER = _CELL.replace("text-align:left", "text-align:right")


def _row(name: str, n: int, share: float, length: float) -> str:
    colour = f"background-color:{PALETTE['kept for backward']};border:1px solid {PALETTE['ink']};"
    bar = f"height:11px;width:{100 * length:.2f}%;{colour}"
    return (
        f'<tr><th scope="row" style="{_CELL}">{show.inline(name)}</th><td style="{_NUMBER}">{n:,}</td>'
        f'<td style="{_NUMBER}">{share:.1%}</td><td style="width:45%;"><div style="{bar}"></div></td></tr>'
    )
