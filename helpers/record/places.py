"""Which line of the learner's code is running: library frames left out, each place stored once."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from ..data.model import Frame, Place, Source
from . import private
from .errors import RecordError

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PATHS = sysconfig.get_paths()
_LIBRARIES = tuple(
    {
        os.path.join(os.path.realpath(p), "")
        for p in (_HERE, os.path.dirname(torch.__file__), *(_PATHS[k] for k in ("stdlib", "platstdlib", "purelib")))
    }
)


@functools.cache
def is_library(filename: str) -> bool:
    """Whether code of this file is somebody else's: torch, these helpers, the standard library, installed packages."""
    if filename.startswith("<"):
        return not filename.startswith(("<ipython-input", "<stdin", "<python-input", "<cell"))
    real = os.path.realpath(filename)
    return real.startswith(_LIBRARIES) or f"{os.sep}site-packages{os.sep}" in real


def is_notebook(filename: str) -> bool:
    return "ipykernel_" in filename or filename.startswith("<ipython-input")


def is_top_level(code: CodeType) -> bool:
    """Whether it is a cell or a script itself, no function in it. Older IPythons name a cell's code by its line."""
    return "<module>" in (code.co_name, code.co_qualname)


class Places:
    """Interns places and sources while a recording runs."""

    def __init__(self, boundary: FrameType | None, *, include_boundary: bool) -> None:
        self.boundary = boundary  # the walk ends here; dropped when the recording ends
        self.include_boundary = include_boundary
        self.block: tuple[int | None, tuple[int, int]] = (
            None,
            (0, 0),
        )  # source and lines of the block, once it is over
        self.places: list[Place] = []
        self.sources: list[Source] = []
        self._place_ids: dict[tuple, int] = {}
        self._source_ids: dict[object, int] = {}
        self._kinds: dict[CodeType, bool | None] = {}  # True: the learner's, False: a library's, None: compiled
        self.refusal = ""  # what was said of compiled code, once it was
        self.namespaces: dict[CodeType, dict] = {}  # the learner's code met so far → its globals
        self.cell: CodeType | None = None  # the code object of the recorded block
        self.cell_line = boundary.f_lineno if boundary is not None else 0
        if include_boundary and boundary is not None:
            self.cell = boundary.f_code

    def here(self, depth: int = 1) -> tuple[int | None, FrameType | None]:
        """Place of the learner's code that is running, and the outermost of its frames."""
        frame: FrameType | None = sys._getframe(depth)
        kinds, boundary = self._kinds, self.boundary
        key: list = []
        outer = None
        while frame is not None:
            if frame is boundary:
                if self.include_boundary or not key:  # a call of library code alone: the line that called record
                    key.append((frame.f_code, frame.f_lineno))
                    outer = frame
                break
            code = frame.f_code
            try:
                mine = kinds[code]
            except KeyError:
                mine = kinds[code] = self._kind(code)
                if mine:
                    self.namespaces[code] = frame.f_globals
            if mine:
                key.append((code, frame.f_lineno))
                outer = frame
            elif mine is None:
                self._refuse_compiled(frame)
            frame = frame.f_back
        if not key:
            return None, None
        return self._intern(tuple(key)), outer

    def learners(self) -> Iterator[FrameType]:
        """The learner's frames that run now, innermost first."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame is not self.boundary:
            if not is_library(frame.f_code.co_filename):
                yield frame
            frame = frame.f_back
        if frame is not None and self.include_boundary:
            yield frame

    def of_traceback(self, traceback: object) -> int | None:
        """The place at which an exception was raised, the innermost line of the learner's code."""
        key: list = []
        started = self.boundary is None or not self.include_boundary
        while traceback is not None:
            frame = traceback.tb_frame
            if frame is self.boundary:
                started = True
                if self.include_boundary:
                    key.append((frame.f_code, traceback.tb_lineno))
            elif started and not is_library(frame.f_code.co_filename):
                key.append((frame.f_code, traceback.tb_lineno))
            traceback = traceback.tb_next
        return self._intern(tuple(reversed(key))) if key else None

    def _kind(self, code: CodeType) -> bool | None:
        if private.compiled_frame(code.co_qualname, code.co_filename):
            return None
        return not is_library(code.co_filename)

    def _refuse_compiled(self, frame: FrameType) -> None:
        caller = frame.f_back
        while caller is not None and caller is not self.boundary and is_library(caller.f_code.co_filename):
            caller = caller.f_back
        line = f"Line {caller.f_lineno}" if caller is not None else "The recorded code"
        self.refusal = (
            f"{line} calls a function compiled by torch.compile. Under a recording it would run uncompiled, without a "
            "word, and you would see another program's memory. Record the plain function instead: call the one you "
            "gave to torch.compile, or module._orig_mod."
        )
        raise RecordError(self.refusal)

    def _intern(self, key: tuple) -> int:
        found = self._place_ids.get(key)
        if found is None:
            frames = tuple(
                Frame(self._source(code), line, "" if is_top_level(code) else code.co_qualname)
                for code, line in reversed(key)
            )
            if self.cell is None:
                self.cell = key[-1][0]
            found = self._place_ids[key] = len(self.places)
            self.places.append(Place(found, frames))
        return found

    def _source(self, code: CodeType) -> int:
        name = code.co_filename
        whole = is_notebook(name) or is_top_level(code)
        key = name if whole else (name, code.co_firstlineno)
        if key not in self._source_ids:
            lines = [line.rstrip("\n") for line in linecache.getlines(name)]
            first = 1
            if not whole and lines:
                first = code.co_firstlineno
                last = max((line for _, _, line in code.co_lines() if line), default=first)
                lines = lines[first - 1 : last]
            number = len(self._source_ids)
            self._source_ids[key] = number
            label = "a cell" if is_notebook(name) else os.path.basename(name)
            self.sources.append(Source(number, label, first, tuple(lines)))
        return self._source_ids[key]

    def close(self) -> None:
        """The block is over: where it lies is settled while its source is at hand, and its frame is let go."""
        self.block = self._recorded_block()
        self.boundary = None
        self.namespaces.clear()

    def _recorded_block(self) -> tuple[int | None, tuple[int, int]]:
        """Source and line range of the recorded block: the `with` statement around the entry line, or the function."""
        if self.cell is None:
            return None, (0, 0)
        number = self._source(self.cell)
        source = self.sources[number]
        whole = (source.first, source.first + max(len(source.lines), 1) - 1)
        if not self.include_boundary or not source.lines:
            return number, whole
        try:
            tree = ast.parse("\n" * (source.first - 1) + _dedent(source.lines))
        except SyntaxError:  # a cell with magics: show all of it
            return number, whole
        spans = [
            (node.lineno, node.end_lineno or node.lineno)
            for node in ast.walk(tree)
            if isinstance(node, (ast.With, ast.AsyncWith))
            and node.lineno <= self.cell_line <= max(item.context_expr.end_lineno or 0 for item in node.items)
        ]
        return number, max(spans, default=whole)


def _dedent(lines: tuple[str, ...]) -> str:
    import textwrap

    return textwrap.dedent("\n".join(lines))


def variables(frame: FrameType) -> list[tuple[str, Any]]:
    """Variables of a frame that its own code names, with their values; the frame is left as it was."""
    code: CodeType = frame.f_code
    local = frame.f_locals
    if not code.co_flags & 1:  # a module or a cell: its real namespace
        return [(n, local[n]) for n in code.co_names if n in local]
    found = [(n, local[n]) for n in (*code.co_varnames, *code.co_cellvars, *code.co_freevars) if n in local]
    _forget_snapshot(local)
    shared = frame.f_globals
    return found + [(n, shared[n]) for n in code.co_names if n in shared]


def _forget_snapshot(variables: Any) -> None:
    """Before Python 3.13, f_locals is a copy that the frame keeps: emptied, or it would hold deleted tensors."""
    # Its owners: the frame, the caller's name, our name, getrefcount's argument. More: the learner called locals().
    if type(variables) is dict and sys.getrefcount(variables) <= 4:
        variables.clear()
