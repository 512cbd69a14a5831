"""Forecasting: the next values of series from their past.

    table → series on a grid → windows → model → points and quantiles → error against the naive forecasts
                                              └→ the next steps, with their stamps

Every series is a row of its own and all share the weights. The page wires pieces; each is explained where it lives.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from seqwise.config import HELD_OUT, Settings
from seqwise.data.splitting import SPLITS
from seqwise.data.tables import parse_columns
from seqwise.errors import DataError, UsageError, nearest
from seqwise.files import check_output_path
from seqwise.metrics.evaluation import Evaluation
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.checks import check_memory, check_model, check_precision
from seqwise.tasks.forecast.answer import answer
from seqwise.tasks.forecast.model import ForecastModel
from seqwise.tasks.forecast.plot import SUFFIXES, save_picture
from seqwise.tasks.forecast.reader import Series, read_series
from seqwise.tasks.forecast.scaling import Measures, check_series, constant, season_of_values
from seqwise.tasks.forecast.scoring import drawn_windows, evaluation, forecasts_of, score, validation_sums
from seqwise.tasks.forecast.stretches import Stretches
from seqwise.tasks.forecast.windows import SHARES, Rolling, WindowBatches, borders, rule_of
from seqwise.tasks.task import (
    InferenceOptions,
    LogFunction,
    Prediction,
    Preprocessor,
    ProgressCallback,
    Report,
    Size,
    Summing,
    Task,
    no_log,
)

QUANTILES = "0.1,0.9"
INTERIM = 20_000  # windows of the validation split that are scored during training, at even distances


class Forecast(Task):
    """The task on one table."""

    unit = "values"
    primary_metric = ("mse", "mse")

    def __init__(self, series: Series, measures: Measures, settings: ResolvedSettings):
        self.series, self.measures = series, measures
        self.splits = settings.forecast.splits
        self.parts = borders(series, self.splits)
        self.split_rule = rule_of(series, self.splits)
        self.fingerprint = fingerprint(series, self.split_rule)
        self.preprocessor = Preprocessor(facts=measures.facts() | {"example": series.name})
        self.rolling = rolling_of(series, measures.of(series), settings)
        season = measures.season
        self.windows = {split: self.rolling.windows(*part, season) for split, part in self.parts.items()}

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Forecast:
        """Read the table; choose horizon, past, season, splits and quantiles where the settings leave them open."""
        measures = Measures.from_facts(preprocessor.facts) if preprocessor else None
        series = read_series(data, settings, *((measures.columns, measures.clock) if measures else (None, None)))
        stop = borders(series, _choose_splits(settings))["train"][1]
        check_series(series, stop)
        found = _choose_season(series, settings, stop)
        _choose_lengths(series, settings, stop)
        quantiles_of(settings)
        chosen = ResolvedSettings.from_settings(settings)
        if measures is None:
            measures = Measures.learn(series, stop, chosen.forecast.season, chosen.forecast.calendar)
        task = cls(series, measures, chosen)
        task._demand_windows(chosen)
        for sentence in (*task._sentences(chosen), found):
            if sentence:
                log(sentence)
        for remark in task._remarks():
            log(remark)
        return task

    def _demand_windows(self, settings: ResolvedSettings) -> None:
        for split in SPLITS:
            if not len(self.windows[split]):
                start, stop = self.parts[split]
                needed = settings.horizon
                if split == "train":
                    needed += max(settings.forecast.lookback, self.measures.season)
                raise DataError(
                    f"the {split} split has {stop - start:,} steps, and no window of {needed:,} fits into it.",
                    repair="Give more rows, a smaller --horizon or --forecast.lookback, or other --forecast.splits.",
                    file=self.series.name,
                )

    def _sentences(self, settings: ResolvedSettings) -> list[str]:
        names = ", ".join(self.series.names[:8]) + (" …" if len(self.series.names) > 8 else "")
        some = f"{len(self.series.names)} series" if len(self.series.names) > 1 else "series"
        sizes = ", ".join(f"{split} {len(windows):,}" for split, windows in self.windows.items())
        return [
            f"{some}: {names}; {self.series.span()}, time in column {self.series.columns.time!r}.",
            f"{self.split_rule[0].upper()}{self.split_rule[1:]} Scaling is learned on the training part.",
            f"windows: {sizes}; each forecasts {settings.horizon} steps from the last {settings.forecast.lookback}.",
        ]

    def _remarks(self) -> list[str]:
        remarks = self.series.findings.warning_messages()
        flat = [name for name, same in zip(self.series.names, constant(self._train())) if same]
        if flat:
            remarks.append(f"{len(flat):,} series never change in the training part (first: {flat[0]!r}).")
        unused = len(self.series.values) - self.series.end
        if unused:
            remarks.append(f"{unused:,} rows after the last value, which are not used.")
        without = len(self.series.names) - len(np.unique(self.windows["train"][:, 1]))
        if without:
            remarks.append(f"{without:,} series are too short for a window of training; they are only scaled.")
        return remarks

    def _train(self) -> np.ndarray:
        start, stop = self.parts["train"]
        return self.series.values[start:stop]

    def size(self) -> Size:
        windows = len(self.windows["train"])
        horizon = self.rolling.horizon
        return Size(windows * horizon, examples=windows, longest=self.rolling.past, outputs=horizon)

    def check(self, settings: ResolvedSettings) -> None:
        check_model(settings, "counts tokens; it cannot forecast")
        if settings.recurrent.bidirectional:
            raise UsageError(
                "a forecast is read off the last state, which a second direction does not reach.",
                repair="Leave out --recurrent.bidirectional.",
            )
        check_precision(settings)
        model = check_memory(lambda: self.build(settings), settings)
        model.eval().forecast(self.rolling.batch(self.windows["train"][:1]).to("meta"))  # some layers complain here

    def build(self, settings: ResolvedSettings) -> ForecastModel:
        return self.restore(settings, self.preprocessor)

    def batches(self, settings: ResolvedSettings, rank: int = 0, world: int = 1) -> WindowBatches:
        return WindowBatches(self.rolling, self.windows["train"], settings, rank, world)

    def validate(self, model: ForecastModel, settings: ResolvedSettings, world: Summing) -> dict[str, float]:
        """Errors over windows of the validation split; the best weights are those with the smallest `mse`."""
        windows = self.windows["valid"]
        windows = windows[:: -(-len(windows) // INTERIM)]
        sums = validation_sums(model, self.rolling, windows[world.rank :: world.size])
        loss, squared, absolute, count = world.sum(*sums)
        mse = squared / count
        return {"loss": loss / count, "mse": mse, "mae": absolute / count, "goal": mse}

    def report(self) -> Report:
        rows: dict[str, tuple[int, ...]] = {}
        for split, (start, stop) in self.parts.items():
            there = ~np.isnan(self.series.values[start:stop])
            rows[split] = (stop - start, int(there.sum()), int((~there).sum()), len(self.windows[split]))
        spread = f"season: {self.measures.season} steps; calendar: {', '.join(self.measures.calendar) or 'nothing'}."
        sentences = (f"{', '.join(self.series.names)}: {self.series.span()}.", spread, f"split: {self.split_rule}")
        return Report(("steps", "values", "missing", "windows"), rows, sentences, tuple(self._remarks()))

    # A trained model, without that data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> ForecastModel:
        known = 2 * len(preprocessor.facts["calendar"]) + len(preprocessor.facts["columns"]["known"])
        return ForecastModel(settings, known, quantiles_of(settings))

    @classmethod
    def evaluate(
        cls,
        model: ForecastModel,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        *,
        split: str | None = None,
        trained_on: str = "",
        options: InferenceOptions = InferenceOptions(),
        progress: ProgressCallback | None = None,
    ) -> Evaluation:
        """Rolling over the test split of the training data or of a folder, or over a whole other table."""
        check_output_path(options.out, SUFFIXES)
        measures = Measures.from_facts(preprocessor.facts)
        series = read_series(data, settings, measures.columns, measures.clock)
        start, stop, which = _part_to_score(series, settings, split, trained_on)
        rolling = rolling_of(series, measures.of(series), settings)
        windows = rolling.windows(start, stop, measures.season)
        if not len(windows):
            needed = max(rolling.past, measures.season) + rolling.horizon
            raise DataError(
                f"no window of {needed:,} steps fits into {which} ({stop - start:,} steps).",
                repair="Give a longer table.",
                file=series.name,
            )
        stretches = Stretches(rolling, start, stop) if options.examples else None
        began = perf_counter()
        errors = score(model, rolling, windows, measures.season, progress, stretches)
        seconds = perf_counter() - began
        if options.out is not None:
            save_picture(options.out, drawn_windows(model, rolling, windows, measures.of(series)))
        remarks = series.findings.warning_messages()
        if unknown := measures.unknown(series):
            remarks.append(
                f"{len(unknown):,} series are new to the run and scaled by their own values ({unknown[0]} …)."
            )
        found = evaluation(errors, measures.of(series), f"{series.name}, {which}", rolling, remarks)
        examples = None if stretches is None else stretches.examples(measures.of(series))
        return replace(found, seconds=seconds, examples=examples)

    @classmethod
    def latency_inputs(
        cls,
        model: ForecastModel,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        split: str,
        trained_on: str = "",
    ) -> tuple[Sequence[Any], Callable[[Any], object]]:
        """Single windows of the split."""
        measures = Measures.from_facts(preprocessor.facts)
        series = read_series(data, settings, measures.columns, measures.clock)
        start, stop, _ = _part_to_score(series, settings, split, trained_on)
        rolling = rolling_of(series, measures.of(series), settings)
        windows = rolling.windows(start, stop, measures.season)
        return list(windows), lambda window: forecasts_of(model, rolling.batch(window[None]))

    @classmethod
    def predict(
        cls,
        model: ForecastModel,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        inputs: Sequence[str],
        options: InferenceOptions = InferenceOptions(),
    ) -> Iterator[Prediction]:
        """The steps after the end of each table. With `options.out` the last of them is drawn into that file."""
        check_output_path(options.out, SUFFIXES)
        measures = Measures.from_facts(preprocessor.facts)
        for each in inputs:
            series = read_series(each, settings, measures.columns, measures.clock)
            prediction = answer(model, rolling_of(series, measures.of(series), settings), measures.of(series))
            if options.out is not None:
                save_picture(options.out, prediction.values["series"])
            yield prediction

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str]:
        """A file is one input, a whole table; so is standard input."""
        return [sys.stdin.read()] if text == "-" else [text]


def rolling_of(series: Series, measures: Measures, settings: ResolvedSettings) -> Rolling:
    past, horizon = settings.forecast.lookback, settings.horizon
    return Rolling(series, measures, past, horizon, settings.forecast.missing)


def fingerprint(series: Series, rule: str) -> str:
    """Of the values and how they are split."""
    digest = hashlib.blake2b(repr((rule, series.names, series.clock, series.columns)).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(series.values[: series.end]).tobytes())
    digest.update(np.ascontiguousarray(series.known[:, : series.end]).tobytes())
    return digest.hexdigest()


def quantiles_of(settings: Settings) -> tuple[float, ...]:
    """The quantiles to forecast, in rising order; those of the rule are filled into settings without any."""
    if settings.forecast.quantiles is None:
        settings.forecast.quantiles = QUANTILES
    if settings.forecast.quantiles.strip().lower() in ("", "none"):
        return ()
    try:
        levels = sorted({float(part) for part in parse_columns(settings.forecast.quantiles) or ()})
    except ValueError:
        levels = [0.0]
    if not all(0 < level < 1 for level in levels):
        raise UsageError(
            f"--forecast.quantiles: expected numbers between 0 and 1, received {settings.forecast.quantiles!r}.",
            repair="For example --forecast.quantiles 0.1,0.9, or none.",
        )
    return tuple(levels)


def _choose_splits(settings: Settings) -> str:
    """Fill in and return the splits: the common shares where they were changed, else those of the task."""
    if settings.forecast.splits is None:
        valid, test = settings.data.valid_fraction, settings.data.test_fraction
        plain = (valid, test) == (HELD_OUT, HELD_OUT)
        settings.forecast.splits = SHARES if plain else f"{1 - valid - test:g},{valid:g},{test:g}"
    return settings.forecast.splits


def _choose_season(series: Series, settings: Settings, stop: int) -> str:
    """Fill in the season: of the calendar, or of the training values. Returns the sentence that says so."""
    if settings.forecast.season is not None:
        return ""
    from_stamps = series.clock.season
    if from_stamps is not None and 2 * from_stamps <= stop:
        settings.forecast.season = from_stamps
        return f"season: {from_stamps} steps, by the stamps (step: {series.clock.spacing})."
    found = season_of_values(series.values[:stop])
    settings.forecast.season = found or 1
    if found:
        return f"season: {found} steps, where the training values are most like themselves again."
    return "season: none was found, so the seasonal-naive forecast is the naive one."


def _choose_lengths(series: Series, settings: Settings, stop: int) -> None:
    """A season ahead; from three and a half horizons and at least three seasons, but a third of the training part."""
    season = settings.forecast.season or 1
    if settings.horizon is None:
        settings.horizon = max(1, min(season if season > 1 else 10, stop // 10))
    if settings.forecast.lookback is None:
        wanted = max(3 * season, -(-7 * settings.horizon // 2))
        whole = -(-wanted // season) * season
        settings.forecast.lookback = max(1, min(whole, stop // 3))


def _part_to_score(
    series: Series, settings: ResolvedSettings, split: str | None, trained_on: str
) -> tuple[int, int, str]:
    """First step, step after the last, and which they are, in words."""
    if split not in (None, "all", *SPLITS):
        raise UsageError(f"there is no split {split!r}.", repair=nearest(str(split), [*SPLITS, "all"]))
    splits = settings.forecast.splits
    known = series.given is not None
    if not known and split != "all":
        try:
            known = split is not None or fingerprint(series, rule_of(series, splits)) == trained_on
        except UsageError:  # another table, too short for these splits
            if split is not None:
                raise
    if split == "all" or (split is None and not known):
        return 0, series.end, "all of it"
    start, stop = borders(series, splits)[split or "test"]
    return start, stop, f"the {split or 'test'} split"
