"""Optimisers, learning-rate schedules, gradient clipping and weight averaging.

This module knows nothing of batches and of the loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.layers.embedding import Embedding
from seqwise.resolved_settings import ResolvedTrainingSettings


def make_optimizer(model: nn.Module, settings: ResolvedTrainingSettings) -> torch.optim.Optimizer:
    """Return AdamW or SGD. Weight decay applies to matrices, not to biases, norms and frozen token vectors.

    The gradient of a frozen vector is zero, so without weight decay neither optimiser changes it.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, Embedding)]
    frozen = {id(layer.weight) for layer in layers if layer.frozen is not None}
    trainable = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in trainable if p.dim() >= 2 and id(p) not in frozen]
    others = [p for p in trainable if p.dim() < 2 or id(p) in frozen]
    decays = [(decayed, settings.weight_decay), (others, 0.0)]
    groups = [{"params": parameters, "weight_decay": decay} for parameters, decay in decays if parameters]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.99), eps=1e-8, fused=True)
    return torch.optim.SGD(groups, lr=settings.learning_rate)


def supports_skipping(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the optimizer can skip a step where the device finds it should, as fused ones can."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


@contextmanager
def skip_step_if(optimizer: torch.optim.Optimizer, condition: Tensor | None) -> Iterator[None]:
    """Let `step()` inside the block leave weights and moments as they are if `condition` is true on the device.

    The host does not wait for the condition. None never skips.
    """
    if condition is None:
        yield
        return
    optimizer.found_inf = condition.float()  # type: ignore[attr-defined] # as torch.amp.GradScaler sets it
    try:
        yield
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]


def clip_gradients(parameters: Sequence[Tensor], kind: str, limit: float) -> Tensor:
    """Clip the gradients in place; return their norm before clipping."""
    if kind == "norm":
        return nn.utils.clip_grad_norm_(parameters, limit)
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if kind == "value":
        nn.utils.clip_grad_value_(parameters, limit)
    return norm


def get_moments(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the state of the optimizer for each parameter, by name."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        f"{names[id(p)]}.{key}": value
        for p, values in optimizer.state.items()
        for key, value in values.items()
        if isinstance(value, Tensor)
    }


def restore_moments(optimizer: torch.optim.Optimizer, model: nn.Module, moments: dict[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        state = {key.rpartition(".")[2]: t for key, t in moments.items() if key.rpartition(".")[0] == name}
        if state:
            optimizer.state[parameter] = {key: t.to(parameter.device) for key, t in state.items()}


class Average:
    """Averaged weights, which are evaluated and saved instead of the raw ones.

    With a decay they are an exponential moving average; without, the mean of all weights since `start` was called
    (averaged SGD, Polyak & Juditsky 1992; started when validation stalls, Merity et al. 2018).
    """

    def __init__(self, model: nn.Module, decay: float | None):
        self.model, self.decay = model, decay
        self.weights: dict[str, Tensor] = {}
        self.count = 0
        if decay is not None:
            self.start()

    @property
    def is_running(self) -> bool:
        return bool(self.weights)

    def start(self) -> None:
        """Start averaging with the current weights."""
        self.weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self.count = 1

    @torch.no_grad()
    def update(self) -> None:
        """Add the current weights to the average."""
        if not self.is_running:
            return
        self.count += 1
        # Early on, a smaller decay lets the moving average forget the random initial weights faster.
        decay = 1 - 1 / self.count if self.decay is None else min(self.decay, self.count / (self.count + 10))
        current = {name: p.detach() for name, p in self.model.named_parameters()}
        torch._foreach_lerp_([self.weights[name] for name in current], list(current.values()), 1 - decay)

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Give the model the averaged weights inside the block."""
        if not self.is_running:
            yield
            return
        raw = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self._copy(self.weights)
        try:
            yield
        finally:
            self._copy(raw)

    @torch.no_grad()
    def _copy(self, weights: dict[str, Tensor]) -> None:
        for name, p in self.model.named_parameters():
            p.copy_(weights[name])


FLOOR = 0.05  # cosine ends at a twentieth of the peak, so that the last steps still change the weights


class Constant:
    """The peak rate after a linear warm-up. It is the base class of the other schedules."""

    def __init__(self, warmup: float):
        self.warmup = warmup

    def factor(self, progress: float) -> float:
        """Return the learning rate as a fraction of the peak."""
        return min(1.0, (progress + 1e-3) / self.warmup) if self.warmup else 1.0

    def record_validation(self, loss: float) -> None:
        """Adapt to a validation loss."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""


class Cosine(Constant):
    """Warm-up, then half a cosine down to `FLOOR` (Loshchilov & Hutter 2017)."""

    def factor(self, progress: float) -> float:
        if progress < self.warmup:
            return super().factor(progress)
        return interpolate_cosine(1.0, FLOOR, (progress - self.warmup) / (1 - self.warmup))


class OneCycle(Constant):
    """Up for 30 % of the budget from a 25th of the peak, then down to almost zero (Smith & Topin 2018)."""

    rise, start, end = 0.3, 1 / 25, 1e-4

    def factor(self, progress: float) -> float:
        if progress < self.rise:
            return interpolate_cosine(self.start, 1.0, progress / self.rise)
        return interpolate_cosine(1.0, self.end, (progress - self.rise) / (1 - self.rise))


class Plateau(Constant):
    """A quarter of the rate after each validation without improvement (as in Zaremba et al. 2014)."""

    def __init__(self, warmup: float):
        super().__init__(warmup)
        self.best, self.cuts = math.inf, 0

    def factor(self, progress: float) -> float:
        return super().factor(progress) * 0.25**self.cuts

    def record_validation(self, loss: float) -> None:
        if loss < self.best:
            self.best = loss
        else:
            self.cuts += 1

    def state_dict(self) -> dict[str, Any]:
        return {"best": None if math.isinf(self.best) else self.best, "cuts": self.cuts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = math.inf if state["best"] is None else state["best"]
        self.cuts = state["cuts"]


SCHEDULES = {"constant": Constant, "cosine": Cosine, "one-cycle": OneCycle, "plateau": Plateau}


def interpolate_cosine(start: float, end: float, fraction: float) -> float:
    """Go from `start` to `end` along half a cosine."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * fraction))
