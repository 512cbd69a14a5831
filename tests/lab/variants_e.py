"""Deliberately wrong variants of chapter E's experiments: each must change the verdict."""

from __future__ import annotations

from torch import sigmoid

from seqwise.lab.gru.e1_sigmoid_symmetry import SigmoidSymmetry
from seqwise.lab.gru.e2_e3_update_gate import RememberingGates, UpdateGate
from seqwise.lab.gru.e4_reset_order import ResetOrder
from seqwise.lab.gru.e5_lstm_or_gru import LSTMOrGRU
from seqwise.lab.gru.e6_merged_gates import MergedGates


class MissingSign(SigmoidSymmetry):
    """Computes σ(x) instead of σ(−x)."""

    def compute_left(self, x):
        return sigmoid(x)


class OneConvention(UpdateGate):
    """Takes the cell in which z replaces for both, so that the claim looks true everywhere."""

    def measure_changes(self, cell, x, h, levels):
        other = self.build_cells()["replaces"]
        other.load_state_dict(cell.state_dict())
        return super().measure_changes(other, x, h, levels)


class ExchangedConventions(RememberingGates):
    """Mistakes the cell in which z keeps for the one in which it replaces."""

    def build_cells(self):
        cells = super().build_cells()
        return {"keeps": cells["replaces"], "replaces": cells["keeps"]}


class SameCellTwice(ResetOrder):
    """Compares the cell that resets after the product with itself."""

    def build_cells(self):
        after, _ = super().build_cells()
        return after, after


class SingleTask(LSTMOrGRU):
    """Concludes from one task."""

    def parse_tasks(self):
        return ["recall"]


class EqualGates(MergedGates):
    """Couples i = f instead of i = 1 − f."""

    def negate(self, weights):
        return weights


VARIANTS = {
    "E1": MissingSign,
    "E2": OneConvention,
    "E3": ExchangedConventions,
    "E4": SameCellTwice,
    "E5": SingleTask,
    "E6": EqualGates,
}

# Statements whose verdict the textbook leaves open, or that the measurement contradicts: id → verdict
FOUND: dict[str, str] = {
    "E6": "holds",  # exactly while the reset gate is 1; the evidence says that the reset gate has no counterpart
}
