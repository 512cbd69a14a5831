"""Averages of weights: over updates, and over the last validations. This module knows nothing of the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from seqwise.layers.old_names import use_current_names
from seqwise.resolved_settings import ResolvedTrainingSettings


class WeightAverage:
    """Averaged weights, which are evaluated and saved instead of the current ones.

    With a decay they are an exponential moving average; without, the mean of all weights since `start` was called
    (Polyak & Juditsky 1992), which is when validation stalls (averaged SGD, Merity et al. 2018) or at a chosen point.
    """

    def __init__(self, model: nn.Module, decay: float | None):
        self.model, self.decay = model, decay
        self.weights: dict[str, Tensor] = {}
        self.num_averaged = 0  # number of steps whose weights are in the average
        if decay is not None:
            self.start()

    @property
    def is_running(self) -> bool:
        return bool(self.weights)

    def start(self) -> None:
        """Starts averaging with the current weights."""
        self.weights = copy_weights(self.model)
        self.num_averaged = 1

    def stop(self) -> None:
        """Forgets the average."""
        self.weights, self.num_averaged = {}, 0

    def load(self, weights: dict[str, Tensor], num_averaged: int) -> None:
        """Restores an average from a checkpoint."""
        parameters = dict(self.model.named_parameters())
        averaged = use_current_names(weights, parameters)
        self.weights = {name: tensor.to(parameters[name].device) for name, tensor in averaged.items()}
        self.num_averaged = num_averaged

    @torch.no_grad()
    def update(self) -> None:
        """Adds the current weights to the average."""
        self.num_averaged += 1
        # Early on, a smaller decay lets the moving average forget the random initial weights faster.
        count = self.num_averaged
        decay = 1 - 1 / count if self.decay is None else min(self.decay, count / (count + 10))
        current = {name: p.detach() for name, p in self.model.named_parameters()}
        torch._foreach_lerp_([self.weights[name] for name in current], list(current.values()), 1 - decay)

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Replaces the weights of the model by the averaged ones inside the block."""
        if not self.is_running:
            yield
            return
        with replace_weights(self.model, self.weights):
            yield


def build_average(model: nn.Module, settings: ResolvedTrainingSettings) -> WeightAverage | None:
    """Returns the kind of average that the settings ask for, or None."""
    is_plain_mean = settings.optimizer == "asgd" or settings.average_from < 1
    if not is_plain_mean and not settings.ema:
        return None
    return WeightAverage(model, None if is_plain_mean else settings.ema)


class LastWeights:
    """The weights of the last validations, at most `max_count`, and their mean ("checkpoint averaging").

    The mean of several points along the path of the optimiser is often better than each of them (Vaswani et al. 2017,
    section 6.1).
    """

    def __init__(self, model: nn.Module, max_count: int):
        self.model, self.max_count = model, max_count
        self.weights: deque[dict[str, Tensor]] = deque(maxlen=max_count)

    def add(self) -> None:
        """Keeps a copy of the current weights."""
        if len(self.weights) == self.max_count:
            self.weights.popleft()  # before the copy, which may take its memory
        self.weights.append(copy_weights(self.model))

    @torch.no_grad()
    def compute_mean(self) -> dict[str, Tensor]:
        return {name: torch.stack([each[name] for each in self.weights]).mean(0) for name in self.weights[0]}

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Replaces the weights of the model by the mean inside the block."""
        with replace_weights(self.model, self.compute_mean()):
            yield

    def get_tensors(self) -> dict[str, Tensor]:
        """Returns all weights, for a checkpoint."""
        return {f"{index}.{name}": t for index, each in enumerate(self.weights) for name, t in each.items()}

    def check_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Raises a ValueError unless `load_tensors` can restore these."""
        names = [name for name, _ in self.model.named_parameters()]
        count = len(tensors) // len(names)
        if count > self.max_count or tensors.keys() != {f"{index}.{name}" for index in range(count) for name in names}:
            raise ValueError("the weights of the last validations are incomplete")

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restores what `get_tensors` returned."""
        parameters = dict(self.model.named_parameters())
        self.weights.clear()
        for index in range(len(tensors) // len(parameters)):
            self.weights.append({name: tensors[f"{index}.{name}"].to(p.device) for name, p in parameters.items()})


def describe_mean(count: int, objective: float, best_objective: float | None, is_best: bool) -> str:
    """Returns a sentence about the mean of the last weights, beside the best objective without it."""
    best = "no finite value" if best_objective is None else f"{best_objective:.5g}"
    result = "better, and saved" if is_best else "not better, and not saved"
    return (
        f"mean of the weights of the last {count} validations, compared with the best weights: {result} "
        f"(validation objective {objective:.5g} against {best})."
    )


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Returns copies of the parameters of a model by name."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@contextmanager
def replace_weights(model: nn.Module, weights: dict[str, Tensor]) -> Iterator[None]:
    """Replaces the parameters of a model inside the block."""
    current = copy_weights(model)
    _copy_to_model(model, weights)
    try:
        yield
    finally:
        _copy_to_model(model, current)


@torch.no_grad()
def _copy_to_model(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(weights[name])
