"""The normalised cells' scans and what they look like inside, for `persistent.py`. Importing this imports triton.

Gates and cells come from the kernels. What a norm makes of its input is not kept by them: it is computed once more, for
all steps at once, where somebody looks. What is seen is in the order of the slots (`rows.py`), (N, S, …). It knows
nothing of modules.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwise.kernels.recurrence.gpu.layout import RowLayout
from seqwise.kernels.recurrence.gpu.moments import EPSILON
from seqwise.kernels.recurrence.gpu.normalised_scan import (
    normalised_gru_scan,
    normalised_lstm_scan,
    normalised_rnn_scan,
    recurrent_products,
)
from seqwise.kernels.recurrence.kinds import Kind

Result = tuple[Tensor, tuple[Tensor, ...], dict[str, Tensor]]  # outputs, last states, what is inside by its name


def normalised_rnn(
    kind: Kind, inputs: Tensor, matrices: Tensor, norms: list[Tensor], states: list[Tensor], rows: RowLayout, look: bool
) -> Result:
    (h,) = states
    outputs, last = normalised_rnn_scan(inputs, matrices, norms, h, rows, kind.activation, keep=look)
    if not look:
        return outputs, (last,), {}
    inputs = inputs.detach()
    seen = {"preactivation": inputs, "norm.norm": _norm(inputs, *norms), "hidden": _in_slots(outputs)}
    return outputs, (last,), seen


def normalised_lstm(
    kind: Kind, gates: Tensor, matrices: Tensor, norms: list[Tensor], states: list[Tensor], rows: RowLayout, look: bool
) -> Result:
    h, c = states
    outputs, last_h, last_c, cells, hidden = normalised_lstm_scan(gates, matrices, norms, h, c, rows, keep=look)
    if not look:
        return outputs, (last_h, last_c), {}
    i, f, g, o = gates.detach().chunk(4, dim=-1)
    cells = _in_slots(cells)
    seen = {
        "hidden_norm.norm": _norm(recurrent_products(matrices, rows.before(hidden)), *norms[:2]),
        "input": i,
        "forget": f,
        "candidate": g,
        "output": o,
        "cell": cells,
        "cell_norm.norm": _norm(cells, *norms[2:]),
        "hidden": _in_slots(outputs),
    }
    return outputs, (last_h, last_c), seen


def normalised_gru(
    kind: Kind, gates: Tensor, matrices: Tensor, norms: list[Tensor], states: list[Tensor], rows: RowLayout, look: bool
) -> Result:
    (h,) = states
    outputs, last, hidden = normalised_gru_scan(gates, matrices, norms, h, rows, kind.update == "replaces", keep=look)
    if not look:
        return outputs, (last,), {}
    products = recurrent_products(matrices, rows.before(hidden))
    r, z, n = gates.detach().chunk(3, dim=-1)
    units = h.shape[-1]
    seen = {
        "gates_norm.norm": _norm(products[..., : 2 * units], *norms[:2]),
        "candidate_norm.norm": _norm(products[..., 2 * units :], *norms[2:]),
        "reset": r,
        "update": z,
        "candidate": n,
        "hidden": _in_slots(outputs),
    }
    return outputs, (last,), seen


@torch.no_grad()
def _norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Of x (N, S, …), each scan with its own gain and bias."""
    return (F.layer_norm(x.float(), x.shape[-1:], eps=EPSILON.value) * gain + bias).to(x.dtype)


def _in_slots(values: Tensor) -> Tensor:
    """(T, B, S, U) or (N, S, U) → (N, S, U)"""
    return values.detach().flatten(0, -3)
