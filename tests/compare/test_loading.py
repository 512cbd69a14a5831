"""`seqwise.load` on the folder of a comparison, and commands that need a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_comparison import finished_comparison

import seqwise
from seqwise.compare.loading import load
from seqwise.errors import RunError
from seqwise.training.run import Run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return finished_comparison(tmp_path / "compared")


def test_the_best_model_of_a_comparison_is_loaded_with_a_warning(folder: Path):
    with pytest.warns(UserWarning, match="compared is a comparison; its best model is used: ") as caught:
        model = seqwise.load(folder)
    assert caught[0].filename == __file__
    assert model.run.folder.is_relative_to(folder)
    assert len("".join(model.predict("the ", max_length=5))) == 5


@pytest.mark.filterwarnings("error")
def test_a_log_function_receives_the_message_instead(folder: Path):
    messages: list[str] = []
    model = load(folder, log=messages.append)
    assert messages == [f"{folder} is a comparison; its best model is used: {model.settings.model}, {model.run.folder}"]
    assert load(model.run.folder).run.folder == model.run.folder


def test_a_comparison_is_not_resumed_as_a_run(folder: Path):
    with pytest.raises(RunError) as excinfo:
        Run.open(folder)
    assert excinfo.value.problem == f"{folder} is not a run, but a comparison of several."
    resume, other = excinfo.value.fix.split("\n")
    assert resume == f"Resume it: seqwise compare --resume {folder}"
    assert Run.open(other.removeprefix("Or name one of its runs, such as ")).settings.task == "language"
