"""Deliberately wrong variants of chapter C's experiments: each must change the verdict."""

from __future__ import annotations

import torch

from seqwise.lab.gradients.c1_linear_rnn import LinearRNN
from seqwise.lab.gradients.c2_spectral_radius import SpectralRadius
from seqwise.lab.gradients.c3_jacobian_bound import JacobianBound
from seqwise.lab.gradients.c4_shared_matrix import SharedMatrix
from seqwise.lab.gradients.c5_activations import Activations
from seqwise.lab.gradients.c6_c7_clipping import ClippingDirection, ClippingSmallGradients
from seqwise.lab.gradients.c8_initialisation import Initialisation
from seqwise.lab.gradients.c9_normalisation import Normalisation
from seqwise.lab.gradients.c10_long_range import LongRange
from seqwise.lab.gradients.c11_saturation import Saturation
from seqwise.layers import xavier_


class OnePowerTooMany(LinearRNN):
    """Multiplies the first input by W once too often: W^t W_x."""

    def compute_formula(self, layer):
        return layer.cell.weight_hidden.detach() @ super().compute_formula(layer)


class NormalTwice(SpectralRadius):
    """Forgets to build the non-normal matrix, so the claim looks true everywhere."""

    def build_non_normal(self):
        return self.build_normal()


class BoundFromEigenvalues(JacobianBound):
    """Takes the spectral radius for the norm of W: too small a bound for a matrix that is not normal."""

    def compute_matrix_norm(self, weight):
        return float(torch.linalg.eigvals(weight).abs().max())


class SameMatricesInTheStack(SharedMatrix):
    """Builds the "independent" stack from one matrix as well."""

    def compute_log_lengths(self, is_shared, gain):
        return super().compute_log_lengths(True, gain)


class SteepSigmoid(Activations):
    """Takes the derivative of tanh at four times the input for that of the sigmoid: it saturates before tanh."""

    def compute_derivatives(self, name, a):
        return super().compute_derivatives("tanh", 4 * a) if name == "sigmoid" else super().compute_derivatives(name, a)


class ClippingPerParameter(ClippingDirection):
    """Clips each parameter's norm by itself, which changes the proportions between them."""

    def clip(self, gradients, method, threshold):
        if method == "value":
            return super().clip(gradients, method, threshold)
        return torch.cat([super(ClippingPerParameter, self).clip([each], method, threshold) for each in gradients])


class NormalisedGradients(ClippingSmallGradients):
    """Forgets the minimum in θ/‖g‖: every gradient gets the norm θ, also a small one."""

    def clip(self, gradients, method, threshold):
        clipped = super().clip(gradients, method, threshold)
        return clipped * threshold / clipped.norm()


class XavierForReLU(Initialisation):
    """Ignores that ReLU sets half of the signal to zero."""

    def initialise_for_relu(self, weight):
        return xavier_(weight)


class ResidualUnit(Saturation):
    """Adds the pre-activation to the output: a path around the tanh."""

    def step(self, a):
        return super().step(a) + a


class ForgottenNorm(Normalisation):
    """Builds the plain cell in both cases."""

    def build_cell(self, inputs, has_norm):
        return super().build_cell(inputs, has_norm=False)


class ClosedGates(LongRange):
    """Forgets to open the gates of GRU and LSTM, whose gradients then vanish like the RNN's."""

    def build_model(self, name, task, lag):
        return super().build_model("half" if name in ("gru", "lstm") else name, task, lag)


VARIANTS = {
    "C1": OnePowerTooMany,
    "C2": NormalTwice,
    "C3": BoundFromEigenvalues,
    "C4": SameMatricesInTheStack,
    "C5": SteepSigmoid,
    "C6": ClippingPerParameter,
    "C7": NormalisedGradients,
    "C8": XavierForReLU,
    "C9": ForgottenNorm,
    "C10": ClosedGates,
    "C11": ResidualUnit,
}

# Statements whose verdict the textbook leaves open, or that the measurement contradicts: id → verdict
FOUND: dict[str, str] = {
    "C4": "holds if",  # only at gain 1; at other gains equal and independent matrices vanish or explode alike
    "C5": "holds if",  # of gradients; measured by its input, tanh saturates before sigmoid
    "C9": "holds",
    "C10": "holds if",  # the gates have to start open
}
