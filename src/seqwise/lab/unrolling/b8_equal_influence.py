"""B8: do all earlier states contribute equally to the present one?

    equal       ‖dh_T/dhₖ‖ the same for all k
    measured    dh_T/dhₖ = Πₜ₌ₖ₊₁…T diag(tanh'(aₜ))·W

No. An earlier state acts on the present one through a product with one factor per step between them (B3), so its
influence depends on the distance, as a rule exponentially. Training changes the rate but does not make the influence
equal: here an RNN learns to recall the input of `lag` steps ago and still forgets what is older. Equal contributions
need a different update: a plain sum hₜ = hₜ₋₁ + U xₜ (W the identity, no tanh), an LSTM whose forget gate stays at 1
(D6), or attention with equal weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers import Recurrent, RNNCell
from seqwise.page.figures import Figure, LineChart, Series


class Recall(nn.Module):
    """An RNN whose output at each step should be the input of some steps ago."""

    def __init__(self, units: int, activation: str):
        super().__init__()
        self.layer = Recurrent(RNNCell(1, units, activation))
        self.output = nn.Linear(units, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.layer(x)[0])


@dataclass(frozen=True, kw_only=True)
class EqualInfluence(Experiment):
    id = "B8"
    claim = "In an RNN all earlier states contribute equally to the present one."
    equation = "‖dh_T/dhₖ‖ = constant for k = 1 … T"
    measurement = (
        "The norm of dh_T/dhₖ against the distance T − k, in a random RNN and in one trained to recall inputs."
    )
    rule = "Holds if the largest influence is less than twice the smallest, in both networks."
    try_next = "seqwise lab run B8 --distance 100: the influence keeps falling, exponentially in the random network."
    seconds = 3.0
    quick: ClassVar = {"training_steps": 60}
    minimums: ClassVar = {"distance": 2}

    units: int = 24
    """Hidden units."""
    distance: int = 40
    """Largest distance T − k."""
    lag: int = 4
    """The trained network recalls the input of this many steps ago."""
    training_steps: int = 300
    """Batches on which the second network is trained."""

    def measure(self) -> Measured:
        model = self.build()
        random = self.compute_influence(model)
        losses = fit(model, self.draw_batch, compute_loss, steps=self.training_steps, seed=self.seed)
        trained = self.compute_influence(model)
        return {
            "first_loss": losses[0],
            "last_loss": float(np.mean(losses[-10:])),
            "largest_to_smallest_influence_random": float(random.max() / random.min()),
            "largest_to_smallest_influence_trained": float(trained.max() / trained.min()),
            "influence_random": random,
            "influence_trained": trained,
        }

    def build(self) -> Recall:
        return Recall(self.units, "tanh")

    def draw_batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Returns white noise (B, T, 1), and the same noise `lag` steps later."""
        x = torch.randn(32, 8 + 2 * self.lag, 1, generator=generator)
        return x, x.roll(self.lag, 1)

    @torch.enable_grad()
    def compute_influence(self, model: Recall) -> np.ndarray:
        """Returns the norm of dh_T/dhₖ for the distances 1, 2, …, its geometric mean over some sequences."""
        cell = model.layer.cell
        x = torch.randn(16, self.distance + 10, 1, generator=make_generator(self.seed, 1))
        state, states = cell.start(len(x), x), []
        for x_t in cell.project(x).unbind(1):
            state = cell.step(x_t, state, cell.weight_hidden)
            states.append(state[0])
        squares: Tensor | float = 0.0
        for unit in range(self.units):  # a row of the Jacobian of every sequence
            rows = torch.autograd.grad(states[-1][:, unit].sum(), states[-1 - self.distance : -1], retain_graph=True)
            squares = squares + torch.stack(rows).double().square().sum(-1)  # (distance, B)
        return (torch.as_tensor(squares).log() / 2).mean(1).exp().flip(0).numpy()

    def judge(self, measured: Measured) -> Verdict:
        random, trained = (measured[f"largest_to_smallest_influence_{name}"] for name in ("random", "trained"))
        return decide(
            max(random, trained) < 2,
            evidence=f"Over distances of 1 to {self.distance} steps the influence varies {random:,.1f}-fold in the "
            f"random network and {trained:,.1f}-fold in the trained one.",
            instead="The influence of a state depends on its distance, as a rule exponentially: it passes through one "
            "Jacobian per step.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        distances = np.arange(1, self.distance + 1)
        chart = LineChart(
            title="Influence of an earlier state on the present one against their distance",
            series=[
                Series(name="random RNN", x=distances, y=measured["influence_random"]),
                Series(name=f"trained, lag {self.lag}", x=distances, y=measured["influence_trained"]),
            ],
            x_label="distance T − k (steps)",
            y_label="norm of dh_T/dhₖ",
            y_log=True,
            note="Equal contributions would be a horizontal line.",
        )
        return [chart]


def compute_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Returns the squared errors of the last half of the steps, where the recalled input lies within the sequence."""
    half = x.shape[1] // 2
    return (model(x) - y)[:, half:].square()
