"""`seqwise inspect RUN --view errors`: other data, splits, the number of examples, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_errors_are_those_of_the_validation_split(seqwise_command, trained_run):
    result = seqwise_command("inspect", trained_run("lstm", "words"), "--view", "errors")
    assert result.status == 0
    assert "the valid split" in " ".join(result.out.split())
    assert "Calibration: most probable token" in result.out
    assert "All slices" in result.out


def test_other_data_without_splits_is_evaluated_as_a_whole(seqwise_command, trained_run, tmp_path: Path, monkeypatch):
    run = Path(trained_run("lstm", "words")).resolve()
    (tmp_path / "123").mkdir()  # the name of a folder is no number
    (tmp_path / "123" / "text.txt").write_text("the old model reads\n" * 40)
    monkeypatch.chdir(tmp_path)
    arguments = ("inspect", run, "--view", "errors", "--data", "123", "--json")
    result = seqwise_command(*arguments)
    assert result.err == ""
    document = json.loads(result.out)
    assert document["data"]["num_evaluated"] == document["data"]["num_examples"] == 40 * 5 - 1
    assert "all of it" in document["title"]
    document = json.loads(seqwise_command(*arguments, "--max-examples", "64").out)
    assert document["data"]["num_evaluated"] < document["data"]["num_examples"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--split", "test"), "the test split of the run's own data is not shown"),
        (("--data", "missing.txt"), "missing.txt"),
        (("--max-examples", "0"), "expected at least 1"),
        (("some text",), "the view errors reads no text"),
        (("--layer", "1"), "its options: --data, --split, --max-examples"),
    ],
)
def test_wrong_arguments_are_one_clear_message(seqwise_command, trained_run, arguments, problem):
    result = seqwise_command("inspect", trained_run("lstm", "words"), *arguments, "--view", "errors")
    assert result.status == 2
    assert problem in result.err
    assert "Traceback" not in result.err
