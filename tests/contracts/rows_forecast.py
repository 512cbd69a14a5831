"""The forecast task for the task contracts: two series over hours, with a gap, and a column known in advance."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from pathlib import Path

from task_row import TaskRow

HOURS = 240


def build_table(hours: int, future_hours: int = 0) -> str:
    """Rows of `hours` hours, and some more in which only the known column is filled in."""
    lines = ["time,load,heat,holiday"]
    for hour in range(hours + future_hours):
        timestamp = datetime(2024, 1, 1) + timedelta(hours=hour)
        load = f"{10 + 3 * math.sin(hour * math.pi / 6) + 0.01 * hour + hour % 5 / 4:.3f}" if hour < hours else ""
        heat = "" if hour >= hours or hour == 50 else f"{math.cos(hour * math.pi / 6) + hour % 3 / 5:.3f}"
        lines.append(f"{timestamp:%Y-%m-%d %H:%M},{load},{heat},{int(hour % 48 > 40)}")
    return "\n".join(lines) + "\n"


def write(folder: Path) -> str:
    (folder / "long.csv").write_text(build_table(150, 6), encoding="utf-8")
    (folder / "short.csv").write_text(build_table(60, 8), encoding="utf-8")
    path = folder / "loads.csv"
    path.write_text(build_table(HOURS), encoding="utf-8")
    return str(path)


def list_inputs(folder: Path) -> list[str]:
    return [str(folder / "long.csv"), str(folder / "short.csv")]


ROW = TaskRow(
    task="forecast",
    write=write,
    inputs=[],
    inputs_in_folder=list_inputs,
    settings={
        "horizon": 6,
        "forecast": {"lookback": 24, "season": 12, "patch": 4, "known_future": "holiday"},
        "network": {"width": 8},
        "training": {"batch_size": 16},
    },
)
