"""H12: what does teacher forcing save, and what does it cost?

    teacher forcing    L = −Σₜ log q(xₜ | x₁ … xₜ₋₁)        the true history is the input
    free running       L = −Σₜ log q(xₜ | x̂₁ … x̂ₜ₋₁)        the model's own predictions x̂ are the input

With teacher forcing (Williams and Zipser 1989) each step learns from a correct history, all inputs are known in
advance, and a sequence is one scan. In free running an early error makes all later inputs wrong, so there is little to
learn from them until the first steps are right; and each step waits for the one before. The price: training never shows
the model its own errors, so its loss is that of a single step, while generation accumulates them ("exposure bias",
Bengio et al. 2015; Ranzato et al. 2016). The sequences are sums xₜ = xₜ₋₁ + xₜ₋₂ modulo m, in which some tokens are
replaced by random ones, after which even a perfect model departs from the text; without noise it would have no gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.lab.words.grammar import draw_sums
from seqwise.lab.words.language_models import PROMPT, NextTokenModel
from seqwise.page.figures import Figure, LineChart, Series


@dataclass(frozen=True, kw_only=True)
class TeacherForcing(Experiment):
    id = "H12"
    claim = "Teacher forcing trains faster and leaves a gap to free running."
    equation = "−log q(xₜ | x₁ … xₜ₋₁)  against  −log q(xₜ | x̂₁ … x̂ₜ₋₁)"
    measurement = "Losses of a GRU trained in either mode for equally many steps, and the loss of the one trained by "
    measurement += "teacher forcing when it runs freely."
    rule = (
        "Holds if, in equally many steps, teacher forcing lowers its loss at least twice as far as free running does, "
    )
    rule += "and its model loses at least 0.2 nats more when it runs freely."
    try_next = "seqwise lab run H12 --noise 0.001: an almost perfect model makes no errors, so it has no gap."
    seconds = 2.5
    minimums: ClassVar = {"noise": 0.0, "length": 4}
    maximums: ClassVar = {"noise": 1.0}
    quick: ClassVar = {"steps": 80}

    modulus: int = 7
    """Number of tokens: the sums are taken modulo this."""
    noise: float = 0.05
    """Share of the tokens that are replaced by random ones."""
    length: int = 16
    """Length of the sequences."""
    steps: int = 150
    """Training steps in either mode, of 32 sequences each."""
    width: int = 32
    """Units of the GRU."""

    def measure(self) -> Measured:
        forced, forced_losses = self.train("force")
        _, free_losses = self.train("run_free")
        ids = self.draw_sequences(500, make_generator(self.seed, 1))
        with torch.no_grad():
            by_step = {mode: self.compute_losses(forced, mode, ids).mean(dim=0) for mode in ("force", "run_free")}
        return {
            "loss_after_teacher_forcing": float(np.mean(forced_losses[-10:])),
            "loss_after_free_running": float(np.mean(free_losses[-10:])),
            "loss_of_uniform_guessing": float(np.log(self.modulus)),
            "loss_with_true_history": float(by_step["force"].mean()),
            "loss_with_own_predictions": float(by_step["run_free"].mean()),
            "losses_forced": np.array(forced_losses),
            "losses_free": np.array(free_losses),
            **{f"by_step_{mode}": losses.numpy() for mode, losses in by_step.items()},
        }

    def train(self, mode: str) -> tuple[NextTokenModel, list[float]]:
        """Returns a trained model and the loss of each step."""
        torch.manual_seed(self.seed)  # both models start from the same weights
        model = NextTokenModel(self.modulus, self.width)

        def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
            return (ids := self.draw_sequences(32, generator)), ids

        losses = fit(
            model, draw, lambda _, ids, targets: self.compute_losses(model, mode, ids).flatten(),
            steps=self.steps, seed=self.seed,
        )  # fmt: skip
        return model, losses

    def draw_sequences(self, count: int, generator: torch.Generator) -> Tensor:
        """Returns sequences (B, T) of sums modulo m, some tokens of which are random."""
        return draw_sums(count, self.length, self.modulus, self.noise, generator)

    def compute_losses(self, model: NextTokenModel, mode: str, ids: Tensor) -> Tensor:
        """Returns the loss of each token after the prompt, (B, T − 2)."""
        logits = model.force(ids) if mode == "force" else model.run_free(ids)
        return F.cross_entropy(logits[:, PROMPT - 1 :].mT, ids[:, PROMPT:], reduction="none")

    def judge(self, measured: Measured) -> Verdict:
        names = ("of_uniform_guessing", "after_teacher_forcing", "after_free_running")
        start, forced, free = (measured[f"loss_{name}"] for name in names)
        gap = measured["loss_with_own_predictions"] - measured["loss_with_true_history"]
        return decide(
            start - forced > 2 * max(start - free, 0.0) and start - forced > 0.2 and gap > 0.2,
            evidence=f"After {self.steps} steps the loss is {forced:.2f} nats with teacher forcing and {free:.2f} in "
            f"free running, from {start:.2f}; running freely, the model trained by teacher forcing loses {gap:.2f} "
            "nats more.",
            instead="Teacher forcing is not faster here, or the model does as well when it runs freely.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps, positions = np.arange(1, self.steps + 1), np.arange(PROMPT + 1, self.length + 1)
        inputs = {"true history": measured["by_step_force"], "own predictions": measured["by_step_run_free"]}
        modes = {"teacher forcing": measured["losses_forced"], "free running": measured["losses_free"]}
        curves = LineChart(
            title="Training loss of a GRU with teacher forcing and in free running",
            series=[Series(name=name, x=steps, y=losses) for name, losses in modes.items()],
            x_label="training step",
            y_label="loss in the mode of training (nats per token)",
            note="In free running the input of each step is the prediction of the step before, right or wrong.",
        )
        gap = LineChart(
            title="Loss by position and input of the model trained with teacher forcing",
            series=[Series(name=name, x=positions, y=losses) for name, losses in inputs.items()],
            x_label="position in the sequence (tokens)",
            y_label="loss (nats per token)",
            note="With own predictions as input, a deviation from the text affects all later steps.",
        )
        return [curves, gap]
