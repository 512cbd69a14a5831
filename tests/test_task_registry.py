"""Tasks are found by name: built-in ones, registered ones, and those of a file that an environment variable names."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwise.config import Settings, parse_settings
from seqwise.errors import UsageError
from seqwise.task_registry import BUILTIN_TASKS, TASK_FILES, find_task, list_task_names, register
from seqwise.tasks import get_task
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.task import Preprocessor, Task


@pytest.mark.parametrize("name", BUILTIN_TASKS)
def test_every_built_in_task_is_found(name: str):
    assert issubclass(get_task(name), Task)
    assert Settings(task=name).task == name


def test_a_misspelt_task_is_rejected_with_a_similar_name():
    with pytest.raises(UsageError, match=r"task: there is no such task. Perhaps you meant 'translate'"):
        parse_settings({"task": "tranlate"})


def test_a_task_of_a_file_is_imported_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "parity.py"
    file.write_text("import seqwise.tasks\n@seqwise.tasks.register\nclass Parity:\n    name = 'parity'\n")
    monkeypatch.setenv(TASK_FILES, f"parity={file}")
    assert "parity" in list_task_names()
    assert parse_settings({"task": "parity"}).task == "parity"
    assert find_task("parity").__name__ == "Parity"


def test_a_file_that_does_not_exist_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(TASK_FILES, f"missing-task={tmp_path / 'no.py'}")
    with pytest.raises(UsageError, match="cannot be imported"):
        find_task("missing-task")


@pytest.mark.parametrize("name", ["", "language"])
def test_a_task_needs_a_name_of_its_own(name: str):
    with pytest.raises(UsageError, match="name of its own"):
        register(type("Mine", (), {"name": name}))


def test_a_task_without_a_vocabulary_learns_nothing():
    initial = Preprocessor(attributes={"unit": "cm"})
    assert ExampleTask.fit_preprocessor(None, Settings(), print, initial) is initial
