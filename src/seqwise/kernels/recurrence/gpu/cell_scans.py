"""The recurrent scan of each cell: its kernels, and what its backward pass needs besides.

That is products over all steps at once, which PyTorch computes. Shapes and memory are those of `scans.py`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwise.kernels.recurrence.gpu import gru, lstm, rnn
from seqwise.kernels.recurrence.gpu.launch import WEIGHT_ROWS, build_quarter_options
from seqwise.kernels.recurrence.gpu.layer_norm import EPSILON
from seqwise.kernels.recurrence.gpu.layout import allocate_unwritten, multiply_over_rows
from seqwise.kernels.recurrence.gpu.scans import Activations, Gradients, NormSizes, Scan, ScanInputs, ScanTensors

PADDING = 32  # the GRU's gradients are padded to a multiple of it: quarters then start at multiples of eight numbers


class RNNScan(Scan):
    """The simple recurrent network; constant: ACTIVATION. The plain one only reads the inputs and does not save them;
    with a norm their memory takes the pre-activations."""

    forward_kernel, backward_kernel = rnn.rnn_forward, rnn.rnn_backward
    own_units = WEIGHT_ROWS  # one matrix: a unit is one row
    needs_gates = has_ring = False
    norm_sizes = NormSizes(saved=2, forward=2, backward=2, grads=2)
    cell_name, norm_widths = "rnn", (1,)

    def backward(self, saved: ScanTensors) -> Gradients:
        hidden, shape = saved.hidden, (saved.layout.num_rows, *saved.weight.shape[::2])
        grad_inputs = allocate_unwritten(shape, hidden.dtype, hidden.device)
        norm_tensors: dict[str, Any] = {}
        if self.norm is not None:
            norm_tensors = {"inputs": saved.gates, "gains": saved.vectors[0], "statistics": saved.statistics}
        grad_initial, grad_norms = self.launch_backward(saved, saved.weight, hidden, grad_inputs, **norm_tensors)
        grad_inputs = grad_inputs.view(hidden.dtype)
        grad_vectors = grad_norms.chunk(2, dim=-1) if self.norm is not None else ()
        return grad_inputs, saved.compute_weight_grad(grad_inputs), *grad_vectors, *grad_initial

    def get_activations(self, tensors: ScanTensors) -> Activations:
        if self.norm is None:
            return {}
        norm = _layer_norm(tensors.gates, *tensors.vectors)
        return {"preactivation": tensors.gates, "norm.norm": norm, "hidden": tensors.select_rows(tensors.hidden)}


class LSTMScan(Scan):
    forward_kernel, backward_kernel = lstm.lstm_forward, lstm.lstm_backward
    has_cell = True
    norm_sizes = NormSizes(saved=4, forward=2, backward=8, grads=6)
    cell_name, norm_widths = "lstm", (4, 1)

    def backward(self, saved: ScanTensors) -> Gradients:
        gates, units = saved.gates, saved.weight.shape[2]
        if self.norm is None:
            grad_gates = allocate_unwritten(gates.shape, gates.dtype, gates.device)
            grad_initial, _ = self.launch_backward(saved, gates, saved.weight, grad_gates, saved.cell)
            grad_gates = grad_gates.view(gates.dtype)
            return grad_gates, saved.compute_weight_grad(grad_gates), *grad_initial
        grad_gates, grad_weight, grad_norms, grad_initial = self.launch_backward_with_products(saved, saved.cell)
        grad_gains, grad_cell_bias = grad_norms.split([5 * units, units], dim=-1)
        grad_biases = torch.cat([grad_gates.sum(0, dtype=torch.float32), grad_cell_bias], dim=-1)
        return grad_gates, grad_weight, grad_gains, grad_biases, *grad_initial

    def get_activations(self, tensors: ScanTensors) -> Activations:
        i, f, g, o = tensors.gates.chunk(4, dim=-1)
        cell, hidden = tensors.select_rows(tensors.cell), tensors.select_rows(tensors.hidden)
        activations = {"input": i, "forget": f, "candidate": g, "output": o, "cell": cell, "hidden": hidden}
        if self.norm is not None:
            activations["hidden_norm.norm"] = _layer_norm(tensors.compute_products(), *tensors.vectors[:2])
            activations["cell_norm.norm"] = _layer_norm(cell, *tensors.vectors[2:])
        return activations


class GRUScan(Scan):
    """The GRU with the reset gate after the product; vector: bias (D, U), which r multiplies; constant:
    UPDATE_REPLACES. Its gradients are padded to V units, the next multiple of `PADDING`."""

    forward_kernel, backward_kernel = gru.gru_forward, gru.gru_backward
    matrices = 1  # that the backward kernel multiplies one after another
    cell_name, norm_widths = "gru", (2, 1)

    def get_extra_arguments(self, inputs: ScanInputs) -> dict[str, Any]:
        return {"bias": inputs.vectors[0]}

    def adapt_backward_options(self, options: dict[str, Any], units: int, hidden: Tensor) -> dict[str, Any]:
        padded_units = units + -units % PADDING
        columns, size = 3 * padded_units // self.matrices, hidden.dtype.itemsize
        quarters = build_quarter_options(options["config"], columns, self.matrices, size, hidden.device)
        return {**options, **quarters, "PADDED_UNITS": padded_units}

    def launch_backward_padded(self, saved: ScanTensors, *tensors: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the gradients of the gates (N, D, 3U) and of the initial states. The kernel takes the weight as
        (D, 3V, U) with rows of zeros, and gradients (N, D, 3, V) with zeros from U to V."""
        gates, weight, units = saved.gates, saved.weight, saved.weight.shape[2]
        num_padding = -units % PADDING
        if num_padding:
            weight = F.pad(weight.unflatten(1, (3, units)), (0, 0, 0, num_padding)).flatten(1, 2)
        grads = allocate_unwritten((*gates.shape[:2], 3, units + num_padding), gates.dtype, gates.device)
        grads[..., units:] = 0
        grad_initial, _ = self.launch_backward(saved, gates, weight, saved.hidden, grads, *tensors)
        return grads.view(gates.dtype)[..., :units].reshape(gates.shape), grad_initial

    def backward(self, saved: ScanTensors) -> Gradients:
        weight, (bias,) = saved.weight, saved.vectors
        directions, _, units = weight.shape
        # What r multiplied is cheaper to compute once more, for all steps at once, than to save.
        candidate = saved.gates.new_empty(saved.layout.num_rows, directions, units)
        for n, states in enumerate(saved.previous_states):
            torch.addmm(bias[n], states, weight[n, 2 * units :].mT, out=candidate[:, n])
        grad_gates, grad_initial = self.launch_backward_padded(saved, candidate)
        grad_weight = saved.compute_weight_grad(grad_gates)
        grad_bias = grad_gates[..., 2 * units :].sum(0).to(bias.dtype) if saved.needs_grad[2] else None
        grad_gates[..., 2 * units :] = candidate  # now the gradient of n's projected input, which r does not multiply
        return grad_gates, grad_weight, grad_bias, *grad_initial

    def get_activations(self, tensors: ScanTensors) -> Activations:
        r, z, n = tensors.gates.chunk(3, dim=-1)
        return {"reset": r, "update": z, "candidate": n, "hidden": tensors.select_rows(tensors.hidden)}


class ResetBeforeGRUScan(GRUScan):
    """The GRU with the reset gate before the product, which has no bias of its own."""

    backward_kernel = gru.gru_reset_before_backward
    matrices = 3
    reset = "before"

    def get_extra_arguments(self, inputs: ScanInputs) -> dict[str, Any]:
        gates, shape = inputs.gates, (inputs.layout.num_rows, *inputs.weight.shape[::2])
        return {"reset_hidden": allocate_unwritten(shape, gates.dtype, gates.device)}

    def backward(self, saved: ScanTensors) -> Gradients:
        gates, units, grad_weight = saved.gates, saved.weight.shape[2], None
        grad_gates, grad_initial = self.launch_backward_padded(saved)
        if saved.needs_grad[1]:
            reset_hidden = [gates[:, n, :units] * states for n, states in enumerate(saved.previous_states)]
            grad_gates_weight = multiply_over_rows(grad_gates[..., : 2 * units], saved.previous_states)
            grad_candidate_weight = multiply_over_rows(grad_gates[..., 2 * units :], reset_hidden)
            grad_weight = torch.cat((grad_gates_weight, grad_candidate_weight), dim=1)
        return grad_gates, grad_weight, *grad_initial


class LayerNormGRUScan(GRUScan):
    """The GRU with layer normalisation; constant: UPDATE_REPLACES."""

    backward_kernel = gru.layer_norm_gru_backward
    norm_sizes = NormSizes(saved=4, forward=4, backward=4, grads=4)
    get_extra_arguments = Scan.get_extra_arguments
    adapt_backward_options = Scan.adapt_backward_options

    def backward(self, saved: ScanTensors) -> Gradients:
        units = saved.weight.shape[2]
        grad_gates, grad_weight, grad_norms, grad_initial = self.launch_backward_with_products(saved, saved.hidden)
        grad_gains, grad_candidate_bias = grad_norms.split([3 * units, units], dim=-1)
        grad_gate_biases = grad_gates[..., : 2 * units].sum(0, dtype=torch.float32)
        grad_biases = torch.cat([grad_gate_biases, grad_candidate_bias], dim=-1)
        return grad_gates, grad_weight, grad_gains, grad_biases, *grad_initial

    def get_activations(self, tensors: ScanTensors) -> Activations:
        activations, products = super().get_activations(tensors), tensors.compute_products()
        units = tensors.weight.shape[2]
        activations["gates_norm.norm"] = _layer_norm(products[..., : 2 * units], *tensors.vectors[:2])
        activations["candidate_norm.norm"] = _layer_norm(products[..., 2 * units :], *tensors.vectors[2:])
        return activations


@torch.no_grad()
def _layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Layer normalisation of x (N, D, …), each direction with its own gain and bias."""
    return (F.layer_norm(x.float(), x.shape[-1:], eps=EPSILON.value) * gain + bias).to(x.dtype)
