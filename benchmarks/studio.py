"""What the studio costs: time until its page is useful, memory of the server, and time of a training beside it.

    python benchmarks/studio.py [--runs 200] [--long 50] [--steps 100000] [--pairs 5] [--tokens 400k] [--quick]

Writes folders of runs with synthetic learning curves, of which `--long` have `--steps` steps, starts `seqwise studio`,
and opens its page in Chromium (the pip package playwright, and Chromium of the system). Measured are

- the time from the request until the first row of the table is part of the page, in a new browser profile each time;
- the time until 50 curves are answered, and the resident memory of the server after that;
- a training with a budget in tokens, alternately with and without a page that shows it: the ratio of the times is the
  median over pairs. On a machine with two cores, the browser itself uses part of them.

The exit status is 1 if a requirement is not met: one second, 200 MB, 2 %.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import yaml

from seqwise.resolved_settings import ResolvedSettings

MAX_SECONDS, MAX_MEGABYTES, MAX_RATIO = 1.0, 200, 1.02
STEPS_PER_ROW = 10  # of metrics.jsonl
NUM_OPENINGS = 5
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Notes the time at which the first row of a table is part of the page.
OBSERVE = """new MutationObserver(() => {
  if (window.firstRow === undefined && document.querySelector("main tbody tr")) window.firstRow = performance.now();
}).observe(document, { childList: true, subtree: true });"""


def write_run(folder: Path, number: int, num_steps: int) -> None:
    """Writes a finished run with a synthetic curve."""
    folder.mkdir(parents=True)
    family = ("rnn", "gru", "lstm", "transformer")[number % 4]
    settings = ResolvedSettings(task="language", model=family, budget="5m", seed=number // 4).model_dump()
    run = {
        "data": "corpus.txt",
        "fingerprint": "0",
        "split": "",
        "command": "seqwise train corpus.txt",
        "seqwise": "0.2.0",
    }
    (folder / "config.yaml").write_text(yaml.safe_dump({**settings, "run": {**run, "format": 1}}))
    with (folder / "metrics.jsonl").open("w") as file:
        for step in range(STEPS_PER_ROW, num_steps + 1, STEPS_PER_ROW):
            loss = 3 + 4 * math.exp(-step / 2000) + 0.2 * math.sin(step * (1 + number))
            row = {"step": step, "epoch": 0, "tokens": 1000 * step, "loss": loss, "gradient_norm": 1.0}
            row |= {"learning_rate": 0.001, "seconds": step / 50, "tokens_per_second": 50_000.0}
            row |= {"progress": step / num_steps, "validation": None, "best": False}
            if step % (100 * STEPS_PER_ROW) == 0:
                row["validation"] = {"loss": loss, "perplexity": math.exp(loss)}
            file.write(json.dumps(row) + "\n")
    validation = {"loss": 3.0, "perplexity": math.exp(3)}
    (folder / "summary.json").write_text(json.dumps({"seconds": {"training": 1.0}, "validation": validation}))


@contextmanager
def start_studio(folder: Path) -> Iterator[tuple[str, int]]:
    """Yields the address and the process id of a studio."""
    command = [sys.executable, "-m", "seqwise", "studio", str(folder), "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    match = re.search(r"http://\S+", process.stderr.readline())
    assert match is not None
    try:
        yield match[0], process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


@contextmanager
def start_browser() -> Iterator[Any]:
    """Yields Chromium."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is installed")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


def measure_opening(browser: Any, address: str) -> float:
    """Returns the seconds until the table has its first row."""
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(OBSERVE)
    page.goto(address)
    page.wait_for_selector("main tbody tr", state="attached")
    seconds = page.evaluate("window.firstRow") / 1000
    context.close()
    return seconds


def measure_curves(address: str, names: Sequence[str]) -> float:
    """Returns the seconds until the server has answered with these curves."""
    query = "&".join(f"id={quote(name)}" for name in names)
    started_at = time.perf_counter()
    with urlopen(f"{address}api/curves?{query}&points=600") as answer:
        answer.read()
    return time.perf_counter() - started_at


def read_megabytes(pid: int) -> float:
    """Returns the largest resident memory of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1000  # type: ignore[index]


def train(folder: Path, tokens: str) -> float:
    """Trains and returns the seconds spent on training steps."""
    command = [
        sys.executable,
        "-m",
        "seqwise",
        "train",
        "builtin:docs",
        "--model",
        "lstm",
        "--budget",
        f"{tokens}-tokens",
    ]
    subprocess.run([*command, "--out", str(folder)], check=True, stderr=subprocess.DEVNULL)
    return json.loads((folder / "summary.json").read_text())["seconds"]["training"]


def measure_training(browser: Any, root: Path, pairs: int, tokens: str) -> list[float]:
    """Returns the ratios of the times with and without a page that shows the training."""
    ratios = []
    train(root / "warm-up", tokens)
    for number in range(pairs):
        times = {}
        for is_open in (True, False) if number % 2 else (False, True):
            folder = root / f"{number}-{is_open}"
            if is_open:
                with start_studio(root) as (address, _):
                    context = browser.new_context()
                    context.new_page().goto(f"{address}#/run?id={root.name}/{folder.name}")
                    context.new_page().goto(f"{address}#/runs")
                    times[True] = train(folder, tokens)
                    context.close()
            else:
                times[False] = train(folder, tokens)
        ratios.append(times[True] / times[False])
        print(f"  pair {number + 1}: {times[True]:.1f} s with the page, {times[False]:.1f} s without", flush=True)
    return ratios


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="runs in the folder (200)")
    parser.add_argument("--long", type=int, default=50, help="of these, with long curves (50)")
    parser.add_argument("--steps", type=int, default=100_000, help="of a long curve (100,000)")
    parser.add_argument("--pairs", type=int, default=5, help="trainings with and without a page; 0: none (5)")
    parser.add_argument("--tokens", default="400k", help="budget of a training (400k)")
    parser.add_argument("--quick", action="store_true", help="one pair, few runs")
    options = parser.parse_args(arguments)
    if options.quick:
        options.runs, options.long, options.steps, options.pairs = 20, 5, 10_000, min(1, options.pairs)
    problems = []
    with tempfile.TemporaryDirectory() as name, start_browser() as browser:
        root = Path(name) / "runs"
        for number in range(options.runs):
            write_run(root / f"run-{number}", number, options.steps if number < options.long else 2_000)
        with start_studio(root) as (address, pid):
            seconds = statistics.median(measure_opening(browser, address) for _ in range(NUM_OPENINGS))
            print(f"first row of a table of {options.runs} runs: {seconds:.2f} s (median of {NUM_OPENINGS})")
            names = [f"runs/run-{number}" for number in range(options.long)]
            first, again = measure_curves(address, names), measure_curves(address, names)
            print(f"{options.long} curves of {options.steps:,} steps: {first:.2f} s, again {again:.2f} s")
            megabytes = read_megabytes(pid)
            print(f"memory of the server: {megabytes:.0f} MB")
        problems += [f"the first row takes {seconds:.2f} s, more than {MAX_SECONDS}"] if seconds > MAX_SECONDS else []
        problems += [f"the server needs {megabytes:.0f} MB"] if megabytes > MAX_MEGABYTES else []
        if options.pairs:
            ratio = statistics.median(measure_training(browser, Path(name) / "trained", options.pairs, options.tokens))
            print(f"training with the page open takes {100 * (ratio - 1):+.1f} % (median of {options.pairs} pairs)")
            problems += [f"training takes {ratio:.3f} times as long"] if ratio > MAX_RATIO else []
    for problem in problems:
        print(f"not met: {problem}")
    return int(bool(problems) and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
