"""`units`: what single units track.

Without options, the unit that correlates best with each simple feature of the text; with `unit`, one unit; with `span`,
the units that are active only in a part of the text, and other texts where they are active together. Activations are in
`activations.py`, features in `token_features.py`, the search in `unit_search.py` and `spans.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress, report_part
from seqwise.errors import UsageError
from seqwise.lens.activations import (
    ActivationLayer,
    choose_activations,
    list_activations,
    name_layers,
    select_directions,
)
from seqwise.lens.sample import READING_SHARE, Sample, SampleText, build_tensor_sample, build_text, read_sample
from seqwise.lens.spans import SimilarSpan, find_active_runs, find_span, find_span_units, rank_spans
from seqwise.lens.subject import CHOOSING_SHARE, Subject, open_subject
from seqwise.lens.unit_search import correlate_unit, search_units
from seqwise.lens.units_figures import (
    describe_search,
    describe_span,
    describe_unit,
    draw_search,
    draw_span,
    draw_unit,
    is_unspaced,
)
from seqwise.lens.view import View
from seqwise.page.figures import Figure


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    return None if list_activations(subject) else f"{subject.name} has no layer with units."


def units(
    model: Any,
    text: Any = None,
    *,
    layer: int | str | None = None,
    unit: int | None = None,
    span: str | None = None,
    data: str | None = None,
    features: Mapping[str, Any] | None = None,
    progress: ProgressCallback = no_progress,
) -> View:
    """Returns which units track which features of a text, over a sample of validation texts.

    model: a trained run; or a module with tensors (B, T, …) instead of a text, whose B sequences are the sample
    layer: number from 1 or name; label, such as "encoder, layer 1, backward, state", or dotted path of one direction
    unit: a number from 0: shows this unit of `layer` (of the last layer, if none is named) on the text and in the data,
        in both directions of a bidirectional layer
    span: a part of the text, or START:END in tokens from 0 without END: finds units that are active only there
    data: other data than that of the run; its validation split is used
    features: of a module with tensors, name → values (B, T)

    `data` without options: `features` (a list of dictionaries: feature, layer, unit, `chosen`, `held_out`, `low`,
    `high`), `correlations` (label of a layer → array (features, units)) and `feature_names` (label → names).
    With `unit`: label of the layer, or of each direction of a bidirectional one → `layer`, `unit`, `tokens`,
    `activations`, `correlations` (feature, value, low, high), `highest` and `lowest` (value, text, position). With
    `span`: `start`, `end`, `layers`, `units`, `thresholds`, `num_exclusive`, `num_expected`, `similar` (text, start,
    end, share).
    """
    if unit is not None and span is not None:
        raise UsageError("expected a unit or a span, received both.", fix="Leave one of them out.")
    subject = open_subject(model, text, report_part(progress, 0.0, CHOOSING_SHARE))
    progress = report_part(progress, CHOOSING_SHARE, 1.0)
    layers = choose_activations(_list_layers(subject), layer)
    shown = _read_shown(subject, text, layers, features)
    if unit is not None:
        return _show_unit(shown, unit, layer, data, progress)
    if span is not None:
        return _show_span(shown, span, data, progress)
    return _show_search(shown, data, progress)


@dataclass(frozen=True)
class ShownText:
    """The text that is shown, and the activations of its layers, label → (T, U)."""

    subject: Subject
    text: SampleText
    layers: Sequence[ActivationLayer]
    arrays: Mapping[str, np.ndarray]
    sample: Sample  # of a module with tensors; of a run this text alone

    def read_sample(self, data: str | None, progress: ProgressCallback) -> tuple[Sample, list[ActivationLayer]]:
        """Returns the texts over which units are compared, and the layers that have one vector per token of each."""
        if self.subject.trained is None:
            return self.sample, list(self.layers)
        sample = read_sample(self.subject.trained, data, progress=report_part(progress, 0.0, READING_SHARE))
        return sample, sample.keep_matching(self.layers)


def _read_shown(
    subject: Subject, inputs: Any, layers: Sequence[ActivationLayer], features: Mapping[str, Any] | None
) -> ShownText:
    """Returns the text that is shown; of a module with tensors, their first sequence."""
    if subject.trained is None:
        sample = build_tensor_sample(subject, inputs, features)
    elif features is not None:
        raise UsageError("features are for a module with tensors; those of a run are computed from its texts.")
    else:
        assert subject.inspected is not None
        sample = Sample(subject, [build_text(subject.trained, subject.inspected)], is_independent=True)
    layers = sample.keep_matching(layers)
    if not layers:
        raise UsageError(f"no layer of {subject.name} has one vector per token.", fix="Choose another --layer.")
    arrays = next(values for _, values in sample.iterate(layers, order=[0]))
    return ShownText(subject, sample.texts[0], layers, arrays, sample)


def _list_layers(subject: Subject) -> list[ActivationLayer]:
    layers = list_activations(subject)
    if not layers:
        raise UsageError(f"{subject.name} has no layer with units.", fix="Choose a run of a neural network.")
    return layers


def _show_search(shown: ShownText, data: str | None, progress: ProgressCallback) -> View:
    sample, layers = shown.read_sample(data, progress)
    search = search_units(sample, layers, report_part(progress, READING_SHARE, 1.0))
    if not search.tracked:
        problem = f"no feature varies enough in the {sample.num_tokens:,} tokens of the sample."
        raise UsageError(problem, fix="Pass more data with --data.")
    decoders = {layer.label for layer in layers if shown.subject.is_in_decoder(layer.path)}
    numbers = {
        "features": [asdict(one) for one in search.tracked],
        "correlations": search.correlations,
        "feature_names": search.names,
    }
    title = f"What units track, {shown.subject.name}"
    figures = draw_search(search, shown.text, shown.arrays, decoders)
    return View("units", title, describe_search(search, sample), figures, numbers)


def _show_unit(
    shown: ShownText, unit: int, layer: int | str | None, data: str | None, progress: ProgressCallback
) -> View:
    chosen = choose_directions(shown.layers, layer)
    num_units = shown.arrays[chosen[0].label].shape[1]
    if not 0 <= unit < num_units:
        raise UsageError(
            f"{name_layers(chosen)} has no unit {unit}.", fix=f"Choose a number from 0 to {num_units - 1}."
        )
    sample, _ = shown.read_sample(data, progress)
    rest = report_part(progress, READING_SHARE, 1.0)
    columns = [[values[one.label][:, unit] for one in chosen] for _, values in sample.iterate(chosen, rest)]
    numbers: dict[str, dict[str, Any]] = {}
    summary: list[str] = []
    figures: list[list[Figure]] = []
    for one, series in zip(chosen, zip(*columns)):
        numbers[one.label] = measure_unit(shown, one, unit, series, sample)
        rows = numbers[one.label]["correlations"]
        summary += describe_unit(one.label, unit, rows, np.concatenate(series), sample)
        figures.append(draw_unit(numbers[one.label], series, sample, shown.subject.is_in_decoder(one.path)))
    title = f"Unit {unit} of {name_layers(chosen)}, {shown.subject.name}"
    # Each figure of the forward direction is followed by that of the backward one.
    ordered = [figure for group in zip_longest(*figures) for figure in group if figure is not None]
    return View("units", title, summary, ordered, numbers)


def measure_unit(
    shown: ShownText, layer: ActivationLayer, unit: int, series: Sequence[np.ndarray], sample: Sample
) -> dict[str, Any]:
    """Returns the numbers of one unit of a layer; `series` are its activations in each text of the sample."""
    return {
        "layer": layer.label,
        "unit": unit,
        "tokens": list(shown.text.get_tokens(shown.subject.is_in_decoder(layer.path))),
        "activations": shown.arrays[layer.label][:, unit],
        "correlations": correlate_unit(sample, layer, series),
        "highest": find_extremes(series),
        "lowest": [(-value, text, position) for value, text, position in find_extremes([-one for one in series])],
    }


def choose_directions(layers: Sequence[ActivationLayer], layer: int | str | None) -> list[ActivationLayer]:
    """Returns one kind of activations of a layer, of the last unless set, in both directions if it is bidirectional."""
    return select_directions(layers, layers[0] if layer is not None else choose_last(layers))


def choose_last(layers: Sequence[ActivationLayer]) -> ActivationLayer:
    """Returns the states or block outputs of the last layer."""
    return next(one for one in reversed(layers) if one.name.kind in ("state", "output"))


def find_extremes(series: Sequence[np.ndarray], count: int = 10) -> list[tuple[float, int, int]]:
    """Returns (value, text, position) of the largest activations, one per text: neighbours often differ little."""
    peaks = [(float(one.max()), text, int(one.argmax())) for text, one in enumerate(series) if len(one)]
    return sorted(peaks, key=lambda peak: -peak[0])[:count]


def _show_span(shown: ShownText, span: str, data: str | None, progress: ProgressCallback) -> View:
    is_decoder, (start, end) = locate_span(shown, span)
    layers = [layer for layer in shown.layers if shown.subject.is_in_decoder(layer.path) == is_decoder]
    arrays = {layer.label: shown.arrays[layer.label] for layer in layers}
    found, tokens = find_span_units(arrays, start, end), list(shown.text.get_tokens(is_decoder))
    sample, _ = shown.read_sample(data, progress)
    rest = report_part(progress, READING_SHARE, 1.0)
    similar: list[SimilarSpan] = []
    used = [layer for layer in layers if layer.label in found.layers]
    for index, values in sample.iterate(used, rest) if used else ():
        is_shown = index == 0 if sample is shown.sample else list(sample.texts[index].get_tokens(is_decoder)) == tokens
        if not is_shown:
            columns = [values[label][:, unit] for label, unit in zip(found.layers, found.units)]
            similar += find_active_runs(np.stack(columns, axis=1) > found.thresholds, index)
    similar = rank_spans(similar, end - start)
    numbers = {"start": start, "end": end, **asdict(found), "similar": [asdict(one) for one in similar]}
    words = ("" if is_unspaced(tokens) else " ").join(tokens[start:end]).split()
    title = f"Units active in “{' '.join(words)}”, {shown.subject.name}"
    figures = draw_span(found, similar, arrays, tokens, (start, end), sample, is_decoder)
    return View("units", title, describe_span(found, similar, sample), figures, numbers)


def locate_span(shown: ShownText, span: str) -> tuple[bool, tuple[int, int]]:
    """Returns whether the span is in what the decoder reads, and its first token and one past its last."""
    for is_decoder in sorted({shown.subject.is_in_decoder(layer.path) for layer in shown.layers}):
        found = find_span(shown.text.get_tokens(is_decoder), str(span))
        if found is not None:
            return is_decoder, found
    tokens = " ".join(f"{position}:{token}" for position, token in enumerate(shown.text.tokens[:40]))
    raise UsageError(
        f"the span {span!r} is not in the text.", fix=f"Pass a part of it, or START:END in tokens: {tokens} …"
    )
