"""Which method places a rare word better: skip-gram or CBOW?

    python benchmarks/rare_words.py                                 # all rows, three seeds, all processors
    python benchmarks/rare_words.py --rows skipgram,skipgram@0.05 --threads 1     # two learning rates
    python benchmarks/rare_words.py CORPUS --tests FILE …           # other text, other pairs of words

Reads $SEQWISE_DATA/reviews and $SEQWISE_DATA/vectors-eval unless told otherwise.

Real rare words have no known right place, so some are made. Words that occur 1,000 to 10,000 times are drawn by chance,
and for each of them some occurrences, also drawn by chance, are renamed: `river` becomes `river~` in 5, 10, 20, 50, 100
or 200 places. Such a twin is a word as rare as that, with the meaning of a frequent one. Measured is where it ends up:
the share of twins whose nearest word is the original, among all words and among the frequent ones alone; the mean of
1/rank of the original among all words; the mean cosine. All rows of a seed have the same twins.

Rare words can also be near each other for no other reason than that they are rare: the mean cosine of two words that
occur 5 to 9 times tells. The last tables are about real words: Spearman's correlation with people's judgements, by how
often the rarer word of a pair occurs. ± is half of the distance between the highest and the lowest seed; it does not
say what other pairs would give.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.data.corpus.sources import open_unsplit
from seqwise.vectors.corpus import Sentences, Vocabulary, choose_tokenizer, read_sentences
from seqwise.vectors.evaluation import Pair, detect_kind, evaluate_similarities, read_similarities
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.settings import ResolvedVectorSettings, VectorSettings
from seqwise.vectors.word2vec.cpu_trainer import Word2VecTrainer

LEAST, MOST = 1_000, 10_000  # occurrences of the originals; subsampling begins to drop words that are more frequent
NUMBERS = (5, 10, 20, 50, 100, 200)  # occurrences of the twins
BANDS = (5, 20, 100, 300)  # the rarer word of a pair occurs as often as this, and less often than the next
RARE = (5, 9)  # occurrences of the words that are compared with each other
MARK = "~"

ROWS: dict[str, dict[str, Any]] = {
    "skipgram": {"method": "skipgram"},
    "cbow": {"method": "cbow"},
    "cbow-as-gensim": {"method": "cbow", "update": "gensim"},
}
MEASURES = {
    "first": "share of twins whose nearest word is the original",
    "reciprocal": "mean of 1/rank of the original",
    "among_frequent": f"share of twins whose nearest word of those that occur {LEAST:,} times or more is the original",
    "cosine": "mean cosine of twin and original",
}


@dataclass(frozen=True)
class Twins:
    """Rows of the vocabulary, and how often each twin occurs."""

    rows: np.ndarray
    originals: np.ndarray
    numbers: np.ndarray


def with_twins(sentences: Sentences, words: int, seed: int) -> tuple[Sentences, Twins]:
    """The same corpus, with some occurrences of some words renamed."""
    ids, random = np.concatenate(list(sentences.blocks())), np.random.default_rng(seed)
    vocabulary, size = sentences.vocabulary, len(sentences.vocabulary)
    chosen = random.permutation(_originals(vocabulary, words))[:words]
    numbers = np.array([NUMBERS[at % len(NUMBERS)] for at in range(words)])
    order = np.argsort(ids, kind="stable")  # places by word
    begin = np.searchsorted(ids, chosen, sorter=order)
    for at, (word, number) in enumerate(zip(chosen, numbers)):
        places = order[begin[at] : begin[at] + vocabulary.counts[word]]
        ids[random.choice(places, number, replace=False)] = size + at
    names = [*vocabulary.words, *(vocabulary.words[word] + MARK for word in chosen)]
    counts = np.bincount(ids[ids >= 0], minlength=len(names))
    sorting = np.argsort(-counts, kind="stable")
    rank = np.empty(len(names) + 1, dtype=np.int32)
    rank[sorting], rank[-1] = np.arange(len(names)), -1  # the end of a sentence stays what it is
    file = tempfile.TemporaryFile()  # noqa: SIM115  the sentences close it
    file.write(rank[ids].data)
    file.flush()
    renamed = Vocabulary([names[number] for number in sorting], counts[sorting], vocabulary.num_different + words)
    twins = Twins(rank[size + np.arange(words)], rank[chosen], numbers)
    return Sentences(file, renamed, sentences.words, len(ids)), twins


def _originals(vocabulary: Vocabulary, words: int) -> np.ndarray:
    fit = np.flatnonzero((vocabulary.counts >= LEAST) & (vocabulary.counts <= MOST))
    taken = {word for word in vocabulary.words if word.endswith(MARK)}
    fit = np.array([row for row in fit if vocabulary.words[row] + MARK not in taken], dtype=np.int64)
    if len(fit) < words:
        sys.exit(f"{len(fit):,} words occur {LEAST:,} to {MOST:,} times, not {words:,}: take fewer with --words.")
    return fit


def placed(keyed: KeyedVectors, twins: Twins) -> list[dict[str, float]]:
    """One line per number of occurrences: how near the twins are to their originals."""
    units = keyed.matrix / keyed.norms[:, None]
    scores, each = units[twins.rows] @ units.T, np.arange(len(twins.rows))
    own = scores[each, twins.originals].copy()
    scores[each, twins.rows] = -np.inf  # a word is not its own neighbour
    above = scores > own[:, None]
    ranks = 1 + above.sum(axis=1)
    among = 1 + above[:, keyed.counts >= LEAST].sum(axis=1)
    lines = []
    for number in NUMBERS:
        those = twins.numbers == number
        lines.append(
            {
                "occurrences": number,
                "twins": int(those.sum()),
                "first": float((ranks[those] == 1).mean()),
                "among_frequent": float((among[those] == 1).mean()),
                "reciprocal": float((1 / ranks[those]).mean()),
                "cosine": float(own[those].mean()),
            }
        )
    return lines


def crowd(keyed: KeyedVectors) -> tuple[float | None, int]:
    """The mean cosine of two rare words, and how many words these are."""
    assert keyed.counts is not None
    rare = (keyed.counts >= RARE[0]) & (keyed.counts <= RARE[1])
    number, middle = int(rare.sum()), (keyed.matrix[rare] / keyed.norms[rare, None]).sum(axis=0, dtype=np.float64)
    # The square of the sum holds each word's cosine with itself too, which is 1.
    return (float(middle @ middle - number) / (number * (number - 1)) if number > 1 else None), number


def bands_of(keyed: KeyedVectors, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """One line per band: Spearman's correlation over the pairs whose rarer word is in it."""
    assert keyed.counts is not None
    counts = dict(zip(keyed.words, keyed.counts.tolist()))
    rarer = [min(counts.get(word, counts.get(word.lower(), 0)) for word in pair[:2]) for pair in pairs]
    lines = []
    for least, behind in zip(BANDS, (*BANDS[1:], sys.maxsize)):
        those = [pair for pair, count in zip(pairs, rarer) if least <= count < behind]
        spearman = evaluate_similarities(keyed, those).spearman if those else None
        lines.append({"least": least, "pairs": len(those), "spearman": spearman})
    return lines


def resolve_row(row: str, **more: Any) -> ResolvedVectorSettings:
    """Those of `cbow`, or of `cbow@0.1`, which has another learning rate."""
    name, _, rate = row.partition("@")
    if name not in ROWS:
        sys.exit(f"there is no row {name}: take of {', '.join(ROWS)}.")
    return VectorSettings(**ROWS[name], learning_rate=float(rate) if rate else None, **more).resolve()


def measure(row: str, sentences: Sentences, twins: Twins, tests: Sequence[Path], seed: int, threads: int) -> dict:
    """Train a row and ask its vectors."""
    trainer = Word2VecTrainer(sentences, resolve_row(row, seed=seed, device="cpu", threads=threads))
    speed = 0.0
    for step in trainer.steps():
        speed = step.speed
    keyed = KeyedVectors(sentences.vocabulary.words, trainer.vectors(), sentences.vocabulary.counts)
    together, rare = crowd(keyed)
    return {
        "row": row,
        "seed": seed,
        "words_per_second": speed,
        "crowd": together,
        "rare": rare,
        "twins": placed(keyed, twins),
        "bands": {test.name.partition(".")[0]: bands_of(keyed, read_similarities(test)) for test in tests},
    }


def spread(values: Sequence[float | None]) -> str:
    """Mean ± half of the distance between the largest and the smallest."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{statistics.mean(known):.3f} ±{(max(known) - min(known)) / 2:.3f}"


def cells(values: Sequence[str], rows: Sequence[str]) -> str:
    """A line of a table, each cell under the name of its row."""
    return "".join(f"{value:>{max(15, len(row) + 2)}}" for value, row in zip(values, rows))


def print_twins(found: dict[str, list[dict[str, Any]]]) -> None:
    rows, first = list(found), next(iter(found.values()))
    for key, meaning in MEASURES.items():
        print(f"{meaning}\n{'occurrences':<12}{'twins':>6}{cells(rows, rows)}")
        for at, number in enumerate(NUMBERS):
            values = [spread([one["twins"][at][key] for one in found[row]]) for row in rows]
            print(f"{number:<12}{sum(one['twins'][at]['twins'] for one in first):>6}{cells(values, rows)}")
        print()
    print(f"mean cosine of two rare words\n{'occurrences':<12}{'words':>6}{cells(rows, rows)}")
    values = [spread([one["crowd"] for one in found[row]]) for row in rows]
    print(f"{f'{RARE[0]} – {RARE[1]}':<12}{first[0]['rare']:>6}{cells(values, rows)}\n")
    speeds = [statistics.median(one["words_per_second"] for one in found[row]) for row in rows]
    print(f"{'words per second':<18}{cells([format(speed, ',.0f') for speed in speeds], rows)}")


def print_bands(found: dict[str, list[dict[str, Any]]]) -> None:
    rows, first = list(found), next(iter(found.values()))[0]
    for test, lines in first["bands"].items():
        print(f"\nSpearman, {test}\n{'rarer word':<12}{'pairs':>6}{cells(rows, rows)}")
        for at, line in enumerate(lines):
            name = f"{BANDS[at]} – {BANDS[at + 1] - 1}" if at + 1 < len(BANDS) else f"{BANDS[at]} –"
            values = [spread([one["bands"][test][at]["spearman"] for one in found[row]]) for row in rows]
            print(f"{name:<12}{line['pairs']:>6}{cells(values, rows)}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path)
    parser.add_argument("--words", type=int, default=480, help="twins, the same number for each number of occurrences")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", default=",".join(ROWS), help="method, or method@rate for another learning rate")
    parser.add_argument("--tests", type=Path, nargs="*", help="files of two words and a number per line")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the tables")
    asked = parser.parse_args(arguments)
    if asked.words < len(NUMBERS):
        parser.error(f"--words: expected a twin for each of {len(NUMBERS)} numbers of occurrences; got {asked.words}")
    data = os.environ.get("SEQWISE_DATA")
    if asked.corpus is None and data is None:
        print("skipped: no corpus. Name a text file, or set SEQWISE_DATA.")
        return
    tests = asked.tests
    if tests is None:
        there = sorted(Path(data, "vectors-eval").iterdir()) if data else []
        tests = [test for test in there if detect_kind(test) == "similarities"]
    rows = []
    corpus = asked.corpus or Path(data or "", "reviews", "unlabelled.txt.gz")
    source = open_unsplit(corpus)
    tokenizer, _ = choose_tokenizer(source, None)
    with read_sentences(source, tokenizer) as sentences:
        for seed in range(1, asked.seeds + 1):
            renamed, twins = with_twins(sentences, asked.words, seed)
            with renamed:
                for row in asked.rows.split(","):
                    rows.append(measure(row, renamed, twins, tests, seed, asked.threads))
                    print(f"{row}, seed {seed}: {rows[-1]['words_per_second']:,.0f} words/s", file=sys.stderr)
    if asked.json:
        print(json.dumps({"rows": rows}, indent=1))
        return
    found = {row: [one for one in rows if one["row"] == row] for row in asked.rows.split(",")}
    print_twins(found)
    print_bands(found)


if __name__ == "__main__":
    main()
