"""From the folder of a comparison to its report: one nested value with all that page, table and `report.json` show.

It reads what the trials left behind and trains nothing, so a report can be made at any time, of whatever is there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from seqwise import environment
from seqwise.compare.plan.plan import Plan, Trial
from seqwise.compare.report.baselines import yardsticks_of
from seqwise.compare.report.disagreement import disagreements
from seqwise.compare.report.fairness import command_of, rules_of
from seqwise.compare.report.formatting import bounds, is_ratio, listed, named, plain
from seqwise.compare.report.texts import add_shown
from seqwise.compare.report.verdict import verdict
from seqwise.compare.run.jobs import PACE, Job, Outcome, chosen_rate, outcome_of
from seqwise.compare.statistics.significance import interval, paired, sampling_interval
from seqwise.errors import RunError, SeqwiseError
from seqwise.metrics.example_scores import LOWER_IS_BETTER, ExampleScores, compute_metric
from seqwise.training.run import ENVIRONMENT, Run

FORMAT = 1

Values = dict[str, Any]


def gather(folder: Path, plan: Plan) -> Values:
    """The report (docs/compare.md says what each entry means)."""
    scores = {name: _scores(folder, plan, name) for name in plan.families}
    _check_alignment(scores)
    examples = next((each for seeds in scores.values() for each in seeds.values()), None)
    lower = plan.metric in LOWER_IS_BETTER
    measure_latency = _pace(folder)
    tests = _tests(folder, plan)
    families = [_family(folder, plan, name, scores[name], measure_latency.get(name, [])) for name in plan.families]
    families.sort(key=lambda each: (each["mean"] is None, (each["mean"] or 0.0) * (1 if lower else -1)))
    report: Values = {
        "format": FORMAT,
        "seqwise": plan.seqwise,
        "task": plan.task,
        "data": plan.data,
        "split": plan.split,
        "about": list(plan.about),
        "command": command_of(plan),
        "unit": plan.unit,
        "machine": _machine(folder, plan),
        "rules": rules_of(folder, plan, families),
        "metric": _metric(tests, plan, lower, examples),
        "baselines": yardsticks_of(tests, plan.metric),
        "families": families,
        "pairs": _pairs(plan, scores),
        "examples": disagreements(plan, scores),
        "trials": [_trial(folder, plan, trial) for trial in plan.trials()],
    }
    report["verdict"] = verdict(report)
    add_shown(report)
    return plain(report)


def _scores(folder: Path, plan: Plan, family: str) -> dict[int, ExampleScores]:
    """Seed → what each test example says, of the trainings that were tested."""
    found = {}
    for trial in (trial for trial in plan.trainings() if trial.family == family):
        outcome = outcome_of(folder, "test", trial.name)
        if outcome is not None and outcome.status == "done":
            found[trial.seed] = ExampleScores.load(Job("test", trial.name).scores(folder))
    return found


def _check_alignment(scores: dict[str, dict[int, ExampleScores]]) -> None:
    """Differences are taken example by example, so all must have been asked the same, in the same order."""
    tested = [(f"{name}/seed-{seed}", each) for name, seeds in scores.items() for seed, each in seeds.items()]
    for name, each in tested[1:]:
        first, other = tested[0]
        if len(each.texts) != len(other.texts):
            raise SeqwiseError(f"{first} was tested on {len(other.texts)} examples, {name} on {len(each.texts)}.")
        pairs = enumerate(zip(other.texts, each.texts), start=1)
        wrong = next((at for at, (a, b) in pairs if (a.input, a.expected) != (b.input, b.expected)), None)
        if wrong is not None:
            raise SeqwiseError(f"{first} and {name} were not tested on the same examples: number {wrong} differs.")


def _pace(folder: Path) -> dict[str, list[float]]:
    """Family → seconds of one answer, in each of the rounds in which they were timed by themselves."""
    outcome = Outcome.load(PACE.file(folder))
    return (outcome.values or {}).get("families", {}) if outcome is not None else {}


def _family(folder: Path, plan: Plan, name: str, scores: dict[int, ExampleScores], answers: list[float]) -> Values:
    trainings = [trial for trial in plan.trainings() if trial.family == name]
    trained = {trial: outcome_of(folder, "train", trial.name) for trial in trainings}
    tested = {trial: outcome_of(folder, "test", trial.name) for trial in trainings}
    done = [(trial, outcome.values) for trial, outcome in trained.items() if outcome and outcome.values]
    tests = [(trial, outcome.values) for trial, outcome in tested.items() if outcome and outcome.values]
    reasons = [outcome.reason for outcome in (*trained.values(), *tested.values()) if outcome and outcome.reason]
    whole = len(tests) == len(trainings)
    values = [values["metrics"][plan.metric] for _, values in tests]
    middle = interval(values, bounds(plan.metric)) if values else None
    endless = [trial.seed for (trial, _), value in zip(tests, values) if not math.isfinite(value)]
    if endless:
        middle = None
    value = partial(compute_metric, plan.metric)
    sampled = sampling_interval(value, [each.sums for each in scores.values()]) if scores else None
    ranked = sorted(done, key=lambda each: math.inf if each[1]["goal"] is None else each[1]["goal"])
    run = next((Job("train", trial.name).run(folder) for trial, _ in ranked), None)  # the best by validation
    return {
        "name": name,
        "model": plan.families[name].model,
        "status": "done" if whole else "partly" if tests else "failed",
        "reason": _endless(plan, endless) or ("" if whole else _first(reasons) or "it is not finished."),
        "parameters": plan.parameters[name] or None,
        "baseline": plan.counted(name),
        "learning_rate": None if plan.counted(name) else chosen_rate(folder, plan, name)[0],
        "tries": _tries(folder, plan, name),
        "mean": None if middle is None else middle.mean,
        "low": None if middle is None else middle.low,
        "high": None if middle is None else middle.high,
        "values": [{"seed": trial.seed, "value": value} for (trial, _), value in zip(tests, values)],
        "sampling": None if sampled is None else {"low": sampled[0], "high": sampled[1]},
        "metrics": _means([values["metrics"] for _, values in tests]),
        "training": _training([values for _, values in done]),
        "memory": _median([values.get("memory") for _, values in done]),
        "weights": next((values["weights"] for _, values in tests), None),
        "answer": _median(answers),
        "answers": list(answers),
        "evaluation": _evaluation([values["seconds"] for _, values in tests]),
        "curves": [_curve(folder, plan, trial) for trial, _ in done],
        "settings": plan.families[name].model_dump(mode="json") if run is None else _settings(run),
        "run": None if run is None else str(run.relative_to(folder)),
    }


def _first(reasons: list[str]) -> str:
    return reasons[0] if reasons else ""


def _endless(plan: Plan, seeds: list[int]) -> str:
    """Why a family that was tested has no mean."""
    if not seeds:
        return ""
    which = "" if plan.spending.seeds == tuple(seeds) else " with seed " + listed([str(seed) for seed in seeds])
    return f"its {named(plan.metric)} on the test split is not a finite number{which}."


def _settings(run: Path) -> Values:
    try:
        return Run.open(run).settings.model_dump(mode="json")
    except RunError:
        return {}


def _means(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in found])) for name in (found[0] if found else {})}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value]
    return float(np.median(known)) if known else None


def _training(found: list[Values]) -> Values | None:
    if not found:
        return None
    mean = {key: float(np.mean([each[key] for each in found])) for key in ("tokens", "seconds", "updates")}
    return {**mean, "tokens_per_second": mean["tokens"] / max(1e-9, mean["seconds"])}


def _evaluation(seconds: list[float | None]) -> Values | None:
    middle = _median(seconds)
    return None if middle is None else {"seconds": middle}


def _tries(folder: Path, plan: Plan, family: str) -> list[Values]:
    found = []
    for trial in (trial for trial in plan.tries() if trial.family == family):
        outcome = outcome_of(folder, "train", trial.name) or Outcome("failed", "it is not finished.")
        value = (outcome.values or {}).get("validation")
        rate = plan.rates(family)[trial.number - 1]
        found.append({"rate": rate, "validation": value, "status": outcome.status, "reason": outcome.reason})
    return found


def _curve(folder: Path, plan: Plan, trial: Trial) -> Values:
    """The validations of a training; `trained` is the mean training loss since the one before."""
    points, losses = [], []
    for row in Run.open(Job("train", trial.name).run(folder)).metrics():
        found = row.get("validation")
        losses += [row["loss"]] if row.get("loss") is not None else []
        if found and plan.metric in found:
            point = {"tokens": row["tokens"], "seconds": row["seconds"], "value": found[plan.metric]}
            points.append({**point, "loss": found["loss"], "trained": float(np.mean(losses)) if losses else None})
            losses = []
    return {"seed": trial.seed, "points": points}


def _trial(folder: Path, plan: Plan, trial: Trial) -> Values:
    outcome = outcome_of(folder, "train", trial.name) or Outcome("failed", "it is not finished.")
    known = outcome.values or {}
    rate = plan.rates(trial.family)[trial.number - 1] if trial.kind == "try" else known.get("rate")
    return {
        "name": trial.name, "family": trial.family, "kind": trial.kind, "seed": trial.seed, "rate": rate,
        "status": outcome.status, "reason": outcome.reason,
        **{key: known.get(key) for key in ("tokens", "seconds", "updates", "validation")},
    }  # fmt: skip


def _pairs(plan: Plan, scores: dict[str, dict[int, ExampleScores]]) -> list[Values]:
    families = {name: [each.sums for each in seeds.values()] for name, seeds in scores.items() if seeds}
    counted = {name for name in families if plan.counted(name)}
    examples = max((len(sums) for seeds in families.values() for sums in seeds), default=0)
    step = 1 / examples if examples and is_ratio(plan.metric) else 0.0
    found = paired(partial(compute_metric, plan.metric), families, deterministic=counted, step=step)
    return [asdict(pair) for pair in found]


def _tests(folder: Path, plan: Plan) -> list[Values]:
    """What the tests found, of the trainings that were tested."""
    tested = (outcome_of(folder, "test", trial.name) for trial in plan.trainings())
    return [outcome.values for outcome in tested if outcome and outcome.values]


def _metric(tests: list[Values], plan: Plan, lower: bool, examples: ExampleScores | None) -> Values:
    known = tests[0] if tests else {}
    return {
        "key": plan.metric,
        "name": named(plan.metric),
        "definition": known.get("definitions", {}).get(plan.metric, ""),
        "lower_is_better": lower,
        "examples": "" if examples is None else examples.unit,
        "count": 0 if examples is None else len(examples.sums),
        "on": known.get("on", ""),
        "remarks": known.get("remarks", []),
    }


def _machine(folder: Path, plan: Plan) -> Values:
    """Where the trials were carried out, which need not be here; the first of them tells."""
    files = (Job("train", trial.name).run(folder) / ENVIRONMENT for trial in plan.trials())
    path = next((path for path in files if path.exists()), None)
    found = environment.describe() if path is None else json.loads(path.read_text(encoding="utf-8"))
    settings = next(iter(plan.families.values()))
    gpu = found["gpu"] if settings.device != "cpu" else None
    cores = found["cpu"]["count"]
    words = [f"{cores} core{'s' if cores > 1 else ''} of {found['cpu']['name']}"]
    if plan.threads is not None and gpu is None:
        found["threads"] = plan.threads  # of each trial
        words += [f"{plan.threads} thread{'s' if plan.threads > 1 else ''}"] if plan.threads < cores else []
    words = [gpu["name"], *words] if gpu else [*words, "no GPU used" if found["gpu"] else "no GPU"]
    cluster = folder / ENVIRONMENT  # written by an engine of several machines
    known = json.loads(cluster.read_text(encoding="utf-8")) if cluster.exists() else {}
    return {**found, "in_words": ", ".join(words), **known}


def load_report(folder: str | Path) -> Values:
    """The report of a comparison that was written before."""
    path = Path(folder) / "report.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{folder} has no report yet.", repair=f"Go on: seqwise compare --resume {folder}") from None
    except ValueError as error:
        raise RunError(f"the report is damaged: {error}.", file=path) from None
