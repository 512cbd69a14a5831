"""`prepare_stores`: a corpus and a tokeniser → a token store for each split, in the cache.

Text is streamed: a few megabytes of it and their tokens are in memory, never the corpus (except of .json and .parquet,
which are read file by file). The stores are saved under `$SEQWISE_CACHE` (else `$XDG_CACHE_HOME/seqwise`, else
`~/.cache/seqwise`) in a folder named by the hash of the text, the split rule, the tokeniser and the format; so a store
is never out of date. Several processes may prepare the same text at the same time: each writes a file of its own and
the last rename wins, with equal content.

A store that is damaged is created again, also when the damage is found in the middle of training.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from seqwise.callbacks import LogFunction, ProgressCallback
from seqwise.data.corpus.sources import Corpus
from seqwise.data.corpus.store import DAMAGED, FORMAT, StoreInfo, StoreWriter, TokenStore
from seqwise.environment import get_cache_folder
from seqwise.errors import DataError, SaveError
from seqwise.text.pipelines import MIN_COMPILED_CHARACTERS, split_into_chunks
from seqwise.text.tokenizer import EncodedText, Tokenizer

CHUNKS_PER_BATCH = 32  # chunks of text encoded at once, on all cores


def prepare_stores(
    corpus: Corpus,
    tokenizer: Tokenizer,
    progress: ProgressCallback | None = None,
    log: LogFunction | None = None,
) -> dict[str, TokenStore]:
    """Returns the token stores of a corpus by split; `progress(done, total)` counts the bytes that are tokenised.

    Stores in the cache are used; others are created there. One that is damaged is created again, also when that is
    noticed later; `log`, by default a Python warning, says so.
    """
    log = log or _warn
    key = f"{corpus.fingerprint} {tokenizer.fingerprint} {FORMAT}"
    folder = get_cache_folder() / "tokens" / hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    sizes = {split: corpus.size(split) for split in corpus.parts if corpus.size(split)}
    cached_stores = {split: _find_store(folder / split, corpus, tokenizer, log) for split in sizes}
    bytes_done, total = 0, sum(size for split, size in sizes.items() if cached_stores[split] is None)

    def report(num_bytes: int) -> None:
        if progress is not None:
            progress(min(bytes_done + num_bytes, total), total)

    stores: dict[str, TokenStore] = {}
    for split, size in sizes.items():
        store = cached_stores[split]
        if store is None:
            store = _create_store(folder / split, corpus, split, tokenizer, report)
            bytes_done += size
        stores[split] = store
        store.recreate = partial(_recreate_store, folder / split, corpus, tokenizer, log)
    return stores


def _find_store(path: Path, corpus: Corpus, tokenizer: Tokenizer, log: LogFunction) -> TokenStore | None:
    """Returns the complete store at a path; None for an incomplete or damaged one, which is created again."""
    if not path.with_suffix(".json").exists():  # written last
        return None
    try:
        store = TokenStore(path)
    except DataError as error:
        log(_describe_damage(path, error.problem.removeprefix(DAMAGED).rstrip(".")))
        return None
    found = (store.info.corpus, store.info.tokenizer, store.info.vocabulary)
    if found != (corpus.fingerprint, tokenizer.fingerprint, len(tokenizer)):
        log(_describe_damage(path, "it belongs to another text"))
        return None
    return store


def _recreate_store(path: Path, corpus: Corpus, tokenizer: Tokenizer, log: LogFunction, damage: str) -> None:
    log(_describe_damage(path, damage))
    _create_store(path, corpus, path.name, tokenizer, lambda num_bytes: None)


def _describe_damage(path: Path, damage: str) -> str:
    return f"the cached tokens of {path.name} are damaged ({path}: {damage}); they are created again."


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)


def _create_store(
    path: Path, corpus: Corpus, split: str, tokenizer: Tokenizer, report: Callable[[int], None]
) -> TokenStore:
    """Tokenises a split into a new store; `report` receives the number of bytes that are done."""
    num_bytes = words = characters = lines = unknown = 0
    size, inside_word = corpus.size(split), False
    with StoreWriter(path, len(tokenizer)) as writer:
        try:
            for text, encoded in _encode_split(corpus, split, tokenizer):
                num_bytes += len(text.encode("utf-8", "surrogatepass"))
                words += encoded.words - (inside_word and not text[0].isspace())
                characters += len(text)
                lines += text.count("\n")
                unknown += encoded.unknown
                inside_word = not text[-1].isspace()  # the next text may continue the word
                writer.append(encoded.ids)
                report(min(num_bytes, size))
            counts = writer.num_tokens, words + lines, characters, lines, unknown, len(tokenizer)
            store = writer.finish(StoreInfo(*counts, tokenizer.fingerprint, corpus.fingerprint, split))
        except SaveError as error:
            tokens_per_byte = writer.num_tokens / num_bytes if writer.num_tokens else 1.0
            needed_bytes = int(tokens_per_byte * size * writer.dtype.itemsize)
            problem = f"{error.problem} About {needed_bytes / 1e6:,.1f} MB are needed."
            raise SaveError(problem, fix=error.fix, file=error.file) from error.__cause__
    report(size)
    return store


def _encode_split(corpus: Corpus, split: str, tokenizer: Tokenizer) -> Iterator[tuple[str, EncodedText]]:
    """Yields consecutive texts of a split with their ids; in a long split, each distinct segment is encoded once."""
    if tokenizer.kind != "characters" and corpus.size(split) >= MIN_COMPILED_CHARACTERS:
        from seqwise.text.segment_encoder import SegmentEncoder

        encoder = SegmentEncoder(tokenizer)
        for text in corpus.texts(split):
            yield text, encoder.encode(*split_into_chunks(text))
        return
    for texts in _batch_chunks(corpus, split):
        for text, ids in zip(texts, tokenizer.encode_many(texts)):
            unknown = 0 if tokenizer.unknown is None else int(np.count_nonzero(ids == tokenizer.unknown))
            yield text, EncodedText(ids, len(text.split()), unknown)


def _batch_chunks(corpus: Corpus, split: str) -> Iterator[list[str]]:
    """Yields lists of `CHUNKS_PER_BATCH` chunks, so that all cores have work and little text is in memory."""
    texts: list[str] = []
    for text in corpus.texts(split):
        for chunk in split_into_chunks(text):
            texts.append(chunk)
            if len(texts) == CHUNKS_PER_BATCH:
                yield texts
                texts = []
    if texts:
        yield texts
