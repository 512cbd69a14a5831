"""The sentences and figures of the view `senses`, from its `data`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seqwise.errors import pluralize
from seqwise.page.figures import Figure, Heatmap, HeatmapGrid, LineChart, Series, Table

GRID_COLUMNS = 4
MARGIN = 40  # characters of a long sentence on each side of the word


def describe_senses(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns sentences: first whether the senses are separated and what they are, then the cosines that show it."""
    word, shown = data["word"], data["layer"]
    label = data["layers"][shown]
    summary = []
    if data["is_unknown"]:
        summary.append(f"{word!r} is not in the vocabulary: the model reads the unknown token.")
    if data["choice"] is not None:
        summary.append(describe_choice(word, **data["choice"]))
    is_divided = not data["is_labelled"] and len(data["occurrences"]) > 2
    if is_divided:
        summary.append(describe_division(data, label))
    judged = data["nearest"][shown] >= 0
    if data["is_labelled"] and judged.any():
        right = int((data["nearest"][shown][judged] == data["groups"][judged]).sum())
        summary.append(
            f"In {label}, {right} of {judged.sum()} occurrences are closer to the other sentences of their own sense "
            "than to those of another."
        )
    summary.append(describe_separation(data, label))
    if not np.isnan(data["other_words"][shown]):
        summary.append(
            f"For comparison, two other tokens of these sentences have a mean cosine of "
            f"{data['other_words'][shown]:.2f} in {label} (static: {data['other_words'][0]:.2f})."
        )
    if data["is_causal"]:
        summary.append(f"The model reads from left to right: a vector of {word!r} knows nothing of the words after it.")
    if is_divided:
        summary.append("With --labels the division into senses is yours, and is tested.")
    return tuple(summary)


def describe_choice(word: str, candidates: int, is_separated: bool) -> str:
    """Returns whether a word that was chosen has several senses, and where its sentences come from."""
    source = f"No sentences were given: these are validation examples that contain {word!r}"
    if not candidates:
        return f"It is not known whether {word!r} has several senses. {source}, their most frequent content word."
    among = pluralize(candidates, "frequent words")
    if is_separated:
        return (
            f"Of {among}, {word!r} has the vectors in the last layer that form two groups most clearly, and more "
            f"clearly than chance explains. {source}."
        )
    return (
        f"No word with several senses was found: of {among}, {word!r} comes closest, but its vectors in the last layer "
        f"do not form two groups more clearly than chance explains. {source}."
    )


def describe_division(data: Mapping[str, Any], label: str) -> str:
    """Returns into which senses the occurrences are divided without labels."""
    groups = "; ".join(
        f"{name!r} in {', '.join(str(s + 1) for s in dict.fromkeys(data['sentences'][data['groups'] == index]))}"
        for index, name in enumerate(data["senses"])
    )
    return (
        f"No labels were given: the occurrences are divided into two senses in any case, by their vectors in {label}, "
        f"and named after words of their sentences: {groups}."
    )


def describe_separation(data: Mapping[str, Any], label: str) -> str:
    """Returns the mean cosines of the layer beside the static ones."""
    shown, same, different = data["layer"], data["same"], data["different"]
    start = f"{data['word']!r} in {len(data['texts'])} sentences:"
    if np.isnan(same[shown]) or np.isnan(different[shown]):  # one sense, or each occurrence has its own
        means = same if np.isnan(different[shown]) else different
        return f"{start} the mean cosine of two occurrences is {means[shown]:.2f} in {label}; static {means[0]:.2f}."
    return (
        f"{start} in {label} the mean cosine is {same[shown]:.2f} within a sense and {different[shown]:.2f} between "
        f"senses; as a static vector {same[0]:.2f} and {different[0]:.2f}."
    )


def draw_senses(data: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Returns the cosines over the layers, the matrices of all layers, and the cosines to the senses."""
    figures: list[Figure] = [draw_sentences(data), draw_layers(data), *draw_matrices(data)]
    if len(data["senses"]) > 1 and len(data["occurrences"]) > 2:
        figures += [*draw_prototypes(data), draw_table(data)]
    return tuple(figures)


def draw_sentences(data: Mapping[str, Any]) -> Table:
    """Returns the sentences with their senses; of a long one what is around the word."""
    rows: list[tuple[int, str, str]] = []
    for index, text in enumerate(data["texts"]):
        names = [data["senses"][group] for group in dict.fromkeys(data["groups"][data["sentences"] == index])]
        rows.append((index + 1, "; ".join(names), shorten_around(" ".join(text.split()), data["word"])))
    return Table(title="Sentences", columns=["number", "sense", "sentence"], rows=rows)


def shorten_around(text: str, word: str, margin: int = MARGIN) -> str:
    """Returns what is around the first occurrence of a word."""
    position = max(0, text.lower().find(word.lower()))
    start, stop = position - margin, position + len(word) + margin
    if start > 0:
        start = text.find(" ", start, position) + 1 or start
    before, after = "… " if start > 0 else "", " …" if stop < len(text) else ""
    return before + text[max(0, start) : stop] + after


def draw_layers(data: Mapping[str, Any]) -> LineChart:
    """Returns the mean cosines over the layers."""
    x = np.arange(len(data["layers"]))
    names = {"same": "same sense", "different": "different senses", "other_words": "two other tokens"}
    if len(data["occurrences"]) == 2:
        names["different"] = "the two occurrences"
    return LineChart(
        title=f"Cosine between the occurrences of {data['word']}, over the layers",
        series=[Series(name=name, x=x, y=data[key]) for key, name in names.items() if not np.isnan(data[key]).all()],
        x_label="layer",
        y_label="mean cosine",
        x_names=data["layers"],
    )


def draw_matrices(data: Mapping[str, Any]) -> list[Figure]:
    """Returns the cosines of all layers in a grid, and of the layer that is shown in full."""
    order = np.argsort(data["groups"], kind="stable")  # occurrences of one sense beside each other
    names = [data["occurrences"][index] for index in order]
    low = find_low(data["cosines"])

    def draw(layer: int, title: str) -> Heatmap:
        return Heatmap(
            title=title,
            values=data["cosines"][layer][np.ix_(order, order)],
            rows=names,
            columns=names,
            row_label="occurrence",
            column_label="occurrence",
            value_label="cosine",
            low=low,
            high=1.0,
        )

    panels = [draw(layer, name) for layer, name in enumerate(data["layers"])]
    grid = HeatmapGrid(
        title=f"Cosine between the occurrences of {data['word']}, all layers",
        panels=panels,
        num_columns=min(GRID_COLUMNS, len(panels)),
    )
    return [grid, draw(data["layer"], f"Cosine between the occurrences, {data['layers'][data['layer']]}")]


def find_low(cosines: np.ndarray) -> float:
    """Returns the tenth below the smallest cosine, where the colours begin: the cosines of one word are often large."""
    return float(np.floor(10 * np.nanmin(cosines) - 1e-9) / 10)


def draw_prototypes(data: Mapping[str, Any]) -> list[Heatmap]:
    """Returns the cosine of each occurrence to each sense over the layers."""
    order = np.argsort(data["groups"], kind="stable")
    return [
        Heatmap(
            title=f"Cosine to the sense {name!r}, over the layers",
            values=data["to_senses"][:, order, index].T,
            rows=[data["occurrences"][each] for each in order],
            columns=data["layers"],
            row_label="occurrence",
            column_label="layer",
            value_label="cosine to the mean of the sense in other sentences",
            low=find_low(data["to_senses"]),
            high=1.0,
        )
        for index, name in enumerate(data["senses"])
    ]


def draw_table(data: Mapping[str, Any]) -> Table:
    """Returns the cosine of each occurrence to each sense in the layer that is shown."""
    shown = data["layer"]
    rows: list[list[str]] = []
    for index in np.argsort(data["groups"], kind="stable"):
        values = data["to_senses"][shown, index]
        nearest = data["nearest"][shown, index]
        rows.append(
            [
                data["occurrences"][index],
                data["senses"][data["groups"][index]],
                *("" if np.isnan(value) else f"{value:.3f}" for value in values),
                "" if nearest < 0 else data["senses"][nearest],
            ]
        )
    columns = ["occurrence", "sense", *(f"cosine to {name}" for name in data["senses"]), "nearest sense"]
    return Table(title=f"Cosine to each sense, {data['layers'][shown]}", columns=columns, rows=rows)
