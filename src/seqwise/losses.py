"""`Loss`: a sum of losses and the number of targets, so that micro-batches and processes can be added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seqwise.data.batch import Batch


@dataclass(frozen=True)
class Loss:
    """The summed loss in nats, and the number of targets.

    Training minimises `objective`, which includes the penalty, and reports `total`, which does not.
    """

    total: Tensor  # scalar
    num_targets: int | Tensor
    penalty: Tensor | None = None  # scalar: a regularisation term, multiplied by the number of targets

    @property
    def objective(self) -> Tensor:
        """The sum that training minimises."""
        return self.total if self.penalty is None else self.total + self.penalty

    @property
    def count(self) -> int:
        """The number of targets as an integer; waits for the device if the number is a tensor."""
        return int(self.num_targets)


def total(losses: Tensor, mask: Tensor | None = None) -> Loss:
    """Returns the sum of the losses whose mask is True; the others contribute nothing, not even a NaN."""
    if mask is None:
        return Loss(losses.sum(), losses.numel())
    return Loss(losses.masked_fill(~mask, 0.0).sum(), mask.sum())


def r_drop(losses: Tensor, log_probabilities: Tensor, weight: float) -> Loss:
    """Returns the loss of R-Drop (Wu et al. 2021, eq. 4), halved: ½ (nll₁ + nll₂) + α/4 (KL(p₁‖p₂) + KL(p₂‖p₁)).

    `losses` (2N,) and `log_probabilities` (2N, K) hold each target twice: first all of them, then all again, computed
    with other dropout masks. α is the `weight`.
    """
    first, second = log_probabilities.chunk(2)
    # KL(p₁‖p₂) + KL(p₂‖p₁) = Σ (p₁ − p₂) (log p₁ − log p₂)
    divergence = ((first.exp() - second.exp()) * (first - second)).sum()
    return Loss(losses.sum() / 2, len(first), penalty=weight / 4 * divergence)


def add_losses(losses: Sequence[Loss]) -> Loss:
    """Returns the sum of losses, and of their penalties if they have any."""
    penalties = [loss.penalty for loss in losses if loss.penalty is not None]
    return Loss(
        torch.stack([loss.total for loss in losses]).sum(),
        sum(loss.num_targets for loss in losses),
        torch.stack(penalties).sum() if penalties else None,
    )


@torch.no_grad()
def sum_losses(model: nn.Module, batches: Iterable[Batch]) -> tuple[float, int]:
    """Returns the summed loss of some batches in evaluation mode, and their number of targets."""
    device = next(model.eval().parameters()).device
    nats, num_targets = 0.0, 0
    for batch in batches:
        loss, _ = model(batch.to(device))
        nats += float(loss.total)
        num_targets += loss.count
    return nats, num_targets
