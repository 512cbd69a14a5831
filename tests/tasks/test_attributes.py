"""`task.json` of a run: values of the wrong type are refused with the name of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqwise.errors import RunError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.attributes import check_attributes
from seqwise.tasks.task import Preprocessor
from seqwise.tasks.translate.task import build_model

GRID = {"unit": "moment", "step": 86_400_000_000, "first": 0, "style": "date"}
VALID: dict[str, dict[str, Any]] = {
    "classify": {"labels": ["a", "b"]},
    "tag": {"tags": ["O", "B-X"], "spans": True, "folds": False, "alphabet": "abc"},
    "translate": {"source": "de", "targets": ["en", "fr"], "ratios": [1.5, 1]},
    "caption": {"kind": "images", "width": 3, "regions": 1},
    "forecast": {
        "columns": {"time": "day", "targets": ["sales"], "known": [], "series": None},
        "clock": GRID,
        "names": ["sales"],
        "mean": [1.0],
        "deviation": [2.0],
        "known_mean": [],
        "known_deviation": [],
        "in_sample": [None],
        "season": 7,
        "calendar": ["day of week"],
    },
}
WRONG = [
    ("classify", {"labels": None}, "labels: Input should be a valid list, for the task classify."),
    ("classify", {"labels": []}, "labels: List should have at least 1 item"),
    ("classify", {"labels": ["a", []]}, "labels.1: Input should be a valid string"),
    ("classify", {"labels": ["a", "a"]}, "expected every value once"),
    ("tag", {"alphabet": 5}, "alphabet: Input should be a valid string"),
    ("translate", {"ratios": [1.0]}, "targets, ratios: expected lists of the same length."),
    ("translate", {"targets": [5]}, "targets.0: Input should be a valid string"),
    ("caption", {"width": -1}, "width: Input should be greater than or equal to 0"),
    ("forecast", {"calendar": ["65536"]}, "calendar.0: Input should be"),
    ("forecast", {"mean": ["a"]}, "mean.0: Input should be a valid number"),
    ("forecast", {"mean": []}, "names, mean, deviation, in_sample: expected lists of the same length."),
    ("forecast", {"season": 0}, "season: Input should be greater than 0"),
    ("forecast", {"clock": {**GRID, "step": 0}}, "clock.step: Input should be greater than or equal to 1"),
    ("forecast", {"clock": {**GRID, "other": 1}}, "clock.other: Extra inputs are not permitted"),
]


@pytest.mark.parametrize("task", VALID)
def test_valid_attributes_are_accepted_and_missing_ones_are_not(task: str):
    check_attributes(task, {**VALID[task], "example": "a text"}, Path("task.json"), "Train again.")
    for name in VALID[task]:
        others = {key: value for key, value in VALID[task].items() if key != name}
        with pytest.raises(RunError, match=f"task.json: {name}: Field required, for the task {task}.\nTrain again."):
            check_attributes(task, others, Path("task.json"), "Train again.")


@pytest.mark.parametrize(("task", "change", "problem"), WRONG, ids=[problem for *_, problem in WRONG])
def test_wrong_values_are_refused(task: str, change: dict[str, Any], problem: str):
    with pytest.raises(RunError) as caught:
        check_attributes(task, {**VALID[task], **change}, Path("task.json"), "Train again.")
    assert problem in str(caught.value)


def test_tasks_without_attributes_and_tasks_of_the_user_accept_anything():
    for task in ("language", "masked", "mine"):
        check_attributes(task, {"labels": 5}, Path("task.json"), "")


def test_a_missing_tokenizer_is_an_error():
    with pytest.raises(RunError, match=r"the run has no tokenizer\.en\.json"):
        build_model(ResolvedSettings(), Preprocessor(attributes=VALID["translate"]))
