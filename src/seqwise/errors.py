"""The exceptions of this package. Every message says what was expected, what was received, where, and how to fix it.

`exit_status` is that of the command line: 2 for a wrong request, 1 for a failure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

MAX_ERRORS = 10  # listed in one message


class SeqwiseError(Exception):
    """Base class of all errors: something failed. Files that were already saved are complete."""

    exit_status = 1

    def __init__(self, problem: str, *, repair: str = "", file: str | Path | None = None, line: int | None = None):
        self.problem, self.repair, self.file, self.line = problem, repair, file, line
        super().__init__(str(self))

    def __str__(self) -> str:
        location = "" if self.file is None else f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        return f"{location}{self.problem}" + (f"\n{self.repair}" if self.repair else "")

    def __reduce__(self) -> tuple:
        return partial(type(self), repair=self.repair, file=self.file, line=self.line), (self.problem,)


class UsageError(SeqwiseError):
    """The request is wrong or impossible."""

    exit_status = 2


class DataError(UsageError):
    """A file is missing, unreadable or not what its task needs. An error about several mistakes has `parts`."""

    parts: tuple[DataError, ...] = ()


class RunError(UsageError):
    """A run folder is missing, damaged or from a newer version."""


class NonFiniteError(SeqwiseError):
    """A loss or gradient is infinite or NaN; the update was not made."""


class MemoryLimitError(SeqwiseError):
    """Memory does not suffice, even for the smallest micro-batch."""


class SaveError(SeqwiseError):
    """A file could not be written; the old file or checkpoint is still complete."""


def check_type(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raise an error unless an argument has one of the types; `expected` describes them in words."""
    if not isinstance(value, kinds):
        received = "None" if value is None else f"{type(value).__name__} {str(value)[:40]}"
        raise UsageError(f"{name}: expected {expected}; received {received}.")


def suggest(word: str, options: Iterable[str]) -> str:
    """Return a sentence that suggests the most similar option, or lists all."""
    options = list(options)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    return f"Perhaps you meant {close[0]!r}." if close else "Choose from: " + ", ".join(options) + "."


def suggest_path(path: Path, others: Iterable[Path]) -> str:
    """Return a sentence that suggests the path with the most similar name, ignoring suffixes and folders."""
    stems = {other.name.partition(".")[0]: other for other in others}
    close = difflib.get_close_matches(path.name.partition(".")[0], stems, n=1, cutoff=0.6)
    return f"Perhaps you meant {str(stems[close[0]])!r}." if close else ""


# Plural → singular, for the phrases of `Findings.warn`; of nouns the first or second word.
_NOUNS = (
    "text|pair|line|row|file|image|sentence|example|marker|timestamp|value|caption|source|column|name|word|tag|label|"
    "vector|input|answer|token|character|step|weight|document"
)
_SINGULARS = {
    r"\bwhose names contain\b": "whose name contains",
    r"\bare not sentences\b": "is not a sentence",
    r"\bread as examples\b": "read as an example",
    r"\bthat look\b": "that looks",
    r"\b(?:they|all) are\b": "it is",
    r"\bare\b": "is",
    r"\bhave\b": "has",
    r"\bcome\b": "comes",
    r"\bthey count as errors\b": "it counts as an error",
    r"\bthey\b": "it",
    r"\btheir\b": "its",
}


def to_singular(phrase: str) -> str:
    """Return a phrase about several things as one about a single one: "empty texts, which are dropped"."""
    head = re.match(rf"((?:[\w-]+ )?)({_NOUNS})s\b", phrase)
    if head is None:  # it is about one thing already
        return phrase
    phrase = head[1] + head[2] + phrase[head.end() :]
    for plural, singular in _SINGULARS.items():
        phrase = re.sub(plural, singular, phrase)
    return phrase


def pluralize(number: int, plural: str) -> str:
    """Return a number with its noun, in the singular for one: 1 vector, 2 vectors."""
    return f"{number:,} {plural if number != 1 else to_singular(plural)}"


@dataclass
class Findings:
    """Errors and warnings collected while data is read, so that a user sees many mistakes at once.

    `raise_errors()` stops if there are errors; `warning_messages()` counts each kind of warning.
    """

    errors: list[DataError] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)  # kind of warning → each location

    def error(self, problem: str, *, repair: str = "", file: str | Path | None = None, line: int | None = None) -> None:
        """Add an error that must be fixed before training."""
        self.errors.append(DataError(problem, repair=repair, file=file, line=line))

    def warn(self, kind: str, file: str | Path | None = None, line: int | None = None) -> None:
        """Add a warning. `kind` is a plural and says how it is handled: "empty texts, which are dropped"."""
        location = "" if file is None else f"{file}:{line}" if line else f"{file}"
        self.warnings.setdefault(kind, []).append(location)

    def warning_messages(self) -> list[str]:
        """Return a sentence for each kind of warning, with its number and first location."""
        messages = []
        for kind, locations in self.warnings.items():
            first = "first: " if len(locations) > 1 else ""
            messages.append(pluralize(len(locations), kind) + (f" ({first}{locations[0]})." if locations[0] else "."))
        return messages

    def raise_errors(self) -> None:
        """Raise the errors, if there are any, as one error; equal fixes are listed once."""
        if not self.errors:
            return
        if len(self.errors) == 1:
            raise self.errors[0]
        listed = self.errors[:MAX_ERRORS]
        lines = [str(DataError(error.problem, file=error.file, line=error.line)) for error in listed]
        if len(self.errors) > MAX_ERRORS:
            lines.append(f"… and {len(self.errors) - MAX_ERRORS:,} more.")
        problem = "\n".join([f"{len(self.errors):,} errors in the data:", *lines])
        repairs = dict.fromkeys(line for error in listed for line in error.repair.split("\n") if line)
        combined = DataError(problem, repair="\n".join(repairs))
        combined.parts = tuple(self.errors)
        raise combined
