"""B5: what does backpropagation through time cost, and what does truncating it cost?

    full        dL/dW = Σₜ Σₖ≤ₜ  (∂Lₜ/∂hₜ)(dhₜ/dhₖ)(∂⁺hₖ/∂W)        all activations stay in memory: O(T)
    truncated   the inner sum stops where hₜ's segment begins         those of one segment: O(window)

The backward pass needs the activations of each step it visits, so their memory grows with T. Truncated BPTT (Williams
& Peng 1990) splits the sequence into segments of `window` steps, passes the state from one to the next and stops the
gradient there: memory no longer depends on T, but all terms that cross a boundary are lost. That is a bias, not noise:
averaging over more data does not repair it (Tallec & Ollivier 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.lab.unrolling.saved_memory import SavedMemory
from seqwise.layers import Recurrent, RNNCell
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class Truncation(Experiment):
    id = "B5"
    claim = "Full BPTT needs memory proportional to T; truncation makes it constant and biases the gradient."
    equation = "memory: O(T) or O(window);  cos(g_truncated, g_full) < 1 for window < T"
    measurement = "The largest sum of saved activations (bytes) against T, and the cosine of the truncated gradient."
    rule = "Holds if 8 × T takes 7–9 × the memory in full, ≤ 1.1 × truncated; 1 − cosine is over 10 × another batch's."
    try_next = "seqwise lab run B5 --decay 0.5: with a short memory in the targets truncation loses less."
    seconds = 1.0
    minimums: ClassVar = {"steps": 16, "units": 2, "decay": 0.0}

    units: int = 16
    """Hidden units."""
    steps: int = 64
    """Length of the sequences whose gradients are compared; memory is measured up to 8 times this length."""
    window: int = 8
    """Steps of a segment when memory is measured."""
    batch: int = 256
    """Sequences of which the gradient is the mean."""
    decay: float = 0.95
    """The target is a sum of all inputs, in which that of k steps ago has the weight decay^k."""

    def measure(self) -> Measured:
        layer = Recurrent(RNNCell(1, self.units)).double()
        lengths, saved = self.steps * np.array([1, 2, 4, 8]), {"full": [0] * 4, "truncated": [0] * 4}
        for index, length in enumerate(map(int, lengths)):
            for name, window in (("full", length), ("truncated", self.window)):
                saved[name][index] = self.compute_gradient(layer, self.draw_inputs(length, 0), window)[1]
        x, other_x = self.draw_inputs(self.steps, 1), self.draw_inputs(self.steps, 2)
        full, other = (self.compute_gradient(layer, each, self.steps)[0] for each in (x, other_x))
        windows = np.unique(np.append(2 ** np.arange(int(np.log2(self.steps)) + 1), self.steps))
        gradients = torch.stack([self.compute_gradient(layer, x, int(window))[0] for window in windows])
        cosines = torch.cosine_similarity(gradients, full[None]).numpy()
        return {
            "memory_growth_full": saved["full"][-1] / saved["full"][0],
            "memory_growth_truncated": saved["truncated"][-1] / saved["truncated"][0],
            "bytes_per_sequence_full": saved["full"][-1] / self.batch,
            "bytes_per_sequence_truncated": saved["truncated"][-1] / self.batch,
            "cosine_of_shortest_window": float(cosines[0]),
            "cosine_of_another_batch": float(torch.cosine_similarity(other, full, dim=0)),
            "lengths": lengths,
            "bytes_full": np.array(saved["full"]) / self.batch,
            "bytes_truncated": np.array(saved["truncated"]) / self.batch,
            "windows": windows,
            "cosines": cosines,
        }

    def draw_inputs(self, length: int, number: int) -> Tensor:
        return torch.randn(self.batch, length, 1, dtype=torch.float64, generator=make_generator(self.seed, number))

    def compute_gradient(self, layer: Recurrent, x: Tensor, window: int) -> tuple[Tensor, int]:
        """Returns the gradient of the recurrent matrix by segments of `window` steps, and the peak of saved bytes."""
        weight, targets = layer.cell.weight_hidden, self.compute_targets(x)
        gradient, state, memory = torch.zeros_like(weight), None, SavedMemory(layer)
        with torch.autograd.graph.saved_tensors_hooks(memory.pack, memory.unpack):
            for part, target in zip(x.split(window, 1), targets.split(window, 1), strict=True):
                outputs, state = layer(part.clone(), state)  # a view would keep all of x in memory
                loss = (outputs.mean(-1, keepdim=True) - target).square().sum() / x.shape[:2].numel()
                gradient += torch.autograd.grad(loss, [weight])[0]
                state = tuple(each.detach() for each in state)
        return gradient.flatten(), memory.peak

    def compute_targets(self, x: Tensor) -> Tensor:
        """Returns the decaying sum of the inputs up to each step, scaled to a standard deviation of 1."""
        total, totals = torch.zeros_like(x[:, 0]), []
        for x_t in x.unbind(1):
            total = self.decay * total + x_t
            totals.append(total)
        return torch.stack(totals, 1) / torch.stack(totals).std()

    def judge(self, measured: Measured) -> Verdict:
        full, truncated = measured["memory_growth_full"], measured["memory_growth_truncated"]
        shortest, other = measured["cosine_of_shortest_window"], measured["cosine_of_another_batch"]
        return decide(
            7 < full < 9 and truncated < 1.1 and 1 - shortest > 10 * (1 - other),
            evidence=f"For 8 × T the saved activations grow {full:.2f}-fold in full and {truncated:.2f}-fold by "
            f"segments of length {self.window}. The gradient of one-step segments has a cosine of {shortest:.2f} with "
            f"the full one, that of another batch {other:.3f}.",
            instead="Memory grows otherwise, or the truncated gradient differs no more than that of another batch.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        memory = LineChart(
            title="Activations saved for the backward pass against the length of the sequence",
            series=[
                Series(name="full BPTT", x=measured["lengths"], y=measured["bytes_full"] / 1000),
                Series(name=f"segments of {self.window}", x=measured["lengths"], y=measured["bytes_truncated"] / 1000),
            ],
            x_label="length T (steps)",
            y_label="saved activations per sequence (kB)",
            note="Full BPTT saves every step; truncated BPTT frees a segment before it reads the next.",
        )
        bias = LineChart(
            title="Direction of the truncated gradient against the window",
            series=[Series(name="truncated gradient", x=measured["windows"], y=measured["cosines"])],
            x_label="window (steps)",
            y_label="cosine with the full gradient",
            x_log=True,
            references=[Reference(axis="y", value=measured["cosine_of_another_batch"], label="full, another batch")],
            note="Where the cosine is below that of another batch, truncation costs more than the choice of the data.",
        )
        return [memory, bias]
