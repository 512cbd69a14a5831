"""Gathers the report of a comparison from its folder.

It reads the outcomes of jobs and the runs of trials and trains nothing, so a report can be made at any time, also of an
unfinished comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from seqwise import environment
from seqwise.compare.plan.folder import get_resume_command
from seqwise.compare.plan.plan import Plan, Trial
from seqwise.compare.report.disagreement import ScoresBySeed, select_disagreements
from seqwise.compare.report.fairness import describe_rules, describe_waiting
from seqwise.compare.report.formatting import format_metric_name, get_bounds, is_ratio, join_names
from seqwise.compare.report.page.page import make_page
from seqwise.compare.report.schema import (
    BaselineResult,
    Curve,
    CurvePoint,
    Family,
    LearningRateTrial,
    Metric,
    Pair,
    Range,
    Report,
    SeedValue,
    TrainingCost,
    TrialSummary,
    from_json,
    to_json,
)
from seqwise.compare.report.texts import add_texts
from seqwise.compare.report.verdict import add_verdict
from seqwise.compare.run.jobs import (
    LATENCY_JOB,
    EvaluationResult,
    Job,
    LatencyResult,
    Outcome,
    TrainingResult,
    load_test,
    load_training,
    load_training_results,
)
from seqwise.compare.run.learning_rates import choose_rate
from seqwise.compare.statistics.scales import get_scale
from seqwise.compare.statistics.significance import compare_pairs, compute_bootstrap_interval, compute_mean_interval
from seqwise.digests import read_object
from seqwise.errors import RunError, SeqwiseError
from seqwise.files import write_text
from seqwise.metrics.evaluation import LOWER_IS_BETTER, ExampleScores, compute_metric
from seqwise.training.file_names import ENVIRONMENT, METRICS
from seqwise.training.rows import read_metrics

REPORT_FILE = "report.json"
PAGE_FILE = "report.html"
UNFINISHED: Outcome[Any] = Outcome("failed", "it is not finished.")


def write_report(folder: Path, plan: Plan) -> Report:
    """Writes `report.json` and `report.html` of all outcomes in the folder."""
    report = gather_report(folder, plan)
    write_text(folder / REPORT_FILE, to_json(report))
    write_text(folder / PAGE_FILE, make_page(report))
    return report


def load_report(folder: str | Path) -> Report:
    """Returns the report that was written before, also by version 0.1."""
    path = Path(folder) / REPORT_FILE
    try:
        return add_texts(from_json(Report, path.read_bytes()))
    except FileNotFoundError:
        fix = f"Resume it: {get_resume_command(Path(folder))}"
        raise RunError(f"{folder} has no report yet.", fix=fix) from None
    except ValueError as error:
        raise RunError(f"the report is damaged: {error}.", file=path) from None


def gather_report(folder: Path, plan: Plan, *, is_live: bool = False) -> Report:
    """Returns the report (docs/compare.md explains its entries).

    is_live: trials still run; the report has also their learning curves, as far as they are written
    """
    scores = {name: _load_scores(folder, plan, name) for name in plan.families}
    _check_alignment(scores)
    evaluations = [
        outcome.result
        for trial in plan.list_training_trials()
        if (outcome := load_test(folder, trial)) and outcome.result
    ]
    latency_result: LatencyResult | None = LATENCY_JOB.load_result(folder)
    latencies = {} if latency_result is None else latency_result.families
    families = [_gather_family(folder, plan, name, scores[name], latencies.get(name, ())) for name in plan.families]
    if is_live:
        families = [replace(family, curves=_read_curves(folder, plan, family.name)) for family in families]
    sign = 1 if plan.metric in LOWER_IS_BETTER else -1
    families.sort(key=lambda family: (family.mean is None, sign * (family.mean or 0.0)))
    num_disagreements, examples = select_disagreements(plan, scores)
    report = Report(
        seqwise=plan.seqwise,
        task=plan.task,
        data=plan.data,
        split_rule=plan.split_rule,
        about=plan.about,
        command=plan.command,
        unit=plan.unit,
        machine=_describe_machine(folder, plan, is_live),
        rules=describe_rules(folder, plan, tuple(families)),
        metric=_describe_metric(plan, evaluations, scores),
        families=tuple(families),
        pairs=tuple(_compare_families(plan, scores)),
        examples=examples,
        trials=tuple(_summarize_trial(folder, plan, trial) for trial in plan.list_trials()),
        baselines=collect_baselines(evaluations),
        num_disagreements=num_disagreements,
        waiting=describe_waiting(
            [result.waiting_share for result in load_training_results(folder, plan.list_training_trials())],
            None if latency_result is None else latency_result.waiting_share,
        ),
    )
    # As read from the file: numbers that JSON cannot hold are None.
    return from_json(Report, to_json(add_texts(add_verdict(report))))


def _load_scores(folder: Path, plan: Plan, family: str) -> ScoresBySeed:
    """Returns the scores of the test examples by seed, of the training runs that were tested."""
    scores = {}
    for trial in plan.list_training_trials():
        outcome = load_test(folder, trial) if trial.family == family else None
        if outcome is not None and outcome.status == "done":
            scores[trial.seed] = ExampleScores.load(Job("test", trial.name).get_scores_folder(folder))
    return scores


def _check_alignment(scores: dict[str, ScoresBySeed]) -> None:
    """Raises an error if examples or their order differ: families are compared example by example."""
    tested = [(f"{name}/seed-{seed}", each) for name, by_seed in scores.items() for seed, each in by_seed.items()]
    for name, each in tested[1:]:
        first, other = tested[0]
        if len(each.texts) != len(other.texts):
            raise SeqwiseError(f"{first} was tested on {len(other.texts)} examples, {name} on {len(each.texts)}.")
        pairs = enumerate(zip(other.texts, each.texts), start=1)
        mismatch = next((index for index, (a, b) in pairs if (a.input, a.expected) != (b.input, b.expected)), None)
        if mismatch is not None:
            raise SeqwiseError(f"{first} and {name} were not tested on the same examples: number {mismatch} differs.")


def _gather_family(folder: Path, plan: Plan, name: str, scores: ScoresBySeed, latencies: tuple[float, ...]) -> Family:
    trials = [trial for trial in plan.list_training_trials() if trial.family == name]
    trainings = {trial: load_training(folder, trial) for trial in trials}
    evaluations = {trial: load_test(folder, trial) for trial in trials}
    trained = {trial: outcome.result for trial, outcome in trainings.items() if outcome and outcome.result}
    tested = {trial: outcome.result for trial, outcome in evaluations.items() if outcome and outcome.result}
    is_complete = len(tested) == len(trials)
    has_gradients = plan.has_gradients(name)
    values = {trial.seed: result.metrics[plan.metric] for trial, result in tested.items()}
    infinite = [seed for seed, value in values.items() if not math.isfinite(value)]
    reason = _explain_infinite(plan, infinite)
    if not reason and not is_complete:
        reasons = (each.reason for each in (*trainings.values(), *evaluations.values()) if each and each.reason)
        reason = next(reasons, UNFINISHED.reason)
    interval = None
    if values and not infinite:
        interval = compute_mean_interval(list(values.values()), get_bounds(plan.metric))
    metric = partial(compute_metric, plan.metric)
    sampling = compute_bootstrap_interval(metric, [each.sums for each in scores.values()]) if scores else None
    run = None
    settings = plan.families[name]
    if trained:  # the run with the best validation
        best = min(
            trained, key=lambda trial: math.inf if (objective := trained[trial].objective) is None else objective
        )
        run = Job("train", best.name).get_run_folder(folder)
        settings = plan.make_settings(best, trained[best].rate)
    return Family(
        name=name,
        model=plan.families[name].model,
        status="done" if is_complete else "partly" if tested else "failed",
        reason=reason,
        mean=None if interval is None else interval.mean,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        parameters=plan.parameters[name] or None,
        is_baseline=not has_gradients,
        learning_rate=choose_rate(folder, plan, name)[0] if has_gradients else None,
        lr_trials=tuple(
            _gather_lr_trial(folder, plan, trial) for trial in plan.list_lr_trials() if trial.family == name
        ),
        values=tuple(SeedValue(seed, value) for seed, value in values.items()),
        sampling=None if sampling is None else Range(*sampling),
        metrics=_average([result.metrics for result in tested.values()]),
        training=_average_cost(list(trained.values())),
        memory=_compute_median([result.memory for result in trained.values()]),
        weights=next((result.weights for result in tested.values()), None),
        latency=_compute_median(latencies),
        latencies=latencies,
        evaluation_seconds=_compute_median([result.seconds for result in tested.values()]),
        curves=tuple(_read_curve(folder, plan, trial) for trial in trained),
        settings=settings.model_dump(mode="json"),
        run=None if run is None else str(run.relative_to(folder)),
    )


def _explain_infinite(plan: Plan, seeds: list[int]) -> str:
    """Returns why a family that was tested has no mean."""
    if not seeds:
        return ""
    which = "" if plan.budgets.seeds == tuple(seeds) else " with seed " + join_names([str(seed) for seed in seeds])
    split = "test" if plan.test else "validation"
    return f"its {format_metric_name(plan.metric)} on the {split} split is not a finite number{which}."


def _average(rows: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """Returns the mean of every entry."""
    return {key: float(np.mean([row[key] for row in rows])) for key in (rows[0] if rows else ())}


def _average_cost(results: list[TrainingResult]) -> TrainingCost | None:
    if not results:
        return None
    tokens, seconds, updates = np.mean([(each.tokens, each.seconds, each.updates) for each in results], axis=0).tolist()
    return TrainingCost(tokens, seconds, updates, tokens / max(1e-9, seconds))


def _compute_median(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value]
    return float(np.median(measured)) if measured else None


def _gather_lr_trial(folder: Path, plan: Plan, trial: Trial) -> LearningRateTrial:
    outcome = load_training(folder, trial) or UNFINISHED
    validation = None if outcome.result is None else outcome.result.validation
    return LearningRateTrial(plan.get_rate(trial), validation, outcome.status, outcome.reason)


def _read_curve(folder: Path, plan: Plan, trial: Trial) -> Curve:
    """Returns the validations of a training run, with the mean training loss since the validation before."""
    points, losses = [], []
    for row in read_metrics(Job("train", trial.name).get_run_folder(folder) / METRICS):
        validation = row.get("validation")
        if row.get("loss") is not None:
            losses.append(row["loss"])
        if validation and plan.metric in validation:
            loss = float(np.mean(losses)) if losses else None
            points.append(CurvePoint(row["tokens"], row["seconds"], validation[plan.metric], validation["loss"], loss))
            losses = []
    return Curve(trial.seed, tuple(points))


def _read_curves(folder: Path, plan: Plan, family: str) -> tuple[Curve, ...]:
    """Returns the curves of all training runs of a family that were validated, also of those that still train."""
    curves = (_read_curve(folder, plan, trial) for trial in plan.list_training_trials() if trial.family == family)
    return tuple(curve for curve in curves if curve.points)


def _summarize_trial(folder: Path, plan: Plan, trial: Trial) -> TrialSummary:
    outcome = load_training(folder, trial) or UNFINISHED
    summary = partial(TrialSummary, trial.name, trial.family, trial.kind, trial.seed, outcome.status, outcome.reason)
    result = outcome.result
    rate = plan.get_rate(trial) if trial.kind == "lr" else None if result is None else result.rate
    if result is None:
        return summary(rate)
    return summary(rate, result.tokens, result.seconds, result.updates, result.validation)


def _compare_families(plan: Plan, scores: dict[str, ScoresBySeed]) -> list[Pair]:
    families = {name: [each.sums for each in by_seed.values()] for name, by_seed in scores.items() if by_seed}
    deterministic = {name for name in families if not plan.has_gradients(name)}
    examples = max((len(sums) for seeds in families.values() for sums in seeds), default=0)
    metric_step = 1 / examples if examples and is_ratio(plan.metric) else 0.0
    metric, scale = partial(compute_metric, plan.metric), get_scale(plan.metric, examples)
    return compare_pairs(metric, families, deterministic=deterministic, metric_step=metric_step, scale=scale)


def _describe_metric(plan: Plan, evaluations: list[EvaluationResult], scores: dict[str, ScoresBySeed]) -> Metric:
    examples = next((each for by_seed in scores.values() for each in by_seed.values()), None)
    return Metric(
        key=plan.metric,
        name=format_metric_name(plan.metric),
        definition=evaluations[0].definitions.get(plan.metric, "") if evaluations else "",
        lower_is_better=plan.metric in LOWER_IS_BETTER,
        example_unit="" if examples is None else examples.unit,
        num_examples=0 if examples is None else len(examples.sums),
        on=evaluations[0].on if evaluations else "",
        warnings=evaluations[0].warnings if evaluations else (),
        split="test" if plan.test else "validation",
    )


def collect_baselines(evaluations: Iterable[EvaluationResult]) -> tuple[BaselineResult, ...]:
    """Returns the baselines of the first evaluation that has measured some; they are not ranked."""
    for evaluation in evaluations:
        baselines = (BaselineResult(each.name, each.value, each.about) for each in evaluation.baselines)
        if finite := tuple(each for each in baselines if each.value is not None and math.isfinite(each.value)):
            return finite
    return ()


def _describe_machine(folder: Path, plan: Plan, is_live: bool) -> dict[str, Any]:
    """Returns the environment of the first trial that has one, which may have run on another machine."""
    files = (Job("train", trial.name).get_run_folder(folder) / ENVIRONMENT for trial in plan.list_trials())
    machine = next(filter(None, map(_read_environment, files)), None)
    if machine is None and is_live:
        return {}  # no trial has begun
    machine = machine or environment.describe()
    settings = next(iter(plan.families.values()))
    gpu = machine["gpu"] if settings.device != "cpu" else None
    cores = machine["cpu"]["count"]
    words = [f"{cores} core{'s' if cores > 1 else ''} of {machine['cpu']['name']}"]
    words = [gpu["name"], *words] if gpu else [*words, "no GPU used" if machine["gpu"] else "no GPU"]
    cluster_description: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        cluster_description = read_object(folder / ENVIRONMENT)  # written by an engine of several machines
    return {**machine, "in_words": ", ".join(words), **cluster_description}


def _read_environment(path: Path) -> dict[str, Any] | None:
    """Returns the content of `env.json`; None if it is missing or damaged."""
    with suppress(OSError, ValueError):
        machine = read_object(path)
        gpu, cpu = machine.get("gpu", ""), machine.get("cpu")
        is_known_gpu = gpu is None or (isinstance(gpu, dict) and "name" in gpu)
        if is_known_gpu and isinstance(cpu, dict) and "name" in cpu and isinstance(cpu.get("count"), int):
            return machine
    return None
