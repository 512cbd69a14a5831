"""G2: do sinusoids give each position its own code? G3: is a shift of the position a linear map of the code?

    PE(p) = (sin ω₁p, cos ω₁p, sin ω₂p, cos ω₂p, …)        ωᵢ = 10000^(−2(i−1)/D)
    ‖PE(p + k) − PE(p)‖² = Σᵢ 2 (1 − cos ωᵢk)              depends on the shift k alone
    PE(p + k) = R(k) PE(p)                                 R(k): a rotation by ωᵢk in each pair of entries

Each pair (sin ωᵢp, cos ωᵢp) is the hand of a clock with period 2π/ωᵢ. One clock nearly repeats: with ω = 1 after 44
positions (7 rounds) and after 710 (113 rounds). Many clocks, with periods from 6 to 35,000 positions for D = 32, do not
repeat together; the fast ones separate neighbours, the slow ones distant positions. The smallest of all five billion
distances between 100,000 codes needs no search over pairs, because the distance depends on the shift only.

The addition theorems of sine and cosine turn a clock's hand by a shift with one rotation, the same for all positions:
this is why Vaswani et al. (2017, §3.5) expected that relative positions are easy to learn. A linear map fitted on some
positions predicts the codes at others. Codes drawn at random, as learned ones initially are, have no such map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.layers import LearnedPositions, SinusoidalPositions
from seqwise.layers.positions import BASE
from seqwise.page.figures import Figure, Heatmap, LineChart, Series

SHOWN_SHIFTS = 800  # beyond 710, where one frequency nearly repeats


@dataclass(frozen=True, kw_only=True)
class DistinctCodes(Experiment):
    id = "G2"
    claim = "Sinusoids give each position its own code."
    equation = "PE(p) ≠ PE(q) for p ≠ q;  ‖PE(p + k) − PE(p)‖² = Σᵢ 2 (1 − cos ωᵢk)"
    measurement = "The smallest distance between two codes, by the shift between them, and the rounding of float32."
    rule = "Holds if all float32 codes differ and their smallest distance is over 10 × their rounding error."
    try_next = "seqwise lab run G2 --width 2: one frequency still gives distinct codes, but 710 positions apart barely."
    seconds = 0.5
    minimums: ClassVar = {"positions": 2}

    positions: int = 100_000
    """Number of positions."""
    width: int = 32
    """Width of a code: two entries per frequency."""

    def measure(self) -> Measured:
        codes = self.encode(torch.float32)
        exact = self.encode(torch.float64)
        rounding = float((codes.double() - exact).norm(dim=1).max())
        by_shift = (exact - exact[0]).norm(dim=1)[1:].numpy()  # of the shifts 1, 2, …
        middle = exact[self.positions // 2 :]
        other = (middle - middle[0]).norm(dim=1)[1:].numpy()  # of the same shifts, from another position
        return {
            "distinct_codes": len({row.tobytes() for row in codes.numpy()}),
            "smallest_distance": float(by_shift.min()),
            "shift_of_smallest_distance": int(by_shift.argmin()) + 1,
            "largest_rounding_error": rounding,
            "error_of_distance_by_shift": float(np.abs(by_shift[: len(other)] - other).max()),
            "distances": by_shift[:SHOWN_SHIFTS],
            "distances_of_one_frequency": 2 * np.abs(np.sin(np.arange(1, SHOWN_SHIFTS + 1) / 2)),
        }

    def encode(self, dtype: torch.dtype) -> Tensor:
        """Returns the codes (positions, width)."""
        zeros = torch.zeros(1, 1, dtype=dtype).expand(self.positions, self.width)
        return SinusoidalPositions(self.width)(zeros)

    def judge(self, measured: Measured) -> Verdict:
        distinct, smallest = measured["distinct_codes"], measured["smallest_distance"]
        shift, rounding = measured["shift_of_smallest_distance"], measured["largest_rounding_error"]
        return decide(
            distinct == self.positions and smallest > 10 * max(rounding, measured["error_of_distance_by_shift"]),
            evidence=f"{distinct:,} of {self.positions:,} float32 codes are distinct; the smallest distance is "
            f"{smallest:.3g}, at a shift of {shift:,}, and the largest rounding error {rounding:.2g}.",
            instead="Some positions share a code, or differ by no more than the rounding of float32.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        shifts = np.arange(1, len(measured["distances"]) + 1)
        count = max(1, self.width // 2)
        lines = {"1 frequency" if count == 1 else f"{count} frequencies": measured["distances"]}
        if count > 1:
            lines["highest frequency alone"] = measured["distances_of_one_frequency"][: len(shifts)]
        chart = LineChart(
            title="Distance between the codes of two positions",
            series=[Series(name=name, x=shifts, y=distances) for name, distances in lines.items()],
            x_label="shift between the positions (tokens)",
            y_label="‖PE(p + k) − PE(p)‖",
            y_log=True,
            note="A single frequency nearly repeats after 44 positions, and even more nearly after 710. The smallest "
            f"distance at any shift is {measured['smallest_distance']:.2g}.",
        )
        return [chart]


@dataclass(frozen=True, kw_only=True)
class ShiftIsLinear(Experiment):
    id = "G3"
    claim = "A shift is a linear map of the code."
    equation = "PE(p + k) = R(k) PE(p) with one rotation R(k) for all p"
    measurement = "Relative error of the rotation R(k), and of a linear map fitted to other positions."
    rule = "Holds if both errors are below 10⁻⁶."
    try_next = "seqwise lab run G3 --shift 1: the rotation of the slow pairs is then close to the identity."
    seconds = 0.1

    width: int = 16
    """Width of a code: two entries per frequency."""
    shift: int = 10
    """Shift k in positions."""
    positions: int = 4096
    """Positions; the map is fitted to the first half and tested on the second."""

    def measure(self) -> Measured:
        if self.positions < 2 * self.width or self.width % 2:
            raise UsageError("G3 needs an even width, and at least twice as many positions as the width.")
        zeros = torch.zeros(self.positions + self.shift, self.width, dtype=torch.float64)
        codes = SinusoidalPositions(self.width)(zeros)
        random_codes = LearnedPositions(self.width, len(zeros)).double()(zeros).detach()
        rotation, fitted = self.build_rotation(), self.fit_map(codes)
        return {
            "error_of_rotation": self.compute_error(rotation, codes),
            "error_of_fitted_map": self.compute_error(fitted, codes),
            "error_for_random_codes": self.compute_error(self.fit_map(random_codes), random_codes),
            "largest_difference_of_fitted_map_and_rotation": float((fitted - rotation).abs().max()),
            "fitted_map": fitted.numpy(),
        }

    def build_rotation(self) -> Tensor:
        """Returns R(k): sin(a + b) = cos b sin a + sin b cos a, and cos(a + b) = −sin b sin a + cos b cos a."""
        angles = self.shift * BASE ** (-torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        pairs = zip(angles.cos().tolist(), angles.sin().tolist(), strict=True)
        return torch.block_diag(*(torch.tensor([[c, s], [-s, c]], dtype=torch.float64) for c, s in pairs))

    def fit_map(self, codes: Tensor) -> Tensor:
        """Returns the matrix M that minimises Σ ‖M PE(p) − PE(p + k)‖² over the first half of the positions."""
        half = self.positions // 2
        return torch.linalg.lstsq(codes[:half], codes[self.shift : self.shift + half]).solution.T

    def compute_error(self, matrix: Tensor, codes: Tensor) -> float:
        """Returns the relative error of the shifted codes in the second half."""
        half = self.positions // 2
        target = codes[half + self.shift :]
        return float((codes[half : len(codes) - self.shift] @ matrix.T - target).norm() / target.norm())

    def judge(self, measured: Measured) -> Verdict:
        exact, fitted = measured["error_of_rotation"], measured["error_of_fitted_map"]
        return decide(
            max(exact, fitted) < 1e-6,
            evidence=f"At unseen positions the rotation has a relative error of {exact:.1g}, the fitted map "
            f"{fitted:.1g}; for random codes a fitted map has {measured['error_for_random_codes']:.2g}.",
            instead="No single matrix shifts the codes of all positions.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = [f"{function} ω{i // 2 + 1}" for i in range(0, self.width, 2) for function in ("sin", "cos")]
        shown = min(self.width, 32)
        chart = Heatmap(
            title=f"Linear map that shifts codes by {self.shift} positions, fitted by least squares",
            values=measured["fitted_map"][:shown, :shown],
            rows=names[:shown],
            columns=names[:shown],
            row_label="entry of PE(p + k)",
            column_label="entry of PE(p)",
            value_label="weight",
            scale="diverging",
            note="Expected: in each pair of sine and cosine a rotation by the angle ωᵢk, and 0 everywhere else.",
        )
        return [chart]
