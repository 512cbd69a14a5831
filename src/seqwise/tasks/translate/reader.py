"""Reads pairs of texts: `train.en` beside `train.de`, tables with `source` and `target`, or `builtin:dates`.

A source may have several targets. Anything that would misalign pairs is an error; dropped pairs are counted. The
module knows nothing of tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from seqwise.config import DataSettings, Settings
from seqwise.data.examples import (
    SPLITS,
    Splits,
    find_training_duplicates,
    group_by_split,
    open_examples,
    split_examples,
)
from seqwise.data.tables import SUFFIXES, join_list, read_table, read_text
from seqwise.errors import DataError, Findings
from seqwise.tasks.translate.alignment import find_misalignment
from seqwise.tasks.translate.dates import generate_date_pairs
from seqwise.tasks.translate.languages import (
    FileSets,
    Languages,
    find_file_languages,
    find_parallel_files,
    find_table_languages,
)
from seqwise.text.patterns import replace_surrogates

MAX_LENGTH_RATIO = 5.0  # relative to the usual ratio of lengths, above which there is a warning
MIN_RATIO_LENGTH = 20  # characters; shorter texts may have any ratio
DROP_OPTION = "--data.on-empty drop"

_LINE_BREAK = re.compile(r"[\n\r]")


@dataclass(frozen=True)
class Pair:
    """A source, its target in each language, and the location of the source.

    `alternatives` has all accepted targets of each language, the first of which is in `targets`, if there are several.
    """

    source: str
    targets: tuple[str, ...]
    file: str = field(repr=False)
    line: int = field(repr=False)
    alternatives: tuple[tuple[str, ...], ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The source and the targets."""
        return self.source, *self.targets

    @property
    def references(self) -> tuple[tuple[str, ...], ...]:
        """All accepted targets of each language."""
        return self.alternatives or tuple((target,) for target in self.targets)

    def expand(self) -> list[Pair]:
        """Return one pair for each accepted target; where languages have fewer than others, theirs are repeated."""
        count = max(map(len, self.references))
        rows = ([texts[number % len(texts)] for texts in self.references] for number in range(count))
        return [replace(self, targets=tuple(row), alternatives=()) for row in rows] if count > 1 else [self]


@dataclass
class PairSplits(Splits[Pair]):
    """Pairs in three splits, and their languages."""

    languages: Languages = field(default_factory=Languages)


def open_pairs(spec: str, settings: Settings) -> PairSplits:
    """Read and check all pairs; `settings` say which languages, and what to do with empty lines."""
    languages = Languages()
    if not spec.startswith("builtin:"):
        file_sets, file_language = find_parallel_files(Path(spec))
        if file_sets:
            languages = find_file_languages(spec, file_sets, file_language, settings.columns, settings.target)
            return PairSplits(**vars(_open_files(spec, file_sets, languages, settings.data)), languages=languages)

    def read(path: Path, findings: Findings) -> list[Pair]:
        nonlocal languages
        languages, columns = find_table_languages(path, settings.columns, settings.target, settings.data.encoding)
        return read_table_pairs(path, languages, columns, settings.data, findings)

    # The description is part of the fingerprint of the data: it cannot change.
    builtins = {"dates": (build_date_pairs, "written dates and their ISO form")}
    fractions = settings.data.valid_fraction, settings.data.test_fraction
    splits = open_examples(spec, read, SUFFIXES, builtins, *fractions)
    return PairSplits(**vars(splits), languages=languages)


def build_date_pairs() -> list[Pair]:
    pairs = enumerate(generate_date_pairs(), start=1)
    return [Pair(source, (target,), "builtin:dates", line) for line, (source, target) in pairs]


def _open_files(spec: str, file_sets: FileSets, languages: Languages, settings: DataSettings) -> Splits[Pair]:
    groups = group_by_split(Path(stem) for stem in file_sets) or {"train": [Path(stem) for stem in file_sets]}
    findings = Findings()
    for stem in sorted(set(map(Path, file_sets)).difference(*groups.values())):
        for path in file_sets[str(stem)].values():
            findings.warn("files whose names contain no split, which are not read", path)
    parts: dict[str, list[Pair]] = {}
    for split in (split for split in SPLITS if split in groups):
        parts[split] = []
        for stem in groups[split]:
            paths = [file_sets[str(stem)][name] for name in languages.all]
            parts[split] += _read_file_pairs(paths, settings, findings)
    findings.raise_errors()
    for split in parts:
        if not parts[split]:
            raise DataError(f"no pairs are left for {split}.", repair="Give files with some.", file=spec)
    fractions = {"valid": settings.valid_fraction, "test": settings.test_fraction}
    splits = split_examples(spec, parts, fractions, findings)
    descriptions = [f"{split} is {' and '.join(map(str, groups[split]))}" for split in parts if len(groups[split]) > 1]
    if descriptions:
        splits.split_rule = f"{splits.split_rule.rstrip('.')}; {'; '.join(descriptions)}."
    return splits


@dataclass
class _TextFile:
    """The lines of a file with their numbers."""

    path: Path
    lines: list[tuple[int, str]]

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.lines]


def _read_file_pairs(paths: Sequence[Path], settings: DataSettings, findings: Findings) -> list[Pair]:
    """Return the pairs of parallel files, line by line; the first file is the source."""
    on_empty = settings.on_empty
    files = [_TextFile(path, _read_lines(path, settings.encoding, findings)) for path in paths]
    if not all(file.lines for file in files):
        return []
    source, *targets = files
    are_aligned = [_align(source, target, on_empty, len(targets) == 1, findings) for target in targets]
    if not all(are_aligned):
        return []
    pairs = []
    for row in zip(*(file.lines for file in files)):
        sides = [join_lines(text) for _, text in row]
        locations = [(path, number) for path, (number, _) in zip(paths, row)]
        if _check_complete(sides, locations, on_empty, findings, [path.name for path in paths]):
            pairs.append(Pair(sides[0], tuple(sides[1:]), str(source.path), row[0][0]))
    return pairs


def _read_lines(path: Path, encoding: str | None, findings: Findings) -> list[tuple[int, str]]:
    try:
        text = read_text(path, findings, encoding)
    except DataError as error:
        findings.errors.append(error)
        return []
    if text.strip():
        return list(enumerate(text.removesuffix("\n").split("\n"), start=1))
    findings.error("the file is empty.", repair="Give a file with one sentence per line.", file=path)
    return []


def _align(source: _TextFile, target: _TextFile, on_empty: str, has_one_target: bool, findings: Findings) -> bool:
    """Return whether both sides have equally many lines; otherwise add an error at the first misaligned line.

    Empty lines at the end of the longer side are removed, since they misalign nothing. With `drop`, so are empty lines
    without a partner; in a source only if it has a single target, because others would be misaligned.
    """
    longer, shorter = (source, target) if len(source.lines) > len(target.lines) else (target, source)
    while len(longer.lines) > len(shorter.lines) and not longer.lines[-1][1].strip():
        number, _ = longer.lines.pop()
        findings.warn("empty lines at the end of a file, which are skipped", longer.path, number)
    surplus = len(longer.lines) - len(shorter.lines)
    if not surplus:
        return True
    unmatched = find_misalignment(longer.texts, shorter.texts)
    are_all_empty = len(unmatched) == surplus and not any(longer.lines[index][1].strip() for index in unmatched)
    if on_empty == "drop" and (longer is target or has_one_target) and are_all_empty:
        for index in reversed(unmatched):
            number, _ = longer.lines.pop(index)
            findings.warn("empty lines without a partner, which are dropped", longer.path, number)
        return True
    long, short, line = longer.path.name, shorter.path.name, unmatched[0] + 1
    problem = f"{short} has {len(shorter.lines):,} lines but {long} has {len(longer.lines):,}: "
    repair = f"Add what is missing to {short}, or remove it from {long}."
    if line > len(shorter.lines):
        problem += f"the lines of {long} from {line:,} on have no partner."
    elif not longer.lines[unmatched[0]][1].strip():
        problem += f"from line {line:,} on the pairs no longer match ({long} line {line:,} is empty)."
        repair = f"Remove that line from {long}, or pass {DROP_OPTION} to drop empty lines without a partner."
    else:
        problem += f"from about line {line:,} on the pairs no longer match, judging by lengths and numbers in them."
    findings.error(problem, repair=repair, file=longer.path, line=line)
    return False


def read_table_pairs(
    path: Path, languages: Languages, columns: Sequence[str] | None, settings: DataSettings, findings: Findings
) -> list[Pair]:
    """Return the pairs of a table. A list as the source is joined; a list as a target holds several references."""
    pairs = []
    for row in read_table(path, languages.all, findings, columns, settings.encoding).rows:
        row.values[languages.source] = join_list(row.values[languages.source])
        sides = [value if isinstance(value, list) and value else [value or ""] for value in row.values.values()]
        wrong_values = [
            (name, value) for name, side in zip(row.values, sides) for value in side if not isinstance(value, str)
        ]
        if wrong_values:
            problem = f"expected text under {wrong_values[0][0]}, found {type(wrong_values[0][1]).__name__}."
            findings.error(problem, repair="Write it as a string.", file=path, line=row.line)
            continue
        if any(_LINE_BREAK.search(value.strip()) for side in sides for value in side):
            findings.warn("texts with line breaks inside, which are read as spaces", path, row.line)
        (source,), *targets = ([text for text in map(join_lines, side) if text] or [""] for side in sides)
        texts = [source, *(side[0] for side in targets)]
        if _check_complete(texts, [(path, row.line)] * len(texts), settings.on_empty, findings, languages.all):
            alternatives = tuple(map(tuple, targets)) if max(map(len, targets)) > 1 else ()
            pairs.append(Pair(source, tuple(texts[1:]), str(path), row.line, alternatives))
    return pairs


def join_lines(text: str) -> str:
    """Return a text as models read it, in training and in use: one line, without spaces around it."""
    text = replace_surrogates(text.strip())
    # In plain files a line break ends a sentence, so a text must not contain one.
    return " ".join(text.split()) if _LINE_BREAK.search(text) else text


def _check_complete(
    texts: Sequence[str], locations: Sequence[tuple[Path, int]], on_empty: str, findings: Findings, names: Sequence[str]
) -> bool:
    """Return whether no side of a pair is empty; otherwise add a warning or an error. Sides have `names`."""
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
    repair = f"Fill it in, remove the pair on all sides, or pass {DROP_OPTION} to drop such pairs entirely."
    findings.error(f"{names[empty]} is empty here, {names[other]} is not.", repair=repair, file=path, line=line)
    return False


def expand_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Return one pair for each accepted target, as training reads them."""
    return [expanded for pair in pairs for expanded in pair.expand()]


def check_pairs(splits: Splits[Pair]) -> None:
    """Add warnings about pairs that are often mistakes."""
    findings, pairs = splits.findings, splits.all_examples()
    usual_ratio = median(_log_length_ratio(pair) for pair in pairs)
    for pair in pairs:
        if pair.source in pair.targets:
            findings.warn("pairs whose target equals the source; they are kept", pair.file, pair.line)
        is_unusual = abs(_log_length_ratio(pair) - usual_ratio) > math.log(MAX_LENGTH_RATIO)
        if is_unusual and max(map(len, pair.texts)) >= MIN_RATIO_LENGTH:
            warning = f"pairs with a ratio of lengths {MAX_LENGTH_RATIO:g} times that of most; they are kept"
            findings.warn(warning, pair.file, pair.line)
    for split, pair in find_training_duplicates(splits, lambda pair: pair.texts):
        findings.warn(f"pairs of {split} are in train too, so they may be memorised", pair.file, pair.line)


def _log_length_ratio(pair: Pair) -> float:
    return math.log((len(pair.source) + 1) / (sum(map(len, pair.targets)) / len(pair.targets) + 1))
