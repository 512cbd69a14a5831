"""Deliberately wrong variants of chapter B's experiments: each must change the verdict."""

from __future__ import annotations

import torch
from torch import nn

from seqwise.lab.unrolling.b1_shared_weight import SharedWeight
from seqwise.lab.unrolling.b2_parameter_count import ParameterCount
from seqwise.lab.unrolling.b3_jacobian_product import JacobianProduct
from seqwise.lab.unrolling.b4_absolute_position import AbsolutePosition
from seqwise.lab.unrolling.b5_truncation import Truncation
from seqwise.lab.unrolling.b6_sum_of_losses import SumOfLosses
from seqwise.lab.unrolling.b7_depth import Depth
from seqwise.lab.unrolling.b8_equal_influence import EqualInfluence, Recall
from seqwise.lab.unrolling.b9_total_loss import TotalLoss


class LastCopyOnly(SharedWeight):
    """Takes the gradient of the last copy for that of the shared matrix."""

    def combine(self, gradients):
        return gradients[-1]


class CellPerStep(ParameterCount):
    """Gives every step a cell of its own."""

    def build(self, name, length):
        if name in ("dense", "transformer"):
            return super().build(name, length)
        return SeparateCells([super(CellPerStep, self).build(name, length) for _ in range(length)])


class SeparateCells(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        state, outputs = None, []
        for layer, x_t in zip(self.layers, x.split(1, 1), strict=True):
            output, state = layer(x_t, state)
            outputs.append(output)
        return torch.cat(outputs, 1)


class TransposedMatrix(JacobianProduct):
    """Multiplies by Wᵀ, which is right for gradients (row vectors) and wrong for the Jacobian."""

    def multiply(self, W, derivatives):
        return super().multiply(W.T, derivatives)


class RandomPlace(AbsolutePosition):
    """Copies from another place in each sequence, which no network can know."""

    def draw_place(self, generator, batch=64):
        ids, _ = super().draw_place(generator, batch)
        places = torch.randint(self.length, (batch, 1), generator=generator)
        return ids, ids.gather(1, places)[:, 0] - 1


class WithoutTruncation(Truncation):
    """Ignores the window, so that segments are whole sequences."""

    def compute_gradient(self, layer, x, window):
        return super().compute_gradient(layer, x, x.shape[1])


class MeanOfLosses(SumOfLosses):
    """Divides by the number of steps."""

    def combine(self, step_losses):
        return step_losses.mean(1)


class CountedFromTheTop(Depth):
    """Takes the top layer for the first one."""

    def probe(self, model):
        return super().probe(model)[::-1]


class PlainSum(EqualInfluence):
    """Adds the inputs up: no tanh, and the identity for W, which training does not change."""

    def build(self):
        model = Recall(self.units, "identity")
        nn.init.eye_(model.layer.cell.weight_hidden).requires_grad_(False)
        return model


class LastLossOnly(TotalLoss):
    """Gives a loss to the last step only, for which the single sum is right."""

    def compute_losses(self, h, targets):
        losses = super().compute_losses(h, targets)
        return torch.cat([torch.zeros_like(losses[:-1]), losses[-1:]])


VARIANTS = {
    "B1": LastCopyOnly,
    "B2": CellPerStep,
    "B3": TransposedMatrix,
    "B4": RandomPlace,
    "B5": WithoutTruncation,
    "B6": MeanOfLosses,
    "B7": CountedFromTheTop,
    "B8": PlainSum,
    "B9": LastLossOnly,
}

# Statements whose verdict the textbook leaves open, or that the measurement contradicts: id → verdict
FOUND = {
    "B4": "holds if",  # a recurrent network counts from its initial state, so it does learn "the token at place 7"
    "B5": "holds",
    "B7": "holds if",
}
