"""`HealthMonitor`: reports during training what is certainly wrong, each once, in one line with a suggestion.

It reads the numbers that are written to `metrics.jsonl` and nothing else: no weight, gradient or random number changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import Task
from seqwise.training.health_rules import COLUMNS, RULES, Curve, RunProperties, is_complete
from seqwise.training.run import Run
from seqwise.training.step import Step

CHECK_ROWS = 10  # lines of metrics.jsonl between two checks, and
CHECK_SHARE = 0.02  # of all lines so far, so that all checks of a long run take no noticeable time


class HealthMonitor:
    """Reads the steps of one run that are logged; `rows` are the lines of the run from before it was resumed."""

    def __init__(self, properties: RunProperties, rows: Sequence[Mapping[str, Any]] = ()):
        self.properties, self.validations = properties, list[tuple[int, Mapping[str, float]]]()
        self.columns = [array("d") for _ in COLUMNS]  # 32 bytes per line
        self.next_check = 0
        self.reported: set[str] = set()
        for row in rows:  # what was reported before the run was resumed is not reported again
            self.add_row(row)

    def add(self, step: Step) -> tuple[str, ...]:
        """Adds a step that is logged; returns the messages for the user, usually none."""
        return self.add_row({**vars(step), "step": step.number})

    def add_row(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """Adds a line of `metrics.jsonl`; returns the messages for the user."""
        if not is_complete(row):
            return ()
        for column, name in zip(self.columns, COLUMNS):
            column.append(row[name])
        if row.get("validation"):
            self.validations.append((row["step"], row["validation"]))
        num_rows = len(self.columns[0])
        if num_rows < self.next_check and not row.get("validation"):
            return ()
        self.next_check = num_rows + max(CHECK_ROWS, int(CHECK_SHARE * num_rows))
        steps, losses, norms, rates = (np.array(column) for column in self.columns)
        progress, ended = row.get("progress", 0.0), row.get("ended", "")
        return self.diagnose(Curve(steps, losses, norms, rates, self.validations, progress, ended))

    def diagnose(self, curve: Curve) -> tuple[str, ...]:
        """Returns the message of the first rule that reports a problem, unless it was reported before.

        Of several, the first is the cause of the others: only that one is reported.
        """
        for rule in RULES:
            diagnosis = rule(curve, self.properties)
            if diagnosis is not None and diagnosis.severity == "problem":
                is_new = diagnosis.rule not in self.reported
                self.reported.add(diagnosis.rule)
                return (diagnosis.format_line(),) if is_new else ()
        return ()


def open_monitor(run: Run, task: Task, model: nn.Module) -> HealthMonitor:
    """Returns the monitor of a run, which may be new or resumed."""
    return HealthMonitor(collect_properties(run.settings, task, model), run.read_metrics())


def collect_properties(settings: ResolvedSettings, task: Task | None, model: nn.Module | None = None) -> RunProperties:
    """Returns what the rules need to know of a run; `task` is None if its data cannot be read."""
    training = settings.training
    scale = norm = None
    if model is not None:
        matrices = [parameter.detach().float() for parameter in model.parameters() if parameter.dim() >= 2]
        norm = sum(float(matrix.square().sum()) for matrix in matrices) ** 0.5
        scale = norm / max(1, sum(matrix.numel() for matrix in matrices)) ** 0.5
    return RunProperties(
        settings.task,
        training.learning_rate,
        training.is_adam,
        training.clip,
        training.clip_threshold,
        None if task is None else task.target_entropy(settings),
        None if task is None else task.target_entropy(settings, is_smoothed=False),
        scale,
        norm,
        {"classify": "label", "tag": "tag"}.get(settings.task, "token"),
    )
