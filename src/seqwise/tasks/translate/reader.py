"""Reads pairs of texts: `train.en` beside `train.de`, tables with `source` and `target`, or `builtin:dates`.

A source may have several targets. Misaligned files are an error; empty lines can be dropped, and are counted then. The
module knows nothing of tokens.
"""

from __future__ import annotations

import math
import re
from array import array
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
    read_examples,
    split_examples,
)
from seqwise.data.limits import iterate_lines, limited
from seqwise.data.tables import SUFFIXES, join_list, read_table
from seqwise.data.text_lines import open_text
from seqwise.errors import DataError, Findings
from seqwise.tasks.translate.alignment import find_misalignment
from seqwise.tasks.translate.dates import generate_date_pairs
from seqwise.tasks.translate.languages import (
    FilesByStem,
    Languages,
    find_file_languages,
    find_parallel_files,
    find_table_languages,
)
from seqwise.text.patterns import replace_surrogates

MAX_RATIO_FACTOR = 5.0  # between the length ratio of a pair and the median; a larger one gives a warning
MIN_CHARACTERS_FOR_RATIO = 20  # shorter texts may have any length ratio
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
        """Returns one pair for each accepted target; where languages have fewer than others, theirs are repeated."""
        count = max(map(len, self.references))
        if count == 1:
            return [self]
        targets = ([texts[index % len(texts)] for texts in self.references] for index in range(count))
        return [replace(self, targets=tuple(texts), alternatives=()) for texts in targets]


@dataclass
class PairSplits(Splits[Pair]):
    """Pairs in three splits, and their languages."""

    languages: Languages = field(default_factory=Languages)


@limited
def read_pairs(spec: str, settings: Settings) -> PairSplits:
    """Reads and checks all pairs; `settings` choose the languages and the handling of empty lines."""
    languages = Languages()
    if not spec.startswith("builtin:"):
        files_by_stem, path_language = find_parallel_files(Path(spec))
        if files_by_stem:
            languages = find_file_languages(spec, files_by_stem, path_language, settings.columns, settings.target)
            splits = _read_parallel_files(spec, files_by_stem, languages, settings.data)
            return PairSplits(**vars(splits), languages=languages)

    def read_file(path: Path, findings: Findings) -> list[Pair]:
        nonlocal languages
        languages, columns = find_table_languages(path, settings.columns, settings.target, settings.data.encoding)
        return read_table_pairs(path, languages, columns, settings.data, findings)

    # The description is part of the fingerprint of the data: it cannot change.
    builtins = {"dates": (build_date_pairs, "written dates and their ISO form")}
    fractions = settings.data.valid_fraction, settings.data.test_fraction
    splits = read_examples(spec, read_file, SUFFIXES, builtins, *fractions)
    return PairSplits(**vars(splits), languages=languages)


def build_date_pairs() -> list[Pair]:
    """Returns the pairs of `builtin:dates`."""
    pairs = enumerate(generate_date_pairs(), start=1)
    return [Pair(source, (target,), "builtin:dates", line) for line, (source, target) in pairs]


def _read_parallel_files(
    spec: str, files_by_stem: FilesByStem, languages: Languages, settings: DataSettings
) -> Splits[Pair]:
    """Reads files such as train.en and train.de, of which line i of one is the translation of line i of the other."""
    stems = [Path(stem) for stem in files_by_stem]
    groups = group_by_split(stems) or {"train": stems}
    findings = Findings()
    for stem in sorted(set(stems).difference(*groups.values())):
        for path in files_by_stem[str(stem)].values():
            findings.warn("files whose names contain no split, which are not read", path)
    parts: dict[str, list[Pair]] = {}
    for split in (split for split in SPLITS if split in groups):
        parts[split] = []
        for stem in groups[split]:
            paths = [files_by_stem[str(stem)][name] for name in languages.all]
            parts[split] += _read_file_pairs(paths, settings, findings)
    findings.raise_errors()
    for split in parts:
        if not parts[split]:
            fix = "Add files with at least one complete pair."
            raise DataError(f"no pairs are left for {split}.", fix=fix, file=spec)
    fractions = {"valid": settings.valid_fraction, "test": settings.test_fraction}
    splits = split_examples(spec, parts, fractions, findings)
    descriptions = [f"{split} is {' and '.join(map(str, groups[split]))}" for split in parts if len(groups[split]) > 1]
    if descriptions:
        splits.split_rule = f"{splits.split_rule.rstrip('.')}; {'; '.join(descriptions)}."
    return splits


@dataclass
class _TextFile:
    """The lines of a file."""

    path: Path
    texts: list[str]
    numbers: array[int] | range  # of the lines, from 1

    def remove(self, index: int) -> int:
        """Removes a line; returns its number."""
        if isinstance(self.numbers, range):
            self.numbers = array("q", self.numbers)
        del self.texts[index]
        return self.numbers.pop(index)


def _read_file_pairs(paths: Sequence[Path], settings: DataSettings, findings: Findings) -> list[Pair]:
    """Returns the pairs of parallel files, line by line; the first file is the source."""
    on_empty = settings.on_empty
    files = [_read_lines(path, settings.encoding, findings) for path in paths]
    if not all(file.texts for file in files):
        return []
    source, *targets = files
    is_aligned = [_align(source, target, on_empty, len(targets) == 1, findings) for target in targets]
    if not all(is_aligned):
        return []
    pairs = []
    names, source_name = [path.name for path in paths], str(source.path)
    numbers = zip(*(file.numbers for file in files))
    for parallel_lines, lines in zip(zip(*(file.texts for file in files)), numbers):
        texts = [join_lines(text) for text in parallel_lines]
        if _check_complete(texts, list(zip(paths, lines)), on_empty, findings, names):
            pairs.append(Pair(texts[0], tuple(texts[1:]), source_name, lines[0]))
    return pairs


def _read_lines(path: Path, encoding: str | None, findings: Findings) -> _TextFile:
    """Returns the lines of a file; none after adding an error if there is no text."""
    try:
        # A missing line break at the end ends no line; an empty line at the end is a line.
        with open_text(path, findings, encoding) as file:
            texts = [text for _, text in iterate_lines(file.read, path, keeps_end=True)]
    except DataError as error:
        findings.errors.append(error)
        return _TextFile(path, [], range(0))
    if any(map(str.strip, texts)):
        return _TextFile(path, texts, range(1, len(texts) + 1))
    findings.error("the file is empty.", fix="Give a file with one sentence per line.", file=path)
    return _TextFile(path, [], range(0))


def _align(source: _TextFile, target: _TextFile, on_empty: str, has_one_target: bool, findings: Findings) -> bool:
    """Removes empty lines in place that have no corresponding line; returns whether both files have equally many then.

    Empty lines at the end of the longer file are always removed, others with `drop`; from a source only if it has a
    single target, because others would be misaligned. Otherwise there is an error at the first misaligned line.
    """
    longer, shorter = (source, target) if len(source.texts) > len(target.texts) else (target, source)
    while len(longer.texts) > len(shorter.texts) and not longer.texts[-1].strip():
        line = longer.remove(-1)
        findings.note("empty lines at the end of a file, which are skipped", longer.path, line)
    num_surplus = len(longer.texts) - len(shorter.texts)
    if not num_surplus:
        return True
    unmatched_lines = find_misalignment(longer.texts, shorter.texts)  # indices
    has_only_empty_lines = not any(longer.texts[index].strip() for index in unmatched_lines)
    can_drop = on_empty == "drop" and (longer is target or has_one_target)
    if can_drop and len(unmatched_lines) == num_surplus and has_only_empty_lines:
        for index in reversed(unmatched_lines):
            line = longer.remove(index)
            findings.warn("empty lines without a corresponding line, which are dropped", longer.path, line)
        return True
    long, short, line = longer.path.name, shorter.path.name, unmatched_lines[0] + 1
    problem = f"{short} has {len(shorter.texts):,} lines but {long} has {len(longer.texts):,}: "
    fix = f"Add what is missing to {short}, or remove it from {long}."
    if line > len(shorter.texts):
        problem += f"the lines of {long} from {line:,} on have no corresponding line."
    elif not longer.texts[unmatched_lines[0]].strip():
        problem += f"from line {line:,} on the pairs no longer match ({long} line {line:,} is empty)."
        fix = f"Remove that line from {long}, or pass {DROP_OPTION} to drop empty lines without a corresponding line."
    else:
        problem += f"from about line {line:,} on the pairs no longer match, judging by lengths and numbers in them."
    findings.error(problem, fix=fix, file=longer.path, line=line)
    return False


def read_table_pairs(
    path: Path, languages: Languages, columns: Sequence[str] | None, settings: DataSettings, findings: Findings
) -> list[Pair]:
    """Returns the pairs of a table. A list as the source is joined; a list as a target holds several references."""
    pairs = []
    for row in read_table(path, languages.all, findings, columns, settings.encoding).rows:
        row.values[languages.source] = join_list(row.values[languages.source])
        references = {  # language → its texts
            name: value if isinstance(value, list) and value else [value or ""] for name, value in row.values.items()
        }
        wrong_values = [
            (name, value) for name, values in references.items() for value in values if not isinstance(value, str)
        ]
        if wrong_values:
            problem = f"expected text under {wrong_values[0][0]}, found {type(wrong_values[0][1]).__name__}."
            findings.error(problem, fix="Write it as a string.", file=path, line=row.line)
            continue
        if any(_LINE_BREAK.search(text.strip()) for texts in references.values() for text in texts):
            findings.warn("texts with line breaks inside, which are read as spaces", path, row.line)
        (source,), *targets = ([text for text in map(join_lines, each) if text] or [""] for each in references.values())
        texts = [source, *(target_texts[0] for target_texts in targets)]
        if _check_complete(texts, [(path, row.line)] * len(texts), settings.on_empty, findings, languages.all):
            alternatives = tuple(map(tuple, targets)) if max(map(len, targets)) > 1 else ()
            pairs.append(Pair(source, tuple(texts[1:]), str(path), row.line, alternatives))
    return pairs


def join_lines(text: str) -> str:
    """Returns a text as models read it in training and inference: one line, without spaces around it."""
    text = replace_surrogates(text.strip())
    # In plain files a line break ends a sentence, so a text must not contain one.
    return " ".join(text.split()) if _LINE_BREAK.search(text) else text


def _check_complete(
    texts: Sequence[str], locations: Sequence[tuple[Path, int]], on_empty: str, findings: Findings, names: Sequence[str]
) -> bool:
    """Returns whether no text of a pair is empty; otherwise adds a warning or an error.

    `names` are those of the files or columns of the texts.
    """
    if all(texts):
        return True
    if not any(texts):
        findings.warn("pairs without any text, which are dropped", *locations[0])
        return False
    empty_index = next(index for index, text in enumerate(texts) if not text)
    path, line = locations[empty_index]
    if on_empty == "drop":
        findings.warn("pairs with an empty text, which are dropped", path, line)
        return False
    other_index = next(index for index, text in enumerate(texts) if text)
    problem = f"{names[empty_index]} is empty here, {names[other_index]} is not."
    fix = f"Fill it in, remove the pair from all texts, or pass {DROP_OPTION} to drop such pairs entirely."
    findings.error(problem, fix=fix, file=path, line=line)
    return False


def expand_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Returns one pair for each accepted target, as training reads them."""
    return [expanded for pair in pairs for expanded in pair.expand()]


def warn_about_suspicious_pairs(splits: Splits[Pair]) -> None:
    """Adds warnings about pairs that are often mistakes."""
    findings, pairs = splits.findings, splits.all_examples()
    median_ratio = median(_compute_log_length_ratio(pair) for pair in pairs)
    for pair in pairs:
        if pair.source in pair.targets:
            findings.warn("pairs whose target equals the source; they are kept", pair.file, pair.line)
        is_unusual = abs(_compute_log_length_ratio(pair) - median_ratio) > math.log(MAX_RATIO_FACTOR)
        if is_unusual and max(map(len, pair.texts)) >= MIN_CHARACTERS_FOR_RATIO:
            factor = f"more than a factor of {MAX_RATIO_FACTOR:g}"
            warning = f"pairs whose length ratio differs from the median by {factor}; they are kept"
            findings.warn(warning, pair.file, pair.line)
    for split, pair in find_training_duplicates(splits, lambda pair: pair.texts):
        findings.warn(f"pairs of {split} are in train too, so they may be memorised", pair.file, pair.line)


def _compute_log_length_ratio(pair: Pair) -> float:
    return math.log((len(pair.source) + 1) / (sum(map(len, pair.targets)) / len(pair.targets) + 1))
