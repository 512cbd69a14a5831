"""E5: which is better, an LSTM or a GRU?

    no cell has the smaller error on every task

Both cells are trained on the same batches with the same number of units, steps and the same learning rate, several
models of each, and compared by log(error of the GRU / error of the LSTM) with a 95 % t-interval over the models. On
*recall* a value has to survive many steps; the LSTM's forget gate starts at σ(1) = 0.73, the GRU's update gate at
σ(0) = 0.5, so the LSTM forgets less from the start. On *product* only the last two values matter and all others are
noise; the GRU, which forgets sooner, is ahead. With the two initial biases exchanged the winners of these tasks are
exchanged too: an initial value decides, not the number of gates. The tasks are chosen because they differ early in
training; after 300 steps the GRU's lead is gone and the LSTM keeps one task. Larger comparisons (Chung et al. 2014;
Jozefowicz et al. 2015; Greff et al. 2017) find no winner across tasks; `seqwise compare` answers for your own data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqwise.compare.statistics.significance import compute_mean_interval
from seqwise.errors import UsageError, suggest
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.lstm.small_tasks import (
    LastStepModel,
    SeparateModels,
    draw_adding,
    draw_product,
    draw_recall,
    train_on_task,
)
from seqwise.layers import GRUCell, LSTMCell
from seqwise.page.figures import BarChart, Figure

TASKS = {"recall": draw_recall, "product": draw_product, "adding": draw_adding}
CELLS: dict[str, type[LSTMCell | GRUCell]] = {"lstm": LSTMCell, "gru": GRUCell}


@dataclass(frozen=True, kw_only=True)
class LSTMOrGRU(Experiment):
    id = "E5"
    claim = "Neither LSTM nor GRU always wins."
    equation = "log(error of the GRU / error of the LSTM) is neither > 0 nor < 0 on every task"
    measurement = "Errors of LSTM and GRU after the same training, on several tasks, with 95 % intervals over models."
    rule = "Refuted if one of the two is better on every task beyond the 95 % interval; holds otherwise."
    try_next = "seqwise lab run E5 --biases exchanged: an initial bias decides who wins at recall and product."
    seconds = 5
    quick: ClassVar = {"tasks": "recall,product", "models": 8}

    tasks: str = "recall,product,adding"
    """Tasks, separated by commas: recall, product, adding."""
    models: int = 10
    """Number of models of each kind, with different initial weights and training data."""
    units: int = 16
    """Units of each cell."""
    length: int = 20
    """Length of the sequences."""
    steps: int = 60
    """Training steps."""
    biases: str = "usual"
    """Initial bias of forget and update gate: usual (LSTM 1, GRU 0) or exchanged (LSTM 0, GRU 1)."""

    def measure(self) -> Measured:
        names = self.parse_tasks()
        errors = {f"{cell}_on_{task}": self.train(cell, task) for task in names for cell in CELLS}
        ratios = {task: np.log(errors[f"gru_on_{task}"] / errors[f"lstm_on_{task}"]) for task in names}
        intervals = [compute_mean_interval(list(each)) for each in ratios.values()]
        means, low, high = (np.array([getattr(each, key) for each in intervals]) for key in ("mean", "low", "high"))
        return {
            **{f"error_of_{key}": float(np.exp(np.log(each).mean())) for key, each in errors.items()},
            "tasks_won_by_lstm": int((low > 0).sum()),
            "tasks_won_by_gru": int((high < 0).sum()),
            "log_ratios": means,
            "low": low,
            "high": high,
        }

    def parse_tasks(self) -> list[str]:
        """Returns the names of the tasks; raises `UsageError` for an unknown one."""
        if self.biases not in ("usual", "exchanged") or self.models < 2:
            raise UsageError(f"expected usual or exchanged biases and 2 models, received {self.biases}, {self.models}.")
        names = [name.strip() for name in self.tasks.split(",")]
        for name in names:
            if name not in TASKS:
                raise UsageError(f"there is no task {name!r}.", fix=suggest(name, TASKS))
        return names

    def train(self, cell: str, task: str) -> np.ndarray:
        """Returns the squared error of each model on new sequences, relative to guessing, (models,)."""
        models = SeparateModels([LastStepModel(self.build_cell(cell)) for _ in range(self.models)])
        # Without clipping: the norm would be that of all models, which have nothing to do with each other.
        options = {"length": self.length, "steps": self.steps, "seed": self.seed, "batch": 32 * self.models, "clip": 0}
        errors, _ = train_on_task(models, TASKS[task], **options)
        return errors.view(self.models, -1).mean(1).numpy()

    def build_cell(self, name: str) -> LSTMCell | GRUCell:
        cell = CELLS[name](2, self.units)
        if self.biases == "exchanged":  # of the gates that keep: f is the second of i, f, g, o and z of r, z, n
            cell.bias.data.view(-1, self.units)[1] = {"lstm": 0.0, "gru": 1.0}[name]
        return cell

    def judge(self, measured: Measured) -> Verdict:
        lstm, gru = measured["tasks_won_by_lstm"], measured["tasks_won_by_gru"]
        names = self.parse_tasks()
        key = "error_of_{}_on_{}"
        errors = [
            f"{measured[key.format('lstm', n)]:.2g} and {measured[key.format('gru', n)]:.2g} ({n})" for n in names
        ]
        return decide(
            max(lstm, gru) < len(names),
            evidence=f"Beyond the 95 % interval the LSTM is better on {lstm} and the GRU on {gru} of {len(names)} "
            f"task{'s' * (len(names) != 1)}. Errors of LSTM and GRU relative to guessing: {', '.join(errors)}.",
            instead=f"On these tasks the {'LSTM' if lstm else 'GRU'} is better beyond the interval every time.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        return [
            BarChart(
                title="GRU against LSTM after the same training",
                names=self.parse_tasks(),
                values=measured["log_ratios"],
                low=measured["low"],
                high=measured["high"],
                value_label="log(error of the GRU / error of the LSTM), with 95 % interval",
                note="Above 0 the LSTM is better, below 0 the GRU.",
            )
        ]
