"""The table on the terminal: every family in its line, and only the marks explained that occur."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sample_report import SAMPLES, family, report

from seqwise.cli.leaderboard import table


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def with_ranks(*ranks: str) -> dict[str, Any]:
    made = report("classify", "accuracy", [family(f"f{at}", "accuracy", [0.9, 0.91]) for at in range(len(ranks))])
    for one, rank in zip(made["families"], ranks):
        one["rank"] = rank
    return made


def test_every_family_is_shown_with_its_mark():
    lines = table(SAMPLES["with_failures"]())
    assert cells(lines[0])[-1] == "one prediction"
    assert [cells(line)[:2] for line in lines[1:5]] == [
        ["best", "gru"], ["=", "lstm"], ["?", "feedforward"], ["failed", "transformer"],
    ]  # fmt: skip
    assert cells(lines[2])[2:4] == ["84.3 %", "83.2 to 85.4 %"]
    assert cells(lines[4])[2:] == ["–"] * 7


@pytest.mark.parametrize(
    ("ranks", "legend"),
    [
        (("best", "worse"), ""),
        (("best", "tied", "worse"), " =: no significant difference from the best."),
        (("best", "unsure", "failed"), " ?: probably worse."),
        (("best", "tied", "unsure"), " =: no significant difference from the best; ?: probably worse."),
    ],
)
def test_only_marks_that_occur_are_explained(ranks: tuple[str, ...], legend: str):
    assert table(with_ranks(*ranks))[-1] == f"accuracy on the test split, mean over 2 seeds; more is better.{legend}"


def test_an_interval_without_width_is_said_in_words():
    made = report("classify", "accuracy", [family("gru", "accuracy", [1.0] * 3), family("rnn", "accuracy", [0.9])])
    made["families"][1]["sampling"] = {"low": 0.9, "high": 0.9}
    lines = table(made)
    assert cells(lines[1])[2:4] == ["100.0 %", "all seeds alike"]
    assert cells(lines[2])[:3] == ["rnn", "90.0 %", "all examples alike"]  # worse: no mark
