"""Intervals and tests: equal to tables and to hand-computed sums, with the nominal coverage and error rates."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from seqwise.compare.report.schema import Curve, CurvePoint, Pair
from seqwise.compare.statistics.learning_curves import compute_last_doubling_gain
from seqwise.compare.statistics.scales import classify_gap, get_scale
from seqwise.compare.statistics.significance import (
    P_VALUE_FACTOR,
    SeedNoise,
    adjust_pairs,
    compare_pairs,
    compute_bootstrap_interval,
    compute_mean_interval,
    list_equal_pair_counts,
)
from seqwise.compare.statistics.student_t import (
    compute_t_quantile,
    compute_two_sided_p,
    compute_weighted_p,
    compute_weighted_quantile,
)


def mean(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., 1]


def perplexity(sums: np.ndarray) -> np.ndarray:
    return np.exp(sums[..., 0] / sums[..., 1])


def rows(values: Sequence[float] | np.ndarray) -> np.ndarray:
    return np.stack([np.asarray(values, dtype=np.float64), np.ones(len(values))], axis=1)


def compare_pair(families: Mapping[str, Sequence[np.ndarray]], **options) -> Pair:
    (pair,) = compare_pairs(mean, families, **options)
    return pair


# Student's t


@pytest.mark.parametrize(
    ("confidence", "freedom", "expected"),
    [
        (0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 3, 3.182), (0.95, 4, 2.776), (0.95, 10, 2.228), (0.95, 30, 2.042),
        (0.95, 120, 1.980), (0.95, 1e9, 1.960), (0.99, 2, 9.925), (0.99, 5, 4.032), (0.90, 4, 2.132),
        (0.999, 10, 4.587),
    ],
)  # fmt: skip
def test_student_t_quantiles_match_published_tables(confidence: float, freedom: float, expected: float):
    assert compute_t_quantile(confidence, freedom) == pytest.approx(expected, abs=6e-4)


def test_student_t_p_values_match_closed_forms():
    for t in (0.0, 0.3, 1.0, 5.0, 100.0):
        assert compute_two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-12)  # Cauchy
        assert compute_two_sided_p(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-12)
        assert compute_two_sided_p(-t, 7.5) == compute_two_sided_p(t, 7.5)
    assert compute_two_sided_p(1.5, 999_999) == pytest.approx(compute_two_sided_p(1.5, 1_000_001), abs=1e-6)
    assert compute_two_sided_p(math.inf, 3) == 0.0


def test_p_of_a_mixture_is_between_those_of_its_parts():
    assert compute_weighted_p(2.0, [(3.0, 4.0)]) == compute_two_sided_p(2.0, 4)
    assert compute_weighted_p(2.0, [(1.0, 2.0), (3.0, 50.0)]) == pytest.approx(
        (compute_two_sided_p(2, 2) + 3 * compute_two_sided_p(2, 50)) / 4
    )
    between = compute_weighted_quantile(0.95, [(1.0, 2.0), (1.0, 1e9)])
    assert compute_t_quantile(0.95, 1e9) < between < compute_t_quantile(0.95, 2)
    assert compute_weighted_p(between, [(1.0, 2.0), (1.0, 1e9)]) == pytest.approx(0.05)


# Intervals


def test_mean_interval_of_three_seeds_matches_a_hand_computed_one():
    interval = compute_mean_interval([3.0, 3.1, 3.2])
    half_width = 4.302653 * 0.1 / math.sqrt(3)
    assert (interval.mean, interval.low, interval.high) == pytest.approx(
        (3.1, 3.1 - half_width, 3.1 + half_width), abs=1e-6
    )


def test_an_interval_is_clipped_to_the_bounds_of_the_metric():
    interval = compute_mean_interval([0.9, 0.99], (0.0, 1.0))
    assert interval.high == 1.0
    assert interval.low is not None
    assert 0.0 < interval.low < 0.9


def test_one_value_or_infinite_values_have_no_interval():
    assert (compute_mean_interval([3.0]).low, compute_mean_interval([3.0]).high) == (None, None)
    assert compute_mean_interval([3.0, math.inf]).low is None


def test_equal_values_have_an_interval_of_width_zero():
    interval = compute_mean_interval([0.5, 0.5, 0.5])
    assert (interval.low, interval.high) == (0.5, 0.5)


def test_bootstrap_interval_of_many_examples_matches_the_normal_distribution():
    values = np.random.default_rng(0).normal(5.0, 2.0, size=400)
    low, high = compute_bootstrap_interval(mean, [rows(values), rows(values + 1)]) or (0.0, 0.0)
    half_width = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx(
        (values.mean() + 0.5 - half_width, values.mean() + 0.5 + half_width), abs=0.1 * half_width
    )


def test_a_metric_that_is_not_a_mean_is_computed_from_the_sums_of_each_draw():
    losses, lengths = np.array([2.0, 9.0, 4.0]), np.array([1.0, 3.0, 4.0])
    low, high = compute_bootstrap_interval(perplexity, [np.stack([losses, lengths], axis=1)]) or (0.0, 0.0)
    assert math.exp(1.0) - 1e-9 <= low < math.exp(15 / 8) < high <= math.exp(3.0) + 1e-9


def test_one_example_or_an_undefined_metric_has_no_bootstrap_interval():
    assert compute_bootstrap_interval(mean, [rows([1.0])]) is None
    assert compute_bootstrap_interval(mean, [np.zeros((50, 2))]) is None


# Pairs


def test_the_variance_of_a_pair_matches_a_hand_computed_one():
    """Every seed adds a constant. The variances of the seeds are 0.01 and 0.03, in the mean 0.02: that of a is raised
    halfway to 0.015, that of b stays, and Satterthwaite's freedom is 2 · 0.04² / (0.01² + 0.03²) = 3.2."""
    generator = np.random.default_rng(1)
    a, b = generator.normal(size=300), generator.normal(size=300) * 0.5
    families = {"a": [rows(a + c) for c in (0.0, 0.1, 0.2)], "b": [rows(b + c) for c in (0.0, 0.0, 0.3)]}
    pair = compare_pair(families, draws=8000)
    example_variance = np.var(a - b, ddof=1) / 300
    parts = [(example_variance, 299), ((0.015 + 0.03) / 3, 3.2)]
    error = math.sqrt(example_variance + 0.015)
    assert pair.difference == pytest.approx(a.mean() - b.mean())
    assert (pair.high - pair.low) / 2 == pytest.approx(
        compute_weighted_quantile(1 - 0.05 / P_VALUE_FACTOR, parts) * error, rel=0.03
    )
    assert pair.p == pytest.approx(
        min(1, P_VALUE_FACTOR * compute_weighted_p(pair.difference / error, parts)), rel=0.05
    )
    assert pair.covers == "seeds and examples"


def test_seeds_that_agree_by_chance_borrow_the_noise_of_other_families():
    agreeing, others = {"a": (0.0, 3), "b": (0.0, 3)}, {"c": (0.04, 3), "d": (0.04, 3)}
    assert SeedNoise(agreeing).estimate_variance("a", "b") == (0.0, 1.0)
    variance, freedom = SeedNoise({**agreeing, **others}).estimate_variance("a", "b")
    assert variance == pytest.approx(2 * (0.02 / 2) / 3)  # halfway to the mean of 0.02
    assert freedom == pytest.approx(4)  # from the two seeds of freedom of each of the others


def test_five_families_that_scatter_alike_have_seven_degrees_of_freedom():
    alike = SeedNoise(dict.fromkeys("abcde", (0.01, 3)))
    assert alike.estimate_variance("a", "b") == (
        pytest.approx(2 * 0.01 / 3),
        pytest.approx(2 * 4 / (2 * 0.49 + 3 * 0.04)),
    )
    noisy = SeedNoise({"a": (100.0, 3), **dict.fromkeys("bcde", (0.01, 3))})
    variance, freedom = noisy.estimate_variance("a", "b")
    assert variance > 100 / 3  # the variance of a noisy family is not lowered
    assert freedom == pytest.approx(2, abs=0.01)


def test_a_family_that_scatters_does_not_hide_the_differences_of_the_others():
    alike, scattered = dict.fromkeys("abcd", (0.01, 3)), {"e": (100.0, 3)}
    variance, freedom = SeedNoise({**alike, **scattered}).estimate_variance("a", "b")
    assert variance == pytest.approx(2 * 0.01 / 3)
    # Coefficients 0.7 and 0.2 as if all scattered alike, except that e counts three times.
    assert freedom == pytest.approx(2 * 2.4**2 / (2 * 0.49 + 2 * 0.04 + 0.36))


def test_a_family_trained_once_adds_no_noise_of_seeds():
    assert SeedNoise({"a": (0.01, 3), "ngram": (0.0, 1)}).estimate_variance("a", "ngram") == (
        pytest.approx(0.01 / 3),
        2,
    )


@pytest.mark.parametrize(
    ("families", "expected"), [(2, {0, 1}), (3, {0, 1, 3}), (4, {0, 1, 2, 3, 6}), (5, {0, 1, 2, 3, 4, 6, 10})]
)
def test_how_many_pairs_can_be_equal_matches_shaffer(families: int, expected: set[int]):
    assert list_equal_pair_counts(families) == expected  # table 1 of Shaffer (1986)


def test_pairs_are_compared_on_the_same_examples():
    """Examples differ much in difficulty, families little: only a paired test detects it."""
    difficulty = np.random.default_rng(2).normal(0, 10, size=200)
    family_noise = np.random.default_rng(3).normal(0, 0.1, size=(2, 200))
    families = {"a": [rows(difficulty + family_noise[0])], "b": [rows(difficulty + family_noise[1] + 0.2)]}
    pair = compare_pair(families, deterministic="ab")
    assert pair.significant
    assert -0.25 < pair.low < pair.high < -0.15


def test_pairs_are_in_order_and_differences_have_the_sign_of_a_minus_b():
    first, second = [rows([1.0, 2.0, 4.0] * 5)], [rows([2.0, 2.0, 3.0] * 5)]
    forward, backward = compare_pair({"a": first, "b": second}), compare_pair({"b": second, "a": first})
    assert (forward.a, forward.b) == ("a", "b")
    assert forward.difference == -backward.difference == pytest.approx(0)
    assert (forward.low, forward.p) == pytest.approx((-backward.high, backward.p))


def test_p_is_adjusted_from_the_smallest_upwards():
    """Of three families, if two differ, at most one pair is equal: the factors are 3, 1 and 1."""
    generator = np.random.default_rng(14)
    common = generator.normal(size=60)
    families = {name: [rows(common + generator.normal(shift, 1, size=60))] for name, shift in zip("abc", (0, 0, 1.2))}
    pairs = sorted(compare_pairs(mean, families, deterministic="abc"), key=lambda pair: pair.p)
    expected = [min(1, 3 * pairs[0].p)]
    expected.append(max(expected[0], pairs[1].p))
    expected.append(max(expected[1], pairs[2].p))
    assert [pair.adjusted_p for pair in pairs] == pytest.approx(expected)
    assert [pair.significant for pair in pairs] == [adjusted < 0.05 for adjusted in expected]
    assert pairs[0].significant
    assert not pairs[2].significant


def test_pairs_that_were_not_tested_are_not_counted():
    pairs = [Pair(a, b, 1.0, None, None, p, None, False, "seeds and examples", "seeds")
             for a, b, p in (("a", "b", 0.01), ("a", "c", None), ("b", "c", 0.02), ("a", "d", None), ("b", "d", None),
                             ("c", "d", 0.04))]  # fmt: skip
    adjusted = [pair.adjusted_p for pair in adjust_pairs(pairs)]
    assert adjusted == [pytest.approx(0.03), None, pytest.approx(0.04), None, None, pytest.approx(0.04)]


def test_a_family_trained_once_covers_only_examples_unless_it_is_deterministic():
    values = np.random.default_rng(16).normal(size=40)
    many = [rows(values + seed / 100) for seed in range(3)]
    once = [rows(values[::-1] * 0.1 + 5)]
    pair, certain = compare_pair({"a": many, "b": once}), compare_pair({"a": many, "b": once}, deterministic={"b"})
    assert (pair.covers, certain.covers) == ("examples", "seeds and examples")
    assert pair.p == certain.p < 0.001
    # However clear the difference, other seeds of b might give another result: more seeds are needed.
    assert (pair.significant, certain.significant) == (False, True)
    assert (pair.larger_noise, certain.larger_noise) == ("seeds", "examples")


def test_a_pair_names_its_larger_source_of_noise():
    generator = np.random.default_rng(5)
    steady = {name: [rows(generator.normal(size=50))] * 3 for name in "ab"}
    shaky = {name: [rows(np.linspace(0, 0.1, 50) + generator.normal()) for _ in range(3)] for name in "ab"}
    assert compare_pair(steady).larger_noise == "examples"
    assert compare_pair(shaky).larger_noise == "seeds"


def test_few_seeds_dominate_the_noise_through_their_degrees_of_freedom():
    """Of the variance of the difference a third comes from the seeds: two of them estimate it badly, twenty well."""
    noise = np.random.default_rng(15).normal(size=400)

    def with_seeds(count: int) -> Pair:
        offset = math.sqrt(np.var(noise, ddof=1) / 400 / 4 * (count - 1))  # the seeds of a family differ by ± this
        offsets = [offset * (-1) ** seed for seed in range(count)]
        return compare_pair(
            {"a": [rows(noise + each) for each in offsets], "b": [rows(0 * noise + each) for each in offsets]}
        )

    two, twenty = with_seeds(2), with_seeds(20)
    assert (two.larger_noise, twenty.larger_noise) == ("seeds", "examples")
    assert two.high - two.low > 1.2 * (twenty.high - twenty.low)


def test_equal_scores_are_not_significantly_different():
    pair = compare_pair({"a": [rows([1.0, 0.0, 1.0])] * 3, "b": [rows([1.0, 0.0, 1.0])] * 3})
    assert (pair.difference, pair.low, pair.high, pair.p, pair.significant) == (0.0, 0.0, 0.0, 1.0, False)


def test_few_examples_limit_the_smallest_p():
    def right_and_wrong(examples: int) -> Pair:
        return compare_pair({"a": [rows(np.ones(examples))] * 3, "b": [rows(np.zeros(examples))] * 3})

    assert right_and_wrong(4).p == 0.125
    assert not right_and_wrong(4).significant
    assert right_and_wrong(20).significant


def test_one_example_or_an_infinite_value_cannot_be_tested():
    pair = compare_pair({"a": [rows([1.0])], "b": [rows([2.0])]})
    assert (pair.difference, pair.low, pair.p, pair.adjusted_p, pair.significant) == (-1.0, None, None, None, False)
    infinite = np.array([[math.inf, 1.0], [1.0, 1.0], [1.0, 1.0]])
    pairs = compare_pairs(mean, {"a": [infinite], "b": [rows([1.0, 2.0, 3.0])], "c": [rows([1.0, 2.0, 3.0])]})
    assert [pair.significant for pair in pairs] == [False, False, False]
    assert (pairs[0].difference, pairs[0].p) == (None, None)
    assert pairs[2].p == 1.0


def test_an_infinite_family_does_not_prevent_tests_of_the_others():
    generator = np.random.default_rng(17)
    common = generator.normal(size=200)
    good = {
        name: [rows(common + shift + 0.1 * generator.normal(size=200)) for _ in range(3)]
        for name, shift in (("a", 0), ("b", 1))
    }
    infinite = {"c": [rows(np.full(200, math.inf)), rows(common), rows(common)]}
    alone, together = compare_pairs(mean, good), compare_pairs(mean, {**good, **infinite})
    assert [pair.p is None for pair in together] == [False, True, True]
    assert together[0] == alone[0]
    assert together[0].significant
    assert [pair.difference for pair in together[1:]] == [None, None]


def test_seeds_that_agree_by_chance_still_have_noise():
    """Three seeds of each are right equally often, on other examples each time."""
    generator = np.random.default_rng(18)
    right = {name: [rows(generator.permutation([1] * count + [0] * (100 - count))) for _ in range(3)]
             for name, count in (("a", 60), ("b", 50))}  # fmt: skip
    plain, with_minimum = compare_pair(right), compare_pair(right, metric_step=0.01)
    assert (with_minimum.high - with_minimum.low) > (plain.high - plain.low)
    assert with_minimum.p > plain.p
    assert with_minimum.covers == "seeds and examples"
    # As if one seed of each were right once more or once less.
    part = 0.01**2 / 3 / 3
    changed = {name: [*seeds[:2], rows(seeds[2][:, 0] + np.eye(100)[0])] for name, seeds in right.items()}
    values = [float(mean(seed.sum(axis=0))) for seed in changed["a"]]
    assert np.var(values, ddof=1) / 3 == pytest.approx(part)


def test_the_minimum_variance_does_not_change_a_larger_one():
    generator = np.random.default_rng(19)
    families = {name: [rows(generator.normal(size=80) + generator.normal()) for _ in range(3)] for name in "ab"}
    assert compare_pair(families, metric_step=1 / 80) == compare_pair(families)


def test_scores_of_different_examples_raise_an_error():
    with pytest.raises(ValueError, match="same examples"):
        compare_pairs(mean, {"a": [rows([1.0, 2.0])], "b": [rows([1.0])]})


def test_one_family_has_no_pairs():
    assert compare_pairs(mean, {"a": [rows([1.0, 2.0])]}) == []
    assert compare_pairs(mean, {}) == []


def test_the_same_seed_gives_the_same_numbers():
    families = {"a": [rows([1.0, 2.0, 5.0, 3.0])], "b": [rows([2.0, 2.0, 4.0, 4.0])]}
    assert compare_pairs(mean, families, seed=7) == compare_pairs(mean, families, seed=7)
    assert compare_pairs(mean, families, seed=7) != compare_pairs(mean, families, seed=8)


def test_seven_families_on_five_thousand_examples_take_seconds():
    generator = np.random.default_rng(6)
    families = {str(name): [np.abs(generator.normal(size=(5000, 10))) for _ in range(3)] for name in range(7)}
    start = time.perf_counter()
    assert len(compare_pairs(mean, families)) == 21
    assert time.perf_counter() - start < 10


# Scales


def test_perplexities_are_compared_by_their_logarithm():
    """The log perplexities of the seeds scatter alike, although those of b are ten times as far apart."""
    generator = np.random.default_rng(21)
    common = generator.normal(2, 0.3, size=200)
    families = {name: [rows(common + shift + offset) for offset in (-0.05, 0.0, 0.05)]
                for name, shift in (("a", 0.0), ("b", math.log(10)))}  # fmt: skip
    (pair,) = compare_pairs(perplexity, families, scale=get_scale("perplexity", 200))
    (log_pair,) = compare_pairs(mean, families)
    assert pair.p == log_pair.p
    assert pair.difference == pytest.approx(-9 * math.exp(common.mean()) * np.mean(np.exp([-0.05, 0, 0.05])))
    assert pair.low / pair.difference == pytest.approx(log_pair.low / log_pair.difference)


def test_log_odds_are_finite_at_both_ends():
    shares = np.array([0.0, 0.3, 1.0])
    expected = [math.log(0.5 / 100.5), math.log(30.5 / 70.5), math.log(100.5 / 0.5)]
    assert get_scale("accuracy", 100)(shares) == pytest.approx(expected)
    assert get_scale("bleu", 100)(100 * shares) == pytest.approx(expected)
    assert get_scale("mse", 100)(np.array([0.1, 7.0])) == pytest.approx([math.log(0.1), math.log(7)])
    assert get_scale("a_score", 100)(shares) is shares


def test_perfect_families_can_be_tested():
    """Three seeds without a mistake and three with ten in a hundred: log-odds must not become infinite."""
    right = np.ones(100)
    families = {"a": [rows(right)] * 3, "b": [rows(np.where(np.arange(100) % 10 == seed, 0, 1)) for seed in range(3)]}
    (pair,) = compare_pairs(mean, families, metric_step=0.01, scale=get_scale("accuracy", 100))
    assert pair.difference == pytest.approx(0.1)
    assert 0 < pair.low < 0.1 < pair.high < 0.2
    assert pair.significant


@pytest.mark.parametrize(
    ("metric", "value", "best", "size"),
    [
        ("perplexity", 3.75, 3.65, "close"), ("perplexity", 3.77, 3.65, "moderate"),
        ("perplexity", 4.37, 3.65, "moderate"), ("perplexity", 4.39, 3.65, "far"),
        ("mse", 0.102, 0.1, "close"), ("mse", 0.11, 0.1, "moderate"),
        ("mse", 0.121, 0.1, "far"), ("accuracy", 0.896, 0.9, "close"), ("accuracy", 0.892, 0.9, "close"),
        ("accuracy", 0.885, 0.9, "moderate"), ("accuracy", 0.85, 0.9, "far"), ("exact_match", 0.45, 0.5, "moderate"),
        ("exact_match", 0.39, 0.5, "far"), ("accuracy", 0.996, 1.0, "close"), ("accuracy", 0.98, 1.0, "far"),
        ("span_f1", 0.7, 0.7, "close"), ("bleu", 34.6, 35.0, "close"), ("bleu", 32.0, 35.0, "moderate"),
        ("bleu", 25.0, 35.0, "far"),
    ],
)  # fmt: skip
def test_gaps_are_close_or_far_on_the_scale_of_the_metric(metric: str, value: float, best: float, size: str):
    assert classify_gap(metric, value, best) == size


# Error rates


def measure_error_rates(
    trials: int,
    *,
    shift: float = 0.0,
    seed_noise: tuple[float, float],
    family_noise: float,
    examples: int = 60,
    once: bool = False,
) -> tuple[float, float]:
    """Returns how often p < 0.05 and p < 0.01.

    `seed_noise` (of a and of b) and `family_noise` (of a family on an example) are standard deviations.
    With `once`, b is deterministic: one training run, the same each time.
    """
    generator = np.random.default_rng(8)
    p_values = []
    for trial in range(trials):
        difficulty = generator.normal(size=examples)

        def family(
            seed_deviation: float, count: int, better: float, difficulty: np.ndarray = difficulty
        ) -> list[np.ndarray]:
            scores = difficulty + family_noise * generator.normal(size=examples)
            noise = [seed_deviation * generator.normal() + 0.3 * generator.normal(size=examples) for _ in range(count)]
            return [rows(scores + better + each) for each in (noise if count > 1 else [0.0])]

        families = {"a": family(seed_noise[0], 3, shift), "b": family(seed_noise[1], 1 if once else 3, 0.0)}
        p_values.append(compare_pair(families, draws=100, seed=trial, deterministic={"b"} if once else ()).p)
    return float(np.mean(np.array(p_values) < 0.05)), float(np.mean(np.array(p_values) < 0.01))


def test_false_positives_stay_rare_when_seeds_of_one_family_vary_more():
    """Three seeds each; estimated variances of noise that comes wholly, by half or little from the seeds."""
    generator = np.random.default_rng(20)
    for seed_variance, trials in ((100.0, 4000), (1.0, 2000), (0.1, 2000)):
        unsteady, steady = (seed_variance * share * generator.chisquare(2, trials) / 2 for share in (1.0, 0.01))
        example_variance = generator.chisquare(199, trials) / 199
        difference = generator.normal(size=trials) * math.sqrt(1.01 * seed_variance + 1)
        p = np.array([
            compute_weighted_p(gap / math.sqrt(a + b + c), [(a, 2), (b, 2), (c, 199)])
            for gap, a, b, c in zip(difference, unsteady, steady, example_variance)
        ])  # fmt: skip
        assert np.mean(p < 0.05) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
        assert np.mean(p < 0.005) <= 0.005 + 3 * math.sqrt(0.005 * 0.995 / trials)
        if seed_variance == 100.0:  # the test is not merely conservative
            assert np.mean(p < 0.05) >= 0.03


@pytest.mark.parametrize(
    "noise",
    [
        {"seed_noise": (0.1, 0.1), "family_noise": 0.0},  # nearly all of it from the seeds
        {"seed_noise": (0.0, 0.0), "family_noise": 0.5},  # all from the examples
        {"seed_noise": (0.1, 0.1), "family_noise": 0.5},  # both equally
        {"seed_noise": (0.3, 0.03), "family_noise": 0.5},  # one family is far less steady
        {"seed_noise": (0.2, 0.0), "family_noise": 0.5, "once": True},  # against an n-gram baseline
    ],
)
def test_false_positives_are_rare_without_a_difference(noise: dict):
    at_5, at_1 = measure_error_rates(400, **noise)  # the standard errors are 1.1 % and 0.5 %
    assert at_5 <= 0.065
    assert at_1 <= 0.02


def test_a_clear_difference_is_found_with_three_seeds():
    at_5, _ = measure_error_rates(100, shift=1.0, seed_noise=(0.1, 0.1), family_noise=0.5)
    assert at_5 >= 0.95


def test_intervals_have_their_nominal_coverage():
    generator = np.random.default_rng(9)
    num_covered = 0
    for trial in range(300):
        common = generator.normal(size=60)
        a, b = (
            [rows(common + 0.4 * generator.normal(size=60) + 0.1 * generator.normal() + mid) for _ in range(3)]
            for mid in (0.5, 0.0)
        )
        pair = compare_pair({"a": a, "b": b}, draws=100, seed=trial)
        num_covered += pair.low <= 0.5 <= pair.high
    assert 0.93 <= num_covered / 300 <= 0.995


# Curves


def curve(*points: tuple[int, float | None]) -> Curve:
    return Curve(0, tuple(CurvePoint(tokens, 0.1, value) for tokens, value in points))


def test_the_gain_of_a_perplexity_is_measured_on_its_logarithm():
    """From 800 to 400, then to 200: it halves twice, which is the same gain each time."""
    falling = [curve((100, 800.0), (200, 400.0), (400, 200.0))]
    assert compute_last_doubling_gain(falling, True, math.log) == pytest.approx(math.log(2))
    assert compute_last_doubling_gain(falling, True) == pytest.approx(200.0)


def test_the_gain_of_the_last_doubling_is_that_of_the_second_half():
    assert compute_last_doubling_gain([curve((100, 9.0), (200, 6.0), (400, 5.0))], True) == pytest.approx(1.0)
    assert compute_last_doubling_gain([curve((100, 0.1), (200, 0.5), (400, 0.6))], False) == pytest.approx(0.1)


def test_the_gain_is_interpolated_over_the_logarithm_of_tokens():
    assert compute_last_doubling_gain([curve((100, 8.0), (400, 4.0), (401, 4.0))], True) == pytest.approx(2.0, rel=0.01)


def test_the_gain_uses_the_best_value_so_far():
    assert compute_last_doubling_gain([curve((100, 5.0), (200, 4.0), (300, 3.0), (400, 3.9))], True) == pytest.approx(
        1.0
    )
    assert compute_last_doubling_gain([curve((100, 5.0), (200, 3.0), (300, 3.5), (400, 3.2))], True) == 0.0


def test_gains_are_averaged_over_seeds_without_unusable_curves():
    one, other = curve((100, 8.0), (150, 8.0), (200, 6.0)), curve((100, 8.0), (150, 8.0), (200, 7.0))
    unusable = [
        curve(), curve((400, 3.0)), curve((300, 4.0), (350, 3.5), (400, 3.0)), curve((100, None), (200, math.inf)),
        curve((100, 8.0), (200, 6.0)),  # two validations are too few
        curve((100, 8.0), (150, 6.0), (400, 5.0)),  # nothing in the second half but its end
    ]  # fmt: skip
    assert compute_last_doubling_gain([one, other, *unusable], True) == pytest.approx(1.5)
    assert compute_last_doubling_gain(unusable, True) is None
    assert compute_last_doubling_gain([], True) is None
