"""A1: is next-word prediction many-to-one or aligned many-to-many?

    many-to-one     yₜ = f(x₁ … xₜ)            one prefix in, one prediction out
    many-to-many    (y₁ … y_T) = f(x₁ … x_T)   the whole sequence in, a prediction at every position out

Both, if the model is causal: output t then depends on x₁ … xₜ alone, so the sequence x₁ … x_T is T examples of
many-to-one that share their computation. A recurrent network is causal by construction, a Transformer by its mask
(Vaswani et al. 2017, §3.2.3). That is why a language model trains on all positions of a text in one pass and still
predicts one word at a time when it generates. A bidirectional model has no such choice: its output t has already read
xₜ₊₁, the very word it should predict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import Bidirectional, Embedding, Encoder, FullSoftmax, LSTMCell, PreNormEncoderLayer, Recurrent
from seqwise.page.figures import Figure, LineChart, Series


@dataclass(frozen=True, kw_only=True)
class NextWord(Experiment):
    id = "A1"
    claim = "Next-word prediction is many-to-one; it is also aligned many-to-many."
    equation = "f(x₁ … xₜ) at its last position = f(x₁ … x_T) at position t, for every t"
    measurement = "The loss of every next word, from each prefix alone and from one pass over the whole sequence."
    rule = "Holds if the two losses differ by less than 1e-9 at every position, for an LSTM and a causal Transformer."
    try_next = "seqwise lab run A1 --length 100: more positions, still equal; only the bidirectional LSTM differs."
    seconds = 0.2

    length: int = 20
    """Words of the sequence."""
    vocabulary: int = 50
    """Number of different words."""
    units: int = 16
    """Width of the embedding and of the layers; a multiple of 4."""

    def measure(self) -> Measured:
        words = torch.randint(self.vocabulary, (1, self.length + 1), generator=make_generator(self.seed))
        embedding = Embedding(self.vocabulary, self.units).double()
        models = {
            "lstm": Recurrent(LSTMCell(self.units, self.units)),
            "transformer": Encoder([PreNormEncoderLayer(self.units, 2, 4 * self.units, "gelu", rotary=True)]),
            "bidirectional": Bidirectional(*(Recurrent(LSTMCell(self.units, self.units)) for _ in range(2))),
        }
        measured: dict[str, float | np.ndarray] = {}
        for name, model in models.items():
            softmax = FullSoftmax(getattr(model, "units", self.units), self.vocabulary).double()
            inputs, targets = embedding(words[:, :-1]), words[0, 1:]
            with torch.no_grad():
                at_once = self.compute_losses(model.double(), softmax, inputs, targets)
                one_by_one = [
                    self.compute_losses(model, softmax, inputs[:, :t], targets[:t])[-1]
                    for t in range(1, self.length + 1)
                ]
            differences = at_once - torch.stack(one_by_one)
            measured[f"mean_loss_of_{name}"] = float(at_once.mean())
            measured[f"largest_difference_of_{name}"] = float(differences.abs().max())
            measured[f"differences_{name}"] = differences.numpy()
        return measured

    def compute_losses(self, model: nn.Module, softmax: FullSoftmax, inputs: Tensor, targets: Tensor) -> Tensor:
        """Returns the loss at each position (T,) of one sequence of vectors (1, T, D)."""
        log_probabilities = softmax(self.run_model(model, inputs))[0]
        return -log_probabilities.gather(1, targets[:, None])[:, 0]

    def run_model(self, model: nn.Module, inputs: Tensor) -> Tensor:
        return model(inputs)[0]  # an `Encoder` is causal unless asked otherwise

    def judge(self, measured: Measured) -> Verdict:
        lstm, transformer = (measured[f"largest_difference_of_{name}"] for name in ("lstm", "transformer"))
        return decide(
            max(lstm, transformer) < 1e-9,
            evidence=f"The loss of a prefix alone and its loss within the sequence differ by at most {lstm:.1g} (LSTM) "
            f"and {transformer:.1g} (causal Transformer), and by up to "
            f"{measured['largest_difference_of_bidirectional']:.2g} nats for the bidirectional LSTM.",
            instead="A model that reads later words predicts otherwise from the sequence than from its prefixes.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        positions = np.arange(1, self.length + 1)
        names = {"lstm": "LSTM", "transformer": "causal Transformer", "bidirectional": "bidirectional LSTM"}
        chart = LineChart(
            title="Loss of the next word: one pass over the sequence, less each prefix alone",
            series=[Series(name=label, x=positions, y=measured[f"differences_{key}"]) for key, label in names.items()],
            x_label="position t (words read)",
            y_label="difference of the losses (nats)",
            note="Zero means that reading the later words as well changes nothing; at the last word there are none.",
        )
        return [chart]
