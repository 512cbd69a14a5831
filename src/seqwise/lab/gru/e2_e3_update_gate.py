"""E2, E3: what does the update gate z of a GRU keep, and what is remembered with z near 1 and r near 0?

    z keeps      h_t = z ⊙ h_(t−1) + (1 − z) ⊙ n      Cho et al. 2014, eq. 7; PyTorch, Keras, cuDNN
    z replaces   h_t = (1 − z) ⊙ h_(t−1) + z ⊙ n      Chung et al. 2014, section 3.2

E2: both conventions are in print, and a sentence about z is true in one of them and false in the other. They are the
same family of functions: since 1 − σ(a) = σ(−a) (E1), negating the weights and the bias of the update gate turns one
cell into the other. A trained network does not care; a reader of its gates must.

E3: the candidate is n = tanh(W x + r ⊙ (U h_(t−1) + b)). In the convention in which z replaces, z near 1 removes the
old state and r near 0 removes it from the candidate, so the new state depends on x_t alone: this is how such a GRU
forgets. It remembers with z near 0, whatever r is. In the convention in which z keeps, z near 1 remembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide, decide_condition
from seqwise.lab.lstm.unroll import step
from seqwise.layers import GRUCell, ReplacingGRUCell
from seqwise.page.figures import Figure, Heatmap, LineChart, Series


@dataclass(frozen=True, kw_only=True)
class GRUPair(Experiment):
    """Two GRU cells with the same random weights and different conventions of the update gate."""

    units: int = 16
    """Units, and width of the input."""

    def build_cells(self) -> dict[str, GRUCell]:
        """Returns the cell in which z keeps, and the one in which it replaces, with the same weights."""
        cells = {"keeps": GRUCell(self.units, self.units), "replaces": ReplacingGRUCell(self.units, self.units)}
        cells["keeps"].bias.normal_()
        cells["replaces"].load_state_dict(cells["keeps"].state_dict())
        return {name: cell.double().requires_grad_(False) for name, cell in cells.items()}

    def draw_vector(self) -> Tensor:
        """Returns a random input or state, (1, U), with entries between −1 and 1, as states have."""
        return 2 * torch.rand(1, self.units, dtype=torch.float64) - 1


@dataclass(frozen=True, kw_only=True)
class UpdateGate(GRUPair):
    id = "E2"
    claim = "Update gate near 0 keeps the state."
    equation = "z ≈ 0  ⇒  h_t ≈ h_(t−1)"
    measurement = "The change of the state in one step with z forced to values from 0 to 1, in both conventions."
    rule = "True of a convention if z near 0 changes the state by less than 5 %; negated weights must exchange the two."
    try_next = "seqwise lab run E2 --near 0.3: a gate that is only roughly closed keeps the state only roughly."
    seconds = 0.1
    minimums: ClassVar = {"near": 0.0}
    maximums: ClassVar = {"near": 0.5}

    near: float = 0.01
    """Value of the gate that counts as near 0."""

    def measure(self) -> Measured:
        with torch.no_grad():
            cells, x, h = self.build_cells(), self.draw_vector(), self.draw_vector()
            levels = np.linspace(0, 1, 21)
            changes = {name: self.measure_changes(cell, x, h, levels) for name, cell in cells.items()}
            near = {name: float(self.measure_changes(cell, x, h, [self.near])[0]) for name, cell in cells.items()}
            expected = step(cells["keeps"], x, (h,))[0]
            return {
                **{f"change_where_z_{name}": each for name, each in near.items()},
                "error_with_negated_weights": float((step(self.negate(cells), x, (h,))[0] - expected).abs().max()),
                "difference_without_negated_weights": float(
                    (step(cells["replaces"], x, (h,))[0] - expected).abs().max()
                ),
                "difference_from_pytorch_where_z_keeps": float(
                    (run_torch(cells["keeps"], x, h) - expected).abs().max()
                ),
                "levels": levels,
                **{f"changes_{name}": each for name, each in changes.items()},
            }

    def measure_changes(self, cell: GRUCell, x: Tensor, h: Tensor, levels: Sequence[float] | np.ndarray) -> np.ndarray:
        """Returns ‖h_t − h_(t−1)‖ / ‖h_(t−1)‖ for each value of the update gate."""
        new = [step(cell, x, (h,), {"update": float(level)})[0] for level in levels]
        return np.array([float((each - h).norm() / h.norm()) for each in new])

    def negate(self, cells: dict[str, GRUCell]) -> GRUCell:
        """Returns the cell in which z replaces, with the update gate's weights and bias negated."""
        cell = cells["replaces"].__class__(self.units, self.units).double().requires_grad_(False)
        cell.load_state_dict(cells["replaces"].state_dict())
        for parameter in (cell.weight_input, cell.weight_hidden, cell.bias):
            parameter.chunk(3)[1].neg_()
        return cell

    def judge(self, measured: Measured) -> Verdict:
        replaces, keeps = measured["change_where_z_replaces"], measured["change_where_z_keeps"]
        error = measured["error_with_negated_weights"]
        return decide_condition(
            replaces < 0.05 and error < 1e-12,
            keeps < 0.05,
            condition="z multiplies the candidate (Chung et al. 2014); in PyTorch and Keras z near 1 keeps the state",
            evidence=f"z = {self.near:g} changes the state by {100 * replaces:.1f} % where z replaces and by "
            f"{100 * keeps:.0f} % where z keeps; with the update gate's weights negated the two cells agree to "
            f"{error:.1g}.",
            instead=f"A gate of z = {self.near:g} keeps the state in neither convention."
            if error < 1e-12
            else "Negating the update gate's weights does not turn one convention into the other.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"z keeps (PyTorch, Keras)": "keeps", "z replaces (Chung 2014)": "replaces"}
        return [
            LineChart(
                title="Change of a GRU's state in one step against its update gate, in both conventions",
                series=[
                    Series(name=name, x=measured["levels"], y=measured[f"changes_{key}"]) for name, key in names.items()
                ],
                x_label="update gate z",
                y_label="‖h_t − h_(t−1)‖ / ‖h_(t−1)‖",
                note="The lines are mirror images: what one convention calls z the other calls 1 − z.",
            )
        ]


def run_torch(cell: GRUCell, x: Tensor, h: Tensor) -> Tensor:
    """Returns the new state by PyTorch's own cell with the same weights."""
    other = nn.GRUCell(cell.inputs, cell.units, dtype=x.dtype)
    other.weight_ih, other.weight_hh = cell.weight_input, cell.weight_hidden
    other.bias_ih = cell.bias
    other.bias_hh = nn.Parameter(torch.cat([torch.zeros(2 * cell.units, dtype=x.dtype), cell.bias_hidden]))
    return other(x, h)


CORNERS = ((1, 0), (1, 1), (0, 0), (0, 1))  # values of z and r


@dataclass(frozen=True, kw_only=True)
class RememberingGates(GRUPair):
    id = "E3"
    claim = "z near 1 and r near 0 remembers the past."
    equation = "z ≈ 1, r ≈ 0  ⇒  h_t ≈ h_(t−1), in h_t = (1 − z) ⊙ h_(t−1) + z ⊙ n"
    measurement = "How much of the difference between two past states, and between two inputs, is left in h_t."
    rule = "Holds if, where z replaces, more than half of the difference between two past states is left."
    try_next = "seqwise lab run E3 --near 0.2: gates that are less extreme mix past and input."
    seconds = 0.1
    minimums: ClassVar = {"near": 0.0}
    maximums: ClassVar = {"near": 0.5}

    near: float = 0.01
    """Distance of the gates from 0 and 1."""

    def measure(self) -> Measured:
        with torch.no_grad():
            cells = self.build_cells()
            pairs = [[self.draw_vector() for _ in range(4)] for _ in range(20)]  # x, x′, h, h′
            shares = np.array(
                [[self.measure_shares(cell, corner, pairs) for cell in cells.values()] for corner in CORNERS]
            )  # (corner, convention, past or input)
        return {
            "past_left_where_z_replaces": float(shares[0, 1, 0]),
            "input_left_where_z_replaces": float(shares[0, 1, 1]),
            "past_left_where_z_keeps": float(shares[0, 0, 0]),
            "input_left_where_z_keeps": float(shares[0, 0, 1]),
            "shares": shares,
        }

    def measure_shares(self, cell: GRUCell, corner: tuple[int, int], pairs: list[list[Tensor]]) -> tuple[float, float]:
        """Returns ‖h_t − h_t′‖ relative to the difference of two past states, and of two inputs."""
        z, r = (abs(level - self.near) for level in corner)
        shares = []
        for x, other_x, h, other_h in pairs:
            new, other_past, other_input = (
                step(cell, each_x, (each_h,), {"update": z, "reset": r})[0]
                for each_x, each_h in ((x, h), (x, other_h), (other_x, h))
            )
            past = float((new - other_past).norm() / (h - other_h).norm())
            shares.append((past, float((new - other_input).norm() / (x - other_x).norm())))
        past, from_input = np.mean(shares, axis=0)
        return float(past), float(from_input)

    def judge(self, measured: Measured) -> Verdict:
        past, from_input = measured["past_left_where_z_replaces"], measured["input_left_where_z_replaces"]
        return decide(
            past > 0.5,
            evidence=f"Where z replaces, {100 * past:.1f} % of the difference between two past states is left and "
            f"{100 * from_input:.0f} % of that between two inputs; where z keeps, "
            f"{100 * measured['past_left_where_z_keeps']:.0f} % and "
            f"{100 * measured['input_left_where_z_keeps']:.1f} %.",
            instead=f"Where z replaces, z near 1 and r near 0 forgets: {100 * past:.1f} % of a difference in the past "
            "is left. It remembers with z near 0; only in the convention of PyTorch and Keras does z near 1 remember.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        return [
            Heatmap(
                title="What the new state of a GRU depends on, for extreme gates",
                values=measured["shares"][:, ::-1].reshape(len(CORNERS), 4).T,
                rows=[f"{what}, z {name}" for name in ("replaces", "keeps") for what in ("past", "input")],
                columns=[f"{z}, {r}" for z, r in CORNERS],
                row_label="what differs, and convention",
                column_label="z, r (near these values)",
                value_label="share of the difference that is left in h_t",
                low=0.0,
                note=f"First column: {100 * measured['past_left_where_z_replaces']:.1f} % of the past is left where z "
                f"replaces and {100 * measured['past_left_where_z_keeps']:.1f} % where z keeps.",
            )
        ]
