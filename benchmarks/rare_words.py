"""Quality of the vectors of rare words: skip-gram compared with CBOW.

    python benchmarks/rare_words.py                                 # all rows, three seeds, all processors
    python benchmarks/rare_words.py --rows skipgram,skipgram@0.05 --threads 1     # two learning rates
    python benchmarks/rare_words.py CORPUS --tests FILE …           # other text, other pairs of words

The defaults are $SEQWISE_DATA/reviews and $SEQWISE_DATA/vectors-eval.

Real rare words have no known nearest neighbour, so the script creates some. Words that occur 1,000 to 10,000 times are
drawn at random, and some random occurrences of each are renamed: `river` becomes `river~` at 5, 10, 20, 50, 100 or 200
positions. Such a twin is a rare word with the meaning of a frequent one. The script reports the share of twins whose
nearest word is the original, among all words and among the frequent ones; the mean reciprocal rank of the original; and
the mean cosine. All rows of a seed have the same twins.

Rare words can be close to each other only because they are rare: the mean cosine of two words that occur 5 to 9 times
measures it. The last tables are about real words: Spearman's correlation with human similarity scores, by the frequency
of the rarer word of a pair. ± is half of the range over the seeds; it does not include the variance over pairs.
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
from seqwise.vectors.corpus import EncodedCorpus, Vocabulary, choose_tokenizer, encode_corpus
from seqwise.vectors.evaluation import Pair, detect_kind, evaluate_similarities, read_similarities
from seqwise.vectors.keyed import KeyedVectors
from seqwise.vectors.settings import ResolvedVectorSettings, VectorSettings
from seqwise.vectors.word2vec.trainer import Word2VecTrainer

MIN_COUNT, MAX_COUNT = 1_000, 10_000  # of the originals; subsampling drops occurrences of more frequent words
TWIN_COUNTS = (5, 10, 20, 50, 100, 200)  # occurrences of the twins
BANDS = (5, 20, 100, 300)  # lower limits of the frequency of the rarer word of a pair
RARE_COUNTS = (5, 9)  # occurrences of the words that are compared with each other
SUFFIX = "~"

ROWS: dict[str, dict[str, Any]] = {
    "skipgram": {"method": "skipgram"},
    "cbow": {"method": "cbow"},
    "cbow-as-gensim": {"method": "cbow", "update": "gensim"},
}
MEASURES = {
    "first": "share of twins whose nearest word is the original",
    "reciprocal": "mean of 1/rank of the original",
    "among_frequent": (
        f"share of twins whose nearest word of those that occur {MIN_COUNT:,} times or more is the original"
    ),
    "cosine": "mean cosine of twin and original",
}


@dataclass(frozen=True)
class Twins:
    """Rows of the twins and originals in the vocabulary, and the number of occurrences of each twin."""

    rows: np.ndarray
    originals: np.ndarray
    counts: np.ndarray


def create_twins(corpus: EncodedCorpus, num_twins: int, seed: int) -> tuple[EncodedCorpus, Twins]:
    """Returns the corpus with some occurrences of some words renamed, and the twins."""
    ids, random = np.concatenate(list(corpus.iterate_blocks())), np.random.default_rng(seed)
    vocabulary, size = corpus.vocabulary, len(corpus.vocabulary)
    originals = random.permutation(_find_candidates(vocabulary, num_twins))[:num_twins]
    twin_counts = np.array([TWIN_COUNTS[index % len(TWIN_COUNTS)] for index in range(num_twins)])
    by_word = np.argsort(ids, kind="stable")  # positions sorted by word
    starts = np.searchsorted(ids, originals, sorter=by_word)
    for index, (word, twin_count) in enumerate(zip(originals, twin_counts)):
        positions = by_word[starts[index] : starts[index] + vocabulary.counts[word]]
        ids[random.choice(positions, twin_count, replace=False)] = size + index
    names = [*vocabulary.words, *(vocabulary.words[word] + SUFFIX for word in originals)]
    counts = np.bincount(ids[ids >= 0], minlength=len(names))
    by_frequency = np.argsort(-counts, kind="stable")
    rank = np.empty(len(names) + 1, dtype=np.int32)
    rank[by_frequency], rank[-1] = np.arange(len(names)), -1  # -1, the end of a sentence, is unchanged
    file = tempfile.TemporaryFile()  # noqa: SIM115  `EncodedCorpus` closes it
    file.write(rank[ids].data)
    file.flush()
    sorted_names = [names[row] for row in by_frequency]
    renamed = Vocabulary(sorted_names, counts[by_frequency], vocabulary.num_distinct + num_twins)
    twins = Twins(rank[size + np.arange(num_twins)], rank[originals], twin_counts)
    return EncodedCorpus(file, renamed, corpus.num_words, len(ids)), twins


def _find_candidates(vocabulary: Vocabulary, num_twins: int) -> np.ndarray:
    """Returns the rows of the words that may become originals; exits with a message if there are too few."""
    candidates = np.flatnonzero((vocabulary.counts >= MIN_COUNT) & (vocabulary.counts <= MAX_COUNT))
    existing = {word for word in vocabulary.words if word.endswith(SUFFIX)}
    candidates = np.array([row for row in candidates if vocabulary.words[row] + SUFFIX not in existing], dtype=np.int64)
    if len(candidates) < num_twins:
        found = f"{len(candidates):,} words occur {MIN_COUNT:,} to {MAX_COUNT:,} times"
        sys.exit(f"{found}, expected {num_twins:,}: reduce --words.")
    return candidates


def evaluate_twins(keyed: KeyedVectors, twins: Twins) -> list[dict[str, float]]:
    """Returns the measures of the twins, one line per number of occurrences."""
    units = keyed.matrix / keyed.norms[:, None]
    scores, indices = units[twins.rows] @ units.T, np.arange(len(twins.rows))
    cosines = scores[indices, twins.originals].copy()
    scores[indices, twins.rows] = -np.inf  # a word is not its own neighbour
    above = scores > cosines[:, None]
    ranks = 1 + above.sum(axis=1)
    frequent_ranks = 1 + above[:, keyed.counts >= MIN_COUNT].sum(axis=1)
    lines = []
    for number in TWIN_COUNTS:
        selected = twins.counts == number
        lines.append(
            {
                "occurrences": number,
                "twins": int(selected.sum()),
                "first": float((ranks[selected] == 1).mean()),
                "among_frequent": float((frequent_ranks[selected] == 1).mean()),
                "reciprocal": float((1 / ranks[selected]).mean()),
                "cosine": float(cosines[selected].mean()),
            }
        )
    return lines


def compute_rare_cosine(keyed: KeyedVectors) -> tuple[float | None, int]:
    """Returns the mean cosine of two rare words, and the number of rare words."""
    assert keyed.counts is not None
    rare = (keyed.counts >= RARE_COUNTS[0]) & (keyed.counts <= RARE_COUNTS[1])
    number, total = int(rare.sum()), (keyed.matrix[rare] / keyed.norms[rare, None]).sum(axis=0, dtype=np.float64)
    # The square of the sum includes each word's cosine with itself, which is 1.
    return (float(total @ total - number) / (number * (number - 1)) if number > 1 else None), number


def evaluate_bands(keyed: KeyedVectors, pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Returns one line per frequency band: Spearman's correlation of the pairs whose rarer word is in it."""
    assert keyed.counts is not None
    counts = dict(zip(keyed.words, keyed.counts.tolist()))
    rarer = [min(counts.get(word, counts.get(word.lower(), 0)) for word in pair[:2]) for pair in pairs]
    lines = []
    for min_count, end in zip(BANDS, (*BANDS[1:], sys.maxsize)):
        selected = [pair for pair, count in zip(pairs, rarer) if min_count <= count < end]
        spearman = evaluate_similarities(keyed, selected).spearman if selected else None
        lines.append({"min_count": min_count, "pairs": len(selected), "spearman": spearman})
    return lines


def resolve_row(row: str, **more: Any) -> ResolvedVectorSettings:
    """Returns the settings of a row such as `cbow`, or `cbow@0.1` with another learning rate."""
    name, _, rate = row.partition("@")
    if name not in ROWS:
        sys.exit(f"there is no row {name}: expected one of {', '.join(ROWS)}.")
    return VectorSettings(**ROWS[name], learning_rate=float(rate) if rate else None, **more).resolve()


def measure(row: str, corpus: EncodedCorpus, twins: Twins, tests: Sequence[Path], seed: int, threads: int) -> dict:
    """Trains a row and evaluates its vectors."""
    trainer = Word2VecTrainer(corpus, resolve_row(row, seed=seed, device="cpu", threads=threads))
    speed = 0.0
    for step in trainer.steps():
        speed = step.speed
    keyed = KeyedVectors(corpus.vocabulary.words, trainer.export_vectors(), corpus.vocabulary.counts)
    rare_cosine, num_rare = compute_rare_cosine(keyed)
    return {
        "row": row,
        "seed": seed,
        "words_per_second": speed,
        "rare_cosine": rare_cosine,
        "num_rare": num_rare,
        "twins": evaluate_twins(keyed, twins),
        "bands": {test.name.partition(".")[0]: evaluate_bands(keyed, read_similarities(test)) for test in tests},
    }


def format_spread(values: Sequence[float | None]) -> str:
    """Returns mean ± half of the range."""
    values = [value for value in values if value is not None]
    if not values:
        return "–"
    return f"{statistics.mean(values):.3f} ±{(max(values) - min(values)) / 2:.3f}"


def format_cells(values: Sequence[str], rows: Sequence[str]) -> str:
    """Returns the cells of a line, each under the name of its row."""
    return "".join(f"{value:>{max(15, len(row) + 2)}}" for value, row in zip(values, rows))


def print_twins(results: dict[str, list[dict[str, Any]]]) -> None:
    rows, first = list(results), next(iter(results.values()))
    for key, meaning in MEASURES.items():
        print(f"{meaning}\n{'occurrences':<12}{'twins':>6}{format_cells(rows, rows)}")
        for index, number in enumerate(TWIN_COUNTS):
            values = [format_spread([run["twins"][index][key] for run in results[row]]) for row in rows]
            print(f"{number:<12}{sum(run['twins'][index]['twins'] for run in first):>6}{format_cells(values, rows)}")
        print()
    print(f"mean cosine of two rare words\n{'occurrences':<12}{'words':>6}{format_cells(rows, rows)}")
    values = [format_spread([run["rare_cosine"] for run in results[row]]) for row in rows]
    print(f"{f'{RARE_COUNTS[0]} – {RARE_COUNTS[1]}':<12}{first[0]['num_rare']:>6}{format_cells(values, rows)}\n")
    speeds = [statistics.median(run["words_per_second"] for run in results[row]) for row in rows]
    print(f"{'words per second':<18}{format_cells([format(speed, ',.0f') for speed in speeds], rows)}")


def print_bands(results: dict[str, list[dict[str, Any]]]) -> None:
    rows, first = list(results), next(iter(results.values()))[0]
    for test, lines in first["bands"].items():
        print(f"\nSpearman, {test}\n{'rarer word':<12}{'pairs':>6}{format_cells(rows, rows)}")
        for index, line in enumerate(lines):
            name = f"{BANDS[index]} – {BANDS[index + 1] - 1}" if index + 1 < len(BANDS) else f"{BANDS[index]} –"
            values = [format_spread([run["bands"][test][index]["spearman"] for run in results[row]]) for row in rows]
            print(f"{name:<12}{line['pairs']:>6}{format_cells(values, rows)}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path)
    parser.add_argument("--words", type=int, default=480, help="twins, the same number for each number of occurrences")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", default=",".join(ROWS), help="method, or method@rate for another learning rate")
    parser.add_argument("--tests", type=Path, nargs="*", help="files of two words and a number per line")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the tables")
    options = parser.parse_args(arguments)
    if options.words < len(TWIN_COUNTS):
        parser.error(
            f"--words: expected a twin for each of {len(TWIN_COUNTS)} numbers of occurrences; got {options.words}"
        )
    data = os.environ.get("SEQWISE_DATA")
    if options.corpus is None and data is None:
        print("skipped: no corpus. Name a text file, or set SEQWISE_DATA.")
        return
    tests = options.tests
    if tests is None:
        files = sorted(Path(data, "vectors-eval").iterdir()) if data else []
        tests = [test for test in files if detect_kind(test) == "similarities"]
    rows = []
    source = open_unsplit(options.corpus or Path(data or "", "reviews", "unlabelled.txt.gz"))
    tokenizer, _ = choose_tokenizer(source, None)
    with encode_corpus(source, tokenizer) as corpus:
        for seed in range(1, options.seeds + 1):
            renamed, twins = create_twins(corpus, options.words, seed)
            with renamed:
                for row in options.rows.split(","):
                    rows.append(measure(row, renamed, twins, tests, seed, options.threads))
                    print(f"{row}, seed {seed}: {rows[-1]['words_per_second']:,.0f} words/s", file=sys.stderr)
    if options.json:
        print(json.dumps({"rows": rows}, indent=1))
        return
    results = {row: [run for run in rows if run["row"] == row] for row in options.rows.split(",")}
    print_twins(results)
    print_bands(results)


if __name__ == "__main__":
    main()
