"""Intrinsic evaluation of word vectors: accuracy on analogies, and correlation with human similarity scores.

It knows nothing of training. Only words of the vocabulary count, even where n-grams could compose others, so that
figures of different vectors compare. A word is looked up as it is written, then in lower case, then in any case: the
most frequent spelling counts. Answers are compared without case, as in gensim: IRAQ is as right as Iraq.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.errors import UsageError
from seqwise.vectors.evaluation_data import Pair as Pair
from seqwise.vectors.evaluation_data import Question as Question
from seqwise.vectors.evaluation_data import detect_kind as detect_kind
from seqwise.vectors.evaluation_data import read_analogies as read_analogies
from seqwise.vectors.evaluation_data import read_similarities as read_similarities
from seqwise.vectors.keyed import AnalogyBy, KeyedVectors
from seqwise.vectors.search import EPSILON, shift_cosines

MAX_COSINES = 1 << 23  # cosines in memory at once: 32 MB
BATCH = 32  # questions answered at once: few enough that their scores stay in the cache
MIN_ROWS = 64  # of the vocabulary, per block

ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True)
class Section:
    """Results of a section of questions. Questions with an unknown word are skipped, all others asked."""

    name: str
    right: int
    asked: int
    skipped: int

    @property
    def accuracy(self) -> float | None:
        """Share of the asked questions that was answered right; None if none was asked."""
        return self.right / self.asked if self.asked else None


@dataclass(frozen=True)
class Analogies:
    """Results on a file of analogies."""

    sections: tuple[Section, ...]

    @property
    def total(self) -> Section:
        counts = np.array([(each.right, each.asked, each.skipped) for each in self.sections]).reshape(-1, 3).sum(axis=0)
        return Section("total", *map(int, counts))


@dataclass(frozen=True)
class Similarities:
    """Correlations of cosines with human scores; None if there are fewer than two pairs, or all are equal."""

    spearman: float | None
    pearson: float | None
    used: int  # pairs of which both words are known
    pairs: int

    @property
    def coverage(self) -> float:
        return self.used / self.pairs


def evaluate_analogies(
    keyed: KeyedVectors,
    questions: Sequence[Question],
    restrict: int = 300_000,
    by: AnalogyBy = "add",
    exclude: bool = True,
    progress: ProgressCallback | None = None,
) -> Analogies:
    """Answers all questions among the `restrict` most frequent words; with `exclude` not by words of the question."""
    if by not in ("add", "multiply"):
        raise UsageError(f"by: expected add or multiply; received {by!r}.")
    if restrict < 1:
        raise UsageError(f"restrict: expected at least 1 word; received {restrict:,}.")
    spellings = _Spellings(keyed, min(restrict, len(keyed)))
    rows = np.array([[spellings.row(word) for word in question[1:]] for question in questions], dtype=np.int64)
    rows = rows.reshape(-1, 4)  # also where there is none
    asked = (rows >= 0).all(axis=1)
    right = np.zeros(len(rows), dtype=np.bool_)
    best = _find_answers(keyed, rows[asked, :3], spellings, by, exclude, progress)
    right[asked] = spellings.first[best] == spellings.first[rows[asked, 3]]
    names = np.array([question.section for question in questions], dtype=object)
    sections = []
    for name in dict.fromkeys(names.tolist()):
        in_section = names == name
        counts = [int((in_section & mask).sum()) for mask in (right, asked, ~asked)]
        sections.append(Section(name, *counts))
    return Analogies(tuple(sections))


def evaluate_similarities(keyed: KeyedVectors, pairs: Sequence[Pair]) -> Similarities:
    """Correlates the cosines of the known pairs with the human scores."""
    if not pairs:
        raise UsageError("expected at least one pair; received none.")
    spellings = _Spellings(keyed, len(keyed))
    rows = np.array([[spellings.row(word) for word in pair[:2]] for pair in pairs])
    used = (rows >= 0).all(axis=1)
    units = [keyed.matrix[column] / keyed.norms[column, None].astype(np.float64) for column in rows[used].T]
    cosines = np.einsum("ij,ij->i", *units)
    judgements = np.array([pair.score for pair in pairs])[used]
    spearman, pearson = _correlate(compute_ranks(judgements), compute_ranks(cosines)), _correlate(judgements, cosines)
    return Similarities(spearman, pearson, len(judgements), len(pairs))


class _Spellings:
    """Finds words of the first `known` rows with and without regard to case."""

    def __init__(self, keyed: KeyedVectors, known: int):
        self.keyed, self.known = keyed, known
        rows: dict[str, int] = {}
        # (known,) per row the first row that differs in case alone, which is the most frequent.
        self.first = np.array([rows.setdefault(word.upper(), row) for row, word in enumerate(keyed.words[:known])])
        self._rows = rows

    def row(self, word: str) -> int:
        """Returns the row of a word; -1 if it is unknown."""
        for form in (word, word.lower()):
            if form in self.keyed and (row := self.keyed.index(form)) < self.known:
                return row
        return self._rows.get(word.upper(), -1)

    def find_spellings(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (question, row) for every row that equals one of the question's words (N, 3) but for case."""
        order = np.argsort(self.first, kind="stable")
        sorted_first = self.first[order]
        groups = self.first[rows]
        low, high = (np.searchsorted(sorted_first, groups, side) for side in ("left", "right"))
        max_spellings = int((high - low).max(initial=0))
        positions = low[..., None] + np.arange(max_spellings)
        question, word, spelling = np.nonzero(positions < high[..., None])
        return question, order[positions[question, word, spelling]]


def compute_ranks(values: np.ndarray) -> np.ndarray:
    """Returns ranks from 1; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _correlate(a: np.ndarray, b: np.ndarray) -> float | None:
    """Returns Pearson's correlation."""
    if len(a) < 2:
        return None
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(np.clip(a @ b / scale, -1, 1)) if scale > 0 else None


def _find_answers(
    keyed: KeyedVectors,
    rows: np.ndarray,
    spellings: _Spellings,
    by: AnalogyBy,
    exclude: bool,
    progress: ProgressCallback | None,
) -> np.ndarray:
    """Returns the best row for each question, which consists of the rows of a, b and c.

    Thousands of questions share some hundred words. The cosines of these words to a block of the vocabulary are one
    matrix product, and the scores of a question are three rows of it, added or multiplied: 3CosAdd is
    cos b - cos a + cos c up to a factor that does not change which is best.
    """
    words, inverse = np.unique(rows, return_inverse=True)
    a, b, c = inverse.reshape(-1, 3).T
    queries, known = keyed.matrix[words] / keyed.norms[words, None], spellings.known
    excluded_questions, excluded_rows = spellings.find_spellings(rows)  # in the order of the questions
    best, score = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), -np.inf, dtype=np.float32)
    step = max(MIN_ROWS, MAX_COSINES // max(len(words), keyed.dim))
    for start in range(0, known if len(rows) else 0, step):
        stop = min(known, start + step)
        table = queries @ (keyed.matrix[start:stop] / keyed.norms[start:stop, None]).T
        if by == "multiply":
            table = shift_cosines(table)
        for low in range(0, len(rows), BATCH):
            part = slice(low, low + BATCH)
            scores = _compute_scores(table, a[part], b[part], c[part], by)
            if exclude:
                entries = slice(*np.searchsorted(excluded_questions, (low, low + BATCH)))
                _exclude_words(scores, excluded_questions[entries] - low, excluded_rows[entries] - start)
            top = scores.argmax(axis=1)
            value = scores[np.arange(len(top)), top]
            better = value > score[part]
            best[part][better], score[part][better] = top[better] + start, value[better]
        if progress:
            progress(stop, known)
    return best


def _compute_scores(table: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, by: AnalogyBy) -> np.ndarray:
    """Returns the scores, (questions, rows of the block)."""
    scores = table[b]
    if by == "add":
        scores -= table[a]
        scores += table[c]
    else:
        scores *= table[c]
        scores /= table[a] + np.float32(EPSILON)
    return scores


def _exclude_words(scores: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    """Excludes words of the questions as answers, as far as they are in this block."""
    inside = (columns >= 0) & (columns < scores.shape[1])
    scores[rows[inside], columns[inside]] = -np.inf
