"""One training through the command line, inside this process: how it ends and what it leaves."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from seqwise.cli.main import main
from seqwise.cli.progress import TrainingDisplay
from seqwise.training import fit
from seqwise.training.checkpoints import newest_checkpoint
from seqwise.training.signals import interruptible

WORDS = ["--text.tokenizer", "characters", "--network.width", "8", "--training.batch", "4", "--data.window", "16"]


def train(*words: str | Path) -> int:
    return main(["train", *map(str, words)])


def fresh(book: Path, folder: Path, *more: str) -> list[str | Path]:
    return [book, *WORDS, "--budget", f"{64 * 30}-tokens", "--training.save-every", "10", *more, "--out", folder]


def steps_of(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_finished_run_says_so_and_stays_as_it_is(book, tmp_path, capsys):
    assert train(*fresh(book, tmp_path / "run")) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert train("--resume", tmp_path / "run") == 0
    said = capsys.readouterr().err
    assert "this run is already at its end." in said
    assert "done: the budget is spent." in said
    assert "going on" not in said
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}


@pytest.mark.parametrize("more", [["--budget", "5m"], ["--out", "elsewhere"], ["--network.width", "9"]])
def test_settings_beside_resume_are_refused_rather_than_ignored(book, tmp_path, capsys, more):
    assert train("--resume", tmp_path / "run", *more) == 2
    assert "a run goes on with the settings it began with." in capsys.readouterr().err


@pytest.mark.parametrize("processes", ["0", "-2"])
def test_no_processes_at_all_are_refused(book, capsys, processes):
    assert train(book, f"--nproc={processes}") == 2
    assert f"--nproc: expected at least 1; received {processes}." in capsys.readouterr().err


def kept(folder: Path) -> tuple[int, bool]:
    """The step of the newest checkpoint, and whether its weights are finite."""
    warnings: list[str] = []
    snapshot = newest_checkpoint(folder / "checkpoints", warnings.append)
    assert snapshot is not None
    assert warnings == []
    weights = [tensor for name, tensor in snapshot.tensors.items() if name.startswith("model.")]
    return snapshot.state["place"]["step"], all(bool(tensor.isfinite().all()) for tensor in weights)


WILD = ["--training.learning-rate", "1e30", "--training.clip", "none", "--training.warmup", "0"]


def test_a_non_finite_loss_stops_before_the_update_and_names_step_and_samples(book, tmp_path, capsys):
    """At a rate of 1e30 the first update leaves huge weights, which are saved, and the second infinite ones."""
    assert train(*fresh(book, tmp_path / "run", *WILD, "--training.save-every", "1")) == 1
    capsys.readouterr()
    assert kept(tmp_path / "run") == (1, True)
    settings = (tmp_path / "run/config.yaml").read_text()
    (tmp_path / "run/config.yaml").write_text(settings.replace("save_every: 1\n", "save_every: 10\n"))
    assert train("--resume", tmp_path / "run") == 1
    said = capsys.readouterr().err
    assert said.count("error: ") == 1
    assert "at step 3, in the samples that begin at token 32, 14,066, 28,100, 42,134. The update was not made." in said
    assert "The last good checkpoint is kept." in said
    assert kept(tmp_path / "run") == (1, True)


def test_weights_that_are_not_finite_are_never_saved(book, tmp_path, capsys):
    """Here an update overflows though its loss and gradient were finite: the weight decay is a factor of -1e28."""
    assert train(*fresh(book, tmp_path / "run", *WILD, "--training.save-every", "1")) == 1
    said = capsys.readouterr().err
    assert said.count("error: ") == 1
    assert "the weights are no longer finite after step 2" in said
    assert kept(tmp_path / "run") == (1, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once_and_the_run_can_still_go_on(book, tmp_path, capsys, monkeypatch, number):
    shown = TrainingDisplay.show

    def impatient(display, step):
        if step.number == 15:
            signal.raise_signal(number)
            signal.raise_signal(number)
        shown(display, step)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingDisplay, "show", impatient)
        assert train(*fresh(book, tmp_path / "run")) == 130
    said = capsys.readouterr().err.rstrip().splitlines()
    assert said[-1] == f"interrupted. Go on with: seqwise train --resume {tmp_path / 'run'}"
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-10"]
    assert train("--resume", tmp_path / "run") == 0
    assert kept(tmp_path / "run") == (30, True)


def test_the_first_signal_raises_a_flag_and_the_second_an_exception():
    before = signal.getsignal(signal.SIGTERM)
    with interruptible() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGTERM)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_metrics_that_cannot_be_written_are_one_message_and_cost_nothing(book, tmp_path, capsys, monkeypatch):
    shown, file = TrainingDisplay.show, tmp_path / "run/metrics.jsonl"

    def fill_the_disk(display, step):
        shown(display, step)
        if step.number == 15:
            file.rename(tmp_path / "kept")
            file.symlink_to("/dev/full")

    with monkeypatch.context() as patch:
        patch.setattr(TrainingDisplay, "show", fill_the_disk)
        assert train(*fresh(book, tmp_path / "run")) == 1
    said = capsys.readouterr().err
    assert said.count("error: ") == 1
    assert f"error: could not save {file}: the disk is full.\nWhat was saved before is complete." in said
    (tmp_path / "kept").rename(file)
    assert train("--resume", tmp_path / "run") == 0
    assert train(*fresh(book, tmp_path / "whole")) == 0
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "whole")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]


def test_an_ngram_run_that_was_killed_while_counting_counts_again(book, tmp_path, capsys, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    words = [book, "--model", "ngram", "--text.tokenizer", "characters", "--out", tmp_path / "run"]
    with monkeypatch.context() as patch:
        patch.setattr(fit, "append_metrics", killed)
        assert train(*words) == 130
    assert f"interrupted. Go on with: seqwise train --resume {tmp_path / 'run'}" in capsys.readouterr().err
    for _ in range(2):
        assert train("--resume", tmp_path / "run") == 0
        assert steps_of(tmp_path / "run") == [1]
    said = capsys.readouterr().err
    assert said.count("validation perplexity") == 1
    assert said.count("this run is already at its end.") == 1
    assert train(*words[:-1], tmp_path / "whole") == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]
