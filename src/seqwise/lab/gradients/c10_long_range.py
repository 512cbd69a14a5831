"""C10: do vanishing gradients stop long-range learning, and do gates and attention repair it?

    ∂L/∂x_1 = ∂L/∂h_T · J_T ⋯ J_2 · ∂h_1/∂x_1,        RNN: J_t = diag(tanh') W,        LSTM: J_t contains diag(f_t)

What stands at step 1 can be learned only from the gradient that reaches step 1. In an RNN it passes through a matrix
and a tanh at every step; in an LSTM or GRU also through a gate, which multiplies it by a number near 1; in attention
directly, at any distance (Bengio et al. 1994; Hochreiter & Schmidhuber 1997; Vaswani et al. 2017, table 1). Two tasks
test it: adding two marked numbers of a long sequence, and repeating the first symbol after a noisy lag. The noise is
strong on purpose: with little or none, an RNN with an orthogonal W does not saturate and copies over longer lags.
Gates help only if they start open: a forget bias of 0 means f = ½, which leaves 2⁻¹⁰⁰ over 100 steps. Here the biases
of GRU and LSTM are set from the lag, which is known: units keep a state for 1 to lag steps (Tallec & Ollivier 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from seqwise.lab import synthetic
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.layers import GRUCell, LSTMCell, RNNCell, forget_bias_
from seqwise.page.figures import Figure, LineChart, Series

TASKS = ("adding", "copy")
MODELS = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM", "attention": "attention", "lstm_bias_0": "LSTM, forget bias 0"}


@dataclass(frozen=True, kw_only=True)
class LongRange(Experiment):
    id = "C10"
    claim = "Vanishing gradients stop long-range learning; gates and attention repair it."
    equation = "‖∂h_T/∂x_1‖ → 0  ⇒  x_1 is not learned"
    measurement = "The share of a guesser's loss that equal training removes (success), against the lag, in two tasks."
    rule = "True if on both tasks the success is > 0.5 for all at the shortest lag, and at the longest for GRU, LSTM "
    rule += "and attention but not the RNN; needs open gates if an LSTM with forget bias 0 fails there."
    try_next = "seqwise lab run C10 --noise 0.1: little noise drives the RNN's units, and it copies over longer lags."
    seconds = 25.0
    quick: ClassVar[Mapping[str, Any]] = {"lags": (5, 40), "steps": 300}

    units: int = 32
    """Hidden units of each model."""
    lags: tuple[int, ...] = (5, 10, 20, 40, 60)
    """Lengths of the adding problem and lags of the copy problem, in time steps; increasing."""
    steps: int = 450
    """Training steps, at most: training stops when 90 % of the guesser's loss is removed."""
    learning_rates: tuple[float, ...] = (0.02, 0.005)
    """Learning rates, tried one after the other until one solves the task."""
    noise: float = 2.0
    """Standard deviation of the noise that fills the lag of the copy problem."""

    def measure(self) -> Measured:
        measured: dict[str, Any] = {}
        for name in MODELS:
            for task in TASKS:
                success = np.array([self.compute_success(task, name, lag) for lag in self.lags])
                measured |= {f"{task}_{name}": success, f"success_on_{task}_of_{name}": float(success[-1])}
            gradient = self.compute_gradients(name)
            measured |= {f"gradient_{name}": gradient, f"gradient_over_longest_lag_of_{name}": float(gradient[-1])}
        return measured

    def make_task(self, name: str, lag: int) -> synthetic.SyntheticTask:
        if name == "adding":
            return synthetic.make_adding_problem(lag)
        return synthetic.make_copy_problem(lag, noise=self.noise)

    def build_model(self, name: str, task: synthetic.SyntheticTask, lag: int) -> nn.Module:
        """Returns an untrained model; the gates of "gru" and "lstm" start open."""
        if name == "attention":
            return synthetic.AttentionModel(task.inputs, self.units, task.outputs)
        cell = {"rnn": RNNCell, "gru": GRUCell}.get(name, LSTMCell)(task.inputs, self.units)
        if isinstance(cell, LSTMCell):
            forget_bias_(cell.bias, 0.0)
        if name in ("gru", "lstm"):
            synthetic.open_gates_(cell, lag)
        return synthetic.RecurrentModel(cell, task.outputs)

    def compute_success(self, task_name: str, name: str, lag: int) -> float:
        torch.manual_seed(self.seed)  # each training is the same whatever was trained before it
        task = self.make_task(task_name, lag)
        rates, build = self.learning_rates, lambda: self.build_model(name, task, lag)
        return task.train_best(build, rates, steps=self.steps, seed=self.seed)

    def compute_gradients(self, name: str) -> np.ndarray:
        """Returns the gradient with respect to the input at distance 1 … lag, relative to distance 1, untrained."""
        task = self.make_task("copy", self.lags[-1])
        norms = task.measure_gradients(self.build_model(name, task, self.lags[-1]), self.seed)[1:]
        return (norms / norms[0]).numpy()

    def judge(self, measured: Measured) -> Verdict:
        longest = {name: [measured[f"{task}_{name}"][-1] for task in TASKS] for name in MODELS}
        shortest = min(measured[f"{task}_{name}"][0] for task in TASKS for name in MODELS)
        rnn, half = max(longest["rnn"]), min(longest["lstm_bias_0"])
        repaired = min(*longest["gru"], *longest["lstm"], *longest["attention"])
        return decide_condition(
            shortest > 0.5 > rnn and repaired > 0.5,
            half > 0.5,
            condition="the gates start open; with a forget bias of 0 an LSTM fails as well",
            evidence=f"At a lag of {self.lags[-1]} the RNN removes at most {100 * rnn:.0f} % of the loss of guessing; "
            f"GRU, LSTM and attention at least {100 * repaired:.0f} %; an LSTM with forget bias 0: {100 * half:.0f} %.",
            instead="At this lag the RNN learns too, or a gated model or attention fails as well.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        lags, distances = np.array(self.lags), np.arange(1, len(measured["gradient_rnn"]) + 1)
        tasks = {name: np.array([measured[f"{task}_{name}"] for task in TASKS]) for name in MODELS}
        success = LineChart(
            title="Success on the adding and the copy problem against the lag",
            series=[
                Series(name=MODELS[name], x=lags, y=each.mean(0), low=each.min(0), high=each.max(0))
                for name, each in tasks.items()
            ],
            x_label="lag (time steps)",
            y_label="success (0: guesses, 1: perfect)",
            x_log=True,
            note=f"Mean and range of both tasks after {self.steps} training steps, or fewer if 0.9 is reached before.",
        )
        gradients = LineChart(
            title="Gradient with respect to an input against its distance from the loss, before training",
            series=[Series(name=MODELS[name], x=distances, y=measured[f"gradient_{name}"]) for name in MODELS],
            x_label="distance (time steps)",
            y_label="gradient relative to distance 1",
            y_log=True,
            note="Training can use an input only if the gradient reaches it: compare the success at the longest lag.",
        )
        return [success, gradients]
