"""Files of vectors: which kind a file is, and who reads or writes it. It knows nothing of what stands inside a kind.

    .safetensors   everything, with counts, n-grams and how they were made; opens fastest
    .bin           word2vec binary: words and numbers as bytes
    .vec           fastText text: a line with both sizes, then one word per line
    .txt           word2vec text (the same as .vec), or without the first line GloVe text

`.gz` behind any ending but .safetensors packs the file. All but .safetensors keep only words and vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from seqwise.data.reading import is_gzip, open_binary
from seqwise.errors import UsageError, nearest
from seqwise.files import check_output_path

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

KINDS = ("safetensors", "word2vec-text", "word2vec-binary", "glove", "fasttext")
ENDINGS = {
    ".safetensors": "safetensors",
    ".bin": "word2vec-binary",
    ".vec": "fasttext",
    ".txt": "word2vec-text",
}

ProgressCallback = Callable[[int, int], None]  # bytes read, bytes of the file
LogFunction = Callable[[str], None]


def load_vectors(
    path: str | Path, kind: str | None = None, progress: ProgressCallback | None = None, log: LogFunction | None = None
) -> KeyedVectors:
    """Read a file. The kind follows from its ending, or from its first line where the ending says nothing.

    `log` is told of what was passed over: words that stand there twice, of which the first counts, and words that are
    not UTF-8. Without it that is a warning.
    """
    from seqwise.vectors.formats.binary import read_binary
    from seqwise.vectors.formats.tensors import read_tensors
    from seqwise.vectors.formats.text import read_text
    from seqwise.vectors.formats.vector_table import reject_foreign_file

    path = Path(path)
    chosen = _kind(path, kind)
    with open_binary(path) as file:
        reject_foreign_file(path, file.read(64), chosen)
    if chosen == "safetensors":
        return read_tensors(path)
    if chosen == "word2vec-binary":
        return read_binary(path, progress, log)
    if kind is None and chosen != "fasttext":
        chosen = None  # .txt and unknown endings: the first line tells
    return read_text(path, None if chosen is None else chosen != "glove", progress, log)


def save_vectors(path: str | Path, keyed: KeyedVectors, kind: str | None = None) -> None:
    """Write a file, whole or not at all. The kind follows from the ending; `.txt` becomes word2vec text."""
    from seqwise.vectors.formats.binary import write_binary
    from seqwise.vectors.formats.tensors import write_tensors
    from seqwise.vectors.formats.text import write_text

    path = Path(path)
    chosen = check_out(path, kind)
    if chosen == "safetensors":
        write_tensors(path, keyed)
    elif chosen == "word2vec-binary":
        write_binary(path, keyed)
    else:
        write_text(path, keyed, header=chosen != "glove")


def check_out(path: str | Path, kind: str | None = None) -> str:
    """Refuse a file that cannot be written, before anything is computed; returns its kind."""
    path = Path(path)
    chosen = _kind(path, kind)
    if chosen is None:
        raise UsageError(
            f"the ending of {path.name!r} does not say which kind of file to write.",
            repair=f"End it in {', '.join(ENDINGS)} (convert also takes --to with {', '.join(KINDS)}).",
        )
    check_output_path(path)
    return chosen


def _kind(path: Path, kind: str | None) -> str | None:
    """The kind asked for, or that of the ending; None for an ending that says nothing."""
    if kind is not None and kind not in KINDS:
        raise UsageError(f"kind: {kind!r} is not known.", repair=nearest(kind, KINDS))
    found = kind or ENDINGS.get((path.with_suffix("") if is_gzip(path) else path).suffix.lower())
    if found == "safetensors" and is_gzip(path):
        raise UsageError("safetensors files are not packed.", repair="Leave .gz away.", file=path)
    return found
