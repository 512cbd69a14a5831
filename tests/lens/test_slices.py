"""Metrics of slices: intervals cover the truth as often as they say, and tests find real differences only."""

import math

import numpy as np
import pytest

from seqwise.lens.slices import adjust_holm, compute_wilson_interval, score_all, score_slices
from seqwise.metrics.evaluation import compute_metric
from seqwise.tasks.error_report import (
    ErrorRequest,
    Metric,
    ScoredItems,
    SliceGroup,
    build_confusion_matrix,
    describe_band,
    find_band_edges,
    keep_most_confused,
    list_confusions,
)

ACCURACY, LOSS, F1 = Metric("accuracy", "accuracy"), Metric("loss", lower_is_better=True), Metric("F1", "span_f1")


def make_items(metric: Metric, values: np.ndarray, units: np.ndarray | None = None) -> ScoredItems:
    units = np.arange(len(values)) if units is None else units
    sums = np.stack([values, np.ones(len(values))], axis=1)
    return ScoredItems(metric, "texts", sums, units, int(units.max()) + 1, "units")


def test_wilson_interval_is_that_of_the_formula():
    # 8 of 10, z = 1.96: (0.8 + 0.19207 ± 1.96 · sqrt(0.016 + 0.0096035)) / 1.38415
    assert compute_wilson_interval(8, 10) == pytest.approx((0.49016, 0.94332), abs=1e-4)
    assert compute_wilson_interval(10, 10)[1] == 1.0
    assert compute_wilson_interval(10, 10)[0] == pytest.approx(10 / (10 + 1.96**2), abs=1e-4)


def test_holm_multiplies_the_smallest_p_most():
    assert adjust_holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert adjust_holm([0.9, 0.8]) == [1.0, 1.0]


def test_slices_have_hand_computed_values():
    items = make_items(ACCURACY, np.array([1, 1, 0, 1, 0, 0, 0, 1.0]))
    group = items.group("length", ["short", "long"], np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    short, long = score_slices(items, [group])
    assert (short.value, long.value, short.rest, long.rest) == (0.75, 0.25, 0.25, 0.75)
    assert (short.low, short.high) == compute_wilson_interval(3, 4)
    assert math.isnan(short.p)  # too few to test


def test_f1_of_a_slice_is_computed_from_summed_counts():
    sums = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1], [1, 1, 1]], dtype=float)  # correct, predicted, true
    items = ScoredItems(F1, "spans", sums, np.array([0, 0, 1, 1]), 2, "sentences")
    group = items.group("type", ["a", "b"], np.array([0, 0, 1, 1]))
    assert [score.value for score in score_slices(items, [group])] == pytest.approx([2 / 3, 2 / 3])
    assert score_all(items).value == pytest.approx(2 / 3)


@pytest.mark.parametrize("num_units", [15, 60])
def test_bootstrap_intervals_of_dependent_items_cover_the_truth_at_about_95_percent(num_units: int):
    generator, hits, trials = np.random.default_rng(3), 0, 300
    units = np.repeat(np.arange(num_units), 8)
    for _ in range(trials):
        shared = generator.gamma(2.0, 0.5, size=num_units)[units]  # mean 1: items of one unit depend on each other
        items = make_items(LOSS, shared + generator.normal(0, 0.3, len(units)), units)
        score = score_all(items)
        hits += score.low <= 1.0 <= score.high
    assert 0.90 <= hits / trials <= 0.985


def test_intervals_of_shares_cover_the_truth_at_about_95_percent():
    generator = np.random.default_rng(4)
    intervals = [compute_wilson_interval(generator.binomial(40, 0.9), 40) for _ in range(1000)]
    assert 0.93 <= np.mean([low <= 0.9 <= high for low, high in intervals]) <= 0.98


def test_without_a_difference_hardly_any_view_has_a_worse_slice():
    generator, alarms, trials = np.random.default_rng(5), 0, 200
    for _ in range(trials):
        items = make_items(ACCURACY, (generator.random(400) < 0.8).astype(float))
        groups = [items.group(name, list("abcd"), generator.integers(4, size=400)) for name in ("x", "y", "z")]
        alarms += any(score.is_worse for score in score_slices(items, groups))
    assert alarms / trials <= 0.06


def test_a_slice_that_is_worse_is_found_and_a_better_one_is_not():
    generator = np.random.default_rng(6)
    units = np.repeat(np.arange(100), 10)
    is_rare = generator.random(1000) < 0.2
    items = make_items(LOSS, generator.normal(np.where(is_rare, 3.0, 2.0), 1.0), units)
    groups = [items.group("frequency", ["frequent", "rare"], is_rare.astype(int)),
              items.group("noise", list("abc"), generator.integers(3, size=1000))]  # fmt: skip
    scores = {score.name: score for score in score_slices(items, groups)}
    assert [name for name, score in scores.items() if score.is_worse] == ["rare"]
    assert scores["rare"].low <= 3.0 <= scores["rare"].high
    assert scores["rare"].rest == pytest.approx(scores["frequent"].value)
    # Two complementary slices are one test.
    assert [score.is_tested for score in scores.values()] == [True, False, True, True, True]


def test_slices_that_overlap_are_all_tested():
    items = make_items(LOSS, np.arange(40.0))
    slices = [items.select(name, np.arange(40) % number == 0) for name, number in (("a", 2), ("b", 3))]
    assert [score.is_tested for score in score_slices(items, [SliceGroup("words", slices)])] == [True, True]


def test_bands_have_about_equally_many_items_and_names_of_values_that_occur():
    values = np.array([1, 2, 3, 4, 5, 6, 7, 20])
    edges = find_band_edges(values)
    assert np.histogram(values, edges)[0].tolist() == [2, 2, 2, 2]
    assert describe_band(values, int(edges[-2]), int(edges[-1])) == "7 to 20"
    items = make_items(ACCURACY, np.ones(8))
    group = items.group_bands("length", "texts of {} tokens", values)
    assert [each.name for each in group.slices] == [
        "texts of 1 to 2 tokens", "texts of 3 to 4 tokens", "texts of 5 to 6 tokens", "texts of 7 to 20 tokens",
    ]  # fmt: skip
    assert len(items.group_bands("length", "{}", np.full(8, 3)).slices) == 1


def test_means_of_sums_are_computed_like_other_metrics():
    assert compute_metric("mean", np.array([[6.0, 3.0], [1.0, 4.0]])).tolist() == [2.0, 0.25]


def test_confusions_are_listed_by_frequency():
    counts = np.array([[8, 2, 0], [1, 9, 0], [0, 5, 5]])
    assert list_confusions(["a", "b", "c"], counts, 2) == [("c", "b", 5, 0.5), ("a", "b", 2, 0.2)]


def test_labels_without_errors_are_added_up_in_a_large_confusion_matrix():
    counts = np.diag([10, 20, 30, 40])
    counts[0, 1] = 3
    names, merged = keep_most_confused(["a", "b", "c", "d"], counts, limit=3)
    assert names == ["a", "b", "2 others"]
    assert merged.tolist() == [[10, 3, 0], [0, 20, 0], [0, 0, 70]]


def test_a_confusion_matrix_says_which_names_it_shows():
    few = build_confusion_matrix("Confusions", ["a", "b"], np.diag([1, 2]), "tags")
    assert (few.rows, few.note, few.row_label, few.column_label) == (["a", "b"], "", "true", "predicted")
    labels = [str(number) for number in range(25)]
    many = build_confusion_matrix("Confusions", labels, np.ones((25, 25), int), "labels", "true label")
    assert many.rows == many.columns == [*labels[:19], "6 others"]
    assert many.note == "The 19 labels with most errors, the others added up."


def test_other_data_is_opened_as_a_whole_unless_it_has_splits():
    opened = []

    def open_data(split, description="file.csv, the test split"):
        opened.append(split)
        return split, description

    assert ErrorRequest(None).open(open_data)[0] == "valid"
    assert opened == [None, "valid"]
    assert ErrorRequest(None).open(lambda split: open_data(split, "file.csv, all of it"))[0] is None
    assert ErrorRequest("test").open(open_data)[0] == "test"
