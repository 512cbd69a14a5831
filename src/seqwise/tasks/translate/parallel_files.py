"""Finds parallel files, such as `train.en` and `train.de`, by their names. It does not read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from seqwise.data.reading import get_format_suffix, is_gzip, list_files, missing_file_error, read_error
from seqwise.data.tables import SUFFIXES
from seqwise.errors import DataError

_LANGUAGE = re.compile(r"\.[a-z]{2,3}([-_][a-z0-9]+)?|\.source|\.target", re.IGNORECASE)
# Suffixes of file formats that look like the code of a language.
_FORMATS = frozenset({
    ".txt", ".md", ".log", ".csv", ".tsv", ".zip", ".tar", ".npy", ".png", ".jpg", ".gif", ".pdf", ".xml", ".sgm",
    ".bmp", ".tif", ".wav", ".tex", ".rst", ".cfg", ".ini", ".bio", ".iob", ".py", ".sh", ".js", ".yml", ".bz2",
    ".xz", ".db", ".bin", ".pt", ".doc", ".htm",
})  # fmt: skip


@dataclass(frozen=True)
class FileSet:
    """One text in several languages."""

    stem: str  # what the names share: `train`
    paths: dict[str, Path]  # by language


def find_parallel_files(path: Path) -> tuple[list[FileSet] | None, str | None]:
    """Return the sets that a folder, a file or a stem stands for, or None if it has none, as a table.

    The second value is the language of the file, if the path is one.
    """
    try:
        if path.is_dir():
            sets = _group_by_stem(path, list_files(path))
            if not sets:
                _require_tables(path)
            return sets or None, None
        if get_format_suffix(path) in SUFFIXES:
            return None, None
        siblings = [each for each in path.parent.iterdir() if each.is_file()] if path.parent.is_dir() else []
        stem, language = _split_language(path) if path.exists() else (path.name, None)
        sets = [each for each in _group_by_stem(path.parent, siblings) if each.stem == Path(stem).name]
        if path.exists():
            if not sets:
                raise _no_partner_error(path, language)
            return sets, language
    except OSError as error:
        raise read_error(error, error.filename or path) from None
    if not sets:
        raise missing_file_error(path)
    return sets, None


def _group_by_stem(folder: Path, files: Iterable[Path]) -> list[FileSet]:
    """Return all sets of two languages or more in a folder."""
    groups: dict[str, dict[str, Path]] = {}
    for path in sorted(files):
        stem, language = _split_language(path.relative_to(folder))
        if language is None:
            continue
        if language in groups.setdefault(stem, {}):
            other = groups[stem][language].name
            raise DataError(f"{other} and {path.name} are the same text twice.", repair="Remove one.", file=path)
        groups[stem][language] = path
    return [FileSet(stem, paths) for stem, paths in groups.items() if len(paths) > 1]


def _split_language(path: Path) -> tuple[str, str | None]:
    """Return `train.de.gz` as (train, de); no language if the suffix is that of a format."""
    name = path.with_suffix("") if is_gzip(path) else path
    suffix = name.suffix
    if not _LANGUAGE.fullmatch(suffix) or suffix.lower() in _FORMATS:
        return str(path), None
    return str(name.with_suffix("")), suffix[1:]


def _require_tables(folder: Path) -> None:
    """Raise unless a folder without parallel files contains tables."""
    files = sorted(list_files(folder))
    if any(get_format_suffix(path) in SUFFIXES for path in files):
        return
    for path in files:
        language = _split_language(path)[1]
        if language is not None:
            raise _no_partner_error(path, language)
    raise DataError(
        f"the folder contains no pairs ({len(files):,} other files)." if files else "the folder is empty.",
        repair="Expected train.en beside train.de, or .csv, .tsv or .jsonl with source and target; gzip of these too.",
        file=folder,
    )


def _no_partner_error(path: Path, language: str | None) -> DataError:
    if language is None:
        return DataError(
            f"files ending in {path.suffix or 'nothing'!r} are not read by this task.",
            repair="Give .csv, .tsv or .jsonl with source and target, or a folder with train.en and train.de.",
            file=path,
        )
    stem = _split_language(path)[0]
    return DataError(
        "the file has no partner: a text in another language with as many lines is missing beside it.",
        repair=f"Put it there under the same name with another suffix, such as {Path(stem).name}.de",
        file=path,
    )
