"""G8: does teacher forcing compute all steps at once, with the same loss as step by step?

    L = −Σₜ log p(yₜ | y₁ … yₜ₋₁)        the inputs y₁ … yₜ₋₁ are the data, so all terms are known from the start

In training the model reads the true tokens, shifted by one position, instead of its own predictions (Williams & Zipser
1989). No input then depends on an output. With a causal mask position t attends to positions up to t only, so one pass
over the whole sequence computes the same numbers as T passes over its prefixes, and the same gradients. Without the
mask each position would see its own target.

When the model reads its own predictions instead (as in generation), there is no such shortcut, and the loss is another
one: after the first wrong token the context differs from the data (exposure bias, Ranzato et al. 2016). A recurrent
network also knows all inputs in teacher forcing, but its states still have to be computed one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.lab.transformer.models import build_language_model
from seqwise.page.figures import Figure, LineChart, Series
from seqwise.tasks.language.model import LanguageModel


@dataclass(frozen=True, kw_only=True)
class TeacherForcing(Experiment):
    id = "G8"
    claim = "Teacher forcing computes all steps at once, with the same loss as step by step."
    equation = "L = −Σₜ log p(yₜ | y₁ … yₜ₋₁), all t in one pass with a causal mask"
    measurement = "Loss of each token and the gradient, in one pass and prefix by prefix, and the passes needed."
    rule = "Holds if one pass gives all losses to 10⁻¹⁰ and the gradient to a relative 10⁻¹⁰."
    try_next = "seqwise lab run G8 --positions rotary --length 60: the position encoding does not matter."
    seconds = 0.3
    minimums: ClassVar = {"vocabulary": 2}

    length: int = 24
    """Tokens that are predicted."""
    vocabulary: int = 20
    """Number of tokens."""
    width: int = 32
    """Width of the model."""
    depth: int = 2
    """Layers."""
    positions: str = "sinusoidal"
    """Position encoding: sinusoidal, learned or rotary."""

    def measure(self) -> Measured:
        model = build_language_model(
            self.vocabulary, width=self.width, depth=self.depth, length=self.length + 1, positions=self.positions
        )
        model = model.double().eval()
        ids = torch.randint(self.vocabulary, (1, self.length + 1), generator=make_generator(self.seed))
        passes: list[None] = []
        hook = model.backbone.register_forward_hook(lambda *_: passes.append(None))
        at_once, passes_at_once = self.compute_at_once(model, ids), len(passes)
        by_prefix, passes_by_prefix = self.compute_by_prefix(model, ids), len(passes) - passes_at_once
        hook.remove()
        gradient, other = (compute_gradient(model, losses) for losses in (at_once, by_prefix))
        at_once, by_prefix, free = at_once.detach(), by_prefix.detach(), self.compute_free_running(model, ids)
        return {
            "passes_at_once": passes_at_once,
            "passes_step_by_step": passes_by_prefix,
            "loss_at_once": float(at_once.mean()),
            "loss_step_by_step": float(by_prefix.mean()),
            "loss_with_own_predictions": float(free.mean()),
            "largest_difference_of_losses": float((at_once - by_prefix).abs().max()),
            "relative_difference_of_gradients": float((gradient - other).norm() / other.norm()),
            "losses_at_once": at_once.numpy(),
            "losses_by_prefix": by_prefix.numpy(),
            "losses_free": free.numpy(),
        }

    def compute_at_once(self, model: LanguageModel, ids: Tensor) -> Tensor:
        """Returns the losses (T,) of tokens 1 … T in one pass over tokens 0 … T − 1."""
        log_probs = model.head(model.backbone(model.embedding(ids[:, :-1])).vectors)
        return -log_probs[0].gather(1, ids[0, 1:, None])[:, 0]

    def compute_by_prefix(self, model: LanguageModel, ids: Tensor) -> Tensor:
        """Returns the same losses; a pass over each prefix predicts the token after it."""
        return torch.stack([-model.next(ids[:, :t])[0][0, ids[0, t]] for t in range(1, self.length + 1)])

    @torch.no_grad()
    def compute_free_running(self, model: LanguageModel, ids: Tensor) -> Tensor:
        """Returns the losses of the true tokens if the model reads its own predictions after the first token."""
        read, losses = ids[:, :1], []
        for t in range(1, self.length + 1):
            log_probs = model.next(read)[0]
            losses.append(-log_probs[0, ids[0, t]])
            read = torch.cat([read, log_probs.argmax(-1, keepdim=True)], dim=1)
        return torch.stack(losses)

    def judge(self, measured: Measured) -> Verdict:
        losses, gradient = measured["largest_difference_of_losses"], measured["relative_difference_of_gradients"]
        return decide(
            measured["passes_at_once"] == 1 and losses < 1e-10 and gradient < 1e-10,
            evidence=f"{measured['passes_at_once']} pass gives the losses of {measured['passes_step_by_step']} to "
            f"{losses:.1g} and their gradient to {gradient:.1g}; the mean loss is {measured['loss_at_once']:.4f} and "
            f"{measured['loss_step_by_step']:.4f}; it is {measured['loss_with_own_predictions']:.4f} if the model "
            "reads its own predictions.",
            instead="A pass over the whole sequence gives another loss than its prefixes one by one.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {
            "all at once": "losses_at_once",
            "prefix by prefix": "losses_by_prefix",
            "own predictions as inputs": "losses_free",
        }
        x = torch.arange(1, self.length + 1).numpy()
        chart = LineChart(
            title="Loss of each token in teacher forcing and with own predictions",
            series=[Series(name=name, x=x, y=measured[key]) for name, key in names.items()],
            x_label="position of the predicted token",
            y_label="loss (nats)",
            note=f"The first two lines differ by at most {measured['largest_difference_of_losses']:.1g} (untrained).",
        )
        return [chart]


def compute_gradient(model: LanguageModel, losses: Tensor) -> Tensor:
    """Returns the gradient of the mean loss with respect to all weights, as one vector."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    gradients = torch.autograd.grad(losses.mean(), weights, allow_unused=True)
    return torch.cat([each.flatten() for each in gradients if each is not None])
