"""Restart, run and normalise notebooks, so that a second run changes no byte.

python -m tools.notebooks [NOTEBOOK ...]      (all of them where none is named)
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbval.plugin import coalesce_streams, get_sanitize_patterns

from tools import stamp

CELL_TIMEOUT = 120
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
SANITIZE = Path(__file__).with_name("nbval-sanitize.cfg")
# What Jupyter, Colab and nbclient leave in metadata, and what differs from run to run.
PASSING_METADATA = ("execution", "ExecuteTime", "collapsed", "scrolled", "trusted", "outputId", "id")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def private_ipython():
    """No start-up file, no history and no answers of the person who runs this."""
    os.environ["GRADIENTS_ANSWERS"] = "off"
    os.environ["IPYTHONDIR"] = tempfile.mkdtemp(prefix="ipython-")


def client(notebook, folder):
    # The kernel of this very environment, whatever the notebook's metadata names.
    return NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        store_widget_state=False,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )


def run(notebook, folder):
    """Run all cells in a fresh kernel that starts in that folder; the outputs land in the notebook."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    # A kernel's own messages go to its error stream, a cell's do not.
    client(notebook, folder).execute(stderr=subprocess.DEVNULL)


def normalise(notebook):
    """Leave only what the same code gives again: in outputs, counts, ids and metadata."""
    count = 0
    for cell in notebook.cells:
        for key in PASSING_METADATA:
            cell.metadata.pop(key, None)
        if cell.cell_type != "code":
            continue
        ran = cell.execution_count is not None
        count += ran
        cell.execution_count = count if ran else None
        cell.outputs = [normal_output(output, count) for output in coalesce_streams(cell.outputs)]
    give_ids(notebook)
    notebook.metadata["kernelspec"] = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    notebook.metadata["language_info"] = {"name": "python"}
    notebook.metadata.pop("widgets", None)
    notebook.nbformat, notebook.nbformat_minor = 4, 5


def normal_output(output, count):
    if "data" in output:
        output.data.pop(WIDGET_VIEW, None)
    if output.output_type == "execute_result":
        output.execution_count = count
    if output.output_type == "error":
        # The frames in the notebook stay; those in installed files name this machine's folders.
        output.traceback = [entry for entry in output.traceback if not ANSI.sub("", entry).startswith("File ")]
    return output


def give_ids(notebook):
    """Ids that are there stay, since students' copies are merged by them; new ones come from place and source."""
    seen = set()
    for at, cell in enumerate(notebook.cells):
        if not cell.get("id") or cell.id in seen:
            cell.id = hashlib.sha256(f"{at}\n{cell.source}".encode()).hexdigest()[:8]
        seen.add(cell.id)


def blank_figures(text):
    """What nbval's sanitize file does to a text before it is compared."""
    for pattern, replacement in get_sanitize_patterns(SANITIZE.read_text(encoding="utf-8")):
        text = re.sub(pattern, replacement, text)
    return text


def comparable(outputs):
    """The part of a cell's outputs that strict nbval compares."""
    compared = []
    for output in coalesce_streams(nbformat.from_dict(outputs)):
        if output.output_type == "stream":
            compared.append((output.name, blank_figures(output.text)))
        elif output.output_type == "error":
            compared.append((output.ename, output.evalue))
        else:
            skipped = ("image/png", "image/jpeg", WIDGET_VIEW)
            kept = {
                m: blank_figures(d) if isinstance(d, str) else d for m, d in output.data.items() if m not in skipped
            }
            compared.append(kept)
    return compared


def run_twice(notebook, folder):
    """Run every cell twice in a row (`history` cells once); a sentence for each that gave not what is committed."""
    problems = []
    runner = client(notebook, folder)
    with runner.setup_kernel(stderr=subprocess.DEVNULL):
        for at, cell in enumerate(notebook.cells):
            if cell.cell_type != "code" or not cell.source.strip():
                continue
            tags = cell.metadata.get("tags", [])
            committed = comparable(cell.outputs)
            for turn in ("first",) if "history" in tags else ("first", "second"):
                try:
                    runner.execute_cell(cell, at)
                except CellExecutionError as error:
                    return [*problems, f"cell {at} raised, the {turn} time it ran: {error.ename}: {error.evalue}"]
                if "nbval-ignore-output" not in tags and comparable(cell.outputs) != committed:
                    problems.append(f"cell {at} gave another output than is committed, the {turn} time it ran")
    return problems


def renew(path):
    """Run one notebook file and write it back; returns the seconds it took and whether a byte changed."""
    private_ipython()
    start, before = time.perf_counter(), path.read_bytes()
    notebook = nbformat.read(path, as_version=4)
    stamp.stamp(notebook, path.name, stamp.course())
    try:
        run(notebook, path.parent)
    except (CellExecutionError, DeadKernelError) as error:
        raise SystemExit(f"{path.name}: {error}") from None
    normalise(notebook)
    stamp.write(path, notebook)
    return time.perf_counter() - start, before != path.read_bytes()


def main(args):
    paths = [Path(arg).resolve() for arg in args] or stamp.notebooks()
    # Two at a time: a kernel's own threads fill the rest of a laptop.
    with ProcessPoolExecutor(max_workers=2) as pool:
        for path, (seconds, changed) in zip(paths, pool.map(renew, paths), strict=True):
            print(f"{path.name}: {seconds:.0f} s, {'written anew' if changed else 'no byte changed'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
