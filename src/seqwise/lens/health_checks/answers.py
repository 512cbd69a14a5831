"""Checks of what a model predicts on validation examples: constant predictions, baselines, and the context it uses."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import Any

import torch

from seqwise.errors import SeqwiseError, pluralize
from seqwise.lens.health_checks.evidence import CheckResult, RunEvidence
from seqwise.lens.horizon import WORDINGS, horizon
from seqwise.page.figures import Finding
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.language.inspection import compute_log_probabilities
from seqwise.training.health_rules import MIN_UPDATES

CONSTANT_SHARE = 0.98  # of the predictions that are the same
MAX_TRUE_SHARE = 0.9  # of these predictions that are right; above it, a constant prediction may be good
MIN_PREDICTIONS = 12
SHORT_HORIZON = 1 / 8  # of what the model can read
MIN_WINDOW = 16  # tokens; a horizon is not compared with a shorter window
NUM_HORIZON_TARGETS = 256


def check_majority(evidence: RunEvidence) -> CheckResult:
    """Reports predictions of which 98 % are the same, unless more than 90 % of these are right.

    It is a problem after MIN_UPDATES; before, a note. For a translation or a caption a prediction is a whole text; for
    a language model, the next token at each position.
    """
    if evidence.trained.settings.task == "forecast":
        return "forecasts are numbers"
    if not evidence.inspected:
        return evidence.explain_missing_examples()
    with torch.no_grad():
        pairs = [pair for each in evidence.inspected for pair in list_predictions(evidence, each)]
    if len(pairs) < MIN_PREDICTIONS:
        return f"there are fewer than {MIN_PREDICTIONS} predictions"
    predicted, count = Counter(answer for answer, _ in pairs).most_common(1)[0]
    correct = [is_correct for answer, is_correct in pairs if answer == predicted and is_correct is not None]
    share, true_share = count / len(pairs), sum(correct) / len(correct) if correct else 0.0
    if share < CONSTANT_SHARE or true_share > MAX_TRUE_SHARE:
        return []
    rate = evidence.trained.settings.training.learning_rate if evidence.has_gradients else 1.0
    return [
        Finding(
            text=f"The model nearly always predicts the same: {predicted[:60]!r}.",
            severity="problem" if evidence.curve.num_updates >= MIN_UPDATES or not evidence.has_gradients else "note",
            evidence=f"{share:.0%} of {len(pairs):,} predictions on the validation split; "
            + (f"{true_share:.0%} of them are right" if correct else "the inputs differ"),
            command=evidence.suggest_training({"training.learning_rate": f"{rate / 3:.1g}"}),
        )
    ]


def list_predictions(evidence: RunEvidence, inspected: InspectedInput) -> list[tuple[str, bool | None]]:
    """Returns the predictions for an example, each with whether it is right (None: not known)."""
    task = evidence.trained.settings.task
    if task == "language":
        batch: Any = inspected.batch
        best = compute_log_probabilities(evidence.trained.model, batch.ids).argmax(-1)
        names = evidence.trained.run.tokenizer
        return [(names.token(int(token)), bool(token == true)) for token, true in zip(best, batch.targets[0])]
    if task in ("translate", "caption"):
        return [(" ".join(inspected.targets), None)]
    answers = inspected.answers[:1] if task == "classify" else inspected.answers
    return [(answer.name.rpartition(": ")[2], answer.is_correct) for answer in answers]


def check_baselines(evidence: RunEvidence) -> CheckResult:
    """Reports a classifier, tagger or forecaster that does not beat all simple baselines of its task."""
    trained = evidence.trained
    if trained.settings.task not in ("classify", "tag", "forecast"):
        return "its baseline is the entropy of the frequencies"
    if evidence.task is None or not evidence.has_weights:
        return evidence.explain_missing_data() if evidence.task is None else evidence.explain_missing_examples()
    evaluation = trained.evaluate(trained.run.metadata.data, split="valid")
    metric = evaluation.primary_metric
    value, sign = evaluation.metrics[metric], -1 if trained.settings.task == "forecast" else 1
    if not evaluation.baselines:
        return "the run has no baselines"
    best = max(evaluation.baselines, key=lambda baseline: sign * baseline.value)
    comparison = f"validation {metric} {value:.4g}; {best.name} {best.value:.4g}"
    if sign * value > sign * best.value:
        text = f"The model is better than the best simple baseline ({best.name})."
        return [Finding(text=text, severity="good", evidence=comparison)]
    unbeaten = [baseline.name for baseline in evaluation.baselines if sign * value <= sign * baseline.value]
    is_worst = len(unbeaten) == len(evaluation.baselines)
    return [
        Finding(
            text=f"The model is not better than a simple baseline: {', '.join(unbeaten)}.",
            severity="warning" if is_worst and value != best.value else "note",
            evidence=f"{comparison}. {best.about}",
            command=shlex.join(["seqwise", "evaluate", str(trained.run.folder), trained.run.metadata.data]),
        )
    ]


def check_horizon(evidence: RunEvidence) -> CheckResult:
    """Notes that 90 % of the benefit of context comes from at most an eighth of what the model can read."""
    if not evidence.subjects:
        return evidence.explain_missing_examples()
    try:
        values = next(iter(horizon(evidence.trained, num_targets=NUM_HORIZON_TARGETS).data.values()))
    except SeqwiseError as error:
        return error.problem
    window, tokens = int(values["max_context"]), float(values["horizon"])
    wording = WORDINGS[str(evidence.trained.settings.task)]
    if window < MIN_WINDOW:
        return f"the model reads at most {pluralize(window, wording.unit)}"
    if values["low"] is None or not tokens <= SHORT_HORIZON * window:  # without an interval, no benefit is certain
        return []
    source = wording.visible.format(pluralize(int(tokens), wording.unit))
    return [
        Finding(
            text=f"The model uses little of its context: 90 % of the benefit comes from {source}, of {window:,}.",
            severity="note",
            evidence=f"horizon {pluralize(int(tokens), wording.unit)}, at most an eighth of {window:,}",
            command=evidence.suggest_view("horizon"),
        )
    ]
