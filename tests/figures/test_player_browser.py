"""The player in a real browser: what it shows at each position is what the data say, by every way of getting there."""

import base64
import json
import re

import pytest
import torch
from torch import nn

from helpers import record
from helpers.figures.bundle import card, page
from helpers.figures.player import HERE, as_json, player_figure, steps_of
from tests.figures.player_samples import SAMPLES, recorded

sync_api = pytest.importorskip("playwright.sync_api", reason="browser: playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="browser: axe is not installed")

SMALL = [name for name in SAMPLES if name not in ("transformer", "lstm", "empty")]
PLAYER = "document.querySelectorAll('[data-gi=player]')"

# What a reader sees, by its looks and not by class names alone. Colours are the light theme's.
SEEN = f"""k => {{
    const root = {PLAYER}[k].shadowRoot;
    const all = selector => [...root.querySelectorAll(selector)];
    const text = selector => root.querySelector(selector)?.textContent.trim();
    const rows = name => all('.line').flatMap((row, i) => row.classList.contains(name) ? [i] : []);
    const style = (element, part) => getComputedStyle(element.querySelector(part) || element);
    const inGraph = selector => all('.drawing svg ' + selector);
    const faint = 'rgb(255, 255, 255)';
    return {{
        caption: text('.caption[role=status]'),
        value: root.querySelector('input[type=range]').value,
        valueText: root.querySelector('input[type=range]').getAttribute('aria-valuetext'),
        counter: text('.counter'),
        hot: rows('is-hot'), call: rows('is-call'),
        now: inGraph('.item[data-nodes]').filter(g => style(g, '.box').strokeWidth >= '3'
            && style(g, '.box').strokeWidth !== '3.5px').map(g => g.dataset.nodes).sort(),
        failed: inGraph('.item[data-nodes]').filter(g => style(g, '.box').strokeDasharray === '7px, 3px')
            .map(g => g.dataset.nodes),
        future: inGraph('.item[data-nodes]:not(.pruned)').filter(g => style(g, '.box').fill === faint)
            .map(g => g.dataset.nodes).sort(),
        done: inGraph('.item[data-nodes]').filter(g => g.querySelector('.ran') && style(g, '.ran').opacity === '1')
            .map(g => g.dataset.nodes).sort(),
        pink: inGraph('.kept[data-saved]').filter(g => style(g, '.tensor').fill !== faint)
            .map(g => g.dataset.saved).sort(),
        grads: inGraph('.grad').filter(g => getComputedStyle(g).opacity === '1').map(g => g.textContent).sort(),
        amounts: Object.fromEntries(all('.amount').map(row =>
            [row.children[1].textContent, Number(row.children[2].textContent.replace(/[^0-9-]/g, ''))])),
        live: Number((text('.live b') || '').replace(/[^0-9]/g, '')),
        cursor: root.querySelector('.cursor')?.style.transform,
    }};
}}"""


# The slider put to a position, as a pointer would.
GO = f"""p => {{
    const slider = {PLAYER}[0].shadowRoot.querySelector('input');
    slider.value = p;
    slider.dispatchEvent(new Event('input'));
}}"""


class Opened:
    """A page with players, opened from a file. Everything that the console or an error says is kept in `said`."""

    def __init__(self, browser, path, content, **context):
        path.write_text(content, encoding="utf-8")
        self.said, self.asked = [], []
        context = {"viewport": {"width": 1200, "height": 1400}, "reduced_motion": "reduce", **context}
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append("a dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url.split(",")[0]))
        self.page.goto(path.as_uri())

    def seen(self, k=0):
        return self.page.evaluate(SEEN, k)

    def slider(self, k=0):
        return self.page.get_by_role("slider", name="Step").nth(k)

    def at(self, k=0):
        return int(self.slider(k).input_value())

    def go(self, p):
        self.page.evaluate(GO, p)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)
        return self.at()


def numbered():
    """Layers that have no names but numbers, folded."""
    parts = [nn.Linear(8, 8) if k % 2 == 0 else nn.ReLU() for k in range(16)]
    model = nn.Sequential(*parts)
    x = torch.ones(4, 8)
    with record() as run:
        model(x).sum().backward()
    return run


@pytest.fixture
def opened(browser, tmp_path):
    """opened("layer") opens its page; opened(content) any other."""
    made = []

    def open_(what, **context):
        content = page(figure_of(what)) if what in SAMPLES else what
        made.append(Opened(browser, tmp_path / f"{len(made)}.html", content, **context))
        return made[-1]

    yield open_
    for one in made:
        one.context.close()


FIGURES = {}


def figure_of(name):
    if name not in FIGURES:
        FIGURES[name] = player_figure(SAMPLES[name]())
    return FIGURES[name]


class Expected:
    """What a player's data say of each position, worked out apart from the script."""

    def __init__(self, name):
        figure = figure_of(name)
        start = figure.script.rindex('})({"v":') + 3
        self.data, _ = json.JSONDecoder().raw_decode(figure.script[start:])
        self.steps = [step.replace("`", "") for step in steps_of(self.data)]
        still = re.search(r'data-part="graph".*?base64,([^"]*)"', figure.html)
        self.drawings = [
            drawing or base64.b64decode(still[1]).decode() if still else "" for drawing in self.data["drawings"]
        ]
        self.keeps = {}

    def graph(self, p):
        return [g for g in self.data["graphs"] if g["first"] <= p <= g["last"]][-1]

    def rows(self, graph, kind, attribute, p):
        """(how the drawing names a part, the ids that it stands for at p)."""
        named = re.findall(rf' {attribute}="([^"]*)"', self.drawings[graph["drawing"]])
        out = []
        for name, ids, block in zip(named, graph[f"{kind}s"], graph[f"{kind}_blocks"], strict=True):
            if block >= 0:
                count = graph["blocks"][block]["count"]
                each, rep = len(ids) // count, self.repetition(graph, block, p)
                ids = ids[rep * each : (rep + 1) * each]
            out.append((name, [x for x in ids if x >= 0]))
        return out

    def repetition(self, graph, block, p):
        key = (graph["first"], block)
        if key not in self.keeps:
            place = {}
            count = graph["blocks"][block]["count"]
            for ids, b in zip(graph["items"], graph["item_blocks"], strict=True):
                if b == block:
                    for k, x in enumerate(ids):
                        place.setdefault(x, k // (len(ids) // count))
            reps, now = [], 0
            for q in range(graph["first"], graph["last"] + 1):
                now = place.get(self.data["node"][q], now)
                reps.append(now)
            self.keeps[key] = reps
        return self.keeps[key][p - graph["first"]]

    def grads(self, ids, p):
        """What a leaf's badge says: gradients that arrived since it was last cleared."""
        most = 0
        for n in ids:
            arrived = [how for q, _, how in self.data["leaves"].get(str(n), ()) if q <= p]
            while "cleared" in arrived:
                arrived = arrived[arrived.index("cleared") + 1 :]
            most = max(most, len(arrived))
        return f"grad ×{most} added" if most > 1 else "grad" * most

    def at(self, p):
        data = self.data
        amounts = list(data["start"])
        for q, c, more in data["delta"]:
            amounts[c] += more if q <= p else 0
        phase = next((name for name, first, last in data["phases"] if first <= p <= last), "")
        out = {
            "caption": self.steps[p],
            "value": str(p),
            "valueText": f"{p} of {data['n']}" + (f", {phase}" if phase else ""),
            "counter": f"{p:,} of {data['n']:,}",
            "hot": [data["hot"][p]] if data["hot"][p] >= 0 else [],
            "call": [data["call"][p]] if data["call"][p] >= 0 else [],
            "live": sum(amounts),
            "amounts": {c[1]: n for c, n in zip(data["categories"], amounts, strict=True)},
        }
        if not data["graphs"] or self.graph(p)["drawing"] < 0:
            return out
        graph = self.graph(p)
        items, tensors = self.rows(graph, "item", "data-nodes", p), self.rows(graph, "tensor", "data-saved", p)
        nodes, saved, node = data["nodes"], data["saved"], data["node"][p]

        def ran(n):
            return any(graph["first"] <= q <= p for q in nodes[str(n)]["ran"])

        def kept(s):
            one = saved.get(str(s))
            return one is not None and one["kept"] <= p and (one["gone"] is None or p < one["gone"])

        failed = [name for name, ids in items if any(nodes[str(n)].get("failed", p + 1) <= p for n in ids)]
        leaves = [(name, ids) for name, ids in items if any(nodes[str(n)]["name"] == "AccumulateGrad" for n in ids)]
        out["failed"] = failed
        out["now"] = sorted(name for name, ids in items if node in ids and name not in failed)
        out["future"] = sorted(
            name
            for name, ids in items
            if ids and node not in ids and all(nodes[str(n)]["made"] > p and n not in graph["pruned"] for n in ids)
        )
        out["done"] = sorted(name for name, ids in items if any(map(ran, ids)) and (name, ids) not in leaves)
        out["grads"] = sorted(filter(None, (self.grads(ids, p) for _, ids in items)))
        out["pink"] = sorted(name for name, ids in tensors if any(map(kept, ids)))
        return out


def same(seen, expected):
    seen = dict(seen)
    if not expected["live"] and not seen["amounts"]:
        seen["live"] = 0
    seen["amounts"] = {**{name: 0 for name in expected["amounts"]}, **seen["amounts"]}
    return {k: (seen[k], v) for k, v in expected.items() if seen[k] != v}


# ---------------------------------------------------------------------------------- what is shown


@pytest.mark.parametrize("name", SMALL)
def test_every_position_by_keys(opened, name):
    """There and back by the arrow keys: caption, lines, nodes, kept tensors, bytes."""
    given = Expected(name)
    player = opened(name)
    player.slider().focus()
    n = given.data["n"]
    wrong = {}
    for p in range(n + 1):
        if different := same(player.seen(), given.at(p)):
            wrong[p] = different
        player.press("ArrowRight")
    assert player.at() == n
    for p in reversed(range(max(0, n - 40), n)):
        player.press("ArrowLeft")
        if different := same(player.seen(), given.at(p)):
            wrong[f"back {p}"] = different
    assert wrong == {}
    assert player.said == []


def test_a_folded_model_by_keys_and_by_leaps(opened):
    """A layer is followed from repetition to repetition, and any one may be opened."""
    given = Expected("transformer")
    player = opened("transformer")
    data = given.data
    graph = data["graphs"][0]
    turns = [p for p in range(1, data["n"]) if given.repetition(graph, 0, p) != given.repetition(graph, 0, p - 1)]
    assert len(turns) >= 22
    wrong = {}
    for p in [turns[-1], turns[3], data["n"], 0, turns[15], turns[14], 7, turns[16]]:
        player.go(p)
        wrong |= {p: different} if (different := same(player.seen(), given.at(p))) else {}
    for turn in (turns[2], turns[3], turns[13], turns[-1]):
        player.go(turn - 3)
        player.slider().focus()
        for p in range(turn - 2, turn + 4):
            player.press("ArrowRight")
            wrong |= {p: different} if (different := same(player.seen(), given.at(p))) else {}
        for p in reversed(range(turn - 2, turn + 3)):
            player.press("ArrowLeft")
            wrong |= {f"back {p}": different} if (different := same(player.seen(), given.at(p))) else {}
    assert wrong == {}
    player.go(turns[-1])
    before = player.seen()["done"]
    player.page.get_by_role("combobox", name="Which of").select_option("11")
    assert player.page.get_by_text("showing 12 of 12").count() == 1
    assert player.seen()["done"] != before
    assert player.said == []


def test_a_folded_block_has_no_names_of_another_repetition(opened):
    """Layer 12 is not called layer 1: neither in words that stand in a box nor in those that are read out."""
    player = opened("transformer")
    player.go(0)
    block = f"""() => [...{PLAYER}[0].shadowRoot.querySelectorAll('.drawing svg g[class^=gen-]')][1]"""
    labels = player.page.evaluate(f"() => [...({block})().querySelectorAll('[aria-label]')].map(e => e.ariaLabel)")
    assert any("in module …" in label for label in labels)
    assert not any(re.search(r"in module \d|(^|\s)\d+\.[a-z]", label) for label in labels)
    choose = player.page.get_by_role("combobox", name="Which of")
    choose.select_option("11")
    assert player.page.get_by_text("showing 12 of 12, module 12", exact=True).count() == 1
    assert choose.locator("option").nth(3).text_content() == "3 of 12, module 3"
    # a model whose layers are numbered only
    other = opened(page(player_figure(recorded(numbered))))
    text = f"""() => [...({block})().querySelectorAll('text')]
        .filter(e => getComputedStyle(e).display !== 'none').map(e => e.textContent)"""
    other.go(0)
    first = other.page.evaluate(text)
    assert any(re.fullmatch(r"in module \d+", words) for words in first)
    other.page.get_by_role("combobox", name="Which of").select_option("4")
    later = other.page.evaluate(text)
    assert len(later) == len(first)
    assert not any(re.search(r"in module \d|^\d+\.[a-z]", words) for words in later)
    assert any(words == "in module …" for words in later) and any(words == "….weight" for words in later)
    other.page.get_by_role("combobox", name="Which of").select_option("0")
    assert other.page.evaluate(text) == first


def test_at_most_fifty_nodes_are_touched(opened):
    """Over all steps of a 12-layer model, there and back."""
    player = opened("transformer")
    worst = player.page.evaluate(f"""() => {{
        const root = {PLAYER}[0].shadowRoot;
        const slider = root.querySelector('input');
        const watch = new MutationObserver(() => {{}});
        watch.observe(root, {{ subtree: true, childList: true, attributes: true, characterData: true }});
        let worst = [0, 0];
        let steps = 0;
        for (const key of ['ArrowRight', 'ArrowLeft'])
            for (let p = 0; p < slider.max; p++) {{
                slider.dispatchEvent(new KeyboardEvent('keydown', {{ key, bubbles: true, composed: true }}));
                const touched = new Set();
                for (const record of watch.takeRecords())
                    for (const node of [record.target, ...record.addedNodes, ...record.removedNodes]) touched.add(node);
                steps += touched.size > 0;
                if (touched.size > worst[0]) worst = [touched.size, p];
            }}
        return {{ worst, steps, at: slider.value, max: Number(slider.max) }};
    }}""")
    assert worst["at"] == "0" and worst["steps"] == 2 * worst["max"]
    assert 0 < worst["worst"][0] <= 50, worst


LEDGER = f"""() => [...{PLAYER}[0].shadowRoot.querySelectorAll('.ledger tbody tr')].map(tr => [
    tr.firstChild.textContent, getComputedStyle(tr.firstChild, '::before').content, tr.childElementCount])"""


@pytest.mark.parametrize("name", ["product", "layer", "retained", "second_time", "offloaded", "transformer"])
def test_the_ledger_moves(opened, name):
    """Each row says in a word, and by a sign, whether its tensor is still to come, kept or gone."""
    data = Expected(name).data
    player = opened(name)
    seen = set()
    for p in range(0, data["n"] + 1, 1 if data["n"] < 100 else 331):
        want = []
        for ids in data["ledger"]:
            spans = [data["saved"][str(x)] for x in ids if str(x) in data["saved"]]
            held = sum(s["kept"] <= p and (s["gone"] is None or p < s["gone"]) for s in spans)
            begun = sum(s["kept"] <= p for s in spans)
            word = "kept" if held else "gone" if begun == len(spans) else "to come"
            seen.add(word)
            sign = {"kept": '"● " / ""', "gone": '"✕ " / ""', "to come": '"○ " / ""'}[word]
            want.append([f"kept, {held} of {len(spans)}" if held and len(spans) > 1 else word, sign])
        player.go(p)
        rows = player.page.evaluate(LEDGER)
        assert [row[:2] for row in rows] == [*want, ["", "none"]], p
        assert len({row[2] for row in rows}) == 1  # "Together" stays under its column
    assert {"kept", "to come"} <= seen
    assert "gone" in seen or not any(data["saved"][str(ids[0])]["gone"] for ids in data["ledger"])
    heading = player.page.locator(".ledger .heading").text_content()
    several = len(data["graphs"]) > 1
    assert heading.startswith("Kept for backward") and (heading != "Kept for backward") == several
    assert not several or heading.split(". ", 1)[1] in [g["title"] for g in data["graphs"]]


def test_a_frame_fades_with_what_it_holds(opened):
    """ "kept until backward" stands only around what is kept."""
    given = Expected("layer")
    player = opened("layer")
    framed = f"""() => [...{PLAYER}[0].shadowRoot.querySelectorAll('.unit')].flatMap(unit => {{
        const words = [...unit.children].find(e => e.localName === 'text');
        return words && getComputedStyle(words).visibility === 'visible'
            ? [unit.querySelector('.kept').dataset.saved] : []; }}).sort()"""
    seen = set()
    for p in range(given.data["n"] + 1):
        player.go(p)
        assert player.page.evaluate(framed) == given.at(p)["pink"], p
        seen.add(len(given.at(p)["pink"]))
    assert seen == {0, 1, 2, 3}


def test_only_signs_that_occur(opened):
    keys = f"() => [...{PLAYER}[0].shadowRoot.querySelectorAll('.legend-of .key')].map(e => e.lastChild.textContent)"
    layer = opened("layer").page.evaluate(keys)
    assert "leaf: its .grad will be filled" in layer and "a gradient has arrived" in layer
    assert "raised the error" not in layer
    failed = opened("version_error").page.evaluate(keys)
    assert "raised the error" in failed and "a gradient has arrived" not in failed
    dashes = f"""() => [...{PLAYER}[0].shadowRoot.querySelectorAll('.drawing .item')].map(g =>
        [g.classList.contains('input'), getComputedStyle(g.querySelector('.box')).strokeDasharray])"""
    player = opened("layer")
    future = {dash for _, dash in player.page.evaluate(dashes)}
    player.go(Expected("layer").data["n"])
    made = {dash for _, dash in player.page.evaluate(dashes)}
    assert len(future) == 3 and len(made) == 2 and made < future  # plain, needs no gradient; and to come


def test_words_about_what_was_clicked_end_with_the_step(opened):
    data = Expected("layer").data
    player = opened("layer")
    node = next(k for k, v in data["nodes"].items() if v["name"] == "ReluBackward0")
    detail = player.page.locator(".detail")
    hint = detail.text_content()
    player.page.locator(f'.item[data-nodes="{node}"] .box').click()
    assert detail.text_content() == data["nodes"][node]["more"] != hint
    player.press("ArrowRight")
    assert detail.text_content() == hint


@pytest.mark.parametrize("name", ["layer", "second_time"])
def test_nothing_jumps(opened, name):
    """What stands below the caption keeps its place at each step."""
    player = opened(name, viewport={"width": 620, "height": 900})
    tops = set()
    for p in range(Expected(name).data["n"] + 1):
        player.go(p)
        tops.add(player.page.locator(".stage").evaluate("e => e.getBoundingClientRect().top"))
    assert len(tops) == 1


def test_a_long_message_scrolls_in_its_place(opened):
    words = ["Short.", "RuntimeError: " + "a long message, " * 200]
    player = opened(planted({"n": 1, "words": words, "caption": [[0], [1]]}))
    box = player.page.get_by_role("group", name="What happens")
    assert box.evaluate("e => [e.clientHeight < 260, e.scrollHeight - e.clientHeight]") == [True, 0]
    player.go(1)
    assert box.evaluate("e => e.clientHeight < 260 && e.scrollHeight > 2 * e.clientHeight && e.tabIndex === 0")


@pytest.mark.parametrize("name", ["layer", "version_error", "product", "accumulation"])
def test_words_in_the_plot_stand_free(opened, name):
    """Not over each other, not over the heading, not under the cursor's triangle, at the peak either."""
    data = Expected(name).data
    player = opened(name)
    over = f"""() => {{
        const root = {PLAYER}[0].shadowRoot;
        const box = e => e.getBoundingClientRect();
        const heading = root.querySelector('.memory .live');
        const marks = [...root.querySelectorAll('.plot > span'), heading];
        const pairs = marks.flatMap((a, i) => marks.slice(i + 1).map(b => [a, b]));
        const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom - 1 && b.top < a.bottom - 1;
        const cursor = box(root.querySelector('.cursor'));
        const triangle = {{ left: cursor.left - 8, right: cursor.left + 8, top: cursor.top, bottom: cursor.top + 9 }};
        return [
            ...pairs.filter(([a, b]) => meet(box(a), box(b))).map(([a, b]) => a.textContent + ' | ' + b.textContent),
            ...marks.filter(a => meet(box(a), triangle)).map(a => a.textContent)];
    }}"""
    for p in (0, dict(data["jumps"])["peak"], data["n"]):
        player.go(p)
        assert player.page.evaluate(over) == [], p


# Arrows that stand out: [what they leave, what they lead to, whether the head is at the tail].
LIT = f"""() => {{
    const root = {PLAYER}[0].shadowRoot;
    const boxes = [...root.querySelectorAll('.drawing .item[data-nodes]')].map(g =>
        [g.dataset.nodes, g.querySelector('.box').getBBox()]);
    const near = (x, y) => boxes.find(([, b]) => x > b.x - 2 && x < b.x + b.width + 2
        && y > b.y - 2 && y < b.y + b.height + 2)?.[0];
    return [...root.querySelectorAll('.wire')].filter(w => getComputedStyle(w.children[0]).strokeWidth === '3px')
        .map(w => {{
            const ends = w.children[0].getAttribute('d').match(/-?[0-9.]+/g).map(Number);
            const heads = [w.children[1], w.children[2]].map(h => getComputedStyle(h).visibility === 'visible');
            return [near(ends[0], ends[1]), near(ends.at(-2), ends.at(-1) + 9), heads[1] && !heads[0]];
        }});
}}"""


@pytest.mark.parametrize("name", ["layer", "version_error"])
def test_arrows_show_where_something_flows(opened, name):
    """Forward into what runs. Backward in, against the arrow, while a node works; out when it has run."""
    data = Expected(name).data
    player = opened(name)
    player.slider().focus()
    seen = {"op": 0, "run": 0, "accumulate": 0, "error": 0, "forward": 0}
    for p in range(data["n"] + 1):
        lit, what, node = player.page.evaluate(LIT), data["what"][p], str(data["node"][p])
        backward = any(k == "backward" and first <= p <= last for k, first, last in data["phases"])
        if what in ("error", "release", "") or node == "-1":
            assert lit == [], p
            seen["error"] += what == "error"
        elif not backward:
            assert all(to == node and not back for _, to, back in lit), p
            seen["forward"] += len(lit)
        else:
            assert all((tail if what != "run" else to) == node and back for tail, to, back in lit), (p, lit)
            seen[what] = seen.get(what, 0) + len(lit)
        player.press("ArrowRight")
    never = {"layer": {"error"}, "version_error": {"op", "accumulate"}}[name]
    assert {what for what, count in seen.items() if not count} == never


def test_gradients_add_up(opened):
    player = opened("retained")
    player.slider().focus()
    player.press("End")
    assert player.seen()["grads"] == ["grad ×2 added"]
    player.press("Home")
    assert player.seen()["grads"] == []
    cleared = opened("accumulation")
    cleared.slider().focus()
    cleared.press("End")
    assert cleared.seen()["grads"] == []
    cleared.press("PageUp")
    assert set(cleared.seen()["grads"]) == {"grad ×4 added"}


# ---------------------------------------------------------------------------------- ways to get there


def test_keys(opened):
    given = Expected("layer").data
    jumps = dict(given["jumps"])
    n = given["n"]
    player = opened("layer")
    player.slider().focus()
    assert player.press("End") == n
    assert player.press("Shift+ArrowLeft") == n - 10
    assert player.press("Home") == 0
    assert player.press("ArrowLeft") == 0
    assert player.press("Shift+ArrowRight") == 10
    for key, name in (("b", "backward"), ("p", "peak"), ("f", "forward"), ("e", "end")):
        assert player.press(key) == jumps[name], name
    firsts = [first for _, first, _ in given["phases"]]
    assert [player.press("PageUp") for _ in firsts] == firsts[::-1]
    player.press("Home")
    assert [player.press("PageDown") for _ in firsts] == firsts
    failed = opened("version_error")
    failed.slider().focus()
    assert failed.press("e") == dict(Expected("version_error").data["jumps"])["error"]


def test_buttons(opened):
    given = Expected("layer").data
    player = opened("layer")

    def click(name):
        player.page.get_by_role("button", name=name, exact=True).click()
        return player.at()

    jumps = dict(given["jumps"])
    for name in ("backward", "peak", "forward"):
        assert click(f"Jump to {name}") == jumps[name]
    assert click("To the end") == given["n"]
    assert click("Step back") == given["n"] - 1
    assert click("Step forward") == given["n"]
    assert click("To the start") == 0


def test_several_backwards_one_after_the_other(opened):
    given = Expected("accumulation").data
    firsts = [first for name, first, _ in given["phases"] if name == "backward"]
    assert len(firsts) == 4
    player = opened("accumulation")
    player.slider().focus()
    assert [player.press("b") for _ in range(5)] == [*firsts, firsts[0]]


def test_the_slider_by_mouse(opened):
    given = Expected("layer")
    player = opened("layer")
    box = player.slider().bounding_box()
    y = box["y"] + box["height"] / 2
    player.page.mouse.move(box["x"] + 9, y)
    player.page.mouse.down()
    player.page.mouse.move(box["x"] + box["width"] * 0.7, y, steps=8)
    player.page.mouse.up()
    p = player.at()
    assert abs(p - 0.7 * given.data["n"]) < 2
    assert same(player.seen(), given.at(p)) == {}


def moments(given, kind, key):
    entry = given.data[kind][key]
    found = [entry["made"], *entry["ran"]] if kind == "nodes" else [entry["kept"], entry["gone"]]
    return sorted({p for p in found if p})


def test_click_a_node_a_tensor_a_line_a_moment(opened):
    given = Expected("layer")
    player = opened("layer")
    node = next(k for k, v in given.data["nodes"].items() if v["name"] == "ReluBackward0")
    group = player.page.locator(f'.item[data-nodes="{node}"] .box')
    want = moments(given, "nodes", node)
    assert len(want) >= 2
    for p in [*want, want[0]]:
        group.click()
        assert player.at() == p
        assert same(player.seen(), given.at(p)) == {}
    assert player.page.get_by_text(given.data["nodes"][node]["more"]).count() == 1
    saved = next(k for k, v in given.data["saved"].items() if v["gone"])
    for p in moments(given, "saved", saved):
        player.press("Home")
        while player.at() < p - 1:
            player.press("ArrowRight")
        player.page.locator(f'.kept[data-saved="{saved}"] .tensor').click()
        assert player.at() == p
    player.press("Home")
    hot = given.data["hot"]
    index = max(hot)
    player.page.locator(".line").nth(index).click()
    assert player.at() == hot.index(index)
    plot = player.page.locator(".plot").bounding_box()
    for share in (0.1, 0.5, 0.9):
        player.page.mouse.click(plot["x"] + share * plot["width"], plot["y"] + 60)
        assert player.at() == int(share * (given.data["n"] + 1))
    player.page.mouse.down()
    player.page.mouse.move(plot["x"] + 0.3 * plot["width"], plot["y"] + 70, steps=4)
    player.page.mouse.up()
    assert player.at() == int(0.3 * (given.data["n"] + 1))


def test_a_long_recordings_moments(opened):
    """Where several events share a column of the picture, a click finds one of them."""
    given = Expected("transformer")
    player = opened("transformer")
    columns = given.data["memory"]["columns"]
    plot = player.page.locator(".plot").bounding_box()
    player.page.mouse.click(plot["x"] + 0.4 * plot["width"], plot["y"] + 60)
    want = int(0.4 * (columns[-1] + 1))
    assert columns[player.at()] == want
    assert same(player.seen(), given.at(player.at())) == {}


def test_parts_by_keyboard(opened):
    """One Tab stop a view; ↑ and ↓ inside it; Enter and Space go to the moment; Tab leads out."""
    given = Expected("layer")
    player = opened("layer")
    tabs = f"""selector => [...{PLAYER}[0].shadowRoot.querySelectorAll(selector + ' [role=button]')]
        .filter(part => part.tabIndex === 0).length"""
    assert player.page.evaluate(tabs, ".lines") == player.page.evaluate(tabs, ".drawing") == 1
    focused = f"""() => {{
        const e = {PLAYER}[0].shadowRoot.activeElement;
        return e && [e.className.baseVal ?? e.className, e.getAttribute('aria-label')];
    }}"""
    player.page.locator('.lines [role=button][tabindex="0"]').focus()
    first = player.page.evaluate(focused)
    player.press("ArrowDown")
    second = player.page.evaluate(focused)
    assert first[1] != second[1] and second[1].startswith("Line ")
    player.press("Enter")
    index = sorted({h for h in given.data["hot"] if h >= 0})[1]
    assert player.at() == given.data["hot"].index(index)
    player.press("Tab")
    assert "item" in player.page.evaluate(focused)[0] or "kept" in player.page.evaluate(focused)[0]
    assert player.page.evaluate(tabs, ".drawing") == 1
    player.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowUp", "Space")
    label = player.page.evaluate(focused)[1]
    assert str(player.at()) in re.findall(r"\d+", label.split("Step")[-1])
    assert player.press("ArrowLeft") == int(player.slider().input_value())
    tabs = 0
    while player.page.evaluate(focused) is not None:
        player.press("Tab")
        tabs += 1
        assert tabs < 8


def test_keys_do_not_reach_the_page(opened):
    player = opened("layer")
    player.page.evaluate(
        """() => {
            window.heard = [];
            for (const kind of ['keydown', 'keyup', 'keypress'])
                document.addEventListener(kind, e => heard.push(e.key));
        }"""
    )
    player.slider().focus()
    player.press("ArrowRight", "b", "Space", "x", "Enter", "Escape")
    assert player.page.evaluate("() => heard") == []
    assert player.page.locator("[data-gi=player]").get_attribute("data-lm-suppress-shortcuts") == "true"
    player.press("Tab")
    assert "Tab" in player.page.evaluate("() => heard")


def test_play_and_pause(opened):
    player = opened("layer")
    status = player.page.get_by_role("status")
    assert status.get_attribute("aria-live") == "polite"
    player.page.get_by_role("combobox", name="Speed").select_option("16")
    player.page.get_by_role("button", name="Play", exact=True).click()
    assert status.get_attribute("aria-live") == "off"
    player.page.wait_for_function(f"() => {PLAYER}[0].shadowRoot.querySelector('input').value > 3")
    player.slider().focus()
    player.press("Space")
    paused = player.at()
    assert status.get_attribute("aria-live") == "polite"
    player.page.wait_for_timeout(250)
    assert player.at() == paused < 32
    player.press("Space")
    player.page.wait_for_function(f"() => {PLAYER}[0].shadowRoot.querySelector('input').value === '32'")
    sync_api.expect(player.page.get_by_role("button", name="Play", exact=True)).to_have_count(1)
    player.press("Space")
    player.page.wait_for_function(f"() => {PLAYER}[0].shadowRoot.querySelector('input').value < 20")


def test_what_runs_is_in_view(opened):
    """The panes scroll by themselves, the page does not."""
    player = opened("layer", viewport={"width": 700, "height": 500})
    player.page.wait_for_timeout(200)
    player.page.evaluate("() => scrollTo(0, 100)")
    root = f"{PLAYER}[0].shadowRoot"
    for p in range(33):
        player.go(p)
        player.page.wait_for_timeout(30)
        seen = player.page.evaluate(f"""() => {{
            const pane = {root}.querySelector('.drawing').getBoundingClientRect();
            const now = {root}.querySelector('.drawing :is(.gen-a .a, .gen-b .b).is-now .box')?.getBoundingClientRect();
            return [scrollY, !now || (now.top >= pane.top && now.bottom <= pane.bottom)];
        }}""")
        assert seen == [100, True], p


# ---------------------------------------------------------------------------------- pages of all kinds


def test_two_on_a_page(opened):
    """Each has its own position; a script that runs again takes its own player's place."""
    content = page(figure_of("layer")).replace(
        "</main>", f"{figure_of('layer').html}{figure_of('retained').html}</main>"
    )
    player = opened(content)
    assert player.page.locator("[data-gi=player]").count() == 3
    player.slider(1).focus()
    player.press("ArrowRight", "ArrowRight")
    player.slider(2).focus()
    player.press("End")
    assert [player.at(k) for k in range(3)] == [0, 2, Expected("retained").data["n"]]
    player.page.evaluate("""() => {
        const old = document.querySelectorAll('script')[1];
        const again = document.createElement('script');
        again.textContent = old.textContent;
        old.replaceWith(again);
    }""")
    assert [player.at(k) for k in range(3)] == [0, 0, Expected("retained").data["n"]]
    assert player.page.locator("[data-gi=player]").count() == 3
    assert player.page.evaluate("() => document.querySelectorAll('[id]').length") == 0
    assert player.said == []


def test_a_cell_that_is_run_again_leaves_nothing(opened):
    """The page holds one player a cell, not each that was ever there."""
    player = opened("layer")
    devtools = player.context.new_cdp_session(player.page)

    def living():
        player.page.wait_for_timeout(150)
        devtools.send("HeapProfiler.collectGarbage")
        kind = devtools.send("Runtime.evaluate", {"expression": "HTMLDivElement.prototype"})["result"]["objectId"]
        found = devtools.send("Runtime.queryObjects", {"prototypeObjectId": kind})["objects"]["objectId"]
        count = "function () { return this.filter(e => e.dataset.gi === 'player').length; }"
        answer = devtools.send(
            "Runtime.callFunctionOn", {"objectId": found, "functionDeclaration": count, "returnByValue": True}
        )["result"]["value"]
        devtools.send("Runtime.releaseObject", {"objectId": found})
        return answer

    again = """() => {
        const old = document.querySelector('script');
        const again = document.createElement('script');
        again.textContent = old.textContent;
        old.replaceWith(again);
    }"""
    for _ in range(10):
        player.page.evaluate(again)
        player.page.wait_for_timeout(60)  # until it is drawn
    assert living() == 1
    # taken out and put back, it follows the theme again
    player.page.evaluate(f"() => {{ window.kept = {PLAYER}[0]; window.place = kept.nextSibling; kept.remove(); }}")
    player.page.wait_for_timeout(100)
    player.page.evaluate("() => { place.before(kept); }")
    player.page.wait_for_timeout(100)
    player.page.evaluate("() => document.documentElement.setAttribute('theme', 'dark')")
    player.page.wait_for_function(f"() => ({THEME})() === 'dark'")
    assert player.said == []


def test_hostile_names_are_text(opened):
    player = opened("hostile")
    player.slider().focus()
    for _ in range(Expected("hostile").data["n"]):
        player.press("ArrowRight")
    root = f"{PLAYER}[0].shadowRoot"
    assert (
        player.page.evaluate(
            f"() => {root}.querySelectorAll('script, foreignObject, iframe, [onload], [onclick]').length"
        )
        == 0
    )
    assert "<script>alert(1)</script>" in player.page.evaluate(f"() => {root}.querySelector('.drawing').textContent")
    assert "</script><script>alert(1)</script>" in player.page.evaluate(
        f"() => {root}.querySelector('.lines').textContent"
    )
    assert player.said == []


def test_a_drawing_cannot_bring_a_script(opened):
    """Whatever stands in the still's picture: only forms and words are taken over."""
    figure = figure_of("layer")
    bad = (
        '<script>alert(1)</script><foreignObject><p xmlns="http://www.w3.org/1999/xhtml">x</p></foreignObject>'
        '<image href="http://example.com/x.png" onerror="alert(1)"/><a href="javascript:alert(1)"><text>y</text></a>'
        '<rect onload="alert(1)" onclick="alert(1)" style="fill:url(http://example.com/y)" width="9" height="9"/></svg>'
    )

    def planted(found):
        svg = base64.b64decode(found[1]).decode()
        return f"base64,{base64.b64encode(svg.replace('</svg>', bad).encode()).decode()}"

    player = opened(re.sub(r"base64,([A-Za-z0-9+/=]+)(?=\")", planted, page(figure)))
    assert player.page.locator("[data-gi=player]").count() == 1
    left = f"""() => [...{PLAYER}[0].shadowRoot.querySelectorAll('*')].filter(e =>
        /^(script|foreignObject|image|a)$/.test(e.localName) || [...e.attributes].some(a => /^on|href/.test(a.name))
        || (e.getAttribute('style') || '').includes('url')).length"""
    assert player.page.evaluate(left) == 0
    assert player.said == []
    assert all(url.startswith(("file:", "data:")) for url in player.asked)


def test_without_javascript(opened):
    player = opened("layer", java_script_enabled=False)
    assert player.page.locator("[data-gi=player]").count() == 0
    assert player.page.locator("[data-gi=still] img").count() == 2
    assert all(player.page.locator("[data-gi=still] img").nth(k).is_visible() for k in range(2))
    assert player.page.get_by_role("slider").count() == 0


def test_in_a_sandboxed_frame_that_may_load_nothing(opened):
    """As Colab has it: a frame of its own, scripts allowed, no origin, and a policy without outside resources."""
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    inner = (
        '<!DOCTYPE html><html><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"></head>'
        f"<body>{figure_of('layer').html}</body></html>"
    )
    quoted = inner.replace("&", "&amp;").replace('"', "&quot;")
    player = opened(
        '<!DOCTYPE html><meta charset="utf-8"><title>x</title><iframe title="x" sandbox="allow-scripts" '
        f'style="width:1150px;height:1300px" srcdoc="{quoted}"></iframe>'
    )
    frame = player.page.frame_locator("iframe")
    slider = frame.get_by_role("slider", name="Step")
    slider.focus()
    player.page.keyboard.press("b")
    p = dict(Expected("layer").data["jumps"])["backward"]
    assert slider.input_value() == str(p)
    assert frame.get_by_role("status").text_content() == Expected("layer").steps[p]
    assert frame.locator("[data-gi=still]").is_hidden()
    # the style sheet is in force, too
    assert frame.locator(".player").evaluate("e => getComputedStyle(e).display") == "grid"
    assert player.said == []
    assert all(url.startswith(("file:", "data:", "about:")) for url in player.asked)


# ---------------------------------------------------------------------------------- failure, odd data


STILL = card('<div data-part="code">the still</div>', mark=' data-gi="still"')


def planted(data, still=STILL):
    script, css = ((HERE / f"player.{kind}").read_text(encoding="utf-8") for kind in ("js", "css"))
    return (
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>x</title><body>{still}'
        f"<script>(function (data, css) {{\n{script}\n}})({as_json(data)}, {as_json(css)});</script></body></html>"
    )


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        [],
        {"n": 3},
        {"n": 0, "caption": [[0]], "words": ["Nothing."], "kept_count": [0], "kept_bytes": [0]},
        {"n": -4, "lines": [], "graphs": []},
        {"n": 2, "lines": [[1, "x = 1"], ["…", "9 more lines"]], "hot": [-1, 0], "call": []},
        {"n": 2, "graphs": [{"drawing": -1, "first": 0, "last": 2, "words": "Too large to draw."}], "drawings": [None]},
        {"n": 2, "graphs": [{"drawing": 7, "first": 0, "last": 1}], "drawings": []},
        {"n": 1, "categories": [["a", "a", "#000", "#000", "#000", ""]], "start": [8], "memory": None},
        {"n": 1, "phases": [["forward", 1, 99]], "jumps": [["peak", 12]], "rounds": [[5, 9]], "nodes": None},
    ],
    ids=str,
)
def test_odd_data(opened, data):
    player = opened(planted(data))
    player.slider().focus()
    n = max(0, (data or {}).get("n", 0)) if isinstance(data, dict) else 0
    assert player.press("End", "Home", "ArrowRight", "p", "b", "PageDown", "End") == n
    assert player.said == []
    assert player.page.locator("[data-gi=still]").is_hidden()


def test_a_failure_leaves_the_still(opened):
    broken = re.sub(r"base64,[A-Za-z0-9+/=]+(?=\")", "base64,AAAA", page(figure_of("layer")))
    player = opened(broken)
    assert player.page.locator("[data-gi=player]").count() == 0
    assert player.page.get_by_text("The code that ran", exact=True).first.is_visible()
    assert len(player.said) == 1 and player.said[0].startswith("The player stopped, its still picture stays.")


def test_a_failure_at_a_step_brings_the_still_back(opened):
    player = opened("layer")
    assert player.page.locator("[data-gi=still]").is_hidden()
    player.slider().focus()
    player.page.evaluate("() => { DOMTokenList.prototype.add = () => { throw new Error('planted'); }; }")
    player.page.keyboard.press("ArrowRight")
    assert player.page.locator("[data-gi=player]").count() == 0
    assert player.page.locator("[data-gi=still]").is_visible()
    assert player.said == ["The player stopped, its still picture stays. planted"]


def test_without_its_still(opened):
    player = opened(planted({"n": 3}, still="<p>something else</p>"))
    assert player.page.get_by_text("something else").is_visible()
    assert player.page.locator("[data-gi=player]").count() == 0
    assert len(player.said) == 1


# ---------------------------------------------------------------------------------- looks and access

MARKS = {
    "JupyterLab": ("document.body.dataset.jpThemeLight = 'false'", "document.body.dataset.jpThemeLight = 'true'"),
    "Colab": (
        "document.documentElement.setAttribute('theme', 'dark')",
        "document.documentElement.setAttribute('theme', 'light')",
    ),
    "VS Code": ("document.body.className = 'vscode-dark'", "document.body.className = 'vscode-light'"),
    "ground": ("document.body.style.backgroundColor = '#101010'", "document.body.style.backgroundColor = '#fafafa'"),
}
THEME = f"() => {PLAYER}[0].shadowRoot.querySelector('.player').dataset.theme"


@pytest.mark.parametrize("front", MARKS)
def test_theme_of_the_front_end(opened, front):
    player = opened(planted({"n": 3}))
    for mark, theme in zip(MARKS[front] * 2, ("dark", "light") * 2, strict=True):
        player.page.evaluate(f"() => {{ {mark} }}")
        player.page.wait_for_function(f"theme => ({THEME})() === theme", arg=theme)


def test_theme_that_the_reader_prefers(opened):
    """Where the page has neither mark nor ground."""
    player = opened(planted({"n": 3}), color_scheme="dark")
    assert player.page.evaluate(THEME) == "dark"
    player.page.emulate_media(color_scheme="light")
    player.page.wait_for_function(f"() => ({THEME})() === 'light'")


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_motion(opened, motion):
    player = opened("layer", reduced_motion=motion)
    moving = f"""() => [...{PLAYER}[0].shadowRoot.querySelectorAll('*')].filter(e => getComputedStyle(e)
        .transitionDuration.split(', ').some(d => d !== '0s')
        || getComputedStyle(e).scrollBehavior === 'smooth').length"""
    assert (player.page.evaluate(moving) > 0) == (motion == "no-preference")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["layer", "retained", "second_time", "transformer", "no_gradients", "awkward"])
def test_axe(opened, name, theme):
    content = page(figure_of(name))
    if name == "layer":
        content = content.replace("</main>", f"{figure_of('product').html}</main>")
    player = opened(content, viewport={"width": 1100, "height": 2600})
    if theme == "dark":
        player.page.evaluate("""() => { document.documentElement.setAttribute('theme', 'dark');
            for (const e of [document.body, ...document.querySelectorAll('h1, details')])
                Object.assign(e.style, { background: '#111', color: '#eee' }); }""")
        player.page.wait_for_function(f"() => ({THEME})() === 'dark'")
    jumps = dict(Expected(name).data["jumps"])
    player.slider().focus()
    for p in sorted({0, jumps.get("backward", 0), jumps["peak"], jumps["end"]}):
        player.go(p)
        found = axe.Axe().run(player.page, options={"rules": {"target-size": {"enabled": True}}})
        assert [
            (v["id"], node["html"][:160], node["failureSummary"][:300])
            for v in found.response["violations"]
            for node in v["nodes"]
        ] == [], p


CONTRAST = f"""() => {{
    const root = {PLAYER}[0].shadowRoot;
    const light = c => {{
        const [r, g, b] = c.match(/[0-9.]+/g).map(v => v / 255)
            .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b; }};
    const ratio = (a, b) => {{
        const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
        return (x + .05) / (y + .05);
    }};
    const shown = t => t.textContent.trim() && getComputedStyle(t.parentNode).opacity !== '0';
    const pane = getComputedStyle(root.querySelector('.drawing')).backgroundColor;
    return [...root.querySelectorAll('.drawing text')].filter(shown).map(t => {{
        const form = t.parentNode.querySelector('.box, .tensor, .grad > rect');
        const fill = t.closest('.item, .kept, .grad') && form ? getComputedStyle(form).fill : pane;
        return [ratio(getComputedStyle(t).fill, fill === 'none' ? pane : fill), t.textContent];
    }}).filter(([r]) => r < 4.5);
}}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "name", ["layer", "version_error", "second_time", "custom", "pruned", "transformer", "offloaded"]
)
def test_words_in_the_graph_can_be_read(opened, name, theme):
    """axe leaves words in a drawing out: contrast with the form that they stand in, in each state."""
    player = opened(name)
    if theme == "dark":
        player.page.evaluate("() => document.documentElement.setAttribute('theme', 'dark')")
        player.page.wait_for_function(f"() => ({THEME})() === 'dark'")
    n = Expected(name).data["n"]
    player.slider().focus()
    for p in range(0, n + 1, max(1, n // 30)):
        player.go(p)
        assert player.page.evaluate(CONTRAST) == [], p


@pytest.mark.parametrize("width", [256, 360, 600, 900, 1200, 1700])
def test_it_fits_its_place(opened, width):
    """Nothing but the panes scrolls sideways."""
    for name in ("layer", "transformer", "hostile"):
        player = opened(name, viewport={"width": width, "height": 900})
        over = f"""() => {{
            const host = {PLAYER}[0];
            const right = host.getBoundingClientRect().right + 1;
            const parts = [...host.shadowRoot.querySelector('.player').children];
            return [document.documentElement.scrollWidth - innerWidth,
                parts.filter(e => e.getBoundingClientRect().right > right).map(e => e.className)];
        }}"""
        assert player.page.evaluate(over) == [0, []], name


def test_size():
    """Both go into every figure."""
    assert sum(len((HERE / name).read_bytes()) for name in ("player.js", "player.css")) < 84_000


def test_nothing_is_fetched_or_evaluated_by_name():
    code = (HERE / "player.js").read_text(encoding="utf-8") + (HERE / "player.css").read_text(encoding="utf-8")
    for word in (
        "eval(",
        "new Function",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "fetch(",
        "XMLHttp",
        "import(",
        "@import",
        "url(",
        "localStorage",
        "</script",
        "<!--",
    ):
        assert word not in code, word
