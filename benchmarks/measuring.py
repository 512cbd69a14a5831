"""How the benchmarks measure, print and save. It knows nothing of what they compare.

Peers run in one process and in turn, one call each, so that whatever else the machine does falls on all alike; what
counts is the median. On a GPU the calls are timed by events and not waited for in between, as in training. On a CPU
short calls are repeated until a turn is long enough for the clock, and short turns are taken more often.

A script makes a `Report`, adds rows to it as they are measured (each is printed and saved at once, with what is missed
so far), and ends with `return report.finish()`: status 1 where something was required and missed, or where a row
failed. Until then the file says that the run is not finished.
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

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's library speaks of every start; read when it is loaded

import torch

from seqwise.environment import cpu_count, describe

Run = Callable[[], object]
Row = TypeVar("Row")
Judge = Callable[[Sequence[dict[str, Any]]], list[str]]  # rows → what is not as required
TURN = 0.01  # seconds of one turn on a CPU: the clock and the caches are then no part of it
SPENT, MORE = 0.6, 5  # seconds for which rounds go on there, up to so many times as many as asked for: it may be busy
QUICK = 3  # turns of a short run


# The command line, the same for all


def parser(description: str | None) -> argparse.ArgumentParser:
    """Options that every benchmark has."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", choices=("cpu", "cuda"), help="cuda where there is one, unless set")
    made.add_argument("--quick", action="store_true", help="few rows, few repeats, nothing required: for trying")
    made.add_argument(
        "--json", nargs="?", const="-", type=json_file, metavar="FILE", help="save there; without FILE print it instead"
    )
    made.add_argument("--threads", type=int, default=usual_threads(), help="all processors, or OMP_NUM_THREADS")
    made.add_argument("--repeats", type=int, help="turns of each peer")
    return made


def json_file(name: str) -> str:
    """Refuses what is there already and no JSON: it would be written over."""
    if name != "-" and Path(name).exists() and Path(name).suffix != ".json":
        raise argparse.ArgumentTypeError(f"{name} is there already and does not end in .json")
    return name


def chosen(rows: Iterable[Row], words: Sequence[str], of: Callable[[Row], set[str]]) -> list[Row]:
    """The rows with all the words, x standing for × between numbers. None at all is refused."""
    rows = list(rows)
    wanted = {re.sub(r"(?<=\d)x(?=\d)", "×", word) for word in words}
    found = [row for row in rows if wanted <= of(row)]
    if not found:
        names = "".join(f"\n  {row}" for row in rows)
        raise SystemExit(f"no row has all of these words: {' '.join(words)}. The rows are:{names}")
    return found


def usual_threads() -> int:
    return int(os.environ.get("OMP_NUM_THREADS") or cpu_count())


def settle(options: argparse.Namespace) -> torch.device:
    """Threads and device as asked for; products of float32 in tf32 on a GPU, as cuDNN takes them."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no CUDA device here. Leave out --device, or see: seqwise doctor")
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("high")
    return torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))


# Time and memory


@dataclass(frozen=True)
class Times:
    """Seconds of each turn, and those of the first call, which may compile."""

    turns: list[float]
    first: float = 0.0

    @property
    def median(self) -> float:
        return statistics.median(self.turns)

    @property
    def least(self) -> float:
        return min(self.turns)


def in_turn(runs: Mapping[str, Run], device: torch.device, repeats: int, warm: int = 2) -> dict[str, Times]:
    """Times of each run: one turn of the first, one of the second, and so on, `repeats` times."""
    first = {name: _first(run, device) for name, run in runs.items()}
    for _ in range(warm):
        for run in runs.values():
            run()
    turns = _by_events(runs, repeats) if device.type == "cuda" else _by_clock(runs, repeats)
    return {name: Times(turns[name], first[name]) for name in runs}


def _first(run: Run, device: torch.device) -> float:
    began = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - began


def _by_events(runs: Mapping[str, Run], repeats: int) -> dict[str, list[float]]:
    marks: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in runs}
    torch.cuda.synchronize()
    for _ in range(repeats):
        for name, run in runs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            marks[name].append((begin, end))
    torch.cuda.synchronize()
    return {name: [begin.elapsed_time(end) / 1e3 for begin, end in pairs] for name, pairs in marks.items()}


def _by_clock(runs: Mapping[str, Run], repeats: int) -> dict[str, list[float]]:
    seconds = {name: max(1e-9, _seconds(run, 1)) for name, run in runs.items()}
    calls = {name: max(1, math.ceil(TURN / each)) for name, each in seconds.items()}
    a_round = sum(seconds[name] * calls[name] for name in runs)
    rounds = min(MORE * repeats, max(repeats, int(SPENT / a_round)))
    turns: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            turns[name].append(_seconds(run, calls[name]))
    return turns


def _seconds(run: Run, calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - began) / calls


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak(run: Run, device: torch.device) -> int:
    """Bytes that one call needs at its peak beyond what was there before it."""
    run()  # what stays, such as tables and workspaces, is there from now on
    gc.collect()
    if device.type != "cuda":
        return _peak_of_allocations(run)
    wait(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    wait(device)
    return torch.cuda.max_memory_allocated(device) - before


def _peak_of_allocations(run: Run) -> int:
    """The same on a CPU: what PyTorch took and gave back, in order, as its profiler saw it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
        gc.collect()
    assert profile.profiler is not None
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        highest = max(highest, held)
    return highest


def release(device: torch.device) -> None:
    """Give back what the last row left."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


# The table and the file


@dataclass(frozen=True)
class Column:
    """A key of the rows, its heading, and how its values are written. What a row does not have stays empty."""

    key: str
    heading: str
    format: str = ""
    scale: float = 1.0
    width: int = 9

    def cell(self, row: Mapping[str, Any]) -> str:
        value = row.get(self.key)
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        return format(value if self.scale == 1 else value * self.scale, self.format)


@dataclass
class Report:
    """Rows of one area on one machine, printed and saved as they come."""

    area: str
    options: argparse.Namespace
    device: torch.device
    columns: Sequence[Column]
    arguments: Sequence[str] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    planned: Sequence[str] = ()  # names of all rows, in their order
    judge: Judge | None = None
    rows: list[dict[str, Any]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.began, self.machine, self.load, self.finished = time.perf_counter(), describe(), load(), False
        self.log(f"{self.area} on {self.where()}" + (" (quick)" if self.options.quick else ""))
        self.say_head()

    def say_head(self) -> None:
        self.log(self._line({column.key: column.heading for column in self.columns}, plain=True))

    def where(self) -> str:
        gpu = self.machine["gpu"]
        if self.device.type == "cuda" and gpu:
            return gpu["name"]
        threads = torch.get_num_threads()
        return f"{self.machine['cpu']['name']}, {threads} thread{'s' if threads > 1 else ''}"

    def log(self, line: str) -> None:
        """Progress and table; to standard error where standard output takes the JSON."""
        print(line, file=sys.stderr if self.options.json == "-" else sys.stdout, flush=True)

    def measured(self, known: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> None:
        """A row of what is known and what is measured. One that fails is noted, and the next goes on."""
        self.add({**known, **self._tried(measure)})

    def revised(self, rows: Sequence[dict[str, Any]], measure: Callable[[], Mapping[str, Any]]) -> None:
        """The same rows with what is measured once more."""
        found = self._tried(measure)
        for row in rows:
            row.update(found)
        self._save()

    def _tried(self, measure: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        try:
            return measure()
        except Exception as error:
            return failure(error)
        finally:
            release(self.device)

    def add(self, row: Mapping[str, Any]) -> None:
        self.rows.append(dict(row))
        self.say_row(row)
        self._save()

    def say_row(self, row: Mapping[str, Any]) -> None:
        self.log(self._line(row) + (f"  failed: {row['failed']}" if "failed" in row else ""))

    def _line(self, row: Mapping[str, Any], plain: bool = False) -> str:
        cells = [str(row[c.key]) if plain else c.cell(row) for c in self.columns]
        return "".join(
            f"{cell:<{abs(c.width)}}" if c.width < 0 else f"{cell:>{c.width}}" for cell, c in zip(cells, self.columns)
        ).rstrip()

    def document(self) -> dict[str, Any]:
        words = shlex.join(sys.argv[1:] if self.arguments is None else self.arguments)
        return {
            "area": self.area,
            "command": f"python benchmarks/{self.area}.py {words}".strip(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "device": self.device.type,
            "quick": self.options.quick,
            "seconds": round(time.perf_counter() - self.began, 1),
            "load": [self.load, load()],
            "machine": self.machine,
            "where": self.where(),
            **self.facts,
            "finished": self.finished,
            "planned": list(self.planned),
            "missed": self.missed(),
            "columns": [asdict(column) for column in self.columns],
            "rows": self.rows,
        }

    def _save(self) -> None:
        if self.options.json and self.options.json != "-":
            path = Path(self.options.json)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self.document(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def missed(self) -> list[str]:
        """What is not as required so far. A short run requires nothing but that it runs."""
        return [] if self.options.quick or self.judge is None else self.judge(self.rows)

    def finish(self) -> int:
        """Say what was missed, save, and give the exit status."""
        self.finished = True
        lines, failed = self.missed(), [row for row in self.rows if "failed" in row]
        for line in lines:
            self.log(f"missed: {line}")
        self._save()
        if self.options.json == "-":
            print(json.dumps(self.document(), indent=1, ensure_ascii=False))
        return int(bool(failed or lines))


def failure(error: Exception) -> dict[str, str]:
    """What a row says that failed."""
    message = " ".join(str(error).split())[:200]
    return {"failed": f"{type(error).__name__}: {message}"}


def load() -> float | None:
    """How many programs wanted a processor in the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def is_h200(device: torch.device) -> bool:
    """The GPU that the goals are set for."""
    return device.type == "cuda" and "H200" in torch.cuda.get_device_name(device)
