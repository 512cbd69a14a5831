"""Which steps of padded rows are there. The heads share it; a recurrent layer has its own, for it checks as well."""

from __future__ import annotations

import torch
from torch import Tensor


def valid_steps(rows: Tensor, lengths: Tensor) -> Tensor:
    """The steps (B, T) of rows (B, T, …) that are no padding."""
    return torch.arange(rows.shape[1], device=rows.device) < lengths[:, None]
