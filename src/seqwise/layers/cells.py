"""Recurrent cells: one step of each, as its equation. They know nothing of time loops, padding or kernels.

A cell multiplies the inputs of all steps at once (`project`), then computes the next state from the last (`step`).
Every value of a step passes through `record(name, value)`; the names are in `gates`. The recurrent matrix is an
argument of `step`, because weight dropout replaces it for a whole sequence.

Weights are stacked per gate, in PyTorch's order: LSTM i, f, g, o; GRU r, z, n.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn, sigmoid, tanh

from seqwise.config import RecurrentSettings
from seqwise.errors import UsageError, suggest
from seqwise.families import ModelFamily, get_family
from seqwise.layers.initialise import forget_bias_, he_, orthogonal_, xavier_
from seqwise.layers.norm import LayerNorm

RecordFunction = Callable[[str, Tensor], Tensor]
State = tuple[Tensor, ...]  # (h,) or (h, c), each (B, U)

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": tanh,
    "relu": torch.relu,
    "sigmoid": sigmoid,
    "identity": lambda a: a,
}


def record_nothing(name: str, value: Tensor) -> Tensor:
    """Records nothing: the value is returned unchanged."""
    return value


class Cell(nn.Module):
    """What all cells share: stacked weights, the product of all inputs, a state of zeros."""

    name: str
    gates: tuple[str, ...]  # names of all values that `step` records: gates, candidates and states
    blocks: int  # matrices stacked in weight_input and weight_hidden
    bias: nn.Parameter | None

    def __init__(self, inputs: int, units: int):
        super().__init__()
        if inputs < 1 or units < 1:
            raise UsageError(f"expected at least one input and one unit, received {inputs} and {units}.")
        self.inputs, self.units = inputs, units
        self.weight_input = nn.Parameter(torch.empty(self.blocks * units, inputs))
        self.weight_hidden = nn.Parameter(torch.empty(self.blocks * units, units))
        self.bias = nn.Parameter(torch.zeros(self.blocks * units))
        xavier_(self.weight_input, self.blocks)
        orthogonal_(self.weight_hidden, self.blocks)

    def project(self, x: Tensor) -> Tensor:
        """Returns the input's part of every gate at all steps, (B, T, blocks·U), for x (B, T, D)."""
        return F.linear(x, self.weight_input, self.bias)

    def start(self, batch: int, like: Tensor) -> State:
        """Returns a state of zeros for `batch` sequences, with the dtype and device of `like`."""
        return (like.new_zeros(batch, self.units),)

    def step(self, x: Tensor, state: State, weight_hidden: Tensor, record: RecordFunction = record_nothing) -> State:
        """Returns the new state, its first entry the output, for projected input (B, blocks·U) and the old state."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{self.inputs}, {self.units}"


class RNNCell(Cell):
    """h = φ(W x + U h + b) (Elman 1990)."""

    name, blocks = "rnn", 1
    gates: tuple[str, ...] = ("preactivation", "hidden")

    def __init__(self, inputs: int, units: int, activation: str = "tanh"):
        super().__init__(inputs, units)
        if activation not in ACTIVATIONS:
            raise UsageError(f"unknown activation {activation!r}.", fix=suggest(activation, ACTIVATIONS))
        self.activation = activation
        if activation == "relu":
            he_(self.weight_input)

    def step(self, x: Tensor, state: State, weight_hidden: Tensor, record: RecordFunction = record_nothing) -> State:
        (h,) = state
        a = record("preactivation", x + F.linear(h, weight_hidden))
        h = record("hidden", ACTIVATIONS[self.activation](a))
        return (h,)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.activation}"


class LSTMCell(Cell):
    """Long short-term memory with a forget gate (Hochreiter & Schmidhuber 1997; Gers et al. 2000)."""

    name, blocks = "lstm", 4
    gates: tuple[str, ...] = ("input", "forget", "candidate", "output", "cell", "hidden")
    bias: nn.Parameter

    def __init__(self, inputs: int, units: int, forget_bias: float = 1.0):
        super().__init__(inputs, units)
        forget_bias_(self.bias, forget_bias)

    def start(self, batch: int, like: Tensor) -> State:
        return like.new_zeros(batch, self.units), like.new_zeros(batch, self.units)

    def step(self, x: Tensor, state: State, weight_hidden: Tensor, record: RecordFunction = record_nothing) -> State:
        h, c = state
        a_i, a_f, a_g, a_o = (x + F.linear(h, weight_hidden)).chunk(4, dim=-1)
        i = record("input", sigmoid(a_i))  # how much of the candidate to write
        f = record("forget", sigmoid(a_f))  # how much of the old cell to keep
        g = record("candidate", tanh(a_g))
        o = record("output", sigmoid(a_o))  # how much of the cell to output
        c = record("cell", f * c + self.limit_input_gate(i, f) * g)  # the only path through time without a matrix
        h = record("hidden", o * tanh(c))
        return h, c

    def limit_input_gate(self, i: Tensor, f: Tensor) -> Tensor:
        """Returns the share of the candidate that is written: i."""
        return i


class CappedLSTMCell(LSTMCell):
    """An LSTM whose cell stays in [−1, 1], because at most what is forgotten is written (Melis et al. 2018).

    The recorded input gate is i before the limit.
    """

    def limit_input_gate(self, i: Tensor, f: Tensor) -> Tensor:
        """Returns min(i, 1 − f)."""
        return torch.minimum(i, 1 - f)


class GatedCell(Cell):
    """What the gated recurrent units share (Cho et al. 2014): names, and how the update gate z blends."""

    name, blocks = "gru", 3
    gates: tuple[str, ...] = ("reset", "update", "candidate", "hidden")

    def blend(self, z: Tensor, h: Tensor, n: Tensor) -> Tensor:
        """Returns the new state; z near 1 keeps the old one (Cho et al. 2014, eq. 7)."""
        return z * h + (1 - z) * n


class ReplacingUpdate:
    """Mixin for the other convention of the update gate."""

    def blend(self, z: Tensor, h: Tensor, n: Tensor) -> Tensor:
        """Returns the new state; z near 1 replaces the old one (Chung et al. 2014, section 3.2)."""
        return (1 - z) * h + z * n


class GRUCell(GatedCell):
    """As in PyTorch, Keras and cuDNN: the reset gate acts after the product; z near 1 keeps the old state."""

    def __init__(self, inputs: int, units: int):
        super().__init__(inputs, units)
        self.bias_hidden = nn.Parameter(torch.zeros(units))  # gated by r, so it is not the same as the other bias

    def step(self, x: Tensor, state: State, weight_hidden: Tensor, record: RecordFunction = record_nothing) -> State:
        (h,) = state
        x_r, x_z, x_n = x.chunk(3, dim=-1)
        u_r, u_z, u_n = F.linear(h, weight_hidden).chunk(3, dim=-1)
        r = record("reset", sigmoid(x_r + u_r))
        z = record("update", sigmoid(x_z + u_z))
        n = record("candidate", tanh(x_n + r * (u_n + self.bias_hidden)))
        h = record("hidden", self.blend(z, h, n))
        return (h,)


class EarlyResetGRUCell(GatedCell):
    """As published (Cho et al. 2014, eq. 8): the reset gate acts before the product; z near 1 keeps the old state."""

    def step(self, x: Tensor, state: State, weight_hidden: Tensor, record: RecordFunction = record_nothing) -> State:
        (h,) = state
        x_r, x_z, x_n = x.chunk(3, dim=-1)
        U_r, U_z, U_n = weight_hidden.chunk(3)
        r = record("reset", sigmoid(x_r + F.linear(h, U_r)))
        z = record("update", sigmoid(x_z + F.linear(h, U_z)))
        n = record("candidate", tanh(x_n + F.linear(r * h, U_n)))
        h = record("hidden", self.blend(z, h, n))
        return (h,)


class ReplacingGRUCell(ReplacingUpdate, GRUCell):
    """The reset gate acts after the product; z near 1 replaces the old state."""


class EarlyResetReplacingGRUCell(ReplacingUpdate, EarlyResetGRUCell):
    """The reset gate acts before the product; z near 1 replaces the old state (Chung et al. 2014)."""


class LayerNormRNNCell(RNNCell):
    """h = φ(LN(W x + U h)) (Ba et al. 2016, eq. 4). The norm's bias takes the place of b."""

    gates = ("preactivation", "norm.norm", "hidden")

    def __init__(self, inputs: int, units: int, activation: str = "tanh"):
        super().__init__(inputs, units, activation)
        self.bias = None
        self.norm = LayerNorm(units)

    def step(self, x: Tensor, state: State, weight_hidden: Tensor, record: RecordFunction = record_nothing) -> State:
        (h,) = state
        a = record("preactivation", x + F.linear(h, weight_hidden))
        a = record("norm.norm", self.norm.normalise(a))
        h = record("hidden", ACTIVATIONS[self.activation](a))
        return (h,)


class LayerNormLSTMCell(LSTMCell):
    """W x, U h and the c in h = o · tanh(c) are normalised (Ba et al. 2016, supplement); the c passed on is not."""

    gates = ("hidden_norm.norm", *LSTMCell.gates[:5], "cell_norm.norm", "hidden")

    def __init__(self, inputs: int, units: int, forget_bias: float = 1.0):
        super().__init__(inputs, units, forget_bias)
        self.input_norm, self.hidden_norm = LayerNorm(4 * units), LayerNorm(4 * units)
        self.cell_norm = LayerNorm(units)

    def project(self, x: Tensor) -> Tensor:
        return self.input_norm(F.linear(x, self.weight_input)) + self.bias

    def step(self, x: Tensor, state: State, weight_hidden: Tensor, record: RecordFunction = record_nothing) -> State:
        h, c = state
        u = record("hidden_norm.norm", self.hidden_norm.normalise(F.linear(h, weight_hidden)))
        a_i, a_f, a_g, a_o = (x + u).chunk(4, dim=-1)
        i = record("input", sigmoid(a_i))
        f = record("forget", sigmoid(a_f))
        g = record("candidate", tanh(a_g))
        o = record("output", sigmoid(a_o))
        c = record("cell", f * c + i * g)
        h = record("hidden", o * tanh(record("cell_norm.norm", self.cell_norm.normalise(c))))
        return h, c


class LayerNormGRUCell(GatedCell):
    """Gates and candidate are normalised separately (Ba et al. 2016, supplement); z near 1 keeps the old state.

    The reset gate acts after the product. The norms' biases take the place of the cell's.
    """

    gates = ("gates_norm.norm", "candidate_norm.norm", *GatedCell.gates)

    def __init__(self, inputs: int, units: int):
        super().__init__(inputs, units)
        self.bias = None
        self.input_gates_norm, self.gates_norm = LayerNorm(2 * units), LayerNorm(2 * units)
        self.input_candidate_norm, self.candidate_norm = LayerNorm(units), LayerNorm(units)

    def project(self, x: Tensor) -> Tensor:
        gates, candidate = F.linear(x, self.weight_input).split([2 * self.units, self.units], dim=-1)
        return torch.cat([self.input_gates_norm(gates), self.input_candidate_norm(candidate)], dim=-1)

    def step(self, x: Tensor, state: State, weight_hidden: Tensor, record: RecordFunction = record_nothing) -> State:
        (h,) = state
        gates, candidate = F.linear(h, weight_hidden).split([2 * self.units, self.units], dim=-1)
        x_r, x_z, x_n = x.chunk(3, dim=-1)
        u_r, u_z = record("gates_norm.norm", self.gates_norm.normalise(gates)).chunk(2, dim=-1)
        u_n = record("candidate_norm.norm", self.candidate_norm.normalise(candidate))
        r = record("reset", sigmoid(x_r + u_r))
        z = record("update", sigmoid(x_z + u_z))
        n = record("candidate", tanh(x_n + r * u_n))
        h = record("hidden", self.blend(z, h, n))
        return (h,)


class LayerNormReplacingGRUCell(ReplacingUpdate, LayerNormGRUCell):
    """As published by Ba et al. 2016; z near 1 replaces the old state."""


GRU_CELLS: dict[tuple[str, str, bool], type[GatedCell]] = {  # reset, update, layer norm
    ("after", "keeps", False): GRUCell,
    ("after", "replaces", False): ReplacingGRUCell,
    ("before", "keeps", False): EarlyResetGRUCell,
    ("before", "replaces", False): EarlyResetReplacingGRUCell,
    ("after", "keeps", True): LayerNormGRUCell,
    ("after", "replaces", True): LayerNormReplacingGRUCell,
}


def make_cell(name: str, inputs: int, units: int, settings: RecurrentSettings) -> Cell:
    """Returns the cell that the settings ask for. Settings of other cells are ignored."""
    if name == "rnn":
        return (LayerNormRNNCell if settings.layer_norm else RNNCell)(inputs, units, settings.activation)
    if name == "lstm":
        bias = {} if settings.forget_bias is None else {"forget_bias": settings.forget_bias}
        return _choose_lstm_class(settings)(inputs, units, **bias)
    if name != "gru":
        family = get_family(name)
        if family.build is None or not family.is_recurrent:
            raise UsageError(f"unknown recurrent cell {name!r}.", fix=suggest(name, ("rnn", "lstm", "gru")))
        return _build_registered_cell(family, inputs, units)
    cell_class = GRU_CELLS.get((settings.reset, settings.update, settings.layer_norm))
    if cell_class is None:
        raise UsageError(
            "layer normalisation in a GRU is defined with the reset gate after the matrix product (Ba et al. 2016).",
            fix="Pass --recurrent.reset after, or leave --recurrent.layer-norm out.",
        )
    return cell_class(inputs, units)


def _choose_lstm_class(settings: RecurrentSettings) -> type[LSTMCell]:
    if settings.layer_norm and settings.cap_input_gate:
        problem = "an LSTM with layer normalisation has no capped input gate."
        raise UsageError(problem, fix="Leave out --recurrent.layer-norm or --recurrent.cap-input-gate.")
    return CappedLSTMCell if settings.cap_input_gate else LayerNormLSTMCell if settings.layer_norm else LSTMCell


def _build_registered_cell(family: ModelFamily, inputs: int, units: int) -> Cell:
    """Returns the cell of a family that the user has registered; settings of the built-in cells do not apply to it."""
    cell: Cell = family.build(inputs, units)  # type: ignore[misc]
    missing = [key for key in ("name", "gates", "blocks", "inputs", "units", "weight_hidden") if not hasattr(cell, key)]
    if missing:
        problem = f"the cell {family.name} has no {missing[0]}."
        raise UsageError(problem, fix="Derive it from seqwise.layers.cells.Cell; see examples/03_your_own_cell.py.")
    return cell
