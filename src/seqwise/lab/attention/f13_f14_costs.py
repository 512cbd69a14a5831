"""F13, F14: what do encoder, cross-attention and decoder cost, and what does one more target language add?

    encoder      4 M² k                24 M k²                      once per source
    cross        4 M N k
    decoder      4 N² k                28 N k² + 4 M k²             per target      (one layer each, hidden size 4k)
                 attention             projections and feed-forward networks

M and N are the lengths of source and target, k is the width. Every pair of positions costs one product of k entries for
its score and one for its value, hence M²k, MNk and N²k. The other matrix products act on single positions and cost k²
each: they are linear in the lengths, but with large coefficients. For M = N = T and one layer each, 12 T²k exceeds
56 T k² only for T > 4.7 k; counting the projections of attention alone, 4 T²k exceeds 8 T k² for T > 2 k. At the
512 entries of Vaswani et al. (2017), ordinary sentences are far below both: their cost is linear in the length.

The encoder's output does not depend on the decoder (F12), so a source that is encoded once serves every target: another
language adds no term in M². Each decoder computes its own keys and values from the memory (4 M k²); one that is shared
by all languages and reads the target language as its first token keeps even these. Where that token is part of the
source (Johnson et al. 2017), each language does need its own encoding. Operations are counted by PyTorch's
`FlopCounterMode`; a second difference, f(3M) − 2 f(2M) + f(M), is 0 unless f has a quadratic term.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide, decide_condition
from seqwise.layers import Decoder, DecoderLayer, Encoder, EncoderDecoder, EncoderLayer
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class SecondLanguage(Experiment):
    id = "F13"
    claim = "One more target language costs O(MN + N²), not another encoding."
    equation = "cost(2 languages) − cost(1 language) = a N² + b M N + linear terms, without M²"
    measurement = "Operations of encoding one source and decoding into one and two languages, by PyTorch's counter."
    rule = (
        "Holds if the second language adds terms in N² and MN but none in M², which the encoder has, and the outputs "
        "are those of separate encodings within 10⁻⁵."
    )
    try_next = "seqwise lab run F13 --source-length 4096: the longer the source, the more a second encoding would cost."
    seconds = 1.5

    source_length: int = 512
    """Positions of the source, M."""
    target_length: int = 128
    """Positions of each target, N."""
    width: int = 64
    """Width of the model, k."""
    layers: int = 1
    """Layers of the encoder and of each decoder."""

    def measure(self) -> Measured:
        m, n = self.source_length, self.target_length
        encode, add = cache(self.count_encoding), cache(self.count_second_language)
        lengths = [max(1, m // 2), m, 2 * m, 3 * m]
        return {
            "operations_of_encoder": encode(m),
            "operations_of_second_language": add(m, n),
            "second_difference_of_encoder_in_M": encode(3 * m) - 2 * encode(2 * m) + encode(m),
            "second_difference_in_M": add(3 * m, n) - 2 * add(2 * m, n) + add(m, n),
            "second_difference_in_N": add(m, 3 * n) - 2 * add(m, 2 * n) + add(m, n),
            "mixed_difference_in_M_and_N": add(2 * m, 2 * n) - add(2 * m, n) - add(m, 2 * n) + add(m, n),
            **self.compare_with_separate_encodings(),
            "lengths": np.array(lengths),
            "encoder": np.array([encode(each) for each in lengths], dtype=float),
            "added": np.array([add(each, n) for each in lengths], dtype=float),
        }

    def count_encoding(self, source_length: int) -> int:
        """Returns the operations of encoding one source."""
        with torch.device("meta"):  # shapes without values: operations are counted, not computed
            model, source = build_model(self.width, self.layers), torch.empty(1, source_length, self.width)
        return count_operations(lambda: model.encode(source))

    def count_second_language(self, source_length: int, target_length: int) -> int:
        """Returns the operations of two languages minus those of one."""
        with torch.device("meta"):
            model, source = build_model(self.width, self.layers), torch.empty(1, source_length, self.width)
            targets = [torch.empty(1, target_length, self.width)] * 2
        one = count_operations(lambda: self.translate(model, source, targets[:1]))
        return count_operations(lambda: self.translate(model, source, targets)) - one

    def translate(self, model: EncoderDecoder, source: Tensor, targets: Sequence[Tensor]) -> list[Tensor]:
        """Returns the decoder's outputs for several targets of one source, which is encoded once."""
        memory = model.encode(source)
        return [model.decode(target, memory)[0] for target in targets]

    @torch.no_grad()
    def compare_with_separate_encodings(self) -> dict[str, float]:
        """Returns how two translations differ from those with an encoding for each, and the times of both."""
        model = build_model(self.width, self.layers)
        source = torch.randn(1, self.source_length, self.width)
        targets = [torch.randn(1, self.target_length, self.width) for _ in range(2)]
        shared = self.translate(model, source, targets)
        separate = [model(source, target) for target in targets]
        return {
            "largest_output_difference": max(
                float((one - other).abs().max()) for one, other in zip(shared, separate, strict=True)
            ),
            "milliseconds_if_encoded_once": 1e3 * measure_time(lambda: self.translate(model, source, targets)),
            "milliseconds_if_encoded_twice": 1e3 * measure_time(lambda: [model(source, target) for target in targets]),
        }

    def judge(self, measured: Measured) -> Verdict:
        in_m, in_encoder = measured["second_difference_in_M"], measured["second_difference_of_encoder_in_M"]
        has_own_terms = measured["second_difference_in_N"] > 0 and measured["mixed_difference_in_M_and_N"] > 0
        ratio = measured["operations_of_second_language"] / measured["operations_of_encoder"]
        return decide(
            in_m == 0 < in_encoder and has_own_terms and measured["largest_output_difference"] < 1e-5,
            evidence=f"At M = {self.source_length}, N = {self.target_length} the second language adds "
            f"{measured['operations_of_second_language'] / 1e6:,.1f} million operations, {100 * ratio:.0f} % of one "
            f"encoding. Their second difference in M is {in_m:,}: no term in M²; that of the encoder's is "
            f"{in_encoder:,}.",
            instead="Another language adds a term in M², as another encoding does.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        one = measured["encoder"] + measured["added"]
        curves = {
            "2 languages, encoded twice": 2 * one,
            "2 languages, encoded once": one + measured["added"],
            "1 language": one,
        }
        chart = LineChart(
            title=f"Operations of translating one source into {self.target_length} target positions per language",
            series=[Series(name=name, x=measured["lengths"], y=values / 1e6) for name, values in curves.items()],
            x_label="source length M (positions)",
            y_label="operations (millions)",
            note="What the second language adds to the first is linear in M; a second encoding adds a term in M².",
        )
        return [chart]


@dataclass(frozen=True, kw_only=True)
class QuadraticCosts(Experiment):
    id = "F14"
    claim = "The encoder costs M²k, cross-attention MNk and the decoder N²k."
    equation = "operations ≈ a M²k + b M N k + c N²k"
    measurement = "Operations of an encoder and a decoder layer for lengths of k/8 to 32 k; their quadratic terms."
    rule = "True at a length if the quadratic terms are more than half of all operations; tested at 16 k and at k/4."
    try_next = "seqwise lab run F14 --width 512: at a common width the claim needs thousands of positions to hold."
    seconds = 1.5
    quick: ClassVar = {"max_timed_length": 256}

    width: int = 64
    """Width of the model, k."""
    max_timed_length: int = 1024
    """Longest sequence whose time is measured."""

    def measure(self) -> Measured:
        k, f = self.width, cache(self.count)
        length = 4 * k
        terms = {
            "M²k": (f(3 * length, k) - 2 * f(2 * length, k) + f(length, k)) / (2 * length**2 * k),
            "MNk": (f(2 * length, 2 * k) - f(2 * length, k) - f(length, 2 * k) + f(length, k)) / (length * k * k),
            "N²k": (f(k, 3 * length) - 2 * f(k, 2 * length) + f(k, length)) / (2 * length**2 * k),
        }
        lengths = np.array([max(1, k * 2**power // 8) for power in range(9)])
        operations = np.array([f(int(each), int(each)) for each in lengths], dtype=float)
        quadratic = sum(terms.values()) * lengths.astype(float) ** 2 * k
        linear = (operations - quadratic) / lengths
        timed = [int(each) for each in lengths if each <= self.max_timed_length]
        return {
            **{f"coefficient_of_{name}": value for name, value in terms.items()},
            "coefficient_of_Tk²": float(linear[-1] / k**2),
            "crossover_in_widths": float(linear[-1] / (sum(terms.values()) * k * k)),
            "quadratic_share_at_16_k": float(quadratic[-2] / operations[-2]),
            "quadratic_share_at_k": float(quadratic[3] / operations[3]),
            "quadratic_share_at_quarter_k": float(quadratic[1] / operations[1]),
            "lengths": lengths,
            "operations": operations,
            "quadratic": quadratic,
            "timed_lengths": np.array(timed),
            "milliseconds": np.array([self.measure_milliseconds(each) for each in timed]),
        }

    def count(self, source_length: int, target_length: int) -> int:
        """Returns the operations of one encoder and one decoder layer."""
        with torch.device("meta"):
            model = build_model(self.width, layers=1)
            source, target = (torch.empty(1, length, self.width) for length in (source_length, target_length))
        return count_operations(lambda: model(source, target))

    def measure_milliseconds(self, length: int) -> float:
        model, x = build_model(self.width, layers=1), torch.randn(1, length, self.width)
        return 1e3 * measure_time(lambda: model(x, x))

    def judge(self, measured: Measured) -> Verdict:
        long, short = measured["quadratic_share_at_16_k"], measured["quadratic_share_at_quarter_k"]
        crossover = measured["crossover_in_widths"]
        return decide_condition(
            long > 0.5,
            short > 0.5,
            condition=f"the lengths exceed about {crossover:.2g} times the width k; below, linear terms in k² dominate",
            evidence=f"With T = M = N, the quadratic terms are {100 * long:.0f} % of the operations at T = 16 k, "
            f"{100 * measured['quadratic_share_at_k']:.0f} % at k and {100 * short:.0f} % at k/4; they are half at "
            f"{crossover:.2g} k.",
            instead="The linear terms in k² dominate even if the lengths are 16 times the width k.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        lengths, crossover = measured["lengths"], measured["crossover_in_widths"] * self.width
        linear = measured["operations"] - measured["quadratic"]
        operations = LineChart(
            title=f"Operations of one encoder and one decoder layer of width {self.width}",
            series=[
                Series(name="all operations", x=lengths, y=measured["operations"] / 1e6),
                Series(name="M²k + MNk + N²k", x=lengths, y=measured["quadratic"] / 1e6),
                Series(name="linear terms, k²", x=lengths, y=linear / 1e6),
            ],
            x_label="length of source and target, M = N (positions)",
            y_label="operations (millions)",
            x_log=True,
            y_log=True,
            references=[Reference(axis="x", value=round(crossover), label="crossover")],
            note="At the crossover the linear and the quadratic terms are equal.",
        )
        times = LineChart(
            title=f"Time of one encoder and one decoder layer of width {self.width} on this machine",
            series=[Series(name="forward pass", x=measured["timed_lengths"], y=measured["milliseconds"])],
            x_label="length of source and target, M = N (positions)",
            y_label="time (milliseconds)",
            x_log=True,
            y_log=True,
            note="Times of short sequences are mostly the overhead of each call.",
        )
        return [operations, times]


def build_model(width: int, layers: int) -> EncoderDecoder:
    sizes = (width, 1, 4 * width, "relu")
    encoder = Encoder([EncoderLayer(*sizes) for _ in range(layers)])
    return EncoderDecoder(encoder, Decoder([DecoderLayer(*sizes) for _ in range(layers)]))


def count_operations(call: Callable[[], Any]) -> int:
    """Returns the multiplications and additions of matrix products during a call."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


@torch.no_grad()
def measure_time(call: Callable[[], Any]) -> float:
    """Returns the shortest of some repeated times, in seconds."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
