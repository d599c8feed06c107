"""The controls that are alive in this kernel: one for each question, so that a cell run again piles nothing up."""

from __future__ import annotations

from . import answers, show

#: (section, name) -> the control that was shown last.
_controls: dict[tuple[str, str], object] = {}


def control(section: str, name: str, kind: str, *arguments):
    """A new control of `controls.<kind>` in place of the old one; its widget, or None where nothing can serve one."""
    if old := _controls.pop((section, name), None):
        old.close()
    if not hasattr(show.shell(), "kernel"):
        return None
    try:
        from . import controls
    except ImportError:  # no ipywidgets: the still and `answer=` are enough
        return None
    _controls[section, name] = made = getattr(controls, kind)(*arguments)
    return made.widget


def _forget(name: str | None) -> None:
    for (_, key), made in _controls.items():
        if name in (None, key):
            made.forget()


answers.on_clear(_forget)
