"""The learner's answers, in one JSON file of the user's own data folder.

The environment variable GRADIENTS_ANSWERS names another file, or is `off`: then everything stays in this kernel's
memory, as it does where the file cannot be written (a read-only home, a full disk). Values are plain JSON. Each write
reads the file anew and changes its own name alone, so that two notebooks open at once keep both their answers.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

VARIABLE = "GRADIENTS_ANSWERS"
FOLDER, FILE = "gradients-and-intermediates", "answers.json"
SCHEMA = 1
SECTIONS = ("predictions", "quizzes", "exercises", "verdicts")
#: How long a writer waits for another, and after how long a lock is taken for one that was left behind.
LOCK_WAIT, LOCK_STALE = 1.0, 5.0

#: (section, name) -> value, or None where it was cleared: what is on no disk.
_unsaved: dict[tuple[str, str], object] = {}
_listeners: list[Callable[[str | None], None]] = []


def path() -> Path | None:
    """The file; None where answers stay in memory (GRADIENTS_ANSWERS=off)."""
    asked = os.environ.get(VARIABLE, "").strip()
    if asked.lower() == "off":
        return None
    try:
        if asked:
            return Path(asked).expanduser().absolute()
        from platformdirs import user_data_path

        return user_data_path(FOLDER, appauthor=False) / FILE
    except (ImportError, OSError, RuntimeError):  # no such package, or no home to be found
        return None


def put(section: str, name: str, value: object) -> None:
    """Keep a plain JSON value. Never fails for the disk's sake: what cannot be written stays in memory."""
    _change({(_known(section), name): json.loads(json.dumps(value))})


def get(section: str, name: str) -> object | None:
    """What is kept under that name, as a copy; None for nothing."""
    return all()[_known(section)].get(name)


def all() -> dict[str, dict[str, object]]:
    """Everything: section -> name -> value, the sections always there."""
    found = _merged(_read(path()) or {}, _unsaved)
    return {section: found.get(section, {}) for section in SECTIONS}


def clear(name: str | None = None) -> list[str]:
    """Forget one name, in whatever section, or everything; returns the names that were kept, sorted."""
    kept = [(section, key) for section, values in all().items() for key in values if name in (None, key)]
    if kept:
        _change({entry: None for entry in kept})
    for listener in _listeners:
        listener(name)
    return sorted({key for _, key in kept})


def on_clear(listener: Callable[[str | None], None]) -> None:
    """Call `listener(name)` after each `clear`, so that a control that still shows an answer can drop it."""
    _listeners.append(listener)


def _known(section: str) -> str:
    if section not in SECTIONS:
        raise ValueError(f"No section {section!r}: {', '.join(SECTIONS)}.")
    return section


def _merged(data: dict, changes: dict) -> dict:
    for (section, name), value in changes.items():
        values = data.setdefault(section, {})
        values.pop(name, None)
        if value is not None:
            values[name] = copy.deepcopy(value)
    return data


def _change(changes: dict) -> None:
    _unsaved.update(changes)
    file = path()
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _lock(file):
            data = _read(file)
            if data is None:  # written by a later version of the course: not ours to touch
                return
            _write(file, _merged(data, _unsaved))
    except OSError:
        return
    _unsaved.clear()


def _read(file: Path | None) -> dict | None:
    """The file's sections; {} where there is none or it could not be read, None for a later schema."""
    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return {}
    except UnicodeDecodeError:
        return _aside(file)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return _aside(file)
    schema = data.get("schema") if isinstance(data, dict) else None
    if type(schema) is int and schema > SCHEMA:
        return None
    if (
        type(schema) is not int
        or schema != SCHEMA
        or not builtins.all(isinstance(data.get(section, {}), dict) for section in SECTIONS)
    ):
        return _aside(file)
    return {section: data.get(section, {}) for section in SECTIONS}


def _aside(file: Path) -> dict:
    """Move a file that is no answers file out of the way, and keep it."""
    number = 1
    while (kept := file.with_name(f"{file.stem}-broken-{number}{file.suffix}")).exists():
        number += 1
    with contextlib.suppress(OSError):
        os.replace(file, kept)
        warnings.warn(
            f"The file with your answers, {file.name}, could not be read. It is kept as {kept.name}, "
            "and a new one is begun.",
            stacklevel=2,
        )
    return {}


def _write(file: Path, data: dict) -> None:
    number, temporary = tempfile.mkstemp(prefix=f"{file.stem}-", suffix=".tmp", dir=file.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="\n") as out:
            json.dump({"schema": SCHEMA} | {part: data.get(part, {}) for part in SECTIONS}, out, indent=1)
            out.write("\n")
        os.replace(temporary, file)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


@contextlib.contextmanager
def _lock(file: Path):
    """One writer at a time; after LOCK_WAIT seconds this one goes ahead, since an answer matters more than a lock."""
    lock, end, mine = file.with_name(file.name + ".lock"), time.monotonic() + LOCK_WAIT, False
    while not mine and time.monotonic() < end:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            mine = True
        except FileExistsError:
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > LOCK_STALE:
                    os.unlink(lock)
            time.sleep(0.01)
    try:
        yield
    finally:
        if mine:
            with contextlib.suppress(OSError):
                os.unlink(lock)
