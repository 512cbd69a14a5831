"""Colour scales are even in lightness and differ from the background where the value is high."""

from __future__ import annotations

from itertools import pairwise

import pytest

from seqwise.page.palette import NUM_STOPS, ROLES, get_colours, get_scale, to_oklab

CARDS = ("#ffffff", "#1a1d23")  # behind figures, on light and dark pages


@pytest.mark.parametrize("role", ["", *ROLES])
@pytest.mark.parametrize("mode", [0, 1])
def test_lightness_of_a_sequential_scale_changes_in_equal_steps(role: str, mode: int):
    lightness = [to_oklab(stop)[0] for stop in get_scale("sequential", role)[mode]]
    steps = [after - before for before, after in pairwise(lightness)]
    assert len(lightness) == NUM_STOPS
    assert max(steps) - min(steps) < 0.012
    assert all(step < 0 for step in steps) or all(step > 0 for step in steps)


@pytest.mark.parametrize("mode", [0, 1])
def test_a_diverging_scale_is_symmetric_around_a_neutral_zero(mode: int):
    colours = [to_oklab(stop) for stop in get_scale("diverging")[mode]]
    assert len(colours) == 2 * NUM_STOPS - 1
    for low, high in zip(colours, reversed(colours)):
        assert low[0] == pytest.approx(high[0], abs=0.01)
    zero, low, high = colours[NUM_STOPS - 1], colours[0], colours[-1]
    assert abs(zero[1]) + abs(zero[2]) < 0.02
    assert low[2] > 0.05  # orange
    assert high[2] < -0.05  # blue


@pytest.mark.parametrize("mode", [0, 1])
def test_the_low_end_is_close_to_the_background_and_the_high_end_is_not(mode: int):
    background = to_oklab(CARDS[mode])[0]
    for stops in (get_scale("sequential", role)[mode] for role in ROLES):
        assert abs(to_oklab(stops[0])[0] - background) < 0.06
        assert abs(to_oklab(stops[-1])[0] - background) > 0.6


def test_a_sequential_scale_has_the_hue_of_its_role():
    for role, (light, _) in ROLES.items():
        _, a, b = to_oklab(light)
        _, scale_a, scale_b = to_oklab(get_scale("sequential", role)[0][NUM_STOPS // 2])
        assert a * scale_b == pytest.approx(b * scale_a, abs=3e-3)


def test_conversion_to_oklab_matches_published_values():
    assert to_oklab("#ffffff") == pytest.approx((1.0, 0.0, 0.0), abs=1e-3)
    assert to_oklab("#ff0000") == pytest.approx((0.628, 0.225, 0.126), abs=1e-3)


def test_series_without_a_role_repeat_their_colours():
    assert get_colours("", 0) == get_colours("", 8)
    assert get_colours("forget", 3) == ROLES["forget"]
