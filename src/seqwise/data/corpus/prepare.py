"""`prepare`: a corpus and a tokeniser → one token store per split, created once and cached by content.

Text is streamed: a few megabytes of it and their tokens are in memory, never the corpus. The stores are saved under
`$SEQWISE_CACHE` (else `$XDG_CACHE_HOME/seqwise`, else `~/.cache/seqwise`) in a folder named by the hash of the text,
the split rule, the tokeniser and the format; so a store is never out of date. Several processes may prepare the same
text at the same time: each writes a file of its own and the last rename wins, with equal content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from seqwise.data.corpus.sources import Corpus
from seqwise.data.corpus.store import FORMAT, StoreInfo, StoreWriter, TokenStore
from seqwise.environment import cache_folder
from seqwise.errors import DataError, SaveError
from seqwise.text.pipelines import split_into_chunks
from seqwise.text.tokenizer import Tokenizer

ProgressCallback = Callable[[int, int], None]
BATCH = 32  # chunks of text encoded at once, over all cores


@dataclass
class _Counts:
    """Counts of a text that is read in chunks."""

    bytes: int = 0
    words: int = 0
    characters: int = 0
    lines: int = 0
    unknown: int = 0
    inside_word: bool = False  # the last chunk ended inside a word

    def add(self, text: str) -> None:
        lines = text.count("\n")
        self.bytes += len(text.encode("utf-8", "surrogatepass"))
        self.words += len(text.split()) + lines - (self.inside_word and not text[0].isspace())
        self.characters += len(text)
        self.lines += lines
        self.inside_word = not text[-1].isspace()


def prepare(corpus: Corpus, tokenizer: Tokenizer, progress: ProgressCallback | None = None) -> dict[str, TokenStore]:
    """Return the token stores of a corpus by split; `progress(done, total)` counts the bytes that are tokenised."""
    key = f"{corpus.fingerprint} {tokenizer.fingerprint} {FORMAT}"
    folder = cache_folder() / "tokens" / hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    stores: dict[str, TokenStore] = {}
    splits = [split for split in corpus.parts if corpus.size(split)]
    cached = {split: _find_store(folder / split, corpus, tokenizer) for split in splits}
    done, total = 0, sum(corpus.size(split) for split in splits if cached[split] is None)
    for split in splits:
        store = cached[split]
        if store is None:
            report = None if progress is None else partial(_report, progress, done, total)
            store = _create_store(folder / split, corpus, split, tokenizer, report)
            done += corpus.size(split)
        stores[split] = store
    return stores


def _report(progress: ProgressCallback, before: int, total: int, done: int) -> None:
    progress(min(before + done, total), total)


def _find_store(path: Path, corpus: Corpus, tokenizer: Tokenizer) -> TokenStore | None:
    """Return the complete store at a path; None for a damaged one, which is created again."""
    try:
        store = TokenStore(path)
    except DataError:
        return None
    same = (store.info.corpus, store.info.tokenizer) == (corpus.fingerprint, tokenizer.fingerprint)
    return store if same else None


def _create_store(
    path: Path, corpus: Corpus, split: str, tokenizer: Tokenizer, report: Callable[[int], None] | None
) -> TokenStore:
    counts, size = _Counts(), corpus.size(split)
    with StoreWriter(path, len(tokenizer)) as writer:
        try:
            for texts in _batches(corpus, split):
                for text, ids in zip(texts, tokenizer.encode_many(texts)):
                    counts.add(text)
                    if tokenizer.unknown is not None:
                        counts.unknown += int(np.count_nonzero(ids == tokenizer.unknown))
                    writer.append(ids)
                if report is not None:
                    report(min(counts.bytes, size))
            store = writer.finish(
                StoreInfo(
                    tokens=writer.tokens,
                    words=counts.words,
                    characters=counts.characters,
                    lines=counts.lines,
                    unknown=counts.unknown,
                    vocabulary=len(tokenizer),
                    tokenizer=tokenizer.fingerprint,
                    corpus=corpus.fingerprint,
                    split=split,
                )
            )
        except SaveError as error:
            per_byte = writer.tokens / counts.bytes if writer.tokens else 1.0
            needed = int(per_byte * size * writer.dtype.itemsize)
            problem = f"{error.problem} About {needed / 1e6:,.1f} MB are needed."
            raise SaveError(problem, repair=error.repair, file=error.file) from error.__cause__
    if report is not None:
        report(size)
    return store


def _batches(corpus: Corpus, split: str) -> Iterator[list[str]]:
    """Yield lists of chunks of about 64 kB, so that all cores have work and little text is in memory."""
    texts: list[str] = []
    for text in corpus.texts(split):
        for chunk in split_into_chunks(text):
            texts.append(chunk)
            if len(texts) == BATCH:
                yield texts
                texts = []
    if texts:
        yield texts
