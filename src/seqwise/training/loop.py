"""The training loop: a generator of `Step`s.

It neither displays nor saves anything; its caller does. At every `yield` the trainer is between two updates, so a
`snapshot()` taken there and restored in a new process leads to the same weights bit for bit: the batch order is a
function of (seed, epoch), the dropout masks of (seed, step, rank), and everything else is in the snapshot.

Details are in other modules: data types (`step.py`), micro-batches when memory runs out and the last batch of a token
budget (`memory.py`), CUDA graphs (`replay.py`), several processes (`distribution.py`).

The loop knows nothing of tasks: a model is called as `model(batch, state) → (Loss, state)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.backbones.states import ModelState, detach, flatten, get_structure, map_state, unflatten
from seqwise.budget import Budget
from seqwise.clock import read_clock
from seqwise.data.batch import Batch, Batches
from seqwise.errors import MemoryLimitError
from seqwise.resolved_settings import ResolvedTrainingSettings
from seqwise.training.averaging import LastWeights, build_average, describe_mean
from seqwise.training.checkpoints import Snapshot, get_weights, load_weights
from seqwise.training.distribution import World
from seqwise.training.memory import MicroBatches, explain_out_of_memory, limit_to_budget
from seqwise.training.optimizers import (
    SCHEDULES,
    build_optimizer,
    clip_gradients,
    get_optimizer_state,
    load_optimizer_state,
    set_learning_rate,
    skip_step_if,
    supports_skipping,
)
from seqwise.training.replay import GraphReplay
from seqwise.training.rows import is_count
from seqwise.training.step import (
    PrefetchIterator,
    Step,
    TrainerState,
    Update,
    check_snapshot,
    explain_non_finite,
    get_objective,
)
from seqwise.training.validation import MAX_VALIDATION_SHARE, NUM_VALIDATIONS, is_too_long

UPDATE_TOO_LARGE = "the update of the weights does not fit into memory"
STALL_WINDOW = 5  # averaged SGD starts after this many validations without improvement (Merity et al. 2018)

ValidateFunction = Callable[[], dict[str, float]]  # returns metrics; `get_objective` is the one to minimise


class Trainer:
    """A model, its batches and its optimiser."""

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        settings: ResolvedTrainingSettings,
        budget: Budget,
        validate: ValidateFunction | None = None,
        seed: int = 0,
        world: World = World(),
    ):
        self.model, self.batches, self.settings, self.budget = model, batches, settings, budget
        self.validate, self.seed, self.world = validate, seed, world
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.optimizer = build_optimizer(model, settings)
        self.schedule = SCHEDULES[settings.schedule](settings.warmup)
        self.average = build_average(model, settings)
        self.last_weights = LastWeights(model, settings.average_last) if settings.average_last else None
        self.state = TrainerState(budget=str(budget))
        self.validation_cost = 0.0  # of one validation, as a fraction of training up to a number of tokens or epochs
        self.model_state: ModelState = None  # passed from batch to batch
        self.notes: list[str] = []  # messages for the next step
        self._start_time = 0.0  # `read_clock()` at which training would have started if it had never paused

        compute = partial(forward_backward, model, self.device, settings.precision == "bfloat16")
        on_one_gpu = world.size == 1 and self.device.type == "cuda"
        self.replay = GraphReplay(compute, model, self.device, self.notes.append, enabled=on_one_gpu)
        self.micro_batches = MicroBatches(self.replay, self.parameters, self.notes.append, settings.accumulate)
        # The GPU itself skips an update that is not finite, so the host launches the next batch without waiting.
        self.checks_on_device = on_one_gpu and supports_skipping(self.optimizer)

    def steps(self) -> Iterator[Step]:
        """Trains until the budget is spent, validation stops improving, or the caller stops iterating."""
        self._start_time = read_clock() - self.state.seconds
        while True:
            batches = self.batches.epoch(self.state.epoch, self.state.step_in_epoch)
            updates = PrefetchIterator(map(self.compute_gradients, batches))
            for update in updates:  # forward and backward: `forward_backward` at the end of this file
                self.clip_gradients(update)
                self.apply_update(update)  # optimizer.step()
                if self.checks_on_device and self._get_progress() < 1:
                    updates.prefetch()  # launches the next forward and backward before the host waits
                step = self.finish_step(update)  # waits for the loss
                if self._is_validation_due():
                    step = self.run_validation(step)
                self.state.ended = self._find_reason_to_stop(step)
                if self.state.ended and self.last_weights is not None:
                    step = self.validate_mean(step)

                pause_start = read_clock()
                yield self._complete_step(step)
                self._start_time += read_clock() - pause_start  # the caller's time is not training time
                if self.state.ended:
                    return
            self.state.epoch, self.state.step_in_epoch = self.state.epoch + 1, 0

    def compute_gradients(self, batch: Batch) -> Update:
        """Sets `.grad` to the gradients of the mean loss. Weights and counters stay as they are."""
        self.model.train()
        if getattr(self.model, "progress", None) is not None:  # a model that changes in the course of training
            self.model.progress = self._get_progress()  # type: ignore[assignment]
        share = limit_to_budget(batch, self.budget.count_tokens_left(self.state.tokens), self.world)
        with explain_out_of_memory(UPDATE_TOO_LARGE):
            batch = batch.to(self.device)
        model_state = None if batch.resets_state else self.model_state
        seed = ((self.seed * 1_000_003 + self.state.step) * 1_000_003 + self.world.rank) % 2**63  # of dropout
        loss_sum, next_state = self.micro_batches(batch, model_state, share, seed)
        return Update(batch, model_state, None if share.is_partial else next_state, share, loss_sum)

    def clip_gradients(self, update: Update) -> None:
        """Sums the gradients over all processes and clips them; starts copying the loss and the norm to the host."""
        with explain_out_of_memory(UPDATE_TOO_LARGE):
            # Zeros for parameters that this batch does not use (clusters of the adaptive softmax), so that all
            # processes sum the same list, and one process computes the same update as several.
            for parameter in self.parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self.world.sum_gradients([p.grad for p in self.parameters if p.grad is not None])
            norm = clip_gradients(self.parameters, self.settings.clip, self.settings.clip_threshold)
            update.is_not_finite = ~torch.isfinite(update.loss_sum + norm)
            update.loss_and_norm = torch.stack((update.loss_sum, norm.to(update.loss_sum))).to("cpu", non_blocking=True)
        if self.device.type == "cuda":
            update.copy_event = torch.cuda.Event()
            update.copy_event.record(torch.cuda.current_stream(self.device))

    def apply_update(self, update: Update) -> None:
        """Steps the optimiser, unless the loss or the norm of the gradients is not finite."""
        update.trainer_state = replace(self.state)
        update.learning_rate = set_learning_rate(self.optimizer, self.settings, self.schedule, self._get_progress())
        if not self.checks_on_device:
            self._require_finite(update)
        skip_condition = update.is_not_finite if self.checks_on_device else None
        with explain_out_of_memory(UPDATE_TOO_LARGE), skip_step_if(self.optimizer, skip_condition):
            self.optimizer.step()
        self.state.step += 1
        self.state.step_in_epoch += 1
        self.state.tokens += int(update.share.num_tokens)
        self.model_state = update.next_model_state

    def finish_step(self, update: Update) -> Step:
        """Waits for the loss of an update; updates the average of the weights, if the settings ask for one."""
        if self.checks_on_device:
            self._require_finite(update)
        self._update_average()
        state = self.state
        tokens_per_second = update.share.num_tokens / max(1e-9, update.seconds - state.seconds)
        state.seconds = update.seconds
        return Step(
            state.step, state.epoch, state.tokens, update.loss, update.gradient_norm, update.learning_rate,
            state.seconds, tokens_per_second, self._get_progress(),
        )  # fmt: skip

    def _update_average(self) -> None:
        """Adds the weights after an update to their average, which may start with them."""
        if self.average is None:
            return
        with explain_out_of_memory(UPDATE_TOO_LARGE):
            if self.average.is_running:
                self.average.update()
            elif self.settings.average_from < 1 and self._get_progress() >= self.settings.average_from:
                self.average.start()
                self.notes.append("weights are averaged from here on (training.average_from).")

    def run_validation(self, step: Step) -> Step:
        """Evaluates the model, and passes the result to the schedule and to averaged SGD."""
        state = self.state
        state.validations = max(state.validations + 1, self._count_due_validations(step.progress))
        metrics = self._evaluate(step.progress, self.use_averaged_weights)
        if self.last_weights is not None:
            with self.use_averaged_weights(), explain_out_of_memory(UPDATE_TOO_LARGE):
                self.last_weights.add()
        objective = get_objective(metrics)
        is_best = self._record_objective(objective, num_averaged=0)
        state.history.append(objective)
        self.schedule.record_validation(objective)
        recent, earlier = state.history[-STALL_WINDOW:], state.history[:-STALL_WINDOW]
        has_stalled = bool(earlier) and min(recent) > min(earlier)
        if self.settings.optimizer == "asgd" and self.average and not self.average.is_running and has_stalled:
            self.average.start()
            self.notes.append("validation has stalled: weights are averaged from here on.")
        return replace(step, validation=metrics, best=is_best)

    def validate_mean(self, step: Step) -> Step:
        """Evaluates the mean of the weights of the last validations; returns the step with its metrics if it is best.

        Then `use_averaged_weights` is a context with this mean.
        """
        assert self.last_weights is not None
        count = len(self.last_weights.weights)
        if count < 2:
            return step
        best_single = self.state.best_loss
        metrics = self._evaluate(step.progress, self.last_weights.apply)
        is_best = self._record_objective(get_objective(metrics), num_averaged=count)
        self.notes.append(describe_mean(count, get_objective(metrics), best_single, is_best))
        return replace(step, validation=metrics, best=True) if is_best else step

    def use_averaged_weights(self) -> AbstractContextManager[None]:
        """Returns a context in which the model has its averaged weights, if any, for evaluating and saving."""
        state = self.state
        # The best mean of an earlier, smaller budget is not the present one.
        is_mean_best = state.num_averaged > 0 and state.best_step == state.step
        if self.last_weights is not None and state.ended and is_mean_best:
            return self.last_weights.apply()
        return self.average.apply() if self.average else nullcontext()

    def _require_finite(self, update: Update) -> None:
        """Waits for the loss and the norm; if they are not finite, undoes the update of the state and raises."""
        if update.copy_event is not None:
            update.copy_event.synchronize()
        assert update.loss_and_norm is not None
        own_loss_sum, update.gradient_norm = update.loss_and_norm.tolist()
        loss_sum, update.seconds = self.world.sum(own_loss_sum, self._measure_seconds(self._start_time))
        update.loss = loss_sum / update.share.num_targets
        if not math.isfinite(loss_sum + update.gradient_norm):
            self.state, self.model_state = update.trainer_state, update.model_state
            with explain_out_of_memory("the search for what is not finite does not fit into memory"):
                raise explain_non_finite(self.model, update, self.state.step + 1, self.world)

    def _evaluate(self, progress: float, use_weights: Callable[[], AbstractContextManager[None]]) -> dict[str, float]:
        """Returns metrics with the weights of a context; adds the duration to the state."""
        start, state = read_clock(), self.state
        try:
            metrics = self._validate_with(use_weights())
        except MemoryLimitError:
            if not self.replay.holds_memory:
                raise
            self.replay.release_memory()
            metrics = self._validate_with(use_weights())
        seconds, validation_seconds = self.world.sum(
            self._measure_seconds(self._start_time), self._measure_seconds(start)
        )
        if progress < 1:
            state.seconds = seconds
            state.validating += validation_seconds
        else:  # the last validation is not part of the budget
            state.validating_outside += validation_seconds
        state.validation_seconds = validation_seconds
        return metrics

    def _validate_with(self, weights: AbstractContextManager[None]) -> dict[str, float]:
        assert self.validate is not None
        with explain_out_of_memory("validation does not fit into memory"), weights:
            return self.validate()

    def _record_objective(self, objective: float, num_averaged: int) -> bool:
        """Returns whether an objective is the best so far, and keeps it if it is."""
        state = self.state
        is_best = math.isfinite(objective) and (state.best_loss is None or objective < state.best_loss)
        if is_best:
            state.best_loss, state.num_averaged, state.best_step = objective, num_averaged, state.step
        return is_best

    def _is_validation_due(self) -> bool:
        if self.validate is None:
            return False
        progress = self._get_progress()
        if interval := self.settings.validate_every:
            return self.state.step % interval == 0 or progress >= 1
        spent_share = len(self.state.history) * self.validation_cost
        if self.budget.unit == "seconds":
            spent_share = max(spent_share, self.state.validating / self.budget.amount)
        has_no_time = is_too_long(self.state.validation_seconds, self.budget)
        if (has_no_time or spent_share > MAX_VALIDATION_SHARE * progress) and progress < 1:
            return False
        return self._count_due_validations(progress) > self.state.validations

    def _count_due_validations(self, progress: float) -> int:
        return math.floor(progress * NUM_VALIDATIONS + 1e-9)

    def _find_reason_to_stop(self, step: Step) -> str:
        """Returns why training ends after this step, or "" if it continues."""
        patience, history = self.settings.patience, self.state.history
        if patience and step.validation is not None and self.state.best_loss is not None:
            validations_since_best = len(history) - 1 - history.index(min(history))
            if validations_since_best >= patience:
                return f"validation has not improved {patience} times in a row"
        return self.budget.explain_end(*self._get_spent()) if step.progress >= 1 else self.state.ended

    def _get_progress(self) -> float:
        """Returns the fraction of the budget that is spent."""
        return self.budget.get_progress(*self._get_spent())

    def _get_spent(self) -> tuple[float, int, float]:
        """Returns the seconds, tokens and epochs of training so far."""
        return self.state.seconds, self.state.tokens, self._count_epochs()

    def _count_epochs(self) -> float:
        return self.state.epoch + self.state.step_in_epoch / self.batches.steps

    def _measure_seconds(self, start: float) -> float:
        """Returns the seconds since `start` in the first process, else 0, so that the sum is equal in all processes."""
        return read_clock() - start if self.world.is_first else 0.0

    def _complete_step(self, step: Step) -> Step:
        """Returns the step with the values that validation changes, and with the notes."""
        notes = tuple(self.notes)
        self.notes.clear()
        return replace(
            step, seconds=self.state.seconds, progress=self._get_progress(), ended=self.state.ended, notes=notes
        )

    def _continue_with_another_budget(self) -> None:
        """Changes the restored state so that training continues. The schedule depends on progress in the new budget."""
        state, progress = self.state, self._get_progress()
        if progress >= 1:
            raise self.budget.build_spent_error(*self._get_spent())
        state.ended, state.validations = "", self._count_due_validations(progress)
        state.history = [] if state.best_loss is None else [state.best_loss]  # patience counts from here on

    def snapshot(self) -> Snapshot:
        """Returns the content of a checkpoint. Every process must call it; the first one saves."""
        model_state = self.world.gather_state(self.model_state)
        tensors = {f"model.{name}": tensor for name, tensor in get_weights(self.model).items()}
        tensors |= {
            f"optimizer.{name}": tensor for name, tensor in get_optimizer_state(self.optimizer, self.model).items()
        }
        tensors |= flatten(model_state)
        trainer_state = vars(self.state) | {
            "history": list(self.state.history),
            "pieces": self.micro_batches.num_micro_batches,
        }
        # Existing checkpoints have the keys "place" (`TrainerState`), "carry" (model state), "pieces" (micro-batches).
        state: dict[str, Any] = {
            "place": trainer_state,
            "carry": get_structure(model_state),
            "schedule": self.schedule.state_dict(),
        }
        if self.average:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.weights.items()}
            state["average"] = self.average.num_averaged
        if self.last_weights is not None:
            tensors |= {f"last.{name}": tensor for name, tensor in self.last_weights.get_tensors().items()}
        return Snapshot(tensors, state)

    def check_snapshot(self, snapshot: Snapshot) -> None:
        """Raises a ValueError if training cannot resume from a snapshot, such as one with a value of a wrong type."""
        check_snapshot(snapshot, self.model, self.schedule.state_dict())
        if self.average and not is_count(snapshot.state.get("average")):
            raise ValueError("state.json: 'average' is missing or not a count")
        if self.last_weights is not None:
            self.last_weights.check_tensors(snapshot.select("last."))

    def restore(self, snapshot: Snapshot) -> None:
        """Restores a snapshot, which may come from another number of processes."""
        tensors, state = snapshot.tensors, snapshot.state

        load_weights(self.model, snapshot.select("model."), "checkpoint")
        load_optimizer_state(self.optimizer, self.model, snapshot.select("optimizer."))
        self.schedule.load_state_dict(state["schedule"])
        trainer_state = dict(state["place"])
        self.micro_batches.num_micro_batches = trainer_state.pop("pieces")
        self.state = TrainerState(**trainer_state)
        if self.state.budget not in ("", str(self.budget)):
            self._continue_with_another_budget()
        self.state.budget = str(self.budget)
        model_state = map_state(lambda tensor: tensor.to(self.device), unflatten(state["carry"], tensors))
        self.model_state = self.world.select_own_state(model_state)
        if self.average:
            self.average.load(snapshot.select("average."), state["average"])
            if self._get_progress() < self.settings.average_from < 1:
                self.average.stop()  # with another budget, its share has not been reached yet
        if self.last_weights is not None:
            self.last_weights.load_tensors(snapshot.select("last."))


def forward_backward(
    model: nn.Module, device: torch.device, use_bfloat16: bool, batch: Batch, state: ModelState, scale: Tensor
) -> tuple[Tensor, ModelState]:
    """Adds the gradients of objective · scale to `.grad`; returns the summed loss and the state after the batch."""
    with torch.autocast(device.type, torch.bfloat16, enabled=use_bfloat16):
        loss, state = model(batch, state)
    loss.objective.backward(scale.to(loss.total.dtype))
    return loss.total.detach().double(), detach(state)
