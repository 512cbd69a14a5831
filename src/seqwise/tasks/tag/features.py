"""Features of words beyond their vectors and characters: n-grams, shape, and casing elsewhere in the document.

Linear taggers owe much to such features (Klein et al. 2003, "Named entity recognition with character-level models";
Chieu & Ng 2003, "Named entity recognition with a maximum entropy approach"). Each has a vector; a word has their sum.
They are computed from the text alone. The module knows nothing of tags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.layers.embedding import Embedding
from seqwise.tasks.tag.spans import Sentence

NGRAM_LENGTHS = range(2, 6)  # in characters, with the marks < and > of a word's ends; inside a word from 3
MIN_TYPES = 3  # distinct training words that have a feature; of fewer, it would be another name of the word
PADDING = 0  # id; those of features start at 1
DROPOUT = 0.2  # share of a word's features that training leaves out
# Casings of a word elsewhere in its document, as bits, and whether its sentence has capitals only
LOWER_CASE, CAPITALIZED, CAPITALS, IN_CAPITALS = 1, 2, 4, 8
NUM_CASINGS = 16


def list_features(word: str) -> list[str]:
    """Returns the n-grams of a word in lower case, and its shape, each once, in a fixed order.

    list_features("Rio") == ["<r", "o>", "<ri", "rio", "io>", "<rio", "rio>", "shape Xx"]
    """
    marked = f"<{re.sub(r'[0-9]', '0', word.lower())}>"
    ngrams = [
        marked[start : start + n]
        for n in NGRAM_LENGTHS
        for start in range(len(marked) - n + 1)
        if n < len(marked) and (n > 2 or start in (0, len(marked) - n))
    ]
    return list(dict.fromkeys([*ngrams, f"shape {get_shape(word)}"]))


def get_shape(word: str) -> str:
    """Returns the kinds of characters in a word, each run of a kind once: "Xx" of "Paris", "X.X." of "U.S."."""
    kinds = re.sub(r"[^\W\d_]", lambda match: "X" if match[0].isupper() else "x", word)
    return re.sub(r"(.)\1+", r"\1", re.sub(r"\d", "0", kinds))


def collect_features(words: Iterable[str]) -> list[str]:
    """Returns the features that at least MIN_TYPES distinct words have, the most frequent first."""
    counts = Counter(feature for word in dict.fromkeys(words) for feature in list_features(word))
    return [feature for feature, count in counts.most_common() if count >= MIN_TYPES]


def find_casings(sentences: Sequence[Sentence], documents: Sequence[Sentence] | None = None) -> list[np.ndarray]:
    """Returns for each word of each sentence its casings elsewhere in the document: a sum of constants.

    `documents` are all sentences of the documents, with these among them, where `sentences` are only some. A capital
    letter at the beginning of a sentence, or in one of capitals only, says nothing and is not counted. A sentence
    without a document is a document of its own.
    """
    counters: dict[tuple[str, int], Counter[tuple[str, int]]]
    counters = {(sentence.file, sentence.document): Counter() for sentence in sentences if sentence.document >= 0}
    for sentence in sentences if documents is None else documents:
        if (sentence.file, sentence.document) in counters:
            counters[sentence.file, sentence.document].update(_list_casings(sentence))
    casings = []
    for sentence in sentences:
        own = _list_casings(sentence)
        counter = counters.get((sentence.file, sentence.document)) or Counter(own)
        in_capitals = IN_CAPITALS * is_in_capitals(sentence)
        casings.append(np.array([in_capitals + _sum_others(counter, *each) for each in own], dtype=np.int64))
    return casings


def is_in_capitals(sentence: Sentence) -> bool:
    """Whether a sentence has no lower-case letters, like a headline."""
    return all(word == word.upper() for word in sentence.words)


def _list_casings(sentence: Sentence) -> list[tuple[str, int]]:
    """Returns each word of a sentence in lower case, with its casing."""
    in_capitals = is_in_capitals(sentence)
    return [(word.lower(), _get_casing(word, index == 0, in_capitals)) for index, word in enumerate(sentence.words)]


def _sum_others(counter: Counter[tuple[str, int]], word: str, own: int) -> int:
    """Returns the sum of the casings that occur in a document, apart from one occurrence of the casing `own`."""
    return sum(kind for kind in (LOWER_CASE, CAPITALIZED, CAPITALS) if counter[word, kind] > (kind == own))


def _get_casing(word: str, is_first: bool, in_capitals: bool) -> int:
    """Returns the casing of one occurrence; 0 if it says nothing."""
    if word == word.lower():
        return LOWER_CASE if word != word.upper() else 0  # a number or a mark is neither
    if word == word.upper() and len(word) > 1:
        return 0 if in_capitals else CAPITALS
    return 0 if is_first or in_capitals else CAPITALIZED


class FeatureVectors(nn.Module):
    """The features of a word as one vector: Σ vectors / √(their number), plus the vector of its casings."""

    def __init__(self, num_features: int, width: int):
        super().__init__()
        self.width = width
        self.vectors = Embedding(num_features + 1, width)
        self.casings = Embedding(NUM_CASINGS, width)

    def forward(self, features: Tensor, rows: Tensor, casings: Tensor) -> Tensor:
        """Returns (B, T, width) for the features (W, F) of distinct words, padded with 0, and rows, casings (B, T)."""
        weights = (features != PADDING).to(self.vectors.weight.dtype)
        scale = weights.sum(dim=1, keepdim=True).clamp(min=1).rsqrt()
        weights = F.dropout(weights, DROPOUT, self.training)
        sums = (self.vectors(features) * weights[..., None]).sum(dim=1) * scale
        return F.embedding(rows, sums) + self.casings(casings)
