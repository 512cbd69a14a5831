"""The tables at the end of `records.py`: trials and results, what is unfinished and what failed.

This module starts no process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from record_jobs import Failure, Job, get_output_file
from records_page import format_mean

from seqwise.cli import console
from seqwise.recipe_files import Recipe, find_recipe
from seqwise.recipe_results import NUM_SEEDS, RecipeResults, average, get_results_file, judge, read_results

RESULT_COLUMNS = ("recipe", "evaluation", "metric", "validation", "test", "required", "verdict")


def print_trials(done: Sequence[Job], unfinished: Sequence[Job], failures: Sequence[Failure]) -> None:
    """Prints the trials of each recipe, the best one first, then those that are unfinished and those that failed."""
    states = list_states(unfinished, failures)
    for name in dict.fromkeys(job.name for job in (*done, *(job for job, *_ in states))):
        jobs, others = [job for job in done if job.name == name], [each for each in states if each[0].name == name]
        trials = {job.folder: job for job in jobs}
        recipe = (jobs or [others[0][0]])[0].recipe
        key = next(iter(recipe.evaluations))
        values = {folder: [job.read_values("valid")[key] for job in jobs if job.folder == folder] for folder in trials}
        print(f"\n{name}: {recipe.unit} of the validation split, mean over seeds")
        for folder in sorted(trials, key=lambda each: fmean(values[each]), reverse=not recipe.lower_is_better):
            mean, count = fmean(values[folder]), len(values[folder])
            print(f"  {mean:9.5g} ({count})  {trials[folder].changes or 'as in the recipe'}", flush=True)
        for job, state, text in others:
            print(f"  {state:13}  {job.changes or 'as in the recipe'}, seed {job.seed}: {text}", flush=True)


def print_results(
    recipes: Mapping[str, Recipe], out: Path, unfinished: Sequence[Job], failures: Sequence[Failure]
) -> bool:
    """Prints the mean of each evaluation over the seeds in OUT; returns whether all reach what they must.

    That is the number that the recipe requires and, within its tolerance, our earlier result.
    """
    rows, is_reached = [list(RESULT_COLUMNS)], True
    for name, recipe in recipes.items():
        results, earlier = read_results(get_output_file(out, name)), read_results(get_results_file(name))
        if results is None or results.digest != recipe.compute_digest():
            continue
        for key, evaluation in recipe.evaluations.items():
            verdict, is_met = judge_result(recipe, key, results, earlier)
            is_reached &= is_met
            means = [format_mean(recipe, results, split, key) or "–" for split in ("valid", "test")]
            rows.append([find_recipe(name).stem, key, recipe.unit, *means, f"{evaluation.required:g}", verdict])
    if len(rows) > 1:
        print("\n" + "\n".join(console.align(rows, num_left=3)))
    for job, state, text in list_states(unfinished, failures):
        print(f"  {state:13}  {job.title}: {text}", flush=True)
    return is_reached


def judge_result(recipe: Recipe, key: str, results: RecipeResults, earlier: RecipeResults | None) -> tuple[str, bool]:
    """Returns the verdict on an evaluation, and whether its mean meets what is required and reproduces `earlier`.

    With fewer than `NUM_SEEDS` seeds the verdict is their number; whether they meet what is required is added to it.
    """
    verdict, mean, numbers = judge(recipe, key, results), average(results, recipe.split, key), recipe.evaluations[key]
    if mean is None:
        return verdict, False
    is_met = recipe.is_as_good_as(mean.mean, numbers.required)
    if mean.count < NUM_SEEDS:
        verdict += ", meets required" if is_met else ", misses required"
    before = None if earlier is None else average(earlier, recipe.split, key)
    if earlier is None or earlier.digest != results.digest or before is None:
        return verdict, is_met
    is_comparable = mean.count >= before.count >= NUM_SEEDS
    if is_comparable and abs(before.mean - mean.mean) > numbers.tolerance:
        return f"{verdict}, not reproduced: {before.mean:.4g} ± {numbers.tolerance:g}", False
    return verdict, is_met


def list_states(unfinished: Sequence[Job], failures: Sequence[Failure]) -> list[tuple[Job, str, str]]:
    """Returns the jobs without a result, each with its state and a line about it."""
    states = [(job, "unfinished", job.describe_state()) for job in unfinished]
    return states + [(each.job, "failed", each.describe()) for each in failures]


def format_values(values: dict[str, float]) -> str:
    """Returns metrics by name of the evaluation; without the name if there is only one."""
    if len(values) == 1:
        return f"{next(iter(values.values())):.4g}"
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
