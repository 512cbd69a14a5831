"""F8: do several heads see different relations, and at no extra cost?

    head_i = softmax(Q_i K_iᵀ / √K) V_i,   K = D / H          context = W_o [head_1 … head_H]

H heads split the same D columns, so they have as many parameters and operations as one head of width D (Vaswani et al.
2017, §3.2.2); only the attention weights are H times as many. One head forms one weighted mean per query: to report
both neighbours it must average them, which loses their order. Two heads can take one each. But nothing in the loss asks
heads to differ: where one relation suffices, they learn the same one, and many trained heads can be removed (Michel et
al. 2019). Two heads for two relations show it clearly; with four the mean cosine is about 0.6, the rule's threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers import Embedding, LayerNorm, MultiHeadAttention, SinusoidalPositions
from seqwise.layers.record import record
from seqwise.lens.cost_counts import count_module
from seqwise.page.figures import Figure, Heatmap

TOKENS = 8  # size of the vocabulary
TASKS = {"two_relations": (-1, 1), "one_relation": (-1,)}  # offsets of the tokens to report: previous, next


class Reporter(nn.Module):
    """Reports, at each position, the tokens at some offsets from it: one layer of attention, one output per offset."""

    def __init__(self, width: int, heads: int, outputs: int):
        super().__init__()
        self.inputs = nn.Sequential(Embedding(TOKENS, width), LayerNorm(width), SinusoidalPositions(width))
        self.attention = MultiHeadAttention(width, heads)
        self.output = nn.Linear(width, outputs * TOKENS)

    def forward(self, ids: Tensor) -> Tensor:
        return self.output(self.attention(self.inputs(ids))[0]).unflatten(-1, (-1, TOKENS)).log_softmax(-1)


def compute_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return -model(x).gather(-1, y[..., None]).flatten()


@dataclass(frozen=True, kw_only=True)
class Heads(Experiment):
    id = "F8"
    claim = "Several heads see different relations at no extra cost."
    equation = "H heads of width D/H: 4D² + 4D parameters for any H"
    measurement = "Cost and accuracy of one head and of several, and the cosine of the heads' mean weights by offset."
    rule = "True of a task if parameters and operations equal those of one head and the mean cosine is below 0.6."
    try_next = "seqwise lab run F8 --heads 4: with more heads than relations, some heads duplicate others."
    seconds = 2.5
    quick: ClassVar = {"steps": 240}
    model_type: ClassVar = Reporter

    heads: int = 2
    """Number of heads, which divides the width."""
    width: int = 32
    """Width of the model."""
    length: int = 12
    """Length of the sequences."""
    steps: int = 300
    """Training steps of each model, of 32 sequences."""

    def measure(self) -> Measured:
        numbers: dict[str, Any] = self.measure_cost(1, "one_head") | self.measure_cost(self.heads, "several_heads")
        numbers["accuracy_one_head"] = self.train("two_relations", heads=1)[0]
        for task in TASKS:
            accuracy, profiles = self.train(task, self.heads)
            cosine = np.mean([a @ b / np.sqrt(a @ a * (b @ b)) for a, b in combinations(profiles, 2)] or [1.0])
            numbers |= {f"accuracy_{task}": accuracy, f"cosine_{task}": float(cosine), f"profiles_{task}": profiles}
        return numbers

    def measure_cost(self, heads: int, name: str) -> dict[str, float]:
        """Returns parameters, operations of the matrix products, and the number of attention weights."""
        attention = self.model_type(self.width, heads, outputs=1).attention
        with record(attention, "weights") as recording:
            attention(torch.randn(1, self.length, attention.width))
        operations = sum(part.count(self.length, self.length) for part in count_module(attention))
        counts = sum(p.numel() for p in attention.parameters()), operations, recording["weights"].numel()
        return {f"{key}_{name}": n for key, n in zip(("parameters", "operations", "weights"), counts, strict=True)}

    def train(self, task: str, heads: int) -> tuple[float, np.ndarray]:
        """Returns the accuracy of a trained model and the profile of each head, (H, T)."""

        def draw_batch(generator: torch.Generator, count: int = 32) -> tuple[Tensor, Tensor]:
            ids = torch.randint(TOKENS, (count, self.length), generator=generator)
            return ids, torch.stack([ids.roll(-offset, 1) for offset in TASKS[task]], -1)

        model = self.model_type(self.width, heads, outputs=len(TASKS[task]))
        fit(model, draw_batch, compute_loss, steps=self.steps, learning_rate=1e-2, seed=self.seed)
        x, y = draw_batch(make_generator(self.seed, self.steps), count=200)
        with torch.no_grad(), record(model, "attention.weights") as recording:
            accuracy = (model(x).argmax(-1) == y).double().mean()
        weights, t = recording["attention.weights"].mean(0), torch.arange(self.length)  # (H, T, T)
        profiles = [weights[:, t, (t + offset) % self.length].mean(-1) for offset in t - self.length // 2]
        return float(accuracy), torch.stack(profiles, -1).double().numpy()

    def judge(self, measured: Measured) -> Verdict:
        is_free = all(measured[f"{n}_one_head"] == measured[f"{n}_several_heads"] for n in ("parameters", "operations"))
        two, one = (measured[f"cosine_{task}"] for task in TASKS)
        return decide_condition(
            is_free and two < 0.6,
            is_free and one < 0.6,
            condition="the task rewards several relations (the cost is the same in any case)",
            evidence=f"The heads' cosine is {two:.2f} for two relations, {one:.2f} for one. Accuracy for both "
            f"neighbours: {measured['accuracy_two_relations']:.2f}, with one head {measured['accuracy_one_head']:.2f}.",
            instead="The heads do the same although there are two relations, or several cost more than one.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        chart = Heatmap(
            title="Mean attention weight of each trained head on each offset",
            values=np.concatenate([measured[f"profiles_{task}"] for task in TASKS]),
            rows=[f"{task.split('_')[0]}, head {h + 1}" for task in TASKS for h in range(self.heads)],
            columns=[f"{offset - self.length // 2:+d}" for offset in range(self.length)],
            row_label="relations, head",
            column_label="position of the key minus position of the query",
            value_label="mean attention weight",
            low=0.0,
            note="Two relations: both neighbours, −1 and +1, are to be reported; one relation: the previous one, −1.",
        )
        return [chart]
