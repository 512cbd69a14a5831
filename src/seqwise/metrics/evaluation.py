"""`Evaluation`: numbers under plain names, each with the definition or signature that makes it comparable.

And `Baseline`: what such a number is when nothing was learned. Nothing here measures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seqwise.metrics.examples import Examples


@dataclass(frozen=True)
class Table:
    """Numbers that belong together, such as a confusion table: one row per name."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Baseline:
    """What needs no model, such as always the same answer: a metric says little without it."""

    name: str
    value: float  # of the headline metric
    about: str  # what it does, as a sentence


@dataclass(frozen=True)
class Evaluation:
    """What was measured, on what, how, and what each number means."""

    metrics: dict[str, float]
    definitions: dict[str, str]
    on: str  # which data, in words
    how: str = ""  # how the model was used, in words
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0  # spent on answering, without reading the data
    examples: Examples | None = field(default=None, compare=False, repr=False)  # where the request asked for them

    def as_dict(self) -> dict[str, Any]:
        """Metrics under plain names, with their definitions beside them; for JSON."""
        tables = {
            table.title: {name: dict(zip(table.columns, row)) for name, row in table.rows.items()}
            for table in self.tables
        }
        return {
            **self.metrics,
            "on": self.on,
            "how": self.how,
            "definitions": {name: self.definitions[name] for name in self.metrics if name in self.definitions},
            **({"tables": tables} if tables else {}),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
        }
