"""`TokenStore`: token ids in one flat file. `prepare_stores`: a corpus and a tokeniser → a store for each split.

The ids are read with `pread`, at any position and without a shared file position.

A memory map would work too, but its pages count as resident until the kernel reclaims them, so a large file read in
random order fills the memory. `pread` copies only what is requested. NAME.json beside NAME.bin has the counts; it is
written last, so a store without it is incomplete.

Text is streamed: a few megabytes of it and their tokens are in memory, never the corpus (except of .json and .parquet,
which are read file by file). The stores are saved under `$SEQWISE_CACHE` (else `$XDG_CACHE_HOME/seqwise`, else
`~/.cache/seqwise`) in a folder named by the hash of the text, the split rule, the tokeniser and the format; so a store
is never out of date. Several processes may prepare the same text at the same time: each writes a file of its own and
the last rename wins, with equal content.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from seqwise.callbacks import ProgressCallback
from seqwise.data.corpus.sources import Corpus
from seqwise.environment import get_cache_folder
from seqwise.errors import DataError, SaveError
from seqwise.files import AtomicFile, explain_write_errors, write_text
from seqwise.text.pipelines import MIN_COMPILED_CHARACTERS, split_into_chunks
from seqwise.text.tokenizer import EncodedText, Tokenizer

CHUNKS_PER_BATCH = 32  # chunks of text encoded at once, on all cores
FORMAT = 1
CACHE_FIX = "Or set SEQWISE_CACHE to a folder on another disk."


@dataclass(frozen=True)
class StoreInfo:
    """Counts and fingerprints of a store, saved as JSON. Words, characters and lines are those of the original text."""

    tokens: int
    words: int  # separated by whitespace, plus one per line end, as the Penn Treebank is counted
    characters: int  # line breaks included
    lines: int
    unknown: int  # tokens that are <unk>
    vocabulary: int  # number of ids
    tokenizer: str  # fingerprint
    corpus: str  # fingerprint
    split: str = ""
    format: int = FORMAT

    @property
    def dtype(self) -> np.dtype:
        return choose_id_dtype(self.vocabulary)


def choose_id_dtype(vocabulary_size: int) -> np.dtype:
    """Returns the smallest type for all ids; little-endian on every machine."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 else "<u4")


class TokenStore:
    """Token ids on disk. Threads and forked processes can share it: a read moves no file position."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.info = _read_info(self.path)
        self.dtype = self.info.dtype
        data = self.path.with_suffix(".bin")
        try:
            self._file = os.open(data, os.O_RDONLY)
        except OSError as error:
            raise _unreadable_store_error(data, error) from None
        expected_size, size = len(self) * self.dtype.itemsize, os.fstat(self._file).st_size
        if size != expected_size:
            self.close()
            raise _damaged_store_error(data, f"it has {size:,} bytes instead of {expected_size:,}")

    def __len__(self) -> int:
        return self.info.tokens

    def read(self, start: int, count: int) -> np.ndarray:
        """Returns the ids start … start+count-1 as int64."""
        return self.read_sequences([start], count)[0]

    def read_sequences(self, starts: list[int] | np.ndarray, length: int) -> np.ndarray:
        """Returns `length` ids from each of `starts` on as int64, (len(starts), length), with one `pread` for each."""
        sequences = np.empty((len(starts), length), dtype=self.dtype)
        size = length * self.dtype.itemsize
        view = sequences.data.cast("B") if sequences.size else memoryview(b"")
        for index, start in enumerate(np.asarray(starts).tolist()):
            if start < 0 or start + length > len(self):
                raise IndexError(f"tokens {start} … {start + length - 1} of a store of {len(self)}")
            self._fill(view[index * size : (index + 1) * size], start * self.dtype.itemsize)
        return sequences.astype(np.int64)

    def count_tokens(self, vocabulary_size: int, chunk_size: int = 1 << 22) -> np.ndarray:
        """Returns how often each id occurs, (V,); reads the store in chunks."""
        totals = np.zeros(vocabulary_size, dtype=np.int64)
        for start in range(0, len(self), chunk_size):
            totals += np.bincount(self.read(start, min(chunk_size, len(self) - start)), minlength=vocabulary_size)
        return totals

    def _fill(self, view: memoryview, offset: int) -> None:
        """Fills the view with the bytes from `offset` on."""
        while view:
            try:
                count = os.preadv(self._file, [view], offset)
            except OSError as error:
                raise _unreadable_store_error(self.path.with_suffix(".bin"), error) from None
            if not count:
                raise _damaged_store_error(self.path.with_suffix(".bin"), f"it ends at byte {offset:,}")
            view, offset = view[count:], offset + count

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()


class StoreWriter:
    """Appends ids to a temporary file that `finish` turns into the store; leaving the block earlier removes it."""

    def __init__(self, path: str | Path, vocabulary_size: int):
        self.path, self.num_tokens = Path(path), 0
        self.dtype = choose_id_dtype(vocabulary_size)
        with explain_write_errors(self.path.parent, CACHE_FIX):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._output = AtomicFile(self.path.with_suffix(".bin"), concurrent=True)
            self._file = self._output.temporary.open("wb")

    def append(self, ids: np.ndarray) -> None:
        with explain_write_errors(self.path.parent, CACHE_FIX):
            self._file.write(ids.astype(self.dtype).tobytes())
        self.num_tokens += len(ids)

    def finish(self, info: StoreInfo) -> TokenStore:
        """Completes the store and opens it: renames the data file first, then writes the file with the counts."""
        with explain_write_errors(self.path.parent, CACHE_FIX):
            self._file.close()
            self._output.commit()
        content = json.dumps(asdict(info), indent=1)
        write_text(self.path.with_suffix(".json"), content, fix=CACHE_FIX, concurrent=True)
        return TokenStore(self.path)

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._file.close()
        except OSError:  # on a full disk flushing fails once more; the first error is the one to report
            if error is None:
                raise
        finally:
            self._output.discard()


def _damaged_store_error(path: Path, cause: str) -> DataError:
    return DataError(f"the token store is damaged: {cause}.", fix="Delete it; it is created again.", file=path)


def _unreadable_store_error(path: Path, error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return _damaged_store_error(path, "it is missing")
    fix = "Check its permissions, or delete it; it is created again."
    return DataError(f"the token store cannot be read: {error.strerror}.", fix=fix, file=path)


def _read_info(path: Path) -> StoreInfo:
    file = path.with_suffix(".json")
    try:
        info = StoreInfo(**json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise _unreadable_store_error(file, error) from None
    except (ValueError, TypeError):
        raise _damaged_store_error(file, "it cannot be read") from None
    if info.format != FORMAT:
        raise _damaged_store_error(file, f"it has format {info.format}, not {FORMAT}")
    return info


def prepare_stores(
    corpus: Corpus, tokenizer: Tokenizer, progress: ProgressCallback | None = None
) -> dict[str, TokenStore]:
    """Returns the token stores of a corpus by split; `progress(done, total)` counts the bytes that are tokenised.

    Stores in the cache are used; others are created there.
    """
    key = f"{corpus.fingerprint} {tokenizer.fingerprint} {FORMAT}"
    folder = get_cache_folder() / "tokens" / hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    sizes = {split: corpus.size(split) for split in corpus.parts if corpus.size(split)}
    cached_stores = {split: _find_store(folder / split, corpus, tokenizer) for split in sizes}
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
    return stores


def _find_store(path: Path, corpus: Corpus, tokenizer: Tokenizer) -> TokenStore | None:
    """Returns the complete store at a path; None for a damaged one, which is created again."""
    try:
        store = TokenStore(path)
    except DataError:
        return None
    is_current = (store.info.corpus, store.info.tokenizer) == (corpus.fingerprint, tokenizer.fingerprint)
    return store if is_current else None


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
