"""What every notebook has the same: the set-up cell and the Colab badge, stamped in from one place each.

    python -m tools.stamp [REPO=owner/name] [REF=v1.0.0]

The set-up cell's source is tools/setup_cell.py; the repository and its tag stand in pyproject.toml, [tool.course].
"""

import re
import sys
import tomllib
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
BADGE = re.compile(r"\[!\[[^\]]*\]\([^)]*colab-badge\.svg\)\]\([^)]*\)")
SETUP_METADATA = {"tags": ["setup"], "cellView": "form", "jupyter": {"source_hidden": True}}


def course(root=ROOT):
    """The repository (owner/name) and the tag that badges and set-up cells point at."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["course"]


def notebooks(root=ROOT):
    return sorted((root / "notebooks").glob("*.ipynb"))


def badge(name, where):
    page = f"https://colab.research.google.com/github/{where['repository']}/blob/{where['ref']}/notebooks/{name}"
    return f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({page})"


def setup_source(where):
    text = (ROOT / "tools/setup_cell.py").read_text(encoding="utf-8").strip()
    return text.replace("OWNER/REPO", where["repository"]).replace('"REF"', f'"{where["ref"]}"')


def with_badge(source, line):
    """The source of a markdown cell with its badge renewed, or set under its title where there was none."""
    if BADGE.search(source):
        return BADGE.sub(lambda _: line, source)
    return re.sub(r"^(# .*)$", lambda title: f"{title[1]}\n\n{line}", source, count=1, flags=re.M)


def stamp(notebook, name, where):
    """Renew the badge and the set-up cell of a notebook in place; a sentence where it has no room for one."""
    titles = [c for c in notebook.cells if c.cell_type == "markdown" and re.search(r"^# ", c.source, re.M)]
    setups = [c for c in notebook.cells if c.cell_type == "code" and "setup" in c.metadata.get("tags", [])]
    if not titles or len(setups) != 1:
        raise SystemExit(f"{name}: wants a title (# ...) and exactly one code cell tagged `setup`.")
    titles[0].source = with_badge(titles[0].source, badge(name, where))
    setups[0].source = setup_source(where)
    setups[0].metadata.update(SETUP_METADATA)


def set_course(root, **changes):
    """Rewrite values of [tool.course] in pyproject.toml."""
    path = root / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    for key, value in changes.items():
        text, found = re.subn(rf'^{key} = ".*"$', f'{key} = "{value}"', text, flags=re.M)
        if found != 1:
            raise SystemExit(f"pyproject.toml: no single line `{key} = ...`.")
    path.write_text(text, encoding="utf-8", newline="\n")


def write(path, notebook):
    """As nbformat writes it, with the same line ending on every system."""
    path.write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8", newline="\n")


def main(args):
    names = {"REPO": "repository", "REF": "ref"}
    given = dict(arg.split("=", 1) for arg in args)
    if not set(given) <= set(names):
        raise SystemExit(__doc__)
    set_course(ROOT, **{names[key]: value for key, value in given.items() if value})
    where = course()
    for path in notebooks():
        notebook = nbformat.read(path, as_version=4)
        stamp(notebook, path.name, where)
        write(path, notebook)
    readme = ROOT / "README.md"
    start = badge("00_start_here.ipynb", where)
    readme.write_text(BADGE.sub(lambda _: start, readme.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    print(f"{len(notebooks())} notebooks and README.md point at {where['repository']}, {where['ref']}.")


if __name__ == "__main__":
    main(sys.argv[1:])
