"""What our runs of a recipe reached: `recipes/results/NAME.json`, written by `benchmarks/records.py`.

A file has the metrics of each seed on the validation and the test split. It belongs to a version of the recipe, whose
digest it contains: after a change of the settings the numbers are those of earlier settings until they are measured
again. This module does not measure.
"""

from __future__ import annotations

import json
import statistics
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seqwise.budget import Budget
from seqwise.errors import UsageError
from seqwise.files import write_text
from seqwise.recipe_files import Recipe, find_recipe

NUM_SEEDS = 3  # of a result; `benchmarks/records.py` runs so many, and fewer are not judged


class SeedResult(BaseModel):
    """The run with one seed: metrics by name of the evaluation, in the unit of the published number."""

    model_config = ConfigDict(extra="forbid")

    validation: dict[str, float]
    test: dict[str, float]  # empty if the published number is of the validation split
    minutes: float  # of training with validation and saving, without the evaluations after it
    device: str
    jobs: int  # runs that shared the device; with `mps`, runs with a share of this size that would share it
    mps: bool = False  # each had a share of the multiprocessors (Multi-Process Service); otherwise they took turns
    date: str
    version: str  # of Seqwise


class RecipeResults(BaseModel):
    """The runs of a recipe, by seed."""

    model_config = ConfigDict(extra="forbid")

    recipe: str
    digest: str  # of the recipe that was run
    seeds: dict[int, SeedResult] = Field(min_length=1)

    @property
    def minutes(self) -> float:
        """Returns the mean over seeds."""
        return statistics.fmean(seed.minutes for seed in self.seeds.values())

    def describe_device(self) -> str:
        """Returns the devices, and how many runs shared one."""
        devices = ", ".join(dict.fromkeys(seed.device for seed in self.seeds.values()))
        jobs, mps = ({getattr(seed, name) for seed in self.seeds.values()} for name in ("jobs", "mps"))
        if max(jobs) == 1:
            return devices
        count = f"{min(jobs)} to {max(jobs)}" if len(jobs) > 1 else f"{max(jobs)}"
        turns = "" if True not in mps else " with MPS" if len(mps) == 1 else ", some with MPS"
        return f"{devices}, {count} runs at a time{turns}"

    def to_json(self) -> str:
        values = self.model_dump(mode="json")
        values["seeds"] = {str(seed): values["seeds"][str(seed)] for seed in sorted(self.seeds)}
        return json.dumps(values, indent=1) + "\n"


@dataclass(frozen=True)
class Average:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float | None  # None for a single seed
    count: int


def get_results_file(name: str) -> Path:
    """Returns the file of the results of a recipe: in the folder `results` beside it."""
    path = find_recipe(name)
    return path.parent / "results" / f"{path.stem}.json"


def describe_gpu(name: str, recipe: Recipe, budget: str) -> str:
    """Returns a warning for a training on a CPU: on which GPU the recipe was measured.

    Empty if it was measured on none, with other settings, or with a budget that is not the one here or is a time.
    """
    results = None
    with suppress(UsageError, OSError):  # of a file beside a recipe of one's own
        results = read_results(get_results_file(name))
    if results is None or results.digest != recipe.compute_digest() or budget != recipe.settings.budget:
        return ""
    if Budget.parse(budget).unit == "seconds" or not all("NVIDIA" in seed.device for seed in results.seeds.values()):
        return ""
    measured = f"{results.minutes:.1f} minutes on {results.describe_device()}"
    return f"this recipe was measured on a GPU, where training took {measured}. A CPU takes longer."


def read_results(path: Path) -> RecipeResults | None:
    """Returns the results in a file; None if it does not exist."""
    if not path.is_file():
        return None
    try:
        return RecipeResults.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        problem = f"not the results of a recipe: {str(error).splitlines()[0]}"
        raise UsageError(problem, file=path, fix="Remove the file; make records writes it again.") from None


def add_results(path: Path, new: RecipeResults) -> RecipeResults:
    """Adds seeds to the results in a file, and returns all; those of another version of the recipe are replaced."""
    saved = read_results(path)
    if saved is not None and saved.digest == new.digest:
        new = new.model_copy(update={"seeds": saved.seeds | new.seeds})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, new.to_json())
    return new


def average(results: RecipeResults, split: str, evaluation: str) -> Average | None:
    """Returns the mean of an evaluation on a split over the seeds that have it; None if there are none."""
    names = {"valid": "validation", "test": "test"}
    values = [getattr(seed, names[split]).get(evaluation) for seed in results.seeds.values()]
    values = [value for value in values if value is not None]
    if not values:
        return None
    return Average(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def judge(recipe: Recipe, evaluation: str, results: RecipeResults | None) -> str:
    """Returns what the results say about an evaluation of a recipe: goal, required or not reached, or why nothing."""
    if results is None:
        return "not measured"
    if results.digest != recipe.compute_digest():
        return "settings changed"
    mean = average(results, recipe.split, evaluation)
    if mean is None:
        return "not measured"
    if mean.count < NUM_SEEDS:
        return f"{mean.count} of {NUM_SEEDS} seeds"
    numbers = recipe.evaluations[evaluation]
    if recipe.is_as_good_as(mean.mean, numbers.goal):
        return "goal reached"
    return "required reached" if recipe.is_as_good_as(mean.mean, numbers.required) else "not reached"
