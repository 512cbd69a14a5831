"""How good vectors are: analogies answered, and similarities beside people's judgements.

It knows nothing of training. Only listed words count, even where n-grams could compose others, so that figures of
different vectors compare. A word of a file is looked up as it stands there, then in lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from seqwise.data.reading import BOM, check_text, opened
from seqwise.errors import DataError, UsageError
from seqwise.vectors.keyed import AnalogyBy, KeyedVectors
from seqwise.vectors.search import EPSILON, shifted

TABLE = 1 << 23  # cosines in memory at once: 32 MB
ASKED = 32  # questions answered together: few enough that their scores stay in the cache
FEWEST_ROWS = 64  # of the vocabulary, per block

Progress = Callable[[int, int], None]


class Question(NamedTuple):
    """a is to b as c is to d."""

    section: str
    a: str
    b: str
    c: str
    d: str


class Pair(NamedTuple):
    """Two words and how alike people found them."""

    a: str
    b: str
    score: float


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


def recognise(path: str | Path) -> Literal["analogies", "similarities"]:
    """Which of the two a file holds, by its first lines."""
    path = Path(path)
    for line, text in _lines(path):
        fields = _fields(text)
        if text.startswith(":") or len(fields) == 4:
            return "analogies"
        if len(fields) == 3 and _number(fields[2]) is not None:
            return "similarities"
        if line > 2:
            break
    raise DataError(
        "expected four words per line (analogies), or two words and a number (similarities).",
        repair="Give a file like questions-words.txt or wordsim353.tsv.",
        file=path,
    )


def read_analogies(path: str | Path) -> list[Question]:
    """Lines of four words; a line ": name" begins a section."""
    path, section, questions = Path(path), "all", []
    for line, text in _lines(path):
        if text.startswith(":"):
            section = text[1:].strip() or "all"
            continue
        words = text.split()
        if len(words) != 4:
            repair = "Write a b c d: a is to b as c is to d."
            raise DataError(f"expected four words; found {len(words)}.", repair=repair, file=path, line=line)
        questions.append(Question(section, *words))
    return _some(questions, path)


def read_similarities(path: str | Path) -> list[Pair]:
    """Lines of two words and a number, parted by tabs, commas or blanks; a first line of names is passed over."""
    path, pairs = Path(path), []
    for place, (line, text) in enumerate(_lines(path)):
        fields = _fields(text)
        score = _number(fields[2]) if len(fields) == 3 else None
        if score is not None:
            pairs.append(Pair(fields[0], fields[1], score))
        elif place > 0 or len(fields) != 3:
            raise DataError(
                f"expected two words and a number; found {text[:40]!r}.",
                repair="Part them by tabs: tiger<TAB>cat<TAB>7.35",
                file=path,
                line=line,
            )
    return _some(pairs, path)


def evaluate_analogies(
    keyed: KeyedVectors,
    questions: Sequence[Question],
    restrict: int = 300_000,
    by: AnalogyBy = "add",
    exclude: bool = True,
    progress: Progress | None = None,
) -> Analogies:
    """Ask all questions; only the `restrict` most frequent words are known and can be answers.

    With `exclude` the three words of a question are no answers.
    """
    if by not in ("add", "multiply"):
        raise UsageError(f"by: expected add or multiply; received {by!r}.")
    if restrict < 1:
        raise UsageError(f"restrict: expected at least 1 word; received {restrict:,}.")
    known = min(restrict, len(keyed))
    rows = np.array([[_row(keyed, word, known) for word in question[1:]] for question in questions], dtype=np.int64)
    rows = rows.reshape(-1, 4)  # also where there is none
    asked = (rows >= 0).all(axis=1)
    right = np.zeros(len(rows), dtype=np.bool_)
    right[asked] = _answers(keyed, rows[asked, :3], known, by, exclude, progress) == rows[asked, 3]
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
    rows = np.array([[_row(keyed, word, len(keyed)) for word in pair[:2]] for pair in pairs])
    used = (rows >= 0).all(axis=1)
    first, second = rows[used].T
    dots = np.einsum("ij,ij->i", keyed.matrix[first], keyed.matrix[second])
    cosines = (dots / keyed.lengths[first] / keyed.lengths[second]).astype(np.float64)
    people = np.array([pair.score for pair in pairs])[used]
    spearman, pearson = _correlation(ranks(people), ranks(cosines)), _correlation(people, cosines)
    return Similarities(spearman, pearson, len(people), len(pairs))


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
    keyed: KeyedVectors, rows: np.ndarray, known: int, by: AnalogyBy, exclude: bool, progress: Progress | None
) -> np.ndarray:
    """The best row for each question (a, b, c), each a row number.

    Questions repeat their words: some thousand share some hundred. Their cosines to a block of the vocabulary are one
    matrix product, and a question's scores three rows of it added (or multiplied): 3CosAdd is cos b - cos a + cos c
    up to a factor that does not change which is best.
    """
    words, inverse = np.unique(rows, return_inverse=True)
    a, b, c = inverse.reshape(-1, 3).T
    queries = keyed.matrix[words] / keyed.lengths[words, None]
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
                _strike(scores, rows[part] - start)
            own = scores.argmax(axis=1)
            value = scores[np.arange(len(own)), own]
            better = value > score[part]
            best[part][better], score[part][better] = own[better] + start, value[better]
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


def _strike(scores: np.ndarray, columns: np.ndarray) -> None:
    """No answer may be one of the question's words: `columns` of each row, as far as this block has them."""
    inside = (columns >= 0) & (columns < scores.shape[1])
    scores[np.nonzero(inside)[0], columns[inside]] = -np.inf


def _row(keyed: KeyedVectors, word: str, known: int) -> int:
    """The row of a word as it stands or in lower case; -1 for one that is not among the first `known`."""
    for form in (word, word.lower()):
        if form in keyed and (row := keyed.index(form)) < known:
            return row
    return -1


def _sum(name: str, sections: Iterable[Section]) -> Section:
    counts = np.array([(each.right, each.asked, each.skipped) for each in sections]).reshape(-1, 3).sum(axis=0)
    return Section(name, *map(int, counts))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines that are neither blank nor a remark."""
    offset = 0
    with opened(path) as file:
        for number, data in enumerate(file, start=1):
            check_text(data, offset, number, path)
            text = data.removeprefix(BOM if not offset else b"").decode().strip()
            offset += len(data)
            if text and not text.startswith("#"):
                yield number, text


def _fields(text: str) -> list[str]:
    for mark in "\t,":
        if mark in text:
            return [field.strip() for field in text.split(mark)]
    return text.split()


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _some(found: list, path: Path) -> list:
    if not found:
        raise DataError("there is no question in it.", repair="Give a file with one per line.", file=path)
    return found
