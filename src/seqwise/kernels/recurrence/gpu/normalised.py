"""The normalised cells' scans and what they look like inside, for `persistent.py`. Importing this imports triton.

Gates and cells come from the kernels. What a norm makes of its input is not kept by them: it is computed once more, for
all steps at once, where somebody looks. It knows nothing of modules.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwise.kernels.recurrence.gpu.launch import Rows
from seqwise.kernels.recurrence.gpu.moments import EPSILON
from seqwise.kernels.recurrence.gpu.normalised_scan import (
    normalised_gru_scan,
    normalised_lstm_scan,
    normalised_rnn_scan,
)
from seqwise.kernels.recurrence.kinds import Kind

Result = tuple[Tensor, tuple[Tensor, ...], dict[str, Tensor]]  # outputs, last states, what is inside by its name


def normalised_rnn(
    kind: Kind, inputs: Tensor, matrices: Tensor, norms: list[Tensor], states: list[Tensor], rows: Rows, look: bool
) -> Result:
    (h,) = states
    outputs, last = normalised_rnn_scan(inputs, matrices, norms, h, rows, kind.activation, keep=look)
    if not look:
        return outputs, (last,), {}
    inputs = inputs.detach()
    seen = {"preactivation": inputs, "norm.norm": _norm(inputs, *norms), "hidden": outputs.detach()}
    return outputs, (last,), seen


def normalised_lstm(
    kind: Kind, gates: Tensor, matrices: Tensor, norms: list[Tensor], states: list[Tensor], rows: Rows, look: bool
) -> Result:
    h, c = states
    outputs, last_h, last_c, cells = normalised_lstm_scan(gates, matrices, norms, h, c, rows, keep=look)
    if not look:
        return outputs, (last_h, last_c), {}
    i, f, g, o = gates.detach().chunk(4, dim=-1)
    seen = {
        "hidden_norm.norm": _norm(_products(outputs, matrices, h), *norms[:2]),
        "input": i,
        "forget": f,
        "candidate": g,
        "output": o,
        "cell": cells[:, 1:],
        "cell_norm.norm": _norm(cells[:, 1:], *norms[2:]),
        "hidden": outputs.detach(),
    }
    return outputs, (last_h, last_c), seen


def normalised_gru(
    kind: Kind, gates: Tensor, matrices: Tensor, norms: list[Tensor], states: list[Tensor], rows: Rows, look: bool
) -> Result:
    (h,) = states
    outputs, last = normalised_gru_scan(gates, matrices, norms, h, rows, kind.update == "replaces", keep=look)
    if not look:
        return outputs, (last,), {}
    products = _products(outputs, matrices, h)
    r, z, n = gates.detach().chunk(3, dim=-1)
    units = h.shape[-1]
    seen = {
        "gates_norm.norm": _norm(products[..., : 2 * units], *norms[:2]),
        "candidate_norm.norm": _norm(products[..., 2 * units :], *norms[2:]),
        "reset": r,
        "update": z,
        "candidate": n,
        "hidden": outputs.detach(),
    }
    return outputs, (last,), seen


@torch.no_grad()
def _products(outputs: Tensor, matrices: Tensor, h: Tensor) -> Tensor:
    """The recurrent products of all steps, (S, T, B, …)."""
    before = torch.cat([h[:, None], outputs[:, :-1]], dim=1)
    return before @ matrices.mT[:, None]


@torch.no_grad()
def _norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Of x (S, T, B, …), each scan with its own gain and bias."""
    normal = F.layer_norm(x.float(), x.shape[-1:], eps=EPSILON.value)
    return (normal * gain[:, None, None] + bias[:, None, None]).to(x.dtype)
