"""Limits of colours, axes and reduced matrices."""

from __future__ import annotations

import numpy as np
import pytest
from sample_figures import make_heatmap

from seqwise.page.scales import (
    choose_step,
    find_common_limits,
    find_limits,
    find_strongest,
    make_axis,
    make_padded_axis,
    pool,
    reduce_points,
    split_at_gaps,
    split_titles,
    to_fractions,
)

NAN = np.nan


def test_an_axis_covers_its_values_and_ends_at_ticks():
    axis = make_axis([np.array([0.3, 9.2]), np.array([NAN, np.inf])])
    assert list(axis.ticks) == [0, 2, 4, 6, 8, 10]
    assert axis.locate(np.array([0, 5, 10, NAN])) == pytest.approx([0, 0.5, 1, NAN], nan_ok=True)


def test_a_tight_axis_ends_at_its_values():
    axis = make_axis([np.array([1.0, 9.0])], is_tight=True)
    assert (axis.low, axis.high, list(axis.ticks)) == (1, 9, [2, 4, 6, 8])


def test_a_logarithmic_axis_has_equal_decades_and_no_place_for_zero():
    axis = make_axis([np.array([1e-3, 10.0, 0.0, -5.0])], is_log=True)
    assert list(axis.ticks) == pytest.approx([1e-3, 1e-2, 1e-1, 1, 10])
    assert axis.locate(np.array([1e-3, 1e-1, 10, 0, -5])) == pytest.approx([0, 0.5, 1, NAN, NAN], nan_ok=True)


def test_less_than_two_decades_have_ticks_between_powers():
    assert list(make_axis([np.array([3.0, 40.0])], is_log=True).ticks) == [2, 5, 10, 20, 50]


@pytest.mark.parametrize("values", [[], [NAN], [5.0], [5.0, 5.0], [0.0], [1e308, -1e308], [1e-320, 1.0]])
@pytest.mark.parametrize("is_log", [False, True])
def test_axes_of_degenerate_values_have_a_range(values: list[float], is_log: bool):
    for is_tight in (False, True):
        axis = make_axis([np.array(values)], is_log, is_tight=is_tight)
        assert axis.high > axis.low
        located = axis.locate(np.array(values))
        assert ((located >= -1e-9) & (located <= 1 + 1e-9) | np.isnan(located)).all()


def test_a_padded_axis_extends_beyond_its_values():
    axis = make_padded_axis(np.array([0.0, 10.0]))
    assert (axis.low, axis.high) == pytest.approx((-0.4, 10.4))
    assert make_padded_axis(np.array([NAN])).high == 1


def test_limits_of_colours():
    values = np.array([-1.0, 3.0, NAN, np.inf])
    assert find_limits(values, "sequential") == [-1, 3]
    assert find_limits(values, "sequential", 0, 1) == [0, 1]
    assert find_limits(values, "diverging") == [-3, 3]
    assert find_limits(np.array([2.0, 2.0]), "sequential") == [1, 3]
    assert find_limits(np.array([0.0]), "sequential") == [-0.5, 0.5]
    assert find_limits(np.array([0.0]), "diverging") == [-1, 1]
    assert find_limits(np.array([NAN]), "sequential") == [0, 1]
    assert to_fractions(np.array([0.0, 5, NAN]), [0, 2]) == pytest.approx([0, 1, NAN], nan_ok=True)


def test_panels_of_one_quantity_share_their_limits():
    panels = [make_heatmap([[0, 1]]), make_heatmap([[2, 3]]), make_heatmap([[5, 6]], role="forget")]
    assert find_common_limits(panels, [panel.values for panel in panels]) == [[0, 3], [0, 3], [5, 6]]


def test_reduced_panels_have_an_upper_limit_of_their_own():
    panel = make_heatmap([[0.1, 0.2]], low=0, high=1)
    assert find_common_limits([panel], [panel.values]) == [[0, 1]]
    assert find_common_limits([panel], [panel.values], is_pooled=True) == [[0, 0.2]]


def test_a_matrix_is_reduced_to_means_of_blocks():
    values = np.array([[1, 3, 5, 7], [1, 3, NAN, NAN], [0, 0, NAN, NAN], [0, 4, NAN, NAN]])
    pooled = pool(values, 2, 2)
    assert pooled.values == pytest.approx(np.array([[2, 6], [1, NAN]]), nan_ok=True)
    assert (list(pooled.rows), list(pooled.columns)) == ([0, 2], [0, 2])
    assert pooled.describe() == "4 × 4 values; each cell is the mean of up to 2 × 2 of them."


def test_blocks_differ_by_at_most_one_and_the_mean_of_all_stays():
    values = np.arange(70.0).reshape(7, 10)
    pooled = pool(values, 3, 10)
    assert list(pooled.rows) == [0, 2, 4]
    assert pooled.values[:, 0] == pytest.approx([5, 25, 50])
    assert not pool(values, 7, 10).is_pooled
    assert pool(values, 7, 10).describe() == ""


def test_titles_of_a_grid_become_names_of_rows_and_columns():
    titles = [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2, 3)]
    assert split_titles(titles, 3) == (["layer 1", "layer 2"], ["head 1", "head 2", "head 3"])
    assert split_titles(titles[:5], 3) == (["layer 1", "layer 2"], ["head 1", "head 2", "head 3"])
    assert split_titles(["layer 1 · head 1", "layer 1 · head 2", "layer 2 · head 1"], 2) == (
        ["layer 1", "layer 2"],
        ["head 1", "head 2"],
    )
    assert split_titles(["input gate", "forget gate"], 1) is None
    assert split_titles(["a", "b", "c", "d"], 2) is None


def test_a_line_with_many_points_retains_its_extremes():
    points = np.stack([np.arange(10_000.0), np.zeros(10_000)], axis=1)
    points[1234, 1], points[8765, 1] = 5, -5
    reduced = reduce_points(points, 100)
    assert len(reduced) <= 100
    assert {5.0, -5.0} <= set(reduced[:, 1])
    assert (reduced[0, 0], reduced[-1, 0]) == (0, 9999)
    assert (np.diff(reduced[:, 0]) > 0).all()


def test_a_line_is_split_where_it_has_no_value():
    points = np.array([[0, 1], [1, NAN], [2, 1], [3, 1], [NAN, 1]])
    assert list(split_at_gaps(points)) == [(0, 1), (2, 4)]


def test_strongest_values_come_first_and_missing_ones_never():
    assert find_strongest(np.array([0.1, -3, NAN, 2, np.inf]), 3) == [1, 3, 0]


def test_every_nth_name_has_room():
    assert [choose_step(spacing, 13) for spacing in (20, 13, 7, 3, 1.4)] == [1, 1, 2, 5, 10]
