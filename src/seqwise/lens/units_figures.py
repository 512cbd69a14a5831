"""Sentences and figures of the view `units`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from seqwise.errors import pluralize
from seqwise.lens.sample import OUTPUT, Sample, SampleText
from seqwise.lens.spans import MIN_ACCURACY, MIN_SHARE, SimilarSpan, SpanUnits
from seqwise.lens.token_features import MEMORY_FEATURES
from seqwise.lens.unit_search import TrackedFeature, UnitSearch
from seqwise.page.figures import BarChart, Figure, Table, TokenText

MAX_TEXTS = 4  # coloured texts of a search
MAX_SPANS = 12  # similar spans in a table
CONTEXT = 6  # tokens before and after, in a table


def describe_search(search: UnitSearch, sample: Sample) -> list[str]:
    """Returns the features that are tracked best, and how the units were chosen."""
    first, *others = search.tracked
    sentences = [
        f"Unit {first.unit} of {first.layer} tracks {quote_feature(first.feature)} best: correlation "
        f"{first.held_out:+.2f} on held-out texts (95 % interval {first.low:+.2f} to {first.high:+.2f})."
    ]
    remembered = next((one for one in search.tracked if needs_memory(one.feature)), None)
    if remembered is not None and remembered is not first:
        sentences.append(
            f"Of the features that need memory, {quote_feature(remembered.feature)} is tracked best: "
            f"{remembered.held_out:+.2f}, by unit {remembered.unit} of {remembered.layer}."
        )
    if others:
        listed = ", ".join(f"{quote_feature(one.feature)} {one.held_out:+.2f}" for one in others[:5])
        sentences.append(f"The best units of other features: {listed}.")
    num_units = sum(one.shape[1] for one in search.correlations.values())
    chosen, held_out = search.num_tokens
    sentences.append(
        f"Of {num_units:,} units, each was chosen on {chosen:,} tokens and measured on {held_out:,} others; "
        f"the {len(sample.texts):,} texts are evenly spread over {describe_source(sample)}."
    )
    return sentences


def describe_source(sample: Sample) -> str:
    """Returns where the texts of a sample are from."""
    return "the validation split" if sample.subject.trained is not None else "the input"


def quote_feature(feature: str) -> str:
    return f"“{feature}”"


def draw_search(
    search: UnitSearch, shown: SampleText, arrays: Mapping[str, np.ndarray], decoders: Collection[str]
) -> list[Figure]:
    """Returns bars of the correlations, a table of the units, and the text coloured by the best of them."""
    figures: list[Figure] = [
        BarChart(
            title="Correlation of the best unit of each feature, on held-out texts",
            note="The sign is that of the unit. Lines are 95 % intervals, from resampling texts.",
            names=[one.feature for one in search.tracked],
            values=np.array([one.held_out for one in search.tracked]),
            value_label="correlation",
            low=np.array([one.low for one in search.tracked]),
            high=np.array([one.high for one in search.tracked]),
        ),
        Table(
            title="The best unit of each feature",
            note="“Chosen” is the correlation on the half of the texts on which the unit was chosen, too high as a "
            "maximum of many; “held out” is that on the other half. Positions, quotes and brackets need memory; most "
            "other features can be read from the token itself. Units are counted from 0.",
            columns=("feature", "layer", "unit", "chosen", "held out"),
            rows=[
                (one.feature, one.layer, one.unit, round(one.chosen, 3), round(one.held_out, 3))
                for one in search.tracked
            ],
        ),
    ]
    for one in choose_shown(search.tracked):
        values = arrays[one.layer][:, one.unit]
        scaled = (values - search.means[one.layer][one.unit]) / search.deviations[one.layer][one.unit]
        title = f"{one.feature}: unit {one.unit} of {one.layer} (correlation {one.held_out:+.2f})"
        figures.append(draw_activations(title, shown.get_tokens(one.layer in decoders), scaled, values))
    return figures


def needs_memory(feature: str) -> bool:
    """Returns whether a feature depends on more than the token itself."""
    return feature.removeprefix(OUTPUT) in MEMORY_FEATURES


def choose_shown(tracked: Sequence[TrackedFeature]) -> list[TrackedFeature]:
    """Returns the features whose units are drawn: those that need memory first, and each unit once."""
    units: dict[tuple[str, int], TrackedFeature] = {}
    for one in sorted(tracked, key=lambda one: not (needs_memory(one.feature) and abs(one.held_out) > 0.3)):
        units.setdefault((one.layer, one.unit), one)
    return list(units.values())[:MAX_TEXTS]


def draw_activations(
    title: str, tokens: Sequence[str], scaled: np.ndarray, values: np.ndarray, selected: Sequence[int] = ()
) -> TokenText:
    """Returns a text coloured by the activations of a unit."""
    return TokenText(
        title=title,
        tokens=list(tokens),
        values=scaled,
        value_label="activation (standard deviations from its mean)",
        details=[f"activation {value:.3g}" for value in values],
        selected=selected,
    )


def describe_unit(
    label: str, unit: int, rows: Sequence[tuple[str, float, float, float]], values: np.ndarray, sample: Sample
) -> list[str]:
    """Returns what a unit correlates with most, and its range."""
    low, high = np.percentile(values, (5, 95))
    sentences = []
    if rows:
        name, value, *interval = rows[0]
        sentences.append(
            f"Unit {unit} of {label} correlates most with {quote_feature(name)}: {value:+.2f} "
            f"(95 % interval {interval[0]:+.2f} to {interval[1]:+.2f})."
        )
    activations = "its activations" if rows else f"the activations of unit {unit} of {label}"
    sentences.append(
        f"Nine tenths of {activations} are between {low:.3g} and {high:.3g}, over {len(values):,} tokens of "
        f"{len(sample.texts):,} texts of {describe_source(sample)}."
    )
    return sentences


def draw_unit(data: Mapping[str, Any], series: Sequence[np.ndarray], sample: Sample, is_decoder: bool) -> list[Figure]:
    """Returns the text coloured by a unit, its correlations, and where it is highest and lowest."""
    values, sample_values = data["activations"], np.concatenate(series)
    scaled = (values - sample_values.mean()) / max(float(sample_values.std()), 1e-12)
    name = f"unit {data['unit']} of {data['layer']}"
    figures: list[Figure] = [draw_activations(f"Text coloured by {name}", data["tokens"], scaled, values)]
    if data["correlations"]:
        names, *numbers = zip(*data["correlations"])
        centre, low, high = (np.array(each) for each in numbers)
        figures.append(
            BarChart(title=f"Correlation of {name} with features", names=names, values=centre, low=low, high=high,
                     value_label="correlation", note="Lines are 95 % intervals, from resampling texts.")
        )  # fmt: skip
    for key in ("highest", "lowest"):
        rows = [
            (value, show_context(sample.texts[text].get_tokens(is_decoder), position, position + 1))
            for value, text, position in data[key]
        ]
        figures.append(
            Table(title=f"Tokens where {name} is {key}", note="At most one token of each text.",
                  columns=("activation", "token in context"), rows=rows)
        )  # fmt: skip
    return figures


def show_context(tokens: Sequence[str], start: int, end: int) -> str:
    """Returns some tokens around a span, which is in brackets ⟦ ⟧."""
    joiner = "" if is_unspaced(tokens) else " "
    size = CONTEXT * (4 if max(map(len, tokens)) == 1 else 1)  # characters are short
    before, inside, after = tokens[max(0, start - size) : start], tokens[start:end], tokens[end : end + size]
    if len(inside) > 3 * size:
        inside = [*inside[:size], " … ", *inside[-size:]]
    parts = (joiner.join(part) for part in (before, inside, after))
    left, middle, right = (part.replace("\n", "⏎") for part in parts)
    return f"{left}{joiner}⟦{middle}⟧{joiner}{right}".strip()


def is_unspaced(tokens: Sequence[str]) -> bool:
    """Returns whether the tokens contain the spaces between words: characters, or byte pairs."""
    return any(token[:1] == " " or token == "\n" for token in tokens) or max(map(len, tokens)) == 1


def describe_span(found: SpanUnits, similar: Sequence[SimilarSpan], sample: Sample) -> list[str]:
    """Returns how many units are active only in the span, and how many spans are similar."""
    expected = f"{found.num_expected:.1f}" if found.num_expected >= 0.1 else "fewer than 0.1"
    count = "1 unit is" if found.num_exclusive == 1 else f"{found.num_exclusive:,} units are"
    first = f"{count} active at every token of the span and at no other token of the text"
    sentences = [f"{first} ({expected} expected if activations were in random order)."]
    if not len(found.units):
        sentences.append(
            f"No unit separates the span from the rest of the text with an accuracy of {MIN_ACCURACY:.0%}."
        )
        return sentences
    complete = sum(span.share == 1 for span in similar)
    where = f"of the {len(sample.texts):,} texts of {describe_source(sample)}"
    if len(found.units) == 1:
        sentences.append(f"It is active in {pluralize(complete, 'spans')} {where}.")
    else:
        sentences.append(
            f"The {len(found.units)} best are active together in {pluralize(complete, 'spans')} {where}; "
            f"at least {MIN_SHARE:.0%} of them in {len(similar):,}."
        )
    return sentences


def draw_span(
    found: SpanUnits,
    similar: Sequence[SimilarSpan],
    arrays: Mapping[str, np.ndarray],
    tokens: Sequence[str],
    span: tuple[int, int],
    sample: Sample,
    is_decoder: bool,
) -> list[Figure]:
    """Returns the text coloured by how many of the units are active, a table of the units, and similar spans."""
    if not len(found.units):
        return []
    columns = [arrays[label][:, unit] for label, unit in zip(found.layers, found.units)]
    active = np.stack(columns, axis=1) > found.thresholds
    rows = [
        (label, int(unit), float(threshold), float(accuracy), float(margin))
        for label, unit, threshold, accuracy, margin in zip(
            found.layers, found.units, found.thresholds, found.accuracies, found.margins
        )
    ]
    shown, number = similar[:MAX_SPANS], len(found.units)
    return [
        TokenText(
            title="Units active at each token",
            note="The outlined tokens are the span.",
            tokens=list(tokens),
            values=active.mean(axis=1),
            value_label=f"share of the {number} units that are active" if number > 1 else "1 where the unit is active",
            scale="sequential",
            details=[f"{count} of {number} unit{'s' if number > 1 else ''}" for count in active.sum(axis=1)],
            selected=list(range(*span)),
        ),
        Table(
            title="Units active in the span",
            note="A unit is active above its threshold. Accuracy: the mean of two shares, of the span that is active "
            "and of the rest that is not. Margin: the smallest activation inside minus the largest outside, as a share "
            "of the unit's range in this text.",
            columns=("layer", "unit", "threshold", "accuracy", "margin"),
            rows=rows,
        ),
        Table(
            title=f"Similar spans in {describe_source(sample)}",
            note=f"The first {len(shown)} of {len(similar):,}, by the share of active units; a span that is shorter "
            "counts less.",
            columns=("active units", "tokens", "span ⟦ ⟧ in context"),
            rows=[
                (f"{one.share:.0%}", one.end - one.start,
                 show_context(sample.texts[one.text].get_tokens(is_decoder), one.start, one.end))
                for one in shown
            ],
        ),
    ]  # fmt: skip
