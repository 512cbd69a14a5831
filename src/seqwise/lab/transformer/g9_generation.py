"""G9: how does generation start, continue and stop?

    y₀ = ‹start›,   yₜ ~ p(· | y₀ … yₜ₋₁),   until yₜ = ‹end›

An autoregressive decoder predicts one token at a time. It first reads a start token, then each token that it has just
chosen, whether that was sampled or the most likely one. The end token is part of the vocabulary and a prediction like
any other: in training it is the target after the last word, so a model learns *when* to stop from data. Nothing else
in the loop knows how long a text is; with the end token forbidden only a maximum length stops it.

The trace records what a small trained decoder reads while it samples sentences. The probability of a sentence,
recomputed from the predictions of its own trace with ‹end› as the last token, must be the one that the decoder reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from seqwise.decoding.options import SamplingOptions
from seqwise.decoding.sequences import Hypothesis
from seqwise.errors import pluralize
from seqwise.lab.experiment import Measured, Verdict, decide
from seqwise.lab.transformer.sentences import END, MAX_WORDS, START, WORDS, SentenceExperiment, TracedDecoder, spell
from seqwise.page.figures import Figure, Heatmap


@dataclass(frozen=True, kw_only=True)
class GenerationLoop(SentenceExperiment):
    id = "G9"
    claim = "Generation starts at a start token, feeds its own output back, stops at the end token."
    equation = "y₀ = ‹start›,  yₜ ~ p(· | y₀ … yₜ₋₁),  until yₜ = ‹end›"
    measurement = "The tokens that a trained decoder reads at each step while it samples sentences."
    rule = "Holds if all sentences read ‹start› first, then exactly their own tokens, and end by choosing ‹end›."
    try_next = "seqwise lab run G9 --steps 1: a decoder that is hardly trained runs the same loop, with odd sentences."
    seconds = 2
    quick = {"steps": 40, "sentences": 20}  # noqa: RUF012

    sentences: int = 50
    """Sentences that are sampled."""

    def measure(self) -> Measured:
        decoder = self.train_decoder()
        checks, examples = [], []
        for number in range(self.sentences):
            traced = self.trace(decoder)
            hypothesis = self.decode(traced, sampling=SamplingOptions(), seed=number)
            checks.append(check_trace(traced, hypothesis))
            examples.append((traced, hypothesis))
        endless = self.decode(self.trace(decoder), sampling=SamplingOptions(), banned=(END,))
        traced, example = max(examples, key=lambda each: min(len(each[1].ids), MAX_WORDS))
        starts, feeds_back, ends = np.array(checks).mean(0).tolist()
        return {
            "share_that_starts_at_the_start_token": starts,
            "share_that_reads_its_own_output": feeds_back,
            "share_that_stops_at_the_end_token": ends,
            "longest_sentence": max(len(each.ids) for _, each in examples),
            "length_if_the_end_token_is_forbidden": len(endless.ids),
            "example": spell(example.ids),
            "probabilities": torch.stack(traced.log_probs).exp().numpy(),
        }

    def judge(self, measured: Measured) -> Verdict:
        names = "starts_at_the_start_token", "reads_its_own_output", "stops_at_the_end_token"
        starts, feeds_back, ends = (measured[f"share_that_{name}"] for name in names)
        return decide(
            min(starts, feeds_back, ends) == 1,
            evidence=f"Of {self.sentences} sentences {100 * starts:.0f} % read ‹start› first, {100 * feeds_back:.0f} % "
            f"then read exactly the tokens they had chosen, and {100 * ends:.0f} % stopped by choosing ‹end›, after at "
            f"most {pluralize(measured['longest_sentence'], 'words')}; with ‹end› forbidden, generation stops at "
            f"{measured['length_if_the_end_token_is_forbidden']} words, the maximum length.",
            instead="Some sentences start otherwise, read other tokens than their own, or do not stop at ‹end›.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        tokens = ["‹start›", *measured["example"].split(), "‹end›"][:40]
        pairs = [f"{read} → {chosen}" for read, chosen in pairwise(tokens)]
        chart = Heatmap(
            title=f"Generation of “{measured['example']}”, step by step",
            values=measured["probabilities"][: len(pairs), 1:],
            rows=pairs,
            columns=WORDS[1:],
            row_label="token read → token chosen",
            column_label="next token",
            value_label="probability",
            low=0.0,
            high=1.0,
            note="Each row is one step; the token chosen is what the next step reads.",
        )
        return [chart]


def check_trace(traced: TracedDecoder, hypothesis: Hypothesis) -> tuple[bool, bool, bool]:
    """Returns whether a sentence starts at the start token, reads its own tokens, and stops at the end token."""
    chosen = [*hypothesis.ids, END]
    total = sum(float(log_probs[token]) for log_probs, token in zip(traced.log_probs, chosen, strict=False))
    return (
        traced.inputs[0] == [START],
        traced.inputs[1:] == [[token] for token in hypothesis.ids],
        len(traced.inputs) == len(chosen) and abs(total - hypothesis.log_probability) < 1e-3,
    )
