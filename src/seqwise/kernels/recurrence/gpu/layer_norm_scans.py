"""The scans of cells with layer normalisation; `scans.py` has what all scans share. Importing this imports triton.

Vectors are gain and bias of each norm of the cell, in the order of `Direction.vectors`. This module knows nothing of
layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from seqwise.kernels.recurrence.gpu import layer_norm_gru, layer_norm_lstm, layer_norm_rnn
from seqwise.kernels.recurrence.gpu.launch import WEIGHT_ROWS
from seqwise.kernels.recurrence.gpu.layer_norm import EPSILON
from seqwise.kernels.recurrence.gpu.layout import allocate_unwritten, multiply_over_rows
from seqwise.kernels.recurrence.gpu.scans import (
    Activations,
    BackwardInputs,
    ForwardTensors,
    Gradients,
    Scan,
    compute_recurrent_products,
    get_gru_activations,
    get_lstm_activations,
)


class LayerNormScan(Scan):
    """What cells with layer normalisation share. The kernels take all gains one after another, and all biases, in
    float32."""

    def prepare_vectors(self, vectors: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
        return torch.cat([*vectors[::2]], dim=-1).float(), torch.cat([*vectors[1::2]], dim=-1).float()

    def launch_with_products(
        self, saved: BackwardInputs, states: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor, list[Tensor]]:
        """The backward pass of a gated cell: gradients of the projected inputs, of the weight, of norms, and of the
        initial states. The recurrent products are not saved but computed once more, for all steps at once."""
        gates = saved.gates
        previous = saved.layout.select_previous(saved.hidden)
        products = compute_recurrent_products(saved.weight, previous)
        grad_products = allocate_unwritten(gates.shape, gates.dtype, gates.device)
        initial, grad_norms = self.launch_backward(
            saved, gates, saved.weight, *saved.vectors, products, grad_products, states, saved.statistics
        )
        assert grad_norms is not None
        grad_weight = multiply_over_rows(grad_products.view(gates.dtype), previous) if saved.needs_grad[1] else None
        return products, grad_weight, grad_norms, initial


class LayerNormRNNScan(LayerNormScan):
    """Constant: ACTIVATION. The memory of the projected inputs takes the pre-activations."""

    forward_kernel = layer_norm_rnn.layer_norm_rnn_forward
    backward_kernel = layer_norm_rnn.layer_norm_rnn_backward
    own_units, has_ring = WEIGHT_ROWS, False
    num_statistics, forward_numbers, backward_numbers, num_norm_grads = 2, 2, 2, 2

    def backward(self, saved: BackwardInputs) -> Gradients:
        inputs, (gains, _) = saved.gates, saved.vectors
        grad_inputs = allocate_unwritten(inputs.shape, inputs.dtype, inputs.device)
        initial, grad_norms = self.launch_backward(
            saved, inputs, saved.weight, gains, grad_inputs, saved.hidden, saved.statistics
        )
        assert grad_norms is not None
        grad_inputs = grad_inputs.view(inputs.dtype)
        grad_weight = saved.compute_weight_grad(grad_inputs)
        return grad_inputs, grad_weight, *grad_norms.chunk(2, dim=-1), *initial

    def get_activations(self, tensors: ForwardTensors) -> Activations:
        hidden = tensors.select_rows(tensors.buffers.hidden)
        norm = _layer_norm(tensors.gates, *tensors.vectors)
        return {"preactivation": tensors.gates, "norm.norm": norm, "hidden": hidden}


class LayerNormLSTMScan(LayerNormScan):
    forward_kernel = layer_norm_lstm.layer_norm_lstm_forward
    backward_kernel = layer_norm_lstm.layer_norm_lstm_backward
    has_cell = True
    num_statistics, forward_numbers, backward_numbers, num_norm_grads = 4, 2, 8, 6

    def backward(self, saved: BackwardInputs) -> Gradients:
        units = saved.weight.shape[2]
        grad_gates, grad_weight, grad_norms, initial = self.launch_with_products(saved, saved.cell)
        grad_gains, grad_cell_bias = grad_norms.split([5 * units, units], dim=-1)
        grad_biases = torch.cat([grad_gates.sum(0, dtype=torch.float32), grad_cell_bias], dim=-1)
        return grad_gates, grad_weight, grad_gains, grad_biases, *initial

    def get_activations(self, tensors: ForwardTensors) -> Activations:
        activations = get_lstm_activations(tensors)
        activations["hidden_norm.norm"] = _layer_norm(tensors.compute_products(), *tensors.vectors[:2])
        activations["cell_norm.norm"] = _layer_norm(activations["cell"], *tensors.vectors[2:])
        return activations


class LayerNormGRUScan(LayerNormScan):
    """Constant: UPDATE_REPLACES."""

    forward_kernel = layer_norm_gru.layer_norm_gru_forward
    backward_kernel = layer_norm_gru.layer_norm_gru_backward
    num_statistics, forward_numbers, backward_numbers, num_norm_grads = 4, 4, 4, 4

    def backward(self, saved: BackwardInputs) -> Gradients:
        units = saved.weight.shape[2]
        grad_gates, grad_weight, grad_norms, initial = self.launch_with_products(saved, saved.hidden)
        grad_gains, grad_candidate_bias = grad_norms.split([3 * units, units], dim=-1)
        grad_gate_biases = grad_gates[..., : 2 * units].sum(0, dtype=torch.float32)
        grad_biases = torch.cat([grad_gate_biases, grad_candidate_bias], dim=-1)
        return grad_gates, grad_weight, grad_gains, grad_biases, *initial

    def get_activations(self, tensors: ForwardTensors) -> Activations:
        activations, products = get_gru_activations(tensors), tensors.compute_products()
        units = tensors.weight.shape[2]
        activations["gates_norm.norm"] = _layer_norm(products[..., : 2 * units], *tensors.vectors[:2])
        activations["candidate_norm.norm"] = _layer_norm(products[..., 2 * units :], *tensors.vectors[2:])
        return activations


@torch.no_grad()
def _layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Layer normalisation of x (N, D, …), each direction with its own gain and bias."""
    return (F.layer_norm(x.float(), x.shape[-1:], eps=EPSILON.value) * gain + bias).to(x.dtype)
