"""Reproduces the published results of the recipes: trains each seed, then evaluates validation and, once, test.

    make records                                                    # all recipes, seeds 0 to 2; hours
    make records ARGS="--recipes sst2,conll2003 --seeds 0,1,2 --jobs 4 --out runs/records"
    python benchmarks/records.py --recipes sst2 --seeds 0 --set training.learning_rate=0.003
    python benchmarks/records.py --search benchmarks/searches/transformers.yaml --seeds 0 --minutes 30
    python benchmarks/records.py --publish runs/records             # write the results into the repository

It continues where it was stopped: finished seeds and evaluations are not repeated. Ctrl-C, SIGTERM and `--minutes` stop
the trainings, which save and are resumed by the same command. `--jobs 4` runs four at a time on one GPU, each as a
process with its own log; they take turns, or with `--mps` have an equal part of the GPU each. With `--parts ptb-lstm=2`
a run of that recipe has two of the four parts. The data is in $SEQWISE_DATA. `--missing` leaves out the seeds that have
all results in the repository.

While settings are searched, the test split stays unread: `--validation-only`, which `--set` and `--search` imply. A
search is a YAML file: for each recipe a list of trials, each with the settings that replace the recipe's. Results of
complete runs are in OUT/results as JSON. `--publish` copies them to `src/seqwise/recipes/results`, from which
docs/records.md and `seqwise recipes` are made. The exit status is 1 if a run failed or a requirement is not met.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml
from gpu_sharing import PERCENTAGE, share_gpu
from record_jobs import Command, Job, build_command_line, get_output_file, is_published, save_result

from seqwise.cli.recipes import read_and_check_recipe
from seqwise.environment import count_cpus
from seqwise.errors import SeqwiseError, UsageError
from seqwise.recipe_files import DATA_VARIABLE, Recipe, list_recipe_names, read_recipe
from seqwise.recipe_results import NUM_SEEDS, add_results, average, get_results_file, read_results
from seqwise.yaml_files import read_yaml

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

    @classmethod
    def start(cls, job: Job, command: Command, variables: Mapping[str, str]) -> JobProcess:
        paths = [(job.log, "ab")] if command.output is None else [(job.log, "ab"), (f"{command.output}.part", "wb")]
        files = [open(path, mode) for path, mode in paths]  # noqa: SIM115 - closed by `finish`
        process = subprocess.Popen(
            build_command_line(command), stdin=subprocess.DEVNULL, stdout=files[-1], stderr=files[0],
            env={**os.environ, **variables}, start_new_session=True, preexec_fn=end_with_parent,
        )  # fmt: skip
        return cls(job, command, process, files)

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


def end_with_parent() -> None:
    """Asks Linux to stop this process when its parent is killed, so that no training is left over."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Scheduler:
    """Runs jobs, several at a time, until all are done, the time is over or a signal arrives."""

    def __init__(
        self, jobs: Sequence[Job], num_parts: int, minutes: float | None, log: Callable[[str], None],
        mps_variables: Mapping[str, str] | None = None,
    ):  # fmt: skip
        """The running jobs have at most `num_parts` parts; `mps_variables` are those of `share_gpu`, if it is used."""
        self.waiting, self.num_parts, self.log = list(jobs), num_parts, log
        threads = os.environ.get("OMP_NUM_THREADS", str(max(1, count_cpus() // num_parts)))
        self.variables, self.mps_variables = {"OMP_NUM_THREADS": threads}, mps_variables
        self.running: list[JobProcess] = []
        self.done: list[Job] = []
        self.failed: list[Job] = []
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

    def _start_waiting(self, on_done: Callable[[Job], None]) -> None:
        while (job := self._find_job()) is not None:
            self.waiting.remove(job)
            command = job.find_next()
            if command is None:
                self.done.append(job)
                on_done(job)
                continue
            self.log(f"{job.title}: {command.title}")
            self.running.append(JobProcess.start(job, command, self._build_variables(job)))

    def _find_job(self) -> Job | None:
        """Returns the first waiting job for which enough parts are free."""
        free = self.num_parts - sum(each.job.parts for each in self.running)
        return next((job for job in self.waiting if job.parts <= free), None)

    def _build_variables(self, job: Job) -> dict[str, str]:
        if self.mps_variables is None:
            return self.variables
        return {**self.variables, **self.mps_variables, PERCENTAGE: str(100 * job.parts // self.num_parts)}

    def _collect(self) -> None:
        """Removes the processes that have ended; their jobs wait for the next command, unless they failed."""
        for each in [each for each in self.running if each.process.poll() is not None]:
            self.running.remove(each)
            status = each.finish()
            if status == 0:
                self.waiting.insert(0, each.job)
            else:
                self.failed.append(each.job)
                lines = each.job.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-4:]
                text = "\n".join(f"  {line}" for line in lines)
                self.log(
                    f"{each.job.title}: {each.command.title} failed with status {status} ({each.job.log}):\n{text}"
                )

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
            each.finish()
            progress = f" ({each.job.describe_progress()})" if each.is_training else ""
            self.log(f"{each.job.title}: stopped{progress}; the same command continues it.")
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
        help="give each of these runs an equal part of the GPU (NVIDIA's Multi-Process Service) instead of turns",
    )  # fmt: skip
    parser.add_argument(
        "--parts", action="append", type=split_parts, default=[], metavar="RECIPE=N",
        help="runs of this recipe count as N of --jobs, and have so many parts of the GPU with --mps; default: 1",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("runs/records"), help="default: runs/records")
    parser.add_argument("--minutes", type=float, help="stop after this time; the same command continues")
    parser.add_argument("--validation-only", action="store_true", help="never evaluate the test split")
    parser.add_argument(
        "--missing", action="store_true",
        help="only seeds without results in the repository, with earlier settings, or without some evaluation",
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


def split_names(text: str) -> list[str]:
    """Returns the different names in a list that is separated by commas."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("expected a list separated by commas; received none")
    return names


def split_seeds(text: str) -> list[int]:
    seeds = split_names(text)
    if not all(seed.isdecimal() for seed in seeds):
        raise argparse.ArgumentTypeError(f"expected numbers such as 0,1,2; received {text!r}")
    return list(map(int, seeds))


def split_parts(text: str) -> tuple[str, int]:
    name, _, count = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"expected RECIPE=N; received {text}")
    return name, parse_count(count)


def parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected at least 1; received {text}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Runs the recipes; returns the exit status."""
    jobs = build_jobs(options)
    if not jobs:
        log("no result is missing.")
        return 0
    reads_test = jobs[0].reads_test
    recipes = {job.name: job.recipe for job in jobs}

    def report(job: Job) -> None:
        values = {split: job.read_values(split) for split in job.splits}
        numbers = "; ".join(f"{split} {format_values(each)}" for split, each in values.items())
        print(f"{job.title}: {job.recipe.unit}: {numbers} ({job.folder})", flush=True)
        if reads_test:
            save_result(job, options.jobs // job.parts, options.mps)

    with share_gpu(options.out / "mps") if options.mps else nullcontext() as variables:
        for job in jobs:
            job.prepare()
        scheduler = Scheduler(jobs, options.jobs, options.minutes, log, variables)
        scheduler.run(report)
    if scheduler.is_stopped:
        return INTERRUPTED
    missed = [line for item in recipes.items() for line in check(*item, options.out)] if reads_test else []
    for line in missed:
        print(line)
    if reads_test and scheduler.done:
        log(f"results: {options.out / 'results'}. Write them into the repository: records.py --publish {options.out}")
    return 1 if scheduler.failed or missed else 0


def build_jobs(options: argparse.Namespace) -> list[Job]:
    """Returns a job for each recipe, trial of settings and seed."""
    overrides = parse_overrides(options.overrides)
    names = options.recipes or list_recipe_names()
    trials = {name: [{}] for name in names} if options.search is None else read_search(options.search, options.recipes)
    recipes = {name: read_and_check_recipe(name) for name in trials}
    reads_test = not (options.validation_only or overrides or options.search)
    if options.missing and not reads_test:
        raise UsageError("--missing is about results of the test split, which this command never reads.")
    parts = dict(options.parts)
    if unknown := parts.keys() - recipes.keys():
        raise UsageError(f"--parts: {', '.join(sorted(unknown))} is not run; there are {', '.join(recipes)}.")
    if max(parts.values(), default=1) > options.jobs:
        raise UsageError(f"--parts: at most {options.jobs}, the number of --jobs; received {max(parts.values())}.")
    jobs = []
    for name, recipe in recipes.items():
        seeds = [seed for seed in options.seeds if not (options.missing and is_published(name, recipe, seed))]
        if not seeds:
            continue
        data = find_data(name, recipe, options.out)
        for trial in trials[name]:
            combined = {**trial, **overrides}
            shared = (options.out, data, combined, reads_test, parts.get(name, 1))
            jobs += [Job(name, recipe, seed, *shared) for seed in seeds]
    return jobs


def read_search(path: Path, names: Sequence[str] | None) -> dict[str, list[dict[str, Any]]]:
    """Returns recipe → trials, each the settings by dotted name that replace those of the recipe.

    Without `names`, all recipes of the file are returned.
    """
    try:
        search = read_yaml(path)
    except OSError as error:
        raise UsageError(f"the search cannot be read: {error.strerror}.", file=path) from None
    except yaml.YAMLError as error:
        raise UsageError(f"not valid YAML: {error}.", file=path) from None
    lists = search.values() if isinstance(search, dict) and search else [None]
    if not all(isinstance(trials, list) and all(isinstance(trial, dict) for trial in trials) for trials in lists):
        fix = "For example:\nsst2:\n- {network.width: 128}\n- {network.width: 256, training.learning_rate: 0.003}"
        raise UsageError("expected a list of trials for each recipe, and settings by name in each.", file=path, fix=fix)
    if missing := set(names or ()) - search.keys():
        raise UsageError(f"no trials for {', '.join(sorted(missing))}; there are {', '.join(search)}.", file=path)
    return {name: search[name] for name in names or search}


def parse_overrides(texts: Sequence[str]) -> dict[str, Any]:
    """Returns setting → value of `training.learning_rate=0.003` and the like; values are YAML."""
    overrides = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set: expected SETTING=VALUE; received {text!r}.")
        overrides[name.replace("-", "_")] = yaml.safe_load(value)
    return overrides


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


def check(name: str, recipe: Recipe, out: Path) -> list[str]:
    """Returns a line for each evaluation that misses its requirement or differs from our earlier result."""
    results, lines = read_results(get_output_file(out, name)), []
    published = read_results(get_results_file(name))
    for key, evaluation in recipe.evaluations.items():
        mean = None if results is None else average(results, recipe.split, key)
        if results is None or mean is None:
            continue
        if not recipe.is_as_good_as(mean.mean, evaluation.required):
            lines.append(f"{name}, {key}: {mean.mean:.4g}, required {evaluation.required:g}")
        if published is not None and published.digest == results.digest:
            before = average(published, recipe.split, key)
            if before is not None and abs(before.mean - mean.mean) > evaluation.tolerance:
                lines.append(
                    f"{name}, {key}: {mean.mean:.4g}, not reproduced: {before.mean:.4g} ± {evaluation.tolerance:g}"
                )
    return lines


def publish(out: Path) -> int:
    """Adds the results in a folder to those in the repository, and updates docs/records.md."""
    files = sorted((out / "results").glob("*.json")) or sorted(out.glob("*.json"))
    if not files:
        raise UsageError(f"there are no results in {out}.", fix="Run the recipes first; see --help.")
    names = list_recipe_names()
    for file in files:
        results = read_results(file)
        if results is None or results.recipe not in names:
            raise UsageError("these are not results of a recipe in the repository.", file=file)
        if results.digest != read_recipe(results.recipe).compute_digest():
            fix = "Run the recipe again, or remove this file."
            raise UsageError("these are results of another version of the recipe.", file=file, fix=fix)
        add_results(get_results_file(results.recipe), results)
        log(f"{results.recipe}: seeds {', '.join(map(str, sorted(results.seeds)))}")
    return subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py")], check=False).returncode


def format_values(values: dict[str, float]) -> str:
    """Returns metrics by name of the evaluation; without the name if there is only one."""
    if len(values) == 1:
        return f"{next(iter(values.values())):.4g}"
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def log(message: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
