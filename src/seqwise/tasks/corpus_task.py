"""`CorpusTask`: the base class of tasks on one long text, which is tokenised into files. The module knows no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from seqwise.callbacks import LogFunction, ProgressCallback, no_log, no_progress
from seqwise.config import Settings
from seqwise.data.corpus.preparation import prepare_stores
from seqwise.data.corpus.sources import Corpus, merge_splits, open_corpus, open_unsplit
from seqwise.data.corpus.store import TokenStore
from seqwise.data.examples import TooShortError
from seqwise.data.limits import limited, use_limits
from seqwise.data.tables import reject_columns
from seqwise.errors import SeqwiseError, UsageError, suggest
from seqwise.metrics.evaluation import BLOCK_TOKENS, Baseline, compute_entropy, exp_or_inf
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import ModelBundle, Preprocessor, Size, Task
from seqwise.tasks.training_summary import TrainingSummary, choose_sampling, hash_sequences
from seqwise.text.pipelines import choose_tokenizer
from seqwise.text.tokenizer import Tokenizer

CHUNK_TOKENS = 1 << 20  # tokens whose n-grams are hashed at once
NGRAM_LENGTH = 32  # tokens by which text is recognised
CHARACTER_NGRAM_LENGTH = 128  # the same for characters, of which short n-grams repeat
MIN_NGRAM_SAMPLING = 8  # one of at least this many n-grams is saved
MIN_LINE_LENGTH = 80  # characters of a long line; shorter lines repeat by chance


class CorpusTask(Task):
    """A task on a corpus whose splits are token stores."""

    row_columns = ("text",)
    special_tokens: ClassVar[Sequence[str]] = ()  # tokens that the vocabulary has besides those of the text

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, stores: dict[str, TokenStore]):
        self.corpus, self.tokenizer, self.stores = corpus, tokenizer, stores
        self.fingerprint, self.split_rule = corpus.fingerprint, corpus.split_rule
        self.preprocessor = Preprocessor({"text": tokenizer})

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Reads the text; trains the tokeniser on the training split unless `preprocessor` has one."""
        reject_columns(settings.columns, "It reads plain text, and `text` of .jsonl: leave --columns out.")
        fractions, encoding = (settings.data.valid_fraction, settings.data.test_fraction), settings.data.encoding
        with use_limits(settings.data):
            corpus = open_corpus(data, *fractions, encoding=encoding, progress=get_stage_progress(progress, 0))
        if preprocessor is None:
            tokenizer = cls.train_tokenizer(corpus, settings, log, get_stage_progress(progress, 1))
        else:
            tokenizer = preprocessor.tokenizer
        stores = prepare_stores(corpus, tokenizer, get_stage_progress(progress, 2), log)
        task = cls(corpus, tokenizer, stores)
        task.log_sizes(log, "tokens", stores, f"vocabulary {len(tokenizer):,}")
        if preprocessor is None and log is not no_log:  # of a new run: finding repeated lines reads the text once more
            task.log_findings(log)
        return task

    @classmethod
    def train_tokenizer(
        cls, corpus: Corpus, settings: Settings, log: LogFunction, progress: ProgressCallback = no_progress
    ) -> Tokenizer:
        """Returns a tokeniser trained on the training split; chooses its kind and size unless they are set."""
        text = settings.text
        if text.tokenizer is None:
            kind, size, reason = choose_tokenizer(corpus.sample(), corpus.size("train"), settings.vectors is not None)
            kind, reason = cls.adapt_tokenizer(kind, reason, settings)
            text.tokenizer, text.vocabulary = kind, text.vocabulary or size  # type: ignore[assignment]
            log(f"tokeniser: {reason}")
        tokenizer = Tokenizer.train(
            str(text.tokenizer),
            corpus.texts("train", progress),
            text.vocabulary,
            text.min_count,
            text.lowercase,
            cls.special_tokens,
        )
        text.vocabulary = len(tokenizer)
        return tokenizer

    @classmethod
    def adapt_tokenizer(cls, kind: str, reason: str, settings: Settings) -> tuple[str, str]:
        """Returns the kind of tokeniser and its reason; a task that cannot use `kind` returns another."""
        return kind, reason

    def size(self) -> Size:
        return Size(len(self.stores["train"]), len(self.tokenizer))

    def valid_size(self) -> Size:
        return Size(len(self.stores["valid"]))

    @cached_property
    def counts(self) -> Tensor:
        """How often each token occurs in the training split, (V,)."""
        return torch.from_numpy(self.stores["train"].count_tokens(len(self.tokenizer)))

    def token_counts(self) -> dict[str, Tensor]:
        return {"text": self.counts}

    def target_entropy(self, settings: ResolvedSettings, is_smoothed: bool = True) -> float | None:
        if settings.network.output == "sampled":  # its training loss is that of a few tokens
            return None
        return compute_entropy(self.counts.numpy())

    @cached_property
    def training_summary(self) -> TrainingSummary:
        """Hashes of n-grams of the training split, wherever they begin, and the counts of its tokens."""
        store = self.stores["train"]
        n = CHARACTER_NGRAM_LENGTH if self.tokenizer.kind == "characters" else NGRAM_LENGTH
        sampling = max(MIN_NGRAM_SAMPLING, choose_sampling(len(store)))
        hashes = [hashes[hashes % np.uint64(sampling) == 0] for _, hashes in hash_ngrams(store, n)]
        arrays, attributes = {"token_counts": self.counts.numpy()}, {"ngram": n}
        unique = np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]))
        return TrainingSummary(self.primary_metric[0], unique, sampling, arrays, attributes)

    def count_data(self) -> dict[str, dict[str, int]]:
        columns = ("lines", "words", "characters", "tokens", "unknown")
        return {split: {name: getattr(store.info, name) for name in columns} for split, store in self.stores.items()}

    def describe_data(self) -> tuple[str, ...]:
        return (self.describe_tokenizer(),)

    def notes(self) -> list[str]:
        return self.corpus.findings.note_messages()

    def warnings(self) -> list[str]:
        repeated = [
            f"{count:,} long {'line is' if count == 1 else 'lines are'} in {split} as well as in train: "
            "memorised lines make the result there too good."
            for split, count in count_repeated_lines(self.corpus).items()
        ]
        return self.warn_about_unknown() + repeated

    # Inference with a trained model, without the training data

    @classmethod
    def open_store(cls, bundle: ModelBundle, data: str, split: str | None) -> tuple[TokenStore, str]:
        """Returns the tokens to evaluate on, and which part of the data they are, in words."""
        corpus, split = select_split(data, bundle.settings, split, bundle.training_fingerprint)
        part = "all of it" if split == "all" else f"the {split} split"
        return prepare_stores(corpus, bundle.preprocessor.tokenizer)[split], f"{data}, {part}"

    @classmethod
    def find_split(cls, bundle: ModelBundle, data: str, split: str, is_own: bool) -> tuple[TokenStore, str] | None:
        """Returns a split of data that has splits, or else of the training data of the run, and what it is, in words.

        With `is_own` only the training data of the run counts. None if it cannot be read or has changed.
        """
        for source in dict.fromkeys(filter(None, (data, bundle.training_data))):
            try:
                corpus, _ = select_split(source, bundle.settings, split, bundle.training_fingerprint)
            except SeqwiseError:
                continue
            has_own_splits = corpus.has_predefined_splits and source == data and not is_own
            if has_own_splits or corpus.fingerprint == bundle.training_fingerprint:
                store = prepare_stores(corpus, bundle.preprocessor.tokenizer)[split]
                return store, f"the {split} split of {source}"
        return None

    @classmethod
    def compute_baselines(cls, bundle: ModelBundle, counts: np.ndarray) -> tuple[Baseline, ...]:
        """Returns the unigram perplexity of tokens that occur `counts` times each (V,)."""
        if bundle.training is None:
            return ()
        training_counts = bundle.training.arrays["token_counts"] + 1.0  # add-one smoothing
        nats = -float(counts @ np.log(training_counts / training_counts.sum()))
        description = "It predicts each token by its frequency in the training split, whatever the context."
        return (Baseline("unigram", exp_or_inf(nats / max(1, counts.sum())), description),)


def find_training_blocks(training: TrainingSummary, store: TokenStore) -> tuple[np.ndarray, np.ndarray]:
    """Returns two masks over blocks of BLOCK_TOKENS: which can be checked, and which occur in the training split.

    A block occurs there if most of the sampled n-grams that begin in it do.
    """
    num_blocks = -(-len(store) // BLOCK_TOKENS)
    num_checked, num_found = np.zeros(num_blocks, np.int64), np.zeros(num_blocks, np.int64)
    for start, hashes in hash_ngrams(store, training.attributes["ngram"]):
        is_checked, is_found = training.find(hashes)
        blocks = (start + np.arange(len(hashes))) // BLOCK_TOKENS
        num_checked += np.bincount(blocks[is_checked], minlength=num_blocks)
        num_found += np.bincount(blocks[is_found], minlength=num_blocks)
    return num_checked > 0, 2 * num_found > num_checked


def hash_ngrams(store: TokenStore, n: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the hashes of the n-grams of a text in chunks, with the position of the first."""
    for start in range(0, max(0, len(store) - n + 1), CHUNK_TOKENS):
        yield start, hash_sequences(store.read(start, min(CHUNK_TOKENS + n - 1, len(store) - start)), n)


def get_stage_progress(progress: ProgressCallback | None, stage: int) -> ProgressCallback:
    """Returns the callback of one of the first three stages that read the whole text.

    They check it, train the tokeniser, and tokenise; the fourth, which looks for repeated lines, is short.
    """
    if progress is None:
        return no_progress
    return lambda done, total: progress(stage * total + done, 3 * total)


@limited
def select_split(
    data: str, settings: ResolvedSettings, split: str | None, training_fingerprint: str
) -> tuple[Corpus, str]:
    """Returns the corpus, and the split to evaluate on: the test split of known data, else all of the text."""
    try:
        fractions = settings.data.valid_fraction, settings.data.test_fraction
        corpus = open_corpus(data, *fractions, encoding=settings.data.encoding)
    except TooShortError:
        if split not in (None, "all"):
            raise
        return open_unsplit(data, settings.data.encoding), "all"
    is_known = corpus.has_predefined_splits or corpus.fingerprint == training_fingerprint
    if split == "all" or (split is None and not is_known):
        return merge_splits(corpus), "all"
    if split is not None and split not in corpus.parts:
        raise UsageError(f"there is no split {split!r}.", fix=suggest(split, [*corpus.parts, "all"]))
    return corpus, split or "test"


def count_repeated_lines(corpus: Corpus) -> dict[str, int]:
    """Returns how many long lines of each held-out split occur in the training split too, where there are any."""
    hashes = {split: list(map(hash, _iterate_long_lines(corpus, split))) for split in corpus.parts if split != "train"}
    held_out_hashes = {value for values in hashes.values() for value in values}
    repeated = {value for value in map(hash, _iterate_long_lines(corpus, "train")) if value in held_out_hashes}
    counts = {split: sum(value in repeated for value in values) for split, values in hashes.items()}
    return {split: count for split, count in counts.items() if count}


def _iterate_long_lines(corpus: Corpus, split: str) -> Iterator[str]:
    return (line for text in corpus.texts(split) for line in text.splitlines() if len(line) >= MIN_LINE_LENGTH)
