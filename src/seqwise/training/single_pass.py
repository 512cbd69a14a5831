"""The training of a model that is fitted in one pass over the data, such as an n-gram model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from seqwise.clock import read_clock
from seqwise.signals import handle_signals, raise_interrupt
from seqwise.tasks.task import Task
from seqwise.training.card import build_model_card
from seqwise.training.distribution import World
from seqwise.training.run import Run, Summary
from seqwise.training.step import Step, TrainerState

CARD = "README.md"


class SinglePassRun:
    """Fits a model in one pass over the data. Of several processes the first one fits it and the others wait."""

    def __init__(self, run: Run, task: Task, world: World, log: Callable[[str], None]):
        self.run, self.task, self.world, self.log = run, task, world, log
        self.model: Any = task.build(run.settings)
        # A run that was killed before its last file was written, the model card, starts again.
        is_saved = run.has_weights() and (run.folder / CARD).exists()
        is_complete = is_saved and any(row.get("ended") for row in run.read_metrics())
        self.ended = str(self.model.finish_reason) if is_complete else ""
        self.summary: Summary | None = None

    def steps(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Step]:
        """Yields the only step, unless the model was fitted before."""
        if self.ended or self.world.sum(stop())[0]:
            return
        step = None
        if self.world.is_first:
            with handle_signals(raise_interrupt):  # an unfinished pass has nothing to save
                step = self._fit()
        self.ended = self.world.broadcast_text(self.model.finish_reason)
        if step is not None:
            yield step

    def finish(self) -> Summary | None:
        """Returns times and metrics, in the process that fitted the model."""
        return self.summary

    def _fit(self) -> Step:
        self.run.drop_metrics_after(0)
        times = [read_clock()]
        tokens = self.task.fit(self.model)
        times.append(read_clock())
        validation = self.task.validate(self.model, self.run.settings, World())
        times.append(read_clock())
        self.run.save_weights(self.model.get_tensors())
        times.append(read_clock())
        training, validating, saving = (end - start for start, end in pairwise(times))
        seconds = training + validating
        self.summary = Summary(
            {"reading": self.task.reading_seconds, "training": training, "validation": validating, "saving": saving},
            validation,
        )
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
            ended=self.model.finish_reason,
        )
        self.run.log(step)
        self.run.save_summary(self.summary)
        size = self.model.ngram.describe()
        state = TrainerState(step=step.number, tokens=tokens, seconds=seconds, ended=step.ended)
        self.run.write_text(CARD, build_model_card(self.run, self.task, size, state))
        self.log(size)
        return step
