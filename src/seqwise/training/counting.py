"""The training of the n-gram model: one pass of counting, seen as one step.

`Count` has the face of `TrainingRun`, so that whoever reads the steps need not know which of them it reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch

from seqwise.metrics.perplexity import exp_or_inf
from seqwise.ngram import NGram
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.scoring import score
from seqwise.tasks.language.task import Language
from seqwise.training.card import model_card
from seqwise.training.distribution import World
from seqwise.training.loop import Step
from seqwise.training.run import Run
from seqwise.training.signals import handle_signals, interrupt_at_once

COUNTED = "all n-grams are counted"


class Count:
    """The training of an n-gram model. Of several processes the first one counts and the others wait."""

    def __init__(self, run: Run, task: Language, world: World, log: Callable[[str], None]):
        self.run, self.task, self.world, self.log = run, task, world, log
        # A run that was killed while counting counts again.
        whole = run.has_weights() and any(row.get("ended") for row in run.metrics())
        self.ended = COUNTED if whole else ""

    def steps(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Step]:
        """The one step, unless it was made before."""
        if self.ended or self.world.sum(stop())[0]:
            return
        step = None
        if self.world.first:
            with handle_signals(interrupt_at_once):  # nothing is lost by it: half a count is no model
                step = self._count(self.run.settings)
        self.ended = self.world.share(COUNTED)
        if step is not None:
            yield step

    def _count(self, settings: ResolvedSettings) -> Step:
        self.run.drop_metrics_after(0)
        started = time.perf_counter()
        model = self.task.count(settings)
        nats, tokens = score(model, self.task.stores["valid"], settings)
        seconds = time.perf_counter() - started
        self.run.save_weights(_tensors(model.counts))
        loss, preprocessor = nats / tokens, len(self.task.stores["train"])
        step = Step(
            number=1,
            epoch=0,
            tokens=preprocessor,
            loss=loss,
            gradient_norm=0.0,
            learning_rate=0.0,
            seconds=seconds,
            tokens_per_second=preprocessor / seconds,
            progress=1.0,
            validation={"loss": loss, "perplexity": exp_or_inf(loss)},
            best=True,
            ended=COUNTED,
        )
        self.run.log(step)
        size = model.counts.describe()
        self.run.write_text("README.md", model_card(self.run, size, self.run.metrics(), self.task.primary_metric))
        self.log(size)
        return step


def _tensors(counts: NGram) -> dict[str, torch.Tensor]:
    tensors = {name: torch.from_numpy(array) for name, array in counts.tensors().items()}
    return tensors | {f"setting.{name}": torch.tensor(value) for name, value in counts.settings().items()}
