"""The controls that answer a prediction and a quiz, on ipywidgets 7.7 to 8; explorer_controls alone imports it too.

They stand on a white card on a light and on a dark page, as figures do, so the variables that a dark theme sets for
inputs are set back inside it. A radio button's text wraps; what an answer led to is in a live region, which a screen
reader speaks as it appears. What ipywidgets leaves to be wished for with a keyboard is added by a few lines of script;
without them (a front end that runs none) all can still be reached and answered.
"""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets

from helpers.figures.bundle import SANS, escape
from helpers.figures.palette import FRAME, GROUND, INK

from . import show
from .errors import LessonError

CARD = "gradients-lesson"
# JupyterLab takes plain keys from what is in an output: arrows move to another cell, `x` cuts one. And radio buttons of
# ipywidgets are no group: with a name they are one Tab stop, and with a role they are read with their question.
# ipywidgets 7 draws them anew at each choice, which takes the focus away: it is given back.
WIRED = f"""
const card = this.closest('.{CARD}');
const group = () => card.querySelectorAll('.widget-radio-box').forEach(box => {{
  const inputs = box.querySelectorAll('input'), ask = box.closest('.widget-radio').previousElementSibling;
  const name = inputs[0]?.name || 'radio-' + Math.random();
  inputs.forEach(input => {{ input.name = name; }});
  box.setAttribute('role', 'radiogroup');
  box.setAttribute('aria-label', ask?.querySelector('p')?.textContent ?? '');
}});
card.addEventListener('keydown', event => {{
  const theirs = event.ctrlKey || event.metaKey || event.altKey || event.key === 'Escape';
  if (!theirs && !(event.shiftKey && event.key === 'Enter')) event.stopPropagation();
}});
let box, value;
card.addEventListener('focusin', event => {{
  box = event.target.closest('.widget-radio-box');
  value = event.target.value;
}});
new MutationObserver(() => {{
  group();
  if (box && document.activeElement.contains(card)) box.querySelector(`input[value="${{value}}"]`)?.focus();
}}).observe(card, {{ childList: true, subtree: true }});
group();
"""
STYLE = f"""<style onload="{escape(WIRED)}">
.{CARD} {{
  --jp-widgets-color: {INK}; --jp-widgets-label-color: {INK}; --jp-widgets-readout-color: {INK};
  --jp-widgets-input-color: {INK}; --jp-widgets-input-background-color: {GROUND};
  --jp-widgets-input-border-color: #57606a;
  --jp-ui-font-color1: {INK}; --jp-content-font-color1: {INK}; --jp-layout-color1: {GROUND};
  --jp-layout-color2: #eaedf0; --jp-layout-color3: #d9dee3;
  background-color: {GROUND}; color: {INK}; color-scheme: light; border: 1px solid {FRAME}; border-radius: 6px;
  padding: 10px 14px; max-width: 760px; box-sizing: border-box; font-family: {SANS}; overflow: visible;
}}
.{CARD} .widget-html, .{CARD} .jupyter-widget-html {{ height: auto; width: auto; margin: 0; }}
.{CARD} .widget-html-content, .{CARD} .jupyter-widget-html-content {{
  white-space: normal; line-height: 1.45; font-size: 13px; color: {INK}; overflow: visible; height: auto;
}}
.{CARD} .widget-radio, .{CARD} .widget-radio-box {{ width: auto; max-width: 100%; height: auto; margin: 0; }}
.{CARD} .widget-radio-box label {{
  display: flex; align-items: flex-start; gap: 8px; width: auto; height: auto; padding: 3px 0; margin: 0;
  white-space: normal; overflow-wrap: anywhere; line-height: 1.45; font-size: 13px; color: {INK}; cursor: pointer;
}}
.{CARD} .widget-radio-box input {{ flex: none; order: -1; height: 19px; margin: 0 0 0 2px; }}
.{CARD} input:focus-visible, .{CARD} select:focus-visible, .{CARD} button:focus-visible {{
  outline: 2px solid #00568a; outline-offset: 2px;
}}
.{CARD} .widget-label {{ color: {INK}; overflow: visible; }}
.{CARD} select {{ background-color: {GROUND}; color: {INK}; max-width: 100%; }}
.{CARD} input[type="text"] {{ background-color: {GROUND}; color: {INK}; }}
.{CARD} input[type="text"]::placeholder {{ color: #57606a; opacity: 1; }}
.{CARD} button {{ background-color: #eaedf0; color: {INK}; border: 1px solid #57606a; border-radius: 4px; }}
</style>"""
UNCHOSEN = "choose …"


def html(value: str = "") -> widgets.HTML:
    return widgets.HTML(value)


def spoken(text: str, *, urgent: bool = False) -> str:
    """A paragraph that a screen reader speaks when it appears; "" for nothing."""
    role = "alert" if urgent else "status"
    return f'<div role="{role}" style="padding-top:4px;">{show.paragraph(text)}</div>' if text else ""


def label(text: str) -> str:
    """A label is plain text: backticks, and stars of emphasis, would stand in it as they are."""
    return show.unstarred(text).replace("`", "")


def radios(labels: list[str], index: int | None) -> widgets.RadioButtons:
    return widgets.RadioButtons(
        options=[label(text) for text in labels], index=index, layout=widgets.Layout(width="auto")
    )


def close(widget: widgets.Widget) -> None:
    """Close a widget and all that is in it, models of layout and style too."""
    for child in getattr(widget, "children", ()):
        close(child)
    parts = [getattr(widget, name, None) for name in ("layout", "style")]
    for part in (widget, *parts):
        if isinstance(part, widgets.Widget):
            part.close()


class PredictionControl:
    """The control of one question; `give` keeps an answer and returns what to say about it."""

    def __init__(self, asked, given, give: Callable[[object], str]):
        self.asked, self.give, self.quiet = asked, give, False
        self.keys = list(asked.choices or ())
        head = html(STYLE + show.paragraph(f"Predict: {asked.ask}", strong=True))
        self.note = html()
        if asked.rows:
            self.inputs = self._dropdowns(given or {})
        elif asked.choices:
            words = [asked.words(key) for key in self.keys]
            self.inputs = [radios(words, self._index(given))]
        else:
            self.inputs = [self._field(given)]
        for part in self.inputs:
            part.observe(self._changed, names="value" if isinstance(part, widgets.Text) else "index")
        self.widget = widgets.VBox([head, *self.inputs, self.note])
        self.widget.add_class(CARD)
        self.note.value = spoken("Your answer is kept.") if given not in (None, {}) else ""

    def _index(self, key) -> int | None:
        same = [at for at, one in enumerate(self.keys) if one == key and isinstance(one, bool) == isinstance(key, bool)]
        return same[0] if same else None

    def _dropdowns(self, given: dict) -> list[widgets.Dropdown]:
        words = [UNCHOSEN, *(label(self.asked.words(key)) for key in self.keys)]
        style = {"description_width": f"{max(map(len, self.asked.rows)) + 2}ch"}
        index = {row: self._index(key) + 1 for row, key in given.items()}
        return [
            widgets.Dropdown(
                options=words,
                index=index.get(row, 0),
                description=row,
                style=style,
                layout=widgets.Layout(width="auto", max_width="520px"),
            )
            for row in self.asked.rows
        ]

    def _field(self, given) -> widgets.Text:
        unit = f" in {self.asked.unit}" if self.asked.unit else ""
        return widgets.Text(
            value="" if given is None else show.number(given, digits=17),
            description=f"Your number{unit}",
            placeholder="Enter sends it",
            continuous_update=False,
            style={"description_width": "initial"},
            layout=widgets.Layout(width="340px", max_width="100%"),
        )

    def _answer(self):
        if self.asked.rows:
            chosen = zip(self.asked.rows, self.inputs, strict=True)
            return {row: self.keys[part.index - 1] for row, part in chosen if part.index}
        if self.asked.choices:
            index = self.inputs[0].index
            return None if index is None else self.keys[index]
        text = self.inputs[0].value.strip()
        return self.asked.accept(text) if text else None

    def _changed(self, change) -> None:
        if self.quiet:
            return
        try:
            said = self.give(self._answer())
        except LessonError as error:
            said = str(error)
        self.note.value = spoken(said)

    def forget(self) -> None:
        """Show no answer any more."""
        self.quiet = True
        for part in self.inputs:
            if isinstance(part, widgets.Text):
                part.value = ""
            else:
                part.index = 0 if self.asked.rows else None
        self.note.value = ""
        self.quiet = False

    def close(self) -> None:
        close(self.widget)


class QuizControl:
    """The controls of a quiz. tries(quiz): the first tries that are kept. keep(quiz, question, letter): keeps a try."""

    def __init__(self, asked, given: list[str], tries: Callable, keep: Callable):
        self.asked, self.tries, self.keep = asked, tries, keep
        kept, self.rows, parts = tries(asked), [], [html(STYLE + show.paragraph(f"Quiz: {asked.title}", strong=True))]
        for number, question in enumerate(asked.questions, 1):
            ask = f"{number}. {question.ask}"
            letter = given[number - 1] or kept.get(question.id, {}).get("first", "")
            chosen = radios(question.lettered, "abcde".index(letter) if letter else None)
            place = widgets.Layout(width="auto", align_self="flex-start", margin="2px 0 6px 2px")
            button = widgets.Button(description=f"Check answer {number}", layout=place)
            said = html(spoken(f"You chose {question.explained(letter)}") if letter else "")
            button.on_click(lambda _, question=question, chosen=chosen, said=said: self._check(question, chosen, said))
            parts += [html(f'<div style="margin-top:10px;">{show.paragraph(ask)}</div>'), chosen, button, said]
            self.rows.append((chosen, said))
        self.score = html()
        self._count()
        self.widget = widgets.VBox([*parts, self.score])
        self.widget.add_class(CARD)

    def _check(self, question, chosen, said) -> None:
        if chosen.index is None:
            said.value = spoken("Choose an answer first, then check it.", urgent=True)
            return
        letter = "abcde"[chosen.index]
        self.keep(self.asked, question, letter)
        said.value = spoken(f"You chose {question.explained(letter)}", urgent=True)
        self._count()

    def _count(self) -> None:
        kept, count = self.tries(self.asked), len(self.asked.questions)
        right = sum(entry["right"] for entry in kept.values())
        self.score.value = show.paragraph(f"{right} of {count} right at the first try.", soft=True) if kept else ""

    def forget(self) -> None:
        """Show no answer any more."""
        for chosen, said in self.rows:
            chosen.index, said.value = None, ""
        self._count()

    def close(self) -> None:
        close(self.widget)
