"""`RunEvidence`: what the checks of a run read: its curve, its recorded gates, its data and its model on examples.

Everything beyond the small files of the run is read when a check first asks for it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from seqwise.errors import DataError, RunError, SeqwiseError
from seqwise.families import get_family
from seqwise.lens.subject import Subject, build_subject, inspect_split
from seqwise.metrics.evaluation import compute_entropy
from seqwise.page.figures import Finding
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.task import Task
from seqwise.tasks.training_summary import TrainingSummary
from seqwise.training.api import TrainedModel
from seqwise.training.health_monitor import collect_properties
from seqwise.training.health_rules import Curve, RunProperties
from seqwise.training.run import WEIGHTS
from seqwise.training.training_run import open_task

NUM_EXAMPLES = 24  # of the validation split, on which the model runs
NEEDS_MODEL_OR_DATA = "it needs the model or the data, which a quick check does not read"

CheckResult = list[Finding] | str  # findings, or why the check was not made
Check = Callable[["RunEvidence"], CheckResult]


@dataclass
class RunEvidence:
    """A run that may be finished, interrupted, or still training."""

    trained: TrainedModel
    quick: bool = False
    name: str = ""
    suspicious_labels: Any = None  # what `find_suspicious_labels` has found, for the finding and for the table

    @property
    def has_gradients(self) -> bool:
        return get_family(self.trained.settings.model).has_gradients

    @property
    def is_recurrent(self) -> bool:
        return get_family(self.trained.settings.model).is_recurrent

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return self.trained.run.read_metrics()

    @cached_property
    def curve(self) -> Curve:
        return Curve.from_rows(self.rows)

    @cached_property
    def watch(self) -> list[dict[str, Any]]:
        """Lines of `watch.jsonl`, which a run with --training.watch writes; none without it."""
        return self.trained.run.read_layers()

    @cached_property
    def properties(self) -> RunProperties:
        """What the rules of the curve need to know."""
        model = self.trained.model if self.has_weights and self.has_gradients else None
        properties = collect_properties(self.trained.settings, self.task, model)
        if properties.entropy is None and self.trained.settings.task in ("language", "masked"):
            summary = TrainingSummary.load(self.trained.run.folder)
            if summary is not None and self.trained.settings.network.output != "sampled":
                properties = RunProperties(
                    **{**vars(properties), "entropy": compute_entropy(summary.arrays["token_counts"])}
                )
        return properties

    @cached_property
    def has_weights(self) -> bool:
        return (self.trained.run.folder / WEIGHTS).exists()  # damaged ones raise an error when they are read

    @cached_property
    def task(self) -> Task | None:
        """The task on its data; None if that cannot be read, or if the checks are to be quick."""
        if self.quick:
            return None
        with suppress(RunError, DataError):
            return open_task(self.trained.run)
        return None

    def explain_missing_data(self) -> str:
        """Returns why there is no task."""
        return (
            NEEDS_MODEL_OR_DATA
            if self.quick
            else f"the data {self.trained.run.metadata.data} cannot be read, or has changed"
        )

    @cached_property
    def inspected(self) -> list[InspectedInput]:
        """Examples of the validation split; none if the model or the data is missing."""
        if self.quick or not self.has_weights:
            return []
        with suppress(SeqwiseError):
            return inspect_split(self.trained, NUM_EXAMPLES)
        return []

    @cached_property
    def subjects(self) -> list[Subject]:
        """The model with each of the examples."""
        return [replace(build_subject(self.trained, each), name=self.name) for each in self.inspected]

    def explain_missing_examples(self) -> str:
        """Returns why there are no subjects."""
        if self.quick:
            return NEEDS_MODEL_OR_DATA
        return "the run has no weights yet" if not self.has_weights else "the validation split cannot be read"

    def suggest_training(self, settings: Mapping[str, Any]) -> str:
        """Returns the command that trains again with other settings."""
        options = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        return self.trained.run.build_training_command(options)

    def suggest_view(self, view: str, *options: str) -> str:
        """Returns the command that shows another view of the run."""
        return shlex.join(["seqwise", "inspect", str(self.trained.run.folder), "--view", view, *options])


def to_sentence(text: str) -> str:
    """Returns a clause as a sentence, with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def list_some(names: Sequence[str], count: int = 3) -> str:
    """Returns the first names, and how many more there are."""
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more
