"""Reproduces the published results of the recipes: trains each seed, then evaluates validation and, once, test.

    make records                                                    # all recipes, seeds 0 to 2; hours
    make records ARGS="--recipes sst2,conll2003 --seeds 0,1,2 --jobs 4 --out runs/records"
    python benchmarks/records.py --recipes sst2 --seeds 0 --set training.learning_rate=0.003
    python benchmarks/records.py --search benchmarks/searches/transformers.yaml --seeds 0 --minutes 30
    python benchmarks/records.py --publish runs/records             # write the results into the repository

It continues where it was stopped: finished seeds and evaluations are not repeated. Ctrl-C, SIGTERM and `--minutes` stop
the trainings, which save and are resumed by the same command. `--jobs 4` runs four at a time on one GPU, each as a
process with its own log; they take turns, or with `--mps` have a quarter of the GPU each. With `--slots ptb-lstm=2` a
run of that recipe takes two of the four slots, and has half of the GPU. The data is in $SEQWISE_DATA. `--missing`
leaves out the seeds that have all results in the repository; recipe files of your own have none there.

While settings are searched, the test split stays unread: `--validation-only`, which `--set` and `--search` imply; see
`record_trials.py`. Results of complete runs are in OUT/results as JSON. `--publish` copies them to
`src/seqwise/recipes/results`, from which docs/records.md and `seqwise recipes` are made. The exit status is 1 if a run
failed, a requirement is not met or a result is not reproduced, and 130 if a stop left runs unfinished.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gpu_sharing import PERCENTAGE, share_gpu
from record_jobs import Command, Failure, Job, build_command_line, find_error, is_published, save_result
from record_options import parse_count, split_names, split_seeds, split_slots
from record_tables import format_values, print_results, print_trials
from record_trials import build_trials, parse_overrides, read_search

from seqwise.cli.recipes import read_and_check_recipe
from seqwise.environment import count_cpus
from seqwise.errors import SeqwiseError, UsageError
from seqwise.recipe_files import DATA_VARIABLE, Recipe, find_recipe, list_recipe_names, read_recipe
from seqwise.recipe_results import NUM_SEEDS, add_results, get_results_file, read_results

ROOT = Path(__file__).parents[1]
POLL_SECONDS, REPORT_SECONDS = 0.2, 30.0
SAVE_SECONDS = 120.0  # a process that was asked to stop saves its run; after this time it is killed
INTERRUPTED = 130  # exit status of a command that was stopped and has saved
PR_SET_PDEATHSIG = 1  # of prctl: the signal that a child gets when its parent ends


@dataclass
class JobProcess:
    """A process of a job."""

    job: Job
    command: Command
    process: subprocess.Popen[bytes]
    files: list[IO[bytes]]
    log_size: int  # of the job, before this command
    earlier_failure: dict[str, Any]

    @classmethod
    def start(cls, job: Job, command: Command, variables: Mapping[str, str]) -> JobProcess:
        paths = [(job.log, "ab")] if command.output is None else [(job.log, "ab"), (f"{command.output}.part", "wb")]
        files = [open(path, mode) for path, mode in paths]  # noqa: SIM115 - closed by `finish`
        log_size, earlier_failure = files[0].tell(), job.read_failure()
        process = subprocess.Popen(
            build_command_line(command), stdin=subprocess.DEVNULL, stdout=files[-1], stderr=files[0],
            env={**os.environ, **variables}, start_new_session=True, preexec_fn=end_with_parent,
        )  # fmt: skip
        return cls(job, command, process, files, log_size, earlier_failure)

    @property
    def is_training(self) -> bool:
        return self.command.output is None

    def finish(self) -> int:
        """Returns the exit status; the output of a successful evaluation gets its name."""
        status = self.process.wait()
        for file in self.files:
            file.close()
        if self.command.output is not None and status == 0:
            os.replace(f"{self.command.output}.part", self.command.output)
        return status

    def read_error(self, status: int) -> str:
        """Returns the error message of this command, which failed."""
        failure = self.job.read_failure()
        log = self.job.log.read_bytes()[self.log_size :].decode("utf-8", "replace")
        return find_error(failure if failure != self.earlier_failure else {}, log, status)


def end_with_parent() -> None:
    """Asks Linux to stop this process when its parent is killed, so that no training is left over."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Scheduler:
    """Runs jobs, several at a time, until all are done, the time is over or a signal arrives."""

    def __init__(
        self, jobs: Sequence[Job], num_slots: int, minutes: float | None, log: Callable[[str], None],
        mps_variables: Mapping[str, str] | None = None,
    ):  # fmt: skip
        """The running jobs take at most `num_slots` slots; `mps_variables` are those of `share_gpu`, if it is used."""
        self.waiting = sorted(jobs, key=lambda job: -job.slots)  # otherwise small jobs would keep large ones waiting
        self.num_slots, self.log, self.mps_variables = num_slots, log, mps_variables
        self.running: list[JobProcess] = []
        self.done: list[Job] = []
        self.failed: list[Failure] = []
        self.unfinished: list[Job] = []
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.is_stopped = False

    def stop(self, *_: object) -> None:
        self.is_stopped = True

    def run(self, on_done: Callable[[Job], None]) -> None:
        """Runs all jobs; `on_done` is called with each that is complete."""
        handlers = {number: signal.signal(number, self.stop) for number in (signal.SIGINT, signal.SIGTERM)}
        next_report = time.monotonic() + REPORT_SECONDS
        try:
            while (self.waiting or self.running) and not self.is_stopped:
                self._start_waiting(on_done)
                self._collect()
                if time.monotonic() >= next_report:
                    self._report()
                    next_report += REPORT_SECONDS
                if self.deadline is not None and time.monotonic() > self.deadline:
                    self.log("the time is over.")
                    self.stop()
                time.sleep(POLL_SECONDS)
        finally:
            self._end_processes()
            for number, handler in handlers.items():
                signal.signal(number, handler)
        for job in self.waiting:  # after a stop; some have just finished their last command
            if job.find_next() is None:
                self._finish(job, on_done)
            else:
                self.unfinished.append(job)

    def _start_waiting(self, on_done: Callable[[Job], None]) -> None:
        while (job := self._find_job()) is not None:
            self.waiting.remove(job)
            command = job.find_next()
            if command is None:
                self._finish(job, on_done)
                continue
            self.log(f"{job.title}: {command.title}")
            self.running.append(JobProcess.start(job, command, self._build_variables(job)))

    def _finish(self, job: Job, on_done: Callable[[Job], None]) -> None:
        """Reports a complete job; one whose result cannot be used has failed, which does not end the others."""
        try:
            on_done(job)
        except UsageError as error:
            self.failed.append(Failure(job, "result", error.problem))
            self.log(f"{job.title}: {error}")
        else:
            self.done.append(job)

    def _find_job(self) -> Job | None:
        """Returns the first waiting job for which enough slots are free."""
        free = self.num_slots - sum(each.job.slots for each in self.running)
        return next((job for job in self.waiting if job.slots <= free), None)

    def _build_variables(self, job: Job) -> dict[str, str]:
        threads = str(max(1, count_cpus() * job.slots // self.num_slots))
        variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads)}
        if self.mps_variables is not None:
            variables |= {**self.mps_variables, PERCENTAGE: str(100 * job.slots // self.num_slots)}
        return variables

    def _collect(self) -> None:
        """Removes the processes that have ended; their jobs wait for the next command, unless they failed."""
        for each in [each for each in self.running if each.process.poll() is not None]:
            self.running.remove(each)
            self._finish_process(each)

    def _finish_process(self, each: JobProcess, is_terminated: bool = False) -> None:
        """Lets the job of a process that has ended wait for its next command, unless it has failed or was stopped."""
        status = each.finish()
        if status == 0:
            self.waiting.insert(0, each.job)
        elif is_terminated and (status == INTERRUPTED or status < 0):  # below 0: ended by a signal
            progress = f" ({each.job.describe_progress()})" if each.is_training else ""
            self.log(f"{each.job.title}: stopped{progress}; the same command continues it.")
            self.unfinished.append(each.job)
        else:
            failure = Failure(each.job, each.command.title, each.read_error(status))
            self.failed.append(failure)
            problem = f"{each.command.title} failed with status {status} ({each.job.log})"
            self.log(f"{each.job.title}: {problem}:\n{textwrap.indent(failure.error, '  ')}")

    def _report(self) -> None:
        for each in self.running:
            self.log(f"{each.job.title}: {each.job.describe_progress() if each.is_training else each.command.title}")

    def _end_processes(self) -> None:
        """Asks the processes to save and stop, and waits for them."""
        for each in self.running:
            each.process.terminate()
        limit = time.monotonic() + SAVE_SECONDS
        for each in self.running:
            try:
                each.process.wait(max(0.1, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.process.kill()
            self._finish_process(each, is_terminated=True)
        self.running = []


# Command line


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    try:
        if options.publish is not None:
            return publish(options.publish)
        return run(options)
    except SeqwiseError as error:
        log(f"error: {error}")
        return error.exit_status


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--recipes", type=split_names, default=None, help="names or files, separated by commas; default: all"
    )
    seeds = ",".join(map(str, range(NUM_SEEDS)))
    parser.add_argument("--seeds", type=split_seeds, default=seeds, help=f"default: {seeds}")
    parser.add_argument("--jobs", type=parse_count, default=1, help="runs at the same time; default: 1")
    parser.add_argument(
        "--mps", action="store_true",
        help="give each of these runs a share of the GPU (NVIDIA's Multi-Process Service) instead of turns",
    )  # fmt: skip
    parser.add_argument(
        "--slots", action="append", type=split_slots, default=[], metavar="RECIPE=N",
        help="runs of this recipe count as N of --jobs, and with --mps have N shares of the GPU; default: 1",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("runs/records"), help="default: runs/records")
    parser.add_argument("--minutes", type=float, help="stop after this time; the same command continues")
    parser.add_argument("--validation-only", action="store_true", help="never evaluate the test split")
    parser.add_argument(
        "--missing", action="store_true",
        help="leave out seeds that have the results of all evaluations, with these settings, in the repository",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="SETTING=VALUE", dest="overrides",
        help="try another value of a setting; implies --validation-only",
    )  # fmt: skip
    parser.add_argument(
        "--search", type=Path, metavar="FILE", help="run the trials of a file; implies --validation-only"
    )
    parser.add_argument("--publish", type=Path, metavar="OUT", help="only write the results of OUT into the repository")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Runs the recipes; returns the exit status."""
    jobs = build_jobs(options)
    if not jobs:  # with --missing
        log("no result is missing.")
        return 0
    reads_test = jobs[0].reads_test
    recipes = {job.name: job.recipe for job in jobs}

    def report(job: Job) -> None:
        values = {split: job.read_values(split) for split in job.splits}
        numbers = "; ".join(f"{split} {format_values(each)}" for split, each in values.items())
        print(f"{job.title}: {job.recipe.unit}: {numbers} ({job.folder})", flush=True)
        if reads_test:
            save_result(job, options.jobs, options.mps)

    with share_gpu(options.out / "mps") if options.mps else nullcontext() as mps_variables:
        for job in jobs:
            job.prepare()
        scheduler = Scheduler(jobs, options.jobs, options.minutes, log, mps_variables)
        scheduler.run(report)
    is_reached = True
    if reads_test:
        is_reached = print_results(recipes, options.out, scheduler.unfinished, scheduler.failed)
    else:
        print_trials(scheduler.done, scheduler.unfinished, scheduler.failed)
    if scheduler.unfinished:  # after a stop
        return INTERRUPTED
    if reads_test and any(find_recipe(job.name).stem in list_recipe_names() for job in scheduler.done):
        log(f"results: {options.out / 'results'}. Write them into the repository: records.py --publish {options.out}")
    return 1 if scheduler.failed or not is_reached else 0


def build_jobs(options: argparse.Namespace) -> list[Job]:
    """Returns a job for each recipe, trial of settings and seed."""
    overrides = parse_overrides(options.overrides)
    names = options.recipes or list_recipe_names()
    search = {name: [{}] for name in names} if options.search is None else read_search(options.search, options.recipes)
    recipes = {name: read_and_check_recipe(name) for name in search}
    trials = {name: build_trials(name, recipes[name], search[name], overrides, options.search) for name in search}
    for name in search:
        if len(trials[name]) < len(search[name]):
            log(f"{name}: {len(search[name])} trials, of which {len(trials[name])} have different settings")
    reads_test = not (options.validation_only or overrides or options.search)
    if options.missing and not reads_test:
        problem = "--missing is about results with the settings of the recipes; this command has none of them."
        raise UsageError(problem, fix="Leave out --missing.")
    slots = dict(options.slots)
    check_slots(slots, recipes, options.jobs)
    jobs = []
    for name, recipe in recipes.items():
        seeds = [seed for seed in options.seeds if not (options.missing and is_published(name, recipe, seed))]
        if not seeds:
            continue
        data = find_data(name, recipe, options.out)
        for trial in trials[name]:
            shared = (options.out, data, trial, reads_test, slots.get(name, 1))
            jobs += [Job(name, recipe, seed, *shared) for seed in seeds]
    return jobs


def check_slots(slots: Mapping[str, int], recipes: Mapping[str, Recipe], num_slots: int) -> None:
    for name, count in slots.items():
        if name not in recipes:
            raise UsageError(f"--slots: {name} is not among the recipes of this command: {', '.join(recipes)}.")
        if count > num_slots:
            raise UsageError(f"--slots: {name} cannot have {count}: there are as many as --jobs, {num_slots}.")


def find_data(name: str, recipe: Recipe, out: Path) -> Path:
    """Returns the data of a recipe, prepared if necessary; `prepare` runs once, in OUT/data."""
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise UsageError(f"{DATA_VARIABLE} is not set.", fix="Set it to the folder that has the benchmark data.")
    if not recipe.prepare:
        path = Path(folder) / recipe.data
        if not path.exists():
            raise UsageError(f"there is no {path}, which the recipe {name} needs.")
        return path
    path, part = out / "data" / recipe.data, out / "data" / "part"
    if not path.exists():
        part.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, DATA_VARIABLE: str(Path(folder).resolve())}
        words = ["bash", "-euo", "pipefail", "-c", recipe.prepare]
        result = subprocess.run(words, cwd=part, env=environment, capture_output=True, text=True, check=False)
        if result.returncode or not (part / recipe.data).exists():
            raise UsageError(f"the data of the recipe {name} could not be prepared: {result.stderr.strip()[-500:]}")
        os.replace(part / recipe.data, path)
    return path


def publish(out: Path) -> int:
    """Adds the results in a folder to those in the repository, and updates docs/records.md."""
    files = sorted((out / "results").glob("*.json")) or sorted(out.glob("*.json"))
    if not files:
        raise UsageError(f"there are no results in {out}.", fix="Run the recipes first; see --help.")
    names, results = list_recipe_names(), [each for file in files if (each := read_results(file)) is not None]
    for each in results:
        if each.recipe in names and each.digest != read_recipe(each.recipe).compute_digest():
            fix = "Run the recipe again, or remove its file."
            raise UsageError(f"these are results of another version of {each.recipe}.", file=out, fix=fix)
    if not any(each.recipe in names for each in results):
        raise UsageError("these are not results of recipes in the repository.", file=out)
    for each in results:
        if each.recipe in names:
            add_results(get_results_file(each.recipe), each)
            log(f"{each.recipe}: seeds {', '.join(map(str, sorted(each.seeds)))}")
        else:
            log(f"{each.recipe} is not a recipe of the repository, and is left out.")
    return subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py")], check=False).returncode


def log(message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
