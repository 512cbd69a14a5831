"""Figures of the view `attention`: grids of heads, one head, one query, one weight, and the regions of an image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from seqwise.heads.label import AttentionPooling
from seqwise.lens.attention_layers import LayerWeights, get_image_side, name_head
from seqwise.lens.heads import MAX_THUMBNAIL, reduce_names, reduce_weights
from seqwise.lens.scores import QueryKeyPair
from seqwise.lens.subject import Subject
from seqwise.page.figures import BarChart, Figure, Heatmap, HeatmapGrid, ImageOverlay, Table

MAX_CELLS = 256  # rows and columns of the figure of one head
MAX_KEYS = 12  # of one query that are listed
MAX_WORDS = 24  # of a caption that are shown over the image
MAX_DIMENSIONS = 64  # of the vectors of a query and a key

Axes = tuple[list[str], list[str]]  # names of the queries and of the keys


def draw_grids(measured: Sequence[LayerWeights], names: Sequence[Axes]) -> list[Figure]:
    """Returns a grid of all heads for each kind of attention: one row per layer."""
    groups: dict[tuple[str, tuple[int, int]], list[tuple[LayerWeights, Axes]]] = {}
    for layer_weights, axes in zip(measured, names):
        groups.setdefault((name_group(layer_weights), layer_weights.shape), []).append((layer_weights, axes))
    figures: list[Figure] = []
    for (title, _), members in groups.items():
        panels = [draw_matrix(layer_weights, index, axes, layer_weights.thumbnails[index], MAX_THUMBNAIL)
                  for layer_weights, axes in members for index in range(len(layer_weights.heads))]  # fmt: skip
        if len(panels) == 1:
            figures += panels
        else:
            num_columns = max(len(layer_weights.heads) for layer_weights, _ in members)
            figures.append(HeatmapGrid(title=title, panels=panels, num_columns=num_columns))
    return figures


def name_group(layer_weights: LayerWeights) -> str:
    """Returns the title of the grid to which a layer belongs."""
    side = layer_weights.layer.name.side
    if isinstance(layer_weights.layer.module, AttentionPooling):
        return "Attention pooling"
    if not layer_weights.is_self:
        return "Attention to the input"
    return f"Self-attention of the {side}" if side in ("encoder", "decoder") else "Self-attention"


def draw_head(layer_weights: LayerWeights, head: int, axes: Axes) -> Heatmap:
    """Returns one head in full, or as means of areas if the text is long."""
    assert layer_weights.full is not None
    return draw_matrix(layer_weights, head, axes, reduce_weights(layer_weights.full, MAX_CELLS), MAX_CELLS)


def draw_matrix(layer_weights: LayerWeights, head: int, axes: Axes, weights: Tensor, max_size: int) -> Heatmap:
    """Returns the weights of a head, of which `weights` may be a reduction to `max_size` rows and columns."""
    is_reduced = max(layer_weights.shape) > max_size
    return Heatmap(
        title=name_head(layer_weights, head),
        note="Each cell is the mean weight of several queries and keys." if is_reduced else "",
        values=weights.numpy(),
        rows=reduce_names(axes[0], max_size),
        columns=reduce_names(axes[1], max_size),
        row_label="query" if layer_weights.is_self else "step",
        column_label="key" if layer_weights.is_self else "input",
        value_label="mean attention weight" if is_reduced else "attention weight",
        low=0.0,
        high=None if is_reduced or weights.shape[0] == 1 else 1.0,  # of a single query, such as pooling, by its largest
    )


def draw_table(measured: Sequence[LayerWeights]) -> Table:
    """Returns the numbers of all heads."""
    rows = [
        (layer_weights.layer.label, index + 1, head.role, head.entropy, head.entropy_share,
         *(hide_nan(value) for value in (head.distance, head.previous, head.first, head.same, head.positional)))
        for layer_weights in measured for index, head in enumerate(layer_weights.heads)
    ]  # fmt: skip
    columns = ("layer", "head", "role", "entropy", "share", "distance", "previous", "first", "same", "offset")
    return Table(
        title="Numbers of each head",
        note="entropy: nats, mean over queries; share: of the entropy of equal weights; distance: tokens between query "
        "and key; previous, first, same: weight on that token; offset: share of the weight that it predicts.",
        columns=columns,
        rows=rows,
    )


def hide_nan(value: float) -> float | None:
    """Returns None instead of NaN."""
    return None if np.isnan(value) else value


def draw_overlay(subject: Subject, measured: Sequence[LayerWeights]) -> list[Figure]:
    """Returns the regions of an image that each word attends to, in the last layer that attends to the image."""
    image = None if subject.inspected is None else subject.inspected.image
    layers = [
        layer_weights
        for layer_weights in measured
        if layer_weights.mean is not None and get_image_side(layer_weights.shape[1])
    ]
    if image is None or subject.inspected is None or not layers or layers[-1].mean is None:
        return []
    side, mean = get_image_side(layers[-1].shape[1]), layers[-1].mean[:MAX_WORDS]
    words = list(subject.inspected.targets or subject.outputs)
    captions = words if len(words) == layers[-1].shape[0] else list(map(str, range(layers[-1].shape[0])))
    heads = len(layers[-1].heads)
    return [
        ImageOverlay(
            title=f"Regions that each word attends to, {layers[-1].layer.label}",
            note=f"Mean of {heads} heads." if heads > 1 else "",
            image=image,
            weights=mean.unflatten(1, (side, side)).numpy(),
            captions=captions[:MAX_WORDS],
            value_label="attention weight",
        )
    ]


def draw_query(weights: np.ndarray, axes: Axes, query: int) -> BarChart:
    """Returns the keys with the largest weights for one query."""
    order = np.argsort(-weights, kind="stable")[:MAX_KEYS]
    return BarChart(
        title=f"Keys with the largest weights for the query {axes[0][query]!r} [{query}]",
        note="Positions in brackets are counted from 0.",
        names=[f"{axes[1][key]} [{key}]" for key in order],
        values=weights[order],
        value_label="attention weight",
    )


def draw_pair(pair: QueryKeyPair, axes: Axes) -> list[Figure]:
    """Returns the steps from a query and a key to a weight, the other keys of the query, and the vectors compared."""
    return [draw_steps(pair, axes), draw_keys(pair, axes), draw_vectors(pair, axes)]


def draw_steps(pair: QueryKeyPair, axes: Axes) -> Table:
    """Returns the steps from a query and a key to a weight."""
    allowed, score = pair.is_allowed, pair.scores[pair.key]
    largest = pair.scores[allowed].max() if allowed.any() else 0.0
    is_allowed = bool(allowed[pair.key])
    rows: list[tuple[str, str, str | float]] = [("product", f"{pair.equation}", float(pair.terms.sum()))]
    if pair.scale != 1:
        rows.append(("score", f"{pair.equation} / √K, K = {len(pair.terms)}", float(score)))
    rows += [
        ("mask", "may the query attend to this key?", "yes" if is_allowed else "no"),
        ("exponential", "exp(score − largest score)", float(np.exp(score - largest)) if is_allowed else 0.0),
        ("sum", f"over the {allowed.sum()} keys allowed", float(np.exp(pair.scores[allowed] - largest).sum())),
        ("weight", "exponential / sum", float(pair.weights[pair.key])),
        ("recorded", "the weight that the model computed", float(pair.recorded[pair.key])),
    ]
    title = f"From the query {axes[0][pair.query]!r} and the key {axes[1][pair.key]!r} to the weight"
    return Table(title=title, columns=("step", "equation", "value"), rows=rows)


def draw_keys(pair: QueryKeyPair, axes: Axes) -> Table:
    """Returns scores and weights of the keys that compete with the chosen one."""
    order = list(np.argsort(-pair.weights, kind="stable")[:MAX_KEYS])
    if pair.key not in order:
        order[-1] = pair.key
    rows = [
        (axes[1][key], int(key), float(pair.scores[key] / pair.scale), float(pair.scores[key]),
         "yes" if pair.is_allowed[key] else "no", float(pair.weights[key]))
        for key in order
    ]  # fmt: skip
    columns = ("key", "position", pair.equation, "score", "allowed", "weight")
    return Table(title=f"Keys of the query {axes[0][pair.query]!r} by weight", columns=columns, rows=rows)


def draw_vectors(pair: QueryKeyPair, axes: Axes) -> Heatmap:
    """Returns the two vectors and the terms of their product; of wide vectors the largest terms."""
    order = np.sort(np.argsort(-np.abs(pair.terms), kind="stable")[:MAX_DIMENSIONS])
    note = f"The {len(order)} largest of {len(pair.terms)} terms." if len(order) < len(pair.terms) else ""
    return Heatmap(
        title=f"Terms of {pair.equation} for {axes[0][pair.query]!r} and {axes[1][pair.key]!r}",
        note=note,
        values=np.stack([*(vector[order] for vector in pair.operands.values()), pair.terms[order]]),
        rows=[*pair.operands, "term of the sum"],
        columns=[str(dimension) for dimension in order],
        row_label="vector",
        column_label="dimension",
        value_label="value",
        scale="diverging",
    )
