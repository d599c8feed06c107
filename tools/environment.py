"""Make a virtual environment and install what the course needs; do nothing where that was done before.

    python tools/environment.py [--dir .venv] [--test] [--colab] [options for pip ...]

Standard library only, and readable by older Pythons too, so that they get a sentence and not a syntax error.
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST, NEWEST = (3, 11), (3, 13)
# Colab brings a front end of its own.
NOT_ON_COLAB = {"jupyterlab"}


def lines(name):
    """The requirements in a file, without comments."""
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        stripped = [line.split("#")[0].strip() for line in file]
    return [line for line in stripped if line]


def served():
    """The requirements of pyproject.toml: name -> the whole line with its range."""
    import tomllib

    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        return {package(line): line for line in tomllib.load(file)["project"]["dependencies"]}


def package(requirement):
    return re.split(r"[<>=!~ \[;]", requirement, maxsplit=1)[0].lower()


def release(version):
    """'2.13.0+cpu' -> (2, 13, 0); of '2.11.0a0' the first two numbers."""
    return tuple(int(part) for part in re.findall(r"\d+(?=[.+]|$)", version.split("+")[0]))


def installed_torch():
    """The version of torch in this environment or None; importing torch itself would take seconds."""
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def wanted(colab, test, torch):
    """What to ask pip for, where this torch is installed already (None: none is)."""
    if colab:
        ranges = [line for name, line in served().items() if name not in NOT_ON_COLAB]
        return ranges + lines("requirements-dev.txt")
    asked = lines("requirements.txt") + (lines("requirements-dev.txt") if test else [])
    floor = served()["torch"].split(">=")[1]
    if torch and release(torch) >= release(floor):
        # A reader's own build stays, be it older, newer or for another device.
        asked = [line for line in asked if package(line) != "torch"]
    return asked


def python_in(directory):
    windows = os.path.join(directory, "Scripts", "python.exe")
    return windows if os.path.exists(windows) else os.path.join(directory, "bin", "python")


def install(directory, colab, test, pip_options):
    """Runs inside the environment."""
    torch = installed_torch()
    asked = wanted(colab, test, torch)
    constraints = ["-c", "constraints-colab.txt"] if colab else []
    # One entry a requirement, so that the readers' set counts as installed where the tests' set is.
    needed = set(asked + (lines("constraints-colab.txt") if colab else []))
    stamp = os.path.join(directory, "installed.json")
    if torch and os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as file:
            if needed <= set(json.load(file)):
                return 0
    print(f"Installing the requirements into {directory} (a few minutes the first time)", flush=True)
    if torch and not colab and f"torch=={torch.split('+')[0]}" not in lines("requirements.txt"):
        print(f"The torch {torch} that is there is kept; the tested one stands in requirements.txt.", flush=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    code = subprocess.call(pip + constraints + pip_options + asked)
    if code:
        print("pip could not install the requirements; its own message stands above.")
        return code
    with open(stamp, "w", encoding="utf-8") as file:
        json.dump(sorted(needed), file)
    return 0


def main(args):
    os.chdir(ROOT)
    directory = ".venv"
    rest = list(args)
    if "--dir" in rest:
        at = rest.index("--dir")
        directory = rest[at + 1]
        del rest[at : at + 2]
    python = python_in(directory)
    inside = os.path.realpath(sys.prefix) == os.path.realpath(directory)
    if not inside and os.path.exists(python):
        return subprocess.call([python, __file__, *args])
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        have = ".".join(str(part) for part in sys.version_info[:3])
        print(f"The course needs Python 3.11, 3.12 or 3.13, and {sys.executable} is Python {have}.")
        print("Where you have one of these, name it: make lab PYTHON=python3.12")
        return 1
    if not inside:
        print(f"Making a virtual environment in {directory}", flush=True)
        subprocess.check_call([sys.executable, "-m", "venv", directory])
        return subprocess.call([python_in(directory), __file__, *args])
    options = [arg for arg in rest if arg not in ("--test", "--colab")]
    return install(directory, "--colab" in rest, "--test" in rest, options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
