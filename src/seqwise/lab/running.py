"""Runs experiments by id, with other parameters or quickly, and saves results so that a run of many can be resumed."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from seqwise.errors import UsageError, suggest
from seqwise.files import write_text
from seqwise.lab.catalogue import get_experiment
from seqwise.lab.experiment import Experiment, Result
from seqwise.page.packing import pack_figures

MAX_FIGURE_BYTES = 80_000  # of the figures of one experiment in a page of all: 90 of them stay below 8 MB


def run(name: str, *, quick: bool = False, **parameters: Any) -> Result:
    """Runs an experiment and returns its result.

    name: the id, such as "C2"
    quick: use the parameters of a quick run, except for those that are given
    """
    return build_experiment(get_experiment(name), quick=quick, **parameters).run()


def build_experiment(kind: type[Experiment], *, quick: bool = False, **parameters: Any) -> Experiment:
    """Returns an experiment with some parameters changed."""
    names = [each.name for each in fields(kind)]
    for name in parameters:
        if name not in names:
            raise UsageError(f"{kind.id} has no parameter {name!r}.", fix=suggest(name, names))
    return kind(**{**(kind.quick if quick else {}), **parameters})


class ResultFile:
    """Results as lines of JSON, with their packed figures, so that an interrupted run of many can be resumed.

    Without a path the results are only kept in memory.
    """

    def __init__(self, path: Path | None):
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}  # by id

    def load(self) -> None:
        """Reads the results that are there; a line that was cut off or damaged is ignored."""
        if self.path is None or not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                record = json.loads(line)
                self.records[record["id"]] = record

    def has(self, experiment: Experiment) -> bool:
        """Returns whether there is a result of an experiment; raises an error if that has other parameters."""
        record = self.records.get(experiment.id)
        if record is None:
            return False
        if record.get("parameters") != json.loads(json.dumps(asdict(experiment))):
            problem = f"its result of {experiment.id} has other parameters, so this run would mix two sizes or seeds."
            fix = "Repeat --quick and --seed as in the interrupted run; or name another --out; or leave --resume out."
            raise UsageError(problem, fix=fix, file=self.path)
        return True

    def list_others(self, ids: Collection[str]) -> list[str]:
        """Returns the experiments with results in the file that are not among `ids`."""
        return [name for name in self.records if name not in ids]

    def add(self, result: Result) -> None:
        """Adds a result and saves all of them."""
        record = to_record(result)
        self.records[record["id"]] = record
        if self.path is not None:
            text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in self.records.values())
            write_text(self.path, text)


def to_record(result: Result) -> dict[str, Any]:
    """Returns a result with its packed figures as JSON values, as pages read it."""
    return {**result.to_json(), "figures": pack_figures(result.figures, MAX_FIGURE_BYTES)}
