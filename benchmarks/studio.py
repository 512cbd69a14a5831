"""What the studio costs: time until its page is useful, memory of the server, and what a training beside it loses.

    python benchmarks/studio.py [--runs 200] [--long 50] [--steps 100000] [--pairs 5] [--tokens 1200k] [--quick]

Writes folders of runs with synthetic learning curves, of which `--long` have `--steps` steps, starts `seqwise studio`,
and opens its page in Chromium (the pip package playwright, and Chromium of the system). Measured are

- the time from the request until the first row of the table is part of the page, in a new browser profile each time;
- the time until 50 curves are answered, and the resident memory of the server after that;
- a training in the same folder with a budget in tokens, alternately with and without two pages that show it: its own
  page and the table of all runs.
  While the pages are open, the processor time of the server and of the browser, each with its child processes, is
  divided by the duration: the share of the machine's cores that they take from the training. It does not depend on
  what else the machine does. The ratio of the training times does, by several percent on most machines, so its median
  over the pairs is printed with the smallest and the largest ratio, and only the share decides.

The exit status is 1 if a requirement is not met: one second, 200 MB, 2 % of the cores.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import yaml

from seqwise.resolved_settings import ResolvedSettings

MAX_SECONDS, MAX_MEGABYTES, MAX_SHARE = 1.0, 200, 0.02
STEPS_PER_ROW = 10  # of metrics.jsonl
NUM_OPENINGS = 5
SETTLE_SECONDS = 3.0  # after a page was opened: what follows is the cost of keeping it open
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


@dataclass(frozen=True)
class Shares:
    """Processor time per second, as a share of all cores."""

    server: float
    browser: float

    @property
    def total(self) -> float:
        return self.server + self.browser


def read_cpu_seconds(pids: Sequence[int]) -> float:
    """Returns the processor time of processes and of all their descendants so far, also of those that have ended."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(") ")[2].split()  # the name, before it, may contain spaces
            pid = int(path.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    members = set(pids)
    while added := {pid for pid, parent in parents.items() if parent in members} - members:
        members |= added
    return sum(ticks.get(pid, 0) for pid in members) / os.sysconf("SC_CLK_TCK")


def find_browsers() -> list[int]:
    """Returns the Chromium processes that were started by this process, through the driver of playwright."""
    parents, names = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, fields = path.read_text().partition("(")[2].rpartition(") ")
            pid = int(path.parent.name)
            parents[pid], names[pid] = int(fields.split()[1]), name
    drivers = {pid for pid, parent in parents.items() if parent == os.getpid()}
    return [pid for pid, parent in parents.items() if parent in drivers and names[pid].startswith("chrom")]


def start_training(folder: Path, tokens: str) -> subprocess.Popen[bytes]:
    """Starts a training with default settings."""
    command = [sys.executable, "-m", "seqwise", "train", "builtin:docs", "--model", "lstm", "--budget"]
    return subprocess.Popen([*command, f"{tokens}-tokens", "--out", str(folder)], stderr=subprocess.DEVNULL)


def finish_training(process: subprocess.Popen[bytes], folder: Path) -> float:
    """Returns the seconds that a training has spent on its steps."""
    if process.wait() != 0:
        sys.exit(f"the training in {folder} has failed")
    return json.loads((folder / "summary.json").read_text())["seconds"]["training"]


def train_with_pages(browser: Any, root: Path, folder: Path, tokens: str) -> tuple[float, Shares]:
    """Returns the seconds of a training that two pages show, and what server and browser use meanwhile."""
    with start_studio(root) as (address, server):
        process = start_training(folder, tokens)
        while not (folder / "metrics.jsonl").exists() and process.poll() is None:
            time.sleep(0.1)
        context = browser.new_context()
        pages = [context.new_page() for _ in range(2)]
        for page, place in zip(pages, (f"run?id={root.name}/{folder.name}", "runs"), strict=True):
            page.goto(f"{address}#/{place}")
            page.wait_for_selector(".run-charts svg, main tbody tr", state="attached")
        pages[0].wait_for_timeout(1000 * SETTLE_SECONDS)
        trees, started_at = ([server], find_browsers()), time.perf_counter()
        before = [read_cpu_seconds(tree) for tree in trees]
        while process.poll() is None:
            pages[0].wait_for_timeout(200)
        seconds = (time.perf_counter() - started_at) * (os.cpu_count() or 1)
        shares = [(read_cpu_seconds(tree) - start) / seconds for tree, start in zip(trees, before, strict=True)]
        context.close()
        return finish_training(process, folder), Shares(*shares)


def measure_training(browser: Any, root: Path, pairs: int, tokens: str) -> tuple[list[float], list[Shares]]:
    """Returns the ratios of the times with and without pages that show the training, and the shares of the pages."""
    ratios, shares = [], []
    warm_up = root / "warm-up"
    finish_training(start_training(warm_up, tokens), warm_up)
    for number in range(pairs):
        times = {}
        for is_open in (True, False) if number % 2 else (False, True):
            folder = root / f"pair-{number}-{is_open}"
            if is_open:
                times[True], share = train_with_pages(browser, root, folder, tokens)
                shares.append(share)
            else:
                times[False] = finish_training(start_training(folder, tokens), folder)
        ratios.append(times[True] / times[False])
        print(
            f"  pair {number + 1}: {times[True]:.1f} s with the pages, {times[False]:.1f} s without;"
            f" server {share.server:.2%}, browser {share.browser:.2%} of the cores",
            flush=True,
        )
    return ratios, shares


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="runs in the folder (200)")
    parser.add_argument("--long", type=int, default=50, help="of these, with long curves (50)")
    parser.add_argument("--steps", type=int, default=100_000, help="of a long curve (100,000)")
    parser.add_argument("--pairs", type=int, default=5, help="trainings with and without a page; 0: none (5)")
    parser.add_argument("--tokens", default="1200k", help="budget of a training (1200k)")
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
            ratios, shares = measure_training(browser, root, options.pairs, options.tokens)
            share = statistics.median(each.total for each in shares)
            print(f"two open pages: {share:.2%} of the {os.cpu_count()} cores (median of {options.pairs} trainings)")
            print(
                f"training with them takes {statistics.median(ratios) - 1:+.1%} (median of {options.pairs} pairs, "
                f"from {min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%})"
            )
            problems += [f"two open pages use {share:.2%} of the cores"] if share > MAX_SHARE else []
    for problem in problems:
        print(f"not met: {problem}")
    return int(bool(problems) and not options.quick)


if __name__ == "__main__":
    sys.exit(main())
