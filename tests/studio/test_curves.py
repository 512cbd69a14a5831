"""Curves are read while they grow, reduced to few points without losing a peak, and averaged over seeds."""

from __future__ import annotations

import itertools
import math
import os

import numpy as np
import pytest
from run_folders import make_rows, write_rows, write_run

from seqwise.studio.catalogue import Catalogue
from seqwise.studio.curves import CurveCache, CurveFile, reduce_points
from seqwise.studio.overlays import (
    Window,
    build_line,
    describe_groups,
    list_differences,
    smooth_values,
)


def read_curve(path) -> CurveFile:
    curve = CurveFile(path)
    curve.update()
    return curve


def test_reduced_points_have_all_extremes():
    generator = np.random.default_rng(0)
    x, y = np.arange(100_000.0), generator.normal(size=100_000)
    y[54_321], y[54_322] = 50.0, -50.0
    points = reduce_points(x, y, 600)
    assert not points.is_exact
    assert len(points.x) <= 602
    assert (max(points.y), min(points.y)) == (50.0, -50.0)
    assert (points.x[0], points.x[-1]) == (0.0, 99_999.0)
    assert points.x == sorted(points.x)
    edges = np.linspace(0, 99_999, 301)
    for low, high in itertools.pairwise(edges):
        inside = (x >= low) & (x < high)
        shown = [value for at, value in zip(points.x, points.y) if low <= at < high]
        assert (max(shown), min(shown)) == (y[inside].max(), y[inside].min())


def test_a_part_of_the_axis_is_exact_with_one_point_beyond_each_end():
    x = np.arange(100_000.0)
    points = reduce_points(x, x**2, 600, start=1000.5, stop=1100.5)
    assert points.is_exact
    assert points.x == list(range(1000, 1102))
    assert points.y == [value**2 for value in points.x]


@pytest.mark.parametrize(("start", "stop"), [(5e6, 6e6), (-9.0, -8.0), (3.0, 2.0)])
def test_a_range_without_points_has_at_most_its_neighbours(start, stop):
    x = np.arange(1000.0)
    assert len(reduce_points(x, x, 100, start, stop).x) <= 2


def test_values_that_are_not_numbers_do_not_hide_extremes():
    y = np.full(5000, np.nan)
    y[1234], y[4000] = 7.0, np.inf
    points = reduce_points(np.arange(5000.0), y, 100)
    assert 7.0 in points.y
    assert len(points.x) <= 102


def test_appended_rows_are_read_and_a_half_written_line_waits(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write_rows(path, make_rows([3.0, 2.0]))
    curve = read_curve(path)
    assert len(curve) == 2
    assert not curve.update()
    with path.open("a") as file:
        file.write('{"step": 30, "loss": 1.5')
    assert not curve.update()
    with path.open("a") as file:
        file.write(', "tokens": 5}\n')
    assert curve.update()
    assert curve.get_series("loss")[1].tolist() == [3.0, 2.0, 1.5]


def test_a_replaced_file_and_a_shortened_file_are_read_again(tmp_path):
    path, other = tmp_path / "metrics.jsonl", tmp_path / "new"
    write_rows(path, make_rows([3.0, 2.0]))
    curve = read_curve(path)
    write_rows(other, make_rows([9.0, 8.0]))
    other.replace(path)
    assert curve.update()
    assert curve.get_series("loss")[1].tolist() == [9.0, 8.0]
    write_rows(path, make_rows([5.0]))  # the same file, with fewer bytes
    assert curve.update()
    assert curve.get_series("loss")[1].tolist() == [5.0]
    path.unlink()
    assert curve.update()
    assert len(curve) == 0


def test_hostile_lines_are_skipped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    hostile = [
        "", "x", "[]", "null", '"text"', "[" * 50_000, '{"step": "1"}', '{"loss": 1}', '{"step": null}', "\x00\x00",
        '{"step": 1' + "0" * 400 + "}", '{"step": 5},{"step": 6}', '{"step": 5}, [', "],[",
    ]  # fmt: skip
    path.write_text("\n".join(hostile) + "\n")
    write_rows(path, make_rows([3.0]), "a")
    curve = read_curve(path)
    assert curve.get_series("loss")[1].tolist() == [3.0]


def test_wrong_values_in_a_row_are_missing_values(tmp_path):
    path = tmp_path / "metrics.jsonl"
    numbers = '"loss": "x", "gradient_norm": 1e300, "tokens": true'
    path.write_text('{"step": 1, ' + numbers + ', "validation": {"a": [], "b": 2}, "notes": 3}\n')
    curve = read_curve(path)
    assert math.isnan(curve.columns["loss"][0])
    assert math.isnan(curve.columns["gradient_norm"][0])
    assert curve.get_series("valid.b")[1].tolist() == [2.0]
    assert np.isnan(curve.get_series("valid.a")[1]).all()
    assert curve.get_series("loss", "tokens")[0].tolist() == []  # no position
    assert curve.notes == []


def test_a_line_without_end_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"a": "' + b"x" * (5 << 20) + b'"}\n')
    write_rows(path, make_rows([3.0]), "a")
    assert len(read_curve(path)) == 1


def test_positions_ascend_even_if_a_clock_went_back(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = make_rows([3.0, 2.0, 1.0])
    rows[1]["seconds"] = 0.1
    write_rows(path, rows)
    x, y = read_curve(path).get_series("loss", "seconds")
    assert (x.tolist(), y.tolist()) == ([0.1, 0.5, 1.5], [2.0, 3.0, 1.0])


def test_validations_have_the_position_of_their_row(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write_rows(path, make_rows([4.0, 3.0, 2.0, 1.0]))
    x, y = read_curve(path).get_series("valid.perplexity", "tokens")
    assert (x.tolist(), y.tolist()) == ([2000.0, 4000.0], [6.0, 2.0])


def test_the_cache_forgets_the_curve_that_was_used_first(tmp_path):
    paths = [tmp_path / f"{number}.jsonl" for number in range(3)]
    for path in paths:
        write_rows(path, make_rows([1.0] * 10))
    cache = CurveCache(max_rows=25)
    curves = [cache.get(path) for path in paths]
    assert cache.get(paths[2]) is curves[2]
    assert cache.get(paths[0]) is not curves[0]


def test_the_line_of_three_seeds_is_their_mean_with_a_student_interval():
    x = np.array([1.0, 2.0])
    line = build_line([(x, np.array([value, 5.0])) for value in (1.0, 2.0, 3.0)], Window(100))
    assert line["y"] == [2.0, 5.0]
    margin = 4.302653 / math.sqrt(3)  # t of two degrees of freedom; the standard deviation is 1
    assert line["high"] == pytest.approx([2.0 + margin, 5.0], abs=1e-5)
    assert line["low"] == pytest.approx([2.0 - margin, 5.0], abs=1e-5)
    assert [each["y"] for each in line["faint"]] == [[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]


def test_the_mean_ends_with_the_shortest_seed_and_interpolates():
    long = np.array([0.0, 10.0, 20.0, 30.0]), np.array([0.0, 1.0, 2.0, 3.0])
    short = np.array([5.0, 25.0]), np.array([10.0, 10.0])
    line = build_line([long, short], Window(100))
    assert (line["x"], line["y"]) == ([10.0, 20.0], [5.5, 6.0])
    assert line["faint"][0]["x"] == [0.0, 10.0, 20.0, 30.0]


def test_a_single_run_has_no_interval_and_curves_without_points_none():
    x = np.array([1.0, 2.0])
    line = build_line([(x, x), (np.array([]), np.array([]))], Window(100))
    assert line["low"] is None
    assert line["faint"] == []
    assert build_line([], Window(100))["x"] == []


def test_smoothing_is_a_symmetric_mean():
    y = np.array([0.0, 0.0, 6.0, 0.0, 0.0, np.nan])
    smooth = smooth_values(y, 0.4)
    assert smooth[:5] == pytest.approx([0.0, 2.0, 2.0, 2.0, 0.0])
    assert math.isnan(smooth[5])
    assert smooth_values(np.arange(100.0), 0.1) == pytest.approx(np.arange(100.0))  # a straight line stays one


def test_runs_that_differ_only_in_the_seed_are_one_group(tmp_path):
    for seed in range(3):
        write_run(
            tmp_path / "runs" / f"book-lstm-seed-{seed}", seed=seed, run={"data": "b", "command": f"--seed {seed}"}
        )
    write_run(tmp_path / "runs" / "other", model="gru", training={"learning_rate": 0.02})
    catalogue = Catalogue([tmp_path / "runs"])
    catalogue.refresh()
    entries = [
        catalogue.get(f"runs/{name}") for name in ("book-lstm-seed-2", "book-lstm-seed-0", "other", "book-lstm-seed-1")
    ]
    groups = describe_groups(entries)
    assert [(group["name"], len(group["runs"])) for group in groups] == [("book-lstm", 3), ("other", 1)]
    assert [group["style"]["colour"] for group in groups] == ["var(--c1)", "var(--c0)"]  # of lstm and gru, everywhere
    assert list_differences(entries) == [
        {"name": "model", "values": ["lstm", "gru"]},
        {"name": "run.data", "values": ["b", "b.txt"]},
        {"name": "seed", "values": ["0, 1, 2", "0"]},
        {"name": "training.learning_rate", "values": ["0.01", "0.02"]},
    ]


def test_reading_a_curve_leaves_no_file_open(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write_rows(path, make_rows([1.0]))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        read_curve(path)
    assert len(os.listdir("/proc/self/fd")) == before
