"""A2: which inputs and outputs do sentiment, tagging, translation and captioning have?

    many-to-one            (x₁ … x_T) → y                 sentiment of a text
    aligned many-to-many   (x₁ … x_T) → (y₁ … y_T)        a tag for every word
    unaligned              (x₁ … x_T) → (y₁ … y_N)        translation: N is not known in advance
    one-to-many            x → (y₁ … y_N)                 a caption for an image

The shapes differ in where outputs are read, not in the network: the same recurrent backbone serves all four. One label
is read after the last input; tags are read at every step; texts are read from the end of the input on, each word fed
back as the next input until the network emits an end token (Karpathy 2015, "The unreasonable effectiveness of recurrent
neural networks"). Only the end token makes the length of an output independent of that of its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.lab.sequences import four_tasks
from seqwise.lab.sequences.four_tasks import END, IGNORED, Backbone, compute_loss
from seqwise.page.figures import BarChart, Figure, Table

TASKS = {"sentiment": "many-to-one", "tagging": "aligned", "translation": "unaligned", "caption": "one-to-many"}
SCORES = ("accuracy_of_", "baseline_of_")
TEXTS = ("translation", "caption")  # tasks whose output is generated word by word
Evaluation = tuple[np.ndarray, np.ndarray, float, float]


@dataclass(frozen=True, kw_only=True)
class FourShapes(Experiment):
    id = "A2"
    claim = (
        "Sentiment is many-to-one, entity tagging aligned many-to-many, translation unaligned, captioning one-to-many."
    )
    equation = "T → 1,  T → T,  T → N,  1 → N"
    measurement = "Numbers of inputs and outputs of four trained tasks on one backbone, and the accuracy."
    rule = (
        "Holds if the shapes are those of the claim and each accuracy beats that of the most frequent outputs by 0.15."
    )
    try_next = "seqwise lab run A2 --units 4: the shapes stay, but so small a backbone learns little."
    seconds = 3.0
    quick: ClassVar = {"training_steps": 70}

    units: int = 48
    """Hidden units of the backbone."""
    training_steps: int = 200
    """Batches of 64 examples on which each task is trained."""

    def measure(self) -> Measured:
        measured: dict[str, float | str] = {}
        for task in TASKS:
            model = Backbone(self.units)
            draw = partial(self.draw_training_batch, task)
            fit(model, draw, compute_loss, steps=self.training_steps, seed=self.seed)
            results = [self.evaluate(model, task, make_generator(self.seed, number)) for number in range(1, 9)]
            inputs, outputs = (np.concatenate([result[index] for result in results]) for index in (0, 1))
            measured[f"shape_of_{task}"] = name_shape(inputs, outputs)
            measured[f"inputs_of_{task}"], measured[f"outputs_of_{task}"] = format_range(inputs), format_range(outputs)
            measured[f"accuracy_of_{task}"] = float(np.mean([result[2] for result in results]))
            measured[f"baseline_of_{task}"] = float(np.mean([result[3] for result in results]))
        return measured

    def draw_task(self, task: str, generator: torch.Generator, batch: int = 64) -> four_tasks.Example:
        return getattr(four_tasks, f"draw_{task}")(generator, batch)

    def draw_training_batch(self, task: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.draw_task(task, generator)[:2]

    def evaluate(self, model: Backbone, task: str, generator: torch.Generator) -> Evaluation:
        """Returns the numbers of inputs and of outputs of each example, the accuracy, and that of a baseline."""
        x, targets, inputs = self.draw_task(task, generator, batch=128)
        first = int((targets != IGNORED).any(0).nonzero()[0])  # the step of the first output
        targets = targets[:, first:]
        with torch.no_grad():
            words = model(x)[:, first:].argmax(-1)
        if task in TEXTS:
            words = model.generate(x[:, : first + 1], targets.shape[1])
        outputs = (words != END).cumprod(1).sum(1)  # words before the end token
        most_frequent = torch.stack([column[column != IGNORED].mode().values for column in targets.unbind(1)])
        accuracies = [
            float((each == targets)[targets != IGNORED].double().mean()) for each in (words, most_frequent[None])
        ]
        return np.full(len(x), inputs), outputs.numpy(), *accuracies

    def judge(self, measured: Measured) -> Verdict:
        shapes = {task: measured[f"shape_of_{task}"] for task in TASKS}
        gains = {task: measured[f"accuracy_of_{task}"] - measured[f"baseline_of_{task}"] for task in TASKS}
        found = "; ".join(
            f"{task} {shapes[task]} ({' against '.join(f'{measured[key + task]:.2f}' for key in SCORES)})"
            for task in TASKS
        )
        return decide(
            shapes == TASKS and min(gains.values()) > 0.15,
            evidence=f"Shapes as counted, with the accuracy against that of the most frequent outputs: {found}.",
            instead="At least one task has another shape, or is not learned in this one.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        pairs = [(task, key) for task in TASKS for key in ("accuracy", "baseline")]
        bars = BarChart(
            title="One backbone on four tasks: accuracy of outputs against the most frequent ones",
            names=[f"{task}, {'trained' if key == 'accuracy' else key}" for task, key in pairs],
            values=np.array([measured[f"{key}_of_{task}"] for task, key in pairs]),
            value_label="share of correct outputs",
            note="Translations and captions are generated from the network's own outputs.",
        )
        rows = [[task, *(measured[f"{key}_of_{task}"] for key in ("inputs", "outputs", "shape"))] for task in TASKS]
        columns = ["task", "inputs", "outputs", "shape"]
        return [bars, Table(title="Inputs and outputs of the four tasks, as counted", columns=columns, rows=rows)]


def name_shape(inputs: np.ndarray, outputs: np.ndarray) -> str:
    """Returns the shape of a task by the numbers of inputs and outputs of its examples."""
    if (inputs == 1).all():
        return "one-to-many" if (outputs > 1).any() else "one-to-one"
    if (outputs == 1).all():
        return "many-to-one"
    return "aligned" if (inputs == outputs).all() else "unaligned"


def format_range(counts: np.ndarray) -> str:
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()}–{counts.max()}"
