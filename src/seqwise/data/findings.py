"""`Findings`: errors and warnings that are collected while data is read.

Reading continues after an error, so that a user sees many mistakes at once instead of one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from seqwise.errors import DataError

MAX_ERRORS = 10  # that are spelled out


@dataclass
class Findings:
    """`raise_errors()` stops if there are errors; `warning_messages()` counts each kind of warning."""

    errors: list[DataError] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)  # what was found → where, each time

    def error(self, problem: str, *, repair: str = "", file: str | Path | None = None, line: int | None = None) -> None:
        """Add an error that must be fixed before training."""
        self.errors.append(DataError(problem, repair=repair, file=file, line=line))

    def warn(self, what: str, file: str | Path | None = None, line: int | None = None) -> None:
        """Add a warning. `what` is a plural and says how it was handled: "empty texts, which are dropped"."""
        location = "" if file is None else f"{file}:{line}" if line else f"{file}"
        self.warnings.setdefault(what, []).append(location)

    def warning_messages(self) -> list[str]:
        """Return a sentence for each kind of warning, with its number and first location."""
        messages = []
        for what, locations in self.warnings.items():
            first = "first: " if len(locations) > 1 else ""
            messages.append(f"{len(locations):,} {what}" + (f" ({first}{locations[0]})." if locations[0] else "."))
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
        combined = DataError(problem, repair="\n".join(dict.fromkeys(error.repair for error in listed if error.repair)))
        combined.parts = tuple(self.errors)
        raise combined
