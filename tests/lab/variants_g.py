"""Deliberately wrong variants of chapter G's experiments: each must change the verdict."""

from __future__ import annotations

import torch

from seqwise.lab.transformer.g1_permutation import PermutationInvariance
from seqwise.lab.transformer.g2_g3_sinusoids import DistinctCodes, ShiftIsLinear
from seqwise.lab.transformer.g4_length import LengthOfPositions
from seqwise.lab.transformer.g5_residuals import ResidualGradients
from seqwise.lab.transformer.g6_norm import NormPlacement
from seqwise.lab.transformer.g7_feedforward import FeedForwardByPosition
from seqwise.lab.transformer.g8_teacher_forcing import TeacherForcing
from seqwise.lab.transformer.g9_generation import GenerationLoop
from seqwise.lab.transformer.g10_greedy import GreedySearch
from seqwise.lab.transformer.g11_cache import KeyValueCaching
from seqwise.lab.transformer.sentences import START, TracedDecoder
from seqwise.layers import PreNormEncoderLayer


class PooledOutputs(PermutationInvariance):
    """Compares the mean of all outputs, which is invariant, instead of the outputs."""

    def compute_outputs(self, encoder, x):
        output = super().compute_outputs(encoder, x)
        return output.mean(1, keepdim=True).expand_as(output)


class PositionsOfWindows(DistinctCodes):
    """Counts positions anew in each window of 1,000 tokens, so that codes repeat."""

    def encode(self, dtype):
        codes = super().encode(dtype)
        return codes[torch.arange(self.positions) % 1000]


class TransposedRotation(ShiftIsLinear):
    """Transposes the rotation, which shifts backward."""

    def build_rotation(self):
        return super().build_rotation().T


class LongTraining(LengthOfPositions):
    """Trains at the length of the test, so that no position is new."""

    def draw_batch(self, generator):
        return self.draw_sequences(generator, 32, self.test_length)


class ResidualsEverywhere(ResidualGradients):
    """Forgets to remove the residuals."""

    def get_layer_without_residual(self):
        return PreNormEncoderLayer


class PreNormTwice(NormPlacement):
    """Trains pre-norm stacks under both names."""

    def train(self, norm, depth):
        return super().train("pre", depth)


class FeedForwardOfNeighbours(FeedForwardByPosition):
    """Lets the network read the mean of a position and the one before it, as a convolution of width 2 would."""

    def apply_feedforward(self, feedforward, x):
        return feedforward((x + x.roll(1, 0)) / 2)


class ForgottenMask(TeacherForcing):
    """Forgets the causal mask in the pass over the whole sequence: each position reads its own target."""

    def compute_at_once(self, model, ids):
        model.backbone.causal = False
        losses = super().compute_at_once(model, ids)
        model.backbone.causal = True
        return losses


class ForgetfulCache(KeyValueCaching):
    """Loses the key and value of the first token."""

    def read_token(self, model, ids, n, state):
        log_probs, (history, cache) = super().read_token(model, ids, n, state)
        return log_probs, (history, tuple((keys[:, :, 1:], values[:, :, 1:]) for keys, values in cache))


class StuckDecoder(TracedDecoder):
    def step(self, ids, state, need_weights=False):
        return super().step(torch.full_like(ids, START), state, need_weights)


class NoFeedback(GenerationLoop):
    """Reads the start token at every step instead of the last output."""

    def trace(self, decoder):
        return StuckDecoder(decoder)


class SingleBeam(GreedySearch):
    """Searches with one beam, which is greedy search again."""

    def search(self, decoder, beam):
        return super().search(decoder, 1)


VARIANTS = {
    "G1": PooledOutputs,
    "G2": PositionsOfWindows,
    "G3": TransposedRotation,
    "G4": LongTraining,
    "G5": ResidualsEverywhere,
    "G6": PreNormTwice,
    "G7": FeedForwardOfNeighbours,
    "G8": ForgottenMask,
    "G9": NoFeedback,
    "G10": SingleBeam,
    "G11": ForgetfulCache,
}

# Statements whose verdict the textbook leaves open, or that the measurement contradicts: id → verdict
FOUND = {
    "G4": "holds",
    # Layer norm keeps the norm of the gradient without residuals too; only what differs between positions vanishes.
    "G5": "holds if",
    # Either placement trains a shallow stack; without warm-up only pre-norm trains a deep one.
    "G6": "holds if",
}
