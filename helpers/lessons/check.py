"""check(): runs a learner's answer to an exercise and says what it shows. What an exercise asks stands in its chapter.

A chapter's module has EXERCISES, name → Exercise. An exercise examines the answer: it returns a sentence (right), or
raises Mistake with the key of the message that helps, or NotAttempted. The learner's own code runs through `run`.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import io
import linecache
import random
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import answers
from .errors import LessonError
from .show import card, paragraph
from .show import show as display

SCHEMA = 1
#: Exercise → the module that has it: names are known without loading what they need.
CHAPTERS = {
    **dict.fromkeys(("own_autograd", "own_sigmoid", "own_div", "kept_bytes", "bug_data"), "chapter_01"),
    **dict.fromkeys(("mlp_bytes", "attention_bytes", "layer_bytes", "bug_hooks"), "chapter_02"),
}

RIGHT, WRONG, NOT_ATTEMPTED, RAISED = "right", "wrong", "not attempted", "raised"
#: Worst first: of several attempts the best is kept.
STATUSES = (NOT_ATTEMPTED, RAISED, WRONG, RIGHT)
TITLES = {RIGHT: "✓ right", WRONG: "not yet", NOT_ATTEMPTED: "not attempted yet", RAISED: "your code raised an error"}

#: How many lines of the learner's own prints are let through: a check runs their code hundreds of times.
MOST_PRINTED = 20

#: How many lines with a blank are quoted.
MOST_QUOTED = 3

#: Tests set it: a fault of our own then raises instead of being told as the learner's.
strict = False

_HELPERS = Path(__file__).resolve().parents[1]
_INSTALLED = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")} | {str(_HELPERS), "<frozen"})


class Mistake(Exception):
    """A wrong answer that has a message of its own: `key` names the message, `facts` fill it."""

    def __init__(self, key: str, /, **facts: object) -> None:
        super().__init__(key)
        self.key, self.facts = key, facts


class NotAttempted(Exception):
    """Nothing to examine yet. Its text, if any, says what is left to do, and stands before the exercise's `start`."""


class Raised(Exception):
    """The learner's code raised `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


@dataclass(frozen=True, slots=True)
class Exercise:
    """examine: answer → sentence, or raises. start: what to do first. mistakes: key → message, with {facts}."""

    examine: Callable[[Any], str]
    start: str
    mistakes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What check() found. status: one of STATUSES. message: plain text. mistake: the key of a wrong answer's message.

    `text`, `html` and `data`, which check() shows, say the same.
    """

    exercise: str
    status: str
    message: str
    mistake: str | None = None

    @property
    def title(self) -> str:
        return f"{self.exercise} · {TITLES[self.status]}"

    @property
    def text(self) -> str:
        return "\n".join([self.title, *(f"    {line}" for line in self.message.splitlines())])

    @property
    def html(self) -> str:
        return card(paragraph(self.title, strong=True) + "".join(map(paragraph, self.message.splitlines())))

    @property
    def data(self) -> dict:
        return {"schema": SCHEMA, "exercise": self.exercise, "status": self.status, "mistake": self.mistake}


def check(name: str, answer: object = None, *, show: bool = True) -> Outcome | None:
    """Run an answer to exercise `name` and show: right, what went wrong, that it raised, or that it waits.

    answer: what the exercise asks for, a function or a class. Nothing that it does ends in an error here, apart from
    Ctrl-C; random state, grad mode and default dtype are afterwards as before. show=False: shows and stores nothing,
    and gives back the outcome, with `.status`, `.mistake`, `.message`. Raises LessonError for an unknown name.
    """
    outcome = judge(name, answer)
    if not show:
        return outcome
    display(outcome.text, outcome.html, outcome.data, "check")
    kept = answers.get("exercises", name)
    kept = kept if isinstance(kept, dict) else {}  # a person may have edited the file
    before, attempts = kept.get("best"), kept.get("attempts")
    best = max(outcome.status, before if before in STATUSES else NOT_ATTEMPTED, key=STATUSES.index)
    attempts = (attempts if isinstance(attempts, int) else 0) + (outcome.status != NOT_ATTEMPTED)
    answers.put("exercises", name, {"best": best, "attempts": attempts})
    return None


def judge(name: str, answer: object) -> Outcome:
    """Examine an answer; displays and stores nothing. Raises LessonError for an unknown name."""
    exercise = exercise_of(name)
    if answer is None or answer is ...:
        return Outcome(name, NOT_ATTEMPTED, exercise.start)
    with guarded():
        try:
            return Outcome(name, RIGHT, exercise.examine(answer))
        except KeyboardInterrupt:
            raise
        except NotAttempted as waits:
            return Outcome(name, NOT_ATTEMPTED, f"{waits} {exercise.start}".strip())
        except Mistake as mistake:
            message = exercise.mistakes[mistake.key].format(**mistake.facts)
            return Outcome(name, WRONG, message, mistake.key)
        except Raised as raised:
            error = raised.error
        except BaseException as unexpected:  # what the learner's code handed over may misbehave anywhere
            if strict:
                raise
            error = unexpected
        if _is_blank(error):
            left = blanks(their_line(error)) or f"A blank `...` is still there{_place(error)}."
            return Outcome(name, NOT_ATTEMPTED, f"{left} {exercise.start}")
        return Outcome(name, RAISED, _account(error))


def exercise_of(name: str) -> Exercise:
    """The exercise of that name, its chapter loaded. Raises LessonError for an unknown one."""
    if not isinstance(name, str) or name not in CHAPTERS:
        near = difflib.get_close_matches(str(name), CHAPTERS, 1)
        hint = f'Did you mean "{near[0]}"? ' if near else ""
        raise LessonError(f"check() knows no exercise {name!r}. {hint}There are: {', '.join(CHAPTERS)}.")
    return importlib.import_module(f".{CHAPTERS[name]}", __package__).EXERCISES[name]


def run(function: Callable, *arguments: object) -> Any:
    """What the learner's function gives back. Raises Raised for its errors, NotAttempted if it gives nothing."""
    try:
        with torch.enable_grad():  # puts the mode back that the learner's code may leave changed
            result = function(*arguments)
    except KeyboardInterrupt:
        raise
    except NotImplementedError:
        raise NotAttempted() from None
    except (Mistake, NotAttempted, Raised):
        raise
    except BaseException as error:  # exit() too
        raise Raised(error) from error
    if result is None or result is ...:
        raise gave_nothing(function, result)
    return result


def gave_nothing(function: object, result: object = None) -> NotAttempted:
    """A function that gave None is still the stub, or has a blank, or somebody forgot a `return`."""
    name, code = getattr(function, "__name__", ""), getattr(function, "__code__", None)
    if result is ... and code is not None:
        return NotAttempted(blanks(traceback.FrameSummary(code.co_filename, code.co_firstlineno, name)))
    written = code is not None and code.co_names and name.isidentifier()
    return NotAttempted(f"`{name}` gives `None`: does it end with `return`?" if written else "")


@contextmanager
def guarded() -> Iterator[None]:
    """Puts back what learner's code may change: random states, grad mode, default dtype.

    Inside, grad mode is on, and tensors are made on the CPU.
    """
    dtype, state = torch.get_default_dtype(), random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy else None
    elsewhere = torch.empty(0).device.type != "cpu"  # the mode slows each call: only where it is needed
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with (
            torch.random.fork_rng(devices),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.device("cpu") if elsewhere else nullcontext(),
            redirect_stdout(_FewLines(sys.stdout)) as printed,
        ):
            yield
            printed.end()
    finally:
        torch.set_default_dtype(dtype)
        random.setstate(state)
        if numpy:
            numpy.random.set_state(numpy_state)


class _FewLines(io.TextIOBase):
    """Lets the first lines of what is printed through, and counts the others."""

    def __init__(self, out: Any) -> None:
        self.out, self.lines = out, 0

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            if self.lines < MOST_PRINTED:
                self.out.write(line)
            self.lines += line.endswith("\n")
        return len(text)

    def end(self) -> None:
        if self.lines > MOST_PRINTED:
            self.out.write(f"… and {self.lines - MOST_PRINTED:,} more lines that your code prints.\n")


#: Error's type, what its message says → where to look. {0} is the first group of what it says, {1} the function.
HINTS = (
    (RecursionError, "", "A function calls itself without end. Which call should have been another function's?"),
    (SystemExit, "", "`exit()` would end the whole notebook; a function hands its result back with `return`."),
    (TypeError, r"positional argument", "Compare the `def` or `lambda` line with the call: how many are handed over?"),
    (TypeError, r"'Value' object is not iterable", "One Value stands where a tuple of them is wanted: `(a,)`."),
    (
        TypeError,
        r"not callable",
        "Brackets stand after what is no function. Is one name used for two things?",
    ),
    (AttributeError, r"'Value' object has no attribute 'edges'", "The walk is from node to node, from `self.node` on."),
    (
        AttributeError,
        r"'Node' object has no attribute '(?:node|grad|data|backward)'",
        "`edges` lead to nodes, and a node has `formula`, `saved`, `edges` and `number`, but no tensor of its own. The "
        "gradients on their way need a place of yours: a dictionary from node to gradient.",
    ),
    (
        TypeError,
        r"not supported between instances of 'Node'",
        "Nodes have no order of their own; sort by a key, `key=lambda node: node.number`.",
    ),
    (
        TypeError,
        r"(?:\+=?: '\w+' and 'tuple'|can only concatenate tuple)",
        "A formula gives a tuple, one part for each edge: take them apart with `zip(node.edges, parts)`.",
    ),
    (
        (TypeError, AttributeError),
        r"\bValue\b",
        "A Value is no tensor and knows only the operators that you gave it: its numbers are in `.data`. Inside a "
        "formula everything is a tensor already.",
    ),
    (
        AttributeError,
        r"'tuple' object",
        "A tuple stands where one thing was expected: a star forgotten, as in `function(*inputs)`, or a comma too "
        "many?",
    ),
    (AttributeError, "", "Look at the type of what stands before the dot: `print(type(…))`."),
    (
        UnboundLocalError,
        r"variable '(\w+)'(?= .*nested)",
        "Inside `{1}`, `{0}` is a new local name, because something is assigned to it there. Write `nonlocal {0}` as "
        "the first line of `{1}`, or append to a list, which needs no assignment.",
    ),
    (
        UnboundLocalError,
        r"variable '(\w+)'",
        "`{0}` is a local name of `{1}`, and nothing has been assigned to it yet when it is read.",
    ),
    (NameError, "", "A spelling mistake, or a cell above that was not run since the kernel started."),
    (
        RuntimeError,
        r"size of tensor|shapes cannot be multiplied|size mismatch|expanded size|dimension|at least \d?D",
        "Two shapes do not fit. Print both on the line before; a gradient has the shape of what it is the gradient of.",
    ),
    (
        RuntimeError,
        r"modified by an inplace operation",
        "Something that the graph keeps was changed in place before backward. Who shares memory with it?",
    ),
    (RuntimeError, r"leaf Variable that requires grad", "An input that needs a gradient was changed in place."),
    (
        RuntimeError,
        r"does not require grad",
        "The graph was cut on the way: look for `detach`, `.data`, `.item()` or `no_grad`.",
    ),
    (RuntimeError, r"second time|second backward", "What a node saved is gone after one backward."),
    (KeyError, "", "What is looked up is not there yet, or no longer. In which order are things put in and taken out?"),
    (ZeroDivisionError, "", "A plain number was divided by zero, not a tensor."),
)


def _account(error: BaseException) -> str:
    """Type, message and line of an error, and where to look."""
    said = re.sub(r" at 0x[0-9a-fA-F]+", "", (_words(error).splitlines() or [""])[0])
    said = said if len(said) <= 240 else said[:239] + "…"
    hint = _hint(error) or "Run that line by itself on a small tensor, and look at the types and shapes in it."
    named = f"`{type(error).__name__}`" + (f": {said}" if said else "")
    return f"{named}{'' if named[-1] in '.!?' else '.'}\n{_place(error, sentence=True)}{hint}"


def _hint(error: BaseException) -> str:
    """Where to look; "" where nothing is known of such an error."""
    code = _code(error)
    nested = " (nested)" if code and "<locals>" in code.co_qualname else ""
    for kind, says, hint in HINTS:
        if isinstance(error, kind) and (match := re.search(says, _words(error) + nested)):
            return hint.format(*(match.groups() or [""]), code.co_name if code else "")
    return ""


def _code(error: BaseException) -> Any:
    """The code of the learner's that the error came up in; None if there is none."""
    found, trace = None, error.__traceback__
    while trace:
        code = trace.tb_frame.f_code
        found = found if code.co_filename.startswith(_INSTALLED) else code
        trace = trace.tb_next
    return found


def _words(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # an error of the learner's own may fail at that too
        return ""


def _is_blank(error: BaseException) -> bool:
    return isinstance(error, (TypeError, AttributeError)) and "ellipsis" in _words(error).lower()


def their_line(error: BaseException) -> traceback.FrameSummary | None:
    """The learner's own line where the error came up."""
    frames = traceback.extract_tb(error.__traceback__, limit=-50)
    return next((frame for frame in reversed(frames) if not frame.filename.startswith(_INSTALLED)), None)


def blanks(at: traceback.FrameSummary | None) -> str:
    """Where each `...` stands in the statement of the learner's cell that `at` is in, as a sentence; "" for none."""
    lines = linecache.getlines(at.filename) if at else []
    try:
        cell = ast.parse("".join(lines)).body
    except (SyntaxError, ValueError):
        return ""
    here = [statement for statement in cell if _first(statement) <= at.lineno <= statement.end_lineno]
    found = next(filter(None, map(_ellipses, (here, cell))), [])  # what the function uses may stand above it
    if not found:
        return ""
    quoted = [f"`{lines[n - 1].strip().replace('`', chr(39))}`" for n in found]
    quoted = [*quoted[:MOST_QUOTED], "…"] if len(quoted) > MOST_QUOTED else quoted
    cell_words = f"the cell with `{at.name}`" if at.name.isidentifier() else "its cell"
    lead = "A blank `...` is still there, in line" if len(found) == 1 else "Blanks `...` are still there, in lines"
    return f"{lead} {_listed(map(str, found))} of {cell_words}: {_listed(quoted)}."


def _first(statement: ast.stmt) -> int:
    """Its first line, decorators too."""
    return min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])


def _ellipses(statements: list[ast.stmt]) -> list[int]:
    """Lines in which a `...` stands for something to be written; one in an index, as in `x[..., 0]`, does not."""
    found, nodes = set(), list(statements)
    for node in nodes:  # grows as it goes
        nodes += [node.value] if isinstance(node, ast.Subscript) else ast.iter_child_nodes(node)
        if isinstance(node, ast.Constant) and node.value is ...:
            found.add(node.lineno)
    return sorted(found)


def _listed(words: Iterable[str]) -> str:
    """ "4", "4 and 5", "4, 5 and 6"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _place(error: BaseException, sentence: bool = False) -> str:
    """The learner's own line where the error came up; "" where there is none."""
    if (line := their_line(error)) is None:
        return ""
    code = f": `{line.line.strip().replace('`', chr(39))}`" if line.line and line.line.strip() else ""
    where = f"line {line.lineno} of the cell with `{line.name}`{code}" if line.name.isidentifier() else ""
    where = where or f"line {line.lineno} of its cell{code}"
    return f"It came up in {where}.\n" if sentence else f", in {where}"
