"""Folders that look like runs and comparisons, written without training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml


def make_rows(losses: Sequence[float], *, ended: str = "", metric: str = "perplexity") -> list[dict[str, Any]]:
    """Returns rows of metrics, one per ten steps; every second one has a validation whose metric is twice the loss."""
    rows: list[dict[str, Any]] = []
    for number, loss in enumerate(losses, start=1):
        validation = {"loss": loss, metric: 2 * loss} if number % 2 == 0 else None
        row = {"step": 10 * number, "tokens": 1000 * number, "loss": loss, "gradient_norm": 1.0, "learning_rate": 0.01}
        row |= {"seconds": 0.5 * number, "tokens_per_second": 2000.0, "progress": number / len(losses)}
        rows.append(row | {"validation": validation, "best": validation is not None})
    if ended:
        rows[-1]["ended"] = ended
    return rows


def write_rows(path: Path, rows: Sequence[dict[str, Any]], mode: str = "w") -> None:
    with path.open(mode) as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_run(folder: Path, losses: Sequence[float] = (3.0, 2.0), *, is_finished: bool = True, **settings: Any) -> Path:
    """Writes a run; `settings` replace those of config.yaml."""
    folder.mkdir(parents=True)
    values = {
        "task": "language",
        "model": "lstm",
        "seed": 0,
        "training": {"learning_rate": 0.01},
        "run": {"data": "b.txt"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump({**values, **settings}))
    write_rows(folder / "metrics.jsonl", make_rows(losses, ended="the budget is spent" if is_finished else ""))
    if is_finished:
        (folder / "summary.json").write_text(json.dumps({"validation": {"loss": 2.0, "perplexity": 4.0}, "step": 20}))
    return folder


def write_comparison(folder: Path, families: Sequence[str] = ("gru", "lstm"), seeds: Sequence[int] = (0, 1)) -> Path:
    """Writes a comparison whose trials are all done; the test metric of a family is 10, 11, … in their order."""
    folder.mkdir(parents=True)
    plan = {
        "task": "language", "data": "b.txt", "metric": "perplexity", "budgets": {"seeds": list(seeds), "lr_trials": 1},
        "families": {name: {"model": name} for name in families},
    }  # fmt: skip
    (folder / "compare.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    (folder / "report.json").write_text("{}")
    for number, family in enumerate(families):
        for seed in seeds:
            write_run(folder / "trials" / family / f"seed-{seed}", model=family, seed=seed)
            for suffix, result in (
                (".json", {"validation": 20.0, "updates": 5, "tokens": 100, "seconds": 2.5}),
                (".test.json", {"metrics": {"perplexity": 10.0 + number}}),
            ):
                outcome = {"status": "done", "reason": "", "result": result}
                (folder / "trials" / family / f"seed-{seed}{suffix}").write_text(json.dumps(outcome))
    return folder
