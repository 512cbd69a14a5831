"""Learning-rate schedules: factors at given points of training."""

from __future__ import annotations

import pytest
import torch

from seqwise.errors import UsageError
from seqwise.training.optimizers import FINAL_COSINE_FACTOR, SCHEDULES


def test_cosine_rises_to_the_peak_and_falls_to_the_floor():
    schedule = SCHEDULES["cosine"](0.1)
    assert schedule.compute_factor(0.05) == pytest.approx(0.51)
    assert schedule.compute_factor(0.1) == 1
    assert schedule.compute_factor(0.55) == pytest.approx((1 + FINAL_COSINE_FACTOR) / 2)
    assert schedule.compute_factor(1.0) == pytest.approx(FINAL_COSINE_FACTOR)


def test_the_first_step_of_a_warm_up_has_a_positive_rate():
    assert SCHEDULES["constant"](0.1).compute_factor(0.0) > 0


def test_the_inverse_square_root_halves_the_rate_after_four_warm_ups():
    schedule = SCHEDULES["inverse-sqrt"](0.04)
    assert schedule.compute_factor(0.019) == pytest.approx(0.5)
    assert schedule.compute_factor(0.04) == 1
    assert schedule.compute_factor(0.16) == pytest.approx(1 / 2)
    assert schedule.compute_factor(1.0) == pytest.approx(1 / 5)
    with pytest.raises(UsageError, match=r"--training\.warmup is 0"):
        SCHEDULES["inverse-sqrt"](0.0)


def test_one_cycle_peaks_at_three_tenths():
    schedule = SCHEDULES["one-cycle"](0.0)
    assert schedule.compute_factor(0.0) == pytest.approx(1 / 25)
    assert schedule.compute_factor(0.3) == pytest.approx(1.0)
    assert schedule.compute_factor(1.0) == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("progress", "factor", "peak_share"),
    [
        (0.0, 0.1, 0.0),
        (1 / 24, 0.55, 0.5),  # half of the way up
        (1 / 12, 1.0, 1.0),
        (0.3, 1.0, 1.0),
        (0.5, 1.0, 1.0),
        (0.5 + 1 / 12, 0.82, 0.8),  # a fifth of the way down
        (11 / 12, 0.1, 0.0),
        (11 / 12 + 1 / 36, 0.075, 0.0),  # a third of a half cosine: (1 + cos 60°) / 2 = 3 / 4
        (23 / 24, 0.05, 0.0),
        (1.0, 0.0, 0.0),
        (1.01, 0.0, 0.0),
    ],
)
def test_one_cycle_flat_has_four_phases(progress, factor, peak_share):
    schedule = SCHEDULES["one-cycle-flat"](0.0)
    assert schedule.compute_factor(progress) == pytest.approx(factor, abs=1e-12)
    assert schedule.compute_peak_share(progress) == pytest.approx(peak_share, abs=1e-12)


def test_beta1_follows_one_cycle_as_in_torch():
    """PyTorch's OneCycleLR moves momentum by the same half cosines as the learning rate."""
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], betas=(0.8, 0.99))
    steps = 101
    reference = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1.0, steps, pct_start=31 / 101, base_momentum=0.7, max_momentum=0.8
    )
    schedule = SCHEDULES["one-cycle"](0.0)
    for step in range(steps):
        beta1 = 0.8 - 0.1 * schedule.compute_peak_share(step / (steps - 1))
        assert beta1 == pytest.approx(optimizer.param_groups[0]["betas"][0], abs=1e-12)
        optimizer.step()
        if step < steps - 1:
            reference.step()


@pytest.mark.parametrize("name", ["constant", "cosine", "plateau"])
def test_other_schedules_do_not_move_beta1(name):
    assert [SCHEDULES[name](0.1).compute_peak_share(progress) for progress in (0.0, 0.1, 0.5, 1.0)] == [0.0] * 4


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
