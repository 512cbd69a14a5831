"""Forecasting: the next values of series from their past.

    table → series on a grid → windows → model → points and quantiles → error against the naive forecasts
                                              └→ the next steps, with their timestamps

The model forecasts one series at a time; all series share its weights. This module connects the parts; each is
explained where it is defined.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from seqwise.callbacks import LogFunction, ProgressCallback, no_log, no_progress
from seqwise.config import HELD_OUT_FRACTION, Settings
from seqwise.data.batch import BucketLoader, spread_indices
from seqwise.data.in_memory import save_data
from seqwise.data.records import Data, is_frame, is_numeric
from seqwise.data.tables import split_commas
from seqwise.errors import DataError, UsageError, pluralize
from seqwise.files import check_output_path
from seqwise.image import SUFFIXES
from seqwise.metrics.evaluation import Evaluation
from seqwise.metrics.predictions import TABLE_SUFFIXES, write_predictions
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.forecast.evaluation import (
    BlockErrors,
    build_evaluation,
    compute_errors,
    compute_validation_sums,
    forecast_first_windows,
    forecast_windows,
    hash_windows,
    iterate_predictions,
)
from seqwise.tasks.forecast.inspection import inspect_table, inspect_windows
from seqwise.tasks.forecast.linear import fit_linear
from seqwise.tasks.forecast.model import ForecastModel, set_forecast_defaults
from seqwise.tasks.forecast.output import forecast_next_steps, save_plot
from seqwise.tasks.forecast.reader import SeriesData, read_series
from seqwise.tasks.forecast.selection import build_windows, compute_fingerprint, read_windows, select_steps
from seqwise.tasks.forecast.windows import (
    DEFAULT_SPLITS,
    SeriesStatistics,
    WindowBatch,
    check_training_values,
    compute_borders,
    describe_splits,
    detect_season,
    is_constant,
)
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.task import (
    InferenceOptions,
    LatencyInputs,
    ModelBundle,
    Prediction,
    Preprocessor,
    ProcessGroup,
    Size,
    Task,
)
from seqwise.tasks.training_summary import TrainingSummary, measure_overlap

DEFAULT_QUANTILES = "0.1,0.9"
MAX_VALIDATION_WINDOWS = 20_000  # windows that are evaluated at each validation, evenly spaced
MAX_LISTED_NAMES = 8  # names of series in the log


class Forecast(Task):
    """The forecasting task on the series of one table."""

    unit = "values"
    set_defaults = staticmethod(set_forecast_defaults)
    primary_metric = ("mse", "mse")

    def __init__(self, series: SeriesData, statistics: SeriesStatistics, settings: ResolvedSettings):
        self.series, self.statistics = series, statistics
        self.borders = compute_borders(series, settings.forecast.splits)
        self.split_rule = describe_splits(series, settings.forecast.splits)
        self.fingerprint = compute_fingerprint(series, self.split_rule)
        self.preprocessor = Preprocessor(attributes=statistics.to_attributes() | {"example": series.source})
        self.rolling = build_windows(series, statistics, settings)
        self.windows = {split: self.rolling.find_windows(start, stop) for split, (start, stop) in self.borders.items()}

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Forecast:
        """Reads the table; chooses splits, season, horizon, lookback and quantiles unless they are set."""
        statistics = SeriesStatistics.from_attributes(preprocessor.attributes) if preprocessor else None
        columns, grid = (statistics.columns, statistics.grid) if statistics else (None, None)
        series = read_series(data, settings, columns, grid)
        train_end = compute_borders(series, _choose_splits(settings))["train"][1]
        check_training_values(series, train_end)
        season_message = _choose_lengths(series, settings, train_end)
        resolved = ResolvedSettings.from_settings(settings)
        parse_quantiles(resolved)
        if statistics is None:
            forecast = resolved.forecast
            statistics = SeriesStatistics.fit(series, train_end, forecast.season, forecast.calendar)
        task = cls(series, statistics, resolved)
        task._check_windows()
        for message in (*task._describe_series(), season_message):
            if message:
                log(message)
        task.log_findings(log)
        return task

    def _check_windows(self) -> None:
        for split, (start, stop) in self.borders.items():
            if not len(self.windows[split]):
                needed = self.rolling.horizon + (self.rolling.min_history if split == "train" else 0)
                problem = f"the {split} split has {stop - start:,} steps, and no window of {needed:,} fits into it."
                fix = "Give more rows, a smaller --horizon or --forecast.lookback, or other --forecast.splits."
                raise DataError(problem, fix=fix, file=self.series.source)

    def _describe_series(self) -> list[str]:
        series, rolling = self.series, self.rolling
        names = ", ".join(series.names[:MAX_LISTED_NAMES]) + (" …" if len(series.names) > MAX_LISTED_NAMES else "")
        count = f"{len(series.names)} series" if len(series.names) > 1 else "series"
        sizes = ", ".join(f"{split} {len(windows):,}" for split, windows in self.windows.items())
        return [
            f"{count}: {names}; {series.describe_span()}, {series.describe_time()}.",
            f"{self.split_rule[0].upper()}{self.split_rule[1:]} Scaling is learned on the training split.",
            f"windows: {sizes}; each forecasts {rolling.horizon} steps from the last {rolling.lookback}.",
        ]

    def notes(self) -> list[str]:
        return self.series.findings.note_messages()

    def warnings(self) -> list[str]:
        series, warnings = self.series, self.series.findings.warning_messages()
        start, stop = self.borders["train"]
        constant_names = np.array(series.names)[is_constant(series.values[start:stop])].tolist()
        if constant_names:
            first = constant_names[0]
            warnings.append(f"{len(constant_names):,} series never change in the training split (first: {first!r}).")
        num_unused = len(series.values) - series.end
        if num_unused:
            warnings.append(pluralize(num_unused, "rows after the last value, which are not used."))
        num_short = len(series.names) - len(np.unique(self.windows["train"][:, 1]))
        if num_short:
            warnings.append(f"{num_short:,} series are too short for a training window; no model is trained on them.")
        return warnings

    def size(self) -> Size:
        num_windows, horizon = len(self.windows["train"]), self.rolling.horizon
        return Size(num_windows * horizon, num_examples=num_windows, max_length=self.rolling.lookback)

    def valid_size(self) -> Size:
        num_windows = min(len(self.windows["valid"]), MAX_VALIDATION_WINDOWS)
        return Size(num_windows * self.rolling.horizon, num_examples=num_windows)

    def check_settings(self, settings: ResolvedSettings) -> None:
        if settings.recurrent.bidirectional:
            problem = "a forecast uses the last state, at which a backward direction has read a single step."
            raise UsageError(problem, fix="Leave out --recurrent.bidirectional.")

    def check_shapes(self, model: ForecastModel) -> None:
        model.forecast(self.rolling.collate(self.windows["train"][:1]).to("meta"))

    def batches(self, settings: ResolvedSettings, rank: int = 0, world_size: int = 1) -> BucketLoader[WindowBatch]:
        """Returns shuffled training windows, which all have the same length."""
        windows, collate = self.windows["train"], self.rolling.collate
        lengths = np.full(len(windows), self.rolling.lookback)
        batch_size, max_tokens = settings.training.batch_size, settings.data.max_tokens
        return BucketLoader(
            lengths, lambda i: collate(windows[i]), batch_size, max_tokens, settings.seed, rank, world_size
        )

    def validate(
        self, model: ForecastModel, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        """Returns errors over windows of the validation split; the best weights have the smallest `mse`."""
        windows = self.windows["valid"]
        windows = windows[:: -(-len(windows) // MAX_VALIDATION_WINDOWS)]
        windows = windows[spread_indices(len(windows), share)]
        sums = compute_validation_sums(model, self.rolling, windows[world.rank :: world.size])
        loss, squared, absolute, count = world.sum(*sums)
        mse = squared / count
        return {"loss": loss / count, "mse": mse, "mae": absolute / count, "objective": mse}

    @cached_property
    def training_summary(self) -> TrainingSummary:
        train, valid = self.windows["train"], self.windows["valid"]
        linear = fit_linear(self.rolling, train, valid)
        arrays = {} if linear is None else {"linear": linear}
        return TrainingSummary.create("mse", hash_windows(self.rolling, train), arrays, {})

    def count_data(self) -> dict[str, dict[str, int]]:
        counts = {}
        for split, (start, stop) in self.borders.items():
            values = self.series.values[start:stop]
            missing = int(np.isnan(values).sum())
            sizes = {"steps": stop - start, "values": values.size - missing}
            counts[split] = sizes | {"missing": missing, "windows": len(self.windows[split])}
        return counts

    def describe_data(self) -> tuple[str, ...]:
        calendar = ", ".join(self.statistics.calendar) or "none"
        return (
            f"{', '.join(self.series.names)}: {self.series.describe_span()}.",
            f"season: {self.statistics.season} steps; calendar features: {calendar}.",
        )

    # Inference with a trained model, without the training data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> ForecastModel:
        num_known = 2 * len(preprocessor.attributes["calendar"]) + len(preprocessor.attributes["columns"]["known"])
        return ForecastModel(settings, num_known, parse_quantiles(settings), len(preprocessor.attributes["names"]))

    @classmethod
    def save_data(cls, data: Data, columns: str | None = None) -> str:
        return save_data(data, is_series=True)

    @classmethod
    def save_input(cls, value: Any) -> str | None:
        """Returns the path of a table: a path, or a DataFrame, array or Series, which is written to the cache."""
        if isinstance(value, PathLike) or is_frame(value) or is_numeric(value):
            return cls.save_data(value)
        return super().save_input(value)

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Evaluates all windows: of the test split of the training data or of a folder, or of any other table."""
        check_output_path(options.out, (*SUFFIXES, *TABLE_SUFFIXES))
        rolling, training = read_windows(bundle, data), bundle.training
        series = rolling.series
        start, stop, description = select_steps(series, bundle, split)
        windows = rolling.find_windows(start, stop)
        if not len(windows):
            needed = rolling.min_history + rolling.horizon
            problem = f"no window of {needed:,} steps fits into {description} ({stop - start:,} steps)."
            raise DataError(problem, fix="Give a longer table.", file=series.source)
        block_errors = BlockErrors(rolling, start, stop) if options.examples else None
        with Stopwatch() as watch:
            linear = None if training is None else training.arrays.get("linear")
            errors = compute_errors(bundle.model, rolling, windows, options.progress, block_errors, linear)
        if options.out is not None and options.out.suffix.lower() in TABLE_SUFFIXES:
            write_predictions(options.out, iterate_predictions(bundle.model, rolling, windows))
        elif options.out is not None:
            save_plot(options.out, forecast_first_windows(bundle.model, rolling, windows))
        warnings = series.findings.warning_messages()
        new_names = [name for name in series.names if name not in bundle.preprocessor.attributes["names"]]
        if new_names:
            first = new_names[0]
            warnings.append(f"{len(new_names):,} series are new to the run and scaled by their own values ({first} …).")
        evaluation = build_evaluation(errors, f"{series.source}, {description}", rolling, warnings)
        examples = None if block_errors is None else block_errors.to_scores()
        notes = tuple(series.findings.note_messages())
        evaluation = replace(evaluation, seconds=watch.seconds, examples=examples, data_notes=notes)
        if training is None:
            return evaluation

        def compute_mse(indices: np.ndarray) -> float:
            errors = compute_errors(bundle.model, rolling, windows[indices])
            return build_evaluation(errors, "", rolling, []).metrics["mse"]

        masks = training.find(hash_windows(rolling, windows))
        return replace(evaluation, overlap=measure_overlap(*masks, "windows", compute_mse))

    @classmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        """Returns single windows of the split."""
        rolling = read_windows(bundle, data)
        start, stop, _ = select_steps(rolling.series, bundle, split)
        windows = list(rolling.find_windows(start, stop))
        return windows, lambda window: forecast_windows(bundle.model, rolling.collate(window[None]))

    @classmethod
    def inspect_text(cls, bundle: ModelBundle, text: str) -> InspectedInput:
        return inspect_table(bundle, text)

    @classmethod
    def inspect_split(
        cls, bundle: ModelBundle, data: str, split: str, count: int, progress: ProgressCallback = no_progress
    ) -> list[InspectedInput]:
        return inspect_windows(bundle, data, split, count, progress)

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yields the forecast after the end of each table. `options.out` gets a plot of the last table."""
        check_output_path(options.out, SUFFIXES)
        for spec in inputs:
            prediction = forecast_next_steps(bundle.model, read_windows(bundle, spec))
            if options.out is not None:
                save_plot(options.out, prediction.values["series"])
            yield prediction

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str]:
        """Returns one input, which is a whole table: the file, or the text of standard input for "-"."""
        return [sys.stdin.read()] if text == "-" else [text]


def parse_quantiles(settings: ResolvedSettings) -> tuple[float, ...]:
    """Returns the quantiles to forecast, in ascending order."""
    text = settings.forecast.quantiles
    if text.strip().lower() in ("", "none"):
        return ()
    try:
        levels = sorted({float(part) for part in split_commas(text) or ()})
    except ValueError:
        levels = [0.0]
    if not all(0 < level < 1 for level in levels):
        problem = f"--forecast.quantiles: expected numbers between 0 and 1, received {text!r}."
        raise UsageError(problem, fix="For example --forecast.quantiles 0.1,0.9, or none.")
    return tuple(levels)


def _choose_splits(settings: Settings) -> str:
    """Returns `forecast.splits`; if it is not set, sets it to the fractions of `data`, or to DEFAULT_SPLITS."""
    if settings.forecast.splits is None:
        valid, test = settings.data.valid_fraction, settings.data.test_fraction
        is_default = (valid, test) == (HELD_OUT_FRACTION, HELD_OUT_FRACTION)
        settings.forecast.splits = DEFAULT_SPLITS if is_default else f"{1 - valid - test:g},{valid:g},{test:g}"
    return settings.forecast.splits


def _choose_lengths(series: SeriesData, settings: Settings, train_end: int) -> str:
    """Sets season, horizon, lookback and quantiles unless they are set; returns a message about the season.

    The season is a calendar cycle, or detected in the training values, which end at `train_end`. The horizon is one
    season, the lookback the longer of 3.5 horizons and 3 seasons, at most a third of training.
    """
    forecast, message = settings.forecast, ""
    if forecast.season is None:
        calendar_season = series.grid.season
        if calendar_season is not None and 2 * calendar_season <= train_end:
            forecast.season = calendar_season
            message = f"season: {forecast.season} steps, by the timestamps (step: {series.grid.step_name})."
        elif season := detect_season(series.values[:train_end]):
            forecast.season = season
            message = f"season: {season} steps, the strongest autocorrelation of the training values."
        else:
            forecast.season = 1
            message = "season: none was found, so the seasonal-naive forecast is the naive one."
    if settings.horizon is None:
        settings.horizon = max(1, min(forecast.season if forecast.season > 1 else 10, train_end // 10))
    if forecast.lookback is None:
        lookback = max(3 * forecast.season, -(-7 * settings.horizon // 2))
        whole_seasons = -(-lookback // forecast.season) * forecast.season
        forecast.lookback = max(1, min(whole_seasons, train_end // 3))
    if forecast.quantiles is None:
        forecast.quantiles = DEFAULT_QUANTILES
    return message
