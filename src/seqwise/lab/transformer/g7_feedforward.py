"""G7: does the feed-forward part act on each position alone?

    FFN(x)ₜ = W₂ relu(W₁ xₜ + b₁) + b₂        ∂FFN(x)ₜ / ∂xₛ = 0 for s ≠ t

The same two matrices are applied to every position, separately and identically (Vaswani et al. 2017, §3.3): a
convolution of width 1. The Jacobian shows it: the block (t, s) says how output t reacts to input s. For the
feed-forward network all blocks off the diagonal are exactly zero; for self-attention none is, and with a causal mask
those above the diagonal are. So all exchange between positions happens in attention, and all positions of a batch can
pass the feed-forward network as rows of one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import FeedForward, MultiHeadAttention
from seqwise.page.figures import Figure, Heatmap


@dataclass(frozen=True, kw_only=True)
class FeedForwardByPosition(Experiment):
    id = "G7"
    claim = "The feed-forward part acts on each position alone."
    equation = "∂FFN(x)ₜ / ∂xₛ = 0 for s ≠ t"
    measurement = "Norms of the Jacobian's blocks for feed-forward and attention; outputs of single positions."
    rule = "Holds if all blocks off the diagonal are exactly 0, and single positions give the same outputs to 10⁻¹²."
    try_next = "seqwise lab run G7 --activation gelu --length 20: the activation does not matter."
    seconds = 0.1
    minimums: ClassVar = {"length": 2}

    length: int = 8
    """Positions of the sequence."""
    width: int = 16
    """Width of the model."""
    hidden: int = 64
    """Hidden units of the feed-forward network."""
    heads: int = 4
    """Heads of the attention that it is compared with."""
    activation: str = "relu"
    """Nonlinearity: relu or gelu."""

    def measure(self) -> Measured:
        x = torch.randn(self.length, self.width, dtype=torch.float64, generator=make_generator(self.seed))
        feedforward = FeedForward(self.width, self.hidden, self.activation).double()
        attention = MultiHeadAttention(self.width, self.heads).double()
        with torch.no_grad():
            one_by_one = torch.cat([self.apply_feedforward(feedforward, row[None]) for row in x])
            together = self.apply_feedforward(feedforward, x)
        blocks = self.compute_blocks(lambda each: self.apply_feedforward(feedforward, each), x)
        attention_blocks = self.compute_blocks(lambda each: attention(each[None])[0][0], x)
        is_other = ~np.eye(self.length, dtype=bool)
        return {
            "largest_block_off_diagonal": float(blocks[is_other].max(initial=0.0)),
            "smallest_block_on_diagonal": float(blocks.diagonal().min()),
            "smallest_block_of_attention_off_diagonal": float(attention_blocks[is_other].min(initial=np.inf)),
            "difference_one_by_one": float((one_by_one - together).abs().max()),
            "blocks": blocks,
            "attention_blocks": attention_blocks,
        }

    def apply_feedforward(self, feedforward: FeedForward, x: Tensor) -> Tensor:
        """Returns the outputs (T, D) of inputs (T, D)."""
        return feedforward(x)

    def compute_blocks(self, function: Callable[[Tensor], Tensor], x: Tensor) -> np.ndarray:
        """Returns the Frobenius norm (T, T) of ∂output t / ∂input s."""
        jacobian = torch.autograd.functional.jacobian(function, x)  # (T, D, T, D)
        return jacobian.norm(dim=(1, 3)).numpy()

    def judge(self, measured: Measured) -> Verdict:
        other, difference = measured["largest_block_off_diagonal"], measured["difference_one_by_one"]
        attention = measured["smallest_block_of_attention_off_diagonal"]
        return decide(
            other == 0 and difference < 1e-12,
            evidence=f"The largest derivative of an output with respect to another position is {other:.3g} (of "
            f"attention, every one is at least {attention:.2g}); positions passed one by one differ by "
            f"{difference:.1g}.",
            instead="The output at a position depends on other positions too.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = [str(position) for position in range(self.length)]
        titles = {"the feed-forward network": "blocks", "self-attention": "attention_blocks"}
        return [
            Heatmap(
                title=f"How outputs of {part} depend on inputs",
                values=measured[key],
                rows=names,
                columns=names,
                row_label="output position",
                column_label="input position",
                value_label="norm of ∂output / ∂input",
                low=0.0,
                note=f"Off the diagonal the norm is at least {others.min():.2g} and at most {others.max():.2g}.",
            )
            for part, key in titles.items()
            for others in [measured[key][~np.eye(self.length, dtype=bool)]]
        ]
