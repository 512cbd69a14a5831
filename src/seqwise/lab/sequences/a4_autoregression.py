"""A4: are past values used directly, or through a hidden state?

    autoregression     x̂ₜ₊₁ = f(xₜ, xₜ₋₁ … xₜ₋ₚ₊₁)              a window of p past values
    hidden state       x̂ₜ₊₁ = g(hₜ),   hₜ = f(xₜ, hₜ₋₁)          a summary of all of them

Both model the same conditional distribution (Zhang et al., Dive into Deep Learning, §9.1). For a linear process least
squares solves the window, but what is older than p steps does not exist for it. A hidden state has no such limit: it
keeps what training finds useful. The process here is x(t) = 0.9 x(t − lag) + noise, of which 0.81 of the variance can
be predicted, by a model that remembers `lag` steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers import Recurrent, RNNCell
from seqwise.page.figures import Figure, LineChart, Reference, Series

COEFFICIENT = 0.9  # of the value `lag` steps ago


class HiddenState(nn.Module):
    def __init__(self, units: int):
        super().__init__()
        self.layer, self.output = Recurrent(RNNCell(1, units)), nn.Linear(units, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.layer(x)[0])


@dataclass(frozen=True, kw_only=True)
class Autoregression(Experiment):
    id = "A4"
    claim = "Past values can be used directly (autoregression) or through a hidden state."
    equation = "x̂ₜ₊₁ = f(xₜ … xₜ₋ₚ₊₁)  or  x̂ₜ₊₁ = g(hₜ), hₜ = f(xₜ, hₜ₋₁)"
    measurement = "The share of variance that a window and an RNN predict, for processes of lags from p/2 to 2p."
    rule = "Holds if both predict ≥ 0.5 of the variance for lags up to p; beyond it the RNN ≥ 0.5, the window < 0.2."
    try_next = "seqwise lab run A4 --window 8: a longer window reaches further, and the RNN still reaches twice as far."
    seconds = 3.0
    quick: ClassVar = {"training_steps": 70}

    window: int = 4
    """Past values that the autoregressive model reads."""
    units: int = 32
    """Hidden units of the RNN."""
    training_steps: int = 200
    """Batches on which each RNN is trained."""

    def measure(self) -> Measured:
        lags = sorted({max(1, self.window // 2), self.window, self.window + 2, 2 * self.window})
        scores = {"window": [self.score_window(lag) for lag in lags], "rnn": [self.score_rnn(lag) for lag in lags]}
        within = sum(lag <= self.window for lag in lags)
        return {
            **{f"lowest_score_of_{name}_within_reach": min(column[:within]) for name, column in scores.items()},
            "highest_score_of_window_beyond_reach": max(scores["window"][within:]),
            "lowest_score_of_rnn_beyond_reach": min(scores["rnn"][within:]),
            "lags": np.array(lags),
            **{f"scores_{name}": np.array(column) for name, column in scores.items()},
        }

    def draw_process(self, generator: torch.Generator, lag: int, batch: int = 32) -> tuple[Tensor, Tensor]:
        """Returns values (B, T, 1) of the process with variance 1, and the values one step later."""
        steps = 8 * self.window  # errors of the second half count
        x = torch.randn(batch, steps + 1, generator=generator)
        for t in range(lag, steps + 1):
            x[:, t] = COEFFICIENT * x[:, t - lag] + (1 - COEFFICIENT**2) ** 0.5 * x[:, t]
        return x[:, :-1, None], x[:, 1:, None]

    def score_window(self, lag: int) -> float:
        """Returns the R² of linear autoregression by least squares, on new sequences."""
        rows, targets = [], []
        for number in range(2):
            x, y = self.draw_process(make_generator(self.seed, lag, number), lag, batch=512)
            windows = x[..., 0].unfold(1, self.window, 1)  # (B, T − p + 1, p)
            rows.append(windows[:, 3 * self.window + 1 :].reshape(-1, self.window))
            targets.append(y[:, 4 * self.window :].reshape(-1, 1))
        coefficients = torch.linalg.lstsq(rows[0], targets[0]).solution
        return compute_score(rows[1] @ coefficients, targets[1])

    def score_rnn(self, lag: int) -> float:
        """Returns the R² of a trained RNN on new sequences."""
        model = HiddenState(self.units)
        draw = partial(self.draw_process, lag=lag)
        fit(model, draw, compute_loss, steps=self.training_steps, seed=self.seed)
        x, y = draw(make_generator(self.seed, lag, 1), batch=512)
        return compute_score(self.predict(model, x)[:, 4 * self.window :], y[:, 4 * self.window :])

    @torch.no_grad()
    def predict(self, model: HiddenState, x: Tensor) -> Tensor:
        return model(x)

    def judge(self, measured: Measured) -> Verdict:
        window, rnn = (measured[f"lowest_score_of_{name}_within_reach"] for name in ("window", "rnn"))
        window_beyond = measured["highest_score_of_window_beyond_reach"]
        rnn_beyond = measured["lowest_score_of_rnn_beyond_reach"]
        return decide(
            min(window, rnn, rnn_beyond) >= 0.5 and window_beyond < 0.2,
            evidence=f"Up to a lag of {self.window} the window predicts {window:.2f} of the variance and the RNN "
            f"{rnn:.2f}; beyond it the window {window_beyond:z.2f} and the RNN {rnn_beyond:z.2f} (possible: 0.81).",
            instead="One of the two does not use the past values that it should.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {f"window of {self.window}": "scores_window", "RNN": "scores_rnn"}
        chart = LineChart(
            title="Predicted share of the variance against the lag of the process",
            series=[Series(name=name, x=measured["lags"], y=measured[key]) for name, key in names.items()],
            x_label="lag of the process (steps)",
            y_label="predicted share of the variance (R²)",
            references=[Reference(axis="y", value=COEFFICIENT**2, label="possible")],
            note=f"A window of {self.window} cannot read what is older; a hidden state can, if it learns to.",
        )
        return [chart]


def compute_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return (model(x) - y)[:, x.shape[1] // 2 :].square()


def compute_score(predicted: Tensor, targets: Tensor) -> float:
    return float(1 - (predicted - targets).square().mean() / targets.var())
