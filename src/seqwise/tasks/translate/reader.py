"""Pairs of texts: `train.en` beside `train.de`, tables with `source` and `target`, or `builtin:dates`.

A source may have several targets. Anything that would misalign pairs is an error; dropped pairs are counted. The
module knows nothing of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from seqwise.config import Settings
from seqwise.data.examples import Splits, find_training_duplicates, open_examples, split_examples
from seqwise.data.reading import replace_surrogates
from seqwise.data.splitting import SPLITS, group_by_split
from seqwise.data.tables import SUFFIXES, read_table, read_text
from seqwise.errors import DataError, Findings
from seqwise.tasks.translate.alignment import Misalignment, find_misalignment
from seqwise.tasks.translate.dates import spell_dates
from seqwise.tasks.translate.languages import Languages, find_file_languages, find_table_languages
from seqwise.tasks.translate.parallel_files import FileSet, find_parallel_files

MAX_LENGTH_RATIO = 5.0  # relative to the usual ratio of lengths, above which there is a warning
MIN_RATIO_LENGTH = 20  # characters; shorter texts may have any ratio
DROP_OPTION = "--data.on-empty drop"


@dataclass(frozen=True)
class Pair:
    """A source, its target in each language, and the location of the source."""

    source: str
    targets: tuple[str, ...]
    file: str = field(repr=False)
    line: int = field(repr=False)


def open_pairs(spec: str, settings: Settings) -> tuple[Splits[Pair], Languages]:
    """Read and check all pairs; `settings` say which languages, and what to do with empty lines."""
    valid, test = settings.data.valid_fraction, settings.data.test_fraction
    sets, first = (None, None) if spec.startswith("builtin:") else find_parallel_files(Path(spec))
    if sets is not None:
        return _open_files(spec, sets, first, settings, {"valid": valid, "test": test})
    languages = Languages()

    def read(path: Path, findings: Findings) -> list[Pair]:
        nonlocal languages
        languages, columns = find_table_languages(path, settings.columns, settings.target)
        return read_table_pairs(path, languages, columns, settings.data.on_empty, findings)

    # The description is part of the fingerprint of the data: it cannot change.
    builtins = {"dates": (builtin_dates, "written dates and their ISO form")}
    splits = open_examples(spec, read, SUFFIXES, builtins, valid, test)
    return splits, languages


def builtin_dates() -> list[Pair]:
    pairs = enumerate(spell_dates(), start=1)
    return [Pair(source, (target,), "builtin:dates", line) for line, (source, target) in pairs]


def _open_files(
    spec: str, sets: list[FileSet], first: str | None, settings: Settings, fractions: dict[str, float]
) -> tuple[Splits[Pair], Languages]:
    languages = find_file_languages(spec, sets, first, settings.columns, settings.target)
    stems = {Path(each.stem): each for each in sets}
    groups = group_by_split(stems) or {"train": list(stems)}
    findings = Findings()
    for stem in sorted(set(stems).difference(*groups.values())):
        for path in stems[stem].paths.values():
            findings.warn("files whose names tell no split, which are not read", path)
    parts: dict[str, list[Pair]] = {}
    for split in (split for split in SPLITS if split in groups):
        parts[split] = []
        for stem in groups[split]:
            parts[split] += read_file_pairs(stems[stem], languages, settings.data.on_empty, findings)
    findings.raise_errors()
    for split in parts:
        if not parts[split]:
            raise DataError(f"no pairs are left for {split}.", repair="Give files with some.", file=spec)
    splits = split_examples(spec, parts, fractions, findings)
    merged = [f"{split} is {' and '.join(map(str, groups[split]))}" for split in parts if len(groups[split]) > 1]
    if merged:
        splits.split_rule = f"{splits.split_rule.rstrip('.')}; {'; '.join(merged)}."
    return splits, languages


@dataclass
class _NumberedLines:
    """The lines of a file with their line numbers."""

    path: Path
    lines: list[str]
    numbers: list[int]

    def drop(self, index: int) -> int:
        """Remove a line and return its number."""
        del self.lines[index]
        return self.numbers.pop(index)


def read_file_pairs(files: FileSet, languages: Languages, on_empty: str, findings: Findings) -> list[Pair]:
    """Return the pairs of parallel files, line by line."""
    texts = [text for name in languages.all if (text := _read_lines(files.paths[name], findings)) is not None]
    if len(texts) < len(languages.all):
        return []
    source, *targets = texts
    aligned = [_align(source, target, on_empty, len(targets) == 1, findings) for target in targets]
    if not all(aligned):
        return []
    pairs = []
    for index in range(len(source.lines)):
        sides = [join_lines(text.lines[index]) for text in texts]
        locations = [(text.path, text.numbers[index]) for text in texts]
        if _check_complete(sides, locations, on_empty, findings):
            pairs.append(Pair(sides[0], tuple(sides[1:]), str(source.path), source.numbers[index]))
    return pairs


def _read_lines(path: Path, findings: Findings) -> _NumberedLines | None:
    try:
        text = read_text(path)
    except DataError as error:
        findings.errors.append(error)
        return None
    if not text.strip():
        findings.error("the file is empty.", repair="Give a file with one sentence per line.", file=path)
        return None
    lines = text.removesuffix("\n").split("\n")
    return _NumberedLines(path, lines, list(range(1, len(lines) + 1)))


def _align(
    source: _NumberedLines, target: _NumberedLines, on_empty: str, has_one_target: bool, findings: Findings
) -> bool:
    """Return whether both sides have equally many lines; otherwise add an error at the first misaligned line.

    Empty lines at the end of the longer side are removed, since they misalign nothing. With `drop`, so are empty lines
    without a partner; in a source only if it has a single target, because others would be misaligned.
    """
    longer, shorter = (source, target) if len(source.lines) > len(target.lines) else (target, source)
    while len(longer.lines) > len(shorter.lines) and not longer.lines[-1].strip():
        number = longer.drop(len(longer.lines) - 1)
        findings.warn("empty lines at the end of a file, which are skipped", longer.path, number)
    surplus = len(longer.lines) - len(shorter.lines)
    if not surplus:
        return True
    misalignment = find_misalignment(longer.lines, shorter.lines)
    empty = [index for index in misalignment.unmatched if not longer.lines[index].strip()]
    are_all_empty = len(empty) == len(misalignment.unmatched) == surplus
    if on_empty == "drop" and (longer is target or has_one_target) and are_all_empty:
        for index in reversed(empty):
            findings.warn("empty lines without a partner, which are dropped", longer.path, longer.drop(index))
        return True
    findings.errors.append(_misalignment_error(longer, shorter, misalignment))
    return False


def _misalignment_error(longer: _NumberedLines, shorter: _NumberedLines, misalignment: Misalignment) -> DataError:
    long, short, line = longer.path.name, shorter.path.name, misalignment.line
    problem = f"{short} has {len(shorter.lines):,} lines but {long} has {len(longer.lines):,}: "
    repair = f"Add what is missing to {short}, or remove it from {long}."
    if misalignment.is_at_end:
        problem += f"the lines of {long} from {line:,} on have no partner."
    elif not longer.lines[misalignment.unmatched[0]].strip():
        problem += f"from line {line:,} on the pairs no longer match ({long} line {line:,} is empty)."
        repair = f"Remove that line from {long}, or pass {DROP_OPTION} to drop empty lines without a partner."
    else:
        problem += f"from about line {line:,} on the pairs no longer match, judging by lengths and numbers in them."
    return DataError(problem, repair=repair, file=longer.path, line=line)


def read_table_pairs(
    path: Path, languages: Languages, columns: Sequence[str] | None, on_empty: str, findings: Findings
) -> list[Pair]:
    """Return the pairs of a table."""
    pairs = []
    for row in read_table(path, languages.all, findings, columns).rows:
        wrong = {name: value for name, value in row.values.items() if not isinstance(value, str | None)}
        for name, value in list(wrong.items())[:1]:
            problem = f"expected text under {name}, found {type(value).__name__}."
            findings.error(problem, repair="Write it as a string.", file=path, line=row.line)
        if wrong:
            continue
        for value in row.values.values():
            if value and has_line_break(value.strip()):
                findings.warn("texts with line breaks inside, which are read as blanks", path, row.line)
        texts = [join_lines(value or "") for value in row.values.values()]
        if _check_complete(texts, [(path, row.line)] * len(texts), on_empty, findings, list(row.values)):
            pairs.append(Pair(texts[0], tuple(texts[1:]), str(path), row.line))
    return pairs


def join_lines(text: str) -> str:
    """Return a text as models read it, in training and in use: one line, without blanks around it."""
    text = replace_surrogates(text.strip())
    # In plain files a line break ends a sentence, so a text must not contain one.
    return " ".join(text.split()) if has_line_break(text) else text


def has_line_break(text: str) -> bool:
    return "\n" in text or "\r" in text


def _check_complete(
    texts: Sequence[str],
    locations: Sequence[tuple[Path, int]],
    on_empty: str,
    findings: Findings,
    names: Sequence[str] | None = None,
) -> bool:
    """Return whether no side of a pair is empty; otherwise add a warning or an error."""
    if all(texts):
        return True
    if not any(texts):
        findings.warn("pairs that are empty on all sides, which are dropped", *locations[0])
        return False
    empty = next(index for index, text in enumerate(texts) if not text)
    path, line = locations[empty]
    if on_empty == "drop":
        findings.warn("pairs with an empty side, which are dropped", path, line)
        return False
    other = next(index for index, text in enumerate(texts) if text)
    empty_name, other_name = (names[empty], names[other]) if names else (path.name, locations[other][0].name)
    repair = f"Fill it in, remove the pair on all sides, or pass {DROP_OPTION} to drop such pairs entirely."
    findings.error(f"{empty_name} is empty here, {other_name} is not.", repair=repair, file=path, line=line)
    return False


def check_pairs(splits: Splits[Pair]) -> None:
    """Add warnings about pairs that are often mistakes."""
    findings, pairs = splits.findings, splits.all_examples()
    usual = median(_log_length_ratio(pair) for pair in pairs)
    for pair in pairs:
        if pair.source in pair.targets:
            findings.warn("pairs whose target equals the source; they are kept", pair.file, pair.line)
        is_unusual = abs(_log_length_ratio(pair) - usual) > math.log(MAX_LENGTH_RATIO)
        if is_unusual and max(len(pair.source), *map(len, pair.targets)) >= MIN_RATIO_LENGTH:
            what = f"pairs with a ratio of lengths {MAX_LENGTH_RATIO:g} times that of most; they are kept"
            findings.warn(what, pair.file, pair.line)
    for split, pair in find_training_duplicates(splits, lambda pair: (pair.source, pair.targets)):
        findings.warn(f"pairs of {split} are in train too, so they may be memorised", pair.file, pair.line)


def _log_length_ratio(pair: Pair) -> float:
    return math.log((len(pair.source) + 1) / (sum(map(len, pair.targets)) / len(pair.targets) + 1))
