"""Small tasks on which recurrent cells are trained in seconds, and the model that is trained on them.

Every task returns inputs (B, T, D) and one number per sequence, to be predicted after the last step:

    recall    the value of the first step, after steps with other values
    adding    the sum of two marked values (Hochreiter & Schmidhuber 1997, section 5.4, with values in ±1)
    product   3 times the product of the last two values; what comes before them is noise
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers.cells import Cell
from seqwise.layers.recurrent import Recurrent


class LastStepModel(nn.Module):
    """A cell over time and a linear layer on the last output: (B, T, D) → (B,)."""

    def __init__(self, cell: Cell):
        super().__init__()
        self.layer, self.output = Recurrent(cell), nn.Linear(cell.units, 1)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.layer(x)
        return self.output(outputs[:, -1])[:, 0]


class SeparateModels(nn.Module):
    """Several models that are trained side by side, each on its own part of the batch."""

    def __init__(self, models: Sequence[nn.Module]):
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([model(part) for model, part in zip(self.models, x.chunk(len(self.models)))])


def train_on_task(
    model: nn.Module,
    draw: Callable[..., tuple[Tensor, Tensor]],
    *,
    length: int,
    steps: int,
    seed: int,
    batch: int = 32,
    clip: float = 1.0,
) -> tuple[Tensor, list[float]]:
    """Trains a model; returns its squared error on each of 16 new batches' sequences, and the loss of each step.

    Errors are relative to those of guessing the mean.
    """
    if length < 2:
        raise UsageError(f"expected sequences of at least two steps, received a length of {length}.")
    losses = fit(
        model, partial(draw, batch=batch, length=length), compute_squared_error, steps=steps, clip=clip, seed=seed
    )
    x, y = draw(make_generator(seed, 1_000_000), 16 * batch, length)  # not among the training batches
    with torch.no_grad():
        return compute_squared_error(model, x, y) / y.var(), losses


def compute_squared_error(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Returns the squared error of each sequence, (B,)."""
    return (model(x) - y).square()


def draw_recall(generator: torch.Generator, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Returns inputs (value, mark), the first step marked, and its value."""
    x = torch.zeros(batch, length, 2)
    x[..., 0] = draw_values(generator, batch, length)
    x[:, 0, 1] = 1
    return x, x[:, 0, 0].clone()


def draw_adding(generator: torch.Generator, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Returns inputs (value, mark), one step of each half marked, and the sum of the marked values."""
    values, marks = draw_values(generator, batch, length), torch.zeros(batch, length)
    for low, high in ((0, length // 2), (length // 2, length)):
        marked = torch.randint(low, high, (batch,), generator=generator)
        marks[torch.arange(batch), marked] = 1
    return torch.stack([values, marks], dim=-1), (values * marks).sum(1)


def draw_product(generator: torch.Generator, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Returns inputs (value, 0) and 3 times the product of the last two values, which has a variance of 1."""
    values = draw_values(generator, batch, length)
    return torch.stack([values, torch.zeros_like(values)], dim=-1), 3 * values[:, -1] * values[:, -2]


def draw_values(generator: torch.Generator, batch: int, length: int) -> Tensor:
    """Returns uniform numbers between −1 and 1."""
    return 2 * torch.rand(batch, length, generator=generator) - 1
