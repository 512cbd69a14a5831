"""Checks of the curve of a run, by the rules of `seqwise.training`, and of its progress."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from seqwise.budget import Budget, has_reached_max_epochs
from seqwise.lens.health_checks.evidence import CheckResult, RunEvidence, to_sentence
from seqwise.locks import find_owner
from seqwise.page.figures import Finding
from seqwise.training.checkpoints import get_resume_command
from seqwise.training.health_curve_rules import CURVE_RULES
from seqwise.training.health_rules import MIN_UPDATES, RULES, Diagnosis

MAX_DROPOUT = 0.5  # that is suggested
NO_CURVE = "the model is fitted in one pass and has no curve"
TOO_HIGH_RATIO, TOO_LOW_RATIO = 0.1, 1e-7  # of an update to the weights of a layer; usual are 1e-4 to 1e-2


def check_progress(evidence: RunEvidence) -> CheckResult:
    """Notes a run that has not ended: it is training, or was interrupted."""
    curve, run = evidence.curve, evidence.trained.run
    if curve.ended:
        return []
    is_trained = find_owner(run.folder) is not None  # now, by another process
    command = f"seqwise inspect {run.folder} --view training --watch" if is_trained else get_resume_command(run.folder)
    if not len(curve.steps):
        return [Finding(text="The run has no logged update yet.", severity="note", command=command)]
    state = "is still being trained" if is_trained else "has not ended"
    return [
        Finding(
            text=f"The run {state}: {curve.progress:.0%} of its budget is spent.",
            severity="note",
            evidence=f"last logged update {curve.num_updates:,}; the checks judge what there is so far",
            command=command,
        )
    ]


def check_curve(evidence: RunEvidence) -> CheckResult:
    """Applies the rules of the curve: learning rate, stuck loss, gradients, overfitting, budget."""
    if not evidence.has_gradients:
        return NO_CURVE
    if len(evidence.curve.steps) < 2:
        return "there are too few logged updates"
    found = [rule(evidence.curve, evidence.properties) for rule in (*RULES, *CURVE_RULES)]
    diagnoses = [diagnosis for diagnosis in found if diagnosis is not None]
    if any(diagnosis.rule in ("divergence", "low learning rate") for diagnosis in diagnoses):
        consequences = ("small budget", "rising training loss", "loss spikes")
        diagnoses = [diagnosis for diagnosis in diagnoses if diagnosis.rule not in consequences]
    return [to_finding(evidence, diagnosis) for diagnosis in diagnoses]


def to_finding(evidence: RunEvidence, diagnosis: Diagnosis) -> Finding:
    """Returns a diagnosis with the command that tries its suggestion."""
    command = evidence.suggest_training(diagnosis.settings) if diagnosis.settings else ""
    if diagnosis.rule == "overfitting":
        network = evidence.trained.settings.network
        can_raise = network.dropout < MAX_DROPOUT
        change = {"network.dropout": MAX_DROPOUT} if can_raise else {"network.width": max(1, network.width // 2)}
        command = evidence.suggest_training(change)
    elif diagnosis.rule == "small budget":
        command = suggest_longer_training(evidence)
    return Finding(
        text=to_sentence(diagnosis.text),
        severity=diagnosis.severity,
        evidence=diagnosis.evidence,
        command=command,
    )


def suggest_longer_training(evidence: RunEvidence) -> str:
    """Returns the command that resumes the run with a larger budget, or trains again with a larger `max_epochs`."""
    settings = evidence.trained.settings
    if has_reached_max_epochs(evidence.curve.ended):
        return evidence.suggest_training({"training.max_epochs": 4 * settings.training.max_epochs})
    budget = Budget.parse(settings.budget)
    larger = format_budget(replace(budget, amount=4 * budget.amount))
    return f"{get_resume_command(evidence.trained.run.folder)} --budget {larger}"


def format_budget(budget: Budget) -> str:
    """Returns a budget as `--budget` takes it."""
    if budget.unit == "seconds":
        return f"{math.ceil(budget.amount)}s"
    return f"{budget.amount:.10g}-{budget.unit}"


def check_improvement(evidence: RunEvidence) -> CheckResult:
    """Compares the validation loss with the entropy of the targets' frequencies: it must be 1 % below it.

    If no validation was, it is a problem after MIN_UPDATES; before, a note. If only that of the saved weights is not,
    it is a warning: they were chosen by another metric, and their probabilities are worse than the frequencies.
    """
    entropy = evidence.properties.validation_entropy or evidence.properties.entropy
    losses = [loss for _, loss in evidence.curve.validation_losses]
    if entropy is None or not losses:
        return "the entropy of the targets' frequencies or the validation loss is not known"
    best, name = min(losses), evidence.properties.target_name
    frequencies = f"entropy of the {name} frequencies {entropy:.3f} nats"
    comparison = f"best validation loss {best:.3f}, {frequencies}"
    if best >= 0.99 * entropy:
        return [
            Finding(
                text=f"The model has learned nothing beyond the frequencies of the {name}s.",
                severity="problem" if evidence.curve.num_updates >= MIN_UPDATES else "note",
                evidence=comparison,
                command=evidence.suggest_view("gradients" if evidence.is_recurrent else "training"),
            )
        ]
    step, metrics = evidence.curve.saved or (0, {"loss": best})
    saved = metrics["loss"]
    comparison = f"validation loss {saved:.3f} of the saved weights (update {step:,}), {frequencies}"
    if not saved < 0.99 * entropy:
        text = f"The saved weights are overconfident: their validation loss is above that of the {name} frequencies."
        return [Finding(text=text, severity="warning", evidence=comparison, command=evidence.suggest_view("errors"))]
    text = f"The model uses its input: its validation loss is {1 - saved / entropy:.0%} below that of the frequencies."
    return [Finding(text=text, severity="good", evidence=comparison)]


def check_watched_updates(evidence: RunEvidence) -> CheckResult:
    """Reports layers whose recorded updates are above a tenth of their weights, or below a ten-millionth.

    The median over the second half of the recorded steps counts.
    """
    if not evidence.watch:
        return "the run was not trained with --training.watch"
    ratios: dict[str, list[float]] = {}
    for row in evidence.watch[len(evidence.watch) // 2 :]:
        for layer, values in row.get("layers", {}).items():
            ratios.setdefault(layer, []).append(float(values.get("update_ratio") or 0.0))
    medians = {layer: float(np.median(values)) for layer, values in ratios.items()}
    rate = evidence.trained.settings.training.learning_rate
    findings = []
    for is_wrong, word, factor in (
        (lambda ratio: ratio > TOO_HIGH_RATIO, "high", 1 / 3),
        (lambda ratio: 0 < ratio < TOO_LOW_RATIO, "low", 10.0),
    ):
        layers = [layer for layer, ratio in medians.items() if is_wrong(ratio)]
        if layers:
            findings.append(
                Finding(
                    text=f"The learning rate {rate:g} is too {word} for {len(layers)} of {len(medians)} layers.",
                    severity="warning",
                    evidence=f"update / weights of {layers[0]}: {medians[layers[0]]:.1e}; usual are 1e-4 to 1e-2",
                    command=evidence.suggest_training({"training.learning_rate": f"{rate * factor:.1g}"}),
                )
            )
    return findings
