"""`health`: reads a finished or running run and says what is wrong with it, with evidence and a command to try.

Each check is a small function in `health_checks/`, which states its rule and thresholds. The rules of the curve are
those that also report during training (`seqwise/training/health_rules.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.errors import check_type
from seqwise.lens.health_checks.answers import check_baselines, check_horizon, check_majority
from seqwise.lens.health_checks.curves import check_curve, check_improvement, check_progress, check_watched_updates
from seqwise.lens.health_checks.data import (
    NUM_SHOWN,
    check_duplicates,
    check_labels,
    check_warnings,
    find_suspicious_labels,
)
from seqwise.lens.health_checks.evidence import Check, RunEvidence
from seqwise.lens.health_checks.interior import (
    check_gates,
    check_heads,
    check_layer_gradients,
    check_time_gradients,
    check_units,
)
from seqwise.lens.subject import Subject, evaluation_mode, list_models, name_runs
from seqwise.lens.view import View
from seqwise.page.figures import Figure, Finding, Findings, LineChart, Reference, Series, Table
from seqwise.training.api import TrainedModel

# Check → what it looks for, in words.
CHECKS: dict[Check, str] = {
    check_progress: "interruption",
    check_curve: "learning rate, stuck loss, exploding gradients, overfitting, budget",
    check_improvement: "use of the input",
    check_watched_updates: "sizes of recorded updates",
    check_gates: "saturated gates",
    check_units: "dead units",
    check_heads: "dead attention heads",
    check_layer_gradients: "layers without gradient",
    check_time_gradients: "gradients through time",
    check_majority: "constant predictions",
    check_baselines: "simple baselines",
    check_horizon: "horizon",
    check_warnings: "warnings about the data",
    check_duplicates: "duplicates",
    check_labels: "wrong labels",
}
SEVERITIES = ("problem", "warning", "note", "good")


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    return None if subject.trained is not None else "it reads the folder of a run, not a module."


def health(models: Any, *, quick: bool = False, progress: ProgressCallback = no_progress) -> View:
    """Returns findings about one or several runs, the most severe first.

    models: a trained run, or several
    quick: read only the curve and `watch.jsonl`, neither the data nor the model
    progress: called with the number of checks made and their total

    `data`: per run `findings` (dictionaries of severity, text, evidence and command), `checked` (names of the checks
    made), `skipped` (check → why it was not made) and `entropy` (of the frequencies of the targets in nats, or None).
    """
    several = list_models(models)
    for model in several:
        check_type("models", model, TrainedModel, "a trained run (seqwise.load), or several")
    figures: list[Figure] = []
    summary, data = [], {}
    for number, (model, name) in enumerate(zip(several, name_runs(several))):
        evidence = RunEvidence(model, quick, name)

        def report(done: int, number: int = number) -> None:
            progress(number * len(CHECKS) + done, len(several) * len(CHECKS))

        with evaluation_mode(model.model) if evidence.has_weights and not quick else nullcontext():
            findings, skipped = run_checks(evidence, report)
        summary.append(summarize(evidence.name, findings))
        figures += draw_run(evidence, findings, skipped)
        data[evidence.name] = {
            "findings": [dict(vars(finding)) for finding in findings],
            "checked": [name for name in CHECKS.values() if name not in skipped],
            "skipped": skipped,
            "entropy": evidence.properties.entropy if evidence.has_gradients else None,
        }
    return View("health", "Health of the run" + "s" * (len(several) > 1), tuple(summary), tuple(figures), data)


def run_checks(evidence: RunEvidence, report: Callable[[int], None]) -> tuple[list[Finding], dict[str, str]]:
    """Returns the findings of all checks, the most severe first, and why the others were not made.

    `report` is called with the number of checks made.
    """
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    clean = []
    for number, (check, name) in enumerate(CHECKS.items(), start=1):
        result = check(evidence)
        if isinstance(result, str):
            skipped[name] = result
        elif result:
            findings += result
        else:
            clean.append(name)
        report(number)
    if clean:
        findings.append(Finding(text=f"Nothing found by the checks of {'; '.join(clean)}.", severity="good"))
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)), skipped


def summarize(name: str, findings: Sequence[Finding]) -> str:
    """Returns how many findings of each kind a run has, and the first of them."""
    counts = {kind: sum(finding.severity == kind for finding in findings) for kind in SEVERITIES[:3]}
    parts = [f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items() if count]
    if not counts["problem"] and not counts["warning"]:
        return f"{name}: no problem was found" + (f" ({parts[0]})." if parts else ".")
    return f"{name}: {', '.join(parts)}. {findings[0].text}"


def draw_run(evidence: RunEvidence, findings: Sequence[Finding], skipped: dict[str, str]) -> list[Figure]:
    """Returns the findings of a run, its curve, and the examples whose label looks wrong."""
    reasons: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        reasons.setdefault(reason, []).append(name)
    note = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
    figures: list[Figure] = [
        Findings(title=f"Findings: {evidence.name}", note=f"Not checked: {note}." if note else "", findings=findings)
    ]
    if evidence.has_gradients and len(evidence.curve.steps) > 1:
        figures.append(draw_curve(evidence))
    if not evidence.quick and "wrong labels" not in skipped:
        figures += draw_suspicious_labels(evidence)
    return figures


def draw_curve(evidence: RunEvidence) -> LineChart:
    """Returns the training and the validation loss, with the entropy of the frequencies."""
    curve, entropy = evidence.curve, evidence.properties.entropy
    series = [Series(name="training", x=curve.steps, y=curve.losses)]
    if curve.validation_losses:
        steps, losses = (np.array(column, dtype=np.float64) for column in zip(*curve.validation_losses))
        series.append(Series(name="validation", x=steps, y=losses))
    name = f"entropy of the {evidence.properties.target_name} frequencies"
    return LineChart(
        title=f"Loss: {evidence.name}",
        series=series,
        x_label="update",
        y_label="loss" if evidence.trained.settings.task == "forecast" else "loss (nats)",
        references=[] if entropy is None else [Reference(axis="y", value=round(entropy, 3), label=name)],
    )


def draw_suspicious_labels(evidence: RunEvidence) -> list[Figure]:
    """Returns a table of the examples whose label is most probably wrong, if there are any."""
    found = find_suspicious_labels(evidence)
    examples = [] if isinstance(found, str) else [example for part, _ in found for example in part]
    examples.sort(key=lambda example: example.label_probability)
    if not examples:
        return []
    return [
        Table(
            title=f"Labels that are probably wrong: {evidence.name}",
            columns=("text", "given label", "its probability", "predicted", "probability", "where"),
            rows=[
                (each.text, each.label, each.label_probability, each.predicted, each.probability, each.location)
                for each in examples[:NUM_SHOWN]
            ],
        )
    ]
