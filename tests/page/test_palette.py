"""Colour scales are even in lightness and differ from the background where the value is high."""

from __future__ import annotations

from itertools import pairwise

import pytest

from seqwise.families import MODEL_FAMILIES
from seqwise.page.palette import (
    DASHES,
    FAMILIES,
    NUM_STOPS,
    ROLES,
    SERIES,
    SHAPES,
    choose_bar_styles,
    choose_group_styles,
    choose_styles,
    find_family,
    get_colours,
    get_scale,
    to_oklab,
)

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


def test_every_model_family_has_a_style_of_its_own():
    assert set(FAMILIES) == set(MODEL_FAMILIES)
    styles = choose_styles(FAMILIES)
    assert [style.colours for style in styles] == list(SERIES[:7])
    assert [(style.shape, style.dash) for style in styles] == list(zip(SHAPES, DASHES))
    for name, style in zip(FAMILIES, styles):
        for named in (name, f"ptb-{name}", f"{name}/seed-0", f"book ({name}) 2: direct path", name.title()):
            assert choose_styles([named]) == [style]


def test_other_series_take_the_styles_that_no_family_has():
    names = ["width 64", "ptb-lstm: direct path", "ptb-lstm", "width 128", "gru"]
    assert [style.variable for style in choose_styles(names)] == ["--c2", "--c1", "--c1", "--c3", "--c0"]
    assert [style.variable for style in choose_styles(["a", "b"], ["forget", ""])] == ["--role-forget", "--c1"]


@pytest.mark.parametrize(
    ("name", "family"),
    [("not-lstm (gru)", "gru"), ("lstm-or-gru", None), ("attentive-rnn", "attentive-rnn"), ("rnns", None), ("", None)],
)
def test_a_family_is_a_whole_word_of_a_name(name: str, family: str | None):
    assert find_family(name) == family


def test_a_colour_that_repeats_has_another_mark_and_dash():
    styles = choose_styles([str(index) for index in range(40)])
    assert len({(style.colours, style.shape, style.dash) for style in styles}) == 40


def test_bars_have_one_colour_unless_all_are_named_after_families():
    assert {style.variable for style in choose_bar_styles(["lstm", "the", "cat"])} == {"--c0"}
    assert [style.variable for style in choose_bar_styles(["a-lstm", "b-gru"])] == ["--c1", "--c0"]
    assert [style.variable for style in choose_bar_styles(["a", "b"], ["key", ""])] == ["--role-key", "--c0"]


def test_groups_have_styles_in_the_order_of_the_points_unless_all_are_named_after_families():
    words = choose_group_styles(["verb", "transformer", "verb", "noun"])
    assert [(name, style.variable) for name, style in words.items()] == [
        ("verb", "--c0"),
        ("transformer", "--c1"),
        ("noun", "--c2"),
    ]
    assert [style.variable for style in choose_group_styles(["rnn", "b (gru)", "rnn"]).values()] == ["--c3", "--c0"]


def test_a_series_that_continues_another_has_its_colour_and_another_dash():
    base, direct, other = choose_styles(["ptb-lstm", "ptb-lstm: direct path ∏f", "ptb-gru"])
    assert direct.colours == base.colours
    assert direct.dash != base.dash
    assert other.colours != base.colours
