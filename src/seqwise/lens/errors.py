"""`errors`: where a model is wrong: confusions, the worst examples, calibration, and slices of the data with intervals.

The task computes what each text, token or value adds to a metric (`tasks/NAME/errors.py`); here are the intervals,
tests, sentences and figures. The test split of the run's own data is shown only where the user names the data: a split
by whose errors a model is improved is no test any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.compare.statistics.significance import compute_bootstrap_interval
from seqwise.data.records import Data
from seqwise.errors import UsageError, check_type
from seqwise.lens.calibration import NUM_BINS, Calibration, measure_calibration
from seqwise.lens.error_figures import capitalize, draw_report
from seqwise.lens.slices import MIN_UNITS, SliceScore, score_all, score_slices
from seqwise.lens.subject import Subject, check_target, evaluation_mode, name_run
from seqwise.lens.view import View
from seqwise.metrics.evaluation import compute_metric
from seqwise.task_registry import BUILTIN_TASKS, find_task
from seqwise.tasks.error_report import Coverage, ErrorReport, ErrorRequest, list_confusions
from seqwise.tasks.task import Task
from seqwise.training.api import TrainedModel, save_data

MIN_PREDICTIONS = 20  # for a calibration diagram


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    if subject.trained is None:
        return f"{subject.name} is not a trained run, so it has no data to be evaluated on."
    name = subject.trained.settings.task
    return None if find_collector(subject.trained.task) else f"the task {name!r} has no view of its errors."


def errors(
    model: Any,
    *,
    data: Data | None = None,
    split: str | None = None,
    max_examples: int | None = None,
    target: str | None = None,
    progress: ProgressCallback = no_progress,
) -> View:
    """Returns where a model is wrong, on the validation split of its own data unless `data` names other data.

    data: other data, as `evaluate` takes it; without a split, its validation split if it has one, else all of it
    split: train, valid, test or all; the test split only together with `data`
    max_examples: examples to evaluate, evenly spread; each task has a default
    target: the language of a translator that has several; the first unless set

    `data` of the view: `metric`, `overall` and `slices` (value, low, high, count, rest, p, adjusted_p, is_worse),
    `confusions` (title → rows, columns, counts), `calibration` (name → ECE and bins), `coverage` (quantile levels and
    shares), `worst` (columns and rows), `metrics`, `num_evaluated` and `num_examples`.
    """
    check_type("model", model, TrainedModel, "a trained run (seqwise.load)")
    collector = find_collector(model.task)
    if collector is None:
        raise UsageError(f"the task {model.settings.task!r} has no view of its errors.", fix="Use seqwise evaluate.")
    check_split(data, split)
    if max_examples is not None and max_examples < 1:
        raise UsageError(f"max_examples: expected at least 1, received {max_examples}.")
    check_target(model, target)
    path = model.run.metadata.data if data is None else save_data(data, model.settings)
    request = ErrorRequest("valid" if data is None and split is None else split, max_examples, progress, target)
    with evaluation_mode(model.model):
        report = collector(model.task, model.bundle, path, request)
    return build_view(model, replace(report, groups=[group for group in report.groups if len(group.slices) > 1]))


def find_collector(task: type[Task]) -> Any:
    """Returns the function `collect_errors` of a built-in task, also for a class derived from it; None without one."""
    for name in BUILTIN_TASKS:
        if issubclass(task, find_task(name)):
            return import_module(f"seqwise.tasks.{name}.errors").collect_errors
    return None


def check_split(data: Data | None, split: str | None) -> None:
    """Raises an error for the test split of the run's own data, which is shown only where the user names the data."""
    if data is None and split in ("test", "all"):
        problem = f"the {split} split of the run's own data is not shown: a test split is for one last evaluation."
        fix = "Leave out --split, or name the data too: --data DATA --split test."
        raise UsageError(problem if split == "test" else problem.replace("the all split", "all"), fix=fix)


def build_view(model: TrainedModel, report: ErrorReport) -> View:
    """Returns the view of a report."""
    total, scores = score_all(report.items), score_slices(report.items, report.groups)
    calibrations = [
        (each, measure_calibration(each.probabilities, each.is_correct))
        for each in report.confidences
        if len(each.is_correct) >= MIN_PREDICTIONS
    ]
    coverage = None if report.coverage is None else measure_coverage(report.coverage)
    summary = [
        describe_total(report, total),
        *describe_metrics(report),
        *(describe_calibration(each.name, calibration) for each, calibration in calibrations),
        *describe_coverage(report.coverage, coverage),
        *describe_confusions(report),
        *describe_slices(report, scores),
        *describe_notes(report),
    ]
    figures = draw_report(report, total, scores, calibrations, coverage)
    data = {
        "metric": asdict(report.items.metric),
        "overall": asdict(total),
        "slices": [asdict(score) for score in scores],
        "confusions": {
            each.title: {"rows": each.rows, "columns": each.columns, "counts": each.counts}
            for each in report.confusions
        },
        "calibration": {each.name: asdict(calibration) for each, calibration in calibrations},
        "coverage": None if report.coverage is None else {"levels": report.coverage.levels, "shares": coverage},
        "worst": {each.title: {"columns": each.columns, "rows": each.rows} for each in report.listings},
        "metrics": report.metrics,
        "num_evaluated": report.num_evaluated,
        "num_examples": report.num_examples,
    }
    return View("errors", f"Errors of {name_run(model)} on {report.data}", tuple(summary), tuple(figures), data)


def measure_coverage(coverage: Coverage) -> np.ndarray:
    """Returns the share of true values below each quantile with its 95 % interval, (levels, 3)."""
    rows = []
    for sums in coverage.sums:
        interval = None
        if len(sums) >= MIN_UNITS:
            interval = compute_bootstrap_interval(partial(compute_metric, "mean"), [sums])
        rows.append((float(compute_metric("mean", sums.sum(0))), *(interval or (math.nan, math.nan))))
    return np.array(rows)


# Sentences


def format_score(value: float, low: float, high: float) -> str:
    """Returns a number with its interval: "0.712 (0.661 to 0.758)"."""
    return (
        format_value(value)
        if math.isnan(low)
        else f"{format_value(value)} ({format_value(low)} to {format_value(high)})"
    )


def format_value(value: float) -> str:
    """Returns a number with three decimals, or fewer if it is large."""
    return f"{value:,.{3 if abs(value) < 1 else 2 if abs(value) < 100 else 1}f}"


def describe_total(report: ErrorReport, total: SliceScore) -> str:
    """Returns the metric of all items, and on how many examples it was computed."""
    count = f"{report.num_evaluated:,}"
    if report.num_evaluated < report.num_examples:
        count += f" of {report.num_examples:,}"
    score = format_score(total.value, total.low, total.high)
    return f"{capitalize(report.items.metric.name)} {score} on {count} {report.example_name} of {report.data}."


def describe_metrics(report: ErrorReport) -> list[str]:
    """Returns a sentence with the other metrics."""
    metric = report.items.metric
    values = {
        name: value for name, value in report.metrics.items() if name not in (metric.formula, metric.name.lower())
    }
    texts = [
        f"{name.replace('_', ' ')} {f'{value:,}' if isinstance(value, int) else format_value(value)}"
        for name, value in values.items()
    ]
    return [f"Also: {', '.join(texts)}."] if texts else []


def describe_calibration(name: str, calibration: Calibration) -> str:
    """Returns a sentence with the expected calibration error."""
    confidence, accuracy = calibration.mean_confidence, calibration.mean_accuracy
    if calibration.error <= calibration.limit:
        verdict = "no more than chance explains"
    else:
        verdict = "overconfident" if confidence > accuracy else "underconfident"
    return (
        f"Calibration of the {name}: ECE {calibration.error:.3f} ({NUM_BINS} bins; a calibrated model has about "
        f"{calibration.expected:.3f}); mean probability {confidence:.3f}, right {accuracy:.3f}: {verdict}."
    )


def describe_coverage(coverage: Coverage | None, shares: np.ndarray | None) -> list[str]:
    """Returns a sentence with the coverage of the interval between the outer quantiles."""
    if coverage is None or shares is None or len(coverage.levels) < 2:
        return []
    low, high = int(np.argmin(coverage.levels)), int(np.argmax(coverage.levels))
    nominal = coverage.levels[high] - coverage.levels[low]
    inside = shares[high, 0] - shares[low, 0]
    between = f"the quantiles {coverage.levels[low]:g} and {coverage.levels[high]:g}"
    return [f"{inside:.1%} of the true values are between {between}; ideal is {nominal:.0%}. {coverage.note}".strip()]


def describe_confusions(report: ErrorReport) -> list[str]:
    """Returns a sentence with the most frequent confusion, and one with the counts of each kind of span error."""
    sentences = []
    for matrix in report.confusions[:1]:
        confusions = list_confusions(matrix.rows, matrix.counts, 1)
        for true, predicted, count, share in confusions:
            sentences.append(
                f"The most frequent confusion: “{true}” taken for “{predicted}”, {count:,} times ({share:.1%})."
            )
    for matrix in report.confusions[1:]:  # kinds of span errors
        counts = dict(zip(matrix.columns, matrix.counts.sum(0).tolist()))
        kinds = [f"{count:,} {kind}" for kind, count in counts.items()]
        sentences.append(f"{matrix.title}: {', '.join(kinds)}.")
    return sentences


def describe_slices(report: ErrorReport, scores: Sequence[SliceScore]) -> list[str]:
    """Returns a sentence for the worst significant slice of each group, and how slices were tested."""
    metric, sentences = report.items.metric, []
    for group in report.groups:
        worse = [score for score in scores if score.group == group.name and score.is_worse]
        if worse:
            worst = max(worse, key=lambda score: abs(score.value - score.rest))
            score = format_score(worst.value, worst.low, worst.high)
            others = {1: "", 2: f" One other slice by {group.name} is worse than the rest, too."}.get(
                len(worse), f" {len(worse) - 1} other slices by {group.name} are worse than the rest, too."
            )
            rest = format_value(worst.rest)
            sentences.append(f"{capitalize(worst.name)}: {metric.name} {score} against {rest} for the rest.{others}")
    num_tests = sum(score.is_tested for score in scores)
    method = f"each slice is tested against the rest; Holm's correction for {num_tests} tests, 5 %"
    if not num_tests:
        return [f"No slice is tested: each needs {MIN_UNITS} {report.items.unit_name} in it and outside it."]
    if not sentences:
        return [f"No slice is significantly worse than the rest ({method})."]
    return [*sentences, f"{capitalize(method)}."]


def describe_notes(report: ErrorReport) -> list[str]:
    """Returns the notes of the task, and what the validation split was used for."""
    notes = [capitalize(note) for note in report.notes]
    if report.data.endswith("the valid split"):
        notes.append("The best weights were chosen on this split, so errors on new data may be somewhat larger.")
    return notes
