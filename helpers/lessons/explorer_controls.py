"""The explorer's controls, on ipywidgets 7.7 to 8: a setting is measured when the controls have come to rest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import ipywidgets as widgets

from helpers.figures.bundle import escape

from . import show
from .controls import CARD, STYLE, close, html, spoken
from .errors import LessonError
from .explorer import PRECISIONS, Measured, Setting, view
from .transformer import ATTENTION

REST = 0.03  # seconds without a change after which the last setting is measured
SLOW = 1.0  # seconds from which a measurement is announced with its length
#: Of each slider: its label and its values.
SLIDERS = {
    "layers": ("layers", (1, 2, 4, 8, 12, 24, 48)),
    "batch": ("batch b", (1, 2, 4, 8, 16, 32, 64)),
    "sequence": ("sequence s", (128, 256, 512, 1024, 2048, 4096, 8192, 16384)),
    "width": ("width h", (256, 512, 768, 1024, 2048, 4096, 8192, 12288)),
    "heads": ("heads a", (1, 2, 4, 8, 16, 32, 64, 128)),  # each divides every width
}
CHOICES = {"precision": tuple(PRECISIONS), "attention": ATTENTION}
SWITCHES = {"dropout": "dropout", "checkpointing": "a checkpoint per layer"}
WIDE, OLD = "gradients-explorer", "gradients-old"  # classes: of the card; of numbers that are of another setting
# A slider's handle is what takes the keys, and ipywidgets gives it no name: label and readout are its name and value.
NAMED = f"""
const card = this.closest('.{CARD}');
const name = () => card.querySelectorAll('.widget-hslider, .jupyter-widget-hslider').forEach(slider => {{
  const handle = slider.querySelector('.noUi-handle, .ui-slider-handle');
  if (!handle) return;
  handle.setAttribute('role', 'slider');
  handle.setAttribute('tabindex', '0');
  handle.setAttribute('aria-label', slider.querySelector('.widget-label')?.textContent ?? '');
  handle.setAttribute('aria-valuetext', slider.querySelector('.widget-readout')?.textContent ?? '');
}});
card.setAttribute('role', 'group');
card.setAttribute('aria-label', 'Explorer of a Transformer: change a setting, and what it keeps is measured');
new MutationObserver(name).observe(card, {{ childList: true, subtree: true, characterData: true }});
name();
"""
WIRED = f"""<style onload="{escape(NAMED)}">
.{CARD}.{WIDE} {{ max-width: 900px; }}
.{CARD} .noUi-handle:focus-visible, .{CARD} .ui-slider-handle:focus-visible {{
  outline: 2px solid #00568a; outline-offset: 2px;
}}
.{CARD} .noUi-handle, .{CARD} .ui-slider-handle {{ border: 1px solid #57606a; background-color: #eaedf0; }}
.{CARD} .widget-readout {{ color: #1f2328; overflow: visible; }}
.{CARD} .widget-checkbox label {{ color: #1f2328; }}
.{CARD} .{OLD} {{ opacity: 0.3; }}
</style>"""


class ExplorerControl:
    """The controls of one explorer. measure: setting → Measured. known: whether that is remembered already."""

    def __init__(self, start: Setting, measure: Callable[[Setting], Measured], known: Callable[[Setting], bool]):
        self.measure, self.known = measure, known
        self.seconds = 0.0  # that a layer took when last measured
        self.waiting: asyncio.TimerHandle | None = None
        self.inputs = {name: self._slider(name, getattr(start, name)) for name in SLIDERS}
        self.inputs |= {name: self._choice(name, getattr(start, name)) for name in CHOICES}
        self.inputs |= {name: self._switch(name, getattr(start, name)) for name in SWITCHES}
        for part in self.inputs.values():
            part.observe(self._changed, names="value")
        head = html(STYLE + WIRED + show.paragraph("What does a Transformer keep for backward?", strong=True))
        lead = html(show.paragraph("Tab goes from setting to setting, arrow keys change one. Each is measured."))
        self.note, self.result = html(), html()
        rows = [self._row(SLIDERS), self._row((*CHOICES, *SWITCHES))]
        self.widget = widgets.VBox([head, lead, *rows, self.note, self.result])
        self.widget.add_class(CARD)
        self.widget.add_class(WIDE)
        self._show()

    def _row(self, names: Iterable[str]) -> widgets.Box:
        layout = widgets.Layout(display="flex", flex_flow="row wrap", align_items="center", width="100%")
        return widgets.Box([self.inputs[name] for name in names], layout=layout)

    def _slider(self, name: str, value: int) -> widgets.SelectionSlider:
        words, values = SLIDERS[name]
        options = [(f"{n:,}", n) for n in sorted({*values, value})]
        layout = widgets.Layout(width="400px", max_width="100%")
        return widgets.SelectionSlider(
            options=options, value=value, description=words, layout=layout, style={"description_width": "11ch"}
        )

    def _choice(self, name: str, value: str) -> widgets.Dropdown:
        layout = widgets.Layout(width="230px", max_width="100%")
        return widgets.Dropdown(
            options=list(CHOICES[name]), value=value, description=name, layout=layout,
            style={"description_width": "11ch"},
        )  # fmt: skip

    def _switch(self, name: str, value: bool) -> widgets.Checkbox:
        layout = widgets.Layout(width="auto", margin="2px 14px")
        return widgets.Checkbox(value=value, description=SWITCHES[name], indent=False, layout=layout)

    @property
    def setting(self) -> Setting:
        """What the controls show."""
        return Setting(**{name: part.value for name, part in self.inputs.items()})

    def _changed(self, change) -> None:
        self._stop()
        setting = self.setting
        try:
            setting.check()
        except LessonError as error:
            self._say(str(error), urgent=True)
            self._put("")
            return
        if self.known(setting):
            self._show()
            return
        self._say(self._measuring(setting))
        self.result.add_class(OLD)
        try:
            self.waiting = asyncio.get_running_loop().call_later(REST, self._show)
        except RuntimeError:  # no loop that could wake us: now
            self._show()

    def _measuring(self, setting: Setting) -> str:
        expected = setting.layers * self.seconds
        more = f" This takes about {expected:.0f} s." if expected >= SLOW else ""
        return "Measuring…" + more

    def _show(self) -> None:
        """Measure what the controls show now, and show it."""
        self._stop()
        setting = self.setting
        fresh, begun = not self.known(setting), time.perf_counter()
        try:
            found = self.measure(setting)
        except Exception as error:  # what is raised here would be lost, and the note would go on saying "Measuring…"
            self._say(f"This setting could not be measured: {error}", urgent=True)
            self._put("")
            return
        if fresh:
            self.seconds = (time.perf_counter() - begun) / setting.layers
        self._put(view(found))
        self._say(found.sentence)

    def _put(self, result: str) -> None:
        self.result.value = result
        self.result.remove_class(OLD)

    def _say(self, words: str, *, urgent: bool = False) -> None:
        self.note.value = spoken(words, urgent=urgent)

    def _stop(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None

    def close(self) -> None:
        self._stop()
        close(self.widget)
