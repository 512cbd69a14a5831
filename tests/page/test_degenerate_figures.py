"""Figures without values, with one, with equal ones, with very many and with unusual names, as text, SVG and PNG."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
from PIL import Image
from rich.cells import cell_len
from sample_figures import get_size, list_elements, list_texts, make_grid, make_heatmap, make_lines, make_series

from seqwise.image import draw_png
from seqwise.page.drawing import draw_svg
from seqwise.page.figures import (
    BarChart,
    Figure,
    Finding,
    Findings,
    Heatmap,
    HeatmapGrid,
    ImageOverlay,
    LineChart,
    ScatterPlot,
    Table,
    TokenText,
    Tree,
    TreeNode,
)
from seqwise.page.terminal import draw_text

NAN, INF = np.nan, np.inf
RNG = np.random.default_rng(0)
NAMES = [
    *(
        "<b>&amp;\"'",
        "line\nbreak",
        "שלום עולם",
        "مرحبا",
        "日本語のとても長い名前です",
        "👨\u200d👩\u200d👧🇩🇪❤\ufe0f",
        "",
        "  ",
    ),
    *("\x00\x1b[31m", "\ud800", "\u202eabc", "e\u0301" * 40, "a" * 300, "\ufffe", "\t"),
]
COUNT = len(NAMES)


def make_scatter(x: object, y: object, **settings: object) -> ScatterPlot:
    points = {"x": np.array(x, dtype=float), "y": np.array(y, dtype=float)}
    defaults = {"names": [f"word{index}" for index in range(len(points["x"]))], "is_labelled": True}
    return ScatterPlot(title="t", x_label="x", y_label="y", **{**points, **defaults, **settings})  # type: ignore[arg-type]


def make_bars(values: object, **settings: object) -> BarChart:
    array = np.array(values, dtype=float)
    names = [f"bar{index}" for index in range(len(array))]
    return BarChart(title="t", values=array, value_label="v", **{"names": names, **settings})  # type: ignore[arg-type]


def make_tokens(values: object, **settings: object) -> TokenText:
    array = np.array(values, dtype=float)
    tokens = [f"word{index}" for index in range(len(array))]
    return TokenText(title="t", values=array, value_label="v", **{"tokens": tokens, **settings})  # type: ignore[arg-type]


def make_image_overlay(weights: np.ndarray, size: tuple[int, int] = (6, 9), **settings: object) -> ImageOverlay:
    image = np.add.outer(np.arange(size[0]), np.arange(size[1]))[..., None].repeat(3, axis=2).astype(np.uint8)
    captions = [f"word{index}" for index in range(len(weights))]
    return ImageOverlay(
        title="t",
        image=image,
        weights=weights,
        value_label="v",
        **{"captions": captions, **settings},  # type: ignore[arg-type]
    )


SMALL = {
    "heatmap of one cell": make_heatmap([[0.5]]),
    "heatmap of equal values": make_heatmap(np.full((3, 3), 2.0)),
    "large heatmap of zeros": make_heatmap(np.zeros((30, 30)), scale="diverging"),
    "heatmap without values": make_heatmap(np.full((2, 3), NAN)),
    "large heatmap without values": make_heatmap(np.full((40, 40), NAN)),
    "heatmap with infinities": make_heatmap([[INF, 1], [-INF, 0]]),
    "heatmap without rows": make_heatmap(np.zeros((0, 3))),
    "heatmap without columns": make_heatmap(np.zeros((3, 0))),
    "heatmap of tiny values": make_heatmap([[1e-300, 0], [5e-310, 1e-299]]),
    "heatmap of huge values": make_heatmap([[1e300, -1e300]]),
    "grid without panels": HeatmapGrid(title="t", panels=[], num_columns=3),
    "grid of one panel": make_grid(1, 1),
    "grid without values": HeatmapGrid(title="t", panels=[make_heatmap(np.full((3, 3), NAN))] * 4, num_columns=2),
    "grid of many columns": make_grid(2, 40),
    "incomplete grid": HeatmapGrid(title="t", panels=make_grid(2, 3).panels[:5], num_columns=3),
    "chart without series": make_lines(),
    "empty series": make_lines(make_series("a", [])),
    "series of one point": make_lines(make_series("a", [5])),
    "series without values": make_lines(make_series("a", [NAN, NAN])),
    "series with gaps": make_lines(make_series("a", [1, NAN, 3, NAN, NAN, 4])),
    "constant series": make_lines(make_series("a", [3, 3, 3])),
    "infinite series": make_lines(make_series("a", [3, INF, -INF])),
    "huge series": make_lines(make_series("a", [1e308, -1e308])),
    "logarithm of nothing positive": make_lines(make_series("a", [0, -1, 0]), y_log=True),
    "logarithm of one value": make_lines(make_series("a", [3, 3]), y_log=True, x_log=True),
    "logarithm of a wide range": make_lines(make_series("a", [1e-320, 1e300]), y_log=True),
    "scatter plot without points": make_scatter([], []),
    "scatter plot of one point": make_scatter([1], [2]),
    "scatter plot without values": make_scatter([NAN], [1], values=np.array([NAN])),
    "scatter plot of equal points": make_scatter(np.ones(50), np.ones(50), values=np.ones(50)),
    "bar chart without bars": make_bars([]),
    "bars without values": make_bars([NAN, NAN]),
    "bars of zero": make_bars([0, 0]),
    "negative bars": make_bars([-1, -2], low=np.array([-1.5, NAN]), high=np.array([-0.5, NAN])),
    "text without tokens": make_tokens([]),
    "tokens without values": make_tokens([NAN, NAN], scale="sequential"),
    "table without columns": Table(title="t", columns=[], rows=[]),
    "table without rows": Table(title="t", columns=["a"], rows=[]),
    "tree without nodes": Tree(title="t", nodes=[], value_label="v"),
    "tree of one node": Tree(title="t", nodes=[TreeNode(parent=-1, label="", value=NAN)], value_label="v"),
    "image without weights": make_image_overlay(np.zeros((0, 0, 0))),
    "weights without values": make_image_overlay(np.full((1, 2, 2), NAN)),
    "no findings": Findings(title="t", findings=[]),
}
UNUSUAL_NAMES = {
    "heatmap": make_heatmap(RNG.random((COUNT, COUNT)), NAMES[1], rows=NAMES, columns=NAMES, row_label=NAMES[2]),
    "shaded heatmap": make_heatmap(RNG.random((30, 30)), rows=NAMES * 2, columns=NAMES * 2, value_label=NAMES[5]),
    "grid": HeatmapGrid(title="t", panels=[make_heatmap(np.eye(3), name) for name in NAMES], num_columns=5),
    "chart": make_lines(*(make_series(name, [1, 2]) for name in NAMES), x_names=NAMES[:3], y_label=NAMES[8]),
    "scatter plot": make_scatter(np.arange(COUNT), np.arange(COUNT), names=NAMES, groups=NAMES),
    "bars": make_bars(np.arange(COUNT), names=NAMES),
    "tokens": make_tokens(np.arange(COUNT), tokens=NAMES, selected=[0]),
    "table": Table(title="t", columns=NAMES[:5], rows=[NAMES[5:10], NAMES[10:]]),
    "tree": Tree(
        title="t",
        nodes=[
            TreeNode(
                parent=min(index - 1, 2), label=name, value=-index, detail=name, state="pruned" if index > 5 else "kept"
            )
            for index, name in enumerate(NAMES)
        ],
        value_label="v",
    ),
    "image": make_image_overlay(RNG.random((COUNT, 2, 2)), captions=NAMES),
    "findings": Findings(title="t", findings=[Finding(text=name, severity="note", evidence=name) for name in NAMES]),
}


def draw_in_all_formats(figure: Figure, width: int = 80, has_png: bool = True) -> tuple[str, str]:
    """Returns a figure as text and as SVG, after checks that hold for every figure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = draw_text("title", ["sentence"], [figure], width=width, has_colour=False)
        svg = draw_svg("title", ["sentence"], [figure])
    assert max(map(cell_len, text.splitlines())) <= width
    assert not set(text) & {"\x00", "\x1b", "\t", "\u202e"}
    text.encode()
    svg.encode()
    size = get_size(svg)
    if has_png:
        assert Image.open(io.BytesIO(draw_png(svg))).size == (2 * size[0], 2 * size[1])
    numbers = [value for element in list_elements(svg) for name, value in element.values.items() if name != "href"]
    assert not any("nan" in number for number in numbers)
    return text, svg


@pytest.mark.parametrize("name", SMALL)
def test_degenerate_values_are_drawn(name: str):
    text, svg = draw_in_all_formats(SMALL[name])
    assert "nan" not in text
    assert get_size(svg)[0] <= 770 or name == "grid of many columns"


@pytest.mark.parametrize("name", UNUSUAL_NAMES)
def test_unusual_names_do_not_break_the_layout(name: str):
    text, svg = draw_in_all_formats(UNUSUAL_NAMES[name])
    if name != "chart":
        assert "↵" in text
    assert get_size(svg)[0] <= 900
    assert name == "findings" or any("…" in each for each in list_texts(svg))


def test_a_heatmap_without_values_says_so():
    text, svg = draw_in_all_formats(SMALL["large heatmap without values"])
    assert "no value" in text
    assert "no value" in list_texts(svg)


def test_columns_stay_aligned_below_wide_names():
    values = np.tile([0.0, 1.0], (30, 15))
    text, _ = draw_in_all_formats(make_heatmap(values, rows=NAMES * 2, columns=["日本", "a"] * 15), 100)
    rows = [line for line in text.splitlines() if "██" in line and "[" not in line[20:]]
    assert len({cell_len(line) for line in rows}) == 1


@pytest.mark.parametrize(
    ("figure", "max_lines", "max_svg"),
    [
        (make_heatmap(RNG.random((64, 2000)), columns=[f"word{index}x" for index in range(2000)]), 60, 300_000),
        (make_lines(make_series("a", RNG.random(2000)), x_names=[f"w{index}" for index in range(2000)]), 30, 60_000),
        (make_lines(*(make_series(f"s{index}", [index]) for index in range(60))), 50, 60_000),
        (make_scatter(RNG.random(2000), RNG.random(2000), groups=[f"g{i % 60}" for i in range(2000)]), 40, 400_000),
        (make_bars(RNG.normal(size=2000)), 50, 60_000),
        (make_tokens(RNG.normal(size=2500)), 70, 800_000),
        (Table(title="t", columns=["a", "b"], rows=[["x" * 300, index] for index in range(2000)]), 80, 100_000),
        (
            Tree(title="t", nodes=[TreeNode(parent=i - 1, label="w", value=-i) for i in range(2000)], value_label="v"),
            9,
            20_000,
        ),
        (
            Tree(
                title="t",
                nodes=[TreeNode(parent=(i - 1) // 2, label="w", value=-i) for i in range(2000)],
                value_label="v",
            ),
            90,
            150_000,
        ),
        (make_image_overlay(RNG.random((40, 14, 14)), (600, 900)), 60, 2_000_000),
    ],
    ids=lambda value: value.kind if isinstance(value, Figure) else "",
)
def test_large_figures_are_reduced(figure: Figure, max_lines: int, max_svg: int):
    text, svg = draw_in_all_formats(figure, 100, has_png=isinstance(figure, (Heatmap, LineChart)))
    assert len(text.splitlines()) <= max_lines
    assert len(svg) <= max_svg
    assert max(get_size(svg)) <= 6000


def test_a_figure_says_what_it_leaves_out():
    text, svg = draw_in_all_formats(make_bars(np.arange(2000)), has_png=False)
    assert "(40 of 2,000: those furthest from zero)" in text
    assert "60 of 2,000 bars: those furthest from zero." in list_texts(svg)
    text, svg = draw_in_all_formats(make_tokens(np.arange(2500)), has_png=False)
    assert "(400 of 2,500 tokens)" in text
    assert "The first 2,000 of 2,500 tokens." in list_texts(svg)


@pytest.mark.slow
def test_a_matrix_of_2000_tokens_and_many_heads():
    square = make_heatmap(RNG.random((2000, 2000)) ** 20)
    _, svg = draw_in_all_formats(square)
    assert len(svg) < 3_000_000
    panels = [make_heatmap(square.values, f"layer {index // 12}, head {index % 12}") for index in range(24)]
    _, svg = draw_in_all_formats(HeatmapGrid(title="t", panels=panels, num_columns=12), 120)
    assert len(svg) < 1_500_000
