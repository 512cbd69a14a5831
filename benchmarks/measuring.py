"""Timing, memory measurement and reporting for all benchmarks. It knows nothing of what they compare.

Implementations are timed in one process with interleaved calls, so that other load on the machine affects all of them
equally; the result is the median. On a GPU, calls are timed with CUDA events and without synchronisation in between, as
in training. On a CPU, one sample averages enough calls for the resolution of the clock, and short samples are repeated
more often.

A script creates a `Report`, adds each row when it is measured (the row is printed and saved at once), and ends with
`return report.finish()`: exit status 1 if a requirement is not met or a row failed. Until then the saved file is marked
as unfinished.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences the profiler library; read when it is loaded

import torch

from seqwise.environment import count_cpus, describe

Run = Callable[[], object]
Row = TypeVar("Row")
Check = Callable[[Sequence[dict[str, Any]]], list[str]]  # rows → requirements that are not met
MIN_SAMPLE_SECONDS = 0.01  # of one sample on a CPU: makes the clock's resolution and cold caches negligible
# On a CPU, which may be busy, sampling continues for this long, with at most this many times the requested repeats.
MIN_TOTAL_SECONDS, MAX_REPEATS_FACTOR = 0.6, 5
QUICK_REPEATS = 3  # samples in a --quick run


# Command line


def build_parser(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options common to all benchmarks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where available")
    parser.add_argument("--quick", action="store_true", help="few rows and repeats, no requirements")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        type=check_json_path,
        metavar="FILE",
        help="save the results; without FILE: print them",
    )
    parser.add_argument(
        "--threads", type=int, default=get_default_threads(), help="default: OMP_NUM_THREADS, or all processors"
    )
    parser.add_argument("--repeats", type=int, help="timed samples of each implementation")
    return parser


def check_json_path(name: str) -> str:
    """Returns the name of an output file; raises an error for an existing file that is not JSON."""
    if name != "-" and Path(name).exists() and Path(name).suffix != ".json":
        raise argparse.ArgumentTypeError(f"{name} exists and does not end in .json")
    return name


def select_rows(rows: Iterable[Row], words: Sequence[str], get_words: Callable[[Row], set[str]]) -> list[Row]:
    """Returns the rows that have all the words; between digits, x matches ×. An empty selection is an error."""
    rows = list(rows)
    required = {re.sub(r"(?<=\d)x(?=\d)", "×", word) for word in words}
    selected = [row for row in rows if required <= get_words(row)]
    if not selected:
        names = "".join(f"\n  {row}" for row in rows)
        raise SystemExit(f"no row has all of these words: {' '.join(words)}. The rows are:{names}")
    return selected


def get_default_threads() -> int:
    return int(os.environ.get("OMP_NUM_THREADS") or count_cpus())


def set_up_device(options: argparse.Namespace) -> torch.device:
    """Sets the number of threads and returns the device; float32 products use TF32 on a GPU, as cuDNN does."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no CUDA device here. Omit --device, or see: seqwise doctor")
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("high")
    return torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))


# Time and memory


@dataclass(frozen=True)
class Times:
    """Seconds per call of each sample, and of the first call, which may compile."""

    samples: list[float]
    first: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def minimum(self) -> float:
        return min(self.samples)


def time_interleaved(
    runs: Mapping[str, Run], device: torch.device, repeats: int, num_warmup: int = 2
) -> dict[str, Times]:
    """Returns the times of each function, sampled alternately: one sample of each, `repeats` times."""
    first = {name: _time_first_call(run, device) for name, run in runs.items()}
    for _ in range(num_warmup):
        for run in runs.values():
            run()
    samples = _time_with_events(runs, repeats) if device.type == "cuda" else _time_with_clock(runs, repeats)
    return {name: Times(samples[name], first[name]) for name in runs}


def _time_first_call(run: Run, device: torch.device) -> float:
    started_at = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - started_at


def _time_with_events(runs: Mapping[str, Run], repeats: int) -> dict[str, list[float]]:
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in runs}
    torch.cuda.synchronize()
    for _ in range(repeats):
        for name, run in runs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            events[name].append((start, end))
    torch.cuda.synchronize()
    return {name: [start.elapsed_time(end) / 1e3 for start, end in pairs] for name, pairs in events.items()}


def _time_with_clock(runs: Mapping[str, Run], repeats: int) -> dict[str, list[float]]:
    seconds = {name: max(1e-9, _time_calls(run, 1)) for name, run in runs.items()}
    calls = {name: max(1, math.ceil(MIN_SAMPLE_SECONDS / each)) for name, each in seconds.items()}
    round_seconds = sum(seconds[name] * calls[name] for name in runs)
    rounds = min(MAX_REPEATS_FACTOR * repeats, max(repeats, int(MIN_TOTAL_SECONDS / round_seconds)))
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            samples[name].append(_time_calls(run, calls[name]))
    return samples


def _time_calls(run: Run, calls: int) -> float:
    started_at = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - started_at) / calls


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_peak_memory(run: Run, device: torch.device) -> int:
    """Returns the peak number of bytes that one call allocates in addition to what was allocated before."""
    run()  # allocates what persists, such as tables and workspaces
    gc.collect()
    if device.type != "cuda":
        return _measure_peak_allocations(run)
    synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _measure_peak_allocations(run: Run) -> int:
    """Returns the same for a CPU, from the allocations and deallocations in PyTorch's profile."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
        gc.collect()
    assert profile.profiler is not None
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    allocated = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        allocated += event.nbytes()
        highest = max(highest, allocated)
    return highest


def release_memory(device: torch.device) -> None:
    """Frees the memory of the previous row."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


# Table and JSON file


@dataclass(frozen=True)
class Column:
    """One column of the table. The cell of a missing value is empty.

    The heading of the first column, which has the names of the rows, is the unit of the other columns.
    """

    key: str  # of the value in a row
    heading: str
    format: str = ""  # format specification of a number
    scale: float = 1.0  # factor of a number, such as 1e-6 for bytes as MB
    width: int = 9  # characters; negative: aligned to the left

    def format_cell(self, row: Mapping[str, Any]) -> str:
        value = row.get(self.key)
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        return format(value if self.scale == 1 else value * self.scale, self.format)


@dataclass
class Report:
    """Rows of one benchmark on one machine, each printed and saved when it is added."""

    area: str
    options: argparse.Namespace
    device: torch.device
    columns: Sequence[Column]
    arguments: Sequence[str] | None = None
    details: dict[str, Any] = field(default_factory=dict)  # further entries of the JSON document
    row_names: Sequence[str] = ()  # of all rows to measure, in order
    check: Check | None = None
    rows: list[dict[str, Any]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.started_at, self.machine, self.load, self.finished = time.perf_counter(), describe(), get_load(), False
        self.log(f"{self.area} on {self.describe_device()}" + (" (quick)" if self.options.quick else ""))
        self.print_header()

    def print_header(self) -> None:
        self.log(self._format_line({column.key: column.heading for column in self.columns}, plain=True))

    def describe_device(self) -> str:
        gpu = self.machine["gpu"]
        if self.device.type == "cuda" and gpu:
            return gpu["name"]
        threads = torch.get_num_threads()
        return f"{self.machine['cpu']['name']}, {threads} thread{'s' if threads > 1 else ''}"

    def log(self, line: str) -> None:
        """Prints a line; to standard error if the JSON goes to standard output."""
        print(line, file=sys.stderr if self.options.json == "-" else sys.stdout, flush=True)

    def add_measurement(self, description: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> None:
        """Adds a row with its description and measurements; an exception is recorded in the row."""
        self.add({**description, **self._run_measurement(measure)})

    def update_rows(self, rows: Sequence[dict[str, Any]], measure: Callable[[], Mapping[str, Any]]) -> None:
        """Replaces values of existing rows by a new measurement."""
        measurements = self._run_measurement(measure)
        for row in rows:
            row.update(measurements)
        self._save()

    def _run_measurement(self, measure: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        try:
            return measure()
        except Exception as error:
            return describe_failure(error)
        finally:
            release_memory(self.device)

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows.append(dict(row))
        self.print_row(row)
        self._save()

    def print_row(self, row: Mapping[str, Any]) -> None:
        self.log(self._format_line(row) + (f"  failed: {row['failed']}" if "failed" in row else ""))

    def _format_line(self, row: Mapping[str, Any], plain: bool = False) -> str:
        cells = [str(row[column.key]) if plain else column.format_cell(row) for column in self.columns]
        widths = [column.width for column in self.columns]
        return "".join(
            f"{cell:<{-width}}" if width < 0 else f"{cell:>{width}}" for cell, width in zip(cells, widths)
        ).rstrip()

    def to_dict(self) -> dict[str, Any]:
        arguments = shlex.join(sys.argv[1:] if self.arguments is None else self.arguments)
        return {
            "area": self.area,
            "command": f"python benchmarks/{self.area}.py {arguments}".strip(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "device": self.device.type,
            "quick": self.options.quick,
            "seconds": round(time.perf_counter() - self.started_at, 1),
            "load": [self.load, get_load()],
            "machine": self.machine,
            "where": self.describe_device(),
            **self.details,
            "finished": self.finished,
            "planned": list(self.row_names),
            "missed": self.find_missed(),
            "columns": [asdict(column) for column in self.columns],
            "rows": self.rows,
        }

    def _save(self) -> None:
        if self.options.json and self.options.json != "-":
            path = Path(self.options.json)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def find_missed(self) -> list[str]:
        """Returns the requirements that the rows so far do not meet; a --quick run has none."""
        return [] if self.options.quick or self.check is None else self.check(self.rows)

    def finish(self) -> int:
        """Prints the requirements that are not met, saves the report and returns the exit status."""
        self.finished = True
        lines, failed = self.find_missed(), [row for row in self.rows if "failed" in row]
        for line in lines:
            self.log(f"requirement not met: {line}")
        self._save()
        if self.options.json == "-":
            print(json.dumps(self.to_dict(), indent=1, ensure_ascii=False))
        return int(bool(failed or lines))


def describe_failure(error: Exception) -> dict[str, str]:
    """Returns the entry of a failed row."""
    message = " ".join(str(error).split())[:200]
    return {"failed": f"{type(error).__name__}: {message}"}


def get_load() -> float | None:
    """Returns the load average of the last minute, where the system has one."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def is_h200(device: torch.device) -> bool:
    """Returns whether the device is the GPU for which requirements are defined."""
    return device.type == "cuda" and "H200" in torch.cuda.get_device_name(device)
