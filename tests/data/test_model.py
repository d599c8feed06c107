"""What a recording is made of is frozen, without torch, and imports run one way."""

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import data
from helpers.data import model

from .samples import ALL, by_hand

HELPERS = Path(data.__file__).parents[1]
CLASSES = [c for c in vars(model).values() if dataclasses.is_dataclass(c) and c.__module__ == model.__name__]
#: Which part may import which: of ours, nothing else.
MAY_IMPORT = {
    "data": set(),
    "record": {"data"},
    "gpu": {"data", "record"},
    "figures": {"data"},
    "lessons": {"data", "record", "gpu", "figures", "run"},  # run: what a reader calls, below the lessons too
}
TOP_LEVEL = {
    "run": {"data", "record", "gpu", "figures"},
    "environment": {"figures"},
    "__init__": {"environment", "record", "run", "lessons"},
}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_frozen(kind):
    assert kind.__dataclass_params__.frozen and "__dict__" not in dir(kind) and hasattr(kind, "__slots__")


def test_every_part_of_a_recording_is_plain():
    plain = (int, str, bool, type(None))

    def look(value):
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                with pytest.raises(dataclasses.FrozenInstanceError):
                    setattr(value, field.name, 3)
                look(getattr(value, field.name))
        elif isinstance(value, tuple):
            for item in value:
                look(item)
        else:
            assert type(value) in plain, value

    look(by_hand())
    for name in ("checkpointed", "second_order", "failed"):
        look(ALL[name]())


def imports_of(path):
    """Modules of ours that a file imports, as (part, where): anywhere in it, in functions too."""
    package = path.relative_to(HELPERS.parent).with_suffix("").parts[:-1]
    found = []
    for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(item, ast.Import):
            names = [alias.name.split(".") for alias in item.names]
        elif isinstance(item, ast.ImportFrom):
            base = list(package[: len(package) - item.level + 1]) if item.level else []
            stem = base + (item.module.split(".") if item.module else [])
            names = [stem + [alias.name] for alias in item.names]
        else:
            continue
        found.extend((name, item.lineno) for name in names)
    return found


FILES = sorted(HELPERS.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(HELPERS)))
def test_imports_run_one_way(path):
    parts = path.relative_to(HELPERS).with_suffix("").parts
    part = parts[0]
    allowed = MAY_IMPORT.get(part) if len(parts) > 1 else TOP_LEVEL.get(part)
    assert allowed is not None, f"{part}: say in this test what it may import"
    for name, line in imports_of(path):
        if name[0] == "helpers":
            target = name[1] if len(name) > 1 else ""
            assert target == part or target in allowed, f"line {line} imports {'.'.join(name)}"
        if name[0] == "torch":
            assert part not in ("data", "figures"), f"line {line} imports torch"


def test_private_torch_stands_in_one_module():
    """`torch._C` and its like, apart from what stands in private.py."""
    for path in FILES:
        if path.name == "private.py":
            continue
        for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == "torch":
                assert item.attr.startswith("__") or not item.attr.startswith("_"), (
                    f"{path.name}, line {item.lineno}: torch.{item.attr}"
                )


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        cwd=HELPERS.parent,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_data_needs_no_torch():
    """Read as a package of its own, without the helpers around it."""
    code = f"sys.path.insert(0, {str(HELPERS)!r}); import data; data.loads"
    modules = modules_after(code)
    assert "torch" not in modules and "numpy" not in modules and "helpers" not in modules


def test_the_face_loads_no_plots_and_no_widgets():
    beyond = modules_after("import helpers") - modules_after("import torch")
    tops = {name.split(".")[0] for name in beyond}
    assert not tops & {"matplotlib", "ipywidgets", "IPython", "torchviz", "graphviz", "graphviz_pure", "PIL"}
    assert {name for name in beyond if name.startswith("helpers.figures")} == set()


def test_a_recording_is_read_without_torch_running():
    """The folds and the figures of a saved recording use data alone."""
    code = """
import helpers.figures, torch
for name in list(vars(torch)):
    pass
from helpers.data import loads, timeline
"""
    assert "helpers.figures" in modules_after(code)
