"""How fast families train on an idle and on a busy CPU, by how long waiting OpenMP threads spin before they sleep.

    python benchmarks/busy.py                    idle, then beside 8 busy processes: 4 minutes on two cores
    python benchmarks/busy.py --load 0 4 --quick

The variables that control spinning (`GOMP_SPINCOUNT`, `OMP_WAIT_POLICY`) are read when PyTorch is loaded, so each
setting has a process of its own. All of them are prepared on the idle machine; then they measure in turns, one at a
time. The table has the median number of updates per second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")
SETTINGS = {
    "default": {},
    "GOMP_SPINCOUNT=100": {"GOMP_SPINCOUNT": "100"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
}
SETTING_VARIABLES = {variable for variables in SETTINGS.values() for variable in variables}
BUSY_LOOP = "while True: pass"


def serve() -> None:
    """Prepares a trainer of each family; then, for each line of standard input (seconds), prints updates per second."""
    import time
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from seqwise.budget import Budget
    from seqwise.compare.plan.create import Request, create_plan
    from seqwise.compare.plan.options import ComparisonOptions
    from seqwise.compare.run.shared_data import open_shared_task
    from seqwise.config import Settings
    from seqwise.training.loop import Trainer

    trainers = {}
    with TemporaryDirectory() as folder:
        options = ComparisonOptions(FAMILIES, budget="9s", parameters=250_000, strict=False)
        request = Request("builtin:docs", options, Settings(task="language", device="cpu"))
        path = Path(folder)
        plan = create_plan(path, request)
        for name in FAMILIES:
            settings = plan.make_settings(plan.make_training_trial(name, 0), None)
            task = open_shared_task(path, plan, settings)
            trainer = Trainer(task.build(settings), task.batches(settings), settings.training, Budget(1e9, "seconds"))
            trainers[name] = trainer.steps()
            for _ in range(2):  # kernels are compiled
                next(trainers[name])
        print("ready", flush=True)
        for line in sys.stdin:
            results = {}
            for name, steps in trainers.items():
                start, count = time.perf_counter(), 0
                while time.perf_counter() - start < float(line):
                    next(steps)
                    count += 1
                results[name] = count / (time.perf_counter() - start)
            print(json.dumps(results), flush=True)


@contextmanager
def start_process(variables: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Starts a process with one setting and waits until it is prepared."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTING_VARIABLES}
    command = [sys.executable, __file__, "--serve"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**environment, **variables}, **pipes) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("a process could not be prepared.")
        try:
            yield process
        finally:
            process.kill()


def measure(process: subprocess.Popen[str], seconds: float) -> dict[str, float]:
    """Returns updates per second of each family."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()
    results: dict[str, float] = json.loads(process.stdout.readline())
    return results


@contextmanager
def run_busy_processes(count: int) -> Iterator[None]:
    """Keeps `count` processes computing inside the block."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=int, nargs="+", default=[0, 8], help="busy processes")
    parser.add_argument("--quick", action="store_true", help="one short measurement of each setting")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return 0
    rounds, seconds = (1, 0.3) if arguments.quick else (3, 0.8)
    with ExitStack() as stack:
        processes = {name: stack.enter_context(start_process(variables)) for name, variables in SETTINGS.items()}
        print(f"| updates/s, {os.cpu_count()} cores | {' | '.join(FAMILIES)} |")
        print(f"|---|{'---|' * len(FAMILIES)}")
        for load in arguments.load:
            with run_busy_processes(load):
                samples = [
                    {name: measure(process, seconds) for name, process in processes.items()} for _ in range(rounds)
                ]
            for name in SETTINGS:
                medians = [statistics.median(sample[name][family] for sample in samples) for family in FAMILIES]
                label = "idle" if load == 0 else f"{load} busy processes"
                print(f"| {label}, {name} | {' | '.join(f'{value:.1f}' for value in medians)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
