"""`ComparisonOptions`: the options of a comparison and their defaults, shared by the command and the library.

It imports nothing slow, so that `--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Match = Literal["parameters", "time", "tokens"]  # what is equal: with time and tokens, families have default sizes


@dataclass(frozen=True)
class ComparisonOptions:
    """The options of a comparison, besides the settings common to all families."""

    models: Sequence[str] = ("rnn", "gru", "lstm", "attentive-rnn", "transformer")
    variants: Path | Mapping[str, Any] | None = None  # further models, name → settings; or a YAML file of them
    budget: str = "2m"  # of each family per seed, including the learning-rate search
    match: Match = "parameters"
    parameters: int | str | None = None  # of every family, such as 300k; None: the median of the default sizes
    seeds: int = 3
    lr_trials: int = 3  # learning rates of the search; 1: no search
    examples: int = 12  # test examples on which families disagree, for the report
    nproc: int = 1  # processes of each trial
    test: bool = True  # evaluate the models on the test split; False: on the validation split, as in a search
    strict: bool = True  # raise an error for a time budget too short for `budgets.MIN_UPDATES` and one validation
