"""A loss that is not finite is blamed on the data if the data has extreme values, else on the learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqwise.data.batch import Batch
from seqwise.losses import Loss
from seqwise.training.distribution import World
from seqwise.training.memory import BatchShare
from seqwise.training.step import Update, explain_non_finite


@dataclass(frozen=True, kw_only=True)
class Values(Batch):
    values: Tensor  # (B, T)
    features: Tensor  # (B, T, 0), as of a forecast without values that are known in advance


class SumOfSquares(nn.Module):
    def forward(self, batch: Values, state: Any) -> tuple[Loss, Any]:
        return Loss(batch.values.square().sum(), torch.tensor(batch.values.numel())), state


def explain(*rows: float) -> str:
    values = torch.tensor(rows)[:, None]
    batch = Values(values=values, features=values[..., None][..., :0], positions=torch.arange(len(rows)))
    update = Update(batch, None, None, BatchShare((), 1, 1), torch.tensor(math.inf), loss=math.inf)
    return str(explain_non_finite(SumOfSquares(), update, 1, World()))


@pytest.mark.parametrize(
    ("value", "words"),
    [(1e25, "as large as 1e+25"), (math.inf, "that are not finite"), (math.nan, "that are not finite")],
)
def test_extreme_values_are_named_as_the_cause(value: float, words: str):
    message = explain(1.0, value)
    assert f"The data is the cause: after scaling, the batch has values {words}" in message
    assert "Correct or remove values such as 1e308" in message
    assert "learning-rate" not in message
    assert "in the samples that begin at example 1." in message


def test_ordinary_values_leave_the_learning_rate_as_the_cause():
    message = explain(1.0, 2.0)
    assert "The data" not in message
    assert "Try half the learning rate" in message
