"""What does negative sampling save as the vocabulary grows?

    python benchmarks/softmax_cost.py                                          # one thread
    python benchmarks/softmax_cost.py CORPUS --vocabularies 100,1000,10000 --methods skipgram

Reads $SEQWISE_DATA/reviews unless told otherwise. For each size V the V most frequent words of the text make up the
vocabulary, and the others are left out. Frequent words are thinned out beforehand, by the rule of training, so that all
losses see the same words. Then each loss trains on a stretch of text that takes half a second. That is done for all
sizes and losses, five times over, so that other work of the machine does not fall on one of them alone; the medians
count, and the compiling does not. 100 dimensions, window 5, 5 negatives.

`rows` is how many output rows a window multiplies with: the word and its negatives, the nodes on its way through the
tree, or all words. The exponent is the slope of log time over log V: 0 where the vocabulary costs nothing, 1 where it
costs in proportion.

With --quality V, the losses are also compared by what skip-gram learns at that size: how many of a word's ten nearest
words are the same as under the full softmax. The full softmax with another seed says how many can be.
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
from seqwise.vectors.corpus import Sentences, Vocabulary, choose_tokenizer, read_sentences
from seqwise.vectors.settings import VectorSettings
from seqwise.vectors.word2vec.cpu_trainer import Word2VecTrainer, build_objective
from seqwise.vectors.word2vec.hierarchical import HierarchicalSoftmax
from seqwise.vectors.word2vec.objective import Objective
from seqwise.vectors.word2vec.sampling_tables import seed_block, subsampling_thresholds

LOSSES = ("negative", "hierarchical", "softmax")
STRETCH, REPEATS = 0.5, 5  # seconds that a stretch takes at least, and how many are measured
FIRST = 50  # words of the first try
NEAREST = 10
SUBSAMPLE = VectorSettings().subsample


def most_frequent(ids: np.ndarray, vocabulary: Vocabulary, size: int) -> tuple[np.ndarray, Vocabulary]:
    """The text with the `size` most frequent words alone."""
    left = Vocabulary(vocabulary.words[:size], vocabulary.counts[:size], vocabulary.num_different)
    return ids[ids < size], left


def subsample(ids: np.ndarray, counts: np.ndarray, words: int) -> np.ndarray:
    """The first `words` words that subsampling keeps, with the ends of sentences."""
    draws = np.random.default_rng(0).integers(0, 2**32, len(ids), dtype=np.uint32)
    ids = ids[(ids < 0) | (draws <= subsampling_thresholds(counts, SUBSAMPLE)[ids])]
    last = np.searchsorted(np.cumsum(ids >= 0), words, side="left")
    return ids[: last + 1]


class Stopwatch:
    """Trains an objective on stretches of a text, in one or several threads, and takes the time."""

    def __init__(self, objective: Objective, text: np.ndarray, threads: int):
        self.objective, self.text, self.threads = objective, text, threads
        self.workspaces = [objective.allocate_workspace() for _ in range(threads)]
        self.tallies = [np.zeros(8) for _ in range(threads)]
        self.rate, self.length = objective.settings.learning_rate, FIRST
        self.per_word: list[float] = []
        self.per_pair: list[float] = []

    def train(self, block: np.ndarray, number: int) -> float:
        """Every thread trains on the block; returns seconds."""

        def work(at: int) -> None:
            state = seed_block(number, at, 0)
            self.objective.train(block, state, self.rate, self.workspaces[at], self.tallies[at])

        workers = [threading.Thread(target=work, args=(at,)) for at in range(1, self.threads)]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        work(0)
        for worker in workers:
            worker.join()
        return time.perf_counter() - began

    def prepare(self) -> None:
        """Compile, and find out how much text takes long enough."""
        self.train(self.text[:0], 0)
        self.length, seconds = FIRST, self.train(self._stretch(0), 0)
        while seconds < STRETCH:
            self.length = int(self.length * min(10.0, 1.2 * STRETCH / seconds) + 1)
            seconds = self.train(self._stretch(0), 0)

    def measure(self, number: int) -> None:
        """Train on the stretch of that number."""
        for tally in self.tallies:
            tally[:] = 0
        block = self._stretch(number)
        seconds = self.train(block, number)
        self.per_word.append(seconds / (self.threads * (block >= 0).sum()))
        self.per_pair.append(seconds / max(1.0, sum(tally[1] for tally in self.tallies)))

    def medians(self) -> dict[str, float]:
        return {
            "words_per_second": 1 / statistics.median(self.per_word),
            "microseconds": 1e6 * statistics.median(self.per_pair),
        }

    def _stretch(self, number: int) -> np.ndarray:
        """Some of the text, which begins again where it ends."""
        return np.take(self.text, np.arange(number * self.length, (number + 1) * self.length), mode="wrap")


def count_output_rows(objective: Objective, text: np.ndarray) -> float:
    """How many output rows a window multiplies with, on average."""
    settings = objective.settings
    if settings.loss == "negative":
        return 1 + settings.negative
    if settings.loss == "softmax":
        return len(objective.counts)
    assert isinstance(objective, HierarchicalSoftmax)
    return float(np.diff(objective.tree.offsets)[text[text >= 0]].mean())


def time_losses(ids: np.ndarray, vocabulary: Vocabulary, asked: argparse.Namespace) -> list[dict[str, Any]]:
    watches: list[tuple[dict[str, Any], Stopwatch]] = []
    for size in asked.vocabularies:
        kept, left = most_frequent(ids, vocabulary, size)
        text = subsample(kept, left.counts, asked.words)
        for method in asked.methods:
            for loss in LOSSES:
                settings = VectorSettings(method=method, loss=loss, subsample=0, dim=asked.dim).resolve()
                objective = build_objective(left.words, left.counts, settings)
                line = {"vocabulary": size, "method": method, "loss": loss, "rows": count_output_rows(objective, text)}
                watches.append((line, Stopwatch(objective, text, asked.threads)))
                watches[-1][1].prepare()
    for number in range(1, REPEATS + 1):
        for _, watch in watches:
            watch.measure(number)
        print(f"round {number} of {REPEATS} is over", file=sys.stderr, flush=True)
    return [{**line, **watch.medians()} for line, watch in watches]


def exponent(lines: Sequence[dict[str, Any]]) -> float | None:
    """Slope of log time over log V."""
    if len(lines) < 2:
        return None
    sizes, times = (np.log([line[key] for line in lines]) for key in ("vocabulary", "microseconds"))
    return float(np.polyfit(sizes, times, 1)[0])


def find_neighbours(text: np.ndarray, vocabulary: Vocabulary, loss: str, seed: int, asked: argparse.Namespace) -> Any:
    """(V, 10) the nearest words of each word after training on the text, and the seconds that took."""
    with tempfile.TemporaryFile() as file:
        file.write(text.data)
        file.flush()
        sentences = Sentences(file, vocabulary, len(text), len(text))
        settings = VectorSettings(
            loss=loss, seed=seed, dim=asked.dim, epochs=asked.epochs, subsample=0, threads=asked.threads
        )
        trainer = Word2VecTrainer(sentences, settings.resolve())
        began = time.perf_counter()
        for _ in trainer.steps():
            pass
        seconds = time.perf_counter() - began
    vectors = trainer.vectors()
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = units @ units.T
    np.fill_diagonal(scores, -np.inf)
    return np.argsort(-scores, axis=1)[:, :NEAREST], seconds


def agreement(ids: np.ndarray, vocabulary: Vocabulary, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Per loss the share of a word's nearest words that it has in common with the full softmax."""
    kept, left = most_frequent(ids, vocabulary, asked.quality)
    text, found = subsample(kept, left.counts, asked.words), []
    peer, _ = find_neighbours(text, left, "softmax", 1, asked)
    for loss in reversed(LOSSES):
        find_neighbours(text[:FIRST], left, loss, 2, asked)  # compiles
        own, seconds = find_neighbours(text, left, loss, 2, asked)
        shares = [len(set(a) & set(b)) / NEAREST for a, b in zip(own, peer)]
        found.append({"loss": loss, "agreement": statistics.mean(shares), "seconds": seconds})
    return found


def print_tables(found: list[dict[str, Any]]) -> None:
    for method in dict.fromkeys(line["method"] for line in found):
        own = [line for line in found if line["method"] == method]
        print(f"{method:<11}" + "".join(f"{loss:^33}" for loss in LOSSES) + f"{'softmax /':>10}")
        print(
            f"{'V':>9}  " + "".join(f"{'rows':>9}{'words/s':>12}{'µs/pair':>11} " for _ in LOSSES) + f"{'negative':>10}"
        )
        for size in dict.fromkeys(line["vocabulary"] for line in own):
            of = {line["loss"]: line for line in own if line["vocabulary"] == size}
            cells = "".join(
                f"{of[loss]['rows']:>9,.1f}{of[loss]['words_per_second']:>12,.0f}{of[loss]['microseconds']:>11.3f} "
                for loss in LOSSES
            )
            print(f"{size:>9,}  {cells}{of['softmax']['microseconds'] / of['negative']['microseconds']:>10,.1f}")
        slopes = [exponent([line for line in own if line["loss"] == loss]) for loss in LOSSES]
        print(f"{'exponent':>9}  " + "".join(f"{'–' if s is None else format(s, '.2f'):>32} " for s in slopes) + "\n")


def numbers(text: str) -> list[int]:
    return sorted({int(part) for part in text.split(",")})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path)
    parser.add_argument("--vocabularies", type=numbers, default=numbers("250,500,1000,2000,4000,8000,16000"))
    parser.add_argument("--words", type=int, default=400_000, help="of the text, of which stretches are taken")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=["skipgram", "cbow"])
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quality", type=int, metavar="V", help="compare also what is learned at this size")
    parser.add_argument("--epochs", type=int, default=2, help="of --quality")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the tables")
    asked = parser.parse_args(arguments)
    data = os.environ.get("SEQWISE_DATA")
    if asked.corpus is None and data is None:
        print("skipped: no corpus. Name a text file, or set SEQWISE_DATA.")
        return
    corpus = asked.corpus or Path(data or "", "reviews", "unlabelled.txt.gz")
    source = open_unsplit(corpus)
    tokenizer, _ = choose_tokenizer(source, None)
    with read_sentences(source, tokenizer, min_count=1) as sentences:
        ids, vocabulary = np.concatenate(list(sentences.blocks())), sentences.vocabulary
    if len(vocabulary) < max([*asked.vocabularies, asked.quality or 0]):
        sys.exit(f"{corpus} has {len(vocabulary):,} different words: ask for no larger vocabularies.")
    found = time_losses(ids, vocabulary, asked)
    quality = agreement(ids, vocabulary, asked) if asked.quality else []
    if asked.json:
        print(json.dumps({"rows": found, "quality": quality}, indent=1))
        return
    print_tables(found)
    if quality:
        head = f"skipgram, V {asked.quality:,}"
        print(f"{head:<17} seconds   nearest words as under the full softmax")
    for line in quality:
        print(f"{line['loss']:<17}{line['seconds']:>8.1f}   {line['agreement']:.1%}")


if __name__ == "__main__":
    main()
