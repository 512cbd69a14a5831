"""Files of word vectors inside the folders of the studio: found by suffix and first bytes, without reading the rest.

A text or a model has the suffixes of vectors too (.txt, .safetensors), so the beginning of a file decides. Links are
followed only where they lead to a file inside a given folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from seqwise.data.opening import is_gzip, open_binary
from seqwise.environment import get_memory
from seqwise.errors import SeqwiseError, UsageError
from seqwise.studio.catalogue import Catalogue
from seqwise.vectors.formats import KINDS_BY_SUFFIX

MAX_DEPTH = 4  # folders below a given one
MAX_ENTRIES = 20_000  # files and folders that are looked at
MAX_FILES = 200  # in the list
HEAD_BYTES = 8_192  # read of each candidate
FORMAT = "seqwise-vectors"  # in the metadata of a safetensors file
# Of the numbers in memory. The largest files in common use (two or three million words of 300 dimensions) have 2.4 to
# 3.6 GB; a worker process that needs more would slow down trainings on the same machine.
MAX_BYTES = 4_000_000_000
MAX_MEMORY_SHARE = 0.5  # of the memory that is available
TEXT_EXPANSION = 2.5  # bytes of text per byte of numbers, at least

_NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class VectorFile:
    """A file of vectors; `num_words` and `dim` as it declares them, None where it does not."""

    id: str
    num_bytes: int
    num_words: int | None
    dim: int


def list_vector_files(catalogue: Catalogue) -> list[VectorFile]:
    """Returns the files of vectors below the folders, at most `MAX_FILES`."""
    files: list[VectorFile] = []
    for root in catalogue.folders:
        for path in _walk(root):
            if len(files) == MAX_FILES:
                return files
            if not catalogue.is_inside(path):
                continue
            with suppress(OSError, SeqwiseError):
                status = path.stat()
                if (sizes := _read_sizes(path, status.st_size, status.st_mtime_ns)) is not None:
                    identifier = f"{catalogue.names[root]}/{path.relative_to(root).as_posix()}"
                    files.append(VectorFile(identifier, status.st_size, *sizes))
    return files


def find_vector_file(catalogue: Catalogue, identifier: str) -> Path:
    """Returns the path of a file by its id; raises an error if it is not a file of vectors inside a folder."""
    for root in catalogue.folders:
        name, _, rest = identifier.partition("/")
        path = root / rest
        is_plain = rest and not Path(rest).is_absolute() and ".." not in Path(rest).parts and "\0" not in rest
        if catalogue.names[root] == name and is_plain and catalogue.is_inside(path) and has_vector_suffix(path):
            with suppress(OSError):
                if path.is_file():
                    return path
    raise UsageError(f"there is no file of vectors {identifier[:200]!r}.", fix="It may have been moved or deleted.")


def has_vector_suffix(path: Path) -> bool:
    """Returns whether the name of a file is that of a file of vectors."""
    return (path.with_suffix("") if is_gzip(path) else path).suffix.lower() in KINDS_BY_SUFFIX


def check_size(path: Path) -> None:
    """Raises an error for a file that needs more memory than the studio uses for vectors."""
    status = path.stat()
    sizes = _read_sizes(path, status.st_size, status.st_mtime_ns)
    if sizes is None:
        return  # reading it explains what is wrong
    num_words, dim = sizes
    is_binary = path.suffix.lower() in (".safetensors", ".bin")
    num_bytes = 4 * num_words * dim if num_words is not None else status.st_size / (1 if is_binary else TEXT_EXPANSION)
    available = get_memory()[1]
    limit = MAX_BYTES if available is None else min(MAX_BYTES, MAX_MEMORY_SHARE * available)
    if num_bytes > limit:
        needed, allowed = num_bytes / 1e9, limit / 1e9
        problem = f"the vectors need {needed:.2g} GB of memory; the studio uses up to {allowed:.2g} GB for a file."
        fix = "Use a file with fewer words or dimensions, or in a terminal: seqwise vectors nearest FILE WORD"
        raise UsageError(problem, fix=fix, file=path)


def _walk(root: Path) -> Iterator[Path]:
    """Yields the files that may be vectors, nearest to the root first."""
    waiting, num_entries = [(root, 0)], 0
    while waiting:
        folder, depth = waiting.pop(0)
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                num_entries += 1
                if num_entries > MAX_ENTRIES:
                    return
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH:
                        waiting.append((Path(entry.path), depth + 1))
                elif has_vector_suffix(Path(entry.name)) and entry.is_file():
                    yield Path(entry.path)


@lru_cache(maxsize=4 * MAX_FILES)
def _read_sizes(path: Path, num_bytes: int, changed: int) -> tuple[int | None, int] | None:
    """Returns (number of words, dimensions) of a file of vectors; None for another file.

    changed: time of its last change; it makes an entry of the cache invalid
    """
    with open_binary(path) as file:
        head = file.read(HEAD_BYTES)
    if path.suffix.lower() == ".safetensors":
        return _parse_safetensors_header(head)
    kind = KINDS_BY_SUFFIX.get((path.with_suffix("") if is_gzip(path) else path).suffix.lower())
    return _parse_word2vec_header(head) if kind == "word2vec-binary" else _parse_text(head, kind == "word2vec-text")


def _parse_word2vec_header(head: bytes) -> tuple[int | None, int] | None:
    """Returns the sizes in the first line."""
    fields = head.partition(b"\n")[0].split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 12 for field in fields):
        return None
    num_words, dim = map(int, fields)
    return (num_words, dim) if num_words > 0 and dim > 0 else None


def _parse_text(head: bytes, may_lack_header: bool) -> tuple[int | None, int] | None:
    """Returns the sizes of a text whose lines have a word and numbers."""
    lines = head.split(b"\n")
    if len(lines) > 1 and len(head) == HEAD_BYTES:
        lines.pop()  # it is not complete
    rows = [line.split() for line in lines if line.strip()]
    if (sizes := _parse_word2vec_header(head)) is not None:
        is_cut = len(rows) == 1 and len(head) == HEAD_BYTES  # the first vector is longer than what was read
        return sizes if is_cut or (len(rows) > 1 and _count_numbers(rows[1]) == sizes[1]) else None
    # GloVe's text has no header: two lines of a word and equally many numbers are enough.
    dims = set(map(_count_numbers, rows[:2]))
    return (None, dims.pop()) if may_lack_header and len(rows) > 1 and len(dims) == 1 and min(dims) > 1 else None


def _count_numbers(row: list[bytes]) -> int:
    """Returns how many numbers follow the word of a line; 0 if something else does."""
    return len(row) - 1 if all(map(_NUMBER.fullmatch, row[1:])) else 0


def _parse_safetensors_header(head: bytes) -> tuple[int | None, int] | None:
    size = int.from_bytes(head[:8], "little")
    if not 0 < size <= len(head) - 8:
        return None
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        header = json.loads(head[8 : 8 + size])
        if header["__metadata__"]["format"] == FORMAT:
            num_words, dim = header["vectors"]["shape"]
            return int(num_words), int(dim)
    return None
