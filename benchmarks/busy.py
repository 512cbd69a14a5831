"""How fast families train on an idle and on a busy CPU, by how long waiting OpenMP threads spin before they sleep.

    python benchmarks/busy.py                    idle, then beside 8 busy processes
    python benchmarks/busy.py --load 0 4 --quick

The variable is read when PyTorch is loaded, so each setting is measured in processes of its own, all settings in turns;
the median counts. A column is updates per second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")
SETTINGS = {
    "default": {},
    "GOMP_SPINCOUNT=100": {"GOMP_SPINCOUNT": "100"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
}
BUSY_LOOP = "while True: pass"


def measure(seconds: float) -> None:
    """Prints updates per second of each family, as JSON; run in a process of its own."""
    import time
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from seqwise.budget import Budget
    from seqwise.compare.plan.create import Request, create_plan
    from seqwise.compare.plan.options import ComparisonOptions
    from seqwise.compare.run.execute import open_shared_task
    from seqwise.config import Settings
    from seqwise.training.loop import Trainer

    results = {}
    with TemporaryDirectory() as folder:
        options = ComparisonOptions(FAMILIES, budget="9s", parameters=250_000, strict=False)
        request = Request("builtin:docs", options, Settings(task="language", device="cpu"))
        path, plan = create_plan(request, Path(folder) / "plan")
        for name in FAMILIES:
            settings = plan.make_settings(plan.training_trial(name, 0), None)
            task = open_shared_task(path, plan, settings)
            trainer = Trainer(task.build(settings), task.batches(settings), settings.training, Budget(1e9, "seconds"))
            steps = trainer.steps()
            for _ in range(2):  # kernels are compiled
                next(steps)
            start, count = time.perf_counter(), 0
            while time.perf_counter() - start < seconds:
                next(steps)
                count += 1
            results[name] = count / (time.perf_counter() - start)
    print(json.dumps(results))


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keeps `count` processes computing."""
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
    parser.add_argument("--measure", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        measure(arguments.measure)
        return 0
    rounds, seconds = (1, 0.5) if arguments.quick else (3, 2.0)
    for load in arguments.load:
        samples: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
        with busy_processes(load):
            for _ in range(rounds):
                for name, variables in SETTINGS.items():
                    environment = {key: value for key, value in os.environ.items() if key not in SETTING_VARIABLES}
                    command = [sys.executable, __file__, "--measure", str(seconds)]
                    output = subprocess.run(
                        command, env={**environment, **variables}, check=True, stdout=subprocess.PIPE, text=True
                    ).stdout
                    samples[name].append(json.loads(output))
        print(f"{load} busy processes, {os.cpu_count()} cores; updates per second")
        print(f"{'':24}" + "".join(f"{family:>15}" for family in FAMILIES))
        for name, rows in samples.items():
            medians = [statistics.median(row[family] for row in rows) for family in FAMILIES]
            print(f"{name:24}" + "".join(f"{value:15.1f}" for value in medians), flush=True)
    return 0


SETTING_VARIABLES = {variable for variables in SETTINGS.values() for variable in variables}

if __name__ == "__main__":
    sys.exit(main())
