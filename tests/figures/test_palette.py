"""Contrast by WCAG's formula, and distance between neighbours as colour-blind readers see them."""

import re

import pytest

from helpers.figures.hatch import KERNELS, sign_of
from helpers.figures.palette import (
    ALERT,
    ALLOCATOR,
    BAND,
    CATEGORY,
    GRAPH,
    GROUND,
    HATCH,
    INK,
    INSIDE,
    PALETTE,
    PLOT_HATCH,
    SOFT,
    WATERFALL,
)
from helpers.figures.plots import STYLES

#: Viénot, Brettel and Mollon's matrices for linear RGB (deuteranopia, protanopia), and Brettel's plane for tritanopia,
#: in the common form of Machado, Oliveira and Fernandes at full severity.
BLIND = {
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
    "full colour vision": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
}


def linear(colour):
    assert re.fullmatch(r"#[0-9a-f]{6}", colour), colour
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def luminance(rgb):
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def contrast(a, b):
    high, low = sorted((luminance(linear(a)), luminance(linear(b))), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    x = (0.4124 * rgb[0] + 0.3576 * rgb[1] + 0.1805 * rgb[2]) / 0.95047
    y = luminance(rgb)
    z = (0.0193 * rgb[0] + 0.1192 * rgb[1] + 0.9505 * rgb[2]) / 1.08883
    f = [t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def seen(colour, kind):
    rgb = linear(colour)
    return lab([min(max(sum(m * c for m, c in zip(row, rgb, strict=True)), 0.0), 1.0) for row in BLIND[kind]])


def distance(a, b, kind):
    return sum((p - q) ** 2 for p, q in zip(seen(a, kind), seen(b, kind), strict=True)) ** 0.5


def test_the_formula():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_text_reads_on_every_ground():
    for name, paint in GRAPH.items():
        assert contrast(paint.text, paint.fill) >= 4.5, name
        assert contrast(SOFT, paint.fill) >= 4.5, name
    for ground in (GROUND, *BAND):
        assert contrast(INK, ground) >= 7
        assert contrast(SOFT, ground) >= 4.5
        assert contrast(ALERT, ground) >= 4.5
    for name, paint in CATEGORY.items():
        assert contrast(paint.text, GROUND) >= 4.5, name
    assert contrast(ALERT, GRAPH["changed in place"].fill) >= 4.5
    assert contrast(GRAPH["root"].text, GRAPH["operation"].fill) >= 4.5


def test_outlines_can_be_seen():
    """What must be seen to understand a figure has a contrast of 3 to what it lies on."""
    for name, paint in GRAPH.items():
        if name != "module":  # a frame's label says what its faint line says
            assert contrast(paint.line, paint.fill) >= 3, name
            assert contrast(paint.line, GROUND) >= 3, name
    for name, paint in CATEGORY.items():
        assert contrast(INK, paint.fill) >= 3, name  # the line between bands
        if HATCH[name]:
            assert contrast(paint.line, paint.fill) >= 3, name


@pytest.mark.parametrize("kind", BLIND)
def test_categories_stay_apart(kind):
    """Any two, since those between may be empty; more so where the hatch is the same."""
    names = list(CATEGORY)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            apart = distance(CATEGORY[a].fill, CATEGORY[b].fill, kind)
            assert apart >= (25 if HATCH[a] == HATCH[b] else 15), (a, b)


@pytest.mark.parametrize("kind", BLIND)
def test_kept_tensors_stand_out(kind):
    assert distance(GRAPH["live"].fill, GRAPH["operation"].fill, kind) >= 7.5
    assert distance(GRAPH["live"].fill, GRAPH["parameter"].fill, kind) >= 7.5


def test_hatches_of_neighbours_differ():
    order = list(HATCH.values())
    assert all(a != b for a, b in zip(order, order[1:], strict=False))


def test_palette_is_for_plots_too():
    assert PALETTE["kept for backward"] == CATEGORY["kept for backward"].fill
    with pytest.raises(TypeError):
        PALETTE["ink"] = "#000000"


@pytest.mark.parametrize("kind", BLIND)
def test_kernels_stand_apart_from_every_category(kind):
    """Their band may lie on any other; a hatch of its own tells it too."""
    for name, paint in CATEGORY.items():
        assert distance(INSIDE.fill, paint.fill, kind) >= 7.5, name
    assert contrast(INSIDE.line, INSIDE.fill) >= 4.5
    assert contrast(INK, INSIDE.fill) >= 3
    assert sign_of(KERNELS) not in HATCH.values()


@pytest.mark.parametrize("kind", BLIND)
def test_an_allocators_map_stays_apart(kind):
    """Blocks of no category and free space, from each other and from every category; what is cached is pale as the
    ground, and stands apart from hatched bands by having no hatch too."""
    for name, paint in ALLOCATOR.items():
        least = 10 if name == "cached" else 15
        for other, band in CATEGORY.items():
            assert distance(paint.fill, band.fill, kind) >= least, (name, other)
            assert PLOT_HATCH[name] != HATCH[other] or distance(paint.fill, band.fill, kind) >= 18, (name, other)
        for other, beside in ALLOCATOR.items():
            assert name == other or distance(paint.fill, beside.fill, kind) >= 25, (name, other)


@pytest.mark.parametrize("kind", BLIND)
def test_a_waterfalls_bars_stay_apart(kind):
    names = list(WATERFALL)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            assert distance(WATERFALL[a].fill, WATERFALL[b].fill, kind) >= 15, (a, b)
    assert len({PLOT_HATCH[name] for name in names}) == len(names)


def test_plots_can_be_read():
    for name, paint in {**ALLOCATOR, **WATERFALL}.items():
        assert contrast(INK, paint.fill) >= 3, name  # outlines and lines upon it
        assert contrast(paint.text, GROUND) >= 4.5, name
        if PLOT_HATCH[name]:
            assert contrast(paint.line, paint.fill) >= 3, name
    for colour, _ in STYLES:
        assert contrast(colour, GROUND) >= 3
    assert len({dashes for _, dashes in STYLES}) == len(STYLES)
    assert PLOT_HATCH["stranded"] not in {*HATCH.values(), sign_of(KERNELS)}
