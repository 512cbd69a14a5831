"""One run of a recipe with one seed, for `records.py`: which command is next follows from the files that are there.

    OUT/NAME/seed-0/                     the run folder
    OUT/NAME/seed-0.valid.static.json    an evaluation, as `seqwise evaluate --json` printed it
    OUT/NAME/seed-0.log                  the output of all commands
    OUT/NAME/recipe.json                 digest of the recipe, whose change would mix two versions of it
    OUT/data/                            data that a recipe prepares
    OUT/results/NAME.json                the results of all seeds

A trial of other settings (`--set`) has a folder beside those of the seeds; `overrides.yaml` has those settings. A
finished evaluation is never repeated, so that each seed is tested once. This module starts no process.
"""

from __future__ import annotations

import json
import math
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from seqwise.config import combine_settings
from seqwise.digests import compute_digest, read_object
from seqwise.errors import UsageError
from seqwise.files import write_text
from seqwise.recipe_files import Recipe, build_evaluation_options, find_recipe
from seqwise.recipe_results import RecipeResults, SeedResult, add_results, get_results_file, read_results
from seqwise.training.failures import FAILURE_FILE
from seqwise.training.rows import read_metrics

NUM_LOG_LINES = 4  # of a log without an error message
MAX_NAME_LENGTH = 150  # of a folder, before a digest is added
OVERRIDES = "overrides.yaml"
CONFIG, SUMMARY = "config.yaml", "summary.json"  # files of a run; the second is written when training has ended


@dataclass(frozen=True)
class Command:
    """A command line of `seqwise`. Its standard output is saved as `output`, if that is set."""

    title: str
    words: tuple[str, ...]
    output: Path | None = None


@dataclass(frozen=True)
class Failure:
    """What failed of a job, such as its training, and the error message."""

    job: Job
    title: str
    error: str

    def describe(self) -> str:
        """Returns one line."""
        return f"{self.title}: {self.error.partition(chr(10))[0]}"


@dataclass(frozen=True)
class Job:
    """A recipe with one seed. `overrides` are settings that replace those of the recipe, by dotted name."""

    name: str  # as on the command line: of a recipe, or of a file
    recipe: Recipe
    seed: int
    out: Path
    data: Path
    overrides: dict[str, Any] = field(default_factory=dict)
    reads_test: bool = True  # False: the test split is never evaluated
    slots: int = 1  # of `--jobs` that the run takes; with MPS, its share of the GPU

    @property
    def title(self) -> str:
        return f"{find_recipe(self.name).stem}, seed {self.seed}{self.changes and f', {self.changes}'}"

    @property
    def changes(self) -> str:
        """Returns the settings that differ from those of the recipe, for display."""
        return ", ".join(f"{name} {format_value(value)}" for name, value in self.overrides.items())

    @property
    def folder(self) -> Path:
        """Returns the folder of this recipe, or of this trial of other settings."""
        settings = "_".join(f"{name}={format_value(value)}" for name, value in sorted(self.overrides.items()))
        name = re.sub(r"[^\w.=-]+", "_", settings) or "."
        if self.overrides and (name != settings or len(name) > MAX_NAME_LENGTH):  # file systems take 255 bytes
            digest = compute_digest(json.dumps(self.overrides, sort_keys=True).encode())
            name = f"{name[:MAX_NAME_LENGTH]}_{digest[:8]}"
        return self.out / find_recipe(self.name).stem / name

    @property
    def run(self) -> Path:
        return self.folder / f"seed-{self.seed}"

    @property
    def log(self) -> Path:
        return self.folder / f"seed-{self.seed}.log"

    @property
    def splits(self) -> tuple[str, ...]:
        return ("valid", "test") if self.reads_test and self.recipe.split == "test" else ("valid",)

    def get_evaluation_file(self, split: str, evaluation: str) -> Path:
        return self.folder / f"seed-{self.seed}.{split}.{evaluation.replace(' ', '-')}.json"

    def prepare(self) -> None:
        """Creates the folder, and writes how the trial differs from the recipe; refuses runs of another version."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file, digest = self.folder / "recipe.json", self.recipe.compute_digest()
        if file.exists() and json.loads(file.read_text(encoding="utf-8"))["digest"] != digest:
            problem = f"the recipe {self.name} has changed since the runs in {self.folder} were started."
            raise UsageError(problem, fix="Choose another folder with --out, or remove that one.")
        write_text(file, json.dumps({"recipe": self.name, "digest": digest}) + "\n")
        if self.overrides:
            values = combine_settings(None, self.overrides).model_dump(mode="json", exclude_unset=True)
            write_text(self.folder / OVERRIDES, yaml.safe_dump(values, allow_unicode=True))

    def find_next(self) -> Command | None:
        """Returns the next command: train or resume, then evaluate; None when all is done."""
        if not (self.run / SUMMARY).is_file():
            if (self.run / CONFIG).is_file():
                return Command("training", ("train", "--resume", str(self.run)))
            words = ["train", "--recipe", self.name, str(self.data), "--seed", str(self.seed), "--out", str(self.run)]
            if self.overrides:
                words += ["--config", str(self.folder / OVERRIDES)]
            return Command("training", tuple(words))
        for split in self.splits:
            for name, evaluation in self.recipe.evaluations.items():
                if not (output := self.get_evaluation_file(split, name)).is_file():
                    options = build_evaluation_options(evaluation.options)
                    words = ["evaluate", str(self.run), str(self.data), "--split", split, *options, "--json"]
                    method = "" if len(self.recipe.evaluations) == 1 else f", {name}"
                    return Command(f"evaluating the {split} split{method}", tuple(words), output)
        return None

    def read_values(self, split: str) -> dict[str, float]:
        """Returns the finished evaluations of a split, in the unit of the published number."""
        values = {}
        for name in self.recipe.evaluations:
            if (path := self.get_evaluation_file(split, name)).is_file():
                metrics = json.loads(path.read_text(encoding="utf-8"))
                metric = self.recipe.get_metric(name)
                if metric not in metrics:
                    problem = f"the recipe has the metric {metric!r}; there are {', '.join(metrics)}."
                    raise UsageError(problem, file=find_recipe(self.name))
                if metrics[metric] is None:  # in JSON; training has diverged
                    raise UsageError(f"the {metric} of the {split} split is not a finite number.", file=path)
                values[name] = metrics[metric] * self.recipe.scale
        return values

    def read_result(self, num_jobs: int, mps: bool = False) -> SeedResult:
        """Returns the result of a finished run."""
        summary = json.loads((self.run / SUMMARY).read_text(encoding="utf-8"))
        machine = json.loads((self.run / "env.json").read_text(encoding="utf-8"))
        gpu = machine.get("gpu") or {}
        return SeedResult(
            validation=self.read_values("valid"),
            test=self.read_values("test"),
            minutes=round(sum(summary["seconds"].values()) / 60, 2),
            device=gpu.get("name") or machine["cpu"]["name"],
            jobs=num_jobs,
            mps=mps,
            date=date.fromtimestamp((self.run / SUMMARY).stat().st_mtime).isoformat(),
            version=machine["seqwise"],
        )

    def read_failure(self) -> dict[str, Any]:
        """Returns the run's `failure.json`; empty if there is none or it is damaged."""
        with suppress(OSError, ValueError):
            return read_object(self.run / FAILURE_FILE)
        return {}

    def describe_state(self) -> str:
        """Returns the newest step and validation of an unfinished run, or that it has not been started."""
        return self.describe_progress() if (self.run / CONFIG).is_file() else "not started"

    def describe_progress(self) -> str:
        """Returns the newest step and validation of a run that is training."""
        rows = read_metrics(self.run / "metrics.jsonl")
        if not rows:
            return "reading"
        validations = [row for row in rows if row.get("validation")]
        values = validations[-1]["validation"] if validations else {}
        newest = ", ".join(f"{name} {value:.4g}" for name, value in list(values.items())[:2])
        speed = f"{rows[-1]['tokens_per_second']:,.0f} tokens/s"
        return f"{rows[-1]['progress']:.0%}, step {rows[-1]['step']:,}, {speed}{newest and f'; validation: {newest}'}"


def find_error(failure: Mapping[str, Any], log: str, status: int) -> str:
    """Returns the error message of a command: that of its failure.json, or the end of what it wrote into its log."""
    if "problem" in failure:
        return f"{failure['problem']}\n{failure.get('fix', '')}".strip()
    lines = log.strip().splitlines()
    starts = [index for index, line in enumerate(lines) if re.match("error: |Traceback ", line)]
    if starts:
        return "\n".join(lines[starts[-1] :]).removeprefix("error: ")
    return "\n".join([f"{describe_ending(status)} and no error message", *lines[-NUM_LOG_LINES:]])


def describe_ending(status: int) -> str:
    """Returns the status of a process in words; below 0 it is the number of a signal, of which some have no name."""
    if status >= 0:
        return f"ended with status {status}"
    names = {each.value: each.name for each in signal.Signals}
    return f"ended by {names.get(-status, f'signal {-status}')}"


def format_value(value: Any) -> str:
    return "null" if value is None else str(value)


def save_result(job: Job, num_slots: int, mps: bool = False) -> None:
    """Adds the result of a finished run to OUT/results; one that was saved with all evaluations is left as it is.

    With MPS a run has its share of the GPU, whatever runs beside it; otherwise it takes turns with all others.
    """
    file = get_output_file(job.out, job.name)
    saved, digest = read_results(file), job.recipe.compute_digest()
    before = saved.seeds.get(job.seed) if saved is not None and saved.digest == digest else None
    result = job.read_result(math.ceil(num_slots / job.slots) if mps else num_slots, mps)
    if before is None or (before.validation, before.test) != (result.validation, result.test):
        name = find_recipe(job.name).stem
        add_results(file, RecipeResults(recipe=name, digest=digest, seeds={job.seed: result}))


def is_published(name: str, recipe: Recipe, seed: int) -> bool:
    """Returns whether the repository has all results of a seed with the settings of the recipe."""
    published = read_results(get_results_file(name))
    if published is None or published.digest != recipe.compute_digest() or seed not in published.seeds:
        return False
    result = published.seeds[seed]
    splits = [result.validation, result.test] if recipe.split == "test" else [result.validation]
    return all(recipe.evaluations.keys() <= values.keys() for values in splits)


def get_output_file(out: Path, name: str) -> Path:
    """Returns the file of the results of a recipe in OUT."""
    return out / "results" / get_results_file(name).name


def build_command_line(command: Command) -> list[str]:
    """Returns the words that start a command in a process of its own."""
    return [sys.executable, "-m", "seqwise", *command.words]
