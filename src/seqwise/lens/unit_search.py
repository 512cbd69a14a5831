"""What single units track: the unit that correlates best with each feature, and one unit with all features.

It knows nothing of figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.lens.activations import ActivationLayer
from seqwise.lens.correlations import CorrelationSums, measure_correlation
from seqwise.lens.sample import OUTPUT, Sample

MIN_TOKENS = 10  # in each half, that differ from the most common value: a rarer feature cannot be measured
MAX_LABELS = 8  # tags or labels that are compared, the most frequent


@dataclass(frozen=True)
class FeatureTable:
    """The features of a sample that vary: `values` has (T, F) for each text."""

    names: Sequence[str]
    values: Sequence[np.ndarray]


@dataclass(frozen=True)
class TrackedFeature:
    """A feature and the unit that tracks it: the correlation where the unit was chosen, and on held-out texts."""

    feature: str
    layer: str
    unit: int
    chosen: float
    held_out: float
    low: float  # of the 95 % interval
    high: float


@dataclass
class UnitSearch:
    """The result: features by decreasing correlation, and the correlations of all units with all features."""

    tracked: list[TrackedFeature]
    correlations: dict[str, np.ndarray]  # label of the layer → (F, U), over both halves
    names: dict[str, Sequence[str]]  # label of the layer → features (F)
    means: dict[str, np.ndarray] = field(default_factory=dict)  # label of the layer → (U,)
    deviations: dict[str, np.ndarray] = field(default_factory=dict)
    num_tokens: tuple[int, int] = (0, 0)  # on which units were chosen, and held out


def build_feature_table(sample: Sample, is_decoder: bool) -> FeatureTable:
    """Returns the features that vary enough in both halves of a sample, each once."""
    features = [text.get_features(is_decoder) for text in sample.texts]
    lengths = [len(text.get_tokens(is_decoder)) for text in sample.texts]
    names = choose_names(features)
    values = [
        np.stack([one.get(name, np.zeros(length)) for name in names], axis=1) if names else np.zeros((length, 0))
        for one, length in zip(features, lengths)
    ]
    halves = [
        np.concatenate([values[index] for index in half] or [np.zeros((0, len(names)))]) for half in sample.split()
    ]
    columns: list[int] = []
    for column in range(len(names)):
        if all(count_uncommon(half[:, column]) >= MIN_TOKENS for half in halves):
            whole = np.concatenate([half[:, column] for half in halves])
            earlier = (np.concatenate([half[:, other] for half in halves]) for other in columns)
            if not any(np.array_equal(whole, other) or np.array_equal(whole, 1 - other) for other in earlier):
                columns.append(column)
    prefix = OUTPUT if is_decoder else ""
    return FeatureTable([f"{prefix}{names[column]}" for column in columns], [value[:, columns] for value in values])


def choose_names(features: Sequence[dict[str, np.ndarray]]) -> list[str]:
    """Returns the names of all features, and of tags and labels the most frequent."""
    counts: Counter[str] = Counter()
    for one in features:
        counts.update({name: float(np.abs(values).sum()) for name, values in one.items()})
    labels = sorted((name for name in counts if name.startswith(("tag ", "label "))), key=lambda name: -counts[name])
    others = [name for name in counts if name not in labels]
    return [*others, *labels[:MAX_LABELS]]


def count_uncommon(values: np.ndarray) -> int:
    """Returns how many values differ from the most common one."""
    return len(values) - int(np.unique(values, return_counts=True)[1].max(initial=0))


def search_units(
    sample: Sample, layers: Sequence[ActivationLayer], progress: ProgressCallback = no_progress
) -> UnitSearch:
    """Returns the unit of all layers that correlates best with each feature, chosen on one half of the texts."""
    tables = {layer.label: table for layer, table in _assign_tables(sample, layers)}
    chosen, held_out = sample.split()
    sums: list[dict[str, CorrelationSums]] = [{}, {}]
    best: dict[str, tuple[str, int, float]] = {}
    series: dict[str, list[np.ndarray]] = {}
    for number, (index, arrays) in enumerate(sample.iterate(layers, progress, [*chosen, *held_out])):
        half = int(number >= len(chosen))
        if number == len(chosen):
            best = choose_best(sums[0], tables)
            series = {feature: [] for feature in best}
        for label, array in arrays.items():
            values = tables[label].values[index]
            sums[half].setdefault(label, CorrelationSums(values.shape[1], array.shape[1])).add(values, array)
        for feature, (label, unit, _) in best.items() if half else ():
            series[feature].append(arrays[label][:, unit])
    tracked = []
    for feature, (label, unit, correlation) in best.items():
        column = list(tables[label].names).index(feature)
        feature_values = [tables[label].values[index][:, column] for index in held_out]
        tracked.append(
            TrackedFeature(feature, label, unit, correlation, *measure_correlation(feature_values, series[feature]))
        )
    return summarise(tracked, sums, tables)


def _assign_tables(sample: Sample, layers: Sequence[ActivationLayer]) -> list[tuple[ActivationLayer, FeatureTable]]:
    """Returns each layer with the features of the tokens that it reads."""
    sides = [sample.subject.is_in_decoder(layer.path) for layer in layers]
    tables = {side: build_feature_table(sample, side) for side in set(sides)}
    return [(layer, tables[side]) for layer, side in zip(layers, sides)]


def choose_best(sums: dict[str, CorrelationSums], tables: dict[str, FeatureTable]) -> dict[str, tuple[str, int, float]]:
    """Returns feature → layer, unit and correlation, by the size of the correlation."""
    best: dict[str, tuple[str, int, float]] = {}
    for label, one in sums.items():
        correlations = one.correlate()
        for row, feature in enumerate(tables[label].names):
            unit = int(np.abs(correlations[row]).argmax())
            value = float(correlations[row, unit])
            if feature not in best or abs(value) > abs(best[feature][2]):
                best[feature] = (label, unit, value)
    return best


def summarise(
    tracked: list[TrackedFeature], sums: list[dict[str, CorrelationSums]], tables: dict[str, FeatureTable]
) -> UnitSearch:
    """Returns the result of a search; the sums of both halves are added."""
    total = {label: one + sums[1][label] if label in sums[1] else one for label, one in sums[0].items()}
    means = {label: one.units / one.count for label, one in total.items()}
    variances = {label: one.unit_squares / one.count - np.square(means[label]) for label, one in total.items()}
    counts = [max((one.count for one in half.values()), default=0) for half in sums]
    return UnitSearch(
        sorted(tracked, key=lambda one: -abs(one.held_out)),
        {label: one.correlate() for label, one in total.items()},
        {label: tables[label].names for label in total},
        means,
        {label: np.sqrt(np.maximum(variance, 1e-12)) for label, variance in variances.items()},
        (counts[0], counts[1]),
    )


def correlate_unit(
    sample: Sample, layer: ActivationLayer, activations: Sequence[np.ndarray]
) -> list[tuple[str, float, float, float]]:
    """Returns (feature, correlation, 95 % interval) of a unit with activations (T,) per text, the largest first."""
    ((_, table),) = _assign_tables(sample, [layer])
    rows = []
    for column, name in enumerate(table.names):
        feature_values = [values[:, column] for values in table.values]
        rows.append((name, *measure_correlation(feature_values, activations)))
    return sorted(rows, key=lambda row: -abs(row[1]))
