"""The data types of the training loop: `Step` for its callers, `TrainerState`, `Update` and `PrefetchIterator`.

`PrefetchIterator` keeps a GPU busy. Kernels are launched asynchronously: if the host waited for the loss of each
update, the GPU would be idle from then until the host has launched the next batch. So, after `optimizer.step()` is
launched, the loop calls `prefetch`, and only then waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from seqwise.backbones.states import ModelState, map_state, unflatten
from seqwise.data.batch import Batch
from seqwise.errors import NonFiniteError
from seqwise.training.checkpoints import Snapshot, find_non_finite
from seqwise.training.distribution import World
from seqwise.training.memory import BatchShare
from seqwise.training.rows import is_count, is_number

T = TypeVar("T")
REQUIRED_STATE = ("step", "epoch", "step_in_epoch", "tokens", "seconds")  # in checkpoints of all versions
MAX_LISTED_POSITIONS = 8  # in the message about a loss that is not finite
MAX_INPUT = 1e15  # larger inputs are blamed on the data: float32 holds squares of up to 1e19


def get_objective(validation: Mapping[str, float]) -> float:
    """Returns the validation metric that is minimised: "objective" if there is one, else "loss"."""
    return validation.get("objective", validation.get("goal", validation["loss"]))  # "goal": before version 0.2


@dataclass(frozen=True)
class Step:
    """One finished update, as the training loop yields it.

    The names are also those of `metrics.jsonl`, where only `number` is called `step`.
    """

    number: int  # from 1
    epoch: int  # from 0
    tokens: int  # number of tokens trained on so far
    loss: float  # mean per target of this update; in nats, except in forecasts
    gradient_norm: float  # before clipping
    learning_rate: float
    seconds: float  # duration of training so far, including all validations except the last
    tokens_per_second: float
    progress: float  # fraction of the budget that is spent
    validation: dict[str, float] | None = None  # metrics, if the model was validated after this update
    best: bool = False  # whether this validation is the best so far
    notes: tuple[str, ...] = ()  # messages for the user
    ended: str = ""  # why training ends with this step; "" if it continues


@dataclass
class TrainerState:
    """The progress of training, in plain values, which checkpoints save under these names."""

    step: int = 0  # number of updates
    epoch: int = 0
    step_in_epoch: int = 0
    tokens: int = 0  # number of tokens trained on
    seconds: float = 0.0  # duration of training
    validations: int = 0  # number of validations that were due, of which some may have been skipped
    best_loss: float | None = None  # smallest value of `get_objective`
    history: list[float] = field(default_factory=list)  # `get_objective` of each validation
    ended: str = ""  # why training has ended; "" if it has not
    validating: float = 0.0  # seconds of validation that are part of the budget
    validating_outside: float = 0.0  # seconds of other validations, such as the last one
    validation_seconds: float = 0.0  # duration of the newest validation, before the first an estimate
    validation_share: float = 0.0  # share of the validation split that is evaluated; 0: not yet chosen
    reading: float = 0.0  # seconds spent on reading the data
    saving: float = 0.0  # seconds spent on saving weights and checkpoints
    budget: str = ""  # as text
    num_averaged: int = 0  # validations whose weights the best weights are the mean of; 0: those of one validation
    best_step: int = 0  # step after which the best weights were validated


# Type of a field of `TrainerState` → whether a saved value has it
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "int": is_count,
    "float": lambda value: is_number(value) and 0 <= value < math.inf,
    "float | None": lambda value: value is None or is_number(value),
    "list[float]": lambda value: isinstance(value, list) and all(map(is_number, value)),
    "str": lambda value: isinstance(value, str),
}


def check_trainer_state(values: Any) -> None:
    """Raises a ValueError unless these are the values of a `TrainerState` as a checkpoint saves them, as `place`."""
    kinds = {field.name: str(field.type) for field in fields(TrainerState)} | {"pieces": "int"}
    if not isinstance(values, dict) or not {*REQUIRED_STATE, "pieces"} <= values.keys():
        raise ValueError(f"state.json: 'place' lacks some of {', '.join(REQUIRED_STATE)}")
    for name, value in values.items():
        if name not in kinds or not _CHECKS[kinds[name]](value) or (name == "pieces" and value < 1):
            raise ValueError(f"state.json: {name!r} is {str(value)[:40]}")


def check_snapshot(snapshot: Snapshot, model: nn.Module, schedule_state: Mapping[str, Any]) -> None:
    """Raises a ValueError if a snapshot is not one of such a model and schedule, or has a value of a wrong type."""
    state, schedule = snapshot.state, snapshot.state.get("schedule")
    check_trainer_state(state.get("place"))
    try:
        unflatten(state["carry"], snapshot.tensors)
    except (KeyError, TypeError, RecursionError):
        raise ValueError("state.json: 'carry' does not describe the saved state of the model") from None
    if not isinstance(schedule, dict) or not schedule_state.keys() <= schedule.keys():
        raise ValueError("state.json: 'schedule' is missing or incomplete")
    if not all(value is None or is_number(value) for value in schedule.values()):
        raise ValueError("state.json: 'schedule' holds a value that is not a number")
    names = [f"model.{name}" for name, _ in model.named_parameters()]
    name = find_non_finite({name: snapshot.tensors[name] for name in names if name in snapshot.tensors})
    if name is not None:
        raise ValueError(f"{name} holds infinite numbers or nan")


@dataclass
class Update:
    """One update in progress. Its loss and gradient norm are on the device until the host waits for them."""

    batch: Batch
    model_state: ModelState  # before the batch
    next_model_state: ModelState  # after the batch
    share: BatchShare
    loss_sum: torch.Tensor  # over the targets of this process
    learning_rate: float = 0.0
    trainer_state: TrainerState = field(default_factory=TrainerState)  # before the update
    is_not_finite: torch.Tensor | None = None  # () bool, on the device: loss or norm is infinite or NaN
    loss_and_norm: torch.Tensor | None = None  # (loss_sum, gradient norm) on the host, after `copy_event`
    copy_event: torch.cuda.Event | None = None
    loss: float = 0.0  # mean over the targets of all processes
    gradient_norm: float = 0.0
    seconds: float = 0.0  # duration of training up to this update


class PrefetchIterator(Generic[T]):
    """An iterator that can compute its next item in advance. Without calls of `prefetch` it is the plain iterator.

    An exception in `prefetch` is raised by the following `next()`: the step before it can still be saved.
    """

    def __init__(self, items: Iterator[T]):
        self._items = items
        self._prefetched: T | Exception | None = None  # the item or the exception, which may be StopIteration

    def prefetch(self) -> None:
        """Computes the next item now."""
        try:
            self._prefetched = next(self._items)
        except Exception as error:
            self._prefetched = error

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        item, self._prefetched = self._prefetched, None
        if isinstance(item, Exception):
            raise item
        return next(self._items) if item is None else item


@torch.no_grad()
def explain_non_finite(model: nn.Module, update: Update, step: int, world: World) -> NonFiniteError:
    """Returns the error for step `step`. Each sequence is evaluated alone, to find those whose loss is not finite."""
    batch = update.batch
    positions = [] if batch.positions is None else batch.positions.tolist()
    non_finite_positions = []
    for index, position in enumerate(positions):
        state = map_state(lambda tensor: tensor[index : index + 1], update.model_state)  # noqa: B023 - called at once
        if not torch.isfinite(model(batch.slice(index, index + 1), state)[0].total):
            non_finite_positions.append(position)
    location = ""
    if positions := world.gather(non_finite_positions) or world.gather(positions):
        listed = ", ".join(f"{position:,}" for position in positions[:MAX_LISTED_POSITIONS])
        more = " …" if len(positions) > MAX_LISTED_POSITIONS else ""
        location = f", in the samples that begin at {batch.position_unit} {listed}{more}"
    problem = f"the loss is {update.loss:g} and the gradient norm {update.gradient_norm:g} at step {step}{location}. "
    fix = (
        "The last good checkpoint is kept. Try half the learning rate (--training.learning-rate) "
        "or a smaller --training.clip-threshold."
    )
    sizes = world.gather([find_largest_input(batch)])
    if extreme := [size for size in sizes if not size <= MAX_INPUT]:
        size = f"as large as {extreme[0]:g}" if math.isfinite(extreme[0]) else "that are not finite"
        problem += f"The data is the cause: after scaling, the batch has values {size}. "
        fix = "Correct or remove values such as 1e308 in the data, which no model can compute with; then train again."
    return NonFiniteError(f"{problem}The update was not made.", fix=fix)


def find_largest_input(batch: Batch) -> float:
    """Returns the largest absolute value in the inputs and targets of a batch; NaN if one is NaN, 0.0 without any."""
    tensors = [tensor for tensor in batch.tensors().values() if tensor.is_floating_point() and tensor.numel()]
    return float(torch.stack([tensor.abs().max().double() for tensor in tensors]).max()) if tensors else 0.0
