"""Reads and writes files of word vectors: detects the format, called its kind, and calls its reader or writer.

    .safetensors   everything, with counts, n-grams and training settings; loads fastest
    .bin           word2vec binary: words and numbers as bytes
    .vec           fastText text: a header (number of words, dimensions), then one word per line
    .txt           word2vec text (the same as .vec), or GloVe text, which has no header

With `.gz` after any suffix but .safetensors the file is compressed. All but .safetensors keep only words and vectors.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from seqwise.callbacks import LogFunction, ProgressCallback
from seqwise.data.opening import blame_file, is_gzip, open_binary
from seqwise.errors import UsageError, check_type, suggest
from seqwise.files import check_output_path

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

Kind = Literal["safetensors", "word2vec-text", "word2vec-binary", "glove", "fasttext"]
KINDS = get_args(Kind)
KINDS_BY_SUFFIX = {
    ".safetensors": "safetensors",
    ".bin": "word2vec-binary",
    ".vec": "fasttext",
    ".txt": "word2vec-text",
}


def load_vectors(
    path: str | Path, kind: str | None = None, progress: ProgressCallback | None = None, log: LogFunction | None = None
) -> KeyedVectors:
    """Reads a file of vectors; its suffix determines the kind, or its first line if the suffix is unknown.

    Repeated words, of which the first vector is used, and words that are not UTF-8 are reported to `log`, or as
    a warning.
    """
    from seqwise.vectors.formats.binary import read_binary, read_safetensors
    from seqwise.vectors.formats.text import read_text
    from seqwise.vectors.formats.vector_table import reject_other_formats

    check_type("path", path, (str, PathLike), "the path of a file of vectors")
    path = Path(path)
    resolved_kind = _resolve_kind(path, kind)
    with blame_file(path):
        with open_binary(path) as file:
            reject_other_formats(path, file.read(64), resolved_kind)
        if resolved_kind == "safetensors":
            return read_safetensors(path)
        if resolved_kind == "word2vec-binary":
            return read_binary(path, progress, log)
        is_ambiguous = kind is None and resolved_kind != "fasttext"  # .txt and unknown suffixes: the first line decides
        return read_text(path, None if is_ambiguous else resolved_kind != "glove", progress, log)


def save_vectors(path: str | Path, keyed: KeyedVectors, kind: str | None = None) -> None:
    """Writes a file of vectors atomically; its suffix determines the kind, `.txt` is word2vec text."""
    from seqwise.vectors.formats.binary import write_binary, write_safetensors
    from seqwise.vectors.formats.text import write_text

    path = Path(path)
    resolved_kind = resolve_output_kind(path, kind)
    if resolved_kind == "safetensors":
        write_safetensors(path, keyed)
    elif resolved_kind == "word2vec-binary":
        write_binary(path, keyed)
    else:
        write_text(path, keyed, header=resolved_kind != "glove")


def resolve_output_kind(path: str | Path, kind: str | None = None) -> str:
    """Returns the kind of a file to write; raises an error if it cannot be written."""
    path = Path(path)
    resolved_kind = _resolve_kind(path, kind)
    if resolved_kind is None:
        problem = f"the suffix of {path.name!r} does not determine the format to write."
        fix = f"End it in {', '.join(KINDS_BY_SUFFIX)} (convert also accepts --to with {', '.join(KINDS)})."
        raise UsageError(problem, fix=fix)
    check_output_path(path)
    return resolved_kind


def _resolve_kind(path: Path, kind: str | None) -> str | None:
    """Returns `kind` if it is set, otherwise the kind of the suffix, or None if the suffix is unknown."""
    if kind is not None and kind not in KINDS:
        raise UsageError(f"kind: {kind!r} is unknown.", fix=suggest(kind, KINDS))
    resolved_kind = kind or KINDS_BY_SUFFIX.get((path.with_suffix("") if is_gzip(path) else path).suffix.lower())
    if resolved_kind == "safetensors" and is_gzip(path):
        raise UsageError("safetensors files cannot be compressed.", fix="Remove .gz from the name.", file=path)
    return resolved_kind
