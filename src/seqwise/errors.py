"""The exceptions of this package. Every message says what was expected, what was received, where, and how to fix it.

`exit_status` is that of the command line: 2 for a wrong request, 1 for a failure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from seqwise.printable import make_printable

MAX_ERRORS = 10  # listed in one message
MAX_LINE, MAX_TEXT = 2_000, 20_000  # characters of a line of a message, and of all its lines; data may have millions
MAX_COLLECTED_ERRORS = 1_000  # after which reading stops: a large file could have millions
in_command: ContextVar[bool] = ContextVar("in_command", default=False)  # a command is running: errors name flags


class SeqwiseError(Exception):
    """Base class of all errors: something failed. Files that were already saved are complete."""

    exit_status = 1

    def __init__(
        self, problem: str, *, fix: str = "", file: str | Path | None = None, line: int | None = None, repair: str = ""
    ):
        """`repair` is the old name of `fix`, until version 0.3."""
        self.problem, self.fix, self.file, self.line = shorten(problem), shorten(fix or repair), file, line
        super().__init__(str(self))

    def __str__(self) -> str:
        location = format_location(self.file, self.line)
        return (f"{location}: " if location else "") + self.problem + (f"\n{self.fix}" if self.fix else "")

    def __reduce__(self) -> tuple:
        return partial(type(self), fix=self.fix, file=self.file, line=self.line), (self.problem,)

    @property
    def repair(self) -> str:
        """Returns `fix`; the old name, until version 0.3."""
        return self.fix

    @repair.setter
    def repair(self, fix: str) -> None:
        self.fix = fix


class UsageError(SeqwiseError):
    """The request is wrong or impossible."""

    exit_status = 2


class FileKindError(UsageError):
    """A recipe is passed where a settings file is expected, or the reverse."""


class DataError(UsageError):
    """A file is missing, unreadable or not what its task needs. An error about several mistakes has `parts`."""

    parts: tuple[DataError, ...] = ()


class MissingColumnError(DataError):
    """A table has no column with a name that the settings contain."""

    header: tuple[str, ...] = ()  # the columns of the table

    @classmethod
    def create(cls, column: str, header: Iterable[str], file: str | Path, line: int | None = 1) -> MissingColumnError:
        """Returns the error for a column that is not in the header, which is in a line of a file."""
        error = cls(f"there is no column {column!r}.", fix=suggest(column, header), file=file, line=line)
        error.header = tuple(header)
        return error


class RunError(UsageError):
    """A run folder is missing, damaged or from a newer version."""


class LockedError(UsageError):
    """Another process is writing the folder of a run or of a comparison."""


class NonFiniteError(SeqwiseError):
    """A loss or gradient is infinite or NaN; the update was not made."""


class MemoryLimitError(SeqwiseError):
    """Memory does not suffice, even for the smallest micro-batch."""


class SaveError(SeqwiseError):
    """A file could not be written; the old file or checkpoint is still complete."""


def shorten(text: str) -> str:
    """Returns a text for a message, in which the middle of a very long line is left out."""
    if len(text) <= MAX_LINE:
        return text
    return _omit_middle("\n".join(_omit_middle(line, MAX_LINE) for line in text.split("\n")), MAX_TEXT)


def _omit_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[: limit * 3 // 4]} … ({len(text):,} characters) … {text[-limit // 8 :]}"


def check_type(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raises an error unless an argument has one of the types; `expected` describes them in words."""
    if not isinstance(value, kinds):
        received = "None" if value is None else f"{type(value).__name__} {str(value)[:40]}"
        raise UsageError(f"{name}: expected {expected}; received {received}.")


def suggest(word: str, options: Iterable[str]) -> str:
    """Returns a sentence that suggests the most similar option, or lists all."""
    options = list(options)
    folded = {option.casefold(): option for option in options}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.5)
    return f"Perhaps you meant {folded[close[0]]!r}." if close else "Choose from: " + ", ".join(options) + "."


def suggest_path(path: Path, others: Iterable[Path]) -> str:
    """Returns a sentence that suggests the path with the most similar name, ignoring suffixes and folders."""
    stems = {other.name.partition(".")[0]: other for other in others}
    close = difflib.get_close_matches(path.name.partition(".")[0], stems, n=1, cutoff=0.7)
    return f"Perhaps you meant {str(stems[close[0]])!r}." if close else ""


# Plural → singular, for the phrases of `Findings.warn`; of nouns the first or second word.
_NOUNS = (
    "text|pair|line|row|file|image|sentence|example|marker|timestamp|value|caption|source|column|name|word|tag|label|"
    "vector|input|answer|token|character|step|weight|document|workbook|head|layer|key|span|experiment|result|statement|"
    "update|warning"
)
_SINGULARS = {
    r"\bwhose names contain\b": "whose name contains",
    r"\bare not sentences\b": "is not a sentence",
    r"\bread as examples\b": "read as an example",
    r"\bthat look\b": "that looks",
    r"\b(?:they|all) are\b": "it is",
    r"\bare\b": "is",
    r"\bhave\b": "has",
    r"\bwhich get\b": "which gets",
    r"\breads them\b": "reads it",
    r"\bcome\b": "comes",
    r"\bthey count as errors\b": "it counts as an error",
    r"\bthey\b": "it",
    r"\btheir\b": "its",
}


def to_singular(phrase: str) -> str:
    """Returns a phrase about several things as one about a single one: "empty texts, which are dropped"."""
    head = re.match(rf"((?:[\w-]+ )?)({_NOUNS})s\b", phrase)
    if head is None:  # it is about one thing already
        return phrase
    phrase = head[1] + head[2] + phrase[head.end() :]
    for plural, singular in _SINGULARS.items():
        phrase = re.sub(plural, singular, phrase)
    return phrase


def pluralize(number: int, plural: str) -> str:
    """Returns a number with its noun, in the singular for one: 1 vector, 2 vectors."""
    return f"{number:,} {plural if number != 1 else to_singular(plural)}"


def capitalize(text: str) -> str:
    """Returns a text with an upper-case first letter; the others stay as they are, unlike in `str.capitalize`."""
    return text[:1].upper() + text[1:]


class Locations:
    """Where something was found: the first location, and the number of all, which may be millions."""

    def __init__(self) -> None:
        self.first, self.count = "", 0

    def add(self, location: str, count: int = 1) -> None:
        """Adds a location, or several of which this is the first."""
        self.first, self.count = self.first if self.count else location, self.count + count

    def __len__(self) -> int:
        return self.count


@dataclass
class Findings:
    """Errors, warnings and notes collected while data is read, so that a user sees many mistakes at once.

    A warning is about data that may be wrong or is left out; a note says how correct data is read. `raise_errors()`
    stops if there are errors; `warning_messages()` and `note_messages()` count each kind.
    """

    errors: list[DataError] = field(default_factory=list)
    warnings: dict[str, Locations] = field(default_factory=dict)  # by kind of warning
    notes: dict[str, Locations] = field(default_factory=dict)  # by kind of note

    def error(
        self, problem: str, *, fix: str = "", file: str | Path | None = None, line: int | None = None, repair: str = ""
    ) -> None:
        """Adds an error that must be fixed before training. `repair` is the old name of `fix`, until version 0.3."""
        self.errors.append(DataError(problem, fix=fix or repair, file=file, line=line))
        if len(self.errors) >= MAX_COLLECTED_ERRORS:
            self.raise_errors()

    def warn(self, kind: str, file: str | Path | None = None, line: int | None = None) -> None:
        """Adds a warning. `kind` is a plural and says how it is handled: "empty texts, which are dropped"."""
        self.warnings.setdefault(kind, Locations()).add(format_location(file, line))

    def note(self, kind: str, file: str | Path | None = None, line: int | None = None) -> None:
        """Adds a note about correct data. `kind` is a plural: "blank lines, which are skipped"."""
        self.notes.setdefault(kind, Locations()).add(format_location(file, line))

    def extend(self, other: Findings) -> None:
        """Adds the findings of other data."""
        self.errors += other.errors
        for messages, others in ((self.warnings, other.warnings), (self.notes, other.notes)):
            for kind, locations in others.items():
                messages.setdefault(kind, Locations()).add(locations.first, locations.count)

    def warning_messages(self) -> list[str]:
        """Returns a sentence for each kind of warning, with its number and first location."""
        return [_count_locations(*item) for item in self.warnings.items()]

    def note_messages(self) -> list[str]:
        """Returns a sentence for each kind of note, with its number and first location."""
        return [_count_locations(*item) for item in self.notes.items()]

    def raise_errors(self) -> None:
        """Raises the errors, if there are any, as one error."""
        if self.errors:
            raise combine_errors(self.errors)


def format_location(file: str | Path | None, line: int | None = None) -> str:
    """Returns FILE:LINE or FILE on one line, whatever the name contains; "" if there is no file."""
    name = "" if file is None else make_printable(str(file), is_line=True)
    return f"{name}:{line}" if name and line else name


def _count_locations(kind: str, locations: Locations) -> str:
    first = "first: " if len(locations) > 1 else ""
    return pluralize(len(locations), kind) + (f" ({first}{locations.first})." if locations.first else ".")


def combine_errors(errors: Sequence[DataError]) -> DataError:
    """Returns one error about all, sorted by line within each file; a fix that is not for all names its errors."""
    if len(errors) == 1:
        return errors[0]
    ranks = {file: rank for rank, file in enumerate(dict.fromkeys(str(error.file) for error in errors))}
    errors = sorted(errors, key=lambda error: (ranks[str(error.file)], error.line or 0))
    listed = errors[:MAX_ERRORS]
    fixes: dict[str, list[int]] = {}  # fix → numbers of its errors
    for number, error in enumerate(listed, start=1):
        for fix in filter(None, error.fix.split("\n")):
            fixes.setdefault(fix, []).append(number)
    is_numbered = any(len(numbers) < len(listed) for numbers in fixes.values())
    lines = [str(DataError(error.problem, file=error.file, line=error.line)) for error in listed]
    if is_numbered:
        lines = [f"{number}. {line}" for number, line in enumerate(lines, start=1)]
    if len(errors) > MAX_ERRORS:
        stopped = "; reading stopped there" if len(errors) == MAX_COLLECTED_ERRORS else ""
        lines.append(f"… and {len(errors) - MAX_ERRORS:,} more{stopped}.")
    fix_lines = [
        fix if len(numbers) == len(listed) else f"For {', '.join(map(str, numbers))}: {fix}"
        for fix, numbers in fixes.items()
    ]
    problem = "\n".join([f"{len(errors):,} errors in the data:", *lines])
    combined = DataError(problem, fix="\n".join(fix_lines))
    combined.parts = tuple(errors)
    return combined
