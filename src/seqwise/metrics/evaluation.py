"""`Evaluation`: metrics with the definition or signature that makes each comparable. `Baseline`: one without a model.

Only data classes: the tasks compute the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from seqwise.metrics.example_scores import ExampleScores


@dataclass(frozen=True)
class Table:
    """Numbers that belong together, such as a confusion matrix: one row per name."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Baseline:
    """The primary metric of a rule without a model, such as always predicting the most frequent label."""

    name: str
    value: float
    about: str  # what the rule does, as a sentence


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a model on some data."""

    metrics: dict[str, float]
    definitions: dict[str, str]  # metric → how it is computed
    on: str  # which data, in words
    how: str = ""  # how the model was used, such as its beam, in words
    tables: tuple[Table, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0  # inference time, without reading the data
    examples: ExampleScores | None = field(default=None, compare=False, repr=False)  # if requested

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics by name, with their definitions, tables and warnings; for JSON."""
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
