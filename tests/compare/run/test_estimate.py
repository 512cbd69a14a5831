"""When a comparison will be over: what is known of each job, divided among those who work at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_comparison import plan_of, write_text

from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.estimate import AROUND, TEST, UNKNOWN, Estimate
from seqwise.compare.run.jobs import Job, Outcome


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Path, Plan]:
    folder = tmp_path / "out"
    text = write_text(tmp_path / "small.txt")
    return folder, plan_of(folder, text, models=["rnn", "ngram"], budget="8s", seeds=1, tries=1)


def estimate(folder: Path, plan: Plan, places: int = 1) -> float:
    found = Estimate(folder, plan, lambda: places)
    found.begin()
    found.listen({"event": "waiting", "reason": "about no job"})
    return found.seconds()


def test_it_is_the_sum_over_the_jobs_that_are_left(planned):
    folder, plan = planned
    values = {"update": 0.1, "tokens": 64, "validation": 0.5}
    Outcome("done", values=values).save(Job("rehearse", "rnn").file(folder))
    trained, tested = AROUND + 8 + 0.5, AROUND + TEST * 0.5
    assert estimate(folder, plan) == pytest.approx(trained + tested + 2 * UNKNOWN)  # nothing is known of ngram
    assert estimate(folder, plan, places=4) == pytest.approx((trained + tested + 2 * UNKNOWN) / 4)
    Outcome("done").save(Job("train", "rnn/seed-0").file(folder))
    assert estimate(folder, plan) == pytest.approx(tested + 2 * UNKNOWN)


def test_a_time_is_known_though_nothing_was_rehearsed(planned):
    folder, plan = planned
    Outcome("done", values={"update": None, "validation": None}).save(Job("rehearse", "rnn").file(folder))
    assert estimate(folder, plan) == pytest.approx(AROUND + 8 + 3 * UNKNOWN)
