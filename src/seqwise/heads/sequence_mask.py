"""`sequence_mask`: the mask of valid steps of padded sequences, for the heads. It does not check its arguments."""

from __future__ import annotations

import torch
from torch import Tensor


def sequence_mask(x: Tensor, lengths: Tensor) -> Tensor:
    """Returns the mask (B, T) of the steps of x (B, T, …) that are not padding."""
    return torch.arange(x.shape[1], device=x.device) < lengths[:, None]
