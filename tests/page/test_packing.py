"""Packed figures: precision, exact extremes, missing values, and a limited size."""

from __future__ import annotations

import zlib
from base64 import b64decode
from typing import Any

import numpy as np
import pytest
from page_figures import attention_grid, attention_head, head_roles, regions

from seqwise.page.figures import Heatmap, HeatmapGrid, LineChart, Series
from seqwise.page.packing import MAX_IMAGE_SIDE, pack_figure, pack_figures, pack_matrix, pool_by_halving, shrink_image
from seqwise.page.script import dump_json_for_script


def decode(packed: Any) -> np.ndarray:
    """Returns the matrix of packed values, as the documentation of `packing.py` says."""
    if isinstance(packed, list):
        return np.array(packed, dtype=float)
    data = np.frombuffer(zlib.decompress(b64decode(packed["codes"])), np.uint8)
    if packed["code"] == "half":
        halves = np.ascontiguousarray(data.reshape(2, -1).T).view("<f2").astype(float)
        return (halves * 2.0 ** packed["exponent"]).reshape(packed["shape"])
    values = packed["low"] + data / 254 * (packed["high"] - packed["low"])
    return np.where(data == 255, np.nan, values).reshape(packed["shape"])


def test_small_matrices_are_lists_with_six_digits():
    assert pack_matrix(np.array([[1 / 3, np.nan], [np.inf, -2e-9]])) == [[0.333333, None], [None, -2e-9]]


@pytest.mark.parametrize("size", [1e-12, 1.0, 3e7])
def test_half_precision_keeps_three_digits_of_every_value(size: float):
    values = size * np.exp(np.random.default_rng(0).uniform(-18, 0, (40, 30)))
    values[::2] *= -1
    values[3, 4], values[5, 6] = np.nan, 0.0
    read = decode(pack_matrix(values))
    assert np.array_equal(np.isnan(read), np.isnan(values))
    assert read[5, 6] == 0.0
    np.testing.assert_allclose(read, values, rtol=5e-4)


def test_bytes_keep_the_exact_extremes_and_all_values_to_half_a_step():
    values = np.random.default_rng(1).normal(size=(30, 30))
    values[2, 3] = np.nan
    packed = pack_matrix(values, step=1)
    assert (packed["low"], packed["high"]) == (np.nanmin(values), np.nanmax(values))
    np.testing.assert_allclose(decode(packed), values, atol=(packed["high"] - packed["low"]) / 508 + 1e-12)


@pytest.mark.parametrize("value", [0.0, -3.25, np.nan])
@pytest.mark.parametrize("step", [0, 1])
def test_a_constant_matrix_stays_constant(value: float, step: int):
    np.testing.assert_array_equal(decode(pack_matrix(np.full((20, 20), value), step)), value)


def test_pooling_averages_blocks_and_ignores_missing_values():
    values = np.arange(20.0).reshape(1, 20).repeat(10, axis=0)
    values[:, 1] = np.nan
    means, block = pool_by_halving(values, 1)
    assert (means.shape, block) == ((10, 10), (1, 2))
    assert means[0, :3].tolist() == [0.0, 2.5, 4.5]
    odd, block = pool_by_halving(np.ones((9, 21)), 2)
    assert (odd.shape, block) == ((9, 6), (1, 4))
    assert (odd == 1).all()


def test_figures_are_made_coarser_until_they_fit():
    grid, head = attention_grid(4, 4, 60), attention_head(60)
    exact, reduced = (pack_figures([head, grid, head_roles()], limit) for limit in (10**9, 60_000))
    assert len(dump_json_for_script(exact)) > 60_000 >= len(dump_json_for_script(reduced)) - 10
    assert exact[0] == reduced[0]  # only the largest needed it
    assert exact[2] == reduced[2]
    block = reduced[1]["panels"][0]["values"]["block"]
    expected, _ = pool_by_halving(np.asarray(grid.panels[0].values), int(np.log2(block[0] * block[1])))
    panel = reduced[1]["panels"][0]["values"]
    np.testing.assert_allclose(decode(panel), expected, atol=(panel["high"] - panel["low"]) / 508 + 1e-12)


def test_what_cannot_be_made_coarser_exceeds_the_limit():
    assert len(pack_figures([head_roles(), attention_head(5)], 10)) == 2


def test_a_diverging_scale_is_symmetric_and_limits_override_values():
    values = np.array([[-1.0, 4.0]])
    labels = {"rows": ["a"], "columns": ["b", "c"], "row_label": "", "column_label": "", "value_label": ""}
    packed = [
        pack_figure(Heatmap(title="", values=values, **labels, scale="diverging")),  # type: ignore[arg-type]
        pack_figure(Heatmap(title="", values=values, **labels)),  # type: ignore[arg-type]
        pack_figure(Heatmap(title="", values=values, **labels, low=0.0, high=10.0)),  # type: ignore[arg-type]
        pack_figure(Heatmap(title="", values=values * np.nan, **labels)),  # type: ignore[arg-type]
    ]
    assert [(one["low"], one["high"]) for one in packed] == [(-4.0, 4.0), (-1.0, 4.0), (0.0, 10.0), (0.0, 1.0)]


def test_the_panels_of_a_grid_share_names_and_colour_scale():
    panels = [attention_head(12, head, low=None, high=None) for head in range(4)]
    packed = pack_figure(HeatmapGrid(title="grid", panels=panels, num_columns=2))
    highest = max(float(np.max(panel.values)) for panel in panels)
    assert {panel["high"] for panel in packed["panels"]} == {highest}
    assert packed["shared"]["rows"] == list(panels[0].rows)
    assert all("rows" not in panel for panel in packed["panels"])
    assert pack_figure(HeatmapGrid(title="empty", panels=(), num_columns=2))["panels"] == []


def test_positions_on_the_x_axis_keep_six_digits():
    series = Series(name="loss", x=np.array([123_456.0]), y=np.array([np.nan]))
    chart = pack_figure(LineChart(title="", series=[series], x_label="step", y_label="loss"))
    assert chart["series"][0]["x"] == [123_456.0]
    assert chart["series"][0]["y"] == [None]


def test_large_images_are_averaged():
    image = np.zeros((600, 1200, 3), np.uint8)
    image[:, 600:] = (10, 20, 250)
    small = shrink_image(image, MAX_IMAGE_SIDE)
    assert small.shape == (200, 400, 3)
    assert small[0, 0].tolist() == [0, 0, 0]
    assert small[-1, -1].tolist() == [10, 20, 250]


def test_an_image_is_stored_as_its_pixels():
    figure = regions()
    packed = pack_figure(figure)
    pixels = np.frombuffer(zlib.decompress(b64decode(packed["image"]["codes"])), np.uint8)
    assert np.array_equal(pixels.reshape(96, 128, 3), figure.image)
    np.testing.assert_allclose([decode(panel) for panel in packed["weights"]], figure.weights, rtol=1e-5)
