"""The progress of comparisons: their stages and trials, live, and the order of the families so far.

It reads plans, outcomes and learning curves, all of them text; reports with statistics are computed by a worker, or
were written before. This module knows nothing of servers and pages.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from seqwise.compare.plan.plan import Plan, Trial
from seqwise.compare.report.formatting import format_count, format_metric, format_metric_name, format_rate
from seqwise.compare.report.formatting import format_seconds as format_duration
from seqwise.compare.report.gather import PAGE_FILE, REPORT_FILE, load_report
from seqwise.compare.report.page.page import TASK_NAMES, build_data
from seqwise.compare.report.schema import Report
from seqwise.compare.run.jobs import LATENCY_JOB, SPEED_JOB, Job, Outcome, TrainingResult, load_test, load_training
from seqwise.compare.run.learning_rates import choose_rate
from seqwise.compare.run.remaining_time import RemainingTime
from seqwise.errors import SeqwiseError, UsageError
from seqwise.metrics.evaluation import LOWER_IS_BETTER
from seqwise.page.palette import choose_styles
from seqwise.studio.catalogue import TRIALS_FOLDER, Catalogue, Entry

DOWNLOADS = (PAGE_FILE, REPORT_FILE)
MAX_REPORT_BYTES = 64 << 20
NUM_CACHED = 32  # plans and reports in memory


@lru_cache(NUM_CACHED)
def _open_plan(folder: Path, mark: tuple[int, int]) -> Plan:
    return Plan.open(folder)


@dataclass(frozen=True)
class ReportSummary:
    """What a list shows of a report, and which trials it includes."""

    best: dict[str, str] | None  # name of the family, and its metric
    statuses: dict[str, str]  # by trial


@lru_cache(NUM_CACHED)
def _summarize_report(folder: Path, mark: tuple[int, int]) -> ReportSummary | None:
    """Returns None for a report that is missing or damaged."""
    if not 0 < mark[0] <= MAX_REPORT_BYTES:
        return None
    try:
        report = load_report(folder)
    except (SeqwiseError, OSError):
        return None
    name = report.verdict.best if report.verdict is not None else None
    best = None
    if name is not None:
        best = {"name": name, "text": f"{report.metric.name} {report.family(name).text['mean']}"}
    return ReportSummary(best, {trial.name: trial.status for trial in report.trials})


def _read_mark(path: Path) -> tuple[int, int]:
    """Returns size and time of a file; (0, 0) if it is missing."""
    with suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return 0, 0


def open_plan(entry: Entry) -> Plan:
    """Returns the plan of a comparison; raises an error for a run."""
    if entry.kind != "comparison":
        raise UsageError(f"{entry.id} is a run, not a comparison.")
    return _open_plan(entry.folder, _read_mark(entry.folder / "compare.yaml"))


@dataclass(frozen=True)
class TrialProgress:
    """A trial: its plan, its outcome if it has one, and the run that is or was trained."""

    trial: Trial
    outcome: Outcome[TrainingResult] | None
    test: Outcome[Any] | None
    run: Entry | None
    value: float | None  # best validation so far

    @property
    def state(self) -> str:
        """Returns finished, failed, running, stopped (partly trained) or waiting."""
        if self.outcome is not None:
            has_failed = self.outcome.status == "failed" or (self.test is not None and self.test.status == "failed")
            return "failed" if has_failed else "finished"
        if self.run is not None and self.run.owner is not None:
            return "running"
        return "stopped" if self.run is not None and self.run.last else "waiting"

    @property
    def needs_test(self) -> bool:
        """Whether it was trained and is to be evaluated on the test split."""
        return self.trial.kind == "train" and self.outcome is not None and self.outcome.status == "done"

    @property
    def reason(self) -> str:
        """Returns why it failed."""
        return next((each.reason for each in (self.outcome, self.test) if each is not None and each.reason), "")

    @property
    def progress(self) -> float:
        """Returns the share of its training that is done."""
        if self.outcome is not None:
            return 1.0
        share = None if self.run is None else self.run.last.get("progress")
        return min(1.0, max(0.0, float(share))) if isinstance(share, (int, float)) else 0.0


class ComparisonProgress:
    """A comparison as far as it has come."""

    def __init__(self, catalogue: Catalogue, entry: Entry):
        self.catalogue, self.entry, self.plan = catalogue, entry, open_plan(entry)
        self.lower_is_better = self.plan.metric in LOWER_IS_BETTER
        self.trials = [self._read_trial(trial) for trial in self.plan.list_trials()]

    def _read_trial(self, trial: Trial) -> TrialProgress:
        folder = self.entry.folder
        run = self.catalogue.entries.get(f"{self.entry.id}/{TRIALS_FOLDER}/{trial.name}")
        outcome = load_training(folder, trial)
        test = load_test(folder, trial) if trial.kind == "train" else None
        if outcome is not None:
            value = None if outcome.result is None else outcome.result.validation
        else:
            value = None if run is None else self._find_best_validation(run)
        return TrialProgress(trial, outcome, test, run, value)

    def _find_best_validation(self, run: Entry) -> float | None:
        with suppress(UsageError):  # it was removed in the meantime
            values = self.catalogue.get_curve(run.id).get_series(f"valid.{self.plan.metric}")[1]
            return self.choose_best(float(value) for value in values)
        return None

    def choose_best(self, values: Iterable[float]) -> float | None:
        """Returns the best of some values of the metric; None if none is finite."""
        finite = [value for value in values if abs(value) < float("inf")]
        return (min if self.lower_is_better else max)(finite) if finite else None

    # Stages

    def list_stages(self) -> list[dict[str, Any]]:
        """Returns the stages with the number of their jobs and of those that have an outcome."""
        search = [each for each in self.trials if each.trial.kind == "lr"]
        training = [each for each in self.trials if each.trial.kind == "train"]
        trained = [each for each in training if each.outcome is None or each.outcome.status == "done"]
        folder = self.entry.folder
        has_started = any(each.outcome is not None or each.run is not None for each in self.trials)
        stages = [
            ("speed", int(has_started or SPEED_JOB.load(folder) is not None), 1),
            ("learning rates", sum(each.outcome is not None for each in search), len(search)),
            ("training", sum(each.outcome is not None for each in training), len(training)),
            ("test", sum(each.test is not None for each in trained), len(trained)),
            ("latency", int(LATENCY_JOB.load(folder) is not None), 1),
        ]
        return [{"name": name, "done": done, "total": total} for name, done, total in stages if total]

    @cached_property
    def report(self) -> ReportSummary | None:
        """The report in the folder; None while trials run, and if it was written before some of them ended.

        A folder may have been copied, so the times of files say nothing. One without trials has nothing but its report.
        """
        if self.entry.owner is not None:
            return None
        summary = _summarize_report(self.entry.folder, _read_mark(self.entry.folder / REPORT_FILE))
        outcomes = {each.trial.name: each.outcome.status for each in self.trials if each.outcome is not None}
        is_tested = all(each.test is not None for each in self.trials if each.needs_test)
        is_complete = not outcomes or (summary is not None and outcomes == summary.statuses and is_tested)
        return summary if is_complete else None

    @property
    def state(self) -> str:
        """Returns running, finished or stopped; failed if the folder cannot be read."""
        if self.entry.owner is not None:
            return "running"
        return "stopped" if self.report is None else "finished"

    def estimate_remaining_seconds(self) -> float | None:
        """Returns about how long it takes until the end; None if it does not run."""
        if self.state != "running":
            return None
        remaining = RemainingTime(self.entry.folder, self.plan)
        remaining.refresh(self.plan)
        progress = {Job("train", each.trial.name): each.progress for each in self.trials}
        num_running = sum(each.state == "running" for each in self.trials)
        seconds = sum(expected * (1 - progress.get(job, 0.0)) for job, expected in remaining.remaining.items())
        return seconds / max(1, num_running)

    # What the page shows

    def describe(self) -> dict[str, Any]:
        """Returns everything but the report."""
        plan = self.plan
        seconds = self.estimate_remaining_seconds()
        return {
            **self.summarize(),
            "title": f"{TASK_NAMES.get(plan.task, plan.task)} on {plan.data}",
            "metric": {"name": format_metric_name(plan.metric), "lower_is_better": self.lower_is_better},
            "unit": plan.unit,
            "stages": self.list_stages(),
            "remaining": "" if seconds is None else format_duration(seconds),
            "leader": self.find_leader(),
            "ranking": self.rank_families(),
            "trials": [self._describe_trial(each) for each in self.trials],
            "downloads": [name for name in DOWNLOADS if find_download(self.catalogue, self.entry, name) is not None],
        }

    def summarize(self) -> dict[str, Any]:
        """Returns what the list of comparisons shows."""
        families, report = list(self.plan.families), self.report
        states = [each.state for each in self.trials]
        leader, metric = self.find_leader(), format_metric_name(self.plan.metric)
        provisional = leader and {"name": ", ".join(leader["names"]), "text": f"{metric} {leader['text']}"}
        return {
            "id": self.entry.id,
            "state": self.state,
            "has_report": report is not None,
            "families": [
                {"name": name, "style": style.to_plain()} for name, style in zip(families, choose_styles(families))
            ],
            "num_trials": len(states),
            "num_done": states.count("finished"),
            "num_failed": states.count("failed"),
            "best": provisional if report is None else report.best,
        }

    def find_leader(self) -> dict[str, Any] | None:
        """Returns the first of the ranking, with the `names` of all that are equal to it.

        None while there is no other family to compare it with.
        """
        first, *others = self.rank_families()
        rivals = [row for row in others if row["source"] == first["source"]]
        if not first["source"] or (others and not rivals):
            return None
        return {**first, "names": [first["name"], *(row["name"] for row in rivals if row["value"] == first["value"])]}

    def rank_families(self) -> list[dict[str, Any]]:
        """Returns the families by their validation so far, best first: the mean over seeds, or the best of the search.

        Seeds that still train count with their best validation so far.
        """
        rows = []
        for name in self.plan.families:
            own = [each for each in self.trials if each.trial.family == name]
            seeds = [each.value for each in own if each.trial.kind == "train" and each.value is not None]
            search = [each.value for each in own if each.trial.kind == "lr" and each.value is not None]
            value = sum(seeds) / len(seeds) if seeds else self.choose_best(search)
            rate = choose_rate(self.entry.folder, self.plan, name)[0] if seeds else None
            states = [each.state for each in own]
            rows.append(
                {
                    "name": name,
                    "value": value,
                    "text": format_metric(self.plan.metric, value),
                    "num_seeds": len(seeds),
                    "num_runs": sum(each.trial.kind == "train" for each in own),
                    "source": "seeds" if seeds else "search" if search else "",
                    "rate": format_rate(rate),
                    "parameters": format_count(self.plan.parameters[name] or None),
                    "num_trials": len(own),
                    **{f"num_{state}": states.count(state) for state in ("finished", "running", "failed")},
                    "progress": sum(each.progress for each in own) / len(own),
                    "reason": next((each.reason for each in own if each.reason), ""),
                }
            )
        sign = 1 if self.lower_is_better else -1
        order = ("seeds", "search", "")
        return sorted(rows, key=lambda row: (order.index(row["source"]), sign * (row["value"] or 0.0)))

    def _describe_trial(self, each: TrialProgress) -> dict[str, Any]:
        trial, result, last = each.trial, each.outcome and each.outcome.result, each.run.last if each.run else {}
        rate = self.plan.get_rate(trial) if trial.kind == "lr" else result.rate if result else None
        tokens = result.tokens if result else last.get("tokens")
        seconds = result.seconds if result else last.get("seconds")
        return {
            "id": None if each.run is None else each.run.id,
            "name": trial.name,
            "family": trial.family,
            "kind": trial.kind,
            "seed": trial.seed,
            "rate": format_rate(rate),
            "state": each.state,
            "reason": each.reason,
            "is_tested": each.test is not None and each.test.status == "done",
            "has_weights": each.run is not None and (each.run.folder / "model.safetensors").is_file(),
            "progress": each.progress,
            "value": each.value,
            "text": format_metric(self.plan.metric, each.value),
            "tokens": format_count(tokens) if isinstance(tokens, (int, float)) else "",
            "seconds": format_duration(seconds) if isinstance(seconds, (int, float)) else "",
        }


def list_comparisons(catalogue: Catalogue) -> list[dict[str, Any]]:
    """Returns a summary of each comparison; of one that cannot be read, its problem."""
    rows = []
    for entry in list(catalogue.entries.values()):
        if entry.kind == "comparison":
            try:
                rows.append(ComparisonProgress(catalogue, entry).summarize())
            except SeqwiseError as error:
                rows.append({"id": entry.id, "state": "failed", "problem": error.problem})
    return rows


def load_report_data(progress: ComparisonProgress) -> dict[str, Any]:
    """Returns the written report as the page reads it. In the studio the styles are those of the order of the plan."""
    report: Report = load_report(progress.entry.folder)
    return build_data(report, order_names(progress.plan, report))


def order_names(plan: Plan, report: Report) -> list[str]:
    """Returns the families of a report in the order of the plan, so that the colours of variants do not change."""
    return list(dict.fromkeys([*plan.families, *(family.name for family in report.families)]))


def find_download(catalogue: Catalogue, entry: Entry, name: str) -> Path | None:
    """Returns a file of the report; None if it is missing, or a link, which may lead elsewhere."""
    path = entry.folder / name
    is_file = name in DOWNLOADS and not os.path.islink(path) and path.is_file()
    return path if is_file and catalogue.is_inside(path) else None
