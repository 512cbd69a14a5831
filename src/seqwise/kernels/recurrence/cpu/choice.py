"""Whether the compiled scans can run, and for which shapes they are faster than ATen's. It knows nothing of modules.

Read off a grid on two cores (Zen 4, oneDNN 3.12), T 1–128, batches of 1–64, 32–650 units, against `nn.LSTM`, `nn.GRU`
and `nn.RNN`. ATen steps through GRUs, RNNs and padded batches one operation at a time; there the compiled scan is
behind only until its fixed cost is earned: rearranging the weights, and 0.1 ms, 0.3 ms with the way back. An unpadded
LSTM in one direction is oneDNN's, which is as fast at the products: it is left where the scan would be slower or the
same.
"""

from __future__ import annotations

from array import array

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.kernels.recurrence.cpu.linear import PRECISIONS
from seqwise.kernels.recurrence.thread_safe_cache import thread_safe_cache

# What goes wrong where LLVM is missing, or refuses what it is given. (What it cannot bear at all ends the process.)
REFUSALS = (ImportError, OSError, RuntimeError, AttributeError, TypeError)


PLAIN = (Tensor, Parameter)
VECTOR = 16  # oneDNN is slower where units are no multiple of it


def fits(*tensors: Tensor) -> bool:
    """Are these an input and weights that the compiled scans take? They read memory, so it must be there: no tensor of
    a derived class, nothing that is traced or only looks like being computed."""
    x = tensors[0]
    if not x.is_cpu or x.dtype not in PRECISIONS or torch.is_autocast_enabled("cpu"):
        return False
    if transformed() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack():
        return False
    return all(type(one) in PLAIN for one in tensors)


def transformed() -> bool:
    """Is somebody differentiating forwards, or transforming functions (`torch.func`)? Only open code can follow."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def pays(kind: CellSpec, x: Tensor, units: int, scans: int = 1, padded: bool = False) -> bool:
    """Is the compiled scan of x (B, T, D) the faster one, for a cell that ATen has too?

    `scans` are the directions; `padded` says that some rows are shorter than others.
    """
    batch, time, _ = x.shape
    if time < 4:
        return False
    if scans > 1 or (padded and batch > 1):
        return True
    if kind.name != "lstm":
        return torch.is_grad_enabled() or time >= 16 or batch * time >= 64
    enough = batch >= torch.get_num_threads()  # threads share the rows
    if torch.is_grad_enabled():
        return enough or units < 200 or time < 64
    return units <= 100 or (enough and time >= 16 and units % VECTOR > 0)


@thread_safe_cache
def obstacle() -> str | None:
    """Why nothing can be compiled here, in words; None where it can. Tries it, which takes half a second once."""
    return find_obstacle()


def find_obstacle() -> str | None:
    try:
        right = _multiplies()
    except REFUSALS as error:
        return f"LLVM cannot compile for this machine ({type(error).__name__}: {error})"
    return None if right else "what LLVM compiles for this machine computes wrongly"


def _multiplies() -> bool:
    """A product of small matrices, compiled and by hand. No tensors: the answer holds for all who ask later, in
    whatever mode PyTorch is when the first one does."""
    from seqwise.kernels.recurrence.cpu.product import packed_size, products

    rows, depth, width = 7, 2, 3
    x, weight = array("f", range(rows * depth)), array("f", range(depth * width))
    panels, found = array("f", [0.0] * packed_size(width, depth, 4)), array("f", [0.0] * (rows * width))
    left, right, between, result = (one.buffer_info()[0] for one in (x, weight, panels, found))
    compiled = products("float")
    compiled["pack_columns"](right, width, width, depth, between)
    compiled["product"](left, depth, between, result, width, rows, depth, width, 0, 0)
    return list(found) == [
        sum(x[r * depth + k] * weight[k * width + j] for k in range(depth)) for r in range(rows) for j in range(width)
    ]
