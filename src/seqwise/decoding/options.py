"""`SamplingOptions` and `BeamSearchOptions`: the options of decoding, with their defaults.

The module does not import PyTorch, so that the command line can show the defaults at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from seqwise.errors import UsageError, check_type

_KINDS = {"int": (Integral, "a whole number"), "float": (Real, "a number"), "str": (str, "a text")}


def check_option_types(options: Any) -> None:
    """Raises an error unless the numbers and texts of a dataclass are such; Python's users may pass anything."""
    for option in fields(options):
        kind, _, others = str(option.type).partition(" | ")
        value = getattr(options, option.name)
        if kind not in _KINDS or (others == "None" and value is None):
            continue
        if isinstance(value, bool):
            raise UsageError(f"{option.name}: expected {_KINDS[kind][1]}; received {value}.")
        check_type(option.name, value, *_KINDS[kind])


@dataclass(frozen=True)
class SamplingOptions:
    """Options for sampling the next token. `greedy` ignores temperature, top-k and top-p."""

    greedy: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        check_option_types(self)
        if not 0 < self.temperature < math.inf:
            fix = "Use --greedy." if self.temperature == 0 else ""
            raise UsageError(f"the temperature must be above 0; received {self.temperature:g}.", fix=fix)
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top-k must be at least 1; received {self.top_k}.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top-p must lie in (0, 1]; received {self.top_p:g}.")
        if not 0 < self.repetition_penalty < math.inf:
            raise UsageError(f"the repetition penalty must be above 0; received {self.repetition_penalty:g}.")


@dataclass(frozen=True)
class BeamSearchOptions:
    """Options of beam search. A beam of 1 is greedy search. The penalties are defined in `beam.py`."""

    beam: int = 1
    length_penalty: float = 1.0  # α: 0 compares log-probabilities, larger values prefer longer sequences
    coverage_penalty: float = 0.0  # β: cost of source positions without attention; needs a model with attention
    n_best: int = 1
    min_length: int = 0
    no_repeat_ngram: int = 0  # n of the n-grams that may not occur twice; 0 allows all
    start: str = ""  # text that every output begins with

    def __post_init__(self) -> None:
        check_option_types(self)
        if self.beam < 1:
            raise UsageError(f"the beam must be at least 1; received {self.beam}.")
        if not 1 <= self.n_best <= self.beam:
            raise UsageError(
                f"n-best must lie between 1 and the beam, {self.beam}; received {self.n_best}.",
                fix="Widen the beam: --beam.",
            )
        if self.length_penalty < 0 or self.coverage_penalty < 0:
            raise UsageError("penalties must not be negative.")
        if self.min_length < 0 or self.no_repeat_ngram < 0:
            raise UsageError("lengths must not be negative.")
