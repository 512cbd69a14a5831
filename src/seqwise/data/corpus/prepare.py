"""`prepare`: a corpus and a tokeniser → one token store per split, made once and found again by content.

Text is streamed: at any time a few megabytes of it and their tokens are in memory, never the corpus. The stores lie
under `$SEQWISE_CACHE` (else `$XDG_CACHE_HOME/seqwise`, else `~/.cache/seqwise`) in a folder named by the hash of the
text, the split rule, the tokeniser and the format; so a store is never out of date. Several processes may prepare the
same text at the same time: each writes a file of its own and the last rename wins, with equal content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqwise.data.corpus.sources import Corpus
from seqwise.data.corpus.store import FORMAT, StoreInfo, StoreWriter, TokenStore
from seqwise.environment import cache_folder
from seqwise.errors import DataError, SaveError
from seqwise.text.learning import split_into_chunks
from seqwise.text.tokenizer import Tokenizer

ProgressCallback = Callable[[int, int], None]
BATCH = 32  # slices encoded at once, over all cores


@dataclass
class _Counts:
    """What is counted while the text passes by."""

    bytes: int = 0
    words: int = 0
    characters: int = 0
    lines: int = 0
    unknown: int = 0
    broken: bool = False  # the last slice ended inside a word

    def add(self, text: str) -> None:
        lines = text.count("\n")
        self.bytes += len(text.encode("utf-8", "surrogatepass"))
        self.words += len(text.split()) + lines - (self.broken and not text[0].isspace())
        self.characters += len(text)
        self.lines += lines
        self.broken = not text[-1].isspace()


def prepare(corpus: Corpus, tokenizer: Tokenizer, progress: ProgressCallback | None = None) -> dict[str, TokenStore]:
    """The token stores of a corpus by split; `progress(done, total)` counts bytes of text while they are made."""
    key = f"{corpus.fingerprint} {tokenizer.fingerprint} {FORMAT}"
    folder = cache_folder() / "tokens" / hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    stores = {split: _find(folder / split, corpus, tokenizer) for split in corpus.parts if corpus.size(split)}
    todo = [split for split, store in stores.items() if store is None]
    done, total = 0, sum(corpus.size(split) for split in todo)
    ready: dict[str, TokenStore] = {}
    for split, store in stores.items():
        if store is None:
            base = done
            store = _make(folder / split, corpus, split, tokenizer, _shifted(progress, base, total))
            done += corpus.size(split)
        ready[split] = store
    return ready


def _shifted(progress: ProgressCallback | None, base: int, total: int) -> Callable[[int], None]:
    def report(done: int) -> None:
        if progress is not None:
            progress(min(base + done, total), total)

    return report


def _find(path: Path, corpus: Corpus, tokenizer: Tokenizer) -> TokenStore | None:
    """The finished store at a path; a damaged one counts as none and is made again."""
    try:
        store = TokenStore(path)
    except DataError:
        return None
    same = (store.info.corpus, store.info.tokenizer) == (corpus.fingerprint, tokenizer.fingerprint)
    return store if same else None


def _make(path: Path, corpus: Corpus, split: str, tokenizer: Tokenizer, report: Callable[[int], None]) -> TokenStore:
    counts = _Counts()
    with StoreWriter(path, len(tokenizer)) as writer:
        try:
            for texts in _batches(corpus, split):
                for text, ids in zip(texts, tokenizer.encode_many(texts)):
                    counts.add(text)
                    counts.unknown += (
                        0 if tokenizer.unknown is None else int(np.count_nonzero(ids == tokenizer.unknown))
                    )
                    writer.append(ids)
                report(min(counts.bytes, corpus.size(split)))
            store = writer.finish(_store_info(writer.tokens, counts, corpus, split, tokenizer))
        except SaveError as error:
            per_byte = writer.tokens / counts.bytes if writer.tokens else 1.0
            needed = int(per_byte * corpus.size(split) * writer.dtype.itemsize)
            problem = f"{error.problem} About {needed / 1e6:,.1f} MB are needed."
            raise SaveError(problem, repair=error.repair, file=error.file) from error.__cause__
    report(corpus.size(split))
    return store


def _batches(corpus: Corpus, split: str) -> Iterator[list[str]]:
    """Slices of about 64 kB in lists, so that all cores have work and little text is held."""
    texts: list[str] = []
    for text in corpus.texts(split):
        for part in split_into_chunks(text):
            texts.append(part)
            if len(texts) == BATCH:
                yield texts
                texts = []
    if texts:
        yield texts


def _store_info(tokens: int, counts: _Counts, corpus: Corpus, split: str, tokenizer: Tokenizer) -> StoreInfo:
    return StoreInfo(
        tokens=tokens,
        words=counts.words,
        characters=counts.characters,
        lines=counts.lines,
        unknown=counts.unknown,
        vocabulary=len(tokenizer),
        tokenizer=tokenizer.fingerprint,
        corpus=corpus.fingerprint,
        split=split,
    )
