"""`seqwise train` inside this process: how a run ends, and which files it leaves."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch

import seqwise
from seqwise.cli.main import main
from seqwise.cli.progress import TrainingDisplay
from seqwise.config import parse_settings
from seqwise.training.checkpoints import load_newest_checkpoint
from seqwise.training.distribution import defer_interrupts
from seqwise.training.loop import Step
from seqwise.training.run import Run
from seqwise.training.training_run import create_run

OPTIONS = [
    "--text.tokenizer",
    "characters",
    "--network.width",
    "8",
    "--training.batch-size",
    "4",
    "--data.window",
    "16",
]


def train(*arguments: str | Path) -> int:
    return main(["train", *map(str, arguments)])


def train_arguments(book: Path, folder: Path, *options: str) -> list[str | Path]:
    return [book, *OPTIONS, "--budget", f"{64 * 30}-tokens", "--training.save-every", "10", *options, "--out", folder]


def logged_steps(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_resuming_a_finished_run_changes_nothing(book, tmp_path, capsys):
    assert train(*train_arguments(book, tmp_path / "run")) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert train("--resume", tmp_path / "run") == 0
    stderr = capsys.readouterr().err
    assert "this run is already complete." in stderr
    assert "done: the budget is spent." in stderr
    assert "resuming at step" not in stderr
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [True, False])
def test_the_environment_says_how_each_recurrent_layer_was_computed(book, tmp_path, monkeypatch, kernels):
    if not kernels:
        monkeypatch.setattr("seqwise.layers.scan.get_unavailable_reason", lambda device: "disabled by this test")
    assert (
        train(*train_arguments(book, tmp_path / "run", "--model", "gru", "--network.depth", "2", "--device", "cpu"))
        == 0
    )
    environment = json.loads((tmp_path / "run" / "env.json").read_text())
    backend = "compiled" if kernels else "aten"
    assert environment["recurrent_layers"] == {"backbone.deep.layer.0": backend, "backbone.deep.layer.1": backend}
    assert "python" in environment


def test_other_settings_together_with_resume_are_rejected(book, tmp_path, capsys):
    run = tmp_path / "run"
    assert train(book, "--model", "ngram", "--text.tokenizer", "characters", "--out", run) == 0
    for options in (["--seed", "9"], ["--model", "lstm"], ["--network.width", "9"]):
        assert train("--resume", run, *options) == 2
        message = capsys.readouterr().err
        assert "a run is resumed with its own settings." in message
        assert f"{' '.join(options)} differs from that of {run}: " in message
    assert train("--resume", run, "--out", "elsewhere") == 2
    assert train("--resume", run, "--model", "ngram", "--seed", "0", "--text.tokenizer", "characters") == 0


@pytest.mark.parametrize("processes", ["0", "-2"])
def test_fewer_than_one_process_is_rejected(book, capsys, processes):
    assert train(book, f"--nproc={processes}") == 2
    assert f"--nproc: expected at least 1; received {processes}." in capsys.readouterr().err


def read_newest_checkpoint(folder: Path) -> tuple[int, bool]:
    """The step of the newest checkpoint, and whether its weights are finite."""
    warnings: list[str] = []
    snapshot = load_newest_checkpoint(folder / "checkpoints", warnings.append)
    assert snapshot is not None
    assert warnings == []
    weights = [tensor for name, tensor in snapshot.tensors.items() if name.startswith("model.")]
    return snapshot.state["place"]["step"], all(bool(tensor.isfinite().all()) for tensor in weights)


DIVERGING_OPTIONS = ["--training.learning-rate", "1e30", "--training.clip", "none", "--training.warmup", "0"]


def test_a_non_finite_loss_stops_before_the_update_and_names_step_and_samples(book, tmp_path, capsys):
    """At a rate of 1e30 the first update leaves huge weights, which are saved, and the second infinite ones."""
    assert train(*train_arguments(book, tmp_path / "run", *DIVERGING_OPTIONS, "--training.save-every", "1")) == 1
    capsys.readouterr()
    assert read_newest_checkpoint(tmp_path / "run") == (1, True)
    settings = (tmp_path / "run/config.yaml").read_text()
    (tmp_path / "run/config.yaml").write_text(settings.replace("save_every: 1\n", "save_every: 10\n"))
    assert train("--resume", tmp_path / "run") == 1
    stderr = capsys.readouterr().err
    assert stderr.count("error: ") == 1
    assert (
        "at step 3, in the samples that begin at token 32, 14,066, 28,100, 42,134. The update was not made." in stderr
    )
    assert "The last good checkpoint is kept." in stderr
    assert read_newest_checkpoint(tmp_path / "run") == (1, True)


def test_weights_that_are_not_finite_are_never_saved(book, tmp_path, capsys):
    """Here an update overflows though its loss and gradient were finite: the weight decay is a factor of -1e28."""
    assert train(*train_arguments(book, tmp_path / "run", *DIVERGING_OPTIONS, "--training.save-every", "1")) == 1
    stderr = capsys.readouterr().err
    assert stderr.count("error: ") == 1
    assert "the weights are no longer finite after step 2" in stderr
    assert read_newest_checkpoint(tmp_path / "run") == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once_and_the_run_can_be_resumed(book, tmp_path, capsys, monkeypatch, signal_number):
    original = TrainingDisplay.show

    def send_two_signals(display, step):
        if step.number == 15:
            signal.raise_signal(signal_number)
            signal.raise_signal(signal_number)
        original(display, step)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingDisplay, "show", send_two_signals)
        assert train(*train_arguments(book, tmp_path / "run")) == 130
    stderr = capsys.readouterr().err.rstrip().splitlines()
    assert stderr[-1] == f"interrupted. Resume with: seqwise train --resume {tmp_path / 'run'}"
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-10"]
    assert train("--resume", tmp_path / "run") == 0
    assert read_newest_checkpoint(tmp_path / "run") == (30, True)


def test_the_first_signal_sets_a_flag_and_the_second_raises_an_exception():
    before = signal.getsignal(signal.SIGTERM)
    with defer_interrupts() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGTERM)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_metrics_that_cannot_be_written_are_one_message_and_the_run_can_be_resumed(book, tmp_path, capsys, monkeypatch):
    original = TrainingDisplay.show
    file = tmp_path / "run/metrics.jsonl"

    def fill_the_disk(display, step):
        original(display, step)
        if step.number == 15:
            file.rename(tmp_path / "metrics-so-far")
            file.symlink_to("/dev/full")

    with monkeypatch.context() as patch:
        patch.setattr(TrainingDisplay, "show", fill_the_disk)
        assert train(*train_arguments(book, tmp_path / "run")) == 1
    stderr = capsys.readouterr().err
    assert stderr.count("error: ") == 1
    assert f"error: {file}: cannot write: the disk is full.\nMake room there. What was saved before is" in stderr
    (tmp_path / "metrics-so-far").rename(file)
    assert train("--resume", tmp_path / "run") == 0
    assert train(*train_arguments(book, tmp_path / "whole")) == 0
    assert logged_steps(tmp_path / "run") == logged_steps(tmp_path / "whole")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]


def test_a_stop_before_the_first_validation_saves_the_weights(book, tmp_path):
    """Later validations replace them by better weights."""

    def stop(step: Step) -> None:
        if step.number == 2:
            signal.raise_signal(signal.SIGINT)

    small = {"network": {"width": 8}, "training": {"batch_size": 4, "validate_every": 20}, "data": {"window": 16}}
    stopped = seqwise.train(book, out=tmp_path / "run", settings=small, budget=f"{64 * 30}-tokens", on_step=stop)
    assert read_newest_checkpoint(tmp_path / "run") == (3, True)
    assert "".join(stopped.predict("the", max_length=5))
    first = stopped.run.load_weights()
    assert train("--resume", tmp_path / "run") == 0
    assert any(not torch.equal(first[name], tensor) for name, tensor in stopped.run.load_weights().items())


def test_a_curve_that_cannot_be_saved_does_not_prevent_the_checkpoint(book, tmp_path, capsys, monkeypatch):
    original = TrainingDisplay.show

    def block_the_curve(display, step):
        original(display, step)
        (tmp_path / "run/curve.svg").mkdir(exist_ok=True)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingDisplay, "show", block_the_curve)
        assert train(*train_arguments(book, tmp_path / "run", "--training.validate-every", "100")) == 1
    stderr = capsys.readouterr().err
    assert f"error: {tmp_path / 'run/curve.svg'}: cannot write" in stderr
    assert f"Fix the cause, then resume with: seqwise train --resume {tmp_path / 'run'}" in stderr
    assert read_newest_checkpoint(tmp_path / "run") == (10, True)


def test_a_resumed_run_removes_damaged_and_unfinished_checkpoints(book, tmp_path, capsys):
    assert train(*train_arguments(book, tmp_path / "run")) == 0
    checkpoints = tmp_path / "run/checkpoints"
    for name in ("step-30", "step-99"):
        (checkpoints / name).mkdir(exist_ok=True)
        (checkpoints / name / "manifest.json").write_text("{")
    (checkpoints / ".step-25.writing").mkdir()
    (tmp_path / "run/README.md").unlink()
    assert train("--resume", tmp_path / "run") == 0
    stderr = capsys.readouterr().err
    assert stderr.count("is damaged (no readable manifest)") == 2
    assert "resuming at step 20." in stderr
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-20", "step-30"]
    assert "updates" in (tmp_path / "run/README.md").read_text()


def test_an_outdated_model_card_is_written_again(book, tmp_path):
    assert train(*train_arguments(book, tmp_path / "run")) == 0
    card = (tmp_path / "run/README.md").read_text()
    (tmp_path / "run/README.md").write_text("old")
    assert train("--resume", tmp_path / "run") == 0
    assert (tmp_path / "run/README.md").read_text() == card


@pytest.mark.parametrize(("seed", "status"), [(2**63 - 1, 0), (2**63, 2)])
def test_the_largest_seed_works_and_a_larger_one_is_rejected(book, tmp_path, seed, status):
    assert train(*train_arguments(book, tmp_path / "run", "--seed", str(seed), "--budget", "64-tokens")) == status


def test_a_batch_size_chosen_by_rule_is_divisible_by_the_number_of_processes(book, tmp_path):
    settings = parse_settings({"text": {"tokenizer": "characters"}, "device": "cpu"})
    run, _ = create_run(str(book), settings, tmp_path / "run", processes=3)
    assert run.settings.training.batch_size == 18


def test_an_ngram_run_has_one_step(book, tmp_path):
    steps: list[Step] = []
    trained_model = seqwise.train(book, out=tmp_path / "run", model="ngram", on_step=steps.append)
    assert [(step.number, step.ended) for step in steps] == [(1, "all n-grams are counted")]
    assert steps[0].validation == trained_model.run.metrics()[0]["validation"]


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_counting_at_once(book, tmp_path, capsys, monkeypatch, signal_number):
    def fit(task, model):
        signal.raise_signal(signal_number)
        raise AssertionError("still counting")

    monkeypatch.setattr("seqwise.tasks.language.task.Language.fit", fit)
    assert train(book, "--model", "ngram", "--text.tokenizer", "characters", "--out", tmp_path / "run") == 130
    stderr = capsys.readouterr().err
    assert f"interrupted. Resume with: seqwise train --resume {tmp_path / 'run'}" in stderr


def test_an_ngram_run_that_was_killed_while_counting_counts_again(book, tmp_path, capsys, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    arguments = [book, "--model", "ngram", "--text.tokenizer", "characters", "--out", tmp_path / "run"]
    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", interrupt)
        assert train(*arguments) == 130
    assert f"interrupted. Resume with: seqwise train --resume {tmp_path / 'run'}" in capsys.readouterr().err
    for _ in range(2):
        assert train("--resume", tmp_path / "run") == 0
        assert logged_steps(tmp_path / "run") == [1]
    stderr = capsys.readouterr().err
    assert stderr.count("valid ppl") == 1
    assert stderr.count("this run is already complete.") == 1
    assert train(*arguments[:-1], tmp_path / "whole") == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]
