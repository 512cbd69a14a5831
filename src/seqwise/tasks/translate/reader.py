"""Sources with their targets: `train.en` beside `train.de`, tables with `source` and `target`, or `builtin:dates`.

A source may have several targets. Whatever would shift a pair against another is an error; a pair that is dropped is
counted. It knows nothing of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from seqwise.config import Settings
from seqwise.data.examples import Splits, find_training_duplicates, open_examples, split_examples
from seqwise.data.findings import Findings
from seqwise.data.splitting import SPLITS, group_by_split
from seqwise.data.tables import SUFFIXES, read_table, read_text
from seqwise.errors import DataError
from seqwise.tasks.translate.alignment import Parting, find_parting
from seqwise.tasks.translate.dates import written_dates
from seqwise.tasks.translate.languages import Languages, languages_of_files, languages_of_table
from seqwise.tasks.translate.parallel import FileSet, parallel_files

STRANGE = 5.0  # times the usual ratio of lengths
STRANGE_LENGTH = 20  # characters; shorter texts have all sorts of ratios
DROP = "--data.on-empty drop"


@dataclass(frozen=True)
class Pair:
    """A source, its target in each language, and the place of the source."""

    source: str
    targets: tuple[str, ...]
    file: str = field(repr=False)
    line: int = field(repr=False)


def open_pairs(
    spec: str, settings: Settings, valid_fraction: float | None = None, test_fraction: float | None = None
) -> tuple[Splits[Pair], Languages]:
    """Read and check everything; `settings` say which languages, and what to do with empty lines."""
    valid = settings.data.valid_fraction if valid_fraction is None else valid_fraction
    test = settings.data.test_fraction if test_fraction is None else test_fraction
    sets, first = (None, None) if spec.startswith("builtin:") else parallel_files(Path(spec))
    if sets is not None:
        return _open_files(spec, sets, first, settings, {"valid": valid, "test": test})
    languages = Languages()

    def read(path: Path, findings: Findings) -> list[Pair]:
        nonlocal languages
        languages, columns = languages_of_table(path, settings.columns, settings.target)
        return read_rows(path, languages, columns, settings.data.on_empty, findings)

    builtins = {"dates": (dates, "written dates and their ISO form")}
    splits = open_examples(spec, read, SUFFIXES, builtins, valid, test)
    return splits, languages


def dates() -> list[Pair]:
    """`builtin:dates` as pairs."""
    pairs = enumerate(written_dates(), start=1)
    return [Pair(source, (target,), "builtin:dates", line) for line, (source, target) in pairs]


def _open_files(
    spec: str, sets: list[FileSet], first: str | None, settings: Settings, fractions: dict[str, float]
) -> tuple[Splits[Pair], Languages]:
    languages = languages_of_files(spec, sets, first, settings.columns, settings.target)
    stems = {Path(each.stem): each for each in sets}
    groups = group_by_split(stems) or {"train": list(stems)}
    findings = Findings()
    for stem in sorted(set(stems).difference(*groups.values())):
        for path in stems[stem].paths.values():
            findings.warn("files whose names tell no split, which are not read", path)
    parts: dict[str, list[Pair]] = {}
    for split in (split for split in SPLITS if split in groups):
        chosen = [stems[stem] for stem in groups[split]]
        parts[split] = [
            pair for each in chosen for pair in read_files(each, languages, settings.data.on_empty, findings)
        ]
    findings.raise_errors()
    for split in parts:
        if not parts[split]:
            raise DataError(f"no pairs are left for {split}.", repair="Give files with some.", file=spec)
    splits = split_examples(spec, parts, fractions, findings)
    many = [f"{split} is {' and '.join(map(str, groups[split]))}" for split in parts if len(groups[split]) > 1]
    if many:
        splits.split_rule = f"{splits.split_rule.rstrip('.')}; {'; '.join(many)}."
    return splits, languages


@dataclass
class _Text:
    """The lines of one file, each with the number it has there."""

    path: Path
    lines: list[str]
    numbers: list[int]

    def drop(self, place: int) -> int:
        """Take a line out; returns its number."""
        del self.lines[place]
        return self.numbers.pop(place)


def read_files(files: FileSet, languages: Languages, on_empty: str, findings: Findings) -> list[Pair]:
    """The pairs of one set of files, line by line."""
    read = [_text(files.paths[language], findings) for language in languages.all]
    texts = [text for text in read if text is not None]
    if len(texts) < len(read):
        return []
    source, *targets = texts
    matches = [_match(source, target, on_empty, len(targets) == 1, findings) for target in targets]
    if not all(matches):
        return []
    pairs = []
    for number in range(len(source.lines)):
        sides = [one_line(text.lines[number]) for text in texts]
        places = [(text.path, text.numbers[number]) for text in texts]
        if _complete(sides, places, on_empty, findings):
            pairs.append(Pair(sides[0], tuple(sides[1:]), str(source.path), source.numbers[number]))
    return pairs


def _text(path: Path, findings: Findings) -> _Text | None:
    try:
        text = read_text(path)
    except DataError as error:
        findings.errors.append(error)
        return None
    if not text.strip():
        findings.error("the file is empty.", repair="Give a file with one sentence per line.", file=path)
        return None
    lines = text.removesuffix("\n").split("\n")
    return _Text(path, lines, list(range(1, len(lines) + 1)))


def _match(source: _Text, target: _Text, on_empty: str, alone: bool, findings: Findings) -> bool:
    """Have both sides as many lines? If not, that is an error at the line where the pairs part.

    Empty lines at the end of the longer one are passed over, for they shift nothing. With `drop` so are empty lines
    that are plainly too many; in a source only where a single target depends on it (`alone`).
    """
    more, less = (source, target) if len(source.lines) > len(target.lines) else (target, source)
    while len(more.lines) > len(less.lines) and not more.lines[-1].strip():
        number = more.drop(len(more.lines) - 1)
        findings.warn("empty lines at the end of a file, which are passed over", more.path, number)
    surplus = len(more.lines) - len(less.lines)
    if not surplus:
        return True
    parting = find_parting(more.lines, less.lines)
    empty = [place for place in parting.surplus if not more.lines[place].strip()]
    if on_empty == "drop" and (more is target or alone) and len(empty) == len(parting.surplus) == surplus:
        for place in reversed(empty):
            findings.warn("empty lines without a partner, which are dropped", more.path, more.drop(place))
        return True
    findings.errors.append(_parted(more, less, parting))
    return False


def _parted(more: _Text, less: _Text, parting: Parting) -> DataError:
    long, short, line = more.path.name, less.path.name, parting.line
    problem = f"{short} has {len(less.lines):,} lines but {long} has {len(more.lines):,}: "
    repair = f"Add what is missing to {short}, or remove it from {long}."
    if parting.ends:
        problem += f"the lines of {long} from {line:,} on have no partner."
    elif not more.lines[parting.surplus[0]].strip():
        problem += f"from line {line:,} on the pairs no longer match ({long} line {line:,} is empty)."
        repair = f"Remove that line from {long}, or pass {DROP} to drop empty lines that are too many."
    else:
        problem += f"from about line {line:,} on the pairs no longer match, as lengths and numbers in them tell."
    return DataError(problem, repair=repair, file=more.path, line=line)


def read_rows(
    path: Path, languages: Languages, columns: Sequence[str] | None, on_empty: str, findings: Findings
) -> list[Pair]:
    """The pairs of a table."""
    pairs = []
    for row in read_table(path, languages.all, findings, columns).rows:
        texts = []
        for name, value in row.values.items():
            if value is not None and not isinstance(value, str):
                found = type(value).__name__
                repair = "Write it as a string."
                findings.error(f"expected text under {name}, found {found}.", repair=repair, file=path, line=row.line)
                break
            texts.append(one_line(value or ""))
            if value and _broken(value.strip()):
                findings.warn("texts with line breaks inside, which are read as blanks", path, row.line)
        else:
            if _complete(texts, [(path, row.line)] * len(texts), on_empty, findings, list(row.values)):
                pairs.append(Pair(texts[0], tuple(texts[1:]), str(path), row.line))
    return pairs


def one_line(text: str) -> str:
    """A text as models read it, in training and in use: one line, without blanks around it."""
    # JSON can spell half a surrogate pair, which is no character and which no terminal takes.
    text = text.strip().encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    # A line break ends a sentence of plain files, so it must not stand inside one.
    return " ".join(text.split()) if _broken(text) else text


def _broken(text: str) -> bool:
    return "\n" in text or "\r" in text


def _complete(
    texts: Sequence[str],
    places: Sequence[tuple[Path, int]],
    on_empty: str,
    findings: Findings,
    names: Sequence[str] | None = None,
) -> bool:
    """Has the pair something on every side? What lacks all of them is no pair at all."""
    if all(texts):
        return True
    if not any(texts):
        findings.warn("pairs that are empty on all sides, which are dropped", *places[0])
        return False
    at = next(number for number, text in enumerate(texts) if not text)
    (path, line), other = places[at], next(number for number, text in enumerate(texts) if text)
    if on_empty == "drop":
        findings.warn("pairs with an empty side, which are dropped", path, line)
        return False
    empty, full = (names[at], names[other]) if names else (path.name, places[other][0].name)
    repair = f"Fill it in, remove the pair on all sides, or pass {DROP} to drop such pairs whole."
    findings.error(f"{empty} is empty here, {full} is not.", repair=repair, file=path, line=line)
    return False


def look_at(splits: Splits[Pair]) -> None:
    """Remark on what is no error, but is often a mistake."""
    findings, pairs = splits.findings, splits.all_examples()
    usual = median(_ratio(pair) for pair in pairs)
    for pair in pairs:
        if pair.source in pair.targets:
            findings.warn("pairs whose target equals the source; they are kept", pair.file, pair.line)
        far = abs(_ratio(pair) - usual) > math.log(STRANGE)
        if far and max(len(pair.source), *map(len, pair.targets)) >= STRANGE_LENGTH:
            what = f"pairs with a ratio of lengths {STRANGE:g} times that of most; they are kept"
            findings.warn(what, pair.file, pair.line)
    for split, pair in find_training_duplicates(splits, lambda pair: (pair.source, pair.targets)):
        what = f"pairs of {split} that are in train as well; they are kept: what was learned by heart is measured there"
        findings.warn(what, pair.file, pair.line)


def _ratio(pair: Pair) -> float:
    return math.log((len(pair.source) + 1) / (sum(map(len, pair.targets)) / len(pair.targets) + 1))
