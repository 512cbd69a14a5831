"""Whether the compiled scans can run, and for which shapes they are faster than ATen's. It knows nothing of modules.

Fitted to a grid on two cores (Zen 4, oneDNN 3.12), T 1–128, batches of 1–64, 32–650 units, against `nn.LSTM`, `nn.GRU`
and `nn.RNN`. ATen computes GRUs, RNNs and padded batches one operation at a time; there the compiled scan is slower
only for small inputs, because of its fixed cost: rearranging the weights, and 0.1 ms, with gradients 0.3 ms. A full
LSTM batch in one direction is computed by oneDNN, whose products are as fast: PyTorch keeps it where the
scan would not be faster.
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

# The errors where LLVM is missing or cannot compile. (Some of its failures end the process instead.)
REFUSALS = (ImportError, OSError, RuntimeError, AttributeError, TypeError)


PLAIN = (Tensor, Parameter)
VECTOR = 16  # oneDNN is slower where units are no multiple of it


def fits(*tensors: Tensor) -> bool:
    """Whether the compiled scans can compute with this input and these weights.

    They access memory directly, so tensors of subclasses, traced and fake tensors are excluded.
    """
    x = tensors[0]
    if not x.is_cpu or x.dtype not in PRECISIONS or torch.is_autocast_enabled("cpu"):
        return False
    if transformed() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack():
        return False
    return all(type(one) in PLAIN for one in tensors)


def transformed() -> bool:
    """Whether forward-mode differentiation or `torch.func` is active, which compiled code does not support."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def pays(kind: CellSpec, x: Tensor, units: int, scans: int = 1, padded: bool = False) -> bool:
    """Whether the compiled scan of x (B, T, D) is faster than ATen's.

    `scans` are the directions; `padded` says that some rows are shorter than others.
    """
    batch, time, _ = x.shape
    if time < 4:
        return False
    if scans > 1 or (padded and batch > 1):
        return True
    if kind.name != "lstm":
        return torch.is_grad_enabled() or time >= 16 or batch * time >= 64
    enough = batch >= torch.get_num_threads()  # threads share the sequences
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
