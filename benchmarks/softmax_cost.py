"""Time of negative sampling, hierarchical and full softmax as the vocabulary grows.

    python benchmarks/softmax_cost.py                                          # one thread
    python benchmarks/softmax_cost.py CORPUS --vocabularies 100,1000,10000 --methods skipgram

The default text is $SEQWISE_DATA/reviews. For each size V the vocabulary consists of the V most frequent words; the
others are removed. Frequent words are subsampled beforehand, as in training, so that all losses get the same words.
Each loss then trains on blocks of text that take half a second. Five rounds over all sizes and losses make other load
affect all of them equally; the result is the median, without compilation. 100 dimensions, window 5, 5 negatives.

`rows` is the number of output rows per window: the word and its negatives, the nodes on its path in the tree, or all
words. The exponent is the slope of log time over log V: 0 if time does not depend on V, 1 if it is proportional.

With --quality V, the vectors of skip-gram at that size are compared too: the share of a word's ten nearest words that
are the same as with the full softmax. The full softmax with another seed gives the attainable share.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.data.corpus.sources import open_unsplit
from seqwise.vectors.corpus import EncodedCorpus, Vocabulary, choose_tokenizer, encode_corpus
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.objective import Objective
from seqwise.vectors.word2vec.sampling_tables import compute_keep_thresholds, seed_block
from seqwise.vectors.word2vec.softmax import HierarchicalSoftmax
from seqwise.vectors.word2vec.trainer import Word2VecTrainer, build_objective

LOSSES = ("negative", "hierarchical", "softmax")
MIN_BLOCK_SECONDS, REPEATS = 0.5, 5  # minimum duration of a block, and the number of timed blocks
INITIAL_WORDS = 50  # words of the first block
NUM_NEIGHBOURS = 10
SUBSAMPLE = VectorSettings().subsample


def keep_most_frequent(ids: np.ndarray, vocabulary: Vocabulary, size: int) -> tuple[np.ndarray, Vocabulary]:
    """Returns the text and vocabulary with only the `size` most frequent words."""
    reduced_vocabulary = Vocabulary(vocabulary.words[:size], vocabulary.counts[:size], vocabulary.num_distinct)
    return ids[ids < size], reduced_vocabulary


def subsample(ids: np.ndarray, counts: np.ndarray, num_words: int) -> np.ndarray:
    """Returns the first `num_words` words that subsampling keeps, with the ends of sentences."""
    draws = np.random.default_rng(0).integers(0, 2**32, len(ids), dtype=np.uint32)
    ids = ids[(ids < 0) | (draws <= compute_keep_thresholds(counts, SUBSAMPLE)[ids])]
    last = np.searchsorted(np.cumsum(ids >= 0), num_words, side="left")
    return ids[: last + 1]


class Stopwatch:
    """Times the training of an objective on blocks of a text, in one or several threads."""

    def __init__(self, objective: Objective, text: np.ndarray, threads: int):
        self.objective, self.text, self.threads = objective, text, threads
        self.workspaces = [objective.allocate_workspace() for _ in range(threads)]
        self.tallies = [np.zeros(8) for _ in range(threads)]  # loss, pairs, and padding to a cache line
        self.learning_rate, self.length = objective.settings.learning_rate, INITIAL_WORDS
        self.per_word: list[float] = []
        self.per_pair: list[float] = []

    def train(self, block: np.ndarray, number: int) -> float:
        """Trains on the block in every thread; returns seconds."""

        def train_in_thread(thread: int) -> None:
            state = seed_block(number, thread, 0)
            self.objective.train(block, state, self.learning_rate, self.workspaces[thread], self.tallies[thread])

        workers = [threading.Thread(target=train_in_thread, args=(thread,)) for thread in range(1, self.threads)]
        started_at = time.perf_counter()
        for worker in workers:
            worker.start()
        train_in_thread(0)
        for worker in workers:
            worker.join()
        return time.perf_counter() - started_at

    def prepare(self) -> None:
        """Compiles, and finds the number of words that take long enough."""
        self.train(self.text[:0], 0)
        self.length, seconds = INITIAL_WORDS, self.train(self._get_block(0), 0)
        while seconds < MIN_BLOCK_SECONDS:
            self.length = int(self.length * min(10.0, 1.2 * MIN_BLOCK_SECONDS / seconds) + 1)
            seconds = self.train(self._get_block(0), 0)

    def measure(self, number: int) -> None:
        """Times training on one block."""
        for tally in self.tallies:
            tally[:] = 0
        block = self._get_block(number)
        seconds = self.train(block, number)
        self.per_word.append(seconds / (self.threads * (block >= 0).sum()))
        self.per_pair.append(seconds / max(1.0, sum(tally[1] for tally in self.tallies)))

    def compute_medians(self) -> dict[str, float]:
        return {
            "words_per_second": 1 / statistics.median(self.per_word),
            "microseconds": 1e6 * statistics.median(self.per_pair),
        }

    def _get_block(self, number: int) -> np.ndarray:
        """Returns one block of the text, which wraps around at its end."""
        return np.take(self.text, np.arange(number * self.length, (number + 1) * self.length), mode="wrap")


def count_output_rows(objective: Objective, text: np.ndarray) -> float:
    """Returns the mean number of output rows per window."""
    settings = objective.settings
    if settings.loss == "negative":
        return 1 + settings.negative
    if settings.loss == "softmax":
        return len(objective.counts)
    assert isinstance(objective, HierarchicalSoftmax)
    return float(np.diff(objective.tree.offsets)[text[text >= 0]].mean())


def time_losses(ids: np.ndarray, vocabulary: Vocabulary, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns one line per vocabulary size, method and loss."""
    watches: list[tuple[dict[str, Any], Stopwatch]] = []
    for size in options.vocabularies:
        reduced_ids, reduced_vocabulary = keep_most_frequent(ids, vocabulary, size)
        text = subsample(reduced_ids, reduced_vocabulary.counts, options.words)
        for method in options.methods:
            for loss in LOSSES:
                settings = VectorSettings(method=method, loss=loss, subsample=0, dim=options.dim).resolve()
                objective = build_objective(reduced_vocabulary.words, reduced_vocabulary.counts, settings)
                line = {"vocabulary": size, "method": method, "loss": loss, "rows": count_output_rows(objective, text)}
                watches.append((line, Stopwatch(objective, text, options.threads)))
                watches[-1][1].prepare()
    for number in range(1, REPEATS + 1):
        for _, watch in watches:
            watch.measure(number)
        print(f"round {number} of {REPEATS} finished", file=sys.stderr, flush=True)
    return [{**line, **watch.compute_medians()} for line, watch in watches]


def compute_exponent(lines: Sequence[dict[str, Any]]) -> float | None:
    """Returns the slope of log time over log V."""
    if len(lines) < 2:
        return None
    sizes, times = (np.log([line[key] for line in lines]) for key in ("vocabulary", "microseconds"))
    return float(np.polyfit(sizes, times, 1)[0])


def find_neighbours(text: np.ndarray, vocabulary: Vocabulary, loss: str, seed: int, options: argparse.Namespace) -> Any:
    """Trains on the text; returns the nearest words of each word (V, 10) and the seconds."""
    with tempfile.TemporaryFile() as file:
        file.write(text.data)
        file.flush()
        corpus = EncodedCorpus(file, vocabulary, len(text), len(text))
        settings = VectorSettings(
            loss=loss, seed=seed, dim=options.dim, epochs=options.epochs, subsample=0, threads=options.threads
        )
        trainer = Word2VecTrainer(corpus, settings.resolve())
        started_at = time.perf_counter()
        for _ in trainer.steps():
            pass
        seconds = time.perf_counter() - started_at
    vectors = trainer.export_vectors()
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = units @ units.T
    np.fill_diagonal(scores, -np.inf)
    return np.argsort(-scores, axis=1)[:, :NUM_NEIGHBOURS], seconds


def measure_agreement(ids: np.ndarray, vocabulary: Vocabulary, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns for each loss the share of a word's nearest words that the full softmax has too."""
    reduced_ids, reduced_vocabulary = keep_most_frequent(ids, vocabulary, options.quality)
    text, results = subsample(reduced_ids, reduced_vocabulary.counts, options.words), []
    reference, _ = find_neighbours(text, reduced_vocabulary, "softmax", 1, options)
    for loss in reversed(LOSSES):
        find_neighbours(text[:INITIAL_WORDS], reduced_vocabulary, loss, 2, options)  # compiles
        neighbours, seconds = find_neighbours(text, reduced_vocabulary, loss, 2, options)
        shares = [len(set(a) & set(b)) / NUM_NEIGHBOURS for a, b in zip(neighbours, reference)]
        results.append({"loss": loss, "agreement": statistics.mean(shares), "seconds": seconds})
    return results


def print_tables(results: list[dict[str, Any]]) -> None:
    for method in dict.fromkeys(line["method"] for line in results):
        lines = [line for line in results if line["method"] == method]
        print(f"{method:<11}" + "".join(f"{loss:^33}" for loss in LOSSES) + f"{'softmax /':>10}")
        print(
            f"{'V':>9}  " + "".join(f"{'rows':>9}{'words/s':>12}{'µs/pair':>11} " for _ in LOSSES) + f"{'negative':>10}"
        )
        for size in dict.fromkeys(line["vocabulary"] for line in lines):
            by_loss = {line["loss"]: line for line in lines if line["vocabulary"] == size}
            cells = "".join(
                f"{line['rows']:>9,.1f}{line['words_per_second']:>12,.0f}{line['microseconds']:>11.3f} "
                for line in (by_loss[loss] for loss in LOSSES)
            )
            print(
                f"{size:>9,}  {cells}{by_loss['softmax']['microseconds'] / by_loss['negative']['microseconds']:>10,.1f}"
            )
        exponents = [compute_exponent([line for line in lines if line["loss"] == loss]) for loss in LOSSES]
        print(
            f"{'exponent':>9}  " + "".join(f"{'–' if s is None else format(s, '.2f'):>32} " for s in exponents) + "\n"
        )


def parse_integers(text: str) -> list[int]:
    return sorted({int(part) for part in text.split(",")})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path)
    parser.add_argument(
        "--vocabularies", type=parse_integers, default=parse_integers("250,500,1000,2000,4000,8000,16000")
    )
    parser.add_argument("--words", type=int, default=400_000, help="length of the text")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=["skipgram", "cbow"])
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quality", type=int, metavar="V", help="also compare the vectors at this size")
    parser.add_argument("--epochs", type=int, default=2, help="of --quality")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the tables")
    options = parser.parse_args(arguments)
    data = os.environ.get("SEQWISE_DATA")
    if options.corpus is None and data is None:
        print("skipped: no corpus. Name a text file, or set SEQWISE_DATA.")
        return
    path = options.corpus or Path(data or "", "reviews", "unlabelled.txt.gz")
    source = open_unsplit(path)
    tokenizer, _ = choose_tokenizer(source, None)
    with encode_corpus(source, tokenizer, min_count=1) as corpus:
        ids, vocabulary = np.concatenate(list(corpus.iterate_blocks())), corpus.vocabulary
    if len(vocabulary) < max([*options.vocabularies, options.quality or 0]):
        sys.exit(f"{path} has {len(vocabulary):,} different words: reduce --vocabularies or --quality.")
    results = time_losses(ids, vocabulary, options)
    quality = measure_agreement(ids, vocabulary, options) if options.quality else []
    if options.json:
        print(json.dumps({"rows": results, "quality": quality}, indent=1))
        return
    print_tables(results)
    if quality:
        head = f"skipgram, V {options.quality:,}"
        print(f"{head:<17} seconds   nearest words as under the full softmax")
    for line in quality:
        print(f"{line['loss']:<17}{line['seconds']:>8.1f}   {line['agreement']:.1%}")


if __name__ == "__main__":
    main()
