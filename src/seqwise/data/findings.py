"""What reading finds wrong: errors, which stop, and warnings, which are counted with the policy that was applied.

Reading goes on after an error, so that a user sees many mistakes at once and not the first of them again and again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from seqwise.errors import DataError

SHOWN = 10  # errors that are spelled out


@dataclass
class Findings:
    """Collects while files are read. `stop()` raises what was found; `sentences()` says what was let pass."""

    errors: list[DataError] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)  # what and policy → where

    def error(self, problem: str, *, repair: str = "", file: str | Path | None = None, line: int | None = None) -> None:
        """Something that must be repaired before anything can be learned."""
        self.errors.append(DataError(problem, repair=repair, file=file, line=line))

    def warn(self, what: str, file: str | Path | None = None, line: int | None = None) -> None:
        """Something that was let pass. `what` names it and the policy: "empty texts, which are dropped"."""
        place = "" if file is None else f"{file}:{line}" if line else f"{file}"
        self.warnings.setdefault(what, []).append(place)

    def warning_messages(self) -> list[str]:
        """Each kind of remark once, with its number and the first place."""
        found = []
        for what, places in self.warnings.items():
            first = "first: " if len(places) > 1 else ""
            found.append(f"{len(places):,} {what}" + (f" ({first}{places[0]})." if places[0] else "."))
        return found

    def raise_errors(self) -> None:
        """Raise the errors, if there are any, as one; a repair that several share is said once."""
        if not self.errors:
            return
        first = self.errors[0]
        if len(self.errors) == 1:
            raise first
        lines = [str(DataError(error.problem, file=error.file, line=error.line)) for error in self.errors[:SHOWN]]
        repairs = dict.fromkeys(error.repair for error in self.errors[:SHOWN] if error.repair)
        more = len(self.errors) - SHOWN
        if more > 0:
            lines.append(f"… and {more:,} more.")
        error = DataError("\n".join([f"{len(self.errors):,} errors in the data:", *lines]), repair="\n".join(repairs))
        error.parts = tuple(self.errors)
        raise error
