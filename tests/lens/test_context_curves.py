"""The horizon of a curve of losses: hand-computed values, known lags, intervals."""

from __future__ import annotations

import numpy as np
import pytest

from seqwise.lens.context_curves import build_curve, compute_share, find_horizon, list_powers, measure_curve

NUM_TARGETS = 400


def score_lag(lag: int, noise: float = 0.0):
    """Returns a score whose loss is 1 with at least `lag` visible tokens, else 2; the noise is that of the targets."""
    targets = noise * np.random.default_rng(0).standard_normal(NUM_TARGETS)
    return lambda n, advance: np.full(NUM_TARGETS, 1.0 if n >= lag else 2.0) + targets


def test_the_horizon_is_the_shortest_context_with_nine_tenths_of_the_benefit():
    contexts, means = np.array([0, 1, 2, 4]), np.array([4.0, 3.0, 2.2, 2.0])
    assert compute_share(means) == pytest.approx([0, 0.5, 0.9, 1])
    assert find_horizon(contexts, np.array([4.0, 3.0, 2.199, 2.0])) == 2
    assert find_horizon(contexts, np.array([4.0, 3.0, 2.201, 2.0])) == 4


def test_without_benefit_there_is_no_horizon():
    curve = build_curve({0: np.full(30, 2.0), 1: np.full(30, 2.5), 2: np.full(30, 2.0)})
    assert np.isnan(curve.horizon)
    assert curve.interval is None


def test_a_benefit_that_may_be_chance_has_no_interval():
    noise = np.random.default_rng(0).standard_normal(200)
    curve = build_curve({0: np.full(200, 2.0), 1: 2.0 + noise - noise.mean() - 0.01})
    assert curve.horizon == 1
    assert curve.interval is None


@pytest.mark.parametrize("lag", [*range(1, 21), 33, 64, 100, 127, 128])
def test_a_known_lag_is_found(lag: int):
    curve = measure_curve(np.full(NUM_TARGETS, 2.0), score_lag(lag), 128)
    assert lag <= curve.horizon <= 1.05 * lag
    assert curve.interval == (curve.horizon, curve.horizon)


def test_few_contexts_are_measured():
    measured = []

    def score(n: int, advance: object) -> np.ndarray:
        measured.append(n)
        return score_lag(100)(n, advance)

    measure_curve(np.full(NUM_TARGETS, 2.0), score, 512)
    assert measured == sorted(set(measured[:10])) + measured[10:], "powers of two first"
    assert len(measured) == len(set(measured)) <= 15


def test_differences_are_paired_so_that_noise_of_the_targets_does_not_widen_the_interval():
    baseline = 2.0 + 5.0 * np.random.default_rng(0).standard_normal(NUM_TARGETS)
    curve = measure_curve(baseline, score_lag(10, noise=5.0), 64)
    assert curve.interval == (10, 10)


def test_the_interval_covers_the_true_horizon_in_most_samples():
    # Each target needs a context of its own, drawn from 1 … 100: the true horizon is 90.
    covered = []
    for seed in range(20):
        needed = np.random.default_rng(seed).integers(1, 101, size=200)
        curve = measure_curve(np.full(200, 1.0), lambda n, advance, needed=needed: (n < needed).astype(float), 128)
        low, high = curve.interval
        assert low <= curve.horizon <= high
        covered.append(low / 1.05 <= 90 <= high * 1.05)
    assert np.mean(covered) >= 0.85


def test_powers_of_two_end_with_the_longest_context():
    assert list_powers(1) == [1]
    assert list_powers(8) == [1, 2, 4, 8]
    assert list_powers(11) == [1, 2, 4, 8, 11]


def test_progress_ends_at_its_total():
    calls = []

    def score(n: int, advance) -> np.ndarray:
        advance(n * NUM_TARGETS)
        return score_lag(10)(n, advance)

    measure_curve(np.full(NUM_TARGETS, 2.0), score, 64, progress=lambda done, total: calls.append((done, total)))
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1][0] == calls[-1][1]
    assert all(done < total for done, total in calls[:-1])
