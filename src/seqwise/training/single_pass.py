"""The training of a model without gradients: it fits itself in one pass over the data, which is one step.

`SinglePassRun` has the interface of `TrainingRun`. It knows nothing of what the model computes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from seqwise.tasks.task import Task
from seqwise.training.card import model_card
from seqwise.training.distribution import World
from seqwise.training.loop import Step
from seqwise.training.run import Run
from seqwise.training.signals import handle_signals, interrupt_at_once


class SinglePassRun:
    """The training of one run. Of several processes the first one fits the model and the others wait."""

    def __init__(self, run: Run, task: Task, world: World, log: Callable[[str], None]):
        self.run, self.task, self.world, self.log = run, task, world, log
        self.model: Any = task.build(run.settings)
        # A run that was killed while the model was fitted starts again.
        is_complete = run.has_weights() and any(row.get("ended") for row in run.metrics())
        self.ended = str(self.model.finished) if is_complete else ""

    def steps(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Step]:
        """Yields the only step, unless it was made before."""
        if self.ended or self.world.sum(stop())[0]:
            return
        step = None
        if self.world.first:
            with handle_signals(interrupt_at_once):  # an unfinished pass has nothing to save
                step = self._fit()
        self.ended = self.world.share(self.model.finished)
        if step is not None:
            yield step

    def _fit(self) -> Step:
        self.run.drop_metrics_after(0)
        start = time.perf_counter()
        tokens = self.task.fit(self.model)
        validation = self.task.validate(self.model, self.run.settings, World())
        seconds = time.perf_counter() - start
        self.run.save_weights(self.model.get_tensors())
        step = Step(
            number=1,
            epoch=0,
            tokens=tokens,
            loss=validation["loss"],
            gradient_norm=0.0,
            learning_rate=0.0,
            seconds=seconds,
            tokens_per_second=tokens / seconds,
            progress=1.0,
            validation=validation,
            best=True,
            ended=self.model.finished,
        )
        self.run.log(step)
        size = self.model.describe()
        self.run.write_text("README.md", model_card(self.run, size, self.run.metrics(), self.task.primary_metric))
        self.log(size)
        return step
