"""`attention`: where each head of each layer looks, what its role is, and how one weight comes about.

It shows every layer that records attention weights: self-attention of Transformers, causal or not, attention of a
decoder to its input (Transformer, Luong et al. 2015, Bahdanau et al. 2015), attention over past states of an
attentive RNN, attention pooling, and of captions the regions of the image for each word. Numbers and roles are defined
in `lens/heads.py`, the computation of a single weight in `lens/scores.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.errors import UsageError, capitalize, pluralize
from seqwise.heads.label import AttentionPooling
from seqwise.lens.attention_figures import draw_grids, draw_head, draw_overlay, draw_pair, draw_query, draw_table
from seqwise.lens.attention_layers import (
    AttentionLayer,
    LayerWeights,
    choose_attention,
    list_attention,
    measure_layers,
    name_head,
)
from seqwise.lens.scores import QueryKeyPair, compute_pair
from seqwise.lens.subject import Subject, open_subject
from seqwise.lens.view import View
from seqwise.page.figures import Figure
from seqwise.tasks.inspection import UNKNOWN_MARK


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    return None if list_attention(subject) else f"{subject.name} has no attention."


def attention(
    model: Any,
    text: Any = None,
    *,
    layer: int | str | None = None,
    head: int | None = None,
    query: int | str | None = None,
    key: int | str | None = None,
    target: str | None = None,
    progress: ProgressCallback = no_progress,
) -> View:
    """Returns the attention weights of all layers and heads, of one layer, of one head, or of one query and key.

    layer: number from 1 or name; label, such as "decoder, layer 2, cross", or dotted path of one attention module
    head: number from 1
    query, key: position from 0, or the token if it occurs once; with both, the weight is computed step by step
    target: the language of a translator that has several; the first unless set

    `data["layers"]` maps the label of each layer to a dictionary: `path`; the names of `queries` and `keys`; per head
    `entropy` (nats), `entropy_share` (of the largest possible entropy), `distance` (tokens), `role`, the mean weights
    on the `previous`, the `first` and the `same` token, and `positional`, the share of the weight that the offset
    between query and key predicts (see `lens.heads.measure_head`); `strongest` (heads, queries): the key with the
    largest weight; and `thumbnails` (heads, queries, keys): the weights, as means of areas if there are more than 64
    queries or keys. With a head also `data["weights"]` (queries, keys), and with a query and a key `data["cell"]` (see
    `lens.scores.QueryKeyPair`).
    """
    subject = open_subject(model, text, progress, target)
    layers = choose_attention(subject, layer)
    index = None if head is None and query is None and key is None else choose_head(layers, head)
    if key is not None and query is None:
        raise UsageError("a key is compared with a query; received none.", fix="Choose a query too, such as query=0.")
    measured = measure_layers(subject, layers, index)
    if not measured:
        raise UsageError(f"no attention layer of {subject.name} ran for this input.")
    names = [name_axes(subject, layer_weights) for layer_weights in measured]
    numbers = {
        layer_weights.layer.label: collect_numbers(layer_weights, *axes) for layer_weights, axes in zip(measured, names)
    }
    title = f"Attention of {subject.name}"
    if index is not None:
        return show_head(subject, title, measured[0], index, names[0], {"layers": numbers}, query, key)
    figures = (*draw_grids(measured, names), *draw_overlay(subject, measured), draw_table(measured))
    return View("attention", title, describe_heads(subject, measured), figures, {"layers": numbers})


def show_head(
    subject: Subject,
    title: str,
    layer_weights: LayerWeights,
    head: int,
    axes: tuple[list[str], list[str]],
    data: dict[str, Any],
    query: int | str | None,
    key: int | str | None,
) -> View:
    """Returns one head, with a query also its largest weights, and with a key the computation of that weight."""
    assert layer_weights.full is not None
    data["weights"] = layer_weights.full.numpy()
    summary, figures = [describe_head(layer_weights, head)], [draw_head(layer_weights, head, axes)]
    chosen: list[Figure] = []
    if query is not None:
        row = find_token(query, axes[0], "query")
        if key is not None:
            pair = compute_pair(subject, layer_weights.layer, head, row, find_token(key, axes[1], "key"))
            data["cell"] = pair.to_dict()
            summary.insert(0, describe_pair(pair, axes))
            chosen += draw_pair(pair, axes)
        chosen.append(draw_query(data["weights"][row], axes, row))
    return View("attention", f"{title}: {name_head(layer_weights, head)}", tuple(summary), (*chosen, *figures), data)


def choose_head(layers: Sequence[AttentionLayer], head: int | None) -> int:
    """Returns the index of a head, given its number from 1, which only a layer with a single head does not need."""
    if len(layers) > 1:
        problem = "the layer is missing: each layer has its own heads, queries and keys."
        if len({layer.layer_path for layer in layers}) == 1:
            problem = f"{layers[0].layer_name} has {len(layers)} attention modules: each has its own heads."
        raise UsageError(problem, fix=f"Choose a layer: {'; '.join(repr(layer.label) for layer in layers)}.")
    if head is None and getattr(layers[0].module, "heads", 1) > 1:
        problem = "the head is missing: each head has its own weights for a query and key."
        raise UsageError(problem, fix="Choose a head, such as head=1.")
    return 0 if head is None else int(head) - 1


# Names


def name_axes(subject: Subject, layer_weights: LayerWeights) -> tuple[list[str], list[str]]:
    """Returns the names of the queries and of the keys of a layer; in cross-attention the queries are targets."""
    num_queries, num_keys = layer_weights.shape
    path = layer_weights.layer.path
    if layer_weights.is_self:
        names = subject.name_positions(path, num_keys)
        return names[num_keys - num_queries :], names
    targets = list(subject.inspected.targets) if subject.inspected is not None else []
    queries = targets if len(targets) == num_queries else subject.name_positions(path, num_queries)
    if isinstance(layer_weights.layer.module, AttentionPooling):
        queries = ["learned query"]
    return queries, subject.name_positions("", num_keys)


def find_token(token: int | str, names: Sequence[str], axis: str) -> int:
    """Returns the position of a token, given as a position from 0 or as a text that occurs once."""
    positions = [position for position, name in enumerate(names) if token in (name, name.removesuffix(UNKNOWN_MARK))]
    if len(positions) == 1:
        return positions[0]
    if positions:
        where = ", ".join(map(str, positions[:8]))
        raise UsageError(f"the {axis} {token!r} occurs {len(positions)} times.", fix=f"Pass its position: {where}.")
    if isinstance(token, int) or token.isdecimal():
        if 0 <= int(token) < len(names):
            return int(token)
        raise UsageError(f"there is no {axis} at position {token}.", fix=f"Choose from 0 to {len(names) - 1}.")
    shown = " ".join(names[:20]) + (" …" if len(names) > 20 else "")
    raise UsageError(f"there is no {axis} {token!r}.", fix=f"Choose one of: {shown}")


# Numbers


def collect_numbers(layer_weights: LayerWeights, queries: list[str], keys: list[str]) -> dict[str, Any]:
    """Returns the numbers of a layer, with one entry per head."""
    numbers = ("entropy", "entropy_share", "distance", "previous", "first", "same", "positional")
    return {
        "path": layer_weights.layer.path,
        "queries": queries,
        "keys": keys,
        **{name: np.array([getattr(head, name) for head in layer_weights.heads]) for name in numbers},
        "role": [head.role for head in layer_weights.heads],
        "strongest": layer_weights.strongest.numpy(),
        "thumbnails": layer_weights.thumbnails.numpy(),
    }


# Sentences


def describe_heads(subject: Subject, measured: Sequence[LayerWeights]) -> tuple[str, ...]:
    """Returns sentences about all heads: how many there are, their roles, the narrowest and the broadest."""
    heads = [
        (name_head(layer_weights, index), head)
        for layer_weights in measured
        for index, head in enumerate(layer_weights.heads)
    ]
    largest = max(max(layer_weights.shape) for layer_weights in measured)
    num_layers = len({layer_weights.layer.layer_path for layer_weights in measured})
    sentences = [
        f"{subject.name} has {pluralize(len(heads), 'attention heads')} in {pluralize(num_layers, 'layers')}, here "
        f"over up to {largest:,} positions."
    ]
    roles = Counter(head.role for _, head in heads if head.role)
    if roles:
        parts = []
        for role, number in sorted(roles.most_common(), key=lambda item: item[0] == "other"):  # "other" last
            examples = [name for name, head in heads if head.role == role]
            more = ", …" if len(examples) > 2 else ""
            parts.append(f"{role} {number} ({'; '.join(examples[:2])}{more})")
        sentences.append(f"Roles in self-attention: {', '.join(parts)}.")
    if len(heads) > 1:
        low, high = (choose(heads, key=lambda item: item[1].entropy_share) for choose in (min, max))
        sentences.append(
            f"The narrowest is {low[0]} (entropy {low[1].entropy:.2f} nats, {low[1].entropy_share:.0%} of the largest "
            f"possible), the broadest {high[0]} ({high[1].entropy:.2f} nats, {high[1].entropy_share:.0%})."
        )
    for layer_weights in measured:
        if not layer_weights.is_self and layer_weights.shape[0] > 1:
            best = layer_weights.largest.mean(1)
            head_index = int(best.argmax())
            name = capitalize(name_head(layer_weights, head_index))
            sentences.append(f"{name} puts {float(best[head_index]):.0%} of its "
                             "weight on the strongest input position, on average over the steps.")  # fmt: skip
    return tuple(sentences)


def describe_head(layer_weights: LayerWeights, head: int) -> str:
    """Returns a sentence with the numbers of a head."""
    numbers = layer_weights.heads[head]
    parts = [f"entropy {numbers.entropy:.2f} nats, {numbers.entropy_share:.0%} of the largest possible"]
    if layer_weights.is_self:
        parts.append(f"mean distance {numbers.distance:.1f} tokens")
        parts.append(f"weight on the previous token {numbers.previous:.0%}, the first {numbers.first:.0%}, "
                     f"the same {numbers.same:.0%}")  # fmt: skip
        if numbers.role:
            parts.append(f"role: {numbers.role}")
    return f"{capitalize(name_head(layer_weights, head))}: {'; '.join(parts)}."


def describe_pair(pair: QueryKeyPair, axes: tuple[list[str], list[str]]) -> str:
    """Returns a sentence about the weight of one key."""
    query, key = axes[0][pair.query], axes[1][pair.key]
    if not pair.is_allowed[pair.key]:
        return f"The query {query!r} may not attend to {key!r}: the mask sets the weight to 0."
    rank = int((pair.weights > pair.weights[pair.key]).sum()) + 1
    return (
        f"The query {query!r} gives {key!r} the weight {pair.weights[pair.key]:.3f}, rank {rank} of "
        f"{pluralize(int(pair.is_allowed.sum()), 'keys')} that it may attend to; the model computed "
        f"{pair.recorded[pair.key]:.3f}."
    )
