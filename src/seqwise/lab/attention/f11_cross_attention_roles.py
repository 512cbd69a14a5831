"""F11: in cross-attention, who gives the queries, who the keys, and who the values?

    context = softmax(Q Kᵀ / √k) V        Q: (n_Q, k)   K: (n_K, k)   V: (n_V, k)   weights: (n_Q, n_K)

The shapes alone decide it. The weights have one column per key, and each column weighs one value, so n_K = n_V: keys
and values come from the same sequence. The context has one row per query, and the decoder needs one row for each of
its N target positions, so the queries come from the decoder. What is left is a choice between attending to the target
(self-attention) and to the source of length M. Cross-attention reads the source, so the encoder gives keys and values
(Vaswani et al. 2017, §3.2.3: "the queries come from the previous decoder layer, and the memory keys and values come
from the output of the encoder"). In words: the decoder asks, the encoder answers. Of the 2³ = 8 assignments only one is
possible, has N rows and depends on the source. If M = N, more assignments can be computed, but they compute other
things.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import MultiHeadAttention, attend_with_weights
from seqwise.page.figures import Figure, Heatmap, Table

CLAIMED = ("encoder", "encoder", "decoder")  # queries, keys, values


@dataclass(frozen=True, kw_only=True)
class CrossAttentionRoles(Experiment):
    id = "F11"
    claim = "In cross-attention the encoder gives queries and keys and the decoder the values."
    equation = "context = softmax(Q_enc K_encᵀ / √k) V_dec"
    measurement = "The output of all 8 assignments of encoder and decoder states to queries, keys and values."
    rule = "Holds if the claimed assignment equals the output of the cross-attention layer within 10⁻⁹."
    try_next = (
        "seqwise lab run F11 --target-length 7: with equal lengths every assignment can be computed, "
        "but still only one equals the layer."
    )
    seconds = 0.1

    source_length: int = 7
    """Number of encoder states, M."""
    target_length: int = 4
    """Number of decoder states, N."""
    width: int = 8
    """Entries of a state, k."""

    @torch.no_grad()
    def measure(self) -> Measured:
        layer = MultiHeadAttention(self.width, heads=1).double()
        generator, lengths = make_generator(self.seed), {"encoder": self.source_length, "decoder": self.target_length}
        states = {
            name: torch.randn(1, length, self.width, dtype=torch.float64, generator=generator)
            for name, length in lengths.items()
        }
        output = self.run_layer(layer, states)
        rows, matches = [], []
        for roles in product(("encoder", "decoder"), repeat=3):
            context = self.try_assignment(layer, *(states[role] for role in roles))
            difference = None if context is None else self.compare(context, output)
            is_equal = difference is not None and difference < 1e-9
            rows.append((*roles, "impossible" if context is None else str(context.shape[1]), difference))
            matches += [roles] if is_equal else []
        queries = layer.project_queries(states["decoder"])
        weights = attend_with_weights(queries, *layer.project_memory(states["encoder"]))[1]
        return {
            "possible_assignments": sum(row[3] != "impossible" for row in rows),
            "claimed_assignment_is_possible": next(row[3] != "impossible" for row in rows if row[:3] == CLAIMED),
            "claimed_assignment_equals_the_layer": CLAIMED in matches,
            "equal_assignments": "; ".join("queries {}, keys {}, values {}".format(*each) for each in matches)
            or "none",
            "rows_of_the_output": output.shape[1],
            "rows": rows,
            "weights": weights[0, 0].numpy(),
        }

    def run_layer(self, layer: MultiHeadAttention, states: dict[str, Tensor]) -> Tensor:
        """Returns the output (1, N, k) of the layer that decoders use."""
        return layer(states["decoder"], memory=states["encoder"])[0]

    def try_assignment(self, layer: MultiHeadAttention, for_q: Tensor, for_k: Tensor, for_v: Tensor) -> Tensor | None:
        """Returns the output for these states, by the weights of the layer; None if keys and values do not match."""
        queries = layer.project_queries(for_q)
        keys, values = layer.project_memory(for_k)[0], layer.project_memory(for_v)[1]
        weights = (queries @ keys.transpose(-2, -1) / self.width**0.5).softmax(-1)  # (1, 1, n_Q, n_K)
        if weights.shape[-1] != values.shape[-2]:
            return None
        return layer.project_output(weights @ values)

    def compare(self, context: Tensor, output: Tensor) -> float | None:
        """Returns the largest difference; None for different shapes."""
        return float((context - output).abs().max()) if context.shape == output.shape else None

    def judge(self, measured: Measured) -> Verdict:
        possible = "can be computed" if measured["claimed_assignment_is_possible"] else "cannot be computed at all"
        return decide(
            measured["claimed_assignment_equals_the_layer"],
            evidence=f"For M = {self.source_length} and N = {self.target_length} the claimed assignment {possible}; "
            f"{measured['possible_assignments']} of 8 can. Equal to the layer: "
            f"{measured['equal_assignments']}.",
            instead="The decoder gives the queries, the encoder keys and values: one output per target position, "
            "a weighted mean over source positions.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        table = Table(
            title=f"All assignments for M = {self.source_length} source and N = {self.target_length} target positions",
            columns=["queries", "keys", "values", "output rows", "difference from the layer"],
            rows=measured["rows"],
            note="Keys and values need equal lengths; the difference is empty where the shapes differ.",
        )
        heatmap = Heatmap(
            title="Weights of cross-attention: one row per decoder position",
            values=measured["weights"],
            rows=[f"target {n + 1}" for n in range(self.target_length)],
            columns=[f"source {m + 1}" for m in range(self.source_length)],
            row_label="query (decoder)",
            column_label="key (encoder)",
            value_label="attention weight",
            low=0.0,
            note="Each row sums to 1 over the source, so that each target position gets a mean of source values.",
        )
        return [table, heatmap]
