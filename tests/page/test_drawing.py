"""Figures as SVG and PNG: names, numbers and where they are."""

from __future__ import annotations

import base64
import io
import re
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from sample_figures import (
    FIGURES,
    Element,
    find_text,
    get_size,
    list_elements,
    list_texts,
    make_grid,
    make_heatmap,
    make_lines,
    make_overlay,
    make_series,
    make_tree,
)

from seqwise.image import SCALE, draw_png
from seqwise.page.drawing import DRAW, draw_svg
from seqwise.page.drawing.colours import MISSING, make_ramp, parse_colour
from seqwise.page.figures import BarChart, Figure, Findings, HeatmapGrid, ScatterPlot, Table, TokenText
from seqwise.page.palette import DASHES, ROLES, SERIES
from seqwise.svg import WIDTH

NAN = np.nan


def draw(figure: Figure) -> str:
    return draw_svg("", [], [figure])


def open_png(svg: str) -> Image.Image:
    return Image.open(io.BytesIO(draw_png(svg)))


def find_images(svg: str) -> list[Element]:
    """Returns the matrices and images of a drawing, without its colour bars."""
    images = [element for element in list_elements(svg) if element.tag == "image"]
    return [image for image in images if float(image.values["height"]) > 10]


def decode(image: Element) -> np.ndarray:
    data = base64.b64decode(image.values["href"].partition(",")[2])
    return np.array(Image.open(io.BytesIO(data)).convert("RGB"))


def find_points(element: Element) -> np.ndarray:
    return np.array([[float(value) for value in pair.split(",")] for pair in element.values["points"].split()])


def find_lines(svg: str, colour: str) -> list[Element]:
    elements = list_elements(svg)
    return [element for element in elements if element.tag == "polyline" and element.values["stroke"] == colour]


def test_every_kind_of_figure_can_be_drawn():
    assert set(DRAW) == set(Figure.__subclasses__())


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.kind)
def test_all_elements_are_inside_the_document_and_the_png_has_twice_its_size(figure: Figure):
    svg = draw_svg("Title", ["A sentence."], [figure])
    width, height = get_size(svg)
    assert width >= WIDTH
    assert open_png(svg).size == (width * SCALE, height * SCALE)
    for element in list_elements(svg):
        right = element.x + float(element.values.get("width", 0))
        bottom = element.y + float(element.values.get("height", 0))
        assert element.x >= 0
        assert element.y >= 0
        assert right <= width
        assert bottom <= height
    assert {"Title", "A sentence.", figure.title} <= set(list_texts(svg))


def test_figures_are_below_each_other():
    svg = draw_svg("Title", ["A sentence."], FIGURES)
    places = [find_text(svg, figure.title).y for figure in FIGURES]
    assert all(lower - upper > 60 for upper, lower in pairwise(places))
    assert get_size(svg)[1] > places[-1]


def test_texts_have_a_legible_size():
    svg = draw_svg("Title", ["A sentence."], FIGURES)
    assert 'font-size="12"' in svg.splitlines()[0]
    sizes = {float(element.values.get("font-size", 12)) for element in list_elements(svg) if element.tag == "text"}
    assert min(sizes) == 12


def test_long_titles_notes_and_sentences_are_wrapped():
    svg = draw_svg("title " * 60, ["sentence " * 60], [make_heatmap([[1]], title="figure " * 60, note="note " * 80)])
    assert get_size(svg)[0] == WIDTH
    assert sum(text.count("note") for text in list_texts(svg)) == 80


def test_cells_of_a_heatmap_have_the_colours_of_their_values():
    values = np.array([[0, 0.5, 1], [1, NAN, 0]])
    svg = draw(make_heatmap(values, low=0, high=1, role="attention"))
    [image] = find_images(svg)
    width, height = float(image.values["width"]) / 3, float(image.values["height"]) / 2
    png, ramp = open_png(svg), make_ramp("sequential", "attention")
    for (row, column), value in np.ndenumerate(values):
        position = round((image.x + (column + 0.15) * width) * SCALE), round((image.y + (row + 0.15) * height) * SCALE)
        expected = parse_colour(MISSING) if np.isnan(value) else tuple(ramp.sample(np.array(value)))
        assert png.getpixel(position) == tuple(map(int, expected))


def test_names_of_rows_and_columns_are_beside_their_cells():
    svg = draw(make_heatmap(np.arange(6).reshape(2, 3), rows=["the", "cat"], columns=["a", "b", "c"]))
    [image] = find_images(svg)
    width, height = float(image.values["width"]) / 3, float(image.values["height"]) / 2
    for index, name in enumerate(["the", "cat"]):
        assert find_text(svg, name).x < image.x
        assert find_text(svg, name).y == pytest.approx(image.y + (index + 0.5) * height, abs=5)
    for index, name in enumerate("abc"):
        assert find_text(svg, name).x == pytest.approx(image.x + (index + 0.5) * width, abs=1)
        assert find_text(svg, name).y > image.y + 2 * height
    assert {"query token", "key token", "attention weight"} <= set(list_texts(svg))


def test_large_cells_show_their_numbers_and_small_ones_do_not():
    assert {"0.25", "0.75", "1.00", "0.00"} <= set(list_texts(draw(make_heatmap([[0.25, 0.75], [1, 0]]))))
    assert {"812", "1,207"} <= set(list_texts(draw(make_heatmap([[812, 3], [4, 1207]]))))
    assert "1.00" not in list_texts(draw(make_heatmap(np.eye(30))))


def test_numbers_are_light_on_dark_cells():
    svg = draw(make_heatmap([[0.0, 0.25, 1.0]]))
    assert find_text(svg, "1.00").values["fill"] == "#ffffff"
    assert find_text(svg, "0.00").values["fill"] == "#111111"


def test_long_column_names_are_rotated_and_every_token_is_named():
    tokens = [f"{letter}word" for letter in "abcdefghijklmnopqrstuvwxyz"] * 4
    svg = draw(make_heatmap(np.random.default_rng(0).random((64, 104)), columns=tokens))
    names = [element for element in list_elements(svg) if element.text in tokens]
    assert len(names) == 104
    assert all("rotate(-90" in name.values["transform"] for name in names)
    assert all(right.x - left.x >= 12 for left, right in pairwise(names))
    assert WIDTH < get_size(svg)[0] < 1700


def test_of_numbered_names_only_some_are_written():
    svg = draw(make_heatmap(np.zeros((300, 3)), rows=[f"unit {index}" for index in range(300)]))
    units = [element for element in list_elements(svg) if element.text.startswith("unit ")]
    assert units[0].text == "unit 0"
    assert 20 <= len(units) < 100
    assert all(lower.y - upper.y >= 12 for upper, lower in pairwise(units))


def test_a_diverging_scale_is_white_at_zero():
    svg = draw(make_heatmap([[-2.0, 0.0, 1.0]], scale="diverging"))
    cells = decode(find_images(svg)[0])
    assert cells[0, 12].tolist() == [255, 255, 255]
    red, _, blue = cells[0, 0].astype(int)
    assert red > blue
    assert {"−2", "2"} <= set(list_texts(svg))


@pytest.mark.parametrize("role", ["", *ROLES])
def test_colours_become_steadily_darker(role: str):
    colours = make_ramp("sequential", role).build_palette()[:-1].astype(float)
    lightness = colours @ [0.299, 0.587, 0.114]
    assert (np.diff(lightness) <= 0).all()
    assert lightness[0] == 255
    assert lightness[-1] < 80


def test_a_grid_names_its_rows_and_columns_and_shares_one_scale():
    svg = draw(make_grid(2, 3, 4))
    images = find_images(svg)
    assert len(images) == 6
    for index, image in enumerate(images):
        middle = image.x + float(image.values["width"]) / 2
        assert find_text(svg, f"head {index % 3 + 1}").x == pytest.approx(middle, abs=1)
        assert image.y < find_text(svg, f"layer {index // 3 + 1}").y < image.y + float(image.values["height"])
        pixels = decode(image)
        row, column = np.argwhere(pixels.sum(axis=2) < 600)[0]
        assert (row * 4 // len(pixels), column * 4 // len(pixels)) == (index // 3, index % 3)
    assert list_texts(svg).count("attention weight") == 1


def test_panels_of_different_quantities_have_their_own_scales():
    panels = [
        make_heatmap(np.eye(4), "forget gate", role="forget", low=0, high=1, value_label="f"),
        make_heatmap(np.eye(4) - 0.5, "candidate", scale="diverging", value_label="g"),
    ]
    svg = draw(HeatmapGrid(title="Gates", panels=panels, num_columns=2))
    assert {"forget gate", "candidate"} <= set(list_texts(svg))
    texts = " ".join(list_texts(svg))
    assert "0 to 1" in texts
    assert "−0.5 to 0.5" in texts


def test_lines_go_through_their_points():
    svg = draw(make_lines(make_series("a", [20, 30, 25]), make_series("b", [30, 20, 20])))
    [curve] = [line for line in find_lines(svg, SERIES[0][0]) if len(find_points(line)) == 3]
    points = find_points(curve)
    top, bottom = points[1, 1], points[0, 1]
    assert points[2, 1] == pytest.approx((top + bottom) / 2, abs=0.1)
    assert points[1, 0] == pytest.approx((points[0, 0] + points[2, 0]) / 2, abs=0.1)
    offset = find_text(svg, "30").y - 4 - top  # of the group that the plot is in
    assert find_text(svg, "20").y - 4 - bottom == pytest.approx(offset, abs=0.2)


def test_every_series_has_its_colour_and_dashes_also_in_the_legend():
    svg = draw(make_lines(*(make_series(f"model {index}", [index, index + 1]) for index in range(5))))
    for index in range(5):
        sample, curve = find_lines(svg, SERIES[index][0])
        assert sample.values.get("stroke-dasharray", "") == DASHES[index]
        assert curve.values.get("stroke-dasharray", "") == DASHES[index]
        assert f"model {index}" in list_texts(svg)


def test_a_line_is_interrupted_where_it_has_no_value():
    svg = draw(make_lines(make_series("a", [1, 2, NAN, 3, 4, NAN, 5])))
    pieces = [len(find_points(line)) for line in find_lines(svg, SERIES[0][0])]
    assert pieces == [2, 2, 2, 1]  # the first is in the legend
    assert sum(element.tag == "circle" for element in list_elements(svg)) == 5


def test_a_logarithmic_axis_has_powers_of_ten_at_equal_distances():
    svg = draw(make_lines(make_series("a", [1e-6, 1]), y_log=True))
    powers = [find_text(svg, text).y for text in ("10−6", "10−4", "10−2", "100")]
    assert np.diff(powers) == pytest.approx([np.diff(powers)[0]] * 3, abs=0.2)
    assert "loss (nats) (log scale)" in list_texts(svg)


def test_intervals_and_references_are_drawn():
    svg = draw(FIGURES[2])
    bands = [element for element in list_elements(svg) if "fill-opacity" in element.values]
    assert [len(find_points(band)) for band in bands] == [6]
    assert {"baseline", "warm-up"} <= set(list_texts(svg))


def test_tokens_below_an_axis():
    svg = draw(make_lines(make_series("a", [1, 2, 3]), x_names=["the", "cat", "sat"]))
    names = [find_text(svg, name).x for name in ("the", "cat", "sat")]
    assert names[1] - names[0] == pytest.approx(names[2] - names[1], abs=0.2)


def test_a_long_line_retains_its_extremes_in_a_small_file():
    y = np.random.default_rng(0).random(20_000)
    y[12_345] = 9.75
    svg = draw(make_lines(make_series("a", y)))
    [curve] = [line for line in find_lines(svg, SERIES[0][0]) if len(find_points(line)) > 2]
    points = find_points(curve)
    assert len(points) <= 1500
    assert points[:, 1].argmin() == pytest.approx(12_345 / 20_000 * len(points), rel=0.02)
    assert len(svg) < 50_000


def test_points_of_groups_differ_in_colour_and_shape():
    svg = draw(next(figure for figure in FIGURES if isinstance(figure, ScatterPlot)))
    elements = list_elements(svg)
    circles = [element for element in elements if element.tag == "circle"]
    squares = [element for element in elements if element.tag == "polygon"]
    assert [len(circles), len(squares)] == [3, 3]  # two points each, and the legend
    assert {circle.values["fill"] for circle in circles} == {SERIES[0][0]}
    assert {square.values["fill"] for square in squares} == {SERIES[1][0]}


def test_names_are_beside_their_points():
    svg = draw(next(figure for figure in FIGURES if isinstance(figure, ScatterPlot)))
    alpha, gamma = sorted((e for e in list_elements(svg) if e.tag == "circle"), key=lambda e: -e.y)[:2]
    for circle, name in ((alpha, "alpha"), (gamma, "gamma")):
        text = find_text(svg, name)
        assert abs(text.y - circle.y) < 20
        assert abs(text.x - circle.x) < 50


def test_names_of_points_do_not_overlap():
    rng = np.random.default_rng(0)
    names = [f"word{index}" for index in range(300)]
    labels = {"x_label": "x", "y_label": "y"}
    svg = draw(ScatterPlot(title="t", x=rng.random(300), y=rng.random(300), names=names, is_labelled=True, **labels))
    placed = [element for element in list_elements(svg) if element.text in names]
    assert 40 < len(placed) < 300
    assert f"{len(placed)} of 300 points have room for their names." in list_texts(svg)
    boxes = [(text.x, text.y) for text in placed]
    for index, (x, y) in enumerate(boxes):
        assert not [1 for other in boxes[index + 1 :] if abs(other[0] - x) < 30 and abs(other[1] - y) < 10]


def test_points_by_value_have_a_colour_scale():
    values = np.array([0.0, 5.0, 10.0, NAN])
    points = {"x": np.arange(4.0), "y": np.arange(4.0), "names": list("abcd"), "x_label": "x", "y_label": "y"}
    svg = draw(ScatterPlot(title="t", values=values, value_label="position (tokens)", **points))
    fills = [element.values["fill"] for element in list_elements(svg) if element.tag == "circle"]
    assert fills[0] == "#ffffff"
    assert fills[3] == MISSING
    assert len(set(fills)) == 4
    assert "position (tokens)" in list_texts(svg)


def test_lengths_of_bars_are_proportional_to_their_values():
    figure = BarChart(title="t", names=["a", "b"], values=np.array([3.0, -1.5]), value_label="effect (nats)")
    svg = draw(figure)
    bars = [element for element in list_elements(svg) if element.values.get("fill") == SERIES[0][0]]
    widths = [float(bar.values["width"]) for bar in bars]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.3)
    zero = bars[0].x
    assert bars[1].x + widths[1] == pytest.approx(zero, abs=0.2)
    assert find_text(svg, "0").x == pytest.approx(zero, abs=0.2)
    assert find_text(svg, "−1.50").x < bars[1].x
    assert "effect (nats)" in list_texts(svg)


def test_bars_have_roles_and_intervals():
    svg = draw(next(figure for figure in FIGURES if isinstance(figure, BarChart)))
    boxes = [element for element in list_elements(svg) if element.values.get("height") == "14.0"]
    assert len({box.values["fill"] for box in boxes} - {"#ffffff"}) == 2
    assert len(find_lines(svg, "#222222")) == 6


def test_tokens_have_the_colours_of_their_values():
    svg = draw(next(figure for figure in FIGURES if isinstance(figure, TokenText)))
    boxes = [e for e in list_elements(svg) if e.tag == "rect" and e.values["height"] == "20.0"]
    ramp = make_ramp("diverging")
    expected = ["#" + bytes(ramp.sample(np.array(f))).hex() for f in (0, 0.7, 0.5)]
    assert [box.values["fill"] for box in boxes[:3]] == expected
    assert boxes[4].values["fill"] == MISSING
    assert [box.values["stroke"] != "none" for box in boxes] == [False, True, False, False, False]
    assert boxes[3].y > boxes[2].y  # after the line break
    assert len(find_lines(svg, ROLES["negative"][0])) == 2  # below "not", and in the legend


def test_a_table_aligns_numbers_right():
    svg = draw(next(figure for figure in FIGURES if isinstance(figure, Table)))
    assert find_text(svg, "0.123").values["text-anchor"] == "end"
    assert find_text(svg, "0.123").x == find_text(svg, "1.50").x
    assert find_text(svg, "previous token").values["text-anchor"] == "start"


def test_a_tree_has_its_root_on_the_left_and_its_best_path_in_colour():
    svg = draw(make_tree())
    depths = [find_text(svg, label).x for label in ("<s>", "a", "dog", "barks")]
    assert depths == sorted(set(depths))
    assert find_text(svg, "cat").x == find_text(svg, "dog").x
    best = ROLES["input"][0]
    assert len(find_lines(svg, best)) == 4  # three edges, and the legend
    assert {find_text(svg, label).values["fill"] for label in ("<s>", "a", "dog", "barks")} == {best}
    assert {"best", "finished", "kept", "pruned", "−2.50", "numbers: log-probability"} <= set(list_texts(svg))


def test_a_word_is_coloured_at_its_region():
    svg = draw(make_overlay())
    _, first, second = find_images(svg)
    assert (find_text(svg, "a").x, find_text(svg, "dog").x) == (first.x, second.x)
    pixels = decode(second).astype(int)
    height, width = pixels.shape[:2]
    corners = pixels[[0, 0, -1, -1], [0, -1, 0, -1]]
    assert corners[1, 2] - corners[1, 1] > 40  # violet
    assert (np.abs(corners[[0, 2, 3], 2] - corners[[0, 2, 3], 1]) < 40).all()
    assert width / height == pytest.approx(2, rel=0.05)


def test_findings_have_a_word_for_their_severity():
    svg = draw(next(figure for figure in FIGURES if isinstance(figure, Findings)))
    assert {"problem", "good", "The loss is stuck.", "loss 6.5", "seqwise train x"} <= set(list_texts(svg))
    assert find_text(svg, "problem").y == find_text(svg, "The loss is stuck.").y


def test_markup_in_names_is_text():
    svg = draw(make_heatmap([[1, 2]], rows=["<b>&amp;"], columns=["a<c", '"'], title="<script>&"))
    assert {"<b>&amp;", "a<c", '"', "<script>&"} <= set(list_texts(svg))
    assert not re.search("<(script|b)>", svg)
    assert 'aria-label="&lt;x&gt; &quot;&amp;"' in draw_svg('<x> "&', [], [])
