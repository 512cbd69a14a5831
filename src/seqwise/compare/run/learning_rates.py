"""The learning-rate search: chooses the rate of each family, and extends the search while the best is at its edge.

A rate is judged by the objective of its short trial on the validation split, lower is better.
"""

from __future__ import annotations

import math
from pathlib import Path

from seqwise.compare.plan.plan import RATE_FACTOR, Plan
from seqwise.compare.run.jobs import Job, TrainingResult, load_training
from seqwise.compare.statistics.scales import is_optimal


def choose_rate(folder: Path, plan: Plan, family: str) -> tuple[float | None, str]:
    """Returns the learning rate of the training runs of a family and ""; or None and why there is none.

    Without a search it is the default rate, and after the first training run the rate of that run. Of equally good
    rates the nearest to the default is chosen; rates at which the metric is perfect are equally good.
    """
    default = plan.families[family].training.learning_rate
    if not plan.has_gradients(family) or plan.budgets.lr_trials == 1:
        return default, ""
    if (rate := _find_rate_in_use(folder, plan, family)) is not None:
        return rate, ""
    results = _load_results(folder, plan, family)
    if not results:
        reason = _explain_failure(folder, plan, family)
        return None, f"none of its {len(plan.list_rates(family))} learning rates worked: {reason}"
    objectives = {rate: _get_objective(result) for rate, result in results.items()}
    best = [rate for rate, result in results.items() if is_optimal(plan.metric, result.validation)]
    best = best or [rate for rate, objective in objectives.items() if objective == min(objectives.values())]
    return min(best, key=lambda rate: (_count_steps(rate, default), objectives[rate])), ""


def extend_search(folder: Path, plan: Plan) -> Plan | None:
    """Returns the plan with one more learning rate for each family whose best one is at the edge, saved; None: no such.

    The search is over once the training of any family has started.
    """
    jobs = [Job("train", trial.name) for trial in plan.list_training_trials() if plan.has_gradients(trial.family)]
    has_started = any(job.get_run_folder(folder).exists() or job.load(folder) is not None for job in jobs)
    if has_started or plan.budgets.lr_trials == 1:
        return None
    extended = plan
    for name in filter(plan.has_gradients, plan.families):
        best, _ = choose_rate(folder, plan, name)
        if best is not None and _can_improve(folder, plan, name, best):
            extended = extended.add_rate(name, best) or extended
    if extended is plan:
        return None
    extended.save(folder)
    return extended


def _can_improve(folder: Path, plan: Plan, family: str, best: float) -> bool:
    """Returns whether another rate may be better: the metric is not perfect, and not all rates are equally good."""
    results = _load_results(folder, plan, family)
    is_flat = len(results) > 1 and len({_get_objective(result) for result in results.values()}) == 1
    return not is_flat and not is_optimal(plan.metric, results[best].validation)


def _find_rate_in_use(folder: Path, plan: Plan, family: str) -> float | None:
    """Returns the learning rate of a finished training run; None if there is none."""
    for trial in (trial for trial in plan.list_training_trials() if trial.family == family):
        result: TrainingResult | None = Job("train", trial.name).load_result(folder)
        if result is not None:
            return result.rate
    return None


def _load_results(folder: Path, plan: Plan, family: str) -> dict[float, TrainingResult]:
    """Returns the results of the search by learning rate, of the trials with a finite objective."""
    trials = [trial for trial in plan.list_lr_trials() if trial.family == family]
    results = {plan.get_rate(trial): Job("train", trial.name).load_result(folder) for trial in trials}
    return {rate: result for rate, result in results.items() if result is not None and result.objective is not None}


def _explain_failure(folder: Path, plan: Plan, family: str) -> str:
    """Returns why the last trial of a search in which no rate worked has no objective."""
    outcome = load_training(folder, [trial for trial in plan.list_lr_trials() if trial.family == family][-1])
    return ("it was not tried." if outcome is None else outcome.reason) or "its validation is not a number."


def _get_objective(result: TrainingResult) -> float:
    return math.inf if result.objective is None else result.objective


def _count_steps(rate: float, default: float) -> int:
    """Returns the distance of a rate from the default, in steps of the search."""
    return round(abs(math.log(rate / default, RATE_FACTOR)))
