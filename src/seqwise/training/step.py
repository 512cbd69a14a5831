"""The data types of the training loop: `Step` for its callers, `TrainerState`, and the `Update` in progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from seqwise.backbones.states import ModelState
from seqwise.data.batch import Batch
from seqwise.training.token_budget import BatchShare

# (batch, state, scale) → the summed loss and the state after the batch. Adds the gradients of loss · scale to `.grad`.
GradientFunction = Callable[[Batch, ModelState, torch.Tensor], tuple[torch.Tensor, ModelState]]


def get_objective(validation: dict[str, float]) -> float:
    """Return the metric that training minimises: "goal" if there is one, else the loss."""
    return validation.get("goal", validation["loss"])


@dataclass(frozen=True)
class Step:
    """One finished update, as the training loop yields it."""

    number: int
    epoch: int
    tokens: int  # trained on so far
    loss: float  # mean nats per target of this update
    gradient_norm: float  # before clipping
    learning_rate: float
    seconds: float  # of training so far, including all validations except the last
    tokens_per_second: float
    progress: float  # fraction of the budget
    validation: dict[str, float] | None = None
    best: bool = False  # the validation is the best so far
    notes: tuple[str, ...] = ()
    ended: str = ""  # why training ends with this step, if it does


@dataclass
class TrainerState:
    """How far training has come. Plain numbers, saved in checkpoints under these names."""

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    validations: int = 0
    best_loss: float | None = None  # or the best value of another metric to minimise
    history: list[float] = field(default_factory=list)  # validation losses, or other metrics to minimise
    ended: str = ""  # why training is over
    validating: float = 0.0  # seconds spent on validation


@dataclass
class Update:
    """One update in progress. Its numbers are tensors on the device until the host waits for them."""

    batch: Batch
    model_state: ModelState  # before the update
    next_model_state: ModelState
    share: BatchShare
    loss_sum: torch.Tensor  # over the targets of this process
    learning_rate: float = 0.0
    before: TrainerState = field(default_factory=TrainerState)
    not_finite: torch.Tensor | None = None  # whether loss or norm are infinite or NaN, on the device
    numbers: torch.Tensor | None = None  # (loss_sum, gradient norm) on the host, once `ready` has happened
    ready: torch.cuda.Event | None = None
    loss: float = 0.0  # mean over the targets of all processes
    gradient_norm: float = 0.0
    seconds: float = 0.0  # of training, up to this update
