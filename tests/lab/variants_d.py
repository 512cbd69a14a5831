"""Deliberately wrong variants of chapter D's experiments: each must change the verdict."""

from __future__ import annotations

import torch

from seqwise.lab.lstm.d1_d2_gates import GateRange, GateSums
from seqwise.lab.lstm.d3_zero_input import ZeroInput
from seqwise.lab.lstm.d4_closed_forget_gate import ClosedForgetGate
from seqwise.lab.lstm.d5_cell_derivative import CellDerivative
from seqwise.lab.lstm.d6_identity import IdentityCell
from seqwise.lab.lstm.d7_lstm_bptt import BackpropagationByHand
from seqwise.lab.lstm.d8_parameters import ParameterCounts
from seqwise.lab.lstm.d9_hidden_memory import HiddenMemory
from seqwise.lab.lstm.d10_additive_update import AdditiveUpdate, ProductCell
from seqwise.lab.lstm.d11_activations import Activations
from seqwise.lab.lstm.unroll import unroll
from seqwise.layers.cells import Cell


class TanhGates(GateRange):
    """Uses tanh for the forget gate: it becomes negative."""

    def compute_gates(self):
        values = super().compute_gates()
        return {**values, "forget": torch.tanh(torch.logit(values["forget"]))}


class SoftmaxGates(GateSums):
    """Normalises each gate over its units: it becomes a distribution."""

    def compute_gates(self):
        return {name: each / each.sum(-1, keepdim=True) for name, each in super().compute_gates().items()}


class ZerosArePadding(ZeroInput):
    """Skips the steps with zero input, as a mask of padding does."""

    def compute_states(self, layer, x):
        outputs = layer(x[:, : self.prefix])[0][0]
        return torch.cat([outputs, outputs[-1:].expand(self.zeros, -1)])


class NoRecurrentMatrices(ClosedForgetGate):
    """Forgets that gates and candidate read h_(t−1)."""

    def build_cell(self):
        cell = super().build_cell()
        cell.weight_hidden.zero_()
        return cell


class ConstantState(CellDerivative):
    """Forgets that h_(t−1) depends on c_(t−1), so that the total derivative is the direct one."""

    def expose(self, o, c):
        return super().expose(o, c.detach())


class DirectPathOnly(IdentityCell):
    """Multiplies the forget gates and ignores all other paths."""

    def compute_total(self, cell, x):
        with torch.no_grad():
            f = unroll(cell, x)[0]["forget"][0]
        return torch.diag_embed(f.flip(0).cumprod(0).flip(0))


class MissingCellPath(BackpropagationByHand):
    """Forgets δc_(t+1) ⊙ f_(t+1), the direct path through the cells."""

    def backpropagate(self, cell, values, grad_h):
        cut = {**values, "forget": torch.zeros_like(values["forget"])}
        return super().backpropagate(cell, cut, grad_h)


class ThreeBlockLSTM(Cell):
    """An LSTM without forget gate (Hochreiter & Schmidhuber 1997)."""

    blocks = 3


class NoForgetGate(ParameterCounts):
    """Counts the LSTM of 1997, which has no forget gate."""

    def build_cell(self, name, size):
        return ThreeBlockLSTM(size, size) if name == "lstm" else super().build_cell(name, size)


class NoOutputGate(HiddenMemory):
    """Leaves the output gate's weights at 0, so that it is always half open."""

    def build_cell(self):
        cell = super().build_cell()
        cell.weight_input[3], cell.bias[3] = 0, 0
        return cell


class ProductTwice(AdditiveUpdate):
    """Forgets the 1 in 1 + i ⊙ g, so that both products have factors far from 1."""

    def build_cell(self, name):
        return ProductCell(2, self.units) if name == "product_near_1" else super().build_cell(name)


class NothingExchanged(Activations):
    """Forgets to exchange the function of the content."""

    def build_cell(self, name):
        return super().build_cell("usual_cell" if name == "sigmoid_content" else name)


VARIANTS = {
    "D1": TanhGates,
    "D2": SoftmaxGates,
    "D3": ZerosArePadding,
    "D4": NoRecurrentMatrices,
    "D5": ConstantState,
    "D6": DirectPathOnly,
    "D7": MissingCellPath,
    "D8": NoForgetGate,
    "D9": NoOutputGate,
    "D10": ProductTwice,
    "D11": NothingExchanged,
}

# Statements whose verdict the textbook leaves open, or that the measurement contradicts: id → verdict
FOUND: dict[str, str] = {
    "D6": "holds if",  # an open input gate writes to the cell: the gradient survives, but not that of an identity
    "D10": "holds if",  # a product with factors near 1 carries gradients and values as the sum does
    "D11": "holds if",  # σ as content slows learning down many times; tanh as gate does not
}
