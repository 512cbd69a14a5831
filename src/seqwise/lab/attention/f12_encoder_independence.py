"""F12: do the activations of an encoder depend on the decoder?

    memory = encoder(source; θ_enc)           ∂ loss/∂θ_enc = (∂ loss/∂ memory) (∂ memory/∂θ_enc)

In the forward pass nothing flows from the decoder to the encoder: the memory is a function of the source and of the
encoder's weights, so it can be computed once, cached, and shared by many targets and decoders (F13). In training the
arrow reverses. The loss reaches the encoder only through the decoder's cross-attention, so ∂ loss/∂ memory, and with it
every update of θ_enc, depends on the decoder's weights and on the targets. Two equal encoders that are trained with
different decoders become different encoders. "Independent" is therefore a statement about the computation of one
forward pass, not about what the encoder learns; a frozen encoder is independent in both senses.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers import Decoder, Encoder, EncoderDecoder, PreNormDecoderLayer, PreNormEncoderLayer
from seqwise.page.figures import Figure, LineChart, Series

STEPS_PER_POINT = 5  # of training, between two points of the figure


@dataclass(frozen=True, kw_only=True)
class EncoderIndependence(Experiment):
    id = "F12"
    claim = "Encoder activations do not depend on the decoder."
    equation = "∂ memory/∂θ_dec = 0"
    measurement = "Change of the encoder's output by another decoder: in a forward pass, and after training with it."
    rule = "True where the relative difference is exactly 0; tested in the forward pass and after training."
    try_next = "seqwise lab run F12 --learning-rate 0.0001: the encoders still separate, only more slowly."
    seconds = 1.0
    minimums: ClassVar = {"steps": STEPS_PER_POINT, "learning_rate": 0.0}
    quick: ClassVar = {"steps": 25}

    width: int = 16
    """Width of encoder and decoder."""
    length: int = 6
    """Positions of source and target."""
    steps: int = 60
    """Training steps."""
    learning_rate: float = 0.003
    """Learning rate of AdamW."""

    def measure(self) -> Measured:
        encoder = Encoder([PreNormEncoderLayer(self.width, 2, 2 * self.width, "relu")])
        first = EncoderDecoder(encoder, self.build_decoder())
        second = EncoderDecoder(deepcopy(encoder), self.build_decoder())
        source, target, other_target = self.draw_vectors(3, make_generator(self.seed, 1)).split(1)
        forward, trained = [], []
        for start in range(0, self.steps + 1, STEPS_PER_POINT):
            if start:
                self.train(first, start)
                self.train(second, start)  # on the same batches
            memory, mixed = self.read_memory(first, source, target), EncoderDecoder(first.encoder, second.decoder)
            forward.append(self.compare(memory, self.read_memory(mixed, source, other_target)))
            trained.append(self.compare(memory, self.read_memory(second, source, target)))
        return {
            "difference_in_the_forward_pass": max(forward),
            "difference_after_training": trained[-1],
            "forward_differences": np.array(forward),
            "trained_differences": np.array(trained),
        }

    def build_decoder(self) -> Decoder:
        return Decoder([PreNormDecoderLayer(self.width, 2, 2 * self.width, "relu")])

    def draw_vectors(self, number: int, generator: torch.Generator) -> Tensor:
        return torch.randn(number, self.length, self.width, generator=generator)

    def train(self, model: EncoderDecoder, seed: int) -> None:
        """Trains encoder and decoder to output the source in reverse order, given the vectors before it."""

        def draw_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
            source = self.draw_vectors(16, generator)
            return source, source.flip(1)

        def compute_loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
            shifted = nn.functional.pad(target, (0, 0, 1, -1))
            return (self.run_model(model, source, shifted) - target).square().mean((1, 2))

        fit(model, draw_batch, compute_loss, steps=STEPS_PER_POINT, learning_rate=self.learning_rate, seed=seed)

    def run_model(self, model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        return model(source, target)

    @torch.no_grad()
    def read_memory(self, model: EncoderDecoder, source: Tensor, target: Tensor) -> Tensor:
        """Returns the encoder's output while the whole model runs."""
        outputs = []
        handle = model.encoder.register_forward_hook(lambda module, inputs, output: outputs.append(output[0]))
        self.run_model(model, source, target)
        handle.remove()
        return outputs[0]

    def compare(self, memory: Tensor, other: Tensor) -> float:
        return float((memory - other).norm() / memory.norm())

    def judge(self, measured: Measured) -> Verdict:
        forward, trained = measured["difference_in_the_forward_pass"], measured["difference_after_training"]
        return decide_condition(
            forward == 0,
            trained == 0,
            condition="the encoder's weights are given, as in a forward pass; in training the decoder shapes them",
            evidence=f"Another decoder and other targets change the encoder's output by {forward:.3g} in a forward "
            f"pass; training with two different decoders changes it by {100 * trained:.1f} % after {self.steps} steps.",
            instead="The encoder's output changes with the decoder even in a forward pass.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(len(measured["trained_differences"])) * STEPS_PER_POINT
        names = {"one encoder, two decoders": "forward_differences", "two trained encoders": "trained_differences"}
        chart = LineChart(
            title="Does another decoder change what the encoder outputs for the same source?",
            series=[Series(name=name, x=steps, y=100 * measured[key]) for name, key in names.items()],
            x_label="training step",
            y_label="relative difference of the encoder's output (%)",
            note="The same encoder in front of two decoders, and two encoders that start equal, trained with one each.",
        )
        return [chart]
