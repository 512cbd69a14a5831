"""Intrinsic evaluation of word vectors: accuracy on analogies, and correlation with human similarity scores.

It knows nothing of training. Only words of the vocabulary count as known, even if n-grams could compose others, so that
the results of different vectors are comparable. A word is looked up as it is written, then in lower case, then in any
case, where the most frequent spelling is used. Answers are compared ignoring case, as in gensim: IRAQ is as correct as
Iraq.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from seqwise.callbacks import ProgressCallback
from seqwise.data.encodings import BOM, check_utf8
from seqwise.data.limits import read_lines
from seqwise.data.opening import open_binary
from seqwise.errors import DataError, UsageError
from seqwise.vectors.keyed import AnalogyMethod, KeyedVectors
from seqwise.vectors.search import EPSILON, MAX_COSINES, shift_cosines

SAMPLE_LINES = 3  # lines from which the kind of a test is detected; the first may name the columns
SCORE_COLUMNS = ("simlex999", "human (mean)", "score", "similarity", "relatedness", "human", "mean", "rating")
BATCH_QUESTIONS = 32  # questions answered at once: few enough that their scores stay in the cache
MIN_BLOCK_ROWS = 64  # rows of the vocabulary in a block


class Question(NamedTuple):
    """a is to b as c is to d."""

    section: str
    a: str
    b: str
    c: str
    d: str


class Pair(NamedTuple):
    """Two words and their similarity as judged by people."""

    a: str
    b: str
    score: float


@dataclass(frozen=True)
class SectionResult:
    """The results of a section of questions. Questions with an unknown word are skipped, all others answered."""

    name: str
    num_correct: int
    num_answered: int
    num_skipped: int

    @property
    def accuracy(self) -> float | None:
        """The share of the answers that are correct; None if no question was answered."""
        return self.num_correct / self.num_answered if self.num_answered else None

    def to_json(self) -> dict[str, Any]:
        counts = {"right": self.num_correct, "asked": self.num_answered, "skipped": self.num_skipped}
        return {"name": self.name, **counts, "accuracy": self.accuracy}


@dataclass(frozen=True)
class AnalogyResult:
    """The results on a file of analogies."""

    kind: ClassVar = "analogies"
    sections: tuple[SectionResult, ...]

    @property
    def total(self) -> SectionResult:
        counts = [(each.num_correct, each.num_answered, each.num_skipped) for each in self.sections]
        return SectionResult("total", *map(int, np.array(counts).reshape(-1, 3).sum(axis=0)))

    @property
    def num_known(self) -> int:
        """The number of questions of which all words are known."""
        return self.total.num_answered

    def to_json(self) -> dict[str, Any]:
        return {"sections": [each.to_json() for each in self.sections], "total": self.total.to_json()}


@dataclass(frozen=True)
class SimilarityResult:
    """The correlations of cosines with human scores; None with fewer than two known pairs, or if all are equal."""

    kind: ClassVar = "similarities"
    spearman: float | None
    pearson: float | None
    num_known: int  # pairs of which both words are known
    num_pairs: int

    @property
    def coverage(self) -> float:
        return self.num_known / self.num_pairs

    def to_json(self) -> dict[str, Any]:
        correlations = {"spearman": self.spearman, "pearson": self.pearson}
        return {**correlations, "used": self.num_known, "pairs": self.num_pairs, "coverage": self.coverage}


def read_test(path: str | Path) -> list[Question] | list[Pair]:
    """Reads a file of analogies or similarities; its content determines which."""
    return read_analogies(path) if detect_kind(path) == "analogies" else read_similarities(path)


def detect_kind(path: str | Path) -> Literal["analogies", "similarities"]:
    """Returns which kind of test a file holds, judged by its first lines."""
    lines = [text for _, text in islice(_read_lines(path), SAMPLE_LINES)]
    rows = [_split_fields(text) for text in lines]
    rows = rows[1:] if rows and _find_score_column(rows[0]) is not None else rows
    if any(text.startswith(":") for text in lines):
        return "analogies"
    # A number in place of the second word means that this is a file of vectors.
    if any(_find_number_column(row) is not None and _parse_number(row[1]) is None for row in rows):
        return "similarities"
    if any(len(row) == 4 for row in rows):
        return "analogies"
    problem = "expected four words per line (analogies), or two words and a number (similarities)."
    raise DataError(problem, fix="Give a file like questions-words.txt or wordsim353.tsv.", file=path)


def read_analogies(path: str | Path) -> list[Question]:
    """Reads lines of four words; a line ": name" begins a section."""
    section, questions = "all", []
    for line, text in _read_lines(path):
        if text.startswith(":"):
            section = text[1:].strip() or "all"
            continue
        words = _split_fields(text)
        if len(words) != 4:
            fix = "Write a b c d: a is to b as c is to d."
            raise DataError(f"expected four words; found {len(words)}.", fix=fix, file=path, line=line)
        questions.append(Question(section, *words))
    return _require_nonempty(questions, path)


def read_similarities(path: str | Path) -> list[Pair]:
    """Reads lines of two words and a score, separated by tabs, commas or whitespace.

    If the first line names the columns, the name of one of them says that it is the score. Otherwise the score is the
    third column, or the fourth after a part of speech.
    """
    pairs, column = [], None
    for index, (line, text) in enumerate(_read_lines(path)):
        fields = _split_fields(text)
        if index == 0 and (column := _find_score_column(fields)) is not None:
            continue
        column = _find_number_column(fields) if column is None else column
        score = _parse_number(fields[column]) if column is not None and column < len(fields) else None
        if score is not None:
            pairs.append(Pair(fields[0], fields[1], score))
        elif index > 0 or len(fields) < 3:
            problem = f"expected two words and a number; found {text[:40]!r}."
            raise DataError(problem, fix="Separate them by tabs: tiger<TAB>cat<TAB>7.35", file=path, line=line)
    return _require_nonempty(pairs, path)


def _require_nonempty(items: list, path: str | Path) -> list:
    if not items:
        raise DataError("the file contains no questions or pairs.", fix="Give a file with one per line.", file=path)
    return items


def _find_score_column(fields: Sequence[str]) -> int | None:
    """Returns the column of the scores if these fields are column names; otherwise None."""
    names = [field.casefold() for field in fields]
    return next((names.index(name, 2) for name in SCORE_COLUMNS if name in names[2:]), None)


def _find_number_column(fields: Sequence[str]) -> int | None:
    """Returns the column of the score in a file without column names: after both words, or after a part of speech."""
    return next(
        (column for column in (2, 3) if column < len(fields) and _parse_number(fields[column]) is not None), None
    )


def _read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yields (line number, text) of the lines that are neither blank nor a comment."""
    path, offset = Path(path), 0
    with open_binary(path) as file:
        for line, data in enumerate(read_lines(file, path), start=1):
            check_utf8(data, offset, line, path)
            text = data.removeprefix(BOM if not offset else b"").decode().strip()
            offset += len(data)
            if text and not text.startswith("#"):
                yield line, text


def _split_fields(text: str) -> list[str]:
    """Splits at tabs, at commas if there are at least two (one may be a word), otherwise at whitespace."""
    for separator, min_count in (("\t", 1), (",", 2)):
        if text.count(separator) >= min_count:
            return [field.strip() for field in text.split(separator)]
    return text.split()


def _parse_number(text: str) -> float | None:
    """Returns a finite number, or None if the text is anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def evaluate_analogies(
    vectors: KeyedVectors,
    questions: Sequence[Question],
    restrict: int = 300_000,
    by: AnalogyMethod = "add",
    exclude: bool = True,
    progress: ProgressCallback | None = None,
) -> AnalogyResult:
    """Answers questions among the `restrict` most frequent words; with `exclude` not with words of the question.

    A question is skipped if one of its words is not among them.
    """
    if by not in ("add", "multiply"):
        raise UsageError(f"by: expected add or multiply; received {by!r}.")
    if restrict < 1:
        raise UsageError(f"restrict: expected at least 1 word; received {restrict:,}.")
    spelling_index = _SpellingIndex(vectors, min(restrict, len(vectors)))
    find_row = spelling_index.find_row
    rows = np.array([[find_row(word) for word in question[1:]] for question in questions], dtype=np.int64)
    rows = rows.reshape(-1, 4)  # also if there are no questions
    is_answered = (rows >= 0).all(axis=1)
    is_correct = np.zeros(len(rows), dtype=np.bool_)
    answers = _find_answers(vectors, rows[is_answered, :3], spelling_index, by, exclude, progress)
    first_spelling = spelling_index.first_spelling
    is_correct[is_answered] = first_spelling[answers] == first_spelling[rows[is_answered, 3]]
    section_names = np.array([question.section for question in questions], dtype=object)
    sections = []
    for name in dict.fromkeys(section_names.tolist()):
        counts = [int((mask & (section_names == name)).sum()) for mask in (is_correct, is_answered, ~is_answered)]
        sections.append(SectionResult(name, *counts))
    return AnalogyResult(tuple(sections))


def evaluate_similarities(vectors: KeyedVectors, pairs: Sequence[Pair]) -> SimilarityResult:
    """Correlates the cosines of the known pairs with the human scores."""
    if not pairs:
        raise UsageError("expected at least one pair; received none.")
    spelling_index = _SpellingIndex(vectors, len(vectors))
    rows = np.array([[spelling_index.find_row(word) for word in pair[:2]] for pair in pairs])
    is_known = (rows >= 0).all(axis=1)
    unit_vectors = [vectors.matrix[word] / vectors.norms[word, None].astype(np.float64) for word in rows[is_known].T]
    cosines = np.einsum("ij,ij->i", *unit_vectors)
    human_scores = np.array([pair.score for pair in pairs])[is_known]
    spearman = _correlate(compute_ranks(human_scores), compute_ranks(cosines))
    pearson = _correlate(human_scores, cosines)
    return SimilarityResult(spearman, pearson, len(human_scores), len(pairs))


class _SpellingIndex:
    """Finds words among the first `num_rows` rows, also in another case."""

    def __init__(self, vectors: KeyedVectors, num_rows: int):
        self.vectors, self.num_rows = vectors, num_rows
        self._rows: dict[str, int] = {}  # word in upper case → row of its most frequent spelling
        # (num_rows,): for each row the first row whose word is equal ignoring case: the most frequent spelling.
        words = enumerate(vectors.words[:num_rows])
        self.first_spelling = np.array([self._rows.setdefault(word.upper(), row) for row, word in words])

    def find_row(self, word: str) -> int:
        """Returns the row of a word; -1 if it is unknown."""
        for spelling in (word, word.lower()):
            if spelling in self.vectors and (row := self.vectors.index(spelling)) < self.num_rows:
                return row
        return self._rows.get(word.upper(), -1)

    def find_spellings(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns all pairs of a question and a row whose word equals one of the question's three words ignoring case.

        `rows` (N, 3) are the words of the questions; the pairs are two arrays, in the order of the questions.
        """
        first_spelling = self.first_spelling
        order = np.argsort(first_spelling, kind="stable")
        sorted_spelling = first_spelling[order]
        low, high = (np.searchsorted(sorted_spelling, first_spelling[rows], side) for side in ("left", "right"))
        positions = low[..., None] + np.arange(int((high - low).max(initial=0)))
        question, word, spelling = np.nonzero(positions < high[..., None])
        return question, order[positions[question, word, spelling]]


def compute_ranks(values: np.ndarray) -> np.ndarray:
    """Returns ranks from 1; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _correlate(a: np.ndarray, b: np.ndarray) -> float | None:
    """Returns Pearson's correlation, or None if it is not defined."""
    if len(a) < 2:
        return None
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(np.clip(a @ b / scale, -1, 1)) if scale > 0 else None


def _find_answers(
    vectors: KeyedVectors,
    rows: np.ndarray,
    spelling_index: _SpellingIndex,
    by: AnalogyMethod,
    exclude: bool,
    progress: ProgressCallback | None,
) -> np.ndarray:
    """Returns the row of the answer to each question, given the rows (N, 3) of a, b and c.

    Thousands of questions share some hundred words. The cosines of these words to a block of the vocabulary are one
    matrix product, and the scores of a question are three rows of it, added or multiplied: 3CosAdd is
    cos b - cos a + cos c up to a factor that does not change which answer is best.
    """
    words, inverse = np.unique(rows, return_inverse=True)
    a, b, c = inverse.reshape(-1, 3).T
    queries, num_rows = vectors.matrix[words] / vectors.norms[words, None], spelling_index.num_rows
    excluded_questions, excluded_rows = spelling_index.find_spellings(rows)
    answers, best_scores = np.zeros(len(rows), dtype=np.int64), np.full(len(rows), -np.inf, dtype=np.float32)
    block_rows = max(MIN_BLOCK_ROWS, MAX_COSINES // max(len(words), vectors.dim))
    for start in range(0, num_rows if len(rows) else 0, block_rows):
        stop = min(num_rows, start + block_rows)
        cosines = queries @ (vectors.matrix[start:stop] / vectors.norms[start:stop, None]).T
        if by == "multiply":
            cosines = shift_cosines(cosines)
        for first in range(0, len(rows), BATCH_QUESTIONS):
            batch = slice(first, first + BATCH_QUESTIONS)
            scores = cosines[b[batch]]
            if by == "add":
                scores -= cosines[a[batch]]
                scores += cosines[c[batch]]
            else:
                scores *= cosines[c[batch]]
                scores /= cosines[a[batch]] + np.float32(EPSILON)
            if exclude:
                excluded = slice(*np.searchsorted(excluded_questions, (first, first + BATCH_QUESTIONS)))
                columns = excluded_rows[excluded] - start
                is_in_block = (columns >= 0) & (columns < stop - start)
                scores[excluded_questions[excluded][is_in_block] - first, columns[is_in_block]] = -np.inf
            best_columns = scores.argmax(axis=1)
            block_scores = scores[np.arange(len(best_columns)), best_columns]
            is_better = block_scores > best_scores[batch]
            answers[batch][is_better] = best_columns[is_better] + start
            best_scores[batch][is_better] = block_scores[is_better]
        if progress:
            progress(stop, num_rows)
    return answers
