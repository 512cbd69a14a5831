"""The scan of packed rows in PyTorch's own operations, from which second derivatives are computed.

The cells of `layers/cells.py` have the same equations and record every value under a name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, sigmoid, tanh
from torch.nn import functional as F

from seqwise.kernels.recurrence.cell_spec import CellSpec

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": tanh,
    "relu": torch.relu,
    "sigmoid": sigmoid,
    "identity": lambda a: a,
}
State = Sequence[Tensor]  # (h,), or (h, c) of an LSTM


def scan_packed(
    spec: CellSpec, gates: Tensor, weight_hidden: Tensor, vector_parameters: Sequence[Tensor], state: State,
    offsets: Sequence[int], reverse: bool, state_mask: Tensor | None = None,
) -> tuple[Tensor, State]:  # fmt: skip
    """Scans projected inputs (N, blocks·U) from initial states (B, U), longest sequence first. Returns the outputs
    (N, U) and the final states.

    `offsets` are the first rows of all steps, then N. A step has one row for each sequence that is long enough. An LSTM
    may have a `state_mask` (B, U), which multiplies h in the recurrent product.
    """
    outputs: dict[int, Tensor] = {}
    steps = range(len(offsets) - 1)
    for t in reversed(steps) if reverse else steps:
        num_rows = offsets[t + 1] - offsets[t]
        x, active_state = gates[offsets[t] : offsets[t + 1]], [part[:num_rows] for part in state]
        if state_mask is not None:
            active_state[0] = active_state[0] * state_mask[:num_rows]
        new_state = _compute_step(spec, x, active_state, weight_hidden, vector_parameters)
        state = [torch.cat([new, old[num_rows:]]) for new, old in zip(new_state, state, strict=True)]
        outputs[t] = new_state[0]
    return torch.cat([outputs[t] for t in steps]), state


def _compute_step(
    spec: CellSpec, x: Tensor, state: State, weight_hidden: Tensor, vector_parameters: Sequence[Tensor]
) -> State:
    """Returns the state after one step of a cell. `vector_parameters` are as in `Direction`."""
    h = state[0]
    if spec.name == "gru":
        return (_compute_gru_step(spec, x, h, weight_hidden, vector_parameters),)
    u = F.linear(h, weight_hidden)
    if spec.name == "rnn":
        return (ACTIVATIONS[spec.activation](_normalize(x + u, vector_parameters)),)
    a_i, a_f, a_g, a_o = (x + _normalize(u, vector_parameters[:2])).chunk(4, dim=-1)
    i, f = sigmoid(a_i), sigmoid(a_f)
    c = f * state[1] + (torch.minimum(i, 1 - f) if spec.capped else i) * tanh(a_g)
    return sigmoid(a_o) * tanh(_normalize(c, vector_parameters[2:])), c


def _compute_gru_step(
    spec: CellSpec, x: Tensor, h: Tensor, weight_hidden: Tensor, vector_parameters: Sequence[Tensor]
) -> Tensor:
    x_r, x_z, x_n = x.chunk(3, dim=-1)
    gates_weight, candidate_weight = weight_hidden.split([2 * h.shape[-1], h.shape[-1]])
    u = F.linear(h, gates_weight)
    u_r, u_z = (_normalize(u, vector_parameters[:2]) if spec.layer_norm else u).chunk(2, dim=-1)
    r, z = sigmoid(x_r + u_r), sigmoid(x_z + u_z)
    if spec.reset == "before":
        n = tanh(x_n + F.linear(r * h, candidate_weight))
    elif spec.layer_norm:
        n = tanh(x_n + r * _normalize(F.linear(h, candidate_weight), vector_parameters[2:]))
    else:
        n = tanh(x_n + r * F.linear(h, candidate_weight, vector_parameters[0]))
    return z * h + (1 - z) * n if spec.update == "keeps" else (1 - z) * h + z * n


def _normalize(x: Tensor, gain_and_bias: Sequence[Tensor]) -> Tensor:
    """Returns the layer normalisation of x, or x itself if gain and bias are missing."""
    if not gain_and_bias:
        return x
    gain, bias = (parameter.to(x.dtype) for parameter in gain_and_bias)
    return F.layer_norm(x, x.shape[-1:], gain, bias)
