"""The estimate of the remaining time: the expected seconds of each job, divided by the number of workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_comparison import make_plan, write_text

from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.jobs import SPEED_JOB, Job, Outcome, SpeedResult, SpeedResults
from seqwise.compare.run.remaining_time import DEFAULT_SECONDS, OVERHEAD_SECONDS, TEST_VALIDATIONS, RemainingTime


@pytest.fixture
def folder_and_plan(tmp_path: Path) -> tuple[Path, Plan]:
    folder = tmp_path / "out"
    text = write_text(tmp_path / "small.txt")
    return folder, make_plan(folder, text, models=["rnn", "ngram"], budget="8s", seeds=1, lr_trials=1)


def estimate(folder: Path, plan: Plan, workers: int = 1) -> float:
    remaining = RemainingTime(folder, plan, lambda: workers)
    remaining.refresh(plan)
    remaining.update({"event": "waiting", "reason": "about no job"})
    return remaining.estimate_seconds()


def test_the_estimate_is_the_sum_over_the_remaining_jobs(folder_and_plan):
    folder, plan = folder_and_plan
    Outcome("done", result=SpeedResults({"rnn": SpeedResult(0.1, 64, 0.5)})).save(SPEED_JOB.get_file(folder))
    training, test = OVERHEAD_SECONDS + 8 + 0.5, OVERHEAD_SECONDS + TEST_VALIDATIONS * 0.5
    assert estimate(folder, plan) == pytest.approx(training + test + 2 * DEFAULT_SECONDS)  # nothing is known of ngram
    assert estimate(folder, plan, workers=4) == pytest.approx((training + test + 2 * DEFAULT_SECONDS) / 4)
    Outcome("done").save(Job("train", "rnn/seed-0").get_file(folder))
    assert estimate(folder, plan) == pytest.approx(test + 2 * DEFAULT_SECONDS)


def test_a_time_budget_is_known_without_a_measured_speed(folder_and_plan):
    folder, plan = folder_and_plan
    Outcome("done", result=SpeedResults({})).save(SPEED_JOB.get_file(folder))
    assert estimate(folder, plan) == pytest.approx(OVERHEAD_SECONDS + 8 + 3 * DEFAULT_SECONDS)
