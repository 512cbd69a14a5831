"""One training from data to model card: what `seqwise train` and `seqwise.train` do.

A fresh run is a resumed run without a checkpoint: `create_run` makes the folder, `Fit` goes on from whatever is in
it. `Fit.steps` passes on the loop's stream and does the saving; drawing is left to whoever reads it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch

from seqwise import environment
from seqwise.config import Settings
from seqwise.errors import NonFiniteError, RunError, UsageError
from seqwise.metrics.perplexity import exp
from seqwise.tasks.language import Language, check_precision, score
from seqwise.training.budgets import Budget
from seqwise.training.card import model_card
from seqwise.training.checkpoints import newest_checkpoint, save_checkpoint, saving, weights_of, write_text
from seqwise.training.curve import curve_svg
from seqwise.training.defaults import Facts, resolve
from seqwise.training.distribution import World, local_device
from seqwise.training.loop import Step, Trainer
from seqwise.training.run import Origin, Run
from seqwise.training.signals import interruptible as interruptible

SAVE_SECONDS = 120  # at most so much work is lost to a kill
LOG_EVERY = 10  # updates between lines of metrics.jsonl

Say = Callable[[str], None]
Progress = Callable[[int, int], None]


def silent(message: str) -> None:
    """Where nobody listens."""


def create_run(
    data: str,
    settings: Settings,
    out: Path | None,
    *,
    command: str = "",
    say: Say = silent,
    progress: Progress | None = None,
    processes: int = 1,
) -> tuple[Run, Language]:
    """Read the data, fill in the settings by rule, make the run folder; nothing is left of it if that fails."""
    folder = out or _free_folder(settings)
    Run.refuse_existing(folder)
    settings = settings.model_copy(deep=True)
    if settings.budget is not None:
        Budget.parse(settings.budget)  # a wrong budget must not cost the reading of the data
    task = Language.prepare(data, settings, say=say, progress=progress)
    cuda = choose_device(settings).type == "cuda"
    settings, chosen = resolve(settings, _facts(task, cuda))
    task.check(settings)
    if settings.model != "ngram":
        task.batches(settings, 0, processes)  # complains about rows that cannot be divided
    origin = Origin(data, task.corpus.fingerprint, task.corpus.rule, command, environment.version())
    run = Run.create(folder, settings, origin, task.tokenizer, environment.describe())
    if chosen:
        say(_explain(settings, chosen))
    return run, task


def open_task(run: Run, say: Say = silent) -> Language:
    """The data of a run that exists, which must be what it was."""
    task = Language.prepare(run.origin.data, run.settings, run.tokenizer, say=say)
    if task.corpus.fingerprint != run.origin.fingerprint:
        raise RunError(
            f"{run.origin.data} is not the data this run began with.",
            repair="Put the original file back, or start a new run.",
        )
    return task


class Fit:
    """The training of one run, at any stage of it."""

    def __init__(self, run: Run, world: World = World(), task: Language | None = None, say: Say = silent):
        self.run, self.world = run, world
        self.say = say if world.first else silent
        settings = run.settings
        check_precision(settings)
        self.task = task or open_task(run, self.say)
        torch.manual_seed(settings.seed)
        self.model = model = self.task.build(settings).to(local_device(choose_device(settings)))
        self.trainer = Trainer(
            model,
            self.task.batches(settings, world.rank, world.size),
            settings.training,
            Budget.parse(settings.budget or ""),
            lambda: self.task.validate(model, settings, world),
            settings.seed,
            world,
        )
        self._restore()

    def _restore(self) -> None:
        snapshot = newest_checkpoint(self.run.checkpoints, self.say)
        if snapshot is not None:
            self.trainer.restore(snapshot)
        if self.trainer.place.best_loss is not None and not self.run.has_weights():
            self.say(f"the best weights in {self.run.folder} are lost; the newest are put in their place.")
            self._save_best()
        if self.world.first:
            self.run.forget_metrics_after(self.trainer.place.step)

    @property
    def ended(self) -> str:
        """Why training is over, if it is."""
        return self.trainer.place.ended

    def steps(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Step]:
        """The loop's steps, saved as they come. When `stop()` says so, the step at hand is the last."""
        if self.ended:
            return
        saved = time.monotonic()
        for step in self.trainer.steps():
            self._log(step)
            if step.best:
                self._save_best()
            late = time.monotonic() - saved > SAVE_SECONDS
            stopping, due = self.world.sum(stop(), self.world.first and (late or self._save_due(step)))
            if stopping or due:
                self._save(step.number)
                saved = time.monotonic()
            yield step
            if stopping:
                return

    def _save_due(self, step: Step) -> bool:
        every = self.run.settings.training.save_every
        return bool(step.ended) or (step.number % every == 0 if every else step.validation is not None)

    def _log(self, step: Step) -> None:
        due = step.number % LOG_EVERY == 0 or step.number == 1 or step.validation or step.ended
        if self.world.first and due:
            append_metrics(self.run, step)

    def _save_best(self) -> None:
        with self.trainer.averaged():
            if self.world.first:
                self.run.save_weights(weights_of(self.trainer.model))

    def _save(self, step: int) -> None:
        snapshot = self.trainer.snapshot()
        if not all(bool(parameter.isfinite().all()) for parameter in self.trainer.parameters):
            raise NonFiniteError(
                f"the weights are no longer finite after step {step}: this update was too large.",
                repair="The last good checkpoint is kept. Try half the learning rate (--training.learning-rate).",
            )
        if self.world.first:
            parameters = sum(p.numel() for p in self.trainer.model.parameters())
            write_text(self.run.folder / "curve.svg", curve_svg(self.run.metrics()))
            write_text(self.run.folder / "README.md", model_card(self.run, f"{parameters:,} parameters"))
            save_checkpoint(self.run.checkpoints, step, snapshot)


def count_run(run: Run, task: Language, say: Say = silent) -> Step:
    """Train the n-gram model, which takes one pass of counting: the whole training in one step."""
    run.forget_metrics_after(0)
    started = time.perf_counter()
    model = task.count(run.settings)
    nats, tokens = score(model, task.stores["valid"], run.settings)
    counts = model.counts
    tensors = {name: torch.from_numpy(array) for name, array in counts.tensors().items()}
    tensors |= {f"setting.{name}": torch.tensor(value) for name, value in counts.settings().items()}
    run.save_weights(tensors)
    validation = {"loss": nats / tokens, "perplexity": exp(nats / tokens)}
    seconds = time.perf_counter() - started
    learned = len(task.stores["train"])
    step = Step(
        number=1,
        epoch=0,
        tokens=learned,
        loss=nats / tokens,
        gradient_norm=0.0,
        learning_rate=0.0,
        seconds=seconds,
        tokens_per_second=learned / seconds,
        progress=1.0,
        validation=validation,
        best=True,
        ended="all n-grams are counted",
    )
    append_metrics(run, step)
    write_text(run.folder / "README.md", model_card(run, counts.describe()))
    say(counts.describe())
    return step


def append_metrics(run: Run, step: Step) -> None:
    """One line of `metrics.jsonl`."""
    row = {("step" if key == "number" else key): value for key, value in asdict(step).items() if value not in ("", ())}
    with saving(run.metrics_file), run.metrics_file.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def choose_device(settings: Settings) -> torch.device:
    """The GPU where there is one, unless the settings say otherwise."""
    if settings.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("PyTorch finds no CUDA device here.", repair="Leave out --device, or see: seqwise doctor")
    return torch.device(settings.device)


def _facts(task: Language, cuda: bool) -> Facts:
    return Facts(len(task.stores["train"]), len(task.tokenizer), cuda, environment.cpu_count())


def _free_folder(settings: Settings) -> Path:
    """runs/language-lstm-1, -2, …: the first that is not there."""
    number = 1
    while (folder := Path("runs") / f"{settings.task}-{settings.model}-{number}").exists():
        number += 1
    return folder


def _explain(settings: Settings, chosen: list[str]) -> str:
    def value(path: str) -> object:
        home: object = settings
        for part in path.split("."):
            home = getattr(home, part)
        return home

    return "chosen by rule: " + ", ".join(f"{path.replace('_', '-')} {value(path)}" for path in chosen)
