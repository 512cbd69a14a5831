"""Chooses a word whose vectors in a sample of sentences form two groups. It knows nothing of figures.

    separation = Σ_g n_g ‖mean_g − mean‖² / Σ_i ‖v_i − mean‖²

of the unit vectors v_i of a word, whose groups g are the two sides of the mean on the first principal axis. Any vectors
have some separation, so it is compared with that of as many random vectors around their mean, drawn from all words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.errors import UsageError
from seqwise.lens.occurrences import FUNCTION_WORDS, find_occurrences, find_tokens, normalize_rows, split_words
from seqwise.lens.subject import inspect_split
from seqwise.tasks.contextual import TextTokens
from seqwise.tasks.tag.model import TagVocabulary
from seqwise.training.api import TrainedModel

NUM_EXAMPLES = 200  # validation examples in which a word is chosen
NUM_TRANSLATED = 64  # the same for translation models, which also translate these examples
MIN_SENTENCES, MAX_SENTENCES = 3, 6  # that contain a word that is chosen
MIN_DIVIDED, MAX_DIVIDED = 4, 16  # sentences with a word whose separation is measured
MIN_GROUP = 2  # sentences
MIN_LETTERS = 3  # of a word that is chosen
NUM_DRAWS = 500  # of random vectors, for each number of sentences
LEVEL = 0.05  # probability that the most separated of all words exceeds the limit by chance


@dataclass(frozen=True)
class ChosenWord:
    """A word, sentences that contain it, and whether its vectors form two groups."""

    word: str
    sentences: list[str]
    num_candidates: int  # words whose separation was measured
    is_separated: bool  # more than expected by chance


def choose_sentences(trained: TrainedModel, progress: ProgressCallback = no_progress) -> ChosenWord:
    """Returns the word of the validation split that is separated best, with up to MAX_SENTENCES examples that have it.

    If no word occurs in MIN_DIVIDED examples, it is the most frequent one.
    """
    texts = read_texts(trained, progress)
    words = list_lowercase_words(texts)
    suitable = {
        word: count
        for word, count in Counter(word for each in words for word in each).items()
        if word.isalpha() and len(word) >= MIN_LETTERS and word not in {*FUNCTION_WORDS, "unk", "eos"}
    }
    frequent = sorted(word for word, count in suitable.items() if count >= MIN_DIVIDED)
    if frequent:
        chosen = {word: [text for text, own in zip(texts, words) if word in own][:MAX_DIVIDED] for word in frequent}
        vectors = compute_word_vectors(trained, chosen)
        if vectors:
            word, is_separated = choose_separated(vectors)
            sides = measure_separation(vectors[word])[1]
            return ChosenWord(word, choose_from_both_groups(chosen[word], sides), len(vectors), is_separated)
    word = max(suitable, key=lambda each: (min(suitable[each], MAX_SENTENCES), len(each), each), default="")
    if not word or suitable[word] < min(MIN_SENTENCES, len(texts)):
        raise UsageError(
            "no word occurs in several validation examples.",
            fix='Pass sentences that share one: "he sat on the bank of the river" "the bank lends money"',
        )
    return ChosenWord(word, [text for text, own in zip(texts, words) if word in own][:MAX_SENTENCES], 0, False)


def list_lowercase_words(texts: Iterable[str]) -> list[set[str]]:
    """Returns the words of each text in lower case: a capital would give a word another static vector."""
    return [{*split_words(text)}.intersection(re.findall(r"\w+", text)) for text in texts]


def read_texts(trained: TrainedModel, progress: ProgressCallback = no_progress) -> list[str]:
    """Returns different validation examples that the model can read at once."""
    count = NUM_TRANSLATED if trained.settings.task == "translate" else NUM_EXAMPLES
    examples = inspect_split(trained, count, progress=progress)
    tokenizer = trained.run.preprocessor.tokenizer
    is_masked = trained.settings.task == "masked"
    texts = [tokenizer.decode(each.batch.targets[0].tolist()) if is_masked else each.text for each in examples]  # type: ignore[attr-defined]
    texts = list(dict.fromkeys(" ".join(text.split()) for text in texts))
    max_length = trained.contextual.max_length
    return [text for text in texts if max_length is None or len(trained.contextual.tokenize(text)) <= max_length]


def compute_word_vectors(trained: TrainedModel, sentences: Mapping[str, Sequence[str]]) -> dict[str, np.ndarray]:
    """Returns the unit vectors (N, D) in the last layer of the first occurrence of each word in its sentences.

    Words outside the vocabulary are left out, since they are all read as one token; so are words that are read as
    different tokens, such as "inc" and "inc.", which have different static vectors.
    """
    encoder, unknown = trained.contextual, trained.run.preprocessor.tokenizer.unknown
    texts = list(dict.fromkeys(text for each in sentences.values() for text in each))
    tokens = {text: encoder.tokenize(text) for text in texts}
    matrices = dict(zip(texts, encoder.compute_vectors(list(tokens.values()))))
    vectors = {}
    for word, own in sentences.items():
        occurrences = [
            each for each in find_occurrences(own, word) if own[each.sentence][each.start : each.stop] == word
        ]
        first = {each.sentence: each for each in reversed(occurrences)}
        masks = [find_tokens(tokens[text], first[index]) for index, text in enumerate(own)]
        ids = {read_ids(trained, tokens[text], mask) for text, mask in zip(own, masks)}
        if len(ids) == 1 and unknown not in next(iter(ids)):
            rows = [matrices[text][mask].mean(axis=0) for text, mask in zip(own, masks)]
            vectors[word] = normalize_rows(np.stack(rows))
    return vectors


def read_ids(trained: TrainedModel, tokens: TextTokens, mask: np.ndarray) -> tuple[int, ...]:
    """Returns the ids of some tokens of a text; those of a tagger, which reads words, are the ids of the words."""
    if len(tokens.ids):
        return tuple(tokens.ids[mask].tolist())
    vocabulary = TagVocabulary.from_preprocessor(trained.run.preprocessor)
    return tuple(vocabulary.get_word_id(token) for token, inside in zip(tokens.tokens, mask) if inside)


def choose_separated(vectors: Mapping[str, np.ndarray]) -> tuple[str, bool]:
    """Returns the word whose separation exceeds that of random vectors most, and whether that is not by chance.

    The excess is in standard deviations of the random ones. Its limit is exceeded by the best of as many words as there
    are, if none is separated, with a probability of LEVEL, provided that the vectors of all words vary alike around
    their means: the random ones are drawn from those of all words.
    """
    rng = np.random.default_rng(0)
    pool = np.concatenate(
        [(each - each.mean(axis=0)) * (len(each) / (len(each) - 1)) ** 0.5 for each in vectors.values()]
    )
    expected: dict[int, tuple[float, float]] = {}
    excesses = []
    for count in sorted({len(each) for each in vectors.values()}):
        separations, _ = measure_separation(pool[rng.integers(len(pool), size=(NUM_DRAWS, count))])
        expected[count] = float(separations.mean()), max(float(separations.std()), 1e-12)
        excesses.append((separations - expected[count][0]) / expected[count][1])
    scores = {}
    for word, each in vectors.items():
        mean, deviation = expected[len(each)]
        scores[word] = (float(measure_separation(each)[0]) - mean) / deviation
    best = max(scores, key=lambda word: scores[word])
    return best, scores[best] > float(np.quantile(np.concatenate(excesses), 1 - LEVEL / len(vectors)))


def measure_separation(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the separation (…) of vectors (…, N, D), and which of them (…, N) are on the first side.

    It is 0 if a side has fewer than MIN_GROUP vectors.
    """
    count = vectors.shape[-2]
    centred = vectors - vectors.mean(axis=-2, keepdims=True)
    products = centred @ np.swapaxes(centred, -1, -2)
    is_first = np.linalg.eigh(products)[1][..., -1] > 0
    sizes = is_first.sum(axis=-1)
    is_divided = (sizes >= MIN_GROUP) & (count - sizes >= MIN_GROUP)
    # ‖Σ v‖² of one side, which is also that of the other, because all vectors together sum to 0.
    squares = np.einsum("...i,...ij,...j->...", is_first.astype(float), products, is_first.astype(float))
    between = squares / np.maximum(sizes, 1) + squares / np.maximum(count - sizes, 1)
    total = np.trace(products, axis1=-2, axis2=-1)
    return np.where(is_divided, between / np.maximum(total, 1e-12), 0.0), is_first


def choose_from_both_groups(texts: Sequence[str], is_first: Iterable[bool]) -> list[str]:
    """Returns up to MAX_SENTENCES texts in their order, as many of one group as of the other if possible."""
    sides = np.array(list(is_first), bool)
    half = MAX_SENTENCES // 2
    counts = {side: int((sides == side).sum()) for side in (True, False)}
    limits = {side: max(half, MAX_SENTENCES - counts[not side]) for side in (True, False)}
    taken = [index for side in (True, False) for index in np.flatnonzero(sides == side)[: limits[side]]]
    return [texts[index] for index in sorted(taken)]
