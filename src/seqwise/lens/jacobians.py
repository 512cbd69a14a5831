"""Derivatives of a recurrent layer's state through time.

One step maps the state s_{t−1} to s_t, where s is h, or (h, c) of an LSTM. Its Jacobian is J_t = ∂s_t/∂s_{t−1}, and

    ∂s_T/∂s_k = J_T · J_{T−1} · … · J_{k+1}                                (Pascanu et al. 2013, eq. 5)

The *Lyapunov exponents* are the mean logarithmic growth rates of perturbations along the sequence. They are computed
by repeated QR decompositions, J_t Q_{t−1} = Q_t R_t: λ_i = mean of log |R_t,ii| (Benettin et al. 1980; for RNNs
Engelken et al. 2023). For a linear RNN they are the logarithms of the absolute eigenvalues of its matrix.

In a stack of layers no layer feeds back into a lower one, so within a layer these derivatives are the total ones.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import jacrev, jvp, vmap

from seqwise.errors import UsageError
from seqwise.layers.attentive import AttentiveRecurrent
from seqwise.layers.cells import Cell, LSTMCell, State
from seqwise.layers.recurrent import Recurrent
from seqwise.lens.recurrent import RecurrentLayer
from seqwise.lens.subject import Subject

POWER_ITERATIONS = 30
LARGE_STATE, MIN_RADII = 512, 4  # entries of a state; steps whose eigenvalues are computed even if it is larger


@dataclass(frozen=True)
class Trajectory:
    """What a layer reads and its state before and after each step, of the first sequence, as the layer reads it."""

    cell: Cell
    inputs: Tensor  # (T, blocks·U), projected
    states: list[State]  # T + 1 of them, each part (U,)

    @property
    def num_steps(self) -> int:
        return len(self.inputs)

    def compute_jacobian(self, step: int) -> Tensor:
        """Returns J = ∂s_{step+1}/∂s_step, (N, N) with N the size of the whole state."""
        return jacrev(partial(self.advance, step))(torch.cat(self.states[step]))

    def multiply_by_jacobian(self, step: int, matrix: Tensor) -> Tensor:
        """Returns J · matrix (N, m) from m directional derivatives, without computing J."""
        state = torch.cat(self.states[step])

        def differentiate(direction: Tensor) -> Tensor:
            return jvp(partial(self.advance, step), (state,), (direction,))[1]

        return vmap(differentiate, in_dims=1, out_dims=1)(matrix)

    def advance(self, step: int, state: Tensor) -> Tensor:
        """Returns the whole state (N,) after a step from the one before it."""
        parts = tuple(part[None] for part in state.split([len(part) for part in self.states[step]]))
        return torch.cat(self.cell.step(self.inputs[step][None], parts, self.cell.weight_hidden.detach()), -1)[0]


def record_trajectory(subject: Subject, layer: RecurrentLayer) -> Trajectory:
    """Runs the model once and computes the states of a layer again, in double precision on the CPU."""
    owner = subject.module.get_submodule(layer.path.rpartition(".")[0])
    if not isinstance(owner, Recurrent):
        reason = "attention enters its state" if isinstance(owner, AttentiveRecurrent) else "it is not a plain layer"
        raise UsageError(
            f"the state of {layer.label} has no one-step Jacobian: {reason}.",
            fix="Choose another layer with --layer, or use --view horizon.",
        )
    calls: list[tuple[Tensor, State | None]] = []

    def keep_inputs(module: Recurrent, arguments: tuple, keywords: dict) -> None:
        state = keywords.get("state", arguments[1] if len(arguments) > 1 else None)
        calls.append((arguments[0].detach(), state))

    hook = owner.register_forward_pre_hook(keep_inputs, with_kwargs=True)
    try:
        subject.record(f"{layer.path}.*", live=True)  # a live recording runs each direction by itself
    finally:
        hook.remove()
    if not calls:
        raise UsageError(
            f"{layer.label} runs step by step inside its decoder, so its Jacobians are not available.",
            fix="Choose a layer of the encoder with --layer.",
        )
    x, state = calls[0]
    cell = deepcopy(layer.cell).cpu().double().requires_grad_(False)
    with torch.no_grad():
        inputs = cell.project(x[:1].cpu().double())[0]
        start = cell.start(1, inputs) if state is None else tuple(part[:1].cpu().double() for part in state)
        states = [start]
        for step in range(len(inputs)):
            states.append(cell.step(inputs[step][None], states[-1], cell.weight_hidden))
    return Trajectory(cell, inputs, [tuple(part[0] for part in state) for state in states])


@dataclass(frozen=True)
class GradientFlow:
    """The derivatives of a trajectory's last state, and of its steps."""

    norms: Tensor  # (T,): Frobenius norm of ∂h_T/∂h_k divided by √U, for the states after steps 1 … T
    direct: Tensor | None  # (T,): the same of the LSTM's direct path ∂c_T/∂c_k = ∏ f, alone
    singular: Tensor  # (T,): largest singular value of each step's Jacobian
    radius: Tensor  # (T,): spectral radius of each step's Jacobian; NaN where it was not computed
    exponents: Tensor  # (m,): finite-time Lyapunov exponents, the largest first


def measure_flow(trajectory: Trajectory, num_exponents: int = 8, num_radii: int = 32) -> GradientFlow:
    """Computes the derivatives through time of one layer.

    The norm is divided by √U so that an identity has norm 1. The time for eigenvalues grows with N³: they are computed
    at `num_radii` evenly spread steps, fewer if the state has more than LARGE_STATE entries.
    """
    units, steps = trajectory.cell.units, trajectory.num_steps
    size = len(torch.cat(trajectory.states[0]))
    if size > LARGE_STATE:
        num_radii = min(num_radii, max(MIN_RADII, round(num_radii * (LARGE_STATE / size) ** 3)))
    chosen = set(torch.linspace(0, steps - 1, min(steps, num_radii)).round().int().tolist())
    norms, singular = torch.ones(steps), torch.empty(steps)
    radius = torch.full((steps,), float("nan"))
    product = torch.eye(size, dtype=torch.float64)[:units]  # ∂h_T/∂s_k, from k = T down
    for step in range(steps - 1, -1, -1):
        jacobian = trajectory.compute_jacobian(step)
        norms[step] = product[:, :units].norm() / units**0.5
        singular[step] = _compute_largest_singular_value(jacobian)
        if step in chosen:
            radius[step] = torch.linalg.eigvals(jacobian).abs().max()
        product = product @ jacobian
    exponents = compute_lyapunov_exponents(trajectory, min(num_exponents, size))
    return GradientFlow(norms, _measure_direct_path(trajectory), singular, radius, exponents)


def compute_lyapunov_exponents(trajectory: Trajectory, count: int) -> Tensor:
    """Returns the `count` largest finite-time Lyapunov exponents per step, in nats."""
    generator = torch.Generator().manual_seed(0)
    size = len(torch.cat(trajectory.states[0]))
    q = torch.linalg.qr(torch.randn(size, count, dtype=torch.float64, generator=generator)).Q
    total = torch.zeros(count, dtype=torch.float64)
    for step in range(trajectory.num_steps):
        q, r = torch.linalg.qr(trajectory.multiply_by_jacobian(step, q))
        total += r.diagonal().abs().clamp(min=1e-300).log()
    return (total / trajectory.num_steps).sort(descending=True).values


def _measure_direct_path(trajectory: Trajectory) -> Tensor | None:
    """Returns the root mean square of ∏ f from each step to the last, (T,); None unless the cell is an LSTM."""
    if not isinstance(trajectory.cell, LSTMCell):
        return None
    forget: list[Tensor] = []

    def keep(name: str, value: Tensor) -> Tensor:
        if name == "forget":
            forget.append(value[0])
        return value

    cell = trajectory.cell
    for x, state in zip(trajectory.inputs, trajectory.states):
        cell.step(x[None], tuple(part[None] for part in state), cell.weight_hidden, keep)
    direct, path = torch.ones(trajectory.num_steps), torch.ones(cell.units, dtype=torch.float64)
    for step in range(trajectory.num_steps - 1, -1, -1):
        direct[step] = path.square().mean().sqrt()
        path = path * forget[step]
    return direct


def _compute_largest_singular_value(matrix: Tensor) -> Tensor:
    """Returns the spectral norm by power iteration on JᵀJ."""
    v = torch.full((matrix.shape[1],), matrix.shape[1] ** -0.5, dtype=matrix.dtype)
    for _ in range(POWER_ITERATIONS):
        u = matrix.T @ (matrix @ v)
        if not u.any():
            return u.norm()
        v = u / u.norm()
    return (matrix @ v).norm()
