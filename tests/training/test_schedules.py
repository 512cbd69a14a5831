"""Learning-rate schedules: factors at given points of training."""

from __future__ import annotations

import pytest

from seqwise.training.optimizers import FINAL_COSINE_FACTOR, SCHEDULES


def test_cosine_rises_to_the_peak_and_falls_to_the_floor():
    schedule = SCHEDULES["cosine"](0.1)
    assert schedule.compute_factor(0.05) == pytest.approx(0.51)
    assert schedule.compute_factor(0.1) == 1
    assert schedule.compute_factor(0.55) == pytest.approx((1 + FINAL_COSINE_FACTOR) / 2)
    assert schedule.compute_factor(1.0) == pytest.approx(FINAL_COSINE_FACTOR)


def test_the_first_step_of_a_warm_up_has_a_positive_rate():
    assert SCHEDULES["constant"](0.1).compute_factor(0.0) > 0


def test_one_cycle_peaks_at_three_tenths():
    schedule = SCHEDULES["one-cycle"](0.0)
    assert schedule.compute_factor(0.0) == pytest.approx(1 / 25)
    assert schedule.compute_factor(0.3) == pytest.approx(1.0)
    assert schedule.compute_factor(1.0) == pytest.approx(1e-4)


def test_constant_without_warm_up_is_one():
    assert [SCHEDULES["constant"](0.0).compute_factor(p) for p in (0.0, 0.5, 1.0)] == [1.0, 1.0, 1.0]


def test_plateau_quarters_the_rate_when_validation_does_not_improve_and_remembers_it():
    schedule = SCHEDULES["plateau"](0.0)
    for loss in (2.0, 1.0, 1.5, 0.5, 0.5):
        schedule.record_validation(loss)
    assert schedule.compute_factor(0.5) == 0.25**2
    restored = SCHEDULES["plateau"](0.0)
    restored.load_state_dict(schedule.state_dict())
    restored.record_validation(0.4)
    assert restored.compute_factor(0.5) == 0.25**2
    restored.record_validation(0.4)
    assert restored.compute_factor(0.5) == 0.25**3
