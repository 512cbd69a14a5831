"""Which language is read and which are written: from the names of files or columns, and from what the user said."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqwise.data.reading import get_format_suffix, open_binary
from seqwise.data.tables import parse_columns
from seqwise.errors import DataError, UsageError, nearest
from seqwise.tasks.translate.parallel import FileSet

PLAIN = ("source", "target")
TOLD = (PLAIN, ("src", "tgt"), ("src", "trg"))  # endings that say themselves which is which


@dataclass(frozen=True)
class Languages:
    """The names of the languages. Without names they are called source and target."""

    source: str = "source"
    targets: tuple[str, ...] = ("target",)

    @property
    def all(self) -> list[str]:
        return [self.source, *self.targets]

    @property
    def columns(self) -> str:
        """As `--columns` has them."""
        return ",".join(self.all)

    def __str__(self) -> str:
        return f"{self.source} → {', '.join(self.targets)}"


def languages_of_files(
    spec: str, sets: Sequence[FileSet], first: str | None, columns: str | None, target: str | None
) -> Languages:
    """Source and targets among the endings of files; every set must have them all."""
    known = sorted({language for each in sets for language in each.paths})
    languages = _chosen(known, first, parse_columns(columns), parse_columns(target), spec)
    for each in sets:
        for language in languages.all:
            if language not in each.paths:
                there = next(iter(each.paths.values()))
                raise DataError(
                    f"{each.stem}.{language} is missing beside {there.name}.",
                    repair="Add it, or take the other file away.",
                    file=there,
                )
    return languages


def _chosen(
    known: list[str], first: str | None, columns: list[str] | None, target: list[str] | None, spec: str
) -> Languages:
    wanted = target or (columns or [])[1:]
    source = columns[0] if columns else first
    for name in [*wanted, *([source] if source else [])]:
        if name not in known:
            raise DataError(
                f"there is no text in {name!r}; there are {_listed(known)}.", repair=nearest(name, known), file=spec
            )
    if not wanted:
        told = next((pair for pair in TOLD if list(pair) == known), None)
        others = [name for name in known if name != source]
        if told is not None and first is None:
            source, wanted = told[0], [told[1]]
        elif source is not None and len(others) == 1:
            wanted = others
        else:
            choices = " or ".join(f"--target {name}" for name in others)
            problem = f"there are texts in {_listed(known)}: which of them is to be written?"
            raise DataError(problem, repair=f"Say it: {choices}.", file=spec)
    if source is None:
        left = [name for name in known if name not in wanted]
        if len(left) != 1:
            choices = " or ".join(f"--columns {','.join([name, *wanted])}" for name in left)
            problem = f"there are texts in {_listed(known)}: which of them is to be read?"
            raise DataError(problem, repair=f"Say it: {choices}." if left else "Leave one out of --target.", file=spec)
        source = left[0]
    return _checked(Languages(source, tuple(wanted)), "Give the files another ending.")


def languages_of_table(path: Path, columns: str | None, target: str | None) -> tuple[Languages, list[str] | None]:
    """The languages of a table and the columns that hold them, or None where the columns are called like them."""
    named, wanted = parse_columns(columns), parse_columns(target)
    if named is None and wanted is None:
        return Languages(), None
    header = header_of(path)
    if named is not None:
        if len(named) < 2:
            raise UsageError(f"--columns: expected source,target or more targets; received {columns}.")
        targets = wanted if wanted and len(wanted) == len(named) - 1 else _named(named[1:])
        source = "source" if named[0].isdigit() else named[0]
    else:
        assert wanted is not None
        targets, source = wanted, _source(header, wanted, path)
        named = [source, *targets]
    repair = f"Call it otherwise: --columns {','.join(named)} --target {','.join('NAME' for _ in targets)}."
    languages = _checked(Languages(source, tuple(targets)), repair)
    # A run on train.en and train.de can be measured on a table with plain names.
    plain = len(targets) == 1 and all(name in header for name in PLAIN) and not all(name in header for name in named)
    return languages, list(PLAIN) if plain and not named[0].isdigit() else named


def header_of(path: Path) -> list[str]:
    """The names in the first line of a table, as they stand there."""
    with open_binary(path) as file:
        line = file.readline().decode("utf-8-sig", "replace").strip()
    if get_format_suffix(path) == ".jsonl":
        try:
            content = json.loads(line)
        except ValueError:
            return []
        return list(content) if isinstance(content, dict) else []
    return next(csv.reader([line], delimiter="\t" if get_format_suffix(path) == ".tsv" else ","), [])


def _source(header: list[str], targets: list[str], path: Path) -> str:
    left = [name for name in header if name not in targets]
    if "source" in left or not left:
        return "source"
    if len(left) > 1:
        choices = " or ".join(f"--columns {','.join([name, *targets])}" for name in left[:3])
        raise DataError(
            f"which column is to be read: {_listed(left)}?", repair=f"Say it: {choices}.", file=path, line=1
        )
    return left[0]


def _named(columns: list[str]) -> list[str]:
    """Numbers of columns are no names of languages."""
    if not any(column.isdigit() for column in columns):
        return columns
    return ["target"] if len(columns) == 1 else [f"target{column}" for column in columns]


def _checked(languages: Languages, repair: str) -> Languages:
    twice = [name for name in languages.all if languages.all.count(name) > 1]
    if twice:
        raise UsageError(f"{twice[0]} cannot be read and written, or written twice.", repair="Name each language once.")
    # A run saves the vocabulary of each target under its name, and that of the source under "text".
    for name in languages.targets:
        if name == "text" or "/" in name or "\\" in name:
            raise UsageError(f"a target cannot be called {name!r}: its vocabulary is saved by name.", repair=repair)
    return languages


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
