"""Finds the source and the target languages in parallel files, such as `train.en` and `train.de`, or in columns.

Names of files, --columns and --target say which language is the source. The module does not read the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqwise.data.opening import is_gzip, read_error
from seqwise.data.reading import get_format_suffix, list_files, missing_file_error, name_file_type
from seqwise.data.tables import SUFFIXES, read_header, split_commas
from seqwise.errors import DataError, UsageError, pluralize, suggest

DEFAULT_NAMES = ("source", "target")
DIRECTED_NAMES = (DEFAULT_NAMES, ("src", "tgt"), ("src", "trg"))  # suffixes (source, target) that are no languages

_LANGUAGE = re.compile(r"\.[a-z]{2,3}([-_][a-z0-9]+)?|\.source|\.target", re.IGNORECASE)
# Suffixes of file formats that look like the code of a language.
_FORMATS = frozenset({
    ".txt", ".md", ".log", ".csv", ".tsv", ".zip", ".tar", ".npy", ".png", ".jpg", ".gif", ".pdf", ".xml", ".sgm",
    ".bmp", ".tif", ".wav", ".tex", ".rst", ".cfg", ".ini", ".bio", ".iob", ".py", ".sh", ".js", ".yml", ".bz2",
    ".xz", ".db", ".bin", ".pt", ".doc", ".htm",
})  # fmt: skip

FilesByStem = dict[str, dict[str, Path]]  # stem, such as `train` → language → file


@dataclass(frozen=True)
class Languages:
    """The names of the languages; unnamed ones are called source and target."""

    source: str = "source"
    targets: tuple[str, ...] = ("target",)

    @property
    def all(self) -> list[str]:
        return [self.source, *self.targets]

    def __str__(self) -> str:
        return f"{self.source} → {', '.join(self.targets)}"


# Parallel files


def find_parallel_files(path: Path) -> tuple[FilesByStem, str | None]:
    """Returns the parallel files in a folder, or those with the stem of `path`; no files if the path names tables.

    The second value is the language of `path`, if it is a file.
    """
    try:
        if path.is_dir():
            files_by_stem = _group_by_stem(path, list_files(path))
            if not files_by_stem:
                _check_has_tables(path)
            return files_by_stem, None
        if get_format_suffix(path) in SUFFIXES:
            return {}, None
        siblings = [each for each in path.parent.iterdir() if each.is_file()] if path.parent.is_dir() else []
        exists = path.exists()
        stem, language = _split_language(path) if exists else (path.name, None)
        files_by_stem = _group_by_stem(path.parent, siblings)
    except OSError as error:
        raise read_error(error, error.filename or path) from None
    if Path(stem).name not in files_by_stem:
        raise _build_single_file_error(path, language) if exists else missing_file_error(path)
    return {Path(stem).name: files_by_stem[Path(stem).name]}, language


def _group_by_stem(folder: Path, files: Iterable[Path]) -> FilesByStem:
    """Returns the files of a folder by stem, for stems with two languages or more."""
    groups: FilesByStem = {}
    for path in sorted(files):
        stem, language = _split_language(path.relative_to(folder))
        if language is None:
            continue
        if language in groups.setdefault(stem, {}):
            other = groups[stem][language].name
            raise DataError(f"{other} and {path.name} are the same text twice.", fix="Remove one.", file=path)
        groups[stem][language] = path
    return {stem: paths for stem, paths in groups.items() if len(paths) > 1}


def _split_language(path: Path) -> tuple[str, str | None]:
    """Returns (stem, language), such as (train, de) for `train.de.gz`; language None for other suffixes."""
    name = path.with_suffix("") if is_gzip(path) else path
    if not _LANGUAGE.fullmatch(name.suffix) or name.suffix.lower() in _FORMATS:
        return str(path), None
    return str(name.with_suffix("")), name.suffix[1:]


def _check_has_tables(folder: Path) -> None:
    """Raises an error if a folder without parallel files contains no tables either."""
    files = sorted(list_files(folder))
    if any(get_format_suffix(path) in SUFFIXES for path in files):
        return
    for path in files:
        if language := _split_language(path)[1]:
            raise _build_single_file_error(path, language)
    raise DataError(
        f"the folder contains no pairs ({pluralize(len(files), 'other files')})." if files else "the folder is empty.",
        fix="Expected train.en beside train.de, or .csv, .tsv or .jsonl with source and target; gzip of these too.",
        file=folder,
    )


def _build_single_file_error(path: Path, language: str | None) -> DataError:
    if language is None:
        problem = f"{name_file_type(path)} are not read by this task."
        fix = "Give .csv, .tsv or .jsonl with source and target, or a folder with train.en and train.de."
    else:
        problem = "the file has no counterpart: a text in another language with as many lines is missing beside it."
        stem = Path(_split_language(path)[0]).name
        fix = f"Put it there under the same name with another suffix, such as {stem}.de"
    return DataError(problem, fix=fix, file=path)


def find_file_languages(
    spec: str, files_by_stem: FilesByStem, path_language: str | None, columns: str | None, target: str | None
) -> Languages:
    """Returns source and targets among the suffixes of files; there must be a file of each language for every stem."""
    available = sorted({language for paths in files_by_stem.values() for language in paths})
    languages = _choose_languages(available, path_language, split_commas(columns), split_commas(target), spec)
    for stem, paths in files_by_stem.items():
        other = next(iter(paths.values()))
        for language in languages.all:
            if language not in paths:
                problem = f"{stem}.{language} is missing beside {other.name}."
                raise DataError(problem, fix="Add it, or remove the other file.", file=other)
    return languages


def _choose_languages(
    available: list[str], path_language: str | None, columns: list[str] | None, target: list[str] | None, spec: str
) -> Languages:
    """Returns source and targets: those of --columns and --target, or the only possible ones."""
    targets = target or (columns or [])[1:]
    source = columns[0] if columns else path_language
    for name in [*targets, *([source] if source else [])]:
        if name not in available:
            problem = f"there is no text in {name!r}; there are {_join_names(available)}."
            raise DataError(problem, fix=suggest(name, available), file=spec)
    if not targets:
        directed = next((pair for pair in DIRECTED_NAMES if list(pair) == available), None)
        others = [name for name in available if name != source]
        if directed is not None and path_language is None:
            source, targets = directed[0], [directed[1]]
        elif source is not None and len(others) == 1:
            targets = others
        else:
            choices = " or ".join(f"--target {name}" for name in others)
            problem = f"there are texts in {_join_names(available)}: which one is the target?"
            raise DataError(problem, fix=f"Choose: {choices}.", file=spec)
    if source is None:
        candidates = [name for name in available if name not in targets]
        if len(candidates) != 1:
            problem = f"there are texts in {_join_names(available)}: which one is the source?"
            fix = (
                f"Choose: {_format_columns_options(candidates, targets)}."
                if candidates
                else "Leave one out of --target."
            )
            raise DataError(problem, fix=fix, file=spec)
        source = candidates[0]
    return _check_names(Languages(source, tuple(targets)), "Give the files another suffix.")


# Columns of a table


def find_table_languages(
    path: Path, columns: str | None, target: str | None, encoding: str | None = None
) -> tuple[Languages, list[str] | None]:
    """Returns the languages of a table and their columns; None if the columns have the names of the languages."""
    names, targets = split_commas(columns), split_commas(target)
    if names is None and targets is None:
        return Languages(), None
    header = read_header(path, encoding)
    if names is None:
        source = _find_source(header, targets or [], path)
        names = [source, *(targets or [])]
    elif len(names) < 2:
        raise UsageError(f"--columns: expected source,target or more targets; received {columns}.")
    else:
        source = "source" if names[0].isdigit() else names[0]
    if targets is None or len(targets) != len(names) - 1:
        targets = names[1:]
        if any(name.isdigit() for name in targets):  # numbers of columns are not names
            targets = ["target"] if len(targets) == 1 else [f"target{name}" for name in targets]
    fix = f"Choose another name: --columns {','.join(names)} --target {','.join('NAME' for _ in targets)}."
    languages = _check_names(Languages(source, tuple(targets)), fix)
    # A run on train.en and train.de can be evaluated on a table with the columns source and target.
    has_default = len(targets) == 1 and all(name in header for name in DEFAULT_NAMES)
    use_default = has_default and not all(name in header for name in names) and not names[0].isdigit()
    return languages, list(DEFAULT_NAMES) if use_default else names


def _find_source(header: list[str], targets: list[str], path: Path) -> str:
    candidates = [name for name in header if name not in targets]
    if "source" in candidates or not candidates:
        return "source"
    if len(candidates) > 1:
        fix = f"Choose: {_format_columns_options(candidates[:3], targets)}."
        raise DataError(f"which column is the source: {_join_names(candidates)}?", fix=fix, file=path, line=1)
    return candidates[0]


def _check_names(languages: Languages, fix: str) -> Languages:
    repeated = [name for name in languages.all if languages.all.count(name) > 1]
    if repeated:
        problem = f"{repeated[0]} cannot be both source and target, or a target twice."
        raise UsageError(problem, fix="Name each language once.")
    # A run saves the vocabulary of each target under its name, and the vocabulary of the source as "text".
    for name in languages.targets:
        if name == "text" or "/" in name or "\\" in name:
            raise UsageError(f"a target cannot be called {name!r}: its vocabulary is saved by name.", fix=fix)
    return languages


def _format_columns_options(sources: Sequence[str], targets: Sequence[str]) -> str:
    """Returns a --columns option for each possible source."""
    return " or ".join(f"--columns {','.join([name, *targets])}" for name in sources)


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
