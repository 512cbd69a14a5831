"""Comparisons at any point of their way: copies of a finished one without some outcomes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from small_comparison import finished_comparison

from seqwise.compare.run.jobs import LATENCY_JOB, Job

NUM_ROWS = 15  # of the metrics of a trial that is cut short


def cut_comparison(to: Path, *, missing: Sequence[str], partly: Sequence[str] = ()) -> Path:
    """Returns a comparison without report in which trials are `missing`, or `partly` trained; no model is tested."""
    folder = finished_comparison(to)
    for name in ("report.json", "report.html"):
        (folder / name).unlink()
    LATENCY_JOB.get_file(folder).unlink()
    for path in folder.glob("trials/*/*.test*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for trial in (*missing, *partly):
        Job("train", trial).get_file(folder).unlink()
        run = Job("train", trial).get_run_folder(folder)
        if trial in missing:
            shutil.rmtree(run)
            continue
        for name in ("model.safetensors", "summary.json"):
            (run / name).unlink(missing_ok=True)
        metrics = run / "metrics.jsonl"
        metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:NUM_ROWS]))
    return folder


def copy_outcome(source: Path, to: Path, job: Job) -> None:
    """Copies the outcome of a job, with the run or the scores that belong to it, from a finished comparison."""
    folder = "get_run_folder" if job.kind == "train" else "get_scores_folder"
    if job.kind in ("train", "test"):
        shutil.copytree(getattr(job, folder)(source), getattr(job, folder)(to), dirs_exist_ok=True)
    shutil.copy(job.get_file(source), job.get_file(to))
