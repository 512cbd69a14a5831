"""What the files of a run or a comparison say, and the row that a table shows of it.

Files may have been edited or damaged, so every value is checked before it is used. Nothing is executed or loaded. This
module knows nothing of servers and pages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from seqwise.families import MODEL_FAMILIES
from seqwise.locks import Owner
from seqwise.metrics.evaluation import LOWER_IS_BETTER
from seqwise.studio.curves import read_last_rows
from seqwise.studio.scan import (
    COMPARISON_FILE,
    FAILURE_FILE,
    METRICS_FILE,
    NOTES_FILE,
    REPORT_FILE,
    RUN_FILE,
    SUMMARY_FILE,
    TEST_SUFFIX,
    Found,
    measure_size,
)
from seqwise.yaml_files import read_yaml

State = Literal["running", "finished", "stopped", "failed"]
Kind = Literal["run", "comparison"]
MAX_JSON_BYTES = 1 << 20  # of a summary
MAX_TEXT = 500  # characters of a value in the table
MAX_TAGS, MAX_TAG, MAX_NOTE = 20, 40, 2_000  # tags of a run; characters of one; characters of a note
UNITS = {"forecast": "values"}  # task → what it counts, if not tokens (`Task.unit`)
# The metric in the table is the first of these that the validation has.
METRICS = ("bleu", "span_f1", "token_accuracy", "accuracy", "exact_match", "perplexity", "mse", "loss")


@dataclass
class Trials:
    """What the outcomes of a comparison say. A family's value is the mean over its seeds."""

    num_done: int = 0
    num_failed: int = 0
    total: int = 0
    best: str = ""  # family
    value: float | None = None  # of the best family: of its tests, or of validations before them
    num_seeds: int = 0  # whose mean it is
    is_test: bool = False
    # Sums over all trainings
    updates: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0

    def describe(self) -> dict[str, Any]:
        """Returns the values for the row of the table."""
        return {
            "done": self.num_done,
            "failed": self.num_failed,
            "total": self.total,
            "best": self.best,
            "seeds": self.num_seeds,
            "is_test": self.is_test,
        }


@dataclass
class Entry:
    """A run or a comparison: its path below a root folder, and what its files say."""

    id: str
    kind: Kind
    folder: Path
    parent: str = ""  # the comparison whose trial it is
    settings: dict[str, Any] = field(default_factory=dict)
    settings_mark: tuple[int, ...] = ()  # of their file when it was read
    summary: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, Any] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)  # of a trial
    notes: dict[str, Any] = field(default_factory=dict)  # tags and a note of the user
    last: dict[str, Any] = field(default_factory=dict)  # row of metrics.jsonl
    validated: dict[str, Any] = field(default_factory=dict)  # last row with the best validation so far
    trials: Trials | None = None  # of a comparison
    has_report: bool = False
    problem: str = ""  # why the folder cannot be read
    num_bytes: int = 0
    changed: float = 0.0  # time of its last change
    owner: Owner | None = None  # the process that writes it

    def describe(self) -> dict[str, Any]:
        """Returns the row of the table."""
        run = get_mapping(self.settings, "run")
        metric, value = self._find_metric()
        return {
            "id": self.id,
            "kind": self.kind,
            "parent": self.parent,
            "name": f"{self.folder.parent.name}/{self.folder.name}" if self.parent else self.folder.name,
            "task": get_text(self.settings, "task"),
            "model": get_text(self.settings, "model") or ", ".join(map(str, self.families))[:MAX_TEXT],
            "data": get_text(run, "data") or get_text(self.settings, "data"),
            "seed": self.settings.get("seed") if isinstance(self.settings.get("seed"), int) else None,
            "state": self.state,
            "problem": self._find_problem(),
            "metric": metric,
            "value": value,
            "higher_is_better": metric is not None and metric not in LOWER_IS_BETTER,
            **self._measure_progress(),
            "unit": UNITS.get(get_text(self.settings, "task"), "tokens"),
            "ended": get_text(self.last, "ended"),
            "bytes": self.num_bytes,
            "changed": self.changed,
            "process": None if self.owner is None else {"pid": self.owner.pid, "host": self.owner.host},
            "tags": clean_tags(self.notes.get("tags")),
            "note": get_text(self.notes, "note", MAX_NOTE),
            "trials": None if self.trials is None else self.trials.describe(),
        }

    @property
    def families(self) -> list[str]:
        """The families of a comparison."""
        return list(get_mapping(self.settings, "families"))

    @property
    def state(self) -> State:
        """Whether the run trains, has ended, or can be resumed."""
        if self.problem:
            return "failed"
        if self.owner is not None:
            return "running"
        if self.failure or self.outcome.get("status") == "failed":
            return "failed"
        return "finished" if self._is_finished() else "stopped"

    def _is_finished(self) -> bool:
        if self.trials is not None:
            return self.has_report and self.trials.num_done + self.trials.num_failed >= self.trials.total
        # A finished run that was resumed for longer has a summary, but its last row is not the end of training.
        return bool(self.last.get("ended") or self.outcome or (self.summary and not self.last))

    def _find_problem(self) -> str:
        if self.problem:
            return self.problem[:MAX_TEXT]
        if self.state != "failed":
            return ""
        return get_text(self.failure, "problem") or get_text(self.outcome, "reason") or "the reason is not known."

    def _measure_progress(self) -> dict[str, float | None]:
        if self.trials is None:
            return {name: get_number(self.last, name) for name in ("progress", "step", "tokens", "seconds")}
        trials = self.trials
        progress = (trials.num_done + trials.num_failed) / trials.total if trials.total else None
        return {"progress": progress, "step": trials.updates, "tokens": trials.tokens, "seconds": trials.seconds}

    def _find_metric(self) -> tuple[str | None, float | None]:
        if self.trials is not None:
            metric = get_text(self.settings, "metric")
            return metric or None, self.trials.value
        values = get_mapping(self.summary, "validation") if self._is_finished() else {}
        values = values or get_mapping(self.validated, "validation")
        for name in METRICS:
            if (value := get_number(values, name)) is not None:
                return name, value
        return None, None


def get_number(values: Mapping[str, Any], name: str) -> float | None:
    """Returns a finite number of a mapping, or None."""
    value = values.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < 1e300 else None  # neither NaN nor an integer that no float can hold


def get_text(values: Mapping[str, Any], name: str, limit: int = MAX_TEXT) -> str:
    """Returns a text of a mapping, shortened; "" if it is something else."""
    value = values.get(name)
    return value[:limit] if isinstance(value, str) else ""


def get_mapping(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns a mapping inside a mapping; an empty one if it is something else."""
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def clean_tags(value: Any) -> list[str]:
    """Returns the tags of a run: short texts, each once."""
    tags = (
        [" ".join(each.split())[:MAX_TAG] for each in value if isinstance(each, str)] if isinstance(value, list) else []
    )
    return [tag for tag in dict.fromkeys(tags) if tag][:MAX_TAGS]


def read_entry(entry: Entry, found: Found, known: Entry | None = None) -> Entry:
    """Fills an entry with what the files of its folder say; `known` is what they said before."""
    folder = entry.folder
    _read_settings(entry, found, known)
    for name, attribute in ((SUMMARY_FILE, "summary"), (FAILURE_FILE, "failure"), (NOTES_FILE, "notes")):
        if name in found.files:
            setattr(entry, attribute, read_json(found.files[name].path))
    if entry.kind == "comparison":
        entry.has_report = REPORT_FILE in found.files
        entry.trials = read_trials(entry.settings, found)
    else:
        if METRICS_FILE in found.files:
            entry.last, entry.validated = read_last_rows(folder / METRICS_FILE)
        for outcome in found.outcomes.values():
            entry.outcome = read_json(outcome.path)
    entry.num_bytes = measure_size(folder)
    for each in (*found.files.values(), *found.outcomes.values()):
        with suppress(OSError):
            entry.changed = max(entry.changed, each.stat().st_mtime)
    return entry


def _read_settings(entry: Entry, found: Found, known: Entry | None) -> None:
    """Reads the settings, or copies them if their file has not changed: while a run trains only its metrics change."""
    name = COMPARISON_FILE if entry.kind == "comparison" else RUN_FILE
    try:
        status = found.files[name].stat()
        entry.settings_mark = status.st_ino, status.st_size, status.st_mtime_ns
        if known is not None and known.settings_mark == entry.settings_mark and not known.problem:
            entry.settings = known.settings
            return
        settings = read_yaml(entry.folder / name)
        entry.settings = settings if isinstance(settings, dict) else {}
        entry.problem = "" if entry.settings else f"{name} has no settings."
    except (OSError, yaml.YAMLError) as error:
        entry.problem = f"{name} cannot be read: {error}"


def read_trials(settings: dict[str, Any], found: Found) -> Trials:
    """Returns what the outcomes of a comparison say so far."""
    trials, metric = Trials(total=count_trials(settings)), get_text(settings, "metric")
    validations: dict[str, list[float]] = {}
    tests: dict[str, list[float]] = {}
    for name, file in found.outcomes.items():
        outcome, family = read_json(file.path), name.partition("/")[0]
        result = get_mapping(outcome, "result")
        is_training = "/seed-" in name
        if name.endswith(TEST_SUFFIX):
            value, values = get_number(get_mapping(result, "metrics"), metric), tests
        else:
            trials.num_done += outcome.get("status") == "done"
            trials.num_failed += outcome.get("status") == "failed"
            value, values = get_number(result, "validation"), validations
            for field_name in ("updates", "tokens", "seconds"):
                amount = get_number(result, field_name) or 0.0
                setattr(trials, field_name, getattr(trials, field_name) + amount)
        if value is not None and is_training:
            values.setdefault(family, []).append(value)
    values = tests or validations
    means = {family: sum(each) / len(each) for family, each in values.items()}
    if means:
        trials.best = (min if metric in LOWER_IS_BETTER else max)(means, key=lambda family: means[family])
        trials.value, trials.num_seeds, trials.is_test = means[trials.best], len(values[trials.best]), bool(tests)
    return trials


def count_trials(settings: dict[str, Any]) -> int:
    """Returns how many trainings a comparison has: those of its learning-rate search, and one per family and seed."""
    budgets, added = get_mapping(settings, "budgets"), get_mapping(settings, "added_rates")
    seeds, rates = budgets.get("seeds"), budgets.get("lr_trials")
    num_seeds = len(seeds) if isinstance(seeds, list) else 1
    num_rates = rates if isinstance(rates, int) and 1 < rates < 1_000 else 0
    total = 0
    for name, family in get_mapping(settings, "families").items():
        model = get_text(family, "model") if isinstance(family, dict) else ""
        if model in MODEL_FAMILIES and not MODEL_FAMILIES[model].has_gradients:
            total += 1  # fitted once
        else:
            rates = added.get(name)
            total += num_seeds + num_rates + (len(rates) if isinstance(rates, list) else 0)
    return total


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the object in a JSON file; an empty one if it is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError), open(path, "rb") as file:
        value = json.loads(file.read(MAX_JSON_BYTES))
        return value if isinstance(value, dict) else {}
    return {}
