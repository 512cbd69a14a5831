"""A series has values, not tokens: what is said before a comparison of forecasts calls them so."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_comparison import plan_of

from seqwise.cli.compare import introduction
from seqwise.config import parse_settings
from seqwise.errors import UsageError

BASE = {
    "task": "forecast",
    "device": "cpu",
    "horizon": 4,
    "data": {"window": 12},
    "network": {"width": 8, "depth": 1},
    "training": {"batch_size": 4},
}


@pytest.fixture
def series(tmp_path: Path) -> Path:
    rows = (f"2024-01-{1 + at // 24:02d} {at % 24:02d}:00,{at % 7 + 0.1 * (at % 5)}" for at in range(480))
    path = tmp_path / "series.csv"
    path.write_text("time,load\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_the_introduction_counts_values(tmp_path: Path, series: Path):
    plan = plan_of(tmp_path / "out", series, parse_settings(BASE), budget="100k-tokens")
    said = " ".join(introduction(plan))
    assert "2 × 100,000 values: 2 learning rates of 25,000 values each, then 2 trainings of 75,000 values." in said
    assert "token" not in said
    alone = plan_of(tmp_path / "alone", series, parse_settings(BASE), budget="9s", tries=1)
    assert "2 × 9 s: 2 trainings of 9 s." in " ".join(introduction(alone))


def test_a_budget_that_is_too_small_is_told_in_values(tmp_path: Path, series: Path):
    with pytest.raises(UsageError, match=r"with \d+ values a training would make") as caught:
        plan_of(tmp_path / "out", series, parse_settings(BASE), budget="90-tokens")
    assert "tokens" not in caught.value.problem
