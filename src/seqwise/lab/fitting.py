"""Trains small models on batches that are drawn at random, by the training loop of the package.

The lab's tasks, such as the adding problem, are endless: every step draws new examples, so the training loss is also
the loss on unseen data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.budget import Budget
from seqwise.data.batch import Batch
from seqwise.errors import UsageError
from seqwise.losses import Loss
from seqwise.resolved_settings import ResolvedTrainingSettings
from seqwise.training.loop import Trainer

DrawBatch = Callable[[torch.Generator], tuple[Tensor, Tensor]]  # returns inputs (B, …) and targets (B, …)
ComputeLoss = Callable[[nn.Module, Tensor, Tensor], Tensor]  # model, inputs, targets → losses, one per target

TARGET_WINDOW = 20  # steps over which the loss is averaged for stopping early


@dataclass(frozen=True)
class DrawnBatch(Batch):
    """Inputs and targets of one step."""

    x: Tensor
    y: Tensor

    @property
    def length(self) -> int:
        return self.x.shape[1] if self.x.dim() > 1 else 1

    @property
    def num_targets(self) -> int:
        return self.y.shape[0]


class DrawnBatches:
    """`steps` batches per epoch; batch number n is a pure function of (seed, n)."""

    def __init__(self, draw: DrawBatch, steps: int, seed: int):
        self.draw, self.steps, self.seed = draw, steps, seed

    def epoch(self, index: int, start: int = 0) -> Iterator[DrawnBatch]:
        for number in range(start, self.steps):
            yield DrawnBatch(*self.draw(make_generator(self.seed, index * self.steps + number)))


class _Objective(nn.Module):
    """A model with its loss, as the training loop calls it."""

    def __init__(self, model: nn.Module, compute_loss: ComputeLoss):
        super().__init__()
        self.model, self.compute_loss = model, compute_loss

    def forward(self, batch: DrawnBatch, state: Any = None) -> tuple[Loss, None]:
        losses = self.compute_loss(self.model, batch.x, batch.y)
        return Loss(losses.mean() * batch.num_targets, batch.num_targets), None


def fit(
    model: nn.Module,
    draw: DrawBatch,
    compute_loss: ComputeLoss,
    *,
    steps: int,
    learning_rate: float = 1e-2,
    clip: float = 1.0,
    warmup: float = 0.0,
    target: float = 0.0,
    seed: int = 0,
) -> list[float]:
    """Trains a model in place by AdamW with a constant learning rate; returns the loss of each step.

    clip: largest norm of the gradients; 0 for no clipping
    warmup: share of the steps in which the learning rate rises from 0
    target: stop early once the mean loss of the last `TARGET_WINDOW` steps is below it
    """
    if steps < 1:
        raise UsageError(f"expected at least 1 training step; received {steps}.")
    settings = ResolvedTrainingSettings(
        learning_rate=learning_rate,
        optimizer="adamw",
        weight_decay=0.0,
        schedule="constant",
        warmup=warmup,
        clip="norm" if clip else "none",
        clip_threshold=clip or 1.0,
        precision="float32",
    )
    batches = DrawnBatches(draw, steps, seed)
    trainer = Trainer(_Objective(model, compute_loss), batches, settings, Budget(1, "epochs"), seed=seed)
    losses: list[float] = []
    for step in trainer.steps():
        losses.append(step.loss)
        if len(losses) >= TARGET_WINDOW and sum(losses[-TARGET_WINDOW:]) < target * TARGET_WINDOW:
            break
    model.eval()
    return losses


def make_generator(*seeds: int) -> torch.Generator:
    """Returns a random generator that is a pure function of some numbers."""
    value = 0
    for seed in seeds:
        value = (value * 1_000_003 + seed + 1) % 2**63
    return torch.Generator().manual_seed(value)
