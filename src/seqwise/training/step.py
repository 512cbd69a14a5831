"""The data types of the training loop: `Step` for its readers, `TrainerState`, and the `Update` in progress."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from seqwise.backbones.states import ModelState
from seqwise.data.batch import Batch


@dataclass(frozen=True)
class Step:
    """One update, as every reader of the stream sees it."""

    number: int
    epoch: int
    tokens: int  # learned from so far
    loss: float  # mean nats per target of this update
    gradient_norm: float  # before clipping
    learning_rate: float
    seconds: float  # of training so far, all validations included but the last
    tokens_per_second: float
    progress: float  # share of the budget
    validation: dict[str, float] | None = None
    best: bool = False  # the validation is the best so far
    notes: tuple[str, ...] = ()
    ended: str = ""  # why training ends with this step, if it does


@dataclass
class TrainerState:
    """Where training stands. Plain numbers, saved as they are."""

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    pieces: int = 1  # micro-batches per update
    validations: int = 0
    best_loss: float | None = None  # or the best other goal
    history: list[float] = field(default_factory=list)  # validation losses, or other goals
    ended: str = ""  # why training is over
    validating: float = 0.0  # seconds spent on validation


@dataclass
class Update:
    """An update under way. First there are its gradients; then it is made, and its numbers are on their way here."""

    batch: Batch
    carry: ModelState  # before it
    after: ModelState
    count: float  # of targets, in all processes
    tokens: float
    loss: torch.Tensor  # summed over the targets
    place: TrainerState = field(default_factory=TrainerState)  # before it
    rate: float = 0.0
    numbers: torch.Tensor | None = None  # the loss, the length of the gradient
    known: torch.cuda.Event | None = None  # when they are here
    decided: bool = False  # by the device, whether it is made; or is that left to whoever has seen the numbers?
