"""Files that belong together line by line: `train.en`, `train.de`. It looks at names only and reads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from seqwise.data.reading import get_format_suffix, is_gzip, list_files, missing_file_error, read_error
from seqwise.data.tables import SUFFIXES
from seqwise.errors import DataError

_LANGUAGE = re.compile(r"\.[a-z]{2,3}([-_][a-z0-9]+)?|\.source|\.target", re.IGNORECASE)
_FORMATS = {
    ".txt",
    ".md",
    ".log",
    ".csv",
    ".tsv",
    ".zip",
    ".tar",
    ".npy",
    ".png",
    ".jpg",
    ".gif",
    ".pdf",
    ".xml",
    ".sgm",
}
_FORMATS |= {".bmp", ".tif", ".wav", ".tex", ".rst", ".cfg", ".ini", ".bio", ".iob"}
_FORMATS |= {".py", ".sh", ".js", ".yml", ".bz2", ".xz", ".db", ".bin", ".pt", ".doc", ".htm"}


@dataclass(frozen=True)
class FileSet:
    """One text in several languages: `paths` by language; `stem` is what their names share."""

    stem: str
    paths: dict[str, Path]


def parallel_files(path: Path) -> tuple[list[FileSet] | None, str | None]:
    """The sets that a folder, a file or the beginning of names stands for; None where it is no such thing.

    With them comes the language of the file that was named, if it was one.
    """
    try:
        if path.is_dir():
            sets = _sets(path, list_files(path))
            if not sets:
                _require_tables(path)
            return sets or None, None
        if get_format_suffix(path) in SUFFIXES:
            return None, None
        beside = [each for each in path.parent.iterdir() if each.is_file()] if path.parent.is_dir() else []
        if path.exists():
            stem, language = _divided(path)
            sets = [each for each in _sets(path.parent, beside) if each.stem == Path(stem).name]
            if not sets:
                raise _alone(path, language)
            return sets, language
        sets = [each for each in _sets(path.parent, beside) if each.stem == path.name]
    except OSError as error:
        raise read_error(error, error.filename or path) from None
    if not sets:
        raise missing_file_error(path)
    return sets, None


def _sets(folder: Path, files: Iterable[Path]) -> list[FileSet]:
    """All sets of two languages or more below a folder."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(files):
        stem, language = _divided(path.relative_to(folder))
        if language is None:
            continue
        if language in found.setdefault(stem, {}):
            other = found[stem][language].name
            raise DataError(f"{other} and {path.name} are the same text twice.", repair="Remove one.", file=path)
        found[stem][language] = path
    return [FileSet(stem, paths) for stem, paths in found.items() if len(paths) > 1]


def _divided(path: Path) -> tuple[str, str | None]:
    """`train.de.gz` → (train, de); no language where the ending is that of a format."""
    name = path.with_suffix("") if is_gzip(path) else path
    suffix = name.suffix
    if not _LANGUAGE.fullmatch(suffix) or suffix.lower() in _FORMATS:
        return str(path), None
    return str(name.with_suffix("")), suffix[1:]


def _require_tables(folder: Path) -> None:
    """A folder without sets may hold tables; a single text without its partner is an error."""
    files = sorted(list_files(folder))
    if any(get_format_suffix(path) in SUFFIXES for path in files):
        return
    alone = [path for path in files if _divided(path)[1] is not None]
    if alone:
        raise _alone(alone[0], _divided(alone[0])[1])
    raise DataError(
        f"the folder holds no pairs ({len(files):,} other files)." if files else "the folder is empty.",
        repair="Expected train.en beside train.de, or .csv, .tsv or .jsonl with source and target; gzip of these too.",
        file=folder,
    )


def _alone(path: Path, language: str | None) -> DataError:
    if language is None:
        return DataError(
            f"files ending in {path.suffix or 'nothing'!r} are not read by this task.",
            repair="Give .csv, .tsv or .jsonl with source and target, or a folder with train.en and train.de.",
            file=path,
        )
    stem = _divided(path)[0]
    return DataError(
        "the file stands alone: a text in another language with as many lines is missing beside it.",
        repair=f"Put it there under the same name with another ending, such as {Path(stem).name}.de",
        file=path,
    )
