"""What the live figures of the lab compute, computed with this package: the references of tests/lab/test_live.py.

Each function takes the values of a figure's controls and returns numbers under the names that its JavaScript uses.
Layers come from the package and derivatives from autograd, so that nothing here repeats a formula of the browser.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from live_language_references import (
    DTYPE,
    Numbers,
    Values,
    compute_beam,
    compute_confidence,
    compute_perplexity,
    compute_position_encodings,
    compute_rotation,
    compute_saturation,
    compute_scaling,
    compute_sentence,
    compute_skip_gram,
    make_tensor,
)
from torch import Tensor

from seqwise.lab.gradients.c2_spectral_radius import SpectralRadius
from seqwise.layers import LSTMCell, RNNCell
from seqwise.layers.cells import ACTIVATIONS, GRU_CELLS, Cell
from seqwise.training.optimizers import clip_gradients


# --- gradients
def compute_clipping(values: Values) -> Numbers:
    gradient = make_tensor([values["first"], values["second"]])
    clipped = {}
    for method in ("norm", "value"):
        parameter = torch.nn.Parameter(torch.zeros(2, dtype=DTYPE))
        parameter.grad = gradient.clone()
        norm = clip_gradients([parameter], method, values["threshold"])
        clipped[method] = parameter.grad

    def compute_cosine(vector: Tensor) -> float | None:
        return float(torch.cosine_similarity(gradient, vector, dim=0)) if gradient.any() else None

    return {
        "norm": float(norm),
        "by_norm": clipped["norm"].tolist(),
        "by_value": clipped["value"].tolist(),
        "norm_by_norm": float(clipped["norm"].norm()),
        "norm_by_value": float(clipped["value"].norm()),
        "cosine_by_norm": compute_cosine(clipped["norm"]),
        "cosine_by_value": compute_cosine(clipped["value"]),
    }


def compute_spectral_radius(values: Values) -> Numbers:
    experiment = SpectralRadius(**values)
    triangular = experiment.build_non_normal()
    symmetric = (triangular + triangular.T) / 2
    symmetric *= experiment.radius / torch.linalg.eigvalsh(symmetric).abs().max()
    norms = experiment.compute_norms(triangular)
    return {
        "norms_non_normal": norms.tolist(),
        "norms_normal": experiment.compute_norms(symmetric).tolist(),
        "powers": [experiment.radius**n for n in range(1, experiment.steps + 1)],
        "largest": float(norms.max()),
        "step_of_largest": int(norms.argmax()) + 1,
    }


def compute_activations(values: Values) -> Numbers:
    numbers: Numbers = {}
    for name in ("sigmoid", "tanh", "relu"):
        a = torch.cat((make_tensor([values["a"]]), torch.linspace(-6, 6, 121, dtype=DTYPE))).requires_grad_()
        derivatives = torch.autograd.grad(ACTIVATIONS[name](a).sum(), a)[0]
        factor = values["weight"] * derivatives[0]
        numbers[f"derivative_{name}"] = float(derivatives[0])
        numbers[f"derivatives_{name}"] = derivatives[1:].tolist()
        numbers[f"products_{name}"] = [float(factor**n) for n in range(values["layers"] + 1)]
    return numbers


def compute_influence(values: Values) -> Numbers:
    cell = RNNCell(1, 1, values["activation"]).double()
    with torch.no_grad():
        cell.weight_input.fill_(1.0)
        cell.weight_hidden.fill_(values["weight"])
    states = [torch.zeros(1, 1, dtype=DTYPE, requires_grad=True)]
    for t in range(1, values["steps"] + 1):
        x = cell.project(make_tensor([[values["amplitude"] * math.sin(t)]]))
        states.append(cell.step(x, (states[-1],), cell.weight_hidden)[0])
    derivatives = torch.autograd.grad(states[-1].sum(), states)
    return {
        "states": [state.item() for state in states],
        "influence": [abs(derivative.item()) for derivative in reversed(derivatives)],
    }


# --- gated cells
def fill_cell(cell: Cell, biases: list[float]) -> Cell:
    """Sets all weights to 1, and the biases of the gates."""
    with torch.no_grad():
        cell.weight_input.fill_(1.0)
        cell.weight_hidden.fill_(1.0)
        cell.bias.copy_(make_tensor(biases))  # type: ignore[union-attr]
    return cell


def run_step(cell: Cell, x: list[float], *state: float) -> dict[str, Tensor]:
    """Returns what a cell of one unit records in one step, for several inputs at once."""
    recorded: dict[str, Tensor] = {}

    def record(name: str, value: Tensor) -> Tensor:
        recorded[name] = value.detach().flatten()
        return value

    inputs = make_tensor(x)[:, None]
    old = tuple(torch.full_like(inputs, value) for value in state)
    cell.step(cell.project(inputs), old, cell.weight_hidden, record)
    return recorded


def compute_lstm_step(values: Values) -> Numbers:
    biases = [values[f"{gate}_bias"] for gate in ("input", "forget", "candidate", "output")]
    cell = fill_cell(LSTMCell(1, 1).double(), biases)
    inputs = torch.linspace(-6, 6, 97, dtype=DTYPE).tolist()
    recorded = run_step(cell, [values["x"], *inputs], values["h"], values["c"])
    return {
        **{name: float(value[0]) for name, value in recorded.items()},
        **{f"{name}_curve": value[1:].tolist() for name, value in recorded.items()},
    }


def compute_gru_step(values: Values) -> Numbers:
    def run(convention: str, update_bias: float) -> dict[str, Tensor]:
        place, recurrent_bias = values["reset_place"], values["recurrent_bias"]
        biases = [values["reset_bias"], update_bias, recurrent_bias if place == "before" else 0.0]
        cell = fill_cell(GRU_CELLS[place, convention, False](1, 1).double(), biases)
        if place == "after":
            torch.nn.init.constant_(cell.bias_hidden, recurrent_bias)
        return run_step(cell, [values["x"]], values["h"])

    biases = torch.linspace(-8, 8, 97, dtype=DTYPE).tolist()
    return {
        **{name: float(value) for name, value in run(values["convention"], values["update_bias"]).items()},
        **{f"{name}_curve": [float(run(name, bias)["hidden"]) for bias in biases] for name in ("keeps", "replaces")},
    }


def compute_forget_gates(values: Values) -> Numbers:
    cell = fill_cell(LSTMCell(1, 1).double(), [values["input_bias"], values["forget_bias"], 0.0, 0.0])
    torch.nn.init.constant_(cell.weight_hidden, values["weight"])
    with torch.no_grad():
        cell.weight_input.copy_(make_tensor([[0], [0], [1], [0]]))  # the input reaches the candidate alone
    x = cell.project(make_tensor([[0.5]]))
    first = torch.ones(1, 1, dtype=DTYPE, requires_grad=True)
    state: tuple[Tensor, ...] = (torch.zeros(1, 1, dtype=DTYPE), first)
    gates: list[float] = []

    def record(name: str, value: Tensor) -> Tensor:
        if name == "forget":
            gates.append(value.item())
        return value

    total = [1.0]
    for _ in range(values["steps"]):
        state = cell.step(x, state, cell.weight_hidden, record)
        total.append(abs(torch.autograd.grad(state[1].sum(), first, retain_graph=True)[0].item()))
    gate = torch.sigmoid(make_tensor(values["forget_bias"])).item()
    products = [math.prod(gates[:t]) for t in range(values["steps"] + 1)]
    return {"total": total, "products": products, "gate": gate, "half_life": math.log(0.5) / math.log(gate)}


COMPUTE: dict[str, Callable[[Values], Numbers]] = {
    "B8": compute_influence,
    "C2": compute_spectral_radius,
    "C5": compute_activations,
    "C6": compute_clipping,
    "D1": compute_lstm_step,
    "D6": compute_forget_gates,
    "E2": compute_gru_step,
    "F1": compute_sentence,
    "F6": compute_scaling,
    "F7": compute_saturation,
    "G2": compute_position_encodings,
    "G3": compute_rotation,
    "G10": compute_beam,
    "H3": compute_skip_gram,
    "H8": compute_perplexity,
    "H15": compute_confidence,
}
