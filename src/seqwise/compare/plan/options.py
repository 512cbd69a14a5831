"""`ComparisonOptions`: the options of a comparison and their defaults, shared by the command and the library.

It imports nothing slow, so that `--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Match = Literal["parameters", "time", "tokens"]


@dataclass(frozen=True)
class ComparisonOptions:
    """The options of a comparison, besides the settings common to all families."""

    models: Sequence[str] = ("rnn", "gru", "lstm", "attentive-rnn", "transformer")
    variants: Path | Mapping[str, Any] | None = None
    budget: str = "2m"
    match: Match = "parameters"
    parameters: int | str | None = None  # a number, or a text such as 300k
    seeds: int = 3
    lr_trials: int = 3  # learning rates of the search; 1: no search
    examples: int = 12
    nproc: int = 1
    strict: bool = True  # raise an error for a time budget too short for `budgets.MIN_UPDATES` and one validation
