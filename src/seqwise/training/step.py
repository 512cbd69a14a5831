"""The data types of the training loop: `Step` for its callers, `TrainerState`, the `Update` in progress; `LookAhead`.

`LookAhead` keeps a GPU busy. Kernels are launched asynchronously: if the host read the loss of each update first, the
GPU would be idle from then until the host has launched the next batch. So, after `optimizer.step()` is launched, the
loop calls `start_next`, and only then waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import nn

from seqwise.backbones.states import ModelState, map_state
from seqwise.data.batch import Batch
from seqwise.errors import NonFiniteError
from seqwise.training.distribution import World
from seqwise.training.memory import BatchShare

T = TypeVar("T")
MAX_LISTED = 8  # samples in the message about numbers that are not finite


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
    validating: float = 0.0  # seconds of validation that are part of the budget
    validating_outside: float = 0.0  # seconds of validation that are not, such as the last one
    validation_seconds: float = 0.0  # of the newest validation
    validation_share: float = 0.0  # of the split; 0: not yet chosen
    reading: float = 0.0  # seconds spent on reading the data
    saving: float = 0.0  # seconds spent on saving weights and checkpoints
    budget: str = ""  # in words


@dataclass
class Update:
    """One update in progress. Its loss and gradient norm are on the device until the host waits for them."""

    batch: Batch
    model_state: ModelState  # before the update
    next_model_state: ModelState
    share: BatchShare
    loss_sum: torch.Tensor  # over the targets of this process
    learning_rate: float = 0.0
    trainer_state: TrainerState = field(default_factory=TrainerState)  # before the update
    not_finite: torch.Tensor | None = None  # whether loss or norm are infinite or NaN, on the device
    loss_and_norm: torch.Tensor | None = None  # (loss_sum, gradient norm) on the host, once `ready` has happened
    ready: torch.cuda.Event | None = None
    loss: float = 0.0  # mean over the targets of all processes
    gradient_norm: float = 0.0
    seconds: float = 0.0  # of training, up to this update


class LookAhead(Generic[T]):
    """An iterator that can compute its next item early. Without calls of `start_next` it is the plain iterator.

    An exception in the next item is raised when that item is asked for: the step before it can still be saved.
    """

    def __init__(self, items: Iterator[T]):
        self._items = items
        self._pending: T | Exception | None = None  # the item, or what went wrong, which includes StopIteration

    def start_next(self) -> None:
        """Compute the next item now."""
        try:
            self._pending = next(self._items)
        except Exception as error:
            self._pending = error

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        pending, self._pending = self._pending, None
        if isinstance(pending, Exception):
            raise pending
        return next(self._items) if pending is None else pending


@torch.no_grad()
def explain_non_finite(model: nn.Module, update: Update, step: int, world: World) -> NonFiniteError:
    """Return the error for update number `step`; every row is evaluated alone to find those that are not finite."""
    batch = update.batch
    positions = [] if batch.positions is None else batch.positions.tolist()
    culprits = []
    for row, position in enumerate(positions):
        row_state = map_state(lambda tensor: tensor[row : row + 1], update.model_state)  # noqa: B023 - used at once
        if not torch.isfinite(model(batch.slice(row, row + 1), row_state)[0].total):
            culprits.append(position)
    where = ""
    if samples := world.gather(culprits) or world.gather(positions):
        listed = ", ".join(f"{position:,}" for position in samples[:MAX_LISTED])
        more = " …" if len(samples) > MAX_LISTED else ""
        where = f", in the samples that begin at {batch.position_unit} {listed}{more}"
    return NonFiniteError(
        f"the loss is {update.loss:g} and the gradient norm {update.gradient_norm:g} at step {step}{where}. "
        "The update was not made.",
        repair="The last good checkpoint is kept. Try half the learning rate (--training.learning-rate) "
        "or a smaller --training.clip-threshold.",
    )
