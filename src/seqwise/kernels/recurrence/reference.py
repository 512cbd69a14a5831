"""The scan of packed rows in PyTorch's own operations, from which second derivatives are computed.

The cells of `layers/cells.py` have the same equations, with a name for every value.
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
States = Sequence[Tensor]  # h, and c of an LSTM


def scan_packed(
    spec: CellSpec, gates: Tensor, weight: Tensor, vectors: Sequence[Tensor], states: States, offsets: Sequence[int],
    reverse: bool,
) -> tuple[Tensor, States]:  # fmt: skip
    """Projected inputs (N, blocks·U) and initial states (B, U), longest sequence first → outputs (N, U), last states.

    `offsets` are the first rows of all steps and N. The rows of a step are those of the sequences that have it.
    """
    outputs: dict[int, Tensor] = {}
    steps = range(len(offsets) - 1)
    for t in reversed(steps) if reverse else steps:
        rows = offsets[t + 1] - offsets[t]
        new = step(spec, gates[offsets[t] : offsets[t + 1]], [part[:rows] for part in states], weight, vectors)
        states = [torch.cat([part, old[rows:]]) for part, old in zip(new, states, strict=True)]
        outputs[t] = new[0]
    return torch.cat([outputs[t] for t in steps]), states


def step(spec: CellSpec, x: Tensor, states: States, weight: Tensor, vectors: Sequence[Tensor]) -> States:
    """One step of a cell. `vectors` are those of `Direction`."""
    h = states[0]
    if spec.name == "gru":
        return (_step_gru(spec, x, h, weight, vectors),)
    u = F.linear(h, weight)
    if spec.name == "rnn":
        return (ACTIVATIONS[spec.activation](_normalise(x + u, vectors)),)
    i, f, g, o = (x + _normalise(u, vectors[:2])).chunk(4, dim=-1)
    c = sigmoid(f) * states[1] + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(_normalise(c, vectors[2:])), c


def _step_gru(spec: CellSpec, x: Tensor, h: Tensor, weight: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    x_r, x_z, x_n = x.chunk(3, dim=-1)
    gates_weight, candidate_weight = weight.split([2 * h.shape[-1], h.shape[-1]])
    gates = F.linear(h, gates_weight)
    r, z = (_normalise(gates, vectors[:2]) if spec.layer_norm else gates).chunk(2, dim=-1)
    r, z = sigmoid(x_r + r), sigmoid(x_z + z)
    if spec.reset == "before":
        n = tanh(x_n + F.linear(r * h, candidate_weight))
    elif spec.layer_norm:
        n = tanh(x_n + r * _normalise(F.linear(h, candidate_weight), vectors[2:]))
    else:
        n = tanh(x_n + r * F.linear(h, candidate_weight, vectors[0]))
    return z * h + (1 - z) * n if spec.update == "keeps" else (1 - z) * h + z * n


def _normalise(x: Tensor, vectors: Sequence[Tensor]) -> Tensor:
    """Layer normalisation with a gain and a bias; x itself without them."""
    if not vectors:
        return x
    gain, bias = (vector.to(x.dtype) for vector in vectors)
    return F.layer_norm(x, x.shape[-1:], gain, bias)
