"""Synthetic tasks with an adjustable lag, the adding and the copy problem (Hochreiter & Schmidhuber 1997), and models.

Each task has a function that draws a batch from a random generator, as `fit` expects. What has to be remembered stands
at the start of a sequence and is asked for at its end, so that only a model that bridges the lag beats guessing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.lab.fitting import TARGET_WINDOW, ComputeLoss, DrawBatch, fit, make_generator
from seqwise.layers import MultiHeadAttention, Recurrent, SinusoidalPositions
from seqwise.layers.cells import Cell, GatedCell, LSTMCell

SOLVED = 0.9  # share of the baseline's loss that a model removes when training stops early


@dataclass(frozen=True)
class SyntheticTask:
    """A task, and what a model for it must look like."""

    name: str
    draw: DrawBatch
    compute_loss: ComputeLoss
    inputs: int  # size of an input vector
    outputs: int  # size of an output vector
    length: int  # the last steps, at which the model answers
    baseline: float  # loss of the best guess that ignores the input

    def train(self, model: nn.Module, *, steps: int, learning_rate: float, seed: int = 0) -> float:
        """Trains a model for at most `steps` steps; returns its success, for an early stop slightly above `SOLVED`.

        Success is the share of the baseline's loss that is removed at the end of training: 0 guesses, 1 is perfect.
        """
        target = (1 - SOLVED) * self.baseline
        losses = fit(
            model, self.draw, self.compute_loss, steps=steps, learning_rate=learning_rate, target=target, seed=seed
        )
        last = losses[-TARGET_WINDOW:]
        return min(1.0, max(0.0, 1 - sum(last) / len(last) / self.baseline))

    def train_best(
        self, build: Callable[[], nn.Module], learning_rates: Sequence[float], *, steps: int, seed: int = 0
    ) -> float:
        """Trains a new model per learning rate until one solves the task; returns the best success."""
        best = 0.0
        for rate in learning_rates:
            if best < SOLVED:
                best = max(best, self.train(build(), steps=steps, learning_rate=rate, seed=seed))
        return best

    def measure_gradients(self, model: nn.Module, seed: int = 0) -> Tensor:
        """Returns the mean norm of the loss's gradient by the input k = 0, 1, … steps before the last, (T,)."""
        x, y = self.draw(make_generator(seed))
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(self.compute_loss(model, x, y).sum(), x)
        return gradient.double().norm(dim=-1).mean(0).flip(0)


def make_adding_problem(steps: int, batch: int = 32) -> SyntheticTask:
    """Adds two of `steps` numbers: x (B, T, 2) has a number in [0, 1] and a marker at each step, y (B,) is the sum of
    the two numbers with a marker.

    The first marker is in the first tenth of the steps, the second in the rest of the first half. The baseline always
    answers 1 and has the variance of the sum of two uniform numbers as its squared error.
    """
    tenth = max(1, steps // 10)
    half = max(tenth + 1, steps // 2)

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        numbers = torch.rand(batch, steps, generator=generator)
        first = torch.randint(0, tenth, (batch, 1), generator=generator)
        second = torch.randint(tenth, half, (batch, 1), generator=generator)
        markers = torch.zeros(batch, steps).scatter_(1, torch.cat([first, second], dim=1), 1.0)
        return torch.stack([numbers, markers], dim=-1), (numbers * markers).sum(1)

    return SyntheticTask("adding problem", draw, compute_squared_errors, 2, 1, 1, baseline=1 / 6)


def make_copy_problem(
    lag: int, batch: int = 32, symbols: int = 8, length: int = 1, noise: float = 0.0, noise_inputs: int = 8
) -> SyntheticTask:
    """Repeats `length` symbols after `lag` steps: x (B, length + lag + length, D) is one-hot, y (B, length).

    The steps between are blank, with Gaussian noise of standard deviation `noise` on `noise_inputs` further inputs,
    which has to be ignored. At the last steps a signal asks for the symbols, in order.
    """
    width = symbols + noise_inputs + 1

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        y = torch.randint(0, symbols, (batch, length), generator=generator)
        x = torch.zeros(batch, length + lag + length, width)
        x[:, :length] = F.one_hot(y, width)
        x[:, length : length + lag, symbols:-1] = noise * torch.randn(batch, lag, noise_inputs, generator=generator)
        x[:, -length:, -1] = 1.0
        return x, y

    return SyntheticTask("copy problem", draw, compute_cross_entropies, width, symbols, length, math.log(symbols))


def compute_squared_errors(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Returns the squared error (B,) of a model whose output is (B, 1, 1)."""
    return (model(x).flatten() - y).square()


def compute_cross_entropies(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Returns the cross-entropy (B,), averaged over the answers, of a model whose outputs are (B, length, symbols)."""
    return F.cross_entropy(model(x).transpose(1, 2), y, reduction="none").mean(1)


class RecurrentModel(nn.Module):
    """A recurrent layer with a linear output at the last `length` steps: x (B, T, D) → (B, length, outputs)."""

    def __init__(self, cell: Cell, outputs: int, length: int = 1):
        super().__init__()
        self.layer, self.output, self.length = Recurrent(cell), nn.Linear(cell.units, outputs), length

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.layer(x)[0][:, -self.length :])


class AttentionModel(nn.Module):
    """Attention of the last `length` steps to all steps, with positions: x (B, T, D) → (B, length, outputs)."""

    def __init__(self, inputs: int, units: int, outputs: int, length: int = 1, heads: int = 2):
        super().__init__()
        self.input, self.positions = nn.Linear(inputs, units), SinusoidalPositions(units)
        self.attention, self.output = MultiHeadAttention(units, heads), nn.Linear(units, outputs)
        self.length = length

    def forward(self, x: Tensor) -> Tensor:
        h = self.positions(self.input(x))
        last = h[:, -self.length :]
        context, _ = self.attention(last, memory=h)
        return self.output(last + context)


@torch.no_grad()
def open_gates_(cell: Cell, steps: int) -> Cell:
    """Sets the biases of a gated cell so that its units keep their state for 1 to `steps` steps ("chrono
    initialisation", Tallec & Ollivier 2018): forget bias log u, input bias −log u; in a GRU update bias log u.
    """
    bias = torch.log(1 + torch.rand(cell.units) * max(1, steps - 2))
    if isinstance(cell, LSTMCell):
        input_bias, forget_bias, _, _ = cell.bias.chunk(4)
        input_bias.copy_(-bias)
        forget_bias.copy_(bias)
    elif isinstance(cell, GatedCell) and cell.bias is not None:
        cell.bias.chunk(3)[1].copy_(bias)
    return cell
