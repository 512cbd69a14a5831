"""Sentences and figures of the view `states`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqwise.errors import pluralize
from seqwise.page.figures import BarChart, Figure, ScatterPlot

MAX_COMPONENTS = 10  # whose variance is drawn
OTHER = "(other)"  # the group of rare tokens or labels
MAX_LABELLED = 150  # points whose names are written beside them


def draw_states(
    data: Mapping[str, Any], groups: Sequence[str], colour: str, method: str, is_pooled: bool
) -> tuple[list[str], list[Figure]]:
    """Returns the sentences and figures of a map of states."""
    return describe_states(data, colour, method, is_pooled), [
        draw_map(data, groups, colour, method, is_pooled),
        draw_variance(data["explained_variance"]),
    ]


def describe_states(data: Mapping[str, Any], colour: str, method: str, is_pooled: bool) -> list[str]:
    """Returns how much of the variance is on the map, and whether near states have the same colour."""
    shares, (count, units) = data["explained_variance"], data["states"].shape
    num_texts = len(set(data["texts"]))
    what = f"{count:,} texts" if is_pooled else f"{count:,} tokens of {pluralize(num_texts, 'texts')}"
    sentences = [
        f"Two principal components of {data['layer']} hold {shares[:2].sum():.0%} of the variance "
        f"({shares[0]:.1%} and {shares[1] if len(shares) > 1 else 0:.1%}); the states of {what} use about "
        f"{data['dimension']:.1f} of {units:,} dimensions (participation ratio)."
    ]
    if "neighbours" in data:
        same, chance = data["neighbours"]
        sentences.append(
            f"Of the 10 nearest states of a point, {same:.0%} have its {colour} ({chance:.0%} expected by chance)."
        )
    if method == "tsne":
        sentences.append(
            f"The map is a t-SNE (KL divergence {data['divergence']:.2f} nats): neighbours are near each other; "
            "distances between groups and their sizes have no meaning."
        )
    return sentences


def draw_map(data: Mapping[str, Any], groups: Sequence[str], colour: str, method: str, is_pooled: bool) -> ScatterPlot:
    """Returns the points, coloured by group or by time."""
    points, shares, tokens = data["points"], data["explained_variance"], data["tokens"]
    order = order_points(groups) if groups else list(range(len(points)))
    second = shares[1] if len(shares) > 1 else 0.0
    is_pca = method == "pca"
    names = tokens if is_pooled else [f"{token} [{time}]" for token, time in zip(tokens, data["times"])]
    is_single = not is_pooled and len(set(data["texts"])) == 1
    time_label = "tokens of the text" if is_pooled else "position in the text (tokens)"
    return ScatterPlot(
        title=f"{'Principal components' if is_pca else 't-SNE'} of {data['layer']}, coloured by "
        f"{time_label if colour == 'time' else colour}",
        x=points[order, 0],
        y=points[order, 1],
        names=[(tokens if is_single else names)[index] for index in order],
        x_label=f"component 1 ({shares[0]:.1%} of the variance)" if is_pca else "t-SNE 1",
        y_label=f"component 2 ({second:.1%} of the variance)" if is_pca else "t-SNE 2",
        groups=[groups[index] for index in order] if groups else (),
        values=None if groups else np.asarray(data["times"], float),
        value_label="" if groups else time_label,
        is_labelled=len(points) <= MAX_LABELLED and not is_pooled,
    )


def order_points(groups: Sequence[str]) -> list[int]:
    """Returns the order in which points are drawn.

    Groups get their colours in the order in which they appear: the most frequent first, and the rest last, which is
    the eighth and grey. The points of the rest are drawn below the others.
    """
    names = [name for name, _ in Counter(groups).most_common() if name != OTHER]
    first = [groups.index(name) for name in (*names, OTHER) if name in groups]
    rest = [index for index, name in enumerate(groups) if name == OTHER and index not in first]
    drawn = {*first, *rest}
    return [*first, *rest, *(index for index in range(len(groups)) if index not in drawn)]


def draw_variance(shares: np.ndarray) -> BarChart:
    """Returns the explained variance of each principal component."""
    shown = shares[:MAX_COMPONENTS]
    return BarChart(
        title="Explained variance of each principal component",
        note=f"Together {shown.sum():.0%} of the variance.",
        names=[f"component {number}" for number in range(1, len(shown) + 1)],
        values=100 * shown,
        value_label="share of the variance (%)",
    )
