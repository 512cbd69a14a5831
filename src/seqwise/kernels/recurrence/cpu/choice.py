"""Whether the compiled scans can run, and for which shapes they are faster than ATen's. It knows nothing of modules.

Read off a grid on two cores (Zen 4, oneDNN 3.12), T 1–512, batches of 1–256, 32–1024 units, against `nn.LSTM`,
`nn.GRU` and `nn.RNN`. ATen steps through GRUs, RNNs and padded batches one operation at a time; there the compiled scan
is behind only until its fixed cost (0.1 ms, 0.3 ms with the way back) is earned. An unpadded LSTM in one direction is
oneDNN's, which is as fast at the products: it is left where the scan would be slower or the same.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from seqwise.kernels.recurrence.cpu.linear import KINDS, Factor
from seqwise.kernels.recurrence.kinds import Kind


def fits(x: Tensor) -> bool:
    """Is this an input that the compiled scans take?"""
    return x.device.type == "cpu" and x.dtype in KINDS and not torch.is_autocast_enabled("cpu")


def pays(kind: Kind, x: Tensor, units: int, scans: int = 1, padded: bool = False) -> bool:
    """Is the compiled scan of x (B, T, D) the faster one, for a cell that ATen has too?

    `scans` are the directions; `padded` says that some rows are shorter than others.
    """
    batch, time = x.shape[:2]
    if padded and batch > 1:
        return time >= 4
    if kind.name != "lstm":
        return time >= 16 or (time >= 4 and batch * units >= 4096)
    if scans > 1 or time < 16:
        return time >= 16
    if batch < torch.get_num_threads() and units >= 256:
        return False  # rows are shared among threads, and there are not enough of them
    if torch.is_grad_enabled():
        return batch * time >= 128
    return units < 64 and time >= 32


@cache
def obstacle() -> str | None:
    """Why nothing can be compiled here, in words; None where it can. Tries it, which takes half a second once."""
    try:
        x, weight = torch.arange(14.0).view(7, 2), torch.arange(6.0).view(2, 3)
        right = torch.equal(Factor(weight, turned=False).times(x), x @ weight)
    except (ImportError, OSError, RuntimeError, AttributeError, TypeError) as error:
        return f"LLVM cannot compile for this machine ({type(error).__name__}: {error})"
    return None if right else "what LLVM compiles for this machine computes wrongly"
