"""The learning curve is a valid SVG image whose points have the coordinates of the numbers."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from seqwise.svg import BOTTOM, LEFT, RIGHT, TOP, WIDTH, choose_ticks
from seqwise.training.card import HEIGHT, MAX_POINTS, build_curve_svg, downsample, format_count, smooth

ROWS = [
    {"tokens": 1000, "loss": 4.0},
    {"tokens": 2000, "loss": 3.0, "validation": {"loss": 3.5}},
    {"tokens": 4000, "loss": 2.0, "validation": {"loss": 2.5}},
]


def parse_lines(picture: str) -> list[list[tuple[float, float]]]:
    root = ElementTree.fromstring(picture)
    attributes = [element.get("points") or "" for element in root.iter("{http://www.w3.org/2000/svg}polyline")]
    return [[tuple(map(float, point.split(","))) for point in text.split()] for text in attributes]  # type: ignore[misc]


def test_points_of_the_curve_have_the_coordinates_of_the_numbers():
    training, validation = parse_lines(build_curve_svg(ROWS))
    plot_width = WIDTH - LEFT - RIGHT
    assert [x for x, _ in training] == pytest.approx([LEFT + plot_width * share for share in (0.25, 0.5, 1)], abs=0.1)
    assert [x for x, _ in validation] == pytest.approx([LEFT + plot_width * share for share in (0.5, 1)], abs=0.1)
    assert validation[0][1] < validation[1][1]  # a smaller loss is drawn lower
    assert all(TOP <= y <= HEIGHT - BOTTOM for line in (training, validation) for _, y in line)


def test_the_legend_names_the_best_validation_loss():
    assert "validation loss (best 2.500)" in build_curve_svg(ROWS)


TINY = [{"tokens": 5, "loss": 0.0}, {"tokens": 9, "loss": 0.0, "validation": {"loss": 1e-12}}]
ROUNDED = [{"tokens": 5, "loss": 2.3}, {"tokens": 9, "loss": 2.3, "validation": {"loss": 2.3 + 4e-16}}]


@pytest.mark.parametrize(
    "rows", [[], ROWS[:1], [{"tokens": 5, "loss": 0.0}], [*ROWS, {"tokens": 4000, "loss": 2.0}], TINY, ROUNDED]
)
def test_few_or_equal_points_are_a_valid_image(rows):
    picture = build_curve_svg(rows)
    ElementTree.fromstring(picture)
    assert not re.search(r"nan|inf", picture)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 1.7e308, -1.7e308])
def test_points_without_a_place_in_the_image_are_left_out(value):
    """A model that diverges has an infinite loss; a damaged file has anything."""
    rows = [
        ROWS[0],
        {"tokens": 1500, "loss": value, "validation": {"loss": value}},
        {"tokens": value, "loss": 3.0, "validation": {"loss": -value}},
        *ROWS[1:],
    ]
    assert build_curve_svg(rows) == build_curve_svg(ROWS)
    assert build_curve_svg(rows[1:3]) == build_curve_svg([])


def test_smoothing_is_a_moving_average():
    assert smooth([(0, 1.0), (1, 2.0), (2, 2.0)], decay=0.5) == [(0, 1.0), (1, 1.5), (2, 1.75)]


def test_a_long_curve_is_drawn_with_few_points_and_keeps_its_ends():
    rows = [{"tokens": number + 1, "loss": 5.0} for number in range(20_000)]
    training, _ = parse_lines(build_curve_svg(rows))
    assert len(training) == MAX_POINTS == 500
    assert len(build_curve_svg(rows)) < 12_000
    assert downsample([(i, 2.0 * i) for i in range(6)], 4) == [(0, 0), (1.5, 3), (3.5, 7), (5, 10)]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (1.9, 4.1, [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]),
        (-0.3, 190, [-50, 0, 50, 100, 150, 200]),
        (3, 3, [3, 4]),
        (0, 0, [0, 0.2]),
        (0, 1e-12, [0, 2e-13, 4e-13, 6e-13, 8e-13, 1e-12]),
        (2.3, 2.3 + 4e-16, [2, 2.5]),
    ],
)
def test_ticks_are_round_numbers_that_cover_the_range(low, high, expected):
    assert choose_ticks(low, high) == expected


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (999, "999"), (1_500, "1.5k"), (2e6, "2M"), (3e9, "3G")])
def test_large_numbers_are_abbreviated(number, text):
    assert format_count(number) == text
