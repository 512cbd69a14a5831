"""A training that fails saves why in its folder; one that is stopped does not, and resuming removes the file."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path

import pytest
import torch

import seqwise
from seqwise.cli.main import main
from seqwise.errors import MemoryLimitError, NonFiniteError, SeqwiseError
from seqwise.training.failures import FAILURE_FILE, record_failure
from seqwise.training.run import Run
from seqwise.training.step import Step
from seqwise.training.training_run import TrainingRun

SETTINGS = {
    "task": "language", "model": "gru", "device": "cpu", "network": {"width": 8, "depth": 1},
    "text": {"tokenizer": "words"}, "data": {"window": 8}, "training": {"batch_size": 2, "save_every": 1},
}  # fmt: skip


def train(book: Path, out: Path, fail_at: int = 0, error: BaseException | None = None) -> None:
    def on_step(step: Step) -> None:
        if error is not None and step.number == fail_at:
            raise error

    seqwise.train(str(book), settings=SETTINGS, budget="200-tokens", out=out, on_step=on_step)


def read_failure(folder: Path) -> dict[str, str]:
    return json.loads((folder / FAILURE_FILE).read_text())


def test_an_error_is_saved_with_its_fix_and_removed_when_the_run_is_resumed(book, tmp_path, capsys):
    out = tmp_path / "run"
    with pytest.raises(NonFiniteError):
        train(book, out, 2, NonFiniteError("the loss is not finite.", fix="Try half the learning rate."))
    failure = read_failure(out)
    assert failure["problem"] == "the loss is not finite."
    assert failure["fix"] == "Try half the learning rate."
    assert failure["time"].startswith("20")
    assert main(["train", "--resume", str(out)]) == 0
    assert not (out / FAILURE_FILE).exists()
    assert (out / "summary.json").exists()
    capsys.readouterr()


def test_weights_that_are_not_finite_are_saved_as_the_reason(book, tmp_path, monkeypatch):
    out = tmp_path / "run"

    class Broken(torch.optim.AdamW):
        def step(self, *args, **kwargs):
            super().step(*args, **kwargs)
            self.param_groups[0]["params"][0].data.fill_(math.nan)

    monkeypatch.setattr(torch.optim, "AdamW", Broken)
    with pytest.raises(NonFiniteError):
        train(book, out)
    assert "finite" in read_failure(out)["problem"]


def test_a_model_that_does_not_fit_into_memory_is_saved_as_the_reason(book, tmp_path, monkeypatch):
    def fail(self, *arguments):
        raise MemoryLimitError("the model does not fit into memory.", fix="Use a smaller one.")

    monkeypatch.setattr(TrainingRun, "__init__", fail)
    with pytest.raises(MemoryLimitError):
        train(book, tmp_path / "run")
    assert read_failure(tmp_path / "run")["problem"] == "the model does not fit into memory."


def test_an_unexpected_error_is_saved_with_its_type(book, tmp_path):
    with pytest.raises(ZeroDivisionError):
        train(book, tmp_path / "run", 1, ZeroDivisionError("of the test"))
    assert read_failure(tmp_path / "run") | {"time": ""} == {
        "problem": "ZeroDivisionError: of the test", "fix": "", "time": ""
    }  # fmt: skip


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokenPipeError(), SystemExit(1)])
def test_a_training_that_is_stopped_has_not_failed(book, tmp_path, error):
    with pytest.raises(type(error)):
        train(book, tmp_path / "run", 1, error)
    assert (tmp_path / "run" / "config.yaml").exists()
    assert not (tmp_path / "run" / FAILURE_FILE).exists()


def test_a_finished_run_has_not_failed_if_its_data_is_gone(book, tmp_path, capsys):
    data, out = tmp_path / "copy.txt", tmp_path / "run"
    data.write_bytes(book.read_bytes())
    train(data, out)
    data.unlink()
    assert main(["train", "--resume", str(out)]) == 2
    assert not (out / FAILURE_FILE).exists()
    capsys.readouterr()


def test_an_unfinished_run_has_failed_if_its_data_is_gone(book, tmp_path, capsys):
    data, out = tmp_path / "copy.txt", tmp_path / "run"
    data.write_bytes(book.read_bytes())
    with pytest.raises(KeyboardInterrupt):
        train(data, out, 2, KeyboardInterrupt())
    data.unlink()
    assert main(["train", "--resume", str(out)]) == 2
    assert "copy.txt" in read_failure(out)["problem"]
    capsys.readouterr()


def test_a_lost_connection_does_not_hide_the_error_of_the_process_that_failed(book, tmp_path):
    out = tmp_path / "run"
    train(book, out)
    with pytest.raises(RuntimeError), Run.open(out).record_failure():
        raise RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc] Connection closed by peer")
    assert not (out / FAILURE_FILE).exists()


def test_a_folder_that_is_not_complete_stays_empty(tmp_path):
    with pytest.raises(SeqwiseError), record_failure(tmp_path, "config.yaml"):
        raise SeqwiseError("it failed.")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_that_cannot_be_saved_does_not_hide_its_error(tmp_path):
    (tmp_path / "config.yaml").touch()
    (tmp_path / FAILURE_FILE).mkdir()
    (tmp_path / FAILURE_FILE / "file").touch()
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SeqwiseError, match="it failed"), record_failure(tmp_path, "config.yaml"):
            raise SeqwiseError("it failed.")
    finally:
        tmp_path.chmod(0o700)


def test_an_error_that_ctrl_c_causes_is_not_saved(tmp_path):
    def release_without_acquiring():
        try:
            raise KeyboardInterrupt
        finally:
            threading.Lock().release()

    (tmp_path / "last").touch()
    with pytest.raises(RuntimeError), record_failure(tmp_path, "last"):
        release_without_acquiring()
    assert not (tmp_path / FAILURE_FILE).exists()
