"""The source and target languages, from the names of files or columns and from --columns and --target."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqwise.data.reading import get_format_suffix, open_binary
from seqwise.data.tables import parse_columns
from seqwise.errors import DataError, UsageError, suggest
from seqwise.tasks.translate.parallel_files import FileSet

DEFAULT_NAMES = ("source", "target")
DIRECTED_NAMES = (DEFAULT_NAMES, ("src", "tgt"), ("src", "trg"))  # suffixes that tell source from target


@dataclass(frozen=True)
class Languages:
    """The names of the languages; unnamed ones are called source and target."""

    source: str = "source"
    targets: tuple[str, ...] = ("target",)

    @property
    def all(self) -> list[str]:
        return [self.source, *self.targets]

    @property
    def columns(self) -> str:
        """The value of `--columns`."""
        return ",".join(self.all)

    def __str__(self) -> str:
        return f"{self.source} → {', '.join(self.targets)}"


def find_file_languages(
    spec: str, sets: Sequence[FileSet], first: str | None, columns: str | None, target: str | None
) -> Languages:
    """Return source and targets among the suffixes of files; every set must have them all."""
    known = sorted({language for each in sets for language in each.paths})
    languages = _choose_languages(known, first, parse_columns(columns), parse_columns(target), spec)
    for each in sets:
        for language in languages.all:
            if language not in each.paths:
                other = next(iter(each.paths.values()))
                raise DataError(
                    f"{each.stem}.{language} is missing beside {other.name}.",
                    repair="Add it, or remove the other file.",
                    file=other,
                )
    return languages


def _choose_languages(
    known: list[str], first: str | None, columns: list[str] | None, target: list[str] | None, spec: str
) -> Languages:
    targets = target or (columns or [])[1:]
    source = columns[0] if columns else first
    for name in [*targets, *([source] if source else [])]:
        if name not in known:
            raise DataError(
                f"there is no text in {name!r}; there are {_listed(known)}.", repair=suggest(name, known), file=spec
            )
    if not targets:
        directed = next((pair for pair in DIRECTED_NAMES if list(pair) == known), None)
        others = [name for name in known if name != source]
        if directed is not None and first is None:
            source, targets = directed[0], [directed[1]]
        elif source is not None and len(others) == 1:
            targets = others
        else:
            choices = " or ".join(f"--target {name}" for name in others)
            problem = f"there are texts in {_listed(known)}: which one is the target?"
            raise DataError(problem, repair=f"Choose: {choices}.", file=spec)
    if source is None:
        left = [name for name in known if name not in targets]
        if len(left) != 1:
            choices = " or ".join(f"--columns {','.join([name, *targets])}" for name in left)
            problem = f"there are texts in {_listed(known)}: which one is the source?"
            raise DataError(problem, repair=f"Choose: {choices}." if left else "Leave one out of --target.", file=spec)
        source = left[0]
    return _check_names(Languages(source, tuple(targets)), "Give the files another suffix.")


def find_table_languages(path: Path, columns: str | None, target: str | None) -> tuple[Languages, list[str] | None]:
    """Return the languages of a table and their columns, or None where the columns have the names of the languages."""
    names, requested = parse_columns(columns), parse_columns(target)
    if names is None and requested is None:
        return Languages(), None
    header = read_header(path)
    if names is not None:
        if len(names) < 2:
            raise UsageError(f"--columns: expected source,target or more targets; received {columns}.")
        has_each = requested is not None and len(requested) == len(names) - 1
        targets = requested if requested and has_each else _name_targets(names[1:])
        source = "source" if names[0].isdigit() else names[0]
    else:
        assert requested is not None
        targets, source = requested, _find_source(header, requested, path)
        names = [source, *targets]
    repair = f"Choose another name: --columns {','.join(names)} --target {','.join('NAME' for _ in targets)}."
    languages = _check_names(Languages(source, tuple(targets)), repair)
    # A run on train.en and train.de can be evaluated on a table with the columns source and target.
    has_default = len(targets) == 1 and all(name in header for name in DEFAULT_NAMES)
    use_default = has_default and not all(name in header for name in names) and not names[0].isdigit()
    return languages, list(DEFAULT_NAMES) if use_default else names


def read_header(path: Path) -> list[str]:
    """Return the column names in the first line of a table."""
    with open_binary(path) as file:
        line = file.readline().decode("utf-8-sig", "replace").strip()
    if get_format_suffix(path) == ".jsonl":
        try:
            content = json.loads(line)
        except ValueError:
            return []
        return list(content) if isinstance(content, dict) else []
    return next(csv.reader([line], delimiter="\t" if get_format_suffix(path) == ".tsv" else ","), [])


def _find_source(header: list[str], targets: list[str], path: Path) -> str:
    left = [name for name in header if name not in targets]
    if "source" in left or not left:
        return "source"
    if len(left) > 1:
        choices = " or ".join(f"--columns {','.join([name, *targets])}" for name in left[:3])
        raise DataError(
            f"which column is the source: {_listed(left)}?", repair=f"Choose: {choices}.", file=path, line=1
        )
    return left[0]


def _name_targets(columns: list[str]) -> list[str]:
    """Return names of the target languages; numbers of columns are not names."""
    if not any(column.isdigit() for column in columns):
        return columns
    return ["target"] if len(columns) == 1 else [f"target{column}" for column in columns]


def _check_names(languages: Languages, repair: str) -> Languages:
    repeated = [name for name in languages.all if languages.all.count(name) > 1]
    if repeated:
        problem = f"{repeated[0]} cannot be both source and target, or a target twice."
        raise UsageError(problem, repair="Name each language once.")
    # A run saves the vocabulary of each target under its name, and that of the source under "text".
    for name in languages.targets:
        if name == "text" or "/" in name or "\\" in name:
            raise UsageError(f"a target cannot be called {name!r}: its vocabulary is saved by name.", repair=repair)
    return languages


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
