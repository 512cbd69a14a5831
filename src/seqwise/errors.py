"""The exception tree. Every message says what was expected, what came, where, and how to repair it.

`exit_status` is what the command line returns: 2 when the request was wrong, 1 when the work failed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class SeqwiseError(Exception):
    """The work failed. Nothing that was already saved is lost."""

    exit_status = 1

    def __init__(self, problem: str, *, repair: str = "", file: str | Path | None = None, line: int | None = None):
        self.problem, self.repair, self.file, self.line = problem, repair, file, line
        super().__init__(str(self))

    def __str__(self) -> str:
        place = "" if self.file is None else f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        return f"{place}{self.problem}" + (f"\n{self.repair}" if self.repair else "")

    def __reduce__(self) -> tuple:
        return _rebuild, (type(self), self.problem, self.repair, self.file, self.line)


class UsageError(SeqwiseError):
    """The request cannot be carried out as asked."""

    exit_status = 2


class DataError(UsageError):
    """A file is missing, unreadable or not what its task needs. Where it tells of many mistakes, they are `parts`."""

    parts: tuple[DataError, ...] = ()


class RunError(UsageError):
    """A run folder is missing, damaged or from a newer version."""


class NonFiniteError(SeqwiseError):
    """A loss or gradient is infinite or not a number; the update was not made."""


class MemoryLimitError(SeqwiseError):
    """The smallest piece of the work does not fit into memory."""


class SaveError(SeqwiseError):
    """Saving failed; the newest complete checkpoint is untouched."""


def nearest(word: str, options: Iterable[str]) -> str:
    """The sentence that suggests what was probably meant, or lists the options."""
    options = list(options)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    return f"Perhaps you meant {close[0]!r}." if close else "Choose from: " + ", ".join(options) + "."


def nearest_path(path: Path, others: Iterable[Path]) -> str:
    """The sentence that suggests which file or folder was probably meant; endings and folders do not count."""
    stems = {other.name.partition(".")[0]: other for other in others}
    close = difflib.get_close_matches(path.name.partition(".")[0], stems, n=1, cutoff=0.6)
    return f"Perhaps you meant {str(stems[close[0]])!r}." if close else ""


def _rebuild(kind: type[SeqwiseError], problem: str, repair: str, file: str | Path | None, line: int | None):
    return kind(problem, repair=repair, file=file, line=line)
