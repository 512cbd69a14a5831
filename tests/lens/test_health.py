"""`health`: deliberately broken runs are recognised, each by its cause; healthy ones have no problem."""

from __future__ import annotations

import json
import random
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from used_settings import keep_used

import seqwise
from seqwise.budget import Budget
from seqwise.lens import health
from seqwise.lens.health_checks import data as data_checks
from seqwise.lens.health_checks import interior
from seqwise.lens.health_checks.curves import suggest_longer_training
from seqwise.lens.health_checks.evidence import RunEvidence
from seqwise.locks import lock_folder
from seqwise.training.api import TrainedModel
from seqwise.training.create import create_run
from seqwise.training.run import Run
from seqwise.training.training_run import open_training

TINY_LANGUAGE = {
    "task": "language",
    "text.tokenizer": "words",
    "network.width": 8,
    "network.depth": 1,
    "data.window": 8,
    "training.batch_size": 4,
    "training.schedule": "constant",
    "training.validate_every": 100_000,  # only at the end
    "device": "cpu",
}
TINY_LABELS = {
    "task": "classify",
    "network.width": 8,
    "network.embedding": 8,
    "training.batch_size": 4,
    "recurrent.bidirectional": False,
    "device": "cpu",
}
OPINIONS = {"good": ["good", "lovely", "bright", "fine"], "bad": ["bad", "dull", "empty", "poor"]}


def write_opinions(path: Path, count: int, label=None, copies: int = 1, num_words: int = 4) -> str:
    """Writes texts whose words determine the label, unless `label` draws it from a random state."""
    state, lines = random.Random(0), []
    for number in range(count):
        kind = state.choice(sorted(OPINIONS))
        text = " ".join(state.choices(OPINIONS[kind], k=num_words))
        name = f"film {number}" if label else "film"  # a name lets a model memorise the label
        lines.append(f"{name} {text}\t{kind if label is None else label(state)}")
    path.write_text("\n".join(lines * copies) + "\n", encoding="utf-8")
    return str(path)


def train(data: str, folder: Path, settings: dict, model: str = "lstm", **overrides) -> tuple[TrainedModel, list[str]]:
    """Returns a trained run and the notes that it showed."""
    notes: list[str] = []
    trained = seqwise.train(
        data,
        model=model,
        settings={**settings, **overrides},
        out=folder / "run",
        on_step=lambda step: notes.extend(step.notes),
    )
    return trained, notes


def list_findings(trained: TrainedModel, severity: str = "problem warning note", **options) -> list[str]:
    (values,) = health(trained, **options).data.values()
    return [each["text"] for each in values["findings"] if each["severity"] in severity]


def has(texts: list[str], part: str) -> bool:
    return any(part in text for text in texts)


def break_weights(trained: TrainedModel, change) -> TrainedModel:
    """Returns the run with changed weights; `change` gets the name and the tensor of each."""
    path = trained.run.folder / "model.safetensors"
    weights = load_file(path)
    for name, tensor in weights.items():
        change(name, tensor)
    save_file(weights, path)
    return seqwise.load(trained.run.folder, device="cpu")


# Broken runs


@pytest.mark.slow
def test_a_rate_a_thousand_times_too_high_diverges(book, tmp_path):
    trained, notes = train(
        str(book), tmp_path, TINY_LANGUAGE, "rnn", budget="8k-tokens", **{"training.learning_rate": 5.0}
    )
    assert [note.split(" (")[0] for note in notes] == ["training diverges at the learning rate 5"]
    assert notes[0].endswith("try --training.learning-rate 0.5")
    first = next(iter(health(trained).data.values()))["findings"][0]
    assert first["text"].startswith("Training diverges at the learning rate 5")
    assert first["command"].endswith("config.yaml --training.learning-rate 0.5")


@pytest.mark.slow
def test_a_rate_of_1e_7_is_too_low(book, tmp_path):
    trained, notes = train(str(book), tmp_path, TINY_LANGUAGE, budget="12k-tokens", **{"training.learning_rate": 1e-7})
    assert len(notes) == 1
    assert "the learning rate 1e-07 is too low: try --training.learning-rate 0.0" in notes[0]
    assert has(list_findings(trained, "problem"), "is too low")
    assert not has(list_findings(trained), "stayed at the entropy"), "the cause is named, not the consequence"


@pytest.mark.slow
def test_a_high_rate_leaves_the_loss_at_the_entropy_of_the_frequencies(book, tmp_path):
    settings = {**TINY_LANGUAGE, "network.depth": 2, "training.learning_rate": 1.0}
    trained, notes = train(str(book), tmp_path, settings, budget="40k-tokens")
    assert len(notes) == 1
    assert notes[0].startswith("the loss has stayed at the entropy of the token frequencies (2.92 nats) for 1,")
    assert has(list_findings(trained, "problem"), "The loss has stayed at the entropy of the token frequencies")
    assert has(list_findings(trained, "problem", quick=True), "The loss has stayed at the entropy")


@pytest.mark.slow
def test_shuffled_labels_teach_nothing(tmp_path):
    data = write_opinions(tmp_path / "data.tsv", 240, label=lambda state: state.choice("ab"))
    settings = {**TINY_LABELS, "training.patience": 100}
    trained, _ = train(data, tmp_path, settings, budget="12-epochs", **{"data.valid_fraction": 0.25})
    assert has(list_findings(trained, "problem"), "nothing beyond the frequencies of the labels")


@pytest.mark.slow
def test_a_classifier_that_never_leaves_the_majority_class_is_reported(tmp_path):
    data = write_opinions(tmp_path / "data.tsv", 200, label=lambda state: "rare" if state.random() < 0.2 else "usual")
    settings = {**TINY_LABELS, "network.dropout": 0.5, "training.patience": 100, "training.weight_decay": 3.0}
    trained, notes = train(data, tmp_path, settings, budget="25-epochs", **{"training.learning_rate": 0.003})
    assert has(notes, "the model always predicts the same label: try --training.learning-rate 0.001")
    assert has(list_findings(trained, "problem"), "The model always predicts the same label.")


@pytest.mark.slow
def test_gradients_explode_in_an_rnn_with_a_large_spectral_radius(tmp_path):
    settings = {**TINY_LABELS, "recurrent.activation": "identity", "training.clip": "none", "classify.pooling": "last"}
    settings |= {"training.learning_rate": 1e-6, "model": "rnn", "budget": "3-epochs", "training.ema": 0.0}
    data = write_opinions(tmp_path / "data.tsv", 120, num_words=40)
    run, task = create_run(data, keep_used({}, **nest(settings)), tmp_path / "run")
    training = open_training(run, task=task)
    with torch.no_grad():
        for name, parameter in training.model.named_parameters():
            if name.endswith("weight_hidden"):
                parameter.copy_(1.5 * torch.eye(len(parameter)))
    notes = [note for step in training.steps() for note in step.notes]
    assert len(notes) == 1
    assert notes[0].startswith("the gradients explode")
    assert notes[0].endswith("try --training.clip norm")
    findings = list_findings(TrainedModel(run, "cpu"))
    assert has(findings, "The gradients explode")
    assert has(findings, "Gradients through time explode in encoder, layer 1")


def nest(settings: dict) -> dict:
    """Returns settings by section."""
    nested: dict = {}
    for name, value in settings.items():
        section, _, field = name.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[field] = value
    return nested


@pytest.mark.slow
def test_a_tiny_training_set_is_memorised(tmp_path):
    data = write_opinions(tmp_path / "data.tsv", 60, label=lambda state: state.choice("ab"))
    settings = {**TINY_LABELS, "network.dropout": 0.0, "classify.word_dropout": 0.0, "training.patience": 100}
    settings |= {"training.ema": 0.0}
    trained, notes = train(data, tmp_path, settings, budget="20-epochs", **{"data.valid_fraction": 0.4})
    findings = list_findings(trained, "warning")
    assert has(findings, "The model overfits: since update")
    assert notes == [], "it is not certain during training"


def test_dead_units_and_layers_without_gradient_are_found(book, tmp_path):
    trained, _ = train(
        str(book), tmp_path, TINY_LANGUAGE, "rnn", budget="300-tokens", **{"recurrent.activation": "relu"}
    )

    def push_below_zero(name: str, tensor: torch.Tensor) -> None:
        if name.endswith("bias") and tensor.shape == (8,):
            tensor.fill_(-50.0)

    findings = list_findings(break_weights(trained, push_below_zero), "problem")
    assert has(findings, "100% of the units of layer 1 are dead")
    assert has(findings, "No gradient reaches 2 of 2 layers")


def test_saturated_gates_are_found(book, tmp_path):
    trained, _ = train(str(book), tmp_path, TINY_LANGUAGE, budget="300-tokens")
    assert not has(list_findings(trained), "saturated")

    def close_input_gate(name: str, tensor: torch.Tensor) -> None:
        if name.endswith("lstm.bias"):
            tensor[:8] = -20.0  # i, f, g, o

    broken = break_weights(trained, close_input_gate)
    (finding,) = [each for each in list_findings(broken) if "saturated" in each]
    assert finding.startswith("The input gate of layer 1 is saturated")


@pytest.mark.parametrize("label", ["layer 1", "layer 2, backward", "encoder, layer 1, forward"])
def test_the_command_of_a_saturated_gate_names_its_layer(small_run, monkeypatch, label: str):
    evidence = RunEvidence(small_run("language", "lstm"), quick=True)
    monkeypatch.setattr(interior, "read_watched_gates", lambda evidence: {(label, "forget"): (0.0, 0.95)})
    monkeypatch.setattr(RunEvidence, "watch", [{}])
    (finding,) = interior.check_gates(evidence)
    assert finding.command.endswith(f"--view gates --layer {shlex.quote(label)}")


def test_a_head_without_output_is_dead(book, tmp_path):
    settings = {**TINY_LANGUAGE, "transformer.heads": 4}
    trained, _ = train(str(book), tmp_path, settings, "transformer", budget="300-tokens")
    assert not has(list_findings(trained), "attention heads are dead")

    def silence_second_head(name: str, tensor: torch.Tensor) -> None:
        if name.endswith("attention.out_proj.weight"):
            tensor[:, 2:4] = 0.0

    findings = list_findings(break_weights(trained, silence_second_head))
    assert has(findings, "1 of 4 attention heads are dead")


def test_duplicates_are_counted(tmp_path):
    data = write_opinions(tmp_path / "data.tsv", 30, copies=4, num_words=12)
    trained, _ = train(data, tmp_path, TINY_LABELS, budget="1-epochs")
    findings = list_findings(trained)
    assert has(findings, "of the training texts are duplicates")


@pytest.mark.slow
def test_swapped_labels_are_found(tmp_path):
    path = tmp_path / "data.tsv"
    lines = Path(write_opinions(path, 300, num_words=12)).read_text(encoding="utf-8").splitlines()
    swapped = [20, 90, 200]
    for index in swapped:
        text, label = lines[index].split("\t")
        lines[index] = f"{text}\t{'bad' if label == 'good' else 'good'}"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    trained, _ = train(str(path), tmp_path, TINY_LABELS, budget="5-epochs")
    view = health(trained)
    assert has(list_findings(trained), "3 of 285 examples look mislabelled"), "of train and valid"
    table = next(figure for figure in view.figures if figure.title.startswith("Labels that are probably wrong"))
    assert {row[0] for row in table.rows} == {lines[index].split("\t")[0] for index in swapped}


def test_a_budget_of_a_few_updates_is_too_small(small_run):
    trained = small_run("language", "gru")
    (finding,) = [each for each in list_findings(trained) if "budget" in each]
    assert finding.startswith("The budget is far too small: it was spent after")


def test_the_command_of_a_small_budget_enlarges_what_has_ended_the_training(small_run, monkeypatch):
    trained = small_run("classify", "gru")
    evidence = RunEvidence(trained)
    assert evidence.curve.ended == "the budget is spent"
    assert "--resume" in suggest_longer_training(evidence)
    monkeypatch.setattr(trained.settings.training, "max_epochs", 2)
    assert "--resume" in suggest_longer_training(evidence)  # the time was over in the last epoch
    evidence.curve = replace(evidence.curve, ended=Budget.parse("1h", max_epochs=2).explain_end(1.0, 100, 2))
    assert suggest_longer_training(evidence).endswith("--training.max-epochs 8")


def test_a_maximum_of_a_few_updates_is_too_small_and_not_the_budget(tmp_path):
    data = write_opinions(tmp_path / "data.tsv", 30, num_words=12)
    trained, _ = train(data, tmp_path, TINY_LABELS, budget="1h", **{"training.max_epochs": 2})
    (values,) = health(trained).data.values()
    (finding,) = [each for each in values["findings"] if "far too small" in each["text"]]
    assert finding["text"].startswith("The maximum of epochs is far too small: it was reached after ")
    assert finding["command"].startswith(f"seqwise train {data} --config ")
    assert finding["command"].endswith("--training.max-epochs 8")


@pytest.mark.slow
def test_a_horizon_much_shorter_than_the_context_is_noted(book, tmp_path):
    trained, _ = train(str(book), tmp_path, TINY_LANGUAGE, budget="8k-tokens", **{"training.learning_rate": 0.03})
    assert has(list_findings(trained, "note"), "The model uses little of its context: 90 % of the benefit comes from")


# The view


@pytest.mark.parametrize("task", ["language", "masked", "classify", "tag", "translate", "caption", "forecast"])
@pytest.mark.parametrize("family", ["gru", "transformer"])
def test_every_task_has_findings_and_changes_nothing(small_run, task, family):
    trained = small_run(task, family)
    before = {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}
    random_state = torch.random.get_rng_state()
    view = health(trained)
    (values,) = view.data.values()
    assert values["findings"]
    assert {*values["checked"], *values["skipped"]} >= {"saturated gates", "duplicates"}
    assert "Findings: " in str(view)
    assert all(torch.equal(tensor, trained.model.state_dict()[name]) for name, tensor in before.items())
    assert torch.equal(random_state, torch.random.get_rng_state())
    assert all(parameter.grad is None for parameter in trained.model.parameters())
    problems = [each for each in values["findings"] if each["severity"] == "problem"]
    assert problems == [], "a short training is no problem"


def test_an_ngram_model_has_few_checks(book, tmp_path):
    trained = seqwise.train(str(book), model="ngram", task="language", out=tmp_path / "run")
    (values,) = health(trained).data.values()
    assert values["skipped"]["learning rate, stuck loss, exploding gradients, overfitting, budget"].startswith(
        "the model"
    )
    assert [each["severity"] for each in values["findings"] if each["severity"] == "problem"] == []


def test_findings_of_several_runs_are_one_page(small_run, tmp_path):
    runs = [small_run("language", "gru"), small_run("language", "lstm")]
    view = health(runs, quick=True)
    assert len(view.data) == 2
    assert ["gru" in name for name in view.data] == [True, False]
    assert len(view.summary) == 2
    assert view.save(tmp_path / "health.html").stat().st_size < 300_000


def test_quick_reads_neither_data_nor_model(small_run, monkeypatch):
    trained = small_run("classify", "lstm")

    def fail(*arguments, **keywords):
        raise AssertionError("the data was read")

    monkeypatch.setattr("seqwise.lens.health_checks.evidence.open_task", fail)
    (values,) = health(trained, quick=True).data.values()
    assert "which a quick check does not read" in values["skipped"]["duplicates"]


def test_recorded_gates_and_updates_are_read(small_run, monkeypatch):
    trained = small_run("language", "lstm")
    row = {
        "step": 10,
        "tokens": 100,
        "layers": {"head": {"gradient_norm": 1.0, "weight_norm": 1.0, "update_ratio": 0.5}},
        "gates": {"layer 1": {"forget": [0.0, 0.99]}},
        "dead_units": {"layer 1": 0.75},
    }
    watch = trained.run.folder / "watch.jsonl"
    watch.write_text(json.dumps(row) + '\n{"step": 20, "gat', encoding="utf-8")
    try:
        findings = list_findings(trained, quick=True)
    finally:
        watch.unlink()
    assert has(findings, "The forget gate of layer 1 is saturated")
    assert has(findings, "75% of the units of layer 1 are dead")
    assert has(findings, "is too high for 1 of 1 layers")


def test_a_run_without_weights_or_data_is_judged_by_its_curve(book, tmp_path):
    data = tmp_path / "book.txt"
    data.write_bytes(book.read_bytes())
    trained, _ = train(str(data), tmp_path, TINY_LANGUAGE, budget="300-tokens")
    data.unlink()
    (trained.run.folder / "model.safetensors").unlink()
    (values,) = health(TrainedModel(Run.open(trained.run.folder), "cpu")).data.values()
    assert values["skipped"]["dead units"] == "the run has no weights yet"
    assert "cannot be read" in values["skipped"]["duplicates"]
    assert values["entropy"] == pytest.approx(2.917, abs=0.01)


def test_an_interrupted_run_is_noted(book, tmp_path):
    run, task = create_run(str(book), keep_used({}, **nest({**TINY_LANGUAGE, "budget": "3k-tokens"})), tmp_path / "run")
    training = open_training(run, task=task)
    steps: list[int] = []
    for step in training.steps(lambda: len(steps) >= 20):
        steps.append(step.number)

    def find(text: str) -> dict:
        findings = next(iter(health(TrainedModel(run, "cpu")).data.values()))["findings"]
        (finding,) = [each for each in findings if each["text"].startswith(text)]
        return finding

    assert "seqwise train --resume" in find("The run has not ended")["command"]
    with lock_folder(run.folder):  # a process that trains the run, and must not be disturbed
        assert "--view training --watch" in find("The run is still being trained")["command"]


def test_labels_are_scored_once_for_the_finding_and_the_table(small_run, monkeypatch):
    splits: list[str] = []
    original = data_checks.score_labels

    def score(evidence: RunEvidence, split: str) -> list:
        splits.append(split)
        return original(evidence, split)

    monkeypatch.setattr(data_checks, "score_labels", score)
    monkeypatch.setattr(data_checks, "MIN_ACCURACY", 0.0)
    monkeypatch.setattr(data_checks, "MAX_CONFIDENT_ERRORS", 1.0)
    health(small_run("classify", "gru"))
    assert splits == ["valid", "train"]
