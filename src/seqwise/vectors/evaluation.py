"""How good vectors are: analogies answered, and similarities beside people's judgements.

It knows nothing of training. Only listed words count, even where n-grams could compose others, so that figures of
different vectors compare. A word of a file is looked up as it stands there, then in lower case, then whatever its case:
the most frequent spelling counts. Capitals decide nothing about an answer, as in gensim: IRAQ is as right as Iraq.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from seqwise.errors import UsageError
from seqwise.vectors.keyed import AnalogyBy, KeyedVectors
from seqwise.vectors.questions import Pair as Pair
from seqwise.vectors.questions import Question as Question
from seqwise.vectors.questions import read_analogies as read_analogies
from seqwise.vectors.questions import read_similarities as read_similarities
from seqwise.vectors.questions import recognise as recognise
from seqwise.vectors.search import EPSILON, shifted

TABLE = 1 << 23  # cosines in memory at once: 32 MB
ASKED = 32  # questions answered together: few enough that their scores stay in the cache
FEWEST_ROWS = 64  # of the vocabulary, per block

ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True)
class Section:
    """Some questions of one sort. Those with an unknown word are skipped, and not asked."""

    name: str
    right: int
    asked: int
    skipped: int

    @property
    def accuracy(self) -> float | None:
        """Of those asked; None if none was."""
        return self.right / self.asked if self.asked else None


@dataclass(frozen=True)
class Analogies:
    sections: tuple[Section, ...]

    @property
    def total(self) -> Section:
        return _sum("total", self.sections)


@dataclass(frozen=True)
class Similarities:
    """Correlations of cosines with people's scores; None where fewer than two pairs, or equal ones, allow none."""

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
    """Ask all questions; only the `restrict` most frequent words are known and can be answers.

    With `exclude` the three words of a question are no answers.
    """
    if by not in ("add", "multiply"):
        raise UsageError(f"by: expected add or multiply; received {by!r}.")
    if restrict < 1:
        raise UsageError(f"restrict: expected at least 1 word; received {restrict:,}.")
    spellings = _Spellings(keyed, min(restrict, len(keyed)))
    rows = np.array([[spellings.row(word) for word in question[1:]] for question in questions], dtype=np.int64)
    rows = rows.reshape(-1, 4)  # also where there is none
    asked = (rows >= 0).all(axis=1)
    right = np.zeros(len(rows), dtype=np.bool_)
    best = _answers(keyed, rows[asked, :3], spellings, by, exclude, progress)
    right[asked] = spellings.first[best] == spellings.first[rows[asked, 3]]
    names = np.array([question.section for question in questions], dtype=object)
    sections = []
    for name in dict.fromkeys(names.tolist()):
        own = names == name
        counts = [int((own & what).sum()) for what in (right, asked, ~asked)]
        sections.append(Section(name, *counts))
    return Analogies(tuple(sections))


def evaluate_similarities(keyed: KeyedVectors, pairs: Sequence[Pair]) -> Similarities:
    """Correlate the cosines of the pairs that are known with people's scores."""
    if not pairs:
        raise UsageError("expected at least one pair; received none.")
    spellings = _Spellings(keyed, len(keyed))
    rows = np.array([[spellings.row(word) for word in pair[:2]] for pair in pairs])
    used = (rows >= 0).all(axis=1)
    first, second = (keyed.matrix[own] / keyed.lengths[own, None].astype(np.float64) for own in rows[used].T)
    cosines = np.einsum("ij,ij->i", first, second)
    people = np.array([pair.score for pair in pairs])[used]
    spearman, pearson = _correlation(ranks(people), ranks(cosines)), _correlation(people, cosines)
    return Similarities(spearman, pearson, len(people), len(pairs))


class _Spellings:
    """The first `known` words, by capitals and without."""

    def __init__(self, keyed: KeyedVectors, known: int):
        self.keyed, self.known = keyed, known
        rows: dict[str, int] = {}
        # (known,) of each row the first that differs in capitals alone: the most frequent.
        self.first = np.array([rows.setdefault(word.upper(), row) for row, word in enumerate(keyed.words[:known])])
        self._rows = rows

    def row(self, word: str) -> int:
        """-1 for a word that is not known."""
        for form in (word, word.lower()):
            if form in self.keyed and (row := self.keyed.index(form)) < self.known:
                return row
        return self._rows.get(word.upper(), -1)

    def alike(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(number of a question, row) for every row that is one of the question's words (N, 3) but for capitals."""
        order = np.argsort(self.first, kind="stable")
        sorted_first = self.first[order]
        wanted = self.first[rows]
        low, high = (np.searchsorted(sorted_first, wanted, side) for side in ("left", "right"))
        most = int((high - low).max(initial=0))
        places = low[..., None] + np.arange(most)
        question, word, nth = np.nonzero(places < high[..., None])
        return question, order[places[question, word, nth]]


def ranks(values: np.ndarray) -> np.ndarray:
    """Places from 1 by size; equal values share the mean of their places."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Pearson's."""
    if len(a) < 2:
        return None
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(np.clip(a @ b / scale, -1, 1)) if scale > 0 else None


def _answers(
    keyed: KeyedVectors,
    rows: np.ndarray,
    spellings: _Spellings,
    by: AnalogyBy,
    exclude: bool,
    progress: ProgressCallback | None,
) -> np.ndarray:
    """The best row for each question (a, b, c), each a row number.

    Questions repeat their words: some thousand share some hundred. Their cosines to a block of the vocabulary are one
    matrix product, and a question's scores three rows of it added (or multiplied): 3CosAdd is cos b - cos a + cos c
    up to a factor that does not change which is best.
    """
    words, inverse = np.unique(rows, return_inverse=True)
    a, b, c = inverse.reshape(-1, 3).T
    queries, known = keyed.matrix[words] / keyed.lengths[words, None], spellings.known
    struck, where = spellings.alike(rows)  # in the order of the questions
    best, score = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), -np.inf, dtype=np.float32)
    step = max(FEWEST_ROWS, TABLE // max(len(words), keyed.dim))
    for start in range(0, known if len(rows) else 0, step):
        stop = min(known, start + step)
        table = queries @ (keyed.matrix[start:stop] / keyed.lengths[start:stop, None]).T
        if by == "multiply":
            table = shifted(table)
        for low in range(0, len(rows), ASKED):
            part = slice(low, low + ASKED)
            scores = _scores(table, a[part], b[part], c[part], by)
            if exclude:
                own = slice(*np.searchsorted(struck, (low, low + ASKED)))
                _strike(scores, struck[own] - low, where[own] - start)
            top = scores.argmax(axis=1)
            value = scores[np.arange(len(top)), top]
            better = value > score[part]
            best[part][better], score[part][better] = top[better] + start, value[better]
        if progress:
            progress(stop, known)
    return best


def _scores(table: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray, by: AnalogyBy) -> np.ndarray:
    """(questions, rows of the block)."""
    scores = table[b]
    if by == "add":
        scores -= table[a]
        scores += table[c]
    else:
        scores *= table[c]
        scores /= table[a] + np.float32(EPSILON)
    return scores


def _strike(scores: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    """No answer may be one of the question's words: these places, as far as this block has them."""
    inside = (columns >= 0) & (columns < scores.shape[1])
    scores[rows[inside], columns[inside]] = -np.inf


def _sum(name: str, sections: Iterable[Section]) -> Section:
    counts = np.array([(each.right, each.asked, each.skipped) for each in sections]).reshape(-1, 3).sum(axis=0)
    return Section(name, *map(int, counts))
