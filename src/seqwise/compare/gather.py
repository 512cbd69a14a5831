"""From the folder of a comparison to its report: one nested value with all that page, table and `report.json` show.

It reads what the trials left behind and trains nothing, so a report can be made at any time, of whatever is there.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from seqwise import environment
from seqwise.compare.disagreement import disagreements
from seqwise.compare.numbers import bounds, named
from seqwise.compare.outcomes import Job, Outcome, chosen_rate, outcome_of
from seqwise.compare.plan import FACTOR, Plan, Trial
from seqwise.compare.statistics import interval, paired, sampling_interval
from seqwise.compare.verdict import verdict
from seqwise.errors import RunError, SeqwiseError
from seqwise.metrics.examples import LOWER, Examples, value_of
from seqwise.training.budgets import Budget
from seqwise.training.run import ENVIRONMENT, Run

FORMAT = 1

Values = dict[str, Any]


def gather(folder: Path, plan: Plan) -> Values:
    """The report (docs/compare.md says what each entry means)."""
    scores = {name: _scores(folder, plan, name) for name in plan.families}
    examples = next((each for seeds in scores.values() for each in seeds.values()), None)
    lower = plan.metric in LOWER
    families = [_family(folder, plan, name, scores[name]) for name in plan.families]
    worst = math.inf if lower else -math.inf
    families.sort(key=lambda each: (each["mean"] if each["mean"] is not None else worst) * (1 if lower else -1))
    families.sort(key=lambda each: each["mean"] is None)
    report: Values = {
        "format": FORMAT,
        "seqwise": plan.seqwise,
        "task": plan.task,
        "data": plan.data,
        "split": plan.split,
        "about": list(plan.about),
        "command": plan.command,
        "unit": plan.unit,
        "machine": _machine(folder, plan),
        "rules": _rules(folder, plan, families),
        "metric": _metric(folder, plan, lower, examples),
        "families": families,
        "pairs": _pairs(plan, scores),
        "examples": disagreements(plan, scores),
        "trials": [_trial(folder, plan, trial) for trial in plan.trials()],
    }
    report["verdict"] = verdict(report)
    return plain(report)


def plain(value: Any) -> Any:
    """As JSON knows it: numbers that it cannot hold become null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _scores(folder: Path, plan: Plan, family: str) -> dict[int, Examples]:
    """Seed → what each test example says, of the trainings that were tested."""
    found = {}
    for trial in (trial for trial in plan.trainings() if trial.family == family):
        outcome = outcome_of(folder, "test", trial.name)
        if outcome is not None and outcome.status == "done":
            found[trial.seed] = Examples.load(Job("test", trial.name).scores(folder))
    return found


def _family(folder: Path, plan: Plan, name: str, scores: dict[int, Examples]) -> Values:
    trainings = [trial for trial in plan.trainings() if trial.family == name]
    trained = {trial: outcome_of(folder, "train", trial.name) for trial in trainings}
    tested = {trial: outcome_of(folder, "test", trial.name) for trial in trainings}
    done = [(trial, outcome.values) for trial, outcome in trained.items() if outcome and outcome.values]
    tests = [(trial, outcome.values) for trial, outcome in tested.items() if outcome and outcome.values]
    reasons = [outcome.reason for outcome in (*trained.values(), *tested.values()) if outcome and outcome.reason]
    whole = len(tests) == len(trainings)
    values = [values["metrics"][plan.metric] for _, values in tests]
    middle = interval(values, bounds(plan.metric)) if values else None
    value = partial(value_of, plan.metric)
    sampled = sampling_interval(value, [each.sums for each in scores.values()]) if scores else None
    run = next((Job("train", trial.name).run(folder) for trial, _ in done), None)
    return {
        "name": name,
        "model": plan.families[name].model,
        "status": "done" if whole else "partly" if tests else "failed",
        "reason": "" if whole else _first(reasons) or "it is not finished.",
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
        "memory": max((values["memory"] for _, values in done if values["memory"]), default=None),
        "weights": next((values["weights"] for _, values in tests), None),
        "answer": _median([values["answer"] for _, values in tests]),
        "evaluation": _evaluation(tests, scores),
        "curves": [_curve(folder, plan, trial) for trial, _ in done],
        "settings": plan.families[name].model_dump(mode="json") if run is None else _settings(run),
        "run": None if run is None else str(run.relative_to(folder)),
    }


def _first(reasons: list[str]) -> str:
    return reasons[0] if reasons else ""


def _settings(run: Path) -> Values:
    try:
        return Run.open(run).settings.model_dump(mode="json")
    except RunError:
        return {}


def _means(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in found])) for name in (found[0] if found else {})}


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value]
    return float(np.median(known)) if known else None


def _training(found: list[Values]) -> Values | None:
    if not found:
        return None
    mean = {key: float(np.mean([each[key] for each in found])) for key in ("tokens", "seconds", "updates")}
    return {**mean, "tokens_per_second": mean["tokens"] / max(1e-9, mean["seconds"])}


def _evaluation(tests: list[tuple[Trial, Values]], scores: dict[int, Examples]) -> Values | None:
    seconds = _median([values["seconds"] for _, values in tests])
    if seconds is None or not scores:
        return None
    examples = len(next(iter(scores.values())).sums)
    return {"seconds": seconds, "examples": examples, "per_second": examples / seconds}


def _tries(folder: Path, plan: Plan, family: str) -> list[Values]:
    found = []
    for trial in (trial for trial in plan.tries() if trial.family == family):
        outcome = outcome_of(folder, "train", trial.name) or Outcome("failed", "it is not finished.")
        value = (outcome.values or {}).get("validation")
        rate = plan.rates(family)[trial.number - 1]
        found.append({"rate": rate, "validation": value, "status": outcome.status, "reason": outcome.reason})
    return found


def _curve(folder: Path, plan: Plan, trial: Trial) -> Values:
    """The validations of a training."""
    points = []
    for row in Run.open(Job("train", trial.name).run(folder)).metrics():
        found = row.get("validation")
        if found and plan.metric in found:
            point = {"tokens": row["tokens"], "seconds": row["seconds"], "value": found[plan.metric]}
            points.append({**point, "loss": found["loss"]})
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


def _pairs(plan: Plan, scores: dict[str, dict[int, Examples]]) -> list[Values]:
    families = {name: [each.sums for each in seeds.values()] for name, seeds in scores.items() if seeds}
    if len({len(sums) for seeds in families.values() for sums in seeds}) > 1:
        raise SeqwiseError("the families were not tested on the same examples.")
    counted = {name for name in families if plan.counted(name)}
    return [asdict(pair) for pair in paired(partial(value_of, plan.metric), families, deterministic=counted)]


def _metric(folder: Path, plan: Plan, lower: bool, examples: Examples | None) -> Values:
    tested = (outcome_of(folder, "test", trial.name) for trial in plan.trainings())
    known = next((outcome.values for outcome in tested if outcome and outcome.values), None) or {}
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
    words = [gpu["name"], *words] if gpu else [*words, "no GPU used" if found["gpu"] else "no GPU"]
    return {**found, "in_words": ", ".join(words)}


def _rules(folder: Path, plan: Plan, families: list[Values]) -> Values:
    spending = plan.spending
    training = str(Budget.parse(spending.training))
    a_try = str(Budget.parse(spending.a_try)) if spending.tries > 1 else ""
    return {
        "budget": str(Budget.parse(spending.budget)),
        "match": plan.match,
        "parameters": plan.target,
        "seeds": list(spending.seeds),
        "tries": spending.tries,
        "try": a_try or None,
        "training": training,
        "sentences": _fairness(folder, plan, training, a_try, families),
    }


def _fairness(folder: Path, plan: Plan, training: str, a_try: str, families: list[Values]) -> list[str]:
    """How it was made fair, sentence by sentence."""
    spending, unit = plan.spending, Budget.parse(plan.spending.training).unit
    sentences = ["All families have the same vocabulary, the same split of the data and the same evaluation."]
    counts = [each["parameters"] for each in families if each["parameters"] and not each["baseline"]]
    if plan.target is not None and counts:
        spread = max(counts) / min(counts) - 1
        sentences.append(
            f"Widths were solved for {plan.target:,} parameters; the largest has {spread:.1%} more than the smallest."
        )
    elif plan.match != "parameters":
        sentences.append(f"Each family has the size of its rules and spends equal {plan.match}.")
    sentences += [sentence if sentence.endswith(".") else f"{sentence}." for sentence in plan.notes]
    if spending.tries > 1:
        factors = sorted({f"{FACTOR**step:g}" for step in range(1, (spending.tries + 2) // 2)}, key=float)
        sentences.append(
            f"Each family tried {spending.tries} learning rates for {a_try} each, the rule's own and its neighbours at "
            f"a factor of {' and '.join(factors)}; validation chose."
        )
    else:
        sentences.append("No learning rate was searched: each family has that of its rules.")
    each = "once" if len(spending.seeds) == 1 else f"with {len(spending.seeds)} seeds"
    sentences.append(
        f"Then each was trained {each}, {training} a time"
        + (f", validation included, {_side_by_side(folder, plan)}." if unit == "seconds" else ", to the token.")
    )
    sentences.append("The weights of the best validation were kept. The test split was read once, after all training.")
    return sentences


def _side_by_side(folder: Path, plan: Plan) -> str:
    """Whether timed trials could disturb each other."""
    found = [outcome_of(folder, "train", trial.name) for trial in plan.trials()]
    known = [outcome.values for outcome in found if outcome is not None and outcome.values]
    beside, nodes = max((each.get("beside", 1) for each in known), default=1), {each.get("node") for each in known}
    where = "on the same machine" if len(nodes) < 2 else f"on {len(nodes)} machines"
    return f"one after another {where}" if beside == 1 else f"{beside} at a time sharing a device {where}"


def load_report(folder: str | Path) -> Values:
    """The report of a comparison that was written before."""
    path = Path(folder) / "report.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{folder} has no report yet.", repair=f"Go on: seqwise compare --resume {folder}") from None
    except ValueError as error:
        raise RunError(f"the report is damaged: {error}.", file=path) from None
