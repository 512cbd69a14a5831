"""Deliberately wrong variants of chapter A's experiments: each must change the verdict."""

from __future__ import annotations

from seqwise.lab.sequences.a1_next_word import NextWord
from seqwise.lab.sequences.a2_four_shapes import FourShapes
from seqwise.lab.sequences.a3_word_order import WordOrder
from seqwise.lab.sequences.a4_autoregression import Autoregression
from seqwise.lab.sequences.a5_padding import Padding
from seqwise.lab.sequences.a6_one_to_one import OneToOne
from seqwise.layers import Encoder, SinusoidalPositions


class ForgottenCausalMask(NextWord):
    """Lets every position of the Transformer attend to later words."""

    def run_model(self, model, inputs):
        return model(inputs, causal=False)[0] if isinstance(model, Encoder) else model(inputs)[0]


class WordByWord(FourShapes):
    """Translates every word by exactly one, which makes translation a kind of tagging."""

    def draw_task(self, task, generator, batch=64):
        return super().draw_task("tagging" if task == "translation" else task, generator, batch)


class ForgottenPositions(WordOrder):
    """Does not add the positions."""

    def build(self, kind):
        return super().build("attention" if kind == "positions" else kind)


class ForgottenState(Autoregression):
    """Resets the state at every step, so the RNN reads one value only."""

    def predict(self, model, x):
        return super().predict(model, x.reshape(-1, 1, 1)).view_as(x)


class ForgottenPaddingMask(Padding):
    """Does not pass the lengths, so the padding is read."""

    def get_lengths(self):
        return None


class InputWithTime(OneToOne):
    """Adds the position to the input, so the feed-forward network reads the time as well."""

    def run_feedforward(self, x):
        return super().run_feedforward(SinusoidalPositions(self.units)(x))


VARIANTS = {
    "A1": ForgottenCausalMask,
    "A2": WordByWord,
    "A3": ForgottenPositions,
    "A4": ForgottenState,
    "A5": ForgottenPaddingMask,
    "A6": InputWithTime,
}

# Statements whose verdict the textbook leaves open, or that the measurement contradicts: id → verdict
FOUND: dict[str, str] = {}
