"""The binary formats: word2vec's, and safetensors. They know nothing of file suffixes.

word2vec: a header line (number of words, dimensions), then each word, a space, and its numbers as 32-bit floats. The C
program ends each vector with a line break and gensim does not; both are read. safetensors is the native format, which
holds everything:

    vectors    (V, D) float32        counts    (V,) int64, if known
    words      JSON list, as bytes   subwords  (buckets, D) float32, if any; min_n and max_n are in the metadata

The metadata holds `format: seqwise-vectors`, `about` in JSON, and a digest of the file (see `digests.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save, save_file

from seqwise.data.opening import get_file_position, is_gzip, open_binary
from seqwise.digests import PLACEHOLDER, check_digest, insert_digest, insert_digest_into
from seqwise.errors import DataError, UsageError
from seqwise.files import replace_file
from seqwise.vectors.formats.vector_table import (
    DAMAGED_FILE_FIX,
    VectorTable,
    parse_header,
    write_rows,
)
from seqwise.vectors.keyed import KeyedVectors, Subwords
from seqwise.vectors.search import find_nonfinite_row

BLOCK_BYTES = 4 << 20  # bytes read at once
MAX_WORD_BYTES = 1 << 16  # a longer word means that the file is not in this format
CONTROL_CHARACTERS = bytes(set(range(32)) - set(b"\t\n\r"))  # frequent in binary numbers, absent from text
SAMPLE_BYTES = 512  # bytes that are enough to tell text from binary numbers
TEXT_HINT = "If it is text, end its name in .txt or .vec."
FORMAT = "seqwise-vectors"
MAX_HEADER_BYTES = 10_000_000  # of a safetensors file
DTYPES = {"vectors": np.float32, "words": np.uint8, "counts": np.int64, "subwords": np.float32}


def read_binary(
    path: Path, progress: Callable[[int, int], None] | None = None, log: Callable[[str], None] | None = None
) -> KeyedVectors:
    """Reads a file in word2vec's binary format."""
    with open_binary(path) as file:
        size, header = path.stat().st_size, parse_header(path, file.readline(MAX_WORD_BYTES))
        if header is None:
            problem = "expected two whole numbers (words, numbers per word) in the first line, as word2vec writes them."
            raise DataError(problem, fix=TEXT_HINT, file=path, line=1)
        num_declared, dim = header
        capacity = (BLOCK_BYTES if is_gzip(path) else size) // (4 * dim + 2) + 1
        table, rest = VectorTable(path, dim, num_declared, min(num_declared, capacity)), b""  # rest: not yet parsed
        while table.num_read < num_declared:
            block = file.read(max(BLOCK_BYTES, 8 * dim))
            if not block:
                table.check_complete()
            sample = block[:SAMPLE_BYTES]
            is_text = len(sample) == SAMPLE_BYTES and sample.translate(None, CONTROL_CHARACTERS) == sample
            if not table.num_read and is_text:
                raise DataError("this is text, not the binary format of word2vec.", fix=TEXT_HINT, file=path, line=2)
            rest = _parse_block(rest + block, table, num_declared)
            if progress:
                progress(get_file_position(file), size)
        if (rest + file.read(64)).strip(b"\n"):
            problem = f"the first line declares {num_declared:,} words of {dim:,} numbers, but more bytes follow."
            raise DataError(problem, fix=DAMAGED_FILE_FIX, file=path)
    if not table.rows:
        raise _build_word_error(path, 0)
    return table.to_keyed_vectors(log)


def write_binary(path: Path, vectors: KeyedVectors) -> None:
    """Writes a file in word2vec's binary format."""

    def encode(words: Sequence[str], rows: np.ndarray) -> bytes:
        rows = rows.astype("<f4", copy=False)
        return b"".join([word.encode() + b" " + row.tobytes() for word, row in zip(words, rows)])

    write_rows(path, vectors, encode)


def _parse_block(data: bytes, table: VectorTable, num_declared: int) -> bytes:
    """Adds the complete words of `data` to the table; returns the bytes of an incomplete one at its end."""
    words: list[str] = []
    width, start, num_skipped = 4 * table.dim, 0, 0
    rows = table.reserve(min(len(data) // (width + 1) + 1, num_declared - table.num_read))
    while len(words) + num_skipped < len(rows):
        space = data.find(b" ", start, start + MAX_WORD_BYTES)
        stop = space + 1 + width
        if space < 0 and len(data) - start > MAX_WORD_BYTES:
            raise _build_word_error(table.path, table.num_read + len(words) + num_skipped)
        if space < 0 or stop > len(data):
            break
        try:
            words.append(data[start:space].lstrip(b"\n").decode())
            rows[len(words) - 1] = np.frombuffer(data, "<f4", table.dim, space + 1)
        except UnicodeDecodeError:  # such as a word that was cut inside a character; its numbers are skipped
            num_skipped += 1
        start = stop
    row = find_nonfinite_row(rows[: len(words)])
    if row is not None:
        problem = f"the vector of {words[row]!r} holds an infinite number or nan."
        raise DataError(problem, fix=DAMAGED_FILE_FIX, file=table.path)
    table.append(words, num_skipped)
    return data[start:]


def _build_word_error(path: Path, index: int) -> DataError:
    return DataError(f"word {index + 1:,} is not UTF-8 text, or has no end.", fix=DAMAGED_FILE_FIX, file=path)


def read_safetensors(path: Path) -> KeyedVectors:
    """Reads a safetensors file."""
    _check_header_size(path)
    tensors, metadata = _read_content(path)
    try:
        words = json.loads(tensors["words"].tobytes())
        about = json.loads(metadata.get("about", "{}"))
        if not (isinstance(words, list) and all(isinstance(word, str) for word in words) and isinstance(about, dict)):
            raise UsageError("its words are not a list of strings.")
        for name, tensor in tensors.items():
            if tensor.dtype != DTYPES[name]:
                raise UsageError(f"expected {name} of {np.dtype(DTYPES[name])}; found {tensor.dtype}.")
        subwords = None
        if "subwords" in tensors:  # older files call the lengths least and most
            min_n, max_n = (metadata.get(new) or metadata[old] for new, old in (("min_n", "least"), ("max_n", "most")))
            subwords = Subwords(int(min_n), int(max_n), tensors["subwords"])
        return KeyedVectors(words, tensors["vectors"], tensors.get("counts"), subwords, about)
    except (UsageError, ValueError, KeyError, RecursionError, AttributeError, TypeError) as error:
        reason = error.problem if isinstance(error, UsageError) else "its words or settings cannot be read."
        raise DataError(f"the file is damaged: {reason}", fix="Write it again.", file=path) from None


def _check_header_size(path: Path) -> None:
    """Raises if the header, which is read as a whole, is larger than that of any file of vectors or model."""
    with open_binary(path) as file:
        size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEADER_BYTES:
        problem = f"the safetensors file is damaged: its header has {size:,} bytes."
        raise DataError(problem, fix="Copy or download it again.", file=path)


def write_safetensors(path: Path, vectors: KeyedVectors) -> None:
    """Writes a safetensors file."""
    words = json.dumps(vectors.words, ensure_ascii=True).encode()
    tensors = {"vectors": vectors.matrix, "words": np.frombuffer(words, dtype=np.uint8)}
    metadata = {"format": FORMAT, "about": json.dumps(dict(vectors.about)), **PLACEHOLDER}
    if vectors.counts is not None:
        tensors["counts"] = vectors.counts
    if vectors.subwords is not None:
        tensors["subwords"] = vectors.subwords.matrix
        metadata |= {"min_n": str(vectors.subwords.min_n), "max_n": str(vectors.subwords.max_n)}
    with replace_file(path, concurrent=True, in_temporary_folder=True) as temporary:
        if temporary.exists() and not temporary.is_file():  # a pipe or a device, which save_file would replace
            temporary.write_bytes(insert_digest_into(save(tensors, metadata)))
        else:
            save_file(tensors, temporary, metadata)
            insert_digest(temporary)


def _read_content(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Returns the tensors and the metadata; raises an error for safetensors files without word vectors."""
    try:
        check_digest(path)
        with safe_open(path, framework="numpy") as file:
            metadata, names = file.metadata() or {}, sorted(file.keys())
            if metadata.get("format") == FORMAT and "vectors" in names and "words" in names:
                return {name: file.get_tensor(name) for name in names if name in DTYPES}, metadata
    except (SafetensorError, OSError, ValueError) as error:
        problem = f"the safetensors file is damaged: {error}."
        raise DataError(problem, fix="Copy or download it again.", file=path) from None
    examples = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    problem = f"this safetensors file holds the tensors of a model ({examples}), not words with vectors."
    raise DataError(problem, fix="Give a file that `seqwise vectors train` wrote.", file=path)
