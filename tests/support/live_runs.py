"""The real command line in real processes, started, watched and ended by tests."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 900  # after which a process counts as hanging; long, because the machine may be busy

# 64 targets an update; dropout, so that random numbers matter.
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


def start(*words: str | Path, before: list[str] = SEQWISE, **options) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*before, *map(str, words)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status and standard error."""
    try:
        _, said = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"still running after {SECONDS} s: {process.communicate()[1]}") from None
    return process.returncode, said


def run(*words: str | Path, before: list[str] = SEQWISE) -> tuple[int, str]:
    return finish(start(*words, before=before))


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Look again and again until it is so."""
    deadline = time.monotonic() + SECONDS
    while not reached():
        assert process.poll() is None, f"ended with {process.returncode}: {process.communicate()[1]}"
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.002)


def saved_step(folder: Path) -> int:
    """The step of the newest checkpoint."""
    names = os.listdir(folder / "checkpoints") if (folder / "checkpoints").is_dir() else []
    return max((int(found[1]) for name in names if (found := re.fullmatch(r"step-(\d+)", name))), default=0)


def logged_step(folder: Path) -> int:
    """The step of the last whole line of metrics.jsonl."""
    try:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return json.loads(lines[-1])["step"]
    except (OSError, IndexError, ValueError):
        return 0


def outcome(folder: Path) -> dict[str, object]:
    """What must be the same, bit for bit, however often a run was interrupted."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    step = saved_step(folder)
    return {
        "step": step,
        "best weights": (folder / "model.safetensors").read_bytes(),
        "newest state": (folder / f"checkpoints/step-{step}/tensors.safetensors").read_bytes(),
        "metrics": [(row["step"], row["tokens"], row["loss"], row["validation"], row["best"]) for row in rows],
        "ended": rows[-1].get("ended"),
    }


def kill_often(words: list[str | Path], folder: Path, steps: int, kills: int, draw: random.Random) -> None:
    """SIGKILL at `kills` random moments of a training of so many steps, each followed by --resume; then to the end."""
    for target in sorted(draw.choices(range(2 * steps // 3), k=kills)):
        begun = saved_step(folder)
        process = start(*words)
        wait_until(lambda: saved_step(folder) > max(target, begun), process)  # noqa: B023 - used at once
        time.sleep(draw.uniform(0, 0.03))
        process.kill()
        status, said = finish(process)
        assert status == -signal.SIGKILL, said
        words = ["train", "--resume", folder]
    status, said = run(*words)
    assert status == 0, said
