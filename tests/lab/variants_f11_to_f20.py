"""Deliberately wrong variants of F11 to F20: each must change the verdict."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seqwise.lab.attention.f11_cross_attention_roles import CrossAttentionRoles
from seqwise.lab.attention.f12_encoder_independence import EncoderIndependence
from seqwise.lab.attention.f13_f14_costs import QuadraticCosts, SecondLanguage
from seqwise.lab.attention.f15_f16_distance import PathLength, SequentialSteps
from seqwise.lab.attention.f17_alignment import Alignment
from seqwise.lab.attention.f18_attentive_state import AttentiveState
from seqwise.lab.attention.f19_context_vectors import ContextVectors
from seqwise.lab.attention.f20_scaled_mean import ScaledMean
from seqwise.layers import AttentiveRecurrent, Dot, RNNCell


@dataclass(frozen=True, kw_only=True)
class EncoderAsks(CrossAttentionRoles):
    """A layer that mixes up its arguments; it goes unnoticed because source and target have the same length."""

    target_length: int = 7

    def run_layer(self, layer, states):
        return self.try_assignment(layer, states["encoder"], states["encoder"], states["decoder"])


class DetachedMemory(EncoderIndependence):
    """Detaches the memory from the graph, so that the encoder gets no gradient."""

    def run_model(self, model, source, target):
        return model.decode(target, model.encode(source).detach())[0]


class EncodesAgain(SecondLanguage):
    """Encodes the source once per target."""

    def translate(self, model, source, targets):
        return [model(source, target) for target in targets]


class AttentionOnly(QuadraticCosts):
    """Forgets the projections and the feed-forward networks."""

    def count(self, source_length, target_length):
        pairs = source_length**2 + source_length * target_length + target_length**2
        return 4 * pairs * self.width


class ShortcutToTheEnd(PathLength):
    """A recurrence with a skip connection from the first input to the last state."""

    def recur(self, cell, xs):
        return super().recur(cell, xs) + xs[0].tanh()


class AttentionStepByStep(SequentialSteps):
    """Attention whose result flows back into the next state, so that positions wait for one another."""

    def build_attention(self):
        return AttentiveRecurrent(RNNCell(self.width, self.width), self.max_length)


class IgnoredKeys(Alignment):
    """A score that multiplies the keys by zero: the weights of all source words are equal."""

    def build_score(self):
        score = super().build_score()
        score.weight.requires_grad_(False).zero_()
        return score


class ShortSpan(AttentiveState):
    """Attends to a single earlier state, so that nothing reaches back to the first symbol."""

    def build_attentive_layers(self, span):
        return super().build_attentive_layers(1)


class SelfOnly(ContextVectors):
    """A mask that lets each word attend to itself only."""

    def build_mask(self):
        return torch.eye(1 + self.content_words + self.function_words, dtype=torch.bool)


class ForgottenDivision(ScaledMean):
    """Forgets to divide by √d."""

    def scale_scores(self, q, k):
        return Dot()(q, k)


VARIANTS = {
    "F11": EncoderAsks,
    "F12": DetachedMemory,
    "F13": EncodesAgain,
    "F14": AttentionOnly,
    "F15": ShortcutToTheEnd,
    "F16": AttentionStepByStep,
    "F17": IgnoredKeys,
    "F18": ShortSpan,
    "F19": SelfOnly,
    "F20": ForgottenDivision,
}

# Statements whose verdict the textbook leaves open, or that the measurement contradicts: id → verdict
FOUND: dict[str, str] = {}
