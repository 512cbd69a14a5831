"""G11: does caching keys and values change the cost, but not the result?

    kₛ = W_K xₛ,  vₛ = W_V xₛ        with a causal mask xₛ depends on tokens up to s only: later tokens never change it

In generation each new token needs one query, but the keys and values of all tokens before it. Recomputing them costs a
pass over the whole prefix per token; keeping them leaves the projections and the feed-forward network of one position,
and attention of one query over n keys:

    operations for token n:   n · (24 D² + 4 n D) per layer without a cache,   24 D² + 4 n D with one (4 D hidden units)

The price is memory: 2 n D numbers per layer. The results differ only by rounding, because sums are computed in another
order. The causal mask makes this possible: in a bidirectional encoder each new token changes all keys from layer 2 on.
"""

from __future__ import annotations

import timeit
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.lab.transformer.models import build_language_model
from seqwise.layers.record import record
from seqwise.page.figures import Figure, LineChart, Series
from seqwise.tasks.language.model import LanguageModel

MIN_RATIO = 10  # of operations


@dataclass(frozen=True, kw_only=True)
class KeyValueCaching(Experiment):
    id = "G11"
    claim = "Caching keys and values changes the cost, not the result."
    equation = "p(yₙ | y₁ … yₙ₋₁) from cached kₛ, vₛ (s < n) = the same from a pass over all tokens"
    measurement = "Log-probabilities of each token, operations counted per token, and times, with and without a cache."
    rule = "Holds if log-probabilities agree to 10⁻¹⁰ and the last token needs at most a tenth of the operations."
    try_next = "seqwise lab run G11 --length 1024: with a cache attention over 1,024 keys becomes a visible cost."
    seconds = 1
    minimums: ClassVar = {"length": 2}

    length: int = 256
    """Tokens of the text."""
    vocabulary: int = 50
    """Number of tokens."""
    width: int = 64
    """Width of the model."""
    depth: int = 2
    """Layers."""

    @torch.no_grad()
    def measure(self) -> Measured:
        model = build_language_model(self.vocabulary, width=self.width, depth=self.depth, length=self.length)
        model = model.double().eval()
        ids = torch.randint(self.vocabulary, (1, self.length), generator=make_generator(self.seed))
        lengths = np.unique(np.geomspace(2, self.length, 8).round().astype(int)).tolist()
        state, differences, operations, times = None, [], [], []
        for n in range(1, self.length + 1):
            cached, next_state = self.read_token(model, ids, n, state)
            if n in lengths:
                differences.append(float((cached - model.next(ids[:, :n])[0]).abs().max()))
                calls = partial(model.next, ids[:, :n]), partial(self.read_token, model, ids, n, state)
                operations.append([count_operations(model, call) for call in calls])
                times.append([1000 * min(timeit.repeat(call, number=1, repeat=3)) for call in calls])
            state = next_state
        return {
            "largest_difference": max(differences),
            "operations_without_cache": operations[-1][0],
            "operations_with_cache": operations[-1][1],
            "ratio_of_operations": operations[-1][0] / operations[-1][1],
            "milliseconds_without_cache": times[-1][0],
            "milliseconds_with_cache": times[-1][1],
            "lengths": np.array(lengths),
            "operations": np.array(operations, dtype=float),
            "times": np.array(times),
        }

    def read_token(self, model: LanguageModel, ids: Tensor, n: int, state: Any) -> tuple[Tensor, Any]:
        """Returns the log-probabilities (1, V) after token n, given the state after token n − 1, and the next state."""
        return model.next(ids[:, n - 1 : n], state)

    def judge(self, measured: Measured) -> Verdict:
        difference, ratio = measured["largest_difference"], measured["ratio_of_operations"]
        return decide(
            difference < 1e-10 and ratio > MIN_RATIO,
            evidence=f"Log-probabilities differ by at most {difference:.1g}; token {self.length:,} takes "
            f"{measured['operations_without_cache'] / 1e6:.3g} million operations without a cache and "
            f"{measured['operations_with_cache'] / 1e6:.2g} million with it: a factor of {ratio:,.0f}.",
            instead=f"The cache changes what the model predicts, or saves less than a factor of {MIN_RATIO}.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        notes = {
            "operations": "Multiplications and additions in matrix products, counted as they are executed.",
            "milliseconds": "The shortest of three measurements; short texts take as long as the calls themselves.",
        }
        return [
            LineChart(
                title=f"Cost of the next token of a text, in {unit}",
                series=[
                    Series(name="without a cache", x=measured["lengths"], y=values[:, 0]),
                    Series(name="with a cache", x=measured["lengths"], y=values[:, 1]),
                ],
                x_label="length of the text (tokens)",
                y_label=f"{unit} per token",
                x_log=True,
                y_log=True,
                note=notes[unit],
            )
            for unit, values in (("operations", measured["operations"]), ("milliseconds", measured["times"]))
        ]


def count_operations(model: LanguageModel, call: Callable[[], Any]) -> int:
    """Returns the operations of a call. A live recording makes those inside the fused attention kernel visible."""
    counter = FlopCounterMode(display=False)
    recording = record(model, live=True, transform=lambda name, value: None)
    with warnings.catch_warnings(action="ignore"), recording, counter:
        call()
    return int(counter.get_total_flops())
