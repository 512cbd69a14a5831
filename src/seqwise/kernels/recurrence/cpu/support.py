"""Whether the compiled scans can run, and for which shapes they are faster than ATen's. It knows nothing of modules.

Fitted to a grid on two cores (Zen 4, oneDNN 3.12), T 1–128, batches of 1–64, 32–650 units, against `nn.LSTM`, `nn.GRU`
and `nn.RNN`. ATen computes GRUs, RNNs and padded batches one operation at a time; there the compiled scan is slower
only for small inputs, because of its fixed cost: rearranging the weights, and 0.1 ms, with gradients 0.3 ms. A full
LSTM batch in one direction is computed by oneDNN, whose products are as fast: there the scan runs only where it is
faster.
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

# Raised where LLVM is missing or cannot compile. (Some of its failures end the process instead.)
COMPILE_ERRORS = (ImportError, OSError, RuntimeError, AttributeError, TypeError)


PLAIN_TYPES = (Tensor, Parameter)
ONEDNN_BLOCK = 16  # oneDNN is slower where units are no multiple of it


def is_supported(*tensors: Tensor) -> bool:
    """Whether the compiled scans can compute with this input and these weights.

    They access memory directly, so tensors of subclasses, traced and fake tensors are excluded.
    """
    x = tensors[0]
    if not x.is_cpu or x.dtype not in PRECISIONS or torch.is_autocast_enabled("cpu"):
        return False
    if has_active_transforms() or torch.jit.is_tracing() or torch._C._len_torch_dispatch_stack():
        return False
    return all(type(tensor) in PLAIN_TYPES for tensor in tensors)


def has_active_transforms() -> bool:
    """Whether forward-mode differentiation or `torch.func` is active, which compiled code does not support."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def is_faster_than_aten(spec: CellSpec, x: Tensor, units: int, scans: int = 1, padded: bool = False) -> bool:
    """Whether the compiled scan of x (B, T, D) is faster than ATen's.

    `scans` are the directions; `padded` says that some rows are shorter than others.
    """
    batch, time, _ = x.shape
    if time < 4:
        return False
    if scans > 1 or (padded and batch > 1):
        return True
    if spec.name != "lstm":
        return torch.is_grad_enabled() or time >= 16 or batch * time >= 64
    has_row_per_thread = batch >= torch.get_num_threads()  # threads share the sequences
    if torch.is_grad_enabled():
        return has_row_per_thread or units < 200 or time < 64
    return units <= 100 or (has_row_per_thread and time >= 16 and units % ONEDNN_BLOCK > 0)


@thread_safe_cache
def get_compiler_problem() -> str | None:
    """Why LLVM cannot compile on this machine, in words; None where it can. The first call compiles a test, 0.5 s."""
    return find_compiler_problem()


def find_compiler_problem() -> str | None:
    """The same, without a cache."""
    try:
        is_correct = _is_product_correct()
    except COMPILE_ERRORS as error:
        return f"LLVM cannot compile for this machine ({type(error).__name__}: {error})"
    return None if is_correct else "LLVM's code for this machine computes wrong results"


def _is_product_correct() -> bool:
    """Whether a compiled product of small matrices is right.

    It uses no tensors: the result is cached, so it must not depend on PyTorch's mode at the first call.
    """
    from seqwise.kernels.recurrence.cpu.product import compile_products, packed_size

    rows, depth, width = 7, 2, 3
    x, weight = array("f", range(rows * depth)), array("f", range(depth * width))
    panels, result = array("f", [0.0] * packed_size(width, depth, 4)), array("f", [0.0] * (rows * width))
    x_address, weight_address, panels_address, result_address = (
        values.buffer_info()[0] for values in (x, weight, panels, result)
    )
    functions = compile_products("float")
    functions["pack_columns"](weight_address, width, width, depth, panels_address)
    functions["product"](x_address, depth, panels_address, result_address, width, rows, depth, width, 0, 0)
    return list(result) == [
        sum(x[r * depth + k] * weight[k * width + j] for k in range(depth)) for r in range(rows) for j in range(width)
    ]
