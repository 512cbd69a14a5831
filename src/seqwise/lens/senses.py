"""`senses`: one word in several sentences, layer by layer.

The input embedding gives a word the same vector everywhere: it is *static*. The layers above it read the sentence, so
that their vectors are *contextual*: those of "bank" beside a river and of a "bank" that lends money move apart. The
cosine between the occurrences shows in which layer.

    prototype of a sense for an occurrence = mean of the unit vectors of the sense's occurrences in other sentences
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.errors import UsageError, check_type
from seqwise.families import get_family
from seqwise.lens.embeddings import list_vocabularies
from seqwise.lens.occurrences import (
    FUNCTION_WORDS,
    LayerVectors,
    Occurrence,
    compute_occurrence_vectors,
    find_occurrences,
    find_shared_word,
    normalize_rows,
    split_words,
)
from seqwise.lens.sense_choice import choose_sentences
from seqwise.lens.sense_figures import describe_senses, draw_senses
from seqwise.lens.subject import Subject, evaluation_mode, name_run
from seqwise.lens.view import View
from seqwise.tasks.contextual import LINE_BREAKS
from seqwise.training.api import TrainedModel
from seqwise.vectors.map.word_map import cluster_vectors

MIN_CLUSTERED = 3  # occurrences that are divided into two senses; of two, each is compared with the other
MAX_OTHERS = 300  # tokens with which other words are represented
EXAMPLE = 'For example: "he sat on the bank of the river" "the bank lends money"'


def explain_inapplicable(subject: Subject) -> str | None:
    """Returns why the view does not apply, or None."""
    return f"{subject.name} is not a trained run." if subject.trained is None else explain_missing(subject.trained)


def explain_missing(trained: TrainedModel) -> str | None:
    """Returns why a run has no vectors of words in sentences, or None."""
    name = name_run(trained)
    if trained.settings.task not in LINE_BREAKS:
        return f"{name} does not read sentences: its task is {trained.settings.task}."
    return None if hasattr(trained.model, "embedding") else f"{name} has no vectors: it predicts from counts."


def senses(
    model: Any,
    texts: Any = None,
    *,
    word: str | None = None,
    layer: int | str | None = None,
    labels: str | Sequence[str] | None = None,
    progress: ProgressCallback = no_progress,
) -> View:
    """Returns the cosine between the occurrences of a word in each layer, and to each of its senses.

    texts: at least two sentences that contain the word; unless set, validation examples with a word whose vectors in
        the last layer form two groups
    word: the word; the content word that all sentences share unless set
    layer: the layer that is shown in full: its number from 1, 0 being the input embedding, or its name; the last
        unless set
    labels: the sense of the word in each sentence, as a list or separated by commas, such as "river,river,money";
        unless set, three or more occurrences are divided into two senses by spherical k-means in that layer

    `data`: `word`, `texts`, `choice` (None, or if there were no texts the number of `candidates`, and whether the word
    `is_separated` more than chance explains), `occurrences` (names), `sentences` (of each occurrence, from 0), `senses`
    (names), `groups` (of each occurrence, an index into `senses`), `is_labelled`, `layers` (names), `layer`, `cosines`
    (layers, N, N), `to_senses` (layers, N, senses; NaN without another sentence of the sense), `same`, `different` and
    `other_words` (layers,): mean cosine of occurrences of one sense in different sentences, of different senses, and of
    two other tokens; `nearest` (layers, N): the sense with the largest cosine, −1 where one is NaN; `tokens` of each
    occurrence; `is_unknown`: the vocabulary lacks the word; `is_causal`: vectors do not depend on later tokens.
    """
    check_type("model", model, TrainedModel, "a trained model (seqwise.load)")
    if reason := explain_missing(model):
        raise UsageError(reason, fix="Choose a neural model of language, masked, classify, tag or translate.")
    if texts is None and (word is not None or labels is not None):
        option = "--labels" if word is None else "--word"
        raise UsageError(f"the sentences are missing: {option} needs sentences that contain the word.", fix=EXAMPLE)
    choice = None
    with evaluation_mode(model.model):
        if texts is None:
            chosen = choose_sentences(model, progress)
            word, sentences = chosen.word, chosen.sentences
            choice = {"candidates": chosen.num_candidates, "is_separated": chosen.is_separated}
        else:
            sentences = check_sentences(texts)
            word = find_shared_word(sentences) if word is None else word.strip()
        occurrences = find_occurrences(sentences, word)
        layers, tokens = compute_occurrence_vectors(model, sentences, occurrences)
    layer_names = [each.name for each in layers]
    shown = len(layers) - 1 if layer is None else layer_names.index(layer) if layer in layer_names else layer
    if not isinstance(shown, int) or not 0 <= shown < len(layers):
        problem = f"there is no layer {layer}."
        raise UsageError(problem, fix=f"Choose a number from 0 (the input embedding) to {len(layers) - 1}.")
    groups, names = assign_senses(sentences, word, occurrences, layers[shown], labels)
    data: dict[str, Any] = {
        "word": word,
        "texts": sentences,
        "choice": choice,
        "occurrences": name_occurrences(occurrences),
        "sentences": np.array([each.sentence for each in occurrences]),
        "senses": names,
        "groups": groups,
        "is_labelled": labels is not None,
        "layers": layer_names,
        "layer": shown,
        "tokens": tokens,
        **compare_layers(layers, np.array([each.sentence for each in occurrences]), groups, len(names)),
    }
    data["is_unknown"] = not any(vocabulary.find(word) for vocabulary in list_vocabularies(model)[:1])
    data["is_causal"] = is_causal(model)
    name = name_run(model)
    return View("senses", f"Senses of {word!r} in {name}", describe_senses(data), draw_senses(data), data)


def is_causal(trained: TrainedModel) -> bool:
    """Returns whether the vector of a token is known not to depend on the tokens after it."""
    settings = trained.settings
    is_recurrent = get_family(settings.model).is_recurrent
    return settings.task == "language" or (is_recurrent and not settings.recurrent.bidirectional)


def check_sentences(texts: Any) -> list[str]:
    """Returns at least two sentences; raises an error for anything else."""
    sentences = [texts] if isinstance(texts, str) else texts
    check_type("texts", sentences, Iterable, "sentences")
    sentences = list(sentences)
    for number, text in enumerate(sentences, start=1):
        check_type(f"text {number}", text, str, "a sentence")
    sentences = [text for text in sentences if text.strip()]
    if len(sentences) < 2:
        problem = f"this view needs at least two sentences that share a word; received {len(sentences)}."
        raise UsageError(problem, fix=EXAMPLE)
    return sentences


def name_occurrences(occurrences: Sequence[Occurrence]) -> list[str]:
    """Returns distinct names: a second equal one has a number."""
    counts: Counter[str] = Counter()
    names = []
    for each in occurrences:
        counts[each.name] += 1
        names.append(each.name if counts[each.name] == 1 else f"{each.name} ({counts[each.name]})")
    return names


# Senses


def assign_senses(
    texts: Sequence[str],
    word: str,
    occurrences: Sequence[Occurrence],
    layer: LayerVectors,
    labels: str | Sequence[str] | None,
) -> tuple[np.ndarray, list[str]]:
    """Returns the sense of each occurrence and the names of the senses: from the labels, or by clustering."""
    if labels is not None:
        parsed = [each.strip() for each in (labels.split(",") if isinstance(labels, str) else labels)]
        if len(parsed) != len(texts):
            problem = (
                f"expected one label for each of {len(texts)} sentences; received {len(parsed)}: {', '.join(parsed)}."
            )
            raise UsageError(problem, fix="Separate them by commas: --labels river,river,money")
        names = list(dict.fromkeys(parsed))
        return np.array([names.index(parsed[each.sentence]) for each in occurrences]), names
    if len(occurrences) < MIN_CLUSTERED:
        groups = np.arange(len(occurrences))
    else:
        groups, _ = cluster_vectors(normalize_rows(layer.occurrences), num_clusters=2)
        _, first = np.unique(groups, return_index=True)
        groups = np.argsort(np.argsort(first))[groups] if len(first) > 1 else groups  # in the order of the sentences
    return groups, name_senses(texts, word, occurrences, groups)


def name_senses(texts: Sequence[str], word: str, occurrences: Sequence[Occurrence], groups: np.ndarray) -> list[str]:
    """Returns a name of each sense: the content words that only its sentences have, the most frequent and nearest."""
    words = [split_words(text) for text in texts]
    names = []
    for group in range(int(groups.max()) + 1):
        own = {each.sentence for each, g in zip(occurrences, groups) if g == group}
        elsewhere = {w for index, sentence in enumerate(words) if index not in own for w in sentence}
        ranks: dict[str, tuple[int, int]] = {}  # word → (−sentences, distance)
        for index in sorted(own):
            centre = words[index].index(word.lower()) if word.lower() in words[index] else 0
            for position, each in enumerate(words[index]):
                if each not in FUNCTION_WORDS and each not in elsewhere and each != word.lower():
                    count, distance = ranks.get(each, (0, len(words[index])))
                    ranks[each] = (count - 1, min(distance, abs(position - centre)))
        best = sorted(ranks, key=lambda each: ranks[each])[:2]
        names.append(", ".join(best) or f"sense {group + 1}")
    return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, start=1)]


# Numbers


def compare_layers(
    layers: Sequence[LayerVectors], sentences: np.ndarray, groups: np.ndarray, num_senses: int
) -> dict[str, Any]:
    """Returns the cosines of each layer: between occurrences, to the senses, and their means."""
    cosines, to_senses, others = [], [], []
    for each in layers:
        unit_vectors = normalize_rows(each.occurrences)
        cosines.append(unit_vectors @ unit_vectors.T)
        to_senses.append(compare_with_senses(unit_vectors, sentences, groups, num_senses))
        others.append(compute_mean_cosine(each.others))
    pairs = [(i, j) for i, j in combinations(range(len(groups)), 2)]
    same = [(i, j) for i, j in pairs if groups[i] == groups[j] and sentences[i] != sentences[j]]
    different = [(i, j) for i, j in pairs if groups[i] != groups[j]]
    prototypes = np.stack(to_senses)
    is_complete = ~np.isnan(prototypes).any(axis=-1)
    nearest = np.where(is_complete, np.argmax(np.nan_to_num(prototypes, nan=-2.0), axis=-1), -1)
    return {
        "cosines": np.stack(cosines),
        "to_senses": prototypes,
        "same": np.array([average_pairs(matrix, same) for matrix in cosines]),
        "different": np.array([average_pairs(matrix, different) for matrix in cosines]),
        "other_words": np.array(others),
        "nearest": nearest,
    }


def compare_with_senses(
    unit_vectors: np.ndarray, sentences: np.ndarray, groups: np.ndarray, num_senses: int
) -> np.ndarray:
    """Returns the cosine (N, senses) of each occurrence to the mean of each sense's occurrences in other sentences."""
    result = np.full((len(unit_vectors), num_senses), np.nan)
    for index in range(len(unit_vectors)):
        for sense in range(num_senses):
            members = (groups == sense) & (sentences != sentences[index])
            if members.any():
                result[index, sense] = normalize_rows(unit_vectors[members].mean(axis=0)) @ unit_vectors[index]
    return result


def compute_mean_cosine(vectors: np.ndarray) -> float:
    """Returns the mean cosine of two different rows; NaN if there are fewer than two."""
    unit_vectors = normalize_rows(vectors[:: max(1, -(-len(vectors) // MAX_OTHERS))])
    count = len(unit_vectors)
    if count < 2:
        return np.nan
    return float((np.square(unit_vectors.sum(axis=0)).sum() - np.square(unit_vectors).sum()) / (count * (count - 1)))


def average_pairs(matrix: np.ndarray, pairs: Sequence[tuple[int, int]]) -> float:
    return float(np.mean([matrix[i, j] for i, j in pairs])) if pairs else np.nan
