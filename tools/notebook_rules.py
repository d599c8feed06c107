"""What must hold for every notebook as it is committed. Each rule takes a Page and yields one sentence a problem."""

import ast
import base64
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

from helpers.lessons.claims import claims, claims_of, misconceptions, misconceptions_of
from helpers.lessons.show import KIND
from helpers.lessons.verdicts import settles
from tools import stamp

VERDICT = KIND.format("verdict")
MOST_LINES, MOST_SETUP_LINES, MOST_BYTES, MOST_HISTORY_CELLS = 15, 12, 3 * 2**20, 3
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
TAGS_KNOWN = {"setup", "history", "raises-exception", "nbval-ignore-output", "exercise", "solution"}
# A cell whose output may differ from machine to machine says so in its code: it asks for versions, or for the GPU.
MAY_BE_IGNORED = re.compile(r"version|environment|cuda|gpu", re.IGNORECASE)
SVG_ADDRESS = re.compile(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)")
MUST_NOT_BE_SHOWN = {
    "a machine's path": re.compile(
        r"(?<![\w.:/<])/(?:home|root|tmp|usr|opt|var|work|mnt|content|private|Users)/\w|\b[A-Z]:\\\w"
    ),
    "an address": re.compile(r"\b0x[0-9a-fA-F]{5,}\b"),
    "a date": re.compile(r"\b(?:19|20)\d\d-[01]\d-[0-3]\d\b"),
    "a time of day": re.compile(r"\b[0-2]?\d:[0-5]\d:[0-5]\d\b"),
    # Not the s of b·s·h, nor that of `s=64`.
    "a duration": re.compile(r"\b\d+(?:\.\d+)? ?(?:[nµμum]?s|sec|seconds?|minutes?)\b(?![=·*×])"),
}


@dataclass
class Page:
    """A notebook and the name of its file."""

    notebook: nbformat.NotebookNode
    name: str
    size: int = 0

    @classmethod
    def read(cls, path: Path) -> "Page":
        return cls(nbformat.read(path, as_version=4), path.name, path.stat().st_size)

    def cells(self, kind: str) -> list:
        return [cell for cell in self.notebook.cells if cell.cell_type == kind]

    @cached_property
    def markdown(self) -> list[str]:
        """Markdown sources without their code: a `# comment` in a fence is no heading."""
        return [re.sub(r"```.*?```|`[^`\n]*`", "", cell.source, flags=re.S) for cell in self.cells("markdown")]

    def tagged(self, tag: str) -> list:
        return [cell for cell in self.cells("code") if tag in tags(cell)]


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def where(cell) -> str:
    first = cell.source.strip().splitlines()[:1] or [""]
    return f"cell `{first[0][:50]}`"


class Images(HTMLParser):
    """The <img> tags of an HTML text."""

    def __init__(self, html: str):
        super().__init__()
        self.found: list[dict] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        if tag == "img":
            self.found.append(dict(attributes))


def visible(html: str) -> str:
    """The text that a reader sees, and the pictures' own; scripts and styles are left out."""
    pictures = [base64.b64decode(code).decode("utf-8") for code in SVG_ADDRESS.findall(html)]
    text = "\n".join([SVG_ADDRESS.sub("", html), *pictures])
    text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.S | re.I)
    words = re.findall(r'\b(?:alt|title|aria-label)="([^"]*)"', text)
    return "\n".join([re.sub(r"<[^>]*>", " ", text), *words])


def is_code(mime: str) -> bool:
    return mime in ("application/javascript", "text/javascript", "application/json")


def texts(output) -> Iterator[str]:
    if output.output_type == "stream":
        yield output.text
    elif output.output_type == "error":
        yield from [output.evalue, *output.traceback]
    else:
        for mime, data in output.data.items():
            if isinstance(data, str) and not mime.startswith("image/") and not is_code(mime):
                yield visible(data) if mime in ("text/html", "text/markdown") else data


def outputs(page: Page) -> Iterator[tuple]:
    for cell in page.cells("code"):
        for output in cell.outputs:
            yield cell, output


def headings(page: Page):
    levels = [len(h) for text in page.markdown for h in re.findall(r"^(#{1,6}) ", text, re.M)]
    if levels.count(1) != 1 or levels[0] != 1:
        yield f"wants one title (# ...), at the top; has {levels.count(1)}"
    for before, after in zip(levels, levels[1:], strict=False):
        if after > before + 1:
            yield f"a heading of level {after} follows one of level {before}"


def alt_texts(page: Page):
    shown = [data for _, o in outputs(page) if "data" in o for m, data in o.data.items() if m == "text/html"]
    for text in page.markdown:
        for alt, address in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", text):
            if not alt.strip():
                yield f"the image {address[:60]} has no alt text"
    for html in page.markdown + shown:
        for image in Images(html).found:
            if not (image.get("alt") or "").strip():
                yield f"an <img> ({(image.get('src') or '')[:40]}) has no alt text"


def short_cells(page: Page):
    for cell in page.cells("code"):
        most = MOST_SETUP_LINES if "setup" in tags(cell) else MOST_LINES
        lines = sum(1 for line in cell.source.splitlines() if line.strip())
        if lines > most:
            yield f"{where(cell)}: {lines} lines, more than {most}"


def small_file(page: Page):
    if page.size >= MOST_BYTES:
        yield f"{page.size:,} bytes: a notebook stays under {MOST_BYTES:,}"


def run_in_order(page: Page):
    cells = [cell for cell in page.cells("code") if cell.source.strip()]
    counts = [cell.execution_count for cell in cells]
    if counts != list(range(1, len(cells) + 1)):
        yield f"execution counts {counts} are not 1 to {len(cells)}: `make notebooks`"


def same_everywhere(page: Page):
    for cell, output in outputs(page):
        if "nbval-ignore-output" in tags(cell):
            continue
        for text in texts(output):
            for what, pattern in MUST_NOT_BE_SHOWN.items():
                if found := pattern.search(text):
                    yield f"{where(cell)} shows {what}: {found[0]!r}"


def known_tags(page: Page):
    for cell in page.cells("code"):
        for tag in sorted(set(tags(cell)) - TAGS_KNOWN):
            yield f"{where(cell)}: unknown tag `{tag}`"
        if re.search(r"^\s*#\s*(NBVAL_|PYTEST_VALIDATE_)", cell.source, re.M):
            yield f"{where(cell)}: an nbval comment; use the cell's tags"
        if "nbval-ignore-output" in tags(cell) and not MAY_BE_IGNORED.search(cell.source):
            yield f"{where(cell)}: its output is ignored, yet it prints neither versions nor a GPU's numbers"
    if len(page.tagged("history")) > MOST_HISTORY_CELLS:
        yield f"more than {MOST_HISTORY_CELLS} cells are tagged `history`"


def expected_errors(page: Page):
    for cell in page.cells("code"):
        raised = [o.ename for o in cell.outputs if o.output_type == "error"]
        expected = "raises-exception" in tags(cell)
        if raised and not expected:
            yield f"{where(cell)} raised {raised[0]} and is not tagged `raises-exception`"
        if expected and not raised:
            yield f"{where(cell)} is tagged `raises-exception` and raised nothing"


def chapter(page: Page) -> str:
    """ "01" of 01_autograd.ipynb; "" for a notebook that is no chapter."""
    found = re.match(r"(\d\d)_", page.name)
    return found[1] if found else ""


def parsed(cell) -> ast.Module:
    """The cell's code, without its magics. Raises SyntaxError."""
    return ast.parse(TransformerManager().transform_cell(cell.source))


def named(cell, key: str) -> list:
    """The claims or misconceptions that a cell's metadata names."""
    course = cell.metadata.get("course", {})
    ids = course.get(key) if isinstance(course, dict) else None
    return ids if isinstance(ids, list) else []


def course_ids(page: Page):
    """Metadata `course`: {"claims": ["A3b"], "misconceptions": ["M1"]}, each in the data of helpers/lessons.

    Tests find a cell by "exercise" (the name that check() is given) or by "part"; these are texts.
    """
    known = {"claims": claims(), "misconceptions": misconceptions()}
    for cell in page.notebook.cells:
        course = cell.metadata.get("course", {})
        if not isinstance(course, dict):
            yield f"{where(cell)}: course metadata {course!r}"
            continue
        for key, ids in course.items():
            if key in ("exercise", "part") and isinstance(ids, str) and ids.strip():
                continue
            listed = named(cell, key)
            if key not in known or not listed or not all(isinstance(i, str) and i in known[key] for i in listed):
                yield f"{where(cell)}: course metadata {key} = {ids!r}"


def verdict_calls(cell) -> Iterator[str | None]:
    """For each `verdict(...)` in a cell's code the id it is called with; None where that is not written out."""
    try:
        tree = parsed(cell)
    except SyntaxError:
        return
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if name == "verdict":
            first = call.args[0] if call.args else None
            yield first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def claims_settled(page: Page):
    """A chapter settles each of its claims, and no other, by one verdict(), and its committed output says so."""
    own, called = {claim.id for claim in claims_of(chapter(page))}, Counter()
    for cell in page.cells("code"):
        calls = list(verdict_calls(cell))
        results = [output.data[VERDICT] for output in cell.outputs if VERDICT in output.get("data", {})]
        settled = [result.get("id") if isinstance(result, dict) else None for result in results]
        called.update(id for id in calls if id)
        if None in calls:
            yield f"{where(cell)}: verdict() wants a claim's id, in quotes, as its first argument"
        for id in sorted({id for id in calls if id}):
            if id not in own:
                yield f"{where(cell)}: verdict({id!r}), and {id} is no claim of this chapter"
            if id not in named(cell, "claims"):
                yield f"{where(cell)} settles {id}, and its metadata does not name it"
            if settled.count(id) != 1:
                yield f"{where(cell)}: {settled.count(id)} results of {id} in its output, not one: `make notebooks`"
            elif id in own and (why := settles(results[settled.index(id)], id)):
                yield f"{where(cell)} does not settle {id}: {why}"
        if strays := [id for id in settled if id not in calls]:
            yield f"{where(cell)} holds results that it does not ask for: {strays}"
    yield from (f"never settles {id}: verdict({id!r}, ...)" for id in sorted(own - set(called)))
    yield from (f"settles {id} {times} times" for id, times in sorted(called.items()) if times > 1)


def misconceptions_met(page: Page):
    """Each misconception of the chapter stands in the metadata of some cell."""
    met = {str(id) for cell in page.notebook.cells for id in named(cell, "misconceptions")}
    for found in misconceptions_of(chapter(page)):
        if found.id not in met:
            yield f"no cell's metadata names {found.id}: {found.name}"


def imports(page: Page):
    """Of the course's own code, notebooks import only the top of `helpers`."""
    for cell in page.cells("code"):
        try:
            tree = parsed(cell)
        except SyntaxError as error:
            if "raises-exception" not in tags(cell):
                yield f"{where(cell)} is no Python: {error}"
            continue
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or "."] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                if name.split(".")[0] in ("helpers", "tools", "tests", "") and name != "helpers":
                    yield f"{where(cell)} imports {name}; only the top of helpers is the readers'"


def stamped(page: Page):
    course = stamp.course()
    badges = [found for text in (c.source for c in page.cells("markdown")) for found in stamp.BADGE.findall(text)]
    if badges != [stamp.badge(page.name, course)]:
        yield "wants one Colab badge that points at this very notebook: `make notebooks` sets it"
    setups = page.tagged("setup")
    if len(setups) != 1 or setups[0] is not page.cells("code")[0]:
        yield "wants its set-up cell, tagged `setup`, as the first code cell"
        return
    folded = stamp.SETUP_METADATA.items() <= setups[0].metadata.items()
    if setups[0].source != stamp.setup_source(course) or not folded:
        yield "its set-up cell is not that of tools/setup_cell.py: `make notebooks` sets it"


def text_twins(page: Page):
    """A picture or a figure comes with words; matplotlib's own `<Figure size ...>` says nothing."""
    pictured = {"text/html", "image/png", "image/jpeg", "image/svg+xml"}
    for cell, output in outputs(page):
        if "data" in output and pictured & set(output.data):
            twin = output.data.get("text/plain", "").strip()
            if not twin or re.fullmatch(r"<[^\n]*>", twin):
                mimes = ", ".join(sorted(pictured & set(output.data)))
                yield f"{where(cell)}: {mimes} without a text twin in text/plain"


def nothing_passing(page: Page):
    """Nothing that a front end or a run leaves behind."""
    if "widgets" in page.notebook.metadata:
        yield "saved widget state in the metadata"
    if page.notebook.metadata.get("language_info", {}) != {"name": "python"}:
        yield "language_info says more than {'name': 'python'}: `make notebooks`"
    for cell in page.notebook.cells:
        if left := sorted({"execution", "ExecuteTime", "outputId"} & set(cell.metadata)):
            yield f"{where(cell)}: passing metadata {left}"
    for cell, output in outputs(page):
        if WIDGET_VIEW in output.get("data", {}):
            yield f"{where(cell)}: a saved widget view; GitHub's preview cannot show it"


RULES = [
    headings,
    alt_texts,
    short_cells,
    small_file,
    run_in_order,
    same_everywhere,
    known_tags,
    expected_errors,
    course_ids,
    claims_settled,
    misconceptions_met,
    imports,
    stamped,
    text_twins,
    nothing_passing,
]
