"""G6: layer norm after the residual sum, as published, or before each sub-layer?

    post-norm:  hₗ₊₁ = norm(hₗ + f(hₗ))        Vaswani et al. 2017, §3.1
    pre-norm:   hₗ₊₁ = hₗ + f(norm(hₗ))        Radford et al. 2019, §2.3; one more norm after the last layer

Both are in use, and with a few layers both train alike. In a deep post-norm stack the identity path of the residuals
passes a norm in every layer: initial gradients are large near the output, and what tells positions apart shrinks from
layer to layer. The first steps of Adam, which have the size of the learning rate whatever the gradient, then move the
weights to where nothing is learned. Pre-norm keeps the identity path clear (Xiong et al. 2020, section 3).

The task is as simple as can be: to output each input token. What fails here is training, not the model. The learning
rate decides at which depth it fails: at the 0.005 chosen here, post-norm stacks of 12 layers learn nothing, at 0.0005
they learn as well as pre-norm ones. The usual fix, a warm-up of the learning rate, is not measured here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.fitting import fit
from seqwise.lab.transformer.models import build_language_model, compute_losses
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class NormPlacement(Experiment):
    id = "G6"
    claim = "Layer norm may follow each sub-layer, as published, or precede it."
    equation = "post: hₗ₊₁ = norm(hₗ + f(hₗ))    pre: hₗ₊₁ = hₗ + f(norm(hₗ))"
    measurement = "Loss after a short training without warm-up, post-norm and pre-norm, from shallow to deep stacks."
    rule = "Either will do at a depth if both losses fall below half of a uniform guess's; tested shallow and deep."
    try_next = "seqwise lab run G6 --learning-rate 0.0005 --steps 200: small steps let deep post-norm stacks train too."
    seconds = 8
    quick = {"depths": 2, "deep": 12, "steps": 35}  # noqa: RUF012

    shallow: int = 2
    """Layers of the shallowest stack."""
    deep: int = 16
    """Layers of the deepest stack."""
    depths: int = 4
    """Number of depths from the shallowest to the deepest."""
    width: int = 32
    """Width of the model."""
    length: int = 8
    """Tokens of a sequence."""
    vocabulary: int = 10
    """Number of tokens."""
    steps: int = 60
    """Training steps."""
    learning_rate: float = 5e-3
    """Learning rate of AdamW, constant from the first step."""

    def measure(self) -> Measured:
        if not 0 < self.shallow < self.deep or self.depths < 2:
            raise UsageError("G6 needs a shallow stack, a deeper one, and at least 2 depths.")
        depths = np.unique(np.geomspace(self.shallow, self.deep, self.depths).round().astype(int))
        post = np.array([self.train("post", depth) for depth in depths])
        pre = np.array([self.train("pre", depth) for depth in depths])
        return {
            "loss_of_shallow_post_norm": float(post[0]),
            "loss_of_shallow_pre_norm": float(pre[0]),
            "loss_of_deep_post_norm": float(post[-1]),
            "loss_of_deep_pre_norm": float(pre[-1]),
            "loss_of_uniform_guess": math.log(self.vocabulary),
            "layers": depths,
            "post_norm": post,
            "pre_norm": pre,
        }

    def train(self, norm: str, depth: int) -> float:
        """Returns the mean loss of the last five steps."""
        torch.manual_seed(self.seed)
        model = build_language_model(self.vocabulary, width=self.width, depth=depth, length=self.length, norm=norm)
        rate = self.learning_rate
        losses = fit(model, self.draw_batch, compute_losses, steps=self.steps, learning_rate=rate, seed=self.seed)
        return float(np.mean(losses[-5:]))

    def draw_batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Returns random tokens, which are also the targets."""
        ids = torch.randint(self.vocabulary, (32, self.length), generator=generator)
        return ids, ids

    def judge(self, measured: Measured) -> Verdict:
        limit = measured["loss_of_uniform_guess"] / 2
        shallow, deep = (
            [measured[f"loss_of_{depth}_{norm}_norm"] for norm in ("post", "pre")] for depth in ("shallow", "deep")
        )
        return decide_condition(
            max(shallow) < limit,
            max(deep) < limit,
            condition="the stack is shallow; at this learning rate a deep one "
            + ("trains only with the norm before" if deep[1] < limit else "does not train with the norm before either"),
            evidence=f"After {self.steps} steps without warm-up a stack of {self.shallow} has a loss of "
            f"{shallow[0]:.3f} with post-norm and {shallow[1]:.3f} with pre-norm; one of {self.deep} layers has "
            f"{deep[0]:.3f} and {deep[1]:.3f} (a uniform guess has {measured['loss_of_uniform_guess']:.3f}).",
            instead="Even a shallow stack does not train with both placements.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        chart = LineChart(
            title=f"Loss after {self.steps} steps without warm-up, by depth and placement of layer norm",
            series=[
                Series(name="post-norm (published)", x=measured["layers"], y=measured["post_norm"]),
                Series(name="pre-norm", x=measured["layers"], y=measured["pre_norm"]),
            ],
            x_label="layers",
            y_label="loss (nats)",
            references=[Reference(axis="y", value=measured["loss_of_uniform_guess"], label="uniform guess")],
            note="The task is to output the input tokens; a loss near that of a uniform guess means that nothing is "
            "learned.",
        )
        return [chart]
