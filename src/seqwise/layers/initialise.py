"""Functions that fill a tensor with initial weights, in place, and return it. They know nothing of modules.

A matrix is (outputs, inputs). A recurrent cell stacks one such matrix per gate; `blocks` is their number, and each is
filled as a matrix of its own.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

EMBEDDING_STD = 0.02  # standard deviation of a Transformer's token and position vectors: GPT-2 (Radford et al. 2019)


@torch.no_grad()
def xavier_(weight: Tensor, blocks: int = 1) -> Tensor:
    """Draws uniformly from ±√(6 / (inputs + outputs)), which keeps the variance of tanh layers.

    Glorot & Bengio 2010, eq. 16.
    """
    outputs, inputs = weight.shape[0] // blocks, weight.shape[1]
    bound = math.sqrt(6 / (inputs + outputs))
    return weight.uniform_(-bound, bound)


@torch.no_grad()
def he_(weight: Tensor) -> Tensor:
    """Draws from a normal distribution with variance 2 / inputs, because ReLU sets half of its inputs to 0.

    He et al. 2015, eq. 10.
    """
    return weight.normal_(0.0, math.sqrt(2 / weight.shape[1]))


@torch.no_grad()
def orthogonal_(weight: Tensor, blocks: int = 1) -> Tensor:
    """Draws a random Q with QᵀQ = 1 for each block: products over time keep the norm of a state (Saxe et al. 2014)."""
    for block in weight.chunk(blocks):
        rows, columns = block.shape
        normal = torch.empty(max(rows, columns), min(rows, columns), dtype=block.dtype, device=block.device).normal_()
        q, r = torch.linalg.qr(normal)
        q = q * r.diagonal().sign()  # without the sign Q is not uniform over orthogonal matrices (Mezzadri 2007)
        block.copy_(q if rows >= columns else q.T)
    return weight


@torch.no_grad()
def forget_bias_(bias: Tensor, value: float = 1.0) -> Tensor:
    """Sets the bias of the forget gate (second of i, f, g, o) to `value`, so that it starts open, and the others to 0.

    Jozefowicz et al. 2015.
    """
    bias.zero_()
    bias.chunk(4)[1].fill_(value)
    return bias


def log_frequencies(counts: Tensor) -> Tensor:
    """Returns the log frequency of each token, (V,), with add-one smoothing: the bias of an untrained softmax."""
    return torch.log((counts + 1) / (counts.sum() + len(counts)))
