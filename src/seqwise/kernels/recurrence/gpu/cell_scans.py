"""A `Scan` for each cell: its kernels, and the products over all steps that PyTorch computes in its backward pass.

Shapes are as in `scans.py`.
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

PADDING = 32  # the GRU's gradients have a multiple of this width, so that quarters start at multiples of 8 numbers


class RNNScan(Scan):
    """The simple recurrent network, with the constant ACTIVATION.

    Without a norm the kernel only reads the projected inputs; with one it overwrites them by the pre-activations.
    """

    forward_kernel, backward_kernel = rnn.rnn_forward, rnn.rnn_backward
    own_units = WEIGHT_ROWS  # the recurrent weight has one row per unit
    needs_gates = has_ring = False
    norm_sizes = NormSizes(saved=2, exchanged_forward=2, exchanged_backward=2, summed_grads=2)
    cell_name, norm_widths = "rnn", (1,)

    def backward(self, saved: ScanTensors) -> Gradients:
        hidden, shape = saved.hidden, (saved.layout.num_rows, *saved.weight_hidden.shape[::2])
        grad_inputs = allocate_unwritten(shape, hidden.dtype, hidden.device)
        norm_tensors: dict[str, Any] = {}
        if self.norm is not None:
            norm_tensors = {"inputs": saved.gates, "gains": saved.vector_parameters[0], "statistics": saved.statistics}
        grad_states, grad_norms = self.launch_backward(saved, saved.weight_hidden, hidden, grad_inputs, **norm_tensors)
        grad_inputs = grad_inputs.view(hidden.dtype)
        grad_parameters = grad_norms.chunk(2, dim=-1) if self.norm is not None else ()
        return grad_inputs, saved.compute_grad_weight_hidden(grad_inputs), *grad_parameters, *grad_states

    def get_activations(self, tensors: ScanTensors) -> Activations:
        if self.norm is None:
            return {}
        norm = _apply_layer_norm(tensors.gates, *tensors.vector_parameters)
        return {"preactivation": tensors.gates, "norm.norm": norm, "hidden": tensors.select_rows(tensors.hidden)}


class LSTMScan(Scan):
    """The LSTM, with the constant CAPPED."""

    forward_kernel, backward_kernel = lstm.lstm_forward, lstm.lstm_backward
    has_cell = True
    norm_sizes = NormSizes(saved=4, exchanged_forward=2, exchanged_backward=8, summed_grads=6)
    cell_name, norm_widths = "lstm", (4, 1)

    def backward(self, saved: ScanTensors) -> Gradients:
        gates, units = saved.gates, saved.weight_hidden.shape[2]
        if self.norm is None:
            grad_gates = allocate_unwritten(gates.shape, gates.dtype, gates.device)
            grad_states, _ = self.launch_backward(saved, gates, saved.weight_hidden, grad_gates, saved.cell)
            grad_gates = grad_gates.view(gates.dtype)
            return grad_gates, saved.compute_grad_weight_hidden(grad_gates), *grad_states
        grad_gates, grad_weight_hidden, grad_norms, grad_states = self.launch_backward_with_products(saved, saved.cell)
        grad_gains, grad_cell_bias = grad_norms.split([5 * units, units], dim=-1)
        grad_biases = torch.cat([grad_gates.sum(0, dtype=torch.float32), grad_cell_bias], dim=-1)
        return grad_gates, grad_weight_hidden, grad_gains, grad_biases, *grad_states

    def get_activations(self, tensors: ScanTensors) -> Activations:
        i, f, g, o = tensors.gates.chunk(4, dim=-1)
        i = i.abs()  # negative where it was limited
        cell, hidden = tensors.select_rows(tensors.cell), tensors.get_outputs()
        activations = {"input": i, "forget": f, "candidate": g, "output": o, "cell": cell, "hidden": hidden}
        if self.norm is not None:
            activations["hidden_norm.norm"] = _apply_layer_norm(
                tensors.compute_products(), *tensors.vector_parameters[:2]
            )
            activations["cell_norm.norm"] = _apply_layer_norm(cell, *tensors.vector_parameters[2:])
        return activations


class GRUScan(Scan):
    """The GRU with the reset gate after the product, with the constant UPDATE_REPLACES.

    Its vector parameter is the hidden bias (D, U), which r multiplies. Its gradients are padded to V units, the next
    multiple of `PADDING`.
    """

    forward_kernel, backward_kernel = gru.gru_forward, gru.gru_backward
    num_matrices = 1  # into which the backward kernel divides the weight; they are multiplied one after another
    cell_name, norm_widths = "gru", (2, 1)

    def get_extra_arguments(self, inputs: ScanInputs) -> dict[str, Any]:
        return {"bias": inputs.vector_parameters[0]}

    def adapt_backward_options(self, options: dict[str, Any], units: int, hidden: Tensor) -> dict[str, Any]:
        padded_units = units + -units % PADDING
        columns, size = 3 * padded_units // self.num_matrices, hidden.dtype.itemsize
        quarter_options = build_quarter_options(options["config"], columns, self.num_matrices, size, hidden.device)
        return {**options, **quarter_options, "PADDED_UNITS": padded_units}

    def launch_backward_padded(self, saved: ScanTensors, *tensors: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Launches the backward kernel; returns the gradients of the gates (N, D, 3U) and of the initial states.

        The kernel takes the weight as (D, 3V, U) with rows of zeros, and gradients (N, D, 3, V) with zeros from U to V.
        """
        gates, weight_hidden, units = saved.gates, saved.weight_hidden, saved.weight_hidden.shape[2]
        num_padding = -units % PADDING
        if num_padding:
            weight_hidden = F.pad(weight_hidden.unflatten(1, (3, units)), (0, 0, 0, num_padding)).flatten(1, 2)
        grad_gates = allocate_unwritten((*gates.shape[:2], 3, units + num_padding), gates.dtype, gates.device)
        grad_gates[..., units:] = 0
        grad_states, _ = self.launch_backward(saved, gates, weight_hidden, saved.hidden, grad_gates, *tensors)
        return grad_gates.view(gates.dtype)[..., :units].reshape(gates.shape), grad_states

    def backward(self, saved: ScanTensors) -> Gradients:
        weight_hidden, (bias,) = saved.weight_hidden, saved.vector_parameters
        directions, _, units = weight_hidden.shape
        # What r multiplied is cheaper to compute once more, for all steps at once, than to save.
        candidate_product = saved.gates.new_empty(saved.layout.num_rows, directions, units)
        for d, states in enumerate(saved.previous_states):
            torch.addmm(bias[d], states, weight_hidden[d, 2 * units :].mT, out=candidate_product[:, d])
        grad_gates, grad_states = self.launch_backward_padded(saved, candidate_product)
        grad_weight_hidden = saved.compute_grad_weight_hidden(grad_gates)
        grad_bias = grad_gates[..., 2 * units :].sum(0).to(bias.dtype) if saved.needs_grad[2] else None
        # The kernel has overwritten it by the gradient of n's projected input, which r does not multiply.
        grad_gates[..., 2 * units :] = candidate_product
        return grad_gates, grad_weight_hidden, grad_bias, *grad_states

    def get_activations(self, tensors: ScanTensors) -> Activations:
        r, z, n = tensors.gates.chunk(3, dim=-1)
        return {"reset": r, "update": z, "candidate": n, "hidden": tensors.select_rows(tensors.hidden)}


class ResetBeforeGRUScan(GRUScan):
    """The GRU with the reset gate before the product, which has no bias of its own."""

    backward_kernel = gru.gru_reset_before_backward
    num_matrices = 3
    reset = "before"

    def get_extra_arguments(self, inputs: ScanInputs) -> dict[str, Any]:
        gates, shape = inputs.gates, (inputs.layout.num_rows, *inputs.weight_hidden.shape[::2])
        return {"reset_hidden": allocate_unwritten(shape, gates.dtype, gates.device)}

    def backward(self, saved: ScanTensors) -> Gradients:
        gates, units, grad_weight_hidden = saved.gates, saved.weight_hidden.shape[2], None
        grad_gates, grad_states = self.launch_backward_padded(saved)
        if saved.needs_grad[1]:
            reset_hidden = [gates[:, d, :units] * states for d, states in enumerate(saved.previous_states)]
            grad_gates_weight = multiply_over_rows(grad_gates[..., : 2 * units], saved.previous_states)
            grad_candidate_weight = multiply_over_rows(grad_gates[..., 2 * units :], reset_hidden)
            grad_weight_hidden = torch.cat((grad_gates_weight, grad_candidate_weight), dim=1)
        return grad_gates, grad_weight_hidden, *grad_states


class LayerNormGRUScan(GRUScan):
    """The GRU with layer normalisation, with the constant UPDATE_REPLACES."""

    backward_kernel = gru.layer_norm_gru_backward
    norm_sizes = NormSizes(saved=4, exchanged_forward=4, exchanged_backward=4, summed_grads=4)
    get_extra_arguments = Scan.get_extra_arguments
    adapt_backward_options = Scan.adapt_backward_options

    def backward(self, saved: ScanTensors) -> Gradients:
        units = saved.weight_hidden.shape[2]
        results = self.launch_backward_with_products(saved, saved.hidden)
        grad_gates, grad_weight_hidden, grad_norms, grad_states = results
        grad_gains, grad_candidate_bias = grad_norms.split([3 * units, units], dim=-1)
        grad_gate_biases = grad_gates[..., : 2 * units].sum(0, dtype=torch.float32)
        grad_biases = torch.cat([grad_gate_biases, grad_candidate_bias], dim=-1)
        return grad_gates, grad_weight_hidden, grad_gains, grad_biases, *grad_states

    def get_activations(self, tensors: ScanTensors) -> Activations:
        activations, products = super().get_activations(tensors), tensors.compute_products()
        units, parameters = tensors.weight_hidden.shape[2], tensors.vector_parameters
        activations["gates_norm.norm"] = _apply_layer_norm(products[..., : 2 * units], *parameters[:2])
        activations["candidate_norm.norm"] = _apply_layer_norm(products[..., 2 * units :], *parameters[2:])
        return activations


@torch.no_grad()
def _apply_layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Returns the layer normalisation of x (N, D, …), each direction with its own gain and bias."""
    return (F.layer_norm(x.float(), x.shape[-1:], eps=EPSILON.value) * gain + bias).to(x.dtype)
