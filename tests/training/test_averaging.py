"""The mean of the weights of the last validations; and killed runs with averages, cycles and partial shuffling."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from short_runs import OPTIONS, TOKENS_PER_STEP, train
from torch import nn

from seqwise.training.averaging import LastWeights
from seqwise.training.loop import Trainer
from seqwise.training.training_run import TrainingRun

NUM_STEPS = 24


def test_the_mean_is_of_the_last_weights_only():
    model = nn.Linear(1, 1)
    last_weights = LastWeights(model, 2)
    for value in (100.0, 1.0, 3.0):
        nn.init.constant_(model.weight, value)
        nn.init.constant_(model.bias, -value)
        last_weights.add()
    with last_weights.apply():
        assert (float(model.weight.detach()), float(model.bias.detach())) == (2.0, -2.0)
    assert (float(model.weight.detach()), float(model.bias.detach())) == (3.0, -3.0)


def test_last_weights_survive_a_checkpoint_and_incomplete_ones_are_refused():
    model = nn.Linear(2, 3)
    saved, restored = LastWeights(model, 3), LastWeights(model, 3)
    for _ in range(2):
        nn.init.normal_(model.weight)
        saved.add()
    tensors = saved.get_tensors()
    restored.check_tensors(tensors)
    restored.load_tensors(tensors)
    assert len(restored.weights) == 2
    for expected, actual in zip(saved.weights, restored.weights, strict=True):
        assert all(torch.equal(tensor, actual[name]) for name, tensor in expected.items())
    restored.check_tensors({})
    for wrong in (
        {name: tensor for name, tensor in tensors.items() if name != "1.bias"},
        tensors | {"2.weight": model.weight},
        tensors | {f"{index}.{name}": t for index in (2, 3) for name, t in model.named_parameters()},  # more than 3
    ):
        with pytest.raises(ValueError, match="incomplete"):
            restored.check_tensors(wrong)


def list_arguments(book: Path, folder: Path, *options: str) -> list[str | Path]:
    intervals = ["--training.save-every", "5", "--training.validate-every", "3", "--data.valid-fraction", "0.005"]
    return [book, *OPTIONS, "--budget", f"{NUM_STEPS * TOKENS_PER_STEP}-tokens", *intervals, *options, "--out", folder]


def kill_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ends training as a kill would: nothing is saved after the last checkpoint."""
    original = TrainingRun._log_step

    def log_step(training, each):
        if each.number == step:
            raise KeyboardInterrupt
        return original(training, each)

    monkeypatch.setattr(TrainingRun, "_log_step", log_step)


def read_validations(folder: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["validation"]["loss"] for row in rows if row.get("validation")}


@pytest.mark.parametrize(
    "options",
    [
        ["--training.average-last", "4", "--training.ema", "0.9", "--data.partial-shuffle",
         "--training.optimizer", "adam", "--training.beta1", "0.8", "--training.peak-beta1", "0.7",
         "--training.schedule", "one-cycle-flat"],
        pytest.param(["--training.average-last", "3", "--training.average-from", "0.4"], marks=pytest.mark.slow),
    ],
    ids=lambda options: " ".join(options),
)  # fmt: skip
def test_a_killed_run_ends_with_the_weights_of_an_uninterrupted_one(book, tmp_path, options):
    """Killed at step 14, after a validation at step 12: the newest checkpoint is that of step 10."""
    assert train(*list_arguments(book, tmp_path / "uninterrupted", *options)) == 0
    with pytest.MonkeyPatch.context() as patch:
        kill_after(patch, 14)
        assert train(*list_arguments(book, tmp_path / "killed", *options)) == 130
    assert train("--resume", tmp_path / "killed") == 0
    names = ["model.safetensors", f"checkpoints/step-{NUM_STEPS}/tensors.safetensors"]
    for name in names:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "uninterrupted" / name).read_bytes(), name
    assert read_validations(tmp_path / "killed") == read_validations(tmp_path / "uninterrupted")


def test_a_killed_run_ends_with_its_maximum_of_epochs(book, tmp_path):
    sizes = ["--training.batch-size", "16", "--data.window", "64", "--data.valid-fraction", "0.005"]
    limits = ["--budget", "1G-tokens", "--training.max-epochs", "1", "--training.save-every", "5"]
    arguments = [book, *OPTIONS[:4], *sizes, *limits]
    assert train(*arguments, "--out", tmp_path / "uninterrupted") == 0
    with pytest.MonkeyPatch.context() as patch:
        kill_after(patch, 14)
        assert train(*arguments, "--out", tmp_path / "killed") == 130
    assert train("--resume", tmp_path / "killed") == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("killed", "uninterrupted")]
    assert weights[0] == weights[1]
    assert read_validations(tmp_path / "killed") == read_validations(tmp_path / "uninterrupted")


def jump_between_validations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validates weights that lie on alternating sides of those of the optimiser."""
    original = Trainer.run_validation

    @torch.no_grad()
    def run_validation(loop, step):
        is_first, is_even = not loop.state.history, len(loop.state.history) % 2 == 0
        generator = torch.Generator().manual_seed(0)
        for parameter in loop.model.parameters():
            jump = torch.randn(parameter.shape, generator=generator)
            parameter.add_(jump if is_first else 2 * jump if is_even else -2 * jump)
        return original(loop, step)

    monkeypatch.setattr(Trainer, "run_validation", run_validation)


def test_the_mean_of_the_last_validations_is_saved_if_it_is_better(book, tmp_path, capsys, monkeypatch):
    jump_between_validations(monkeypatch)
    run = tmp_path / "run"
    assert train(*list_arguments(book, run, "--training.average-last", "4")) == 0
    stderr = capsys.readouterr().err
    assert "mean of the weights of the last 4 validations, compared with the best weights: better, and saved" in stderr
    assert "best weights: the mean of those of the last 4 validations\n" in stderr
    saved, checkpoint = load_file(run / "model.safetensors"), load_file(run / "checkpoints/step-24/tensors.safetensors")
    for name, tensor in saved.items():
        if f"last.0.{name}" in checkpoint:
            mean = torch.stack([checkpoint[f"last.{index}.{name}"] for index in range(4)]).mean(0)
            assert torch.equal(tensor, mean)
            assert torch.equal(checkpoint[f"last.3.{name}"], checkpoint[f"model.{name}"])  # validated at the last step
    summary = json.loads((run / "summary.json").read_text())
    assert summary["num_averaged"] == 4
    assert summary["validation"]["loss"] == read_validations(run)[24] == min(read_validations(run).values())
    assert "- weights: the mean of those of the last 4 validations" in (run / "README.md").read_text()
    # The single weights are the same as without the mean.
    assert train(*list_arguments(book, tmp_path / "single")) == 0
    single = read_validations(tmp_path / "single")
    assert {step: loss for step, loss in read_validations(run).items() if step < 24} == {
        step: loss for step, loss in single.items() if step < 24
    }
    assert read_validations(run)[24] < single[24]
    assert json.loads((tmp_path / "single/summary.json").read_text())["num_averaged"] == 0
    # Damaged ones are computed again.
    weights = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(weights[:-1])
    assert train("--resume", run) == 0
    assert (run / "model.safetensors").read_bytes() == weights


def test_a_mean_that_is_not_better_is_not_saved(book, tmp_path, capsys):
    """In the first updates the loss falls quickly: the mean with older weights is worse."""
    for folder, options in (("with", ["--training.average-last", "20"]), ("without", [])):
        arguments = list_arguments(book, tmp_path / folder, "--training.validate-every", "1", *options)
        assert train(*arguments, "--budget", f"{6 * TOKENS_PER_STEP}-tokens") == 0
    stderr = capsys.readouterr().err
    assert "mean of the weights of the last 6 validations" in stderr
    assert "not better, and not saved" in stderr
    assert (tmp_path / "with/model.safetensors").read_bytes() == (tmp_path / "without/model.safetensors").read_bytes()
    assert read_validations(tmp_path / "with") == read_validations(tmp_path / "without")
    assert json.loads((tmp_path / "with/summary.json").read_text())["num_averaged"] == 0
