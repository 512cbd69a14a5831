"""F9: does a causal mask make the future invisible?

    ∂y_i/∂x_j = 0   for j > i

The mask sets the scores of later keys to −∞ before the softmax, so that their weights are exactly 0 (Vaswani et al.
2017, §3.2.3). Every layer moves information to the same or a later position only, so the same holds of a stack of any
depth. The test needs no tolerance: change the input at position j, and the outputs at i < j must be the same bits. This
is also why the keys and values of a prefix can be cached: nothing that follows changes them. A mask that allows one
position too many leaks one further step in every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import Encoder, PreNormEncoderLayer
from seqwise.page.figures import Figure, Heatmap


@dataclass(frozen=True, kw_only=True)
class CausalMask(Experiment):
    id = "F9"
    claim = "A causal mask makes the future invisible."
    equation = "∂yᵢ/∂xⱼ = 0 for j > i"
    measurement = "The change of each output when one input changes, for every input, with and without the mask."
    rule = "Holds if no bit of an output before the changed input differs, and without the mask most of them do."
    try_next = "seqwise lab run F9 --layers 6 --length 32: depth and length do not matter."
    seconds = 0.1
    minimums: ClassVar = {"length": 2}

    length: int = 16
    """Number of positions."""
    layers: int = 3
    """Number of Transformer layers."""
    width: int = 32
    """Width of the model."""
    heads: int = 4
    """Number of heads."""

    @torch.no_grad()
    def measure(self) -> Measured:
        layers = [PreNormEncoderLayer(self.width, self.heads, 4 * self.width, "gelu") for _ in range(self.layers)]
        encoder = Encoder(layers).eval()
        generator = make_generator(self.seed)
        x = torch.randn(1, self.length, self.width, generator=generator)
        noise = torch.randn(self.length, self.width, generator=generator)
        masked = self.measure_changes(encoder, x, noise, causal=True)
        unmasked = self.measure_changes(encoder, x, noise, causal=False)
        is_earlier = np.triu(np.ones((self.length, self.length), dtype=bool), 1)  # output i, input j > i
        return {
            "pairs_of_earlier_output_and_later_input": int(is_earlier.sum()),
            "changed_with_mask": int((masked[is_earlier] > 0).sum()),
            "changed_without_mask": int((unmasked[is_earlier] > 0).sum()),
            "largest_change_of_an_earlier_output": float(masked[is_earlier].max()),
            "mean_change_of_a_later_output": float(masked[~is_earlier].mean()),
            "changes_masked": masked,
            "changes_unmasked": unmasked,
        }

    def measure_changes(self, encoder: Encoder, x: Tensor, noise: Tensor, causal: bool) -> np.ndarray:
        """Returns (T, T): the largest change of output i when input j is replaced."""
        before, columns = self.run_encoder(encoder, x, causal), []
        for position in range(self.length):
            changed = x.clone()
            changed[0, position] = noise[position]
            columns.append((self.run_encoder(encoder, changed, causal) - before).abs().amax(-1)[0])
        return torch.stack(columns, 1).double().numpy()

    def run_encoder(self, encoder: Encoder, x: Tensor, causal: bool) -> Tensor:
        return encoder(x, causal=causal)[0]

    def judge(self, measured: Measured) -> Verdict:
        masked, unmasked = measured["changed_with_mask"], measured["changed_without_mask"]
        total = measured["pairs_of_earlier_output_and_later_input"]
        return decide(
            masked == 0 and unmasked > total / 2,
            evidence=f"Of {total} pairs of an output and a later input, the output changes in {masked} with the mask "
            f"and in {unmasked} without it.",
            instead="Some outputs depend on later inputs: the mask is missing or lets through too much.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = [str(i + 1) for i in range(self.length)]
        total = measured["pairs_of_earlier_output_and_later_input"]
        return [
            Heatmap(
                title=f"Change of each output when one input changes, {name} causal mask",
                values=measured[key],
                rows=names,
                columns=names,
                row_label="output position i",
                column_label="changed input position j",
                value_label="largest |change| of output i",
                low=0.0,
                note=f"Above the diagonal the input is later than the output: {changed} of {total} outputs change "
                "there.",
            )
            for name, key, changed in (
                ("with a", "changes_masked", measured["changed_with_mask"]),
                ("without a", "changes_unmasked", measured["changed_without_mask"]),
            )
        ]
