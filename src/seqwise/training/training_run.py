"""The training of a run, up to its model card, for `seqwise train` and `seqwise.train`.

A new run is a resumed run without a checkpoint: `create.py` creates the folder, `open_training` continues from its
content. `TrainingRun.steps` yields the steps of the loop and saves; the caller displays them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from seqwise.budget import Budget
from seqwise.callbacks import LogFunction, no_log
from seqwise.clock import read_clock
from seqwise.errors import NonFiniteError, RunError, UsageError
from seqwise.families import get_family
from seqwise.layers import Recurrent
from seqwise.tasks import get_task
from seqwise.tasks.checks import check_precision
from seqwise.tasks.task import Task
from seqwise.training.card import build_curve_svg, build_model_card
from seqwise.training.checkpoints import (
    get_weights,
    load_newest_checkpoint,
    load_weights,
    remove_unusable_checkpoints,
    save_checkpoint,
)
from seqwise.training.choices import choose_device
from seqwise.training.distribution import World, get_local_device
from seqwise.training.health_monitor import open_monitor
from seqwise.training.initialization import compile_layers, initialize_weights
from seqwise.training.loop import Step, Trainer
from seqwise.training.memory import explain_out_of_memory
from seqwise.training.run import Run, Summary
from seqwise.training.samples import open_samples
from seqwise.training.single_pass import SinglePassRun
from seqwise.training.step import get_objective
from seqwise.training.validation import (
    FORWARD_COST,
    MAX_VALIDATION_SHARE,
    choose_share,
    count_tokens,
    describe_share,
    estimate_share,
    explain_share,
    is_too_long,
    measure_share,
)
from seqwise.training.watch import LayerWatch

MAX_UNSAVED_SECONDS = 120  # seconds of training that a killed process can lose
LARGE_MODEL_BYTES = 16 * 2**20  # the checkpoint of such a model takes so long that not every validation has one
MIN_UNSAVED_SECONDS = 60  # between two checkpoints of a large model
STEPS_PER_LOG = 10  # steps between two lines of metrics.jsonl


def open_task(run: Run, log: LogFunction = no_log) -> Task:
    """Prepares the task of an existing run; its data must not have changed."""
    start = read_clock()
    task = get_task(run.settings.task).prepare(run.metadata.data, run.settings, run.preprocessor, log=log)
    task.reading_seconds = read_clock() - start
    if task.fingerprint != run.metadata.fingerprint:
        problem = f"{run.metadata.data} is not the data this run was started with."
        raise RunError(problem, fix="Put the original file back, or start a new run.")
    return task


def open_training(
    run: Run, world: World = World(), task: Task | None = None, log: LogFunction = no_log
) -> TrainingRun | SinglePassRun:
    """Returns the training of a run, which may be new, interrupted or finished (`ended` is not empty)."""
    log = log if world.is_first else no_log
    task = task or open_task(run, log)
    training_class = TrainingRun if get_family(run.settings.model).has_gradients else SinglePassRun
    return training_class(run, task, world, log)


class TrainingRun:
    """The training of a neural network by gradient descent, saved in a run folder."""

    def __init__(self, run: Run, task: Task, world: World = World(), log: LogFunction = no_log):
        self.run, self.task, self.world, self.log = run, task, world, log
        settings = run.settings
        check_precision(settings)
        torch.manual_seed(settings.seed)
        with explain_out_of_memory("the model does not fit into memory"):
            self.model = model = task.build(settings).to(get_local_device(choose_device(settings)))
        initialize_weights(model, task, run, log)
        if settings.training.compile:
            self._compile(model)
        self.trainer = Trainer(
            model,
            task.batches(settings, world.rank, world.size),
            settings.training,
            Budget.parse(settings.budget, settings.training.max_epochs),
            self._validate,
            settings.seed,
            world,
        )
        self._restore()
        self._is_resumed = self.trainer.state.step > 0
        self._has_validated = self._has_improved = False  # improved: some validation was better than all before it
        self.trainer.state.reading += task.reading_seconds
        self.valid_size = task.valid_size()
        self.max_tokens = count_tokens(self.trainer.budget, task.size().num_tokens)
        self._choose_validation_share()
        is_watched = settings.training.watch and world.is_first
        self.layer_watch = LayerWatch(self.trainer, run.log_layers) if is_watched else None
        self.monitor = open_monitor(run, task, model) if world.is_first and not self.ended else None
        self.samples = open_samples(run, task, self.trainer) if world.is_first else None

    def _validate(self, share: float | None = None) -> dict[str, float]:
        """Returns metrics on a share of the validation split, by default the share that is used during training."""
        share = share or self.trainer.state.validation_share
        return self.task.validate(self.model, self.run.settings, self.world, share)

    def _choose_validation_share(self) -> None:
        """Chooses the share of the validation split that is evaluated during training, unless a checkpoint has it."""
        trainer, state, split = self.trainer, self.trainer.state, self.valid_size
        if not state.validation_share and trainer.budget.unit != "seconds":
            state.validation_share = choose_share(split, self.max_tokens)
        elif not state.validation_share:
            start = read_clock()
            measured = measure_share(split, trainer.budget.amount, self.world, self._validate, self.max_tokens)
            state.validation_share, state.validation_seconds = measured
            state.validating_outside += read_clock() - start
        if state.validation_share < 1:
            trainer.validation_cost = FORWARD_COST * state.validation_share * split.num_tokens / self.max_tokens
        seconds = state.validation_seconds
        if (state.validation_share < 1 or is_too_long(seconds, trainer.budget)) and not state.ended:
            share = describe_share(state.validation_share, split.num_tokens, self.task.unit)
            has_interval = bool(trainer.settings.validate_every)
            reason = explain_share(state.validation_share, split, has_interval, seconds, trainer.budget)
            self.log(f"validation: {share} during training{reason}.")

    def finish(self) -> Summary | None:
        """Returns times and metrics of a finished run, and saves them as `summary.json`; None if it is not finished.

        If only a share of the validation split was evaluated so far, the best weights are evaluated on as much of it as
        `MAX_VALIDATION_SHARE` of the training allows. All processes must call it.
        """
        if self._is_resumed and self._has_validated and not self._has_improved:
            self.log("no validation was better than the best one before: the weights of that one are kept.")
        if not self.ended:
            return None
        summary = self.run.load_summary()
        is_missing = summary is None or summary.step != self.trainer.state.step
        if self.world.sum(is_missing and self.world.is_first)[0]:
            summary = self._build_summary()
            if self.world.is_first:
                self.run.save_summary(summary)
                self._write_card_and_curve()
        return summary

    def _build_summary(self) -> Summary:
        state = self.trainer.state
        validations = [row["validation"] for row in self.run.read_metrics() if row.get("validation")]
        validation, final_share = min(validations, key=get_objective, default=None), self._choose_final_share()
        if final_share is not None:
            start = read_clock()
            validation = self._validate_best(final_share)
            state.validating_outside += read_clock() - start
        seconds = {
            "reading": state.reading,
            "training": state.seconds - state.validating,
            "validation": state.validating + state.validating_outside,
            "saving": state.saving,
        }
        return Summary(
            seconds, validation, state.validation_share, final_share, state.step, num_averaged=state.num_averaged
        )

    def _choose_final_share(self) -> float | None:
        """Returns the share of the split on which the best weights are evaluated again; None if it is not needed."""
        state, trainer = self.trainer.state, self.trainer
        if state.validation_share == 1 or state.best_loss is None:
            return None
        share = estimate_share(self.valid_size, self.max_tokens)  # infinite if only time limits the training
        if trainer.budget.unit == "seconds":
            factor = MAX_VALIDATION_SHARE * trainer.budget.amount / max(1e-9, state.validation_seconds)
            share = min(share, state.validation_share * factor)
        return min(1.0, max(state.validation_share, share))

    def _validate_best(self, share: float) -> dict[str, float]:
        """Returns metrics of the best weights; afterwards the model has its newest weights again."""
        newest_weights = {name: tensor.clone() for name, tensor in get_weights(self.model).items()}
        self.world.barrier()  # until the best weights are written
        load_weights(self.model, self.run.read_weights(), self.run.folder)
        try:
            with explain_out_of_memory("validation does not fit into memory"):
                return self._validate(share)
        finally:
            load_weights(self.model, newest_weights, self.run.folder)

    def _compile(self, model: torch.nn.Module) -> None:
        """Compiles layers if possible. For a new run `create_run` has checked it; a resumed run continues without."""
        try:
            compile_layers(model, next(model.parameters()).device)
        except UsageError as error:
            self.log(f"continuing without compiled layers: {error.problem}")

    def _restore(self) -> None:
        """Continues from the newest checkpoint, if there is one; all processes get the tensors of the first."""
        snapshot = load_newest_checkpoint(self.run.checkpoints, self.log, self.trainer.check_snapshot)
        if snapshot is not None:
            self.trainer.restore(snapshot)
        self.world.broadcast(self.trainer.snapshot().tensors.values())
        state = self.trainer.state
        if (state.best_loss is not None or state.ended) and not self.run.has_weights():
            self.log(f"the best weights in {self.run.folder} are missing or damaged; the newest are used instead.")
            self._save_best_weights()
        self.world.barrier()  # until all processes have read the checkpoint
        if self.world.is_first:
            remove_unusable_checkpoints(self.run.checkpoints, state.step)
            self.run.drop_metrics_after(state.step)
            if snapshot is not None:
                self._write_card_and_curve()  # a kill may have prevented it
        if state.step and not state.ended:
            self.log(f"resuming at step {state.step:,}.")

    @property
    def ended(self) -> str:
        """Returns why training has ended, or "" if it has not."""
        return self.trainer.state.ended

    def steps(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Step]:
        """Yields the steps of the loop, and saves. The first step after `stop()` returns true is the last."""
        if self.ended:
            return
        last_save = read_clock()
        first_step = self.trainer.state.step + 1
        for step in self.trainer.steps():
            if step.number == first_step:
                self._save_backends()
            step = self._log_step(step)
            self._has_validated |= bool(step.validation)
            self._has_improved |= step.best
            start = read_clock()
            if step.best:
                self._save_best_weights()
            should_stop, should_save = self.world.sum(
                stop(), self.world.is_first and self._is_save_due(step, last_save)
            )
            if should_stop or should_save:
                self._save_checkpoint(step.number)
                last_save = read_clock()
            if (should_stop or step.ended) and self.trainer.state.best_loss is None:
                self._save_best_weights()  # without a validation these are the newest weights
            self.trainer.state.saving += read_clock() - start
            yield step
            if should_stop:
                return

    def _save_backends(self) -> None:
        """Saves which backend computes each recurrent layer, which is known after the first batch."""
        layers = {name: module for name, module in self.model.named_modules() if isinstance(module, Recurrent)}
        # A recurrent layer whose cell other modules call directly has no backend.
        backends = {name: layer.backend for name, layer in layers.items() if layer.backend}
        if backends and self.world.is_first:
            self.run.update_environment(recurrent_layers=backends)

    def _is_save_due(self, step: Step, last_save: float) -> bool:
        unsaved_seconds = read_clock() - last_save
        if step.ended or unsaved_seconds > MAX_UNSAVED_SECONDS:
            return True
        if interval := self.run.settings.training.save_every:
            return step.number % interval == 0
        if step.validation is None or unsaved_seconds > MIN_UNSAVED_SECONDS:
            return step.validation is not None
        return sum(parameter.nbytes for parameter in self.trainer.parameters) < LARGE_MODEL_BYTES

    def _log_step(self, step: Step) -> Step:
        """Writes a line of metrics.jsonl if one is due; returns the step, with a note if training goes wrong."""
        is_due = step.number % STEPS_PER_LOG == 0 or step.number == 1 or step.validation or step.ended
        if self.monitor is not None and is_due:  # in the first process
            step = replace(step, notes=(*step.notes, *self.monitor.add(step)))
            self.run.log(step)
        if self.layer_watch is not None:
            self.layer_watch.finish_step(step)
        if self.samples is not None:
            self.samples.add(step)
        return step

    def _save_best_weights(self) -> None:
        with self.trainer.use_averaged_weights():
            if self.world.is_first:
                self.run.save_weights(get_weights(self.trainer.model))

    def _save_checkpoint(self, step: int) -> None:
        snapshot = self.trainer.snapshot()
        if not all(bool(parameter.isfinite().all()) for parameter in self.trainer.parameters):
            problem = f"the weights are no longer finite after step {step}: this update was too large."
            fix = "The last good checkpoint is kept. Try half the learning rate (--training.learning-rate)."
            raise NonFiniteError(problem, fix=fix)
        if self.world.is_first:
            save_checkpoint(self.run.checkpoints, step, snapshot)
            self._write_card_and_curve()  # last, so that a nearly full disk has room for the checkpoint

    def _write_card_and_curve(self) -> None:
        """Writes the learning curve and the model card."""
        num_parameters = sum(p.numel() for p in self.trainer.model.parameters())
        self.run.write_text("curve.svg", build_curve_svg(self.run.read_metrics(), self.task.unit))
        card = build_model_card(self.run, self.task, f"{num_parameters:,} parameters", self.trainer.state)
        self.run.write_text("README.md", card)
