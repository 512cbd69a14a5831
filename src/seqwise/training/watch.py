"""`LayerWatch`: records gradients, weights, updates and gates of each layer while a model is trained.

The training loop knows nothing of it. PyTorch calls it before and after `optimizer.step()`, where the gradients are
those of this update, also if the next ones are computed in advance or by a CUDA graph; the caller of the loop calls
`finish_step` between two updates. It changes nothing: weights are bit-identical with and without it.

A row can take as long as an update, so few steps are recorded: candidates become rarer in the course of training, and
one is skipped if the rows so far took more than `MAX_SHARE` of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwise.training.loop import Trainer
from seqwise.training.probe import Probe
from seqwise.training.step import Step

MAX_SHARE = 0.01  # of the time, spent on rows; the first row, which may compile kernels, is not counted
STEPS_PER_ROW = 10  # at least; a multiple of the steps between two lines of metrics.jsonl
ROWS_PER_E_FOLD = 100  # from step 1,000 on, rows are at least a hundredth of the steps so far apart
DIGITS = 6


class LayerWatch:
    """Measures the layers of a trainer's model at some steps; `write` receives the rows."""

    def __init__(self, trainer: Trainer, write: Callable[[dict[str, Any]], None]):
        self.trainer, self.parameters, self.write = trainer, trainer.parameters, write
        self.groups = group_parameters(trainer)
        self.probe = Probe(trainer.model, next(iter(trainer.batches.epoch(0, 0))), trainer.device)
        self.num_rows, self.seconds = 0, np.zeros(2)  # rows so far, and what those after the first took
        self.start = read_clocks()
        self.last_step = trainer.state.step
        self._previous: list[Tensor] = []  # weights before the update
        self._norms: Tensor | None = None  # (3, parameters): of gradients, weights and updates
        self.is_stopped = False
        trainer.optimizer.register_step_pre_hook(lambda *_: self._before_update())
        trainer.optimizer.register_step_post_hook(lambda *_: self._after_update())

    def is_due(self, step: int) -> bool:
        """Returns whether a step is recorded."""
        is_candidate = step % STEPS_PER_ROW == 0 and step - self.last_step >= step / ROWS_PER_E_FOLD
        if self.is_stopped or not (step == 1 or is_candidate):
            return False
        return self.num_rows < 2 or bool((self.seconds <= MAX_SHARE * (read_clocks() - self.start)).all())

    @torch.no_grad()
    def _before_update(self) -> None:
        if not self.is_due(self.trainer.state.step + 1):
            return
        start = read_clocks()
        try:
            self._norms = torch.stack(torch._foreach_norm([p.grad for p in self.parameters if p.grad is not None]))
            self._previous = [parameter.detach().clone() for parameter in self.parameters]
        except torch.OutOfMemoryError:
            self._stop()
        self._add_seconds(start)

    @torch.no_grad()
    def _after_update(self) -> None:
        if self._norms is None:
            return
        start = read_clocks()
        updates, self._previous = self._previous, []
        weights: list[Tensor] = list(self.parameters)
        torch._foreach_sub_(updates, weights)
        norms = [torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, updates)]
        self._norms = torch.stack((self._norms, *norms))
        self._add_seconds(start)

    def finish_step(self, step: Step) -> None:
        """Writes the row of a step, if it is recorded; waits for the device."""
        if self._norms is None:
            return
        start = read_clocks()
        norms, self._norms = self._norms.double().cpu(), None
        layers = self._build_layers(norms, step.gradient_norm)
        try:
            probed = self.probe.measure()
        except torch.OutOfMemoryError:
            self._stop()
            return
        self.write(_round({"step": step.number, "tokens": step.tokens, "layers": layers, **probed._asdict()}))
        self._add_seconds(start)
        self.num_rows, self.last_step = self.num_rows + 1, step.number

    def _build_layers(self, norms: Tensor, gradient_norm: float) -> dict[str, dict[str, float]]:
        """Returns the norms of each group of parameters; those of gradients before they were clipped by their norm."""
        clipped_norm = float(norms[0].square().sum().sqrt())
        if self.trainer.settings.clip == "norm" and clipped_norm > 0:
            norms[0] *= gradient_norm / clipped_norm
        layers = {}
        for name, indices in self.groups.items():
            gradient, weight, update = norms[:, indices].square().sum(1).sqrt().tolist()
            ratio = update / weight if weight else 0.0
            layers[name] = {"gradient_norm": gradient, "weight_norm": weight, "update_ratio": ratio}
        return layers

    def _add_seconds(self, start: np.ndarray) -> None:
        if self.num_rows:
            self.seconds += read_clocks() - start

    def _stop(self) -> None:
        """Records nothing from here on: training needs the memory."""
        self.is_stopped, self._previous, self._norms = True, [], None
        self.trainer.notes.append("out of memory: layers are no longer recorded (--training.watch).")


def read_clocks() -> np.ndarray:
    """Returns seconds of the clock and of the processor (2,): a busy machine interrupts updates, but hardly rows."""
    return np.array([time.perf_counter(), time.process_time()])


def group_parameters(trainer: Trainer) -> dict[str, list[int]]:
    """Returns the indices of the trainer's parameters by the dotted path of the module that owns them."""
    indices = {id(parameter): index for index, parameter in enumerate(trainer.parameters)}
    groups: dict[str, list[int]] = {}
    for name, parameter in trainer.model.named_parameters():
        if id(parameter) in indices:
            groups.setdefault(name.rpartition(".")[0] or "model", []).append(indices[id(parameter)])
    return groups


def _round(value: Any) -> Any:
    """Returns nested values with floats of `DIGITS` significant digits."""
    if isinstance(value, dict):
        return {key: _round(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_round(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
