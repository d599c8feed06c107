"""Variants, waterfall and kernels: the artists hold the recordings' numbers, the twins say the same ones."""

import math
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from helpers.data import CATEGORIES, OutOfMemory, Reading, timeline
from helpers.data.allocator import AllocatorHistory
from helpers.figures import kernels_figure, plots, variants_figure, waterfall_figure
from helpers.figures.hatch import KERNELS
from helpers.figures.kernels_plot import draw_kernels
from helpers.figures.memory_parts import inside_kernels
from helpers.figures.variants import MOST_POINTS, comparison, draw_variants
from helpers.figures.waterfall import draw_waterfall, waterfall
from tests.figures.player_samples import SAMPLES as REAL
from tests.figures.plot_samples import band, line, patches, random_recording, rects
from tests.figures.recordings import SAMPLES
from tests.figures.sound import check_sound, texts

GIB = 2**30


def trio(seed):
    return {name: random_recording(seed + k) for k, name in enumerate(("plain", "checkpointed", "bf16"))}


def hand_and_real():
    return {"by hand": SAMPLES["training"](), "real": REAL["accumulation"](), "long": SAMPLES["chain"]()}


# --------------------------------------------------------------------------------------------------------- the ground


def test_binary_units():
    cases = {
        0: "0 B",
        1023: "1023 B",
        1024: "1.00 KiB",
        67_384_337_920: "62.76 GiB",
        2**40: "1.00 TiB",
        -2048: "-2.00 KiB",
    }
    assert {n: plots.binary(n) for n in cases} == cases
    assert plots.exactly(512) == "512 B" and plots.exactly(13_476_831_232) == "13,476,831,232 B (12.55 GiB)"
    assert [plots.signed(n, plots.binary(abs(n))) for n in (-2048, 2048, 0)] == ["−2.00 KiB", "+2.00 KiB", "±0 B"]
    assert plots.unit_sentence(3 * GIB) == "1 GiB = 2^30 B" and plots.unit_sentence(1000) == ""


@pytest.mark.parametrize("top", [0, 1, 5, 999, 1024, 1500, 10_000, 2**20 - 1, 3 * 2**20, 24 * GIB, 80 * GIB, 10**13])
def test_ticks_are_round_and_within(top):
    marks, words = plots.byte_ticks(top)
    assert marks[0] == 0 and words[0] == "0" and marks == sorted(set(marks))
    assert len(set(words)) == len(words)
    if top >= 4:
        assert 3 <= len(marks) <= 9 and top * 0.7 <= marks[-1] <= top + 1
    for mark, word in zip(marks[1:], words[1:], strict=True):
        number, unit = word.split()
        assert round(float(number) * 1024 ** plots.UNITS.index(unit)) == mark


@pytest.mark.parametrize("seed", range(20))
def test_thinning_loses_no_peak(seed):
    dice = random.Random(seed)
    series = [[dice.randrange(10**9) for _ in range(dice.choice((3, 500, 501, 4999)))]]
    series.append([dice.randrange(10**9) for _ in series[0]])
    rows = plots.thinned(series, 500)
    assert rows[0] == 0 and rows[-1] == len(series[0]) - 1 and rows == sorted(set(rows))
    assert len(rows) <= 2 * 500 + 2
    for values in series:
        kept = [values[r] for r in rows]
        assert (max(kept), min(kept)) == (max(values), min(values))
        step = math.ceil(2 * len(values) / 500) if len(values) > 500 else 1
        for start in range(0, len(values), step):  # and of no stretch
            part = values[start : start + step]
            assert {max(part), min(part)} <= {values[r] for r in rows if start <= r < start + step}


@pytest.mark.parametrize("sign", ["|", "-", "/", "\\", "x", "+", "."])
def test_hatches_stay_inside_and_cover(sign):
    boxes = [(10.0, 60.0, 10.0, 50.0), (60.0, 100.0, 20.0, 70.0)]
    pieces = plots.hatched(boxes, sign)
    assert len(pieces) > 5
    for (xa, ya), (xb, yb) in pieces:
        for share in (0.02, 0.5, 0.98):
            x, y = xa + (xb - xa) * share, ya + (yb - ya) * share
            assert any(x0 - 1.5 <= x <= x1 + 1.5 and y0 - 1e-6 <= y <= y1 + 1e-6 for x0, x1, y0, y1 in boxes)
    for x0, x1, y0, y1 in boxes:
        assert any(x0 <= (a[0] + b[0]) / 2 <= x1 and y0 <= (a[1] + b[1]) / 2 <= y1 for a, b in pieces)


def test_nothing_stays_and_nothing_restyles():
    import matplotlib

    recordings, steps = hand_and_real(), [("a", 3 * GIB), ("b", GIB)]
    usual = variants_figure(recordings).svg, waterfall_figure(steps).svg
    odd = {"lines.linewidth": 9, "text.color": "red", "font.size": 40, "axes.facecolor": "red", "savefig.dpi": 300}
    with matplotlib.rc_context(odd):
        before = dict(matplotlib.rcParams)
        assert (variants_figure(recordings).svg, waterfall_figure(steps).svg) == usual
        assert dict(matplotlib.rcParams) == before
        with pytest.raises(ValueError):
            waterfall_figure([])
        assert dict(matplotlib.rcParams) == before


def test_importing_the_figures_loads_no_matplotlib():
    code = (
        "import sys, helpers.figures.variants, helpers.figures.waterfall, helpers.figures.kernels_plot\n"
        "import helpers.figures.allocator_map\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ----------------------------------------------------------------------------------------------------------- variants


def bars_of(canvas, k):
    """Category → (from, to) of variant k's bar."""
    found = {}
    for patch in patches(canvas.axes[0]):
        number, _, name = patch.get_label().partition(": ")
        if int(number) == k:
            ((x0, x1, _, _),) = rects(patch)
            found[name] = (x0, x1)
    return found


@pytest.mark.parametrize("recordings", [*(trio(s) for s in range(0, 30, 3)), hand_and_real()])
def test_variants_hold_the_recordings_numbers(recordings):
    it = comparison(recordings, None, "", "t")
    canvas = draw_variants(it)
    for k, (name, recording) in enumerate(recordings.items()):
        folded = timeline(recording)
        bars = bars_of(canvas, k)
        parts = {c: n for c, n in folded.at(folded.peak).items() if n}
        assert {c: x1 - x0 for c, (x0, x1) in bars.items()} == parts
        ends = [x for pair in bars.values() for x in pair]
        assert ends[0] == 0 and ends[-1] == max(folded.totals) and ends[1:-1:2] == ends[2::2]  # stacked without a gap
        xs, ys = line(canvas.axes[1], name)
        assert max(ys) == max(folded.totals) and min(ys) == min(folded.totals)
        assert (ys[0], ys[-1]) == (folded.totals[0], folded.totals[-1]) and (xs[0], xs[-1]) == (0, 1)
        count = len(folded.totals)
        assert all(y == folded.totals[round(x * count)] for x, y in zip(xs[:-1], ys[:-1], strict=True))
        assert len(xs) <= 2 * MOST_POINTS


@pytest.mark.parametrize("seed", range(0, 12, 3))
def test_the_twin_of_variants_says_the_same(seed):
    recordings = trio(seed)
    figure = variants_figure(recordings, capacity=60 << 20, card="A card")
    check_sound(figure)
    peaks = {name: max(timeline(r).totals) for name, r in recordings.items()}
    first = peaks["plain"]
    for name, peak in peaks.items():
        row = next(x for x in figure.text.split("\n") if x.startswith(f"  {name} ") and "peak" in x)
        assert f"peak {plots.exactly(peak)} " in row
        room = (60 << 20) - peak
        assert f"fits, {room:,} B to spare" in row if room >= 0 else f"does not fit: {-room:,} B too much" in row
        if name != "plain":
            more = peak - first
            assert (f"{plots.signed(more, f'{abs(more):,} B')} to the first" if more else "as the first") in row
        table = next(x for x in figure.text.split("\n")[::-1] if x.split()[:1] == [name])
        numbers = [int(n.replace(",", "")) for n in table.split()[1:]]
        assert numbers[-1] == peak == sum(numbers[:-1])
        assert f"{name} {plots.binary(peak)} (" in figure.alt
    fit = [name for name, peak in peaks.items() if peak <= 60 << 20]
    assert f"What fits: {'; '.join(fit) or 'none'}" in figure.text
    assert any(f"Fits: {'; '.join(fit) or 'none'}." in x for x in texts(figure.svg))
    assert "60.00 MiB, A card" in figure.text


def test_capacity_is_a_line_in_both_or_is_said():
    recordings = trio(0)
    top = max(max(timeline(r).totals) for r in recordings.values())
    near = draw_variants(comparison(recordings, top + 1, "", "t"))
    assert line(near.axes[0], "capacity")[0] == [top + 1, top + 1]
    assert line(near.axes[1], "capacity")[1] == [top + 1, top + 1]
    assert near.axes[0].get_xlim()[1] >= top + 1 and near.axes[1].get_ylim()[1] >= top + 1
    far = draw_variants(comparison(recordings, 100 * top, "", "t"))
    assert not far.axes[0].lines
    assert any("It lies beyond the plot" in t.get_text() for t in far.texts)


def test_out_of_memory_does_not_fit():
    """Live bytes would fit, but the allocator ran out with this very capacity; of another one it says nothing."""
    recordings = trio(3)
    recording = recordings["bf16"]
    top = max(timeline(recording).totals)
    reading = Reading(0, 0, 0, 0)
    failure = OutOfMemory(4, 99, None, reading, 2 * top, 0, 0)
    readings = (reading,) * (len(recording.events) + 1)
    history = AllocatorHistory("simulated", (), (), readings, 2 * top, (failure,))
    recordings["bf16"] = replace(recording, allocator=history)
    assert "does not fit: out of memory at event 5" in variants_figure(recordings, capacity=2 * top).text
    assert "out of memory" not in variants_figure(recordings, capacity=3 * top).text


@pytest.mark.parametrize("n", [2, 8])
def test_two_to_eight_variants(n):
    figure = variants_figure(
        {f"variant number {k} " + "with a long name " * (k % 3): random_recording(k) for k in range(n)}
    )
    check_sound(figure)
    canvas = draw_variants(comparison({f"v{k}": random_recording(k) for k in range(n)}, None, "", "t"))
    styles = {(x.get_color(), str(x.get_linestyle()), str(x._unscaled_dash_pattern)) for x in canvas.axes[1].lines}
    assert len(styles) == n


def test_variants_refuse():
    good = random_recording(1)
    bad = [
        ([good, good], "as a dict of name → recording"),
        ({}, "2 to 8 variants can be compared; 0 are given"),
        ({"one": good}, "1 are given"),
        ({str(k): good for k in range(9)}, "9 are given"),
        ({"a": good, "b": 3}, "Variant 'b' is a int, not a Recording"),
        ({"a": good, "": good}, "a name in words was expected"),
        ({"a": good, 7: good}, "has the name 7"),
        ({"a": good, "b": changed(good, category="gpu stuff")}, "Variant 'b' cannot be drawn"),
        ({"a": good, "b": changed(good, nbytes=-5)}, "Variant 'b' cannot be drawn"),
        ({"a": good, "b": changed(good, nbytes=math.nan)}, "Variant 'b' cannot be drawn"),
    ]
    for recordings, words in bad:
        with pytest.raises(ValueError, match=re.escape(words)):
            variants_figure(recordings)
    for capacity in (0, -1, math.nan, math.inf, 1.5, "24", True):
        with pytest.raises(ValueError, match=r"The capacity is .*a whole number of bytes, 1 or more, was expected"):
            variants_figure({"a": good, "b": good}, capacity=capacity)

    class Run:
        recording = good

    with pytest.raises(ValueError, match=re.escape("Pass its .recording")):
        variants_figure({"a": good, "b": Run()})


def changed(recording, **fields):
    return replace(recording, storages=(replace(recording.storages[0], **fields), *recording.storages[1:]))


# ---------------------------------------------------------------------------------------------------------- waterfall


def falls():
    dice = random.Random(7)
    for _ in range(12):
        yield [(f"step {k}", dice.choice((0, 5, dice.randrange(100 * GIB)))) for k in range(dice.randrange(2, 17))]


@pytest.mark.parametrize("steps", list(falls()))
def test_bars_run_from_level_to_level(steps):
    it = waterfall(steps, None, "", "t")
    axes = draw_waterfall(it).axes[0]
    found = {}
    for kind in ("level", "saving", "cost"):
        for patch in patches(axes, kind):
            for x0, x1, y0, y1 in rects(patch):
                found[round((y0 + y1) / 2)] = (kind, x0, x1)
    rows = [found[y] for y in sorted(found)]
    levels = [n for _, n in steps]
    assert len(rows) == len(steps) + 1
    assert rows[0] == ("level", 0, levels[0]) and rows[-1] == ("level", 0, levels[-1])
    for (kind, x0, x1), a, b in zip(rows[1:-1], levels, levels[1:], strict=False):
        assert (x0, x1) == (min(a, b), max(a, b)) and kind == ("cost" if b > a else "saving")
    figure = waterfall_figure(steps)
    check_sound(figure)
    shown = texts(figure.svg)
    table = [x for x in figure.text.split("\n") if x.startswith("  step ")][1:]
    for row, (name, n), before in zip(table, steps, [None, *levels], strict=False):
        change = [] if before is None else [plots.signed(n - before, f"{abs(n - before):,} B")]
        assert row.split("  ")[1].strip() == name
        assert re.findall(r"[−+±]?[\d,]+ B", row) == [*change, f"{n:,} B"]
        if before is not None:
            assert plots.signed(n - before, plots.binary(abs(n - before))) in shown
    assert plots.binary(levels[-1]) in shown


def test_a_waterfall_that_ends_by_fitting():
    steps = [("naive", 125 * GIB), ("bf16", 20 * GIB), ("longer batch", 30 * GIB), ("checkpoint", 22 * GIB)]
    figure = waterfall_figure(steps, capacity=24 * GIB, card="L4")
    assert "Capacity 24.00 GiB, L4: what is left fits, 2,147,483,648 B to spare, from step checkpoint on" in figure.text
    assert [x.split("  ")[-1] for x in figure.text.split("\n")[-4:]] == ["does not fit", "fits", "does not fit", "fits"]
    axes = draw_waterfall(waterfall(steps, 24 * GIB, "L4", "t")).axes[0]
    assert line(axes, "capacity")[0] == [24 * GIB] * 2
    over = waterfall_figure(steps[:3], capacity=24 * GIB)
    assert "does not fit: 6,442,450,944 B too much" in over.text and "from step" not in over.text


def test_a_waterfall_takes_recordings():
    a, b = SAMPLES["training"](), REAL["accumulation"]()
    figure = waterfall_figure([("a", a), ("b", b)])
    assert re.findall(r"[−+]?[\d,]+ B", figure.text.split("\n")[-1]) == ["−310,248 B", "17,444 B"]
    same = waterfall_figure([("a", max(timeline(a).totals)), ("b", max(timeline(b).totals))])
    assert (same.text, same.svg) == (figure.text, figure.svg)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([], "0 are given"),
        ([("a", 1)], "1 are given"),
        ([("a", 1)] * 17, "17 are given"),
        ("ab", "a list of pairs (name, bytes), not a str"),
        (7, "not a int"),
        ([("a", 1), ("b",)], "Step 2 is no pair"),
        ([("a", 1), ("b", -2)], "Step 2, 'b', is -2; a whole number of bytes"),
        ([("a", 1), ("b", math.nan)], "is nan"),
        ([("a", 1), ("b", math.inf)], "is inf"),
        ([("a", 1.5), ("b", 1)], "is 1.5"),
        ([("a", True), ("b", 1)], "is a bool"),
        ([("a", 1), ("b", "2 GB")], "Step 2, 'b', is a str, not a Recording"),
        ([("a", 1), (" ", 2)], "a name in words was expected"),
    ],
)
def test_waterfalls_refuse(steps, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        waterfall_figure(steps)


# ------------------------------------------------------------------------------------------------------------ kernels


def kernels_drawn(recording):
    folded = timeline(recording)
    return draw_kernels(recording, folded, inside_kernels(recording, folded))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("events", [20, 900])
def test_bands_and_total_are_the_recordings(seed, events):
    recording = random_recording(seed, events)
    folded = timeline(recording)
    held = [0, *(e.inside for e in recording.events)]
    totals = [a + b for a, b in zip(folded.totals, held, strict=True)]
    canvas = kernels_drawn(recording)
    axes = canvas.axes[0]
    xs, ys = line(axes, "profiler's total")
    assert max(ys) == max(totals) and xs[-1] == len(totals)
    assert all(y == totals[int(x)] for x, y in zip(xs[:-1], ys[:-1], strict=True))
    bands = {name: band(axes, name) for name in (*CATEGORIES, KERNELS)}
    for x in map(int, xs[:-1]):
        low = 0
        for name, n in (*zip(CATEGORIES, folded.rows[x], strict=True), (KERNELS, held[x])):
            assert bands[name].get(float(x), (low, low)) == (low, low + n)
            low += n
    most = {}
    for e in recording.events:
        most[e.op] = max(most.get(e.op, 0), e.inside)
    ((patch,),) = [patches(canvas.axes[1], KERNELS)]
    assert [x1 - x0 for x0, x1, _, _ in rects(patch)] == sorted((n for n in most.values() if n), reverse=True)


def test_only_the_picture_tells_what_is_inside():
    recording = random_recording(5)
    other = replace(recording, events=tuple(replace(e, inside=3 * e.inside) for e in recording.events))
    a, b = kernels_figure(recording), kernels_figure(other)
    assert (a.text, a.text_full(), a.alt, a.title) == (b.text, b.text_full(), b.alt, b.title)
    assert a.svg != b.svg
    assert f"Peak: {max(timeline(recording).totals):,} B" in a.text
    assert "in the picture only" in a.text and "in the picture only" in a.alt
    check_sound(a)


def test_a_real_recording_of_kernels():
    import torch

    from helpers import record

    x = torch.randn(64, 64)
    with record(graph=False, kernels=True) as run:
        y = x.sort(dim=0).values
        z = torch.unique(y)
        del y, z
    recording = run.recording
    folded = timeline(recording)
    most = max(e.inside for e in recording.events)
    assert most > 0
    canvas = kernels_drawn(recording)
    held = band(canvas.axes[0], KERNELS)
    assert max(high - low for low, high in held.values()) == most
    assert max(line(canvas.axes[0], "profiler's total")[1]) == max(
        n + (recording.events[i - 1].inside if i else 0) for i, n in enumerate(folded.totals)
    )
    check_sound(kernels_figure(recording))


def test_kernels_refuse():
    with pytest.raises(ValueError, match=re.escape("record(kernels=True)")):
        kernels_figure(SAMPLES["training"]())
    with pytest.raises(ValueError, match="is a NoneType, not a Recording"):
        kernels_figure(None)
