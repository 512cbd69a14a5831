"""Deliberately wrong variants of F1 to F10: each must change the verdict."""

from __future__ import annotations

from typing import ClassVar

import torch

from seqwise.lab.attention.f1_loop_and_matrix import LoopAndMatrix
from seqwise.lab.attention.f2_weights_sum_to_one import WeightsSumToOne
from seqwise.lab.attention.f3_scores import Scores
from seqwise.lab.attention.f4_f5_dot_product_moments import MeanOfDotProduct, VarianceOfDotProduct, draw_entries
from seqwise.lab.attention.f6_scaling import Scaling
from seqwise.lab.attention.f7_saturation import Saturation
from seqwise.lab.attention.f8_heads import Heads, Reporter
from seqwise.lab.attention.f9_causal_mask import CausalMask
from seqwise.lab.attention.f10_missing_mask import MissingMask
from seqwise.layers import Additive, Dot, causal_mask


class SoftmaxOverQueries(LoopAndMatrix):
    """The loops normalise over queries instead of keys: they attend with the roles of both exchanged."""

    def attend_by_loops(self, q, k, v):
        scores = torch.tensor(q) @ torch.tensor(k).T / self.d**0.5
        return (scores.softmax(0).double() @ torch.tensor(v).double()).tolist()


class MaskAfterSoftmax(WeightsSumToOne):
    """Masks the weights instead of the scores, so that the remaining ones no longer sum to 1."""

    def compute_weights(self, queries, keys, mask):
        return super().compute_weights(queries, keys, torch.ones_like(mask)) * mask


class LinearAdditive(Additive):
    """The additive score without its tanh."""

    def compare(self, queries, prepared_keys):
        q = torch.nn.functional.linear(queries, self.W)
        return (q.unsqueeze(-2) + prepared_keys.unsqueeze(-3)) @ self.v


class ForgottenTanh(Scores):
    """Leaves out the tanh of the additive score: the softmax then cancels the query."""

    def build_scores(self):
        return {**super().build_scores(), "additive": LinearAdditive(self.width, self.width, self.width)}

    def compare_with_formula(self, name):
        return 0.0  # training alone must detect it


class QueryEqualsKey(MeanOfDotProduct):
    """Compares each vector with itself: the mean grows by the variance of every entry."""

    def draw_pair(self, shape, distribution, generator):
        entries = draw_entries(shape, distribution, generator)
        return entries, entries


class ZeroMean(VarianceOfDotProduct):
    """Checks the formula for vectors of mean 0 only, where its wrong term vanishes."""

    def build_mean(self, width):
        return torch.zeros(width, dtype=torch.float64)


class ForgottenScale(Scaling):
    """Forgets to divide by √d."""

    def build_scores(self):
        return {"scaled": Dot(), "unscaled": Dot()}


class NoSoftmax(Saturation):
    """Leaves out the softmax: then the gradients do grow with the width."""

    def compute_weights(self, scores):
        return scores


class WideReporter(Reporter):
    def __init__(self, width, heads, outputs):
        super().__init__(width * heads, heads, outputs)


class FullWidthHeads(Heads):
    """Gives each head the full width instead of a share of it, so that every head costs as much as one alone."""

    model_type: ClassVar = WideReporter


class MaskOffByOne(CausalMask):
    """Lets each query attend to the next key too."""

    def run_encoder(self, encoder, x, causal):
        mask = causal_mask(self.length, offset=1) if causal else None
        for layer in encoder.layer:
            x = layer(x, mask=mask)[0]
        return encoder.norm(x)


class MaskNotRemoved(MissingMask):
    """Trains two models with the mask, so there is nothing to compare."""

    models: ClassVar = {"masked": True, "unmasked": True}


VARIANTS = {
    "F1": SoftmaxOverQueries,
    "F2": MaskAfterSoftmax,
    "F3": ForgottenTanh,
    "F4": QueryEqualsKey,
    "F5": ZeroMean,
    "F6": ForgottenScale,
    "F7": NoSoftmax,
    "F8": FullWidthHeads,
    "F9": MaskOffByOne,
    "F10": MaskNotRemoved,
}

# Statements whose verdict the textbook leaves open, or that the measurement contradicts: id → verdict
FOUND: dict[str, str] = {
    "F8": "holds if",  # left open: trained heads differ where the task needs several relations, and coincide elsewhere
}
