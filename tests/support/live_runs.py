"""`seqwise` in processes of its own, which tests start, wait for and end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TIMEOUT = 900  # seconds after which a process counts as hanging; the machine may be busy

# 64 targets per update; with dropout, so that results depend on random numbers.
SMALL = [
    *("--text.tokenizer", "characters", "--network.width", "16", "--network.depth", "1", "--network.dropout", "0.2"),
    *(
        "--data.window",
        "16",
        "--training.batch-size",
        "4",
        "--training.learning-rate",
        "0.01",
        "--training.patience",
        "99",
    ),
]
SEQWISE = [sys.executable, "-m", "seqwise"]


def start(*arguments: str | Path, program: list[str] = SEQWISE, **options) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*program, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Waits for a process; returns its exit status and standard error."""
    try:
        _, error_output = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"still running after {TIMEOUT} s: {process.communicate()[1]}") from None
    return process.returncode, error_output


def run(*arguments: str | Path, program: list[str] = SEQWISE) -> tuple[int, str]:
    return finish(start(*arguments, program=program))


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Polls until `condition` is true; fails if the process ends before that."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}: {process.communicate()[1]}"
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.002)


def get_saved_step(folder: Path) -> int:
    """Returns the step of the newest checkpoint."""
    names = os.listdir(folder / "checkpoints") if (folder / "checkpoints").is_dir() else []
    return max((int(match[1]) for name in names if (match := re.fullmatch(r"step-(\d+)", name))), default=0)


def get_logged_step(folder: Path) -> int:
    """Returns the step of the last complete line of metrics.jsonl."""
    try:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return json.loads(lines[-1])["step"]
    except (OSError, IndexError, ValueError):
        return 0


def read_outcome(folder: Path) -> dict[str, object]:
    """Returns what must be bit-identical however often a run was interrupted."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    step = get_saved_step(folder)
    return {
        "step": step,
        "best weights": (folder / "model.safetensors").read_bytes(),
        "newest state": (folder / f"checkpoints/step-{step}/tensors.safetensors").read_bytes(),
        "metrics": [(row["step"], row["tokens"], row["loss"], row["validation"], row["best"]) for row in rows],
        "ended": rows[-1].get("ended"),
    }
