"""Inputs of a forecaster for the views of `seqwise.lens`. Each answer is the value at one lead time.

The positions are the times that the model reads, or patches of several times.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from torch import Tensor

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.errors import DataError
from seqwise.tasks.forecast.model import ForecastModel
from seqwise.tasks.forecast.output import find_last_windows
from seqwise.tasks.forecast.selection import read_windows, select_steps
from seqwise.tasks.forecast.windows import RollingWindows, WindowBatch
from seqwise.tasks.inspection import Answer, InspectedInput, choose_evenly, get_device, report_each
from seqwise.tasks.task import ModelBundle


def inspect_table(bundle: ModelBundle, spec: str) -> InspectedInput:
    """Returns the last window of a table, after which the model forecasts; of several series the first."""
    rolling = read_windows(bundle, spec)
    return inspect_window(bundle, rolling, find_last_windows(rolling)[0], f"the end of {rolling.series.source}")


def inspect_windows(
    bundle: ModelBundle, data: str, split: str, count: int, progress: ProgressCallback = no_progress
) -> list[InspectedInput]:
    """Returns windows of a split."""
    rolling = read_windows(bundle, data)
    start, stop, description = select_steps(rolling.series, bundle, split)
    windows = rolling.find_windows(start, stop)
    if not len(windows):
        raise DataError(f"no window fits into {description}.", fix="Give a longer table.", file=rolling.series.source)
    return [
        inspect_window(bundle, rolling, windows[index], f"window {index + 1:,} of {len(windows):,} ({description})")
        for index in report_each(choose_evenly(len(windows), count), progress)
    ]


def inspect_window(
    bundle: ModelBundle, rolling: RollingWindows, window: np.ndarray, description: str
) -> InspectedInput:
    """Returns a window, which is (first step to forecast, index of the series)."""
    origin, series = map(int, window)
    model, grid, name = bundle.model, rolling.series.grid, rolling.series.names[series]
    batch = rolling.collate(window[None]).to(get_device(model))
    scaler = rolling.statistics.scaler
    scale = float(scaler.deviation[series]), float(scaler.mean[series])
    times = [grid.format_timestamp(step) for step in range(origin - rolling.lookback, origin)]
    answers = [
        Answer(
            f"{name} at {grid.format_timestamp(origin + step)}",
            partial(score_step, batch=batch, step=step, scale=scale),
            is_value=True,
        )
        for step in range(rolling.horizon)
    ]
    size = model.encoder.patch_size
    text, features = f"{name}, {times[0]} to {times[-1]}", "encoder.input_projection"
    position_name = "step" if size == 1 else f"patch of {size} steps"
    tokens = name_patches(times, size)
    return InspectedInput(
        description, text, batch, tokens, answers=answers, features=features, position_name=position_name
    )


def name_patches(times: list[str], size: int) -> list[str]:
    """Returns a name for each patch of times: its first and its last. The first patch may be shorter."""
    stops = range(len(times), 0, -size)
    patches = [times[max(0, stop - size) : stop] for stop in reversed(stops)]
    return [patch[0] if len(patch) == 1 else f"{patch[0]} to {patch[-1]}" for patch in patches]


def score_step(model: ForecastModel, batch: WindowBatch, step: int, scale: tuple[float, float]) -> Tensor:
    """Returns the forecast at a lead time on the original scale, given as (deviation, mean)."""
    return model.forecast(batch).point[0, step] * scale[0] + scale[1]
