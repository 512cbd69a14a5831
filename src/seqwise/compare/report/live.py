"""The report of a comparison whose trials still run: what is known so far, without a verdict that may change.

It knows nothing of servers and pages.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.gather import UNFINISHED, gather_report
from seqwise.compare.report.schema import Family, Report, Verdict

WAITING = "waiting"  # status of a trial without an outcome, and of a family without a result


def gather_live_report(folder: Path, plan: Plan) -> Report:
    """Returns the report so far. A family has a mean once a model of it was evaluated."""
    report = gather_report(folder, plan, is_live=True)
    trials = tuple(
        replace(trial, status=WAITING, reason="") if trial.reason == UNFINISHED.reason else trial
        for trial in report.trials
    )
    families = tuple(map(_mark_unfinished, report.families))
    return replace(report, families=families, trials=trials, verdict=_make_provisional(report, plan))


def _mark_unfinished(family: Family) -> Family:
    """Returns a family that has not failed, but is not finished, with a status that says so."""
    lr_trials = tuple(
        replace(trial, status=WAITING, reason="") if trial.reason == UNFINISHED.reason else trial
        for trial in family.lr_trials
    )
    if family.reason != UNFINISHED.reason:
        return replace(family, lr_trials=lr_trials)
    status = WAITING if family.status == "failed" else family.status
    return replace(family, lr_trials=lr_trials, status=status, reason="not all of its models are evaluated yet.")


def _make_provisional(report: Report, plan: Plan) -> Verdict | None:
    """Returns the ranking so far with a sentence that names it provisional; None before the first evaluation."""
    num_evaluated = sum(len(family.values) for family in report.families)
    if report.verdict is None or not num_evaluated:
        return None
    num_models = len(plan.list_training_trials())
    sentence = f"Provisional: {num_evaluated} of {num_models} models are evaluated on the {report.metric.split} split."
    return replace(report.verdict, sentences=(sentence, "The order of the families may still change."))
