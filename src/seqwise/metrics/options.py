"""`TextEvaluationOptions`: how a language model is evaluated besides the plain way, with all defaults.

The module does not import PyTorch, so that the command line can show the defaults at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal

from seqwise.errors import UsageError

FloatOrAuto = float | Literal["auto"]
DynamicMethod = Literal["sgd", "rms"]

# Method of dynamic evaluation → learning rate, and tokens between updates of a model with a state. RMS: Krause et al.
# 2018 and their code, for statistics over batches of 100 segments; SGD: a search on PTB (docs/results-cpu.md).
DYNAMIC_RATES = {"sgd": 0.1, "rms": 5e-5}
DYNAMIC_SEGMENTS = {"sgd": 20, "rms": 5}

# Search → the options that it chooses, which must not be set.
SEARCHED_OPTIONS = {
    "cache_search": ("cache_weight", "cache_theta"),
    "dynamic_search": ("dynamic_rate", "dynamic_decay"),
}


@dataclass(frozen=True, kw_only=True)
class TextEvaluationOptions:
    """Options of the evaluation of language models. Each method adds metrics and leaves the plain ones as they are."""

    softmax_temperature: FloatOrAuto | None = None  # logits are divided by it; "auto": chosen on the validation split
    cache: bool = False  # continuous cache (Grave et al. 2017)
    cache_window: int = 500  # past tokens in the cache; 500, 0.1 and 1 are the values of Merity et al. 2018 for PTB
    cache_weight: float = 0.1  # λ: share of the cache in the probabilities
    cache_theta: float = 1.0  # θ: factor of the products of vectors; larger values prefer similar ones
    cache_search: bool = False  # choose weight and θ on the validation split
    dynamic: bool = False  # dynamic evaluation, which trains on each segment after scoring it
    dynamic_method: DynamicMethod = "sgd"
    dynamic_rate: float | None = None  # learning rate; None: that of DYNAMIC_RATES
    dynamic_decay: float = 0.002  # rms: λ, how fast weights return to those of the run
    dynamic_epsilon: float = 2e-5  # rms: ε, added to the root mean square of a gradient
    dynamic_segment: int | None = None  # tokens between updates; None: DYNAMIC_SEGMENTS, or half a window and one
    dynamic_search: bool = False  # choose the learning rate, and with rms the decay, on the validation split

    def __post_init__(self) -> None:
        if self.softmax_temperature != "auto":
            _check_range("softmax_temperature", self.softmax_temperature, above=0.0)
        if self.dynamic_method not in DYNAMIC_RATES:
            raise UsageError(f"--dynamic-method: expected sgd or rms; received {self.dynamic_method}.")
        if not 0 <= self.cache_weight < 1:
            raise UsageError(f"--cache-weight must lie in [0, 1); received {self.cache_weight:g}.")
        _check_range("cache_theta", self.cache_theta, above=0.0)
        for name in ("dynamic_rate", "dynamic_decay"):
            _check_range(name, getattr(self, name), minimum=0.0)
        _check_range("dynamic_epsilon", self.dynamic_epsilon, above=0.0)
        for name in ("cache_window", "dynamic_segment"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1; received {value}.")
        for name in (name for names in SEARCHED_OPTIONS.values() for name in names):
            if getattr(self, name) != getattr(TextEvaluationOptions, name):
                reject_searched(self, name)


def reject_searched(options: object, name: str) -> None:
    """Raises an error if one of the options is a search that chooses the option `name`."""
    for search, names in SEARCHED_OPTIONS.items():
        if name in names and getattr(options, search):
            option, search_option = (f"--{each.replace('_', '-')}" for each in (name, search))
            raise UsageError(f"{option} is chosen by {search_option}.", fix="Leave out one of them.")


def _check_range(name: str, value: object, minimum: float = -math.inf, above: float = -math.inf) -> None:
    """Raises an error unless the value is None or a finite number, at least `minimum` and larger than `above`."""
    number = float(value) if isinstance(value, Real) else math.nan
    if value is None or (above < number < math.inf and minimum <= number):
        return
    bound = f"at least {minimum:g}" if minimum > -math.inf else f"above {above:g}"
    received = f"{number:g}" if isinstance(value, Real) else repr(value)
    raise UsageError(f"--{name.replace('_', '-')}: expected a finite number, {bound}; received {received}.")
