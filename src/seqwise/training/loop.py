"""The training loop: a generator of `Step`s.

It draws nothing and saves nothing; whoever reads the steps does. At every `yield` the trainer is between two updates,
so `snapshot()` taken there, restored in a new process, leads to the same weights bit for bit: the batch order is a
function of (seed, epoch), the dropout masks of (seed, step, rank), and everything else is in the snapshot. A GPU may
be at work on the gradients of the next update by then, so that it never waits for whoever reads.

The loop knows nothing of tasks: a model is called as `model(batch, carry) → (Loss, carry)`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from seqwise.backbones.states import ModelState, detach, flatten, join_rows, map_state, structure, unflatten
from seqwise.budget import Budget
from seqwise.data.batch import Batch
from seqwise.errors import MemoryLimitError, NonFiniteError
from seqwise.resolved_settings import ResolvedTrainingSettings
from seqwise.training.checkpoints import Snapshot, load_weights, weights_of
from seqwise.training.distribution import World
from seqwise.training.ending import Shares, shares_of
from seqwise.training.memory import within_memory
from seqwise.training.optimisers import Average, clip, make_optimiser, moments_of, restore_moments, step_unless
from seqwise.training.replay import Replay
from seqwise.training.schedules import make_schedule
from seqwise.training.step import Step, TrainerState, Update

T = TypeVar("T")
VALIDATIONS = 20  # per budget, unless `validate_every` says otherwise
SHARE = 0.1  # of a budget in seconds that validation may take, the last one apart
UPDATING = "the update of the weights does not fit into memory"
STALLED = 5  # averaged SGD begins when the last so many validations brought no improvement (Merity et al. 2018)


class Batches(Protocol):
    """What the loop needs of `data/corpus/batching.py`."""

    @property
    def steps(self) -> int: ...
    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]: ...


Validate = Callable[[], dict[str, float]]  # must hold "loss"; the number to make small is "goal", or else "loss"


class Trainer:
    """A model, its batches and its optimiser, taken forward one update at a time."""

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        settings: ResolvedTrainingSettings,
        budget: Budget,
        validate: Validate | None = None,
        seed: int = 0,
        world: World = World(),
    ):
        self.model, self.batches, self.settings, self.budget = model, batches, settings, budget
        self.validate, self.seed, self.world = validate, seed, world
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = self.parameters[0].device
        self.optimiser = make_optimiser(model, settings)
        self.device_decides = world.size == 1 and self.device.type == "cuda"  # whether an update is made
        self.schedule = make_schedule(settings.schedule, settings.warmup)
        decay = None if settings.optimizer == "asgd" else settings.ema
        self.average = Average(model, decay) if decay != 0 else None
        self.place = TrainerState(pieces=settings.accumulate)
        self.carry: ModelState = None
        self.notes: list[str] = []
        self.learn = partial(learn, model, self.device, settings.precision == "bfloat16")
        self.replay = Replay(self.learn, model, self.device, self.notes.append)
        self._started = 0.0  # when training would have begun, had it not been interrupted

    # The stream

    def steps(self) -> Iterator[Step]:
        """Train until the budget is spent, validation stops improving, or the reader stops reading."""
        self._started = time.perf_counter() - self.place.seconds
        for update in self._updates():
            step = self._finish(self._told(update))
            paused = time.perf_counter()
            step = replace(step, seconds=self.place.seconds, progress=self._progress())
            yield replace(step, ended=self.place.ended, notes=self._take_notes())
            self._started += time.perf_counter() - paused  # the reader's time is not training time
            if self.place.ended:
                return

    def _updates(self) -> Iterator[Update]:
        """One after another. An update that the device decides about comes when it has the next gradients to work on:
        it need not wait until somebody has looked at the last."""
        while True:
            batches, update = self.batches.epoch(self.place.epoch, self.place.step_in_epoch), None
            for following in attempts(self._begin(batch) for batch in batches):
                if update is not None:
                    yield update
                if isinstance(following, Exception):  # what has been made was shown first, and could be saved
                    raise following
                update = following
                self._make(update)
                if not update.decided or self._progress() >= 1:
                    yield update
                    update = None
            if update is not None:
                yield update
            self.place.epoch, self.place.step_in_epoch = self.place.epoch + 1, 0

    def _finish(self, step: Step) -> Step:
        """Validate when due, and note why training ends, if it does."""
        place = self.place
        progress = self._progress()
        due = self._due(progress)
        step = replace(step, progress=progress)
        if due and self.validate is not None:
            step = self._validated(step)
        if progress >= 1:
            place.ended = "the budget is spent"
        patience = self.settings.patience
        if due and patience and place.best_loss is not None:
            since = len(place.history) - 1 - place.history.index(min(place.history))
            if since >= patience:
                place.ended = f"validation has not improved {patience} times in a row"
        return step

    def _progress(self) -> float:
        place = self.place
        epochs = place.epoch + place.step_in_epoch / self.batches.steps
        return self.budget.progress(place.seconds, place.tokens, epochs)

    def _due(self, progress: float) -> bool:
        """Is it time to validate?"""
        if every := self.settings.validate_every:
            return self.place.step % every == 0 or progress >= 1
        if self.budget.unit == "seconds" and self.place.validating > SHARE * self.place.seconds and progress < 1:
            return False
        return math.floor(progress * VALIDATIONS + 1e-9) > self.place.validations

    def _since(self, began: float) -> float:
        """Seconds by the clock of the first process; summed over all, so that they decide alike."""
        return time.perf_counter() - began if self.world.first else 0.0

    def _validated(self, step: Step) -> Step:
        place = self.place
        place.validations = max(place.validations + 1, math.floor(self._progress() * VALIDATIONS + 1e-9))
        began = time.perf_counter()
        try:
            metrics = self._judged()
        except MemoryLimitError:
            if not self._without_replay():
                raise
            metrics = self._judged()
        seconds, spent = self.world.sum(self._since(self._started), self._since(began))
        if self._progress() < 1:  # the last validation judges what the budget has bought; it is no part of it
            place.seconds = seconds
        place.validating += spent
        loss = metrics.get("goal", metrics["loss"])
        best = math.isfinite(loss) and (place.best_loss is None or loss < place.best_loss)
        if best:
            place.best_loss = loss
        place.history.append(loss)
        self.schedule.validated(loss)
        if self.settings.optimizer == "asgd" and self.average and not self.average.running and self._stalled():
            self.average.start()
            self.notes.append("validation has stalled: weights are averaged from here on.")
        return replace(step, validation=metrics, best=best)

    def _judged(self) -> dict[str, float]:
        assert self.validate is not None
        with self.averaged(), within_memory("validation does not fit into memory"):
            return self.validate()

    def _stalled(self) -> bool:
        history = self.place.history
        return len(history) > STALLED and min(history[-STALLED:]) > min(history[:-STALLED])

    def averaged(self) -> AbstractContextManager[None]:
        """A block in which the model has the weights to be evaluated and saved."""
        return self.average.applied() if self.average else nullcontext()

    def _take_notes(self) -> tuple[str, ...]:
        notes = tuple(self.notes)
        self.notes.clear()
        return notes

    # One update

    def _begin(self, batch: Batch) -> Update:
        """The gradients. They change nothing: what is saved now is saved as before."""
        place = self.place
        self.model.train()
        # What changes inside a model in the course of training, as the rate does.
        if getattr(self.model, "progress", None) is not None:
            self.model.progress = self._progress()  # type: ignore[assignment]
        count, tokens = self.world.sum(batch.num_targets, batch.num_tokens)
        shares, left = Shares(batch.rows), self.budget.tokens_left(place.tokens)
        last = tokens > left
        if last:
            shares = shares_of(batch, left - sum(self.world.gather([batch.num_tokens])[: self.world.rank]))
            count, tokens = self.world.sum(shares.count(batch))[0], left
        count = count or 1.0  # a batch may happen to hold no target
        with within_memory(UPDATING):
            batch = batch.to(self.device)
        carry = None if batch.resets_state else self.carry
        loss, after = self._gradients(batch, carry, count, shares)
        after = None if last else after  # after the last update nothing goes on
        return Update(batch, carry, after, count, tokens, loss)

    def _make(self, update: Update) -> None:
        """The device decides, where it can, so that it need not wait for us to look."""
        place = self.place
        update.rate = self.settings.learning_rate * self.schedule.factor(self._progress())
        for group in self.optimiser.param_groups:
            group["lr"] = update.rate
        with within_memory(UPDATING):
            self.world.sum_gradients(self._all_gradients())
            length = clip(self.parameters, self.settings.clip, self.settings.clip_threshold)
            bad = ~torch.isfinite(update.loss + length)
            update.decided = self.device_decides and step_unless(self.optimiser, bad)
        update.numbers = torch.stack((update.loss, length.to(update.loss))).to("cpu", non_blocking=True)
        if self.device.type == "cuda":
            update.known = torch.cuda.Event()
            update.known.record(torch.cuda.current_stream(self.device))
        self.carry, update.place = update.after, replace(place)
        place.step, place.step_in_epoch = place.step + 1, place.step_in_epoch + 1
        place.tokens += int(update.tokens)

    def _told(self, update: Update) -> Step:
        """What became of an update. An update that makes no sense is none."""
        if update.known is not None:
            update.known.synchronize()  # the device may have worked on until here
        assert update.numbers is not None
        mine, norm = update.numbers.tolist()
        total, seconds = self.world.sum(mine, self._since(self._started))
        if not math.isfinite(total + norm):
            self.place, self.carry = update.place, update.carry
            with within_memory("a look for what is not finite does not fit into memory"):
                raise self._non_finite(update.batch, total / update.count, norm)
        with within_memory(UPDATING):
            if not update.decided:
                self.optimiser.step()
            if self.average:
                self.average.update()
        place, loss = self.place, total / update.count
        speed, place.seconds = update.tokens / max(1e-9, seconds - place.seconds), seconds
        return Step(place.step, place.epoch, place.tokens, loss, norm, update.rate, seconds, speed, 0.0)

    def _all_gradients(self) -> list[torch.Tensor]:
        """One per parameter: zeros where this batch left none, as an adaptive softmax does for unused clusters.

        So the list is the same in all processes, and one process makes the update that several make.
        """
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def _gradients(
        self, batch: Batch, carry: ModelState, count: float, shares: Shares
    ) -> tuple[torch.Tensor, ModelState]:
        """Gradients of the mean loss over all `count` targets of all processes, in as many pieces as memory needs."""
        while True:
            self._seed()
            self.optimiser.zero_grad(set_to_none=True)
            try:
                with within_memory(f"one row of {batch.length:,} steps does not fit into memory"):
                    return self._accumulate(batch, carry, count, shares)
            except MemoryLimitError:
                if self.place.pieces >= batch.rows and not self.replay.recorded:
                    raise
            # Outside the handler, so that the failed attempt's tensors are released first.
            if not self._without_replay():
                self.place.pieces = min(self.place.pieces * 2, batch.rows)
                self.notes.append(
                    f"out of memory: the batch of {batch.rows} rows is now computed in {self.place.pieces} pieces; "
                    "the updates stay the same."
                )
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _without_replay(self) -> bool:
        """Is there memory to be had from recorded gradients? Then take it."""
        held = self.replay.give_up("out of memory")
        if held:
            self.notes.append("out of memory: gradients are no longer recorded, but computed one by one.")
        return held

    def _accumulate(
        self, batch: Batch, carried: ModelState, count: float, shares: Shares
    ) -> tuple[torch.Tensor, ModelState]:
        if self.place.pieces == 1 and shares == Shares(batch.rows):
            way = self.replay if self.device_decides else self.learn
            return way(batch, carried, self._factor(1 / count))
        size = math.ceil(batch.rows / self.place.pieces)
        total, carries = torch.zeros((), dtype=torch.float64, device=self.device), []
        for first in range(0, batch.rows, size):
            for start, stop, weight in shares.of(first, min(first + size, batch.rows)):
                carry = map_state(lambda tensor: tensor[start:stop], carried)  # noqa: B023 - used at once
                loss, carry = self.learn(batch.slice(start, stop), carry, self._factor(weight / count))
                total += weight * loss
                carries.append(carry)
        return total, carries[0] if len(carries) == 1 else join_rows(carries) if carries else None

    def _factor(self, value: float) -> torch.Tensor:
        return torch.full((), value, dtype=torch.float64, device=self.device)

    def _seed(self) -> None:
        """Dropout depends on (seed, step, rank) alone."""
        mixed = (self.seed * 1_000_003 + self.place.step) * 1_000_003 + self.world.rank
        # Not `torch.manual_seed`: for every kind of device that is not in use it keeps a call stack, as text.
        torch.default_generator.manual_seed(mixed % 2**63)
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):
                torch.cuda.manual_seed(mixed % 2**63)

    def _non_finite(self, batch: Batch, loss: float, norm: float) -> NonFiniteError:
        rows = [row for row in range(batch.rows) if not self._row_is_finite(batch.slice(row, row + 1), row)]
        begins = [int(batch.positions[row]) for row in rows] if batch.positions is not None else []
        everywhere = [] if batch.positions is None else batch.positions.tolist()
        guilty = self.world.gather(begins) or self.world.gather(everywhere)
        places = ", ".join(f"{begin:,}" for begin in guilty[:8])
        return NonFiniteError(
            f"the loss is {loss:g} and the gradient norm {norm:g} at step {self.place.step + 1}"
            + (
                f", in the samples that begin at {batch.position_unit} {places}{' …' if len(guilty) > 8 else ''}"
                if places
                else ""
            )
            + ". The update was not made.",
            repair="The last good checkpoint is kept. Try half the learning rate (--training.learning-rate) "
            "or a smaller --training.clip-threshold.",
        )

    @torch.no_grad()
    def _row_is_finite(self, row: Batch, index: int) -> bool:
        carry = map_state(lambda tensor: tensor[index : index + 1], self.carry)
        return bool(torch.isfinite(self.model(row, carry)[0].total))

    # Saving and going on

    def snapshot(self) -> Snapshot:
        """All that is needed to go on. Every process must call it; the first one saves."""
        carry = self.world.gather_rows(self.carry)
        tensors = {f"model.{name}": tensor for name, tensor in weights_of(self.model).items()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in moments_of(self.optimiser, self.model).items()}
        tensors |= flatten(carry)
        state: dict[str, Any] = {"place": vars(self.place) | {"history": list(self.place.history)}}
        state |= {"carry": structure(carry), "schedule": self.schedule.state()}
        if self.average:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.weights.items()}
            state["average"] = self.average.count
        return Snapshot(tensors, state)

    def restore(self, snapshot: Snapshot) -> None:
        """Go on where the snapshot was taken, in any number of processes."""
        tensors, state = snapshot.tensors, snapshot.state

        def part(prefix: str) -> dict[str, torch.Tensor]:
            return {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}

        load_weights(self.model, part("model."), "checkpoint")
        restore_moments(self.optimiser, self.model, part("optimizer."))
        self.schedule.restore(state["schedule"])
        self.place = TrainerState(**state["place"])
        carry = map_state(lambda tensor: tensor.to(self.device), unflatten(state["carry"], tensors))
        self.carry = self.world.own_rows(carry)
        if self.average:
            self.average.weights = {name: t.to(self.device) for name, t in part("average.").items()}
            self.average.count = state["average"]


def learn(
    model: nn.Module, device: torch.device, casts: bool, rows: Batch, carry: ModelState, factor: torch.Tensor
) -> tuple[torch.Tensor, ModelState]:
    """The loss of these rows, summed, and the carry after them; gradients of loss times factor are added up."""
    with torch.autocast(device.type, torch.bfloat16, enabled=casts):
        loss, carry = model(rows, carry)
    loss.total.backward(factor.to(loss.total.dtype))
    return loss.total.detach().double(), detach(carry)


def attempts(items: Iterator[T]) -> Iterator[T | Exception]:
    """The items, and at last what went wrong, if anything did."""
    try:
        yield from items
    except Exception as error:
        yield error
