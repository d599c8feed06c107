"""Layout: programs, their time budget, our own layout where there is none; never an exception, never nothing."""

import shlex
import stat
import subprocess
import sys
import time

import pytest

from helpers.figures import graph_figure, layout, layout_program
from helpers.figures.layout import Arrow, Box, Frame, arrange, own_layout
from helpers.figures.order import fold
from helpers.figures.scene import build
from helpers.figures.view import view_of
from tests.figures.recordings import SAMPLES, chain
from tests.figures.sound import check_sound

BOXES = [Box(100, 40, 100), Box(90, 40, 90), Box(260, 70, 120), Box(260, 90, 120, (40.0, 40.0, 40.0), 16)]
ARROWS = [Arrow(0, 2), Arrow(1, 2), Arrow(2, 3), Arrow(0, 3)]


def script(tmp_path, body):
    """A program that stands in for a layout program. (Python's own path may hold a space, which `#!` cannot.)"""
    path = tmp_path / "program"
    code = path.with_suffix(".py")
    code.write_text(f"{body}\n")
    path.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(code))}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return ((("dot", (str(path),)),), path)


def sound(plan, boxes, arrows):
    assert len(plan.corners) == len(boxes) and len(plan.arrows) == len(arrows)
    for (x, y), box in zip(plan.corners, boxes, strict=True):
        assert -0.1 <= x and x + box.width <= plan.width + 0.1
        assert -0.1 <= y and y + box.height <= plan.height + 0.1
    for i, (x, y) in enumerate(plan.corners):
        for j in range(i):
            u, v = plan.corners[j]
            apart = (
                x + boxes[i].width <= u
                or u + boxes[j].width <= x
                or y + boxes[i].height <= v
                or v + boxes[j].height <= y
            )
            assert apart, (i, j)
    for arrow, curve in zip(arrows, plan.arrows, strict=True):
        assert len(curve) % 3 == 1
        x, y = plan.corners[arrow.tail]
        assert abs(curve[0][1] - y - boxes[arrow.tail].height) < 3  # leaves below its tail
        u, v = plan.corners[arrow.head]
        assert abs(curve[-1][1] - v) < 3 and abs(curve[-1][0] - u - boxes[arrow.head].main / 2) < 3  # enters from above


def test_arranged():
    plan = arrange(BOXES, ARROWS, [Frame((2, 3), 80, 16)])
    assert plan.program == "graphviz-pure"  # the tested environment has it
    sound(plan, BOXES, ARROWS)
    assert plan.frames[0] is not None
    assert plan == arrange(BOXES, ARROWS, [Frame((2, 3), 80, 16)])


def test_own_layout():
    plan = own_layout(BOXES, ARROWS, [Frame((2, 3), 80, 16)])
    sound(plan, BOXES, ARROWS)
    assert plan.frames == (None,)
    assert plan == own_layout(BOXES, ARROWS, [Frame((2, 3), 80, 16)])


def test_own_layout_of_a_cycle_and_of_nothing():
    boxes = [Box(50, 20, 50)] * 3
    plan = own_layout(boxes, [Arrow(0, 1), Arrow(1, 2), Arrow(2, 0)])
    assert len(plan.corners) == 3
    assert arrange([], []).corners == ()
    sound(own_layout(boxes[:1], []), boxes[:1], [])


def test_slow_program_is_killed(tmp_path, monkeypatch):
    programs, path = script(
        tmp_path, "import time, os\nopen(__file__[:-3] + '.pid', 'w').write(str(os.getpid()))\ntime.sleep(60)"
    )
    monkeypatch.setattr(layout, "programs", lambda: programs)
    began = time.monotonic()
    plan = arrange(BOXES, ARROWS, budget=1.0)
    assert time.monotonic() - began < 30
    assert plan.program == "own"
    pid = int((path.parent / "program.pid").read_text())
    assert subprocess.run(["ps", "-p", str(pid)], capture_output=True).returncode != 0 or sys.platform == "win32"


@pytest.mark.parametrize(
    "body", ["raise SystemExit(1)", "print('not json')", "print('{}')", 'print(\'{"bb": "0,0,1,1", "objects": []}\')']
)
def test_broken_program(tmp_path, monkeypatch, body):
    programs, _ = script(tmp_path, body)
    monkeypatch.setattr(layout, "programs", lambda: programs)
    assert arrange(BOXES, ARROWS).program == "own"


def test_missing_program(monkeypatch):
    monkeypatch.setattr(layout, "programs", lambda: (("dot", ("/nowhere/dot",)),))
    assert arrange(BOXES, ARROWS).program == "own"
    assert "pip install graphviz-pure" in layout_program()


@pytest.mark.parametrize("name", SAMPLES)
def test_every_figure_without_a_program(monkeypatch, name):
    monkeypatch.setattr(layout, "programs", lambda: ())
    plain = graph_figure(SAMPLES[name]())
    check_sound(plain)
    monkeypatch.undo()
    assert graph_figure(SAMPLES[name]()).text == plain.text  # a twin never depends on the layout program


def test_too_large_without_a_program(monkeypatch):
    monkeypatch.setattr(layout, "programs", lambda: ())
    figure = graph_figure(chain(300), folded=False)
    assert "Too large to draw node by node" in figure.text
    check_sound(figure)


def test_layout_program_in_words():
    assert layout_program().startswith("graphviz-pure 0.2")


def test_dot_text_holds_nothing_of_the_learner():
    text = layout.dot_text(BOXES, ARROWS, [Frame((2, 3), 80, 16), Frame((2,), 60, 16, parent=0)])
    assert text.count("{") == text.count("}")
    assert "label=<<TABLE" in text


def scene_of(recording):
    view = view_of(recording, recording.graphs[0], None)
    return build(view, fold(recording, view.ordered))


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in ("empty", "mixed")])
@pytest.mark.parametrize("own", [False, True])
def test_nothing_overlaps(name, own):
    """Boxes with what they keep stay apart, by the layout program and by our own."""
    scene = scene_of(SAMPLES[name]())
    boxes = [item.box for item in scene.items]
    if own:
        plan = own_layout(boxes, scene.arrows, scene.frames, scene.style.gaps)
    else:
        plan = arrange(boxes, scene.arrows, scene.frames, gaps=scene.style.gaps, above=scene.above)
    for i, (x, y) in enumerate(plan.corners):
        assert x >= -0.1 and x + boxes[i].width <= plan.width + 0.1
        assert y >= -0.1 and y + boxes[i].height <= plan.height + 0.1
        for j in range(i):
            u, v = plan.corners[j]
            beside = x + boxes[i].width <= u + 0.1 or u + boxes[j].width <= x + 0.1
            assert beside or y + boxes[i].height <= v + 0.1 or v + boxes[j].height <= y + 0.1, (i, j)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in ("empty", "mixed")])
def test_words_stand_inside_their_shapes(name):
    """Lines inside boxes, corners of lines inside ellipses, ellipses inside their box and apart."""
    for item in scene_of(SAMPLES[name]()).items:
        assert max(line.width for line in item.lines) <= item.box.main
        assert len(item.lines) * 12 <= item.box.height
        for k, e in enumerate(item.ellipses):
            step = (2 * e.ry - 12) / len(e.lines)
            for i, line in enumerate(e.lines):
                far = abs((i - (len(e.lines) - 1) / 2) * step)
                assert (line.width / 2 / e.rx) ** 2 + (far / e.ry) ** 2 < 1.02
            assert item.box.main < e.x - e.rx and e.x + e.rx < item.box.width
            assert 0 < e.y - e.ry and e.y + e.ry < item.box.height
            for other in item.ellipses[:k]:
                assert abs(e.x - other.x) >= e.rx + other.rx or abs(e.y - other.y) >= e.ry + other.ry


def test_a_box_kept_above_another():
    """Where no arrow says so, and without an arrow being drawn."""
    boxes = [Box(50, 20, 50)] * 3
    plan = arrange(boxes, [Arrow(0, 1)], above=[(1, 2)])
    assert [round(y) for _, y in plan.corners] == sorted(round(y) for _, y in plan.corners)
    assert len({y for _, y in plan.corners}) == 3 and len(plan.arrows) == 1
