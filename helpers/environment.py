"""What this course runs on here, and what is missing."""

from __future__ import annotations

import html
import importlib.metadata
import os
import platform
from dataclasses import dataclass

#: Name for pip → what the course needs it for.
WANTED = {
    "matplotlib": "comparisons of memory",
    "ipywidgets": "explorers",
    "torchviz": "PyTorch's best-known graph pictures, beside ours",
    "graphviz-pure": "laying out graphs as in this course's own pictures",
}


@dataclass(frozen=True)
class Environment:
    """Rows of (what, found), and the packages that are missing."""

    rows: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]

    @property
    def advice(self) -> str:
        if not self.missing:
            return "Nothing is missing."
        return f"Missing: {', '.join(self.missing)}. This mends it: pip install {' '.join(self.missing)}"

    def __str__(self) -> str:
        width = max(len(what) for what, _ in self.rows)
        return "\n".join([*(f"{what:<{width}}  {found}" for what, found in self.rows), self.advice])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{html.escape(a)}</th>'
            f'<td style="text-align:left">{html.escape(b)}</td></tr>'
            for a, b in self.rows
        )
        return f"<table><caption style='text-align:left'>{html.escape(self.advice)}</caption>{rows}</table>"


def environment() -> Environment:
    """Versions, device, cores and the layout program, and the one command that installs what is missing."""
    import torch

    from .figures import layout_program

    rows = [("Python", platform.python_version()), ("torch", torch.__version__)]
    missing = []
    for package, needed_for in WANTED.items():
        try:
            rows.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
            rows.append((package, f"missing: needed for {needed_for}"))
    if torch.cuda.is_available():
        name, total = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
        rows.append(("GPU", f"{name}, {total / 2**30:.1f} GiB"))
    else:
        rows.append(("GPU", "none: everything runs on the CPU"))
    rows += [("cores", str(os.cpu_count())), ("graphs laid out by", layout_program())]
    return Environment(tuple(rows), tuple(missing))
