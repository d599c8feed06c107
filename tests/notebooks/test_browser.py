"""Every notebook in the real JupyterLab, in a real browser: its figures show before anything ran, all its cells run,
and what they put out is accessible."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.figures import player
from tools import notebooks, stamp
from tools.notebook_rules import SVG_ADDRESS

sync_api = pytest.importorskip("playwright.sync_api", reason="browser: playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="browser: axe is not installed")

LAB_FLAGS = (
    "--no-browser --allow-root --ip=127.0.0.1 --port=0 --IdentityProvider.token= --ServerApp.password= "
    "--ServerApp.disable_check_xsrf=True --LabApp.expose_app_in_browser=True --LanguageServerManager.autodetect=False"
).split()
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false"},
    # With windowing, cells out of sight are not in the page.
    "notebook-extension/tracker": {"windowingMode": "none"},
}

# A promise in the page has no time limit of its own.
LIMIT = """(work, seconds, what) => Promise.race([work, new Promise((_, fail) =>
    setTimeout(() => fail(new Error(`${what}: not within ${seconds} s`)), 1000 * seconds))])"""
# The notebook is open and its kernel answers.
READY = """async () => {
    await jupyterapp.restored;
    let panel;
    while (!(panel = [...jupyterapp.shell.widgets('main')].find(widget => widget.sessionContext)))
        await new Promise(resolve => setTimeout(resolve, 50));
    await panel.context.ready;
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
    await panel.revealed;
}"""
RUN_ALL = "async () => await jupyterapp.commands.execute('notebook:run-all-cells')"
# A folded cell has no prompt in the page, so its count stands in.
CELLS = """() => [...jupyterapp.shell.widgets('main')].find(widget => widget.sessionContext).content.widgets
    .filter(cell => cell.model.type === 'code' && cell.model.sharedModel.source.trim())
    .map(cell => ({
        prompt: cell.inputHidden
            ? `[${cell.model.executionCount ?? ' '}]:` : cell.node.querySelector('.jp-InputPrompt').textContent.trim(),
        tags: cell.model.getMetadata('tags') || [],
        errors: cell.model.outputs.toJSON().filter(o => o.output_type === 'error').map(o => o.ename),
    }))"""
# Still pictures that have loaded and take room on the page.
STILLS = """() => [...document.querySelectorAll('.jp-OutputArea img[src^="data:image/svg+xml;base64,"]')]
    .filter(image => image.naturalWidth > 0 && image.getBoundingClientRect().height > 10).length"""
# Outputs with nothing to be seen in them.
EMPTY = """() => [...document.querySelectorAll('.jp-OutputArea-output')].filter(output => !output.textContent.trim()
    && ![...output.querySelectorAll('*')].some(part => part.getBoundingClientRect().height > 5)).length"""
# A control is drawn some time after its cell has run.
DRAWN = """() => [...jupyterapp.shell.widgets('main')].find(widget => widget.sessionContext).content.widgets
    .filter(cell => cell.model.type === 'code')
    .every(cell => cell.model.outputs.toJSON().filter(o => o.data?.['application/vnd.jupyter.widget-view+json']).length
        <= [...cell.node.querySelectorAll('.jp-OutputArea-output')].filter(o => o.querySelector('.widget-html')).length)
"""

# axe judges contrast only of what is in view, and takes a page whose body has no height as out of view.
UNCLIPPED = "html, body { height: 100vh } .jp-Cell { content-visibility: visible !important }"
HEIGHT = "() => document.querySelector('.jp-WindowedPanel-outer').scrollHeight"
TO_TOP = "() => { document.querySelector('.jp-WindowedPanel-outer').scrollTop = 0; }"

# A traceback is coloured and linked by JupyterLab itself, which calls it stderr.
OUTPUTS = '.jp-OutputArea-output:not([data-mime-type="application/vnd.jupyter.stderr"])'


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course, since JupyterLab saves what it opens."""
    folder = tmp_path_factory.mktemp("a folder") / "the course"
    ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for part in ("helpers", "notebooks"):
        shutil.copytree(stamp.ROOT / part, folder / part, ignore=ignore)
    return folder


@pytest.fixture(scope="module")
def lab(course, tmp_path_factory):
    """The address of a JupyterLab that uses nobody's own settings."""
    private = tmp_path_factory.mktemp("jupyter")
    names = ("JUPYTER_CONFIG", "JUPYTER_DATA", "JUPYTER_RUNTIME", "JUPYTERLAB_SETTINGS", "JUPYTERLAB_WORKSPACES")
    environment = os.environ | {f"{name}_DIR": str(private / name) for name in names}
    environment["IPYTHONDIR"] = str(private / "ipython")
    for name, values in SETTINGS.items():
        file = private / "JUPYTERLAB_SETTINGS/@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    log = private / "log"
    with log.open("w") as out:
        command = [sys.executable, "-m", "jupyterlab", *LAB_FLAGS]
        server = subprocess.Popen(command, cwd=course, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield answering(server, log)
    finally:
        server.terminate()
        server.wait(30)


def answering(server, log):
    for _ in range(240):
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            try:
                with urllib.request.urlopen(f"{found[0]}/api", timeout=10):
                    return found[0]
            except urllib.error.URLError:
                pass
        if server.poll() is not None:
            break
        time.sleep(0.25)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()}")


# What a player shows: its step, its caption, the numbers of the marked lines, how many boxes are marked.
PLAYER = """host => {
    const all = selector => [...host.shadowRoot.querySelectorAll(selector)];
    return [
        Number(all('input[type=range]')[0].value),
        all('[role=status]')[0].textContent.replace(/\\s+/g, ' ').trim(),
        all('.line.is-hot .number').map(e => e.textContent),
        all('g.item.is-now').length,
    ];
}"""
#: Players with more steps than this are walked through at their first and last ones.
MOST_STEPS = 60


def play(page):
    """For each player on the page what it shows at each step, walked through by the arrow keys alone."""
    told = []
    for host in page.locator('[data-gi="player"]').all():
        slider = host.locator("input[type=range]")
        last = int(slider.get_attribute("max"))
        slider.focus()
        page.keyboard.press("Home")
        shown = [host.evaluate(PLAYER)]
        for _ in range(min(last, MOST_STEPS)):
            page.keyboard.press("ArrowRight")
            shown.append(host.evaluate(PLAYER))
        page.keyboard.press("End")
        told.append([*shown, host.evaluate(PLAYER)])
    return told


def players_of(committed):
    """The data of each committed player, in order."""
    html = [o.get("data", {}).get("text/html", "") for cell in committed.cells for o in cell.get("outputs", [])]
    found = [text.rindex("})({") + len("})(") for text in html if 'data-gi="still"' in text]
    texts = [text for text in html if 'data-gi="still"' in text]
    return [json.JSONDecoder().raw_decode(text, at)[0] for text, at in zip(texts, found, strict=True)]


def expected(data):
    """What a player must show at each step of `play`, from its data."""
    steps = player.steps_of(data)
    numbers = [*range(min(data["n"], MOST_STEPS) + 1), data["n"]]
    return [
        (
            p,
            steps[p].replace("`", ""),
            [str(data["lines"][data["hot"][p]][0])] if data["hot"][p] >= 0 else [],
            any(data["node"][p] in nodes for nodes in data["graphs"][0]["items"]) if len(data["graphs"]) == 1 else None,
        )
        for p in numbers
    ]


def look(browser, lab, name):
    """(Stills shown before anything ran, cells after the run, outputs without height, axe's findings, players)."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    try:
        page.goto(f"{lab}/doc/tree/notebooks/{name}?reset")
        page.wait_for_function("() => window.jupyterapp")
        page.evaluate(f"({LIMIT})(({READY})(), 60, 'the kernel')")
        page.wait_for_function("() => [...document.images].every(image => image.complete)")
        stills = page.evaluate(STILLS)
        page.evaluate(f"({LIMIT})(({RUN_ALL})(), 180, 'running all cells')")
        page.wait_for_function(
            "() => ![...document.querySelectorAll('.jp-InputPrompt')].some(p => p.textContent.includes('*'))"
        )
        page.wait_for_function(DRAWN)
        page.wait_for_timeout(500)
        told = play(page)
        page.add_style_tag(content=UNCLIPPED)
        page.set_viewport_size({"width": 1280, "height": page.evaluate(HEIGHT) + 300})
        page.evaluate(TO_TOP)
        page.wait_for_timeout(500)
        outputs = page.locator(OUTPUTS).count()
        found = axe.Axe().run(page, context={"include": [[OUTPUTS]]}) if outputs else None
        violations = found.response["violations"] if found else []
        named = [(v["id"], node["html"][:200], node["failureSummary"][:200]) for v in violations for node in v["nodes"]]
        return stills, page.evaluate(CELLS), page.evaluate(EMPTY), named, told
    finally:
        page.close()


@pytest.mark.parametrize("path", stamp.notebooks(), ids=lambda path: path.name)
def test_notebook_in_jupyterlab(browser, lab, path):
    committed = nbformat.read(path, as_version=4)
    pictures = sum(
        len(SVG_ADDRESS.findall(output.get("data", {}).get("text/html", "")))
        for cell in committed.cells
        for output in cell.get("outputs", [])
    )
    stills, cells, empty, violations, told = look(browser, lab, path.name)
    assert stills == pictures
    assert [cell["prompt"] for cell in cells] == [f"[{n}]:" for n in range(1, len(cells) + 1)]
    assert [cell for cell in cells if cell["errors"] and "raises-exception" not in cell["tags"]] == []
    assert empty == 0
    assert violations == []
    assert len(told) == len(players_of(committed))
    for shown, data in zip(told, players_of(committed), strict=True):
        for (p, caption, lines, marked), (step, words, hot, now) in zip(shown, expected(data), strict=True):
            assert (p, caption, lines) == (step, words, hot)
            assert now is None or (marked > 0) == now, f"step {p}"


def test_what_is_wrong_is_seen(browser, lab, course):
    """A planted notebook: a broken picture, an error, an output without height, a button without a name, faint text."""
    broken = new_output("display_data", data={"text/html": '<img alt="x" src="data:image/svg+xml;base64,QUJD">'})
    cells = [
        new_markdown_cell("# Planted"),
        new_code_cell("1", outputs=[broken], execution_count=1),
        new_code_cell("from IPython.display import HTML\nHTML('<p style=\"height: 0; margin: 0\"></p>')"),
        new_code_cell("HTML('<button></button><p style=\"color: #ccc; background: #fff\">faint</p>')"),
        new_code_cell("1 / 0"),
        new_code_cell("2"),
    ]
    # Without a kernel's name JupyterLab would ask for one.
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), course / "notebooks/planted.ipynb")
    stills, cells, empty, violations, told = look(browser, lab, "planted.ipynb")
    assert told == []
    assert stills == 0
    assert [cell["errors"] for cell in cells] == [[], [], [], ["ZeroDivisionError"], []]
    assert cells[-1]["prompt"] == "[ ]:"
    assert empty == 1
    assert {rule for rule, *_ in violations} == {"button-name", "color-contrast"}


QUIZ = """
title = "Planted"
[[question]]
id = "leaf"
ask = "Which is a leaf?"
[[question.choice]]
text = "`x * 1`, which holds the very same numbers and so may be thought to be `x` by another name, all rights kept"
why = "An operation made it."
misconception = "M1"
[[question.choice]]
text = "`torch.ones(3)`"
right = true
why = "No operation made it."
"""
LONG = "three tensors: the product, the sum and what comes out, each of them kept since a derivative may need it, " * 2
PREDICTIONS = [
    f'predict("chosen", "How many bytes in `y`?", choices={{8192: "x", 10240: "x and y", 14336: "{LONG}"}}, unit="B")',
    'predict("typed", "How many bytes in `x`?", unit="B")',
    'predict("rows", "Which are kept?", choices={True: "kept", False: "freed"}, rows=["x", "the product"])',
    'quiz("planted")',
]
REVEALS = [
    'reveal("chosen", 10240)',
    'reveal("typed", 10240)',
    'reveal("rows", {"x": True, "the product": False})',
]
PANEL = "[...jupyterapp.shell.widgets('main')].find(widget => widget.sessionContext)"
RUN_CELL = f"""async at => {{
    {PANEL}.content.activeCellIndex = at;
    await jupyterapp.commands.execute('notebook:run-cell');
}}"""
OUTPUT_TEXT = f"at => {PANEL}.content.widgets[at].outputArea.node.innerText"
CONTROL = ".gradients-lesson"


def planted_lessons(course):
    """A notebook of predictions and a quiz as it is committed: run, without the views of its controls."""
    (course / "helpers/lessons/quiz_planted.toml").write_text(QUIZ, encoding="utf-8")
    first = "import sys\nsys.path.insert(0, '..')\nfrom helpers import predict, quiz, reveal"
    notebook = new_notebook(cells=[new_code_cell(code) for code in (first, *PREDICTIONS, *REVEALS)])
    path = course / "notebooks/lessons.ipynb"
    notebooks.private_ipython()
    notebooks.run(notebook, path.parent)
    notebooks.normalise(notebook)
    nbformat.write(notebook, path)
    return path


def violations_of(page):
    found = axe.Axe().run(page, context={"include": [[OUTPUTS]]})
    return [(v["id"], node["html"][:200]) for v in found.response["violations"] for node in v["nodes"]]


def test_lessons_by_keyboard(browser, lab, course):
    """Stills before the run; then predictions and a quiz answered by keys alone, on light and on dark."""
    path = planted_lessons(course)
    page = browser.new_page(viewport={"width": 1000, "height": 3000})
    page.set_default_timeout(30_000)
    try:
        page.goto(f"{lab}/doc/tree/notebooks/{path.name}?reset")
        page.wait_for_function("() => window.jupyterapp")
        page.evaluate(f"({LIMIT})(({READY})(), 60, 'the kernel')")
        page.add_style_tag(content=UNCLIPPED)
        assert page.locator(CONTROL).count() == 0
        assert "Run this cell to answer here" in page.evaluate(OUTPUT_TEXT, 1)
        assert page.evaluate(OUTPUT_TEXT, 4).count("Answer\n") == 1
        assert violations_of(page) == []

        for at in range(5):
            page.evaluate(RUN_CELL, at)
        page.wait_for_function(f"() => document.querySelectorAll('{CONTROL}').length === 4")
        assert page.evaluate(DRAWN)
        page.evaluate(f"() => document.querySelector('{CONTROL}').remove()")
        assert not page.evaluate(DRAWN)
        page.evaluate(RUN_CELL, 1)
        page.wait_for_function(DRAWN)
        chosen, typed, rows, quiz = (page.locator(CONTROL).nth(at) for at in range(4))
        long = chosen.locator("label", has_text="three tensors")
        assert long.evaluate("label => label.scrollWidth <= label.clientWidth && label.clientHeight > 30")

        chosen.locator("input").first.focus()
        for key in ("Space", "ArrowDown", "ArrowDown", "ArrowUp"):
            page.keyboard.press(key)
        sync_api.expect(chosen.get_by_role("status")).to_contain_text("Noted. You can change it")
        sync_api.expect(chosen.locator("input").nth(1)).to_be_checked()

        typed.get_by_label("Your number in B").focus()
        page.keyboard.type("a lot")
        page.keyboard.press("Enter")
        sync_api.expect(typed.get_by_role("status")).to_contain_text("could not be read as a number")
        page.keyboard.press("Control+A")
        page.keyboard.type("14 336 B")
        page.keyboard.press("Enter")
        sync_api.expect(typed.get_by_role("status")).to_contain_text("Noted: 14,336 B.")

        rows.get_by_label("the product").focus()
        page.keyboard.press("k")
        sync_api.expect(rows.get_by_role("status")).to_contain_text("Noted: 1 of 2.")

        # Run again, the same question shows the same answer, and the older control is gone.
        page.evaluate(RUN_CELL, 1)
        sync_api.expect(page.locator(CONTROL)).to_have_count(4)
        sync_api.expect(chosen.locator("input").nth(1)).to_be_checked()
        for at in (5, 6, 7):
            page.evaluate(RUN_CELL, at)
        page.wait_for_function(f"() => [5, 6, 7].every(at => !({OUTPUT_TEXT})(at).includes('No prediction'))")
        assert page.evaluate(OUTPUT_TEXT, 5).strip() == "✓ You predicted 10,240\u00a0B, and so it is: x and y."
        assert "14,336\u00a0B. Measured: 10,240\u00a0B, so 4,096\u00a0B too high" in page.evaluate(OUTPUT_TEXT, 6)
        assert "0 of 2 as you predicted" in page.evaluate(OUTPUT_TEXT, 7)

        assert quiz.get_by_role("radiogroup", name="Which is a leaf?").count() == 1
        quiz.locator("input").first.focus()
        for key in ("ArrowDown", "ArrowUp"):
            page.keyboard.press(key)
        page.wait_for_timeout(300)
        assert quiz.get_by_role("alert").count() == 0
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        sync_api.expect(quiz.get_by_role("alert")).to_contain_text("a) ✗ Not right. An operation made it.")
        for key in ("Shift+Tab", "ArrowDown", "Tab", "Space"):
            page.keyboard.press(key)
        sync_api.expect(quiz.get_by_role("alert")).to_contain_text("b) ✓ Right. No operation made it.")
        sync_api.expect(quiz).to_contain_text("0 of 1 right at the first try.")

        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
            page.wait_for_timeout(1000)
            assert violations_of(page) == [], theme
    finally:
        page.close()
