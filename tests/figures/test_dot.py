"""torchviz's graphs as figures: its colours and words, no address of memory, never an exception for a layout's sake."""

import importlib
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import graphviz
import pytest
import torch
import torchviz

from helpers.figures import layout, picture
from helpers.figures.dot_source import read
from tests.figures.sound import check_sound, texts

dot = importlib.import_module("helpers.figures.dot")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def mlp():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    return torchviz.make_dot(model(torch.ones(2, 3)).pow(2).mean(), params=dict(model.named_parameters()))


def shared(**options):
    w = torch.ones(3, 2, requires_grad=True)
    h = w * w
    return torchviz.make_dot((h @ h.T).sum(), params={"w": w}, **options)


def view():
    w = torch.ones(3, 2, requires_grad=True)
    return torchviz.make_dot((w * 2).t(), params={"w": w})


def custom():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    return torchviz.make_dot(Square.apply(torch.ones(2, requires_grad=True)))


def full():
    return shared(show_attrs=True, show_saved=True)


#: torchviz asks `distutils` for torch's version.
pytestmark = pytest.mark.filterwarnings("ignore:distutils:DeprecationWarning")
GRAPHS = {make.__name__: make for make in (mlp, shared, full, view, custom)}


@pytest.mark.parametrize("name", GRAPHS)
def test_sound_and_without_addresses(name):
    source = GRAPHS[name]()
    figure = picture(source)
    check_sound(figure)
    assert figure.svg
    names = set(re.findall(r"\b\d{9,}\b", source.source))
    assert len(names) > 3
    for where in (figure.text, figure.text_full(), figure.html, figure.svg, figure.alt):
        assert not any(address in where for address in names)
    found = read(source.source)
    assert len(found.nodes) == len(names)
    assert len(found.edges) == source.source.count("->")


def test_twin_of_a_shared_node():
    assert picture(shared()).text == "\n".join(
        [
            "Drawn by torchviz: 7 boxes, 8 arrows",
            "1 result, 5 operations, 1 leaf.",
            "Arrows run as forward does, from leaves to results.",
            "",
            "Boxes:",
            "  [1] (): result",
            "  [2] SumBackward0: operation",
            "  [3] MmBackward0: operation",
            "  [4] MulBackward0: operation",
            "  [5] AccumulateGrad: operation",
            "  [6] w (3, 2): leaf",
            f"  [7] {TURN}: operation",
            "",
            "Arrows:",
            "  [3] MmBackward0 → [2] SumBackward0",
            "  [4] MulBackward0 → [3] MmBackward0",
            "  [5] AccumulateGrad → [4] MulBackward0 (2 times)",
            "  [6] w (3, 2) → [5] AccumulateGrad",
            f"  [7] {TURN} → [3] MmBackward0",
            f"  [4] MulBackward0 → [7] {TURN}",
            "  [2] SumBackward0 → [1] ()",
        ]
    )


#: What `.T` is called differs between versions of torch.
TURN = torch.ones(1, 1, requires_grad=True).T.grad_fn.name()


def test_saved_tensors_and_attributes():
    figure = picture(full())
    assert "2 saved tensors, 1 leaf" in figure.text
    assert "A line joins an operation to a tensor that it saved." in figure.text
    assert re.search(r"\[\d+\] MmBackward0 — \[\d+\] mat2 \(2, 3\)", figure.text)
    assert "MulBackward0: operation; other: [saved tensor]; self: [saved tensor]" in figure.text
    assert "---" not in figure.text
    shown = texts(figure.svg)
    assert "MmBackward0" in shown and any(set(t) == {"-"} for t in shown)
    assert any(re.fullmatch(r"mat2[\s\u00a0]+: \[saved tensor\]", t) for t in shown)


def test_looks_as_torchviz_does():
    svg = picture(full()).svg
    for colour in ("#add8e6", "#ffa500", "#d3d3d3", "#caff70"):  # lightblue, orange, lightgrey, darkolivegreen1
        assert f'fill="{colour}"' in svg
    assert 'font-size="13.3"' in svg
    assert "#a2cd5a" in picture(view()).svg  # darkolivegreen3
    assert "(dotted)" in picture(view()).text and 'stroke-dasharray="1.5 3"' in picture(view()).svg


def test_saved_by_a_custom_function():
    """torchviz paints a leaf that is saved orange: so do we, and the words follow the colour."""
    text = picture(custom()).text
    assert "[4] (2): saved tensor" in text and "SquareBackward: operation" in text
    assert "[4] (2) — [2] SquareBackward" in text


CODE = """
import sys
pad = [object() for _ in range(int(sys.argv[1]))]
from tests.figures.test_dot import GRAPHS
from helpers.figures import picture
for make in GRAPHS.values():
    figure = picture(make())
    print(figure.html)
    print(figure.text)
"""


def test_same_bytes_in_two_processes():
    def out(pad, seed):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CODE, str(pad)],
            capture_output=True, cwd=ROOT, timeout=300, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    first = out(10, "1")
    assert len(first) > 5000
    assert first == out(100_001, "2")


def test_nothing_of_theirs_is_imported():
    code = "import sys, helpers.figures.dot; print([m for m in ('torchviz', 'graphviz') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


# -------------------------------------------------------------------- where there is no layout


def without_picture(figure, why):
    check_sound(figure)
    assert figure.svg == "" and "<img" not in figure.html
    assert figure.text.split("\n")[:2] == ["Drawn by torchviz: 7 boxes, 8 arrows", f"No picture: {why}"]
    assert "[6] w (3, 2) → [5] AccumulateGrad" in figure.text
    assert "→ [5] AccumulateGrad" in figure.html


def program(code):
    return (("dot", (sys.executable, "-c", code)),)


def test_no_program(monkeypatch):
    monkeypatch.setattr(layout, "programs", lambda: ())
    without_picture(picture(shared()), "no layout program was found. `pip install graphviz-pure` brings one.")


def test_slow_program(monkeypatch):
    monkeypatch.setattr(layout, "programs", lambda: program("import time; time.sleep(60)"))
    monkeypatch.setattr(layout, "BUDGET", 0.5)
    without_picture(picture(shared()), "the layout program took more than its 0.5 s and was stopped.")


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(1)",
        "",
        "print('hello')",
        "print('{}')",
        "print('[]')",
        "print('{\"bb\": 7}')",
        'print(\'{"bb": "0,0,5,5", "objects": [{"pos": "1,1", "_draw_": [{"op": "P", "points": []}]}]}\')',
        'print(\'{"bb": "0,0,nan,5", "objects": [{"pos": "1,1"}]}\')',
        'print(\'{"bb": "0,0,9,5"}\')',
    ],
)
def test_failing_program(monkeypatch, code):
    monkeypatch.setattr(layout, "programs", lambda: program(code))
    without_picture(picture(shared()), "the layout program could not draw this graph.")


def test_a_program_that_is_gone(monkeypatch, tmp_path):
    monkeypatch.setattr(layout, "programs", lambda: (("dot", (str(tmp_path / "gone"),)),))
    without_picture(picture(shared()), "the layout program could not be started.")


def test_the_second_program_is_tried(monkeypatch):
    good = layout.programs()
    monkeypatch.setattr(layout, "programs", lambda: program("raise SystemExit(1)") + good)
    assert picture(shared()).svg


def test_the_systems_program(monkeypatch):
    system = [p for p in layout.programs() if p[0] == "dot"]
    if not system:
        pytest.skip("dot: no system graphviz")
    monkeypatch.setattr(layout, "programs", lambda: tuple(system))
    figure = picture(full())
    check_sound(figure)
    assert 'fill="#ffa500"' in figure.svg


# -------------------------------------------------------------------- other graphs, and what is none


def test_graph_by_hand():
    graph = graphviz.Digraph()
    graph.attr(label="by hand")
    with graph.subgraph(name="cluster_0") as inner:
        inner.attr(label="inside", href="https://example.org", id="x")
        inner.node("a", "first\\nsecond & <third>", shape="ellipse", tooltip="t", id="n")
        inner.node("b", shape="record", label="{<p> left|right}")
    graph.edge("a", "b:p", label="why", style="dashed")
    graph.edge("b", 'c "quoted"')
    figure = picture(graph)
    check_sound(figure)
    assert figure.text == "\n".join(
        [
            "A graph in the DOT language: 3 nodes, 2 arrows",
            "",
            "Nodes:",
            "  [1] first: ellipse; second & <third>",
            "  [2] left: record; right",
            '  [3] c "quoted": ellipse',
            "",
            "Drawn around some of them:",
            "  inside: [1], [2]",
            "",
            "Arrows:",
            "  [1] first → [2] left (why, dotted)",
            '  [2] left → [3] c "quoted"',
        ]
    )
    shown = texts(figure.svg)
    for words in ("inside", "by hand", "first", "second & <third>", "right", 'c "quoted"', "why"):
        assert words in shown
    assert "example.org" not in figure.html


def test_regions_are_named_with_what_lies_in_them():
    """The outer before the inner; a cluster without a label has that of the graph, as in the language."""
    source = """digraph { node [shape=box] label="all of it" a
        subgraph cluster_1 { graph [style=dashed, label="out\\nside"] b; subgraph cluster_2 { label=<<b>in</b>> c } }
        subgraph cluster_3 { d } subgraph not_one { label="none" e } subgraph cluster_4 { label=empty } }"""
    found = read(source).clusters
    assert [(c.label, c.style, c.nodes) for c in found] == [
        ("out side", "dashed", [1, 2]),
        ("in", "dashed", [2]),
        ("all of it", "", [3]),
    ]
    figure = picture(SimpleNamespace(source=source))
    check_sound(figure)
    assert "  out side (dashed): [2], [3]\n  in (dashed): [3]\n  all of it: [4]" in figure.text
    assert ": box" not in figure.text, "one shape for all says nothing"


@pytest.mark.parametrize(
    "source, nodes, edges",
    [
        ("digraph{}", [], []),
        ("graph { a -- b -- c; b--a }", ["a", "b", "c"], [(0, 1), (1, 2), (1, 0)]),
        ("strict digraph { a->b a->b }", ["a", "b"], [(0, 1)]),
        ("digraph { {a b} -> {c d} }", list("abcd"), [(0, 2), (0, 3), (1, 2), (1, 3)]),
        ("digraph { subgraph s { x } -> y [label=<<b>bold</b>>] }", ["x", "y"], [(0, 1)]),
        ('digraph { "a" + "b" -> -.5 /* c */ // d\n# e\n }', ["ab", "-.5"], [(0, 1)]),
        ('digraph { node [label="\\N"] p:q:sw -> é_1 [a=b;c,d] \n rankdir=LR; graph [x=y] }', ["p", "é_1"], [(0, 1)]),
        ('digraph { a [label="x\\\\"] b [label="\\"]"] }', ["x\\", '"]'], []),
        ("digraph { a [label=<one<BR/>two &amp; <I>three</I>>] }", ["one"], []),
        ('digraph { 139731379398096 -> "0x7f1234567890" }', ["?", "?"], [(0, 1)]),
        ('digraph { a [label="<f at 0x7f1234567890>"] }', ["<f at 0x…>"], []),
        ('digraph { a [label="called \\N"] }', ["called a"], []),
    ],
)
def test_the_language(source, nodes, edges):
    found = read(source)
    assert [node.lines[0] for node in found.nodes] == nodes
    assert [(edge.tail, edge.head) for edge in found.edges] == edges
    figure = picture(SimpleNamespace(source=source))
    check_sound(figure)
    assert bool(figure.svg) == bool(nodes)
    if nodes:
        shown = "".join(texts(figure.svg)).replace("\u00a0", " ")
        for node in nodes:
            assert node in shown
        again = read(found.text)  # what a layout program is given is the same graph
        assert [(edge.tail, edge.head) for edge in again.edges] == edges


def test_a_long_graph_is_counted_and_unfolds():
    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(100):
        y = y * 2
    figure = picture(torchviz.make_dot(y))
    check_sound(figure)
    assert "MulBackward0 × 100" in figure.text and "[50]" not in figure.text
    assert "[50] MulBackward0: operation" in figure.text_full()
    assert figure.text_full().count("→") == 102


@pytest.mark.parametrize(
    "wrong, words",
    [
        (torch.ones(2), r"a Tensor has none. Draw it first: picture\(torchviz.make_dot\(loss\)\)"),
        ("digraph { a }", r"picture\(graphviz.Source\(text\)\)"),
        (None, "a NoneType has none"),
        (SimpleNamespace(source=3), "a SimpleNamespace has none"),
        (SimpleNamespace(source=""), "no graph in the DOT language"),
        (SimpleNamespace(source="hello world"), "no graph in the DOT language.*line 1"),
        (SimpleNamespace(source="digraph {\n a ->\n}"), "line 3"),
        (SimpleNamespace(source="digraph { a"), "DOT language"),
        (SimpleNamespace(source="digraph { a -- b }"), "'->' was expected"),
        (SimpleNamespace(source="digraph { a } b"), "the end was expected"),
        (SimpleNamespace(source='digraph { a [label="x] }'), "DOT language"),
        (SimpleNamespace(source="digraph { a [label=<x] }"), "never ends"),
        (SimpleNamespace(source="digraph { a [label] ] }"), "DOT language"),
        (SimpleNamespace(source="digraph " + "{" * 5000), "50 subgraphs"),
    ],
)
def test_no_graph(wrong, words):
    with pytest.raises(ValueError, match=words):
        picture(wrong)
