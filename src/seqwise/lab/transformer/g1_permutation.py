"""G1: is self-attention invariant to the order of its inputs?

    f(P x) = P f(x)          equivariant: what self-attention is, for every permutation P of the positions
    f(P x) = f(x)            invariant: what the statement says
    mean f(P x) = mean f(x)  invariant: what follows after pooling over positions

Without positions, output t is a sum over all inputs weighted by their similarity to input t. The sum does not depend on
the order of its terms, so the *set* of outputs stays the same, but output t belongs to input t: if two words swap
places, so do their outputs (Lee et al. 2019, "Set Transformer", section 3.1). What is concluded from the statement is
right all the same: without positions a Transformer does not see word order, so they are added to its inputs (Vaswani et
al. 2017, §3.5). The difference matters at the output: a head that labels each token is equivariant too, one that pools
them first is invariant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import Encoder, EncoderLayer, SinusoidalPositions
from seqwise.page.figures import Figure, Heatmap


@dataclass(frozen=True, kw_only=True)
class PermutationInvariance(Experiment):
    id = "G1"
    claim = "Self-attention is permutation-invariant."
    equation = "f(P x) = f(x) for every permutation P"
    measurement = "Relative differences between the outputs of an encoder for a sequence and for its permutations."
    rule = "Invariant if the largest relative difference between f(P x) and f(x) is below 10⁻⁹."
    try_next = (
        "seqwise lab run G1 --length 2 --permutations 1: even two words that swap places swap their outputs with them."
    )
    seconds = 0.1

    length: int = 12
    """Positions of the sequence."""
    width: int = 32
    """Width of the model."""
    heads: int = 4
    """Attention heads."""
    depth: int = 2
    """Layers of the encoder."""
    permutations: int = 20
    """Random permutations that are tested."""

    def measure(self) -> Measured:
        if self.length < 2:
            raise UsageError(f"G1 needs at least 2 positions to permute; received {self.length}.")
        generator = make_generator(self.seed)
        layers = [EncoderLayer(self.width, self.heads, 4 * self.width, "relu") for _ in range(self.depth)]
        encoder, add_positions = Encoder(layers).double().eval(), SinusoidalPositions(self.width)
        x = torch.randn(1, self.length, self.width, dtype=torch.float64, generator=generator)
        output = self.compute_outputs(encoder, x)
        mean_with_positions = self.compute_outputs(encoder, add_positions(x)).mean(1)
        invariance, equivariance, pooled, pooled_with_positions = [], [], [], []
        for _ in range(self.permutations):
            order = self.draw_permutation(generator)
            other = self.compute_outputs(encoder, x[:, order])
            other_with_positions = self.compute_outputs(encoder, add_positions(x[:, order])).mean(1)
            invariance.append(compute_difference(other, output))
            equivariance.append(compute_difference(other, output[:, order]))
            pooled.append(compute_difference(other.mean(1), output.mean(1)))
            pooled_with_positions.append(compute_difference(other_with_positions, mean_with_positions))
        return {
            "difference_to_same_outputs": max(invariance),
            "difference_to_permuted_outputs": max(equivariance),
            "difference_of_pooled_outputs": max(pooled),
            "difference_of_pooled_outputs_with_positions": max(pooled_with_positions),
            "order": order.numpy(),  # the last permutation, which the figure shows
            "distances": torch.cdist(other[0], output[0], compute_mode="donot_use_mm_for_euclid_dist").numpy(),
        }

    def draw_permutation(self, generator: torch.Generator) -> Tensor:
        """Returns a random order of the positions that is not the identity."""
        order = torch.randperm(self.length, generator=generator)
        return order.roll(1) if torch.equal(order, torch.arange(self.length)) else order

    @torch.no_grad()
    def compute_outputs(self, encoder: Encoder, x: Tensor) -> Tensor:
        """Returns f(x) (1, T, D): every position attends to all, and no position is told its number."""
        return encoder(x, causal=False)[0]

    def judge(self, measured: Measured) -> Verdict:
        same, permuted = measured["difference_to_same_outputs"], measured["difference_to_permuted_outputs"]
        pooled = measured["difference_of_pooled_outputs"]
        return decide(
            same < 1e-9,
            evidence=f"After a permutation of the inputs the outputs differ by up to {same:.2g} (relative) from those "
            f"before, by {permuted:.1g} from those before in the permuted order, and their mean by {pooled:.1g}.",
            instead="Self-attention is permutation-equivariant, f(P x) = P f(x); its outputs are permuted along with "
            "the inputs, and only their mean (or another pooling) is invariant.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        shown = min(self.length, 40)
        order = measured["order"][:shown]
        chart = Heatmap(
            title="Outputs of self-attention before and after a permutation of its inputs",
            values=measured["distances"][:shown, :shown],
            rows=[f"{new} (was {old})" for new, old in enumerate(order)],
            columns=[str(position) for position in range(shown)],
            row_label="output for the permuted inputs, by position",
            column_label="output for the original inputs, by position",
            value_label="distance between the two outputs",
            low=0.0,
            note="A row names the new position of an input and its old one; the distance is 0 where the outputs are "
            "equal.",
        )
        return [chart]


def compute_difference(a: Tensor, b: Tensor) -> float:
    """Returns ‖a − b‖ / ‖b‖."""
    return float((a - b).norm() / b.norm())
