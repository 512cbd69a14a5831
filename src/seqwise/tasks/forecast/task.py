"""Forecasting: the next values of series from their past.

    table → series on a grid → windows → model → points and quantiles → error against the naive forecasts
                                              └→ the next steps, with their timestamps

Every series is a row of its own and all share the weights. This module connects the parts; each is explained where it
is defined.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from seqwise.callbacks import LogFunction, ProgressCallback, no_log
from seqwise.config import HELD_OUT_FRACTION, Settings
from seqwise.data.batch import BucketLoader, spread_indices
from seqwise.data.examples import SPLITS
from seqwise.data.in_memory import Data, is_frame, is_numeric, save_data
from seqwise.data.tables import parse_columns
from seqwise.errors import DataError, UsageError, suggest
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
    describe_windows,
    forecast_first_windows,
    forecast_windows,
    hash_windows,
)
from seqwise.tasks.forecast.linear import fit_linear
from seqwise.tasks.forecast.model import ForecastModel, fill_forecast
from seqwise.tasks.forecast.output import forecast_next_steps, save_plot
from seqwise.tasks.forecast.reader import SeriesData, read_series
from seqwise.tasks.forecast.windows import (
    DEFAULT_SPLITS,
    RollingWindows,
    SeriesStatistics,
    WindowBatch,
    check_training_values,
    compute_borders,
    describe_splits,
    detect_season,
    is_constant,
)
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
MAX_VALIDATION_WINDOWS = 20_000  # scored at each validation, evenly spaced over the split
MAX_NAMES = 8  # of series that are logged


class Forecast(Task):
    """Forecasting of the series of one table."""

    unit = "values"
    fill_defaults = staticmethod(fill_forecast)
    primary_metric = ("mse", "mse")

    def __init__(self, series: SeriesData, statistics: SeriesStatistics, settings: ResolvedSettings):
        self.series, self.statistics = series, statistics
        self.borders = compute_borders(series, settings.forecast.splits)
        self.split_rule = describe_splits(series, settings.forecast.splits)
        self.fingerprint = compute_fingerprint(series, self.split_rule)
        self.preprocessor = Preprocessor(facts=statistics.to_facts() | {"example": series.source})
        self.rolling = build_windows(series, statistics, settings)
        self.windows = {split: self.rolling.find(start, stop) for split, (start, stop) in self.borders.items()}

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Forecast:
        """Reads the table; chooses splits, season, horizon, lookback and quantiles that the settings leave open."""
        statistics = SeriesStatistics.from_facts(preprocessor.facts) if preprocessor else None
        layout = (statistics.columns, statistics.grid) if statistics else (None, None)
        series = read_series(data, settings, *layout)
        stop = compute_borders(series, _choose_splits(settings))["train"][1]
        check_training_values(series, stop)
        season_message = _choose_lengths(series, settings, stop)
        resolved = ResolvedSettings.from_settings(settings)
        parse_quantiles(resolved)
        if statistics is None:
            forecast = resolved.forecast
            statistics = SeriesStatistics.fit(series, stop, forecast.season, forecast.calendar)
        task = cls(series, statistics, resolved)
        task._check_windows()
        for message in (*task._describe(), season_message, *task.warnings()):
            if message:
                log(message)
        return task

    def _check_windows(self) -> None:
        for split, (start, stop) in self.borders.items():
            if not len(self.windows[split]):
                needed = self.rolling.horizon + (self.rolling.min_history if split == "train" else 0)
                problem = f"the {split} split has {stop - start:,} steps, and no window of {needed:,} fits into it."
                repair = "Give more rows, a smaller --horizon or --forecast.lookback, or other --forecast.splits."
                raise DataError(problem, repair=repair, file=self.series.source)

    def _describe(self) -> list[str]:
        series, rolling = self.series, self.rolling
        names = ", ".join(series.names[:MAX_NAMES]) + (" …" if len(series.names) > MAX_NAMES else "")
        count = f"{len(series.names)} series" if len(series.names) > 1 else "series"
        sizes = ", ".join(f"{split} {len(windows):,}" for split, windows in self.windows.items())
        return [
            f"{count}: {names}; {series.describe_span()}, {series.describe_time()}.",
            f"{self.split_rule[0].upper()}{self.split_rule[1:]} Scaling is learned on the training part.",
            f"windows: {sizes}; each forecasts {rolling.horizon} steps from the last {rolling.lookback}.",
        ]

    def warnings(self) -> list[str]:
        series, warnings = self.series, self.series.findings.warning_messages()
        start, stop = self.borders["train"]
        constant = [name for name, same in zip(series.names, is_constant(series.values[start:stop])) if same]
        if constant:
            warnings.append(f"{len(constant):,} series never change in the training part (first: {constant[0]!r}).")
        num_unused = len(series.values) - series.end
        if num_unused:
            warnings.append(f"{num_unused:,} rows after the last value, which are not used.")
        num_short = len(series.names) - len(np.unique(self.windows["train"][:, 1]))
        if num_short:
            warnings.append(f"{num_short:,} series are too short for a training window; no model is trained on them.")
        return warnings

    def size(self) -> Size:
        num_windows, horizon = len(self.windows["train"]), self.rolling.horizon
        return Size(num_windows * horizon, examples=num_windows, max_length=self.rolling.lookback)

    def valid_size(self) -> Size:
        num_windows = min(len(self.windows["valid"]), MAX_VALIDATION_WINDOWS)
        return Size(num_windows * self.rolling.horizon, examples=num_windows)

    def check_settings(self, settings: ResolvedSettings) -> None:
        if settings.recurrent.bidirectional:
            problem = "a forecast uses the last state, at which a backward direction has read a single step."
            raise UsageError(problem, repair="Leave out --recurrent.bidirectional.")

    def run_layers(self, model: ForecastModel) -> None:
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
        return {"loss": loss / count, "mse": mse, "mae": absolute / count, "goal": mse}

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
        num_known = 2 * len(preprocessor.facts["calendar"]) + len(preprocessor.facts["columns"]["known"])
        return ForecastModel(settings, num_known, parse_quantiles(settings))

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
        """Evaluates all windows of the test split of the training data or of a folder, or of another table."""
        check_output_path(options.out, (*SUFFIXES, *TABLE_SUFFIXES))
        rolling, training = _read_windows(bundle, data), bundle.training
        series = rolling.series
        start, stop, part = _select_part(series, bundle, split)
        windows = rolling.find(start, stop)
        if not len(windows):
            needed = rolling.min_history + rolling.horizon
            problem = f"no window of {needed:,} steps fits into {part} ({stop - start:,} steps)."
            raise DataError(problem, repair="Give a longer table.", file=series.source)
        block_errors = BlockErrors(rolling, start, stop) if options.examples else None
        with Stopwatch() as watch:
            linear = None if training is None else training.arrays.get("linear")
            errors = compute_errors(bundle.model, rolling, windows, options.progress, block_errors, linear)
        if options.out is not None and options.out.suffix.lower() in TABLE_SUFFIXES:
            write_predictions(options.out, describe_windows(bundle.model, rolling, windows))
        elif options.out is not None:
            save_plot(options.out, forecast_first_windows(bundle.model, rolling, windows))
        warnings = series.findings.warning_messages()
        new_names = [name for name in series.names if name not in bundle.preprocessor.facts["names"]]
        if new_names:
            first = new_names[0]
            warnings.append(f"{len(new_names):,} series are new to the run and scaled by their own values ({first} …).")
        evaluation = build_evaluation(errors, f"{series.source}, {part}", rolling, warnings)
        examples = None if block_errors is None else block_errors.to_scores()
        evaluation = replace(evaluation, seconds=watch.seconds, examples=examples)
        if training is None:
            return evaluation

        def compute(others: np.ndarray) -> float:
            return build_evaluation(compute_errors(bundle.model, rolling, windows[others]), "", rolling, []).metrics[
                "mse"
            ]

        masks = training.find(hash_windows(rolling, windows))
        return replace(evaluation, overlap=measure_overlap(*masks, "windows", compute))

    @classmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        """Returns single windows of the split."""
        rolling = _read_windows(bundle, data)
        start, stop, _ = _select_part(rolling.series, bundle, split)
        windows = list(rolling.find(start, stop))
        return windows, lambda window: forecast_windows(bundle.model, rolling.collate(window[None]))

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yields the steps after the end of each table. `options.out` is a plot of the last of them."""
        check_output_path(options.out, SUFFIXES)
        for spec in inputs:
            prediction = forecast_next_steps(bundle.model, _read_windows(bundle, spec))
            if options.out is not None:
                save_plot(options.out, prediction.values["series"])
            yield prediction

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str]:
        """Returns one input: a file, or standard input, is a whole table."""
        return [sys.stdin.read()] if text == "-" else [text]


def build_windows(series: SeriesData, statistics: SeriesStatistics, settings: ResolvedSettings) -> RollingWindows:
    forecast = settings.forecast
    return RollingWindows(series, statistics.select(series), forecast.lookback, settings.horizon, forecast.missing)


def _read_windows(bundle: ModelBundle, spec: str) -> RollingWindows:
    """Reads a table as the training data was read."""
    statistics = SeriesStatistics.from_facts(bundle.preprocessor.facts)
    series = read_series(spec, bundle.settings, statistics.columns, statistics.grid)
    return build_windows(series, statistics, bundle.settings)


def compute_fingerprint(series: SeriesData, split_rule: str) -> str:
    """Returns a digest of the values and how they are split.

    The names Clock and Columns are those of version 0.1, so that its runs recognise their data.
    """
    grid, columns = series.grid, series.columns
    description = (
        f"({split_rule!r}, {series.names!r}, Clock(unit={grid.unit!r}, step={grid.step!r}, first={grid.first!r}, "
        f"style={grid.style!r}, day={grid.day!r}), Columns(time={columns.time!r}, targets={columns.targets!r}, "
        f"known={columns.known!r}, series={columns.series!r}))"
    )
    digest = hashlib.blake2b(description.encode(), digest_size=16)
    digest.update(np.ascontiguousarray(series.values[: series.end]).tobytes())
    digest.update(np.ascontiguousarray(series.known[:, : series.end]).tobytes())
    return digest.hexdigest()


def parse_quantiles(settings: ResolvedSettings) -> tuple[float, ...]:
    """Returns the quantiles to forecast, in ascending order."""
    text = settings.forecast.quantiles
    if text.strip().lower() in ("", "none"):
        return ()
    try:
        levels = sorted({float(part) for part in parse_columns(text) or ()})
    except ValueError:
        levels = [0.0]
    if not all(0 < level < 1 for level in levels):
        problem = f"--forecast.quantiles: expected numbers between 0 and 1, received {text!r}."
        raise UsageError(problem, repair="For example --forecast.quantiles 0.1,0.9, or none.")
    return tuple(levels)


def _choose_splits(settings: Settings) -> str:
    """Fills in and returns the splits: the common fractions if they were changed, else those of the task."""
    if settings.forecast.splits is None:
        valid, test = settings.data.valid_fraction, settings.data.test_fraction
        is_default = (valid, test) == (HELD_OUT_FRACTION, HELD_OUT_FRACTION)
        settings.forecast.splits = DEFAULT_SPLITS if is_default else f"{1 - valid - test:g},{valid:g},{test:g}"
    return settings.forecast.splits


def _choose_lengths(series: SeriesData, settings: Settings, stop: int) -> str:
    """Fills in season, horizon, lookback and quantiles; returns a message about the season.

    The season is that of the calendar or of the training values, which end at `stop`. The horizon is one season, the
    lookback the longer of 3.5 horizons and 3 seasons, at most a third of training.
    """
    forecast, message = settings.forecast, ""
    if forecast.season is None:
        calendar_season = series.grid.season
        if calendar_season is not None and 2 * calendar_season <= stop:
            forecast.season = calendar_season
            message = f"season: {forecast.season} steps, by the timestamps (step: {series.grid.step_name})."
        elif season := detect_season(series.values[:stop]):
            forecast.season = season
            message = f"season: {season} steps, the strongest autocorrelation of the training values."
        else:
            forecast.season = 1
            message = "season: none was found, so the seasonal-naive forecast is the naive one."
    if settings.horizon is None:
        settings.horizon = max(1, min(forecast.season if forecast.season > 1 else 10, stop // 10))
    if forecast.lookback is None:
        lookback = max(3 * forecast.season, -(-7 * settings.horizon // 2))
        whole_seasons = -(-lookback // forecast.season) * forecast.season
        forecast.lookback = max(1, min(whole_seasons, stop // 3))
    if forecast.quantiles is None:
        forecast.quantiles = DEFAULT_QUANTILES
    return message


def _select_part(series: SeriesData, bundle: ModelBundle, split: str | None) -> tuple[int, int, str]:
    """Returns the first step to evaluate, the step after the last, and which part of the data they are, in words."""
    if split not in (None, "all", *SPLITS):
        raise UsageError(f"there is no split {split!r}.", repair=suggest(str(split), [*SPLITS, "all"]))
    splits = bundle.settings.forecast.splits
    has_splits = split is not None or series.split_ends is not None
    if not has_splits:
        with suppress(UsageError):  # another table may be too short for these splits
            has_splits = compute_fingerprint(series, describe_splits(series, splits)) == bundle.training_fingerprint
    if split == "all" or not has_splits:
        return 0, series.end, "all of it"
    start, stop = compute_borders(series, splits)[split or "test"]
    return start, stop, f"the {split or 'test'} split"
