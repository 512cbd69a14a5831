"""When a comparison will be over: what is known of each job, divided among those who work at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_comparison import make_plan, write_text

from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.jobs import Job, Outcome, SpeedResult
from seqwise.compare.run.stages import DEFAULT_SECONDS, OVERHEAD_SECONDS, TEST_VALIDATIONS, RemainingTime


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Path, Plan]:
    folder = tmp_path / "out"
    text = write_text(tmp_path / "small.txt")
    return folder, make_plan(folder, text, models=["rnn", "ngram"], budget="8s", seeds=1, lr_trials=1)


def estimate(folder: Path, plan: Plan, workers: int = 1) -> float:
    found = RemainingTime(folder, plan, lambda: workers)
    found.refresh()
    found.update({"event": "waiting", "reason": "about no job"})
    return found.seconds()


def test_the_estimate_is_the_sum_over_the_remaining_jobs(planned):
    folder, plan = planned
    Outcome("done", result=SpeedResult(0.1, 64, 0.5)).save(Job("speed", "rnn").file(folder))
    trained, tested = OVERHEAD_SECONDS + 8 + 0.5, OVERHEAD_SECONDS + TEST_VALIDATIONS * 0.5
    assert estimate(folder, plan) == pytest.approx(trained + tested + 2 * DEFAULT_SECONDS)  # nothing is known of ngram
    assert estimate(folder, plan, workers=4) == pytest.approx((trained + tested + 2 * DEFAULT_SECONDS) / 4)
    Outcome("done").save(Job("train", "rnn/seed-0").file(folder))
    assert estimate(folder, plan) == pytest.approx(tested + 2 * DEFAULT_SECONDS)


def test_a_time_budget_is_known_without_a_measured_speed(planned):
    folder, plan = planned
    Outcome("done", result=SpeedResult()).save(Job("speed", "rnn").file(folder))
    assert estimate(folder, plan) == pytest.approx(OVERHEAD_SECONDS + 8 + 3 * DEFAULT_SECONDS)
