"""Optimisers, learning-rate schedules and gradient clipping.

This module knows nothing of batches or of the loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.layers.embedding import Embedding
from seqwise.layers.old_names import use_current_names
from seqwise.resolved_settings import ResolvedTrainingSettings


def build_optimizer(model: nn.Module, settings: ResolvedTrainingSettings) -> torch.optim.Optimizer:
    """Returns the optimiser. Weight decay applies to matrices, not to biases, norms and embeddings with frozen rows.

    The gradient of a frozen row is zero, so without weight decay no optimiser changes it.
    """
    embeddings = [module for module in model.modules() if isinstance(module, Embedding)]
    frozen_ids = {id(layer.weight) for layer in embeddings if layer.frozen is not None}
    trainable = [p for p in model.parameters() if p.requires_grad]
    with_decay = [p for p in trainable if p.dim() >= 2 and id(p) not in frozen_ids]
    without_decay = [p for p in trainable if p.dim() < 2 or id(p) in frozen_ids]
    decays = [(with_decay, settings.weight_decay), (without_decay, 0.0)]
    groups = [{"params": parameters, "weight_decay": decay} for parameters, decay in decays if parameters]
    if settings.is_adam:
        optimizer_class = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
        betas = (settings.beta1, settings.beta2)
        return optimizer_class(groups, lr=settings.learning_rate, betas=betas, eps=settings.epsilon, fused=True)
    return torch.optim.SGD(groups, lr=settings.learning_rate)


def supports_skipping(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether the optimiser can skip a step if a tensor on the device says so, as fused optimisers can."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


@contextmanager
def skip_step_if(optimizer: torch.optim.Optimizer, condition: Tensor | None) -> Iterator[None]:
    """Makes `optimizer.step()` inside the block do nothing if `condition`, a tensor on the device, is true.

    The host does not wait for the condition. With None the step is never skipped.
    """
    if condition is None:
        yield
        return
    optimizer.found_inf = condition.float()  # type: ignore[attr-defined] # as torch.amp.GradScaler sets it
    try:
        yield
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


def clip_gradients(parameters: Sequence[Tensor], method: str, threshold: float) -> Tensor:
    """Clips the gradients in place, by "norm", "value" or not at all; returns their norm before clipping."""
    if method == "norm":
        return nn.utils.clip_grad_norm_(parameters, threshold)
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if method == "value":
        nn.utils.clip_grad_value_(parameters, threshold)
    return norm


def get_optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Returns the tensors of the optimiser's state, such as moments, by the name of the parameter and their own."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"{names[id(p)]}.{key}": value
        for p, values in optimizer.state.items()
        for key, value in values.items()
        if isinstance(value, Tensor)
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Sets the state of the optimiser to what `get_optimizer_state` returned."""
    parameters = dict(model.named_parameters())
    states: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        parameter_name, _, key = name.rpartition(".")
        states.setdefault(parameter_name, {})[key] = tensor
    for name, state in use_current_names(states, parameters).items():
        parameter = parameters[name]
        optimizer.state[parameter] = {key: tensor.to(parameter.device) for key, tensor in state.items()}


FINAL_COSINE_FACTOR = 0.05  # a twentieth of the peak rate, so that the last steps still change the weights


class ConstantSchedule:
    """A linear warm-up, then the peak rate. It is the base class of the other schedules."""

    def __init__(self, warmup: float):
        self.warmup = warmup

    def compute_factor(self, progress: float) -> float:
        """Returns the learning rate divided by the peak rate; `progress` is the spent fraction of the budget."""
        return min(1.0, (progress + 1e-3) / self.warmup) if self.warmup else 1.0

    def compute_peak_share(self, progress: float) -> float:
        """Returns where β₁ is between its usual value (0) and that at the peak rate (1)."""
        return 0.0

    def record_validation(self, objective: float) -> None:
        """Adapts the schedule to the objective of a validation (`get_objective`)."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""


class CosineSchedule(ConstantSchedule):
    """A warm-up, then half a cosine down to `FINAL_COSINE_FACTOR` (Loshchilov & Hutter 2017)."""

    def compute_factor(self, progress: float) -> float:
        if progress < self.warmup:
            return super().compute_factor(progress)
        return interpolate_cosine(1.0, FINAL_COSINE_FACTOR, (progress - self.warmup) / (1 - self.warmup))


class OneCycleSchedule(ConstantSchedule):
    """Up for 30 % of the budget from a 25th of the peak rate, then down to almost zero (Smith & Topin 2018)."""

    rising_share, initial_factor, final_factor = 0.3, 1 / 25, 1e-4

    def compute_factor(self, progress: float) -> float:
        return self._interpolate(self.initial_factor, self.final_factor, progress)

    def compute_peak_share(self, progress: float) -> float:
        return self._interpolate(0.0, 0.0, progress)

    def _interpolate(self, initial: float, final: float, progress: float) -> float:
        """Returns a value that rises from `initial` to 1 and falls to `final`."""
        if progress < self.rising_share:
            return interpolate_cosine(initial, 1.0, progress / self.rising_share)
        return interpolate_cosine(1.0, final, (progress - self.rising_share) / (1 - self.rising_share))


class OneCycleFlatSchedule(ConstantSchedule):
    """Up from a tenth of the peak rate, flat, down to a tenth, then half a cosine to zero.

    The phases are a twelfth, five twelfths, five twelfths and a twelfth of the budget: 7.5, 37.5, 37.5 and 7.5 of the
    90 epochs in which Gugger & Howard (2018, "AdamW and super-convergence is now the fastest way to train neural nets")
    train a language model. β₁ leaves its usual value in the first phase and is back at the end of the third.
    """

    rising_end, flat_end, falling_end = 1 / 12, 6 / 12, 11 / 12
    low_factor = 0.1

    def compute_factor(self, progress: float) -> float:
        if progress > self.falling_end:
            fraction = (progress - self.falling_end) / (1 - self.falling_end)
            return interpolate_cosine(self.low_factor, 0.0, min(1.0, fraction))
        return self.low_factor + (1 - self.low_factor) * self.compute_peak_share(progress)

    def compute_peak_share(self, progress: float) -> float:
        falling = (self.falling_end - progress) / (self.falling_end - self.flat_end)
        return max(0.0, min(1.0, progress / self.rising_end, falling))


class InverseSqrtSchedule(ConstantSchedule):
    """A warm-up, then proportional to 1 / √step (Vaswani et al. 2017, §5.3); the rate of the end depends on both."""

    def __init__(self, warmup: float):
        if not warmup:
            problem = "--training.schedule inverse-sqrt falls from the end of its warm-up; --training.warmup is 0."
            raise UsageError(problem, fix="For example --training.warmup 0.1")
        super().__init__(warmup)

    def compute_factor(self, progress: float) -> float:
        return super().compute_factor(progress) if progress < self.warmup else math.sqrt(self.warmup / progress)


class PlateauSchedule(ConstantSchedule):
    """Divides the rate by 4 after each validation without improvement (as PyTorch's example `word_language_model`)."""

    def __init__(self, warmup: float):
        super().__init__(warmup)
        self.best_objective, self.num_reductions = math.inf, 0

    def compute_factor(self, progress: float) -> float:
        return super().compute_factor(progress) * 0.25**self.num_reductions

    def record_validation(self, objective: float) -> None:
        if objective < self.best_objective:
            self.best_objective = objective
        else:
            self.num_reductions += 1

    def state_dict(self) -> dict[str, Any]:
        return {"best": None if math.isinf(self.best_objective) else self.best_objective, "cuts": self.num_reductions}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best_objective = math.inf if state["best"] is None else state["best"]
        self.num_reductions = state["cuts"]


SCHEDULES = {
    "constant": ConstantSchedule,
    "inverse-sqrt": InverseSqrtSchedule,
    "cosine": CosineSchedule,
    "one-cycle": OneCycleSchedule,
    "one-cycle-flat": OneCycleFlatSchedule,
    "plateau": PlateauSchedule,
}


def set_learning_rate(
    optimizer: torch.optim.Optimizer, settings: ResolvedTrainingSettings, schedule: ConstantSchedule, progress: float
) -> float:
    """Sets learning rate and β₁ of the next update; returns the rate."""
    learning_rate = settings.learning_rate * schedule.compute_factor(progress)
    beta1 = settings.beta1 + (settings.peak_beta1 - settings.beta1) * schedule.compute_peak_share(progress)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
        if settings.is_adam:
            group["betas"] = (beta1, settings.beta2)
    return learning_rate


def interpolate_cosine(start: float, end: float, fraction: float) -> float:
    """Returns the value at `fraction` of half a cosine from `start` to `end`."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * fraction))
