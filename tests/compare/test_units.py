"""Messages about a comparison of forecasts count values, not tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_comparison import make_plan

from seqwise.cli.compare import describe_plan
from seqwise.config import parse_settings
from seqwise.errors import UsageError

BASE = {
    "task": "forecast",
    "device": "cpu",
    "horizon": 4,
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
    plan = make_plan(tmp_path / "out", series, parse_settings(BASE), budget="100k-tokens")
    text = " ".join(describe_plan(plan))
    assert (
        "2 × 100,000 values: at least 2 learning rates of 25,000 values each, then 2 training runs of 75,000 values."
        in text
    )
    assert "token" not in text
    alone = make_plan(tmp_path / "alone", series, parse_settings(BASE), budget="9s", lr_trials=1)
    assert "2 × 9 s: 2 training runs of 9 s." in " ".join(describe_plan(alone))


def test_an_error_about_a_small_budget_counts_values(tmp_path: Path, series: Path):
    with pytest.raises(UsageError, match=r"a training run of \d+ values is too short") as excinfo:
        make_plan(tmp_path / "out", series, parse_settings(BASE), budget="90-tokens")
    assert "tokens" not in excinfo.value.problem
