"""One row of a table in a process of its own, with a time limit: what hangs or raises is told in its cell."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def cell(module: str, *arguments: str, seconds: int) -> dict[str, Any] | str:
    """What `python -m module arguments` prints as JSON on its last line; a few words where it raised or hung."""
    command = [sys.executable, "-W", "ignore", "-m", module, *arguments]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"stopped after {seconds} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1])
    raised = [line.split(": ", 1) for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    if not raised:
        return f"ended with status {done.returncode}"
    kind, message = raised[-1]
    return f"{kind.rsplit('.')[-1]}: {message.split('. ')[0]}"


def load() -> str:
    """Other work on the machine, where the system tells."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs" if hasattr(os, "getloadavg") else ""


def largest_ram() -> int:
    """The most bytes of RAM that this process ever held.

    Where there is /proc, from there: getrusage counts the process that this one was forked from too, before it became
    another program.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
