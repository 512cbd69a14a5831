"""C2: does the largest |eigenvalue| alone decide whether a product of one matrix grows or vanishes?

    ‖Wⁿ‖ = ρ(W)ⁿ            ρ(W): the largest |eigenvalue|, the spectral radius

Gelfand's formula says that ‖Wⁿ‖^(1/n) → ρ(W) for n → ∞, for every W. For a normal matrix (W Wᵀ = Wᵀ W), such as a
symmetric or an orthogonal one, ‖Wⁿ‖ = ρ(W)ⁿ holds at every n. A matrix that is not normal can first grow by orders of
magnitude although ρ(W) < 1: its eigenvectors are nearly parallel, so that large parts of a vector cancel until the
smaller ones have decayed. The gradients of a recurrent network pass through exactly such products, over tens of steps
rather than infinitely many. (With ρ(W) > 1 every matrix explodes, normal or not, since ‖Wⁿ‖ ≥ ρ(W)ⁿ.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition, format_value
from seqwise.lab.fitting import make_generator
from seqwise.layers import orthogonal_
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class SpectralRadius(Experiment):
    id = "C2"
    claim = "Growth follows the largest |eigenvalue|: above 1 explodes, below 1 vanishes."
    equation = "‖Wⁿ‖ = ρ(W)ⁿ,  ρ(W) = max |λᵢ|"
    measurement = "The norm of Wⁿ for a normal and a non-normal W of the same spectral radius, n = 1 … steps."
    rule = "True of a matrix if ‖Wⁿ‖ stays within a factor of 10 of ρⁿ for all n; tested for normal and non-normal W."
    try_next = "seqwise lab run C2 --coupling 0: without coupling the triangular matrix is diagonal, so normal."
    seconds = 0.1
    minimums: ClassVar = {"radius": 0.01, "coupling": 0.0}

    units: int = 10
    """Size of the matrix."""
    radius: float = 0.9
    """Spectral radius of both matrices."""
    coupling: float = 0.5
    """Entries next to the diagonal of the non-normal matrix; 0 makes it normal."""
    steps: int = 300
    """Largest power."""

    def measure(self) -> Measured:
        normal, non_normal = self.build_normal(), self.build_non_normal()
        norms = {"normal": self.compute_norms(normal), "non_normal": self.compute_norms(non_normal)}
        predicted = self.radius ** np.arange(1, self.steps + 1)
        return {
            "spectral_radius_normal": float(torch.linalg.eigvals(normal).abs().max()),
            "spectral_radius_non_normal": float(torch.linalg.eigvals(non_normal).abs().max()),
            "largest_norm_normal": float(norms["normal"].max()),
            "largest_norm_non_normal": float(norms["non_normal"].max()),
            "largest_ratio_to_prediction_normal": compute_largest_factor(norms["normal"], predicted),
            "largest_ratio_to_prediction_non_normal": compute_largest_factor(norms["non_normal"], predicted),
            "norms_normal": norms["normal"],
            "norms_non_normal": norms["non_normal"],
            "predicted": predicted,
        }

    def build_normal(self) -> Tensor:
        """Returns Q diag(λ) Qᵀ with an orthogonal Q and |λ| ≤ radius: symmetric, so normal."""
        generator = make_generator(self.seed)
        eigenvalues = (2 * torch.rand(self.units, dtype=torch.float64, generator=generator) - 1) * self.radius
        eigenvalues[0] = self.radius
        q = orthogonal_(torch.empty(self.units, self.units, dtype=torch.float64))
        return q @ torch.diag(eigenvalues) @ q.T

    def build_non_normal(self) -> Tensor:
        """Returns a triangular matrix: all its eigenvalues are `radius`, the entries of its diagonal."""
        above = torch.full((self.units - 1,), self.coupling, dtype=torch.float64)
        return self.radius * torch.eye(self.units, dtype=torch.float64) + torch.diag(above, 1)

    def compute_norms(self, matrix: Tensor) -> np.ndarray:
        """Returns the largest singular value of each power of the matrix."""
        power, norms = torch.eye(self.units, dtype=torch.float64), []
        for _ in range(self.steps):
            power = matrix @ power
            norms.append(float(torch.linalg.matrix_norm(power, ord=2)))
        return np.array(norms)

    def judge(self, measured: Measured) -> Verdict:
        normal, other = (measured[f"largest_ratio_to_prediction_{name}"] for name in ("normal", "non_normal"))
        return decide_condition(
            normal < 10,
            other < 10,
            condition="W is normal, or nearly so",
            evidence=f"‖Wⁿ‖ is at most {normal:.3g} times ρⁿ for the normal matrix. For the triangular "
            f"one it is up to {other:.3g} times ρⁿ; with the spectral radius {self.radius:g} it reaches "
            f"{format_value(measured['largest_norm_non_normal'])}.",
            instead="‖Wⁿ‖ is not ρⁿ even for a normal matrix.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.steps + 1)
        name = "non-normal W" if self.coupling > 0 and self.units > 1 else "diagonal W (normal)"
        names = {"normal W": "norms_normal", name: "norms_non_normal", "ρⁿ": "predicted"}
        norms = measured["norms_non_normal"]
        chart = LineChart(
            title=f"Norm of Wⁿ for two matrices of spectral radius {self.radius:g}",
            series=[Series(name=name, x=steps, y=measured[key]) for name, key in names.items()],
            x_label="power n (time steps)",
            y_label="largest singular value of Wⁿ",
            y_log=True,
            references=[Reference(axis="y", value=1.0, label="norm 1")],
            note=f"{name}: the norm is {norms[0]:.3g} at n = 1 and {norms[-1]:.3g} at n = {self.steps}; its largest "
            f"value is at n = {norms.argmax() + 1}.",
        )
        return [chart]


def compute_largest_factor(norms: np.ndarray, predicted: np.ndarray) -> float:
    """Returns the largest ratio, over the powers that floating point can represent."""
    is_represented = predicted > 1e-280
    return float((norms[is_represented] / predicted[is_represented]).max())
