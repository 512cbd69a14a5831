"""The sentences and figures of the view `neighbours`, from its `data`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqwise.lens.embeddings import Vocabulary
from seqwise.page.figures import Figure, Heatmap, ScatterPlot, Table
from seqwise.page.labels import show_name
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.map.projection import compute_principal_axes
from seqwise.vectors.map.word_map import choose_neighbourhood

CHANCE_MARK = " (chance)"  # after the cosine of a neighbour that random vectors would have too
MAX_MAP_NEIGHBOURS = 30  # of each word on a map
NUM_NAMED = 3  # words, and neighbours of each, that the summary names
MAX_MAPPED = 10  # words on a map


def describe_neighbours(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns sentences: the nearest words, what random words have, and what input and output share."""
    summary = []
    for label, kinds in data["vocabularies"].items():
        suffix = "" if label == "vocabulary" else f" ({label})"
        for token in data["words"][label][:NUM_NAMED]:
            found = kinds["input"][token]
            names = ", ".join(
                f"{show_name(word).strip('␣')} {cosine:.2f}{mark_chance(cosine, found['limit'])}"
                for word, cosine in list(zip(found["words"], found["cosines"]))[:NUM_NAMED]
            )
            summary.append(f"Nearest to {show_name(token).strip('␣')!r}{suffix}: {names}.")
        random = data["random"][label]["input"]
        summary.append(
            f"Two random frequent words{suffix} have a cosine of {random['mean']:.2f} ± {random['deviation']:.2f}; "
            f"1 % of the pairs exceed {random['percentile_99']:.2f}."
        )
        num_words = max((len(found["words"]) for found in kinds["input"].values()), default=data["top"])
        if num_words < data["top"]:
            summary.append(
                f"The vocabulary{suffix} has {num_words:,} other words, fewer than {data['top']:,}: all are listed."
            )
        if data["shared"].get(label):
            share = np.mean(list(data["shared"][label].values()))
            summary.append(f"Input and output embedding{suffix} have {share:.0%} of these neighbours in common.")
    if data["unknown"]:
        summary.append(f"Not in the vocabulary: {', '.join(data['unknown'])}.")
    if data["is_chosen"]:
        summary.append("No words were given: these are frequent words whose neighbours are closest.")
    return tuple(summary)


def mark_chance(cosine: float, limit: float) -> str:
    """Returns the mark of a cosine that is not larger than expected by chance."""
    return CHANCE_MARK if cosine <= limit else ""


def draw_neighbours(vocabularies: Sequence[Vocabulary], data: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Returns a table for each word, and for each vocabulary the cosines between the words and a map."""
    figures: list[Figure] = []
    for vocabulary in vocabularies:
        label = vocabulary.name or "vocabulary"
        tokens, kinds = data["words"][label], data["vocabularies"][label]
        suffix = "" if label == "vocabulary" else f", {label}"
        figures += [draw_table(token, kinds, suffix) for token in tokens]
        if len(tokens) > 1:
            figures += [draw_cosines(kind, vectors, tokens, suffix) for kind, vectors in vocabulary.embeddings.items()]
        if tokens:
            figures.append(draw_map(vocabulary.embeddings["input"], kinds["input"], tokens[:MAX_MAPPED], suffix))
    return tuple(figures)


def draw_table(token: str, kinds: Mapping[str, Any], suffix: str) -> Table:
    """Returns the neighbours of a word, in both embeddings side by side."""
    names = {"input": "nearest as input", "output": "nearest as output"} if len(kinds) > 1 else {"input": "nearest"}
    columns = ["rank", *(title for kind in kinds for title in (names[kind], "cosine"))]
    count = max(len(found[token]["words"]) for found in kinds.values())
    rows: list[list[Any]] = [
        [
            rank + 1,
            *(
                value
                for found in kinds.values()
                for value in (show_name(found[token]["words"][rank]), format_cosine(found[token], rank))
            ),
        ]
        for rank in range(count)
    ]
    limits = " and ".join(f"{found[token]['limit']:.3f}" for found in kinds.values())
    note = (
        f"{CHANCE_MARK.strip()}: may be chance: not above {limits}, which the nearest of as many random words exceeds "
        "in 5 % of cases."
    )
    is_marked = any(str(value).endswith(CHANCE_MARK) for row in rows for value in row)
    return Table(
        title=f"Nearest to {show_name(token)}{suffix}", note=note if is_marked else "", columns=columns, rows=rows
    )


def format_cosine(found: Mapping[str, Any], rank: int) -> str:
    """Returns the cosine of a neighbour, marked if it is not larger than expected by chance."""
    return f"{found['cosines'][rank]:.3f}{mark_chance(found['cosines'][rank], found['limit'])}"


def draw_cosines(kind: str, vectors: KeyedVectors, tokens: Sequence[str], suffix: str) -> Heatmap:
    """Returns the cosine of each two words."""
    units = np.stack([vectors[token] / vectors.norms[vectors.index(token)] for token in tokens])
    names = [show_name(token) for token in tokens]
    return Heatmap(
        title=f"Cosine of the words, {kind} embedding{suffix}",
        values=units @ units.T,
        rows=names,
        columns=names,
        row_label="word",
        column_label="word",
        value_label="cosine",
        scale="diverging",
        low=-1.0,
        high=1.0,
    )


def draw_map(vectors: KeyedVectors, nearest: Mapping[str, Any], tokens: Sequence[str], suffix: str) -> ScatterPlot:
    """Returns words and their neighbours on the first two principal axes of their unit vectors."""
    count = min(MAX_MAP_NEIGHBOURS, max(len(nearest[token]["words"]) for token in tokens))
    words = choose_neighbourhood(vectors, tokens, count)
    units = np.stack([vectors[word] / vectors.norms[vectors.index(word)] for word in words])
    points, shares = compute_principal_axes(units)
    groups = {word: token for token in reversed(tokens) for word in nearest[token]["words"][:count]}
    groups |= {token: token for token in tokens}
    return ScatterPlot(
        title=f"The words and their neighbours, input embedding{suffix}",
        x=points[:, 0],
        y=points[:, 1],
        names=[show_name(word) for word in words],
        x_label=f"first principal axis of the unit vectors ({shares[0]:.0%} of the variance)",
        y_label=f"second axis ({shares[1]:.0%})",
        groups=[show_name(groups[word]) for word in words],
        is_labelled=True,
    )
