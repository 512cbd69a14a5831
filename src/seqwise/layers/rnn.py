"""`LSTM`, `GRU` and `RNN` with the arguments, parameters and results of `torch.nn`'s, by faster scans.

    from seqwise.layers import LSTM                      # instead of: from torch.nn import LSTM
    lstm = LSTM(256, 512, num_layers=2, bidirectional=True, batch_first=True)
    outputs, (h, c) = lstm(x)

Each class is a subclass of PyTorch's. Parameters have PyTorch's names (`weight_ih_l0`, `bias_hh_l1_reverse`, …), shapes
and initial values, so a `state_dict` of either loads into the other, and `from_torch` and `to_torch` convert modules.
If no scan of this package is faster, PyTorch's own `forward` runs on the same weights.

Beyond PyTorch, `forward` takes `lengths` as an alternative to a `PackedSequence`, and activations can be recorded.
Cells with other equations are in `cells.py`, layers made of them in `recurrent.py`. This module knows nothing of
kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqwise.errors import UsageError
from seqwise.layers.cells import Cell, GRUCell, LSTMCell, RNNCell
from seqwise.layers.record import is_recorded_within
from seqwise.layers.recurrent import Bidirectional, Recurrent
from seqwise.layers.scan import CELL_SPECS, choose_backend

State = Any  # h (layers · directions, B, U), or (h, c) of an LSTM; without B if the input has no batch dimension


class _SharedWeightsCell(Cell):
    """A cell without parameters of its own: it reads the weights of one layer and direction of the module `owner`."""

    # An `nn.RNNBase`, set before each scan; in `__dict__`, so that it does not become a submodule of its own cell.
    owner: Any

    def __init__(self, inputs: int, owner: Any, suffix: str):
        nn.Module.__init__(self)
        self.inputs, self.units, self.suffix = inputs, owner.hidden_size, suffix
        self.activation = getattr(owner, "nonlinearity", "tanh")

    @property
    def weight_input(self) -> Tensor:  # type: ignore[override]
        return getattr(self.owner, f"weight_ih_{self.suffix}")

    @property
    def weight_hidden(self) -> Tensor:  # type: ignore[override]
        return getattr(self.owner, f"weight_hh_{self.suffix}")

    @property
    def bias(self) -> Tensor:  # type: ignore[override]
        """The sum of PyTorch's two biases; of a GRU's candidate only the first, since the second is `bias_hidden`."""
        bias_hh = self._bias_hh
        if isinstance(self, GRUCell):
            bias_hh = F.pad(bias_hh[: 2 * self.units], (0, self.units))
        return getattr(self.owner, f"bias_ih_{self.suffix}") + bias_hh if self.owner.bias else bias_hh

    @property
    def _bias_hh(self) -> Tensor:
        """PyTorch's second bias; zeros for a module without biases."""
        weight = self.weight_hidden
        return getattr(self.owner, f"bias_hh_{self.suffix}") if self.owner.bias else weight.new_zeros(len(weight))


class _LSTMCell(_SharedWeightsCell, LSTMCell):  # type: ignore[misc]
    pass


class _RNNCell(_SharedWeightsCell, RNNCell):
    pass


class _GRUCell(_SharedWeightsCell, GRUCell):
    @property
    def bias_hidden(self) -> Tensor:  # type: ignore[override]
        """The candidate's second bias, which the reset gate multiplies."""
        return self._bias_hh[2 * self.units :]


# These cells have the same equations, so the same scans.
CELL_SPECS |= {_LSTMCell: CELL_SPECS[LSTMCell], _GRUCell: CELL_SPECS[GRUCell], _RNNCell: CELL_SPECS[RNNCell]}


class _TorchCompatible(nn.RNNBase):
    """The base of the three classes: `forward` and conversions; everything else is inherited from `torch.nn`."""

    torch_class: ClassVar[type[nn.RNNBase]]
    cell_class: ClassVar[type[_SharedWeightsCell]]

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._build_layers()

    def _build_layers(self) -> None:
        """Creates the layers that scan with this module's weights."""
        suffixes = ("", "_reverse") if self.bidirectional else ("",)
        self.layer = nn.ModuleList()  # has no parameters, but gives values their names: `layer.0.lstm.forget`
        for index in range(self.num_layers):
            inputs = self.hidden_size * len(suffixes) if index else self.input_size
            layers = [Recurrent(self.cell_class(inputs, self, f"l{index}{suffix}")) for suffix in suffixes]
            self.layer.append(Bidirectional(*layers) if self.bidirectional else layers[0])

    @classmethod
    def from_torch(cls, module: nn.RNNBase) -> Self:
        """Returns a copy of PyTorch's module as this class: the same settings, weights, device, dtype and mode."""
        if not isinstance(module, cls.torch_class):
            expected = f"torch.nn.{cls.torch_class.__name__}"
            raise UsageError(f"expected a {expected}, received a {type(module).__name__}.")
        converted: Any = deepcopy(module)
        converted.__class__ = cls
        converted._build_layers()
        converted.flatten_parameters()
        return converted

    def to_torch(self) -> nn.RNNBase:
        """Returns a copy of this module as PyTorch's class."""
        converted: Any = deepcopy(self)
        converted.__class__ = self.torch_class
        del converted.layer
        converted.flatten_parameters()
        return converted

    def forward(
        self, input: Tensor | PackedSequence, hx: State = None, *, lengths: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, State]:
        """Returns the outputs and the final state, both as `torch.nn` does.

        `lengths` (B,) is the number of valid steps of each sequence: later outputs are zero, the final state is the
        state after the last valid step, and the backward direction begins there, as for a `PackedSequence`.
        """
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise UsageError("a PackedSequence has its own lengths; received lengths as well.")
            return self._forward_packed(input, hx)
        is_unbatched = input.dim() == 2 and all(tensor.dim() == 2 for tensor in _list_tensors(hx))
        if not is_unbatched:
            return self._forward_padded(input, hx, lengths)
        if lengths is not None:
            raise UsageError("lengths belong to a batch; received a single sequence with lengths.")
        batch_dim = 0 if self.batch_first else 1
        outputs, final_state = self._forward_padded(
            input.unsqueeze(batch_dim), _map_state(hx, lambda tensor: tensor.unsqueeze(1)), None
        )
        return outputs.squeeze(batch_dim), _map_state(final_state, lambda tensor: tensor.squeeze(1))

    def _forward_padded(self, input: Tensor, hx: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        x = input if self.batch_first or input.dim() != 3 else input.transpose(0, 1)
        if self._should_scan(x, lengths):
            self.check_input(input, None)
            if hx is not None:
                self.check_forward_args(input, hx, None)
            outputs, final_state = self._scan(x, hx, lengths)
            return outputs if self.batch_first else outputs.transpose(0, 1), final_state
        if lengths is None:
            return super().forward(input, hx)
        packed = pack_padded_sequence(input, lengths.cpu(), self.batch_first, enforce_sorted=False)
        outputs, final_state = super().forward(packed, hx)
        return pad_packed_sequence(outputs, self.batch_first, total_length=x.shape[1])[0], final_state

    def _forward_packed(self, packed: PackedSequence, hx: State) -> tuple[PackedSequence, State]:
        data, batch_sizes, sorted_indices, unsorted_indices = packed
        shape = (int(batch_sizes[0]), len(batch_sizes), data.shape[-1])
        sorted_lengths = (torch.arange(shape[0])[:, None] < batch_sizes).sum(1)
        # Choosing a backend needs the shape only: the data is padded if a scan of this package runs.
        if not self._should_scan(data.new_empty(1).expand(shape), sorted_lengths):
            return super().forward(packed, hx)
        self.check_input(data, batch_sizes)
        if hx is not None:
            self.check_forward_args(data, hx, batch_sizes)
        x, lengths = pad_packed_sequence(packed, batch_first=True)
        outputs, final_state = self._scan(x, hx, lengths)
        outputs = outputs if sorted_indices is None else outputs[sorted_indices]
        data = pack_padded_sequence(outputs, sorted_lengths, batch_first=True).data
        return PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices), final_state

    def _should_scan(self, x: Tensor, lengths: Tensor | None) -> bool:
        """Returns whether a scan of this package computes this call of x (B, T, D), rather than PyTorch's `forward`."""
        if x.dim() != 3 or x.numel() == 0 or x.shape[-1] != self.input_size or self.proj_size:
            return False
        cell = self._set_weight_owner()
        if is_recorded_within(self) or choose_backend(cell, x, lengths, 1 + self.bidirectional) != "aten":
            return True
        return lengths is not None and not bool((lengths > 0).all())  # PyTorch refuses empty sequences

    def _set_weight_owner(self) -> Cell:
        """Lets the cells read this module's weights, also if it is a replica of another; returns the first cell."""
        cells = [module for module in self.layer.modules() if isinstance(module, _SharedWeightsCell)]
        for cell in cells:
            cell.__dict__["owner"] = self
        return cells[0]

    def _scan(self, x: Tensor, hx: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """Returns the outputs (B, T, directions · U) of x (B, T, D), and the final state."""
        final_states: list[tuple[Tensor, ...]] = []  # of each layer and direction
        for index, layer in enumerate(self.layer):
            x = F.dropout(x, self.dropout, self.training) if index else x
            if self.bidirectional:
                initial_states = [tuple(tensor[2 * index + d] for tensor in _list_tensors(hx)) for d in (0, 1)]
                x, states = layer(x, None if hx is None else initial_states, lengths)
                final_states += states
            else:
                initial_state = tuple(tensor[index] for tensor in _list_tensors(hx))
                x, state = layer(x, None if hx is None else initial_state, lengths)
                final_states.append(state)
        h, *c = (torch.stack(tensors) for tensors in zip(*final_states, strict=True))
        return x, (h, *c) if c else h


class LSTM(_TorchCompatible, nn.LSTM):  # type: ignore[misc]
    """`torch.nn.LSTM`, by faster scans: arguments, parameters and results are PyTorch's."""

    torch_class, cell_class = nn.LSTM, _LSTMCell


class GRU(_TorchCompatible, nn.GRU):  # type: ignore[misc]
    """`torch.nn.GRU`, by faster scans: arguments, parameters and results are PyTorch's."""

    torch_class, cell_class = nn.GRU, _GRUCell


class RNN(_TorchCompatible, nn.RNN):  # type: ignore[misc]
    """`torch.nn.RNN`, by faster scans: arguments, parameters and results are PyTorch's."""

    torch_class, cell_class = nn.RNN, _RNNCell


def _list_tensors(hx: State) -> tuple[Tensor, ...]:
    """Returns the tensors of a state: none, (h,), or (h, c)."""
    if hx is None:
        return ()
    return (hx,) if isinstance(hx, Tensor) else tuple(hx)


def _map_state(hx: State, function: Callable[[Tensor], Tensor]) -> State:
    """Applies a function to each tensor of a state."""
    if hx is None:
        return None
    return function(hx) if isinstance(hx, Tensor) else tuple(function(tensor) for tensor in hx)
