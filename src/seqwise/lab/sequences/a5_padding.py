"""A5: does padding change a result?

    f(x₁ … xₙ, pad … pad; length n) = f(x₁ … xₙ)

Sequences of a batch differ in length, so shorter ones are filled up to the longest. The filling must not be read:
a recurrent layer keeps its state at padded steps, a backward direction begins at the last valid step, and attention
gives padded keys a weight of exactly 0 (their scores become −∞ before the softmax). Then outputs at valid positions are
those of the sequence alone. Without a mask, a bidirectional layer reads the padding first and a Transformer attends to
it as well. A causal model needs no mask for its outputs, since padding follows every valid position;
its *final state*, however, has read the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import Bidirectional, Encoder, GRUCell, PreNormEncoderLayer, Recurrent
from seqwise.page.figures import BarChart, Figure, LineChart, Series

NAMES = {
    "final_state": "GRU state",
    "bidirectional": "bidirectional",
    "transformer": "Transformer",
    "causal": "causal",
}


@dataclass(frozen=True, kw_only=True)
class Padding(Experiment):
    id = "A5"
    claim = "Padding does not change a result, when masked."
    equation = "f(x₁ … xₙ, pad … pad; length n) = f(x₁ … xₙ)"
    measurement = "The difference between the results of a sequence alone and of the same sequence with padding."
    rule = "Holds if masked padding changes no result by 1e-9 or more, while unmasked padding changes three of four."
    try_next = "seqwise lab run A5 --padding 1: one padded step without a mask already changes the result."
    seconds = 0.1

    length: int = 12
    """Valid steps of the sequence."""
    padding: int = 8
    """Padded steps that follow."""
    units: int = 16
    """Width of the layers; a multiple of 4."""

    def measure(self) -> Measured:
        generator = make_generator(self.seed)
        x = torch.randn(1, self.length, self.units, dtype=torch.float64, generator=generator)
        fill = torch.randn(1, self.padding, self.units, dtype=torch.float64, generator=generator)
        models = self.build_models()
        measured: dict[str, float | np.ndarray] = {}
        with torch.no_grad():
            for name, model in models.items():
                alone = self.run_model(name, model, x, None)
                for case, lengths in (("masked", self.get_lengths()), ("unmasked", None)):
                    padded = self.run_model(name, model, torch.cat([x, fill], 1), lengths)
                    difference = (padded - alone).abs().amax(-1)
                    measured[f"difference_{case}_{name}"] = float(difference.max())
                    if name == "transformer":
                        measured[f"differences_{case}"] = difference[0].numpy()
        return measured

    def get_lengths(self) -> Tensor | None:
        """Returns the number of valid steps, from which the layers compute their masks."""
        return torch.tensor([self.length])

    def build_models(self) -> dict[str, nn.Module]:
        units = self.units
        recurrent = [Recurrent(GRUCell(units, units)).double() for _ in range(3)]
        encoder = Encoder([PreNormEncoderLayer(units, 2, 4 * units, "gelu", rotary=True)]).double()
        bidirectional = Bidirectional(recurrent[1], recurrent[2])
        return {
            "final_state": recurrent[0],
            "bidirectional": bidirectional,
            "transformer": encoder,
            "causal": encoder,
        }

    def run_model(self, name: str, model: nn.Module, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Returns the final state (1, 1, U), or the outputs at the valid steps (1, n, U)."""
        if name == "final_state":
            return model(x, lengths=lengths)[1][0][:, None]
        arguments = {"causal": name == "causal"} if isinstance(model, Encoder) else {}
        return model(x, lengths=lengths, **arguments)[0][:, : self.length]

    def judge(self, measured: Measured) -> Verdict:
        masked = max(measured[f"difference_masked_{name}"] for name in NAMES)
        unmasked = [measured[f"difference_unmasked_{name}"] for name in NAMES]
        return decide(
            masked < 1e-9 and sum(each > 1e-6 for each in unmasked) >= 3,
            evidence=f"With a mask no result changes by more than {masked:.1g}; without it the final state changes by "
            f"{unmasked[0]:.2g}, bidirectional outputs by {unmasked[1]:.2g}, those of the encoder by {unmasked[2]:.2g} "
            f"and those of the causal Transformer by {unmasked[3]:.1g}.",
            instead="Padding is read like any other input, or it has no effect even without a mask.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        bars = BarChart(
            title="Largest change of a result by padding, with and without a mask",
            names=[f"{label}, {case}" for label in NAMES.values() for case in ("masked", "unmasked")],
            values=np.array([measured[f"difference_{case}_{key}"] for key in NAMES for case in ("masked", "unmasked")]),
            value_label="largest absolute change",
            note="Final state of a GRU; outputs of a bidirectional GRU, of a Transformer encoder and of a causal one, "
            "which needs no mask because padding comes after all of its outputs.",
        )
        positions = np.arange(1, self.length + 1)
        lines = LineChart(
            title="Change of each output of a Transformer encoder by padding",
            series=[
                Series(name=case, x=positions, y=measured[f"differences_{case}"]) for case in ("masked", "unmasked")
            ],
            x_label="valid position (steps)",
            y_label="largest absolute change",
            note="Without a mask every position attends to the padding, not only the last ones.",
        )
        return [bars, lines]
