"""The tables at the end of `records.py`: trials and results, what is unfinished and what failed.

This module starts no process.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from record_jobs import Failure, Job


def print_trials(done: Sequence[Job], unfinished: Sequence[Job], failures: Sequence[Failure]) -> None:
    """Prints the trials of each recipe, the best one first, then those that are unfinished and those that failed."""
    states = [(job, "unfinished", job.describe_state()) for job in unfinished]
    states += [(each.job, "failed", each.describe()) for each in failures]
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
