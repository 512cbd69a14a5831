"""A recurrent cell of your own: write its equation; scanning, recording and training come with it.

    python examples/03_your_own_cell.py

The cell is the minimal gated unit (Zhou et al. 2016). Its task: after each of ten symbols, predict the first of them.
"""
# ruff: noqa: T201

from __future__ import annotations

import torch
from torch import nn

import seqwise
from seqwise.budget import Budget
from seqwise.data.batch import TokenBatch
from seqwise.layers.cells import Cell, record_nothing
from seqwise.layers.recurrent import Recurrent
from seqwise.losses import total
from seqwise.resolved_settings import ResolvedTrainingSettings
from seqwise.training.loop import Trainer


class MinimalGatedCell(Cell):
    name, blocks, gates = "mgu", 2, ("forget", "candidate", "hidden")

    def step(self, x, state, weight_hidden, record=record_nothing):
        (h,), (x_f, x_n), (U_f, U_n) = state, x.chunk(2, dim=-1), weight_hidden.chunk(2)
        f = record("forget", torch.sigmoid(x_f + h @ U_f.T))
        n = record("candidate", torch.tanh(x_n + (f * h) @ U_n.T))
        return (record("hidden", (1 - f) * h + f * n),)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.output = nn.Embedding(8, 16), nn.Linear(32, 8)
        self.layer = Recurrent(MinimalGatedCell(16, 32))

    def forward(self, batch, state=None):  # as the trainer calls it: → (summed loss, state)
        states, _ = self.layer(self.embedding(batch.ids))
        return total(nn.functional.cross_entropy(self.output(states).mT, batch.targets, reduction="none")), None


class Batches:
    steps = 100  # per epoch; each batch is a pure function of (epoch, step), so that training can be resumed

    def epoch(self, number, start=0):
        for step in range(start, self.steps):
            ids = torch.randint(8, (32, 10), generator=torch.Generator().manual_seed(1000 * number + step))
            yield TokenBatch(ids, targets=ids[:, :1].expand(32, 10))


def main():
    torch.manual_seed(0)
    model, settings = Model(), ResolvedTrainingSettings(learning_rate=0.01)
    for step in Trainer(model, Batches(), settings, Budget.parse("4-epochs")).steps():
        if step.number in (1, 100, 400):
            print(f"step {step.number:3}  loss {step.loss:.3f} nats; random guessing has 2.079")
    with torch.no_grad(), seqwise.record(model) as recording:
        model(next(Batches().epoch(99)))
    means = recording["layer.mgu.forget"].mean(dim=(0, 2))
    print("mean gate at each step:", " ".join(f"{mean:.2f}" for mean in means))


if __name__ == "__main__":
    main()
