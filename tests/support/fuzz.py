"""Gives damaged files to a reader in a process with limits, and collects what is not a `SeqwiseError`.

    python fuzz.py READER SEED [COUNT]    reproduces an input and keeps its files

One process reads thousands of inputs. Each has a limit of processor time and of memory; a process that dies or stops
is replaced, and its input is a failure. An input is determined by its reader and its seed.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fuzz_mutations import mutate, strip_digests
from fuzz_saved import READERS, Reader

SUPPORT = Path(__file__).parent
PACKAGE = Path(str(find_spec("seqwise").origin)).parent.parent  # of the parent process, for the children
MAX_SECONDS = 5.0  # of processor time for one input
MAX_MEMORY = 300 << 20  # bytes of resident memory that one input may add
MAX_ADDRESS_SPACE = 2 << 30  # bytes beyond what the process has after its imports, so that the machine is safe
MAX_MESSAGE = 45_000  # characters of an error: of the problem, the fix and the location
MAX_SILENCE = 60.0  # seconds without a finished input, after which the process is killed

Job = tuple[str, int, int]  # reader, first seed, and the seed at which it ends


class OutOfTime(BaseException):
    """An input took too much processor time. No `Exception`: no reader may catch it."""


@dataclass
class Failure:
    """What went wrong, and the seeds of the inputs."""

    reader: str
    kind: str  # exception, hang, memory, death or message
    location: str  # file and line of the package
    message: str
    seeds: list[int] = field(default_factory=list)


@dataclass
class Outcome:
    """Counts of all inputs, and the failures by kind and location."""

    accepted: dict[str, int] = field(default_factory=dict)  # reader → inputs that were read without an error
    refused: dict[str, int] = field(default_factory=dict)  # reader → inputs with a SeqwiseError
    failures: dict[tuple[str, str, str], Failure] = field(default_factory=dict)

    def add(self, record: dict[str, Any]) -> None:
        """Adds a line that a process has written."""
        reader = record["reader"]
        if record["kind"] in ("accepted", "refused"):
            counts = self.accepted if record["kind"] == "accepted" else self.refused
            counts[reader] = counts.get(reader, 0) + 1
            return
        key = reader, record["kind"], record["location"]
        failure = self.failures.setdefault(key, Failure(*key, record["message"]))
        failure.seeds.append(record["seed"])

    @property
    def num_inputs(self) -> int:
        failed = sum(len(failure.seeds) for failure in self.failures.values())
        return sum(self.accepted.values()) + sum(self.refused.values()) + failed

    def format_table(self) -> str:
        """Returns the counts of each reader as lines."""
        names = sorted({*self.accepted, *self.refused, *(failure.reader for failure in self.failures.values())})
        lines = [f"{'reader':22}{'inputs':>9}{'accepted':>10}{'refused':>9}{'failed':>8}"]
        for name in names:
            failed = sum(len(each.seeds) for each in self.failures.values() if each.reader == name)
            accepted, refused = self.accepted.get(name, 0), self.refused.get(name, 0)
            lines.append(f"{name:22}{accepted + refused + failed:9,}{accepted:10,}{refused:9,}{failed:8,}")
        return "\n".join([*lines, f"{'all':22}{self.num_inputs:9,}"])

    def format_failures(self) -> str:
        """Returns each failure with the command that reproduces it."""
        return "\n\n".join(
            f"{each.reader}: {each.kind} at {each.location} ({len(each.seeds)} inputs)\n{each.message}\n"
            f"  python tests/support/fuzz.py {each.reader} {each.seeds[0]}"
            for each in self.failures.values()
        )


# In the process that reads


class InputFolder:
    """The valid files of a reader, in a folder in which they are damaged and restored."""

    def __init__(self, name: str, samples: Path, folder: Path):
        self.name, self.reader, self.folder = name, READERS[name], folder
        self.sample = samples / name
        self.contents = {file: (self.sample / file).read_bytes() for file in self.reader.formats}
        shutil.copytree(self.sample, folder)

    def damage(self, seed: int) -> None:
        """Writes the input of a seed: one damaged file, sometimes two."""
        generator = random.Random(f"{self.name} {seed}")
        names = generator.sample(sorted(self.contents), min(len(self.contents), generator.choice((1, 1, 1, 2))))
        for file in names:
            form, content = self.reader.formats[file], self.contents[file]
            if generator.random() < 0.7:  # otherwise digests find most of the damage, and nothing else is tested
                content = strip_digests(content, form)
            (self.folder / file).write_bytes(mutate(content, form, generator))
        if self.reader.sign and generator.random() < 0.7:
            self.reader.sign(self.folder)

    def restore(self) -> None:
        if self.reader.is_changed or self.reader.sign:
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.copytree(self.sample, self.folder)
            return
        for file, content in self.contents.items():
            (self.folder / file).write_bytes(content)


def read_inputs(name: str, seeds: range, samples: Path, folder: Path, report: Callable[..., None]) -> None:
    """Reads the inputs of some seeds and reports every failure, then the counts."""
    inputs = InputFolder(name, samples, folder)
    inputs.reader.read(folder)  # imports, compiles and proves that the valid files are read
    inputs.restore()
    limit_memory(MAX_ADDRESS_SPACE)
    for seed in seeds:
        report(kind="begin", reader=name, seed=seed)
        inputs.damage(seed)
        report(**read_one(inputs.reader, folder), reader=name, seed=seed)
        inputs.restore()
        shutil.rmtree(Path(os.environ["SEQWISE_CACHE"]), ignore_errors=True)


def read_one(reader: Reader, folder: Path) -> dict[str, str]:
    """Returns what happened: accepted, refused, or a failure with its location and message."""
    from seqwise.errors import SeqwiseError

    before = reset_peak_memory()
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    kind, location, message = "accepted", "", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(folder)
    except OutOfTime as error:
        kind, location, message = "hang", find_location(error), "".join(traceback.format_exception(error)[-6:])
    except SeqwiseError as error:
        kind, message = "refused", str(error)
        if len(message) > MAX_MESSAGE:
            kind, location, message = "message", find_location(error), f"{len(message):,} characters: {message[:300]}"
    except BaseException as error:
        kind, location = "exception", f"{type(error).__name__} {find_location(error)}"
        message = "".join(traceback.format_exception(error)[-4:])[-1500:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    added = get_peak_memory() - before
    if added > MAX_MEMORY:
        kind, message = "memory", f"{added >> 20} MB beyond the start ({kind}) {message[:300]}"
    return {"kind": kind, "location": location, "message": message}


def find_location(error: BaseException) -> str:
    """Returns the innermost line of the package in a traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/seqwise/" in frame.filename]
    return f"{frames[-1].filename.rpartition('/seqwise/')[2]}:{frames[-1].lineno}" if frames else "outside"


def limit_memory(size: int) -> None:
    """Limits the address space to `size` bytes more than the process has now."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + size, resource.RLIM_INFINITY))


def reset_peak_memory() -> int:
    """Starts a new measurement of the peak; returns the resident memory now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def get_peak_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def raise_out_of_time(*_: object) -> None:
    raise OutOfTime


def run_process(jobs: str, samples: str, log: str) -> None:
    """Entry point of the process that reads; `jobs` is a JSON list of reader, first seed and end."""
    import torch  # noqa: F401 - before the address space is limited: libraries for GPUs are large

    signal.signal(signal.SIGPROF, raise_out_of_time)
    with tempfile.TemporaryDirectory(prefix="seqwise-fuzz-") as root, open(log, "a", buffering=1) as output:
        os.environ["SEQWISE_CACHE"] = f"{root}/cache"

        def report(**record: Any) -> None:
            output.write(json.dumps(record) + "\n")

        for number, (name, start, stop) in enumerate(json.loads(jobs)):
            folder = Path(root, f"input-{number}")
            read_inputs(name, range(start, stop), Path(samples), folder, report)
            shutil.rmtree(folder)


# In the process that starts the others


def write_samples(folder: Path, names: Iterable[str]) -> None:
    """Writes the valid files of readers; those of the same function are copied."""
    written: dict[Callable[[Path], None], Path] = {}
    for name in names:
        write = READERS[name].write
        if write in written:
            shutil.copytree(written[write], folder / name)
        else:
            (folder / name).mkdir(parents=True)
            write(folder / name)
            written[write] = folder / name


def list_jobs(names: Iterable[str], count: int, size: int = 1_000) -> list[Job]:
    """Divides `count` inputs among readers by their weights; a job has at most `size` seeds."""
    names = list(names)
    total = sum(READERS[name].weight for name in names)
    jobs = []
    for name in names:
        stop = max(1, round(count * READERS[name].weight / total))
        jobs += [(name, start, min(stop, start + size)) for start in range(0, stop, size)]
    return jobs


def fuzz(jobs: Sequence[Job], samples: Path, outcome: Outcome) -> None:
    """Reads the inputs of all jobs in one process, or more where one dies, and adds the results to `outcome`."""
    remaining = list(jobs)
    while remaining:
        remaining = _run_process(remaining, samples, outcome)


def _run_process(jobs: list[Job], samples: Path, outcome: Outcome) -> list[Job]:
    """Returns the jobs that are left after a process has died; none if it has finished."""
    with tempfile.TemporaryDirectory(prefix="seqwise-fuzz-log-") as folder:
        log = Path(folder, "log.jsonl")
        log.touch()
        command = [sys.executable, __file__, "--process", json.dumps(jobs), str(samples), str(log)]
        environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}:{SUPPORT}", "OMP_NUM_THREADS": "1"}
        with Path(folder, "stderr").open("w+") as errors:
            process = subprocess.Popen(command, env=environment, stdout=errors, stderr=errors)
            was_killed = _wait(process, log)
            errors.seek(0)
            tail = errors.read()[-1500:]
        last = {}
        for line in log.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            last = record if record["kind"] == "begin" else {}
            if not last:
                outcome.add(record)
    if process.returncode == 0:
        return []
    if not last:
        raise AssertionError(f"a process failed outside the inputs (status {process.returncode}):\n{tail}")
    kind = "hang" if was_killed else "death"
    outcome.add({**last, "kind": kind, "location": f"status {process.returncode}", "message": tail})
    at = next(i for i, job in enumerate(jobs) if job[0] == last["reader"] and job[1] <= last["seed"] < job[2])
    name, _, stop = jobs[at]
    rest = [(name, last["seed"] + 1, stop)] if last["seed"] + 1 < stop else []
    return rest + jobs[at + 1 :]


def _wait(process: subprocess.Popen, log: Path) -> bool:
    """Waits for the process, and kills it if it finishes no input for a long time; returns whether it did."""
    size, since = 0, time.monotonic()
    while True:
        try:
            process.wait(timeout=0.5)
            return False
        except subprocess.TimeoutExpired:
            pass
        if log.stat().st_size > size:
            size, since = log.stat().st_size, time.monotonic()
        if time.monotonic() - since > MAX_SILENCE:
            process.kill()
            process.wait()
            return True


def reproduce(name: str, seed: int, count: int) -> None:
    """Reads the inputs of one or some seeds in this process; the files of the last stay in the printed folder."""
    signal.signal(signal.SIGPROF, raise_out_of_time)
    root = Path(tempfile.mkdtemp(prefix="seqwise-fuzz-"))
    os.environ["SEQWISE_CACHE"] = str(root / "cache")
    write_samples(root / "samples", [name])
    inputs = InputFolder(name, root / "samples", root / "input")
    for each in range(seed, seed + count):
        inputs.restore()
        inputs.damage(each)
        result = read_one(inputs.reader, inputs.folder)
        sys.stdout.write(f"{name} {each}: {result['kind']} {result['location']}\n{result['message']}\n")
    sys.stdout.write(f"{inputs.folder}\n")


if __name__ == "__main__":
    if sys.argv[1] == "--process":
        run_process(*sys.argv[2:])
    else:
        reproduce(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1)
