"""C9: does normalisation steady training?

    h_t = tanh(LN(W x_t + U h_(t−1))),        LN(a) = g · (a − mean a) / std a + b

Layer normalisation gives the pre-activations of every step the same mean and variance (Ba et al. 2016, eq. 4). If W
and U are multiplied by any number, LN(…) stays the same: units neither saturate (C11) because weights are too large,
nor fade because they are too small. So the RNN trains from a wide range of initial scales, the plain one only near the
right scale. There both train equally well: normalisation is a safeguard more than an improvement. The verdict is about
scales from 0.3 to 10, this task and this number of steps. At 0.03 the normalised RNN learns slowly too, because one
step of the optimiser changes so small weights by a large factor; at 100 the plain RNN learns, from some seeds.
Everything else is equal here: task, batches, initial directions of the weights, optimiser, learning rate, steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import TARGET_WINDOW, fit
from seqwise.lab.synthetic import RecurrentModel, make_copy_problem
from seqwise.layers import LayerNormRNNCell, RNNCell
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class Normalisation(Experiment):
    id = "C9"
    claim = "Normalisation steadies training."
    equation = "LN(s·a) = LN(a) for every s > 0"
    measurement = (
        "The loss after equal training on the copy problem, as a share of the loss of guessing, with and without layer "
        "normalisation, from initial weights of several scales."
    )
    rule = "Holds if the worst loss over all scales is below 0.2 with layer normalisation and above 0.6 without."
    try_next = "seqwise lab run C9 --scales 0.8 1 1.25: near the right scale both train, and the claim is refuted."
    seconds = 4.0
    quick: ClassVar[Mapping[str, Any]] = {"scales": (0.3, 1.0, 10.0)}
    minimums: ClassVar[Mapping[str, float]] = {"learning_rate": 1e-6}

    units: int = 32
    """Hidden units."""
    lag: int = 20
    """Steps over which a symbol has to be remembered."""
    steps: int = 150
    """Training steps."""
    learning_rate: float = 0.003
    """Learning rate, the same for all."""
    scales: tuple[float, ...] = (0.3, 0.6, 1.0, 3.0, 10.0)
    """Factors of the initial W (Xavier) and U (orthogonal)."""

    def measure(self) -> Measured:
        curves = {
            name: np.array([self.train(scale, has_norm=name == "with_norm") for scale in self.scales])
            for name in ("with_norm", "without_norm")
        }  # (scales, steps) each
        final = {name: losses[:, -TARGET_WINDOW:].mean(1) for name, losses in curves.items()}
        return {
            "worst_loss_with_norm": float(final["with_norm"].max()),
            "worst_loss_without_norm": float(final["without_norm"].max()),
            "best_loss_with_norm": float(final["with_norm"].min()),
            "best_loss_without_norm": float(final["without_norm"].min()),
            "scales": np.array(self.scales),
            "final_with_norm": final["with_norm"],
            "final_without_norm": final["without_norm"],
            "curve_with_norm": curves["with_norm"],
            "curve_without_norm": curves["without_norm"],
        }

    def train(self, scale: float, has_norm: bool) -> list[float]:
        """Returns the loss of each step, as a share of the loss of guessing."""
        torch.manual_seed(self.seed)  # the same initial directions for all
        task = make_copy_problem(self.lag)
        model = RecurrentModel(self.build_cell(task.inputs, has_norm), task.outputs)
        model.layer.cell.weight_input.data *= scale
        model.layer.cell.weight_hidden.data *= scale
        losses = fit(
            model, task.draw, task.compute_loss, steps=self.steps, learning_rate=self.learning_rate, seed=self.seed
        )
        return [loss / task.baseline for loss in losses]

    def build_cell(self, inputs: int, has_norm: bool) -> RNNCell:
        return LayerNormRNNCell(inputs, self.units) if has_norm else RNNCell(inputs, self.units)

    def judge(self, measured: Measured) -> Verdict:
        with_norm, without_norm = measured["worst_loss_with_norm"], measured["worst_loss_without_norm"]
        return decide(
            with_norm < 0.2 and without_norm > 0.6,
            evidence=f"Over initial scales from {min(self.scales):g} to {max(self.scales):g} the loss ends between "
            f"{measured['best_loss_with_norm']:.2g} and {with_norm:.2g} of the loss of guessing with layer "
            f"normalisation, between {measured['best_loss_without_norm']:.2g} and {without_norm:.2g} without.",
            instead="From these initial scales normalisation does not decide: the plain RNN learns as well, or the "
            "normalised one does not.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        labels = {"with layer norm": "with_norm", "without": "without_norm"}
        final = LineChart(
            title="Loss of an RNN after training, against the scale of its initial weights",
            series=[
                Series(name=label, x=measured["scales"], y=measured[f"final_{key}"]) for label, key in labels.items()
            ],
            x_label="factor of the initial weights",
            y_label="loss / loss of guessing",
            x_log=True,
            references=[Reference(axis="y", value=1.0, label="guessing")],
            note="A horizontal line means that the result does not depend on the initial scale.",
        )
        curves = LineChart(
            title=f"Training loss of an RNN whose initial weights are {self.scales[-1]:g} times the usual ones",
            series=[
                Series(name=label, x=np.arange(1, self.steps + 1), y=measured[f"curve_{key}"][-1])
                for label, key in labels.items()
            ],
            x_label="training step",
            y_label="loss / loss of guessing",
            note="Both start from the same directions of the weights and read the same batches.",
        )
        return [final, curves]
