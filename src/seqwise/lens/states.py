"""`states`: hidden states of one or many texts as a map, by PCA or t-SNE.

A point is the state at one token; of a classifier's validation examples, the pooled state of one text. Projections are
those of the maps of words, in `seqwise.vectors.map.projection`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress, report_part
from seqwise.errors import UsageError
from seqwise.heads.label import LabelHead
from seqwise.layers.diagnostics import LayerName
from seqwise.lens.activations import (
    ActivationLayer,
    choose_activations,
    list_activations,
    name_layers,
    select_directions,
)
from seqwise.lens.sample import READING_SHARE, Sample, SampleText, build_tensor_sample, build_text, read_sample
from seqwise.lens.states_figures import OTHER, draw_states
from seqwise.lens.subject import Subject, build_subject, inspect_text, open_subject
from seqwise.lens.token_features import strip_tag
from seqwise.lens.view import View
from seqwise.training.api import TrainedModel
from seqwise.vectors.map.projection import PERPLEXITY, TSNE_MAX_WORDS, compute_principal_axes, run_tsne

Colour = Literal["token", "label", "time"]
Method = Literal["pca", "tsne"]

MAX_POINTS, MAX_TEXTS = 1000, 64  # of validation texts; a map of more is hard to read
NUM_TEXTS, MAX_CLASSIFIED_TOKENS = 500, 100_000  # of a classifier, one point per text
NUM_AXES = 20  # whose explained variance is shown
NUM_NEIGHBOURS = 10
CHUNK_ROWS = 512  # states whose distances to all others are in memory together
MAX_GROUPS = 7  # colours that can be told apart; the rest is "other"


@dataclass(frozen=True)
class StatePoints:
    """States (N, U) with what is known of each: `tokens`, `labels` (empty if unknown), `times` and texts."""

    states: np.ndarray
    tokens: list[str]
    labels: list[str]
    times: np.ndarray
    texts: list[int]
    layer: str
    is_pooled: bool = False  # one point per text


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    return None if list_activations(subject) else f"{subject.name} has no layer with states."


def states(
    model: Any,
    texts: Any = None,
    *,
    layer: int | str | None = None,
    method: Method = "pca",
    colour: Colour | None = None,
    data: str | None = None,
    progress: ProgressCallback = no_progress,
) -> View:
    """Returns a map of the hidden states of a layer: of the last one, unless `layer` is set.

    model: a trained run; or a module with tensors (B, T, …) instead of texts
    texts: a text or several; without, validation texts, of a classifier with one point per text (the pooled state)
    colour: "label" (tags of a tagger, labels of a classifier), "token" or "time" (the position in the text); by default
        labels if they are known, the time in a single text or where tokens hardly repeat, otherwise tokens
    data: other data than that of the run; its validation split is used

    `data`: `points` (N, 2), `states` (N, units), `tokens`, `labels`, `times`, `texts` (index of each point's text),
    `explained_variance` (share of each principal component, at most 20), `dimension` ((Σλ)² / Σλ² of all components),
    `neighbours` (the mean share of a point's 10 nearest states that have its colour, and the share expected by chance)
    and, of t-SNE, `divergence`; `layer`, its label.
    """
    if method not in ("pca", "tsne"):
        raise UsageError(f"there is no method {method!r}.", fix="Choose pca or tsne.")
    reading = progress if method == "pca" else report_part(progress, 0.0, 0.5)
    sample = _open_sample(model, texts, data, report_part(reading, 0.0, READING_SHARE))
    points = _read_points(sample, layer, texts is None, report_part(reading, READING_SHARE, 1.0))
    if len(points.states) < 3:
        raise UsageError(f"a map needs at least 3 states; received {len(points.states)}.", fix="Pass a longer text.")
    chosen_colour = choose_colour(points, colour)
    axes, shares = compute_principal_axes(points.states, NUM_AXES)
    plane, divergence = axes[:, :2], None
    if method == "tsne":
        plane, divergence = project_by_tsne(points.states, plane, report_part(progress, 0.5, 1.0))
    groups = group_points(points, chosen_colour)
    numbers: dict[str, Any] = {
        "points": plane,
        "states": points.states,
        "tokens": points.tokens,
        "labels": points.labels,
        "times": points.times,
        "texts": points.texts,
        "layer": points.layer,
        "explained_variance": shares[: min(points.states.shape)],
        "dimension": compute_dimension(points.states),
    }
    if divergence is not None:
        numbers["divergence"] = divergence
    if groups:
        numbers["neighbours"] = compare_neighbours(points.states, getattr(points, f"{chosen_colour}s"))
    summary, figures = draw_states(numbers, groups, chosen_colour, method, points.is_pooled)
    return View("states", f"Map of {points.layer}, {sample.subject.name}", summary, figures, numbers)


def is_several(texts: Any) -> bool:
    """Returns whether several texts were passed; a tuple of tensors is one input of a module."""
    return isinstance(texts, Sequence) and not isinstance(texts, str) and all(isinstance(each, str) for each in texts)


# Reading states


def _open_sample(model: Any, texts: Any, data: str | None, progress: ProgressCallback) -> Sample:
    """Returns the texts whose states are shown."""
    if not isinstance(model, TrainedModel):
        return build_tensor_sample(open_subject(model, texts), texts)
    if texts is None:
        if model.settings.task == "classify":
            return read_sample(model, data, NUM_TEXTS, MAX_CLASSIFIED_TOKENS, progress)
        return read_sample(model, data, MAX_TEXTS, MAX_POINTS, progress)
    if data is not None:
        raise UsageError("expected texts or data, received both.", fix="Leave one of them out.")
    inputs = texts if is_several(texts) else [texts]
    if not inputs:
        raise UsageError("there is no text.", fix="Pass a text, or none: then validation texts are shown.")
    inspected = [inspect_text(model, text) for text in inputs]
    return Sample(build_subject(model, inspected[0]), [build_text(model, each) for each in inspected], True)


def _read_points(
    sample: Sample, layer: int | str | None, is_validation: bool, progress: ProgressCallback
) -> StatePoints:
    subject = sample.subject
    layers = list_activations(subject)
    if not layers:
        raise UsageError(f"{subject.name} has no layer with states.", fix="Choose a run of a neural network.")
    if is_validation and subject.trained is not None and subject.trained.settings.task == "classify":
        return _collect_pooled(sample, layers, layer, progress)
    return _collect_tokens(sample, choose_layer(sample.keep_matching(layers), layer), progress)


def choose_layer(layers: Sequence[ActivationLayer], layer: int | str | None) -> list[ActivationLayer]:
    """Returns the states or outputs of the layer asked for, or of the last; both directions of a bidirectional one."""
    chosen = choose_activations(layers, layer)
    states = [one for one in chosen if one.name.kind in ("state", "output")] or chosen
    last = states[-1]
    if layer is not None and str(layer) in (last.label, last.path):
        return [last]
    return select_directions(states, last)


def _collect_tokens(sample: Sample, layers: Sequence[ActivationLayer], progress: ProgressCallback) -> StatePoints:
    """Returns the state at each token of a sample; those of both directions are concatenated."""
    is_decoder = sample.subject.is_in_decoder(layers[0].path)
    arrays, tokens, labels, times, texts = [], [], [], [], []
    for index, values in sample.iterate(layers, progress):
        text = sample.texts[index]
        array = np.concatenate([values[one.label] for one in layers], axis=1)
        arrays.append(array)
        tokens += list(text.get_tokens(is_decoder))
        labels += name_labels(text, len(array), is_decoder)
        times.append(np.arange(len(array)))
        texts += [index] * len(array)
    return StatePoints(np.concatenate(arrays), tokens, labels, np.concatenate(times), texts, name_layers(layers))


def name_labels(text: SampleText, length: int, is_decoder: bool) -> list[str]:
    """Returns the tag of each token, or the label of the text; empty if neither is known."""
    if text.label is not None:
        return [text.label] * length
    is_tagged = any(name.startswith("tag ") for name in text.features) and text.inspected is not None
    return [strip_tag(tag) for tag in text.inspected.targets] if is_tagged and not is_decoder else []  # type: ignore[union-attr]


def _collect_pooled(
    sample: Sample, layers: Sequence[ActivationLayer], layer: int | str | None, progress: ProgressCallback
) -> StatePoints:
    """Returns one state per text: what the label head pools, or the final state of a chosen layer."""
    pooled = [
        ActivationLayer(LayerName("label head", kind="pooled"), path, module, "pooled")
        for path, module in sample.subject.module.named_modules()
        if isinstance(module, LabelHead)
    ]
    if layer is None and pooled:
        layers, name = pooled[:1], "pooled states"
    else:
        layers = choose_layer(sample.keep_matching(layers), layer)
        name = f"{name_layers(layers)}, final"
    rows, tokens = [], []
    for index, values in sample.iterate(layers, progress):
        finals = [_get_final(values[one.label], one) for one in layers]
        rows.append(np.concatenate(finals))
        text = sample.texts[index].inspected
        assert text is not None
        tokens.append(" ".join(text.text.split())[:80])
    labels = [text.label or "" for text in sample.texts]
    lengths = np.array([len(text.tokens) for text in sample.texts])
    return StatePoints(np.stack(rows), tokens, labels, lengths, list(range(len(rows))), name, is_pooled=True)


def _get_final(values: np.ndarray, layer: ActivationLayer) -> np.ndarray:
    """Returns a pooled vector (U,) as it is, and of states (T, U) the one after the last token read."""
    if values.ndim == 1:
        return values
    return values[0] if layer.is_backward else values[-1]


# Projections and numbers


def project_by_tsne(
    vectors: np.ndarray, initial_points: np.ndarray, progress: ProgressCallback
) -> tuple[np.ndarray, float]:
    """Returns points (N, 2) and their divergence; the longer side of the map is horizontal."""
    count = len(vectors)
    if count > TSNE_MAX_WORDS:
        problem = f"t-SNE compares all pairs, and is limited to {TSNE_MAX_WORDS:,} states; received {count:,}."
        raise UsageError(problem, fix="Pass fewer or shorter texts, or project them by PCA.")
    scaled = (vectors - vectors.mean(0)) / max(float(vectors.std()), 1e-12)
    perplexity = max(1.0, min(PERPLEXITY, (count - 1) / 3))
    points, divergence = run_tsne(scaled, initial_points, perplexity, progress=progress)
    return compute_principal_axes(points)[0], divergence


def choose_colour(points: StatePoints, colour: Colour | None) -> Colour:
    """Returns what the colours show; raises an error for labels that are not known."""
    has_labels = len(points.labels) == len(points.states) and any(points.labels)
    if colour is None:
        has_repeats = 2 * len(set(points.tokens)) <= len(points.tokens)  # the times of a series are all different
        return "label" if has_labels else "token" if has_repeats and len(set(points.texts)) > 1 else "time"
    if colour not in ("token", "label", "time"):
        raise UsageError(f"there is no colour {colour!r}.", fix="Choose token, label or time.")
    if colour == "label" and not has_labels:
        raise UsageError("the states have no labels.", fix="Choose token or time; taggers and classifiers have labels.")
    return colour


def group_points(points: StatePoints, colour: Colour) -> list[str]:
    """Returns the group of each point, the most frequent ones by name; none if colours show the time."""
    if colour == "time":
        return []
    names = points.labels if colour == "label" else points.tokens
    frequent = [name for name, _ in Counter(names).most_common(MAX_GROUPS + 1)]
    shown = frequent if len(set(names)) <= MAX_GROUPS + 1 else frequent[:MAX_GROUPS]
    return [name if name in shown else OTHER for name in names]


def compute_dimension(vectors: np.ndarray) -> float:
    """Returns the participation ratio (Σλ)² / Σλ² of the principal components: how many of them are used."""
    centred = np.asarray(vectors, np.float64) - vectors.mean(axis=0)
    variances = np.linalg.svd(centred, compute_uv=False) ** 2
    return float(variances.sum() ** 2 / max(np.square(variances).sum(), 1e-300))


def compare_neighbours(vectors: np.ndarray, names: Sequence[str]) -> tuple[float, float]:
    """Returns the mean share of the nearest vectors that have the name of a point, and that of random points."""
    count = min(NUM_NEIGHBOURS, len(vectors) - 1)
    centred = np.asarray(vectors - vectors.mean(axis=0), np.float64)
    squares = np.square(centred).sum(axis=1)
    _, codes, sizes = np.unique(np.array(names, dtype=object).astype(str), return_inverse=True, return_counts=True)
    num_same = 0
    for start in range(0, len(centred), CHUNK_ROWS):
        rows = np.arange(start, min(start + CHUNK_ROWS, len(centred)))
        distances = squares - 2 * centred[rows] @ centred.T  # less the square of the row itself: the order is the same
        distances[rows - start, rows] = np.inf
        nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
        num_same += int((codes[nearest] == codes[rows, None]).sum())
    same = num_same / (len(centred) * count)
    return same, float((sizes * (sizes - 1)).sum() / (len(vectors) * (len(vectors) - 1)))
