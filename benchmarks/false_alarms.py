"""How often does a comparison find a difference where there is none, and how often one that exists?

    python benchmarks/false_alarms.py                      # simulated comparisons, with each of several tests
    python benchmarks/false_alarms.py --runs compared      # equal families: the seeds of one, divided at random

A false alarm is a comparison in which some family is called worse than the best although both are equal. The simulated
results of seeds are normally distributed, on the scale of the test; one or two families may have a larger standard
deviation ("spread"), some may be far behind, and the test examples add noise of their own. The test of Seqwise is
computed here for many comparisons at once, and checked against `seqwise.compare.statistics.significance`. The exit
status is 1 if it has more than 5 % false alarms.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.stats import t as student_t

from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.formatting import is_ratio
from seqwise.compare.run.jobs import Job
from seqwise.compare.statistics.scales import get_scale
from seqwise.compare.statistics.significance import (
    MAX_VARIANCE_RATIO,
    P_VALUE_FACTOR,
    P_VALUE_FACTOR_OF_TWO_SEEDS,
    PRIOR_DEGREES_OF_FREEDOM,
    SeedNoise,
    compare_pairs,
    compute_p_value,
    list_equal_pair_counts,
)
from seqwise.metrics.evaluation import ExampleScores, compute_metric

NUM_EXAMPLES = 200
OURS = "Seqwise"
TESTS = ("Welch", "paired by seed", "pooled variance", "Cochran and Cox", "Cochran and Cox, best", OURS)
FAR = 1000.0  # standard deviations of a seed


def compute_two_sided_p(t: np.ndarray, freedom: np.ndarray | float) -> np.ndarray:
    return 2 * student_t.sf(np.abs(t), freedom)


def compute_pair_p(test: str, values: np.ndarray, a: int, b: int, example_variance: np.ndarray) -> np.ndarray:
    """Returns p (trials,) of a pair of families; `values` is (trials, families, seeds)."""
    count = values.shape[2]
    freedom = count - 1
    difference = values[:, a].mean(axis=1) - values[:, b].mean(axis=1)
    variances = values.var(axis=2, ddof=1)
    pair_variance = variances[:, [a, b]].sum(axis=1) / count
    if test == "paired by seed":
        return compute_two_sided_p(difference / np.sqrt((values[:, a] - values[:, b]).var(axis=1, ddof=1) / count
                                              + example_variance), freedom)  # fmt: skip
    if test == "pooled variance":
        pooled = 2 * variances.mean(axis=1) / count
        return compute_two_sided_p(difference / np.sqrt(pooled + example_variance), freedom * values.shape[1])
    if test == "Welch":
        parts = np.stack([*(variances[:, [a, b]].T / count), example_variance])
        sizes = np.array([freedom, freedom, NUM_EXAMPLES - 1])[:, None]
        return compute_two_sided_p(
            difference / np.sqrt(parts.sum(axis=0)), parts.sum(axis=0) ** 2 / (parts**2 / sizes).sum(axis=0)
        )
    seed_variance, seed_freedom = pair_variance, np.full(len(pair_variance), float(freedom))
    if test == OURS:
        weight = freedom / (PRIOR_DEGREES_OF_FREEDOM + freedom)
        median = np.median(variances, axis=1, keepdims=True)
        raised = (1 - weight) * median + weight * variances[:, [a, b]]
        seed_variance = np.maximum(variances[:, [a, b]], raised).sum(axis=1) / count
        coefficients = np.full(values.shape[1], 2 * (1 - weight) / values.shape[1])
        coefficients[[a, b]] += weight
        limited = np.minimum(variances, MAX_VARIANCE_RATIO * median)
        limited[:, [a, b]] = variances[:, [a, b]]
        parts = coefficients * limited
        seed_freedom = freedom * parts.sum(axis=1) ** 2 / (parts**2).sum(axis=1)
    total = seed_variance + example_variance
    t = difference / np.sqrt(total)
    p = (
        seed_variance * compute_two_sided_p(t, seed_freedom)
        + example_variance * compute_two_sided_p(t, NUM_EXAMPLES - 1)
    ) / total
    return np.minimum(1.0, (P_VALUE_FACTOR if count > 2 else P_VALUE_FACTOR_OF_TWO_SEEDS) * p) if test == OURS else p


def adjust_p_values(p: np.ndarray, factors: Sequence[int]) -> np.ndarray:
    """Returns p (trials, pairs), the smallest multiplied by the first factor and so on."""
    order = np.argsort(p, axis=1)
    ordered = np.maximum.accumulate(np.minimum(1.0, np.take_along_axis(p, order, axis=1) * factors), axis=1)
    result = np.empty_like(p)
    np.put_along_axis(result, order, ordered, axis=1)
    return result


def find_worse(test: str, values: np.ndarray, example_variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best family (trials,), and which families are called worse than it (trials, families)."""
    num_families = values.shape[1]
    pairs = list(combinations(range(num_families), 2))
    best = values.mean(axis=2).argmin(axis=1)
    p = np.stack([compute_pair_p(test, values, a, b, example_variance) for a, b in pairs], axis=1)
    has_best = np.stack([(best == a) | (best == b) for a, b in pairs], axis=1)
    holm_factors = list(range(len(pairs), 0, -1))
    shaffer_factors = [max(c for c in list_equal_pair_counts(num_families) if c <= factor) for factor in holm_factors]
    if test.endswith("best"):  # only the pairs with the best are counted, although it was not named in advance
        holm_factors = [*range(num_families - 1, 0, -1), *[1] * (len(pairs) - num_families + 1)]
        p = np.where(has_best, p, 1.0)
    significant = (adjust_p_values(p, shaffer_factors if test == OURS else holm_factors) < 0.05) & has_best
    worse = np.zeros((len(values), num_families), dtype=bool)
    for index, (a, b) in enumerate(pairs):
        worse[:, a] |= significant[:, index] & (best == b)
        worse[:, b] |= significant[:, index] & (best == a)
    return best, worse


def simulate(
    trials: int, spreads: Sequence[float], shifts: Sequence[float], seeds: int, example_share: float, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Returns for each test the share of comparisons with a false alarm, and the share of worse families it found.

    `example_share` is the variance due to the examples relative to that due to the seeds of two families with spread 1.
    """
    generator = np.random.default_rng(seed)
    num_families, variance = len(spreads), example_share * 2 / seeds
    mean = np.array(shifts) + np.sqrt(variance / 2) * generator.standard_normal((trials, num_families))
    values = mean[..., None] + np.array(spreads)[:, None] * generator.standard_normal((trials, num_families, seeds))
    example_variance = variance * generator.chisquare(NUM_EXAMPLES - 1, trials) / (NUM_EXAMPLES - 1)
    results = {}
    truth = np.array(shifts)
    for test in TESTS:
        best, worse = find_worse(test, values, example_variance)
        false = worse & (truth[None] == truth[best][:, None])
        behind = truth > truth.min()
        results[test] = float(false.any(axis=1).mean()), float(worse[:, behind].mean()) if behind.any() else 0.0
    return results


def check_simulated_test() -> None:
    """Raises an error if the test of this script differs from that of the package."""
    values, variance = np.random.default_rng(1).standard_normal((50, 4, 3)), 0.1
    expected_p = compute_pair_p(OURS, values, 0, 2, np.full(50, variance))
    for trial, expected in zip(values, expected_p):
        families = {str(name): (float(each.var(ddof=1)), 3) for name, each in enumerate(trial)}
        parts = [(variance, NUM_EXAMPLES - 1.0), SeedNoise(families).estimate_variance("0", "2")]
        p, _ = compute_p_value(float(trial[0].mean() - trial[2].mean()), parts)
        np.testing.assert_allclose(p, expected, rtol=1e-6)


def list_null_cases(num_families: int) -> dict[str, tuple[list[float], list[float]]]:
    """Returns name → spreads and shifts of families of which at least two are equal."""
    ones, zeros = [1.0] * num_families, [0.0] * num_families
    cases = {"equal spreads": (ones, zeros)}
    for ratio in (2.0, 4.0, 10.0):
        cases[f"one family × {ratio:g}"] = ([ratio, *ones[1:]], zeros)
    if num_families > 2:
        cases["two families × 4"] = ([4.0, 4.0, *ones[2:]], zeros)
        cases["one × 10, all but two far behind"] = ([10.0, *ones[1:]], [0.0, 0.0, *[FAR] * (num_families - 2)])
    return cases


def report_simulations(trials: int, seed: int = 0) -> float:
    """Prints the tables; returns the highest rate of false alarms of our test."""
    highest = 0.0
    print(
        "False alarms in per cent: the worst case of unequal spreads and of 0, 0.3, 1 and 3 times the noise in examples"
    )
    print("| families | seeds | " + " | ".join(TESTS) + " |\n|---|---|" + "---|" * len(TESTS))
    for num_families in (2, 3, 5):
        for seeds in (2, 3, 5):
            cases = [
                simulate(trials, *case, seeds, share, seed)
                for case in list_null_cases(num_families).values()
                for share in (0.0, 0.3, 1.0, 3.0)
            ]
            rates = [max(case[test][0] for case in cases) for test in TESTS]
            print(
                f"| {num_families} | {seeds} | " + " | ".join(f"{100 * rate:.1f}" for rate in rates) + " |", flush=True
            )
            highest = max(highest, rates[-1])
    print("\nPower in per cent: how many of four worse families are found, by their distance in spreads of a seed")
    print("| distance | seeds | " + " | ".join(TESTS) + " |\n|---|---|" + "---|" * len(TESTS))
    for name, spreads, shifts in (
        ("2", [1.0] * 5, [0.0, 2, 2, 2, 2]), ("4", [1.0] * 5, [0.0, 4, 4, 4, 4]), ("8", [1.0] * 5, [0.0, 8, 8, 8, 8]),
        ("4 to 16, spreads 1 to 4", [1.0, 1, 2, 3, 4], [0.0, 4, 8, 12, 16]),
        ("4, and 20 of one × 10", [1.0, 1, 1, 1, 10], [0.0, 4, 4, 4, 20]),
    ):  # fmt: skip
        for seeds in (3, 5):
            powers = simulate(trials, spreads, shifts, seeds, 0.3, seed)
            print(
                f"| {name} | {seeds} | " + " | ".join(f"{100 * powers[test][1]:.0f}" for test in TESTS) + " |",
                flush=True,
            )
    return highest


def measure_equal_families(folder: Path, num_divisions: int, num_families: int = 5) -> dict[int, float]:
    """Divides the seeds of one family at random into equal families; returns the share of false alarms by seeds."""
    plan = Plan.open(folder)
    sums = [
        ExampleScores.load(Job("test", trial.name).get_scores_folder(folder)).sums
        for trial in plan.list_training_trials()
    ]
    step = 1 / len(sums[0]) if is_ratio(plan.metric) else 0.0
    generator = np.random.default_rng(0)
    rates = {}
    for seeds in (3, 5):
        alarms = 0
        for division in range(num_divisions):
            order = generator.permutation(len(sums))[: seeds * num_families].reshape(num_families, seeds)
            families = {str(name): [sums[index] for index in row] for name, row in enumerate(order)}
            metric, scale = (lambda sums: compute_metric(plan.metric, sums)), get_scale(plan.metric, len(sums[0]))
            pairs = compare_pairs(metric, families, draws=200, seed=division, metric_step=step, scale=scale)
            alarms += any(pair.significant for pair in pairs)
        rates[seeds] = alarms / num_divisions
    return rates


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000, help="simulated comparisons of each case")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the simulations")
    parser.add_argument("--runs", type=Path, nargs="+", help="comparisons of one family with 25 seeds or more")
    parser.add_argument("--divisions", type=int, default=500, help="of the seeds of --runs into five equal families")
    options = parser.parse_args()
    check_simulated_test()
    if not options.runs:
        return int(report_simulations(options.trials, options.seed) > 0.05)
    highest = 0.0
    for folder in options.runs:
        rates = measure_equal_families(folder, options.divisions)
        print(f"{folder}: " + ", ".join(f"{100 * rate:.1f} % with {seeds} seeds" for seeds, rate in rates.items()))
        highest = max(highest, *rates.values())
    return int(highest > 0.05)


if __name__ == "__main__":
    sys.exit(main())
