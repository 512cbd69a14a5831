"""`seqwise train`, called in the test process: how a run ends, and which files it leaves."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from short_runs import BATCH_SIZE, OPTIONS, TOKENS_PER_STEP, WINDOW, train

import seqwise
from seqwise.cli.progress import TrainingDisplay
from seqwise.config import parse_settings
from seqwise.signals import defer_interrupts
from seqwise.training import training_run
from seqwise.training.checkpoints import load_newest_checkpoint
from seqwise.training.create import create_run
from seqwise.training.loop import Step
from seqwise.training.run import Run

NUM_STEPS = 30
BUDGET = f"{NUM_STEPS * TOKENS_PER_STEP}-tokens"


def list_arguments(book: Path, folder: Path, *options: str) -> list[str | Path]:
    """Returns the arguments of a run of 30 steps with a checkpoint after every tenth and quick validations."""
    intervals = ["--training.save-every", "10", "--data.valid-fraction", "0.005"]
    return [book, *OPTIONS, "--budget", BUDGET, *intervals, *options, "--out", folder]


def list_logged_steps(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_resuming_a_finished_run_changes_nothing(book, tmp_path, capsys):
    assert train(*list_arguments(book, tmp_path / "run")) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    capsys.readouterr()
    assert train("--resume", tmp_path / "run") == 0
    stderr = capsys.readouterr().err
    assert "this run is already complete: the budget is spent." in stderr
    assert "done:" not in stderr
    assert "resuming at step" not in stderr
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("has_kernels", [True, False])
def test_env_json_records_the_backend_of_each_recurrent_layer(book, tmp_path, monkeypatch, has_kernels):
    if not has_kernels:
        monkeypatch.setattr("seqwise.layers.scan.get_unavailable_reason", lambda device: "disabled by this test")
    assert (
        train(*list_arguments(book, tmp_path / "run", "--model", "gru", "--network.depth", "2", "--device", "cpu")) == 0
    )
    environment = json.loads((tmp_path / "run" / "env.json").read_text())
    backend = "compiled" if has_kernels else "aten"
    assert environment["recurrent_layers"] == {"backbone.stack.layer.0": backend, "backbone.stack.layer.1": backend}
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


class CheckpointSummary(NamedTuple):
    step: int
    is_finite: bool  # all weights are


def summarise_newest_checkpoint(folder: Path) -> CheckpointSummary:
    warnings: list[str] = []
    checkpoint = load_newest_checkpoint(folder / "checkpoints", warnings.append)
    assert checkpoint is not None
    assert warnings == []
    weights = [tensor for name, tensor in checkpoint.tensors.items() if name.startswith("model.")]
    step = checkpoint.state["place"]["step"]  # "place" is the progress of training
    return CheckpointSummary(step, all(bool(tensor.isfinite().all()) for tensor in weights))


DIVERGING_OPTIONS = ["--training.learning-rate", "1e30", "--training.clip", "none", "--training.warmup", "0"]


def test_a_non_finite_loss_stops_before_the_update_and_names_step_and_samples(book, tmp_path, capsys):
    """At a rate of 1e30 the first update leaves huge weights, which are saved, and the second infinite ones.

    With a checkpoint at every step, these infinite weights are an error of their own (next test). Resumed with fewer
    checkpoints, training reaches the loss of step 3, which is not finite.
    """
    options = [*DIVERGING_OPTIONS, "--training.save-every", "1", "--data.valid-fraction", "0.05"]
    assert train(*list_arguments(book, tmp_path / "run", *options)) == 1
    capsys.readouterr()
    assert summarise_newest_checkpoint(tmp_path / "run") == (1, True)
    settings = (tmp_path / "run/config.yaml").read_text()
    (tmp_path / "run/config.yaml").write_text(settings.replace("save_every: 1\n", "save_every: 10\n"))
    assert train("--resume", tmp_path / "run") == 1
    stderr = capsys.readouterr().err
    assert stderr.count("error: ") == 1
    assert (
        "at step 3, in the samples that begin at token 32, 14,066, 28,100, 42,134. The update was not made." in stderr
    )
    assert "The last good checkpoint is kept." in stderr
    assert summarise_newest_checkpoint(tmp_path / "run") == (1, True)


def test_weights_that_are_not_finite_are_never_saved(book, tmp_path, capsys):
    """An update overflows though its loss and gradient are finite: AdamW multiplies weights by 1 − 1e30 · 0.01."""
    assert train(*list_arguments(book, tmp_path / "run", *DIVERGING_OPTIONS, "--training.save-every", "1")) == 1
    stderr = capsys.readouterr().err
    assert stderr.count("error: ") == 1
    assert "the weights are no longer finite after step 2" in stderr
    assert summarise_newest_checkpoint(tmp_path / "run") == (1, True)


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
        assert train(*list_arguments(book, tmp_path / "run")) == 130
    stderr = capsys.readouterr().err.rstrip().splitlines()
    assert stderr[-1] == f"interrupted. Resume with: seqwise train --resume {tmp_path / 'run'}"
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-10"]
    assert train("--resume", tmp_path / "run") == 0
    assert summarise_newest_checkpoint(tmp_path / "run") == (30, True)


def test_the_first_signal_sets_a_flag_and_the_second_raises_an_exception():
    before = signal.getsignal(signal.SIGTERM)
    with defer_interrupts() as should_stop:
        assert not should_stop()
        signal.raise_signal(signal.SIGTERM)
        assert should_stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_an_error_while_writing_metrics_is_reported_and_the_run_can_be_resumed(book, tmp_path, capsys, monkeypatch):
    original = TrainingDisplay.show
    file = tmp_path / "run/metrics.jsonl"

    def fill_the_disk(display, step):
        original(display, step)
        if step.number == 15:
            file.rename(tmp_path / "metrics-so-far")
            file.symlink_to("/dev/full")

    with monkeypatch.context() as patch:
        patch.setattr(TrainingDisplay, "show", fill_the_disk)
        assert train(*list_arguments(book, tmp_path / "run")) == 1
    stderr = capsys.readouterr().err
    assert stderr.count("error: ") == 1
    assert f"error: {file}: cannot write: the disk is full.\nMake room there. The files that were saved" in stderr
    (tmp_path / "metrics-so-far").rename(file)
    assert train("--resume", tmp_path / "run") == 0
    assert train(*list_arguments(book, tmp_path / "uninterrupted")) == 0
    assert list_logged_steps(tmp_path / "run") == list_logged_steps(tmp_path / "uninterrupted")
    assert read_weights(tmp_path / "run") == read_weights(tmp_path / "uninterrupted")


def read_weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_stop_before_the_first_validation_saves_the_weights(book, tmp_path):
    """Later validations replace them by better weights."""

    def interrupt_at_step_2(step: Step) -> None:
        if step.number == 2:
            signal.raise_signal(signal.SIGINT)

    settings = {
        "network": {"width": 8},
        "training": {"batch_size": BATCH_SIZE, "validate_every": 20},
        "data": {"window": WINDOW},
    }
    stopped = seqwise.train(book, out=tmp_path / "run", settings=settings, budget=BUDGET, on_step=interrupt_at_step_2)
    # The step after the signal is the last.
    assert summarise_newest_checkpoint(tmp_path / "run") == (3, True)
    assert "".join(stopped.predict("the", max_length=5))
    weights_at_stop = stopped.run.read_weights()
    assert train("--resume", tmp_path / "run") == 0
    assert any(not torch.equal(weights_at_stop[name], tensor) for name, tensor in stopped.run.read_weights().items())


@pytest.mark.parametrize(
    ("large_model_bytes", "min_unsaved_seconds", "steps"),
    [(2**40, 60, [10, 20, 30]), (1, 60, [30]), (1, -1, [10, 20, 30])],
    ids=["small model", "large model", "large model after enough time"],
)
def test_validations_of_a_large_model_have_a_checkpoint_after_enough_time(
    book, tmp_path, monkeypatch, large_model_bytes, min_unsaved_seconds, steps
):
    saved_steps = []
    monkeypatch.setattr(training_run, "LARGE_MODEL_BYTES", large_model_bytes)
    monkeypatch.setattr(training_run, "MIN_UNSAVED_SECONDS", min_unsaved_seconds)
    monkeypatch.setattr(training_run, "save_checkpoint", lambda folder, step, snapshot: saved_steps.append(step))
    options = ["--training.validate-every", "10", "--data.valid-fraction", "0.005"]
    assert train(book, *OPTIONS, "--budget", BUDGET, *options, "--out", tmp_path / "run") == 0
    assert saved_steps == steps


def test_a_curve_that_cannot_be_saved_does_not_prevent_the_checkpoint(book, tmp_path, capsys, monkeypatch):
    original = TrainingDisplay.show

    def block_the_learning_curve(display, step):
        original(display, step)
        (tmp_path / "run/curve.svg").mkdir(exist_ok=True)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingDisplay, "show", block_the_learning_curve)
        assert train(*list_arguments(book, tmp_path / "run", "--training.validate-every", "100")) == 1
    stderr = capsys.readouterr().err
    assert f"error: {tmp_path / 'run/curve.svg'}: cannot write" in stderr
    assert f"Fix the cause, then resume with: seqwise train --resume {tmp_path / 'run'}" in stderr
    assert summarise_newest_checkpoint(tmp_path / "run") == (10, True)


def test_a_resumed_run_removes_damaged_and_unfinished_checkpoints(book, tmp_path, capsys):
    assert train(*list_arguments(book, tmp_path / "run")) == 0
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
    assert "- trained: " in (tmp_path / "run/README.md").read_text(), "the model card is written again"


def test_an_outdated_model_card_is_written_again(book, tmp_path):
    assert train(*list_arguments(book, tmp_path / "run")) == 0
    card = (tmp_path / "run/README.md").read_text()
    (tmp_path / "run/README.md").write_text("old")
    assert train("--resume", tmp_path / "run") == 0
    assert (tmp_path / "run/README.md").read_text() == card


@pytest.mark.parametrize(("seed", "status"), [(2**63 - 1, 0), (2**63, 2)])
def test_the_largest_seed_works_and_a_larger_one_is_rejected(book, tmp_path, seed, status):
    assert train(*list_arguments(book, tmp_path / "run", "--seed", str(seed), "--budget", "64-tokens")) == status


def test_a_batch_size_chosen_by_rule_is_divisible_by_the_number_of_processes(book, tmp_path):
    settings = parse_settings({"text": {"tokenizer": "characters"}, "device": "cpu"})
    run, _ = create_run(str(book), settings, tmp_path / "run", processes=3)
    assert run.settings.training.batch_size == 18  # the rule gives 16, the next multiple of 3 is 18


def test_an_ngram_run_has_one_step(book, tmp_path):
    steps: list[Step] = []
    trained_model = seqwise.train(book, out=tmp_path / "run", model="ngram", on_step=steps.append)
    assert [(step.number, step.ended) for step in steps] == [(1, "all n-grams are counted")]
    assert steps[0].validation == trained_model.run.read_metrics()[0]["validation"]


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_counting_of_n_grams_at_once(book, tmp_path, capsys, monkeypatch, signal_number):
    def fit(task, model):
        signal.raise_signal(signal_number)
        raise AssertionError("still counting")

    monkeypatch.setattr("seqwise.tasks.language.task.Language.fit", fit)
    assert train(book, "--model", "ngram", "--text.tokenizer", "characters", "--out", tmp_path / "run") == 130
    stderr = capsys.readouterr().err
    assert f"interrupted. Resume with: seqwise train --resume {tmp_path / 'run'}" in stderr


def test_an_ngram_run_that_was_interrupted_while_counting_counts_again(book, tmp_path, capsys, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    arguments = [book, "--model", "ngram", "--text.tokenizer", "characters", "--out", tmp_path / "run"]
    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", interrupt)
        assert train(*arguments) == 130
    assert f"interrupted. Resume with: seqwise train --resume {tmp_path / 'run'}" in capsys.readouterr().err
    for _ in range(2):
        assert train("--resume", tmp_path / "run") == 0
        assert list_logged_steps(tmp_path / "run") == [1]
    stderr = capsys.readouterr().err
    assert stderr.count("valid ppl") == 1
    assert stderr.count("this run is already complete: ") == 1
    assert train(*arguments[:-1], tmp_path / "uninterrupted") == 0
    assert read_weights(tmp_path / "run") == read_weights(tmp_path / "uninterrupted")
