"""The player's data agree with the recording at every position, and its still is the overview."""

import base64
import html
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import pytest
import torch

from helpers import data, record
from helpers.data import kept_moment, live_storages, state_at, timeline
from helpers.figures import ledger, overview_figure, player_figure
from helpers.figures.overview import code_lines, graph_shown, line_of
from helpers.figures.player import as_json, asset, steps_of
from tests.figures.player_samples import SAMPLES as REAL
from tests.figures.player_samples import recorded, transformer
from tests.figures.recordings import SAMPLES as BY_HAND
from tests.figures.sound import SVG, check_sound

SAMPLES = {**BY_HAND, **REAL}
#: Events up to which every position is looked at.
FEW = 300  # of a longer one, a tenth of that


@cache
def figure_of(name):
    return player_figure(SAMPLES[name]())


def parsed(figure):
    """(still, the code of the script, data, css) of a figure's HTML."""
    still, rest = figure.html.split("<script>", 1)
    content, _, after = rest.rpartition("</script>")
    assert not after
    start = content.rindex("\n})(") + len("\n})(")
    decoder = json.JSONDecoder()
    found, end = decoder.raw_decode(content[start:])
    css, last = decoder.raw_decode(content[start + end :].lstrip(" ,"))
    assert content[start + end :].lstrip(" ,")[last:] == ");"
    assert content.startswith("(function (data, css) {\n")
    return still, content[len("(function (data, css) {\n") : start - len("\n})(")], found, css


@cache
def given(name):
    return parsed(figure_of(name))[2]


def some(n):
    return range(n + 1) if n <= FEW else sorted({*range(0, n + 1, 10 * n // FEW), n - 1, n})


@pytest.mark.parametrize("name", SAMPLES)
def test_numbers_at_every_position(name):
    recording, found = SAMPLES[name](), given(name)
    n = found["n"]
    assert n == len(recording.events)
    line = timeline(recording)
    now, at = list(found["start"]), {}
    for p, c, more in found["delta"]:
        assert more
        at.setdefault(p, []).append((c, more))
    for p in range(n + 1):
        for c, more in at.get(p, ()):
            now[c] += more
        assert tuple(now) == line.rows[p]
    assert found["peak"] == line.peak + 1
    for key in ("hot", "call", "caption", "kept_count", "kept_bytes", "kept_alive", "node", "what"):
        assert len(found[key]) == n + 1
    order = list(dict.fromkeys(saved.node for saved in recording.saved))
    for p in some(n):
        assert found["kept_bytes"][p] == data.kept_bytes(recording, p - 1)
        rows = ledger.rows(recording, p - 1, order)
        assert found["kept_count"][p] == len({s for row in rows if row.counts for s in row.saved.storages})
        live = live_storages(recording, p - 1)
        held = {s for row in rows if row.held for s in row.saved.storages if s in live}
        assert found["kept_alive"][p] == sum(live[s][1] in ("parameters", "buffers") for s in held)
        if all(len(row.saved.storages) == 1 for row in rows if row.counts):
            assert found["kept_count"][p] == ledger.counted_tensors(rows)


@pytest.mark.parametrize("name", SAMPLES)
def test_nodes_and_lines_at_every_position(name):
    recording, found = SAMPLES[name](), given(name)
    lines = [number for number, _ in found["lines"]]
    assert found["node"][0] == found["hot"][0] == found["call"][0] == -1 and found["what"][0] == ""
    for event in recording.events:
        p = event.index + 1
        assert found["node"][p] == (-1 if event.node is None else event.node)
        assert found["what"][p] == event.kind
        number = line_of(recording, event)
        if event.phase != "backward":
            assert found["call"][p] == -1
            assert (lines[found["hot"][p]] if found["hot"][p] >= 0 else None) == number or number not in lines
            continue
        assert (lines[found["call"][p]] if found["call"][p] >= 0 else None) == number or number not in lines
        node = recording.nodes[event.node] if event.node is not None else None
        if node is not None and node.leaf is None and node.place is not None:
            frame = recording.place_of(node.place).outer
            if frame and frame.source == recording.cell and frame.line in lines:
                assert lines[found["hot"][p]] == frame.line
        if event.kind in ("enter", "leave", "accumulate"):
            assert found["hot"][p] == -1


@pytest.mark.parametrize("name", SAMPLES)
def test_kept_tensors_and_nodes(name):
    recording, found = SAMPLES[name](), given(name)
    in_graphs = {n for graph in recording.graphs for n in (*graph.nodes, *graph.pruned)}
    assert set(map(int, found["nodes"])) == in_graphs
    for key, saved in found["saved"].items():
        mine = recording.saved[int(key)]
        for p in {0, saved["kept"], saved["kept"] - 1, saved["gone"] or 0, (saved["gone"] or 1) - 1, found["n"]}:
            state = state_at(mine, p - 1)
            if p < saved["kept"]:
                assert state is None or p < 0
            elif saved["gone"] is not None and p >= saved["gone"]:
                assert state == "released"
            elif saved["packed"]:
                assert state == "packed"
            elif p >= 0:
                changed = saved["changed"] is not None and p >= saved["changed"]
                assert state == ("changed in place" if changed else "live")
        assert saved["bytes"] == mine.nbytes and saved["words"]
    missing = {s.id for s in recording.saved if s.node in in_graphs} - set(map(int, found["saved"]))
    assert all(
        s.scalar or s.state == "never saved" or s.kept is None for s in map(recording.saved.__getitem__, missing)
    )
    for key, node in found["nodes"].items():
        mine = recording.nodes[int(key)]
        ran = [e.index + 1 for e in recording.events if e.node == mine.id and e.kind in ("run", "accumulate")]
        assert node["ran"] == ran and node["name"] == mine.name and node["more"]
        if not mine.leaf:
            assert node["made"] == (0 if mine.event is None else mine.event + 1)
    arrived = [e for e in recording.events if e.accumulated is not None]
    came = [entry for leaf in found["leaves"].values() for entry in leaf if entry[2] != "cleared"]
    assert len(came) == len(arrived)
    for event in arrived:
        sizes = sum(recording.storages[s].nbytes for s in event.accumulated.storages)
        how = "first" if event.accumulated.first else "added"
        assert [event.index + 1, sizes, how] in found["leaves"][str(event.accumulated.node)]
    for leaf, entries in found["leaves"].items():
        for p, nbytes, how in entries:
            if how == "cleared":
                before = [e for e in arrived if e.accumulated.node == int(leaf) and e.index < p - 1]
                assert nbytes == 0 and set(before[-1].accumulated.storages) & set(recording.events[p - 1].freed)


@pytest.mark.parametrize("name", SAMPLES)
def test_phases_rounds_and_jumps(name):
    recording, found = SAMPLES[name](), given(name)
    covered = [p for _, first, last in found["phases"] for p in range(first, last + 1)]
    assert covered == list(range(1, found["n"] + 1))
    for phase, first, last in found["phases"]:
        assert {e.phase for e in recording.events[first - 1 : last]} == {phase}
    if found["rounds"]:
        assert found["rounds"][-1][1] == found["n"]
        assert all(a[1] + 1 == b[0] for a, b in zip(found["rounds"], found["rounds"][1:], strict=False))
    jumps = dict(found["jumps"])
    assert jumps["start"] == 0 and jumps["end"] == found["n"] and jumps["peak"] == found["peak"]
    for phase in ("forward", "backward"):
        first = next((e.index + 1 for e in recording.events if e.phase == phase), None)
        assert jumps.get(phase) == first
    failed = bool(recording.events) and recording.events[-1].kind == "error"
    assert ("error" in jumps) == failed == (found["error"] is not None)


def drawings(figure, found):
    """The graph's drawings: the still's, then those in the data."""
    still = figure.html.split("<script>")[0]
    part = still[still.index('data-part="graph"') :]
    picture = base64.b64decode(re.search(r"base64,([^\"]+)", part)[1]).decode()
    return [picture if svg is None else svg for svg in found["drawings"]]


@pytest.mark.parametrize("name", SAMPLES)
def test_each_part_of_a_drawing_is_named(name):
    """A graph's lists have one entry for each item and kept tensor, every node and kept tensor of it is in them, and
    they are like what is drawn, repetition by repetition."""
    recording, found = SAMPLES[name](), given(name)
    pictures = drawings(figure_of(name), found)
    assert len(found["graphs"]) == len(recording.graphs)
    assert len(pictures) <= 6 and sum(len(svg) for svg in pictures[1:]) <= 400_000
    for graph, mine in zip(found["graphs"], recording.graphs, strict=True):
        if graph["drawing"] < 0:
            assert f"run.graphs[{mine.id}]" in graph["words"]
            continue
        root = ET.fromstring(pictures[graph["drawing"]])
        assert sum(g.get("class") == "head" for g in root.iter(f"{SVG}g")) == 1
        items = [g for g in root.iter(f"{SVG}g") if g.get("data-nodes")]
        tensors = [g for g in root.iter(f"{SVG}g") if g.get("data-saved")]
        assert len(items) == len(graph["items"]) == len(graph["item_blocks"])
        assert len(tensors) == len(graph["tensors"]) == len(graph["tensor_blocks"])
        if not items:
            continue
        nodes = {n for item in graph["items"] for n in item} - {-1}
        assert nodes == {*mine.nodes, *mine.pruned}
        shown = {s for tensor in graph["tensors"] for s in tensor} - {-1}
        assert shown <= {s for n in nodes for s in recording.nodes[n].saved}
        moment = mine.event if mine.event is not None else len(recording.events) - 1
        there = [s for n in nodes for s in recording.nodes[n].saved if not recording.saved[s].scalar]
        assert shown == {s for s in there if state_at(recording.saved[s], moment) not in (None, "never saved")}
        parts = zip([*items, *tensors], [*graph["items"], *graph["tensors"]], strict=True)
        blocks = [*graph["item_blocks"], *graph["tensor_blocks"]]
        for (part, ids), block in zip(parts, blocks, strict=True):
            count = graph["blocks"][block]["count"] if block >= 0 else 1
            drawn = (part.get("data-nodes") or part.get("data-saved")).split(" ")
            assert len(ids) == count * len(drawn)
            for k, one in enumerate(drawn):
                mine_like = {like(recording, part, ids[k + r * len(drawn)]) for r in range(count)} - {None}
                assert mine_like == {like(recording, part, int(one))}


def like(recording, part, i):
    if i < 0:
        return None
    if part.get("data-nodes"):
        node = recording.nodes[i]
        return node.name, node.outputs, node.leaf and node.leaf.shape
    saved = recording.saved[i]
    return recording.nodes[saved.node].name, saved.argument, saved.position, saved.shape


@pytest.mark.parametrize("name", SAMPLES)
def test_the_graph_of_a_pass_is_shown_while_it_runs(name):
    recording, found = SAMPLES[name](), given(name)
    for p in range(found["n"] + 1):
        shown = [i for i, graph in enumerate(found["graphs"]) if graph["first"] <= p <= graph["last"]]
        assert shown or not found["graphs"]
        event = recording.events[p - 1] if p else None
        if (
            event is not None
            and event.graph is not None
            and event.kind in ("run", "enter", "leave", "release", "error")
        ):
            assert shown[-1] == event.graph


def test_repetitions_stand_in_order():
    """Twelve layers are one block, and each item's ids are of layers 1 to 12 in order."""
    recording, found = REAL["transformer"](), given("transformer")
    graph = found["graphs"][0]
    assert graph["blocks"] == [{"frame": 0, "label": "12 modules (1 … 12)", "count": 12}]
    folded = [item for item, block in zip(graph["items"], graph["item_blocks"], strict=True) if block == 0]
    assert len(folded) > 20
    for item in folded:
        k = len(item) // 12
        layers = [recording.nodes[n].module.split(".")[0] for n in item if n >= 0 and recording.nodes[n].module]
        assert layers == sorted(layers, key=int)
        assert not layers or len(layers) % 12 == 0 or k > 1
    leaves = [item for item in folded if recording.nodes[item[-1]].leaf]
    names = [
        [recording.nodes[n].leaf.names[0].split(".", 1) for n in item if recording.nodes[n].leaf] for item in leaves
    ]
    for item in names:
        assert [layer for layer, _ in item] == [str(i) for i in range(1, 13)] and len({rest for _, rest in item}) == 1


def test_rounds_begin_with_the_loop():
    """A round begins where its gradients are cleared, not with its forward; what it ends with is its own."""
    recording, found = REAL["loop"](), given("loop")
    assert len(found["rounds"]) == 3 and found["rounds"][0][0] == 1
    for first, last in found["rounds"]:
        assert "`SGD.zero_grad()` is called" in " ".join(found["words"][i] for i in found["caption"][first])
        assert recording.events[last - 1].op == "aten._local_scalar_dense"
    assert "round" not in " ".join(found["words"])
    x = torch.ones(3, requires_grad=True)
    with record() as run:
        before = torch.ones(3)
        for _ in range(2):
            batch = before * 2
            (x * batch).sum().backward()
    rounds = parsed(player_figure(run.recording))[2]["rounds"]
    made = [e.index + 1 for e in run.recording.events if e.phase == "between" and e.op == "aten.mul"]
    assert [first for first, _ in rounds] == made and made[0] > 1


def test_backward_starts_only_where_it_ran():
    x = torch.ones(3, requires_grad=True)
    with record() as run:
        y = (x * 2).sum()
    assert y.requires_grad and "backward starts here" not in player_figure(run.recording).html
    picture = drawings(player_figure(run.recording), parsed(player_figure(run.recording))[2])[0]
    assert "Sum" in picture and "backward starts here" not in picture
    assert "backward starts here" in drawings(figure_of("layer"), given("layer"))[0]


def test_like_graphs_share_a_drawing():
    """Four micro-batches are drawn once; so are two passes over one graph of which one retains it."""
    found = given("accumulation")
    assert [graph["drawing"] for graph in found["graphs"]] == [0, 0, 0, 0] and found["drawings"] == [None]
    assert len({json.dumps(graph["items"]) for graph in found["graphs"]}) == 4
    first, second = given("retained")["graphs"]
    assert first["drawing"] == second["drawing"] == 0
    assert first["flags"] == ["retain_graph=True: this backward releases nothing"] and not second["flags"]
    assert [graph["drawing"] for graph in given("second_time")["graphs"]] == [1, 0]  # the still shows the failed one


@pytest.mark.parametrize("name", SAMPLES)
def test_the_still_is_the_overview(name):
    """What a front end leaves that strips scripts and data-* is the overview, byte for byte."""
    still, code, _, css = parsed(figure_of(name))
    assert still.startswith('<div data-gi="still" ')
    plain = re.sub(r' data-(?:gi|part)="[a-z]+"', "", still)
    assert plain == overview_figure(SAMPLES[name]()).html
    assert (code, css) == (asset("player.js"), asset("player.css"))
    parts = re.findall(r'data-part="([a-z]+)"', still)
    expected = ["code"] if code_lines(SAMPLES[name]()) else []
    assert parts == [*expected, "graph", "kept", "memory"]
    check_sound(replace(figure_of(name), script="", body=re.sub(r' data-part="[a-z]+"', "", figure_of(name).body)))


@pytest.mark.parametrize("name", ["layer", "transformer", "hostile", "accumulation"])
def test_same_bytes_each_time(name):
    make = REAL[name].__wrapped__
    first, second = player_figure(make()), player_figure(make())
    assert first == second and first.html == second.html


@pytest.mark.parametrize("name", SAMPLES)
def test_no_label_ends_the_script(name):
    """Nothing in it can be taken for a tag, a comment or a line's end by an HTML parser."""
    html = figure_of(name).html
    assert html.lower().count("<script") == asset("player.js").lower().count("<script") + 1
    assert html.lower().count("</script") == 1 and html.endswith("</script>")
    assert "<!--" not in html and "\u2028" not in html and "\u2029" not in html
    html.encode()
    found = as_json(given(name))
    assert "<" not in found


def test_hostile_names_arrive_as_they_are():
    found = given("hostile")
    said = " ".join(found["words"])
    assert '"<script>alert(1)</script>"' in said
    assert any("</script><script>alert(1)</script><!-- &amp; " in code for _, code in found["lines"])
    assert "\\u2028" in said  # a name's line separator is written out


def test_nothing_is_fetched_or_evaluated():
    for name in ("player.js", "player.css"):
        content = asset(name)
        assert "</script" not in content.lower() and "<!--" not in content
        for word in ("eval(", "new Function", "fetch(", "XMLHttpRequest", "import(", "@import", "url(", "localStorage"):
            assert word not in content, word
        assert set(re.findall(r"https?://[^\"'\s]+", content)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", REAL)
def test_sizes(name):
    """An ordinary figure has under 300 kB, a folded model of twelve layers under 2 MB."""
    size = len(figure_of(name).html.encode())
    assert size < (300_000 if len(REAL[name]().events) < 1_000 else 2_000_000)


def test_a_step_of_a_larger_model():
    """Labels grow, drawings do not: 24 layers, with their step, still fit."""
    figure = player_figure(recorded(lambda: transformer(24)))
    assert len(figure.html.encode()) < 2_000_000


def test_long_code_is_folded():
    recording = BY_HAND["product"]()
    source = recording.sources[0]
    long = replace(recording, sources=(replace(source, lines=(*source.lines, *["pass"] * 200)),), span=(1, 204))
    found = parsed(player_figure(long))[2]
    assert len(found["lines"]) == 121 and found["lines"][60] == ["…", "84 more lines"]
    assert found["lines"][61][0] == 145
    assert found["lines"][found["hot"][1]][0] == 3


def test_gradients_are_cleared_where_zero_grad_lets_them_go():
    for entries in given("accumulation")["leaves"].values():
        assert [how for _, _, how in entries] == ["first", "added", "added", "added", "cleared"]


def test_a_graph_is_named_by_its_pass():
    titles = [graph["title"] for graph in given("accumulation")["graphs"]]
    assert all(title.startswith(f"Graph {k} of 4: backward() on line") for k, title in enumerate(titles, 1))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_ledgers_rows_are_named(name):
    """One list for each row of the still's ledger, and each tensor in it is held at the still's moment, once."""
    recording, found = SAMPLES[name](), given(name)
    still = figure_of(name).html.split("<script>")[0]
    part = still[still.index('data-part="kept"') : still.index('data-part="memory"')]
    rows = re.findall(r'<tr><th scope="row"[^>]*>([^<]*)</th>', part)[:-1]  # the last is the sum
    assert len(rows) == len(found["ledger"])
    shown = graph_shown(recording)
    moment = recording.graphs[shown].event if recording.graphs else None
    moment = kept_moment(recording) if moment is None else moment
    ids = [s for row in found["ledger"] for s in row]
    held = {s.id for s in recording.saved if state_at(s, moment) in ("live", "packed", "changed in place")}
    assert len(ids) == len(set(ids)) and set(ids) == held - {s.id for s in recording.saved if s.scalar}
    for name_shown, row in zip(rows, found["ledger"], strict=True):
        names = {recording.nodes[recording.saved[s].node].name for s in row}
        assert len(names) == 1 and html.unescape(name_shown)[:30] in names.pop()[:30]


def test_what_is_alive_anyway_is_not_called_nothing():
    """A product of two leaves keeps both: neither counts, and neither is nothing."""
    found = given("product")
    assert not any(found["kept_count"])
    said = steps_of(found)
    for alive, words in zip(found["kept_alive"], said, strict=True):
        assert f"Still kept: {'only what is alive anyway' if alive else 'nothing'}. Live: " in words
    assert max(found["kept_alive"]) == 2 and found["kept_alive"][0] == found["kept_alive"][-1] == 0
    assert not any("Still kept" in words for words in steps_of(given("no_gradients")))
