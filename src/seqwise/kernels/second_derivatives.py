"""Second derivatives of functions whose gradient is computed by a kernel.

Autograd cannot differentiate such a gradient. If it has to (`create_graph=True`), gradients are enabled inside the
backward pass, which then calls `differentiate` with the same function in PyTorch's own operations: autograd can
differentiate those as often as needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def differentiate(
    function: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor | None], gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Computes a function once more; returns the gradients of its inputs, given the gradients of its results.

    Autograd can differentiate what it returns.
    """
    # A view of each input: a path from one input to another, such as a shared weight, is not part of the function.
    views = [None if tensor is None else tensor.view_as(tensor) for tensor in inputs]
    needed = [view for view in views if view is not None and view.requires_grad]
    pairs = [pair for pair in zip(function(*views), gradients, strict=True) if pair[1] is not None]
    results, result_gradients = zip(*pairs, strict=True)
    grads = iter(torch.autograd.grad(results, needed, result_gradients, create_graph=True, allow_unused=True))
    return [None if view is None or not view.requires_grad else next(grads) for view in views]
