"""The plot of a forecast is well-formed and shows history, band, point and true values."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from seqwise.tasks.forecast.output import HEIGHT, MAX_PANELS, build_forecast_svg, split_at_gaps


def create_forecast(**overrides) -> dict:
    return {
        "timestamps": ["3", "4"],
        "point": [3.0, 4.0],
        "quantiles": {"0.9": [5.0, 6.0], "0.1": [1.0, 2.0]},
        "history": {"timestamps": ["0", "1", "2"], "values": [0.0, None, 2.0]},
        **overrides,
    }


def test_the_plot_shows_history_band_point_and_truth():
    svg = build_forecast_svg({"a <b>": create_forecast(truth=[3.0, 3.5])})
    ElementTree.fromstring(svg)
    assert "a &lt;b&gt;" in svg
    assert svg.count("<polygon") == 1
    assert svg.count("<polyline") == 2 + 1 + 1  # the history is broken by a missing value
    assert "quantiles 0.1 to 0.9" in svg
    points = re.search(r'<polygon points="([^"]+)"', svg)[1].split()
    assert len(points) == 1 + 2 + 2  # the last value, then along the upper quantile, and back along the lower one


def test_without_quantiles_there_is_no_band():
    svg = build_forecast_svg({"a": create_forecast(quantiles={})})
    assert "<polygon" not in svg
    assert "quantiles" not in svg
    assert "dashed" not in svg


def test_each_series_has_a_panel_up_to_a_limit():
    svg = build_forecast_svg({str(n): create_forecast() for n in range(MAX_PANELS + 3)})
    assert svg.count("<g ") == MAX_PANELS
    assert "and 3 more series" in svg
    assert f'viewBox="0 0 760 {MAX_PANELS * HEIGHT + 20}"' in svg


def test_larger_values_are_drawn_higher():
    svg = build_forecast_svg({"a": create_forecast(quantiles={})})
    line = re.findall(r'<polyline points="([^"]+)"', svg)[-1].split()
    heights = [float(point.split(",")[1]) for point in line]
    assert heights == sorted(heights, reverse=True)


def test_missing_values_break_a_line():
    assert split_at_gaps([None, 1.0, 2.0, None, 3.0], 10) == [[(11, 1.0), (12, 2.0)], [(14, 3.0)]]
